"""What only the fake API server can show of watches: lost history, cuts, bookmarks."""

from __future__ import annotations

import random
import threading
from itertools import pairwise

import pytest

from tests.kube.builders import a_cluster, a_config_map, a_ledger, first, lines, meta
from tests.kube.contract.base import SOON, run_together
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.fakecluster.storage.history import History, StoreChange
from webhook.fakecluster.storage.stored_object import read_object
from webhook.kube.api import (
    CONFIG_MAPS,
    QUOTA_LEDGERS,
    ExpiredError,
    RequestTimeoutError,
    UnreachableError,
    WatchEvent,
    WatchStream,
)

START = 1000


def client(cluster: FakeCluster | None = None) -> FakeClient:
    return FakeClient(cluster or a_cluster())


def watch(
    api: FakeClient, version: int = START, *, seconds: float = SOON, bookmarks: bool = False
) -> WatchStream:
    return api.watch(
        CONFIG_MAPS, resource_version=version, timeout_seconds=seconds, bookmarks=bookmarks
    )


def write(api: FakeClient, *names: str) -> None:
    for name in names:
        api.create(CONFIG_MAPS, a_config_map(name))


def assert_expired(event: WatchEvent, text: str) -> None:
    assert event.type == "ERROR"
    error = event.error()
    assert isinstance(error, ExpiredError)
    assert (error.code, error.message) == (410, text)


def test_a_watch_from_a_forgotten_version_is_expired() -> None:
    api = client()
    write(api, "a", "b")
    api.cluster.compact()
    with watch(api, START + 1) as stream:
        events = list(stream)
    assert len(events) == 1
    assert_expired(events[0], "too old resource version: 1001 (1002)")


def test_a_watch_that_has_seen_everything_survives_the_loss_of_history() -> None:
    api = client()
    write(api, "a")
    with watch(api) as stream:
        assert lines(first(stream, 1)) == [("ADDED", "team-a/a")]
        api.cluster.compact()
        write(api, "b")
        assert lines(first(stream, 1)) == [("ADDED", "team-a/b")]


def test_a_watch_that_is_left_behind_is_expired() -> None:
    api = client(a_cluster(history_limit=3))
    with watch(api) as stream:
        write(api, "a", "b", "c", "d")
        assert_expired(first(stream, 1)[0], "too old resource version: 1000 (1001)")
        assert list(stream) == []


def test_history_goes_back_as_far_as_its_limit() -> None:
    api = client(a_cluster(history_limit=3))
    write(api, "a", "b", "c", "d")
    with watch(api, START + 1) as stream:
        assert [event.key for event in first(stream, 3)] == ["team-a/b", "team-a/c", "team-a/d"]


def test_history_is_bounded_in_bytes_too_but_keeps_the_newest() -> None:
    history = History(floor=0, limit=100, limit_bytes=5_000)
    for version in range(1, 6):
        large = read_object(CONFIG_MAPS, a_config_map(text="x" * 2_000)).at(version)
        history.append(StoreChange("ADDED", large, None))
    assert (history.floor, history.position_after(3), history.position_after(2)) == (4, None, None)
    assert [change.current.version for change in history.since(history.end - 1) or ()] == [5]


def test_other_kinds_do_not_use_up_the_history() -> None:
    api = client(a_cluster(history_limit=2))
    write(api, "a")
    version = api.create(QUOTA_LEDGERS, a_ledger()).resource_version
    for number in range(5):
        sent = a_ledger(version=version, status={"number": number})
        version = api.update_status(QUOTA_LEDGERS, sent).resource_version
    with watch(api) as stream:
        assert lines(first(stream, 1)) == [("ADDED", "team-a/a")]


def test_a_watch_from_a_version_to_come_is_refused() -> None:
    with watch(client(), START + 5) as stream:
        event = first(stream, 1)[0]
    error = event.error()
    assert isinstance(error, RequestTimeoutError)
    assert error.message == "Timeout: Too large resource version: 1005, current: 1000"
    assert error.retry_after == 1


