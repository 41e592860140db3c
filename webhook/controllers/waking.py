"""Wake pods that a scheduler refused because we told it that they are over quota.

Such a pod is tried again at some event of the cluster, or after five minutes. That quota is free,
because it was raised or a reservation has ended, is no event that a scheduler hears of; and what it
does hear of, the end of a pod, it may hear before the ledger does. So the leader writes an
annotation on the pod: a scheduler looks again at a pod that has changed, once its pause is over.

- A pod is touched only while the newest ledger has room for it beside all who were touched before,
  in the order of the line, and only if it says that its quota was the reason.
- One that was touched keeps its room until it is bound, says something else, or `again_seconds` are
  over, and is left alone meanwhile; refused again and again, it is for longer each time.
- No more are touched and read per second than is allowed, and each round begins behind the
  namespace that was served last. A pod whose request is refused rests, and a namespace in which
  the API server does not answer, so that neither keeps the others asleep.
- Who was refused before its namespace opted out is woken once for that, and nobody else there.

Source: kubernetes v1.36, pkg/scheduler/backend/queue/scheduling_queue.go Update; what an extender
has refused is worth trying after any event (framework/runtime/framework.go fillEnqueueExtensions).
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from webhook.cluster.api import ApiError, ClusterApi
from webhook.cluster.informer import Change
from webhook.controllers.refused import RefusedPods
from webhook.controllers.rounds import Rounds
from webhook.controllers.terms import always
from webhook.controllers.wake_facts import NOTHING_COUNTS, Facts, Wakes, facts_of
from webhook.controllers.wake_requests import WOKEN_ANNOTATION, WakeLimits, WakeRequests
from webhook.quota.ledger import Ledger
from webhook.quota.line import Held, Place, Terms, Waiter, waiter_of
from webhook.quota.objects import Pod
from webhook.quota.wakes import who_fits
from webhook.state.names import GATE

__all__ = ["WOKEN_ANNOTATION", "WakeLimits", "Waker", "Wakes"]

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 10.0


class PodCache(Protocol):
    """The pods of the cluster, as an informer has them."""

    def in_namespace(self, namespace: str) -> tuple[Pod, ...]:
        """Return the pods of a namespace."""


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
        self._pods = pods
        self._wakes = wakes
        self._is_leader = is_leader
        self._limits = limits or WakeLimits()
        self._lock = threading.Lock()
        self._spaces: dict[str, RefusedPods] = {}
        self._held: dict[str, Mapping[str, Held]] = {}
        self._term = 0
        self._requests = WakeRequests(api, self._limits, self._lock, self._may_write)
        self._rounds = Rounds("waking", self.work, rest_seconds=_IDLE_SECONDS)

    def start(self) -> None:
        """Begin to wake pods."""
        self._rounds.start()

    def stop(self) -> None:
        """Write nothing more, and wait for what was sent."""
        self._rounds.stop(_STOP_SECONDS)

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

    def on_line(self, namespace: str, held: Mapping[str, Held], _may_go: Collection[str]) -> None:
        """Hear who waits behind our gate, see `lines.OnLine`; `held` is kept."""
        with self._lock:
            if held:
                self._held[namespace] = held
            else:
                self._held.pop(namespace, None)

    def work(self) -> float:
        """Wake whom there is room for now; return after how many seconds to come again."""
        names = self._round(self._limits.clock())
        for name in names:
            if self._requests.are_spent:
                break
            self._turn(name)
        return self._limits.look_seconds if names else _IDLE_SECONDS

    # -- on the thread -------------------------------------------------------------------------

    def _round(self, now: float) -> list[str]:
        """Return the namespaces to look at, in their order."""
        term = int(self._is_leader()) if self._wakes.is_enabled() else 0
        with self._lock:
            if term != self._term:
                self._term = term
                for space in self._spaces.values():
                    space.forget()
            if not term:
                return []
            names = sorted(
                name
                for name, one in self._spaces.items()
                if (one.pods or one.woken) and one.rest.until <= now
            )
        begin = bisect_right(names, self._requests.served)
        return names[begin:] + names[:begin]

    def _turn(self, namespace: str) -> None:
        """Look at a namespace; one in which something fails rests."""
        try:
            self._look(namespace, self._limits.clock())
        except Exception as err:  # noqa: BLE001 - others have their turn, whatever it was
            with self._lock:
                space = self._spaces.get(namespace)
                if space is not None:
                    space.note_stuck(self._limits.clock())
            _log.warning(
                "waking pods failed",
                extra={"namespace": namespace, "error": str(err)},
                exc_info=not isinstance(err, ApiError),
            )

    def _look(self, namespace: str, now: float) -> None:
        """Wake those of a namespace for whom there is room, if anything is new.

        Raises:
            ApiError: The API server does not do it.
        """
        facts = self._facts(namespace, now)
        if facts is None:
            return
        ledger = facts.ledger()
        while True:
            with self._lock:
                space = self._spaces.get(namespace)
                if space is None:
                    return
                seen = (facts.state, space.changes)
                fits = self._who_fits(namespace, space, facts, ledger, now)
                unread = [one for one in fits if space.is_refused(one.pod) is None]
            if not unread:
                if self._wake_all(namespace, space, fits, facts.state, now):
                    self._note_look(namespace, space, seen, now)
                return
            for waiter in unread:  # those whose quota was not the reason take nobody's room
                if not self._requests.take(namespace):
                    return
                with self._requests.noting_failure(space, waiter.pod):
                    self._requests.read(space, waiter.pod, now)

    def _wake_all(
        self,
        namespace: str,
        space: RefusedPods,
        fits: tuple[Waiter, ...],
        state: object,
        now: float,
    ) -> bool:
        """Touch pods in their order; tell whether all had their turn.

        Raises:
            ApiError: The API server does not do it.
        """
        woken = turns = 0
        for waiter in fits:
            if not self._requests.take(namespace):
                break
            turns += 1
            with self._requests.noting_failure(space, waiter.pod):
                woken += self._requests.wake(space, waiter, state, now)
        if woken:
            _log.info("pods woken", extra={"namespace": namespace, "woken": woken})
        return turns == len(fits)

    def _note_look(self, namespace: str, space: RefusedPods, seen: object, now: float) -> None:
        with self._lock:
            space.note_look(seen, now)
            if space.is_empty and self._spaces.get(namespace) is space:
                del self._spaces[namespace]

    def _may_write(self) -> bool:
        return not self._rounds.are_over and int(self._is_leader()) == self._term

    def _facts(self, namespace: str, now: float) -> Facts | None:
        """Return what to judge by; None where nobody can, or nothing is new."""
        is_deferred = self._wakes.opted.has(namespace)
        with self._lock:
            space = self._spaces.get(namespace)
            if space is None:
                return None
            if is_deferred:
                space.note_deferred()
            elif not space.note_left():
                return None  # nobody is there any more who waited when it opted out
            former = space.terms
        facts = facts_of(self._wakes, namespace, former) if is_deferred else NOTHING_COUNTS
        if facts is None or (space.looked == (facts.state, space.changes) and now < space.due):
            return None
        return facts

    def _who_fits(
        self,
        namespace: str,
        space: RefusedPods,
        facts: Facts,
        ledger: Ledger | None,
        now: float,
    ) -> tuple[Waiter, ...]:
        """Return who is to be woken next; the lock is held."""
        space.take_answers(ledger, facts.state, now)
        promised = [one for one in space.woken.values() if one.until > now and one.keeps_room]
        line = facts.open_line(space.line(facts.terms, besides=space.left_alone(now)))
        if not line:
            return ()
        return who_fits(
            ledger,
            line,
            facts.terms.rules,
            promised=[one.claim for one in promised if one.claim is not None],
            holders=self._holders(namespace, facts.terms),
            room=max(0, self._limits.most_at_once - len(promised)),
        )

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
