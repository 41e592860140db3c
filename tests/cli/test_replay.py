"""`deferred-quota replay`: audit logs and reviews on a snapshot."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from webhook.cli import ExitCode, cli

CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1}}
status: {allocatable: {cpu: "8", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: compute, namespace: team-a}
spec: {hard: {requests.cpu: "2"}}
"""
Line = Mapping[str, Any]


def a_pod(name: str, job: str, **spec: Any) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a", "ownerReferences": [owner]},
        "spec": {"containers": [container], **spec},
    }


def event(second: int, verb: str, name: str, subresource: str = "", **fields: Any) -> Line:
    status = {"code": 201, **fields.pop("responseStatus", {})}
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": verb,
        "objectRef": {
            "resource": "pods",
            "namespace": "team-a",
            "name": name,
            "subresource": subresource,
        },
        "responseStatus": status,
        "stageTimestamp": f"2026-11-23T08:{second // 60:02}:{second % 60:02}.000000Z",
        **fields,
    }


def refused(second: int, job: str) -> Line:
    message = 'pods "x" is forbidden: exceeded quota: compute, requested: requests.cpu=2'
    sent = a_pod("", job)
    sent["metadata"]["generateName"] = f"{job}-"
    return event(
        second, "create", "", requestObject=sent, responseStatus={"code": 403, "message": message}
    )


def created(second: int, pod: dict[str, Any]) -> Line:
    return event(second, "create", "", responseObject=pod)


STORY = (
    # without a node, and charged all the same
    created(0, a_pod("train-1", "train", nodeSelector={"gpu": "yes"})),
    refused(10, "report"),
    refused(20, "report"),
    event(60, "delete", "train-1", responseStatus={"code": 200}),
    created(70, a_pod("report-1", "report")),
    event(71, "create", "report-1", "binding"),
    event(
        100,
        "patch",
        "report-1",
        "status",
        responseStatus={"code": 200},
        responseObject={"kind": "Pod", "status": {"phase": "Succeeded"}},
    ),
    event(101, "delete", "report-1", responseStatus={"code": 200}),
    # with the time that it is given to end, then by its kubelet
    event(170, "delete", "unheard-of", responseStatus={"code": 200}),
    event(200, "delete", "unheard-of", responseStatus={"code": 200}),
)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return path


def written(folder: Path, lines: Iterable[Line], name: str = "audit.log") -> Path:
    path = folder / name
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def replay(cluster: Path, *arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["replay", "--snapshot", str(cluster), *map(str, arguments)])


TEXT = """\
3m20s from 2026-11-23T08:00:00Z on
WORKLOAD           PODS            STARTED  REFUSED  WAIT P50  WAIT P99
team-a/Job/report     1  recorded        1        2      1m1s      1m1s
                         native          1        6      1m3s      1m3s
                         deferred        1        0        0s        0s
                         gated           1        0       50s       50s
team-a/Job/train      1  recorded        0        0         -         -
                         native          0        0         -         -
                         deferred        0        0         -         -
                         gated           0        0         -         -
"""


def test_every_workload_has_what_was_and_what_would_have_been(
    cluster: Path, tmp_path: Path
) -> None:
    ran = replay(cluster, written(tmp_path, STORY))
    assert ran.exit_code == ExitCode.OK, ran.output
    assert ran.stdout == TEXT
    assert ran.stderr == (
        "note: ended pods that neither log nor snapshot has: 1; they are left out\n"
    )


def test_pods_that_were_refused_to_the_end_are_in_the_namespace_of_their_request(
    cluster: Path, tmp_path: Path
) -> None:
    """Controllers send pods without a namespace, and a log has them as they were sent."""
    lines = [created(0, a_pod("train-1", "train")), refused(10, "report"), refused(20, "report")]
    for line in lines[1:]:
        del line["requestObject"]["metadata"]["namespace"]
    ran = replay(cluster, written(tmp_path, lines), "--mode", "native", "-o", "json")
    by_name = {one["workload"]: one for one in json.loads(ran.stdout)["workloads"]}
    report = by_name["team-a/Job/report"]
    assert report["recorded"]["refused"] == 2
    assert report["native"]["started"] == 0


def test_logs_in_parts_are_one_whatever_their_order(cluster: Path, tmp_path: Path) -> None:
    first = written(tmp_path, STORY[:4], "audit-1.log.gz")
    second = written(tmp_path, STORY[4:], "audit-2.log")
    assert replay(cluster, second, first).stdout == TEXT


