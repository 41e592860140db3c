"""`elastic` on a real control plane with nos' kinds of objects: live, and of a snapshot."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner

from tests.builders import a_container
from tests.controlplane.plane import ControlPlane, KubectlError
from tests.e2e.cluster.objects import Object
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.waiting import eventually
from webhook.cli import cli

TEAMS: Final = {"eq-a": "2", "eq-b": "1", "eq-c": "1"}
READ: Final = "ns,pods,nodes,pdb,priorityclasses,elasticquotas,compositeelasticquotas"
_numbers = itertools.count()


def a_namespace(name: str) -> Object:
    labels = {"deferredquota.io/mode": "deferred"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def a_quota(team: str, cpu: str) -> Object:
    return {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"namespace": team, "name": "quota"},
        "spec": {"min": {"cpu": cpu}},
    }


def a_pod(team: str, name: str, **spec: Any) -> Object:
    container = {"image": "example.com/i", **a_container(requests={"cpu": "1"})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": team, "name": name},
        "spec": {"containers": [container], "schedulerName": "none", **spec},
    }


@pytest.fixture(scope="module")
def teams(plane: ControlPlane, _product: Product) -> Iterator[Callable[..., None]]:
    """Three namespaces with 2, 1 and 1 cpu guaranteed; `eq-b` runs three pods, `eq-a` one."""

    def apply(*objects: Object) -> None:
        plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def applied(made: Object) -> bool:
        try:
            apply(made)
        except KubectlError:
            return False  # its namespace is being counted
        return True

    apply(*map(a_namespace, TEAMS))
    eventually(
        lambda: all(plane.kubectl("get", "sa", "-n", team, "-o", "name") for team in TEAMS),
        "their service accounts",
    )
    apply(*(a_quota(team, cpu) for team, cpu in TEAMS.items()))
    running = [("eq-a", "a-1"), *(("eq-b", f"b-{number}") for number in (1, 2, 3))]
    for team, name in running:
        eventually(lambda: applied(a_pod(team, name, nodeName="node-0")), "it is decided")  # noqa: B023
    apply(a_pod("eq-a", "new"))
    yield apply
    plane.kubectl("delete", "ns", *TEAMS, "--wait=false")


def both(plane: ControlPlane, directory: Path, *args: str) -> Any:
    """Return the answer, which is the same live and from a snapshot taken then."""
    path = directory / f"cluster-{next(_numbers)}.yaml"
    path.write_text(plane.kubectl("get", READ, "-A", "-o", "yaml"), encoding="utf-8")
    answers = []
    for where in (("--kubeconfig", str(plane.kubeconfig())), ("--snapshot", str(path))):
        done = CliRunner().invoke(cli, ["elastic", *args, "-o", "json", *where])
        assert done.exit_code in (0, 1), done.output
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1]
    return answers[0]


@pytest.mark.usefixtures("teams")
def test_quotas_are_shown(plane: ControlPlane, tmp_path: Path) -> None:
    found = {one["namespace"]: one for one in both(plane, tmp_path) if one["namespace"] in TEAMS}
    assert found.keys() == TEAMS.keys()
    assert (found["eq-b"]["used"], found["eq-b"]["borrowed"]) == ({"cpu": "3"}, {"cpu": "2"})
    assert found["eq-a"]["lent"] == found["eq-c"]["lent"] == {"cpu": "1"}
    assert found["eq-a"]["guaranteed"] == {"cpu": "1"}
    assert found["eq-b"]["headroom"] == {"cpu": "0"}


@pytest.mark.usefixtures("teams")
def test_an_owner_takes_the_newest_of_the_one_that_borrows(
    plane: ControlPlane, tmp_path: Path
) -> None:
    found = both(plane, tmp_path, "plan", "new", "-n", "eq-a")
    assert (found["possible"], found["claim"], found["short"]) == (True, "own", ["cpu"])
    assert len(found["victims"]) == 1
    (victim,) = found["victims"]
    assert (victim["namespace"], victim["node"], victim["frees"]) == (
        "eq-b",
        "node-0",
        {"cpu": "1"},
    )
    # what was created within one second goes by name: the last is over-quota, and goes first
    assert victim["name"] in {"b-2", "b-3"}


def test_a_budget_of_the_cluster_puts_its_pods_last(
    plane: ControlPlane, tmp_path: Path, teams: Callable[..., None]
) -> None:
    before = both(plane, tmp_path, "plan", "new", "-n", "eq-a")["victims"][0]["name"]
    plane.kubectl("label", "pod", "-n", "eq-b", before, "keep=yes")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    patch = ("--subresource=status", "--type=merge", "--patch", json.dumps({"status": ready}))
    plane.kubectl("patch", "pod", "-n", "eq-b", before, *patch)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "eq-b", "name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"keep": "yes"}}},
    }
    teams(budget)
    after = both(plane, tmp_path, "plan", "new", "-n", "eq-a")["victims"][0]["name"]
    assert after != before
