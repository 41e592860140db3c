"""A fake client whose calls a test answers, spoils, delays or changes: client-go's reactors.

    client = ReactiveClient(cluster)
    client.on("update", QUOTA_LEDGERS, conflict, times=2)

A reaction gets the call and `proceed`. It raises, answers itself, or returns `proceed()`, which
asks the reactions that were registered before it and then the cluster; `proceed(changed)` sends
another call in its place. The reaction that was registered last comes first.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar, cast

from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.fakecluster.storage.admission_hook import Admission
from webhook.fakecluster.storage.watch import FakeWatch
from webhook.kube.api import (
    ALL,
    BINDINGS,
    PODS,
    ConflictError,
    Decode,
    ExpiredError,
    ForbiddenError,
    JsonPatch,
    Kind,
    ListOptions,
    MergePatch,
    Object,
    ObjectList,
    Page,
    Revision,
    TooManyRequestsError,
    UnavailableError,
    UnreachableError,
    WatchEvent,
    WatchStream,
    object_key,
)

T = TypeVar("T")

Verb: TypeAlias = Literal[
    "get", "list", "continue", "watch", "create", "update", "patch", "delete", "*"
]
"""The API's verbs; "continue" is the read of each page of a list but the first."""

Proceed: TypeAlias = Callable[..., Any]
"""Carry out the call, or the one that is passed, and return its answer."""

VERSION: Final = Kind("", "v1", "Version", "version")
_HOLD_SECONDS: Final = 30.0

