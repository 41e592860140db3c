"""Keep the condition `deferredquota.io/QuotaReserved` of waiting pods current.

What lines decide is handed over and nothing waits for it: one thread of its own compares and
writes, one request at a time, and no more per second than it is allowed. So a condition can be
late, by minutes where thousands of pods wait; it is never older than what it was written from.

- Only what has changed is written, and a pod at most every `pod_seconds`; what happens meanwhile
  is written then, the newest of it. That quota is reserved does not wait for that.
- A place in the line that has changed alone can wait for `place_seconds`.
- Pods that say nothing yet come first. A pod that is released before its turn has come, and
  has its node, says nothing at all; one that said that it waits is put right, node or not.
- A pod that has left the line otherwise, because a person took its gate off or the namespace has
  opted out, loses the condition; where the API server refuses that because the namespace is not
  opted in any more, it is left. So does one that no node has taken for so long that what was
  reserved for it has been given up.

A condition is read from the API server before it is written for the first time: another leader
may have written it, and `lastTransitionTime` is to be kept. The cache of pods holds none.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

from webhook.cluster.api import (
    NAMESPACES,
    PODS,
    ApiError,
    ClusterApi,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RequestTimeoutError,
    TooManyRequestsError,
    UnavailableError,
    UnreachableError,
)
from webhook.controllers.budget import Budget
from webhook.controllers.events import About, EventRecorder
from webhook.controllers.reason_queue import Reason, ReasonQueue
from webhook.controllers.rounds import Rounds
from webhook.controllers.terms import always
from webhook.quota.line import Held, Waits
from webhook.quota.objects import Pod
from webhook.quota.pod_conditions import (
    EVENT_REASONS,
    RESERVED,
    Found,
    Said,
    after,
    find,
    operations,
    waiting,
)
from webhook.state.names import GATE
from webhook.state.namespace_labels import is_deferred
from webhook.state.times import time_text
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 10.0
_LOOKS_PER_WRITE: Final = 10
"""Most looks that end in nothing to write, for each write that is allowed: they cost processor."""
_UNCOUNTED_SECONDS: Final = 10.0
"""For how long nothing is known of a namespace's usage until its pods say so."""
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_REFUSED_SECONDS: Final = 30.0
_LONGEST_REFUSED_SECONDS: Final = 600.0
_NOT_ANSWERING: Final = (
    RequestTimeoutError,
    TooManyRequestsError,
    UnavailableError,
    UnreachableError,
)
_RELEASED: Final = "QuotaReserved"


