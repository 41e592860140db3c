"""Strategies: what the API server makes of an object before it stores it, kind by kind.

Source: kubernetes v1.36, apiserver/pkg/registry/rest (create.go, update.go, delete.go),
apiextensions-apiserver/pkg/registry/customresource (strategy.go, status_strategy.go), and the
strategies of the kinds in pkg/registry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from webhook.fakecluster.storage import pod_strategy
from webhook.fakecluster.storage.pod_strategy import Qos
from webhook.fakecluster.storage.stored_object import StoredObject
from webhook.kube.api import InvalidError, NotFoundError
from webhook.kube.codec import decode_object, encode
from webhook.kube.errors import FieldCause, invalid_field
from webhook.kube.kinds import NAMESPACE_NAME_LABEL, NAMESPACES, PODS, Kind
from webhook.kube.metadata import name_causes

_EMPTY: Final = b"{}"


@dataclass(frozen=True, slots=True)
class StoreContext:
    """Context of the rules: the time in whole seconds and the QoS classes."""

    now: datetime
    qos: Qos


Prepare = Callable[[StoredObject, StoreContext], tuple[StoredObject, tuple[FieldCause, ...]]]
"""Turns what was sent into what will be stored, and says what is wrong with it."""

Merge = Callable[[StoredObject, StoredObject], tuple[StoredObject, tuple[FieldCause, ...]]]
"""As `Prepare`, from the stored object and the one that was sent."""


def prepare_create(new: StoredObject, context: StoreContext) -> StoredObject:
    """Return a new object as it will be stored; its name and uid are there already.

    Raises:
        InvalidError: It breaks a rule of its kind.
        BadRequestError: A field that the rules read has the wrong type.
    """
    prepare = _CREATE.get((new.kind.group, new.kind.plural), _create_any)
    prepared, causes = prepare(new, context)
    _refuse(new, (*name_causes(new.kind, new.meta), *causes))
    return prepared


def prepare_update(old: StoredObject, new: StoredObject, subresource: str) -> StoredObject:
    """Return an updated object as it will be stored.

    Raises:
        InvalidError: The change breaks a rule of its kind.
        NotFoundError: The kind has no such subresource.
        BadRequestError: A field that the rules read has the wrong type.
    """
    merge = _merge_for(old.kind, subresource)
    merged, causes = merge(old, new)
    _refuse(new, causes)
    changed = _with_kept_meta(old, merged)
    return changed if subresource == "status" else _with_generation(old, changed)


def check_version_named(kind: Kind, new: StoredObject) -> None:
    """Refuse an update of a custom resource that does not say which version it replaces."""
    if kind.is_custom and not new.meta.version:
        rule = "must be specified for an update"
        _refuse(new, (invalid_field("metadata.resourceVersion", "0", rule),))


def check_readable(stored: StoredObject) -> None:
    """Refuse an object whose fields the rules of its kind could not read later.

    Raises:
        BadRequestError: A field has the wrong type.
    """
    if _is(stored.kind, PODS):
        pod_strategy.spec_of(stored)
        pod_strategy.status_of(stored)


def grace_seconds(old: StoredObject, asked: int | None) -> int | None:
    """Return how long a deleted object may go on; None for kinds that go at once."""
    return pod_strategy.grace_seconds(old, asked) if _is(old.kind, PODS) else None


def _refuse(new: StoredObject, causes: tuple[FieldCause, ...]) -> None:
    if causes:
        raise InvalidError.of(new.kind, new.meta.name, causes)


def _is(kind: Kind, other: Kind) -> bool:
    return (kind.group, kind.plural) == (other.group, other.plural)


def _create_any(
    new: StoredObject, context: StoreContext
) -> tuple[StoredObject, tuple[FieldCause, ...]]:
    del context
    counted = new.with_meta(generation=1 if new.kind.counts_generations else 0)
    return _without_status(counted), ()


def _without_status(new: StoredObject) -> StoredObject:
    if not new.kind.has_status:
        return new
    if not new.kind.is_custom:
        return new.with_parts(status=_EMPTY)
    kept = {name: part for name, part in new.parts.items() if name != "status"}
    return StoredObject(new.kind, new.meta, kept)


def _create_pod(
    new: StoredObject, context: StoreContext
) -> tuple[StoredObject, tuple[FieldCause, ...]]:
    pod = pod_strategy.create_status(new.with_meta(generation=1), context.qos, context.now)
    return pod, pod_strategy.create_causes(pod)


def _create_namespace(
    new: StoredObject, context: StoreContext
) -> tuple[StoredObject, tuple[FieldCause, ...]]:
    del context
    named = with_name_label(new)
    return named.with_parts(status=encode({"phase": "Active"})), ()


def with_name_label(namespace: StoredObject) -> StoredObject:
    """Return a Namespace with the label that every Namespace has."""
    labels = {**namespace.meta.labels, NAMESPACE_NAME_LABEL: namespace.meta.name}
    return namespace.with_meta(labels=labels)


def _update_any(
    old: StoredObject, new: StoredObject
) -> tuple[StoredObject, tuple[FieldCause, ...]]:
    if not old.kind.has_status:
        return new, ()
    parts = {name: part for name, part in new.parts.items() if name != "status"}
    if "status" in old.parts:
        parts["status"] = old.parts["status"]
    return StoredObject(new.kind, new.meta, parts), ()


def _update_namespace(
    old: StoredObject, new: StoredObject
) -> tuple[StoredObject, tuple[FieldCause, ...]]:
    updated, causes = _update_any(old, new)
    return with_name_label(updated), causes


def _update_pod(
    old: StoredObject, new: StoredObject
) -> tuple[StoredObject, tuple[FieldCause, ...]]:
    updated, _ = _update_any(old, new)
    return updated, pod_strategy.update_causes(old, updated)


def _update_status(
    old: StoredObject, new: StoredObject
) -> tuple[StoredObject, tuple[FieldCause, ...]]:
    status = {"status": new.parts["status"]} if "status" in new.parts else {}
    parts = {**{name: part for name, part in old.parts.items() if name != "status"}, **status}
    # the status endpoint of a custom resource leaves all of its metadata as it is
    meta = old.meta if old.kind.is_custom else new.meta
    return StoredObject(old.kind, meta, parts), ()


def _update_pod_status(
    old: StoredObject, new: StoredObject
) -> tuple[StoredObject, tuple[FieldCause, ...]]:
    updated, causes = _update_status(old, new)
    owned = updated.with_meta(owner_references=old.meta.owner_references)
    return pod_strategy.keep_qos_class(old, owned), causes


_CREATE: Final[dict[tuple[str, str], Prepare]] = {
    ("", PODS.plural): _create_pod,
    ("", NAMESPACES.plural): _create_namespace,
}
_UPDATE: Final[dict[tuple[str, str, str], Merge]] = {
    ("", PODS.plural, ""): _update_pod,
    ("", PODS.plural, "status"): _update_pod_status,
    ("", PODS.plural, "resize"): pod_strategy.resize,
    ("", NAMESPACES.plural, ""): _update_namespace,
}
_UPDATE_ANY: Final[dict[str, Merge]] = {"": _update_any, "status": _update_status}


def _merge_for(kind: Kind, subresource: str) -> Merge:
    found = _UPDATE.get((kind.group, kind.plural, subresource)) or _UPDATE_ANY.get(subresource)
    if found is None or (subresource == "status" and not kind.has_status):
        raise NotFoundError("the server could not find the requested resource")
    return found


def _with_kept_meta(old: StoredObject, new: StoredObject) -> StoredObject:
    """Return `new` with what no writer may change in its metadata."""
    kept = old.meta
    return new.with_meta(
        name=kept.name,
        namespace=kept.namespace,
        uid=kept.uid,
        resource_version=kept.resource_version,
        generation=kept.generation,
        creation_timestamp=kept.creation_timestamp,
        deletion_timestamp=kept.deletion_timestamp,
        deletion_grace_period_seconds=kept.deletion_grace_period_seconds,
    )


def _with_generation(old: StoredObject, new: StoredObject) -> StoredObject:
    if not old.kind.counts_generations or _same_spec(old, new):
        return new
    return new.with_meta(generation=old.meta.generation + 1)


def _same_spec(old: StoredObject, new: StoredObject) -> bool:
    names = _counted_parts(old) | _counted_parts(new)
    return all(_same_json(old.parts.get(name), new.parts.get(name)) for name in names)


def _counted_parts(stored: StoredObject) -> set[str]:
    """Return the parts whose change counts: the spec; of custom resources all but the status."""
    return set(stored.parts) - {"status"} if stored.kind.is_custom else {"spec"}


def _same_json(left: bytes | None, right: bytes | None) -> bool:
    if left == right or left is None or right is None:
        return left == right
    return decode_object(b'{"v":%s}' % left) == decode_object(b'{"v":%s}' % right)
