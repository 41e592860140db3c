"""An event that ends every watch that meets it stops no informer: a list leads past it."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from tests.kube.builders import a_config_map
from tests.kube.contract.base import SOON
from tests.kube.informers import Start, an_informer, next_changes, remove, rewrite, write
from tests.reactions import (
    Call,
    InterceptedWatch,
    Proceed,
    ReactiveClient,
    expire,
    in_turn,
    preceded_by,
    unavailable,
)
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CONFIG_MAPS, ApiError, UnreachableError, WatchEvent, WatchStream
from webhook.kube.informer import InformerTimings

DEEP = "team-a/deep"


@pytest.fixture
def flaky(cluster: FakeCluster) -> ReactiveClient:
    """A client of a server that can list what it cannot write into a watch."""
    return that_ends_watches(ReactiveClient(cluster))


def that_ends_watches(client: ReactiveClient, error: ApiError | None = None) -> ReactiveClient:
    """Have the server end each watch where it cannot write an event: that of `DEEP`."""

    def watch(_call: Call, proceed: Proceed) -> WatchStream:
        stream: WatchStream = proceed()

        def end(event: WatchEvent) -> None:
            if event.key == DEEP:
                stream.close()
                raise error or StopIteration

        return InterceptedWatch(stream, end)

    client.on("watch", "*", watch)
    return client


def ended_at_once(_call: Call, proceed: Proceed) -> WatchStream:
    stream: WatchStream = proceed()
    stream.close()
    return stream


@pytest.mark.parametrize("error", [None, UnreachableError("reset")])
def test_a_list_leads_past_an_event_that_ends_each_watch(
    cluster: FakeCluster,
    api: FakeClient,
    start: Start,
    caplog: pytest.LogCaptureFixture,
    error: ApiError | None,
) -> None:
    informer, seen = start(that_ends_watches(ReactiveClient(cluster), error))
    write(api, "a", "one")
    next_changes(seen, 1)
    write(api, "deep", "one")
    version = remove(api, "a")
    assert informer.wait_for_version(version, SOON)
    assert sorted(next_changes(seen, 2)) == [
        ("ADDED", "deep", None, "one"),
        ("DELETED", "a", "one", None),
    ]
    assert informer.wait_for_version(write(api, "b", "one"), SOON)
    assert informer.relists == 2
    stuck = [one for one in caplog.records if one.message == "watch makes no progress"]
    assert [one.levelname for one in stuck] == ["WARNING"]


def test_neither_one_watch_without_an_event_nor_one_that_is_refused_costs_a_list(
    cluster: FakeCluster, api: FakeClient, start: Start
) -> None:
    flaky = ReactiveClient(cluster)
    informer, seen = start(flaky)
    write(api, "a", "one")
    next_changes(seen, 1)
    flaky.on("watch", "*", unavailable, times=3)
    cluster.cut_watches()
    assert informer.wait_for_version(write(api, "b", "one"), SOON)
    for name in ("c", "d"):  # each watch brings one event before it ends
        cluster.cut_watches()
        assert informer.wait_for_version(write(api, name, "one"), SOON)
    assert informer.relists == 1


def test_such_events_without_a_pause_cost_no_more_than_a_fifth_of_the_time_in_lists(
    api: FakeClient, flaky: ReactiveClient
) -> None:
    now, took = 0.0, 3.0
    lists: list[float] = []
    enough = threading.Event()

    def take_long(_call: Call) -> None:
        nonlocal now
        lists.append(now)
        now += took

    def sleep(_seconds: float) -> None:
        nonlocal now
        now += 1.0
        if len(lists) == 4:
            enough.set()
            informer.stop()

    flaky.on("list", "*", preceded_by(take_long))
    flaky.on("watch", "*", preceded_by(lambda _: rewrite(api, "deep", f"at {now}")))
    write(api, "deep", "one")
    informer = an_informer(flaky, timing=InformerTimings(clock=lambda: now, sleep=sleep))
    informer.start()
    assert enough.wait(SOON)
    informer.stop()
    pauses = [later - earlier for earlier, later in pairwise(lists)]
    assert all(5 * took <= pause <= 5 * took + 2 for pause in pauses), lists


def pauses_of(flaky: ReactiveClient, number: int) -> list[float]:
    """Return the first pauses of an informer, each the longest that its attempt may have."""
    pauses: list[float] = []
    enough = threading.Event()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == number:
            enough.set()
            informer.stop()

    timing = InformerTimings(rand=lambda: 1.0, clock=lambda: 0.0, sleep=sleep)
    informer = an_informer(flaky, timing=timing)
    informer.start()
    assert enough.wait(SOON)
    informer.stop()
    return pauses


def test_each_such_list_makes_the_pauses_short_again(
    api: FakeClient, flaky: ReactiveClient
) -> None:
    flaky.on("watch", "*", preceded_by(lambda call: rewrite(api, "deep", f"at {call.number}")))
    write(api, "deep", "one")
    assert pauses_of(flaky, 6) == [0.5, 1.0] * 3


def test_where_the_server_asks_for_another_list_after_each_pauses_grow(
    cluster: FakeCluster, api: FakeClient
) -> None:
    flaky = ReactiveClient(cluster)

    def forgotten(call: Call, proceed: Proceed) -> None:
        rewrite(api, "a", f"at {call.number}")
        expire(call, proceed)

    flaky.on("watch", "*", forgotten)
    write(api, "a", "one")
    assert pauses_of(flaky, 4) == [0.5, 1.0, 2.0, 4.0]
    assert len(flaky.calls_of("list")) == 4


def test_where_lists_show_nothing_new_pauses_grow(cluster: FakeCluster, api: FakeClient) -> None:
    """What is between a client and a quiet API server may end all watches, too."""
    flaky = ReactiveClient(cluster)
    flaky.on("watch", "*", ended_at_once)
    write(api, "a", "one")
    assert pauses_of(flaky, 8) == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert len(flaky.calls_of("list")) == 4


def test_where_the_list_is_refused_the_watch_gets_another_try(
    cluster: FakeCluster, api: FakeClient, start: Start
) -> None:
    flaky = ReactiveClient(cluster)
    informer, seen = start(flaky, timing=InformerTimings(rand=lambda: 0.0, clock=lambda: 0.0))
    write(api, "a", "one")
    next_changes(seen, 1)
    assert informer.wait_for_sync(SOON)
    flaky.on("list", "*", unavailable)
    flaky.on("watch", "*", ended_at_once, times=2)
    cluster.cut_watches()
    assert informer.wait_for_version(write(api, "b", "one"), SOON)
    assert len(flaky.calls_of("list")) == 2
    assert informer.relists == 1


def test_after_the_first_page_of_a_list_no_watch_goes_on_from_before_it(
    cluster: FakeCluster, api: FakeClient, start: Start
) -> None:
    """It would take back what that page has shown."""
    names = (f"n{number:03}" for number in range(600))
    cluster.load((CONFIG_MAPS, a_config_map(name, text="one")) for name in names)
    flaky = that_ends_watches(ReactiveClient(cluster))
    informer, _ = start(flaky)
    assert informer.wait_for_sync(SOON)
    flaky.on("continue", "*", in_turn([unavailable, unavailable]))
    flaky.calls.clear()
    write(api, "deep", "one")
    assert informer.wait_for_version(write(api, "last", "one"), SOON)
    order = [call.verb for call in flaky.calls]
    first = order.index("list")
    assert order[first : first + 6] == ["list", "continue"] * 3
    assert informer.relists == 2
