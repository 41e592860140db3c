"""Which handler a request goes through, and what stands before every handler."""

from __future__ import annotations

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import (
    NAMESPACE,
    AdmissionHarness,
    a_bind_review,
    a_namespace,
    a_review,
    eventually,
    new_cluster,
)
from tests.builders import a_job, a_pod, a_quota
from tests.reactions import ReactiveClient, unreachable
from webhook.admission.deadline import Deadline
from webhook.admission.handlers.dispatch import ROUTES
from webhook.admission.review import Denied, Phase, decode_review
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import (
    NAMESPACES,
    RESOURCE_QUOTAS,
)
from webhook.runtime import Engine, EngineOptions
from webhook.telemetry.metrics import Metrics

MUTATING, VALIDATING = Phase.MUTATING, Phase.VALIDATING

EXPECTED = {
    (MUTATING, "", "pods/binding", "CREATE"),
    (MUTATING, "", "bindings", "CREATE"),
    (MUTATING, "", "pods", "CREATE"),
    (MUTATING, "batch", "jobs", "CREATE"),
    (MUTATING, "batch", "jobs", "UPDATE"),
    (MUTATING, "", "resourcequotas/status", "UPDATE"),
    (VALIDATING, "", "pods", "CREATE"),
    (VALIDATING, "", "pods", "UPDATE"),
    (VALIDATING, "", "pods/binding", "CREATE"),
    (VALIDATING, "", "bindings", "CREATE"),
    (VALIDATING, "", "pods/resize", "UPDATE"),
    (VALIDATING, "batch", "jobs", "CREATE"),
    (VALIDATING, "batch", "jobs", "UPDATE"),
    (VALIDATING, "batch", "cronjobs", "CREATE"),
    (VALIDATING, "batch", "cronjobs", "UPDATE"),
    (VALIDATING, "jobset.x-k8s.io", "jobsets", "CREATE"),
    (VALIDATING, "jobset.x-k8s.io", "jobsets", "UPDATE"),
    (VALIDATING, "", "resourcequotas", "CREATE"),
    (VALIDATING, "", "resourcequotas", "UPDATE"),
    (VALIDATING, "deferredquota.io", "clusterdeferredquotas", "CREATE"),
    (VALIDATING, "deferredquota.io", "clusterdeferredquotas", "UPDATE"),
    (VALIDATING, "nos.nebuly.com", "elasticquotas", "CREATE"),
    (VALIDATING, "nos.nebuly.com", "elasticquotas", "UPDATE"),
    (VALIDATING, "nos.nebuly.com", "compositeelasticquotas", "CREATE"),
    (VALIDATING, "nos.nebuly.com", "compositeelasticquotas", "UPDATE"),
}


def test_the_table_has_every_kind_of_request_of_this_release_and_no_other() -> None:
    assert set(ROUTES) == EXPECTED


def test_no_validating_handler_stands_before_a_quota_status() -> None:
    assert (VALIDATING, "", "resourcequotas/status", "UPDATE") not in ROUTES


NEIGHBOURS = [
    (MUTATING, "", "pods", "", "UPDATE"),
    (MUTATING, "", "pods", "", "DELETE"),
    (VALIDATING, "", "pods", "", "DELETE"),
    (VALIDATING, "", "pods", "eviction", "CREATE"),
    (VALIDATING, "", "pods", "status", "UPDATE"),
    (VALIDATING, "", "pods", "ephemeralcontainers", "UPDATE"),
    (VALIDATING, "", "pods", "exec", "CONNECT"),
    (VALIDATING, "", "resourcequotas", "", "DELETE"),
    (VALIDATING, "batch", "jobs", "status", "UPDATE"),
    (VALIDATING, "batch", "jobs", "", "DELETE"),
]