class PodCache(Protocol):
    """The pods of the cluster, as an informer has them."""

    def get(self, key: str) -> Pod | None:
        """Return a pod by "namespace/name"."""

    def in_namespace(self, namespace: str) -> tuple[Pod, ...]:
        """Return the pods of a namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonLimits:
    """How much is written; all times are seconds.

    Attributes:
        per_second: How many conditions and events are written per second; none where it is 0.
        pod_seconds: Between two writes for the same pod.
        place_seconds: The same where only its place in the line has changed.
        clock: The monotonic clock.
        now: The time of day.
    """

    per_second: Callable[[], float] = lambda: 20.0
    pod_seconds: float = 30.0
    place_seconds: float = 300.0
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


@dataclass(slots=True)
class _News:
    """What was heard of a namespace and not taken in yet."""

    held: Mapping[str, Held]
    released: dict[str, None] = field(default_factory=dict)
    """Uids, in the order in which they were heard."""


class Reasons:
    """Writes the conditions of waiting pods. `on_line` may be called from several threads.

    Args:
        api: The API server.
        pods: Gives the cache of pods.
        is_leader: Tells whether this process may write, see `Tracker`.
        limits: How much is written.
        events: Where pods get events: when one first waits, and when it is released after that.
        metrics: Where it is counted.
    """

    def __init__(
        self,
        api: ClusterApi,
        pods: Callable[[], PodCache],
        *,
        is_leader: Callable[[], int] = always,
        limits: ReasonLimits | None = None,
        events: EventRecorder | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._api = api
        self._pods = pods
        self._is_leader = is_leader
        self._limits = limits or ReasonLimits()
        self._events = events
        self._metrics = metrics
        self._lock = threading.Lock()
        self._news: dict[str, _News] = {}
        self._given_up: dict[str, set[str]] = {}
        self._queue = ReasonQueue(self._limits.pod_seconds)
        rate, clock = self._limits.per_second, self._limits.clock
        self._writes = Budget(rate, clock)
        self._looks = Budget(lambda: rate() * _LOOKS_PER_WRITE, clock)
        self._opted_out: set[str] = set()
        """Namespaces whose refusal was logged."""
        self._term = 0
        self._failures = 0
        self._paused_until = 0.0
        self._rounds = Rounds("reasons", self.work, rest_seconds=_IDLE_SECONDS)

    def on_line(self, namespace: str, held: Mapping[str, Held], may_go: Collection[str]) -> None:
        """Hear what a look at a namespace has shown, see `lines.OnLine`; `held` is kept."""
        with self._lock:
            news = self._news.get(namespace)
            if news is None:
                news = self._news[namespace] = _News(held)
            news.held = held
            news.released.update(dict.fromkeys(may_go))

    def on_given_up(self, namespace: str, uids: Collection[str]) -> None:
        """Hear for whom nothing is reserved any more, see `lines.OnGivenUp`."""
        with self._lock:
            self._given_up.setdefault(namespace, set()).update(uids)

    def start(self) -> None:
        """Begin to write."""
        self._rounds.start()

    def stop(self) -> None:
        """Write nothing more, and wait for what was sent."""
        self._rounds.stop(_STOP_SECONDS)

    def work(self) -> float:
        """Look at the pod whose turn it is; return after how many seconds to come again."""
        now = self._limits.clock()
        if not self._take_in(now):
            return _IDLE_SECONDS
        wait = max(
            self._paused_until - now, self._writes.wait_seconds(), self._looks.wait_seconds()
        )
        reason = None if wait > 0 else self._queue.take(now)
        if reason is None:
            self._show_backlog()
            return min(max(wait, 0.0), _IDLE_SECONDS) or _IDLE_SECONDS
        try:
            self._attend(reason, now)
        except Exception:
            self._queue.put_off(reason, now + _REFUSED_SECONDS)
            raise
        return 0.0

    # -- on the thread -------------------------------------------------------------------------

    def _take_in(self, now: float) -> bool:
        """Take in what was heard; tell whether this process leads."""
        with self._lock:
            news, self._news = self._news, {}
            given_up, self._given_up = self._given_up, {}
        term = int(self._is_leader())  # asked after: what is heard in a new one is not lost
        if term != self._term:
            self._queue.clear()  # others may have written since
            self._opted_out.clear()
            self._term = term
        for namespace, one in news.items() if term else ():
            names = partial(self._names, namespace)
            self._queue.hear(namespace, one.held, one.released, names=names, now=now)
        for namespace, uids in given_up.items() if term else ():
            self._queue.give_up(namespace, uids, names=partial(self._names, namespace))
        return term != 0

    def _names(self, namespace: str) -> Mapping[str, str]:
        return {pod.uid: pod.name for pod in self._pods().in_namespace(namespace)}

    def _attend(self, reason: Reason, now: float) -> None:
        """Write the condition of a pod if it should say something else by now."""
        pod = self._pods().get(reason.key)
        held, total = self._queue.held(reason)
        if pod is None or _is_beyond(pod, reason):
            self._drop(reason)
        elif held is not None and GATE not in pod.scheduling_gates:
            self._queue.sleep(reason)  # the line will be heard of again, without it
        elif held is None or not self._is_only_being_counted(reason, held, now):
            self._looks.spend()
            wanted = _wanted(reason, held, total)
            try:
                self._bring_up_to_date(reason, wanted, now)
            except ApiError as err:
                if isinstance(err, ForbiddenError) and self._has_opted_out(reason.namespace):
                    self._drop(reason)
                else:
                    self._note_failure(reason, err, now)

    def _is_only_being_counted(self, reason: Reason, held: Held, now: float) -> bool:
        """Tell whether a pod waits for what takes a moment, and come back to it."""
        if held.reason is not Waits.NOT_COUNTED:
            reason.uncounted_since = None
            return False
        if reason.uncounted_since is None:
            reason.uncounted_since = now
        until = reason.uncounted_since + _UNCOUNTED_SECONDS
        if now < until:
            self._queue.put_off(reason, until)
        return now < until

    def _bring_up_to_date(self, reason: Reason, wanted: Said | None, now: float) -> None:
        if reason.must_read or reason.found is None:
            self._writes.spend()
            found = self._read(reason)
            if found is None:
                self._drop(reason)
                return
            reason.note(found, now)
            if self._is_due(reason, found, wanted, now):
                self._write(reason, found, wanted, now)
        elif self._is_due(reason, reason.found, wanted, now):
            self._writes.spend()
            self._write(reason, reason.found, wanted, now)

    def _read(self, reason: Reason) -> Found | None:
        """Read a pod's condition; None if the pod is gone."""
        try:
            found = find(self._api.get(PODS, reason.name, namespace=reason.namespace))
        except NotFoundError:
            return None
        if found.said is not None and found.said.reason in EVENT_REASONS:
            reason.has_warned = True
        return found if found.uid == reason.uid else None

    def _is_due(self, reason: Reason, found: Found, wanted: Said | None, now: float) -> bool:
        """Tell whether a pod's condition is to be written now; if not, plan what comes next."""
        said = found.said
        if wanted == said:
            reason.failures = 0
        if wanted == said and (wanted is None or reason.is_released):
            self._queue.drop(reason)
        elif wanted == said:
            self._queue.sleep(reason)
        elif said is None or wanted is None or not wanted.differs_in_place_only(said):
            return True
        elif now < (due := reason.written_at + self._limits.place_seconds):
            self._queue.sleep(reason, until=due)
        else:
            return True
        return False

    def _write(self, reason: Reason, found: Found, wanted: Said | None, now: float) -> None:
        if int(self._is_leader()) != self._term:
            return  # all is forgotten at the next look
        time_of_day = time_text(self._limits.now())
        patch = operations(found, wanted, time_of_day)
        try:
            self._api.patch(
                PODS, reason.name, patch, namespace=reason.namespace, subresource="status"
            )
        except NotFoundError:
            self._drop(reason)
            return
        reason.failures = self._failures = 0
        self._opted_out.discard(reason.namespace)
        self._count("written")
        reason.note(after(found, wanted, time_of_day), now)
        if wanted is None or reason.is_released:
            self._queue.drop(reason)
        else:
            self._queue.put_off(reason, now + self._limits.pod_seconds)
        self._tell(reason, found.said, wanted)

    def _tell(self, reason: Reason, before: Said | None, wanted: Said | None) -> None:
        """Say on the pod that it waits, once, and that it does not any more."""
        if self._events is None or wanted is None:
            return
        about = About(PODS, reason.name, reason.namespace, reason.uid)
        if wanted.reason in EVENT_REASONS and not reason.has_warned:
            reason.has_warned = True
            self._writes.spend()
            self._events.warning(about, EVENT_REASONS[wanted.reason], wanted.text)
        elif wanted is RESERVED and before is not None and before.status == "False":
            self._writes.spend()
            self._events.normal(about, _RELEASED, wanted.text)

    # -- what comes to nothing -----------------------------------------------------------------

    def _has_opted_out(self, namespace: str) -> bool:
        """Return whether a write was refused because the namespace is not opted in any more.

        The label is read from the API server: the line may learn of its removal later than the
        admission policy that holds our own identities to opted-in namespaces.
        """
        try:
            if is_deferred(self._api.get(NAMESPACES, namespace)):
                return False
        except ApiError:
            return False
        if namespace not in self._opted_out:
            self._opted_out.add(namespace)
            _log.info("conditions are left: not opted in any more", extra={"namespace": namespace})
        return True

    def _note_failure(self, reason: Reason, err: ApiError, now: float) -> None:
        """Plan the next attempt; whatever was sent, what the pod says now is not known."""
        reason.must_read = True
        reason.failures += 1
        if isinstance(err, ConflictError | InvalidError):  # the pod was another by then
            self._count("conflict")
            self._queue.put_off(
                reason, now + _growing(_FIRST_PAUSE, reason.failures, _REFUSED_SECONDS)
            )
            return
        self._count("failed")
        if isinstance(err, _NOT_ANSWERING):
            self._failures += 1
            pause = _growing(_FIRST_PAUSE, self._failures, _LONGEST_PAUSE)
            self._paused_until = now + pause
        else:
            pause = _growing(_REFUSED_SECONDS, reason.failures, _LONGEST_REFUSED_SECONDS)
        self._queue.put_off(reason, now + pause)
        _log.warning(
            "writing a condition failed",
            extra={"namespace": reason.namespace, "pod": reason.name, "error": str(err)},
        )

    def _drop(self, reason: Reason) -> None:
        self._queue.drop(reason)
        self._count("dropped")

    def _count(self, result: str) -> None:
        if self._metrics is not None:
            self._metrics.reasons.conditions.labels(result).inc()

    def _show_backlog(self) -> None:
        if self._metrics is not None:
            self._metrics.reasons.backlog.set(self._queue.backlog)


def _is_beyond(pod: Pod, reason: Reason) -> bool:
    """Tell whether nothing is to be said of a pod any more."""
    is_silent = pod.is_assigned and not reason.says_that_it_waits
    return pod.uid != reason.uid or pod.is_deleting or is_silent


def _wanted(reason: Reason, held: Held | None, total: int) -> Said | None:
    """Return what a pod's condition should say; None for a pod that is to have none."""
    if reason.is_released:
        return RESERVED
    return None if held is None else waiting(held, total)


def _growing(first: float, failures: int, longest: float) -> float:
    return min(longest, math.ldexp(first, min(failures, 16) - 1))
