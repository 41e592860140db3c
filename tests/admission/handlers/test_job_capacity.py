"""Jobs that are let run or resized, and whether their pods fit the quotas."""

from __future__ import annotations

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import AdmissionHarness, Reply, a_review
from tests.builders import a_container, a_job, a_quota, an_expression
from tests.counting import calls_of
from webhook.admission.review import MAX_WARNING_CHARACTERS, Phase
from webhook.kube.api import RESOURCE_QUOTAS
from webhook.quota.amounts.quantity import Quantity

Object = dict[str, object]

SPEC = "spec.template.spec"


def sized(cpu: str, **fields: object) -> Object:
    return a_job(a_container(requests={"cpu": cpu}), **fields)  # type: ignore[arg-type]


def change(
    harness: AdmissionHarness, old: Object, new: Object, phase: Phase = Phase.VALIDATING
) -> Reply:
    return harness.post(a_review("UPDATE", "jobs", new, old=old, group="batch"), phase)


def resumed(harness: AdmissionHarness, job: Object) -> Reply:
    spec = {**job["spec"], "suspend": False}  # type: ignore[dict-item]
    return change(harness, job, {**job, "spec": spec})


def created(
    harness: AdmissionHarness, obj: Object, resource: str = "jobs", group: str = "batch"
) -> Reply:
    return harness.validate(a_review("CREATE", resource, obj, group=group))


def of_quota(open_harness: OpenHarness, cpu: str, *rules: Object, **hard: str) -> AdmissionHarness:
    harness = open_harness(
        a_quota("p1", hard={"requests.cpu": cpu, **hard}), settings={"jobs": list(rules)}
    )
    harness.wait_until_settled()
    return harness


NEVER = "pods of this Job can never fit quota p1: requested requests.cpu=3, limited requests.cpu=2"


def test_a_job_whose_pods_fit_is_resumed_without_a_word(open_harness: OpenHarness) -> None:
    reply = resumed(of_quota(open_harness, "4"), sized("1", parallelism=4))
    assert (reply.allowed, reply.warnings) == (True, [])


def test_a_job_whose_pod_can_never_fit_is_not_resumed(open_harness: OpenHarness) -> None:
    reply = resumed(of_quota(open_harness, "2"), sized("3"))
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.causes == [("FieldValueInvalid", SPEC, NEVER)]


def test_nor_is_it_grown_to_that(open_harness: OpenHarness) -> None:
    harness = of_quota(open_harness, "2")
    assert change(harness, sized("1"), sized("3")).message == f"{SPEC}: {NEVER}"
    assert change(harness, sized("1"), sized("3"), Phase.MUTATING).allowed


def test_one_that_shrinks_step_by_step_is_let_shrink(open_harness: OpenHarness) -> None:
    reply = change(of_quota(open_harness, "2"), sized("5"), sized("3"))
    assert (reply.allowed, reply.warnings) == (
        True,
        ["pods can never fit quota p1: requested requests.cpu=3, limited 2"],
    )


def test_what_never_fits_can_be_let_pass(open_harness: OpenHarness) -> None:
    harness = of_quota(open_harness, "2", {"neverFits": "Warn", "unsuspend": "Allow"})
    reply = resumed(harness, sized("3"))
    assert (reply.allowed, len(reply.warnings)) == (True, 1)


def test_a_quota_that_was_just_raised_is_asked_for_before_it_refuses(
    open_harness: OpenHarness,
) -> None:
    harness = of_quota(open_harness, "2")
    harness.client.pause(RESOURCE_QUOTAS)
    harness.api.patch(
        RESOURCE_QUOTAS, "p1", {"spec": {"hard": {"requests.cpu": "3"}}}, namespace="team-a"
    )
    assert resumed(harness, sized("3")).allowed


def test_a_job_that_cannot_run_all_its_pods_is_warned_about_with_what_fits(
    open_harness: OpenHarness,
) -> None:
    reply = resumed(of_quota(open_harness, "5"), sized("2", parallelism=4))
    assert (reply.allowed, reply.warnings) == (
        True,
        ["quota p1: 4 pods ask requests.cpu=8, limit 5; at most 2 at a time"],
    )


