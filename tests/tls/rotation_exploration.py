"""Every interleaving of controllers that rotate certificates, as a graph of states.

Two controllers, each of which believes that it leads, run the real `CertificateRotation` on one
fake cluster. Between any two calls of the API server the other one may go on, a process may end,
an answer may be lost, a write may be refused as by a third client, a GitOps tool may put back an
entry of before, and time may pass. What follows from each of these is followed, once for each
state: what is stored, what replicas and API servers may still see of before, and how far each
controller is.

How far a controller is, is what it was answered since it began: it is brought there by running it
from the beginning on the same answers. So nothing of the code that is tried is known here, and a
controller has no state that two paths to it could differ in.

There is one model of any number of replicas and API servers: what was there since the last
step of time may still be served, and still be what calls are verified by, so each has to fit each.
"""

from __future__ import annotations

import base64
import json
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, cast

import pytest
from cryptography import x509

from webhook.controllers.runtime.context import ControllerContext
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    ApiError,
    ConflictError,
    Kind,
    NotFoundError,
    Object,
    UnreachableError,
)
from webhook.kube.metadata import time_text
from webhook.runtime import certificate_rotation
from webhook.state.well_known import CA_SECRET, DEFAULT_NAMESPACE, REGISTRATION, TLS_SECRET
from webhook.telemetry.metrics import Metrics
from webhook.tls import bundles, issue, pair, rotation
from webhook.tls.bundles import trusted
from webhook.tls.issue import Issued
from webhook.tls.pair import covers, is_issued_by, validity_problems
from webhook.tls.rotation import (
    InstalledCertificates,
    Phase,
    Surroundings,
    Wait,
    next_step,
    phase_of,
    renewal_of,
)
from webhook.tls.rotation_store import SERVICE, parse_secrets, spec_for

NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)
TICK: Final = rotation.PUBLISH_TIME
"""Time passes in steps in which API servers and replicas see everything that was there before."""
CALLED: Final = f"{SERVICE}.{DEFAULT_NAMESPACE}.svc"
CA, TLS, FIRST, SECOND = range(4)
_PLACES: Final = (
    (SECRETS, CA_SECRET),
    (SECRETS, TLS_SECRET),
    (MUTATING_WEBHOOKS, REGISTRATION),
    (VALIDATING_WEBHOOKS, REGISTRATION),
)
_ASSIGNED: Final = ("resourceVersion", "uid", "creationTimestamp", "generation")
_STALE: Final = "999"


class Call(NamedTuple):
    """A call of the API server that a controller is about to make."""

    verb: str
    place: int
    body: str = ""
    """The object without its version, or the patch, as JSON."""
    version: str = ""
    dry_run: bool = False


class Stored(NamedTuple):
    """An object that was read or written: its JSON without a version, and the version."""

    text: str
    version: int


Answer: TypeAlias = Stored | datetime | Issued | type[ApiError] | None
"""Of a call; of the clock, also by a dry run; of a new certificate."""


class Run:
    """What a controller was answered since it began; there is one object for the same answers."""

    _all: ClassVar[dict[tuple[Answer, ...], Run]] = {}

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        self.answers = answers
        self.number = len(self._all)
        self.versions = frozenset(
            (_place(each.text), each.version) for each in answers if isinstance(each, Stored)
        )

    @classmethod
    def of(cls, *answers: Answer) -> Run:
        """Return the run with these answers."""
        found = cls._all.get(answers)
        if found is None:
            found = cls._all[answers] = cls(answers)
        return found

    def renamed(self, order: Mapping[tuple[int, int], int]) -> Run:
        """Return it with other versions."""
        return self.of(*(_renamed(each, order) for each in self.answers))


