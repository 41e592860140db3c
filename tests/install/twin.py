"""A fake cluster into which things are installed: it applies, and its controllers work."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, cast

from tests.operations.healthy import Pulse, a_lease
from tests.reactions import Call, Proceed, Reaction, ReactiveClient
from webhook.install.apply import InstallApi, describe
from webhook.install.installation import InstallOptions, install
from webhook.kube.api import (
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    VALIDATING_WEBHOOKS,
    Kind,
    NotFoundError,
    Object,
    Revision,
)
from webhook.operations.retry import RetryPolicy
from webhook.state.well_known import LAST_REGISTRATION, REGISTRATION

_PULSE = Pulse()
QUICK = RetryPolicy(
    seconds=0.05,
    pause_seconds=0.01,
    settle_seconds=0.01,
    clock=_PULSE.clock,
    sleep=_PULSE.sleep,
)
"""Five looks, however long each of them takes."""

POLICIES = (
    {"name": "mutatingadmissionpolicies"},
    {"name": "validatingadmissionpolicies"},
    {"name": "validatingwebhookconfigurations"},
)


class Twin:
    """An `InstallApi` over a `FakeCluster`.

    Attributes:
        api: The cluster.
        written: What was written, in order: "apply Namespace x", "delete Namespace x".
        minor: Its minor version, as it says it.
        version_reads: How often it was asked for its version.
        resources: What it serves in admissionregistration.k8s.io/v1.
        device_classes: Whether it serves them.
        available: Whether Deployments come up.
    """

    def __init__(self) -> None:
        self.api = ReactiveClient()
        self.written: list[str] = []
        self.minor = "36"
        self.version_reads = 0
        self.resources: tuple[Mapping[str, str], ...] = POLICIES
        self.device_classes = True
        self.available = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.api, name)

    def server_version(self) -> Object:
        self.version_reads += 1
        return {"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}.0"}

    def raw(self, path: str) -> Object:
        if path == "/apis/resource.k8s.io/v1":
            return {"resources": [{"name": "deviceclasses"}] if self.device_classes else []}
        assert path == "/apis/admissionregistration.k8s.io/v1"
        return {"resources": self.resources}

    def apply(
        self,
        kind: Kind,
        obj: Object,
        *,
        field_manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> Revision:
        assert field_manager
        assert force
        metadata: Any = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        if namespace:
            self.api.get(NAMESPACES, namespace)
        try:
            before = self.api.get(kind, name, namespace=namespace)
        except NotFoundError:
            made = self.api.create(kind, obj, dry_run=dry_run)
            self._note("apply", obj, dry_run)
            if not dry_run:
                self._control(kind, made.object)
            return made
        after = self.api.update(kind, cast("Object", _merged(before, obj)), dry_run=dry_run)
        if after.resource_version != int(cast("Any", before)["metadata"]["resourceVersion"]):
            self._note("apply", obj, dry_run)
            if not dry_run:
                self._control(kind, after.object)
        return after

    def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
        self.written.append(f"patch {kind.kind} {name}")
        return self.api.patch(kind, name, *args, **kwargs)

    def delete(self, kind: Kind, name: str, *, namespace: str = "", **kwargs: Any) -> Revision:
        gone = self.api.delete(kind, name, namespace=namespace, **kwargs)
        place = f"{namespace}/{name}" if namespace else name
        self.written.append(f"delete {kind.kind} {place}")
        return gone

    def _note(self, verb: str, obj: Object, dry_run: bool) -> None:
        if not dry_run:
            self.written.append(f"{verb} {describe(obj)}")

    def _control(self, kind: Kind, obj: Object) -> None:
        """Do what the cluster's own controllers do with new objects."""
        if kind.kind == "CustomResourceDefinition":
            conditions = [{"type": "Established", "status": "True"}]
            self.api.update_status(kind, {**obj, "status": {"conditions": conditions}})
        elif kind.kind == "Deployment":
            spec, metadata = cast("Any", obj["spec"]), cast("Any", obj["metadata"])
            replicas = spec["replicas"]
            status = {
                "observedGeneration": metadata["generation"],
                "replicas": replicas,
                "updatedReplicas": replicas,
                "availableReplicas": replicas if self.available else 0,
            }
            self.api.update_status(kind, {**obj, "status": status})


def _merged(before: object, wanted: object) -> object:
    if isinstance(before, Mapping) and isinstance(wanted, Mapping):
        changed = {key: _merged(before.get(key), value) for key, value in wanted.items()}
        return {**before, **changed}
    return wanted


SYSTEM = "deferred-quota-system"


def leading(holder: str = "deferred-quota-controller-1-7-0a1b2c3d") -> Reaction:
    """Show a Lease that is renewed all the time."""
    seconds = itertools.count()

    def react(_call: Call, _proceed: Proceed) -> Object:
        return a_lease(holder, renewTime=f"2026-06-01T00:00:00.{next(seconds):06}Z")

    return react


def run(twin: Twin, *, lease: Reaction | None = None, **wish: Any) -> tuple[int, list[str]]:
    """Install, while a controller leads unless reads of its Lease are answered otherwise."""
    lines: list[str] = []
    options = InstallOptions(**{"patience": QUICK, **wish})
    with twin.api.on("get", LEASES, lease or leading()):
        changes = install(cast("InstallApi", twin), options, lines.append)
    return changes, lines


def registrations(twin: Twin) -> list[Any]:
    names = (
        (MUTATING_WEBHOOKS, REGISTRATION),
        (MUTATING_WEBHOOKS, LAST_REGISTRATION),
        (VALIDATING_WEBHOOKS, REGISTRATION),
    )
    return [twin.api.get(*each) for each in names]


HERE, THERE = "https://192.0.2.7:9443", "https://192.0.2.8:9443/"


INSIDE = f"the cluster (Service {SYSTEM}/deferred-quota-webhook)"
