"""Take a snapshot of a cluster: every kind that a command reads, each of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    PODS,
    PRIORITY_CLASSES,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    Kind,
    Object,
    kind_of,
)
from webhook.operations.explain.session import Session
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
    kind_of("batch/v1", "CronJob", namespaced=True),
    kind_of("v1", "PersistentVolumeClaim", namespaced=True),
    kind_of("policy/v1", "PodDisruptionBudget", namespaced=True),
    ELASTIC_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    EVENTS,
)
"""Kinds of objects in namespaces."""

_OUTSIDE: Final = (
    NODES,
    LEASES,  # of all namespaces: the newest is the moment of the snapshot
    CLUSTER_DEFERRED_QUOTAS,
    PRIORITY_CLASSES,
    kind_of("node.k8s.io/v1", "RuntimeClass", namespaced=False),
    kind_of("v1", "PersistentVolume", namespaced=False),
    kind_of("storage.k8s.io/v1", "StorageClass", namespaced=False),
)
_REGISTRATIONS: Final = frozenset({REGISTRATION, LAST_REGISTRATION})


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
    items: list[Object] = []
    unread: list[str] = []
    places = tuple(dict.fromkeys(namespaces))
    for kind, place in _reads(places):
        found = _listed(session, kind, place)
        if found is None:
            where = "" if place is None else f" in {place}"
            unread.append(f"{kind.kind}.{kind.api_version}{where}")
        items.extend(_named(kind, one) for one in found or () if _is_wanted(kind, one))
    items.extend(_of_the_installation(session))
    return TakenSnapshot(tuple(map(redacted, items)), tuple(unread), places)


def _reads(places: tuple[str, ...]) -> Iterator[tuple[Kind, str | None]]:
    yield NAMESPACES, None
    for kind in _OUTSIDE:
        yield kind, None
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        yield kind, None
    for kind in _INSIDE:
        for place in places or (None,):
            yield kind, place


def _listed(session: Session, kind: Kind, place: str | None) -> Iterable[Object] | None:
    """Return the objects; None where they may not be listed."""
    unread: tuple[Object, ...] | None = None
    before = len(session.unknown)
    found = session.read(lambda: session.objects(kind, namespace=place), unread, kind.plural)
    if found is None and len(session.unknown) == before:
        return ()  # the cluster does not serve the kind
    return found


def _named(kind: Kind, raw: Object) -> Object:
    """Return an object with its kind, which items of lists do not have."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, **raw}


def _is_wanted(kind: Kind, raw: Object) -> bool:
    metadata = raw.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return kind not in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS) or name in _REGISTRATIONS


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
