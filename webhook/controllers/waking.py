"""Wake pods that a scheduler refused because we told it that they are over quota.

Such a pod is tried again at some event of the cluster, or after five minutes. That quota is free,
because it was raised or a reservation has ended, is no event that a scheduler hears of; and what it
does hear of, the end of a pod, it may hear before the ledger does. So the leader writes an
annotation on the pod: a scheduler looks again at a pod that has changed, once its pause is over.

- A pod is touched only while the newest ledger has room for it beside all who were touched before,
  in the order of the line, and only if it says that its quota was the reason.
- One that was touched keeps its room until it is bound, says something else, or `again_seconds` are
  over, and is left alone meanwhile; refused again and again, it is for longer each time.
- No more are touched and read per second than is allowed.

Source: kubernetes v1.36, pkg/scheduler/backend/queue/scheduling_queue.go Update; what an extender
has refused is worth trying after any event (framework/runtime/framework.go fillEnqueueExtensions).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from webhook.cluster.api import PODS, ApiError, ClusterApi, ConflictError, NotFoundError
from webhook.cluster.informer import Change
from webhook.controllers.budget import Budget
from webhook.controllers.refused import BOUND_SECONDS, RefusedPods, Woken
from webhook.controllers.terms import always
from webhook.controllers.waiting import following_terms
from webhook.quota.deferral import NamespaceQuotas
from webhook.quota.ledger import Ledger, exceeded
from webhook.quota.line import Held, LineRules, Place, Terms, Waiter, waiter_of
from webhook.quota.objects import Pod
from webhook.quota.scheduler_words import is_refused_by_quota
from webhook.quota.wakes import who_fits
from webhook.state.ledgers import LedgerStore
from webhook.state.names import GATE, MARK_PREFIX
from webhook.state.view import NamespaceCache, QuotaCache

_log = logging.getLogger(__name__)

WOKEN_ANNOTATION: Final = f"{MARK_PREFIX}woken"
"""When the pod was touched last, so that its scheduler tries it again."""

_IDLE_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 10.0
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_LONGEST_AGAIN_SECONDS: Final = 300.0
_NOTHING_DEFERRED: Final = Terms(NamespaceQuotas((), frozenset()))


class PodCache(Protocol):
    """The pods of the cluster, as an informer has them."""

    def in_namespace(self, namespace: str) -> tuple[Pod, ...]:
        """Return the pods of a namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeLimits:
    """How much is done; all times are seconds.

    Attributes:
        per_second: How many requests are sent, reads and writes.
        most_at_once: How many pods of a namespace may be woken and not heard of.
        again_seconds: From one touch of a pod to the next; longer than a scheduler lets a pod
            pause, which is 10.
        look_seconds: Between two looks at what has changed.
        clock: The monotonic clock.
        now: The time of day.
    """

    per_second: float = 100.0
    most_at_once: int = 200
    again_seconds: float = 15.0
    look_seconds: float = 0.1
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wakes:
    """What decides who is woken.

    Attributes:
        is_enabled: Tells whether schedulers are told of quotas at all.
        ledgers: What is known of ledgers.
        quotas: The cached quotas.
        namespaces: The cached namespaces.
        rules: How lines move.
        exempt: Tells which namespaces are never touched.
    """

    is_enabled: Callable[[], bool]
    ledgers: LedgerStore
    quotas: QuotaCache
    namespaces: NamespaceCache
    rules: Callable[[], LineRules]
    exempt: Callable[[], Set[str]] = frozenset


