"""A cluster where everything is as it should be: the shipped manifests and one namespace."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, cast

from tests.builders import a_pod
from tests.operations.scenes import NAMESPACE, Object, a_cluster, a_masked_quota, a_namespace, load
from tests.reactions import ReactiveClient, fail
from webhook.cli.cluster_context import read_bundle
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.fakecluster.storage.admission_hook import WriteRequest
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    LEASES,
    POD_GATINGS,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    ApiError,
    InvalidError,
    ListOptions,
    NotFoundError,
)
from webhook.kube.api import Object as ApiObject
from webhook.kube.files.documents import read_documents
from webhook.kube.informer import InformerTimings
from webhook.kube.kinds import Kind
from webhook.operations.counting import taken_at_bind
from webhook.operations.doctor.check_context import CheckContext, Settings
from webhook.operations.doctor.runner import Examination, examine
from webhook.operations.findings import Finding
from webhook.operations.names import NETWORK_POLICIES, policy_kinds
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.ledger.ledger import Account, Ledger
from webhook.quota.ledger.ledger_codec import ledger_status
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.objects.quota_bounds import counted_quotas
from webhook.runtime import ControllerOptions, Engine, EngineOptions
from webhook.state.well_known import (
    BIND_ENTRY,
    DEFAULT_NAMESPACE,
    GUARDED_ANNOTATION,
    LEADER_LEASE,
    POD_GATING,
)
from webhook.telemetry.metrics import Metrics
from webhook.tls.issue import issue_ca

MANIFESTS = Path(__file__).parents[2] / "manifests"
POLICIES, POLICY_BINDINGS = policy_kinds("v1")
NOW = datetime(2026, 6, 1, tzinfo=UTC)
_SHIPPED = (
    "base/cluster/quotaledgers.yaml",
    "base/cluster/clusterdeferredquotas.yaml",
    "base/cluster/namespace.yaml",
    "base/cluster/access-controller.yaml",
    "base/cluster/access-webhook.yaml",
    "base/cluster/access-people.yaml",
    "base/registrations/mutating.yaml",
    "base/registrations/validating.yaml",
    "components/mask-policy/policy.yaml",
    "base/configuration/configuration.yaml",
    "components/identity-policy/service-accounts.yaml",
    "components/identity-policy/own-namespace.yaml",
    "components/identity-policy/cluster-quotas.yaml",
    "components/device-claims/policy.yaml",
    "components/identity-policy/ledgers.yaml",
    "base/workloads/webhook.yaml",
    "base/workloads/controller.yaml",
)

Change = Callable[[Any], None]


def a_bundle(*, now: datetime = NOW, lifetime: timedelta = timedelta(days=365)) -> str:
    """What stands in `caBundle`."""
    return base64.b64encode(issue_ca(now=now, lifetime=lifetime).certificate).decode()


def shipped_objects() -> list[Object]:
    """The manifests of this repository, with a CA written into the webhook configurations."""
    found: list[Object] = []
    bundle = a_bundle()
    for name in _SHIPPED:
        for document in read_documents(name, (MANIFESTS / name).read_bytes()):
            raw = cast("Object", document.value)
            for entry in cast("list[dict[str, Object]]", raw.get("webhooks") or []):
                entry["clientConfig"]["caBundle"] = bundle
            if raw["kind"] == "Deployment":
                all_ready(raw)
            found.append(raw)
    return found


def a_closed_port() -> Object:
    """A policy by which only an API server connects to the webhook."""
    return {
        "apiVersion": NETWORK_POLICIES.api_version,
        "kind": NETWORK_POLICIES.kind,
        "metadata": {"name": "deferred-quota-webhook", "namespace": DEFAULT_NAMESPACE},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}],
        },
    }


def all_ready(deployment: Any) -> None:
    """Let all replicas be there, as the Deployment controller says it."""
    deployment["metadata"]["generation"] = 1
    counts = ("replicas", "updatedReplicas", "availableReplicas")
    status = dict.fromkeys(counts, deployment["spec"]["replicas"])
    deployment["status"] = {"observedGeneration": 1, **status}


def a_pod_gating(namespace: str) -> Object:
    """What policies go by in a namespace with room."""
    return {
        "apiVersion": POD_GATINGS.api_version,
        "kind": POD_GATINGS.kind,
        "metadata": {"name": POD_GATING, "namespace": namespace},
        "spec": {},
    }


def a_lease(holder: str = "deferred-quota-controller-1-7-0a1b2c3d", **spec: object) -> Object:
    """The Lease of the controller that leads."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEADER_LEASE, "namespace": DEFAULT_NAMESPACE},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "renewTime": "2026-06-01T00:00:00.000000Z",
            **spec,
        },
    }