def test_a_cut_ends_running_watches_and_no_later_ones() -> None:
    api = client()
    before = [watch(api), watch(api)]
    api.cluster.cut_watches()
    assert [list(stream) for stream in before] == [[], []]
    write(api, "a")
    with watch(api) as stream:
        assert len(first(stream, 1)) == 1


def test_a_cut_can_look_like_a_broken_connection() -> None:
    api = client()
    with watch(api) as stream:
        api.cluster.cut_watches(UnreachableError("connection reset"))
        with pytest.raises(UnreachableError, match="connection reset"):
            first(stream, 1)
        assert list(stream) == []


def test_a_cut_wakes_waiting_readers() -> None:
    api = client()
    stream = watch(api, seconds=60)
    seen: list[WatchEvent] = []
    waiting = threading.Thread(target=lambda: seen.extend(stream))
    waiting.start()
    api.cluster.cut_watches()
    waiting.join(SOON)
    assert not waiting.is_alive()
    assert seen == []


def test_a_watch_ends_with_a_bookmark_of_the_newest_version() -> None:
    api = client()
    version = api.create(QUOTA_LEDGERS, a_ledger()).resource_version
    with watch(api, seconds=0.01, bookmarks=True) as stream:
        events = list(stream)
    assert [(event.type, event.resource_version) for event in events] == [("BOOKMARK", version)]
    assert meta(events[0].object)["resourceVersion"] == str(version)
    assert events[0].object["kind"] == "ConfigMap"


def test_bookmarks_come_only_to_watches_that_asked() -> None:
    api = client()
    with watch(api, bookmarks=True) as asked, watch(api, seconds=0.01) as not_asked:
        api.cluster.send_bookmarks()
        assert first(asked, 1)[0].type == "BOOKMARK"
        assert list(not_asked) == []


def test_a_bookmark_comes_after_what_it_covers() -> None:
    api = client()
    with watch(api, bookmarks=True) as stream:
        write(api, "a", "b")
        api.cluster.send_bookmarks()
        events = first(stream, 3)
    assert [event.type for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
    assert events[2].resource_version == events[1].resource_version


def test_two_watchers_do_not_share_what_they_read() -> None:
    api = client()
    write(api, "a")
    with watch(api) as one, watch(api) as other:
        changed = first(one, 1)[0].object
        meta(changed)["name"] = "changed"
        assert meta(first(other, 1)[0].object)["name"] == "a"


def test_an_event_decodes_its_object_once() -> None:
    api = client()
    write(api, "a")
    with watch(api) as stream:
        event = first(stream, 1)[0]
    assert event.object is event.object


def test_many_watchers_and_writers_agree_on_one_order() -> None:
    api = client()
    stories: list[list[tuple[str, str, int]]] = []
    writes = 3 * 30

    def follow() -> None:
        with watch(api) as stream:
            stories.append(
                [(event.type, event.key, event.resource_version) for event in first(stream, writes)]
            )

    def writer(number: int) -> None:
        rng = random.Random(number)  # noqa: S311 - a test's choices
        there: list[str] = []
        for step in range(30):
            if there and rng.random() < 0.3:
                api.delete(CONFIG_MAPS, there.pop(), namespace="team-a")
            elif there and rng.random() < 0.5:
                patch = {"data": {"step": str(step)}}
                api.patch(CONFIG_MAPS, rng.choice(there), patch, namespace="team-a")
            else:
                there.append(f"w{number}-{step}")
                write(api, there[-1])

    run_together(follow, follow, *(lambda n=n: writer(n) for n in range(3)), follow)
    assert len(stories[0]) == writes
    assert stories[0] == stories[1] == stories[2]
    assert all(left[2] < right[2] for left, right in pairwise(stories[0]))
    assert_lives_make_sense(stories[0])


def assert_lives_make_sense(story: list[tuple[str, str, int]]) -> None:
    """Each object is added, then modified any number of times, then deleted at most once."""
    alive: set[str] = set()
    for event_type, key, _ in story:
        assert (key in alive) is (event_type != "ADDED")
        if event_type == "DELETED":
            alive.remove(key)
        else:
            alive.add(key)
