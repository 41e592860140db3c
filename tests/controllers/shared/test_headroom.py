"""Headroom in the stepped world: what it must not allow, and that nothing waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.controllers.shared import sharing_simulation
from tests.controllers.shared.sharing_simulation import (
    CPU,
    NAME,
    QUOTA,
    PodState,
    SharingSimulation,
    WebhookActor,
    cpus,
    held_in,
)
from webhook.controllers.shared.grant_transaction import GrantTransaction, begin
from webhook.quota.amounts.resources import ResourceList, subtract_non_negative
from webhook.quota.queue.queued_pods import PendingReason, PendingStatus
from webhook.quota.shared.grants import with_raised
from webhook.state import grant_raising
from webhook.state.grant_raising import SharedLookups
from webhook.state.ledger_store import LedgerStore
from webhook.state.shared_quotas import SharedQuotaStore

Patch = pytest.MonkeyPatch


@pytest.fixture
def world() -> Iterator[SharingSimulation]:
    """`a` holds 2.5 of 6 and uses 1."""
    made = SharingSimulation(10)
    parts = [{"namespaces": [name], "amounts": {CPU: "4"}} for name in ("a", "b")]
    made.write_quota(QUOTA, {"namespaceSelector": {}, "hard": {CPU: "6"}, "headroom": parts})
    made.run_all()
    bind(made, a_pod(made, "a", 1))
    assert made.read_stored().quota(NAME).unused == {"a": 1.5}
    try:
        yield made
    finally:
        made.close()


def a_pod(world: SharingSimulation, namespace: str, cpu: int) -> PodState:
    world.create(namespace, cpu)
    return world.waiting()[-1]


def bind(world: SharingSimulation, pod: PodState, actor: WebhookActor | None = None) -> None:
    """Let a handler decide, by default the first; what it admits is stored."""
    actor = actor or world.webhooks[0]
    world.bind(actor, pod)
    while actor.task is not None:
        world.step(actor)
    for request in list(world.requests):
        world.commit(request, fails=False)


def run_unasked(world: SharingSimulation, namespace: str, cpu: int) -> None:
    """Let a pod run that no handler was asked about, and be counted."""
    world.assign(a_pod(world, namespace, cpu))
    for _ in range(2):
        settle(world, namespace)


def settle(world: SharingSimulation, namespace: str) -> None:
    world.reconcile(world.controllers[0], namespace)
    finish(world)


def finish(world: SharingSimulation) -> None:
    leader = world.controllers[0]
    while leader.task is not None:
        world.step(leader)


def test_a_bind_within_headroom_fits_beside_what_was_counted_meanwhile(
    world: SharingSimulation,
) -> None:
    run_unasked(world, "b", 5)
    assert world.read_stored().quota(NAME).total == 7.5
    bind(world, a_pod(world, "a", 1))
    assert world.admitted == 1


def test_what_fits_is_bound_though_more_is_held_than_there_is(world: SharingSimulation) -> None:
    run_unasked(world, "b", 4)
    assert world.read_stored().quota(NAME).total == 6.5
    bind(world, a_pod(world, "a", 1))
    assert world.admitted == 2


def test_no_pod_waits_for_what_others_do_not_use(world: SharingSimulation) -> None:
    pod = a_pod(world, "b", 5)
    world.run_all()
    ledger = world.read_stored().ledgers["b"]
    assert ledger is not None
    assert pod.uid in ledger.reservations
    assert held_in(ledger.accounts[NAME]) == 5
    world.check_quiet()


def test_it_is_taken_of_a_namespace_that_cannot_be_counted(
    world: SharingSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = world.controllers[0]
    monkeypatch.setattr(leader.shared.usage_cache, "any_failing", lambda names: names == {"a"})
    pod = a_pod(world, "b", 5)
    settle(world, "b")
    leader.shared.store.fetch(NAME)
    world.clock[0] += 1.5
    world.look(leader)
    finish(world)
    stored = world.read_stored().quota(NAME)
    assert stored.granted["a"] == 1
    assert not stored.unused
    settle(world, "b")
    ledger = world.read_stored().ledgers["b"]
    assert ledger is not None
    assert pod.uid in ledger.reservations


def test_a_recall_that_is_not_written_leaves_the_version_that_was_decided_by(
    world: SharingSimulation,
) -> None:
    """Else a raise would be written over a version that leaves no room for it."""
    shared = world.controllers[0].shared
    state = world.controllers[0].states["b"]
    stored = LedgerStore(world.api).fetch("b")
    assert stored is not None
    with begin(shared, "b", state, stored.ledger, world.epoch) as transaction:
        assert transaction is not None
        decided_by = transaction.versions[NAME]
        others = SharedQuotaStore(world.api)
        version = others.fetch(NAME)
        assert version is not None
        others.write(version, with_raised(version.grants, "a", cpus(3)))
        waits = PendingStatus(PendingReason.QUOTA_EXCEEDED, quota=NAME)
        transaction.recall_headroom({"pod": waits})
        assert transaction.versions[NAME] is decided_by


@pytest.fixture
def mixed() -> Iterator[SharingSimulation]:
    """`a` holds headroom; a handler of the release before last heard of the quota before that."""
    made = SharingSimulation(16)
    former = made.webhooks[2]
    assert former.is_former
    parts = [{"namespaces": [name], "amounts": {CPU: "4"}} for name in ("a", "b")]
    made.write_quota(QUOTA, {"namespaceSelector": {}, "hard": {CPU: "6"}, "headroom": parts})
    made.run_all()
    bind(made, a_pod(made, "a", 1), former)
    bind(made, a_pod(made, "a", 1))
    assert made.read_stored().quota(NAME).granted["a"] > 2
    run_unasked(made, "b", 4)
    try:
        yield made
    finally:
        made.close()


def test_a_handler_of_the_release_before_admits_nothing_beside_headroom(
    mixed: SharingSimulation,
) -> None:
    former = mixed.webhooks[2]
    for size in (1, 2):
        former.hear_of("a")
        bind(mixed, a_pod(mixed, "a", size), former)
    assert mixed.admitted == 2
    mixed.write_quota(QUOTA, {"namespaceSelector": {}, "hard": {CPU: "8"}, "headroom": []})
    mixed.run_all()
    mixed.run_all()
    bind(mixed, mixed.waiting()[0], former)
    assert mixed.admitted == 3


def _read_every_format(patch: Patch) -> None:
    patch.setattr(sharing_simulation, "is_of_later_format", lambda _version: False)


def test_a_format_that_the_release_before_reads_is_noticed(
    mixed: SharingSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    _read_every_format(monkeypatch)
    mixed.webhooks[2].hear_of("a")
    with pytest.raises(AssertionError, match=r"^G: "):
        bind(mixed, a_pod(mixed, "a", 1), mixed.webhooks[2])


def _admit_by_what_was_known(patch: Patch) -> None:
    genuine = grant_raising.look_up

    def look_up_shared(store: SharedQuotaStore, names: Iterable[str]) -> SharedLookups:
        return genuine(store, names, is_fresh=False)

    patch.setattr("webhook.state.reserver.look_up_shared", look_up_shared)


def _recall_nothing(patch: Patch) -> None:
    patch.setattr(GrantTransaction, "recall_headroom", lambda *_: None)


def _leave_what_is_recalled(patch: Patch) -> None:
    patch.setattr(GrantTransaction, "_kept_headroom", _all_that_is_unused)


def _all_that_is_unused(
    transaction: GrantTransaction, name: str, _version: object, wanted: ResourceList
) -> ResourceList:
    former = transaction.previous_ledger
    granted = {} if former is None else former.accounts[name].granted
    return subtract_non_negative(granted, wanted)


def test_a_bind_by_what_was_known_is_noticed(
    world: SharingSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    _admit_by_what_was_known(monkeypatch)
    run_unasked(world, "b", 5)
    with pytest.raises(AssertionError, match=r"^G: "):
        bind(world, a_pod(world, "a", 1))


@pytest.mark.parametrize("breach", [_recall_nothing, _leave_what_is_recalled])
def test_headroom_that_is_not_given_back_is_noticed(
    world: SharingSimulation, breach: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breach(monkeypatch)
    a_pod(world, "b", 5)
    with pytest.raises(AssertionError, match=r"^H: "):
        world.check_quiet()


def test_a_namespace_that_cannot_be_reconciled_keeps_no_headroom_recalled(
    world: SharingSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = world.controllers[0].shared
    shared.note_waiting(NAME, "b", is_waiting=True)
    assert shared.has_waiting(NAME)
    monkeypatch.setattr(shared.usage_cache, "is_stuck", lambda name: name == "b")
    assert not shared.has_waiting(NAME)
