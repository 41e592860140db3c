"""How the new values of a Job's template are checked, whether or not they may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.quota.jobs.job_updates import (
    MAIN,
    SETUP,
    SPEC,
    STARTED,
    TEMPLATE,
    Change,
    a_stored_job,
    drop,
    every,
    immutable,
    invalid,
    put,
    resources_of,
    twice,
    updated,
)
from webhook.jsonfields.fields import FieldError
from webhook.quota.jobs import job_update_errors

OPEN_JOB = a_stored_job()
LABELS = f"{TEMPLATE}.metadata.labels"
GPU = "nvidia.com/gpu"

CHECKED: Mapping[str, tuple[Change, Sequence[FieldError]]] = {
    "GPU request below its limit": (
        resources_of("containers.0", requests={GPU: "1"}, limits={GPU: "2"}),
        [invalid(f"{MAIN}.requests", "must be equal to nvidia.com/gpu limit of 2")],
    ),
    "half a GPU": (
        resources_of("containers.0", requests={GPU: "500m"}, limits={GPU: "500m"}),
        [
            invalid(f"{MAIN}.limits[{GPU}]", "must be an integer"),
            invalid(f"{MAIN}.requests[{GPU}]", "must be an integer"),
        ],
    ),
    "request above its limit": (
        resources_of("containers.0", requests={"cpu": "200m"}, limits={"cpu": "100m"}),
        [invalid(f"{MAIN}.requests", "must be less than or equal to cpu limit of 100m")],
    ),
    "the limit keeps its spelling": (
        resources_of("containers.0", requests={"cpu": "2"}, limits={"cpu": "1.500"}),
        [invalid(f"{MAIN}.requests", "must be less than or equal to cpu limit of 1.500")],
    ),
    "the same of an init container": (
        resources_of("initContainers.0", requests={"cpu": "200m"}, limits={"cpu": "100m"}),
        [invalid(f"{SETUP}.requests", "must be less than or equal to cpu limit of 100m")],
    ),
    "negative": (
        resources_of("containers.0", requests={"cpu": "-1"}),
        [invalid(f"{MAIN}.requests[cpu]", "must be greater than or equal to 0")],
    ),
    "a claim that is not declared": (
        put(f"{SPEC}.containers.0.resources.claims", [{"name": "zz"}]),
        [
            FieldError(
                "FieldValueNotFound",
                f"{MAIN}.claims[0]",
                "must be one of the names in pod.spec.resourceClaims: c1, c2",
            )
        ],
    ),
    "a claim without a name, and one twice": (
        put(
            f"{SPEC}.containers.0.resources.claims",
            [{"name": ""}, {"name": "c1"}, {"name": "c1"}, {"name": "c1", "request": "r"}],
        ),
        [
            FieldError("FieldValueRequired", f"{MAIN}.claims[0]", ""),
            FieldError("FieldValueDuplicate", f"{MAIN}.claims[2]", ""),
            FieldError("FieldValueDuplicate", f"{MAIN}.claims[3]", ""),
        ],
    ),
    "a claim after two of its requests, each of them a fault": (
        put(
            f"{SPEC}.containers.0.resources.claims",
            [{"name": "c1", "request": each} for each in ("r", "s", "r", "")] + [{"name": "c2"}],
        ),
        [FieldError("FieldValueDuplicate", f"{MAIN}.claims[{index}]", "") for index in (2, 3, 3)],
    ),
    "a request of a claim whose name has a dot": (
        put(f"{SPEC}.containers.0.resources.claims", [{"name": "c1", "request": "a.b"}]),
        [invalid(f"{MAIN}.claims[0].request", "must not contain dots")],
    ),
    "a label that the selector needs": (
        put(f"{LABELS}.app", "other"),
        [invalid(LABELS, "`selector` does not match template `labels`")],
    ),
    "an unknown resource": (
        resources_of("containers.0", requests={"foo": "1"}),
        [
            invalid(f"{MAIN}.requests[foo]", "must be a standard resource type or fully qualified"),
            invalid(f"{MAIN}.requests[foo]", "must be a standard resource for containers"),
        ],
    ),
    "a resource of quotas": (
        resources_of("containers.0", requests={"pods": "1.5"}),
        [
            invalid(f"{MAIN}.requests[pods]", "must be a standard resource for containers"),
            invalid(f"{MAIN}.requests[pods]", "must be an integer"),
        ],
    ),
    "a vendor's resource that cannot have a quota": (
        resources_of("containers.0", requests={}, limits={"requests.example.com/x": "1"}),
        [
            invalid(
                f"{MAIN}.limits[requests.example.com/x]",
                "doesn't follow extended resource name standard",
            )
        ],
    ),
    "a vendor's resource without a limit": (
        resources_of("containers.0", requests={GPU: "1"}),
        [
            FieldError(
                "FieldValueRequired",
                f"{MAIN}.limits",
                "Limit must be set for non overcommitable resources",
            )
        ],
    ),
    "huge pages alone": (
        resources_of(
            "containers.0", requests={"hugepages-2Mi": "4Mi"}, limits={"hugepages-2Mi": "4Mi"}
        ),
        [FieldError("FieldValueForbidden", MAIN, "HugePages require cpu or memory")],
    ),
    "torn huge pages": (
        resources_of(
            "containers.0",
            requests={"cpu": "1", "hugepages-2Mi": "3Mi"},
            limits={"hugepages-2Mi": "3Mi"},
        ),
        [
            invalid(
                f"{MAIN}.limits[hugepages-2Mi]",
                "3Mi is not positive integer multiple of hugepages-2Mi",
            ),
            invalid(
                f"{MAIN}.requests[hugepages-2Mi]",
                "3Mi is not positive integer multiple of hugepages-2Mi",
            ),
        ],
    ),
    "huge pages of no size": (
        resources_of(
            "containers.0",
            requests={"cpu": "1", "hugepages-0": "0"},
            limits={"hugepages-0": "0"},
        ),
        [
            invalid(
                f"{MAIN}.{kind}[hugepages-0]", "0 is not positive integer multiple of hugepages-0"
            )
            for kind in ("limits", "requests")
        ],
    ),
    "huge pages of a size that is none": (
        resources_of("containers.0", requests={"cpu": "1"}, limits={"hugepages-x": "0"}),
        [
            invalid(
                f"{MAIN}.limits[hugepages-x]", "0 is not positive integer multiple of hugepages-x"
            )
        ],
    ),
    "errors of all containers in order": (
        every(
            resources_of("initContainers.0", requests={"cpu": "-1"}),
            resources_of("containers.1", requests={"memory": "-1"}),
        ),
        [
            invalid(
                f"{SPEC}.containers[1].resources.requests[memory]",
                "must be greater than or equal to 0",
            ),
            invalid(f"{SETUP}.requests[cpu]", "must be greater than or equal to 0"),
        ],
    ),
    "negative parallelism": (
        put("spec.parallelism", -1),
        [invalid("spec.parallelism", "must be greater than or equal to 0")],
    ),
    "failed indexes of a Job without": (
        put("spec.maxFailedIndexes", 1),
        [
            FieldError(
                "FieldValueRequired",
                "spec.backoffLimitPerIndex",
                "when maxFailedIndexes is specified",
            ),
            invalid("spec.maxFailedIndexes", "requires indexed completion mode"),
        ],
    ),
    "a replacement that there is not": (
        put("spec.podReplacementPolicy", "Never"),
        [
            FieldError(
                "FieldValueNotSupported",
                "spec.podReplacementPolicy",
                'supported values: "Failed", "TerminatingOrFailed"',
            )
        ],
    ),
}


@pytest.mark.parametrize(("change", "errors"), CHECKED.values(), ids=CHECKED.keys())
def test_new_values_are_checked_twice(change: Change, errors: Sequence[FieldError]) -> None:
    assert job_update_errors(OPEN_JOB, updated(OPEN_JOB, change)) == twice(errors)


INDEXED = updated(
    OPEN_JOB,
    put("spec.completionMode", "Indexed"),
    put("spec.backoffLimitPerIndex", 1),
    put("spec.maxFailedIndexes", 3),
    put(
        "spec.successPolicy",
        {"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 2}, {"succeededCount": 4}]},
    ),
)
AT_MOST = "must be less than or equal to"
MANY = "when completions are above 100000 and used with backoff limit per index"
OF_INDEXED: Mapping[str, tuple[Change, Sequence[FieldError]]] = {
    "as many pods as there may be": (put("spec.parallelism", 100_000), []),
    "more": (
        put("spec.parallelism", 100_001),
        [invalid("spec.parallelism", f"{AT_MOST} 100000 when completion mode is Indexed")],
    ),
    "more failed indexes than indexes": (
        put("spec.maxFailedIndexes", 5),
        [invalid("spec.maxFailedIndexes", f"{AT_MOST} completions")],
    ),
    "a bound of them without one of each": (
        drop("spec.backoffLimitPerIndex"),
        [
            FieldError(
                "FieldValueRequired",
                "spec.backoffLimitPerIndex",
                "when maxFailedIndexes is specified",
            )
        ],
    ),
    "very many completions": (
        every(
            put("spec.completions", 100_001),
            put("spec.parallelism", 100_001),
            put("spec.maxFailedIndexes", 100_001),
        ),
        [
            invalid("spec.parallelism", f"{AT_MOST} 100000 when completion mode is Indexed"),
            invalid("spec.maxFailedIndexes", f"{AT_MOST} 100000"),
            invalid("spec.parallelism", f"{AT_MOST} 10000 {MANY}"),
            invalid("spec.maxFailedIndexes", f"{AT_MOST} 10000 {MANY}"),
        ],
    ),
    "very many completions without a bound": (
        every(
            put("spec.completions", 100_001),
            put("spec.parallelism", 10_000),
            drop("spec.maxFailedIndexes"),
        ),
        [
            FieldError(
                "FieldValueRequired",
                "spec.maxFailedIndexes",
                "must be specified when completions is above 100000",
            )
        ],
    ),
    "an index with many zeros in front": (
        put("spec.successPolicy.rules", [{"succeededIndexes": "0,0000000000003"}]),
        [],
    ),
    "fewer completions than have to succeed": (
        every(
            put("spec.completions", 3),
            put("spec.parallelism", 3),
        ),
        [
            invalid(
                "spec.successPolicy.rules[0].succeededIndexes",
                'error parsing succeededIndexes: too large index: "3"',
            ),
            invalid(
                "spec.successPolicy.rules[0].succeededCount",
                f"{AT_MOST} 0 (the number of indexes in the specified succeededIndexes field)",
            ),
            invalid(
                "spec.successPolicy.rules[1].succeededCount",
                f"{AT_MOST} 3 (the number of specified completions)",
            ),
        ],
    ),
}


@pytest.mark.parametrize(("change", "errors"), OF_INDEXED.values(), ids=OF_INDEXED.keys())
def test_numbers_of_an_indexed_job_are_checked(
    change: Change, errors: Sequence[FieldError]
) -> None:
    found = job_update_errors(INDEXED, updated(INDEXED, change))

    assert [
        error
        for error in found
        if "immutable" not in error.detail and "tandem" not in (error.detail)
    ] == twice(errors)


def test_pods_of_an_indexed_job_have_to_have_names() -> None:
    job = updated(INDEXED, put("metadata.name", "j" * 61))
    scaled = every(put("spec.completions", 11), put("spec.parallelism", 11))
    detail = f"will not able to create pod with invalid DNS label: {'j' * 61}-10"

    assert job_update_errors(job, job) == []
    assert job_update_errors(job, updated(job, scaled)) == [invalid("metadata.name", detail)]


def test_beside_a_policy_of_failures_there_are_fewer_choices() -> None:
    job = updated(OPEN_JOB, put("spec.podFailurePolicy", {"rules": []}))
    new = updated(
        job,
        put("spec.podReplacementPolicy", "TerminatingOrFailed"),
        put(f"{SPEC}.restartPolicy", "OnFailure"),
    )
    errors = [
        FieldError(
            "FieldValueNotSupported", "spec.podReplacementPolicy", 'supported values: "Failed"'
        ),
        invalid(
            f"{SPEC}.restartPolicy",
            'only "Never" is supported when podFailurePolicy is specified',
        ),
    ]

    assert job_update_errors(job, new) == [*twice(errors), immutable(SPEC)]


def test_ephemeral_containers_are_forbidden_and_immutable() -> None:
    new = updated(OPEN_JOB, put(f"{SPEC}.ephemeralContainers", [{"name": "debug"}]))
    forbidden = FieldError(
        "FieldValueForbidden",
        f"{SPEC}.ephemeralContainers",
        "ephemeral containers not allowed in pod template",
    )

    assert job_update_errors(OPEN_JOB, new) == [forbidden, forbidden, immutable(SPEC)]


def test_faults_come_before_what_is_immutable() -> None:
    closed = a_stored_job(startTime=STARTED)
    new = updated(closed, resources_of("containers.0", requests={"cpu": "-1"}))
    negative = invalid(f"{MAIN}.requests[cpu]", "must be greater than or equal to 0")

    assert job_update_errors(closed, new) == [negative, negative, immutable(TEMPLATE)]


def test_faults_that_were_there_before_are_still_faults() -> None:
    old = updated(OPEN_JOB, resources_of("containers.0", requests={"cpu": "-1"}))
    new = updated(old, put("spec.parallelism", 3))

    assert len(job_update_errors(old, new)) == 2


def test_torn_huge_pages_are_let_pass_where_there_were_some() -> None:
    old = updated(
        OPEN_JOB,
        resources_of(
            "containers.0",
            requests={"cpu": "1", "hugepages-2Mi": "3Mi"},
            limits={"hugepages-2Mi": "3Mi"},
        ),
    )

    assert job_update_errors(old, updated(old, put("spec.parallelism", 3))) == []


def test_a_job_that_never_had_a_selector_needs_none() -> None:
    job = updated(OPEN_JOB, drop("spec.selector"))

    assert job_update_errors(job, updated(job, put("spec.parallelism", 3))) == []


@pytest.mark.parametrize("change", [drop("spec.selector"), put("spec.selector", None)])
def test_a_selector_cannot_be_dropped(change: Change) -> None:
    missing = [
        FieldError("FieldValueRequired", "spec.selector", ""),
        invalid(LABELS, "`selector` does not match template `labels`"),
    ]

    assert job_update_errors(OPEN_JOB, updated(OPEN_JOB, change)) == [
        *twice(missing),
        immutable("spec.selector"),
    ]


def test_an_invalid_selector_is_not_said_to_select_other_labels() -> None:
    expressions = [{"key": "app", "operator": "Like", "values": ["train"]}]
    new = updated(OPEN_JOB, put("spec.selector.matchExpressions", expressions))

    unknown = invalid("spec.selector.matchExpressions[0].operator", "not a valid selector operator")
    assert job_update_errors(OPEN_JOB, new) == [
        *twice([unknown]),
        immutable("spec.selector"),
    ]


MESSAGES = {
    "an amount": (
        resources_of("containers.0", requests={"cpu": "-1"}),
        'Invalid value: "-1": must be greater than or equal to 0',
    ),
    "a name": (
        put(f"{SPEC}.containers.0.resources.claims", [{"name": "zz"}]),
        'Not found: "zz": must be one of the names in pod.spec.resourceClaims: c1, c2',
    ),
    "a number": (
        put("spec.backoffLimit", -2),
        "Invalid value: -2: must be greater than or equal to 0",
    ),
    "a template is too long to print": (
        put(f"{SPEC}.containers.0.image", "registry.example/app:2"),
        "field is immutable",
    ),
}


@pytest.mark.parametrize(("change", "message"), MESSAGES.values(), ids=MESSAGES.keys())
def test_messages_show_the_value_as_the_api_server_does(change: Change, message: str) -> None:
    errors = job_update_errors(OPEN_JOB, updated(OPEN_JOB, change))

    assert {error.message for error in errors} == {message}
