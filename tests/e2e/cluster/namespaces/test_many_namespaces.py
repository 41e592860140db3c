"""Fifty namespaces with two hundred quotas go in and out while pods are created in all of them."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.extent import IS_SHORT
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.over_and_over import OverAndOver
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import eventually
from webhook.cli import ExitCode
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.objects.names import DEFERRED_KEYS

SPACES: Final = [f"many-{number:02}" for number in range(12 if IS_SHORT else 50)]
QUOTAS: Final[dict[str, dict[str, Any]]] = {
    "cpu": {"hard": {"requests.cpu": "100", "pods": "900"}},
    "memory": {"hard": {"requests.memory": "1Ti"}},
    "limits": {"hard": {"limits.cpu": "200"}},
    "long": {"hard": {"requests.cpu": "90"}, "scopes": ["NotTerminating"]},
}
"""Of each namespace; no pod of this test exceeds one."""
POD: Final = {"pods": "1", "requests.cpu": "10m", "requests.memory": "1Mi", "limits.cpu": "20m"}
WORKERS: Final = 2
_PAUSE_SECONDS: Final = 0.03


class Creators(OverAndOver):
    """Create pods in all namespaces by turns, until the block is left."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__([self._create] * WORKERS)
        self.teams = [Tenant(plane.rest, name) for name in SPACES]
        self.refused: list[str] = []
        self.created = 0
        self._numbers = itertools.count()

    def _create(self) -> None:
        number = next(self._numbers)
        answer = self._pod(self.teams[number % len(self.teams)], f"p{number}")
        self.created += answer.ok
        # the API server's own way to say that too many wrote a quota at once
        if not answer.ok and answer.code != 409:
            self.refused.append(str(answer))
        self.rest(_PAUSE_SECONDS)

    @staticmethod
    def _pod(team: Tenant, name: str) -> Answer:
        amounts = {"cpu": "10m", "memory": "1Mi"}
        return team.create(name, requests=amounts, limits={"cpu": "20m"})


@pytest.fixture
def spaces(plane: ControlPlane, product: Product) -> Iterator[None]:
    """The namespaces, whose quotas the platform has counted."""
    assert product.webhooks

    def make(name: str) -> None:
        apply_namespace(Api(plane.rest), name, mode="")
        for quota, spec in QUOTAS.items():
            wanted = {"metadata": {"name": quota}, "spec": spec}
            assert Api(plane.rest).create(objects.quotas(name), wanted).ok

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, SPACES))
    eventually(lambda: not incomplete(plane), "the platform has counted all quotas")
    yield
    for name in SPACES:
        Api(plane.rest).delete(f"/api/v1/namespaces/{name}")


def stored(plane: ControlPlane) -> list[dict[str, Any]]:
    found = Api(plane.rest).get("/api/v1/resourcequotas").body["items"]
    return [one for one in found if one["metadata"]["namespace"] in SPACES]


def incomplete(plane: ControlPlane) -> list[str]:
    """Name the quotas whose status does not say everything that the spec limits."""
    return [
        f"{one['metadata']['namespace']}/{one['metadata']['name']}: {one.get('status')}"
        for one in stored(plane)
        if one.get("status", {}).get("hard") != one["spec"]["hard"]
        or one["status"].get("used", {}).keys() != one["spec"]["hard"].keys()
    ]


def undercounted(plane: ControlPlane) -> list[str]:
    """Name the quotas whose usage is less than that of the pods.

    More can be there until the platform counts anew: it has charged pods whose creation failed.
    """
    pods = Api(plane.rest).get("/api/v1/pods").body["items"]
    count = dict.fromkeys(SPACES, 0)
    for pod in pods:
        if pod["metadata"]["namespace"] in count:
            count[pod["metadata"]["namespace"]] += 1
    wrong = []
    for one in stored(plane):
        namespace, used = one["metadata"]["namespace"], one["status"]["used"]
        for key, amount in used.items():
            each = Quantity.parse(POD[key])
            if Quantity.parse(amount) < sum([each] * count[namespace], Quantity.parse("0")):
                wrong.append(f"{namespace}/{one['metadata']['name']}: {key}: {amount}")
    return wrong


def run(plane: ControlPlane, command: str) -> str:
    """Run a command for all namespaces, and give what it prints."""
    program = [sys.executable, "-m", "webhook", command, "--kubeconfig", str(plane.kubeconfig())]
    done = subprocess.run(
        [*program, *SPACES], capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == ExitCode.OK, done
    return done.stdout


@pytest.mark.timeout(300)
def test_no_pod_is_refused_and_all_is_as_it_was(plane: ControlPlane, spaces: None) -> None:
    assert spaces is None
    with Creators(plane) as creators:
        eventually(lambda: creators.created > len(SPACES), "pods are being created")
        enabled = run(plane, "enable")
        assert enabled.count(": opted in") == len(SPACES)
        shown = {key for one in stored(plane) for key in one["status"].get("hard", {})}
        assert shown.isdisjoint(DEFERRED_KEYS)
        before = creators.created
        eventually(lambda: creators.created > before + len(SPACES), "pods are being created")
        disabled = run(plane, "disable")
        assert incomplete(plane) == []
        assert disabled.count(": opted out") == len(SPACES)
        before = creators.created
        eventually(lambda: creators.created > before + len(SPACES), "pods are being created")
    print(f"\n{creators.created} pods were created meanwhile")
    assert creators.refused == []
    assert incomplete(plane) == []
    assert undercounted(plane) == []
