"""REST paths of Kubernetes: which resource, namespace, name and subresource a path means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from webhook.kube.api import BINDINGS, NAMESPACES, Kind

_OF_NAMESPACES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class Route:
    """Parts of a resource path; empty text for what it does not name."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str, kinds: Iterable[Kind]) -> Route | None:
    """Return what a path means; None if it is no path of a resource that is served."""
    segments = [segment for segment in path.split("/") if segment]
    match segments:
        case ["api", version, *rest]:
            return _parse_rest("", version, rest, kinds)
        case ["apis", group, version, *rest]:
            return _parse_rest(group, version, rest, kinds)
        case _:
            return None


def _parse_rest(group: str, version: str, rest: list[str], kinds: Iterable[Kind]) -> Route | None:
    place = (group, version)
    served = {
        kind.plural: kind for kind in (*kinds, BINDINGS) if (kind.group, kind.version) == place
    }
    match rest:
        case ["namespaces", name, subresource] if not group and subresource in _OF_NAMESPACES:
            return Route(NAMESPACES, "", name, subresource)
        case ["namespaces", namespace, plural, *more] if plural in served and len(more) <= 2:
            kind = served[plural]
            return _route(kind, namespace, more) if kind.namespaced else None
        case [plural, *more] if plural in served and len(more) <= 2:
            kind = served[plural]
            if kind == NAMESPACES and len(more) > 1:
                return None
            # over all namespaces a kind can only be listed and watched
            return _route(kind, "", more) if not (kind.namespaced and more) else None
        case _:
            return None


def _route(kind: Kind, namespace: str, more: list[str]) -> Route:
    name, subresource = (*more, "", "")[:2]
    return Route(kind, namespace, name, subresource)
