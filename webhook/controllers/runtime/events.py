"""Events on objects, as `kubectl describe` and `kubectl get events` show them.

The caller hands an event over and goes on: a thread of its own writes. Nothing here ever
blocks or raises into the caller, and nothing depends on an event being written: when the API
server is slow or too much happens, events are dropped and counted.

A repeated event on the same object is one event with a higher count. It is written at most every
`event_repeat_seconds` (`ControllerTimings`); repeats in between are in the next count.

Namespaces take turns and share the queue, so that none has the events of others dropped.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from webhook.controllers.runtime.periodic import PeriodicThread
from webhook.controllers.runtime.rate_limit import TokenBucket
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.controllers.runtime.turns import Turns
from webhook.kube.api import EVENTS, ApiError, ClusterApi, ConflictError, Kind, NotFoundError
from webhook.kube.errors import is_namespace_terminating
from webhook.kube.metadata import time_text
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

EventLevel = Literal["Normal", "Warning"]

_COMPONENT: Final = "deferred-quota"
_MAX_MESSAGE_CHARACTERS: Final = 1000
_IDLE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 1.0
_CLUSTER_NAMESPACE: Final = "default"
"""Where events on objects without namespace are kept."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Object of an event, as complete as it is known.

    `kubectl describe` finds an event by kind, name, namespace and, if it is given, uid.
    """

    kind: Kind
    name: str
    namespace: str = ""
    uid: str = ""

    def to_object(self) -> dict[str, object]:
        """Return it as `involvedObject`."""
        known = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
        }
        return {name: value for name, value in known.items() if value}


@dataclass(frozen=True, slots=True)
class EventLimits:
    """Limits of the events that are written."""

    max_queued: int = 1000
    """Further events that wait to be written are dropped, and further repeats left out. Of one
    namespace no more wait than there is room left for those of others: half of it, or a third where
    two have so many."""
    per_second: float = 5.0
    """In the long run."""
    burst: int = 50
    """At once, after a rest."""
    max_remembered: int = 4096
    """Of further events those that were said longest ago begin anew when they are said again."""


class EventSink(Protocol):
    """Recorder of events on objects."""

    def normal(self, regarding: ObjectReference, reason: str, message: str) -> None:
        """Report something that is as it should be."""

    def warning(self, regarding: ObjectReference, reason: str, message: str) -> None:
        """Report something that a person may want to look at."""


class NoEvents:
    """Recorder that drops all events."""

    def normal(self, regarding: ObjectReference, reason: str, message: str) -> None:
        """Drop an event."""

    def warning(self, regarding: ObjectReference, reason: str, message: str) -> None:
        """Drop an event."""


NO_EVENTS: Final = NoEvents()


@dataclass(frozen=True, slots=True)
class _EventKey:
    """Identity of an event: equal ones are counted together."""

    regarding: ObjectReference
    level: str
    reason: str
    message: str


@dataclass(slots=True, eq=False)
class _Series:
    """One event and its count; guarded by the recorder's lock, except `event`."""

    key: _EventKey
    first: str
    last: str
    last_seen: float
    count: int = 1
    not_before: float = 0.0
    is_queued: bool = True
    event: str = ""

    @property
    def namespace(self) -> str:
        return self.key.regarding.namespace or _CLUSTER_NAMESPACE

    @property
    def owner(self) -> str:
        """Its namespace, or the object without one, with whose other events it shares turns."""
        return self.key.regarding.namespace or self.key.regarding.name


