"""A harness where requests are sent to the handlers: a fake cluster and a real engine.

Reviews are written as an API server writes them, read by the real codec, decided by a running
`Engine` and answered as bytes; every answer is checked for what an API server would refuse.
Nobody waits for time to pass here, only for something to be so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tests.admission.validity import operations_of, patched, response_of
from tests.builders import a_binding, a_pod
from tests.reactions import ReactiveClient
from tests.reservations import reservations_in
from webhook.admission.deadline import Deadline
from webhook.admission.review import Phase, decode_review, encode_review
from webhook.config import ConfigurationFile
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import (
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    ApiError,
    ListOptions,
    NotFoundError,
    known_kind,
)
from webhook.kube.api import Object as ApiObject
from webhook.kube.informer import Informer, InformerTimings
from webhook.kube.kinds import Kind
from webhook.policy import check_configuration
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, add, parse_resource_list
from webhook.quota.charging.deferral import deferred_part, deferred_quotas
from webhook.quota.charging.pod_usage import is_terminal, usage_of
from webhook.quota.charging.scopes import matches
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.objects.qos import qos_class
from webhook.runtime import ControllerOptions, Engine, EngineOptions
from webhook.telemetry.metrics import Metrics

Object = dict[str, object]

NAMESPACE = "team-a"
TIMEOUT_SECONDS = 45.0  # a condition that was written a moment ago rests for 30 s
WAITING = "spec.nodeName="
"""Field selector of the watch that shows the handlers which pods wait."""

_DEFERRED = {"deferredquota.io/mode": "deferred"}
_QUICK = InformerTimings(first_pause=0.01, longest_pause=0.05)
_REST_SECONDS = 1.0
_CONTROL = ControllerTimings(write_interval_seconds=0.005, informer=_QUICK)
_CONFIGURATION = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "Configuration"}


def eventually(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something is so; fail when it does not come about."""
    give_up = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        assert time.monotonic() < give_up, f"never so: {what}"
        time.sleep(0.001)


def wait_until_seen(cluster: FakeCluster, informers: Iterable[Informer[Any]]) -> None:
    """Wait until caches have seen what is stored now."""
    version, followed = cluster.resource_version, tuple(informers)

    def has_seen_all() -> bool:
        cluster.send_bookmarks()
        return all(one.wait_for_version(version, 0.02) for one in followed)

    eventually(has_seen_all, f"the caches are at version {version}")


def a_namespace(name: str = NAMESPACE, *, mode: str = "deferred", gating: str = "") -> Object:
    """A namespace, opted in unless `mode` is empty; without `gating` the configured one holds."""
    given = {"deferredquota.io/mode": mode, "deferredquota.io/gating": gating}
    labels = {key: value for key, value in given.items() if value}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def qos_of(pod: ApiObject) -> str:
    """The QoS class that an API server writes into the status of a new pod."""
    return qos_class(Pod.from_stored(pod))


def new_cluster() -> FakeCluster:
    """An empty cluster that knows QoS classes."""
    return FakeCluster(qos=qos_of)


@dataclass(frozen=True)
class Reply:
    """What the API server reads in an answer; what is absent is empty or None."""

    response: Object
    sent: Object

    @property
    def allowed(self) -> bool:
        return self.response["allowed"] is True

    @property
    def status(self) -> Object:
        return cast("Object", self.response.get("status", {}))

    @property
    def code(self) -> object:
        return self.status.get("code")

    @property
    def reason(self) -> object:
        return self.status.get("reason")

    @property
    def message(self) -> object:
        return self.status.get("message")

    @property
    def details(self) -> Object:
        return cast("Object", self.status.get("details", {}))

    @property
    def causes(self) -> list[tuple[object, object, object]]:
        causes = cast("list[Object]", self.details.get("causes", []))
        return [(one.get("reason"), one.get("field"), one.get("message")) for one in causes]

    @property
    def audit(self) -> dict[str, str]:
        return cast("dict[str, str]", self.response.get("auditAnnotations", {}))

    @property
    def decision(self) -> str:
        return self.audit["decision"]

    @property
    def warnings(self) -> list[str]:
        return cast("list[str]", self.response.get("warnings", []))

    @property
    def patch(self) -> list[Object]:
        return operations_of(self.response)

    @property
    def object(self) -> Object:
        """The object that was sent, with the patch applied."""
        return patched(self.response, self.sent)