@pytest.mark.parametrize(
    ("phase", "group", "resource", "subresource", "operation"),
    NEIGHBOURS,
    ids=[f"{one[0].value} {one[4]} {one[2]}/{one[3]}" for one in NEIGHBOURS],
)
def test_other_requests_about_these_resources_pass_without_a_word(
    open_harness: OpenHarness,
    phase: Phase,
    group: str,
    resource: str,
    subresource: str,
    operation: str,
) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "0"}), with_controller=False)
    pod = None if operation == "DELETE" else a_pod(node="n", requests={"cpu": "9"})
    review = a_review(
        operation, resource, pod, old=a_pod(), subresource=subresource, group=group, name="web-1"
    )
    reply = harness.post(review, phase)
    assert (reply.allowed, reply.patch) == (True, [])
    assert reply.audit == {"decision": "not-charged"}
    assert reply.warnings == []


UNKNOWN = {
    "deployments.apps": ("apps", "deployments", ""),
    "deployments/scale.apps": ("apps", "deployments", "scale"),
    "secrets": ("", "secrets", ""),
    "pods.metrics.k8s.io": ("metrics.k8s.io", "pods", ""),
    "jobs": ("", "jobs", ""),
}


@pytest.mark.parametrize("phase", [Phase.MUTATING, Phase.VALIDATING])
@pytest.mark.parametrize(("shown", "asked"), UNKNOWN.items(), ids=UNKNOWN.keys())
def test_a_resource_that_is_not_registered_passes_with_a_warning(
    harness: AdmissionHarness, shown: str, asked: tuple[str, str, str], phase: Phase
) -> None:
    group, resource, subresource = asked
    review = a_review("CREATE", resource, a_pod(), subresource=subresource, group=group)
    reply = harness.post(review, phase)
    assert (reply.allowed, reply.decision) == (True, "unknown-resource")
    assert reply.warnings == [
        f"deferred-quota has no rule for {shown}: its registration is too wide"
    ]


def test_a_jobs_resource_of_another_group_is_no_job(harness: AdmissionHarness) -> None:
    review = a_review("UPDATE", "jobs", a_job(), old=a_job(suspend=False), group="example.com")
    assert harness.mutate(review).decision == "unknown-resource"


@pytest.mark.parametrize("label", ["deferred", "", "shadow"])
def test_a_namespace_label_takes_effect_without_a_restart(
    open_harness: OpenHarness, label: str
) -> None:
    harness = open_harness(a_quota("p1"), mode="")
    patch = {"metadata": {"labels": {"deferredquota.io/mode": label}}}
    harness.api.patch(NAMESPACES, NAMESPACE, patch)
    if label == "deferred":
        harness.wait_until_settled()
    harness.catch_up()
    reply = harness.create_pod(node="n", requests={"cpu": "9"})
    assert reply.allowed == (label != "deferred")


def test_a_namespace_that_the_cache_has_not_seen_is_asked_for(harness: AdmissionHarness) -> None:
    harness.client.pause(NAMESPACES)
    harness.client.pause(RESOURCE_QUOTAS)
    harness.create(a_namespace("fresh"))
    pod = a_pod(namespace="fresh", node="n", requests={"cpu": "9"})
    reply = harness.validate(a_review("CREATE", "pods", pod, namespace="fresh"))
    assert reply.decision == "nothing-charged"  # it is ours, and has no quota yet


def test_before_the_quotas_are_listed_nothing_is_allowed_by_accident() -> None:
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace()), (RESOURCE_QUOTAS, a_quota("p1"))])
    client = ReactiveClient(cluster)
    client.on("list", RESOURCE_QUOTAS, unreachable)
    engine = Engine(client, Metrics(), EngineOptions(controller=None))
    engine.start()
    try:
        problem = "resourcequotas cannot be listed: no route to the resourcequotas"
        eventually(lambda: problem in engine.readiness_problems(), "the reason is reported")
        pod = a_pod(node="n", requests={"cpu": "9"})
        review = a_review("CREATE", "pods", pod)
        answer = engine.decide(
            decode_review(encode_json(review), VALIDATING), Deadline(float("inf"))
        )
        assert isinstance(answer, Denied)
        assert (answer.code, answer.message) == (429, "the quotas have not been listed yet")
    finally:
        engine.stop()


def test_a_bind_counts_from_the_moment_the_engine_is_ready(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1"))
    harness.pod(requests={"cpu": "1"})
    assert harness.validate(a_bind_review("web-1", uid="pod-uid-1")).decision == "reserved"
