"""Find reservations that no request can be using any more (law 5 of the ledger).

A request of the API server ends within 34 seconds. A reservation that this process has itself
watched, unchanged, for longer than that belongs to no request that is still on its way; if the API
server, asked after that time, shows the pod just as it was counted, nothing is coming. Only the
time that passes here is measured; no clock of another machine is compared.

That is the least that a reservation is kept for. One that was made to release a pod belongs to no
request; it is kept for as long as the pod may be given a node (`NamespaceState.kept_until`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import PODS, ApiError, ClusterApi, NotFoundError
from webhook.quota.ledger.apply_usage import Expiry, ObservedPod
from webhook.quota.ledger.ledger import Ledger, Reservation
from webhook.quota.objects.model import Pod

_MAX_LOOKUPS: Final = 50
"""Reservations that the API server is asked about in one go; other namespaces wait meanwhile."""
_LOOKUP_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _WatchedReservation:
    """A reservation as it was first seen, and when, on the monotonic clock."""

    serial: int
    since: float
    not_before: float = 0.0
    """When the API server may be asked about it again."""
    kept_until: float = -math.inf
    """It is not asked about before."""
    proof: Expiry | None = None
    """Proof that no request uses it; it waits for the ledger that does without it."""


def _no_minimum(_one: Reservation) -> float:
    return -math.inf


class ReservationExpiry:
    """Watches the reservations of one namespace. Not safe to use from several threads.

    Args:
        api: Asked about pods whose reservations have been watched long enough.
        expire_seconds: How long that is.
        kept_until: Returns until when a reservation is kept at least, whatever was watched;
            infinity while that is unknown. Called at every look.
    """

    def __init__(
        self,
        api: ClusterApi,
        *,
        expire_seconds: float,
        clock: Callable[[], float],
        kept_until: Callable[[Reservation], float] = _no_minimum,
    ) -> None:
        self._kept_until = kept_until
        self._api = api
        self._seconds = expire_seconds
        self._clock = clock
        self._watched: dict[str, _WatchedReservation] = {}
        self._ledger_uid = ""
        self._next_due: float | None = None

    def observe(self, ledger: Ledger, ledger_uid: str) -> None:
        """Note which reservations there are; one written again is watched from now on.

        Serial numbers begin anew with another ledger object, so nothing of the former one counts.
        """
        if ledger_uid != self._ledger_uid:
            self.reset()
            self._ledger_uid = ledger_uid
        now = self._clock()
        self._watched = {
            uid: self._watch(uid, one, now) for uid, one in ledger.reservations.items()
        }
        self._note_next_due()

    def reset(self) -> None:
        """Watch everything from the beginning, because the ledger was lost or emptied."""
        self._watched = {}
        self._next_due = None

    def next_due(self) -> float | None:
        """Return when a reservation is next to be asked about; None without any."""
        return self._next_due

    def _note_next_due(self) -> None:
        asked = [
            max(one.since + self._seconds, one.not_before, one.kept_until)
            for one in self._watched.values()
            if one.proof is None and one.kept_until < math.inf
        ]
        self._next_due = min(asked, default=None)

    def expired(
        self,
        namespace: str,
        ledger: Ledger,
        observed: Callable[[str], ObservedPod | None],
    ) -> Mapping[str, Expiry]:
        """Return the reservations of `ledger` that are proved to be unused.

        The API server is asked about some at a time, and about the same one not all the time. What
        is proved stays so until the reservation is written again: the count only gets newer.

        Args:
            namespace: The ledger's namespace.
            ledger: The ledger that was last looked at.
            observed: The pods as they are counted, by uid.
        """
        for uid in self._overdue(ledger)[:_MAX_LOOKUPS]:
            watched = self._watched[uid]
            self._watched[uid] = replace(watched, not_before=self._clock() + _LOOKUP_RETRY_SECONDS)
            try:
                version = self._agreed_version(namespace, ledger.reservations[uid], observed(uid))
            except ApiError:
                break  # it does not answer for the others either
            if version is not None:
                self._watched[uid] = replace(watched, proof=Expiry(watched.serial, version))
        self._note_next_due()
        return {
            uid: watched.proof
            for uid, watched in self._watched.items()
            if watched.proof is not None and uid in ledger.reservations
        }

    def _overdue(self, ledger: Ledger) -> list[str]:
        now = self._clock()
        return [
            uid
            for uid, watched in self._watched.items()
            if watched.proof is None
            and now - watched.since > self._seconds
            and now >= watched.not_before
            and now >= watched.kept_until
            and uid in ledger.reservations
        ]

    def _watch(self, uid: str, one: Reservation, now: float) -> _WatchedReservation:
        kept_until = self._kept_until(one)
        watched = self._watched.get(uid)
        if watched is None or watched.serial != one.sequence:
            return _WatchedReservation(one.sequence, now, kept_until=kept_until)
        if watched.kept_until != kept_until:
            return replace(watched, kept_until=kept_until)
        return watched

    def _agreed_version(
        self, namespace: str, reservation: Reservation, seen: ObservedPod | None
    ) -> int | None:
        """Return the pod's version if the API server shows what is counted, 0 for no pod.

        None when they differ: then it is asked again later.

        Raises:
            ApiError: The API server does not answer.
        """
        try:
            raw = self._api.get(PODS, reservation.pod, namespace=namespace)
            pod = Pod.from_stored(raw)
        except NotFoundError:
            return 0 if seen is None else None
        except InvalidFieldError:
            return None
        if pod.uid != reservation.uid:
            return 0 if seen is None else None
        version = int(pod.resource_version)
        return version if seen is not None and seen.resource_version == version else None
