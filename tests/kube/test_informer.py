"""An informer's copy follows the cluster, whatever happens to the connection."""

from __future__ import annotations

import math
import queue
import random
import threading

import pytest

from tests.kube.builders import a_cluster, a_config_map, meta
from tests.kube.contract.base import SOON
from tests.kube.informers import (
    AT_ONCE,
    Start,
    an_informer,
    next_changes,
    remove,
    rewrite,
    text_of,
    write,
)
from tests.reactions import (
    Call,
    Hold,
    ReactiveClient,
    StaleReads,
    at_random,
    expire,
    in_turn,
    lose_answer,
    preceded_by,
    throttle,
    unavailable,
)
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    CONFIG_MAPS,
    ApiError,
    ExpiredError,
    ListOptions,
    Object,
    TooManyRequestsError,
    UnavailableError,
    UnreachableError,
)
from webhook.kube.informer import Change, Informer, InformerTimings
from webhook.kube.informer_types import STALE_SECONDS


class TestFollowing:
    def test_it_lists_and_then_watches(self, api: FakeClient, start: Start) -> None:
        write(api, "a", "one")
        informer, seen = start()
        assert informer.wait_for_sync(SOON)
        write(api, "b", "two")
        rewrite(api, "a", "three")
        version = remove(api, "b")
        assert next_changes(seen, 4) == [
            ("ADDED", "a", None, "one"),
            ("ADDED", "b", None, "two"),
            ("UPDATED", "a", "one", "three"),
            ("DELETED", "b", "two", None),
        ]
        assert informer.wait_for_version(version, SOON)
        assert informer.items() == {"team-a/a": "three"}
        assert informer.relists == 1

    def test_the_copy_is_newer_than_what_handlers_heard(
        self, cluster: FakeCluster, api: FakeClient
    ) -> None:
        informer, told = an_informer(FakeClient(cluster)), queue.Queue[object]()
        informer.add_handler(lambda change: told.put((change.new, informer.get(change.key))))
        informer.start()
        write(api, "a", "one")
        assert told.get(timeout=SOON) == ("one", "one")
        informer.stop()

    def test_changes_carry_uid_and_version(self, api: FakeClient, start: Start) -> None:
        informer, seen = start()
        assert informer.wait_for_sync(SOON)
        created = api.create(CONFIG_MAPS, a_config_map("a", text="one"))
        change = seen.get(timeout=SOON)
        assert (change.uid, change.resource_version) == (created.uid, created.resource_version)
        entry = informer.entry("team-a/a")
        assert entry is not None
        assert (entry.uid, entry.resource_version) == (created.uid, created.resource_version)

    def test_its_scope_bounds_it(self, api: FakeClient, start: Start) -> None:
        far = {"namespace": "team-b", "labels": {"app": "web"}}
        api.create(CONFIG_MAPS, a_config_map("far", metadata=far, text="far"))
        web = {"labels": {"app": "web"}}
        api.create(CONFIG_MAPS, a_config_map("near", metadata=web, text="near"))
        write(api, "plain", "plain")
        informer, seen = start(scope=ListOptions(namespace="team-a", label_selector="app=web"))
        assert informer.wait_for_sync(SOON)
        api.create(CONFIG_MAPS, a_config_map("late", metadata=web, text="late"))
        assert [change[1] for change in next_changes(seen, 2)] == ["near", "late"]

    def test_items_are_found_by_namespace(self, api: FakeClient, start: Start) -> None:
        informer, seen = start()
        write(api, "b", "xy")
        write(api, "a", "yz")
        next_changes(seen, 2)
        assert informer.in_namespace("team-a") == ("yz", "xy")
        rewrite(api, "a", "w")
        remove(api, "b")
        next_changes(seen, 2)
        assert informer.in_namespace("team-a") == ("w",)
        assert informer.in_namespace("nowhere") == ()

    def test_an_object_that_is_recreated_is_another_one(
        self, api: FakeClient, start: Start
    ) -> None:
        informer, seen = start()
        assert informer.wait_for_sync(SOON)
        write(api, "a", "one")
        remove(api, "a")
        write(api, "a", "two")
        types = [change[0] for change in next_changes(seen, 3)]
        assert types == ["ADDED", "DELETED", "ADDED"]

    def test_every_version_is_read_once(self, cluster: FakeCluster, api: FakeClient) -> None:
        read: list[str] = []

        def reading(obj: Object) -> str:
            read.append(f"{meta(obj)['name']}@{meta(obj)['resourceVersion']}")
            return text_of(obj)

        informer = Informer(api, CONFIG_MAPS, transform=reading, timings=AT_ONCE)
        write(api, "a", "one")
        informer.start()
        assert informer.wait_for_sync(SOON)
        cluster.compact()
        version = write(api, "b", "two")
        cluster.cut_watches(ExpiredError("too old"))
        assert informer.wait_for_version(version, SOON)
        informer.stop()
        assert sorted(read) == ["a@1001", "b@1002"]


