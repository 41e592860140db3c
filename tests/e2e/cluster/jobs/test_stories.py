"""The stories of KEP-5440 with the real Job controller: suspended Jobs whose resources change.

There is no kubelet: pods run, and end, when a test says so.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.builders import a_container
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.jobs.words import GATES_ARE_ON
from tests.e2e.cluster.objects import Object
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually, stays
from tests.operations.jobs import an_order
from webhook.cli import ExitCode, cli
from webhook.kube.api import JOBS, ConflictError
from webhook.kube.rest import RestClient, load_config
from webhook.operations.jobs.planning import Order, check_on_server, plan_resize
from webhook.state.well_known import GATING_LABEL, NEVER_GATING

pytestmark = [pytest.mark.timeout(240), GATES_ARE_ON]

PATIENCE = 90.0
"""Seconds: the Job controller waits before it replaces pods that failed."""


@pytest.fixture
def team(tenant: Tenant) -> Tenant:
    """A namespace that has opted in, whose pods get no gate of ours."""
    labels = {GATING_LABEL: NEVER_GATING}
    path = f"/api/v1/namespaces/{tenant.namespace}"
    assert tenant.api.patch(path, {"metadata": {"labels": labels}}).ok
    return tenant


def jobs(team: Tenant, name: str = "", subresource: str = "") -> str:
    path = f"/apis/batch/v1/namespaces/{team.namespace}/jobs"
    return "/".join(part for part in (path, name, subresource) if part)


def a_training_job(cpu: str, *, pods: int, suspend: bool) -> Object:
    template = {
        "metadata": {"labels": {"app": "train"}},
        "spec": {
            "containers": [a_container(requests={"cpu": cpu})],
            "restartPolicy": "Never",
        },
    }
    counts = {"parallelism": pods, "completions": pods}
    policy = {"podReplacementPolicy": "Failed", "suspend": suspend}
    return {"metadata": {"name": "train"}, "spec": {**counts, **policy, "template": template}}


def start(team: Tenant, cpu: str, *, pods: int = 2, suspend: bool) -> None:
    made = team.api.create(jobs(team), a_training_job(cpu, pods=pods, suspend=suspend))
    assert made.ok, str(made)


def status(team: Tenant) -> Object:
    found: Object = team.api.get(jobs(team, "train")).body["status"]
    return found


def count(team: Tenant, name: str) -> int:
    return int(status(team).get(name, 0))


def pods(team: Tenant) -> list[Object]:
    """The pods of the Job that have not ended and are not being deleted."""
    found = team.api.get(f"{objects.pods(team.namespace)}?labelSelector=app%3Dtrain").body["items"]
    return [
        pod
        for pod in found
        if pod["status"]["phase"] not in ("Succeeded", "Failed")
        and "deletionTimestamp" not in pod["metadata"]
    ]


def cpus(team: Tenant) -> list[tuple[str, bool]]:
    """What each of them asks for, and whether it has a node."""
    return sorted(
        (
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"],
            bool(pod["spec"].get("nodeName")),
        )
        for pod in pods(team)
    )


def run_pods(team: Tenant) -> None:
    """Let the kubelets start what has a node."""
    for pod in pods(team):
        path = objects.pods(team.namespace, pod["metadata"]["name"], "status")
        assert team.api.patch(path, {"status": {"phase": "Running"}}).ok


def end_deleted_pods(team: Tenant) -> None:
    """Let the kubelets end what is being deleted."""
    for pod in team.api.get(objects.pods(team.namespace)).body["items"]:
        if "deletionTimestamp" in pod["metadata"]:
            name = pod["metadata"]["name"]
            team.api.patch(
                objects.pods(team.namespace, name, "status"), {"status": {"phase": "Failed"}}
            )
            team.api.delete(objects.pods(team.namespace, name), grace_seconds=0)


def let(plane: ControlPlane, team: Tenant, who: str, *subject: str) -> None:
    """Give somebody the right to read and change Jobs here."""
    where = f"--namespace={team.namespace}"
    verbs = "--verb=get,list,watch,patch,update"
    plane.kubectl("create", "role", who, verbs, "--resource=jobs.batch", where)
    plane.kubectl("create", "rolebinding", who, f"--role={who}", *subject, where)


def command(team: Tenant, kubeconfig: Path, *args: str) -> Result:
    access = ("--kubeconfig", str(kubeconfig), "-n", team.namespace)
    return CliRunner().invoke(cli, ["job", "resize", "train", *access, *args])


@contextlib.contextmanager
def client_of(kubeconfig: Path) -> Iterator[RestClient]:
    client = RestClient(load_config(kubeconfig, None))
    try:
        yield client
    finally:
        client.close()


def test_a_queue_controller_resizes_and_unsuspends_in_one_call(
    plane: ControlPlane, team: Tenant
) -> None:
    team.quota(hard={"requests.cpu": "2", "pods": "10"})
    plane.kubectl("create", "serviceaccount", "queue", "--namespace", team.namespace)
    let(plane, team, "queue", f"--serviceaccount={team.namespace}:queue")
    start(team, "4", suspend=True)
    becomes(lambda: bool(status(team).get("conditions")), True, "the Job is seen suspended")

    patch: list[Object] = [
        {
            "op": "add",
            "path": "/spec/template/spec/containers/0/resources",
            "value": {"requests": {"cpu": "1"}},
        },
        {"op": "replace", "path": "/spec/suspend", "value": False},
    ]
    with client_of(plane.service_account_kubeconfig(team.namespace, "queue")) as queue:
        queue.patch(JOBS, "train", patch, namespace=team.namespace)
    becomes(lambda: cpus(team), [("1", True)] * 2, "both pods have a node")
    team.settles()
    assert team.charged() == "2"


def test_a_person_shrinks_a_job_until_its_quota_lets_it_in(
    plane: ControlPlane, team: Tenant
) -> None:
    team.quota(hard={"requests.cpu": "6", "pods": "10"})
    team.bound("other", "4")
    let(plane, team, "alice", "--user=alice")
    alice = plane.kubeconfig("alice", groups=("devs",))
    start(team, "8", pods=1, suspend=True)

    never = team.api.patch(jobs(team, "train"), {"spec": {"suspend": False}})
    assert never.code == 422, str(never)
    assert "can never fit quota p1: requested requests.cpu=8" in never.message
    shrunk = command(team, alice, "--requests", "cpu=4")
    assert shrunk.exit_code == ExitCode.OK, shrunk.output
    assert team.api.get(jobs(team, "train")).body["spec"]["suspend"] is True

    def why() -> str:
        found = pods(team)
        return team.condition(found[0]["metadata"]["name"])[2] if found else ""

    assert team.api.patch(jobs(team, "train"), {"spec": {"suspend": False}}).ok
    eventually(lambda: "requested: requests.cpu=4, used: requests.cpu=4" in why(), "it waits")
    assert team.charged() == "4"
    again = command(team, alice, "--requests", "cpu=2")
    assert again.exit_code == ExitCode.OK, again.output
    becomes(lambda: cpus(team), [("2", True)], "the pod of 2 cpu has a node")
    team.settles()
    assert team.charged() == "6"


def test_a_running_job_is_suspended_resized_and_resumed(plane: ControlPlane, team: Tenant) -> None:
    team.quota(hard={"requests.cpu": "4", "pods": "10"})
    let(plane, team, "alice", "--user=alice")
    alice = plane.kubeconfig("alice", groups=("devs",))
    start(team, "2", suspend=False)
    becomes(lambda: cpus(team), [("2", True)] * 2, "both pods have a node")
    run_pods(team)
    becomes(lambda: count(team, "active"), 2, "active pods")

    planned = command(team, alice, "--requests", "cpu=1", "--dry-run")
    assert planned.exit_code == ExitCode.OK, planned.output
    assert "2 active pods end" in planned.stdout
    assert "the API server accepts the suspension" in planned.stdout
    assert not team.api.get(jobs(team, "train")).body["spec"]["suspend"]

    done = command(team, alice, "--requests", "cpu=1", "-o", "json")
    assert done.exit_code == ExitCode.OK, done.output
    found = json.loads(done.stdout)
    assert (found["suspended"], found["resumed"]) == (True, True)
    assert found["problems"] == []
    still = "2 pods of the previous run still terminating: charged until gone, if they have a node"
    assert still in found["warnings"]
    assert done.stderr.count(f"Warning: {still}\n") == 1
    spec = team.api.get(jobs(team, "train")).body["spec"]
    assert spec["suspend"] is False
    resources = spec["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "1"}}

    again = command(team, alice, "--requests", "cpu=1")
    title = f"job {team.namespace}/train"
    assert again.stdout == f"{title}: has these resources already, nothing to do\n"

    # the old pods end only now: until then there are no new ones, and the quota stays charged
    becomes(lambda: count(team, "terminating"), 2, "pods that are ending")
    checks = iter(range(20))
    stays(lambda: len(pods(team)), 0, "new pods", until=lambda: next(checks, None) is None)
    assert team.charged() == "4"
    end_deleted_pods(team)
    becomes(lambda: cpus(team), [("1", True)] * 2, "new pods with a node", PATIENCE)
    team.settles()
    becomes(team.charged, "2", "what is charged")


def test_without_a_metrics_server_the_command_says_so(plane: ControlPlane, team: Tenant) -> None:
    start(team, "1", pods=1, suspend=False)
    eventually(lambda: pods(team), "there is a pod")
    result = command(team, plane.kubeconfig(), "--from-usage", "p95")
    assert result.exit_code == ExitCode.FINDINGS
    assert result.stderr.startswith("Error: metrics.k8s.io is not there: the cluster has no")
    assert team.api.get(jobs(team, "train")).body["spec"]["suspend"] is False


def test_a_resize_of_an_older_version_is_a_conflict(plane: ControlPlane, team: Tenant) -> None:
    start(team, "4", suspend=True)
    with client_of(plane.kubeconfig()) as api:
        order = Order(team.namespace, "train", an_order().wanted)
        plan = plan_resize(api, order)
        assert plan.changes
        touched = {"metadata": {"annotations": {"touched": "yes"}}}
        assert team.api.patch(jobs(team, "train"), touched).ok
        with pytest.raises(ConflictError):
            check_on_server(api, plan)
        assert check_on_server(api, plan_resize(api, order)) == "the API server accepts the change"


def test_what_the_api_server_refuses_is_known_before_a_pod_ends(
    plane: ControlPlane, team: Tenant
) -> None:
    team.quota(hard={"requests.cpu": "4", "pods": "10"})
    start(team, "1", suspend=False)
    eventually(lambda: pods(team), "there are pods")
    never = command(team, plane.kubeconfig(), "--requests", "cpu=16")
    assert never.exit_code == ExitCode.FINDINGS
    assert never.stderr == (
        f"Error: job {team.namespace}/train: spec.template.spec: pods of this Job can never fit"
        " quota p1: requested requests.cpu=16, limited requests.cpu=4\n"
    )
    result = command(team, plane.kubeconfig(), "--requests", "cpu=2", "--limits", "cpu=1")
    assert result.exit_code == ExitCode.FINDINGS
    assert result.stderr == (
        f"Error: job {team.namespace}/train: spec.template.spec.containers[0].resources.requests:"
        ' Invalid value: "2": must be less than or equal to cpu limit of 1\n'
    )
    assert team.api.get(jobs(team, "train")).body["spec"]["suspend"] is False


def test_what_the_webhook_warns_of_is_shown_once(plane: ControlPlane, team: Tenant) -> None:
    team.quota(hard={"requests.cpu": "4", "pods": "10"})
    start(team, "1", pods=3, suspend=False)
    eventually(lambda: pods(team), "there are pods")
    warned = "Warning: quota p1: 3 pods ask requests.cpu=6, limit 4; at most 2 at a time\n"

    done = command(team, plane.kubeconfig(), "--requests", "cpu=2")
    assert done.exit_code == ExitCode.OK, done.output
    assert done.stderr.count(warned) == 1, done.stderr
    assert team.api.patch(jobs(team, "train"), {"spec": {"suspend": True}}).ok
    becomes(lambda: bool(status(team).get("conditions")), True, "the Job is seen suspended")
    becomes(lambda: count(team, "active"), 0, "active pods")
    planned = command(team, plane.kubeconfig(), "--requests", "cpu=3", "--dry-run", "-o", "json")
    assert planned.exit_code == ExitCode.OK, planned.output
    found = json.loads(planned.stdout)["warnings"]
    assert "quota p1: 3 pods ask requests.cpu=9, limit 4; at most 1 at a time" in found
    assert planned.stderr.count("Warning: quota p1: 3 pods ask requests.cpu=9") == 1


RULES = """\
apiVersion: deferredquota.io/v1alpha1
kind: Configuration
jobs: [{resizers: {users: [bob]}}]
"""


def test_a_user_that_may_not_resize_a_job_does_not_suspend_it_either(
    plane: ControlPlane, team: Tenant, tmp_path: Path
) -> None:
    team.quota(hard={"requests.cpu": "8", "pods": "10"})
    for user in ("alice", "bob"):
        let(plane, team, user, f"--user={user}")
    # the namespace, by whose labels rules are chosen, and its quotas
    see = (
        "create",
        "clusterrole",
        "see",
        "--verb=get,list",
        "--resource=namespaces,resourcequotas",
    )
    plane.kubectl(*see)
    plane.kubectl("create", "clusterrolebinding", "see", "--clusterrole=see", "--group=devs")
    config = tmp_path / "config.yaml"
    config.write_text(RULES)
    start(team, "1", suspend=False)
    eventually(lambda: pods(team), "there are pods")
    title = f"job {team.namespace}/train"

    def resize(user: str, *args: str) -> Result:
        return command(team, plane.kubeconfig(user, groups=("devs",)), "--requests", "cpu=2", *args)

    try:
        refused = resize("alice", "--config", str(config))
        assert refused.exit_code == ExitCode.FINDINGS
        assert refused.stderr == (
            f"Error: {title}: spec.template.spec.containers[0].resources.requests.cpu: Forbidden:"
            " from 1 to 2: user 'alice' may not change the resources of this Job\n"
        )
        assert team.api.get(jobs(team, "train")).body["spec"]["suspend"] is False
        planned = resize("alice", "--dry-run")
        assert planned.exit_code == ExitCode.OK, planned.output
        assert "not checked: rules of the cluster for Jobs: configmaps" in planned.stdout
        done = resize("bob", "--config", str(config))
        assert done.exit_code == ExitCode.OK, done.output
    finally:
        plane.kubectl("delete", "clusterrolebinding,clusterrole", "see")