class State(NamedTuple):
    """All that what can come depends on."""

    now: datetime
    objects: tuple[Stored | None, ...]
    ticks: int = 0
    """How many steps of time have passed."""
    runs: tuple[Run | None, ...] = (None, None)
    """What runs of two controllers; None for one that pauses."""
    leaves: frozenset[bytes] = frozenset()
    """Certificates of before that a replica may serve."""
    seen: frozenset[bytes] = frozenset()
    """Bundles of before that an API server may go by."""
    is_seen_late: bool = True
    """Whether API servers see a registration late."""
    reverts: int = 0
    """How often an entry may still be put back."""


@dataclass(frozen=True)
class Scenario:
    """Where it begins, and how far time goes."""

    state: State
    ticks: int = 2
    later: timedelta | None = None
    """A later moment, once everything that is due before it is done."""


class _PausedError(BaseException):
    """The answer of a call is not known."""

    def __init__(self, call: Call | str | tuple[Any, ...]) -> None:
        self.call = call


class _Replay:
    """The API server, the clock and the keys of one controller that runs on known answers."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = iter(answers)

    def answer(self, call: Call | str | tuple[Any, ...]) -> Any:
        for found in self._answers:
            if isinstance(found, type):
                raise found("by the model")
            return found
        raise _PausedError(call)

    def get(self, kind: Kind, name: str, **_options: object) -> Object:
        if (kind, name) not in _PLACES:
            raise NotFoundError.of(kind, name)
        return _loaded(self.answer(Call("get", _PLACES.index((kind, name)))))

    def create(self, kind: Kind, obj: Object, *, dry_run: bool = False) -> Any:
        return self._write("create", kind, obj, dry_run)

    def update(self, kind: Kind, obj: Object, *, dry_run: bool = False) -> Any:
        return self._write("update", kind, obj, dry_run)

    def patch(self, kind: Kind, name: str, patch: object, *, dry_run: bool = False) -> None:
        place = _PLACES.index((kind, name))
        self.answer(Call("patch", place, json.dumps(patch), dry_run=dry_run))

    def _write(self, verb: str, kind: Kind, obj: Object, dry_run: bool) -> Any:
        metadata = dict(cast("Any", obj)["metadata"])
        version = metadata.pop("resourceVersion", "")
        text = json.dumps({**obj, "metadata": metadata}, sort_keys=True)
        place = _PLACES.index((kind, metadata["name"]))
        answer = self.answer(Call(verb, place, text, version, dry_run))
        if not dry_run:
            return _Written(_loaded(answer))
        when = time_text(answer)
        metadata |= {"creationTimestamp": when, "managedFields": [{"time": when}]}
        return _Written({**obj, "metadata": metadata})


class _Written(NamedTuple):
    object: Object


def _loaded(stored: Stored) -> Object:
    found: Any = _parsed(stored.text)
    metadata = {**found["metadata"], "resourceVersion": str(stored.version)}
    return {**found, "metadata": metadata}


@cache
def _parsed(text: str) -> Any:
    return json.loads(text)


@cache
def _metrics() -> Metrics:
    return Metrics()


class Exploration:
    """All states that follow from a first one, each checked."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._pending: dict[Run, Call | str | tuple[Any, ...] | None] = {}
        self._ends: set[tuple[object, ...]] = set()
        self._before: dict[State, tuple[State, str] | None] = {}

    def explore(self, *, most: int = 1_000_000) -> int:
        """Check each state that can be reached, and return how many there are."""
        first = _canonical(self._scenario.state)
        self._before[first] = None
        waiting = deque([first])
        while waiting:
            state = waiting.popleft()
            try:
                self._check(state)
                for label, following in self._followers(state):
                    found = _canonical(following)
                    if found not in self._before:
                        self._before[found] = state, label
                        waiting.append(found)
            except AssertionError as err:
                raise AssertionError(f"{err}, after {self._path(state)}") from err
            assert len(self._before) <= most, "there are more states than are wanted"
        return len(self._before)

    def _path(self, state: State) -> str:
        labels: list[str] = []
        while (before := self._before[state]) is not None:
            state, label = before
            labels.append(label)
        return "; ".join(reversed(labels))

    # -- what can come ---------------------------------------------------------------------------

    def _followers(self, state: State) -> Iterator[tuple[str, State]]:
        for index, run in enumerate(state.runs):
            if index and run == state.runs[0]:
                continue  # the two are alike
            for label, following, answers in self._steps(state, run):
                runs = (*state.runs[:index], answers, *state.runs[index + 1 :])
                yield label, following._replace(runs=runs)
        yield from self._reverted(state)
        yield from self._later(state)

    def _steps(self, state: State, run: Run | None) -> Iterator[tuple[str, State, Run | None]]:
        """Return what may come of a controller: the state then, and how far it is."""
        if run is None:
            run = self._onward(state, Run.of())  # its first read makes it begin
            if run is None:
                return
        call = self._call(run)
        assert isinstance(call, Call)
        if run.answers:
            yield "ends", state, None
        following, answer = _carried_out(state, call)
        label = f"{call.verb} {_PLACES[call.place][1]}"
        yield label, following, self._onward(following, Run.of(*run.answers, answer))
        if call.verb == "get":
            return
        for error in (ConflictError, UnreachableError):
            yield f"{label} fails", state, self._onward(state, Run.of(*run.answers, error))
        if following is not state:
            yield f"{label} and the process ends", following, None
            lost = self._onward(following, Run.of(*run.answers, UnreachableError))
            yield f"{label} and the answer is lost", following, lost

    def _onward(self, state: State, run: Run) -> Run | None:
        """Return the run up to the next call of the API server; None where it is done."""
        while True:
            call = self._call(run)
            match call:
                case None:
                    return None
                case Call(dry_run=True):  # decides nothing that the write does not
                    run = Run.of(*run.answers, _carried_out(state, call)[1])
                case Call():
                    return run
                case "now":
                    run = Run.of(*run.answers, state.now)
                case (make, *rest):
                    run = Run.of(*run.answers, _fresh(state, run, make, *rest))

    def _call(self, run: Run) -> Call | str | tuple[Any, ...] | None:
        if run not in self._pending:
            self._pending[run] = _replayed(run.answers)
        return self._pending[run]

    def _reverted(self, state: State) -> Iterator[tuple[str, State]]:
        """A tool puts back an entry of before, where that verifies what is served.

        Between two rounds: in the middle of one it is as if it came right after, and breaks trust
        by itself.
        """
        place = self._scenario.state.objects[SECOND]
        if not state.reverts or any(state.runs) or place is None or state.objects[SECOND] == place:
            return
        if all(_is_trusted(leaf, _bundle(place), state.now) for leaf in _served(state)):
            left = state._replace(reverts=state.reverts - 1)
            yield "an entry is put back", _put(left, SECOND, place.text)

    def _later(self, state: State) -> Iterator[tuple[str, State]]:
        leaves = frozenset[bytes]() if _leaf(state.objects[TLS]) else state.leaves
        passed = state._replace(ticks=state.ticks + 1, leaves=leaves, seen=frozenset())
        later = self._scenario.later
        if state.ticks < self._scenario.ticks:
            yield "time passes", passed._replace(now=state.now + TICK)
        elif later is not None and state.now < NOW + later and not any(state.runs):
            waits = _next(state.objects, state.now)
            if isinstance(waits, Wait) and waits.until >= NOW + later:
                yield "days pass", passed._replace(now=NOW + later, ticks=self._scenario.ticks - 1)

    # -- what has to be --------------------------------------------------------------------------

    def _check(self, state: State) -> None:
        for leaf in _served(state):
            assert not validity_problems(_certificate(leaf), state.now), "an ended one is served"
            assert covers(_certificate(leaf), CALLED)
            for bundle in _trusting(state):
                assert _is_trusted(leaf, bundle, state.now), "what is served is not trusted"
        before = self._before[state]
        if before is not None:
            _check_ca_kept(before[0], state)
        end = (state.now, tuple(each and each.text for each in state.objects))
        if end not in self._ends:
            self._check_end(state)
            self._ends.add(end)

    def _check_end(self, state: State) -> None:
        """Check that one controller alone comes to rest, with one CA and all of it in place."""
        state = state._replace(runs=(None,), reverts=0)
        for _ in range(20):
            state = self.rest(state)
            waits = _next(state.objects, state.now)
            assert isinstance(waits, Wait), "nothing is done that is due"
            if _is_steady(state):
                return
            assert waits.until > state.now, "nothing is done, and it is not waited for either"
            state = state._replace(now=waits.until, leaves=frozenset(), seen=frozenset())
        raise AssertionError("it does not become steady")

    def rest(self, state: State) -> State:
        """Let one controller do all that it can do now."""
        for _ in range(12):
            before, run = state.objects, self._onward(state, Run.of())
            while run is not None:
                call = self._call(run)
                assert isinstance(call, Call)
                state, answer = _carried_out(state, call)
                run = self._onward(state, Run.of(*run.answers, answer))
            if state.objects == before:
                return state
        raise AssertionError("it does not come to rest")