class EventRecorder:
    """Writes events. Safe to use from several threads.

    Args:
        instance: Name of the process, for people.
        limits: How many events are written.
        metrics: Counters of written and dropped events.
    """

    def __init__(
        self,
        api: ClusterApi,
        *,
        instance: str = "",
        limits: EventLimits | None = None,
        timings: ControllerTimings | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._api = api
        self._instance = instance or _COMPONENT
        self._limits = limits or EventLimits()
        self._timings = timings or ControllerTimings()
        self._metrics = metrics or Metrics()
        self._condition = threading.Condition()
        self._series: OrderedDict[_EventKey, _Series] = OrderedDict()
        self._turns: Turns[_EventKey, _Series] = Turns()
        """New events."""
        self._repeats: deque[_Series] = deque()
        self._writes = TokenBucket(
            lambda: self._limits.per_second, self._timings.clock, burst=self._limits.burst
        )
        self._is_stopping = False
        self._thread = PeriodicThread(
            "events", self._work, retry_seconds=_RETRY_SECONDS, on_stop=self._drain
        )

    def normal(self, regarding: ObjectReference, reason: str, message: str) -> None:
        """Report something that is as it should be."""
        self._record(regarding, "Normal", reason, message)

    def warning(self, regarding: ObjectReference, reason: str, message: str) -> None:
        """Report something that a person may want to look at."""
        self._record(regarding, "Warning", reason, message)

    def start(self) -> None:
        """Start the thread; events that were recorded before are written then."""
        self._thread.start()

    def stop(self, *, timeout_seconds: float = 2.0) -> None:
        """Write what waits and is due, as far as the time allows, and end."""
        self._thread.request_stop()
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        self._thread.stop(timeout_seconds)

    # -- saying --------------------------------------------------------------------------------

    def _record(
        self, regarding: ObjectReference, level: EventLevel, reason: str, message: str
    ) -> None:
        text = (
            message
            if len(message) <= _MAX_MESSAGE_CHARACTERS
            else f"{message[:_MAX_MESSAGE_CHARACTERS]}..."
        )
        key = _EventKey(regarding, level, reason, text)
        now, clock = time_text(self._timings.now()), self._timings.clock()
        with self._condition:
            series = self._series.get(key)
            if series is None or self._is_over(series):
                self._enqueue_new(_Series(key, now, now, clock))
                return
            self._series.move_to_end(key)
            series.count, series.last, series.last_seen = series.count + 1, now, clock
            # one that is left out is in the next count, if it is said once more
            if not series.is_queued and len(self._repeats) < self._limits.max_queued:
                series.is_queued = True
                self._repeats.append(series)
                self._condition.notify_all()

    def _enqueue_new(self, series: _Series) -> None:
        if self._turns.count(series.owner) >= self._limits.max_queued - len(self._turns):
            self._count("dropped")
            return
        self._series[series.key] = series
        self._series.move_to_end(series.key)
        most = self._limits.max_remembered
        while len(self._series) > most or self._is_over(next(iter(self._series.values()))):
            self._series.popitem(last=False)
        self._turns.append(series.owner, series.key, series)
        self._condition.notify_all()

    def _is_over(self, series: _Series) -> bool:
        """Return whether a repeat begins a new event."""
        age = self._timings.clock() - series.last_seen
        return age > self._timings.event_expire_seconds

    # -- writing, on the thread ----------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """Number of events that were not written yet."""
        with self._condition:
            return len(self._turns)

    def step(self, timeout_seconds: float = 0.0) -> bool:
        """Write an event that is due; return whether there was one in time."""
        series = self._take(timeout_seconds)
        if series is not None:
            self._write_or_count(series)
        return series is not None

    def _work(self) -> float:
        self.step(_IDLE_SECONDS)
        return 0.0

    def _drain(self) -> float:
        while self.step():
            pass
        return 0.0

    def _write_or_count(self, series: _Series) -> None:
        try:
            self._write(series)
        except ApiError as err:
            if is_namespace_terminating(err):
                self._count("dropped")  # it goes with its namespace
                return
            self._count("failed")
            _log.warning(
                "event not written",
                extra={
                    "reason": series.key.reason,
                    "about": series.key.regarding.name,
                    "error": str(err),
                },
            )
        except Exception:  # noqa: BLE001 - outermost frame: logged, and the next one is written
            self._count("failed")
            _log.exception("event not written")

    def _take(self, timeout_seconds: float) -> _Series | None:
        give_up = time.monotonic() + timeout_seconds
        with self._condition:
            while (wait := self._seconds_to_next()) > 0:
                left = give_up - time.monotonic()
                if left <= 0 or self._is_stopping:
                    return None  # what repeats, or is too much, is not waited for
                self._condition.wait(min(wait, left))
            self._writes.take()
            series = self._turns.pop() or self._repeats.popleft()
            series.is_queued = False
            return series

    def _seconds_to_next(self) -> float:
        """Return the seconds until something may be written; infinity when nothing waits."""
        if self._turns:
            return self._writes.delay()
        if self._repeats:
            due = self._repeats[0].not_before - self._timings.clock()
            return max(self._writes.delay(), due)
        return math.inf

    def _write(self, series: _Series) -> None:
        with self._condition:
            count, last = series.count, series.last
            series.not_before = self._timings.clock() + self._timings.event_repeat_seconds
        if series.event and self._has_bumped(series, count, last):
            self._count("repeated")
        else:
            series.event = self._create(series, count, last)
            self._count("created")

    def _has_bumped(self, series: _Series, count: int, last: str) -> bool:
        patch = {"count": count, "lastTimestamp": last}
        try:
            self._api.patch(EVENTS, series.event, patch, namespace=series.namespace)
        except (NotFoundError, ConflictError):
            return False  # events are kept for an hour only
        return True

    def _create(self, series: _Series, count: int, last: str) -> str:
        # names of objects can be as long as names of events may be
        about = series.key.regarding
        name = f"{about.name[:230].rstrip('-.')}.{secrets.token_hex(8)}"
        event = EVENTS.make(
            {"name": name, "namespace": series.namespace},
            involvedObject=about.to_object(),
            type=series.key.level,
            reason=series.key.reason,
            message=series.key.message,
            count=count,
            firstTimestamp=series.first,
            lastTimestamp=last,
            source={"component": _COMPONENT},
            reportingComponent=_COMPONENT,
            reportingInstance=self._instance,
        )
        self._api.create(EVENTS, event)
        return name

    def _count(self, result: str) -> None:
        self._metrics.controller.events.labels(result).inc()
