"""Find reservations that no request can be using any more (law 5 of the ledger).

A request of the API server ends within 34 seconds. A reservation that this process has itself
watched, unchanged, for longer than that belongs to no request that is still on its way; if the API
server, asked after that time, shows the pod just as it was counted, nothing is coming. Only the
time that passes here is measured; no clock of another machine is compared.

Few are asked about one by one. For many at once the pods of the namespace are listed: the list is
of one moment, which is not before it began, so that it shows each of them as well as a lookup
does, and a uid that is in none of its pages is of no pod. Of a list that does not come to its end
nothing is believed.

That is the least that a reservation is kept for. One that was made to release a pod belongs to no
request; it is kept for as long as the pod may be given a node (`NamespaceState.kept_until`). Where
an update has been added to it, it is proved all the same that none is on its way: until then what
the pod takes by it is unknown, and nothing can be counted for a further resource.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from webhook.controllers.runtime.rate_limit import ListPauses
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import PODS, ApiError, ClusterApi, ListOptions, find_object
from webhook.kube.pager import listed_versions
from webhook.quota.ledger.apply_usage import Expiry, ObservedPod
from webhook.quota.ledger.ledger import Ledger, Reservation
from webhook.quota.objects.model import Pod
from webhook.state.object_decoders import decode_pod

_log = logging.getLogger(__name__)

_MAX_LOOKUPS: Final = 50
"""Reservations that the API server is asked about in one go, one by one; other namespaces wait
meanwhile."""
_LOOKUP_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _WatchedReservation:
    """A reservation as it was first seen, and when, on the monotonic clock."""

    serial: int
    since: float
    not_before: float = 0.0
    """When the API server may be asked about it again."""
    is_of_update: bool = False
    kept_until: float = -math.inf
    """It stays until then; one of no update is not asked about before."""
    proof: Expiry | None = None
    """Proof that no request uses it; it waits for the ledger that does without it."""

    @property
    def asked_from(self) -> float:
        """When it may be asked about, had it been watched for long enough."""
        is_asked_now = self.is_of_update and self.proof is None
        return self.not_before if is_asked_now else max(self.not_before, self.kept_until)


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
        self._lists = ListPauses(clock)

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
            max(one.since + self._seconds, one.asked_from)
            for one in self._watched.values()
            if (one.proof is None or one.proof.is_kept) and one.asked_from < math.inf
        ]
        self._next_due = min(asked, default=None)

    def expired(
        self,
        namespace: str,
        ledger: Ledger,
        observed: Callable[[str], ObservedPod | None],
    ) -> Mapping[str, Expiry]:
        """Return the reservations of `ledger` that no request uses; some of them are kept.

        The API server is asked about the same one not all the time, and where many are overdue
        between two lists, about some at a time. What is proved stays so until the reservation is
        written again: the count only gets newer.

        Args:
            namespace: The ledger's namespace.
            ledger: The ledger that was last looked at.
            observed: The pods as they are counted, by uid.
        """
        overdue = self._overdue(ledger)
        try:
            if len(overdue) > _MAX_LOOKUPS and not self._lists.seconds_left():
                self._list(namespace, ledger, overdue, observed)
            else:
                self._look_up(namespace, ledger, overdue[:_MAX_LOOKUPS], observed)
        except ApiError:
            pass  # the API server would not answer about the other reservations either
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
            if (watched.proof is None or watched.proof.is_kept)
            and now - watched.since > self._seconds
            and now >= watched.asked_from
            and uid in ledger.reservations
        ]

    def _watch(self, uid: str, one: Reservation, now: float) -> _WatchedReservation:
        kept_until = self._kept_until(one)
        watched = self._watched.get(uid)
        if watched is None or watched.serial != one.serial:
            is_of_update = one.base_version > 0
            return _WatchedReservation(one.serial, now, 0.0, is_of_update, kept_until)
        if watched.kept_until != kept_until:
            return replace(watched, kept_until=kept_until)
        return watched

    def _look_up(
        self,
        namespace: str,
        ledger: Ledger,
        uids: Collection[str],
        observed: Callable[[str], ObservedPod | None],
    ) -> None:
        """Compare some pods with what the API server shows of each.

        Raises:
            ApiError: The API server does not answer.
        """
        for uid in uids:
            self._rest(uid)
            try:
                stored = self._stored_version(namespace, ledger.reservations[uid])
            except InvalidFieldError:
                continue
            self._compare(uid, stored, observed(uid))

    def _stored_version(self, namespace: str, reservation: Reservation) -> int | None:
        """Return the pod's version as it is stored; None where there is no such pod."""
        stored = find_object(
            self._api, PODS, reservation.pod, namespace=namespace, decode=decode_pod
        )
        if stored is None:
            return None
        pod = Pod.from_stored(stored)
        return int(pod.resource_version) if pod.uid == reservation.uid else None

    def _list(
        self,
        namespace: str,
        ledger: Ledger,
        uids: Collection[str],
        observed: Callable[[str], ObservedPod | None],
    ) -> None:
        """Compare pods with one list, begun when all of them were overdue.

        Raises:
            ApiError: The API server does not answer, or not with a whole list.
        """
        try:
            with self._lists.measured():
                stored = listed_versions(
                    self._api,
                    PODS,
                    ListOptions(namespace),
                    uids,
                    newest=ledger.pods_resource_version,
                )
        except ApiError as err:
            _log.info("pods not listed", extra={"namespace": namespace, "error": err.message})
            raise
        for uid in uids:
            self._rest(uid)
            self._compare(uid, stored.get(uid), observed(uid))

    def _rest(self, uid: str) -> None:
        """Ask about one again after a while only."""
        not_before = self._clock() + _LOOKUP_RETRY_SECONDS
        self._watched[uid] = replace(self._watched[uid], not_before=not_before)

    def _compare(self, uid: str, stored: int | None, seen: ObservedPod | None) -> None:
        """Note the proof where the API server shows a pod just as it is counted, or neither does.

        When they differ it is asked again later.
        """
        if stored == (None if seen is None else seen.resource_version):
            watched = self._watched[uid]
            is_kept = self._clock() < watched.kept_until
            proof = Expiry(watched.serial, stored or 0, is_kept=is_kept)
            self._watched[uid] = replace(watched, proof=proof)
