"""Jobs: what a cluster allows of a change that the API server takes."""

from __future__ import annotations

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import AdmissionHarness, Reply, a_review
from tests.builders import a_container, a_job, a_quota
from tests.reactions import unreachable
from webhook.admission.review import Phase
from webhook.kube.api import NAMESPACES

Object = dict[str, object]

SPEC = "spec.template.spec"
MAIN = f"{SPEC}.containers[0].resources"
SUSPENDED: Object = {"conditions": [{"type": "Suspended", "status": "True"}]}
RAN = {**SUSPENDED, "failed": 1}
OVERLAP = "podReplacementPolicy is not Failed: new pods may run beside terminating ones"


def sized(cpu: str, memory: str = "1Gi", **fields: object) -> Object:
    requests = {"cpu": cpu, "memory": memory}
    return a_job(a_container(requests=requests), status=SUSPENDED, **fields)  # type: ignore[arg-type]


def with_status(job: Object, status: Object) -> Object:
    return {**job, "status": status}


def change(
    harness: AdmissionHarness,
    old: Object,
    new: Object,
    *,
    user: str = "alice",
    phase: Phase = Phase.VALIDATING,
) -> Reply:
    review = a_review("UPDATE", "jobs", new, old=old, group="batch", user=user)
    return harness.post(review, phase)


def ruled(open_harness: OpenHarness, *rules: Object, **fields: object) -> AdmissionHarness:
    return open_harness(settings={"jobs": list(rules)}, **fields)  # type: ignore[arg-type]


def test_without_rules_resources_may_grow_and_shrink(harness: AdmissionHarness) -> None:
    for before, after in (("1", "2"), ("2", "1")):
        reply = change(harness, sized(before), sized(after))
        assert (reply.allowed, reply.warnings) == (True, [])


def test_growth_can_be_denied(open_harness: OpenHarness) -> None:
    harness = ruled(open_harness, {"growth": "Deny"})
    reply = change(harness, sized("1"), sized("2"))
    assert reply.code == 422
    assert reply.causes == [
        (
            "FieldValueForbidden",
            f"{MAIN}.requests.cpu",
            "from 1 to 2: cpu of this Job may not grow",
        )
    ]
    assert change(harness, sized("2"), sized("1")).allowed


HUGE = "1e20000"


def beside_a_huge_one(cpu: str, memory: str = HUGE, **fields: object) -> Object:
    beside = a_container("beside", requests={"memory": memory})
    return a_job(a_container(requests={"cpu": cpu}), beside, status=SUSPENDED, **fields)  # type: ignore[arg-type]


def test_an_amount_that_cannot_be_read_lets_no_other_grow(open_harness: OpenHarness) -> None:
    """The API server stores it: a Job that is created suspended is not looked at."""
    rule: Object = {"growth": "Deny", "resizers": {"users": ["queue"]}}
    harness = ruled(open_harness, rule)
    old = beside_a_huge_one("1")
    for new in (beside_a_huge_one("2"), beside_a_huge_one("2", "1Gi")):
        reply = change(harness, old, new, user="queue")
        assert (reply.code, reply.message) == (
            422,
            f"{MAIN}.requests.cpu: from 1 to 2: cpu of this Job may not grow",
        )
        assert change(harness, old, new).code == 403
    assert change(harness, old, beside_a_huge_one("1", "1Gi"), user="queue").allowed
    assert change(harness, beside_a_huge_one("1", suspend=False), old).allowed


def test_a_time_that_cannot_be_read_lets_nothing_grow(open_harness: OpenHarness) -> None:
    harness = ruled(open_harness, {"growth": "Deny"})
    old, new = sized("1"), sized("2")
    for job in (old, new):
        template = job["spec"]["template"]  # type: ignore[index]
        template["metadata"] = {"creationTimestamp": "0000-01-01T00:00:00Z"}
    assert change(harness, old, new).code == 422


def nested(levels: int) -> Object:
    fields: Object = {}
    for _ in range(levels):
        fields = {"f:a": fields}
    return {"managedFields": [{"manager": "m", "fieldsV1": fields}]}


