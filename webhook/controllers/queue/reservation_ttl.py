"""How long a reservation made for a queued pod is kept."""

from __future__ import annotations

import math
from typing import Final

from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.quota.ledger.ledger import Reservation, ReservationSource, exceeded_quotas

_UNTRIED_FACTOR: Final = 10
"""How much longer a pod is waited for that no scheduler has tried than one that no node takes."""


def expires_at(
    state: NamespaceState | None, reservation: Reservation, gate_release_seconds: float
) -> float:
    """Return until when a reservation is kept at least; minus infinity for one of a request.

    One that released a pod is kept while the pod has our gate or may get a node, so for ever as
    far as is known now, and for `gate_release_seconds` more once the scheduler finds none for it. A
    pod that no scheduler says anything of, because there is none for it, is waited for longer.
    Needs no lock.
    """
    pod = None if state is None else state.usage.pod(reservation.uid)
    if (
        reservation.source is not ReservationSource.RELEASE
        or state is None
        or state.is_opted_out
        or pod is None
    ):
        return -math.inf
    is_only_behind_others = pod.is_gated and reservation.uid not in state.usage.gated_pods
    if pod.is_assigned or pod.is_deleting or is_only_behind_others:
        return -math.inf
    unplaced = state.unplaced_since.get(reservation.uid, math.inf)
    untried = state.untried_since.get(reservation.uid, math.inf)
    return min(unplaced + gate_release_seconds, untried + _UNTRIED_FACTOR * gate_release_seconds)


def is_releasable(state: NamespaceState, uid: str) -> bool:
    """Return whether a pod may be released that waits behind our gate, as far as is known here."""
    if uid not in state.usage.gated_pods:
        return False
    cycle, queued = state.last_cycle, state.usage.gated_pods.queued_pod(uid)
    if cycle is None or cycle.ledger is None or queued is None or queued.needs_no_quota:
        return True
    claim = queued.claim
    if queued.blocker is not None or claim is None or uid in cycle.ledger.reservations:
        return False
    holders = [cycle.blocking[name] for name in queued.quotas if name in cycle.blocking]
    if any(place < queued.sort_key for place in holders):
        return False
    if not cycle.ledger.accounts.keys() >= set(claim.quotas):
        return True  # counted for other quotas
    return not exceeded_quotas(cycle.ledger, claim)