Reaction: TypeAlias = Callable[["Call", Proceed], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a client."""

    verb: str
    kind: Kind
    name: str = ""
    """Empty for lists and watches."""
    namespace: str = ""
    """Empty for all namespaces, and for kinds without namespaces."""
    subresource: str = ""
    body: Any = None
    """The object or the patch that is sent."""
    selection: ListOptions = ALL
    """What is listed or watched."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The further arguments of the call, as `ClusterApi` names them."""
    number: int = 0
    """The calls of a client count from 1."""

    @property
    def key(self) -> str:
        return object_key(self.namespace, self.name) if self.name else self.namespace

    @property
    def dry_run(self) -> bool:
        return bool(self.options.get("dry_run"))

    @property
    def is_paged(self) -> bool:
        """Return whether a list is read in pages: its answer is an iterator of them."""
        return "limit" in self.options

    def __str__(self) -> str:
        part = f"/{self.subresource}" if self.subresource else ""
        return f"{self.verb} {self.kind.plural}{part} {self.key}".rstrip()


@dataclass(eq=False)
class Reactor:
    """A registered reaction: the handle that `ReactiveClient.on` returns."""

    client: ReactiveClient
    verb: Verb
    kind: Kind | Literal["*"]
    reaction: Reaction
    subresource: str | None
    times: int | None
    """How many calls it still reacts to; None is all."""

    def remove(self) -> None:
        """React to no further call."""
        self.client.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def matches(self, call: Call) -> bool:
        return (
            self.verb in ("*", call.verb)
            and self.kind in ("*", call.kind)
            and self.subresource in (None, call.subresource)
        )


class InterceptedWatch:
    """A watch with a call before each event, which may wait, or end the watch by an error."""

    def __init__(self, inner: WatchStream, intercept: Callable[[WatchEvent], object]) -> None:
        self._inner = inner
        self._intercept = intercept

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WatchEvent:
        event = next(self._inner)
        self._intercept(event)
        return event

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ReactiveClient(FakeClient):
    """A `FakeClient` that records its calls and passes them through reactions.

    A bind is the creation of a Binding; a status is updated as subresource "status".
    """

    def __init__(
        self, cluster: FakeCluster | None = None, *, admission: Admission | None = None
    ) -> None:
        super().__init__(FakeCluster() if cluster is None else cluster, admission=admission)
        self.calls: Final[list[Call]] = []
        """All calls so far; a test may clear it."""
        self._lock = threading.Lock()
        self._number = 0
        self._reactors: tuple[Reactor, ...] = ()
        self._flows: dict[tuple[Kind, str], threading.Event] = {}

    def on(
        self,
        verb: Verb,
        kind: Kind | Literal["*"],
        reaction: Reaction,
        *,
        subresource: str | None = None,
        times: int | None = None,
    ) -> Reactor:
        """Let a reaction answer the calls of a verb and a kind, `times` of them at most.

        Without `subresource` it answers calls of the object and of all its subresources; "" is
        the object alone.
        """
        reactor = Reactor(self, verb, kind, reaction, subresource, times)
        with self._lock:
            self._reactors = (reactor, *self._reactors)
        return reactor

    def remove(self, reactor: Reactor) -> None:
        """Let a reaction answer nothing any more."""
        with self._lock:
            self._reactors = tuple(one for one in self._reactors if one is not reactor)

    def reset(self) -> None:
        """Remove all reactions."""
        with self._lock:
            self._reactors = ()

    def calls_of(
        self, verb: Verb, kind: Kind | Literal["*"] = "*", *, subresource: str | None = None
    ) -> list[Call]:
        """Return the recorded calls of a verb and a kind."""
        like = Reactor(self, verb, kind, lambda _call, proceed: proceed(), subresource, None)
        return [call for call in tuple(self.calls) if like.matches(call)]

    def pause(self, kind: Kind, field_selector: str = "") -> None:
        """Let no further event of the watches of a kind through."""
        self._flow(kind, field_selector).clear()

    def resume(self) -> None:
        """Let all events through again, in their order."""
        for flow in tuple(self._flows.values()):
            flow.set()

    def get(
        self, kind: Kind, name: str, *, namespace: str = "", decode: Decode | None = None
    ) -> Object:
        options = {} if decode is None else {"decode": decode}
        call = Call(verb="get", kind=kind, name=name, namespace=namespace, options=options)
        act = super().get
        return self._send(
            call, lambda sent: act(kind, sent.name, namespace=sent.namespace, decode=decode)
        )

    def list(self, kind: Kind, options: ListOptions = ALL) -> ObjectList:
        call = _of_many("list", kind, options)
        act = super().list
        return self._send(call, lambda sent: act(kind, sent.selection))

    def pages(
        self, kind: Kind, options: ListOptions = ALL, *, limit: int = 500, is_brief: bool = False
    ) -> Iterator[Page]:
        call = _of_many("list", kind, options, limit=limit, is_brief=is_brief)
        act = super().pages
        pages = self._send(call, lambda sent: act(kind, sent.selection, **sent.options))
        for number, page in enumerate(pages):
            yield self._send(replace(call, verb="continue"), _answer(page)) if number else page

    def watch(self, kind: Kind, options: ListOptions = ALL, **others: Any) -> FakeWatch:
        call = _of_many("watch", kind, options, **others)
        act = super().watch
        inner = self._send(call, lambda sent: act(kind, sent.selection, **sent.options))
        flow = self._flow(kind, options.field_selector)
        return cast("FakeWatch", InterceptedWatch(inner, lambda _event: flow.wait()))

    def create(self, kind: Kind, obj: Object, **options: Any) -> Revision:
        act = super().create
        call = _of_object("create", kind, obj, options)
        return self._send(call, lambda sent: act(kind, sent.body, **sent.options))

    def update(self, kind: Kind, obj: Object, *, subresource: str = "", **options: Any) -> Revision:
        act = super().update
        call = _of_object("update", kind, obj, options, subresource)
        return self._send(
            call, lambda sent: act(kind, sent.body, subresource=subresource, **sent.options)
        )

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: JsonPatch | MergePatch,
        *,
        namespace: str = "",
        subresource: str = "",
        **options: Any,
    ) -> Revision:
        call = Call(
            verb="patch",
            kind=kind,
            name=name,
            namespace=namespace,
            subresource=subresource,
            body=patch,
            options=options,
        )
        where: dict[str, Any] = {"namespace": namespace, "subresource": subresource, **options}
        act = super().patch
        return self._send(call, lambda sent: act(kind, name, sent.body, **where))

    def delete(self, kind: Kind, name: str, *, namespace: str = "", **options: Any) -> Revision:
        call = Call(verb="delete", kind=kind, name=name, namespace=namespace, options=options)
        act = super().delete
        return self._send(call, lambda sent: act(kind, name, namespace=namespace, **sent.options))

    def bind(self, binding: Object, *, namespace: str = "", **options: Any) -> None:
        act = super().bind
        call = _of_object("create", BINDINGS, binding, options)
        self._send(call, lambda sent: act(sent.body, namespace=namespace, **sent.options))

    def evict(self, name: str, *, namespace: str, uid: str, **options: Any) -> None:
        where: dict[str, Any] = {"namespace": namespace, "subresource": "eviction"}
        call = Call(verb="create", kind=PODS, name=name, options={"uid": uid, **options}, **where)
        act = super().evict
        self._send(call, lambda sent: act(name, namespace=namespace, **sent.options))

    def _flow(self, kind: Kind, field_selector: str) -> threading.Event:
        with self._lock:
            flow = self._flows.get((kind, field_selector))
            if flow is None:
                flow = self._flows[kind, field_selector] = threading.Event()
                flow.set()
            return flow

    def _send(self, call: Call, act: Callable[[Call], T]) -> T:
        with self._lock:
            self._number += 1
            call = replace(call, number=self._number)
            self.calls.append(call)
            reactors = self._reactors
        return cast("T", self._react(call, reactors, act))

    def _react(self, call: Call, reactors: Sequence[Reactor], act: Callable[[Call], Any]) -> Any:
        for position, reactor in enumerate(reactors):
            if reactor.matches(call) and self._takes(reactor):
                rest = reactors[position + 1 :]

                def proceed(changed: Call = call, rest: Sequence[Reactor] = rest) -> Any:
                    return self._react(changed, rest, act)

                return reactor.reaction(call, proceed)
        return act(call)

    def _takes(self, reactor: Reactor) -> bool:
        if reactor.times is None:
            return True
        with self._lock:
            reactor.times -= 1
            return reactor.times >= 0


