"""A count that has gone wrong is found out by a fresh list, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import a_quota
from tests.controllers.rig import NAMESPACE, Rig, a_rig
from webhook.cluster.api import PODS, Page
from webhook.cluster.memory import MemoryClient
from webhook.quota.quantity import Quantity


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Two pods that run and one that waits, counted."""
    with a_rig(a_quota("p1", hard={"requests.cpu": "9"})) as made:
        made.pod("a", "1", node="node-1")
        made.pod("b", "2", node="node-1")
        made.pod("waits", "3")
        made.step()
        yield made


def recount(rig: Rig) -> None:
    """Let the recount of the namespace come up now."""
    recounter = rig.tracker._recounter
    recounter._agenda.put(NAMESPACE, 0.0)
    assert recounter._agenda.take(0) == NAMESPACE
    recounter.recount(NAMESPACE)


def results(rig: Rig) -> dict[str, float]:
    names = ("same", "drift", "failed")
    return {name: rig.counted("recounts_total", result=name) for name in names}


def lose_change(rig: Rig, name: str) -> None:
    """Let the tracker forget a pod, as if it had missed that it came."""
    with rig.tracker._counts.lock:
        rig.tracked().count.remove(f"uid-{name}")


def test_a_right_count_is_left_alone(rig: Rig) -> None:
    before = rig.cluster.resource_version
    recount(rig)
    rig.pass_time(1)
    rig.round()
    assert results(rig) == {"same": 1, "drift": 0, "failed": 0}
    assert (rig.told(), rig.cluster.resource_version) == ([], before)


def test_a_pod_that_is_not_counted_is_found(rig: Rig) -> None:
    lose_change(rig, "b")
    rig.poke()
    rig.round()
    assert rig.used() == {"requests.cpu": "1"}
    rig.pod("later", "1m")
    rig.catch_up()
    recount(rig)
    rig.pass_time(1)
    rig.step()
    assert rig.is_exact()
    assert rig.told() == ["CountRepaired"]
    assert rig.counted("drift_pods_total", kind="missed") == 1


class Torn(MemoryClient):
    """Lists pods one by one, each at a later moment than the one before."""

    def pages(self, *args: Any, **options: Any) -> Iterator[Page]:
        for number, page in enumerate(super().pages(*args, **{**options, "limit": 1})):
            yield replace(page, resource_version=page.resource_version + number)


def test_a_list_whose_pages_are_of_several_moments_is_not_compared(rig: Rig) -> None:
    lose_change(rig, "b")
    rig.tracker._recounter._api = Torn(rig.cluster)
    recount(rig)
    assert results(rig) == {"same": 0, "drift": 0, "failed": 1}


def test_a_pod_that_is_counted_and_gone_is_found(rig: Rig) -> None:
    pod = rig.tracker.pods.in_namespace(NAMESPACE)[0]
    with rig.tracker._counts.lock:
        rig.tracker._counts.put(NAMESPACE, rig.tracked(), replace(pod, uid="ghost", name="ghost"))
    rig.pod("later", "1m")
    rig.step()
    assert not rig.is_exact()
    rig.catch_up()
    recount(rig)
    rig.pass_time(1)
    rig.step()
    assert rig.is_exact()
    assert rig.counted("drift_pods_total", kind="ghost") == 1


def test_a_missed_change_is_found(rig: Rig) -> None:
    former = rig.tracker.pods.in_namespace(NAMESPACE)[0]
    rig.finish(former.name)
    rig.step()
    with rig.tracker._counts.lock:
        rig.tracker._counts.put(NAMESPACE, rig.tracked(), former)
    rig.catch_up()
    recount(rig)
    rig.pass_time(1)
    rig.step()
    assert rig.is_exact()
    assert rig.counted("drift_pods_total", kind="missed") == 1


def test_sums_that_are_wrong_are_found(rig: Rig) -> None:
    with rig.tracker._counts.lock:
        sums = rig.tracked().count._used["p1"]
        sums.amounts = {"requests.cpu": Quantity.parse("1")}
    recount(rig)
    rig.pass_time(1)
    rig.step()
    assert rig.is_exact()
    assert rig.counted("drift_pods_total", kind="sum") == 1


def test_a_pod_released_while_it_is_terminating_is_no_drift(rig: Rig) -> None:
    rig.delete("a", grace=5)
    rig.step()
    rig.pass_time(11.1)
    rig.step()
    recount(rig)
    assert results(rig) == {"same": 1, "drift": 0, "failed": 0}


def test_a_pod_that_is_held_while_it_is_terminating_is_no_drift(rig: Rig) -> None:
    rig.holds_terminating = True
    rig.tracker.recount()
    before = rig.used()
    rig.delete("a", grace=5)
    rig.step()
    rig.pass_time(11.1)
    rig.step()
    assert rig.used() == before
    recount(rig)
    assert results(rig) == {"same": 1, "drift": 0, "failed": 0}


def test_a_cache_that_is_behind_the_list_is_waited_for(rig: Rig) -> None:
    rig.line.hold(PODS)
    rig.delete("a")
    rig.pod("new", "2", node="node-1")
    recount(rig)
    assert results(rig) == {"same": 0, "drift": 0, "failed": 0}
    rig.line.resume()
    rig.catch_up()
    recount(rig)
    assert results(rig) == {"same": 1, "drift": 0, "failed": 0}


def test_a_pod_deleted_after_the_list_is_no_drift(rig: Rig) -> None:
    rig.line.hold(PODS)
    rig.pod("new", "2", node="node-1")
    recount(rig)
    rig.delete("new")
    rig.line.resume()
    rig.catch_up()
    recount(rig)
    assert results(rig)["drift"] == 0
    rig.pass_time(1)
    rig.step()
    assert rig.is_exact()


def test_a_standby_does_not_list(rig: Rig) -> None:
    rig.term[0] = 0
    rig.round()
    recount(rig)
    assert results(rig) == {"same": 0, "drift": 0, "failed": 0}


def test_a_list_that_fails_is_tried_again_later(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_args: object, **_more: object) -> None:
        rig.line.broken.add(("list", "pods"))
        rig.line._call("list", PODS, "")

    monkeypatch.setattr(rig.line, "pages", unreachable)
    recount(rig)
    assert results(rig)["failed"] == 1
    assert rig.tracker._recounter._agenda.next_moment() > rig.clock[0]


def test_a_namespace_that_is_gone_is_not_recounted_any_more(rig: Rig) -> None:
    with rig.tracker._counts.lock:
        del rig.tracker._counts.tracked[NAMESPACE]
    recount(rig)
    assert rig.tracker._recounter._agenda.next_moment() == float("inf")
