"""`deferred-quota review`: a snapshot, reviews, answers."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from webhook.cli.app import cli

CLUSTER = """\
apiVersion: v1
kind: ResourceQuota
metadata: {name: compute, namespace: team-a}
spec: {hard: {requests.cpu: 1.5}}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a, namespace: team-a, uid: uid-a}
  spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 1}}}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: b, namespace: team-a, uid: uid-b}
  spec: {containers: [{name: c, image: x, resources: {limits: {cpu: 1000m}}}]}
"""


def bind(pod: str, *, is_pinned: bool = True) -> dict[str, Any]:
    uid = {"uid": f"uid-{pod}"} if is_pinned else {}
    kind = {"group": "", "version": "v1", "kind": "Binding"}
    request = {
        "uid": f"review-{pod}",
        "kind": kind,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": "binding",
        "name": pod,
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {"username": "system:kube-scheduler"},
        "object": {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": "team-a", **uid},
            "target": {"kind": "Node", "name": "node-1"},
        },
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return path


def review(cluster: Path, *arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(cli, ["review", "--snapshot", str(cluster), *arguments], input=given)


def answers(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line)["response"] for line in result.stdout.splitlines()]


def test_one_review_from_standard_input_is_answered(cluster: Path) -> None:
    result = review(cluster, given=json.dumps(bind("a")))
    (answer,) = answers(result)
    assert (answer["uid"], answer["allowed"]) == ("review-a", True)
    assert result.exit_code == 0


def test_reviews_share_one_ledger_and_the_second_is_refused(cluster: Path) -> None:
    lines = "\n".join(json.dumps(bind(name)) for name in ("a", "b"))
    result = review(cluster, "--jsonl", given=lines)
    first, second = answers(result)
    assert first["allowed"]
    assert second["status"]["message"] == (
        "exceeded quota: compute, requested: requests.cpu=1, used: requests.cpu=1,"
        " limited: requests.cpu=1500m"
    )
    assert result.exit_code == 1


SHARED = """---
apiVersion: v1
kind: Pod
metadata: {name: far, namespace: team-b, uid: uid-far}
spec: {nodeName: node-1, containers: [{name: c, image: x, resources: {requests: {cpu: 1}}}]}
---
apiVersion: deferredquota.io/v1alpha1
kind: ClusterDeferredQuota
metadata: {name: both}
spec: {namespaceSelector: {}, hard: {requests.cpu: 2}}
"""


def test_what_other_namespaces_hold_of_a_shared_quota_counts(cluster: Path) -> None:
    cluster.write_text(CLUSTER.replace("1.5", "9") + SHARED)
    lines = "\n".join(json.dumps(bind(name)) for name in ("a", "b"))
    first, second = answers(review(cluster, "--jsonl", given=lines))
    assert first["allowed"]
    assert second["status"]["message"] == (
        "exceeded quota: cdq/both, requested: requests.cpu=1, used: requests.cpu=2,"
        " limited: requests.cpu=2"
    )


def test_a_quota_that_many_namespaces_share_is_counted_first(cluster: Path) -> None:
    far = SHARED.partition("---\n")[2].partition("---\n")[0]
    many = "".join(
        f"---\n{far.replace('far', f'far-{index}').replace('team-b', f'team-{index}')}"
        for index in range(60)
    )
    cluster.write_text(CLUSTER.replace("1.5", "99") + many + SHARED.replace("cpu: 2", "cpu: 61"))
    (answer,) = answers(review(cluster, given=json.dumps(bind("a"))))
    assert answer["status"]["message"] == (
        "exceeded quota: cdq/both, requested: requests.cpu=1, used: requests.cpu=61,"
        " limited: requests.cpu=61"
    )


def test_the_mutating_phase_pins_the_pod(cluster: Path) -> None:
    given = json.dumps(bind("a", is_pinned=False))
    (answer,) = answers(review(cluster, "--phase", "mutate", given=given))
    assert answer["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(answer["patch"]))
    assert {"op": "add", "path": "/metadata/uid", "value": "uid-a"} in patch


def test_the_answer_to_a_binding_that_was_not_pinned_says_what_it_lacks(cluster: Path) -> None:
    result = review(cluster, given=json.dumps(bind("a", is_pinned=False)))
    (answer,) = answers(result)
    assert answer["status"]["code"] == 409
    assert answer["status"]["message"].startswith("metadata.uid: must name the uid of pod a, ")
    assert result.exit_code == 1


def test_a_configuration_is_followed(cluster: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\nexemptNamespaces: [team-a]\n"
    )
    result = review(cluster, "--config", str(config), given=json.dumps(bind("a")))
    assert answers(result)[0]["auditAnnotations"]["decision"] == "exempt"


def test_a_line_that_is_no_review_is_named_and_the_others_are_answered(cluster: Path) -> None:
    lines = "\n".join([json.dumps(bind("a")), "{", json.dumps(bind("missing"))])
    result = review(cluster, "--jsonl", given=lines)
    replies = [json.loads(line) for line in result.stdout.splitlines()]
    assert replies[0]["response"]["allowed"]
    assert replies[1]["line"] == 2
    assert replies[2]["response"]["status"]["code"] == 404
    assert result.exit_code == 2
    assert "line 2" in result.stderr


BROKEN = {
    "an amount": (
        CLUSTER.replace("requests: {cpu: 1}", "requests: {cpu: 1x}"),
        "document 2: items[0].spec.containers[0].resources.requests.cpu:",
    ),
    "a limit": (CLUSTER.replace("1.5", "one"), "document 1: spec.hard[requests.cpu]:"),
    "a shared limit": (
        CLUSTER + SHARED.replace("requests.cpu: 2", "requests.cpu: two"),
        "document 4: spec.hard[requests.cpu]:",
    ),
    "the namespaces that share one": (
        CLUSTER + SHARED.replace("namespaceSelector: {}", "scopes: []"),
        "document 4: spec.namespaceSelector:",
    ),
    "no YAML": (CLUSTER + "---\n{", "document 3"),
    "a key twice": (CLUSTER.replace("spec: {hard", "kind: X\nspec: {hard"), "document 1"),
}


@pytest.mark.parametrize(("text", "place"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_snapshot_is_named_by_file_document_and_field(
    cluster: Path, text: str, place: str
) -> None:
    cluster.write_text(text)
    result = review(cluster, given=json.dumps(bind("a")))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert str(cluster) in result.stderr
    assert place in result.stderr


def test_a_missing_snapshot_is_named(tmp_path: Path) -> None:
    result = review(tmp_path / "none.yaml", given="{}")
    assert result.exit_code == 2
    assert "none.yaml" in result.stderr


def test_a_rule_that_cannot_be_evaluated_is_refused_at_the_start(
    cluster: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
        "requireQuotaForPriority: [{scopeName: PriorityClass, operator: in, values: [gold]}]\n"
    )
    result = review(cluster, "--config", str(config), given="{}")
    assert result.exit_code == 2
    assert "requireQuotaForPriority[0].operator" in result.stderr


def resize(*, suspend: bool) -> dict[str, Any]:
    """A review of a Job of which the cpu of the template changes."""

    def job(cpu: str) -> dict[str, Any]:
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        metadata = {"name": "train", "namespace": "team-a", "uid": "uid-train"}
        return {"metadata": metadata, "spec": {"suspend": suspend, "template": template}}

    review = bind("a")
    review["request"] |= {
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "subResource": "",
        "name": "train",
        "operation": "UPDATE",
        "oldObject": job("1"),
        "object": job("500m"),
    }
    return review


@pytest.mark.parametrize(("phase", "may"), [("mutate", False), ("validate", True)])
def test_what_only_the_api_server_refuses_of_a_job_is_explained_in_the_mutating_phase(
    cluster: Path, phase: str, may: bool
) -> None:
    def is_allowed(*, suspend: bool) -> bool:
        given = json.dumps(resize(suspend=suspend))
        (answer,) = answers(review(cluster, "--phase", phase, given=given))
        return bool(answer["allowed"])

    assert is_allowed(suspend=True)
    assert is_allowed(suspend=False) == may