class TestTroubles:
    def test_a_watch_that_ends_is_taken_up_where_it_was(
        self, cluster: FakeCluster, api: FakeClient, start: Start
    ) -> None:
        informer, seen = start()
        assert informer.wait_for_sync(SOON)
        for number, error in enumerate((None, UnreachableError("reset"), None)):
            cluster.cut_watches(error)
            assert informer.wait_for_version(write(api, f"n{number}", "x"), SOON)
        assert [change[1] for change in next_changes(seen, 3)] == ["n0", "n1", "n2"]
        assert informer.relists == 1

    def test_what_was_missed_is_reported_after_a_new_list(
        self, cluster: FakeCluster, api: FakeClient, start: Start
    ) -> None:
        for name in ("gone", "same", "changed", "recreated"):
            write(api, name, "one")
        flaky, held = ReactiveClient(cluster), Hold()
        informer, seen = start(flaky)
        next_changes(seen, 4)
        flaky.on("watch", "*", held)
        cluster.cut_watches()
        remove(api, "gone")
        rewrite(api, "changed", "two")
        remove(api, "recreated")
        write(api, "recreated", "three")
        version = write(api, "new", "four")
        cluster.compact()
        held.release()
        assert informer.wait_for_version(version, SOON)
        assert sorted(next_changes(seen, 5)) == [
            ("ADDED", "new", None, "four"),
            ("ADDED", "recreated", None, "three"),
            ("DELETED", "gone", "one", None),
            ("DELETED", "recreated", "one", None),
            ("UPDATED", "changed", "one", "two"),
        ]
        assert informer.relists == 2
        assert seen.empty()

    def test_an_expired_answer_to_the_watch_itself_lists_anew(
        self, cluster: FakeCluster, start: Start
    ) -> None:
        flaky = ReactiveClient(cluster)
        flaky.on("watch", "*", expire, times=1)
        informer, _ = start(flaky)
        assert informer.wait_for_sync(SOON)
        version = write(FakeClient(cluster), "a", "one")
        assert informer.wait_for_version(version, SOON)
        assert informer.relists == 2

    def test_it_syncs_only_when_a_list_got_through(
        self, cluster: FakeCluster, api: FakeClient
    ) -> None:
        flaky, synced = ReactiveClient(cluster), list[bool]()
        flaky.on("list", "*", in_turn([unavailable, lose_answer, throttle]))
        informer = an_informer(flaky)
        informer.add_handler(lambda _: synced.append(informer.has_synced))
        write(api, "a", "one")
        assert not informer.has_synced
        assert math.isinf(informer.last_event_age_seconds)
        informer.start()
        assert informer.wait_for_sync(SOON)
        informer.stop()
        assert synced == [False]
        assert informer.relists == 1

    def test_why_nothing_could_be_listed_is_said_until_it_can(
        self, cluster: FakeCluster, api: FakeClient
    ) -> None:
        pauses: list[ApiError | None] = []
        flaky = ReactiveClient(cluster)
        flaky.on("list", "*", in_turn([unavailable, throttle]))
        timing = InformerTimings(sleep=lambda _: pauses.append(informer.last_error))
        informer = an_informer(flaky, timing=timing)
        assert informer.last_error is None
        informer.start()
        assert informer.wait_for_sync(SOON)
        assert [type(error) for error in pauses] == [UnavailableError, TooManyRequestsError]
        assert informer.last_error is None
        cluster.cut_watches(UnreachableError("reset"))
        assert informer.wait_for_version(write(api, "a", "one"), SOON)
        assert isinstance(pauses[-1], UnreachableError)
        assert informer.last_error is None
        informer.stop()

    def test_one_watch_that_ends_is_no_warning_and_a_failure_after_it_is(
        self, cluster: FakeCluster, api: FakeClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        """On a quiet API server bookmarks are late now and then, and the watch is opened again."""
        flaky = ReactiveClient(cluster)
        informer = an_informer(flaky)
        with caplog.at_level("INFO", logger="webhook.kube.informer"):
            informer.start()
            assert informer.wait_for_sync(SOON)
            cluster.cut_watches(UnreachableError("no byte within 90 s"))
            assert informer.wait_for_version(write(api, "a", "one"), SOON)
            assert [one.levelname for one in caplog.records] == ["INFO"]
            flaky.on("watch", "*", unavailable, times=1)
            cluster.cut_watches(UnreachableError("reset"))
            assert informer.wait_for_version(write(api, "b", "one"), SOON)
        informer.stop()
        assert [one.levelname for one in caplog.records] == ["INFO", "INFO", "WARNING"]

    def test_a_list_older_than_what_was_seen_is_not_believed(
        self, cluster: FakeCluster, api: FakeClient, start: Start
    ) -> None:
        flaky, stale = ReactiveClient(cluster), StaleReads()
        flaky.on("list", "*", stale.remember)
        informer, seen = start(flaky)
        write(api, "a", "one")
        next_changes(seen, 1)
        flaky.on("list", "*", stale.repeat, times=2)
        cluster.compact()
        cluster.cut_watches(ExpiredError("too old"))
        version = rewrite(api, "a", "two")
        assert informer.wait_for_version(version, SOON)
        assert next_changes(seen, 1) == [("UPDATED", "a", "one", "two")]
        assert seen.empty()

    def test_pauses_grow_and_are_jittered_up_to_a_bound(self, cluster: FakeCluster) -> None:
        pauses: list[float] = []
        enough = threading.Event()

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 9:
                enough.set()
                informer.stop()

        timing = InformerTimings(rand=lambda: 0.5, sleep=sleep, clock=lambda: 0.0)
        flaky = ReactiveClient(cluster)
        flaky.on("*", "*", unavailable)
        informer = an_informer(flaky, timing=timing)
        informer.start()
        assert enough.wait(SOON)
        informer.stop()
        assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]

    def test_a_connection_that_held_makes_the_pauses_short_again(
        self, cluster: FakeCluster
    ) -> None:
        pauses: list[float] = []
        done = threading.Event()
        now = 0.0

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 5:
                done.set()
                informer.stop()

        def take_long(_call: Call) -> None:
            nonlocal now
            now += 61.0 if len(pauses) == 3 else 1.0

        timing = InformerTimings(rand=lambda: 1.0, sleep=sleep, clock=lambda: now)
        flaky = ReactiveClient(cluster)
        flaky.on("*", "*", unavailable)
        flaky.on("*", "*", preceded_by(take_long))
        informer = an_informer(flaky, timing=timing)
        informer.start()
        assert done.wait(SOON)
        assert pauses == [0.5, 1.0, 2.0, 0.5, 1.0]

    def test_a_watch_that_brought_something_makes_the_pauses_short_again(
        self, cluster: FakeCluster, api: FakeClient
    ) -> None:
        pauses: list[float] = []
        done = threading.Event()

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 5:
                done.set()
                informer.stop()

        def end_after_one_event(_change: Change[str]) -> None:
            cluster.cut_watches()
            flaky.on("*", "*", unavailable)

        timing = InformerTimings(rand=lambda: 1.0, sleep=sleep, clock=lambda: 0.0)
        flaky = ReactiveClient(cluster)
        flaky.on("list", "*", unavailable, times=3)
        flaky.on("watch", "*", preceded_by(lambda _: _write_once(api)))
        informer = an_informer(flaky, timing=timing)
        informer.add_handler(end_after_one_event)
        informer.start()
        assert done.wait(SOON)
        assert pauses == [0.5, 1.0, 2.0, 0.5, 1.0]

    def test_a_watch_lasts_a_random_time(self) -> None:
        assert InformerTimings(rand=lambda: 0.0).watch_seconds() == 240
        assert InformerTimings(rand=lambda: 0.5).watch_seconds() == 360


