"""Clusters in memory for operations: an API server with its own quota check, and what is installed.

Nobody waits for time here: pauses are short, and every wait is for something to be so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from tests.admission.handlers.harness import new_cluster
from tests.builders import a_pod, a_quota
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.fakecluster.storage.admission_hook import WriteRequest
from webhook.kube.api import (
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    ConflictError,
    ForbiddenError,
    ListOptions,
    NotFoundError,
    kind_of,
)
from webhook.kube.api import Object as ApiObject
from webhook.kube.kinds import Kind
from webhook.operations.retry import RetryPolicy
from webhook.quota.amounts.resources import to_text
from webhook.quota.charging.evaluation import evaluate
from webhook.quota.charging.status_mask import native_count
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.well_known import MODE_LABEL, SCHEDULING_GATE

Object = dict[str, object]

NAMESPACE = "team-a"
QUICK = RetryPolicy(seconds=20, pause_seconds=0.005, settle_seconds=0.05)


def a_namespace(name: str = NAMESPACE, mode: str = "deferred", **labels: str) -> Object:
    """A namespace; without a mode it is not opted in."""
    wanted = {**({MODE_LABEL: mode} if mode else {}), **labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": wanted}}


def a_terminating_namespace(name: str = NAMESPACE, mode: str = "deferred") -> Object:
    """A namespace that was deleted, and of which not everything is gone yet."""
    made: Any = a_namespace(name, mode)
    made["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}
    return cast("Object", made)


def a_gated_pod(name: str, *gates: str, namespace: str = NAMESPACE, cpu: str = "1") -> Object:
    """A pod that waits behind our gate, or behind those that are given."""
    wanted = [{"name": gate} for gate in gates or (SCHEDULING_GATE,)]
    return a_pod(
        name=name,
        namespace=namespace,
        uid=f"uid-{name}",
        requests={"cpu": cpu},
        schedulingGates=wanted,
    )


def a_masked_quota(
    name: str = "p1", hard: Mapping[str, str] | None = None, *, namespace: str = NAMESPACE
) -> Object:
    """A quota whose status has everything but the deferred resources."""
    quota = a_quota(name, namespace=namespace, uid=f"uid-{name}", hard=hard, used={})
    limits = {key: value for key, value in (hard or {}).items() if key not in DEFERRED_KEYS}
    quota["status"] = {"hard": limits, "used": dict.fromkeys(limits, "0")}
    return quota


def a_cluster(*objects: Mapping[str, object]) -> FakeCluster:
    """A cluster with some objects as they are."""
    cluster = new_cluster()
    load(cluster, *objects)
    return cluster


def load(cluster: FakeCluster, *objects: Mapping[str, object]) -> None:
    """Put objects in as they are."""
    cluster.load([(kind_of_object(one), one) for one in objects])


def kind_of_object(obj: Mapping[str, object]) -> Kind:
    metadata = cast("Object", obj["metadata"])
    kind, version = str(obj["kind"]), str(obj["apiVersion"])
    return kind_of(version, kind, namespaced="namespace" in metadata)


def labels_of(api: FakeClient, namespace: str = NAMESPACE) -> Mapping[str, object]:
    metadata = cast("Object", api.get(NAMESPACES, namespace)["metadata"])
    return cast("Object", metadata.get("labels") or {})


def status_of(api: FakeClient, quota: str = "p1", namespace: str = NAMESPACE) -> Object:
    return cast("Object", api.get(RESOURCE_QUOTAS, quota, namespace=namespace)["status"])


def gates_of(api: FakeClient, pod: str, namespace: str = NAMESPACE) -> list[object]:
    spec = cast("Object", api.get(PODS, pod, namespace=namespace)["spec"])
    gates = cast("list[Object]", spec.get("schedulingGates") or [])
    return [gate["name"] for gate in gates]


def names(pods: Iterable[ApiObject]) -> list[object]:
    return [cast("Object", pod["metadata"])["name"] for pod in pods]


class ApiServer:
    """The admission of an API server: it gates pods where the label says so, masks, and charges.

    What it knows of labels and quotas is as old as `refresh` was called the last time, as the
    caches of a real one are behind.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._api = FakeClient(cluster)
        self._labels: dict[str, Mapping[str, object]] = {}
        self._quotas: list[ResourceQuota] = []
        self._lock = threading.Lock()
        self.refresh()

    def refresh(self) -> None:
        """See the cluster as it is now."""
        quotas = [ResourceQuota.from_object(one) for one in self._api.list(RESOURCE_QUOTAS).items]
        labels: dict[str, Mapping[str, object]] = {
            str(cast("Object", one["metadata"])["name"]): cast(
                "Object", cast("Object", one["metadata"]).get("labels") or {}
            )
            for one in self._api.list(NAMESPACES).items
        }
        with self._lock:
            self._quotas, self._labels = quotas, labels

    def is_deferred(self, namespace: str) -> bool:
        return self._labels.get(namespace, {}).get(MODE_LABEL) == "deferred"

    def mutate(self, request: WriteRequest) -> ApiObject | None:
        if request.new is None or not self.is_deferred(request.namespace):
            return request.new
        new = dict(request.new)
        if request.kind == PODS and request.operation == "CREATE":
            spec = dict(cast("Object", new["spec"]))
            gates = list(cast("list[object]", spec.get("schedulingGates") or []))
            new["spec"] = {**spec, "schedulingGates": [*gates, {"name": SCHEDULING_GATE}]}
        elif request.kind == RESOURCE_QUOTAS and request.subresource == "status":
            status = cast("dict[str, Object]", new.get("status") or {})
            new["status"] = {
                part: {key: each for key, each in amounts.items() if key not in DEFERRED_KEYS}
                for part, amounts in status.items()
            }
        return new

    def validate(self, request: WriteRequest) -> None:
        if request.kind != PODS or request.operation != "CREATE" or request.new is None:
            return
        while not self._charge(request.namespace, request.new):
            self.refresh()

    def _charge(self, namespace: str, pod: ApiObject) -> bool:
        """Charge a pod in the statuses as last seen; False when they are not so any more."""
        with self._lock:
            quotas = [quota for quota in self._quotas if quota.namespace == namespace]
        raw = [_as_stored(quota) for quota in quotas]
        verdict = evaluate(pod, raw)
        if not verdict.allowed:
            raise ForbiddenError(verdict.message)
        for quota in quotas:
            after = verdict.used_after.get(quota.name)
            if not after or to_text(after) == to_text(quota.status_used):
                continue
            patch = {
                "metadata": {"resourceVersion": quota.resource_version},
                "status": {"used": to_text(after)},
            }
            try:
                self._api.patch(
                    RESOURCE_QUOTAS,
                    quota.name,
                    patch,
                    namespace=namespace,
                    subresource="status",
                )
            except ConflictError:
                return False
        return True


