"""A `ClusterApi` that fails as networks and busy API servers do, where a test says so."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from webhook.kube.api import (
    BINDINGS,
    ClusterApi,
    ConflictError,
    ExpiredError,
    JsonPatch,
    Kind,
    MergePatch,
    Object,
    ObjectList,
    Page,
    Revision,
    TooManyRequestsError,
    UnavailableError,
    UnreachableError,
    WatchStream,
    object_key,
)

T = TypeVar("T")


class Fault(Enum):
    """What can go wrong with a call."""

    LOSE_ANSWER = auto()
    """The call takes effect, its answer is lost: `UnreachableError`."""
    FAIL_BEFORE = auto()
    """Nothing takes effect: `UnavailableError`."""
    CONFLICT = auto()
    """Another writer always comes first: nothing takes effect, `ConflictError`."""
    THROTTLE = auto()
    """Nothing takes effect: `TooManyRequestsError`, to be repeated after a second."""
    EXPIRE = auto()
    """The server has forgotten the version that was asked for: `ExpiredError`."""
    STALE = auto()
    """A read shows what the read before it showed, if there was one."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call that a plan may spoil: `number` counts the calls of this client from 1."""

    verb: str
    kind: Kind
    key: str
    number: int


Plan = Callable[[Call], Fault | None]
"""Says which calls go wrong, and how."""


def never(call: Call) -> None:
    """Spoil nothing."""
    del call


def always(fault: Fault) -> Plan:
    """Spoil every call in one way."""

    def plan(call: Call) -> Fault:
        del call
        return fault

    return plan


def in_turn(faults: Sequence[Fault | None], *, verb: str = "", kind: Kind | None = None) -> Plan:
    """Spoil the matching calls in turn, one fault each; after that nothing."""
    left, lock = list(faults), threading.Lock()

    def plan(call: Call) -> Fault | None:
        if (verb and call.verb != verb) or (kind is not None and call.kind != kind):
            return None
        with lock:
            return left.pop(0) if left else None

    return plan


def at_random(rng: random.Random, chances: Mapping[Fault, float]) -> Plan:
    """Spoil calls by chance: each fault with its probability, of which the sum is at most 1."""
    lock = threading.Lock()

    def plan(call: Call) -> Fault | None:
        del call
        with lock:
            drawn = rng.random()
        for fault, chance in chances.items():
            if drawn < chance:
                return fault
            drawn -= chance
        return None

    return plan