def _write_once(api: FakeClient) -> None:
    """Write what the watch that begins now will see."""
    if not api.list(CONFIG_MAPS).items:
        threading.Timer(0.02, write, (api, "a", "one")).start()


class TestUnreadable:
    def test_one_unreadable_object_stops_nothing(self, api: FakeClient, start: Start) -> None:
        write(api, "bad", "unreadable")
        informer, seen = start()
        write(api, "good", "one")
        next_changes(seen, 2)
        assert informer.items() == {"team-a/good": "one"}
        assert informer.get("team-a/bad") is None
        errors = {key: str(entry.error) for key, entry in informer.errors_in("team-a").items()}
        assert errors == {"team-a/bad": "cannot be read"}
        assert len(informer) == 2

    def test_what_becomes_unreadable_loses_its_value_and_is_reported(
        self, api: FakeClient, start: Start
    ) -> None:
        informer, seen = start()
        write(api, "a", "one")
        rewrite(api, "a", "unreadable")
        seen.get(timeout=SOON)
        change = seen.get(timeout=SOON)
        assert (change.type, change.old, change.new) == ("UPDATED", "one", None)
        assert str(change.error) == "cannot be read"
        assert informer.in_namespace("team-a") == ()

    def test_what_becomes_readable_again_has_no_error(self, api: FakeClient, start: Start) -> None:
        informer, seen = start()
        write(api, "a", "unreadable")
        rewrite(api, "a", "two")
        assert next_changes(seen, 2)[1] == ("UPDATED", "a", None, "two")
        assert informer.errors_in("team-a") == {}

    def test_a_handler_that_fails_does_not_keep_others_from_hearing(self, api: FakeClient) -> None:
        informer, seen = an_informer(api), queue.Queue[Change[str]]()

        def failing(change: Change[str]) -> None:
            raise RuntimeError(change.key)

        informer.add_handler(failing)
        informer.add_handler(seen.put)
        informer.start()
        write(api, "a", "one")
        write(api, "b", "two")
        assert [change[1] for change in next_changes(seen, 2)] == ["a", "b"]
        informer.stop()


