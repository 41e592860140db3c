"""What may happen next in a state of the model, and what may never be so.

Each step is one message that arrives, one change of storage, or one decision. Both leaders lead all
the time, each without a look at the Lease: whatever a change of leader can do is among it.

- Handlers: a request arrives at a replica; its watch brings the ledger, or does not; a batch is
  decided by that ledger, which may only admit all, or by one that is read; the write arrives, late
  or never, and its answer is lost or not; the replica stops, and its write arrives afterwards.
- Storage: an admitted bind is carried out; a request ends without; a pod is deleted; the ledger is.
- Leaders: the watch of pods brings a change; the ledger is read, and what follows is sent; that
  arrives, or does not; a due reservation is asked about; a gate is removed; the process stops, and
  another one lists the pods, perhaps as they were some time ago.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final, TypeAlias

from tests.quota.ledger_model.decisions import HARD, Decisions
from tests.quota.ledger_model.state import (
    NO_LEDGER,
    Batch,
    Handler,
    Leader,
    Name,
    Phase,
    Request,
    Stage,
    State,
    Watch,
    phases,
)
from webhook.quota.ledger import ledger as ledger_module
from webhook.quota.ledger.ledger import Admitted, Reservation, Verdict

Step: TypeAlias = tuple[str, State]
_NO_PODS: Final[frozenset[int]] = frozenset()
_NOTHING: Final[tuple[int, frozenset[int]]] = (-1, frozenset())


class Fault(IntEnum):
    """What happens only so often."""

    RESTART = 0
    """A leader stops, and its cache begins with a list."""
    CRASH = 1
    """A handler stops."""
    LOST_ANSWER = 2
    """Storage wrote, and the writer does not get to know."""
    DELETED_POD = 3
    LOST_LEDGER = 4


@dataclass(frozen=True)
class Scene:
    """Where a walk begins."""

    pods: tuple[Phase, ...]
    requests: tuple[int, ...]
    """How many binds may be asked for of each pod."""
    faults: Mapping[Fault, int] = field(default_factory=dict)
    """How often each fault may happen; one that is absent does not."""


class Rules:
    """What the protocol asks of those that keep to it.

    Attributes:
        needs_older: Whether it matters what a ledger said that was written over. Where every write
            compares versions it does not: what was decided by it will not be written, so that it is
            as if it had not been decided.
    """

    needs_older: ClassVar[bool] = False

    def may_write(self, base: int, stored: int) -> bool:
        """Return whether storage carries out a handler's write: a compare-and-swap."""
        return base == stored

    def may_leader_write(self, base: int, stored: int) -> bool:
        """Return whether storage carries out a leader's write."""
        return base == stored

    def is_due(self, watch: Watch) -> bool:
        """Return whether a reservation was watched for longer than a request lasts."""
        return not watch.open

    def is_same(self, watch: Watch, serial: int) -> bool:
        """Return whether a reservation is still the one that is watched."""
        return watch.serial == serial

    def agrees(self, stored: tuple[Phase, int], seen: tuple[Phase, int]) -> bool:
        """Return whether the API server shows a pod as it was counted."""
        return stored == seen

    def may_make_ledger(self, lost: Collection[Name], *, has_seen_all: bool) -> bool:
        """Return whether a ledger may be made where one was lost."""
        return not lost and has_seen_all

    def binds_unwritten(self, _reservation: Reservation) -> bool:
        """Return whether a reservation that is there is answer enough, without a write."""
        return False

    def is_written(self, *, is_known: bool) -> bool:
        """Return whether a handler takes its write for done whose answer it has, or has not."""
        return is_known


