"""Teams that borrow of each other, and what their users do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import Rest
from tests.e2e.cluster import objects
from tests.e2e.cluster.elastic.pools import Pool
from tests.e2e.cluster.objects import Object
from tests.e2e.cluster.shared.history import cluster_quotas
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.quota.objects.names import QUOTA_RESERVED
from webhook.state.well_known import CAPACITY_LABEL

NONE: Final[list[str]] = []


class Teams:
    """Teams of one pool: a, b and c, with 4, 1 and 3 cpu guaranteed unless said otherwise.

    Attributes:
        least: What is guaranteed to each that has a quota of its own.
    """

    def __init__(self, pool: Pool, size: int, **least: int) -> None:
        self.pool, self.size, self.least = pool, size, least
        self._numbers = dict.fromkeys(pool.teams, 0)

    @classmethod
    def make(cls, plane: ControlPlane, **least: int) -> Self:
        given = least or LEAST
        quotas = {team: {"min": {"cpu": cpu}} for team, cpu in given.items()}
        return cls(Pool(plane, quotas, gating="always"), sum(given.values()), **given)

    def __getitem__(self, team: str) -> Tenant:
        return self.pool.teams[team]

    @property
    def namespaces(self) -> list[str]:
        return [tenant.namespace for tenant in self.pool.teams.values()]

    def create(self, team: str, count: int = 1, cpu: str = "1", **fields: Any) -> list[str]:
        names = []
        for _ in range(count):
            name = f"{team}{self._numbers[team]}"
            self._numbers[team] += 1
            self[team].pod(name, cpu, schedulerName=REAL, **fields)
            names.append(name)
        return names

    def run(self, team: str, count: int, **fields: Any) -> list[str]:
        """Create pods, and wait until they have their nodes."""
        names = self.create(team, count, **fields)
        for name in names:
            eventually(lambda name=name: self[team].node_of(name), f"{name} runs")  # type: ignore[misc]
        return names

    def taken(self) -> dict[str, str]:
        """Return what the pods of each team take that are not ending."""
        return {team: str(live(tenant)) for team, tenant in self.pool.teams.items()}

    def over_quota(self) -> dict[str, str]:
        """Return what those of them take that are labelled as over-quota."""
        return {team: str(live(self[team], "over-quota")) for team in self.least}

    def become(self, **taken: int) -> None:
        wanted = {team: str(cpu) for team, cpu in taken.items()}
        becomes(self.taken, wanted, "what the teams take", 60.0)
        over = {team: str(max(0, taken[team] - cpu)) for team, cpu in self.least.items()}
        becomes(self.over_quota, over, "what is labelled as over-quota")
        becomes(self.promised, NONE, "no promise is left")

    def promised(self) -> list[str]:
        """Return the pods to which something is promised."""
        status = self.pool.api.get(cluster_quotas(self.pool.charged_by)).body.get("status", {})
        return [one["pod"] for one in status.get("promises", [])]

    def says(self, team: str, name: str) -> tuple[str, str, str]:
        return self[team].condition(name, QUOTA_RESERVED)

    def released(self, team: str) -> list[str]:
        """Return the pods of a team that have no gate any more."""
        listed = self.pool.api.get(objects.pods(self[team].namespace)).body["items"]
        return [pod["metadata"]["name"] for pod in listed if not pod["spec"].get("schedulingGates")]

    def events(self, team: str, reason: str) -> list[str]:
        path = f"/api/v1/namespaces/{self[team].namespace}/events"
        listed = self.pool.api.get(path).body["items"]
        return [one["message"] for one in listed if one["reason"] == reason]


LEAST: Final = {"a": 4, "b": 1, "c": 3}


def live(tenant: Tenant, label: str = "") -> int:
    """Sum the cpu of pods with a node that are not ending: of all, or of those with a label."""
    pods: list[Object] = tenant.api.get(objects.pods(tenant.namespace)).body["items"]
    return sum(
        int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        for pod in pods
        if pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
        and (not label or pod["metadata"].get("labels", {}).get(CAPACITY_LABEL) == label)
    )


@contextmanager
def repeated(task: Callable[[], object], seconds: float) -> Iterator[None]:
    """Do something at intervals until the block is left."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(seconds):
            task()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def a_pool(plane: ControlPlane, **least: int) -> Iterator[Teams]:
    """Give teams of a pool of their own, see `Teams`."""
    made = Teams.make(plane, **least)
    try:
        yield made
    finally:
        made.pool.close()


def edited_by_mallory(plane: ControlPlane, teams: Teams, rest: Rest) -> Tenant:
    """Give a user, who calls the API server so, the role `edit` in the namespace of team b."""
    namespace = teams["b"].namespace
    role = ("--clusterrole=edit", "--user=mallory", f"--namespace={namespace}")
    plane.kubectl("create", "rolebinding", "mallory", *role)
    return Tenant(rest, namespace)


def are_running(tenant: Tenant) -> bool:
    listed = tenant.api.get(objects.pods(tenant.namespace)).body["items"]
    return all(one["status"]["phase"] == "Running" for one in listed)


def run(teams: Teams, editor: Tenant, names: list[str], metadata: Object, **fields: Any) -> None:
    """Create pods of team b, and wait until they have their nodes."""
    for name in names:
        made = editor.create(name, "1", metadata=metadata, schedulerName=REAL, **fields)
        assert made.ok, str(made)
        eventually(lambda name=name: teams["b"].node_of(name), f"{name} runs")  # type: ignore[misc]