class Waker:
    """Wakes pods on a thread of its own. `on_pod` and `on_line` may be called from others.

    Args:
        api: The API server.
        pods: Gives the cache of pods, whose changes `on_pod` has to be told.
        wakes: What decides who is woken.
        is_leader: Tells whether this process may write, see `Tracker`.
        limits: How much is done.
    """

    def __init__(
        self,
        api: ClusterApi,
        pods: Callable[[], PodCache],
        wakes: Wakes,
        *,
        is_leader: Callable[[], int] = always,
        limits: WakeLimits | None = None,
    ) -> None:
        self._api = api
        self._pods = pods
        self._wakes = wakes
        self._is_leader = is_leader
        self._limits = limits or WakeLimits()
        self._lock = threading.Lock()
        self._spaces: dict[str, RefusedPods] = {}
        self._held: dict[str, Mapping[str, Held]] = {}
        self._were_deferred: set[str] = set()
        self._requests = Budget(lambda: self._limits.per_second, self._limits.clock)
        self._term = 0
        self._failures = 0
        self._paused_until = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="waking", daemon=True)

    def start(self) -> None:
        """Begin to wake pods."""
        self._thread.start()

    def stop(self) -> None:
        """Write nothing more, and wait for what was sent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def on_pod(self, change: Change[Pod]) -> None:
        """Hear of a pod."""
        namespace, now = change.key.partition("/")[0], self._limits.clock()
        with self._lock:
            space = self._spaces.get(namespace)
            if change.new is None:
                if space is not None:
                    space.remove(change.uid, is_bound=False, now=now)
            elif space is not None or not (change.new.is_assigned or change.new.is_gated):
                space = self._spaces.setdefault(namespace, RefusedPods())
                space.put(change.new, now)
            if space is not None and space.is_empty:
                del self._spaces[namespace]
                self._were_deferred.discard(namespace)

    def on_line(self, namespace: str, held: Mapping[str, Held], _may_go: Collection[str]) -> None:
        """Hear who waits behind our gate, see `lines.OnLine`; `held` is kept."""
        with self._lock:
            if held:
                self._held[namespace] = held
            else:
                self._held.pop(namespace, None)

    def work(self) -> float:
        """Wake whom there is room for now; return after how many seconds to come again."""
        now = self._limits.clock()
        term = int(self._is_leader()) if self._wakes.is_enabled() else 0
        with self._lock:
            if term != self._term:
                self._term = term
                for space in self._spaces.values():
                    space.forget()
            names = [name for name, one in self._spaces.items() if one.pods or one.woken]
            names = names if term else []
        if not names:
            return _IDLE_SECONDS
        if now < self._paused_until:
            return min(_IDLE_SECONDS, self._paused_until - now)
        try:
            for name in names:
                self._look(name, now)
            self._failures = 0
        except ApiError as err:
            self._failures = min(self._failures + 1, 10)
            self._paused_until = now + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self._failures - 1))
            _log.warning("waking pods failed", extra={"error": str(err)})
        return self._limits.look_seconds

    # -- on the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                pause = self.work()
            except Exception:  # noqa: BLE001 - outermost frame: logged, and the next look comes
                _log.exception("waking pods failed")
                pause = _IDLE_SECONDS

    def _look(self, namespace: str, now: float) -> None:
        """Wake those of a namespace for whom there is room, if anything is new.

        Raises:
            ApiError: The API server does not do it.
        """
        ledger, terms, state = self._facts(namespace)
        while terms is not None:
            with self._lock:
                space = self._spaces.get(namespace)
                if space is None:
                    return
                seen = (state, space.changes)
                if space.looked == seen and now < space.due:
                    return
                fits = self._who_fits(namespace, space, ledger, terms, now)
                unread = [one for one in fits if space.is_refused(one.pod) is None]
            if not unread:
                if self._wake_all(namespace, space, fits, now):
                    self._note_look(namespace, space, seen, now)
                return
            for waiter in unread:  # those whose quota was not the reason take nobody's room
                if not self._may_send():
                    return
                self._read(space, waiter.pod)

    def _wake_all(
        self, namespace: str, space: RefusedPods, fits: tuple[Waiter, ...], now: float
    ) -> bool:
        """Touch pods in their order; tell whether all had their turn.

        Raises:
            ApiError: The API server does not do it.
        """
        woken = turns = 0
        for waiter in fits:
            if not self._may_send():
                break
            turns += 1
            woken += self._wake(space, waiter, now)
        if woken:
            _log.info("pods woken", extra={"namespace": namespace, "woken": woken})
        return turns == len(fits)

    def _note_look(self, namespace: str, space: RefusedPods, seen: object, now: float) -> None:
        with self._lock:
            space.looked = seen
            resting = [one.until for one in space.woken.values() if one.until > now]
            space.due = min(resting, default=math.inf)
            if space.is_empty and self._spaces.get(namespace) is space:
                del self._spaces[namespace]

    def _may_send(self) -> bool:
        """Tell whether one more request may be sent now, and count it."""
        if self._requests.wait_seconds() or self._stopping.is_set():
            return False
        self._requests.spend()
        return True

    def _facts(self, namespace: str) -> tuple[Ledger | None, Terms | None, object]:
        """Return ledger and terms to judge by, no terms where nobody can, and what they are of."""
        wakes = self._wakes
        is_deferred = wakes.namespaces.informer.get(namespace) is True
        if not is_deferred or namespace in wakes.exempt():
            # who waited when it opted out waits for nothing now; others are not ours to look at
            was_deferred = namespace in self._were_deferred
            return None, _NOTHING_DEFERRED if was_deferred else None, None
        self._were_deferred.add(namespace)
        known, seen = wakes.ledgers.known(namespace), wakes.quotas.in_namespace(namespace)
        if known is None or known.ledger is None or known.ledger.observed != seen.deferred.observed:
            return None, None, None
        space = self._spaces.get(namespace)
        former = None if space is None else space.terms
        terms = following_terms(former, seen.deferred, seen, wakes.rules())
        return known.ledger, terms, (known.uid, known.resource_version, id(terms))

    def _who_fits(
        self,
        namespace: str,
        space: RefusedPods,
        ledger: Ledger | None,
        terms: Terms,
        now: float,
    ) -> tuple[Waiter, ...]:
        """Return who is to be woken next; the lock is held."""
        self._take_answers(space, ledger, now)
        resting = {uid for uid, one in space.woken.items() if one.until > now}
        promised = [one for uid in resting if (one := space.woken[uid]).keeps_room]
        line = space.line(terms, besides=resting)
        if not line:
            return ()
        return who_fits(
            ledger,
            line,
            terms.rules,
            promised=[one.claim for one in promised if one.claim is not None],
            holders=self._holders(namespace, terms),
            room=max(0, self._limits.most_at_once - len(promised)),
        )

    @staticmethod
    def _take_answers(space: RefusedPods, ledger: Ledger | None, now: float) -> None:
        """Find out whose room is not to be kept any more, and who can be forgotten."""
        for uid, woken in list(space.woken.items()):
            pod = space.pods.get(uid)
            if pod is None:
                if woken.until <= now:
                    del space.woken[uid]
            elif int(pod.resource_version or 0) > woken.version:
                woken.end(now)
                if space.is_refused(pod) is False:
                    del space.woken[uid]
            elif ledger is not None and woken.claim is not None and exceeded(ledger, woken.claim):
                woken.end(now)  # others were quicker

    def _holders(self, namespace: str, terms: Terms) -> dict[str, Place]:
        """Return where those stand behind our gate who hold a quota; the lock is held."""
        held = self._held.get(namespace, {})
        holding = {uid: one.quota for uid, one in held.items() if one.is_holding}
        if not holding:
            return {}
        return {
            holding[pod.uid]: waiter_of(pod, GATE, since=0, terms=terms).place
            for pod in self._pods().in_namespace(namespace)
            if pod.uid in holding
        }

    # -- requests ------------------------------------------------------------------------------

    def _read(self, space: RefusedPods, pod: Pod) -> None:
        """Read why a pod has no node.

        Raises:
            ApiError: The API server does not say.
        """
        version, is_ours = int(pod.resource_version or 0), False
        try:
            found = self._api.get(PODS, pod.name, namespace=pod.namespace)
            metadata = found.get("metadata")
            if isinstance(metadata, Mapping) and metadata.get("uid") == pod.uid:
                version = max(version, int(str(metadata.get("resourceVersion") or 0)))
                is_ours = is_refused_by_quota(found)
        except NotFoundError:
            pass  # it is gone, as the watch will show
        with self._lock:
            space.said[pod.uid] = (version, is_ours)

    def _wake(self, space: RefusedPods, waiter: Waiter, now: float) -> int:
        """Touch a pod; return 1, or 0 where it is not there any more.

        Raises:
            ApiError: The API server does not do it.
        """
        pod = waiter.pod
        if int(self._is_leader()) != self._term:
            return 0
        moment = self._limits.now().isoformat(timespec="microseconds")
        mark = {"uid": pod.uid, "annotations": {WOKEN_ANNOTATION: moment}}
        try:
            written = self._api.patch(
                PODS, pod.name, {"metadata": mark}, namespace=pod.namespace
            ).resource_version
        except (NotFoundError, ConflictError):
            with self._lock:
                space.said[pod.uid] = (int(pod.resource_version or 0), False)
            return 0
        with self._lock:
            before = space.woken.get(pod.uid)
            times = 1 if before is None else before.times + 1
            pause = self._limits.again_seconds * 2.0 ** min(times - 1, 10)
            if pod.uid not in space.pods:
                pause = BOUND_SECONDS  # it has its node already
            until = now + min(_LONGEST_AGAIN_SECONDS, pause)
            space.woken[pod.uid] = Woken(waiter.claim, written, now, until, times)
            space.said[pod.uid] = (written, True)
        return 1