UNREAD: dict[str, tuple[Object, Object]] = {
    "nothing": ({}, {}),
    "managed fields that nest": (nested(70), {}),
    "managed fields that nest deep": (nested(800), {}),
    "managed fields of a volume that nest": ({}, nested(800)),
    "a time": ({"creationTimestamp": "0000-01-01T00:00:00Z"}, {}),
    "a time of a volume": ({}, {"creationTimestamp": "0000-01-01T00:00:00Z"}),
}
"""Metadata of a template and of its volume, as the API server stores it."""


def templated(cpu: str, claim: str, metadata: Object, of_volume: Object, **more: object) -> Object:
    job = sized(cpu)
    template = job["spec"]["template"]  # type: ignore[index]
    template["metadata"] = {**metadata, **more}
    pod = template["spec"]
    pod["containers"][0]["resources"]["claims"] = [{"name": claim}]
    pod["volumes"] = [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": of_volume}}}]
    return job


@pytest.mark.parametrize("metadata", UNREAD.values(), ids=UNREAD.keys())
def test_nothing_in_the_metadata_hides_a_change(
    harness: AdmissionHarness, metadata: tuple[Object, Object]
) -> None:
    old = templated("1", "gpu", *metadata)
    for new, field in (
        (templated("2", "other", *metadata), f"{MAIN}.claims"),
        (templated("2", "gpu", *metadata, finalizers=["a/b"]), "spec.template.metadata"),
    ):
        reply = change(harness, old, new)
        assert (reply.code, [cause[1] for cause in reply.causes]) == (422, [field])
    new = templated("2", "gpu", *metadata)
    assert change(harness, old, new).allowed
    assert change(harness, old, new, phase=Phase.MUTATING).allowed


def test_managed_fields_of_a_template_are_left_to_the_api_server(
    harness: AdmissionHarness,
) -> None:
    old, new = templated("1", "gpu", {}, {}), templated("2", "gpu", nested(800), nested(800))
    for phase in Phase.MUTATING, Phase.VALIDATING:
        assert change(harness, old, new, phase=phase).allowed


def test_an_amount_that_cannot_be_read_is_refused_where_it_is_new(
    harness: AdmissionHarness,
) -> None:
    reply = change(harness, beside_a_huge_one("1", "1Gi"), beside_a_huge_one("1"))
    assert reply.code == 422
    assert f"{SPEC}.containers[1].resources.requests.memory" in str(reply.message)


def test_words_can_be_given_for_each_resource(open_harness: OpenHarness) -> None:
    shrink = {"memory": "Warn", "cpu": "Deny"}
    rule: Object = {"growth": {"cpu": "Allow", "*": "Deny"}, "shrink": shrink}
    harness = ruled(open_harness, rule)
    assert change(harness, sized("1"), sized("2")).allowed
    assert change(harness, sized("1"), sized("1", "2Gi")).message == (
        f"{MAIN}.requests.memory: from 1Gi to 2Gi: memory of this Job may not grow"
    )
    assert change(harness, sized("2"), sized("1")).message == (
        f"{MAIN}.requests.cpu: from 2 to 1: cpu of this Job may not shrink"
    )
    smaller = change(harness, sized("1"), sized("1", "512Mi"))
    assert (smaller.allowed, smaller.warnings) == (True, ["memory of this Job should not shrink"])


def test_taking_a_limit_away_is_growth(open_harness: OpenHarness) -> None:
    harness = ruled(open_harness, {"growth": "Deny"})
    old = a_job(a_container(requests={"cpu": "1"}, limits={"cpu": "2"}))
    new = a_job(a_container(requests={"cpu": "1"}))
    assert change(harness, old, new).message == (
        f"{MAIN}.limits.cpu: from 2 to none: cpu of this Job may not grow"
    )
    assert change(harness, new, old).allowed


def test_growth_within_the_quota_counts_all_pods_that_run_at_a_time(
    open_harness: OpenHarness,
) -> None:
    harness = ruled(open_harness, {"growth": "WithinQuota", "unsuspend": "Allow"})
    harness.create(a_quota("p1", hard={"requests.cpu": "4"}, uid="quota-uid-p1"))
    harness.catch_up()
    assert change(harness, sized("1", parallelism=2), sized("2", parallelism=2)).allowed
    reply = change(harness, sized("1", parallelism=3), sized("2", parallelism=3))
    assert (reply.code, reply.message) == (
        422,
        (
            f"{MAIN}.requests.cpu: from 1 to 2: may grow within the quota only:"
            " 3 pods ask requests.cpu=6, quota p1 limits requests.cpu=4"
        ),
    )
    shrunk = change(harness, sized("4", parallelism=3), sized("2", parallelism=3))
    assert shrunk.allowed  # not enough, but on its way


def limited(request: str, limit: str = "", **fields: object) -> Object:
    limits = {"limits": {"cpu": limit}} if limit else {}
    return a_job(a_container(requests={"cpu": request}, **limits), status=SUSPENDED, **fields)  # type: ignore[arg-type]


LIMITS: dict[str, tuple[Object, Object, Object, bool]] = {
    "added, and nothing may shrink": ({"shrink": "Deny"}, limited("1"), limited("1", "2"), True),
    "added, and nothing may grow": ({"growth": "Deny"}, limited("1"), limited("1", "2"), True),
    "lowered, and nothing may shrink": (
        {"shrink": "Deny"},
        limited("1", "3"),
        limited("1", "2"),
        False,
    ),
    "raised, and nothing may shrink": (
        {"shrink": "Deny"},
        limited("1", "2"),
        limited("1", "3"),
        True,
    ),
    "taken away, and nothing may shrink": (
        {"shrink": "Deny"},
        limited("1", "2"),
        limited("1"),
        True,
    ),
    "taken away, and nothing may grow": (
        {"growth": "Deny"},
        limited("1", "2"),
        limited("1"),
        False,
    ),
    "added beyond the quota": ({"growth": "WithinQuota"}, limited("1"), limited("1", "5"), False),
    "added within the quota": ({"growth": "WithinQuota"}, limited("1"), limited("1", "4"), True),
    "added beyond the quota for some pods": (
        {"growth": "WithinQuota"},
        limited("1", parallelism=3),
        limited("1", "2", parallelism=3),
        False,
    ),
    "taken away, within the quota": (
        {"growth": "WithinQuota"},
        limited("1", "5"),
        limited("1"),
        True,
    ),
}


@pytest.mark.parametrize(("rule", "old", "new", "may"), LIMITS.values(), ids=LIMITS.keys())
def test_a_limit(
    open_harness: OpenHarness, rule: Object, old: Object, new: Object, may: bool
) -> None:
    harness = ruled(open_harness, {"unsuspend": "Allow", "neverFits": "Allow", **rule})
    harness.create(a_quota("p1", hard={"limits.cpu": "4"}, uid="quota-uid-p1"))
    harness.catch_up()
    reply = change(harness, old, new)
    assert reply.allowed is may, reply.message
    if not may:
        assert [field for _, field, _ in reply.causes] == [f"{MAIN}.limits.cpu"]


def test_growth_within_the_quota_of_a_job_without_pods_is_that_of_one(
    open_harness: OpenHarness,
) -> None:
    harness = ruled(
        open_harness, {"growth": "WithinQuota", "unsuspend": "Deny", "neverFits": "Allow"}
    )
    harness.create(a_quota("p1", hard={"requests.cpu": "4"}, uid="quota-uid-p1"))
    harness.catch_up()
    assert change(harness, sized("1", parallelism=0), sized("4", parallelism=0)).allowed
    assert change(harness, sized("1", parallelism=0), sized("5", parallelism=0)).message == (
        f"{MAIN}.requests.cpu: from 1 to 5: may grow within the quota only:"
        " 1 pod asks requests.cpu=5, quota p1 limits requests.cpu=4"
    )
    assert change(harness, sized("6", parallelism=0), sized("5", parallelism=0)).allowed


CLAIMS = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}


