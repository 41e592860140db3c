"""Gates go in whole engines with all their threads, also when one ends in the middle."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from tests.admission.doors.desk import Desk, Line, a_desk, a_namespace, eventually, new_cluster
from tests.builders import a_binding, a_pod, a_quota
from webhook.cluster.api import NAMESPACES, PODS, RESOURCE_QUOTAS
from webhook.cluster.informer import Timing
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.controllers.tracked import TrackerTiming
from webhook.runtime import ControlOptions, Engine, EngineOptions
from webhook.state.names import GATE
from webhook.telemetry.metrics import Metrics

NS = "team-a"
_QUICK = Timing(first_pause=0.01, longest_pause=0.05)
Object = dict[str, object]


def gated(name: str, cpu: str = "1") -> Object:
    return a_pod(
        name=name, uid=f"uid-{name}", requests={"cpu": cpu}, schedulingGates=[{"name": GATE}]
    )


def open_pods(cluster: MemoryCluster) -> set[str]:
    """Names of the pods without gates."""
    found = MemoryClient(cluster).list(PODS, namespace=NS).items
    return {
        str(cast("Object", one["metadata"])["name"])
        for one in found
        if not cast("Object", one["spec"]).get("schedulingGates")
    }


@contextmanager
def an_engine(cluster: MemoryCluster) -> Iterator[Engine]:
    """Run a controller on its own."""
    timing = TrackerTiming(settle_seconds=0.005, informer=_QUICK)
    options = EngineOptions(
        with_doors=False,
        control=ControlOptions(timing=timing),
        follow_ledgers=True,
        informer=_QUICK,
    )
    engine = Engine(Line(cluster), Metrics(), options)
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
        api = MemoryClient(cluster)
        for name in names[:200]:
            api.bind(a_binding(name, namespace=NS))
        for name in names[:50]:
            patch = {"status": {"phase": "Succeeded"}}
            api.patch(PODS, name, patch, namespace=NS, subresource="status")
        eventually(lambda: len(open_pods(cluster)) == 250, "the next ones follow")
        assert open_pods(cluster) == set(names[:250])
        desk = Desk(cluster, Line(cluster), second)
        eventually(desk.is_settled, "the ledger is exact")
    assert not [one for one in threading.enumerate() if one.name.startswith("gates-")]


def test_a_pod_that_was_released_is_bound_through_the_doors() -> None:
    with a_desk(a_quota("p1", hard={"requests.cpu": "2"})) as desk:
        desk.settle()
        for name in ("a", "b", "c"):
            desk.cluster.load([(PODS, gated(name))])
        eventually(lambda: open_pods(desk.cluster) == {"a", "b"}, "those that fit are released")
        assert {str(one["door"]) for one in desk.reservations().values()} == {"Release"}
        assert desk.bind("a", uid="uid-a").allowed
        assert desk.bind("b", uid="uid-b").allowed
        assert desk.bind("c", uid="uid-c").code == 409
        assert desk.reserved() == {"requests.cpu": "2"}


def test_another_order_in_the_file_takes_effect_at_once(tmp_path: Path) -> None:
    settings = {"queue": {"order": "StrictFIFO"}}
    quota = a_quota("p1", hard={"requests.cpu": "2"})
    with a_desk(quota, directory=tmp_path, settings=settings) as desk:
        desk.pod(requests={"cpu": "1"}, name="old", uid="uid-old", node="node-1")
        desk.settle()
        desk.cluster.load([(PODS, gated("large", "2")), (PODS, gated("small"))])
        desk.settle()
        assert open_pods(desk.cluster) == {"old"}
        path = tmp_path / "configuration.yaml"
        text = json.loads(path.read_text(encoding="utf-8"))
        following = {**text, "queue": {"order": "BestEffortFIFO"}}
        path.write_text(json.dumps(following), encoding="utf-8")
        eventually(lambda: open_pods(desk.cluster) == {"old", "small"}, "small ones pass")
