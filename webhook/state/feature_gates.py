"""Probe of the API server's feature gates that decide what a suspended Job may change.

1. Up to 1.34 there are none.
2. From 1.35 on it is tried, by dry runs of changes of a Job that is installed for nothing else.
   Any release may have them off or on, and may change that: it is tried again and again.
3. What cannot be found out is not known. Then nothing may be refused for a gate that one of its
   settings would let pass.
4. Behind one address there may be several API servers, and in an upgrade they differ. So a gate
   for which two tries in a row had different outcomes is not known either; where they were answered
   by different versions, none is.

The Job is suspended for ever, and no controller is responsible for it. Its status says that it ran
and is suspended: then its resources can change where the one gate is on, and its scheduling
directives where the other one is. It takes the rights to patch this one Job and its status;
to make a Job would take the right to run anything as any service account of its namespace.

Source: kubernetes v1.36, pkg/features/kube_features.go; pkg/registry/batch/job/strategy.go
validationOptionsForJob.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import JOBS, ApiError, ClusterApi, InvalidError, JsonPatch, Object
from webhook.quota.jobs import JobGate, job_state
from webhook.state.well_known import DEFAULT_NAMESPACE

_log = logging.getLogger(__name__)

ALL_GATES: Final[frozenset[str]] = frozenset(JobGate)
_NONE: Final[frozenset[str]] = frozenset()
_FIRST: Final = (1, 35)

PROBE_JOB: Final = "deferred-quota-job-gates"
"""The Job by which it is tried."""

PROBE_MINOR: Final = 32
"""Kubernetes 1.32: the first that keeps `managedBy` of a Job where no flag says otherwise.