def claiming(*names: str) -> Object:
    resources = {"requests": {"cpu": "1"}, "claims": [{"name": name} for name in names]}
    return a_job(a_container(resources=resources), template_spec=CLAIMS)


def test_claims_of_containers_may_not_change_unless_a_rule_says_so(
    harness: AdmissionHarness, open_harness: OpenHarness
) -> None:
    reply = change(harness, claiming(), claiming("gpu"))
    assert (reply.code, reply.causes) == (
        422,
        [
            (
                "FieldValueInvalid",
                f"{MAIN}.claims",
                'field is immutable: from none to ["gpu"]',
            )
        ],
    )
    assert change(harness, claiming(), claiming("gpu"), phase=Phase.MUTATING).allowed
    assert change(ruled(open_harness, {"claims": "Allow"}), claiming(), claiming("gpu")).allowed


def test_metadata_that_slips_through_may_not_change_unless_a_rule_says_so(
    open_harness: OpenHarness,
) -> None:
    gates = {"jobGates": {"MutableSchedulingDirectivesForSuspendedJobs": False}}
    ran: Object = {**SUSPENDED, "startTime": "2026-01-05T08:00:00Z"}
    old = with_status(sized("1"), ran)
    new = with_status(sized("1", labels={"team": "x"}), ran)
    path = "spec.template.metadata"
    reply = change(open_harness(settings=gates), old, new)
    assert (reply.code, reply.message) == (
        422,
        f'{path}: field is immutable: labels.team from none to "x"',
    )
    warned = change(
        open_harness(settings={**gates, "jobs": [{"templateMetadata": "Warn"}]}), old, new
    )
    assert warned.allowed
    assert warned.warnings == [f'{path} changes: labels.team from none to "x"']


