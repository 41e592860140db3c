"""Preconditions of writes: place, uid and version."""

from __future__ import annotations

import msgspec

from webhook.fakecluster.storage import pod_strategy
from webhook.fakecluster.storage.stored_object import StoredObject
from webhook.kube.api import BINDINGS, PODS, ApiError, BadRequestError, ConflictError, Preconditions
from webhook.kube.codec import unreadable


def check_place(sent: StoredObject) -> None:
    """Refuse an object whose place does not fit its kind.

    Raises:
        BadRequestError: It lacks a namespace, or has one too many.
    """
    if sent.kind.namespaced and not sent.meta.namespace:
        raise BadRequestError("an empty namespace may not be set during creation")
    if sent.meta.namespace and not sent.kind.namespaced:
        raise BadRequestError("namespace may not be set on cluster-scoped objects")


def without_system_metadata(sent: StoredObject) -> StoredObject:
    """Return what was sent without the metadata that only the API server may set.

    Source: kubernetes v1.36, apiserver/pkg/registry/rest/meta.go WipeObjectMetaSystemFields.
    """
    return sent.with_meta(
        uid="",
        creation_timestamp=None,
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
    )


def check_uid(old: StoredObject, uid: str) -> None:
    """Refuse a write that means another object of the same name; empty text means any.

    Raises:
        ConflictError: The object has another uid.
    """
    if uid and uid != old.meta.uid:
        raise _precondition_failed(old, "UID", uid, old.meta.uid)


def _precondition_failed(old: StoredObject, what: str, asked: str, found: str) -> ConflictError:
    detail = f"Precondition failed: {what} in precondition: {asked}, {what} in object meta: {found}"
    group = f"{old.kind.group}/" if old.kind.is_custom else ""
    place = f"/registry/{group}{old.kind.plural}/{old.key}"
    return ConflictError.of(
        old.kind,
        old.meta.name,
        f"StorageError: invalid object, Code: 4, Key: {place}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: {detail}",
    )


def check_preconditions(old: StoredObject, only: Preconditions) -> None:
    """Refuse a deletion that means another object or version.

    Raises:
        ConflictError: The object is another one, or has changed.
    """
    if only.uid and only.uid != old.meta.uid:
        raise _deletion_conflict(
            old,
            f"the UID in the precondition ({only.uid}) does not match the UID in record "
            f"({old.meta.uid}). The object might have been deleted and then recreated",
        )
    if only.resource_version is not None and only.resource_version != old.version:
        raise _deletion_conflict(
            old,
            f"the ResourceVersion in the precondition ({only.resource_version}) does not match the "
            f"ResourceVersion in record ({old.version}). The object might have been modified",
        )


def _deletion_conflict(old: StoredObject, detail: str) -> ConflictError:
    kind, name = old.kind, old.meta.name
    # the API server names the kind here and not the resource
    return ConflictError(
        f'Operation cannot be fulfilled on {kind.qualified_kind} "{name}": {detail}',
        details={"name": name, "kind": kind.kind, **({"group": kind.group} if kind.group else {})},
    )


class _Node(msgspec.Struct, frozen=True):
    """The target of a Binding."""

    kind: str | None = None
    name: str | None = None


def node_name(binding: StoredObject) -> str:
    """Return the node that a Binding names.

    Raises:
        ApiError: It names none, or something else; a bare 500, as the API server answers it.
    """
    try:
        target = msgspec.json.decode(binding.parts.get("target", b"{}"), type=_Node)
    except msgspec.ValidationError as err:
        raise unreadable(BINDINGS, "target", err) from err
    if target.kind not in (None, "", "Node"):
        raise ApiError(
            f'target.kind: Unsupported value: "{target.kind}": supported values: "Node", "<empty>"'
        )
    if not target.name:
        raise ApiError("target.name: Required value")
    return target.name


def check_binding(pod: StoredObject, binding: StoredObject) -> None:
    """Refuse to bind a pod that the Binding does not mean, or that cannot get a node.

    Raises:
        ConflictError: Why not, in the API server's words.
    """
    check_uid(pod, binding.meta.uid)
    version = binding.meta.resource_version
    if version and version != str(pod.version):
        raise _precondition_failed(pod, "ResourceVersion", version, str(pod.version))
    refusal = pod_strategy.refuse_binding(pod)
    if refusal:
        raise ConflictError.of(PODS, pod.meta.name, refusal, subresource="binding")