_LIVE: list[_Replay] = []


def _replayed(answers: tuple[Answer, ...]) -> Call | str | tuple[Any, ...] | None:
    """Run a controller on some answers; return what it asks for next, None where it is done."""
    replay = _Replay(answers)
    context = ControllerContext(api=cast("Any", replay), metrics=_metrics())
    controller = certificate_rotation.CertificateRotation(
        context, DEFAULT_NAMESPACE, now=lambda: cast("datetime", replay.answer("now"))
    )
    _LIVE.append(replay)
    try:
        controller.reconcile()
    except _PausedError as pause:
        return pause.call
    finally:
        _LIVE.pop()
    return None


# -- the cluster -----------------------------------------------------------------------------------


def _carried_out(state: State, call: Call) -> tuple[State, Answer]:
    """Return what is stored after a call, and its answer."""
    there = state.objects[call.place]
    if call.verb == "get":
        return state, NotFoundError if there is None else there
    is_same = there is not None and call.version == str(there.version)
    version = call.version and ("same" if is_same else "stale")
    text = _written(call.place, there and there.text, call.verb, call.body, version)
    if isinstance(text, type):
        return state, text
    if call.dry_run:
        return state, state.now
    following = _put(state, call.place, text)
    return following, following.objects[call.place] if call.place in {CA, TLS} else None


