"""History of every pod that a log is about, and what the log does not say of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import Object
from webhook.operations.check.owners import owners_of
from webhook.operations.replay.audit_log import PodRequest, RequestKind


@dataclass(slots=True)
class RecordedPod:
    """One pod. Times are milliseconds since 1970."""

    name: str
    pod: Object
    workload: str
    """`Kind/name` of what it belongs to."""
    arrived: int
    """When it was created; where its controller was refused it before, when that was first."""
    refusals: int = 0
    """Creations that were refused for want of quota before this one."""
    bound: int | None = None
    ended: int | None = None
    is_over: bool = False
    """Whether its status said that it has ended."""
    was_there: bool = False
    """Whether it was there when the log began."""


@dataclass(slots=True)
class History:
    """All pods of a log."""

    first: int
    last: int
    pods: list[RecordedPod] = field(default_factory=list)
    unknown: int = 0
    """Pods that ended and of which nothing else is known."""


@dataclass(slots=True)
class _Attempts:
    first: int
    count: int
    pod: Object


@dataclass(slots=True)
class _Collector:
    history: History
    alive: dict[tuple[str, str], RecordedPod] = field(default_factory=dict)
    unknown: set[tuple[str, str]] = field(default_factory=set)
    """Pods that ended and of which nothing else is known: of each come several requests."""
    refused: dict[tuple[str, str], _Attempts] = field(default_factory=dict)
    """Namespace and workload → attempts since the last pod of it was created."""

    def take(self, request: PodRequest) -> None:
        key = request.namespace, request.name
        match request.kind:
            case RequestKind.CREATED if request.pod is not None:
                self._created(request, request.pod)
            case RequestKind.REFUSED if request.pod is not None:
                self._refused(request, request.pod)
            case RequestKind.BOUND if key in self.alive:
                self.alive[key].bound = request.at
            case RequestKind.ENDED | RequestKind.DELETED:
                self._ended(request)
            case _:
                return

    def _created(self, request: PodRequest, pod: Object) -> None:
        workload = workload_of(pod)
        attempts = self.refused.pop((request.namespace, workload), None)
        record = RecordedPod(
            request.name,
            pod,
            workload,
            request.at if attempts is None else attempts.first,
            0 if attempts is None else attempts.count,
            request.at if FieldReader(pod).child("spec").text("nodeName") else None,
        )
        self.alive[request.namespace, request.name] = record
        self.history.pods.append(record)

    def _refused(self, request: PodRequest, pod: Object) -> None:
        key = request.namespace, workload_of(pod)
        attempts = self.refused.setdefault(key, _Attempts(request.at, 0, pod))
        attempts.count += 1

    def _ended(self, request: PodRequest) -> None:
        record = self.alive.get((request.namespace, request.name))
        if record is None and request.pod is not None:
            record = self.there(request.namespace, request.name, request.pod)
        if record is None:
            self.unknown.add((request.namespace, request.name))
            self.history.unknown = len(self.unknown)
        elif not record.is_over:
            record.ended = request.at  # the last deletion is that by which it is gone
            record.is_over = request.kind is RequestKind.ENDED

    def there(self, namespace: str, name: str, pod: Object) -> RecordedPod:
        """Add a pod that was there when the log began."""
        first = self.history.first
        has_node = bool(FieldReader(pod).child("spec").text("nodeName"))
        record = RecordedPod(
            name, pod, workload_of(pod), first, bound=first if has_node else None, was_there=True
        )
        self.alive[namespace, name] = record
        self.history.pods.append(record)
        return record

    def never_created(self) -> None:
        """Add the pods that controllers tried to create in vain until the log ends."""
        for number, ((_, workload), attempts) in enumerate(self.refused.items()):
            name = f"{workload.partition('/')[2] or 'pod'}.refused-{number}"
            self.history.pods.append(
                RecordedPod(name, attempts.pod, workload, attempts.first, attempts.count)
            )


def history_of(requests: Iterable[PodRequest], there: Iterable[Object]) -> History:
    """Return what became of the pods.

    A pod whose controller was refused its creation before arrives when that was first tried, as one
    refused pod stands for the next that is created of the workload.

    Args:
        requests: In the order of their times; at least one.
        there: Pods of a snapshot: of those the ones count that have a node since before the log.

    Raises:
        InvalidFieldError: A pod cannot be read.
    """
    ordered = sorted(requests, key=lambda one: one.at)
    history = History(ordered[0].at, ordered[-1].at)
    collector = _Collector(history)
    for raw in there:
        meta = FieldReader(raw).child("metadata")
        created = meta.timestamp("creationTimestamp")
        if created is not None and created.timestamp() * 1000 < history.first and _runs(raw):
            collector.there(meta.text("namespace"), meta.text("name"), raw)
    for request in ordered:
        try:
            collector.take(request)
        except InvalidFieldError as err:
            raise InvalidFieldError(err.field, f"{err.detail} (pod {request.name})") from err
    collector.never_created()
    return history


def workload_of(pod: Object) -> str:
    """Return `Kind/name` of the outermost owner that the pod itself names."""
    kind, name = owners_of(pod)[-1]
    if not name:
        name = FieldReader(pod).child("metadata").text("generateName").rstrip("-")
    return f"{kind}/{name}"


def _runs(raw: Object) -> bool:
    root = FieldReader(raw)
    is_over = root.child("status").text("phase") in {"Succeeded", "Failed"}
    return bool(root.child("spec").text("nodeName")) and not is_over
