"""The pods of what runs Jobs: of a Job, of a run of a CronJob, of the Jobs of a JobSet.

A Job of which no pod comes any more has none. One that is scaled to zero has pods of which none
runs now: what one of them asks for is known, and can be judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, mapping, sequence
from webhook.jsonfields.reader import FieldReader
from webhook.quota.charging.workload_pods import PodSet, pods_of_kind
from webhook.quota.jobs.parallelism import pods_at_a_time, pods_to_come

_Object = Mapping[str, object]

_MOST: Final = 2**31 - 1

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


def pods_of_job_set(job_set: _Object) -> tuple[PodSet, ...]:
    """Return for each Job template of a JobSet the pods of all its Jobs.

    They count as if all Jobs ran at the same time, which the set's startup policy may prevent.
    Errors are as in `pods_of_job`.

    Source: jobset.x-k8s.io/v1alpha2, JobSetSpec.
    """
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
        found.extend(
            replace(pods, count=pods.count * replicas)
            for pods in pods_of_job(job, field=f"{field}.template")
        )
    return tuple(found)


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