def test_json_has_the_same_figures(cluster: Path, tmp_path: Path) -> None:
    ran = replay(cluster, written(tmp_path, STORY), "--mode", "gated", "-o", "json")
    (report, _) = json.loads(ran.stdout)["workloads"]
    assert report == {
        "workload": "team-a/Job/report",
        "pods": 1,
        "recorded": {"started": 1, "refused": 2, "waitP50": 61_000, "waitP99": 61_000},
        "gated": {"started": 1, "refused": 0, "waitP50": 50_000, "waitP99": 50_000},
    }


def test_what_ran_before_takes_quota_until_it_ends(cluster: Path, tmp_path: Path) -> None:
    there = a_pod("old", "old", nodeName="node-1")
    there["metadata"]["creationTimestamp"] = "2026-11-22T00:00:00Z"
    cluster.write_text(f"{CLUSTER}---\n{json.dumps(there)}\n")
    log = written(
        tmp_path,
        [
            created(0, a_pod("new-1", "new")),
            event(30, "delete", "old", responseStatus={"code": 200}),
            event(90, "create", "new-1", "binding"),
        ],
    )
    ran = replay(cluster, log, "--mode", "gated", "-o", "json")
    (new,) = json.loads(ran.stdout)["workloads"]
    assert new["workload"] == "team-a/Job/new"
    assert new["gated"] == {"started": 1, "refused": 0, "waitP50": 30_000, "waitP99": 30_000}


def test_dry_runs_and_other_stages_are_no_requests(cluster: Path, tmp_path: Path) -> None:
    early = {**STORY[0], "stage": "RequestReceived"}
    dry = {**STORY[0], "requestURI": "/api/v1/namespaces/team-a/pods?dryRun=All"}
    assert replay(cluster, written(tmp_path, [early, dry, *STORY])).stdout == TEXT


EVICTION = {"kind": "Eviction", "deleteOptions": {"dryRun": ["All"]}}
TRIED: dict[str, Line] = {
    "deletion": event(
        5, "delete", "train-1", requestObject={"kind": "DeleteOptions", "dryRun": ["All"]}
    ),
    "eviction": event(5, "create", "train-1", "eviction", requestObject=EVICTION),
}


@pytest.mark.parametrize("tried", TRIED.values(), ids=TRIED.keys())
def test_a_dry_run_deletes_no_pod(cluster: Path, tmp_path: Path, tried: Line) -> None:
    lines = [line for line in STORY if line["objectRef"]["name"] != "train-1"]
    plain = replay(cluster, written(tmp_path, [STORY[0], *lines])).stdout
    assert replay(cluster, written(tmp_path, [STORY[0], tried, *lines])).stdout == plain


def test_a_json_patch_of_a_status_without_its_answer_is_read(cluster: Path, tmp_path: Path) -> None:
    patch = [{"op": "replace", "path": "/status/reason", "value": "x"}]
    sent = event(
        80, "patch", "report-1", "status", requestObject=patch, responseStatus={"code": 200}
    )
    ran = replay(cluster, written(tmp_path, [*STORY, sent]))
    assert (ran.exit_code, ran.stdout) == (ExitCode.OK, TEXT), ran.stderr


BAD = {
    "no JSON": ("{", "line 2: Input data was truncated"),
    "another kind": ('{"kind": "Pod", "apiVersion": "v1"}', "kind: must be an Event of audit"),
    "no version": ('{"kind": "Event"}', "v1, not Event without apiVersion"),
    "no kind": ('{"kind": null, "apiVersion": "v1"}', "v1, not v1 without kind"),
    "neither": ("{}", "v1, not an object without kind and apiVersion"),
    "a wrong type": (
        json.dumps({**STORY[0], "objectRef": []}),
        "line 2: objectRef: must be an object",
    ),
    "an amount that is none": (
        json.dumps(
            created(
                5,
                {
                    **a_pod("odd", "odd"),
                    "spec": {
                        "containers": [{"name": "m", "resources": {"requests": {"cpu": "x"}}}]
                    },
                },
            )
        ),
        "(pod odd)",
    ),
    "a pod that is on no node by its type": (
        json.dumps(created(5, a_pod("odd", "odd", nodeName=7))),
        "spec.nodeName: must be a string, not a number (pod odd)",
    ),
    "a refused pod with an odd owner": (
        json.dumps(
            event(
                5,
                "create",
                "odd",
                requestObject={"metadata": {"ownerReferences": 7}},
                responseStatus={"code": 403, "message": "exceeded quota: compute"},
            )
        ),
        "metadata.ownerReferences: must be a list, not a number (pod odd)",
    ),
}