class TestLife:
    def test_bookmarks_carry_the_version_on(self, cluster: FakeCluster, start: Start) -> None:
        informer, seen = start()
        assert informer.wait_for_sync(SOON)
        other = FakeClient(cluster).create(CONFIG_MAPS, a_config_map("a", text="x"))
        next_changes(seen, 1)
        for _ in range(3):
            rewrite(FakeClient(cluster), "a", "y")
        cluster.send_bookmarks()
        assert informer.wait_for_version(other.resource_version + 1, SOON)
        assert informer.resource_version == cluster.resource_version

    def test_its_age_is_the_time_since_it_heard_anything(self, cluster: FakeCluster) -> None:
        now = 100.0
        informer = an_informer(
            FakeClient(cluster), timing=InformerTimings(rand=lambda: 0.0, clock=lambda: now)
        )
        informer.start()
        assert informer.wait_for_sync(SOON)
        now = 130.0
        assert informer.last_event_age_seconds == 30.0
        version = write(FakeClient(cluster), "a", "one")
        assert informer.wait_for_version(version, SOON)
        assert informer.last_event_age_seconds == 0.0
        informer.stop()

    def test_it_is_current_while_nothing_fails_and_it_heard_something_lately(
        self, cluster: FakeCluster
    ) -> None:
        now, client = 100.0, ReactiveClient(cluster)
        informer = an_informer(client, timing=InformerTimings(rand=lambda: 0.0, clock=lambda: now))
        assert not informer.is_current
        informer.start()
        assert informer.wait_for_sync(SOON)
        assert informer.is_current
        now += STALE_SECONDS + 1
        assert not informer.is_current
        assert informer.wait_for_version(write(FakeClient(cluster), "a", "one"), SOON)
        assert informer.is_current
        opens = Hold()
        client.on("watch", CONFIG_MAPS, in_turn([unavailable, opens]))
        cluster.cut_watches()
        opens.wait_for_call()
        assert not informer.is_current
        opens.release()
        informer.stop()

    def test_stopping_ends_a_quiet_watch_at_once(self, start: Start) -> None:
        informer, _ = start()
        assert informer.wait_for_sync(SOON)
        informer.stop()
        assert not [one for one in threading.enumerate() if one.name == "informer-configmaps"]

    def test_stopping_ends_a_pause_at_once(self, cluster: FakeCluster) -> None:
        failed, flaky = threading.Event(), ReactiveClient(cluster)
        flaky.on("*", "*", unavailable)
        flaky.on("*", "*", preceded_by(lambda _: failed.set()))
        informer = an_informer(flaky, timing=InformerTimings(rand=lambda: 1.0, first_pause=600.0))
        informer.start()
        assert failed.wait(SOON)
        informer.stop()
        assert not informer.has_synced
        assert not [one for one in threading.enumerate() if one.name == "informer-configmaps"]

    def test_stopping_while_a_watch_opens_ends_it(self, cluster: FakeCluster) -> None:
        flaky = ReactiveClient(cluster)
        informer = an_informer(flaky)
        flaky.on("watch", "*", preceded_by(lambda _: informer.stop()))
        informer.start()
        assert informer.wait_for_sync(SOON)
        for thread in threading.enumerate():
            if thread.name == "informer-configmaps":
                thread.join(SOON)
                assert not thread.is_alive()

    def test_stopping_wakes_threads_that_wait_for_it(self, cluster: FakeCluster) -> None:
        informer = an_informer(FakeClient(cluster))
        answers: list[bool] = []
        waiting = threading.Thread(target=lambda: answers.append(informer.wait_for_sync(60)))
        waiting.start()
        informer.stop()
        waiting.join(SOON)
        assert answers == [False]

    def test_what_never_comes_is_not_waited_for(self, start: Start) -> None:
        informer, _ = start()
        assert informer.wait_for_sync(SOON)
        assert not informer.wait_for_version(10**9, 0.01)

    def test_it_starts_once_and_takes_handlers_before(self, start: Start) -> None:
        informer, _ = start()
        with pytest.raises(RuntimeError, match="starts once"):
            informer.start()
        with pytest.raises(RuntimeError, match="before the informer starts"):
            informer.add_handler(print)


