"""What handlers and controllers have in common: caches that see storage late."""

from __future__ import annotations

from collections.abc import Mapping

from tests.quota.ledger_world.objects import KEYS, PodState, QuotaState, part
from tests.quota.ledger_world.storage import Storage
from webhook.quota.ledger.ledger import Claim, ReservationSource


class Replica:
    """A process of ours; every public method but `claim` is one step.

    Attributes:
        pods_seen: Up to which version its cache shows pods.
        quotas_seen: The same of quotas.
        keys: Which resources it defers.
        holds: Whether it holds stuck pods.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.pods_seen = 0
        self.quotas_seen = 0
        self.keys: frozenset[str] = KEYS[0]
        self.holds = storage.holds

    @property
    def pods(self) -> Mapping[str, PodState]:
        """The pods in its cache, by uid."""
        return self.storage.pods_at(self.pods_seen)

    @property
    def quotas(self) -> Mapping[str, QuotaState]:
        """The quotas in its cache, by name."""
        return self.storage.quotas_at(self.quotas_seen)

    def see(self, events: int) -> None:
        """Get some more events of the watches."""
        pods = [pod.version for pod in self.storage.pod_history if pod.version > self.pods_seen]
        quotas = [at for at, _ in self.storage.quota_history if at > self.quotas_seen]
        if pods and events:
            self.pods_seen = pods[:events][-1]
        if quotas and events:
            self.quotas_seen = quotas[:events][-1]

    def catch_up(self) -> None:
        """Get all events."""
        self.see(len(self.storage.pod_history) + len(self.storage.quota_history))
        self.pods_seen = self.quotas_seen = self.storage.version

    def restart(self, age: int) -> None:
        """Forget everything and list again, perhaps an older state than was seen before."""
        self.pods_seen = max(0, self.storage.version - age)
        self.quotas_seen = max(1, self.storage.version - age)

    def reload(self) -> None:
        """Learn which resources are deferred, and whether stuck pods are held."""
        self.keys, self.holds = self.storage.keys, self.storage.holds

    def claim(self, pod: PodState, source: ReservationSource) -> Claim:
        """What a pod is charged by the quotas as they were seen."""
        applying = tuple(name for name, quota in self.quotas.items() if quota.applies_to(pod))
        return Claim(pod.uid, pod.name, source, part(pod.usage, self.keys), applying)
