"""Gates go in whole engines with all their threads, also when one ends in the middle."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from tests.admission.handlers.harness import (
    AdmissionHarness,
    a_namespace,
    admission_harness,
    eventually,
    new_cluster,
)
from tests.builders import a_binding, a_pod, a_quota
from tests.reactions import ReactiveClient
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import NAMESPACES, PODS, RESOURCE_QUOTAS, ListOptions
from webhook.kube.informer import InformerTimings
from webhook.runtime import ControllerOptions, Engine, EngineOptions
from webhook.state.well_known import SCHEDULING_GATE
from webhook.telemetry.metrics import Metrics

NS = "team-a"
_QUICK = InformerTimings(first_pause=0.01, longest_pause=0.05)
Object = dict[str, object]


def gated(name: str, cpu: str = "1") -> Object:
    return a_pod(
        name=name,
        uid=f"uid-{name}",
        requests={"cpu": cpu},
        schedulingGates=[{"name": SCHEDULING_GATE}],
    )


def open_pods(cluster: FakeCluster) -> set[str]:
    """Names of the pods without gates."""
    found = FakeClient(cluster).list(PODS, ListOptions(namespace=NS)).items
    return {
        str(cast("Object", one["metadata"])["name"])
        for one in found
        if not cast("Object", one["spec"]).get("schedulingGates")
    }


@contextmanager
def an_engine(cluster: FakeCluster) -> Iterator[Engine]:
    """Run a controller on its own."""
    timing = ControllerTimings(write_interval_seconds=0.005, informer=_QUICK)
    options = EngineOptions(
        with_handlers=False,
        controller=ControllerOptions(timings=timing),
        follow_ledgers=True,
        informer=_QUICK,
    )
    engine = Engine(ReactiveClient(cluster), Metrics(), options)
    engine.start()
    try:
        assert engine.wait_until_ready(10) == []
        yield engine
    finally:
        engine.stop()


def test_a_controller_that_ends_in_the_middle_leaves_nothing_to_be_lost() -> None:
    cluster = new_cluster()
    quota = a_quota("p1", hard={"requests.cpu": "200"})
    cluster.load([(NAMESPACES, a_namespace()), (RESOURCE_QUOTAS, quota)])
    names = [f"w{number:03}" for number in range(300)]
    with an_engine(cluster):
        cluster.load([(PODS, gated(name)) for name in names])
        eventually(lambda: len(open_pods(cluster)) > 20, "some are released")
    before = open_pods(cluster)
    with an_engine(cluster) as second:
        eventually(lambda: len(open_pods(cluster)) == 200, "as many as fit are released")
        assert open_pods(cluster) == set(names[:200]) >= before
        api = FakeClient(cluster)
        for name in names[:200]:
            api.bind(a_binding(name, namespace=NS))
        for name in names[:50]:
            patch = {"status": {"phase": "Succeeded"}}
            api.patch(PODS, name, patch, namespace=NS, subresource="status")
        eventually(lambda: len(open_pods(cluster)) == 250, "the next ones follow")
        assert open_pods(cluster) == set(names[:250])
        harness = AdmissionHarness(cluster, ReactiveClient(cluster), second)
        eventually(harness.is_settled, "the ledger is exact")
    assert not [one for one in threading.enumerate() if one.name.startswith("gates-")]


def test_a_pod_that_was_released_is_bound_through_the_handlers() -> None:
    with admission_harness(a_quota("p1", hard={"requests.cpu": "2"})) as harness:
        harness.wait_until_settled()
        for name in ("a", "b", "c"):
            harness.cluster.load([(PODS, gated(name))])
        eventually(lambda: open_pods(harness.cluster) == {"a", "b"}, "those that fit are released")
        assert {str(one["door"]) for one in harness.reservations().values()} == {"Release"}
        assert harness.bind("a", uid="uid-a").allowed
        assert harness.bind("b", uid="uid-b").allowed
        assert harness.bind("c", uid="uid-c").code == 409
        assert harness.reserved() == {"requests.cpu": "2"}


def test_another_order_in_the_file_takes_effect_at_once(tmp_path: Path) -> None:
    settings = {"queue": {"order": "StrictFIFO"}}
    quota = a_quota("p1", hard={"requests.cpu": "2"})
    with admission_harness(quota, directory=tmp_path, settings=settings) as harness:
        harness.pod(requests={"cpu": "1"}, name="old", uid="uid-old", node="node-1")
        harness.wait_until_settled()
        harness.cluster.load([(PODS, gated("large", "2")), (PODS, gated("small"))])
        harness.wait_until_settled()
        assert open_pods(harness.cluster) == {"old"}
        path = tmp_path / "configuration.yaml"
        text = json.loads(path.read_text(encoding="utf-8"))
        following = {**text, "queue": {"order": "BestEffortFIFO"}}
        path.write_text(json.dumps(following), encoding="utf-8")
        eventually(lambda: open_pods(harness.cluster) == {"old", "small"}, "small ones pass")
