"""Pods that wait behind our scheduling gate, and the reasons why.

A pod is judged here by everything but the usage of others; its place in the order is made here
(`to_queued_pod`), and `release_order` decides which pods are released.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeAlias

from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import add, mask
from webhook.quota.charging.constraints import unstated
from webhook.quota.charging.coverage import CoverageRules, Uncovered, uncovered_assignment
from webhook.quota.charging.deferral import (
    TOO_LARGE,
    DeferredQuota,
    NamespaceQuotas,
    claim_for_bind,
    uncountable_fields,
)
from webhook.quota.charging.denials import MustSpecify, QuotaExceeded, name_quota
from webhook.quota.charging.limited_resources import may_limit_other_names
from webhook.quota.charging.pod_usage import is_terminal, usage_of
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.ledger.ledger import NEWEST, Claim, Ledger, ReservationSource, exceeded_quotas
from webhook.quota.objects.model import COUNTED_NAMES, Pod, ResourceQuota
from webhook.quota.objects.qos import forged_qos_class

_MOST_NAMED: Final = 8
_MOST_RETRIED: Final = 64
"""Pods whose bind was refused that have a place in a queue, the first of them: each is judged in
each cycle, and where pods have no gate any number of them is tried."""
_MANY_NAMES: Final = (
    f"it names more than {COUNTED_NAMES} resources, and some of them may need a quota"
)
_AGELESS: Final = datetime.max.replace(tzinfo=UTC)

LONGEST_NUMBERS: Final = 1200
"""Characters of a message after which no further quota is named: what else there is to say follows,
and the whole has a bound (`pod_conditions.LONGEST_TEXT`)."""

SortKey: TypeAlias = tuple[int, datetime, int, str]
"""Order of queued pods: priority, age, arrival, uid; less is earlier."""


class QueueingStrategy(StrEnum):
    """Effect of a pod that does not fit on the pods behind it."""

    STRICT = "StrictFIFO"
    BEST_EFFORT = "BestEffortFIFO"


class PendingReason(StrEnum):
    """Reason why a pod is queued."""

    QUOTA_EXCEEDED = "QuotaExceeded"
    """It does not fit beside what is used and reserved."""
    BEHIND = "Behind"
    """An earlier pod does not fit a quota that both share."""
    OWNERS_FIRST = "OwnersFirst"
    """It would borrow of an elastic pool what another quota's pod is guaranteed and waits for."""
    RECLAIMING = "Reclaiming"
    """Pods of other elastic quotas are being evicted for it."""
    NEVER_FITS = "NeverFits"
    """It requests more than a quota's limit."""
    NOT_COVERED = "NotCovered"
    """It needs a quota that does not exist."""
    MUST_SPECIFY = "MustSpecify"
    """Its containers do not say how much they take of what a quota limits."""
    FORGED_QOS_CLASS = "ForgedQOSClass"
    """Its status has a QoS class that it does not earn, and by which quotas choose."""
    OTHER_GATES = "OtherGates"
    """It has scheduling gates of others; quota is reserved when ours is the last."""
    PREEMPTORS_UNBOUND = "PreemptorsUnbound"
    """Pods that may preempt, as it may, were released and have no node: see `preemptors`."""
    LEDGER_FULL = "LedgerFull"
    """As many pods are reserved for as may be at the same time."""
    NOT_COUNTED = "NotCounted"
    """What is used is not known now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """Policy of the queue."""

    order: QueueingStrategy = QueueingStrategy.STRICT
    """What a pod that does not fit means for others."""
    max_overtakes: int = 100
    """How many pods may pass one that does not fit, if any may."""
    max_wait_seconds: float = 300.0
    """For how long they may."""
    coverage: CoverageRules = field(default_factory=CoverageRules)
    must_specify: bool = True
    """Whether containers have to name what a quota limits."""


@dataclass(frozen=True, slots=True)
class QueueCriteria:
    """Criteria by which a namespace's pods are judged."""

    quotas: NamespaceQuotas
    """Its deferred quotas, as they are counted."""
    all_quotas: tuple[ResourceQuota, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Why some of them cannot be read: it is not known then what they limit."""
    rules: QueuePolicy = field(default_factory=QueuePolicy)


@dataclass(frozen=True, slots=True)
class Blocker:
    """Reason for which a pod cannot be released, whatever becomes of other pods."""

    reason: PendingReason
    detail: str = ""
    """The same as a sentence; empty where the numbers say it."""
    quota: str = ""
    """Which quota it is about, if it is about one."""
    failing: frozenset[str] = field(default=frozenset(), compare=False)
    """All quotas that the pod does not fit, where it waits for room."""


@dataclass(frozen=True, slots=True)
class QueuedPod:
    """A pod of the queue."""

    pod: Pod
    sort_key: SortKey
    claim: Claim | None
    """What is reserved for it; None when it takes nothing that is deferred."""
    quotas: tuple[str, ...] = ()
    """Those that are about it: they select it and limit some of what it takes."""
    blocker: Blocker | None = None
    """Why it cannot be released now, if so."""
    is_gated: bool = True
    """Whether it waits behind our gate. One that does not was let through: what it takes is
    reserved for it in its turn, so that it is not given to those behind it."""
    is_retried: bool = False
    """Whether it is no gate but a refused bind that has it wait. What it takes is reserved for it
    once it has waited: until then its next bind decides. It holds no other pod."""

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.pod.uid

    @property
    def next_claim(self) -> Claim | None:
        """The claim that decides next: of a pod without our gate, that of its bind.

        It has the room of a release that stands, whatever was promised since.
        """
        if self.claim is None or self.is_gated:
            return self.claim
        return replace(self.claim, source=ReservationSource.BIND)

    @property
    def needs_no_quota(self) -> bool:
        """Whether it takes nothing of any quota, so that nothing has to be reserved."""
        return self.blocker is None and not self.quotas

    @property
    def is_waiting_for_quota(self) -> bool:
        """Whether nothing but what others take can keep it waiting."""
        return self.blocker is None and not self.needs_no_quota

    @property
    def needs_gate(self) -> bool:
        """Whether a scheduler may try in vain to bind it, and evict other pods for it.

        That it cannot be bound as long as it has gates of others concerns no scheduler.
        """
        is_refused = (
            self.blocker is not None and self.blocker.reason is not PendingReason.OTHER_GATES
        )
        return is_refused or bool(self.quotas)


@dataclass(frozen=True, slots=True)
class WaitHistory:
    """History of a pod: how many passed it, and how long it did not fit."""

    overtaken: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PendingStatus:
    """Reason for which a pod waits."""

    reason: PendingReason
    position: int = 0
    """Its place from 1 among those that wait for room; 0 when it waits for something else."""
    blocked_by: str = ""
    """Name of the pod that holds it, if one does."""
    quota: str = ""
    """The quota that it fails, or is held in; empty where none matters."""
    detail: str = ""
    """What else there is to say."""
    blocking: frozenset[str] = frozenset()
    """The quotas in which it holds pods behind it."""
    is_retried: bool = False
    """Whether it waits because its bind was refused."""
    failing: frozenset[str] = field(default=frozenset(), compare=False)
    """The quotas that it did not fit when its turn came, where it waits for room."""
    quotas: tuple[str, ...] = field(default=(), compare=False)
    """Those that are about it, see `QueuedPod`."""
    _claim: Claim | None = field(default=None, repr=False, compare=False)
    _ledger: Ledger | None = field(default=None, repr=False, compare=False)

    @property
    def denials(self) -> tuple[QuotaExceeded, ...]:
        """The quotas that the pod exceeds and the numbers, as they were after the pass.

        The one that it fails, or is held in, comes first; the others in the order of their names.
        Worked out when asked for: few are ever read.
        """
        if self._claim is None or self._ledger is None:
            return ()
        refusals = exceeded_quotas(self._ledger, self._claim)
        return tuple(sorted(refusals, key=lambda refusal: refusal.quota != self.quota))

    def denials_after(self, earlier: Iterable[PendingStatus]) -> tuple[QuotaExceeded, ...]:
        """Return `denials` as they are once pods of the same queue have what they ask for."""
        if self._claim is None or self._ledger is None:
            return ()
        accounts = dict(self._ledger.accounts)
        for claim in [one._claim for one in earlier]:  # noqa: SLF001 - of the same class
            for name in () if claim is None else accounts.keys() & set(claim.quotas):
                account = accounts[name]
                if claim is not None and claim.uid not in account.promised:
                    reserved = add(account.reserved, mask(claim.usage, account.hard))
                    accounts[name] = replace(account, reserved=reserved)
        return exceeded_quotas(replace(self._ledger, accounts=accounts), self._claim)

    @property
    def is_promised(self) -> bool:
        """Whether some of a quota is promised to the pod."""
        claim, accounts = self._claim, {} if self._ledger is None else self._ledger.accounts
        return claim is not None and any(
            claim.uid in accounts[name].promised for name in claim.quotas if name in accounts
        )

    @property
    def message(self) -> str:
        """All of it in one sentence, in the API server's words where it has some."""
        refusals = self.denials
        parts = _numbers(refusals)
        if self.reason is PendingReason.NEVER_FITS:
            parts.append(never_fits_text(self.quota))
        if self.reason is PendingReason.BEHIND:
            parts.append(behind_text(self.blocked_by, self.quota))
        return "; ".join([*parts, *([self.detail] if self.detail else [])])


def never_fits_text(quota: str) -> str:
    """Return that a pod can never fit; with a quota, that it is larger than that."""
    excess = f"asks for more than the limit of {name_quota(quota).text} and " if quota else ""
    return f"the pod {excess}can never fit"


def behind_text(holder: str, quota: str) -> str:
    """Return which pod another waits behind, and the quota that it needs."""
    return f"waits behind pod {holder}, which needs {name_quota(quota).text}"


def other_gates_text(gates: Iterable[str]) -> str:
    """Return which scheduling gates of others hold a pod."""
    return f"waits for other scheduling gates first: {', '.join(gates)}"


def _numbers(refusals: Sequence[QuotaExceeded]) -> list[str]:
    """Return one sentence per quota, and how many more there are if they become too long."""
    parts: list[str] = []
    size = 0
    for refusal in refusals:
        message = refusal.message
        size += len(message)
        if parts and size > LONGEST_NUMBERS:
            left = len(refusals) - len(parts)
            more = "quota is" if left == 1 else "quotas are"
            return [*parts, f"and {left} more {more} exceeded"]
        parts.append(message)
    return parts


@dataclass(frozen=True, slots=True)
class CycleResult:
    """Decisions of a cycle."""

    ledger: Ledger | None
    """The ledger with the reservations of `released`; None where there is none."""
    released: tuple[QueuedPod, ...] = ()
    """Those that are reserved for by this pass, in order."""
    reserved: tuple[QueuedPod, ...] = ()
    """Those that had been before."""
    free: tuple[QueuedPod, ...] = ()
    """Those that need no reservation."""
    pending: Mapping[str, PendingStatus] = field(default_factory=dict)
    """Pod uid → why it waits, in order."""
    blocking: Mapping[str, SortKey] = field(default_factory=dict)
    """Quota → where the pod stands that holds all behind it."""
    overtaken: Mapping[str, int] = field(default_factory=dict)
    """Pod uid → how many have passed it so far, where any has."""

    @property
    def releasable(self) -> tuple[QueuedPod, ...]:
        """Pods whose gate may be removed once the ledger is written."""
        every = (*self.free, *self.reserved, *self.released)
        return tuple([one for one in every if one.is_gated])

    @property
    def retried(self) -> tuple[QueuedPod, ...]:
        """Pods whose bind was refused, and for which quota is reserved once the ledger is."""
        return tuple([one for one in (*self.reserved, *self.released) if one.is_retried])


def is_queued(pod: Pod, gate: str) -> bool:
    """Return whether a pod is queued: it has our gate, no node, and is meant to run."""
    return gate in pod.scheduling_gates and _is_meant_to_run(pod)


def is_in_flight(pod: Pod) -> bool:
    """Return whether a pod may get a node at any moment: it has no gate, no node, and is to run."""
    return not pod.is_gated and _is_meant_to_run(pod)


def may_have_place(pod: Pod, gate: str) -> bool:
    """Return whether a pod has our gate, or waits because its bind was refused."""
    return gate in pod.scheduling_gates or pod.is_bind_refused


def _is_meant_to_run(pod: Pod) -> bool:
    return not (pod.is_assigned or pod.is_deleting or is_terminal(pod))


def to_queued_pod(pod: Pod, gate: str, *, since: int, terms: QueueCriteria) -> QueuedPod:
    """Judge a queued pod by everything but the usage of others.

    Args:
        gate: Our gate.
        since: The version in which it was first seen: times of creation are whole seconds.
        terms: What its namespace's pods are judged by.
    """
    priority = 0 if pod.priority is None else pod.priority
    is_gated = gate in pod.scheduling_gates
    place = (-priority, pod.created or _AGELESS, since, pod.uid)
    try:
        applying = terms.quotas.applying_to(pod)
        claim = claim_for_bind(
            pod,
            terms.quotas,
            source=ReservationSource.RELEASE,
            observed_version=NEWEST,
            applying=applying,
        )
        hindrance = next(blockers(pod, gate, applying, claim, terms), None)
    except ScopeError as err:
        unknown = Blocker(PendingReason.NOT_COUNTED, str(err))
        return QueuedPod(pod, place, None, blocker=unknown, is_gated=is_gated)
    about = () if claim is None else _about(claim, applying)
    return QueuedPod(pod, place, claim, about, hindrance, is_gated)


def with_pods_ahead(
    queue: tuple[QueuedPod, ...], in_flight: Iterable[QueuedPod]
) -> tuple[QueuedPod, ...]:
    """Return a queue, and in their places the ungated pods that some of it stand behind.

    Args:
        queue: The gated pods in their order.
        in_flight: Pods without a gate and a node, for which room is kept.
    """
    last: dict[str, SortKey] = {}
    for one in queue:
        if one.is_waiting_for_quota:
            last.update(dict.fromkeys(one.quotas, one.sort_key))
    ahead = sorted([one for one in in_flight if _is_ahead(one, last)], key=_sort_key)
    return tuple(heapq.merge(queue, ahead, key=_sort_key)) if ahead else queue


def with_retried(
    queue: tuple[QueuedPod, ...], retried: Iterable[QueuedPod]
) -> tuple[QueuedPod, ...]:
    """Return a queue, and in their places the pods of elastic pools whose bind was refused.

    Args:
        queue: The gated pods in their order, and others that are in flight.
        retried: Pods without a gate and a node that no bind was admitted for.
    """
    known = {one.uid for one in queue if not one.is_gated}
    others = (one for one in retried if one.uid not in known and _takes_of_pool(one))
    first = heapq.nsmallest(_MOST_RETRIED, others, key=_sort_key)
    added = [replace(one, is_retried=True) for one in first]
    return tuple(heapq.merge(queue, added, key=_sort_key)) if added else queue


def _takes_of_pool(queued: QueuedPod) -> bool:
    return any(name_quota(name).is_pool for name in queued.quotas)


def _is_ahead(queued: QueuedPod, last: Mapping[str, SortKey]) -> bool:
    return any(name in last and queued.sort_key < last[name] for name in queued.quotas)


def _sort_key(queued: QueuedPod) -> SortKey:
    return queued.sort_key


def _about(claim: Claim, applying: Sequence[DeferredQuota]) -> tuple[str, ...]:
    taken = {name for name, amount in claim.usage.items() if amount > ZERO}
    return tuple([quota.name for quota in applying if not taken.isdisjoint(quota.hard)])


def blockers(
    pod: Pod,
    gate: str,
    applying: Sequence[DeferredQuota],
    claim: Claim | None,
    terms: QueueCriteria,
) -> Iterator[Blocker]:
    """Yield everything that keeps a pod whatever is used, the most important first.

    Args:
        pod: The pod.
        gate: Our gate.
        applying: The quotas that select it.
        claim: What is claimed for it.
        terms: What its namespace's pods are judged by.
    """
    if terms.unreadable:
        yield Blocker(PendingReason.NOT_COUNTED, terms.unreadable[0])
    yield from _against_rules(pod, applying, terms)
    yield from _never_fits(pod, claim, applying, terms)
    others = [name for name in pod.scheduling_gates if name != gate]
    if others and applying:  # what is reserved would wait for them
        yield Blocker(PendingReason.OTHER_GATES, other_gates_text(others))


def _against_rules(
    pod: Pod, applying: Sequence[DeferredQuota], terms: QueueCriteria
) -> Iterator[Blocker]:
    """Yield why the bind is refused whatever is used and limited."""
    forged = forged_qos_class(pod)
    if forged:
        yield Blocker(PendingReason.FORGED_QOS_CLASS, forged)
    uncovered = _uncovered(pod, terms)
    if uncovered is not None:
        yield Blocker(PendingReason.NOT_COVERED, uncovered.message)
    elif pod.has_many_names and may_limit_other_names(
        terms.rules.coverage.limited, usage_of(pod, now=None)
    ):
        yield Blocker(PendingReason.NEVER_FITS, _MANY_NAMES)
    for quota, missing in unstated(pod, applying if terms.rules.must_specify else ()):
        message = MustSpecify(quota.name, missing).message
        yield Blocker(PendingReason.MUST_SPECIFY, message)


def _uncovered(pod: Pod, terms: QueueCriteria) -> Uncovered | None:
    rules = terms.rules.coverage
    if not (rules.limited or rules.required):
        return None
    return uncovered_assignment(pod, terms.all_quotas, rules)


def _never_fits(
    pod: Pod, claim: Claim | None, applying: Sequence[DeferredQuota], terms: QueueCriteria
) -> Iterator[Blocker]:
    fields = uncountable_fields(pod, terms.quotas.keys)
    detail = f"{', '.join(fields[:_MOST_NAMED])} {TOO_LARGE}" if fields else ""
    beyond = [quota for quota in applying if claim is not None and _is_beyond(claim, quota)]
    for quota in beyond:
        yield Blocker(PendingReason.NEVER_FITS, detail, quota=quota.name)
    if fields and not beyond:
        # no bind of such a pod is admitted, whatever its quotas limit, and without any
        yield Blocker(PendingReason.NEVER_FITS, detail)


def _is_beyond(claim: Claim, quota: DeferredQuota) -> bool:
    return any(
        amount > quota.hard[name] and amount > ZERO
        for name, amount in claim.usage.items()
        if name in quota.hard
    )