Before, the probe is stored without, and is refused when it is applied again. There are no gates to
find out then."""

PROBE_MANAGER: Final = "deferredquota.io/nobody"
"""Its `managedBy`: no Job controller is responsible for it."""

_SUSPENDED_STATUS: Final[Object] = {
    "startTime": "2026-01-01T00:00:00Z",
    "active": 0,
    "conditions": [
        {
            "type": "Suspended",
            "status": "True",
            "reason": "Probe",
            "message": "so that feature gates can be tried on it",
            "lastTransitionTime": "2026-01-01T00:00:01Z",
            "lastProbeTime": "2026-01-01T00:00:01Z",
        }
    ],
}
_POD: Final = "/spec/template/spec"
_PROBE_PATCHES: Final[Mapping[JobGate, JsonPatch]] = {
    JobGate.MUTABLE_RESOURCES: [
        {
            "op": "add",
            "path": f"{_POD}/containers/0/resources",
            "value": {"requests": {"cpu": "2m"}},
        }
    ],
    JobGate.MUTABLE_SCHEDULING: [
        {"op": "add", "path": f"{_POD}/nodeSelector", "value": {PROBE_MANAGER: "true"}}
    ],
}
"""What each gate lets change of the probe."""


@runtime_checkable
class VersionSource(Protocol):
    """An API server that says its version."""

    def server_version(self) -> Object:
        """Return what it answers at `/version`.

        Raises:
            ApiError: It does not answer.
        """


class UntriableError(Exception):
    """The gates cannot be tried; the text says why."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """State of the gates, as far as it is known."""

    enabled: frozenset[str] = ALL_GATES
    """The names of those that are on, and of those that are not known."""
    unsure: frozenset[str] = _NONE
    """The names of those that are not known."""


UNKNOWN: Final = FeatureGates(unsure=ALL_GATES)


@dataclass(frozen=True, slots=True)
class _ProbeResult:
    """Result of one try."""

    version: tuple[int, int] | None
    """Major and minor of the API server; None where it does not say numbers."""
    enabled: frozenset[str] | None
    """The gates that are on; None if it says nothing of them."""

    def unsure_after(self, former: _ProbeResult) -> frozenset[str]:
        """Return the gates that are not known after this try and the one before."""
        if self.enabled is None or former.enabled is None or self.version != former.version:
            return ALL_GATES
        return self.enabled ^ former.enabled


class FeatureGateProbe:
    """The feature gates of one API server, found out again and again.

    `gates` may be read from any thread; `probe` belongs to one thread.

    Args:
        api: The API server; one that does not say its version is as 1.36.
        clock: A monotonic clock.
        namespace: Namespace of the installation, where the probe is.
        pause_seconds: How long to wait until the next look where all gates are on.
        short_pause_seconds: The same where one is off or not known: then a user waits for it to be
            turned on.
        stale_seconds: How long what was found stands while nothing newer can be found.
    """

    def __init__(
        self,
        api: ClusterApi,
        clock: Callable[[], float],
        *,
        namespace: str = DEFAULT_NAMESPACE,
        pause_seconds: float = 300.0,
        short_pause_seconds: float = 60.0,
        stale_seconds: float = 900.0,
    ) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._pauses = {True: pause_seconds, False: short_pause_seconds}
        self._stale_seconds = stale_seconds
        self._lock = threading.Lock()
        self._gates = UNKNOWN if isinstance(api, VersionSource) else FeatureGates()
        self._last: _ProbeResult | None = None
        self._next_probe = self._valid_until = clock()

    @property
    def gates(self) -> FeatureGates:
        """State of the gates, as far as it is known now."""
        with self._lock:
            return self._gates

    @property
    def enabled(self) -> frozenset[str]:
        """The names of the gates that are on, or not known."""
        return self.gates.enabled

    def probe(self) -> bool:
        """Find out anew, if it is time; return whether something changed."""
        now = self._clock()
        if now < self._next_probe or not isinstance(self._api, VersionSource):
            return False
        before = self._gates
        after = self._probe(self._api, now)
        self._next_probe = now + self._pauses[after == FeatureGates()]
        with self._lock:
            self._gates = after
        if after != before:
            facts = {"enabled": sorted(after.enabled), "unsure": sorted(after.unsure)}
            _log.info("feature gates of Jobs", extra=facts)
        return after != before

    def _probe(self, source: VersionSource, now: float) -> FeatureGates:
        """Return what is known after a look."""
        former = self._last
        version = former.version if former else None
        try:
            version = version_of(source.server_version())
            enabled = self._gates_of(version)
        except (ApiError, UntriableError) as err:
            _log.warning("feature gates of Jobs cannot be tried", extra={"error": str(err)})
            if former is None or version == former.version:
                return self._gates if now < self._valid_until else UNKNOWN
            self._last = _ProbeResult(version, None)
            return UNKNOWN
        self._last, self._valid_until = _ProbeResult(version, enabled), now + self._stale_seconds
        unsure = self._last.unsure_after(former) if former else _NONE
        return FeatureGates(enabled=enabled | unsure, unsure=unsure)

    def _gates_of(self, version: tuple[int, int] | None) -> frozenset[str]:
        if version is not None and version < _FIRST:
            return _NONE
        return probe_gates(self._api, self._namespace)


def version_of(answer: Object) -> tuple[int, int] | None:
    """Read major and minor of `/version`; None where they are not numbers.

    Distributions write minors such as `35+`.
    """
    parts = [re.match(r"\d+", str(answer.get(name, ""))) for name in ("major", "minor")]
    numbers = [int(part[0]) for part in parts if part]
    return (numbers[0], numbers[1]) if len(numbers) == len(parts) else None


def probe_gates(api: ClusterApi, namespace: str) -> frozenset[str]:
    """Find out by trying which gates are on. All that is written is the status of the probe, once.

    Raises:
        UntriableError: The probe is not as it was installed, or something else than the API
            server's own rule refuses a try.
        ApiError: A try is not answered, for want of rights or of the probe for example.
    """
    ran = {"status": _SUSPENDED_STATUS}
    _check(api.patch(JOBS, PROBE_JOB, ran, namespace=namespace, subresource="status").object)
    return frozenset(
        gate for gate, patch in _PROBE_PATCHES.items() if _is_accepted(api, namespace, patch)
    )


def _check(probe: Object) -> None:
    """Look whether the gates can be concluded from the API server's answers."""
    try:
        state = job_state(probe)
        is_ours = FieldReader(probe).child("spec").text("managedBy") == PROBE_MANAGER
    except InvalidFieldError as err:
        raise UntriableError(f"job {PROBE_JOB}: {err}") from err
    if not (is_ours and state.is_open and state.started and not state.finished):
        raise UntriableError(
            f"job {PROBE_JOB}: is not as it was installed: delete it, install it anew"
        )


def _is_accepted(api: ClusterApi, namespace: str, patch: JsonPatch) -> bool:
    try:
        answer = api.patch(JOBS, PROBE_JOB, patch, namespace=namespace, dry_run=True)
    except InvalidError as err:
        # webhooks and policies may answer 422 too, in other words
        if err.message.startswith(f'{JOBS.qualified_kind} "{PROBE_JOB}" is invalid: spec.template'):
            return False
        raise UntriableError(f"job {PROBE_JOB}: {err.message}") from err
    _check(answer.object)
    return True
