"""A registration of the guard that was gone: nothing is admitted until all is counted anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.admission.handlers.harness import a_namespace, opt_in, opt_out
from tests.builders import a_pod, a_quota
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    NAMESPACE,
    ControllerHarness,
    new_harness,
    second_harness,
)
from tests.controllers.queue.queue_steps import gated, gates
from tests.controllers.shared.shared_quota_steps import (
    OTHER,
    granted,
    is_complete,
    settle,
    shared_quota,
    sharing,
    steps,
)
from webhook.controllers.ledger.ledger_conditions import marked
from webhook.controllers.mask.webhook_registration import UNREAD_GUARD, Guard
from webhook.controllers.shared.completeness import Completeness
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, PODS, QUOTA_LEDGERS
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import JUST_REGISTERED, NO_GUARD, Ledger, Undecided
from webhook.state.ledger_store import LEDGER_NAME
from webhook.state.reserver import Outcome, Reserved

FORMER = Guard("uid-1", 1)


def register_anew(harness: ControllerHarness, uid: str = "uid-2") -> None:
    """Let the registration come back, and be seen."""
    harness.guard[0] = Guard(uid, harness.cluster.resource_version)


def rewrite(harness: ControllerHarness, change: Callable[[Ledger], Ledger]) -> None:
    """Write the ledger as another process."""
    version = harness.ledgers.fetch(NAMESPACE)
    assert version is not None
    assert version.ledger is not None
    harness.ledgers.write(NAMESPACE, version, change(version.ledger))


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """A quota of 10 cpu of which 1 is used, counted while the guard stood."""
    with new_harness(
        a_quota("p1", hard={"requests.cpu": "10"}), follows_ledgers=True, guard=[FORMER]
    ) as made:
        made.pod("first", "1", node="node-1")
        made.pod("next", "8")
        made.step()
        assert made.ledger().guard_uid == FORMER.uid
        yield made


def test_without_a_leader_nothing_is_admitted_by_a_count_from_before(
    harness: ControllerHarness,
) -> None:
    harness.epoch[0] = 0
    harness.pod("unasked", "9", node="node-1")
    register_anew(harness)
    harness.step()
    assert harness.reserve("next") == JUST_REGISTERED
    with second_harness(harness, follows_ledgers=True, guard=harness.guard) as later:
        assert later.reserve("next") == JUST_REGISTERED
        later.step()
        later.step()
        assert isinstance(later.reserve("next"), QuotaExceeded)
        later.delete("unasked")
        later.step()
        assert isinstance(later.reserve("next"), Reserved)


def test_the_leader_counts_from_pods_no_older_than_the_registration(
    harness: ControllerHarness,
) -> None:
    harness.client.pause(PODS)
    harness.pod("unasked", "9", node="node-1")
    register_anew(harness)
    harness.reconcile_once()
    harness.reconcile_once()
    assert harness.reserve("next") == JUST_REGISTERED
    assert harness.ledger().guard_uid == FORMER.uid
    harness.client.resume()
    harness.pass_time(1)
    harness.step()
    assert isinstance(harness.reserve("next"), QuotaExceeded)


def test_pods_are_listed_where_no_watch_shows_that_nothing_happened(
    harness: ControllerHarness,
) -> None:
    harness.create(a_namespace("elsewhere"))
    assert harness.controller.pods.resource_version < harness.cluster.resource_version
    register_anew(harness)
    harness.catch_up()
    harness.reconcile_once()
    assert isinstance(harness.reserve("next"), Reserved)


def test_no_pod_is_released_by_a_count_from_before(harness: ControllerHarness) -> None:
    gated(harness, "waits", cpu="8")
    harness.pod("much", "9", node="node-1")
    harness.step()
    assert gates(harness, "waits")
    harness.client.pause(PODS)
    harness.pod("unasked", "1", node="node-1")
    harness.delete("much")
    register_anew(harness)
    harness.reconcile_once()
    assert gates(harness, "waits")
    harness.client.resume()
    harness.pass_time(1)
    harness.step()
    assert not gates(harness, "waits")


def test_views_of_pods_from_before_judge_nothing_any_more(harness: ControllerHarness) -> None:
    before = harness.ledger().pods_barrier
    harness.pod("unasked", "1", node="node-1")
    register_anew(harness)
    harness.step()
    assert before < harness.ledger().pods_barrier


def test_what_was_reserved_before_stays_reserved(harness: ControllerHarness) -> None:
    assert isinstance(harness.reserve("next"), Reserved)
    register_anew(harness)
    harness.step()
    assert harness.reserved() == {"requests.cpu": "8"}


def test_it_is_counted_and_written_once(harness: ControllerHarness) -> None:
    register_anew(harness)
    harness.step()
    before = harness.cluster.resource_version
    harness.mark_dirty()
    harness.step()
    assert harness.cluster.resource_version == before
    harness.epoch[0] = 2
    harness.step()
    assert harness.cluster.resource_version == before


# -- marks that are missing or stay ---------------------------------------------------------------


def test_a_ledger_of_an_older_version_is_judged_by_as_before_and_marked_once(
    harness: ControllerHarness,
) -> None:
    rewrite(harness, lambda ledger: replace(ledger, conditions=()))
    barrier = harness.ledger().pods_barrier
    assert isinstance(harness.reserve("next"), Reserved)
    harness.epoch[0] = 2
    harness.step()
    harness.step()
    assert harness.ledger().guard_uid == FORMER.uid
    assert harness.ledger().pods_barrier == barrier


def test_an_older_controller_that_drops_the_mark_lets_nothing_stand_still(
    harness: ControllerHarness,
) -> None:
    harness.epoch[0] = 0
    register_anew(harness)
    assert harness.reserve("next") == JUST_REGISTERED
    rewrite(
        harness,
        lambda ledger: replace(
            ledger, conditions=tuple(one for one in ledger.conditions if one.type != "Guarded")
        ),
    )
    assert isinstance(harness.reserve("next"), Reserved)


@pytest.mark.parametrize(
    ("guard", "expected"),
    [(UNREAD_GUARD, FORMER.uid), (Guard(NO_GUARD), FORMER.uid), (None, "")],
    ids=["not read", "gone", "may not be read"],
)
def test_a_leader_that_sees_no_registration(
    harness: ControllerHarness, guard: Guard | None, expected: str
) -> None:
    """It keeps the mark; one that cannot know must not let it stand still for ever."""
    harness.guard[0] = guard
    harness.pod("more", "1", node="node-1")
    harness.epoch[0] = 2
    harness.step()
    harness.pod("again", "1", node="node-1")
    harness.step()
    assert harness.used() == {"requests.cpu": "3"}
    assert harness.ledger().guard_uid == expected


def test_while_the_guard_is_gone_a_new_ledger_is_from_before_what_comes() -> None:
    with new_harness(
        a_quota("p1", hard={"requests.cpu": "10"}), follows_ledgers=True, guard=[Guard(NO_GUARD)]
    ) as harness:
        harness.pod("next", "8")
        harness.step()
        harness.step()
        assert isinstance(harness.reserve("next"), Reserved)
        harness.epoch[0] = 0
        register_anew(harness)
        assert harness.reserve("next") == JUST_REGISTERED


def test_a_count_that_stands_still_keeps_the_mark_from_before(harness: ControllerHarness) -> None:
    odd = a_pod(name="odd", namespace=NAMESPACE, node="node-1", requests={"cpu": "two"})
    harness.cluster.load([(PODS, odd)])
    register_anew(harness)
    harness.step()
    assert harness.conditions()["Counted"][0] == "False"
    assert harness.reserve("next") == JUST_REGISTERED


def test_a_namespace_that_opts_in_again_is_counted_up_to_the_registration(
    harness: ControllerHarness,
) -> None:
    opt_out(harness.api, NAMESPACE)
    harness.step()
    assert harness.ledger().guard_uid == ""
    opt_in(harness.api, NAMESPACE)
    register_anew(harness)
    harness.pass_time(10)
    harness.step()
    assert harness.ledger().guard_uid == "uid-2"
    assert isinstance(harness.reserve("next"), Reserved)


def test_ledgers_that_are_deleted_are_made_anew(harness: ControllerHarness) -> None:
    """As `emergency close` does, with a registration that was made anew in the emergency."""
    harness.api.delete(QUOTA_LEDGERS, LEDGER_NAME, namespace=NAMESPACE)
    register_anew(harness)
    harness.mark_dirty()
    harness.step()
    harness.pass_time(EXPIRE_SECONDS + 1)
    steps(harness)
    assert isinstance(harness.reserve("next"), Reserved)
    assert harness.ledger().guard_uid == "uid-2"


# -- quotas of several namespaces -----------------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[ControllerHarness]:
    """Two namespaces that share 4 cpu, counted while the guard stood."""
    with sharing() as made:
        made.guard[0] = FORMER
        steps(made)
        assert is_complete(made)
        assert {made.ledger(one).guard_uid for one in (NAMESPACE, OTHER)} == {FORMER.uid}
        made.pod("waits", "2")
        steps(made)
        yield made


def test_a_namespace_that_is_counted_first_admits_nothing_beside_the_others(
    pair: ControllerHarness,
) -> None:
    pair.pod("unasked", "3", OTHER, node="node-1")
    register_anew(pair)
    pair.catch_up()
    for _ in range(4):
        settle(pair, NAMESPACE)
    assert pair.ledger().guard_uid == "uid-2"
    assert pair.ledger(OTHER).guard_uid == FORMER.uid
    assert isinstance(pair.reserve("waits"), Undecided)
    steps(pair)
    assert is_complete(pair)
    assert granted(pair)[OTHER] == "3"
    assert isinstance(pair.reserve("waits"), QuotaExceeded)


def test_nor_does_one_that_comes_only_now(pair: ControllerHarness) -> None:
    pair.pod("unasked", "3", OTHER, node="node-1")
    register_anew(pair)
    pair.create(a_namespace("new"))
    pair.pod("late", "2", "new")
    pair.catch_up()
    for _ in range(4):
        settle(pair, "new")
    assert pair.ledger("new").guard_uid == "uid-2"
    assert isinstance(pair.reserve("late", "new"), Undecided)
    steps(pair)
    assert isinstance(pair.reserve("late", "new"), QuotaExceeded)


def test_nothing_is_marked_incomplete_by_a_leader_that_begins(pair: ControllerHarness) -> None:
    before = pair.api.get(CLUSTER_DEFERRED_QUOTAS, "both")
    pair.epoch[0] = 2
    steps(pair)
    assert pair.api.get(CLUSTER_DEFERRED_QUOTAS, "both") == before


def test_one_whose_pods_cannot_be_read_holds_the_others_up(pair: ControllerHarness) -> None:
    odd = a_pod(name="odd", namespace=OTHER, node="node-1", requests={"cpu": "two"})
    pair.cluster.load([(PODS, odd)])
    register_anew(pair)
    steps(pair)
    assert isinstance(pair.reserve("waits"), Undecided)
    pair.api.delete(PODS, "odd", namespace=OTHER)
    steps(pair)
    assert isinstance(pair.reserve("waits"), Reserved)


# -- what each rule is for ------------------------------------------------------------------------


def no_leader(harness: ControllerHarness) -> Outcome:
    harness.epoch[0] = 0
    harness.pod("unasked", "9", node="node-1")
    register_anew(harness)
    harness.step()
    return harness.reserve("next")


def late_pods(harness: ControllerHarness) -> Outcome:
    harness.client.pause(PODS)
    harness.pod("unasked", "9", node="node-1")
    register_anew(harness)
    harness.reconcile_once()
    harness.reconcile_once()
    return harness.reserve("next")


def shared_first(harness: ControllerHarness) -> Outcome:
    harness.create(a_namespace(OTHER))
    harness.create(shared_quota("10"))
    steps(harness)
    assert is_complete(harness)
    harness.pod("unasked", "9", OTHER, node="node-1")
    register_anew(harness)
    harness.catch_up()
    for _ in range(4):
        settle(harness, NAMESPACE)
    return harness.reserve("next")


def unmarked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "guard_uid", "")


def of_any_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guard, "since", property(lambda _guard: 0, lambda *_: None))


def complete_as_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Completeness, "mark_incomplete", lambda _self, version, _epoch: version)


@pytest.mark.parametrize(
    ("story", "broken"),
    [(no_leader, unmarked), (late_pods, of_any_version), (shared_first, complete_as_ever)],
    ids=lambda one: one.__name__,
)
def test_each_rule_is_needed(
    harness: ControllerHarness,
    monkeypatch: pytest.MonkeyPatch,
    story: Callable[[ControllerHarness], Outcome],
    broken: Callable[[pytest.MonkeyPatch], None],
) -> None:
    broken(monkeypatch)
    assert isinstance(story(harness), Reserved)


@pytest.mark.parametrize("story", [no_leader, late_pods, shared_first])
def test_with_all_of_them_nothing_is_admitted(
    harness: ControllerHarness, story: Callable[[ControllerHarness], Outcome]
) -> None:
    assert isinstance(story(harness), Undecided)


def test_a_mark_is_one_condition() -> None:
    ledger = marked(marked(Ledger({}, {}), "a"), "b")
    assert [one.message for one in ledger.conditions] == ["b"]
    assert marked(ledger, "") == Ledger({}, {})
