"""Pools and pods of the tests, in whole units of one resource unless said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count

from webhook.quota.charging.gpu_memory import GPU_MEMORY
from webhook.quota.elastic.balance import Queued
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.elastic_quotas import ElasticQuota, read_elastic_quota
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.elastic.reclaim_plan import Plan, plan_reclaim
from webhook.quota.elastic.victims import Circumstances

START = datetime(2026, 1, 1, tzinfo=UTC)
UNIT = 10**9
Amounts = Mapping[str, object]


def a_quota(
    name: str,
    least: Amounts | int | None = None,
    most: Amounts | int | None = None,
    **spec: object,
) -> ElasticQuota:
    """Return a quota of the namespace of its name, or a composite of several."""
    amounts = {"min": least, "max": most}
    limits = {
        field: {GPU_MEMORY: given} if isinstance(given, int) else given
        for field, given in amounts.items()
        if given is not None
    }
    return read_elastic_quota(
        {
            "kind": "CompositeElasticQuota" if "namespaces" in spec else "ElasticQuota",
            "metadata": {"namespace": name, "name": name},
            "spec": {**limits, **spec},
        }
    )


class Cluster:
    """A pool and its pods, each newer than the one before."""

    def __init__(self, *quotas: ElasticQuota, resource: str = GPU_MEMORY) -> None:
        self.pool = Pool("default", quotas)
        self.resource = resource
        self._serial = count()
        self.pods: dict[str, list[ElasticPod]] = {key: [] for key in self.pool.quotas}

    def pod(
        self,
        namespace: str,
        amount: int | Mapping[str, int],
        *,
        name: str = "",
        priority: int = 0,
        age: int | None = None,
        **fields: object,
    ) -> ElasticPod:
        """Return a pod that is not assigned."""
        serial = next(self._serial)
        amounts = {self.resource: amount} if isinstance(amount, int) else amount
        name = name or f"p{serial:03}"
        return ElasticPod(
            namespace,
            name,
            f"{namespace}/{name}",
            START + timedelta(seconds=serial if age is None else age),
            priority,
            {resource: one * UNIT for resource, one in amounts.items()},
            **fields,  # type: ignore[arg-type]
        )

    def run(self, namespace: str, *amounts: int, **fields: object) -> list[ElasticPod]:
        """Add assigned pods."""
        made = [self.pod(namespace, amount, **fields) for amount in amounts]  # type: ignore[arg-type]
        self.pods[self.pool.quota_of[namespace]].extend(made)
        return made

    def queued(self, namespace: str, amount: int | Mapping[str, int], **fields: object) -> Queued:
        """Return a pod that is to be bound."""
        pod = self.pod(namespace, amount, **fields)  # type: ignore[arg-type]
        return Queued(self.pool.quota_of[namespace], pod)

    def plan(self, queued: Queued, circumstances: Circumstances | None = None) -> Plan:
        """Return the plan for a pod."""
        return plan_reclaim(self.pool, self.pods, queued, circumstances)

    def carry_out(self, queued: Queued) -> Plan:
        """Evict the victims of the plan for a pod, and bind it."""
        found = self.plan(queued)
        if found.is_possible:
            gone = {pod.uid for pod in found.victims}
            for key, pods in self.pods.items():
                self.pods[key] = [pod for pod in pods if pod.uid not in gone]
            self.pods[queued.quota].append(queued.pod)
        return found

    def used(self, name: str) -> int:
        """Return what the pods of a quota take, whole units of the resource."""
        key = next(key for key, one in self.pool.quotas.items() if one.name == name)
        return sum(pod.amounts.get(self.resource, 0) for pod in self.pods[key]) // UNIT

    def usage(self) -> dict[str, dict[str, int]]:
        """Return what each quota uses, 10⁻⁹ units."""
        return {
            key: {
                name: sum(pod.amounts.get(name, 0) for pod in pods)
                for name in self.pool.quotas[key].names
            }
            for key, pods in self.pods.items()
        }

    def guaranteed(self, resource: str = "") -> tuple[int, ...]:
        """Return what is guaranteed to each quota beyond its min, whole units, by key."""
        found = self.pool.guaranteed(resource or self.resource, self.usage())
        return tuple(amount // UNIT for amount in found.values())


def namespaces(victims: Sequence[ElasticPod]) -> list[str]:
    """Return the namespaces of pods."""
    return [pod.namespace for pod in victims]


def uids(pods: Iterable[ElasticPod]) -> set[str]:
    """Return the uids of pods."""
    return {pod.uid for pod in pods}
