"""Namespaces that opt out and in again, or are exempt for a while: no former count is believed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.doors.desk import opt_in, opt_out
from tests.builders import a_quota
from tests.controllers.rig import EXPIRE_SECONDS, Rig, a_rig, another_rig
from webhook.cluster.api import NAMESPACES, PODS
from webhook.quota.ledger import Undecided
from webhook.quota.refusals import QuotaExceeded
from webhook.state.reserver import Reserved

NS = "team-a"


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A quota of 2 cpu that has been counted."""
    with a_rig(a_quota("p1")) as made:
        made.pod("runs", "2")
        made.pod("next", "1")
        made.step()
        yield made


def flip(rig: Rig) -> None:
    """Take the label away, give a pod its node unasked, and put the label back."""
    opt_out(rig.api, NS)
    rig.bind("runs")
    opt_in(rig.api, NS)


def test_a_label_that_was_off_for_a_moment_lets_nothing_in_by_the_former_count(rig: Rig) -> None:
    rig.line.hold(PODS)
    flip(rig)
    assert rig.namespaces.informer.wait_for_version(rig.cluster.resource_version, 30)
    assert isinstance(rig.reserve("next"), Undecided)
    rig.round()  # the pods have not come as far as the label
    assert isinstance(rig.reserve("next"), Undecided)
    rig.line.resume()
    rig.pass_time(1)
    rig.step()
    assert isinstance(rig.reserve("next"), QuotaExceeded)
    assert rig.ledger().barrier > 0


def test_a_flip_that_nobody_who_leads_has_seen_is_counted(rig: Rig) -> None:
    rig.term[0] = 0
    flip(rig)
    opted_in_at = rig.cluster.resource_version
    rig.step()
    assert isinstance(rig.reserve("next"), Undecided)
    with another_rig(rig) as later:
        assert isinstance(later.reserve("next"), Undecided)
        later.step()
        assert isinstance(later.reserve("next"), QuotaExceeded)
        assert later.ledger().barrier >= opted_in_at


def test_doors_judge_no_pod_by_how_it_was_before_the_flip(rig: Rig) -> None:
    before = rig.ledger().barrier
    flip(rig)
    opted_in_at = rig.cluster.resource_version
    rig.step()
    assert before < opted_in_at <= rig.ledger().barrier


def test_a_flip_keeps_what_is_reserved(rig: Rig) -> None:
    assert isinstance(rig.reserve("next"), Reserved)
    flip(rig)
    rig.step()
    assert (rig.used(), rig.reserved()) == ({"requests.cpu": "2"}, {"requests.cpu": "1"})


def test_a_door_that_begins_after_the_namespace_was_changed_is_not_held_up_for_long(
    rig: Rig,
) -> None:
    rig.api.patch(NAMESPACES, NS, {"metadata": {"annotations": {"note": "x"}}})
    with another_rig(rig, term=[0]) as door:
        assert isinstance(door.reserve("next"), Undecided)
        assert isinstance(rig.reserve("next"), Reserved)  # it has seen that nothing happened
        rig.step()
        assert isinstance(door.reserve("next"), Reserved)
        before = rig.cluster.resource_version
        rig.poke()
        rig.step()
        assert rig.cluster.resource_version == before  # and that was said once


def test_the_pods_are_listed_once_where_their_cache_has_not_come_as_far(rig: Rig) -> None:
    rig.api.patch(NAMESPACES, NS, {"metadata": {"annotations": {"note": "x"}}})
    changed = rig.cluster.resource_version
    assert rig.namespaces.informer.wait_for_version(changed, 30)
    assert rig.tracker.pods.resource_version < changed
    rig.round()
    assert rig.ledger().pods_resource_version == changed
    rig.pod("more")
    rig.step()
    assert rig.pending()["pods"] == "3"


def test_more_reservations_than_are_asked_about_at_once_do_not_stop_a_new_quota() -> None:
    with a_rig(a_quota("p1", hard={"requests.cpu": "100"})) as rig:
        rig.step()
        for number in range(60):
            rig.pod(f"w-{number}")
            assert isinstance(rig.reserve(f"w-{number}"), Reserved)
            rig.delete(f"w-{number}")
        rig.term[0] = 0
        with another_rig(rig) as later:  # it has never seen these pods
            later.create(a_quota("p2", uid="q2", hard={"limits.cpu": "1"}))
            later.step()
            assert (len(later.held()), list(later.ledger().accounts)) == (60, ["p1"])
            for seconds in (EXPIRE_SECONDS + 1, 1, 1):
                later.pass_time(seconds)
                later.step()
            assert (later.held(), list(later.ledger().accounts)) == ({}, ["p1", "p2"])


def test_a_namespace_that_becomes_exempt_is_left_and_counted_anew_afterwards(rig: Rig) -> None:
    rig.exempt = frozenset({NS})
    rig.tracker.recount()
    rig.step()
    assert rig.ledger().accounts == {}
    rig.bind("runs")
    rig.exempt = frozenset()
    rig.tracker.recount()
    rig.step()
    assert rig.used() == {"requests.cpu": "2"}
    assert isinstance(rig.reserve("next"), QuotaExceeded)


def test_a_namespace_that_was_exempt_for_a_moment_is_counted_anew(rig: Rig) -> None:
    before = rig.ledger().barrier
    rig.exempt = frozenset({NS})
    rig.tracker.recount()
    rig.bind("runs")
    rig.exempt = frozenset()
    rig.tracker.recount()
    rig.step()
    assert rig.ledger().barrier > before
    assert isinstance(rig.reserve("next"), QuotaExceeded)


def test_a_namespace_that_is_exempt_no_longer_is_tracked_at_once() -> None:
    with a_rig(a_quota("p1"), exempt=frozenset({NS})) as rig:
        rig.pod("runs", node="node-1")
        rig.step()
        assert not rig.has_ledger()
        rig.exempt = frozenset()
        rig.tracker.recount()
        rig.step()
        assert rig.used() == {"requests.cpu": "1"}


def test_a_new_leader_leaves_what_became_exempt_while_nobody_led() -> None:
    with a_rig(a_quota("p1")) as rig:
        rig.step()
        assert rig.ledger().accounts
        with another_rig(rig, exempt=frozenset({NS}), follows=True) as later:
            later.step()
            assert later.ledger().accounts == {}
