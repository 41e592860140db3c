"""REST paths and queries of Kubernetes, as a client writes them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from webhook.kube.api import BadRequestError, Kind

Query = Mapping[str, str]
"""Parameters by name; those with an empty value are left out."""


def collection_path(kind: Kind, namespace: str | None) -> str:
    """Return the path of the objects of a kind, in one namespace or, if it is empty, in all."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if namespace and kind.namespaced:
        return f"{root}/namespaces/{_segment('namespace', namespace)}/{kind.plural}"
    return f"{root}/{kind.plural}"


def object_path(kind: Kind, namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one object, or of a part of it.

    Raises:
        BadRequestError: Name or namespace is missing, or cannot be part of a path.
    """
    if kind.namespaced and not namespace:
        raise BadRequestError(f"metadata.namespace: is missing for {kind.resource} {name!r}")
    path = f"{collection_path(kind, namespace)}/{_segment('name', name)}"
    return f"{path}/{subresource}" if subresource else path


def with_query(path: str, query: Query) -> str:
    """Return a path with those parameters that have a value."""
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


def _segment(what: str, text: str) -> str:
    """Return text as one segment of a path.

    Source: kubernetes v1.36, apimachinery/pkg/api/validation/path/name.go.
    """
    if not text:
        raise BadRequestError(f"metadata.{what}: is missing")
    if text in (".", "..") or "/" in text or "%" in text:
        raise BadRequestError(f"metadata.{what}: Invalid value: {text!r}: cannot stand in a path")
    return quote(text, safe="")