class Steps:
    """What may happen, from a scene on.

    Args:
        scene: Where it begins.
        rules: What the actors keep to.
    """

    def __init__(self, scene: Scene, rules: Rules) -> None:
        self._pods = len(scene.pods)
        self._rules = rules
        self._decisions = Decisions()
        history = tuple(enumerate(scene.pods))
        leader = Leader(len(history), _NO_PODS, _NOTHING, (None,) * self._pods, None, None)
        number = self._decisions.first(history, leader)
        handler = Handler(number, None, ())
        faults = tuple(scene.faults.get(one, 0) for one in Fault)
        self.first = State(
            history, number, (handler, handler), (leader, leader), scene.requests, faults
        )

    def after(self, state: State) -> Iterator[Step]:
        """Return every step that may happen, and the state after it."""
        yield from self._storage_steps(state)
        for index in _different(state.handlers):
            yield from self._handler_steps(state, index)
        for index in _different(state.leaders):
            yield from self._leader_steps(state, index)

    def settled(self, state: State) -> State:
        """Return a state without what makes no difference."""
        handlers, leaders = state.handlers, state.leaders
        if not self._rules.needs_older:
            handlers = (
                _forgetful_handler(handlers[0], state.ledger),
                _forgetful_handler(handlers[1], state.ledger),
            )
            leaders = (
                _forgetful_leader(leaders[0], state.ledger),
                _forgetful_leader(leaders[1], state.ledger),
            )
        if hash(handlers[0]) > hash(handlers[1]):
            handlers = handlers[::-1]
        if hash(leaders[0]) > hash(leaders[1]):
            leaders = leaders[::-1]
        return State(
            state.history,
            state.ledger,
            handlers,
            leaders,
            state.requests_left,
            state.faults_left,
        )

    def check(self, state: State) -> None:
        """Check what holds in every state."""
        now = phases(state.history)
        bound = [pod for pod, (phase, _) in now.items() if phase is Phase.BOUND]
        assert len(bound) <= HARD, "over-commit: more pods are bound than fit"
        charged = self._decisions.charged(state.ledger)
        if charged is None:
            return
        assert charged.amount <= HARD, "more is promised and used than there is"
        counted = phases(state.history[: charged.seen])
        for pod in bound:
            is_counted = counted[pod][0] is Phase.BOUND
            assert is_counted or pod in charged.reserved, "a bound pod is not charged"
        for handler in state.handlers:
            for (pod, _), stage in handler.requests:
                is_coming = stage is Stage.ADMITTED and now[pod][0] is Phase.FREE
                assert not is_coming or pod in charged.reserved, "an admitted bind is not charged"

    # -- storage ---------------------------------------------------------------------------

    def _storage_steps(self, state: State) -> Iterator[Step]:
        now = phases(state.history)
        for index, handler in enumerate(state.handlers):
            for request in handler.requests:
                ended = _without(state, index, request.name)
                yield "a request ends", ended
                if request.stage is Stage.ADMITTED and now[request.name[0]][0] is Phase.FREE:
                    yield "a pod is bound", _stored(ended, request.name[0], Phase.BOUND)
        if state.faults_left[Fault.DELETED_POD]:
            for pod, (phase, _) in now.items():
                if phase is not Phase.GONE:
                    gone = _stored(state, pod, Phase.GONE)
                    yield "a pod is deleted", _spent(gone, Fault.DELETED_POD)
        if state.faults_left[Fault.LOST_LEDGER] and state.ledger != NO_LEDGER:
            lost = state._replace(ledger=NO_LEDGER)
            yield "the ledger is lost", _spent(lost, Fault.LOST_LEDGER)

    # -- handlers --------------------------------------------------------------------------

    def _handler_steps(self, state: State, index: int) -> Iterator[Step]:
        handler = state.handlers[index]
        yield from self._requests(state, index)
        if handler.cached != state.ledger:
            yield (
                "a handler sees the ledger",
                _with_handler(state, index, handler._replace(cached=state.ledger)),
            )
        if handler.sent is not None:
            yield from self._handler_write(state, index, handler.sent)
        else:
            yield from self._decide(state, index)
        if state.faults_left[Fault.CRASH] and handler.requests:
            after = state
            for name, _ in handler.requests:
                after = _without(after, index, name)
            yield "a handler stops", _spent(after, Fault.CRASH)

    def _requests(self, state: State, index: int) -> Iterator[Step]:
        handler = state.handlers[index]
        for pod, (phase, _) in phases(state.history).items():
            left = state.requests_left[pod]
            if not left or phase is not Phase.FREE:
                continue
            known = self._decisions.charged(handler.cached)
            one = None if known is None else known.reserved.get(pod)
            is_promised = one is not None and self._rules.binds_unwritten(one)
            stage = Stage.ADMITTED if is_promised else Stage.ASKED
            requests = tuple(sorted((*handler.requests, Request((pod, left), stage))))
            asked = _with_handler(state, index, handler._replace(requests=requests))
            lefts = _put(state.requests_left, pod, left - 1)
            yield "a bind is asked for", asked._replace(requests_left=lefts)

    def _decide(self, state: State, index: int) -> Iterator[Step]:
        handler = state.handlers[index]
        names = tuple(name for name, stage in handler.requests if stage is Stage.ASKED)
        if not names:
            return
        if handler.cached != state.ledger:
            following, verdicts = self._decisions.bind(handler.cached, names)
            if all(isinstance(one, Admitted) for one in verdicts):
                batch = Batch(handler.cached, following, names)
                yield "a handler decides by its cache", _sent(state, index, batch)
        following, verdicts = self._decisions.bind(state.ledger, names)
        read = _with_handler(state, index, handler._replace(cached=state.ledger))
        if any(isinstance(one, Admitted) for one in verdicts):
            batch = Batch(state.ledger, following, names)
            yield "a handler reads and decides", _sent(read, index, batch)
        else:
            yield "a handler reads and denies", _answered(read, index, names, verdicts)

    def _handler_write(self, state: State, index: int, batch: Batch) -> Iterator[Step]:
        handler = state.handlers[index]._replace(sent=None)
        unknown = _with_handler(state, index, handler)
        unknown = self._decided(
            unknown, index, batch, is_written=self._rules.is_written(is_known=False)
        )
        if not self._rules.may_write(batch.base, state.ledger):
            conflict = _with_handler(state, index, handler)
            yield (
                "a handler's write conflicts",
                self._decided(conflict, index, batch, is_written=False),
            )
            return
        yield "a handler's write is lost", unknown
        written = state._replace(ledger=batch.following)
        known = _with_handler(written, index, handler._replace(cached=batch.following))
        yield (
            "a handler writes",
            self._decided(known, index, batch, is_written=self._rules.is_written(is_known=True)),
        )
        if state.faults_left[Fault.LOST_ANSWER]:
            after = unknown._replace(ledger=batch.following)
            yield "a handler writes, its answer is lost", _spent(after, Fault.LOST_ANSWER)

    def _decided(self, state: State, index: int, batch: Batch, *, is_written: bool) -> State:
        verdicts = self._decisions.bind(batch.base, batch.names)[1]
        final = ledger_module.final_verdicts(verdicts, is_written=is_written)
        return _answered(state, index, batch.names, final)

    # -- leaders ---------------------------------------------------------------------------

    def _leader_steps(self, state: State, index: int) -> Iterator[Step]:
        leader = state.leaders[index]
        if leader.seen < len(state.history):
            pod, phase = state.history[leader.seen]
            gone = leader.gone | {pod} if phase is Phase.GONE else leader.gone
            seen = leader._replace(seen=leader.seen + 1, gone=gone)
            yield "a leader sees a change", _with_leader(state, index, seen)
        if leader.sent is None:
            looked = self._looked(state, leader)
            if looked != leader:
                yield "a leader looks", _with_leader(state, index, looked)
        else:
            yield from self._leader_write(state, index, leader.sent)
        yield from self._ask(state, index)
        yield from self._ungate(state, index)
        if state.faults_left[Fault.RESTART]:
            for listed in range(self._pods, len(state.history) + 1):
                anew = Leader(listed, _NO_PODS, _NOTHING, (None,) * self._pods, None, leader.sent)
                restarted = _with_leader(state, index, anew)
                yield "a leader restarts", _spent(restarted, Fault.RESTART)

    def _looked(self, state: State, leader: Leader) -> Leader:
        """Return a leader that has read the ledger, and sends what follows from it, if any."""
        has_seen_all = leader.seen == len(state.history)
        if state.ledger == NO_LEDGER:
            lost = _open(state) if leader.lost is None else leader.lost
            nothing = (None,) * self._pods
            leader = leader._replace(read=_NOTHING, watches=nothing, lost=lost)
            if not self._rules.may_make_ledger(lost, has_seen_all=has_seen_all):
                return leader
        else:
            watches = self._watches(state, leader)
            leader = leader._replace(read=self._read(state.ledger), watches=watches, lost=None)
        following = self._decisions.following(state.ledger, state.history, leader)
        if following is None or following == state.ledger:
            return leader
        return leader._replace(sent=(state.ledger, following))

    def _read(self, number: int) -> tuple[int, frozenset[int]]:
        known = self._decisions.charged(number)
        assert known is not None
        return self._decisions.object_of(number), frozenset(known.reserved)

    def _watches(self, state: State, leader: Leader) -> tuple[Watch | None, ...]:
        known = self._decisions.charged(state.ledger)
        assert known is not None
        is_other = leader.read[0] != self._decisions.object_of(state.ledger)
        watches: list[Watch | None] = []
        for pod, watch in enumerate(leader.watches):
            one = known.reserved.get(pod)
            if one is None:
                watches.append(None)
            elif watch is None or is_other or not self._rules.is_same(watch, one.serial):
                watches.append(Watch(one.serial, _open(state)))
            else:
                watches.append(watch._replace(serial=one.serial))
        return tuple(watches)

    def _leader_write(self, state: State, index: int, sent: tuple[int, int]) -> Iterator[Step]:
        base, following = sent
        leader = state.leaders[index]._replace(sent=None)
        given_up = _with_leader(state, index, leader)
        yield "a leader's write conflicts or is lost", given_up
        if self._rules.may_leader_write(base, state.ledger):
            known = _with_leader(state, index, leader._replace(read=self._read(following)))
            yield "a leader writes", known._replace(ledger=following)
            if state.faults_left[Fault.LOST_ANSWER]:
                unknown = given_up._replace(ledger=following)
                yield "a leader writes, its answer is lost", _spent(unknown, Fault.LOST_ANSWER)

    def _ask(self, state: State, index: int) -> Iterator[Step]:
        """Ask the API server about what was watched long enough (law 5)."""
        leader = state.leaders[index]
        stored, seen = phases(state.history), phases(state.history[: leader.seen])
        for pod, watch in enumerate(leader.watches):
            if watch is None or watch.proof >= 0 or pod not in leader.read[1]:
                continue
            is_queued = seen[pod][0] is Phase.GATED  # kept as long as its pod has our gate
            if is_queued or not self._rules.is_due(watch):
                continue
            if self._rules.agrees(stored[pod], seen[pod]):
                proof = 0 if stored[pod][0] is Phase.GONE else stored[pod][1]
                watches = _put(leader.watches, pod, watch._replace(proof=proof))
                yield (
                    "a reservation is found unused",
                    _with_leader(state, index, leader._replace(watches=watches)),
                )

    def _ungate(self, state: State, index: int) -> Iterator[Step]:
        for pod, (phase, _) in phases(state.history).items():
            if phase is Phase.GATED and pod in state.leaders[index].read[1]:
                yield "a gate is removed", _stored(state, pod, Phase.FREE)