@cache
def _written(
    place: int, there: str | None, verb: str, body: str, version: str
) -> str | type[ApiError]:
    """Return what the fake cluster stores, or which error it answers."""
    kind, name = _PLACES[place]
    client = FakeClient(FakeCluster())
    current = "" if there is None else _version(client.create(kind, json.loads(there)).object)
    sent = json.loads(body)
    try:
        if verb == "patch":
            client.patch(kind, name, sent)
        else:
            wanted = {"": "", "same": current, "stale": _STALE}[version]
            sent["metadata"] |= {"resourceVersion": wanted} if wanted else {}
            (client.create if verb == "create" else client.update)(kind, sent)
    except ApiError as err:
        return type(err)
    namespace = DEFAULT_NAMESPACE if kind is SECRETS else ""
    return _text(client.get(kind, name, namespace=namespace))


def _version(found: Object) -> str:
    return str(cast("Any", found)["metadata"]["resourceVersion"])


def _text(found: Object) -> str:
    metadata = {k: v for k, v in cast("Any", found)["metadata"].items() if k not in _ASSIGNED}
    return json.dumps({**found, "metadata": metadata}, sort_keys=True)


def _put(state: State, place: int, text: str) -> State:
    there = state.objects[place]
    if there is not None and there.text == text:
        return state  # as the API server: what changes nothing is not written
    stored = Stored(text, 1 + max(_versions(state, place), default=0))
    objects = (*state.objects[:place], stored, *state.objects[place + 1 :])
    leaves, seen = state.leaves, state.seen
    if place == TLS and (leaf := _leaf(there)) and leaf != _leaf(stored):
        leaves |= {leaf}
    if place in {FIRST, SECOND} and _bundle(there) and state.is_seen_late:
        seen |= {_bundle(there)}  # by an entry without a bundle calls failed before
    return state._replace(objects=objects, leaves=leaves, seen=seen)