def test_or_refused_where_a_rule_says_so(open_harness: OpenHarness) -> None:
    harness = of_quota(open_harness, "5", {"unsuspend": "Deny"})
    reply = resumed(harness, sized("2", parallelism=4))
    assert (reply.code, reply.message) == (
        422,
        (
            "spec.parallelism: 4 pods ask requests.cpu=8, quota p1 limits requests.cpu=5;"
            " at most 2 fit: set it to 2"
        ),
    )
    assert resumed(harness, sized("2", parallelism=2)).allowed
    assert change(harness, sized("3", parallelism=4), sized("2", parallelism=4)).allowed
    assert change(harness, sized("1", parallelism=4), sized("2", parallelism=4)).code == 422


def test_or_passed_over(open_harness: OpenHarness) -> None:
    harness = of_quota(open_harness, "5", {"unsuspend": "Allow"})
    assert resumed(harness, sized("2", parallelism=4)).warnings == []


def test_what_others_use_now_is_reported_with_numbers(open_harness: OpenHarness) -> None:
    harness = of_quota(open_harness, "4")
    harness.pod(a_container(requests={"cpu": "3"}), name="web-1", node="node-1")
    harness.wait_until_settled()
    assert resumed(harness, sized("1", parallelism=3)).warnings == [
        "quota p1: 3 pods ask requests.cpu=3, 1 free; 1 can start now"
    ]
    assert resumed(harness, sized("1", parallelism=1)).warnings == []


COUNTS = {
    "completions that are done": ({"completions": 5}, {"succeeded": 4}, False),
    "completions to come": ({"completions": 9}, {"succeeded": 4}, True),
    "no pods": ({"parallelism": 0}, {}, False),
    "a queue of work": ({}, {}, True),
    "a queue of work that is empty": ({}, {"succeeded": 1}, False),
    "indexes that are done": (
        {"completions": 5, "completionMode": "Indexed"},
        {"succeeded": 2, "completedIndexes": "0,2", "failedIndexes": "3-4"},
        False,
    ),
}


@pytest.mark.parametrize(("spec", "status", "warns"), COUNTS.values(), ids=COUNTS.keys())
def test_only_pods_that_are_still_to_come_count(
    open_harness: OpenHarness, spec: Object, status: Object, warns: bool
) -> None:
    fields: Object = {"parallelism": 4, **spec, "podReplacementPolicy": "Failed"}
    reply = resumed(of_quota(open_harness, "3"), sized("1", status=status, **fields))
    assert reply.allowed
    assert bool(reply.warnings) == warns


def test_pods_are_counted_too(open_harness: OpenHarness) -> None:
    reply = resumed(of_quota(open_harness, "9", pods="2"), sized("1", parallelism=4))
    assert reply.warnings == ["quota p1: 4 pods ask pods=4, limit 2; at most 2 at a time"]


def test_quotas_for_other_pods_are_not_looked_at(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "1"}, scopes=["Terminating"]))
    assert resumed(harness, sized("3")).warnings == []


def test_quotas_that_cannot_be_read_are_reported(open_harness: OpenHarness) -> None:
    broken = a_quota("p1")
    broken["spec"] = {"hard": {"requests.cpu": "much"}}
    (warning,) = resumed(open_harness(broken), sized("1")).warnings
    assert warning.startswith("not compared with quotas: quota p1 cannot be read: ")


@pytest.mark.parametrize("rule", [{"unsuspend": "Deny"}, {"growth": "WithinQuota"}])
def test_nor_is_anything_decided_where_a_rule_asks_for_it(
    open_harness: OpenHarness, rule: Object
) -> None:
    broken = a_quota("p1")
    broken["spec"] = {"hard": {"requests.cpu": "much"}}
    harness = open_harness(broken, settings={"jobs": [rule]})
    reply = change(harness, sized("1"), sized("2"))
    assert (reply.code, reply.decision) == (429, "undecided")
    assert change(harness, sized("2"), sized("1")).allowed == ("growth" in rule)


def test_warnings_are_short_whatever_names_are(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("q" * 63, hard={"requests.ephemeral-storage": "123456789Mi"}))
    big = a_container(requests={"ephemeral-storage": "100000000Mi"})
    (warning,) = resumed(harness, a_job(big, parallelism=1234)).warnings
    assert len(warning) <= MAX_WARNING_CHARACTERS
    assert warning.endswith("at most 1 at a time")


