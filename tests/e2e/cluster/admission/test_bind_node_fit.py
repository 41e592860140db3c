"""`nodeFit` on a real control plane: binds past the scheduler, and those of the real one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.builders import a_container
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.configured import configured
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.product import Product, a_team, apply_namespace
from tests.e2e.cluster.tenant import NODE, REAL, Tenant
from tests.e2e.cluster.waiting import eventually
from webhook.quota.objects.names import QUOTA_RESERVED

BIND: Final = 'admission webhook "bind.deferredquota.io" denied the request: '
MESSAGE: Final = f"the kubelet of node {NODE} would not admit the pod"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.start(tmp_path_factory.mktemp("fit-plane")) as plane:
        plane.add_nodes(1, cpu="4", pods=20)
        yield plane


@pytest.fixture(scope="module")
def judging(own_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    directory = tmp_path_factory.mktemp("fit-product")
    with Product.start(own_plane, directory, configuration={"nodeFit": "Deny"}) as product:
        yield product


@pytest.fixture
def team(own_plane: ControlPlane, judging: Product) -> Iterator[Tenant]:
    assert judging.webhooks
    with a_team(own_plane, f"fit-{next(_numbers)}") as tenant:
        tenant.quota(hard={"requests.cpu": "100"})
        yield tenant
    api = tenant.api
    eventually(lambda: not api.get("/api/v1/pods").body["items"], "the node is empty")


def short(requested: str, used: str) -> str:
    return f"OutOfcpu (requested: {requested}, used: {used}, allocatable: 4)"


def test_a_bind_that_the_kubelet_would_refuse_is_denied_with_the_numbers(team: Tenant) -> None:
    team.bound("runs", "3")
    team.pod("large", "1001m")
    refused = team.bind("large")
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == f"{BIND}{MESSAGE}: {short('1001m', '3')}"
    assert refused.causes == [
        ("NodeFit", f"{NODE}/OutOfcpu", "requested: 1001m, used: 3, allocatable: 4")
    ]
    team.pod("small", "1")
    assert team.bind("small").code == 201
    team.settles()
    assert team.charged() == "4"


def test_a_selector_and_a_taint_are_asked_of_the_node_as_it_is(
    own_plane: ControlPlane, team: Tenant
) -> None:
    node = f"/api/v1/nodes/{NODE}"
    taint = {"key": "maintenance", "effect": "NoExecute"}
    mismatch = "NodeAffinity (the node does not match the pod's node selector or affinity)"
    team.pod("web", "1", nodeSelector={"zone": "a"})
    assert team.bind("web").message == f"{BIND}{MESSAGE}: {mismatch}"
    team.api.patch(node, {"metadata": {"labels": {"zone": "a"}}, "spec": {"taints": [taint]}})
    tainted = f"{BIND}{MESSAGE}: TaintToleration (not tolerated: maintenance:NoExecute)"
    eventually(lambda: team.bind("web", dry_run=True).message == tainted, "the taint is seen")
    # the cache need not have seen this: nothing is refused before the API server was asked
    own_plane.rest.patch(node, [{"op": "remove", "path": "/spec/taints"}], "json")
    assert team.bind("web").code == 201


def test_a_warning_goes_with_the_bind(judging: Product, team: Tenant) -> None:
    team.bound("runs", "3")
    team.pod("large", "2")
    with configured(judging, nodeFit="Warn"):
        answer = team.bind("large")
    assert (answer.code, answer.warnings) == (201, (f"{MESSAGE}: {short('2', '3')}",))
    eventually(lambda: team.node_of("large") == NODE, "it is bound")


def test_binds_at_once_get_no_more_than_the_node_has(team: Tenant) -> None:
    names = [f"web-{number}" for number in range(16)]
    for name in names:
        team.pod(name, "1")
    start, answers = threading.Barrier(len(names)), dict[str, Answer]()

    def bind(name: str) -> None:
        start.wait()
        answers[name] = team.bind(name)

    threads = [threading.Thread(target=bind, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = [answer.code for answer in answers.values()]
    assert codes.count(201) == 4
    assert set(codes) <= {201, 403, 429}
    late = next(name for name in names if answers[name].code != 201)
    refused = f"{BIND}{MESSAGE}: {short('1', '4')}"
    eventually(lambda: team.bind(late).message == refused, "all binds are seen")


def test_a_bind_that_storage_refuses_again_and_again_keeps_no_node_from_others(
    own_plane: ControlPlane, team: Tenant
) -> None:
    with a_team(own_plane, f"{team.namespace}-other") as other:
        other.quota(hard={"requests.cpu": "100"})
        team.pod("large", "3")
        other.pod("web", "2")

        def bind_other() -> int:
            assert team.bind("large", version="1").code == 409
            return other.bind("web").code

        assert bind_other() == 429
        eventually(lambda: bind_other() == 201, "the node is free for others")


def test_pods_with_very_many_ports_keep_no_bind_waiting(team: Tenant) -> None:
    """Each is compared with all ports that the pods of the node have."""
    for number in range(16):
        taken = with_ports(256 * number + 1, 256)
        team.pod(f"taken-{number}", "", taken, nodeName=NODE)
    team.settles()
    # constraints that are too long to be kept: the pod is read at the bind, with all its ports
    others = [{"key": f"key-{'x' * 50}-{number}", "operator": "Exists"} for number in range(150)]
    names = ("many-0", "many-1", "many-2")
    for number, name in enumerate(names):
        team.pod(name, "", with_ports(20_001 + 15_000 * number, 15_000), tolerations=others)
    with ThreadPoolExecutor(len(names)) as clients:
        assert [one.code for one in clients.map(team.bind, names)] == [201] * len(names)


def with_ports(first: int, number: int) -> dict[str, Any]:
    """Return a container that takes some ports of its node."""
    ports = [{"containerPort": one, "hostPort": one} for one in range(first, first + number)]
    return a_container("main", requests={"cpu": "10m"}, ports=ports)


def test_the_real_scheduler_is_never_refused(team: Tenant) -> None:
    for number in range(10):
        name = f"web-{number}"
        team.pod(name, "4", schedulerName=REAL)
        eventually(lambda name=name: team.node_of(name) == NODE, f"{name} has its node")  # type: ignore[misc]
        team.pod(f"{name}-next", "4", schedulerName=REAL)
        team.delete(name)
        eventually(
            lambda name=name: team.node_of(f"{name}-next") == NODE,  # type: ignore[misc]
            f"{name}-next has the node of {name}",
        )
        team.delete(f"{name}-next")
    assert not [one for one in team.events("FailedScheduling") if "would not admit" in one]


def test_a_pod_that_waits_for_quota_says_that_no_node_fits_it_either(
    own_plane: ControlPlane, judging: Product
) -> None:
    assert judging.controllers
    name = f"fit-{next(_numbers)}"
    apply_namespace(Api(own_plane.rest), name, gating="always")
    team = Tenant(own_plane.rest, name)
    team.quota(hard={"requests.cpu": "1"})
    team.pod("lost", "2", nodeSelector={"zone": "nowhere"})
    team.pod("fits", "2")
    words = "no node fits: 0/1 nodes are available: 1 node(s) didn't match Pod's node affinity"
    eventually(lambda: words in team.condition("lost", QUOTA_RESERVED)[2], "it says so")
    eventually(lambda: "exceeded quota" in team.condition("fits", QUOTA_RESERVED)[2], "it waits")
    assert "no node fits" not in team.condition("fits", QUOTA_RESERVED)[2]
