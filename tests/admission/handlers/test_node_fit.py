"""`nodeFit`: binds to nodes whose kubelets would not admit the pod."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import AdmissionHarness, Reply, eventually
from tests.builders import a_quota
from tests.reactions import Call, Proceed, forbid, unreachable
from webhook.kube.api import NODES, PODS, RESOURCE_QUOTAS, Object

Open = Callable[..., AdmissionHarness]

MESSAGE = "the kubelet of node node-1 would not admit the pod: "
FULL = f"{MESSAGE}OutOfcpu (requested: 2, used: 3, allocatable: 4)"


def a_node(name: str = "node-1", cpu: str = "4", pods: str = "10", **spec: object) -> Object:
    room = {"cpu": cpu, "memory": "8Gi", "pods": pods}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": "a"}},
        "spec": spec,
        "status": {"allocatable": room},
    }


@pytest.fixture
def judging(open_harness: OpenHarness) -> Open:
    """Opens a harness with a quota that does not matter, and one node of 4 cpu."""

    def opened(mode: str = "Deny", *nodes: Object) -> AdmissionHarness:
        harness = open_harness(
            a_quota("p1", hard={"requests.cpu": "100"}),
            *(nodes or (a_node(),)),
            settings={"nodeFit": mode},
        )
        harness.catch_up()
        harness.wait_until_settled()
        return harness

    return opened


def waiting(harness: AdmissionHarness, name: str, cpu: str = "1", **fields: object) -> str:
    harness.pod(name=name, uid=f"uid-{name}", requests={"cpu": cpu}, **fields)
    harness.catch_up()
    return f"uid-{name}"


def running(harness: AdmissionHarness, name: str, cpu: str) -> None:
    harness.pod(name=name, uid=f"uid-{name}", requests={"cpu": cpu}, node="node-1")
    harness.wait_until_settled()


def waiting_uncached(harness: AdmissionHarness, name: str, cpu: str) -> str:
    """Store a pod that waits; a cache of nodes that cannot be filled is not waited for."""
    harness.pod(name=name, uid=f"uid-{name}", requests={"cpu": cpu})
    return f"uid-{name}"


def configure(directory: Path, mode: str) -> None:
    path = directory / "configuration.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "nodeFit": mode}))


def test_a_pod_that_its_kubelet_would_not_admit_is_refused_with_the_numbers(judging: Open) -> None:
    harness = judging()
    running(harness, "runs", "3")
    uid = waiting(harness, "web-1", "2")
    before = harness.ledger_version()
    reply = harness.bind("web-1", uid=uid)
    assert (reply.code, reply.reason, reply.message) == (403, "Forbidden", FULL)
    assert reply.causes == [("NodeFit", "node-1/OutOfcpu", "requested: 2, used: 3, allocatable: 4")]
    assert reply.audit == {"decision": "denied", "node": "node-1", "reason": FULL}
    assert harness.ledger_version() == before


def test_a_warning_goes_with_a_bind_that_is_charged(judging: Open) -> None:
    harness = judging("Warn")
    running(harness, "runs", "3")
    uid = waiting(harness, "web-1", "2")
    reply = harness.bind("web-1", uid=uid)
    assert (reply.allowed, reply.warnings, reply.decision) == (True, [FULL], "reserved")


def test_a_warning_needs_no_call_of_the_api_server(judging: Open) -> None:
    harness = judging("Warn")
    running(harness, "runs", "3")
    uid = waiting(harness, "web-1", "2")
    for verb in ("get", "list"):
        for kind in (NODES, PODS):
            harness.client.on(verb, kind, unreachable)
    assert harness.bind("web-1", uid=uid).warnings == [FULL]


def test_without_the_setting_nodes_are_neither_followed_nor_read(judging: Open) -> None:
    harness = judging("Off")
    running(harness, "runs", "3")
    reply = harness.bind("web-1", uid=waiting(harness, "web-1", "2"))
    assert (reply.allowed, reply.warnings) == (True, [])
    assert not [call for call in harness.client.calls if call.kind == NODES]
    assert "nodes" not in harness.engine.informers


def test_a_pod_that_fits_needs_no_call_of_the_api_server(judging: Open) -> None:
    harness = judging()
    running(harness, "runs", "3")
    uid = waiting(harness, "web-1", "1")
    for verb in ("get", "list"):
        for kind in (NODES, PODS):
            harness.client.on(verb, kind, unreachable)
    assert harness.bind("web-1", uid=uid).allowed


REFUSED: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
    "selector": (
        {},
        {"nodeSelector": {"zone": "b"}},
        "NodeAffinity (the node does not match the pod's node selector or affinity)",
    ),
    "taint": (
        {"taints": [{"key": "broken", "effect": "NoExecute"}]},
        {},
        "TaintToleration (not tolerated: broken:NoExecute)",
    ),
    "pod count": (
        {"pods": "0"},
        {},
        "OutOfpods (requested: 1, used: 0, allocatable: 0)",
    ),
}


@pytest.mark.parametrize(("node", "pod", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_other_reasons_of_kubelets(
    judging: Open, node: dict[str, object], pod: dict[str, object], expected: str
) -> None:
    harness = judging("Deny", a_node(**node))  # type: ignore[arg-type]
    reply = harness.bind("web-1", uid=waiting(harness, "web-1", "1", **pod))
    assert (reply.code, reply.message) == (403, MESSAGE + expected)


@pytest.mark.parametrize("mode", ["Warn", "Deny"])
def test_an_operating_system_is_a_warning_as_no_scheduler_looks_at_it(
    judging: Open, mode: str
) -> None:
    """The scheduler would choose the node again and again, and evict others for the pod."""
    harness = judging(mode, windows_node())
    uid = waiting(harness, "web-1", "1", os={"name": "linux"})
    reply = harness.bind("web-1", uid=uid)
    words = "PodOSNotSupported (the pod is for linux, the node has windows)"
    assert (reply.allowed, reply.warnings, reply.decision) == (True, [MESSAGE + words], "reserved")
    if mode == "Deny":
        running(harness, "runs", "3")
        uid = waiting(harness, "web-2", "2", os={"name": "linux"})
        refused = harness.bind("web-2", uid=uid)
        assert (refused.code, refused.message) == (
            403,
            f"{MESSAGE}{words}; {FULL.removeprefix(MESSAGE)}",
        )


def windows_node() -> dict[str, object]:
    made = a_node()
    return {**made, "status": {**made["status"], "nodeInfo": {"operatingSystem": "windows"}}}  # type: ignore[dict-item]


def test_what_is_not_known_is_never_a_refusal(judging: Open) -> None:
    harness = judging("Deny", a_node("node-2"))
    uid = waiting(harness, "web-1", "9")
    assert harness.bind("web-1", uid=uid).allowed  # no such node


@pytest.mark.parametrize("kind", [NODES, PODS], ids=["node", "pods"])
def test_an_api_server_that_does_not_answer_is_no_refusal(judging: Open, kind: object) -> None:
    harness = judging()
    uid = waiting(harness, "web-1", "9")
    harness.client.on("get" if kind == NODES else "list", kind, unreachable)  # type: ignore[arg-type]
    assert harness.bind("web-1", uid=uid).allowed


def test_a_right_that_is_missing_is_no_refusal_and_is_reported(
    judging: Open, tmp_path: Path
) -> None:
    harness = judging("Off")
    harness.client.on("list", NODES, forbid)
    configure(tmp_path, "Deny")
    eventually(lambda: bool(harness.engine.warnings()), "the error is reported")
    (warning,) = harness.engine.warnings()
    assert warning.startswith("nodeFit: nodes cannot be listed: ")
    # it does its other work
    eventually(lambda: harness.engine.readiness_problems() == [], "the process is ready")
    assert harness.bind("web-1", uid=waiting_uncached(harness, "web-1", "9")).allowed


def test_what_changed_a_moment_ago_is_asked_of_the_api_server(judging: Open) -> None:
    harness = judging()
    running(harness, "runs", "3")
    uid = waiting(harness, "web-1", "2")
    pods = harness.engine.informers["pods of all nodes"]
    pods.stop()  # from here on the cache shows what was
    harness.finish("runs")
    assert harness.bind("web-1", uid=uid).allowed


def test_the_pods_of_nodes_are_read_in_turn_and_in_pages(judging: Open) -> None:
    """Pods can be so large that all those of a node take more memory than a replica has."""
    harness = judging()
    running(harness, "runs", "3")
    uid = waiting(harness, "web-1", "2")
    reads, goes_on = threading.Event(), threading.Event()

    def wait(_call: Call, proceed: Proceed) -> object:
        reads.set()
        goes_on.wait(30)
        return proceed()

    with harness.client.on("list", PODS, wait):
        first = threading.Thread(target=harness.bind, args=("web-1",), kwargs={"uid": uid})
        first.start()
        assert reads.wait(30)
        refused = harness.bind("web-1", uid=uid)
        goes_on.set()
        first.join()
    assert (refused.code, refused.message) == (429, FULL)
    lists = harness.client.calls_of("list", PODS)
    assert (
        len([one for one in lists if one.selection.field_selector == "spec.nodeName=node-1"]) == 1
    )
    assert all(call.is_paged for call in harness.client.calls_of("list", PODS))
    assert harness.bind("web-1", uid=uid).code == 403


def test_a_bind_that_is_not_seen_yet_counts(judging: Open) -> None:
    harness = judging()
    first, second = waiting(harness, "web-1", "3"), waiting(harness, "web-2", "2")
    assert harness.bind("web-1", uid=first).allowed
    reply = harness.bind("web-2", uid=second)
    assert reply.code == 429
    assert reply.message == (
        "the kubelet of node node-1 would not admit the pod, with 1 pod being bound to it:"
        " OutOfcpu (requested: 2, used: 3, allocatable: 4)"
    )
    assert harness.bind("web-1", uid=first).allowed  # asked again: it does not count twice


def test_a_bind_that_quota_refuses_does_not_count(judging: Open) -> None:
    harness = judging()
    first, second = waiting(harness, "web-1", "3"), waiting(harness, "web-2", "2")
    quota = {"spec": {"hard": {"requests.cpu": "2"}}}
    harness.api.patch(RESOURCE_QUOTAS, "p1", quota, namespace="team-a")
    harness.wait_until_settled()
    assert harness.bind("web-1", uid=first).code == 403
    assert harness.bind("web-2", uid=second).allowed


def test_a_dry_run_takes_no_room(judging: Open) -> None:
    harness = judging()
    first, second = waiting(harness, "web-1", "3"), waiting(harness, "web-2", "2")
    assert harness.bind("web-1", uid=first, dry_run=True).allowed
    assert harness.bind("web-2", uid=second).allowed


def test_a_refused_dry_run_gives_no_room_back(judging: Open) -> None:
    harness = judging()
    first, second = waiting(harness, "web-1", "3"), waiting(harness, "web-2", "2")
    assert harness.bind("web-1", uid=first).allowed
    for limit, is_allowed in (("2", False), ("10", True)):
        quota = {"spec": {"hard": {"requests.cpu": limit}}}
        harness.api.patch(RESOURCE_QUOTAS, "p1", quota, namespace="team-a")
        harness.wait_until_settled()
        assert harness.bind("web-1", uid=first, dry_run=True).allowed is is_allowed
    assert harness.bind("web-2", uid=second).code == 429


def test_binds_at_once_never_take_more_than_the_node_has(judging: Open) -> None:
    harness = judging("Deny", a_node(pods="100"))
    names = [f"web-{number}" for number in range(12)]
    for name in names:
        waiting(harness, name, "1")
    start, replies = threading.Barrier(len(names)), dict[str, Reply]()

    def bind(name: str) -> None:
        start.wait()
        replies[name] = harness.bind_in_fact(name)

    threads = [threading.Thread(target=bind, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(reply.allowed for reply in replies.values()) == 4
    assert {reply.code for reply in replies.values() if not reply.allowed} <= {403, 429}
    left = next(name for name in names if not replies[name].allowed)
    eventually(lambda: harness.bind_in_fact(left).code == 403, "all binds are stored")


def test_a_change_of_the_setting_takes_no_restart(judging: Open, tmp_path: Path) -> None:
    harness = judging("Off")
    running(harness, "runs", "3")
    uid = waiting(harness, "web-1", "2")
    assert harness.bind("web-1", uid=uid, dry_run=True).allowed
    configure(tmp_path, "Deny")
    eventually(lambda: harness.bind("web-1", uid=uid, dry_run=True).code == 403, "it is judged")
    configure(tmp_path, "Off")
    eventually(lambda: harness.bind("web-1", uid=uid, dry_run=True).allowed, "it is not judged")
    eventually(lambda: "nodes" not in harness.engine.informers, "nodes are not followed")
