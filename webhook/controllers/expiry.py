"""Which reservations nobody can be using any more (law 5 of the ledger).

A request of the API server ends within 34 seconds. A reservation that this process has itself
watched, unchanged, for longer than that belongs to no request that is still on its way; if the API
server, asked after that time, shows the pod just as it was counted, nothing is coming. Only the
time that passes here is measured; no clock of another machine is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from webhook.cluster.api import PODS, ApiError, ClusterApi, NotFoundError
from webhook.quota.fields import InvalidFieldError
from webhook.quota.ledger import Ledger, Reservation
from webhook.quota.objects import Pod
from webhook.quota.settlement import Expiry, SeenPod


@dataclass(frozen=True, slots=True)
class _Watched:
    """A reservation as it was first seen, and when, on the monotonic clock."""

    serial: int
    since: float


class ReservationWatch:
    """Watches the reservations of one namespace. Not safe to use from several threads.

    Args:
        api: Asked about pods whose reservations have been watched long enough.
        seconds: How long that is.
        clock: The monotonic clock.
    """

    def __init__(self, api: ClusterApi, *, seconds: float, clock: Callable[[], float]) -> None:
        self._api = api
        self._seconds = seconds
        self._clock = clock
        self._watched: dict[str, _Watched] = {}

    def look(self, ledger: Ledger) -> None:
        """Note which reservations there are; one written again is watched from now on."""
        now = self._clock()
        self._watched = {
            uid: self._follow(uid, one, now) for uid, one in ledger.reservations.items()
        }

    def next_due(self) -> float | None:
        """Return when the next reservation has been watched long enough; None without any."""
        if not self._watched:
            return None
        return min(watched.since for watched in self._watched.values()) + self._seconds

    def expired(
        self,
        namespace: str,
        ledger: Ledger,
        seen: Callable[[str], SeenPod | None],
    ) -> Mapping[str, Expiry]:
        """Return the reservations of `ledger` that are proved to be unused.

        Args:
            namespace: The ledger's namespace.
            ledger: The ledger that was last looked at.
            seen: The pods as they are counted, by uid.
        """
        now = self._clock()
        expired: dict[str, Expiry] = {}
        for uid, watched in self._watched.items():
            reservation = ledger.reservations.get(uid)
            if reservation is None or now - watched.since <= self._seconds:
                continue
            version = self._agreed_version(namespace, reservation, seen(uid))
            if version is not None:
                expired[uid] = Expiry(watched.serial, version)
        return expired

    def _follow(self, uid: str, one: Reservation, now: float) -> _Watched:
        watched = self._watched.get(uid)
        if watched is not None and watched.serial == one.serial:
            return watched
        return _Watched(one.serial, now)

    def _agreed_version(
        self, namespace: str, reservation: Reservation, seen: SeenPod | None
    ) -> int | None:
        """Return the pod's version if the API server shows what is counted, 0 for no pod.

        None when they differ, or the API server does not answer: then it is asked again later.
        """
        try:
            raw = self._api.get(PODS, reservation.pod, namespace=namespace)
            pod = Pod.from_object(raw)
        except NotFoundError:
            return 0 if seen is None else None
        except (ApiError, InvalidFieldError):
            return None
        if pod.uid != reservation.uid:
            return 0 if seen is None else None
        version = int(pod.resource_version)
        return version if seen is not None and seen.resource_version == version else None