class VersionedClient(ReactiveClient):
    """A reactive client of an API server of some version; reading it is a "get" of `VERSION`."""

    def __init__(self, cluster: FakeCluster | None = None, *, minor: str = "36") -> None:
        super().__init__(cluster)
        self.minor = minor

    def server_version(self) -> Object:
        """Return what the API server answers at `/version`."""
        number = {"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}.0"}
        return self._send(Call(verb="get", kind=VERSION), lambda _: number)


# -- reactions -----------------------------------------------------------------------------------


def fail(error: Callable[[], BaseException] | BaseException) -> Reaction:
    """Raise an error, and let nothing take effect."""

    def react(_call: Call, _proceed: Proceed) -> None:
        raise error if isinstance(error, BaseException) else error()

    return react


def unreachable(call: Call, _proceed: Proceed) -> None:
    """Let the call not get to the server."""
    raise UnreachableError(f"no route to the {call.kind.plural}")


def forbid(call: Call, _proceed: Proceed) -> None:
    """Deny the right to make the call."""
    name = f' "{call.name}"' if call.name else ""
    raise ForbiddenError(f"{call.kind.plural}{name} is forbidden: no right to {call.verb}")


def unavailable(call: Call, _proceed: Proceed) -> None:
    """Let nothing take effect, though the server might have."""
    raise UnavailableError(f"{call} did not get through")


def conflict(call: Call, _proceed: Proceed) -> None:
    """Let another writer come first."""
    raise ConflictError.stale(call.kind, call.key)


def throttle(_call: Call, _proceed: Proceed) -> None:
    """Let nothing take effect; the call may be repeated after a second."""
    raise TooManyRequestsError("too many requests", retry_after=1)


def expire(_call: Call, _proceed: Proceed) -> None:
    """Let the server have forgotten the version that a read begins at."""
    raise ExpiredError("too old resource version")


def lose_answer(call: Call, proceed: Proceed) -> None:
    """Let the call take effect and its answer get lost."""
    proceed()
    raise UnreachableError(f"the answer to {call} is lost")


def at_calls(numbers: Collection[int], reaction: Reaction) -> Reaction:
    """React to those calls of a client alone, which count from 1."""

    def react(call: Call, proceed: Proceed) -> Any:
        return reaction(call, proceed) if call.number in numbers else proceed()

    return react


