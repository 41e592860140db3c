"""`metadata` as typed data: the one part of every object that the API server itself reads.

Unknown fields are dropped, as the API server drops them; so is `managedFields`, for field
ownership is not tracked here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

from webhook.jsonfields.reader import FieldReader
from webhook.kube.codec import encode, unreadable
from webhook.kube.errors import BadRequestError, FieldCause, invalid_field, required_field
from webhook.kube.kinds import Kind, object_key

Timestamp = Annotated[datetime, msgspec.Meta(tz=True)]
"""RFC 3339 with a zone, written in whole seconds."""


class OwnerReference(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", eq=True
):
    """The metadata of one object; empty text and None mean that the field is absent.

    `labels`, `annotations`, `owner_references` and `finalizers` are never changed in place.
    """

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return "namespace/name", or the name where there is no namespace."""
        return object_key(self.namespace, self.name)

    @property
    def version(self) -> int:
        """Return `resourceVersion` as a number; 0 when there is none.

        Raises:
            BadRequestError: It is not a number.
        """
        return parse_version(self.resource_version)


_DECODER: Final = msgspec.json.Decoder(ObjectMeta)


def object_name(obj: Mapping[str, object]) -> str:
    """Return `metadata.name` of an object; empty if it has none.

    Raises:
        InvalidFieldError: It is not text.
    """
    return FieldReader(obj).child("metadata").text("name")


def object_namespace(obj: Mapping[str, object]) -> str:
    """Return `metadata.namespace` in the same way."""
    return FieldReader(obj).child("metadata").text("namespace")


def read_metadata(kind: Kind, obj: Mapping[str, object]) -> ObjectMeta:
    """Read the metadata of an object; none at all reads as empty.

    Raises:
        BadRequestError: A field has the wrong type; the message names it.
    """
    raw = obj.get("metadata")
    if raw is None:
        return ObjectMeta()
    if not isinstance(raw, Mapping):
        raise unreadable(kind, "metadata", "must be an object")
    present = {key: value for key, value in raw.items() if value is not None}
    try:
        return _DECODER.decode(encode(present))
    except msgspec.ValidationError as err:
        raise unreadable(kind, "metadata", err) from err


def parse_version(text: str) -> int:
    """Read a resourceVersion; empty is 0.

    Raises:
        BadRequestError: It is not a number.
    """
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise BadRequestError(f'Invalid value: "{text}": not a valid resource version')
    return int(text)


_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN.pattern}')"
)
_LOOSE_NAMES: Final = frozenset({"rbac.authorization.k8s.io"})


def name_causes(kind: Kind, meta: ObjectMeta) -> tuple[FieldCause, ...]:
    """Return what is wrong with an object's name: nothing, or one cause.

    Source: kubernetes v1.36, apimachinery/pkg/util/validation IsDNS1123Subdomain; RBAC objects
    may have any name that fits into a path.
    """
    if not meta.name:
        return (required_field("metadata.name", "name or generateName is required"),)
    rule = _path_rule if kind.group in _LOOSE_NAMES else _subdomain_rule
    broken = rule(meta.name)
    if not broken:
        return ()
    return (invalid_field("metadata.name", encode(meta.name).decode(), broken),)


def _subdomain_rule(name: str) -> str:
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_RULE


def _path_rule(name: str) -> str:
    if name in {".", ".."}:
        return f"may not be '{name}'"
    return next((f"may not contain '{bad}'" for bad in "/%" if bad in name), "")


def time_text(moment: datetime) -> str:
    """Write an aware moment as a Time: RFC 3339 in UTC, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_now() -> str:
    """Return the time of day as a Time."""
    return time_text(datetime.now(UTC))
