"""The pods of what runs Jobs: of a Job, of a run of a CronJob, of the Jobs of a JobSet.

A Job of which no pod comes any more has none. One that is scaled to zero has pods of which none
runs now: what one of them asks for is known, and can be judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, mapping, sequence
from webhook.jsonfields.reader import FieldReader
from webhook.quota.charging.workload_pods import PodSet, pods_of_kind
from webhook.quota.jobs.parallelism import pods_at_a_time, pods_from_now_on, pods_to_come

_Object = Mapping[str, object]

_MOST: Final = 2**31 - 1
_DIGITS: Final = len(str(_MOST))
_NONE: Final[Mapping[str, _Object]] = {}

REPLICATED_JOBS: Final = "spec.replicatedJobs"
"""The Job templates of a JobSet."""


def pods_of_job(job: _Object, *, field: str = "") -> tuple[PodSet, ...]:
    """Return the pods that a Job runs at a time from now on, as if it were not suspended.

    Their number is 0 with `parallelism: 0`; without any pod to come there is no entry at all.

    Raises:
        InvalidFieldError: A field that is read has the wrong type or an impossible value, or
            there is no template or no container.
    """
    pods = _known(pods_of_kind(job, "batch", "Job", field=field), field)
    root = FieldReader(job, field)
    if pods_to_come(root.child("spec"), root.child("status")) == 0:
        return ()
    return (replace(pods, count=pods_at_a_time(job, field=field)),)


def pods_of_cron_job(cron_job: _Object) -> tuple[PodSet, ...]:
    """Return the pods of one run of a CronJob; errors as in `pods_of_job`."""
    return (_known(pods_of_kind(cron_job, "batch", "CronJob"), ""),)


def pods_of_job_set(
    job_set: _Object, statuses: Mapping[str, _Object] = _NONE
) -> tuple[PodSet, ...]:
    """Return for each Job template of a JobSet the pods of all its Jobs.

    They count as if all Jobs ran at the same time, which the set's startup policy may prevent.
    Errors are as in `pods_of_job`.

    Args:
        job_set: The JobSet.
        statuses: Name of a Job that is there → its status: what it has done is not run again.

    Source: jobset.x-k8s.io/v1alpha2, JobSetSpec; pkg/util/placement GenJobName.
    """
    name = FieldReader(job_set).child("metadata").text("name")
    spec = mapping(job_set.get("spec"), "spec")
    items = sequence(spec.get("replicatedJobs"), REPLICATED_JOBS)
    found: list[PodSet] = []
    for index, item in enumerate(items):
        field = f"{REPLICATED_JOBS}[{index}]"
        replicated = mapping(item, field)
        template = mapping(replicated.get("template"), f"{field}.template")
        # its name and namespace are those of the set
        job = {**template, "metadata": job_set.get("metadata")}
        replicas = _replicas(FieldReader(replicated, field))
        jobs = f"{name}-{FieldReader(replicated, field).text('name')}-"
        there = [
            status
            for key, status in statuses.items()
            if key.startswith(jobs) and _is_below(key.removeprefix(jobs), replicas)
        ]
        for pods in pods_of_job(job, field=f"{field}.template"):
            left = sum(pods_left(pods.count, job, status) for status in there)
            count = pods.count * (replicas - len(there)) + left
            found.append(replace(pods, count=count))
    return tuple(found)


def pods_left(count: int, job: _Object, status: _Object, *, field: str = "") -> int:
    """Return how many of the pods of a Job run from now on; all where its status is odd.

    Args:
        count: As many as run at the most.
        job: The Job.
        status: That of the Job that is there.
        field: YAML path of the Job.
    """
    with suppress(InvalidFieldError):
        spec = FieldReader(job, field).child("spec")
        return min(count, pods_from_now_on(spec, FieldReader(status)))
    return count


def _is_below(text: str, most: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) < most


READERS: Final[Mapping[tuple[str, str], Callable[[_Object], tuple[PodSet, ...]]]] = {
    ("batch", "jobs"): pods_of_job,
    ("batch", "cronjobs"): pods_of_cron_job,
    ("jobset.x-k8s.io", "jobsets"): pods_of_job_set,
}
"""(API group, resource) → how its pods are read."""


def _replicas(replicated: FieldReader) -> int:
    value = replicated.integer("replicas")
    if value is None:
        return 1
    if not 0 <= value <= _MOST:
        raise InvalidFieldError(
            replicated.path("replicas"), f"must be from 0 to {_MOST}, not {value}"
        )
    return value


def _known(pods: PodSet | None, field: str) -> PodSet:
    if pods is None:
        raise InvalidFieldError(field, "must be of a kind that makes pods")
    return pods
