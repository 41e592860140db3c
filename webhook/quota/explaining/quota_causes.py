"""Causes that lie in quotas, in rules about them, and in the parts of the product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add_to, render
from webhook.quota.charging.denials import QuotaExceeded, QuotaName, name_quota
from webhook.quota.explaining.facts import Health, NamespaceFacts, PodFacts
from webhook.quota.explaining.queue_position import QueueState
from webhook.quota.explaining.values import (
    Action,
    CauseKind,
    PendingCause,
    Shortage,
    Unblock,
)
from webhook.quota.ledger.ledger import EMPTY, Ledger, exceeded_quotas
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.queue.queued_pods import (
    Blocker,
    PendingReason,
    PendingStatus,
    behind_text,
    never_fits_text,
)

_RULES: Final = {
    PendingReason.MUST_SPECIFY: CauseKind.MUST_SPECIFY,
    PendingReason.NOT_COVERED: CauseKind.PRIORITY_CLASS,
}
_UNBLOCKS: Final[Mapping[CauseKind, tuple[Unblock, ...]]] = {
    CauseKind.MUST_SPECIFY: (
        Unblock(
            Action.SET_RESOURCES,
            "create the pod with what is missing in each container, or a LimitRange first",
        ),
    ),
    CauseKind.PRIORITY_CLASS: (
        Unblock(Action.ADD_QUOTA, "create a quota that covers the pod"),
        Unblock(Action.CHANGE_CLASS, "create the pod with another priority class"),
    ),
    CauseKind.PREEMPTORS_UNBOUND: (
        Unblock(Action.WAIT, "wait until these pods have nodes"),
        Unblock(Action.DELETE_POD, "delete some of them, if what they wait for does not come"),
        Unblock(Action.CHANGE_CLASS, "create the pod with a class of preemptionPolicy Never"),
    ),
    CauseKind.WEBHOOK_DOWN: (
        Unblock(Action.START_WEBHOOK, "let the webhook answer: deferred-quota doctor"),
    ),
}
_OUTDATED: Final = "the ledger still counts pods that have ended"
_NO_ROOM: Final = frozenset({PendingReason.LEDGER_FULL, PendingReason.NOT_COUNTED})


def rule_causes(state: QueueState) -> Iterator[PendingCause]:
    """Yield the rules that deny the pod whatever is used."""
    for one in state.blockers:
        if one.reason in _RULES:
            yield PendingCause(_RULES[one.reason], one.detail)


def never_fits_causes(state: QueueState) -> Iterator[PendingCause]:
    """Yield every quota whose limit is less than the pod requests, and what else is for ever."""
    denials = {one.quota: one for one in state.denials}
    for one in state.blockers:
        if one.reason is PendingReason.FORGED_QOS_CLASS:
            yield PendingCause(CauseKind.NEVER_FITS, one.detail)
        elif one.reason is PendingReason.NEVER_FITS:
            yield _never_fits(one, denials.get(one.quota), state.ledger)


def _never_fits(
    blocker: Blocker, denial: QuotaExceeded | None, ledger: Ledger | None
) -> PendingCause:
    parts = [never_fits_text(blocker.quota)]
    if denial is not None:
        parts.insert(0, denial.message)
    parts += [blocker.detail] if blocker.detail else []
    shortages = () if denial is None else _shortages(denial, ledger, EMPTY)
    return PendingCause(CauseKind.NEVER_FITS, "; ".join(parts), blocker.quota, shortages)


def room_causes(state: QueueState) -> Iterator[PendingCause]:
    """Yield what the pod waits behind, and every quota that has no room for it."""
    status = state.status
    if status is not None and status.reason is PendingReason.BEHIND:
        yield PendingCause(
            CauseKind.BEHIND,
            f"{behind_text(status.blocked_by, status.quota)}{_place(status, state)}",
            status.quota,
            holder=status.blocked_by,
            place=status.position,
        )
    if status is not None and status.reason is PendingReason.OWNERS_FIRST:
        text = f"{name_quota(status.quota).text}: {status.detail}{_place(status, state)}"
        place = status.position
        yield PendingCause(CauseKind.OWNERS_FIRST, text, status.quota, place=place)
    if status is not None and status.reason is PendingReason.PREEMPTORS_UNBOUND:
        yield PendingCause(CauseKind.PREEMPTORS_UNBOUND, status.detail, status.quota)
    never = {one.quota for one in state.blockers if one.reason is PendingReason.NEVER_FITS}
    for denial in state.denials:
        if denial.quota not in never:
            yield _exceeded(denial, state)


def _exceeded(denial: QuotaExceeded, state: QueueState) -> PendingCause:
    shared = denial.quota.startswith(SHARED_PREFIX)
    shortages = _shortages(denial, state.ledger, _own(denial.quota, state))
    parts = [denial.message]
    named = name_quota(denial.quota).resource  # as the message names them
    reserved = {named(one.resource): one.reserved for one in shortages if one.reserved > ZERO}
    if reserved:
        parts.append(f"reserved of it: {render(reserved)}")
    parts.append(f"missing: {render({named(one.resource): one.missing for one in shortages})}")
    return PendingCause(
        CauseKind.CLUSTER_QUOTA if shared else CauseKind.QUOTA,
        f"{', '.join(parts)}{_place(state.status, state)}",
        denial.quota,
        shortages,
        place=0 if state.status is None else state.status.position,
    )


def _place(status: PendingStatus | None, state: QueueState) -> str:
    if status is None or not status.position:
        return ""
    return f"; place {status.position} of {state.total}"


def _own(quota: str, state: QueueState) -> ResourceList:
    if state.ledger is None:
        return EMPTY
    reservation = state.ledger.reservations.get(state.queued.uid)
    return EMPTY if reservation is None else reservation.charges.get(quota, EMPTY)


def _shortages(
    denial: QuotaExceeded, ledger: Ledger | None, own: ResourceList
) -> tuple[Shortage, ...]:
    account = None if ledger is None else ledger.accounts.get(denial.quota)
    reserved = EMPTY if account is None else account.reserved
    return tuple(
        Shortage(
            resource,
            requested,
            denial.used[resource],
            reserved.get(resource, ZERO) - own.get(resource, ZERO),
            denial.limited[resource],
        )
        for resource, requested in sorted(denial.requested.items())
    )


def ledger_causes(
    subject: PodFacts, there: NamespaceFacts, state: QueueState | None
) -> Iterator[PendingCause]:
    """Yield why nothing is decided, or nothing is released, whatever room there is."""
    controller = there.controller
    is_gated = there.gate in subject.pod.scheduling_gates
    kind = CauseKind.LEDGER_NOT_READY
    parts = []
    # a bind is refused for what cannot be read before the ledger is looked at
    is_read = there.criteria is None or not there.criteria.unreadable
    if state is not None and state.queued.quotas and there.uncounted and is_read:
        parts.append(there.uncounted)
    elif state is not None:
        parts += [one.detail for one in _waiting_for_ledger(state)]
        parts += [_OUTDATED] if _is_outdated(there, state) else []
    if controller.health is Health.DOWN and (parts or is_gated):
        what = "no gate is removed" if is_gated else "nothing is counted"
        parts.insert(0, f"{controller.detail}: {what}")  # what else is wrong may follow from it
    if parts:
        yield PendingCause(kind, "; ".join(parts))


def _is_outdated(there: NamespaceFacts, state: QueueState) -> bool:
    """Return whether only the ledger as it is stored denies the pod: it counts what has ended."""
    claim = state.queued.next_claim
    if there.stored is None or claim is None or state.denials:
        return False
    return bool(exceeded_quotas(there.stored, claim))


def _waiting_for_ledger(state: QueueState) -> Iterator[Blocker]:
    status = state.status
    yield from (one for one in state.blockers if one.reason is PendingReason.NOT_COUNTED)
    if status is not None and status.reason in _NO_ROOM and not state.blockers:
        yield Blocker(status.reason, status.detail)


def webhook_causes(there: NamespaceFacts) -> Iterator[PendingCause]:
    """Yield that no webhook answers: the bind of the pod is denied then."""
    if there.is_deferred and there.webhook.health is Health.DOWN:
        yield PendingCause(
            CauseKind.WEBHOOK_DOWN, f"{there.webhook.detail}: no pod of the namespace gets a node"
        )


def unblocking(
    cause: PendingCause, there: NamespaceFacts, state: QueueState | None
) -> Iterator[Unblock]:
    """Yield what would remove a cause that lies in a quota, a rule or the product.

    Without a `state` it is a quota that the API server enforces at creation.
    """
    match cause.kind:
        case CauseKind.QUOTA | CauseKind.CLUSTER_QUOTA:
            yield from _more_room(cause, {} if state is None else _ahead(cause.quota, state))
        case CauseKind.OWNERS_FIRST:
            yield Unblock(Action.WAIT, "wait until these pods are released", cause.quota)
            text = "raise min of the elastic quota of its namespace, so that it need not borrow"
            yield Unblock(Action.RAISE_QUOTA, text, cause.quota)
        case CauseKind.BEHIND if state is not None:
            yield from _behind(cause, state)
        case CauseKind.NEVER_FITS:
            yield from _smaller_or_larger(cause)
        case CauseKind.LEDGER_NOT_READY if there.controller.health is Health.DOWN:
            yield Unblock(Action.START_CONTROLLER, "start a controller: deferred-quota doctor")
        case CauseKind.LEDGER_NOT_READY:
            yield Unblock(Action.WAIT, "wait until usage is counted")
        case _:
            yield from _UNBLOCKS.get(cause.kind, ())


def _more_room(cause: PendingCause, before: ResourceList) -> Iterator[Unblock]:
    named = name_quota(cause.quota)
    for one in cause.shortages:
        amount = one.missing + before.get(one.resource, ZERO)
        first = " for it and the pods before it" if amount > one.missing else ""
        resource = named.resource(one.resource)
        where = f"{resource} of {named.text}"
        yield Unblock(
            Action.FREE_QUOTA, f"free {amount} {where}{first}", cause.quota, one.resource, amount
        )
        yield Unblock(
            Action.RAISE_QUOTA,
            f"{_raised(named, resource, f'{amount}', one.hard + amount)}{first}",
            cause.quota,
            one.resource,
            amount,
        )
        left = one.hard - one.used
        if left > ZERO and not before:
            text = f"request {one.missing} less of {resource}: {left} is free"
            yield Unblock(Action.SHRINK_POD, text, cause.quota, one.resource, one.missing)


def _raised(quota: QuotaName, resource: str, amount: str, limit: Quantity) -> str:
    if quota.is_pool:
        return f"raise min of an elastic quota of the pool: {resource} by {amount}"
    field = "max: " if quota.is_elastic else ""
    return f"raise {field}{resource} of {quota.text} by {amount}, to {limit}"


def _ahead(quota: str, state: QueueState) -> dict[str, Quantity]:
    """Return what pods before it request of a quota; nothing where they do not block it."""
    if state.status is None or state.holder is None:
        return {}
    total: dict[str, Quantity] = {}
    for one in state.ahead:
        if one.claim is not None and quota in one.quotas:
            add_to(total, one.claim.usage)
    return total


def _behind(cause: PendingCause, state: QueueState) -> Iterator[Unblock]:
    yield Unblock(Action.WAIT, f"wait until pod {cause.holder} is released", cause.quota)
    named = name_quota(cause.quota)
    for denial in state.holder_denials:
        if denial.quota != cause.quota:
            continue
        for resource, requested in sorted(denial.requested.items()):
            amount = requested + denial.used[resource] - denial.limited[resource]
            where = f"{named.resource(resource)} of {named.text}"
            text = f"free {amount} {where} for pod {cause.holder}"
            yield Unblock(Action.FREE_QUOTA, text, cause.quota, resource, amount)


def _smaller_or_larger(cause: PendingCause) -> Iterator[Unblock]:
    above = [one for one in cause.shortages if one.requested > one.hard]
    named = name_quota(cause.quota)
    for one in above:
        amount, resource = one.requested - one.hard, named.resource(one.resource)
        text = f"create the pod with at most {one.hard} {resource}"
        yield Unblock(Action.SHRINK_POD, text, cause.quota, one.resource, amount)
        text = _raised(named, resource, f"at least {amount}", one.requested)
        yield Unblock(Action.RAISE_QUOTA, text, cause.quota, one.resource, amount)
    if not above:
        yield Unblock(Action.DELETE_POD, "delete the pod and create it with smaller requests")
