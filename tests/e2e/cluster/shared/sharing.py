"""Namespaces that share a quota, and who binds pods in them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer, Api, Object
from tests.e2e.cluster.over_and_over import OverAndOver
from tests.e2e.cluster.product import apply_namespace
from tests.e2e.cluster.shared.history import CPU, OVER, cluster_quotas
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS

_numbers = itertools.count()


class Team:
    """Namespaces with one label, and the cluster quota that selects them.

    Attributes:
        name: The value of the label `team`, and the name of the quota.
        tenants: The namespaces.
    """

    def __init__(self, plane: ControlPlane, size: int, *, gating: str = "never") -> None:
        self.plane = plane
        self.api = Api(plane.rest)
        self.name = f"team-{next(_numbers)}"
        self._gating = gating
        self._quotas: set[str] = set()
        with ThreadPoolExecutor(8) as pool:
            self.tenants = list(pool.map(lambda _: self.add(), range(size)))

    def add(self, *, joins: bool = True, mode: str = "deferred") -> Tenant:
        """Make another namespace; one that does not join lacks the label."""
        name = f"e2e-{self.name}-{next(_numbers)}"
        apply_namespace(self.api, name, mode=mode, gating=self._gating)
        tenant = Tenant(self.plane.rest, name)
        if joins:
            self.label(tenant)
        return tenant

    def label(self, tenant: Tenant, *, joins: bool = True) -> None:
        """Let a namespace join, or leave."""
        labels = {"team": self.name if joins else None}
        path = f"/api/v1/namespaces/{tenant.namespace}"
        answer = self.api.patch(path, {"metadata": {"labels": labels}})
        assert answer.ok, str(answer)

    def wanted(self, cpu: str, **spec: Any) -> Object:
        """Write a cluster quota for the team."""
        selector = {"matchLabels": {"team": self.name}}
        return {
            "apiVersion": CLUSTER_DEFERRED_QUOTAS.api_version,
            "kind": CLUSTER_DEFERRED_QUOTAS.kind,
            "metadata": {"name": self.name},
            "spec": {"namespaceSelector": selector, "hard": {CPU: cpu}, **spec},
        }

    def share(self, cpu: str, *, waits: bool = True, **spec: Any) -> Answer:
        """Make the quota, and wait until it is enforced in all namespaces of the team."""
        answer = self.api.create(cluster_quotas(), self.wanted(cpu, **spec))
        assert answer.ok, str(answer)
        if waits:
            self.is_counted(self.tenants)
        return answer

    def edit(self, cpu: str, *, waits: bool = True) -> None:
        """Set another limit."""
        before = self.status().get("observed")
        answer = self.api.patch(cluster_quotas(self.name), {"spec": {"hard": {CPU: cpu}}})
        assert answer.ok, str(answer)
        if waits:
            eventually(lambda: self.status().get("observed") != before, "the edit is known")
            self.is_counted(self.tenants)

    def unshare(self) -> None:
        """Delete the quota, and wait until no ledger knows it."""
        self.api.delete(cluster_quotas(self.name))
        for tenant in self.tenants:
            eventually(lambda: self.account not in tenant.accounts(), "the ledger forgets it")  # noqa: B023

    @property
    def account(self) -> str:
        """What ledgers and refusals call the quota."""
        return f"cdq/{self.name}"

    def status(self) -> Object:
        """Read the quota's status."""
        found = self.api.get(cluster_quotas(self.name))
        status: Object = found.body.get("status", {}) if found.ok else {}
        return status

    def is_counted(self, tenants: Sequence[Tenant], seconds: float = 60.0) -> None:
        """Wait until the quota says that it counts just these namespaces."""
        wanted = sorted(one.namespace for one in tenants)

        def counted() -> tuple[list[str], bool, str]:
            found = self.api.get(cluster_quotas(self.name)).body
            status = found.get("status", {})
            names = sorted(one["name"] for one in status.get("namespaces", []))
            is_so = status.get("observed", {}).get("uid") == found.get("metadata", {}).get("uid")
            said = {one["type"]: one["status"] for one in status.get("conditions", [])}
            return names, is_so, said.get("Counted", "")

        becomes(counted, (wanted, True, "True"), "namespaces that are counted", seconds)
        for tenant in tenants:
            eventually(lambda: self.account in tenant.accounts(), "the ledger has the account")  # noqa: B023

    def held(self) -> str:
        """Read what all namespaces hold together."""
        found = self.status().get("used", {}).get(CPU, "0")
        return str(found)

    def assigned(self) -> list[tuple[Tenant, str]]:
        """List the pods that run."""
        found: list[tuple[Tenant, str]] = []
        for tenant in self.tenants:
            for pod in self.api.get(objects.pods(tenant.namespace)).body["items"]:
                is_over = pod["status"].get("phase") in OVER
                if pod["spec"].get("nodeName") and not is_over:
                    found.append((tenant, pod["metadata"]["name"]))
        return found

    def clear(self) -> None:
        """Delete all pods, at once."""
        for tenant in self.tenants:
            tenant.clear()

    def close(self) -> None:
        """Delete everything."""
        self.clear()
        self.api.delete(cluster_quotas(self.name))
        for tenant in self.tenants:
            self.api.delete(f"/api/v1/namespaces/{tenant.namespace}")


def is_late(answer: Answer) -> bool:
    """Say whether the API server gave up before it was answered, on a busy machine."""
    return answer.code == 500 and "context deadline exceeded" in answer.message


class Binders(OverAndOver):
    """Threads that create pods of one cpu and bind them, over and over, in several namespaces.

    A pod that is refused, or not decided, is tried again until the block is left.

    Attributes:
        bound: The pods that were bound.
        refused: How many binds were refused because a quota is full.
        undecided: How many got no decision.
        problems: Answers that nobody should get.
    """

    def __init__(
        self, tenants: Sequence[Tenant], threads: int, *, ends_after: float | None = None
    ) -> None:
        turns = [itertools.count(number) for number in range(threads)]
        super().__init__(partial(self._bind_one, numbers) for numbers in turns)
        self._tenants = tenants
        self.bound: list[tuple[Tenant, str]] = []
        self.refused = self.undecided = 0
        self._ends_after = ends_after
        self._lock = threading.Lock()
        self._names = itertools.count()

    def _bind_one(self, turn: Iterator[int]) -> None:
        tenant = self._tenants[next(turn) % len(self._tenants)]
        name = f"b-{next(self._names)}"
        made = tenant.create(name, "1")
        if not made.ok:
            self.problems.append(f"create: {made}")
            return
        while not self.is_over:
            answer = tenant.bind(name, uid=made.uid)
            with self._lock:
                self.refused += answer.code == 403
                self.undecided += answer.code == 429 or is_late(answer)
                if answer.code == 201:
                    self.bound.append((tenant, name))
                elif answer.code not in (403, 429) and not is_late(answer):
                    self.problems.append(f"bind: {answer}")
            if answer.code == 201:
                self._end(tenant, name)
                return
            self.rest(0.02)
        tenant.delete(name)

    def _end(self, tenant: Tenant, name: str) -> None:
        if self._ends_after is not None:
            time.sleep(self._ends_after)
            tenant.finish(name)
