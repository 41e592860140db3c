"""Namespaces with elastic quotas of one pool."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.objects import Answer, Api, Object
from tests.e2e.cluster.product import apply_namespace
from tests.e2e.cluster.shared.history import cluster_quotas
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.quota.charging.gpu_memory import GPU_MEMORY
from webhook.state.well_known import CAPACITY_LABEL

API: Final = "nos.nebuly.com/v1alpha1"
_numbers = itertools.count()


def elastic_quotas(namespace: str, name: str = "", *, kind: str = "elasticquotas") -> str:
    """Give the path of the elastic quotas of a namespace, or of one."""
    path = f"/apis/{API}/namespaces/{namespace}/{kind}"
    return f"{path}/{name}" if name else path


class Pool:
    """Namespaces that have opted in, with an elastic quota `q` of one pool where one is given.

    Attributes:
        name: Of the pool.
        teams: Name of a team → its namespace.
    """

    def __init__(
        self,
        plane: ControlPlane,
        quotas: Mapping[str, Object | None],
        *,
        resource: str = "cpu",
        gating: str = "never",
    ) -> None:
        self.api = Api(plane.rest)
        self.name = f"p{next(_numbers)}"
        self.teams: dict[str, Tenant] = {}
        self._key = resource if resource == GPU_MEMORY else f"requests.{resource}"
        for team, spec in quotas.items():
            tenant = Tenant(plane.rest, f"e2e-{self.name}-{team}")
            apply_namespace(self.api, tenant.namespace, gating=gating)
            self.teams[team] = tenant
            if spec is None:
                continue
            answer = self.api.create(elastic_quotas(tenant.namespace), self.quota(spec))
            assert answer.ok, str(answer)
        given = {team: spec for team, spec in quotas.items() if spec is not None}
        if given:
            sizes = [int(spec.get("min", {}).get(resource, 0)) for spec in given.values()]
            self.is_counted(sum(sizes), *given)

    def quota(self, spec: Object, *, kind: str = "ElasticQuota", name: str = "q") -> Object:
        """Write an elastic quota of the pool."""
        metadata = {"name": name, "labels": {"deferredquota.io/pool": self.name}}
        return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}

    @property
    def charged_by(self) -> str:
        """Name of the cluster quota that charges the pool."""
        return f"epool.{self.name}"

    def is_counted(self, size: int, *teams: str) -> None:
        """Wait until some teams, or all, are counted for this size of the pool."""
        sharing = [self.teams[name] for name in teams or self.teams]
        wanted = sorted(one.namespace for one in sharing)

        def counted() -> tuple[str, list[str], bool, str]:
            answer = self.api.get(cluster_quotas(self.charged_by))
            found = answer.body if answer.ok else {}
            status = found.get("status", {})
            names = sorted(one["name"] for one in status.get("namespaces", []))
            is_so = status.get("observed", {}).get("uid") == found.get("metadata", {}).get("uid")
            said = {one["type"]: one["status"] for one in status.get("conditions", [])}
            return str(status.get("hard", {}).get(self._key)), names, is_so, said.get("Counted", "")

        becomes(counted, (str(size), wanted, True, "True"), "the pool is counted", 60.0)
        for tenant in sharing:
            for account in self._charging(tenant):
                eventually(lambda: account in tenant.accounts(), "the ledger has the account")  # noqa: B023

    def _charging(self, tenant: Tenant) -> list[str]:
        own = self.api.get(elastic_quotas(tenant.namespace, "q"))
        has_max = own.ok and own.body["spec"].get("max")
        limits = [f"cdq/eq.{tenant.namespace}.q"] if has_max else []
        return [f"cdq/{self.charged_by}", *limits]

    def bind(self, team: str, name: str, cpu: str = "1", **fields: Any) -> Answer:
        """Create a pod and ask for its bind, until that is decided."""
        return self.answers(team, name, cpu, **fields)[-1]

    def answers(self, team: str, name: str, cpu: str = "1", **fields: Any) -> list[Answer]:
        """Create a pod and ask for its bind, until that is decided; return all answers."""
        tenant = self.teams[team]
        made = tenant.pod(name, cpu, **fields)
        answers: list[Answer] = []

        def is_decided() -> bool:
            answers.append(tenant.bind(name, uid=made.uid))
            return answers[-1].code != 429

        eventually(is_decided, f"{team}/{name} is decided")
        return answers

    def status(self, team: str) -> Object:
        """Read the status of a team's quota."""
        found = self.api.get(elastic_quotas(self.teams[team].namespace, "q"))
        status: Object = found.body.get("status", {})
        return status

    def figure(self, team: str, name: str) -> dict[str, str]:
        """Read one figure of the status of a team's quota."""
        return {**self.status(team).get(name, {})}

    def edit(self, team: str, spec: Object) -> Answer:
        """Change fields of a team's quota."""
        path = elastic_quotas(self.teams[team].namespace, "q")
        return self.api.patch(path, {"spec": spec})

    def labels(self, team: str) -> dict[str, str]:
        """Read the labels of a team's pods; empty without."""
        listed = self.api.get(f"/api/v1/namespaces/{self.teams[team].namespace}/pods").body["items"]
        return {
            one["metadata"]["name"]: one["metadata"].get("labels", {}).get(CAPACITY_LABEL, "")
            for one in listed
        }

    def close(self) -> None:
        """Delete everything."""
        for tenant in self.teams.values():
            tenant.clear()
            self.api.delete(f"/api/v1/namespaces/{tenant.namespace}")
