"""Break each law on purpose: the world of `ledger_world` must notice.

A law whose breach goes unnoticed is not tested. Each breach replaces one small function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace

import pytest

from tests.quota.ledger_world import controllers
from tests.quota.ledger_world.controllers import LedgerControllerActor
from tests.quota.ledger_world.driver import drive, random_steps
from tests.quota.ledger_world.handlers import HandlerActor
from tests.quota.ledger_world.objects import HUGE, PodState, QuotaState, Request
from tests.quota.ledger_world.requests import Requests
from tests.quota.ledger_world.storage import Storage
from tests.quota.ledger_world.world import World
from webhook.jsonfields.encoding import encode_json
from webhook.quota.amounts.quantity import UNCOUNTABLE, ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add, excess
from webhook.quota.ledger import apply_usage as settlement
from webhook.quota.ledger import ledger
from webhook.quota.ledger.apply_usage import Expiry, UsageCount
from webhook.quota.ledger.ledger import (
    EMPTY,
    Account,
    Admitted,
    Claim,
    Denied,
    Ledger,
    QuotaRevision,
    Reservation,
    ReservationSource,
    Undecided,
    Verdict,
)
from webhook.quota.ledger.ledger_codec import ledger_status
from webhook.quota.queue import release_order

Patch = pytest.MonkeyPatch
_GENUINE_ADMIT = ledger.admit
_GENUINE_FOLLOW = settlement.reservation_after
_GENUINE_HELD = settlement.still_held
_GENUINE_SETTLE = settlement.apply_usage
_GENUINE_END_LIST = LedgerControllerActor.end_list
_GENUINE_OBSERVED = QuotaState.observed
_GENUINE_USED = controllers.used_by


def _drop_what_is_not_seen(patch: Patch) -> None:
    def follow(one: Reservation, count: UsageCount, unchanged: set[str]) -> Reservation | None:
        return _GENUINE_FOLLOW(one, count, unchanged) if one.uid in count.pods else None

    patch.setattr(settlement, "reservation_after", follow)


def _fold_what_is_not_assigned(patch: Patch) -> None:
    patch.setattr(settlement, "still_held", lambda *_: None)


def _forget_what_is_reserved(patch: Patch) -> None:
    def taken(account: Account, resource: str, _own: ResourceList, _uid: str) -> Quantity:
        return account.used.get(resource, ZERO)

    patch.setattr(ledger, "_used_by_others", taken)


def _ignore_how_quotas_were_counted(patch: Patch) -> None:
    def not_counted(known: Ledger | None, observed: frozenset[QuotaRevision]) -> Undecided | None:
        names = {one.name for one in observed}
        if known is not None and names == set(known.accounts):
            return None
        return Undecided("names differ")

    patch.setattr(ledger, "check_observed", not_counted)


def _write_without_comparing(patch: Patch) -> None:
    def write(storage: Storage, _version: int, following: Ledger) -> bool:
        storage.version += 1
        storage.ledger = (storage.version, encode_json(ledger_status(following)))
        return True

    patch.setattr(Storage, "write_ledger", write)


def _charge_repeats_again(patch: Patch) -> None:
    def charge(
        quota: str, before: Reservation | None, claim: Claim, _usage: ResourceList
    ) -> ResourceList:
        held = EMPTY if before is None else before.charges.get(quota, EMPTY)
        return add(held, claim.usage)

    patch.setattr(ledger, "charge_of", charge)


def _trust_what_was_asked_first(patch: Patch) -> None:
    def charge(
        quota: str, before: Reservation | None, claim: Claim, usage: ResourceList
    ) -> ResourceList:
        if before is None or quota not in before.charges:
            return excess(usage, claim.counted.get(quota, EMPTY))
        return add(before.charges[quota], excess(usage, before.usage))

    patch.setattr(ledger, "charge_of", charge)


def _never_fold(patch: Patch) -> None:
    patch.setattr(settlement, "_beside_used", lambda one, *_: one)


def _fold_before_the_update_is_stored(patch: Patch) -> None:
    def beside_used(*_: object) -> None:
        return None

    patch.setattr(settlement, "_beside_used", beside_used)


def _expire_at_once(patch: Patch) -> None:
    patch.setattr(controllers, "EXPIRE_SECONDS", -1)


def _expire_what_was_written_again(patch: Patch) -> None:
    def look(controller: LedgerControllerActor) -> None:
        controller.ledger = controller.storage.read_ledger()
        known = controller.ledger[1]
        reservations = {} if known is None else known.reservations
        watched, clock = controller.watched, controller.storage.clock
        controller.watched = {
            uid: (one.serial, watched[uid][1] if uid in watched else clock)
            for uid, one in reservations.items()
        }

    patch.setattr(LedgerControllerActor, "look", look)


def _expire_without_asking(patch: Patch) -> None:
    patch.setattr(LedgerControllerActor, "_agrees", lambda *_: True)


def _list_before_it_is_overdue(patch: Patch) -> None:
    def list_pods(controller: LedgerControllerActor) -> None:
        if controller.listing is None:
            controller.look()
            due = {uid: serial for uid, (serial, _) in controller.watched.items()}
            controller.listing = (due, dict(controller.storage.pods))

    def end_list(controller: LedgerControllerActor) -> None:
        if controller.listing is not None:
            due, listed = controller.listing
            overdue = controller.overdue()
            over = {uid: serial for uid, serial in due.items() if overdue.get(uid) == serial}
            controller.listing = (over, listed)
        _GENUINE_END_LIST(controller)

    patch.setattr(LedgerControllerActor, "list_pods", list_pods)
    patch.setattr(LedgerControllerActor, "end_list", end_list)


def _believe_half_a_list(patch: Patch) -> None:
    def list_pods(controller: LedgerControllerActor) -> None:
        if controller.listing is None:
            controller.look()
            pods = list(controller.storage.pods.items())
            controller.listing = (controller.overdue(), dict(pods[: len(pods) // 2]))

    patch.setattr(LedgerControllerActor, "list_pods", list_pods)


def _expire_without_a_barrier(patch: Patch) -> None:
    def admit(known: Ledger, claim: Claim) -> tuple[Ledger, Verdict]:
        return _GENUINE_ADMIT(known, replace(claim, observed_version=known.pods_barrier))

    patch.setattr(ledger, "admit", admit)
    patch.setattr(HandlerActor, "_pod_as_seen", _pod_in_cache)


def _pod_in_cache(handler: HandlerActor, now: PodState) -> PodState:
    return handler.pods.get(now.uid, now)


def _count_from_older_pods(patch: Patch) -> None:
    def settle(
        known: Ledger | None, count: UsageCount, *, expired: Mapping[str, Expiry]
    ) -> Ledger | None:
        older = None if known is None else replace(known, pods_resource_version=0)
        return _GENUINE_SETTLE(older, count, expired=expired)

    patch.setattr(controllers, "apply_usage", settle)


def _charge_until_the_refusal(patch: Patch) -> None:
    def admit(known: Ledger, claim: Claim) -> tuple[Ledger, Verdict]:
        following, verdict = _GENUINE_ADMIT(known, claim)
        if not isinstance(verdict, Denied):
            return following, verdict
        passed = tuple(name for name in claim.quotas if name < verdict.denial.quota)
        partly, _ = _GENUINE_ADMIT(known, replace(claim, quotas=passed))
        return partly, verdict

    patch.setattr(ledger, "admit", admit)


def _decide_refusals_again(patch: Patch) -> None:
    def final(verdicts: list[Verdict], *, is_written: bool) -> list[Verdict | None]:
        stands = all(isinstance(verdict, Admitted) for verdict in verdicts) and is_written
        return [verdict if stands else None for verdict in verdicts]

    patch.setattr(ledger, "final_verdicts", final)


def _trust_changed_quotas(patch: Patch) -> None:
    def held(
        one: Reservation, count: UsageCount, _applying: object, _unchanged: object
    ) -> Reservation:
        return _GENUINE_HELD(one, count, (), set(count.quotas))

    patch.setattr(settlement, "still_held", held)


def _believe_the_smaller_usage(patch: Patch) -> None:
    patch.setattr(ledger, "max_of", lambda _before, claimed: claimed)


def _make_a_lost_ledger_at_once(patch: Patch) -> None:
    patch.setattr(settlement, "seconds_until_new", lambda **_: 0.0)


def _make_a_lost_ledger_from_old_pods(patch: Patch) -> None:
    patch.setattr(LedgerControllerActor, "_has_seen_all", lambda *_: True)


def _let_a_deposed_leader_write(patch: Patch) -> None:
    def arrive(controller: LedgerControllerActor) -> None:
        sent, controller.sent = controller.sent, None
        version, present = controller.storage.ledger
        if sent is not None and present is not None:
            controller.storage.write_ledger(version, sent[1])  # whatever was written since

    patch.setattr(LedgerControllerActor, "arrive", arrive)


def _count_new_resources_at_once(patch: Patch) -> None:
    patch.setattr(settlement, "_counts_more", lambda *_: False)
    patch.setattr(settlement, "max_of", lambda reserved, _seen: reserved)


def _count_new_resources_beside_updates(patch: Patch) -> None:
    patch.setattr(settlement, "_may_hide", lambda _, pod: pod is None)


def _decide_by_counts_without_held_pods(patch: Patch) -> None:
    def observed(quota: QuotaState, keys: Set[str], *, holds: bool) -> QuotaRevision:
        assert isinstance(holds, bool)
        return _GENUINE_OBSERVED(quota, keys, holds=False)

    patch.setattr(QuotaState, "observed", observed)


def _give_back_what_is_held(patch: Patch) -> None:
    def used(quota: QuotaState, pods: Iterable[PodState], *, holds: bool) -> ResourceList:
        assert isinstance(holds, bool)
        return _GENUINE_USED(quota, pods, holds=False)

    patch.setattr(controllers, "used_by", used)


def _count_nothing_for_what_is_uncountable(patch: Patch) -> None:
    def used(quota: QuotaState, pods: Iterable[PodState], *, holds: bool) -> ResourceList:
        return _GENUINE_USED(quota, [pod for pod in pods if pod.cpu < HUGE], holds=holds)

    patch.setattr(controllers, "used_by", used)


def _charge_nothing_for_what_is_uncountable(patch: Patch) -> None:
    def admit(known: Ledger, claim: Claim) -> tuple[Ledger, Verdict]:
        usage = {name: one for name, one in claim.usage.items() if one < UNCOUNTABLE}
        return _GENUINE_ADMIT(known, replace(claim, usage=usage))

    patch.setattr(ledger, "admit", admit)


def _release_without_comparing(patch: Patch) -> None:
    def admit(known: Ledger, claim: Claim) -> tuple[Ledger, Verdict]:
        return _GENUINE_ADMIT(known, replace(claim, skip_limits=True))

    patch.setattr(release_order, "admit", admit)
    patch.setattr(release_order, "exceeded_quotas", lambda *_: ())


def _release_by_what_others_have(patch: Patch) -> None:
    """Binds of pods that were released go unasked: what is promised is as good as taken."""
    genuine = Requests.answer

    def answer(
        requests: Requests, request: Request, verdict: Verdict, stands: Verdict | None
    ) -> None:
        known = request.ledger[1]
        promised = None if known is None else known.reservations.get(request.claim.uid)
        if promised is not None and promised.source is ReservationSource.RELEASE:
            request.is_admitted = True
            return
        genuine(requests, request, verdict, stands)

    patch.setattr(Requests, "answer", answer)


def _charge_whatever_runs_anyway(patch: Patch) -> None:
    patch.setattr(ledger, "_within_hard", lambda _known, _held, after: after)


def _reserve_nothing_for_what_runs_anyway(patch: Patch) -> None:
    patch.setattr(ledger, "_left_of", lambda _account, _charge, own, _uid: own)


def _settle_beyond_the_limit(patch: Patch) -> None:
    patch.setattr(settlement, "_within_hard", lambda kept, *_: kept)


def _ignore_what_others_are_short_of(patch: Patch) -> None:
    patch.setattr(ledger, "_short_quota", lambda *_, **__: None)


def _give_what_is_short_to_others(patch: Patch) -> None:
    def filled(wanted: Reservation, sure: Mapping[str, ResourceList], _: object) -> Reservation:
        return replace(wanted, charges=sure, is_capped=True)

    patch.setattr(settlement, "_filled", filled)


@dataclass(frozen=True, slots=True)
class Breach:
    """A law that is broken, and where to look for what comes of it.

    Attributes:
        act: Breaks it.
        theme: What the walks are about that are searched; empty: everything.
        first: A walk that notices, which is looked at first. Another one is found in its place
            when steps change, and printed; that only takes longer.
    """

    act: Callable[[Patch], None]
    theme: str = ""
    first: int = 0


BREACHES: Mapping[str, Breach] = {
    "1 safety: what the cache does not show is dropped": Breach(_drop_what_is_not_seen),
    "2 admit: reservations are not added": Breach(_forget_what_is_reserved),
    "2 admit: quotas counted in another state are used": Breach(
        _ignore_how_quotas_were_counted, first=78
    ),
    "2 admit: the write does not compare versions": Breach(_write_without_comparing),
    "3 once: a repeated request is charged again": Breach(_charge_repeats_again),
    "3 once: a repeated request is charged as the first, of an older pod": Breach(
        _trust_what_was_asked_first, "patches", first=68
    ),
    "4 fold: a pod is folded before it is assigned": Breach(_fold_what_is_not_assigned),
    "4 fold: a counted pod stays reserved": Breach(_never_fold),
    "4 fold: an update is folded before it is stored": Breach(
        _fold_before_the_update_is_stored, "patches"
    ),
    "5 expire: without waiting": Breach(_expire_at_once),
    "5 expire: although written again meanwhile": Breach(_expire_what_was_written_again, first=44),
    "5 expire: without asking the API server": Breach(_expire_without_asking, "losses", first=77),
    "5 expire: by a list that began before it was overdue": Breach(
        _list_before_it_is_overdue, "lists", first=140
    ),
    "5 expire: by half of a list": Breach(_believe_half_a_list, "lists", first=131),
    "5 expire: handlers may still judge by older pods": Breach(
        _expire_without_a_barrier, "old views", first=421
    ),
    "6 monotonic: usage is counted from older pods": Breach(_count_from_older_pods),
    "7 all or none: quotas before the refusing one stay charged": Breach(_charge_until_the_refusal),
    "8 final: refused requests are decided again": Breach(_decide_refusals_again, first=72),
    "2 admit: pods are released that do not fit": Breach(_release_without_comparing),
    "5 expire: released pods are bound without a trace": Breach(
        _release_by_what_others_have, "promises", first=289
    ),
    "1 safety: nothing is reserved for pods that run anyway": Breach(
        _reserve_nothing_for_what_runs_anyway, "mirrors"
    ),
    "1 safety: what is given back does not go to reservations that are short": Breach(
        _give_what_is_short_to_others, "mirrors"
    ),
    "2 admit: what is held already is admitted beside reservations that are short": Breach(
        _ignore_what_others_are_short_of, "lowered limits", first=369
    ),
    "10 evidence: pods that run anyway are charged beyond the limit": Breach(
        _charge_whatever_runs_anyway, "mirrors"
    ),
    "10 evidence: reservations that are short are charged in full later": Breach(
        _settle_beyond_the_limit, "mirrors"
    ),
    "loss: a lost ledger is made at once": Breach(_make_a_lost_ledger_at_once, first=44),
    "loss: a lost ledger is made from old pods": Breach(
        _make_a_lost_ledger_from_old_pods, "losses", first=113
    ),
    "leadership: what a deposed leader sent replaces what came after": Breach(
        _let_a_deposed_leader_write
    ),
    "configuration: a resource is counted that handlers did not claim": Breach(
        _count_new_resources_at_once, "configurations", first=10
    ),
    "configuration: a resource is counted beside updates that handlers did not claim": Breach(
        _count_new_resources_beside_updates, "configurations", first=1136
    ),
    "configuration: handlers that hold stuck pods decide by counts without them": Breach(
        _decide_by_counts_without_held_pods, "stuck pods, held or not", first=286
    ),
    "1 safety: what is held is given back": Breach(_give_back_what_is_held, "stuck pods", first=4),
    "1 safety: an amount that cannot be counted is left out of the count": Breach(
        _count_nothing_for_what_is_uncountable, "uncountable amounts"
    ),
    "2 admit: an amount that cannot be counted is not compared": Breach(
        _charge_nothing_for_what_is_uncountable, "uncountable amounts"
    ),
    "9 bias: a changed quota is not charged for reservations": Breach(_trust_changed_quotas),
    "9 bias: the smaller of two usages is kept": Breach(_believe_the_smaller_usage),
}


@pytest.mark.parametrize("breach", BREACHES.values(), ids=BREACHES.keys())
def test_a_broken_law_is_noticed(breach: Breach, monkeypatch: pytest.MonkeyPatch) -> None:
    breach.act(monkeypatch)
    with pytest.raises(AssertionError) as noticed:
        _search(breach)
    assert str(noticed.value)


def _search(breach: Breach) -> None:
    for seed in (breach.first, *range(4000)):
        try:
            world = World(holds=breach.theme == "stuck pods")
            drive(world, random_steps(seed, 120, theme=breach.theme))
        except AssertionError:
            print(f"noticed by walk {seed}")
            raise
