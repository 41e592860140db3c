"""Resources of the pod as a whole, in the template of a Job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.builders import Object
from tests.quota.jobs.job_updates import (
    SPEC,
    Change,
    a_stored_job,
    invalid,
    put,
    resources_of,
    twice,
    updated,
)
from webhook.jsonfields.fields import FieldError
from webhook.quota.jobs import job_update_errors

POD = f"{SPEC}.resources"


def a_job_with(**resources: object) -> Object:
    return updated(a_stored_job(), put(POD, resources))


ROOMY = a_job_with(requests={"cpu": "3", "memory": "8Gi"}, limits={"cpu": "4", "memory": "8Gi"})

GROWTH: Mapping[str, tuple[Change, Sequence[FieldError]]] = {
    "within the pod's": (resources_of("containers.0", requests={"cpu": "2"}), []),
    "requests above the pod's": (
        # 2950m, the other container and the sidecar
        resources_of("containers.0", requests={"cpu": "2950m"}),
        [
            invalid(
                f"{POD}.requests[cpu]",
                "must be greater than or equal to aggregate container requests of 3100m",
            )
        ],
    ),
    "an init container's requests above the pod's": (
        resources_of("initContainers.0", requests={"memory": "9Gi"}),
        [
            invalid(
                f"{POD}.requests[memory]",
                "must be greater than or equal to aggregate container requests of 9Gi",
            )
        ],
    ),
    "a limit above the pod's": (
        resources_of("containers.1", requests={"cpu": "1"}, limits={"cpu": "5"}),
        [
            invalid(
                f"{POD}.containers[1][cpu].limits", "must be less than or equal to pod limits of 4"
            )
        ],
    ),
    "a resource that the pod does not limit": (
        resources_of("containers.0", requests={}, limits={"ephemeral-storage": "9Gi"}),
        [],
    ),
}


@pytest.mark.parametrize(("change", "errors"), GROWTH.values(), ids=GROWTH.keys())
def test_containers_have_to_fit_into_the_pod(change: Change, errors: Sequence[FieldError]) -> None:
    assert job_update_errors(ROOMY, updated(ROOMY, change)) == twice(errors)


FAULTY: Mapping[str, tuple[Object, Sequence[FieldError]]] = {
    "a resource that pods do not have": (
        {"requests": {"ephemeral-storage": "1Gi"}},
        [
            FieldError(
                "FieldValueNotSupported",
                f"{POD}.requests[ephemeral-storage]",
                'supported values: "cpu", "hugepages-", "memory"',
            )
        ],
    ),
    "an unknown resource": (
        {"limits": {"foo": "1"}},
        [invalid(f"{POD}.limits[foo]", "must be a standard resource type or fully qualified")],
    ),
    "a request above its limit": (
        {"requests": {"cpu": "9"}, "limits": {"cpu": "8"}},
        [invalid(f"{POD}.requests", "must be less than or equal to cpu limit of 8")],
    ),
    "claims": (
        {"claims": [{"name": "c1"}]},
        [
            FieldError(
                "FieldValueForbidden",
                f"{POD}.claims",
                "claims may not be set for Resources at pod-level",
            )
        ],
    ),
    "no claims": (
        {"claims": []},
        [
            FieldError(
                "FieldValueForbidden",
                f"{POD}.claims",
                "claims may not be set for Resources at pod-level",
            )
        ],
    ),
    "fewer huge pages than its containers": (
        {"limits": {"memory": "8Gi", "hugepages-2Mi": "2Mi"}},
        [
            invalid(
                f"{POD}.limits[hugepages-2Mi]",
                "must be greater than or equal to aggregate container limits of 8Mi",
            ),
            *(
                invalid(
                    f"{POD}.containers[{index}][hugepages-2Mi].limits",
                    "must be less than or equal to pod limits of 2Mi",
                )
                for index in (0, 1)
            ),
        ],
    ),
}


@pytest.mark.parametrize(("resources", "errors"), FAULTY.values(), ids=FAULTY.keys())
def test_the_pods_own_resources_are_checked(
    resources: Object, errors: Sequence[FieldError]
) -> None:
    pages = {"cpu": "100m", "hugepages-2Mi": "4Mi"}
    job = updated(
        a_job_with(**resources),
        resources_of("containers.0", requests=pages, limits=pages),
        resources_of("containers.1", requests=pages, limits=pages),
    )

    assert job_update_errors(job, job) == twice(errors)


def test_an_overhead_is_checked_like_limits() -> None:
    job = updated(a_stored_job(), put(f"{SPEC}.overhead", {"cpu": "-1"}))

    assert job_update_errors(job, job) == twice(
        [invalid(f"{SPEC}.overhead.limits[cpu]", "must be greater than or equal to 0")]
    )