def a_node(name: str = "node-1", **allocatable: str) -> Object:
    """A node, with room for some pods if nothing else is said."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": allocatable or {"cpu": "8", "memory": "16Gi", "pods": "110"}},
    }


def a_guarded_pod(name: str = "web-1", cpu: str = "1", *, node: str = "node-1") -> Object:
    """A pod that was bound through the guard."""
    return a_pod(
        name=name,
        uid=f"uid-{name}",
        node=node,
        requests={"cpu": cpu},
        metadata={"annotations": {GUARDED_ANNOTATION: "7"}},
    )


class Guard:
    """Answers a bind as the webhook does where there is no such pod; of others it says nothing.

    Attributes:
        answer: What it says instead, if anything; it may raise.
        asked: The binds that it was asked about.
        warnings: What it warns of.
    """

    warnings: Sequence[str] = ()

    def __init__(self, answer: Callable[[WriteRequest], None] | None = None) -> None:
        self.answer = answer or self._missing
        self.asked: list[WriteRequest] = []

    def mutate(self, request: WriteRequest) -> ApiObject | None:
        return request.new

    def validate(self, request: WriteRequest) -> None:
        if request.subresource == "binding":
            self.asked.append(request)
            self.answer(request)

    @staticmethod
    def _missing(request: WriteRequest) -> None:
        words = f'pods "{request.name}" not found'
        raise NotFoundError(f'admission webhook "{BIND_ENTRY}" denied the request: {words}')


class CreationGuard(Guard):
    """Answers as a webhook does that is asked about a cluster quota, too."""

    def validate(self, request: WriteRequest) -> None:
        if request.kind == CLUSTER_DEFERRED_QUOTAS and request.dry_run:
            self.asked.append(request)
            raise InvalidError("spec.hard[pods]: is not deferred")
        super().validate(request)


def refusing(cluster: FakeCluster, error: ApiError, *kinds: Kind) -> ReactiveClient:
    """Return a client whose reads of some kinds, or of all, end in an error."""
    client = ReactiveClient(cluster, admission=Guard())
    every: tuple[Kind | Literal["*"], ...] = kinds or ("*",)
    for kind in every:
        client.on("get", kind, fail(error))
        client.on("list", kind, fail(error))
    return client


def guarded(cluster: FakeCluster) -> FakeClient:
    """A client of a cluster where the webhook answers."""
    return FakeClient(cluster, admission=Guard())


def healthy() -> FakeCluster:
    """A cluster without a fault: `team-a` has opted in, and its ledger is counted."""
    cluster = a_cluster(
        *shipped_objects(),
        a_namespace("default", mode=""),
        a_namespace(),
        a_masked_quota(hard={"requests.cpu": "4", "pods": "9"}),
        a_node(),
        a_guarded_pod(),
        a_lease(),
        a_pod_gating(NAMESPACE),
        a_closed_port(),
    )
    count(cluster)
    return cluster


def count(
    cluster: FakeCluster,
    change: Callable[[Ledger], Ledger] = lambda one: one,
    *,
    namespace: str = NAMESPACE,
) -> None:
    """Write the ledger of a namespace as it has to be, or as `change` makes it."""
    api = FakeClient(cluster)
    quotas = [
        ResourceQuota.from_object(raw)
        for raw in api.list(RESOURCE_QUOTAS, ListOptions(namespace=namespace)).items
    ]
    pods = [Pod.from_object(raw) for raw in api.list(PODS, ListOptions(namespace=namespace)).items]
    accounts = {
        each.name: Account(each.observed, each.hard, taken_at_bind(each, pods).most)
        for each in deferred_quotas(counted_quotas(quotas), DEFERRED_KEYS).quotas
    }
    ledger = change(Ledger(accounts, {}, pods_resource_version=cluster.resource_version))
    if api.list(QUOTA_LEDGERS, ListOptions(namespace=namespace)).items:
        api.delete(QUOTA_LEDGERS, "ledger", namespace=namespace)
    raw = {
        "apiVersion": QUOTA_LEDGERS.api_version,
        "kind": QUOTA_LEDGERS.kind,
        "metadata": {"name": "ledger", "namespace": namespace},
    }
    api.create(QUOTA_LEDGERS, raw)
    stored = dict(api.get(QUOTA_LEDGERS, "ledger", namespace=namespace))
    api.update_status(QUOTA_LEDGERS, {**stored, "status": ledger_status(ledger)})


def edit(
    cluster: FakeCluster, kind: Kind, name: str, change: Change, *, namespace: str = ""
) -> None:
    """Change a stored object in place, whatever an API server would say of it."""
    api = FakeClient(cluster)
    raw: Any = api.get(kind, name, namespace=namespace)
    change(raw)
    api.delete(kind, name, namespace=namespace, grace_period_seconds=0)
    load(cluster, raw)


def remove(cluster: FakeCluster, kind: Kind, name: str, *, namespace: str = "") -> None:
    FakeClient(cluster).delete(kind, name, namespace=namespace, grace_period_seconds=0)


class Pulse:
    """A clock that moves when somebody sleeps, while the cluster lives on."""

    def __init__(self, *events: Callable[[], None]) -> None:
        self.seconds = 1000.0
        self.slept: list[float] = []
        self._events = list(events)

    def clock(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.slept.append(seconds)
        for event in self._events:
            event()


def renewing(cluster: FakeCluster) -> Callable[[], None]:
    """What a controller that leads does all the time."""
    api = FakeClient(cluster)
    turns = iter(range(10_000))

    def renew() -> None:
        patch = {"spec": {"renewTime": f"2026-06-01T00:00:01.{next(turns):06}Z"}}
        if api.list(LEASES).items:
            api.patch(LEASES, LEADER_LEASE, patch, namespace=DEFAULT_NAMESPACE)

    return renew


def examined(
    api: FakeClient | FakeCluster, *events: Callable[[], None], **settings: Any
) -> Examination:
    """Examine a cluster; `events` happen whenever the doctor waits."""
    client = guarded(api) if isinstance(api, FakeCluster) else api
    pulse = Pulse(*(events or (renewing(client.cluster),)))
    wanted = Settings(
        read_bundle=read_bundle,
        now=lambda: NOW,
        clock=pulse.clock,
        sleep=pulse.sleep,
        **settings,
    )
    return examine(CheckContext(client, wanted))


def serious(found: Examination) -> list[Finding]:
    """What is not only worth knowing."""
    return [one for one in found.findings if one.severity != "info"]


def ids(found: Examination | Sequence[Finding]) -> list[str]:
    findings = found.findings if isinstance(found, Examination) else found
    return [one.id for one in findings]


def the(found: Examination, name: str) -> Finding:
    """The only finding of this id."""
    (one,) = [one for one in found.findings if one.id == name]
    return one


@contextmanager
def a_controller(cluster: FakeCluster) -> Iterator[None]:
    """Run what counts and masks."""
    options = EngineOptions(
        controller=ControllerOptions(),
        informer=InformerTimings(first_pause=0.01, longest_pause=0.05),
    )
    engine = Engine(FakeClient(cluster), Metrics(), options)
    engine.start()
    try:
        assert engine.wait_until_ready(10) == []
        yield
    finally:
        engine.stop()