def test_labels_are_scheduling_directives_where_these_may_change(harness: AdmissionHarness) -> None:
    assert change(harness, sized("1"), sized("1", labels={"team": "x"})).allowed


RESIZERS: Object = {
    "resizers": {
        "users": ["alice"],
        "groups": ["system:nodes"],
        "serviceAccounts": ["queue/manager"],
    }
}


@pytest.mark.parametrize(
    ("user", "may"),
    [
        ("alice", True),
        ("system:node:n1", True),
        ("system:serviceaccount:queue:manager", True),
        ("queue/manager", False),
        ("system:serviceaccount:queue:other", False),
        ("bob", False),
    ],
)
def test_the_users_that_may_resize_can_be_configured(
    open_harness: OpenHarness, user: str, may: bool
) -> None:
    harness = ruled(open_harness, RESIZERS)
    reply = change(harness, sized("1"), sized("2"), user=user)
    assert reply.allowed == may
    if not may:
        assert (reply.code, reply.reason, reply.message) == (
            403,
            "Forbidden",
            (
                f"{MAIN}.requests.cpu: from 1 to 2:"
                f" user '{user}' may not change the resources of this Job"
            ),
        )
    resumed = change(harness, sized("1"), sized("1", suspend=False), user=user)
    assert resumed.allowed


def test_the_first_rule_that_is_about_a_job_decides(open_harness: OpenHarness) -> None:
    harness = ruled(
        open_harness,
        {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "x"}}, "growth": "Deny"},
        {"selector": {"matchLabels": {"queue": "free"}}},
        {"namespaces": {"matchLabels": {"deferredquota.io/mode": "deferred"}}, "growth": "Deny"},
    )
    old, new = sized("1"), sized("2")
    assert change(harness, old, new).code == 422
    metadata = {**new["metadata"], "labels": {"queue": "free"}}  # type: ignore[dict-item]
    assert change(harness, old, {**new, "metadata": metadata}).allowed


def test_where_the_labels_of_the_namespace_are_not_known_nothing_is_decided(
    open_harness: OpenHarness,
) -> None:
    harness = ruled(open_harness, {"namespaces": {"matchLabels": {"a": "b"}}})
    harness.client.on("get", NAMESPACES, unreachable)
    assert change(harness, sized("1"), sized("2")).code == 429


