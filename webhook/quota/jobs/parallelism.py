"""Number of pods that a Job runs at a time from now on.

1. As many as `parallelism`, and no more than completions are still to come.
2. Of an Indexed Job, an index that succeeded or failed for good is not run again.
3. Without completions the Job ends with its first success: after it no pod is made.
4. A finished Job, one that met its success policy and one that is bound to fail make no more.

Retries, whose number `backoffLimit` and `podFailurePolicy` bound, replace pods that ended, so
they change nothing in how many run at once.

Source: kubernetes v1.36, pkg/controller/job/job_controller.go manageJob, indexed_job_utils.go;
pkg/apis/batch/v1/defaults.go SetDefaults_Job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.quota.jobs.validation import INDEXED

_MOST: Final = 2**31 - 1
_ENDING: Final = frozenset({"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"})
_INTERVAL: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?", flags=re.ASCII)


def pods_at_a_time(job: Mapping[str, object], *, field: str = "") -> int:
    """Return how many pods of a Job run together, were it not suspended.

    Args:
        job: The Job, with its status if it has one.
        field: YAML path of the Job, for messages.

    Raises:
        InvalidFieldError: A field that is read has the wrong type, or a count is negative or
            larger than the API has it.
    """
    root = FieldReader(job, field)
    return running_pods(root.child("spec"), root.child("status"))


def running_pods(spec: FieldReader, status: FieldReader) -> int:
    """Return the same of the parts of a Job; see `pods_at_a_time`."""
    parallelism = _count(spec, "parallelism")
    left = pods_to_come(spec, status)
    wanted = 1 if parallelism is None else parallelism
    return wanted if left is None else min(wanted, left)


def pods_from_now_on(spec: FieldReader, status: FieldReader) -> int:
    """Return how many pods of a Job run from now on: active ones stay, whatever is still to come.

    That is where they differ: after the first success without completions. Errors are those of
    `pods_at_a_time`.
    """
    return max(running_pods(spec, status), _count(status, "active") or 0)


def pods_to_come(spec: FieldReader, status: FieldReader) -> int | None:
    """Return how many pods of a Job have still to succeed, whatever its parallelism is.

    None where that is not known: without completions the work decides. Errors are those of
    `pods_at_a_time`.
    """
    parallelism = _count(spec, "parallelism")
    completions = _count(spec, "completions")
    if parallelism is None and completions is None:
        completions = 1
    if _is_ending(status):
        return 0
    succeeded = _count(status, "succeeded") or 0
    if completions is None:
        return 0 if succeeded else None
    done = succeeded
    if spec.text("completionMode") == INDEXED:
        completed = indexes_in(status.text("completedIndexes"), completions)
        failed = indexes_in(status.text("failedIndexes"), completions)
        done = max(succeeded, completed) + failed
    return max(0, completions - done)


def indexes_in(text: str, completions: int) -> int:
    """Count the indexes in a text such as `1,3-5,7`; what cannot be read counts as none."""
    found = 0
    for part in filter(None, text.split(",")):
        interval = _INTERVAL.fullmatch(part)
        if interval is None:
            return 0
        first = int(interval[1])
        last = min(int(interval[2] or first), completions - 1)
        found += max(0, last - first + 1)
    return found


def _is_ending(status: FieldReader) -> bool:
    return any(
        condition.text("type") in _ENDING and condition.text("status") == "True"
        for condition in status.children("conditions")
    )


def _count(holder: FieldReader, name: str) -> int | None:
    value = holder.integer(name)
    if value is not None and not 0 <= value <= _MOST:
        raise InvalidFieldError(holder.path(name), f"must be from 0 to {_MOST}, not {value}")
    return value