def test_a_new_job_is_only_warned_about(open_harness: OpenHarness) -> None:
    harness = of_quota(open_harness, "2")
    assert created(harness, sized("3", suspend=False)).warnings == [
        "pods can never fit quota p1: requested requests.cpu=3, limited 2"
    ]
    assert created(harness, sized("1", suspend=False, parallelism=3)).warnings == [
        "quota p1: 3 pods ask requests.cpu=3, limit 2; at most 2 at a time"
    ]
    assert created(harness, sized("3")).warnings == []  # suspended: somebody will make it fit


def test_a_new_job_that_runs_is_no_way_around_a_rule(open_harness: OpenHarness) -> None:
    harness = of_quota(open_harness, "2", {"unsuspend": "Deny"})
    assert created(harness, sized("1", suspend=False, parallelism=3)).code == 422
    assert created(harness, sized("1", parallelism=3)).allowed


def a_cron_job(cpu: str, parallelism: int = 1, **spec: object) -> Object:
    job = sized(cpu, suspend=False, parallelism=parallelism)
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "team-a"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job["spec"]}, **spec},
    }


def test_a_cron_job_is_warned_about(open_harness: OpenHarness) -> None:
    harness = of_quota(open_harness, "2")
    assert created(harness, a_cron_job("3"), "cronjobs").warnings == [
        "pods can never fit quota p1: requested requests.cpu=3, limited 2"
    ]
    update = a_review("UPDATE", "cronjobs", a_cron_job("1", 3), old=a_cron_job("1"), group="batch")
    assert harness.validate(update).warnings == [
        "quota p1: 3 pods ask requests.cpu=3, limit 2; at most 2 at a time"
    ]
    same = a_review("UPDATE", "cronjobs", a_cron_job("3"), old=a_cron_job("3"), group="batch")
    assert harness.validate(same).warnings == []
    assert created(harness, a_cron_job("3", suspend=True), "cronjobs").warnings == []


def test_a_cron_job_is_refused_where_a_rule_says_so(open_harness: OpenHarness) -> None:
    reply = created(
        of_quota(open_harness, "2", {"unsuspend": "Deny"}), a_cron_job("1", 3), "cronjobs"
    )
    assert str(reply.message).startswith("spec.jobTemplate.spec.parallelism: 3 pods ask")


def a_job_set(*parts: tuple[str, int], suspend: bool = False) -> Object:
    jobs = [
        {
            "name": f"part-{number}",
            "replicas": replicas,
            "template": {"spec": sized(cpu, suspend=False)["spec"]},
        }
        for number, (cpu, replicas) in enumerate(parts)
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "team-a"},
        "spec": {"suspend": suspend, "replicatedJobs": jobs},
    }


JOB_SETS = ("jobsets", "jobset.x-k8s.io")


def test_the_jobs_of_a_job_set_are_counted_together(open_harness: OpenHarness) -> None:
    harness = of_quota(open_harness, "4")
    assert created(harness, a_job_set(("1", 2), ("2", 1)), *JOB_SETS).warnings == []
    assert created(harness, a_job_set(("1", 3), ("2", 1)), *JOB_SETS).warnings == [
        "quota p1: 4 pods ask requests.cpu=5, limit 4"
    ]


@pytest.mark.parametrize(
    ("rule", "resumes", "code"),
    [
        ({}, False, 200),
        ({"unsuspend": "Deny"}, False, 422),
        ({}, True, 422),
        ({"neverFits": "Warn"}, True, 200),
    ],
)
def test_a_job_set_of_thousands_of_jobs_is_not_compared(
    open_harness: OpenHarness, rule: Object, resumes: bool, code: int
) -> None:
    harness, many = of_quota(open_harness, "4", rule), a_job_set(*[("9", 1)] * 1001)
    if resumes:
        reply = updated_set(harness, with_spec(many, suspend=True), many)
    else:
        reply = created(harness, many, *JOB_SETS)
    words = "spec.replicatedJobs: must have at most 1000 items to be compared with quotas"
    said = [reply.message] if code == 422 else reply.warnings
    assert (reply.allowed, said) == (code == 200, [words])