@pytest.mark.parametrize("seed", range(4))
def test_under_all_troubles_at_once_the_copy_ends_up_right(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - a test's choices
    cluster = a_cluster(history_limit=8, seed=seed)
    api = FakeClient(cluster)
    flaky, stale = ReactiveClient(cluster), StaleReads()
    chances = {unavailable: 0.1, lose_answer: 0.1, stale.repeat: 0.2, throttle: 0.1}
    flaky.on("*", "*", stale.remember)
    troubles = flaky.on("*", "*", at_random(random.Random(seed), chances))  # noqa: S311
    informer = an_informer(flaky)
    told: dict[str, str | None] = {}
    informer.add_handler(lambda change: _retell(told, change))
    informer.start()
    for step in range(300):
        _disturb(rng, cluster, api, step)
    troubles.remove()
    version = write(api, "last", "end")
    assert informer.wait_for_version(version, SOON)
    informer.stop()
    expected = {f"team-a/{meta(obj)['name']}": text_of(obj) for obj in api.list(CONFIG_MAPS).items}
    assert informer.items() == expected
    assert told == expected


def _retell(told: dict[str, str | None], change: Change[str]) -> None:
    """Keep a copy by what handlers hear alone; each change must fit the one before."""
    if change.type == "ADDED":
        assert change.key not in told
    else:
        assert told[change.key] == change.old
    if change.type == "DELETED":
        del told[change.key]
    else:
        told[change.key] = change.new


def _disturb(rng: random.Random, cluster: FakeCluster, api: FakeClient, step: int) -> None:
    there = [str(meta(obj)["name"]) for obj in api.list(CONFIG_MAPS).items]
    chosen = rng.random()
    if chosen < 0.05:
        cluster.compact()
    elif chosen < 0.10:
        cluster.cut_watches(rng.choice([None, UnreachableError("reset"), ExpiredError("old")]))
    elif chosen < 0.15:
        cluster.send_bookmarks()
    elif there and chosen < 0.40:
        remove(api, rng.choice(there))
    elif there and chosen < 0.70:
        rewrite(api, rng.choice(there), f"text-{step}")
    else:
        name = f"n{rng.randrange(8)}"
        if name not in there:
            write(api, name, f"text-{step}")