def for_name(name: str, reaction: Reaction) -> Reaction:
    """React to the calls of the objects of one name alone."""

    def react(call: Call, proceed: Proceed) -> Any:
        return reaction(call, proceed) if call.name == name else proceed()

    return react


def in_namespace(namespace: str, reaction: Reaction) -> Reaction:
    """React to the calls of one namespace alone."""

    def react(call: Call, proceed: Proceed) -> Any:
        return reaction(call, proceed) if call.namespace == namespace else proceed()

    return react


def then_fail(error: Callable[[], BaseException]) -> Reaction:
    """Raise an error when the call has taken effect."""

    def react(_call: Call, proceed: Proceed) -> None:
        proceed()
        raise error()

    return react


def preceded_by(action: Callable[[Call], object]) -> Reaction:
    """Act, or wait, before the call is carried out."""

    def react(call: Call, proceed: Proceed) -> Any:
        action(call)
        return proceed()

    return react


def in_turn(reactions: Sequence[Reaction | None]) -> Reaction:
    """React to the first calls with one reaction each; None, and the end, let a call through."""
    left, lock = list(reactions), threading.Lock()

    def react(call: Call, proceed: Proceed) -> Any:
        with lock:
            reaction = left.pop(0) if left else None
        return reaction(call, proceed) if reaction else proceed()

    return react


def at_random(rng: random.Random, chances: Mapping[Reaction, float]) -> Reaction:
    """React by chance: each reaction with its probability, of which the sum is at most 1."""
    lock = threading.Lock()

    def react(call: Call, proceed: Proceed) -> Any:
        with lock:
            drawn = rng.random()
        for reaction, chance in chances.items():
            if drawn < chance:
                return reaction(call, proceed)
            drawn -= chance
        return proceed()

    return react


class Hold:
    """A reaction that lets calls wait, once they have begun, until they are released."""

    def __init__(self) -> None:
        self._begun = threading.Semaphore(0)
        self._released = threading.Event()

    def __call__(self, _call: Call, proceed: Proceed) -> Any:
        self._begun.release()
        assert self._released.wait(_HOLD_SECONDS), "the call was never released"
        return proceed()

    def wait_for_call(self) -> None:
        """Wait until a call, or one more, has begun."""
        assert self._begun.acquire(timeout=_HOLD_SECONDS), "there was no call"

    def release(self) -> None:
        """Let the calls go on, and all later ones."""
        self._released.set()


class StaleReads:
    """Reads that show again what the read before them showed.

    Register `remember` for the reads in question, and after it `repeat`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[tuple[object, ...], Any] = {}

    def remember(self, call: Call, proceed: Proceed) -> Any:
        """Keep the answer of a read; a list in pages is kept when it was read to its end."""
        answer = proceed()
        if call.verb == "list" and call.is_paged:
            return self._pages(call, answer)
        if call.verb in ("get", "list"):
            self._keep(call, answer)
        return answer

    def repeat(self, call: Call, proceed: Proceed) -> Any:
        """Answer with what was kept last, if anything was."""
        with self._lock:
            earlier = copy.deepcopy(self._read.get(_place(call)))
        return proceed() if earlier is None else earlier

    def _pages(self, call: Call, pages: Iterator[Page]) -> Iterator[Page]:
        read = []
        for page in pages:
            read.append(page)
            yield page
        self._keep(call, read)

    def _keep(self, call: Call, answer: Any) -> None:
        with self._lock:
            self._read[_place(call)] = copy.deepcopy(answer)


def _answer(page: Page) -> Callable[[Call], Page]:
    return lambda _call: page


def _place(call: Call) -> tuple[object, ...]:
    return call.verb, call.kind, call.key, *sorted(call.options.items())


def _of_many(verb: str, kind: Kind, selection: ListOptions, **options: Any) -> Call:
    return Call(
        verb=verb,
        kind=kind,
        namespace=selection.namespace or "",
        selection=selection,
        options=options,
    )


def _of_object(
    verb: str, kind: Kind, obj: Object, options: Mapping[str, Any], subresource: str = ""
) -> Call:
    metadata = obj.get("metadata") or {}
    assert isinstance(metadata, Mapping)
    return Call(
        verb=verb,
        kind=kind,
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "")),
        subresource=subresource,
        body=obj,
        options=options,
    )