def _versions(state: State, place: int) -> Iterator[int]:
    stored = state.objects[place]
    yield from (stored.version,) if stored else ()
    for run in state.runs:
        yield from (version for at, version in run.versions if at == place) if run else ()


@cache
def _place(text: str) -> int:
    found = _parsed(text)
    kinds = {"Secret": SECRETS, "MutatingWebhookConfiguration": MUTATING_WEBHOOKS}
    kind = kinds.get(found["kind"], VALIDATING_WEBHOOKS)
    return _PLACES.index((kind, found["metadata"]["name"]))


def _canonical(state: State) -> State:
    """Number versions by their order, and controllers by what they were answered."""
    there = {(place, each.version) for place, each in enumerate(state.objects) if each}
    there.update(*(run.versions for run in state.runs if run))
    order: dict[tuple[int, int], int] = {}
    ranks = [0] * len(_PLACES)
    for place, version in sorted(there):
        ranks[place] += 1
        order[place, version] = ranks[place]
    runs = state.runs
    if any(version != rank for (_, version), rank in order.items()):
        objects = tuple(cast("Stored | None", _renamed(each, order)) for each in state.objects)
        runs = tuple(run and run.renamed(order) for run in runs)
        state = state._replace(objects=objects)
    return state._replace(runs=tuple(sorted(runs, key=lambda run: run.number if run else -1)))


def _renamed(answer: Answer, order: Mapping[tuple[int, int], int]) -> Answer:
    if not isinstance(answer, Stored):
        return answer
    return Stored(answer.text, order[_place(answer.text), answer.version])


# -- certificates ----------------------------------------------------------------------------------

_ISSUED: Final[dict[tuple[Any, ...], Issued]] = {}
_make_ca, _make_serving = issue.issue_ca, issue.issue_serving


def _fresh(state: State, own: Run, make: str, *rest: Any) -> Issued:
    """Return a new certificate: the first of those made for this that is in nothing yet."""
    known = "".join(stored.text for stored in state.objects if stored is not None)
    used = {answer for run in (*state.runs, own) if run for answer in run.answers}
    index = 0
    while True:
        issued = _pooled(make, index, *rest)
        text = base64.b64encode(issued.key).decode()
        if issued not in used and text not in known and issued.certificate not in state.leaves:
            return issued
        index += 1


def _pooled(make: str, index: int, *rest: Any) -> Issued:
    key = (make, index, *rest)
    if key not in _ISSUED:
        if make == "ca":
            now, lifetime = rest
            _ISSUED[key] = _make_ca(now=now, lifetime=lifetime)
        else:
            ca, names, now, lifetime = rest
            _ISSUED[key] = _make_serving(ca, dns_names=names, now=now, lifetime=lifetime)
    return _ISSUED[key]


def _issue_ca(*, now: datetime, lifetime: timedelta) -> Issued:
    return _issued("ca", now, lifetime)


def _issue_serving(
    ca: Issued, *, dns_names: Sequence[str], now: datetime, lifetime: timedelta
) -> Issued:
    return _issued("leaf", ca, tuple(dns_names), now, lifetime)


def _issued(make: str, *rest: Any) -> Issued:
    if not _LIVE:  # it is only asked which step is due
        return _pooled(make, 0, *rest)
    return cast("Issued", _LIVE[-1].answer((make, *rest)))


_cached_issued_by = lru_cache(maxsize=None)(is_issued_by)
_cached_reading = lru_cache(maxsize=None)(bundles.read_certificates)
_cached_problems = lru_cache(maxsize=None)(pair.issued_problems)