def _different(actors: tuple[object, ...]) -> range:
    """Return the numbers of actors that differ: what one of two equal ones does, both may do."""
    return range(1 if actors[0] == actors[1] else 2)


def _forgetful_handler(handler: Handler, ledger: int) -> Handler:
    sent = handler.sent
    if sent is None or sent.base == ledger:
        return handler if handler.cached == ledger else Handler(ledger, sent, handler.requests)
    requests = tuple(
        Request(name, Stage.ASKED if stage is Stage.SENT else stage)
        for name, stage in handler.requests
    )
    return Handler(ledger, None, requests)


def _forgetful_leader(leader: Leader, ledger: int) -> Leader:
    is_older = leader.sent is not None and leader.sent[0] != ledger
    return leader._replace(sent=None) if is_older else leader


def _put(items: tuple, index: int, item: object) -> tuple:  # type: ignore[type-arg]
    return (*items[:index], item, *items[index + 1 :])


def _open(state: State) -> frozenset[Name]:
    return frozenset(name for handler in state.handlers for name, _ in handler.requests)


def _stored(state: State, pod: int, phase: Phase) -> State:
    return state._replace(history=(*state.history, (pod, phase)))


def _spent(state: State, fault: Fault) -> State:
    left = state.faults_left[fault]
    return state._replace(faults_left=_put(state.faults_left, fault, left - 1))


