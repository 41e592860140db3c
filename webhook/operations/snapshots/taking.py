"""Take a snapshot of a cluster: every kind that a command reads, each of one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    CONFIG_MAPS,
    ELASTIC_QUOTAS,
    EVENTS,
    JOBS,
    LEASES,
    LIMIT_RANGES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GATINGS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    Kind,
    Object,
    kind_of,
)
from webhook.kube.pager import of_newest_version
from webhook.operations.explain.session import Session
from webhook.operations.names import (
    CLAIMS,
    CLUSTER_QUOTA_CRD,
    CRON_JOBS,
    CUSTOM_RESOURCE_DEFINITIONS,
    LEDGER_CRD,
    OTHER_MANAGERS,
    POLICY_VERSIONS,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    VOLUMES,
    policy_kinds,
)
from webhook.operations.snapshots.redaction import redacted
from webhook.state.well_known import CONFIG_MAP, LAST_REGISTRATION, REGISTRATION

_INSIDE: Final = (
    PODS,
    RESOURCE_QUOTAS,
    QUOTA_LEDGERS,
    LIMIT_RANGES,
    JOBS,
    *(
        kind_of("apps/v1", name, namespaced=True)
        for name in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
    ),
    CRON_JOBS,
    CLAIMS,
    POD_DISRUPTION_BUDGETS,
    ELASTIC_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    POD_GATINGS,
    EVENTS,
)
"""Kinds of objects in namespaces."""

_OUTSIDE: Final = (
    NODES,
    LEASES,
    CLUSTER_DEFERRED_QUOTAS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    VOLUMES,
    STORAGE_CLASSES,
)
_OURS: Final = (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    VALIDATING_POLICIES,
    VALIDATING_BINDINGS,
)
"""Kinds of which only what an installation has is taken."""
_DEFINITIONS: Final = (LEDGER_CRD, CLUSTER_QUOTA_CRD, *OTHER_MANAGERS)
"""Definitions that `doctor` looks for."""


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """Objects of a cluster."""

    items: tuple[Object, ...]
    unread: tuple[str, ...]
    """Kinds that could not be read, as `Kind.apiVersion`, or `Kind.apiVersion in NAMESPACE`."""
    namespaces: tuple[str, ...]
    """Namespaces whose objects it has; empty: all."""


def take_snapshot(session: Session, namespaces: Sequence[str] = ()) -> TakenSnapshot:
    """Read what the commands need, of some namespaces or of all; what is secret is left out.

    Raises:
        ApiError: The cluster does not answer.
    """
    places = tuple(dict.fromkeys(namespaces))
    taking = _Taking(session)
    for kind, place in _reads(places):
        taking.add(kind, place)
    for place in places or (None,):
        taking.add_newest(POD_GROUPS, place)
    for version in POLICY_VERSIONS:  # they are the same objects in every version
        added = [taking.add(kind, None, is_ours=True) for kind in policy_kinds(version)]
        if any(added):
            break
    for name in _DEFINITIONS:
        if not taking.add_one(CUSTOM_RESOURCE_DEFINITIONS, name):
            break
    if _kind_text(NAMESPACES) in taking.unread:  # a tenant may read its own, and list none
        for place in places:
            taking.add_one(NAMESPACES, place)
    items = (*taking.items, *_of_the_installation(session))
    return TakenSnapshot(tuple(map(redacted, items)), tuple(taking.unread), places)


def _reads(places: tuple[str, ...]) -> Iterator[tuple[Kind, str | None]]:
    yield NAMESPACES, None
    for kind in (*_OUTSIDE, *_OURS):
        yield kind, None
    for kind in _INSIDE:
        for place in places or (None,):
            yield kind, place


@dataclass(slots=True)
class _Taking:
    """A snapshot in the making."""

    session: Session
    items: list[Object] = field(default_factory=list)
    unread: dict[str, None] = field(default_factory=dict)
    """What may not be read, in its order."""

    def add(self, kind: Kind, place: str | None, *, is_ours: bool = False) -> bool:
        """Take the objects of a kind; return whether there are any, or they may not be listed."""
        found = self._read(kind, place, lambda: self._whole(kind, place))
        wanted: Callable[[Object], bool] = self._tells_the_time if kind == LEASES else _is_any
        if is_ours or kind in _OURS:
            wanted = _is_ours
        self.items.extend(_named(kind, one) for one in found or () if wanted(one))
        return found is None or bool(found)

    def _tells_the_time(self, lease: Object) -> bool:
        metadata = lease.get("metadata")
        namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
        return namespace in self.session.options.lease_namespaces

    def add_newest(self, versions: Sequence[Kind], place: str | None) -> None:
        """Take the objects of a kind in the newest version in which there are any."""

        def of_version(kind: Kind) -> Iterator[Object]:
            return (_named(kind, one) for one in self._whole(kind, place))

        found = of_newest_version(versions, of_version)
        self.items.extend(self._read(versions[0], place, lambda: tuple(found)) or ())

    def add_one(self, kind: Kind, name: str) -> bool:
        """Take an object, if it is there; return whether it may be read."""
        found = self._read(kind, None, lambda: (self.session.api.get(kind, name),))
        self.items.extend(_named(kind, one) for one in found or ())
        return found is not None

    def _whole(self, kind: Kind, place: str | None) -> tuple[Object, ...]:
        return self.session.objects(kind, namespace=place, are_whole=True)

    def _read(
        self, kind: Kind, place: str | None, call: Callable[[], tuple[Object, ...]]
    ) -> tuple[Object, ...] | None:
        """Return the objects; None where they may not be read."""
        before = len(self.session.unknown)
        nothing: tuple[Object, ...] = ()
        found = self.session.read(call, nothing, kind.plural)
        if len(self.session.unknown) == before:
            return found  # none where the cluster does not serve the kind
        self.unread[_kind_text(kind, place)] = None
        return None


def _kind_text(kind: Kind, place: str | None = None) -> str:
    """Return how the file names a kind that it does not have, of a namespace or of all."""
    where = "" if place is None else f" in {place}"
    return f"{kind.kind}.{kind.api_version}{where}"


def _named(kind: Kind, raw: Object) -> Object:
    """Return an object with its kind, which items of lists do not have."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, **raw}


def _is_any(_raw: Object) -> bool:
    return True


def _is_ours(raw: Object) -> bool:
    metadata = raw.get("metadata")
    name = str(metadata.get("name")) if isinstance(metadata, dict) else ""
    return name in (REGISTRATION, LAST_REGISTRATION) or name.startswith(f"{REGISTRATION}-")


def _of_the_installation(session: Session) -> Iterator[Object]:
    """Yield the configuration that is installed."""
    place = session.options.system_namespace
    nothing: Object | None = None
    found = session.read(
        lambda: session.api.get(CONFIG_MAPS, CONFIG_MAP, namespace=place),
        nothing,
        f"the configuration in namespace {place}",
    )
    if found is not None:
        yield _named(CONFIG_MAPS, found)
