"""A pool as handlers decide by it: what namespaces hold of it, and what is promised."""

from __future__ import annotations

from collections.abc import Mapping

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.charging.gpu_memory import GPU_MEMORY
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.derived_quotas import DerivedQuota
from webhook.quota.ledger.ledger import (
    Account,
    Admitted,
    Claim,
    Denied,
    Ledger,
    ReservationSource,
    Verdict,
    admit,
)
from webhook.quota.shared.cluster_quotas import cluster_quota
from webhook.quota.shared.escrow import Shared, beside
from webhook.quota.shared.grants import Grants, Promise


def amounts(gb: int) -> ResourceList:
    return {GPU_MEMORY: Quantity.of_units(gb)}


class PromisedPool:
    """The pool `default` of GPU memory.

    Args:
        derived: The quotas by which elastic quotas are charged.
    """

    def __init__(self, derived: Mapping[str, DerivedQuota]) -> None:
        spec = derived["epool.default"].spec
        self._quota = cluster_quota(
            {"metadata": {"name": "epool.default", "uid": "u"}, "spec": spec}
        )
        (self._deferred,) = deferred_quotas([self._quota.quota], {GPU_MEMORY}).quotas
        self._held: dict[str, ResourceList] = {}
        self.promises: dict[str, Promise] = {}

    def hold(self, **gb: int) -> None:
        """Let namespaces hold what they use."""
        self._held = {name: amounts(amount) for name, amount in gb.items()}

    def promise(self, pod: ElasticPod) -> None:
        """Hold for a pod what it asks for."""
        asked = {name: Quantity.of_nano(amount) for name, amount in pod.amounts.items()}
        self.promises[pod.uid] = Promise(pod.uid, pod.namespace, pod.name, asked)

    def decide(self, pod: ElasticPod) -> Verdict:
        """Return the verdict on the bind of a pod."""
        held = self._held[pod.namespace]
        observed, name = self._deferred.observed, self._deferred.name
        account = Account(observed, self._quota.quota.hard, held, granted=held)
        grants = Grants(self._held, observed, promises=self.promises)
        ledger = beside(
            Ledger({name: account}, {}), pod.namespace, {name: Shared(self._quota, grants)}
        )
        asked = {key: Quantity.of_nano(amount) for key, amount in pod.amounts.items()}
        claim = Claim(pod.uid, pod.name, ReservationSource.BIND, asked, (name,))
        _, verdict = admit(ledger, claim)
        return verdict

    def admits(self, pod: ElasticPod) -> bool:
        """Return whether a pod may be bound."""
        return isinstance(self.decide(pod), Admitted)

    def refusal(self, pod: ElasticPod) -> str:
        """Return what the denial of a pod says."""
        verdict = self.decide(pod)
        assert isinstance(verdict, Denied)
        assert isinstance(verdict.denial, QuotaExceeded)
        return verdict.denial.message