def _with_handler(state: State, index: int, handler: Handler) -> State:
    return state._replace(handlers=_put(state.handlers, index, handler))


def _with_leader(state: State, index: int, leader: Leader) -> State:
    return state._replace(leaders=_put(state.leaders, index, leader))


def _sent(state: State, index: int, batch: Batch) -> State:
    handler = state.handlers[index]
    requests = tuple(
        Request(name, Stage.SENT) if name in batch.names else Request(name, stage)
        for name, stage in handler.requests
    )
    return _with_handler(state, index, handler._replace(sent=batch, requests=requests))


def _answered(
    state: State, index: int, names: tuple[Name, ...], verdicts: Sequence[Verdict | None]
) -> State:
    """Give requests what stands of their verdicts; those without one are decided again."""
    for name, verdict in zip(names, verdicts, strict=True):
        handler = state.handlers[index]
        if not any(request.name == name for request in handler.requests):
            continue  # it has ended meanwhile
        if verdict is not None and not isinstance(verdict, Admitted):
            state = _without(state, index, name)
            continue
        stage = Stage.ASKED if verdict is None else Stage.ADMITTED
        requests = tuple(
            Request(name, stage) if request.name == name else request
            for request in handler.requests
        )
        state = _with_handler(state, index, handler._replace(requests=requests))
    return state


def _without(state: State, index: int, name: Name) -> State:
    """Return a state in which a request has ended; what was watched beside it knows that."""
    handler = state.handlers[index]
    requests = tuple(request for request in handler.requests if request.name != name)
    leaders = tuple(_without_request(leader, name) for leader in state.leaders)
    state = _with_handler(state, index, handler._replace(requests=requests))
    return state._replace(leaders=leaders)


def _without_request(leader: Leader, name: Name) -> Leader:
    watches = tuple(
        watch if watch is None else watch._replace(open=watch.open - {name})
        for watch in leader.watches
    )
    lost = leader.lost if leader.lost is None else leader.lost - {name}
    return leader._replace(watches=watches, lost=lost)