@contextmanager
def stepped() -> Iterator[None]:
    """Let new certificates come from the model, and read each only once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotation, "issue_ca", _issue_ca)
        patch.setattr(rotation, "issue_serving", _issue_serving)
        patch.setattr(rotation, "is_issued_by", _cached_issued_by)
        patch.setattr(rotation, "issued_problems", _cached_problems)
        for module in (bundles, rotation):
            patch.setattr(module, "read_certificates", _cached_reading)
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


@cache
def _certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


@cache
def _is_trusted(leaf: bytes, bundle: bytes, now: datetime) -> bool:
    live = [each for each in trusted(bundle) if not validity_problems(each, now)]
    return any(is_issued_by(_certificate(leaf), each) for each in live)


@cache
def _leaf(stored: Stored | None) -> bytes:
    """Return the certificate of the Secret that is served; empty where there is none."""
    return b"" if stored is None else base64.b64decode(_parsed(stored.text)["data"]["tls.crt"])


@cache
def _bundle(stored: Stored | None) -> bytes:
    if stored is None:
        return b""
    (entry,) = _parsed(stored.text)["webhooks"]
    return base64.b64decode(entry["clientConfig"].get("caBundle", ""))


def _served(state: State) -> frozenset[bytes]:
    """Return what a replica may serve."""
    return state.leaves | ({_leaf(state.objects[TLS])} - {b""})


def _trusting(state: State) -> frozenset[bytes]:
    """Return what an API server may verify by."""
    return state.seen | {_bundle(state.objects[place]) for place in (FIRST, SECOND)}


@cache
def _held(ca: Stored | None, tls: Stored | None) -> InstalledCertificates:
    read = [None if each is None else _loaded(each) for each in (ca, tls)]
    return parse_secrets(*read).held


def _next(objects: Sequence[Stored | None], now: datetime) -> rotation.Step:
    """Return the step that is due by what is stored."""
    around = Surroundings(now=now, bundles=[_bundle(objects[FIRST]), _bundle(objects[SECOND])])
    return next_step(_held(objects[CA], objects[TLS]), spec_for(DEFAULT_NAMESPACE), around)


def _is_steady(state: State) -> bool:
    """Return whether one CA signs, is trusted everywhere, and no other is."""
    held = _held(state.objects[CA], state.objects[TLS])
    (leaf,), (ca,) = trusted(held.serving.certificate), trusted(held.ca.certificate)  # type: ignore[union-attr]
    is_one = _trusting(state) == {held.bundle} == {held.ca.certificate}  # type: ignore[union-attr]
    return is_one and is_issued_by(leaf, ca) and phase_of(held, state.now) is Phase.STEADY


def _check_ca_kept(before: State, after: State) -> None:
    """Check that a key that is to sign is replaced by another only when its time has come."""
    former, present = (_held(each.objects[CA], None).ca for each in (before, after))
    if former is None or former == present:
        return
    (ca,) = trusted(former.certificate)
    assert before.now >= renewal_of(ca), "the key of a CA is lost that is to sign"


# -- where it begins -------------------------------------------------------------------------------


def _registration(place: int) -> Stored:
    kind, name = _PLACES[place]
    service = {"name": SERVICE, "namespace": DEFAULT_NAMESPACE}
    entry = {
        "name": "bind.deferredquota.io",
        "clientConfig": {"service": service},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    found = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "webhooks": [entry],
    }
    text = _written(place, None, "create", json.dumps(found), "")
    assert isinstance(text, str)
    return Stored(text, 1)


def nothing(now: datetime = NOW) -> State:
    """Return an installation of which there are only the registrations."""
    return State(now, (None, None, _registration(FIRST), _registration(SECOND)))


def installed(now: datetime) -> State:
    """Return an installation whose certificates were made at some time."""
    return rested(nothing(now))


def rested(state: State) -> State:
    """Return what is there when one controller has done all that is due, and all have seen it."""
    found = Exploration(Scenario(state)).rest(state)
    return found._replace(leaves=frozenset(), seen=frozenset())


def leaf_of(state: State) -> bytes:
    """Return the certificate that is served."""
    return _leaf(state.objects[TLS])