class FaultyClient:
    """A `ClusterApi` over another one; `plan` may be replaced at any time.

    Attributes:
        plan: Which calls go wrong.
        before: Called before every call, outside all locks: a place to wait, or to let another
            actor run.
        calls: How many calls there were.
    """

    def __init__(
        self,
        api: ClusterApi,
        plan: Plan = never,
        *,
        before: Callable[[Call], None] = never,
    ) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._read: dict[tuple[object, ...], object] = {}
        self.plan = plan
        self.before = before
        self.calls = 0

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        """Read one object, or what the last such read showed."""
        call = self._call("get", kind, object_key(namespace, name))
        return self._spoil_read(call, lambda: self._api.get(kind, name, namespace=namespace))

    def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """Read objects, or what the last such read showed."""
        call = self._call("list", kind, namespace or "")
        return self._spoil_read(
            call,
            lambda: self._api.list(
                kind,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            ),
            label_selector,
            field_selector,
        )

    def pages(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
    ) -> Iterator[Page]:
        """Read objects in parts.

        The plan sees a "list", and then a "continue" for each further page. A stale list is all
        of what the last such list that was read to its end showed.
        """
        call = self._call("list", kind, namespace or "")
        self.before(call)
        fault = self.plan(call)
        _raise_before(fault, call)
        place = ("pages", call.kind, call.key, label_selector, field_selector, limit)
        with self._lock:
            earlier = self._read.get(place)
        if fault is Fault.STALE and isinstance(earlier, list):
            yield from earlier
            return
        if fault is Fault.LOSE_ANSWER:
            raise UnreachableError(f"the answer to {call.verb} {call.key} is lost")
        pages = self._api.pages(
            kind,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
        )
        read: list[Page] = []
        for page in pages:
            if read:
                self._spoil(self._call("continue", kind, namespace or ""), lambda: None)
            read.append(page)
            yield page
        with self._lock:
            self._read[place] = read

    def watch(
        self,
        kind: Kind,
        *,
        resource_version: int,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float | None = None,
        bookmarks: bool = True,
    ) -> WatchStream:
        """Follow changes; only the beginning of a watch can be spoilt."""
        call = self._call("watch", kind, namespace or "")
        return self._spoil(
            call,
            lambda: self._api.watch(
                kind,
                resource_version=resource_version,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                timeout_seconds=timeout_seconds,
                bookmarks=bookmarks,
            ),
        )

    def create(self, kind: Kind, obj: Object, *, dry_run: bool = False) -> Revision:
        """Create an object."""
        call = self._call("create", kind, _key_of(obj))
        return self._spoil(call, lambda: self._api.create(kind, obj, dry_run=dry_run))

    def update(
        self, kind: Kind, obj: Object, *, subresource: str = "", dry_run: bool = False
    ) -> Revision:
        """Replace an object."""
        call = self._call("update", kind, _key_of(obj))
        return self._spoil(
            call,
            lambda: self._api.update(kind, obj, subresource=subresource, dry_run=dry_run),
        )

    def update_status(
        self, kind: Kind, obj: Object, *, is_brief: bool = False, dry_run: bool = False
    ) -> Revision:
        """Replace an object's status."""
        call = self._call("update_status", kind, _key_of(obj))
        return self._spoil(
            call, lambda: self._api.update_status(kind, obj, is_brief=is_brief, dry_run=dry_run)
        )

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: JsonPatch | MergePatch,
        *,
        namespace: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Revision:
        """Change parts of an object."""
        call = self._call("patch", kind, object_key(namespace, name))
        return self._spoil(
            call,
            lambda: self._api.patch(
                kind,
                name,
                patch,
                namespace=namespace,
                subresource=subresource,
                dry_run=dry_run,
            ),
        )

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: int | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> Revision:
        """Delete an object."""
        call = self._call("delete", kind, object_key(namespace, name))
        return self._spoil(
            call,
            lambda: self._api.delete(
                kind,
                name,
                namespace=namespace,
                uid=uid,
                resource_version=resource_version,
                grace_period_seconds=grace_period_seconds,
                dry_run=dry_run,
            ),
        )

    def bind(self, binding: Object, *, namespace: str = "", dry_run: bool = False) -> None:
        """Give a pod its node."""
        call = self._call("bind", BINDINGS, _key_of(binding))
        self._spoil(call, lambda: self._api.bind(binding, namespace=namespace, dry_run=dry_run))

    def _call(self, verb: str, kind: Kind, key: str) -> Call:
        with self._lock:
            self.calls += 1
            return Call(verb, kind, key, self.calls)

    def _spoil(self, call: Call, do: Callable[[], T]) -> T:
        self.before(call)
        fault = self.plan(call)
        _raise_before(fault, call)
        answer = do()
        if fault is Fault.LOSE_ANSWER:
            raise UnreachableError(f"the answer to {call.verb} {call.key} is lost")
        return answer

    def _spoil_read(self, call: Call, do: Callable[[], T], *more: str) -> T:
        place = (call.verb, call.kind, call.key, *more)
        self.before(call)
        fault = self.plan(call)
        _raise_before(fault, call)
        with self._lock:
            earlier = self._read.get(place)
        if fault is Fault.STALE and earlier is not None:
            return copy.deepcopy(earlier)  # type: ignore[return-value] # same place, same type
        answer = do()
        with self._lock:
            self._read[place] = copy.deepcopy(answer)
        if fault is Fault.LOSE_ANSWER:
            raise UnreachableError(f"the answer to {call.verb} {call.key} is lost")
        return answer


def _raise_before(fault: Fault | None, call: Call) -> None:
    if fault is Fault.FAIL_BEFORE:
        raise UnavailableError(f"{call.verb} {call.key} did not get through")
    if fault is Fault.CONFLICT:
        raise ConflictError.stale(call.kind, call.key)
    if fault is Fault.EXPIRE:
        raise ExpiredError("too old resource version")
    if fault is Fault.THROTTLE:
        raise TooManyRequestsError("too many requests", retry_after=1)


def _key_of(obj: Object) -> str:
    metadata = obj.get("metadata")
    assert isinstance(metadata, Mapping)
    return object_key(str(metadata.get("namespace", "")), str(metadata.get("name", "")))