def is_undecided(reply: Reply, message: str) -> bool:
    """Return whether a request is answered with "try again", for this reason."""
    return (
        (reply.code, reply.reason) == (429, "TooManyRequests")
        and reply.message == message
        and reply.details["retryAfterSeconds"] == 1
        and reply.audit == {"decision": "undecided", "reason": message}
    )


@dataclass
class AdmissionHarness:
    """A cluster, an engine on it, and reviews.

    Attributes:
        cluster: The cluster.
        api: A client without admission, for everything that people and the platform do.
        client: The engine's own client.
        engine: The engine, running.
        metrics: Where it counts.
    """

    cluster: FakeCluster
    client: ReactiveClient
    engine: Engine
    metrics: Metrics = field(default_factory=Metrics)
    api: FakeClient = field(init=False)

    def __post_init__(self) -> None:
        self.api = FakeClient(self.cluster)

    # -- the cluster -----------------------------------------------------------------------

    def create(self, obj: Mapping[str, object]) -> Object:
        """Store a new object as the API server would; return it as it is stored."""
        kind = known_kind(str(obj["apiVersion"]), str(obj["kind"]))
        assert kind is not None
        return dict(self.api.create(kind, obj).object)

    def pod(self, *containers: Object, **fields: object) -> Object:
        """Store a pod (see `a_pod`), uid and status included; return it as it is stored."""
        made = a_pod(*containers, **fields)  # type: ignore[arg-type]
        status = cast("Object", made["status"])
        if "qosClass" not in status:
            status["qosClass"] = qos_of(made)
        self.cluster.load([(PODS, made)])
        metadata = cast("Object", made["metadata"])
        return self.stored(PODS, str(metadata["name"]), str(metadata["namespace"]))

    def stored(self, kind: Kind, name: str, namespace: str = NAMESPACE) -> Object:
        """Return an object as it is stored."""
        return dict(self.api.get(kind, name, namespace=namespace))

    def finish(self, name: str, namespace: str = NAMESPACE) -> None:
        """Let a pod succeed."""
        patch = {"status": {"phase": "Succeeded"}}
        self.api.patch(PODS, name, patch, namespace=namespace, subresource="status")

    # -- what the engine knows -------------------------------------------------------------

    def catch_up(self, *, but: Informer[Pod] | None = None) -> None:
        """Wait until all caches of the engine, `but` one, have seen what is stored now."""
        wait_until_seen(self.cluster, (one for one in self.informers() if one is not but))

    def informers(self) -> list[Informer[Any]]:
        """All caches of the engine, whatever they hold."""
        return cast("list[Informer[Any]]", list(self.engine.informers.values()))

    def wait_until_settled(self, *namespaces: str) -> None:
        """Wait until the ledgers say what a recount of the stored objects says."""
        self.catch_up()
        for namespace in namespaces or (NAMESPACE,):
            eventually(lambda name=namespace: self.is_settled(name), f"{namespace} is settled")  # type: ignore[misc]

    def version_at_rest(self) -> int:
        """Return the cluster's version once nothing has been written for a while.

        What pods without a node ask for reaches a ledger half a second after the rest.
        """
        version, since = self.cluster.resource_version, time.monotonic()
        while time.monotonic() < since + _REST_SECONDS:
            time.sleep(0.05)
            if self.cluster.resource_version != version:
                version, since = self.cluster.resource_version, time.monotonic()
        return version

    def is_settled(self, namespace: str = NAMESPACE) -> bool:
        """Say whether a ledger is exact: as recounted, and nothing assigned is reserved."""
        counted = recount(self.api, namespace)
        ledger = self.ledger(namespace)
        if ledger is None:
            return not counted
        if "quotas" not in ledger or accounts_in(ledger) != counted:
            return False
        assigned = {
            str(cast("Object", one["metadata"])["uid"])
            for one in self.api.list(PODS, ListOptions(namespace=namespace)).items
            if cast("Object", one["spec"]).get("nodeName")
        }
        held = reservations_in(ledger)
        return not any(one["uid"] in assigned and "after" not in one for one in held)

    def ledger(self, namespace: str = NAMESPACE) -> Object | None:
        """Return the status of a namespace's ledger as it is stored; None without ledger."""
        try:
            return cast("Object", self.stored(QUOTA_LEDGERS, "ledger", namespace).get("status", {}))
        except NotFoundError:
            return None

    def ledger_version(self, namespace: str = NAMESPACE) -> str:
        """Return the resourceVersion of a namespace's ledger."""
        metadata = self.stored(QUOTA_LEDGERS, "ledger", namespace)["metadata"]
        return str(cast("Object", metadata)["resourceVersion"])

    def reservations(self, namespace: str = NAMESPACE) -> dict[str, Object]:
        """Return the reservations of a namespace by the name of their pod."""
        ledger = self.ledger(namespace) or {}
        return {str(one["pod"]): one for one in reservations_in(ledger)}

    def used(self, quota: str = "p1", namespace: str = NAMESPACE) -> dict[str, str]:
        """Return what a ledger says a quota's pods use."""
        return _account(self.ledger(namespace), quota)["used"]

    def reserved(self, quota: str = "p1", namespace: str = NAMESPACE) -> dict[str, str]:
        """Return what a ledger says is promised of a quota."""
        return _account(self.ledger(namespace), quota)["reserved"]

    # -- requests --------------------------------------------------------------------------

    def post(self, review: Mapping[str, object], phase: Phase, *, seconds: float = 10) -> Reply:
        """Let the engine answer a review, and check that an API server would take the answer."""
        return self.post_text(encode_json(review), phase, seconds=seconds)

    def post_text(self, text: bytes, phase: Phase, *, seconds: float = 10) -> Reply:
        """Let the engine answer a review as it was written; see `post`."""
        request = decode_review(text, phase)
        answer = self.engine.decide(request, Deadline(time.monotonic() + seconds))
        body = encode_review(request, answer)
        sent = json.loads(text)
        asked = cast("Object", sent["request"])
        response = response_of(body, sent, phase)
        return Reply(response, cast("Object", asked.get("object") or {}))

    def validate(self, review: Mapping[str, object], *, seconds: float = 10) -> Reply:
        """Post to the validating webhook."""
        return self.post(review, Phase.VALIDATING, seconds=seconds)

    def mutate(self, review: Mapping[str, object], *, seconds: float = 10) -> Reply:
        """Post to the mutating webhook."""
        return self.post(review, Phase.MUTATING, seconds=seconds)

    def bind(
        self,
        pod: str,
        *,
        uid: str = "",
        legacy: bool = False,
        dry_run: bool = False,
        namespace: str = NAMESPACE,
    ) -> Reply:
        """Ask to bind a pod; without `uid` the Binding names none."""
        review = a_bind_review(pod, uid=uid, legacy=legacy, dry_run=dry_run, namespace=namespace)
        return self.validate(review)

    def bind_in_fact(self, pod: str, *, namespace: str = NAMESPACE) -> Reply:
        """Ask to bind a pod and, if that is allowed, bind it, as an API server does."""
        uid = str(cast("Object", self.stored(PODS, pod, namespace)["metadata"])["uid"])
        reply = self.bind(pod, uid=uid, namespace=namespace)
        if reply.allowed:
            self.api.bind(a_binding(pod, namespace=namespace, uid=uid))
        return reply

    def create_pod(
        self,
        *containers: Object,
        dry_run: bool = False,
        user: str = "alice",
        **fields: object,
    ) -> Reply:
        """Ask to create a pod (see `a_pod`), as the validating webhook sees it."""
        pod = a_pod(*containers, **fields)  # type: ignore[arg-type]
        status = cast("Object", pod["status"])
        if "qosClass" not in status:
            status["qosClass"] = qos_of(pod)
        metadata = cast("Object", pod["metadata"])
        review = a_review(
            "CREATE",
            "pods",
            pod,
            dry_run=dry_run,
            user=user,
            namespace=str(metadata.get("namespace") or NAMESPACE),
        )
        return self.validate(review)

    def change_pod(
        self,
        old: Mapping[str, object],
        new: Mapping[str, object],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Reply:
        """Ask to update a pod, or with "resize" its resources."""
        review = a_review("UPDATE", "pods", new, old=old, subresource=subresource, dry_run=dry_run)
        return self.validate(review)


def _groups(user: str) -> list[str]:
    kind = "system:nodes" if user.startswith("system:node:") else "devs"
    return [kind, "system:authenticated"]


def _account(ledger: Object | None, quota: str) -> dict[str, dict[str, str]]:
    accounts = cast("list[Object]", (ledger or {}).get("quotas", []))
    return cast("dict[str, dict[str, str]]", {str(one["name"]): one for one in accounts}[quota])


@dataclass(frozen=True)
class CountedQuota:
    """A quota with what its assigned, live pods use of it."""

    uid: str
    spec_hash: str
    hard: ResourceList
    used: ResourceList


def accounts_in(ledger: Mapping[str, object]) -> dict[str, CountedQuota]:
    """Read the quotas in a ledger's status, by name."""
    accounts = cast("Sequence[Object]", ledger.get("quotas", []))
    return {str(one["name"]): _counted(one) for one in accounts}


def _counted(account: Object) -> CountedQuota:
    observed = cast("dict[str, str]", account["observed"])
    return CountedQuota(
        uid=observed["uid"],
        spec_hash=observed["specHash"],
        hard=parse_resource_list(account["hard"], field="hard"),
        used=parse_resource_list(account["used"], field="used"),
    )


def recount(api: FakeClient, namespace: str) -> dict[str, CountedQuota]:
    """Count from scratch what the assigned, live pods of a namespace use of its quotas."""
    quotas = map(
        ResourceQuota.from_object, api.list(RESOURCE_QUOTAS, ListOptions(namespace=namespace)).items
    )
    pods = [Pod.from_object(one) for one in api.list(PODS, ListOptions(namespace=namespace)).items]
    counted: dict[str, CountedQuota] = {}
    for each in deferred_quotas(quotas, DEFERRED_KEYS).quotas:
        total: ResourceList = dict.fromkeys(each.hard, ZERO)
        for pod in pods:
            if pod.is_assigned and not is_terminal(pod) and matches(each.quota, pod):
                total = add(total, deferred_part(usage_of(pod, now=None), each.hard.keys()))
        observed = each.observed
        counted[each.name] = CountedQuota(observed.uid, observed.spec_hash, each.hard, total)
    return counted


def a_review(
    operation: str,
    resource: str,
    obj: Mapping[str, object] | None,
    *,
    old: Mapping[str, object] | None = None,
    subresource: str = "",
    group: str = "",
    dry_run: bool = False,
    name: str | None = None,
    namespace: str = NAMESPACE,
    user: str = "alice",
) -> Object:
    """An AdmissionReview as an API server writes it; the name is the object's unless given."""
    about = obj or old or {}
    metadata = about.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    written = {"group": group, "version": "v1", "kind": str(about.get("kind", ""))}
    plural = {"group": group, "version": "v1", "resource": resource}
    options = {"apiVersion": "meta.k8s.io/v1", "kind": f"{operation.capitalize()}Options"}
    request: Object = {
        "uid": "0b1f5c9a-52d1-4d6b-9a11-6a3ad4b3c7f0",
        "kind": written,
        "resource": plural,
        "requestKind": written,
        "requestResource": plural,
        "namespace": namespace,
        "operation": operation,
        "userInfo": {"username": user, "uid": "a-1", "groups": _groups(user)},
        "object": obj,
        "oldObject": old,
        "dryRun": dry_run,
        "options": {**options, "dryRun": ["All"]} if dry_run else options,
        "fieldOfALaterVersion": {"ignored": True},
    }
    if subresource:
        request |= {"subResource": subresource, "requestSubResource": subresource}
    found = metadata.get("name") if name is None else name
    if found:
        request["name"] = found
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def a_bind_review(
    pod: str,
    *,
    uid: str = "",
    legacy: bool = False,
    dry_run: bool = False,
    namespace: str = NAMESPACE,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """A review of a bind through `pods/binding`, or through `bindings`."""
    binding = a_binding(pod, namespace=namespace, uid=uid, annotations=annotations)
    resource, subresource = ("bindings", "") if legacy else ("pods", "binding")
    return a_review(
        "CREATE",
        resource,
        binding,
        subresource=subresource,
        dry_run=dry_run,
        namespace=namespace,
        user="system:kube-scheduler",
    )


@contextmanager
def admission_harness(
    *objects: Mapping[str, object],
    directory: Path | None = None,
    settings: Mapping[str, object] | None = None,
    mode: str = "deferred",
    with_controller: bool = True,
) -> Iterator[AdmissionHarness]:
    """Open a harness whose namespace is `team-a`, and close it.

    Args:
        objects: What is stored from the start, besides the namespace.
        directory: Where a configuration file can be written; needed with `settings`.
        settings: Fields of the configuration.
        mode: The namespace's label; empty is none.
        with_controller: Whether the engine counts and writes ledgers.
    """
    cluster = new_cluster()
    line = ReactiveClient(cluster)
    stored = [a_namespace(mode=mode), *objects]
    loaded = [(known_kind(str(one["apiVersion"]), str(one["kind"])), one) for one in stored]
    cluster.load([(kind, one) for kind, one in loaded if kind is not None])
    options = EngineOptions(
        configuration=None if settings is None else _configuration(directory, settings),
        controller=ControllerOptions(timings=_CONTROL, gate_workers=2) if with_controller else None,
        informer=_QUICK,
    )
    metrics = Metrics()
    engine = Engine(line, metrics, options)
    engine.start()
    try:
        assert engine.wait_until_ready(TIMEOUT_SECONDS) == []
        yield AdmissionHarness(cluster, line, engine, metrics)
    finally:
        line.resume()
        engine.stop()


def _configuration(directory: Path | None, settings: Mapping[str, object]) -> ConfigurationFile:
    assert directory is not None
    path = directory / "configuration.yaml"
    path.write_text(json.dumps({**_CONFIGURATION, **settings}), encoding="utf-8")
    return ConfigurationFile(path, check=check_configuration)


def opt_in(api: FakeClient, name: str) -> None:
    """Give a namespace the label."""
    api.patch(NAMESPACES, name, {"metadata": {"labels": _DEFERRED}})


def want_no_gates(harness: AdmissionHarness) -> None:
    """Give the namespace `gating: never`: the bind of a pod that does not fit is denied."""
    label = {"metadata": {"labels": {"deferredquota.io/gating": "never"}}}
    harness.client.patch(NAMESPACES, NAMESPACE, label)
    harness.catch_up()
    harness.wait_until_settled()


def opt_out(api: FakeClient, name: str) -> None:
    """Take the label away."""
    api.patch(NAMESPACES, name, {"metadata": {"labels": {"deferredquota.io/mode": None}}})


__all__ = [
    "NAMESPACE",
    "TIMEOUT_SECONDS",
    "WAITING",
    "AdmissionHarness",
    "ApiError",
    "Reply",
    "a_bind_review",
    "a_namespace",
    "a_review",
    "accounts_in",
    "admission_harness",
    "eventually",
    "is_undecided",
    "new_cluster",
    "opt_in",
    "opt_out",
    "qos_of",
    "recount",
]


def resized(old: Object, **fields: object) -> Object:
    """The pod `old` as an API server passes it on when its resources are changed."""
    made = a_pod(**fields)  # type: ignore[arg-type]
    spec, new_spec = cast("Object", old["spec"]), cast("Object", made["spec"])
    names = ("containers", "initContainers", "resources")
    kept = {name: new_spec[name] for name in names if name in new_spec}
    return {**old, "spec": {**spec, **kept}}