def test_a_job_that_ran_is_warned_about_overlapping_pods(harness: AdmissionHarness) -> None:
    old, new = with_status(sized("1"), RAN), with_status(sized("2"), RAN)
    assert change(harness, old, new).warnings == [OVERLAP]
    careful = with_status(sized("2", podReplacementPolicy="Failed"), RAN)
    assert change(harness, old, careful).warnings == []
    assert change(harness, sized("1"), sized("2")).warnings == []


def test_waiting_for_the_old_pods_can_be_required(open_harness: OpenHarness) -> None:
    harness = ruled(open_harness, {"podReplacementPolicy": "Deny", "terminating": "Deny"})
    old, new = with_status(sized("1"), RAN), with_status(sized("2"), RAN)
    reply = change(harness, old, new)
    assert (reply.code, reply.causes[0][1]) == (422, "spec.podReplacementPolicy")
    assert "must be Failed for a Job that ran" in str(reply.message)
    leaving = {**SUSPENDED, "terminating": 2}
    careful = sized("2", podReplacementPolicy="Failed")
    reply = change(harness, with_status(sized("1"), leaving), with_status(careful, leaving))
    assert reply.message == (
        "spec.template: 2 pods of the previous run still terminating; wait until they are gone"
    )


def test_pods_that_terminate_are_reported(harness: AdmissionHarness) -> None:
    leaving = {**SUSPENDED, "terminating": 1}
    reply = change(harness, with_status(sized("1"), leaving), with_status(sized("2"), leaving))
    assert reply.warnings == [
        OVERLAP,
        "1 pod of the previous run still terminating: charged until gone, if it has a node",
    ]


def managed(job: Object, *entries: tuple[str, str, Object]) -> Object:
    fields = [
        {"manager": name, "operation": "Update", "time": time, "fieldsV1": {"f:spec": spec}}
        for name, time, spec in entries
    ]
    metadata = {
        **job["metadata"],  # type: ignore[dict-item]
        "creationTimestamp": "2026-01-05T08:00:00Z",
        "managedFields": fields,
    }
    return {**job, "metadata": metadata}


RESOURCES: Object = {
    "f:template": {"f:spec": {"f:containers": {'k:{"name":"main"}': {"f:resources": {}}}}}
}
BORN, LATER = "2026-01-05T08:00:00Z", "2026-01-05T09:00:00Z"


def test_a_resize_and_a_resume_by_two_managers_is_reported(harness: AdmissionHarness) -> None:
    new = managed(
        sized("1", suspend=False),
        ("kubectl-create", BORN, RESOURCES),
        ("kubectl-edit", LATER, RESOURCES),
        ("queue", LATER, {"f:suspend": {}}),
    )
    assert change(harness, sized("1"), new).warnings == [
        "resized by kubectl-edit, resumed by queue: do both agree?"
    ]


def test_a_time_of_a_manager_that_cannot_be_read_refuses_nothing(
    harness: AdmissionHarness,
) -> None:
    new = managed(sized("1", suspend=False), ("queue", "0000-01-01T00:00:00Z", {"f:suspend": {}}))
    assert change(harness, sized("1"), new).allowed


def test_a_user_that_resumes_what_another_created_is_not(harness: AdmissionHarness) -> None:
    new = managed(
        sized("1", suspend=False),
        ("kubectl-create", BORN, RESOURCES),
        ("queue", LATER, {"f:suspend": {}, **RESOURCES}),
    )
    assert change(harness, sized("1"), new).warnings == []


def test_the_job_controller_is_not_asked(open_harness: OpenHarness) -> None:
    harness = ruled(open_harness, {"growth": "Deny", "resizers": {}})
    user = "system:serviceaccount:kube-system:job-controller"
    assert change(harness, sized("1"), sized("2"), user=user).allowed


def test_other_changes_of_a_job_are_not_looked_at(open_harness: OpenHarness) -> None:
    harness = ruled(open_harness, {"growth": "Deny", "shrink": "Deny", "resizers": {}})
    old = sized("1", suspend=False)
    new = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}  # type: ignore[dict-item]
    assert change(harness, old, new).allowed
