"""A count that has gone wrong is found out by a fresh list, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.builders import a_pod, a_quota
from tests.controllers.controller_harness import NAMESPACE, ControllerHarness, new_harness
from tests.reactions import Call, Proceed
from webhook.kube.api import PODS, Page, UnreachableError
from webhook.quota.amounts.quantity import Quantity


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """Two pods that run and one that waits, counted."""
    with new_harness(a_quota("p1", hard={"requests.cpu": "9"})) as made:
        made.pod("a", "1", node="node-1")
        made.pod("b", "2", node="node-1")
        made.pod("waits", "3")
        made.step()
        yield made


def results(harness: ControllerHarness) -> dict[str, float]:
    names = ("same", "drift", "failed")
    return {name: harness.metric("recounts_total", result=name) for name in names}


def test_a_right_count_is_left_alone(harness: ControllerHarness) -> None:
    before = harness.cluster.resource_version
    harness.check_drift()
    harness.pass_time(1)
    harness.reconcile_once()
    assert results(harness) == {"same": 1, "drift": 0, "failed": 0}
    assert (harness.events_recorded(), harness.cluster.resource_version) == ([], before)


def test_a_pod_that_is_not_counted_is_found(harness: ControllerHarness) -> None:
    harness.lose_pod("b")
    harness.mark_dirty()
    harness.reconcile_once()
    assert harness.used() == {"requests.cpu": "1"}
    harness.pod("later", "1m")
    harness.catch_up()
    harness.check_drift()
    harness.pass_time(1)
    harness.step()
    assert harness.is_exact()
    assert harness.events_recorded() == ["CountRepaired"]
    assert harness.metric("drift_pods_total", kind="missed") == 1


def test_a_list_whose_pages_are_of_several_moments_is_not_compared(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = harness.client.pages

    def pages_of_several_moments(*args: Any, **options: Any) -> Iterator[Page]:
        for number, page in enumerate(genuine(*args, **{**options, "limit": 1})):
            yield replace(page, resource_version=page.resource_version + number)

    harness.lose_pod("b")
    monkeypatch.setattr(harness.client, "pages", pages_of_several_moments)
    harness.check_drift()
    assert results(harness) == {"same": 0, "drift": 0, "failed": 1}


def test_a_pod_that_is_counted_and_gone_is_found(harness: ControllerHarness) -> None:
    pod = harness.controller.pods.in_namespace(NAMESPACE)[0]
    harness.put_pod(replace(pod, uid="ghost", name="ghost"))
    harness.pod("later", "1m")
    harness.step()
    assert not harness.is_exact()
    harness.catch_up()
    harness.check_drift()
    harness.pass_time(1)
    harness.step()
    assert harness.is_exact()
    assert harness.metric("drift_pods_total", kind="ghost") == 1


def test_nothing_is_remembered_of_a_pod_that_was_counted_and_gone(
    harness: ControllerHarness,
) -> None:
    pod, state = harness.controller.pods.in_namespace(NAMESPACE)[0], harness.state()
    ghost = replace(pod, uid="ghost", name="ghost", node_name="")
    ended = datetime(2026, 6, 1, tzinfo=UTC)
    harness.put_pod(replace(ghost, deletion_timestamp=ended, deletion_grace_period_seconds=30))
    remembered = [state.uncharge_at, state.pod_queue.untried_since]
    assert all("ghost" in times for times in remembered)
    harness.pod("later", "1m")
    harness.step()
    harness.catch_up()
    harness.check_drift()
    harness.pass_time(1)
    harness.step()
    assert harness.metric("drift_pods_total", kind="ghost") == 1
    assert not any("ghost" in times for times in remembered)


def test_a_pod_that_could_not_be_read_and_is_gone_keeps_the_ledger_no_longer(
    harness: ControllerHarness,
) -> None:
    odd = a_pod(name="odd", uid="uid-odd", node="node-1", requests={"cpu": "two"})
    harness.cluster.load([(PODS, odd)])
    state, notes = harness.state(), {"uid-gone": f"{NAMESPACE}/gone: not a quantity"}
    with harness.controller.usage_cache.lock:
        state.unreadable_pods.update(notes)  # its deletion was missed
    harness.catch_up()
    harness.check_drift()
    assert [*state.unreadable_pods] == ["uid-odd"]
    assert harness.events_recorded() == ["CountRepaired"]


def test_a_missed_change_is_found(harness: ControllerHarness) -> None:
    former = harness.controller.pods.in_namespace(NAMESPACE)[0]
    harness.finish(former.name)
    harness.step()
    harness.put_pod(former)
    harness.catch_up()
    harness.check_drift()
    harness.pass_time(1)
    harness.step()
    assert harness.is_exact()
    assert harness.metric("drift_pods_total", kind="missed") == 1


def test_sums_that_are_wrong_are_found(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = harness.state().usage
    right = usage.totals(0)
    wrong = {
        name: replace(quota, used={"requests.cpu": Quantity.parse("1")})
        for name, quota in right.quotas.items()
    }
    monkeypatch.setattr(usage, "totals", lambda _version: replace(right, quotas=wrong))
    harness.check_drift()
    harness.pass_time(1)
    harness.step()
    assert harness.is_exact()
    assert harness.metric("drift_pods_total", kind="sum") == 1


def test_a_pod_released_while_it_is_terminating_is_no_drift(harness: ControllerHarness) -> None:
    harness.delete("a", grace=5)
    harness.step()
    harness.pass_time(11.1)
    harness.step()
    harness.check_drift()
    assert results(harness) == {"same": 1, "drift": 0, "failed": 0}


def test_a_pod_that_is_held_while_it_is_terminating_is_no_drift(harness: ControllerHarness) -> None:
    harness.holds_terminating = True
    harness.controller.recount()
    before = harness.used()
    harness.delete("a", grace=5)
    harness.step()
    harness.pass_time(11.1)
    harness.step()
    assert harness.used() == before
    harness.check_drift()
    assert results(harness) == {"same": 1, "drift": 0, "failed": 0}


def test_a_cache_that_is_behind_the_list_is_waited_for(harness: ControllerHarness) -> None:
    harness.client.pause(PODS)
    harness.delete("a")
    harness.pod("new", "2", node="node-1")
    harness.check_drift()
    assert results(harness) == {"same": 0, "drift": 0, "failed": 0}
    harness.client.resume()
    harness.catch_up()
    harness.check_drift()
    assert results(harness) == {"same": 1, "drift": 0, "failed": 0}


def test_a_pod_deleted_after_the_list_is_no_drift(harness: ControllerHarness) -> None:
    harness.client.pause(PODS)
    harness.pod("new", "2", node="node-1")
    harness.check_drift()
    harness.delete("new")
    harness.client.resume()
    harness.catch_up()
    harness.check_drift()
    assert results(harness)["drift"] == 0
    harness.pass_time(1)
    harness.step()
    assert harness.is_exact()


def test_a_standby_does_not_list(harness: ControllerHarness) -> None:
    harness.epoch[0] = 0
    harness.reconcile_once()
    harness.check_drift()
    assert results(harness) == {"same": 0, "drift": 0, "failed": 0}


def test_a_list_that_fails_is_tried_again_later(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_args: object, **_more: object) -> None:
        raise UnreachableError("no answer")

    monkeypatch.setattr(harness.client, "pages", unreachable)
    harness.check_drift()
    assert results(harness)["failed"] == 1
    assert harness.controller.drift_checks.queue.seconds_to_next() > 0


def test_a_namespace_that_is_gone_is_not_recounted_any_more(harness: ControllerHarness) -> None:
    del harness.controller.usage_cache.namespaces[NAMESPACE]
    harness.check_drift()
    assert harness.controller.drift_checks.queue.seconds_to_next() == float("inf")


def test_a_first_count_ends_although_pods_are_deleted_during_each_list() -> None:
    """Others may wait for it, in a shared quota: a tenant decides how often it deletes."""
    with new_harness(a_quota("p1", hard={"requests.cpu": "9"})) as harness:
        harness.pod("a", "1", node="node-1")
        waiting = [f"w{number}" for number in range(300)]
        for name in waiting:
            harness.pod(name, "1m")
        harness.catch_up()

        def then_some_go(_call: Call, proceed: Proceed) -> object:
            pages = list(proceed())
            for _ in range(101):
                harness.delete(waiting.pop())
            harness.catch_up()
            return pages

        harness.client.on("list", PODS, then_some_go)
        harness.reconcile_once()
        assert harness.used() == {"requests.cpu": "1"}


def test_a_first_count_is_repaired_however_much_it_lacks() -> None:
    with new_harness(a_quota("p1", hard={"requests.cpu": "900"})) as harness:
        names = [f"a{number}" for number in range(150)]
        for name in names:
            harness.pod(name, "1", node="node-1")
        harness.catch_up()
        for name in names:
            harness.lose_pod(name)
        harness.state().usage.forget_deleted(())
        for number in range(6):
            harness.pod(f"later-{number}", "0")  # a watch shows no moment in which nothing changed
            harness.step()
            harness.pass_time(1)
        assert harness.used() == {"requests.cpu": "150"}