def test_beside_very_many_quotas_fewer_jobs_are_compared(open_harness: OpenHarness) -> None:
    quotas = [a_quota(f"q{number}", uid=f"u{number}") for number in range(40)]
    reply = created(open_harness(*quotas), a_job_set(*[("9", 1)] * 401), *JOB_SETS)
    assert reply.warnings == [
        "spec.replicatedJobs: must have at most 400 items to be compared with quotas"
    ]


def test_beside_quotas_of_very_many_classes_too(open_harness: OpenHarness) -> None:
    classes = an_expression("PriorityClass", "In", *map(str, range(799)))
    harness = open_harness(a_quota("p1", expressions=[classes]))
    assert created(harness, a_job_set(*[("9", 1)] * 19), *JOB_SETS).warnings == []
    reply = created(harness, a_job_set(*[("9", 1)] * 20), *JOB_SETS)
    assert reply.warnings == [
        "spec.replicatedJobs: must have at most 19 items to be compared with quotas"
    ]


def test_what_no_quota_limits_of_a_changed_job_set_is_added_up_for_none(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = calls_of(monkeypatch, Quantity, "__add__")

    def additions(quotas: int) -> int:
        old, new = (many_resources(templates=10, jobs=count) for count in (1, 2))
        limits = [a_quota(f"q{number}", uid=f"u{number}") for number in range(quotas)]
        harness = open_harness(*limits)
        added.clear()
        assert len(updated_set(harness, old, new).warnings) == quotas
        return len(added)

    assert additions(3) - additions(1) < 2 * 10 * 30


def many_resources(*, templates: int, jobs: int) -> Object:
    made = a_job_set(*[("1", jobs)] * templates)
    for job in made["spec"]["replicatedJobs"]:  # type: ignore[index]
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        container["resources"]["requests"] |= {f"example.com/{name}": "1" for name in range(30)}
    return made


def updated_set(harness: AdmissionHarness, old: Object, new: Object) -> Reply:
    resource, group = ("cronjobs", "batch") if new["kind"] == "CronJob" else JOB_SETS
    return harness.validate(a_review("UPDATE", resource, new, old=old, group=group))


def with_spec(obj: Object, **fields: object) -> Object:
    return {**obj, "spec": {**obj["spec"], **fields}}  # type: ignore[dict-item]


BIG = a_job_set(("1", 6))
"""More than a quota of 4 cpu."""
NIGHTLY = a_cron_job("1", 6)
EDITS: dict[str, tuple[Object, Object, bool]] = {
    "of a JobSet, of something else": (BIG, with_spec(BIG, ttlSecondsAfterFinished=60), True),
    "of a CronJob, of its schedule": (NIGHTLY, with_spec(NIGHTLY, schedule="0 4 * * *"), True),
    "of a JobSet, that suspends it": (BIG, with_spec(BIG, suspend=True), True),
    "of a CronJob, that suspends it": (NIGHTLY, with_spec(NIGHTLY, suspend=True), True),
    "of a suspended CronJob": (
        with_spec(NIGHTLY, suspend=True),
        with_spec(NIGHTLY, suspend=True, schedule="0 4 * * *"),
        True,
    ),
    "of a CronJob, that resumes it": (with_spec(NIGHTLY, suspend=True), NIGHTLY, False),
    "of a JobSet, that resumes it": (with_spec(BIG, suspend=True), BIG, False),
    "of a JobSet, with fewer Jobs": (BIG, a_job_set(("1", 5)), True),
    "of a JobSet, with more Jobs": (BIG, a_job_set(("1", 7)), False),
    "of a JobSet, with other Jobs that ask the same": (BIG, a_job_set(("2", 3)), True),
    "of a JobSet, with more Jobs that fit": (a_job_set(("1", 1)), a_job_set(("1", 4)), True),
    "of a CronJob, with larger pods": (NIGHTLY, a_cron_job("2", 6), False),
    "of a CronJob, with fewer pods that are larger": (NIGHTLY, a_cron_job("2", 3), True),
    "of a CronJob that was scaled to zero": (a_cron_job("1", 0), NIGHTLY, False),
    "of a CronJob, to zero": (NIGHTLY, a_cron_job("1", 0), True),
    "of a JobSet that could not be read": (with_spec(BIG, replicatedJobs=[{}]), BIG, False),
}


@pytest.mark.parametrize(("old", "new", "may"), EDITS.values(), ids=EDITS.keys())
def test_an_edit(open_harness: OpenHarness, old: Object, new: Object, may: bool) -> None:
    reply = updated_set(of_quota(open_harness, "4", {"unsuspend": "Deny"}), old, new)
    assert reply.allowed is may, reply.message


@pytest.mark.parametrize("kind", ["CronJob", "JobSet"])
def test_one_that_cannot_be_counted_may_be_suspended(open_harness: OpenHarness, kind: str) -> None:
    old = a_cron_job("1e20000") if kind == "CronJob" else a_job_set(("1e20000", 1))
    harness = of_quota(open_harness, "4", {"unsuspend": "Deny"})
    held = with_spec(old, suspend=True)
    assert updated_set(harness, old, held).allowed
    assert updated_set(harness, held, old).code == 422


def test_an_edit_that_does_not_touch_pods_is_not_looked_at(open_harness: OpenHarness) -> None:
    broken = a_quota("p1")
    broken["spec"] = {"hard": {"requests.cpu": "much"}}
    harness = open_harness(broken, settings={"jobs": [{"unsuspend": "Deny"}]})
    reply = updated_set(harness, BIG, with_spec(BIG, ttlSecondsAfterFinished=60))
    assert (reply.allowed, reply.warnings) == (True, [])
    assert updated_set(harness, BIG, a_job_set(("1", 7))).code == 429


def test_an_edit_is_never_refused_for_pods_that_never_fit(open_harness: OpenHarness) -> None:
    reply = updated_set(of_quota(open_harness, "4"), a_job_set(("1", 1)), a_job_set(("5", 1)))
    assert (reply.allowed, reply.warnings) == (
        True,
        ["pods can never fit quota p1: requested requests.cpu=5, limited 4"],
    )


RUNNING: dict[str, tuple[int, int, bool]] = {
    "up, beyond the quota": (2, 6, False),
    "up, within the quota": (2, 4, True),
    "down, still beyond the quota": (6, 5, True),
    "up from zero, beyond the quota": (0, 6, False),
    "down to zero": (6, 0, True),
    "not at all": (6, 6, True),
}


@pytest.mark.parametrize(("before", "after", "may"), RUNNING.values(), ids=RUNNING.keys())
def test_a_job_that_runs_is_scaled(
    open_harness: OpenHarness, before: int, after: int, may: bool
) -> None:
    harness = of_quota(open_harness, "4", {"unsuspend": "Deny"})
    old = sized("1", parallelism=before, suspend=False)
    new = sized("1", parallelism=after, suspend=False, backoffLimit=7)
    reply = change(harness, old, new)
    assert reply.allowed is may, reply.message
    if not may:
        assert [field for _, field, _ in reply.causes] == ["spec.parallelism"]


def test_a_suspended_job_may_have_any_parallelism(open_harness: OpenHarness) -> None:
    harness = of_quota(open_harness, "4", {"unsuspend": "Deny"})
    reply = change(harness, sized("1", parallelism=0), sized("1", parallelism=9))
    assert (reply.allowed, reply.warnings) == (True, [])


def test_whether_a_pod_can_ever_fit_does_not_depend_on_how_many_there_are(
    open_harness: OpenHarness,
) -> None:
    harness = of_quota(open_harness, "2")
    zero = sized("3", parallelism=0)
    assert resumed(harness, zero).message == f"{SPEC}: {NEVER}"
    assert change(harness, sized("1", parallelism=0), zero).message == f"{SPEC}: {NEVER}"
    running = sized("3", parallelism=0, suspend=False)
    assert change(harness, running, sized("3", parallelism=1, suspend=False)).code == 422
    done = sized("3", completions=2, status={"succeeded": 2}, podReplacementPolicy="Failed")
    assert resumed(harness, done).warnings == []


def test_one_whose_pods_are_too_large_but_not_larger_is_only_warned_about(
    open_harness: OpenHarness,
) -> None:
    harness = of_quota(open_harness, "2")
    grown = a_job(a_container(requests={"cpu": "3", "memory": "2Gi"}))
    reply = change(harness, a_job(a_container(requests={"cpu": "3", "memory": "1Gi"})), grown)
    assert (reply.allowed, len(reply.warnings)) == (True, 1)


def of_class_quota(open_harness: OpenHarness, *rules: Object) -> AdmissionHarness:
    quota = a_quota("p1", hard={"requests.cpu": "2"})
    expression = {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}
    quota["spec"]["scopeSelector"] = {"matchExpressions": [expression]}  # type: ignore[index]
    return open_harness(quota, settings={"jobs": list(rules)})


def test_a_default_class_may_let_fit_what_does_not_fit_without(open_harness: OpenHarness) -> None:
    harness = of_class_quota(open_harness, {"neverFits": "Deny"})
    for reply in (resumed(harness, sized("3")), change(harness, sized("1"), sized("3"))):
        assert (reply.allowed, reply.warnings) == (
            True,
            ["pods without a class can never fit quota p1: requested requests.cpu=3, limited 2"],
        )
    classed = sized("3", template_spec={"priorityClassName": "low"})
    assert resumed(harness, classed).message == f"{SPEC}: {NEVER}"
    high = sized("3", template_spec={"priorityClassName": "high"})
    assert (resumed(harness, high).allowed, resumed(harness, high).warnings) == (True, [])
    assert resumed(of_class_quota(open_harness, {"neverFits": "Allow"}), sized("3")).warnings == []


def test_defaults_of_a_limit_range_may_let_fit_what_names_no_requests(
    open_harness: OpenHarness,
) -> None:
    harness = open_harness(a_quota("p1", hard={"pods": "0"}, scopes=["BestEffort"]), settings={})
    reply = resumed(harness, a_job(a_container()))
    assert (reply.allowed, reply.warnings) == (
        True,
        ["pods without requests can never fit quota p1: requested pods=1, limited 0"],
    )
    assert resumed(harness, sized("3")).warnings == []


def test_what_is_refused_by_another_word_is_refused_although_it_was_reported_already(
    open_harness: OpenHarness,
) -> None:
    harness = of_quota(open_harness, "2", {"neverFits": "Warn", "unsuspend": "Deny"})
    reply = resumed(harness, sized("3"))
    assert (reply.code, reply.message) == (
        422,
        (
            "spec.parallelism: 1 pod asks requests.cpu=3, quota p1 limits requests.cpu=2;"
            " at most 0 fit"
        ),
    )
    assert resumed(of_class_quota(open_harness, {"unsuspend": "Deny"}), sized("3")).code == 422


def test_a_job_set_that_can_never_fit_is_not_resumed(open_harness: OpenHarness) -> None:
    harness = of_quota(open_harness, "4")
    held, free = a_job_set(("1", 1), ("5", 1), suspend=True), a_job_set(("1", 1), ("5", 1))
    reply = harness.validate(a_review("UPDATE", "jobsets", free, old=held, group="jobset.x-k8s.io"))
    assert (reply.code, reply.causes[0][1]) == (
        422,
        "spec.replicatedJobs[1].template.spec.template.spec",
    )


BAD = {
    "no template": ("jobs", "batch", {"spec": {}}, "spec.template.spec.containers"),
    "template null": (
        "jobs",
        "batch",
        {"spec": {"template": None}},
        "spec.template.spec.containers",
    ),
    "template a list": ("jobs", "batch", {"spec": {"template": []}}, "spec.template"),
    "no job template": ("cronjobs", "batch", {"spec": {}}, "spec.jobTemplate.spec.template"),
    "parts are no list": (
        "jobsets",
        "jobset.x-k8s.io",
        {"spec": {"replicatedJobs": {}}},
        "spec.replicatedJobs",
    ),
    "a part without template": (
        "jobsets",
        "jobset.x-k8s.io",
        {"spec": {"replicatedJobs": [{"name": "a"}]}},
        "spec.replicatedJobs[0].template.spec.template",
    ),
}


@pytest.mark.parametrize(("resource", "group", "obj", "field"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_read_is_refused_with_its_path(
    harness: AdmissionHarness, resource: str, group: str, obj: Object, field: str
) -> None:
    reply = created(harness, {"metadata": {"name": "x"}, **obj}, resource, group)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert str(reply.message).startswith(field)


@pytest.mark.parametrize(("resource", "group"), [("cronjobs", "batch"), JOB_SETS])
def test_an_update_without_old_object_is_a_bad_request(
    harness: AdmissionHarness, resource: str, group: str
) -> None:
    review = a_review("UPDATE", resource, a_cron_job("1"), group=group)
    assert harness.validate(review).code == 400
