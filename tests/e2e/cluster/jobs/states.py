"""Jobs in any state on a real API server, which no Job controller touches."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from tests.e2e.cluster.objects import Answer, Api, Object
from tests.quota.jobs.job_updates import a_stored_job

_NOBODY: Final = "example.com/nobody"


def jobs(namespace: str, name: str = "", subresource: str = "") -> str:
    """Give the path of the Jobs, of one, or of a part of one."""
    parts = (f"/apis/batch/v1/namespaces/{namespace}/jobs", name, subresource)
    return "/".join(part for part in parts if part)


def a_job_in_state(
    api: Api, namespace: str, name: str, status: Object, *, suspend: bool, **spec: Any
) -> Object:
    """Create a Job of `a_stored_job` with a status; return it as it is stored."""
    wanted = a_stored_job()
    wanted["metadata"] = {"name": name}
    wanted["spec"] |= {"suspend": suspend, "managedBy": _NOBODY, "manualSelector": True, **spec}  # type: ignore[operator]
    return with_status(api, namespace, wanted, status)


def with_status(api: Api, namespace: str, wanted: Object, status: Object) -> Object:
    """Create a Job and write its status."""
    made = api.create(jobs(namespace), wanted)
    assert made.ok, str(made)
    if not status:
        return made.body
    job = deepcopy(made.body)
    job["status"] = {**job.get("status", {}), **status}
    path = jobs(namespace, str(job["metadata"]["name"]), "status")
    written = api.call("PUT", path, job)
    assert written.ok, str(written)
    return written.body


def put(api: Api, job: Object, *, dry_run: bool = True, manager: str = "") -> Answer:
    """Update a Job, or see what would become of it."""
    path = jobs(str(job["metadata"]["namespace"]), str(job["metadata"]["name"]))
    query = {"fieldManager": manager} if manager else {}
    return api.call("PUT", path, job, dry_run=dry_run, **query)
