"""Move the lines of waiting pods: who may go is reserved for, and then loses its gate.

A line is looked at whenever its namespace is settled, and what it decides is part of the same
write: what a pod that ended gives back is given to the next one at once. Gates are removed only
for what is known to be written.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.controllers.gates import GateRemover
from webhook.controllers.tracked import Tracked
from webhook.quota.ledger import Ledger
from webhook.quota.ledger_codec import written_bytes
from webhook.quota.line import Held, LineRules, Passed, Waited, Waiter, Waits
from webhook.quota.line_pass import pass_line
from webhook.state.reserver import MOST_BYTES
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 1000
"""Pods of a namespace that may be reserved for and still have their gate: more would wait for
their patches with quota that others could not use."""
_RESERVED: Final = "Reserved"

OnLine: TypeAlias = Callable[[str, Mapping[str, Held], Collection[str]], None]
"""Told, after a look at a namespace, of its name, of each pod that waits (by uid, in the order of
the line) why, and of the uids of those that may go and were still behind the gate; of none while
the namespace opts out. It must not block, and may be called from several threads for different
namespaces."""


OnGivenUp: TypeAlias = Callable[[str, Collection[str]], None]
"""Told of a namespace's name, and of the uids of pods without a node for which nothing is reserved
any more. It must not block either."""


def _nobody(_namespace: str, _held: Mapping[str, Held], _may_go: Collection[str]) -> None:
    """Listen to nothing."""


def _no_one(_namespace: str, _uids: Collection[str]) -> None:
    """Listen to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Releasing:
    """How pods are released.

    Attributes:
        rules: How lines move; read at every look.
        capacity: How many reservations a namespace may have.
        give_up_seconds: For how long no node takes a pod until its quota goes to others.
        lets_through: Tells whether pods of a namespace may do without a gate while there is room.
        workers: How many gates are removed at the same time.
        on_line: Told why pods wait.
        on_given_up: Told for whom nothing is reserved any more.
    """

    rules: Callable[[], LineRules] = LineRules
    capacity: Callable[[], int] = lambda: 4000
    give_up_seconds: Callable[[], float] = lambda: 60.0
    lets_through: Callable[[str], bool] = lambda _namespace: False
    workers: int = 16
    on_line: OnLine = _nobody
    on_given_up: OnGivenUp = _no_one


class Lines:
    """The lines of all namespaces. Safe to use from several threads for different namespaces.

    Args:
        releasing: How pods are released.
        gates: What removes gates.
        clock: The monotonic clock.
        metrics: Where it is counted.
    """

    def __init__(
        self,
        releasing: Releasing,
        gates: GateRemover,
        *,
        clock: Callable[[], float],
        metrics: Metrics | None = None,
    ) -> None:
        self._releasing = releasing
        self._gates = gates
        self._clock = clock
        self._metrics = metrics
        self._states: dict[str, Counter[str]] = {}

    def pass_line(
        self, tracked: Tracked, ledger: Ledger | None, line: tuple[Waiter, ...]
    ) -> Passed:
        """Decide who may go, on the ledger that is about to be written."""
        if not line:
            return Passed(ledger)
        room = 0 if ledger is None else self._room(ledger, line)
        passed = self._pass(tracked, ledger, line, room)
        while passed.released and passed.ledger and written_bytes(passed.ledger) > MOST_BYTES:
            room = len(passed.released) // 2
            passed = self._pass(tracked, ledger, line, room)
        return passed

    def note(
        self,
        namespace: str,
        tracked: Tracked,
        passed: Passed,
        *,
        since: float,
        may: Callable[[], bool],
    ) -> None:
        """Carry out what was decided: the ledger is written.

        Args:
            namespace: The namespace.
            tracked: The same.
            passed: What was decided.
            since: When that became possible.
            may: Tells whether this process still leads.
        """
        now = self._clock()
        was_empty = tracked.passed is None or not (tracked.passed.held or tracked.passed.may_go)
        tracked.passed = passed
        if was_empty and not (passed.held or passed.may_go):
            return
        tracked.history = {
            uid: (tracked.history.get(uid, (now, 0))[0], passed.overtaken.get(uid, 0))
            for uid, held in passed.held.items()
            if held.place or uid in tracked.history  # it may wait for something else for a while
        }
        self._gates.want(namespace, [one.pod for one in passed.may_go], since=since, may=may)
        self._count(namespace, passed)
        if passed.released:
            _log.info(
                "pods released",
                extra={
                    "namespace": namespace,
                    "released": len(passed.released),
                    "waiting": len(passed.held),
                },
            )
        # who goes because the namespace has opted out has left the line, with nothing reserved
        may_go = [] if tracked.is_leaving else [one.uid for one in passed.may_go]
        self._releasing.on_line(namespace, passed.held, may_go)

    def note_given_up(self, namespace: str, tracked: Tracked, uids: Collection[str]) -> None:
        """Hand on what was given up, as the ledger says by now."""
        pods = {uid: tracked.count.pod(uid) for uid in uids}
        left = [uid for uid, pod in pods.items() if pod is not None and not pod.is_assigned]
        if left:
            self._releasing.on_given_up(namespace, left)

    def forget(self, namespace: str) -> None:
        """Forget a namespace that is not tracked any more, or by somebody else."""
        self._gates.want(namespace, (), since=0.0, may=lambda: False)
        if self._states.pop(namespace, None) is not None:
            self._show()
            self._releasing.on_line(namespace, {}, ())

    def _pass(
        self,
        tracked: Tracked,
        ledger: Ledger | None,
        line: tuple[Waiter, ...],
        room: int,
    ) -> Passed:
        now = self._clock()
        history = {
            uid: Waited(overtaken, now - since)
            for uid, (since, overtaken) in tracked.history.items()
        }
        return pass_line(ledger, line, self._releasing.rules(), room=room, history=history)

    def _room(self, ledger: Ledger, line: tuple[Waiter, ...]) -> int:
        # who has no gate waits for no patch
        on_their_way = sum(one.is_gated and one.uid in ledger.reservations for one in line)
        free = self._releasing.capacity() - len(ledger.reservations)
        return max(0, min(free, MOST_AT_ONCE - on_their_way))

    def _count(self, namespace: str, passed: Passed) -> None:
        if self._metrics is None:
            return
        self._metrics.release.pods.inc(sum(one.is_gated for one in passed.released))
        states = Counter(held.reason.value for held in passed.held.values())
        states[_RESERVED] = len(passed.may_go)
        self._states[namespace] = states
        self._show()

    def _show(self) -> None:
        if self._metrics is not None:
            total: Counter[str] = Counter()
            for states in list(self._states.values()):
                total.update(states)
            for state in (*Waits, _RESERVED):
                self._metrics.release.waiting.labels(str(state)).set(total[str(state)])
