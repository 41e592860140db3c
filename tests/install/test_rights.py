"""The service accounts may do what the program does, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.builders import a_binding, a_pod, a_quota
from tests.e2e.cluster.waiting import eventually
from tests.install.recording import Right, granted, used_objects, used_rights
from tests.quota.cluster_quotas import a_cluster_quota
from tests.reactions import Verb, VersionedClient, conflict
from webhook.admission.deadline import Deadline
from webhook.admission.review import AdmissionRequest, AdmissionResponse, GroupVersionKind, Phase
from webhook.controllers.runtime.events import EventRecorder, ObjectReference
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.install import render
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    EVENTS,
    JOBS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    POD_GATINGS,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    ListOptions,
    NotFoundError,
)
from webhook.kube.informer import InformerTimings
from webhook.quota.queue.pod_conditions import observed_condition
from webhook.runtime.certificate_watch import CertificateSources, CertificateWatch
from webhook.runtime.controller_options import ControllerOptions, LeaderElectionConfig
from webhook.runtime.engine import Engine, EngineOptions
from webhook.state.feature_gates import PROBE_JOB
from webhook.state.well_known import POD_GATING, SCHEDULING_GATE, TLS_SECRET
from webhook.telemetry.metrics import Metrics
from webhook.tls.files import CertificateFiles

SYSTEM: Final = "deferred-quota-system"
GPU: Final = "requests.example.com/gpu"
BOUND_SECONDS: Final = 30.0
QUICK: Final = InformerTimings(first_pause=0.01, longest_pause=0.05)


@dataclass(frozen=True)
class Story:
    """What both programs asked of an API server while all that they do was done once."""

    webhook: VersionedClient
    controller: VersionedClient


@pytest.fixture(scope="module")
def story() -> Story:
    api = FakeClient(FakeCluster())
    # of a release of which nothing is known
    webhook, controller = (VersionedClient(api.cluster, minor="") for _ in range(2))
    controller.on("update", CLUSTER_DEFERRED_QUOTAS, conflict, subresource="status", times=1)
    for name, mode in ((SYSTEM, ""), ("team-a", "deferred"), ("team-b", "deferrred")):
        labels = {"deferredquota.io/mode": mode} if mode else {}
        api.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    hard = {"requests.cpu": "2", GPU: "2"}
    quota = {key: value for key, value in a_quota("q", hard=hard).items() if key != "status"}
    api.create(RESOURCE_QUOTAS, quota)
    api.create(CLUSTER_DEFERRED_QUOTAS, a_cluster_quota(selector={}))
    set_status(api)
    (probe,) = (each for each in render().cluster if each["kind"] == "Job")
    api.create(JOBS, probe)
    (guards,) = (each for each in render().registrations if each["kind"].startswith("Validating"))  # type: ignore[attr-defined]
    api.create(VALIDATING_WEBHOOKS, guards)
    control = Engine(
        controller,
        Metrics(),
        EngineOptions(
            with_handlers=False,
            follow_ledgers=True,
            is_registered=True,
            informer=QUICK,
            controller=ControllerOptions(
                LeaderElectionConfig(controller, SYSTEM, "controller-0"),
                ControllerTimings(write_interval_seconds=0.01, resync_seconds=0.2, informer=QUICK),
                expire_seconds=0.3,
            ),
        ),
    )
    handlers = Engine(
        webhook,
        Metrics(),
        EngineOptions(controller=None, follow_ledgers=True, is_registered=True),
    )
    control.start()
    handlers.start()
    try:
        assert handlers.wait_until_ready(BOUND_SECONDS) == []
        eventually(lambda: webhook.calls_of("patch", JOBS), "gates of Jobs are tried")
        play(api, handlers, controller)
        watch_certificates(webhook)
    finally:
        handlers.stop()
        control.stop()  # which gives the lease back
    return Story(webhook, controller)


def watch_certificates(webhook: VersionedClient) -> None:
    """Follow what is served, and what calls it, until all of it is watched."""
    files = CertificateFiles(Path("tls.crt"), Path("tls.key"))
    sources = CertificateSources(files=files, secret=TLS_SECRET)
    place = "https://localhost:1"
    watch = CertificateWatch(
        webhook, sources, Metrics(), url=place, namespace=SYSTEM, is_in_pod=True
    )
    watch.start()
    for kind, count in ((SECRETS, 1), (MUTATING_WEBHOOKS, 2), (VALIDATING_WEBHOOKS, 1)):
        eventually(
            lambda kind=kind, count=count: len(webhook.calls_of("watch", kind)) >= count,  # type: ignore[misc]
            f"{kind.plural} are watched",
        )
    watch.stop()


def play(api: FakeClient, handlers: Engine, controller: VersionedClient) -> None:
    eventually(lambda: "requests.cpu" not in shown(api), "the mask is on")
    eventually(lambda: len(read_ledger(api).get("quotas", ())) == 2, "the quotas are counted")
    gates = [{"name": SCHEDULING_GATE}]
    for name, cpu in (("held", "1"), ("hog", "9")):
        pod = a_pod(name=name, uid="", requests={"cpu": cpu}, schedulingGates=gates)
        api.create(PODS, pod)
    eventually(lambda: not gates_of(api, "held"), "a pod that fits is let go")
    api.delete(PODS, "held", namespace="team-a")
    small, large = (
        api.create(PODS, a_pod(name=name, uid="", requests={"cpu": cpu})).uid
        for name, cpu in (("small", "1"), ("large", "9"))
    )
    # one fits, one does not, of one nobody knows anything, and one is in a strange namespace
    eventually(
        lambda: outcome(bind(handlers, "small", small)) == "Allowed", "a reservation is made"
    )
    assert outcome(bind(handlers, "large", large)) == "Denied"
    assert outcome(bind(handlers, "nobody")) == "Denied"
    assert outcome(bind(handlers, "nobody", namespace="nowhere")) == "Allowed"
    eventually(lambda: not read_ledger(api).get("reservations"), "the reservation expires")
    eventually(
        lambda: observed_condition(api.get(PODS, "hog", namespace="team-a")).condition,
        "it says why it waits",
    )
    play_gating(api)
    create_elastic_quota(handlers)
    play_elastic(api)
    eventually(lambda: api.list(EVENTS).items, "an event tells of the mistake in a label")
    eventually(lambda: api.list(LEASES).items, "there is a leader")
    api.patch(NAMESPACES, "team-a", {"metadata": {"labels": {"deferredquota.io/mode": None}}})
    eventually(lambda: {"requests.cpu", GPU} <= shown(api).keys(), "the quota is given back")
    say_twice(controller)


def play_gating(api: FakeClient) -> None:
    """Let a namespace be gated by need, what is said of it be edited, and be gated otherwise."""

    def said() -> list[Any]:
        found = api.list(POD_GATINGS, ListOptions(namespace="team-a")).items
        return [one["spec"] for one in cast("Any", found)]

    def label(value: str) -> None:
        labels = {"deferredquota.io/gating": value}
        api.patch(NAMESPACES, "team-a", {"metadata": {"labels": labels}})

    label("auto")
    eventually(lambda: said() and not said()[0]["gatesAll"], "what goes ungated is said")
    api.patch(POD_GATINGS, POD_GATING, {"spec": {"gatesAll": True}}, namespace="team-a")
    eventually(lambda: not said()[0]["gatesAll"], "it is written again")
    label("always")
    eventually(lambda: said() == [], "it is gone")


def create_elastic_quota(handlers: Engine) -> None:
    made: Any = {"metadata": {"name": "q", "namespace": "team-a"}, "spec": {"min": {"cpu": 1}}}
    request = AdmissionRequest(
        uid="review-elastic",
        phase=Phase.VALIDATING,
        operation="CREATE",
        group=ELASTIC_QUOTAS.group,
        version=ELASTIC_QUOTAS.version,
        resource=ELASTIC_QUOTAS.plural,
        subresource="",
        kind=GroupVersionKind(ELASTIC_QUOTAS.group, ELASTIC_QUOTAS.version, ELASTIC_QUOTAS.kind),
        name="q",
        namespace="team-a",
        object=made,
    )
    assert outcome(handlers.decide(request, Deadline(time.monotonic() + 5))) == "Allowed"


def play_elastic(api: FakeClient) -> None:
    spec: Any = {"min": {"cpu": 8}}
    for kind, more in (
        (ELASTIC_QUOTAS, {}),
        (COMPOSITE_ELASTIC_QUOTAS, {"namespaces": ["team-b"]}),
    ):
        metadata = {"name": "q", "namespace": "team-a"}
        api.create(kind, {"metadata": metadata, "spec": {**spec, **more}})

    def pools() -> list[Any]:
        listed: Any = api.list(CLUSTER_DEFERRED_QUOTAS).items
        return [
            one["spec"]["hard"]["requests.cpu"] for one in listed if "." in one["metadata"]["name"]
        ]

    eventually(lambda: pools() == ["8"], "a pool is made")
    for kind in (ELASTIC_QUOTAS, COMPOSITE_ELASTIC_QUOTAS):
        eventually(
            lambda kind=kind: api.get(kind, "q", namespace="team-a").get("status"),  # type: ignore[misc]
            f"{kind.kind} has a status",
        )
    api.patch(ELASTIC_QUOTAS, "q", {"spec": {"min": {"cpu": 7}}}, namespace="team-a")
    eventually(lambda: pools() == ["7"], "the pool follows")
    api.create(PODS, a_pod(name="labelled", uid="", node="node-0", requests={"cpu": "1"}))
    eventually(
        lambda: "labels" in cast("Any", api.get(PODS, "labelled", namespace="team-a"))["metadata"],
        "an assigned pod is labelled",
    )
    for kind in (ELASTIC_QUOTAS, COMPOSITE_ELASTIC_QUOTAS):
        api.delete(kind, "q", namespace="team-a")
    eventually(lambda: pools() == [], "the pool is gone")


def say_twice(api: VersionedClient) -> None:
    timings = ControllerTimings(event_repeat_seconds=0.01)
    events = EventRecorder(api, timings=timings)
    events.start()
    verbs: tuple[Verb, ...] = ("create", "patch")
    for verb in verbs:
        before = len(api.calls_of(verb, EVENTS))
        events.normal(ObjectReference(NAMESPACES, "team-a", "", "uid"), "Said", "again and again")
        eventually(
            lambda verb=verb, before=before: len(api.calls_of(verb, EVENTS)) > before,  # type: ignore[misc]
            f"an event: {verb}",
        )
    events.stop()


def set_status(api: FakeClient) -> None:
    """Write what the quota controller writes when nothing masks."""
    status = {"hard": {"requests.cpu": "2", "pods": "9"}, "used": {"requests.cpu": "0"}}
    patch = {"status": status}
    api.patch(RESOURCE_QUOTAS, "q", patch, namespace="team-a", subresource="status")


def gates_of(api: FakeClient, pod: str) -> object:
    found: Any = api.get(PODS, pod, namespace="team-a")
    return found["spec"].get("schedulingGates")


def shown(api: FakeClient) -> Mapping[str, Any]:
    found: Any = api.get(RESOURCE_QUOTAS, "q", namespace="team-a")
    hard: Mapping[str, Any] = found["status"]["hard"]
    return hard


def read_ledger(api: FakeClient) -> Mapping[str, Any]:
    try:
        found: Any = api.get(QUOTA_LEDGERS, "ledger", namespace="team-a")
    except NotFoundError:
        return {}
    status: Mapping[str, Any] = found.get("status") or {}
    return status


def bind(
    handlers: Engine, pod: str, uid: str = "uid", namespace: str = "team-a"
) -> AdmissionResponse:
    request = AdmissionRequest(
        uid=f"review-{pod}",
        phase=Phase.VALIDATING,
        operation="CREATE",
        group="",
        version="v1",
        resource="pods",
        subresource="binding",
        kind=GroupVersionKind("", "v1", "Binding"),
        name=pod,
        namespace=namespace,
        object=a_binding(pod, "node-0", namespace=namespace, uid=uid),
    )
    return handlers.decide(request, Deadline(time.monotonic() + 5))


def outcome(answer: AdmissionResponse) -> str:
    return type(answer).__name__


def rights_of(kind: str, name: str) -> set[Right]:
    return {
        right
        for obj in render(mask="none").cluster
        if obj["kind"] == kind and cast("Any", obj)["metadata"]["name"] == name
        for right in granted(obj["rules"])
    }


@pytest.mark.parametrize("program", ["webhook", "controller"])
def test_a_program_has_the_rights_that_it_uses_and_no_other(story: Story, program: str) -> None:
    name = f"deferred-quota-{program}"
    client: VersionedClient = getattr(story, program)
    assert rights_of("ClusterRole", name) | rights_of("Role", name) == used_rights(client)


def test_the_controllers_right_to_change_a_lease_is_for_its_own_one(story: Story) -> None:
    rules = rules_of_role("deferred-quota-controller")
    assert [rule.get("resourceNames") for rule in rules] == [["deferred-quota-controller"], None]
    assert rules[1]["verbs"] == ["create"]
    assert used_objects(story.controller, "^leases$") == {
        ("leases", SYSTEM, "deferred-quota-controller")
    }


def test_the_webhooks_right_to_patch_jobs_is_for_the_one_that_never_runs(story: Story) -> None:
    rule, _ = rules_of_role("deferred-quota-webhook")
    assert (rule["resourceNames"], rule["verbs"]) == ([PROBE_JOB], ["patch"])
    patched = used_objects(story.webhook, "^jobs")
    assert patched == {("jobs", SYSTEM, PROBE_JOB), ("jobs/status", SYSTEM, PROBE_JOB)}


def rules_of_role(name: str) -> list[dict[str, Any]]:
    """Return the rules of a Role in our namespace."""
    (role,) = (
        cast("Any", each)
        for each in render(mask="none").cluster
        if each["kind"] == "Role" and cast("Any", each)["metadata"]["name"] == name
    )
    assert role["metadata"]["namespace"] == SYSTEM
    found: list[dict[str, Any]] = role["rules"]
    return found


def test_the_controllers_right_to_read_registrations_is_for_the_guard(story: Story) -> None:
    (role,) = (
        cast("Any", each)
        for each in render(mask="none").cluster
        if each["kind"] == "ClusterRole"
        and cast("Any", each)["metadata"]["name"] == "deferred-quota-controller"
    )
    named = [rule for rule in role["rules"] if "resourceNames" in rule]
    assert [(rule["resources"], rule["resourceNames"]) for rule in named] == [
        (["validatingwebhookconfigurations"], ["deferred-quota"])
    ]
    read = used_objects(story.controller, "configurations$")
    assert read == {("validatingwebhookconfigurations", "", "deferred-quota")}


def test_leases_are_granted_in_our_namespace_only() -> None:
    for program in ("webhook", "controller"):
        for group, _, _ in rights_of("ClusterRole", f"deferred-quota-{program}"):
            assert group != "coordination.k8s.io"
