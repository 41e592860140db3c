"""Walk through every interleaving of two handlers and two leaders that give one place to two pods.

The ledger's world takes long random walks among many faults; here nothing is left to chance, in a
smaller world (`ledger_model`). The rules that are broken below have to be noticed there as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import pytest

from tests.quota.ledger_model.decisions import Decisions
from tests.quota.ledger_model.search import BrokenError, explore
from tests.quota.ledger_model.state import Name, Phase, Watch
from tests.quota.ledger_model.steps import Fault, Rules, Scene
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.ledger import apply_usage as settlement
from webhook.quota.ledger import ledger
from webhook.quota.ledger.apply_usage import Expiry, UsageCount
from webhook.quota.ledger.ledger import (
    Account,
    Claim,
    Ledger,
    Reservation,
    ReservationSource,
    Verdict,
)
from webhook.quota.queue import release_order

_NO_PROOFS: Mapping[str, Expiry] = MappingProxyType({})
_FREE, _GATED = Phase.FREE, Phase.GATED

BINDS = Scene((_FREE, _FREE), (2, 1))
GATES = Scene((_GATED, _GATED), (1, 1))
DELETIONS = Scene((_FREE, _FREE), (1, 1), {Fault.DELETED_POD: 1})
RESTARTS = Scene((_FREE, _FREE), (1, 1), {Fault.RESTART: 1})
LOST_ANSWERS = Scene((_FREE, _FREE), (1, 1), {Fault.LOST_ANSWER: 1, Fault.CRASH: 1})
LOST_LEDGERS = Scene((_FREE, _FREE), (1, 1), {Fault.LOST_LEDGER: 1})

STATES: Mapping[str, tuple[Scene, int]] = {
    "a pod is asked about twice": (BINDS, 14_027),
    "both pods wait behind our gate": (GATES, 30_034),
    "a pod is deleted": (DELETIONS, 25_668),
    "a leader restarts": (RESTARTS, 3_808),
    "an answer is lost and a handler stops": (LOST_ANSWERS, 8_631),
    "the ledger is lost": (LOST_LEDGERS, 6_124),
}


@pytest.mark.parametrize(("scene", "states"), STATES.values(), ids=STATES.keys())
def test_no_order_of_steps_gives_the_place_away_twice(scene: Scene, states: int) -> None:
    assert explore(scene) == states, "what may happen has changed: see that nothing went missing"


# -- broken on purpose -----------------------------------------------------------------------


class _WriteWithoutComparing(Rules):
    needs_older = True

    def may_write(self, base: int, stored: int) -> bool:
        return bool(base and stored)


class _LetADeposedLeaderWrite(Rules):
    needs_older = True

    def may_leader_write(self, base: int, stored: int) -> bool:
        return bool(base and stored)


class _ExpireAtOnce(Rules):
    def is_due(self, _watch: Watch) -> bool:
        return True


class _ExpireWhatWasWrittenAgain(Rules):
    def is_same(self, _watch: Watch, _serial: int) -> bool:
        return True


class _ExpireWithoutAsking(Rules):
    def agrees(self, _stored: tuple[Phase, int], _seen: tuple[Phase, int]) -> bool:
        return True


class _MakeALostLedgerAtOnce(Rules):
    def may_make_ledger(self, _lost: Collection[Name], *, has_seen_all: bool) -> bool:
        return has_seen_all


class _MakeALostLedgerFromOldPods(Rules):
    def may_make_ledger(self, lost: Collection[Name], *, has_seen_all: bool) -> bool:
        assert isinstance(has_seen_all, bool)
        return not lost


class _BindReleasedPodsUnwritten(Rules):
    needs_older = True

    def binds_unwritten(self, reservation: Reservation) -> bool:
        return reservation.source is ReservationSource.RELEASE


class _RepeatWithoutATrace(Rules):
    needs_older = True

    def binds_unwritten(self, reservation: Reservation) -> bool:
        return reservation.source is ReservationSource.BIND


class _TakeALostWriteForDone(Rules):
    def is_written(self, *, is_known: bool) -> bool:
        assert isinstance(is_known, bool)
        return True


def _forget_what_is_reserved(patch: pytest.MonkeyPatch) -> None:
    def taken(account: Account, resource: str, _own: ResourceList, _uid: str) -> Quantity:
        return account.used.get(resource, ZERO)

    patch.setattr(ledger, "_used_by_others", taken)


def _fold_what_is_not_assigned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settlement, "still_held", lambda *_: None)


def _never_fold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settlement, "_beside_used", lambda one, *_: one)


def _count_from_older_pods(patch: pytest.MonkeyPatch) -> None:
    genuine = settlement.apply_usage

    def count(
        known: Ledger | None, count: UsageCount, *, expired: Mapping[str, Expiry] = _NO_PROOFS
    ) -> Ledger | None:
        older = None if known is None else replace(known, pods_resource_version=0)
        return genuine(older, count, expired=expired)

    patch.setattr(settlement, "apply_usage", count)


def _admit_what_rests_on_what_was_not_written(patch: pytest.MonkeyPatch) -> None:
    genuine = ledger.final_verdicts
    patch.setattr(
        ledger, "final_verdicts", lambda verdicts, **_: genuine(verdicts, is_written=True)
    )


def _release_without_comparing(patch: pytest.MonkeyPatch) -> None:
    def admit(known: Ledger, claim: Claim) -> tuple[Ledger, Verdict]:
        unlimited = {name: replace(one, hard={}) for name, one in known.accounts.items()}
        return ledger.admit(replace(known, accounts=unlimited), claim)

    patch.setattr(release_order, "exceeded_quotas", lambda *_: ())
    patch.setattr(release_order, "admit", admit)


def _go_on_watching_in_another_ledger(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decisions, "object_of", lambda *_: 0)


@dataclass(frozen=True)
class Breach:
    """A rule that is broken, in the scene where that shows."""

    scene: Scene
    rules: Rules | None = None
    act: Callable[[pytest.MonkeyPatch], None] = lambda _patch: None


BREACHES: Mapping[str, Breach] = {
    "2 admit: a handler's write does not compare versions": Breach(BINDS, _WriteWithoutComparing()),
    "2 admit: reservations are not added": Breach(BINDS, act=_forget_what_is_reserved),
    "2 admit: a write whose answer is lost admits": Breach(BINDS, _TakeALostWriteForDone()),
    "2 admit: a write that conflicts admits": Breach(
        BINDS, act=_admit_what_rests_on_what_was_not_written
    ),
    "2 admit: pods are released that do not fit": Breach(GATES, act=_release_without_comparing),
    "3 once: a repeated request leaves no trace": Breach(BINDS, _RepeatWithoutATrace()),
    "4 fold: a pod is folded before it is assigned": Breach(BINDS, act=_fold_what_is_not_assigned),
    "4 fold: a counted pod stays reserved": Breach(BINDS, act=_never_fold),
    "5 expire: without waiting": Breach(BINDS, _ExpireAtOnce()),
    "5 expire: what was written again is taken for what was watched": Breach(
        BINDS, _ExpireWhatWasWrittenAgain()
    ),
    "5 expire: without asking the API server": Breach(BINDS, _ExpireWithoutAsking()),
    "5 expire: released pods are bound without a write": Breach(
        GATES, _BindReleasedPodsUnwritten()
    ),
    "6 monotonic: usage is counted from older pods": Breach(RESTARTS, act=_count_from_older_pods),
    "leadership: what a deposed leader sent replaces what came after": Breach(
        BINDS, _LetADeposedLeaderWrite()
    ),
    "loss: a lost ledger is made at once": Breach(LOST_LEDGERS, _MakeALostLedgerAtOnce()),
    "loss: a lost ledger is made from old pods": Breach(
        LOST_LEDGERS, _MakeALostLedgerFromOldPods()
    ),
    "loss: what was watched in a lost ledger counts in the next": Breach(
        Scene((_FREE, _FREE), (2, 1), {Fault.LOST_LEDGER: 1}), act=_go_on_watching_in_another_ledger
    ),
}


@pytest.mark.parametrize("breach", BREACHES.values(), ids=BREACHES.keys())
def test_a_broken_rule_is_noticed(breach: Breach, monkeypatch: pytest.MonkeyPatch) -> None:
    breach.act(monkeypatch)
    with pytest.raises(BrokenError) as noticed:
        explore(breach.scene, breach.rules, at_most=100_000)
    print(noticed.value)
