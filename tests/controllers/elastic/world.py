"""A cluster with namespaces that have elastic quotas, and the product in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.admission.handlers.harness import (
    AdmissionHarness,
    Reply,
    a_namespace,
    admission_harness,
    eventually,
)
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    NAMESPACES,
    PODS,
    ListOptions,
)
from webhook.quota.queue.pod_conditions import observed_condition
from webhook.state.well_known import SCHEDULING_GATE

Object = dict[str, object]
LABEL = "nos.nebuly.com/capacity"
NO_GATES = {"deferredquota.io/gating": "never"}


def opted_in(name: str, *, is_gated: bool) -> Object:
    made = a_namespace(name)
    made["metadata"]["labels"].update({} if is_gated else NO_GATES)  # type: ignore[index]
    return made


class World:
    """Two namespaces and their elastic quotas."""

    def __init__(self, harness: AdmissionHarness) -> None:
        self.harness = harness
        self.replies: list[Reply] = []
        """All answers to binds."""

    def derived(self) -> dict[str, Object]:
        listed = self.harness.api.list(CLUSTER_DEFERRED_QUOTAS).items
        return {str(one["metadata"]["name"]): dict(one) for one in listed}  # type: ignore[index]

    def hard(self) -> dict[str, dict[str, str]]:
        return {name: dict(one["spec"]["hard"]) for name, one in self.derived().items()}  # type: ignore[index]

    def wait_for(self, **hard: dict[str, str]) -> None:
        """Wait until these are charged, and all namespaces are counted for them."""
        wanted = {name.replace("_", "."): amounts for name, amounts in hard.items()}
        eventually(lambda: self.hard() == wanted, f"derived: {wanted}")
        self.harness.catch_up()
        eventually(self.engine_is_quiet, "all are counted")

    def metric(self, name: str, **labels: str) -> float | None:
        found = self.harness.metrics.registry
        return found.get_sample_value(f"deferred_quota_{name}", labels)

    def wait(self, name: str, namespace: str, cpu: str = "1") -> None:
        """Create a pod behind our gate."""
        gates = [{"name": SCHEDULING_GATE}]
        uid, requests = f"{namespace}-{name}", {"cpu": cpu}
        self.harness.pod(
            name=name, namespace=namespace, requests=requests, uid=uid, schedulingGates=gates
        )

    def end(self, name: str, namespace: str) -> None:
        """Delete a pod."""
        self.harness.api.delete(PODS, name, namespace=namespace, grace_period_seconds=0)

    def reason(self, name: str, namespace: str) -> str:
        """Return the reason of a pod's condition; Released without our gate."""
        pod = self.harness.stored(PODS, name, namespace)
        if not FieldReader(pod).child("spec").children("schedulingGates"):
            return "Released"
        found = observed_condition(pod).condition
        return "" if found is None else found.reason

    def says(self, name: str, namespace: str, reason: str) -> None:
        """Wait until a pod has this reason."""
        eventually(lambda: self.reason(name, namespace) == reason, f"{name} says {reason}")

    def members(self, name: str) -> list[str]:
        """Return the namespaces that a derived quota selects."""
        spec = FieldReader(self.derived()[name]).child("spec").child("namespaceSelector")
        return [
            value for one in spec.children("matchExpressions") for value in one.strings("values")
        ]

    def engine_is_quiet(self) -> bool:
        controller = self.harness.engine.controller
        return controller is not None and controller.pending_shared_quotas() == []

    def status(self, namespace: str = "team-a", *, composite: bool = False) -> Object:
        kind = COMPOSITE_ELASTIC_QUOTAS if composite else ELASTIC_QUOTAS
        found = self.harness.stored(kind, "q", namespace).get("status", {})
        assert isinstance(found, dict)
        return found

    def condition(self, namespace: str = "team-a") -> str:
        listed = self.status(namespace).get("conditions", [])
        return "".join(str(one["reason"]) for one in listed)  # type: ignore[attr-defined]

    def bind(self, name: str, namespace: str, **requests: str) -> Reply:
        asked = requests or {"cpu": "1"}
        self.harness.pod(
            name=name, namespace=namespace, requests={**asked}, uid=f"{namespace}-{name}"
        )
        self.harness.catch_up()
        replies = self.replies

        def is_decided() -> bool:
            replies.append(self.harness.bind_in_fact(name, namespace=namespace))
            return replies[-1].code != 429

        eventually(is_decided, f"{namespace}/{name} is decided")
        return replies[-1]

    def labels(self, namespace: str) -> dict[str, str]:
        """Return the label of each pod of a namespace; empty without."""
        pods = self.harness.api.list(PODS, ListOptions(namespace=namespace)).items
        read = [FieldReader(one).child("metadata") for one in pods]
        return {one.text("name"): one.string_map("labels").get(LABEL, "") for one in read}


@contextmanager
def world(
    *objects: Object,
    directory: Path | None = None,
    settings: Object | None = None,
    is_gated: bool = False,
) -> Iterator[World]:
    namespaces = [opted_in(name, is_gated=is_gated) for name in ("team-b", "team-c")]
    with admission_harness(
        *namespaces, *objects, directory=directory, settings=settings
    ) as harness:
        labels = {"metadata": {"labels": {} if is_gated else NO_GATES}}
        harness.api.patch(NAMESPACES, "team-a", labels)
        yield World(harness)
