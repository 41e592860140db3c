"""Replicas of the controller: they count, settle the ledger, and let waiting pods go.

Pods may wait behind our gate: controllers reserve for them in the write with which they settle, and
remove the gate when they have read that it was written, or never, when another leads by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

from tests.quota.ledger_world import checks
from tests.quota.ledger_world.objects import PodState, QuotaState, amounts, part, pick
from tests.quota.ledger_world.replicas import Replica
from tests.quota.ledger_world.storage import Storage
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.ledger import apply_usage as settlement_module
from webhook.quota.ledger.apply_usage import (
    CountedQuota,
    Expiry,
    ObservedPod,
    UsageCount,
    apply_usage,
)
from webhook.quota.ledger.ledger import NEWEST, Ledger, ReservationSource
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import QueuedPod, QueueingStrategy, QueuePolicy
from webhook.quota.queue.release_order import run_cycle

EXPIRE_SECONDS = 45

_NO_TIME = datetime(2026, 5, 4, tzinfo=UTC)


class LedgerControllerActor(Replica):
    """A controller replica, leader or not; every public method but `count` is one step.

    Attributes:
        watched: Pod uid → the serial of its reservation, and since when that was seen.
        gone: Uids of the pods whose deletion was seen.
        ledger: What was read last.
        lost_since: When it was found that there is no ledger.
        sent: What is on its way to storage.
        listing: A list of the pods that has begun: which reservations it is for, and what it shows.
        proofs: What lists have proved of reservations, as long as these are not written again.
        releases: How many waiting pods were reserved for.
    """

    def __init__(self, storage: Storage, number: int, order: QueueingStrategy) -> None:
        super().__init__(storage)
        self.watched: dict[str, tuple[int, float]] = {}
        self.gone: set[str] = set()
        self.ledger: tuple[int, Ledger | None] = (0, None)
        self.lost_since: float | None = None
        self.sent: tuple[int, Ledger] | None = None
        self.listing: tuple[Mapping[str, int], Mapping[str, PodState]] | None = None
        self.proofs: dict[str, Expiry] = {}
        self.releases = 0
        self._number = number
        self._rules = QueuePolicy(order=order, max_overtakes=2)
        self._watched_uid = 0

    def see(self, events: int) -> None:
        """Get some more events of the watches."""
        former = self.pods_seen
        super().see(events)
        self.gone |= {
            pod.uid
            for pod in self.storage.pod_history
            if former < pod.version <= self.pods_seen and pod.is_deleted
        }

    def restart(self, age: int) -> None:
        """Forget everything and list again, perhaps an older state than was seen before."""
        super().restart(age)
        self.begin_term()
        self.gone.clear()
        self.sent = None

    def begin_term(self) -> None:
        """Lead anew: it has watched nothing, and what it sent may arrive still."""
        self._forget_watched()
        self.ledger = (0, None)
        self.lost_since = None

    def look(self) -> None:
        """Read the ledger and note which reservations there are."""
        self.ledger = self.storage.read_ledger()
        known = self.ledger[1]
        reservations = {} if known is None else known.reservations
        if self._watched_uid != self.storage.ledger_uid:
            self._forget_watched()
            self._watched_uid = self.storage.ledger_uid
        if self.storage.leader != self._number:  # what it saw of losses before is not current
            self.storage.leader, self.lost_since = self._number, None
        if known is None and self.lost_since is None:
            self.lost_since = self.storage.clock
        self.watched = {
            uid: self.watched[uid]
            if uid in self.watched and self.watched[uid][0] == one.serial
            else (one.serial, self.storage.clock)
            for uid, one in reservations.items()
        }

    def settle(self, *, looks: bool = True) -> None:
        """Count the pods that are seen, and write the ledger."""
        if looks:
            self.look()
        following = self._following()
        if following is not None and self.storage.write_ledger(self.ledger[0], following):
            self.lost_since = None

    def send(self) -> None:
        """Decide what to write; the leadership may be lost before that arrives."""
        self.look()
        following = self._following()
        self.sent = None if following is None else (self.ledger[0], following)

    def arrive(self) -> None:
        """Let storage do what was sent, however long ago."""
        sent, self.sent = self.sent, None
        if sent is not None and self.storage.write_ledger(*sent):
            self.lost_since = None

    def list_pods(self) -> None:
        """Begin to list the pods for all that was watched long enough; this is its moment."""
        if self.listing is None:
            self.look()
            self.listing = (self.overdue(), dict(self.storage.pods))

    def end_list(self) -> None:
        """Get the last page, compare all of them with the cache, and write the ledger."""
        if self.listing is None:
            return
        due, listed = self.listing
        self.listing = None
        for uid, serial in due.items():
            expiry = self._proof(uid, serial, listed.get(uid))
            if expiry is not None:
                self.proofs[uid] = expiry
        self.settle()

    def ungate(self, index: int) -> None:
        """Remove a gate, by the ledger that was read, however long ago."""
        _, known = self.ledger
        reservations = {} if known is None else known.reservations
        pod = pick([pod for pod in self.storage.pods.values() if pod.waits], index)
        if pod is not None and pod.uid in reservations and not reservations[pod.uid].is_intent:
            self.storage.store(replace(pod, is_gated=False))

    def count(self) -> UsageCount:
        """What the pods use that are seen."""
        counted = {
            name: CountedQuota(
                quota.observed(self.keys, holds=self.holds),
                quota.hard(self.keys),
                part(used_by(quota, self.pods.values(), holds=self.holds), self.keys),
            )
            for name, quota in self.quotas.items()
        }
        seen = {
            uid: ObservedPod(
                pod.version,
                pod.is_assigned,
                pod.counts(holds=self.holds),
                part(pod.usage, self.keys),
                frozenset(name for name, quota in self.quotas.items() if quota.applies_to(pod)),
            )
            for uid, pod in self.pods.items()
        }
        return UsageCount(self.pods_seen, counted, seen, frozenset(self.gone))

    def overdue(self) -> dict[str, int]:
        """The reservations that were watched long enough: pod uid → serial."""
        now = self.storage.clock
        return {
            uid: serial
            for uid, (serial, since) in self.watched.items()
            if now - since > EXPIRE_SECONDS
        }

    # -- inside ----------------------------------------------------------------------------

    def _following(self) -> Ledger | None:
        """What is to be written in the place of the ledger that was read."""
        version, known = self.ledger
        if known is None:
            wait = settlement_module.seconds_until_new(
                lost_since=self.lost_since, now=self.storage.clock, expire_seconds=EXPIRE_SECONDS
            )
            if self.storage.ledger[0] != version or wait or not self._has_seen_all():
                return None
        else:
            self.lost_since = None
        following = apply_usage(known, self.count(), expired=self._expired())
        return None if following is None else self._with_releases(following)

    def _has_seen_all(self) -> bool:
        """Whether a fresh list shows nothing that the cache lacks."""
        seen = self.pods
        return all(seen.get(uid) == pod for uid, pod in self.storage.pods.items())

    def _with_releases(self, following: Ledger) -> Ledger:
        """Reserve for those who wait and fit, as far as they are seen."""
        line = [self._waiter(pod) for pod in self.pods.values() if pod.waits]
        line.sort(key=lambda one: one.sort_key)
        passed = run_cycle(following, line, self._rules, room=5)
        assert passed.ledger is not None
        checks.check_released(passed.ledger, passed.released)
        self.releases += len(passed.released)
        return passed.ledger

    def _waiter(self, pod: PodState) -> QueuedPod:
        place = (0, _NO_TIME, int(pod.uid.removeprefix("uid-")), pod.uid)
        claim = replace(self.claim(pod, ReservationSource.RELEASE), observed_version=NEWEST)
        return QueuedPod(cast("Pod", pod), place, claim, claim.quotas)

    def _expired(self) -> dict[str, Expiry]:
        """Ask storage about reservations watched long enough; it and the cache must agree."""
        expired = dict(self.proofs)
        for uid, serial in self.overdue().items():
            expiry = self._proof(uid, serial, self.storage.pods.get(uid))
            if expiry is not None:
                expired[uid] = expiry
        return expired

    def _proof(self, uid: str, serial: int, stored: PodState | None) -> Expiry | None:
        if not self._agrees(stored, self.pods.get(uid)) or (stored and stored.is_gated):
            return None
        return Expiry(serial, 0 if stored is None else stored.version)

    def _forget_watched(self) -> None:
        self.watched.clear()
        self.proofs.clear()
        self.listing = None

    def _agrees(self, stored: PodState | None, seen: PodState | None) -> bool:
        return stored == seen


def used_by(quota: QuotaState, pods: Iterable[PodState], *, holds: bool) -> ResourceList:
    chosen = [
        pod for pod in pods if pod.is_assigned and pod.counts(holds=holds) and quota.applies_to(pod)
    ]
    return amounts(sum(pod.cpu for pod in chosen), sum(pod.memory for pod in chosen))
