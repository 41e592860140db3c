"""What may be changed of a suspended Job, where both feature gates are on: our words."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.configured import configured
from tests.e2e.cluster.jobs.restoring_webhook import restoring
from tests.e2e.cluster.jobs.states import a_job_in_state, jobs, put
from tests.e2e.cluster.jobs.words import GATES_ARE_ON
from tests.e2e.cluster.objects import Answer, Object
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.quota.jobs.job_updates import SPEC, STARTED, Change, change_list, resources_of, updated
from tests.quota.jobs.job_updates import put as setting

pytestmark = GATES_ARE_ON

OURS: Final = 'admission webhook "jobs.deferredquota.io" denied the request: '

CONFIRMED: Final = [{"type": "Suspended", "status": "True"}]
REQUESTS: Final = f"{SPEC}.containers[0].resources.requests"
GROW: Final = setting(f"{SPEC}.containers.0.resources.requests.cpu", "750m")
GROWN: Final = f"{REQUESTS}.cpu: field is immutable: from 500m to 750m: "
MOVE: Final = setting(f"{SPEC}.nodeSelector.zone", "b")
NEVER: Final = (
    "of a Job's template only the resources of containers and the scheduling directives can change,"
    " while the Job is suspended; create a new Job"
)


# -- the words that people read -----------------------------------------------------------------


def refused(tenant: Tenant, old: Object, *changes: Change) -> Answer:
    answer = put(tenant.api, updated(old, *changes))
    assert (answer.code, answer.reason) == (422, "Invalid"), str(answer)
    assert "&core." not in answer.message
    return answer


def words(tenant: Tenant, old: Object, *changes: Change) -> str:
    message = refused(tenant, old, *changes).message
    assert message.startswith(OURS), message
    return message.removeprefix(OURS)


CLOSED: Mapping[str, tuple[bool, Object, str]] = {
    "running": (
        False,
        {"startTime": STARTED, "active": 1},
        (
            "the Job is not suspended; suspend it first and wait until its pods are gone:"
            ' kubectl patch job train -n {ns} --type=merge -p \'{{"spec":{{"suspend":true}}}}\''
        ),
    ),
    "active": (
        True,
        {"startTime": STARTED, "conditions": CONFIRMED, "active": 2},
        "pods of it still run; wait until 2 active pods are gone: kubectl get job train -n {ns} -w",
    ),
    "not confirmed": (
        True,
        {"startTime": STARTED},
        (
            "the Job ran, and the Job controller has not confirmed its suspension yet;"
            " try again in a moment: kubectl wait job train -n {ns} --for=condition=Suspended"
        ),
    ),
}


@pytest.mark.parametrize(("suspend", "status", "why"), CLOSED.values(), ids=CLOSED.keys())
def test_a_closed_job_is_refused_in_our_words(
    tenant: Tenant, plain: Tenant, suspend: bool, status: Object, why: str
) -> None:
    old = a_job_in_state(tenant.api, tenant.namespace, "train", status, suspend=suspend)
    answer = refused(tenant, old, GROW)
    said = GROWN + why.format(ns=tenant.namespace)
    assert answer.message == OURS + said
    assert answer.causes == [
        ("FieldValueInvalid", f"{REQUESTS}.cpu", said.removeprefix(f"{REQUESTS}.cpu: "))
    ]
    native = a_job_in_state(plain.api, plain.namespace, "train", status, suspend=suspend)
    theirs = put(plain.api, updated(native, GROW))
    assert (theirs.code, theirs.reason) == (422, "Invalid")
    assert len(theirs.message) > 3 * len(answer.message)


def test_suspending_and_changing_at_once_is_refused_in_our_words(tenant: Tenant) -> None:
    old = a_job_in_state(tenant.api, tenant.namespace, "train", {}, suspend=False)
    said = words(tenant, old, GROW, setting("spec.suspend", True))
    assert said.startswith(f"{GROWN}the Job is not suspended before this request; suspend it first")


FIXED: Mapping[str, tuple[Change, str]] = {
    "image": (
        setting(f"{SPEC}.containers.0.image", "registry.example/app:2"),
        (
            f'{SPEC}.containers[0].image: field is immutable: from "registry.example/app:1" to'
            f' "registry.example/app:2": {NEVER}'
        ),
    ),
    "command": (
        setting(f"{SPEC}.containers.0.command", ["run"]),
        f"{SPEC}.containers[0].command: field is immutable: another value: {NEVER}",
    ),
    "resource claims": (
        change_list(f"{SPEC}.resourceClaims", lambda claims: claims.pop()),
        (
            f'{SPEC}.resourceClaims: field is immutable: from ["c1", "c2"] to ["c1"]:'
            " claims of the pod never change; create a new Job"
        ),
    ),
    "completions": (
        setting("spec.completions", 9),
        "spec.completions: field is immutable: from 4 to 9: create a new Job",
    ),
}


@pytest.mark.parametrize(("change", "said"), FIXED.values(), ids=FIXED.keys())
def test_what_never_changes_is_refused_in_our_words(
    tenant: Tenant, change: Change, said: str
) -> None:
    old = a_job_in_state(tenant.api, tenant.namespace, "train", {}, suspend=True)
    assert words(tenant, old, change) == said


def test_resources_of_the_pod_never_change(tenant: Tenant) -> None:
    spec = a_simple_job("1")
    spec["template"]["spec"]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}
    old = created(tenant, "whole", spec)
    assert words(tenant, old, setting(f"{SPEC}.resources.requests.cpu", "3")) == (
        f"{SPEC}.resources.requests.cpu: field is immutable: from 2 to 3: resources of the pod as a"
        " whole never change, only those of its containers"
    )


def test_what_changes_nothing_of_the_spec_is_not_asked_about(
    tenant: Tenant, product: Product
) -> None:
    old = a_job_in_state(tenant.api, tenant.namespace, "train", {}, suspend=True)
    path = jobs(tenant.namespace, "train")

    def asked() -> float:
        return product.metric("admission_requests_total", handler="jobs")

    before = asked()
    labelled = tenant.api.patch(path, {"metadata": {"labels": {"team": "a"}}})
    assert labelled.ok, str(labelled)
    assert put(tenant.api, old | {"metadata": labelled.body["metadata"]}).ok
    status = tenant.api.patch(f"{path}/status", {"status": {"active": 1}})
    assert status.ok, str(status)
    assert asked() == before
    assert tenant.api.patch(path, {"spec": {"backoffLimit": 5}}).ok
    assert asked() == before + 2  # at both handlers


def test_what_another_webhook_takes_back_is_not_refused_before(
    tenant: Tenant, product: Product
) -> None:
    old = a_job_in_state(tenant.api, tenant.namespace, "train", {}, suspend=True)
    change, _ = FIXED["image"]
    assert words(tenant, old, change)
    with restoring(tenant, product.certificates):
        # the API server asks it a moment after it is registered
        becomes(lambda: put(tenant.api, updated(old, change)).code, 200, "it is asked before us")
        second = setting(f"{SPEC}.containers.1.image", "registry.example/app:2")
        assert "containers[1].image: field is immutable" in words(tenant, old, change, second)


FAULTS: Mapping[str, tuple[Change, str]] = {
    "limit below request": (
        setting(f"{SPEC}.containers.0.resources.limits.cpu", "100m"),
        (
            f"{REQUESTS}: must be less than or equal to cpu limit of 100m: it is 500m;"
            " lower the request or raise the limit"
        ),
    ),
    "request above limit": (
        setting(f"{SPEC}.containers.0.resources.requests.cpu", "2"),
        (
            f"{REQUESTS}: must be less than or equal to cpu limit of 1: it is 2 and was 500m;"
            " lower the request or raise the limit"
        ),
    ),
    "half a device": (
        resources_of("containers.1", requests={}, limits={"example.com/gpu": "500m"}),
        f"{SPEC}.containers[1].resources.limits[example.com/gpu]: must be an integer: it is 500m",
    ),
}


@pytest.mark.parametrize(("change", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_faulty_amounts_are_refused_in_our_words(tenant: Tenant, change: Change, said: str) -> None:
    old = a_job_in_state(tenant.api, tenant.namespace, "train", {}, suspend=True)
    assert words(tenant, old, change).startswith(said)


def test_an_operator_that_is_not_known_is_refused_with_its_path(tenant: Tenant) -> None:
    old = a_job_in_state(tenant.api, tenant.namespace, "train", {}, suspend=True)
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Like", "values": ["a"]}]}]
    required = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    said = words(tenant, old, setting(f"{SPEC}.{required}.nodeSelectorTerms", terms))
    assert said == (
        f"{SPEC}.{required}.nodeSelectorTerms[0].matchExpressions[0].operator:"
        " not a valid selector operator: it is Like"
    )


# -- what a cluster wants beyond that ------------------------------------------------------------


def test_what_the_api_server_lets_through_may_change_if_we_have_nothing_against_it(
    tenant: Tenant,
) -> None:
    old = a_job_in_state(tenant.api, tenant.namespace, "train", {}, suspend=True)
    for change in (GROW, MOVE, setting("spec.suspend", False)):
        answer = put(tenant.api, updated(old, change))
        assert answer.ok, str(answer)
    both = put(tenant.api, updated(old, GROW, setting("spec.suspend", False)))
    assert both.ok, str(both)


def test_claims_of_containers_are_refused_although_the_api_server_takes_them(
    tenant: Tenant, plain: Tenant
) -> None:
    claim = setting(f"{SPEC}.containers.0.resources.claims", [{"name": "c1"}])
    native = a_job_in_state(plain.api, plain.namespace, "train", {}, suspend=True)
    assert put(plain.api, updated(native, claim)).ok
    old = a_job_in_state(tenant.api, tenant.namespace, "train", {}, suspend=True)
    assert words(tenant, old, claim) == (
        f'{SPEC}.containers[0].resources.claims: field is immutable: from none to ["c1"]'
    )


def a_simple_job(cpu: str, **spec: Any) -> Object:
    container = {"name": "main", "image": "registry.example/app:1"}
    container["resources"] = {"requests": {"cpu": cpu}}  # type: ignore[assignment]
    pod = {"containers": [container], "restartPolicy": "Never"}
    return {"suspend": True, "managedBy": "example.com/nobody", "template": {"spec": pod}, **spec}


def created(tenant: Tenant, name: str, spec: Object) -> Object:
    answer = tenant.api.create(jobs(tenant.namespace), {"metadata": {"name": name}, "spec": spec})
    assert answer.ok, str(answer)
    return answer.body


def test_a_job_that_can_never_fit_is_not_resumed_and_one_that_fits_in_part_is_warned_about(
    tenant: Tenant,
) -> None:
    tenant.quota(hard={"requests.cpu": "4"})
    resume = setting("spec.suspend", False)
    large = created(tenant, "large", a_simple_job("5"))
    becomes(
        lambda: put(tenant.api, updated(large, resume)).message,
        f"{OURS}{SPEC}: pods of this Job can never fit quota p1: requested requests.cpu=5,"
        " limited requests.cpu=4",
        "the verdict of a webhook that has seen the quota",
    )
    wide = created(tenant, "wide", a_simple_job("1", parallelism=6))
    answer = put(tenant.api, updated(wide, resume))
    assert answer.ok, str(answer)
    assert answer.warnings == ("quota p1: 6 pods ask requests.cpu=6, limit 4; at most 4 at a time",)
    smaller = setting(f"{SPEC}.containers.0.resources.requests.cpu", "4")
    assert put(tenant.api, updated(large, smaller, resume)).ok


def test_a_job_whose_pods_get_requests_from_a_limit_range_is_resumed(tenant: Tenant) -> None:
    limits = [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]
    limit_range = {"metadata": {"name": "defaults"}, "spec": {"limits": limits}}
    path = f"/api/v1/namespaces/{tenant.namespace}/limitranges"
    assert tenant.api.create(path, limit_range).ok
    quota = {"metadata": {"name": "p1"}, "spec": {"hard": {"pods": "0"}, "scopes": ["BestEffort"]}}
    assert tenant.api.create(objects.quotas(tenant.namespace), quota).ok
    pod = {"containers": [{"name": "c", "image": "c"}], "restartPolicy": "Never"}
    spec = {"suspend": True, "template": {"spec": pod}}
    created(tenant, "train", spec)
    path = jobs(tenant.namespace, "train")
    resume = partial(tenant.api.patch, path, {"spec": {"suspend": False}})
    becomes(
        lambda: list(resume(dry_run=True).warnings),
        ["pods without requests can never fit quota p1: requested pods=1, limited 0"],
        "the warnings of a webhook that has seen the quota",
    )
    assert resume().ok
    pods = objects.pods(tenant.namespace)
    eventually(lambda: tenant.api.get(pods).body["items"], "the Job has a pod")
    assert tenant.api.get(pods).body["items"][0]["status"]["qosClass"] == "Burstable"


def test_a_job_with_an_amount_that_cannot_be_read_is_held_to_the_rules(
    plane: ControlPlane, product: Product, tenant: Tenant
) -> None:
    role = ("rolebinding", "job-editor", "--clusterrole=edit", "--user=job-editor")
    plane.kubectl("create", *role, "--namespace", tenant.namespace)
    editor = Tenant(plane.rest_as("job-editor", ()), tenant.namespace)
    spec = a_simple_job("1")
    huge: Object = {"name": "huge", "image": "registry.example/app:1"}
    spec["template"]["spec"]["containers"].append(
        {**huge, "resources": {"limits": {"memory": "1e20000"}}}
    )
    grow = setting(f"{SPEC}.containers.0.resources.requests.cpu", "2")
    readable = setting(f"{SPEC}.containers.1.resources", {"limits": {"memory": "1Gi"}})
    with configured(product, jobs=[{"growth": "Deny"}]):
        wanted = {"metadata": {"name": "train"}, "spec": spec}
        create = partial(editor.api.create, jobs(tenant.namespace), wanted)
        eventually(lambda: create(dry_run=True).ok, "the role is in force")
        job = create().body
        for changes in ((grow,), (grow, readable)):
            assert words(editor, job, *changes) == (
                f"{REQUESTS}.cpu: from 1 to 2: cpu of this Job may not grow"
            )
        answer = put(editor.api, updated(job, readable), dry_run=False)
        assert answer.ok, str(answer)
        assert words(editor, answer.body, grow).endswith("cpu of this Job may not grow")


def test_two_managers_hear_of_each_other(tenant: Tenant) -> None:
    job = created(tenant, "train", a_simple_job("1"))
    grow = setting(f"{SPEC}.containers.0.resources.requests.cpu", "2")

    def resized() -> bool:
        """Resize it; times have whole seconds, and it has to be later than the creation."""
        nonlocal job
        change = (
            grow
            if _cpu(job) == "1"
            else setting(f"{SPEC}.containers.0.resources.requests.cpu", "1")
        )
        answer = put(tenant.api, updated(job, change), dry_run=False, manager="hand")
        assert answer.ok, str(answer)
        job = answer.body
        times = {entry["manager"]: entry["time"] for entry in job["metadata"]["managedFields"]}
        return bool(times["hand"] > job["metadata"]["creationTimestamp"])

    eventually(resized, "it is resized in a later second than it was created")
    resume = updated(job, setting("spec.suspend", False))
    told = "resized by hand, resumed by queue: do both agree?"
    assert told in put(tenant.api, resume, manager="queue").warnings
    assert told not in put(tenant.api, resume, manager="hand").warnings


def _cpu(job: Object) -> str:
    container = job["spec"]["template"]["spec"]["containers"][0]
    return str(container["resources"]["requests"]["cpu"])


def test_cron_jobs_are_looked_at(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "4"})
    job = a_simple_job("5")
    for name in ("suspend", "managedBy"):
        del job[name]
    cron = {
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}},
    }
    path = f"/apis/batch/v1/namespaces/{tenant.namespace}/cronjobs"
    becomes(
        lambda: list(tenant.api.create(path, cron, dry_run=True).warnings),
        ["pods can never fit quota p1: requested requests.cpu=5, limited 4"],
        "the warning of a webhook that has seen the quota",
    )


JOB_SETS: Final = {
    "metadata": {"name": "jobsets.jobset.x-k8s.io"},
    "spec": {
        "group": "jobset.x-k8s.io",
        "names": {
            "kind": "JobSet",
            "listKind": "JobSetList",
            "plural": "jobsets",
            "singular": "jobset",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def test_job_sets_are_looked_at_where_they_are_installed(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "4"})
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{tenant.namespace}/jobsets"
    part = {"name": "workers", "replicas": 3, "template": {"spec": a_simple_job("2")}}
    wanted = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": [part]},
    }
    assert tenant.api.create(definition, JOB_SETS).code in (201, 409)
    try:
        becomes(
            lambda: list(tenant.api.create(path, wanted, dry_run=True).warnings),
            ["quota p1: 3 pods ask requests.cpu=6, limit 4; at most 2 at a time"],
            "the warning of a webhook that has seen the quota",
        )
    finally:
        tenant.api.delete(f"{definition}/jobsets.jobset.x-k8s.io")
