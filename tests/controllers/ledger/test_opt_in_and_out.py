"""Namespaces that opt out and in again, or are exempt for a while: no former count is believed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.admission.handlers.harness import opt_in, opt_out
from tests.builders import a_quota
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    ControllerHarness,
    new_harness,
    second_harness,
)
from tests.controllers.queue.queue_steps import gated, gates
from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.kube.api import NAMESPACES, PODS
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import Undecided
from webhook.state.reserver import Reserved

NS = "team-a"


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """A quota of 2 cpu that has been counted."""
    with new_harness(a_quota("p1")) as made:
        made.pod("runs", "2")
        made.pod("next", "1")
        made.step()
        yield made


def flip(harness: ControllerHarness) -> None:
    """Take the label away, give a pod its node unasked, and put the label back."""
    opt_out(harness.api, NS)
    harness.bind("runs")
    opt_in(harness.api, NS)


def test_a_label_that_was_off_for_a_moment_lets_nothing_in_by_the_former_count(
    harness: ControllerHarness,
) -> None:
    harness.client.pause(PODS)
    flip(harness)
    assert harness.namespaces.informer.wait_for_version(harness.cluster.resource_version, 30)
    assert isinstance(harness.reserve("next"), Undecided)
    harness.reconcile_once()  # the pods have not come as far as the label
    assert isinstance(harness.reserve("next"), Undecided)
    harness.client.resume()
    harness.pass_time(1)
    harness.step()
    assert isinstance(harness.reserve("next"), QuotaExceeded)
    assert harness.ledger().pods_barrier > 0


def test_a_flip_that_no_leader_has_seen_is_counted(harness: ControllerHarness) -> None:
    harness.epoch[0] = 0
    flip(harness)
    opted_in_at = harness.cluster.resource_version
    harness.step()
    assert isinstance(harness.reserve("next"), Undecided)
    with second_harness(harness) as later:
        assert isinstance(later.reserve("next"), Undecided)
        later.step()
        assert isinstance(later.reserve("next"), QuotaExceeded)
        assert later.ledger().pods_barrier >= opted_in_at


def test_handlers_judge_no_pod_by_how_it_was_before_the_flip(harness: ControllerHarness) -> None:
    before = harness.ledger().pods_barrier
    flip(harness)
    opted_in_at = harness.cluster.resource_version
    harness.step()
    assert before < opted_in_at <= harness.ledger().pods_barrier


def test_a_flip_keeps_what_is_reserved(harness: ControllerHarness) -> None:
    assert isinstance(harness.reserve("next"), Reserved)
    flip(harness)
    harness.step()
    assert (harness.used(), harness.reserved()) == ({"requests.cpu": "2"}, {"requests.cpu": "1"})


def test_a_handler_that_begins_after_the_namespace_was_changed_is_not_held_up_for_long(
    harness: ControllerHarness,
) -> None:
    harness.api.patch(NAMESPACES, NS, {"metadata": {"annotations": {"note": "x"}}})
    with second_harness(harness, epoch=[0]) as replica:
        assert isinstance(replica.reserve("next"), Undecided)
        assert isinstance(harness.reserve("next"), Reserved)  # it has seen that nothing happened
        harness.step()
        assert isinstance(replica.reserve("next"), Reserved)
        before = harness.cluster.resource_version
        harness.mark_dirty()
        harness.step()
        assert harness.cluster.resource_version == before  # and that was said once


def test_the_pods_are_listed_once_where_their_cache_has_not_come_as_far(
    harness: ControllerHarness,
) -> None:
    harness.api.patch(NAMESPACES, NS, {"metadata": {"annotations": {"note": "x"}}})
    changed = harness.cluster.resource_version
    assert harness.namespaces.informer.wait_for_version(changed, 30)
    assert harness.controller.pods.resource_version < changed
    harness.reconcile_once()
    assert harness.ledger().pods_resource_version == changed
    harness.pod("more")
    harness.step()
    assert harness.pending()["pods"] == "3"


def test_more_reservations_than_are_asked_about_at_once_do_not_stop_a_new_quota() -> None:
    with new_harness(a_quota("p1", hard={"requests.cpu": "100"})) as harness:
        harness.step()
        for number in range(60):
            harness.pod(f"w-{number}")
            assert isinstance(harness.reserve(f"w-{number}"), Reserved)
            harness.delete(f"w-{number}")
        harness.epoch[0] = 0
        with second_harness(harness) as later:  # it has never seen these pods
            later.create(a_quota("p2", uid="q2", hard={"limits.cpu": "1"}))
            later.step()
            assert (len(later.held()), list(later.ledger().accounts)) == (60, ["p1"])
            for seconds in (EXPIRE_SECONDS + 1, 1, 1):
                later.pass_time(seconds)
                later.step()
            assert (later.held(), list(later.ledger().accounts)) == ({}, ["p1", "p2"])


def test_a_namespace_that_becomes_exempt_is_left_and_counted_anew_afterwards(
    harness: ControllerHarness,
) -> None:
    harness.exempt = frozenset({NS})
    harness.controller.recount()
    harness.step()
    assert harness.ledger().accounts == {}
    harness.bind("runs")
    harness.exempt = frozenset()
    harness.controller.recount()
    harness.step()
    assert harness.used() == {"requests.cpu": "2"}
    assert isinstance(harness.reserve("next"), QuotaExceeded)


def test_a_namespace_that_was_exempt_for_a_moment_is_counted_anew(
    harness: ControllerHarness,
) -> None:
    before = harness.ledger().pods_barrier
    harness.exempt = frozenset({NS})
    harness.controller.recount()
    harness.bind("runs")
    harness.exempt = frozenset()
    harness.controller.recount()
    harness.step()
    assert harness.ledger().pods_barrier > before
    assert isinstance(harness.reserve("next"), QuotaExceeded)


def test_a_namespace_that_is_exempt_no_longer_is_tracked_at_once() -> None:
    with new_harness(a_quota("p1"), exempt=frozenset({NS})) as harness:
        harness.pod("runs", node="node-1")
        harness.step()
        assert not harness.has_ledger()
        harness.exempt = frozenset()
        harness.controller.recount()
        harness.step()
        assert harness.used() == {"requests.cpu": "1"}


@pytest.mark.parametrize("epoch", [1, 0], ids=["leader", "standby"])
@pytest.mark.parametrize("becomes_exempt", [False, True], ids=["opts out", "exempt"])
def test_no_pod_stays_gated_where_a_namespace_leaves_before_it_is_counted_again(
    harness: ControllerHarness, becomes_exempt: bool, epoch: int
) -> None:
    gated(harness, "waits", "5")
    harness.step()
    harness.epoch[0] = epoch
    for opt in (opt_out, opt_in):
        opt(harness.api, NS)
        harness.catch_up()
    if becomes_exempt:
        harness.exempt = frozenset({NS})
        harness.controller.recount()
    else:
        opt_out(harness.api, NS)
    harness.step()
    harness.epoch[0] = 1
    for _ in range(2):
        harness.pass_time(5)
        harness.step()
    assert gates(harness, "waits") == []
    assert not harness.is_tracked()


def test_a_new_leader_leaves_what_became_exempt_without_a_leader() -> None:
    with new_harness(a_quota("p1")) as harness:
        harness.step()
        assert harness.ledger().accounts
        with second_harness(harness, exempt=frozenset({NS}), follows_ledgers=True) as later:
            later.step()
            assert later.ledger().accounts == {}


SLOW_SECONDS = 0.25
"""How long a count of all pods takes, in the test below."""


@pytest.mark.parametrize("epoch", [1, 0], ids=["leader", "standby"])
def test_a_label_that_is_set_all_the_time_has_pods_counted_a_tenth_of_the_time(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    counts: list[float] = []
    track = UsageCache.track

    def slowly(cache: UsageCache, *args: Any, **options: Any) -> NamespaceState:
        state = track(cache, *args, **options)
        harness.pass_time(SLOW_SECONDS)
        state.rests_until = harness.clock[0] + 9 * SLOW_SECONDS
        counts.append(harness.clock[0])
        return state

    monkeypatch.setattr(UsageCache, "track", slowly)
    harness.epoch[0] = epoch
    began = harness.clock[0]
    for number in range(100):
        opt_out(harness.api, NS)
        harness.catch_up()
        if number % 3:
            harness.reconcile_once()
        opt_in(harness.api, NS)
        harness.step()
        harness.pass_time(0.05)
    assert 1 <= len(counts) <= 2 + (harness.clock[0] - began) / (10 * SLOW_SECONDS)
    harness.pass_time(5)
    harness.epoch[0] = 1
    harness.mark_dirty()
    harness.step()
    assert harness.is_exact()


def test_a_namespace_that_left_is_forgotten_after_its_rest(harness: ControllerHarness) -> None:
    opt_out(harness.api, NS)
    harness.catch_up()
    harness.state().rests_until = harness.clock[0] + 9 * SLOW_SECONDS
    harness.reconcile_once()
    assert harness.is_tracked()
    harness.pass_time(10 * SLOW_SECONDS)
    harness.reconcile_once()
    assert not harness.is_tracked()
