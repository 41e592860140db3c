"""The control plane of these tests is a real one, and its parts can be killed and started again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane, KubectlError
from tests.controlplane.rest import RestError
from tests.controlplane.state import read_state
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import apply_namespace
from tests.e2e.cluster.waiting import becomes, eventually

ROOT = Path(__file__).parents[4]
NAMESPACE = "plane"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    """The API server, with a namespace that is nothing to the product."""
    api = Api(plane.rest)
    apply_namespace(api, NAMESPACE, mode="")
    yield api
    api.call("DELETE", objects.pods(NAMESPACE), {"gracePeriodSeconds": 0})
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")


def test_a_killed_api_server_comes_back_where_it_was(plane: ControlPlane, api: Api) -> None:
    made = api.create(CONFIG_MAPS, {"metadata": {"generateName": "kept-"}})
    plane.apiserver.kill()
    with pytest.raises(OSError, match="refused"):
        plane.rest.get("/readyz")
    plane.apiserver.start()
    assert api.get(f"{CONFIG_MAPS}/{made.body['metadata']['name']}").uid == made.uid


def test_an_api_server_that_is_asked_to_end_ends_in_order(plane: ControlPlane, api: Api) -> None:
    plane.apiserver.terminate()
    assert plane.apiserver.exit_code == 0
    plane.apiserver.start()
    assert api.get(CONFIG_MAPS).ok


def test_a_killed_etcd_has_kept_everything(plane: ControlPlane, api: Api) -> None:
    made = api.create(CONFIG_MAPS, {"metadata": {"generateName": "kept-"}})
    plane.etcd.restart()
    plane.apiserver.wait_until_ready()
    assert api.get(f"{CONFIG_MAPS}/{made.body['metadata']['name']}").uid == made.uid


def test_nodes_look_ready_and_take_pods(plane: ControlPlane, api: Api) -> None:
    (name,) = plane.add_nodes(1, cpu="3", memory="1Gi")
    node = plane.rest.get(f"/api/v1/nodes/{name}")
    assert node["status"]["allocatable"]["cpu"] == "3"
    assert "taints" not in node["spec"]
    plane.kubectl("run", "there", "--image=example", "-n", NAMESPACE)
    becomes(
        lambda: bool(api.get(objects.pods(NAMESPACE, "there")).body["spec"].get("nodeName")),
        True,
        "the scheduler binds",
    )
    plane.rest.delete(f"/api/v1/nodes/{name}")


def test_the_controllers_work_and_do_so_again_after_a_kill(plane: ControlPlane, api: Api) -> None:
    plane.controller_manager.restart()
    plane.kubectl("create", "deployment", "web", "--image=x", "--replicas=3", "-n", NAMESPACE)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
    eventually(
        lambda: [one["status"]["replicas"] for one in api.get(path).body["items"]] == [3],
        "the controllers make pods",
    )


def test_a_paused_scheduler_binds_nothing_until_it_goes_on(plane: ControlPlane, api: Api) -> None:
    plane.scheduler.pause()
    plane.kubectl("run", "waits", "--image=example", "-n", NAMESPACE)
    assert plane.scheduler.is_running
    assert "nodeName" not in api.get(objects.pods(NAMESPACE, "waits")).body["spec"]
    plane.scheduler.resume()
    eventually(
        lambda: "nodeName" in api.get(objects.pods(NAMESPACE, "waits")).body["spec"],
        "the scheduler goes on",
    )


@pytest.mark.usefixtures("api")
def test_users_may_do_what_rbac_gives_them(plane: ControlPlane) -> None:
    with pytest.raises(RestError, match='User "alice" cannot list resource "configmaps"'):
        plane.rest_as("alice").get(CONFIG_MAPS)
    with pytest.raises(KubectlError, match="alice"):
        plane.kubectl("get", "configmaps", user="alice")
    command = ("create", "rolebinding", "devs", "--clusterrole=view", "--group=devs")
    plane.kubectl(*command, "-n", NAMESPACE)
    rest = plane.rest_as("alice", ["devs"])

    def may_list() -> bool:
        try:
            rest.get(CONFIG_MAPS)
        except RestError:
            return False
        return True

    eventually(may_list, "the role takes effect")


@pytest.mark.usefixtures("api")
def test_a_service_account_has_a_token_of_its_own(plane: ControlPlane) -> None:
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, "default")
    command = [plane.kubectl_program, "--kubeconfig", kubeconfig, "auth", "whoami", "-o", "json"]
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    user = json.loads(ran.stdout)["status"]["userInfo"]["username"]
    assert user == f"system:serviceaccount:{NAMESPACE}:default"


def test_one_that_is_put_up_by_hand_stays_until_it_is_put_down(tmp_path: Path) -> None:
    directory = tmp_path / "up"

    def run(command: str, *more: str) -> subprocess.CompletedProcess[str]:
        whole = [ROOT / "scripts" / "controlplane", command, "--directory", directory, *more]
        return subprocess.run(
            list(map(str, whole)), capture_output=True, text=True, timeout=240, check=False
        )

    made = run("up", "--nodes", "2")
    assert made.returncode == 0, made.stderr
    state = read_state(directory / "state.json")
    assert state is not None
    try:
        assert made.stdout == f"export KUBECONFIG={state.kubeconfig}\n"
        assert len(state.processes) == 4
        assert run("status").returncode == 0
        assert run("up").stdout == made.stdout
    finally:
        assert run("down").returncode == 0
    assert not any(process.is_running for process in state.processes)
    assert not directory.exists()
