"""Reading for one explanation: what may not be read is noted, and the rest goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from webhook.config import Configuration
from webhook.jsonfields.encoding import decoded_bytes, encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import (
    PODS,
    QUOTA_LEDGERS,
    ClusterApi,
    ForbiddenError,
    Kind,
    ListOptions,
    NotFoundError,
    Object,
)
from webhook.kube.codec import decode_object
from webhook.operations.reading import read_all, read_quotas
from webhook.quota.objects.model import ResourceQuota
from webhook.state.well_known import DEFAULT_NAMESPACE

_T = TypeVar("_T")

_UNREAD_IN_LISTS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    **dict.fromkeys(
        (("spec", "containers"), ("spec", "initContainers"), ("spec", "ephemeralContainers")),
        (
            "args", "command", "env", "envFrom", "imagePullPolicy", "lifecycle", "livenessProbe",
            "readinessProbe", "securityContext", "startupProbe", "terminationMessagePath",
            "terminationMessagePolicy", "volumeMounts",
        ),
    ),
    ("spec", "volumes"): ("configMap", "downwardAPI", "projected", "secret"),
    **dict.fromkeys(
        (("status", "containerStatuses"), ("status", "initContainerStatuses")),
        ("containerID", "image", "imageID", "lastState", "volumeMounts"),
    ),
}  # fmt: skip
"""List of a pod → fields of its items that no explanation looks at: half of what a pod is."""

_LEASES_OF_PLATFORM: Final = ("kube-node-lease", "kube-system")
_NOT_FROM_HERE: Final = "too large to be looked at from here; the command line looks at them"


class TooMuchKeptError(Exception):
    """More would have to be kept of objects than one explanation may."""


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Options of reading and judging."""

    configuration: Configuration = field(default_factory=Configuration)
    system_namespace: str = DEFAULT_NAMESPACE
    """Namespace of the installation."""
    is_offline: bool = False
    """The cluster is a snapshot: nothing moves, and what is missing may only not be in it."""
    taken: datetime | None = None
    """When the snapshot was taken, by the clock of the command that did; None: not known."""
    probes: bool = True
    """Whether to find out if the controller and the webhook work; without it they are not known."""
    no_nodes: str = ""
    """Why nodes are not looked at, and the pods of the whole cluster for them; empty where they
    are."""
    most_bytes: int = 0
    """Bytes of memory that objects may take which are kept, estimated from above; 0 for any number.
    Tenants make objects large."""
    most_weight: int = 0
    """Values in what a pod requires of nodes and of other pods, times these, that are compared; 0
    for any number. Each takes about a microsecond."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @property
    def lease_namespaces(self) -> tuple[str, ...]:
        """Namespaces whose Leases are read: elsewhere, tenants may write some."""
        return tuple(dict.fromkeys((*_LEASES_OF_PLATFORM, self.system_namespace)))

    @property
    def exempt(self) -> frozenset[str]:
        """Namespaces in which nothing is charged, whatever their labels are."""
        return self.configuration.exempt_namespaces | {self.system_namespace}


@dataclass(slots=True)
class Session:
    """One explanation in the making."""

    api: ClusterApi
    options: ExplainOptions
    unknown: list[str] = field(default_factory=list)
    """Facts that could not be read, in words."""
    _kept_bytes: int = 0

    def read(self, call: Callable[[], _T], otherwise: _T, what: str) -> _T:
        """Return what a call reads; `otherwise` where the caller has no right to it.

        A kind that the cluster does not serve, and an object that is not there, are `otherwise`
        too, and nothing to note.

        Raises:
            ApiError: The cluster does not answer.
        """
        try:
            return call()
        except NotFoundError:
            return otherwise
        except ForbiddenError:
            why = "not in the snapshot" if self.options.is_offline else "no right to read"
            self.unknown.append(f"{what}: {why}")
        except TooMuchKeptError:
            self.unknown.append(f"{what}: {_NOT_FROM_HERE}")
        except InvalidFieldError as err:
            self.unknown.append(f"{what}: {err}")
        return otherwise

    def objects(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        field_selector: str = "",
        are_whole: bool = False,
    ) -> tuple[Object, ...]:
        """Return all objects of a kind.

        Args:
            are_whole: Whether fields of pods are kept that no explanation looks at, and who manages
                which fields: six times the memory, of all pods of a cluster.

        Raises:
            ApiError: They cannot be listed.
            TooMuchKeptError: They are larger, with what was read before, than may be kept.
        """
        if self.options.is_offline:  # all is in memory: parts would only be copies
            listed = self.api.list(
                kind, ListOptions(namespace=namespace, field_selector=field_selector)
            )
            return listed.items
        before = self._kept_bytes
        try:
            found = read_all(
                self.api,
                kind,
                _as_it_is,
                ListOptions(namespace, field_selector=field_selector),
                decode=None if are_whole else self._decode,
                begin=lambda: self._forget(before),
            )
        except TooMuchKeptError:
            self._forget(before)  # nothing is kept of them, so there is room for others
            raise
        return tuple(found)

    def readable(
        self,
        kind: Kind,
        what: str = "",
        *,
        namespace: str | None = None,
        field_selector: str = "",
    ) -> tuple[Object, ...] | None:
        """Return all objects of a kind; None where they may not be read, or are not served.

        Args:
            what: What they are called in the note; by default as their kind is.

        Raises:
            ApiError: The cluster does not answer.
        """

        def objects() -> tuple[Object, ...] | None:
            return self.objects(kind, namespace=namespace, field_selector=field_selector)

        return self.read(objects, None, what or kind.plural)

    def pods(self, namespace: str) -> tuple[Object, ...] | None:
        """Return the pods of a namespace; None where they may not be read.

        Raises:
            ApiError: The cluster does not answer.
        """
        what = f"the pods of namespace {namespace}"
        return self.readable(PODS, what, namespace=namespace)

    def quotas(self, namespace: str) -> tuple[ResourceQuota, ...]:
        """Return the quotas of a namespace that can be read, by name.

        Raises:
            ApiError: The cluster does not answer.
        """
        none: tuple[list[ResourceQuota], list[str]] = ([], [])
        what = f"the quotas of namespace {namespace}"
        quotas, odd = self.read(lambda: read_quotas(self.api, namespace), none, what)
        self.unknown.extend(odd)
        return tuple(quotas)

    @property
    def has_no_ledgers(self) -> bool:
        """Whether a snapshot has no ledger, so that usage is counted from its pods."""
        return self.options.is_offline and self._is_empty(QUOTA_LEDGERS)

    def may_lack(self, kind: Kind) -> bool:
        """Return whether a file of kubectl has no object of a kind, which it may not hold."""
        return self.options.is_offline and self.options.taken is None and self._is_empty(kind)

    def _is_empty(self, kind: Kind) -> bool:
        try:
            return not self.api.list(kind).items
        except ForbiddenError:
            return False

    def apart(self) -> Session:
        """Return a session for a namespace that is looked at aside, in what is left of memory.

        Nothing of it is kept, and neither the parts of the installation nor nodes are looked at.
        """
        most = self.options.most_bytes
        left = max(1, most - self._kept_bytes) if most else 0
        options = replace(self.options, most_bytes=left, probes=False, no_nodes="not needed")
        return Session(self.api, options)

    def _forget(self, before: int) -> None:
        self._kept_bytes = before

    def _decode(self, data: bytes) -> Object:
        most = self.options.most_bytes
        if not most:
            return _without_unread(decode_object(data))
        if decoded_bytes(data) > most:  # not even for the moment until it is less
            raise TooMuchKeptError
        kept = _without_unread(decode_object(data))
        self._kept_bytes += decoded_bytes(encode_json(kept))
        if self._kept_bytes > most:
            raise TooMuchKeptError
        return kept


def _without_unread(raw: dict[str, object]) -> Object:
    """Leave out what nothing looks at; what is there in an odd form is left as it is."""
    _drop(raw.get("metadata"), ("managedFields",))
    for (part, name), unread in _UNREAD_IN_LISTS.items():
        holder = raw.get(part)
        items = holder.get(name) if isinstance(holder, dict) else None
        for item in items if isinstance(items, list) else ():
            _drop(item, unread)
    return raw


def _drop(value: object, names: Iterable[str]) -> None:
    if isinstance(value, dict):
        for name in names:
            value.pop(name, None)


def _as_it_is(raw: Object) -> Object:
    return raw