def _as_stored(quota: ResourceQuota) -> Object:
    raw = a_quota(quota.name, namespace=quota.namespace, uid=quota.uid, hard=to_text(quota.hard))
    raw["status"] = {"hard": to_text(quota.status_hard), "used": to_text(quota.status_used)}
    return raw


class Crowd:
    """Threads that do something over and over until they are told to stop."""

    def __init__(self, *tasks: Callable[[int], None]) -> None:
        self._stop = threading.Event()
        self.faults: list[Exception] = []
        self._threads = [threading.Thread(target=self._run, args=(task,)) for task in tasks]

    def _run(self, task: Callable[[int], None]) -> None:
        turn = 0
        while not self._stop.is_set():
            try:
                task(turn)
            except (ForbiddenError, ConflictError, NotFoundError):
                pass
            except Exception as err:  # noqa: BLE001 - shown by the test
                self.faults.append(err)
                return
            turn += 1

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
        assert not self.faults


def native_usage(api: FakeClient, quota: str = "p1", namespace: str = NAMESPACE) -> Object:
    """Count all pods anew, as the API server's quota controller does."""
    read = ResourceQuota.from_object(api.get(RESOURCE_QUOTAS, quota, namespace=namespace))
    pods = [Pod.from_object(one) for one in api.list(PODS, ListOptions(namespace=namespace)).items]
    return dict(to_text(native_count(read, pods)))


def record(api: FakeClient, shadow: Any, namespace: str = NAMESPACE) -> None:
    api.create(QUOTA_LEDGERS, {"metadata": {"name": "ledger", "namespace": namespace}})
    status = {"status": {"shadow": shadow, "summary": "shadow"}}
    api.patch(QUOTA_LEDGERS, "ledger", status, namespace=namespace, subresource="status")
