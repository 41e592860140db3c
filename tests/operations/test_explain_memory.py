"""What one explanation keeps of objects that tenants make large."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Final, cast

import pytest

from tests.builders import a_container, a_pod
from tests.operations.scenes import a_cluster, a_gated_pod, a_namespace
from tests.reactions import Call, Proceed, ReactiveClient, expire
from webhook.config import Configuration
from webhook.fakecluster.storage import FakeClient
from webhook.jsonfields.encoding import decoded_bytes, encode_json
from webhook.kube.api import PODS, ClusterApi, Object, Page, Revision
from webhook.operations.explain import session
from webhook.operations.explain.entry import explanation_entry
from webhook.operations.explain.explaining import Target, explain
from webhook.operations.explain.session import ExplainOptions, Session, TooMuchKeptError
from webhook.operations.snapshots.taking import take_snapshot
from webhook.page.explaining import MOST_BYTES, ExplainSettings, PodExplainer

MIB: Final = 2**20
NODE: Final[Object] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1"},
    "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "5000"}},
}
VALUES: Final = 8_000
LARGE: Final[dict[str, Object]] = {
    "env": a_pod(a_container(env=[{"name": "a"}] * VALUES)),
    "tolerations": a_pod(tolerations=[{"key": "a"}] * VALUES),
    "schedulingGates": a_pod(schedulingGates=[{"name": f"a/{n}"} for n in range(VALUES)]),
    "labels": a_pod(metadata={"labels": {f"{n:x}": "" for n in range(VALUES)}}),
}


class OnePage:
    """A server with one pod over and over."""

    def __init__(self, pod: Object, times: int) -> None:
        self._data, self._times = encode_json(pod), times

    def pages(self, *_: object, **__: object) -> Iterator[Page]:
        """Return all of them at once, not decoded."""
        revisions = (
            Revision(key=f"{n}", uid=f"{n}", resource_version=1, data=self._data)
            for n in range(self._times)
        )
        yield Page(tuple(revisions), 1)


@contextmanager
def most_traced() -> Iterator[list[int]]:
    """Measure the most that Python takes meanwhile."""
    peak: list[int] = []
    tracemalloc.start()
    try:
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("pod", LARGE.values(), ids=LARGE.keys())
def test_pods_of_small_values_take_no_more_than_is_allowed(pod: Object) -> None:
    api: Any = OnePage(pod, 40)
    session = Session(api, ExplainOptions(most_bytes=16 * MIB))
    with most_traced() as peak, suppress(TooMuchKeptError):
        session.objects(PODS)
    assert peak[0] < 16 * MIB, f"{peak[0] / MIB:.0f} MiB"


def a_usual_pod(number: int) -> Object:
    """A pod as a Deployment makes it on a cluster with a service mesh: 10 KB, most of it unread."""
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10}
    moment = "2026-11-01T08:00:00Z"
    containers = [
        a_container(
            name,
            requests={"cpu": "10m", "memory": "16Mi"},
            limits={"cpu": "1", "memory": "1Gi"},
            env=[{"name": f"VARIABLE_{n}", "value": f"some value {n}"} for n in range(30)],
            livenessProbe=probe,
            readinessProbe=probe,
            ports=[{"containerPort": 8080, "name": f"http-{name}", "protocol": "TCP"}],
            securityContext={"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True},
            volumeMounts=[{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}],
        )
        for name in ("main", "proxy")
    ]
    statuses = [
        {
            "name": name,
            "ready": True,
            "image": "registry.example/app:1",
            "imageID": f"registry.example/app@sha256:{'a' * 64}",
            "containerID": f"containerd://{'b' * 64}",
            "state": {"running": {"startedAt": moment}},
            "lastState": {},
        }
        for name in ("main", "proxy")
    ]
    fields: Object = {f"f:field{n}": {"f:inner": {}, ".": {}} for n in range(60)}
    managed = {"manager": "kubelet", "operation": "Update", "time": moment, "fieldsV1": fields}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "owner"}
    tolerations = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute"}
        for what in ("not-ready", "unreachable")
    ]
    return a_pod(
        *containers,
        name=f"web-{number}",
        uid=f"uid-{number}",
        node="node-1",
        metadata={
            "labels": {"app": "web", "pod-template-hash": "7d4b9c"},
            "ownerReferences": [owner],
            "managedFields": [managed, managed],
        },
        status={
            "phase": "Running",
            "containerStatuses": statuses,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": moment}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
        },
        tolerations=tolerations,
        volumes=[{"name": "token", "projected": {"sources": [{"configMap": {"name": "ca"}}]}}],
        schedulerName="default-scheduler",
    )


def explained(api: ClusterApi, name: str) -> dict[str, Any]:
    """What the page answers about a pod."""
    settings = ExplainSettings(Configuration, "deferred-quota-system", lambda: 0)
    return PodExplainer(lambda _: nullcontext(api), settings).explain("token", "team-a", name)


def test_a_pod_among_two_thousand_usual_ones_is_explained_with_all_of_them() -> None:
    pods = [a_usual_pod(number) for number in range(2_000)]
    assert len(encode_json(pods[0])) > 8_000
    api: Any = OnePage(pods[0], 2_000)
    assert len(Session(api, ExplainOptions(most_bytes=MOST_BYTES)).objects(PODS)) == 2_000
    cluster = FakeClient(a_cluster(a_namespace(mode=""), NODE, a_pod(name="new", uid="new"), *pods))
    with most_traced() as peak:
        answer = explained(cluster, "new")
    assert not [text for text in answer["unknown"] if "too large" in text]
    assert answer["nodes"] is not None
    assert peak[0] < MOST_BYTES


def test_the_command_line_keeps_of_pods_what_answers_go_by() -> None:
    """A cluster has very many."""
    pod = a_usual_pod(1)
    made = Session(cast("Any", OnePage(pod, 1)), ExplainOptions())
    (kept,) = made.objects(PODS)
    assert len(encode_json(kept)) < len(encode_json(pod)) / 3
    assert made.objects(PODS, are_whole=True) == (pod,)


def test_what_is_left_out_of_pods_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [a_usual_pod(number) for number in range(20)]
    asks = {"cpu": "63900m"}
    new = a_pod(name="new", uid="new", requests=asks)
    cluster = FakeClient(a_cluster(a_namespace(mode=""), NODE, new, *pods))
    for name in ("new", "web-3"):
        of_page = explained(cluster, name)
        options = ExplainOptions(Configuration())
        target = Target(PODS, "team-a", name)
        of_command = explanation_entry(explain(cluster, target, options))
        with monkeypatch.context() as patched:
            patched.setattr(session, "_without_unread", lambda raw: raw)
            whole = explanation_entry(explain(cluster, target, options))
        for answer in (of_page, of_command):
            assert answer == {**whole, "asOf": answer["asOf"]}  # a second may have passed


def one_by_one(call: Call, proceed: Proceed) -> object:
    """Let a list that is read in pages have pages of one object."""
    return proceed(replace(call, options={**call.options, "limit": 1}) if call.is_paged else call)


@pytest.mark.parametrize("times", [0, 1, 3, 100])
def test_what_was_read_before_a_list_expired_is_not_counted(times: int) -> None:
    """Also where it is read as a whole in the end."""
    cluster = a_cluster(*(a_gated_pod(name) for name in "abc"))
    api = ReactiveClient(cluster)
    api.on("list", "*", one_by_one)
    api.on("continue", "*", expire, times=times)
    most = sum(decoded_bytes(encode_json(raw)) for raw in FakeClient(cluster).list(PODS).items)
    assert len(Session(api, ExplainOptions(most_bytes=most)).objects(PODS)) == 3
    api.on("continue", "*", expire, times=times)
    with pytest.raises(TooMuchKeptError):
        Session(api, ExplainOptions(most_bytes=most - 1)).objects(PODS)


def test_what_is_looked_at_aside_shares_the_memory_and_gives_it_back() -> None:
    """Namespaces of other owners are read one after the other, beside what is kept."""
    client = FakeClient(a_cluster(*(a_gated_pod(name) for name in "abc")))
    each = sum(decoded_bytes(encode_json(raw)) for raw in client.list(PODS).items)
    session = Session(client, ExplainOptions(most_bytes=2 * each))
    session.objects(PODS)
    for _ in range(3):
        assert len(session.apart().objects(PODS)) == 3
    session.objects(PODS)
    with pytest.raises(TooMuchKeptError):
        session.apart().objects(PODS)


def test_snapshots_keep_what_statuses_of_containers_say() -> None:
    cluster = FakeClient(a_cluster(a_namespace(), NODE, a_usual_pod(1)))
    taken = take_snapshot(Session(cluster, ExplainOptions())).items
    (pod,) = [one for one in taken if one["kind"] == "Pod"]
    for status in cast("Any", pod)["status"]["containerStatuses"]:
        assert status.keys() >= {"image", "imageID", "lastState"}
