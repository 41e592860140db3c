"""A quota that namespaces share, on real threads: exactly as much is admitted as there is."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import cast

import pytest

from tests.admission.handlers.harness import a_namespace, eventually, new_cluster
from tests.builders import a_binding, a_pod
from tests.state.load import EXPIRE_SECONDS, Replicas, ResponseLog
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, NAMESPACES, PODS, ApiError, ListOptions
from webhook.kube.informer import InformerTimings
from webhook.runtime import ControllerOptions, Engine, EngineOptions
from webhook.state.well_known import SCHEDULING_GATE
from webhook.telemetry.metrics import Metrics

HARD = 20
_QUICK = InformerTimings(first_pause=0.005, longest_pause=0.02)


def an_engine(cluster: FakeCluster, *, with_controller: bool) -> Engine:
    """A replica on a good connection."""
    timing = ControllerTimings(write_interval_seconds=0.005, resync_seconds=0.3, informer=_QUICK)
    control = (
        ControllerOptions(timings=timing, expire_seconds=EXPIRE_SECONDS)
        if with_controller
        else None
    )
    options = EngineOptions(controller=control, informer=_QUICK, follow_ledgers=True)
    return Engine(FakeClient(cluster), Metrics(), options)


def granted(api: FakeClient) -> dict[str, int]:
    """What each namespace holds."""
    raw = api.get(CLUSTER_DEFERRED_QUOTAS, "both")
    status = cast("Mapping[str, list[Mapping[str, object]]]", raw.get("status") or {})
    return {
        str(one["name"]): int(cast("Mapping[str, str]", one["granted"]).get("requests.cpu", "0"))
        for one in status.get("namespaces", [])
    }


class Binders:
    """Schedulers that try again and again, one for each namespace and replica."""

    def __init__(self, cluster: FakeCluster, replicas: Replicas, namespaces: list[str]) -> None:
        self._api = FakeClient(cluster, admission=replicas)
        self._replicas = replicas
        self.stopping = threading.Event()
        self.said: Counter[str] = Counter()
        self.threads = [
            threading.Thread(target=self._run, args=(namespace,), daemon=True)
            for namespace in namespaces
        ]

    def _run(self, namespace: str) -> None:
        while not self.stopping.is_set():
            waiting = self._api.list(
                PODS, ListOptions(namespace=namespace, field_selector="spec.nodeName=")
            ).items
            for pod in waiting:
                metadata = cast("Mapping[str, str]", pod["metadata"])
                binding = a_binding(metadata["name"], namespace=namespace, uid=metadata["uid"])
                try:
                    with self._replicas.request():
                        self._api.bind(binding)
                except ApiError as err:
                    self.said[f"{err.code} {err.message}"] += 1
                    if err.code == 429:
                        time.sleep(0.02)
                if self.stopping.is_set():
                    return
            time.sleep(0.005)


@pytest.mark.parametrize("number", [2, 10], ids=["two namespaces", "ten namespaces"])
@pytest.mark.parametrize("run", range(3))
@pytest.mark.parametrize("gated", [0, 2], ids=["", "every second behind our gate"])
def test_as_much_is_admitted_as_there_is(number: int, run: int, gated: int) -> None:
    cluster = new_cluster()
    names = [f"team-{index}" for index in range(number)]
    cluster.load([(NAMESPACES, a_namespace(name)) for name in names])
    cluster.load(
        [
            (
                PODS,
                a_pod(
                    name=f"p-{one}",
                    namespace=name,
                    uid=f"{name}-{one}",
                    requests={"cpu": "1"},
                    schedulingGates=[{"name": SCHEDULING_GATE}]
                    if gated and one % gated == 0
                    else [],
                ),
            )
            for name in names
            for one in range(40 // number)
        ]
    )
    api = FakeClient(cluster)
    api.create(
        CLUSTER_DEFERRED_QUOTAS,
        {
            "apiVersion": CLUSTER_DEFERRED_QUOTAS.api_version,
            "kind": CLUSTER_DEFERRED_QUOTAS.kind,
            "metadata": {"name": "both"},
            "spec": {"namespaceSelector": {}, "hard": {"requests.cpu": str(HARD)}},
        },
    )
    engines = [an_engine(cluster, with_controller=index == 0) for index in range(2)]
    for engine in engines:
        engine.start()
    try:
        assert [one.wait_until_ready(10) for one in engines] == [[], []]
        replicas = Replicas(engines, ResponseLog(cluster), seed=run)
        binders = Binders(cluster, replicas, names)
        for thread in binders.threads:
            thread.start()

        def bound() -> int:
            pods = api.list(PODS).items
            return sum(
                bool(cast("Mapping[str, object]", one["spec"]).get("nodeName")) for one in pods
            )

        try:
            give_up = time.monotonic() + 20
            while (found := bound()) < HARD:
                assert time.monotonic() < give_up, f"{found}: {binders.said}"
                time.sleep(0.01)
            time.sleep(0.3)
            assert bound() == HARD
        finally:
            binders.stopping.set()
            for thread in binders.threads:
                thread.join(20)
        assert bound() == HARD
        eventually(lambda: sum(granted(api).values()) == HARD, "what is granted is what is taken")
    finally:
        for engine in engines:
            engine.stop()
