"""Which feature gates of the API server decide what a suspended Job may change.

1. From 1.36 on both are on, up to 1.34 there are none.
2. In 1.35 they are off unless somebody turned them on. That is tried once, with dry runs of
   changes of a suspended Job that makes no pods and is deleted at once.
3. What cannot be found out counts as on: then the API server refuses in its own words what we let
   pass, and we never refuse what it takes.

Source: kubernetes v1.36, pkg/features/kube_features.go.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from webhook.cluster.api import JOBS, ApiError, ClusterApi, InvalidError, Object
from webhook.quota.jobs import JobGate
from webhook.state.names import SYSTEM_NAMESPACE

_log = logging.getLogger(__name__)

ALL: Final[frozenset[str]] = frozenset(JobGate)
_NONE: Final[frozenset[str]] = frozenset()
_ON_BY_DEFAULT: Final = (1, 36)
_FIRST: Final = (1, 35)
_NOBODY: Final = "deferredquota.io/nobody"
"""No Job controller is responsible for a Job that is managed by this."""


@runtime_checkable
class VersionSource(Protocol):
    """An API server that says its version."""

    def server_version(self) -> Object:
        """Return what it answers at `/version`.

        Raises:
            ApiError: It does not answer.
        """


class JobGates:
    """The feature gates of one API server, found out once for each of its versions.

    `enabled` may be read from any thread; `look` belongs to one thread.

    Args:
        api: The API server; one that does not say its version is as 1.36.
        clock: A monotonic clock.
        pause_seconds: How long an answer stands, so that an upgrade of the API server is seen.
    """

    def __init__(
        self, api: ClusterApi, clock: Callable[[], float], *, pause_seconds: float = 600.0
    ) -> None:
        self._api = api
        self._clock = clock
        self._pause_seconds = pause_seconds
        self._lock = threading.Lock()
        self._enabled = ALL
        self._version: tuple[int, int] | None = None
        self._next_look = clock()

    @property
    def enabled(self) -> frozenset[str]:
        """The names of the gates that are on, as far as is known."""
        with self._lock:
            return self._enabled

    def look(self) -> bool:
        """Find out anew, if it is time; return whether something changed."""
        now = self._clock()
        if now < self._next_look or not isinstance(self._api, VersionSource):
            return False
        self._next_look = now + self._pause_seconds
        try:
            version = version_of(self._api.server_version())
        except ApiError as err:
            _log.warning("the API server's version is not known", extra={"error": str(err)})
            return False
        if version is None or version == self._version:
            return False
        self._version = version
        found = self._gates_of(version)
        with self._lock:
            has_changed, self._enabled = found != self._enabled, found
        _log.info("feature gates of Jobs", extra={"enabled": sorted(found)})
        return has_changed

    def _gates_of(self, version: tuple[int, int]) -> frozenset[str]:
        if version >= _ON_BY_DEFAULT:
            return ALL
        if version < _FIRST:
            return _NONE
        try:
            return tried_gates(self._api)
        except ApiError as err:
            _log.warning("feature gates of Jobs cannot be tried", extra={"error": str(err)})
            return ALL


def version_of(answer: Object) -> tuple[int, int] | None:
    """Read major and minor of `/version`; None where they are not numbers.

    Distributions write minors such as `35+`.
    """
    parts = [re.match(r"\d+", str(answer.get(name, ""))) for name in ("major", "minor")]
    numbers = [int(part[0]) for part in parts if part]
    return (numbers[0], numbers[1]) if len(numbers) == len(parts) else None


def tried_gates(api: ClusterApi) -> frozenset[str]:
    """Find out by trying which gates are on.

    A Job that never started tells of the first gate; one that has an active pod besides tells of
    the second, because its scheduling directives can change only where that gate is off.

    Raises:
        ApiError: It cannot be tried, for want of rights for example.
    """
    made = api.create(JOBS, _throw_away()).object
    name = _name(made)
    found = set()
    try:
        if _is_taken(api, _resized(made)):
            found.add(JobGate.MUTABLE_RESOURCES)
        active = api.update_status(JOBS, {**made, "status": {"active": 1}}).object
        if not _is_taken(api, _directed(active)):
            found.add(JobGate.MUTABLE_SCHEDULING)
    finally:
        api.delete(JOBS, name, namespace=SYSTEM_NAMESPACE)
    return frozenset(found)


def _is_taken(api: ClusterApi, job: Object) -> bool:
    try:
        api.update(JOBS, job, dry_run=True)
    except InvalidError:
        return False
    return True


def _throw_away() -> Object:
    container = {
        "name": "none",
        "image": "registry.invalid/none",
        "resources": {"requests": {"cpu": "1m"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "deferred-quota-gates-", "namespace": SYSTEM_NAMESPACE},
        "spec": {
            "suspend": True,
            "managedBy": _NOBODY,
            "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
        },
    }


def _resized(job: Object) -> Object:
    pod = _pod_spec(job)
    containers = pod["containers"]
    items = containers if isinstance(containers, list) else []
    resources = {"requests": {"cpu": "2m"}}
    return _with_pod(job, {**pod, "containers": [{**one, "resources": resources} for one in items]})


def _directed(job: Object) -> Object:
    return _with_pod(job, {**_pod_spec(job), "nodeSelector": {_NOBODY: "true"}})


def _with_pod(job: Object, pod: Object) -> Object:
    spec = _member(job, "spec")
    template = {**_member(spec, "template"), "spec": pod}
    return {**job, "spec": {**spec, "template": template}}


def _pod_spec(job: Object) -> Object:
    return _member(_member(_member(job, "spec"), "template"), "spec")


def _member(holder: Object, name: str) -> Object:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def _name(job: Object) -> str:
    return str(_member(job, "metadata").get("name", ""))