@pytest.mark.parametrize(("line", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named_with_its_place(
    cluster: Path, tmp_path: Path, line: str, words: str
) -> None:
    path = written(tmp_path, STORY[:1])
    path.write_text(f"{path.read_text()}{line}\n")
    ran = replay(cluster, path)
    assert ran.exit_code == ExitCode.BAD_INPUT
    assert words in ran.stderr


def test_every_file_that_cannot_be_read_is_named(cluster: Path, tmp_path: Path) -> None:
    cut = written(tmp_path, STORY, "cut.log.gz")
    cut.write_bytes(cut.read_bytes()[:-20])
    ran = replay(cluster, tmp_path / "none.log", cut)
    assert ran.exit_code == ExitCode.BAD_INPUT
    assert "none.log: No such file or directory" in ran.stderr
    assert "cut.log.gz: invalid gzip file" in ran.stderr


def test_a_log_without_pods_says_which_level_has_them(cluster: Path, tmp_path: Path) -> None:
    brief = {key: value for key, value in STORY[0].items() if key != "responseObject"}
    ran = replay(cluster, written(tmp_path, [brief]))
    assert ran.exit_code == ExitCode.BAD_INPUT
    assert "1 of them creations without the pod" in ran.stderr
    assert "level RequestResponse" in ran.stderr


def test_a_snapshot_without_nodes_is_refused(cluster: Path, tmp_path: Path) -> None:
    cluster.write_text(CLUSTER.partition("---\n")[2])
    ran = replay(cluster, written(tmp_path, STORY))
    assert ran.exit_code == ExitCode.BAD_INPUT
    assert "the snapshot has no nodes" in ran.stderr


# -- reviews -------------------------------------------------------------------------------


def review(operation: str, pod: dict[str, Any], subresource: str = "") -> Line:
    name, uid = pod["metadata"]["name"], f"uid-{pod['metadata']['name']}"
    obj = {**pod, "metadata": {**pod["metadata"], "uid": uid}}
    kind = "Pod"
    if subresource == "binding":
        kind = "Binding"
        obj = {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "team-a", "uid": uid},
            "target": {"kind": "Node", "name": "node-1"},
        }
    request = {
        "uid": f"{operation}-{subresource}-{name}",
        "kind": {"group": "", "version": "v1", "kind": kind},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": subresource,
        "name": name,
        "namespace": "team-a",
        "operation": operation,
        "object": obj,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def test_reviews_are_summed_by_workload(cluster: Path, tmp_path: Path) -> None:
    pods = [a_pod(name, name.partition("-")[0]) for name in ("a-1", "a-2", "b-1")]
    lines = [review("CREATE", pod) for pod in pods]
    lines += [review("CREATE", pod, "binding") for pod in pods]
    ran = replay(cluster, written(tmp_path, lines), "-o", "json")
    assert ran.exit_code == ExitCode.OK, ran.output
    found = {
        (one["workload"], one["request"], one["decision"]): (one["count"], one["example"])
        for one in json.loads(ran.stdout)["reviews"]
    }
    full = "exceeded quota: compute, requested: requests.cpu=2, used: requests.cpu=2, limited: "
    assert found["team-a/Job/a", "CREATE pods/binding", "reserved"] == (1, "")
    for job in ("a", "b"):
        count, words = found[f"team-a/Job/{job}", "CREATE pods/binding", "denied"]
        assert count == 1
        assert words.startswith(full)
    assert sum(count for count, _ in found.values()) == len(lines)


def test_a_bind_without_a_uid_is_answered_with_the_one_that_is_added(
    cluster: Path, tmp_path: Path
) -> None:
    pod = a_pod("a-1", "a")
    bind = review("CREATE", pod, "binding")
    del bind["request"]["object"]["metadata"]["uid"]
    ran = replay(cluster, written(tmp_path, [review("CREATE", pod), bind]), "-o", "json")
    (_, bound) = json.loads(ran.stdout)["reviews"]
    assert (bound["request"], bound["decision"]) == ("CREATE pods/binding", "reserved"), bound


def test_a_line_that_is_no_review_is_named_and_the_others_are_answered(
    cluster: Path, tmp_path: Path
) -> None:
    path = written(tmp_path, [review("CREATE", a_pod("a-1", "a")), {"kind": "Pod"}])
    ran = replay(cluster, path)
    assert ran.exit_code == ExitCode.BAD_INPUT
    assert "line 2: kind: must be AdmissionReview" in ran.stderr
    assert "team-a/Job/a" in ran.stdout
