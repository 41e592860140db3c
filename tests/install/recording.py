"""An API server that remembers which rights its caller has made use of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from webhook.kube.api import ClusterApi, Kind, Object

Right = tuple[str, str, str]
"""API group, resource with its subresource, verb."""

_VERBS = {"get": "get", "list": "list", "pages": "list", "watch": "watch", "create": "create"}
_VERBS |= {"update": "update", "update_status": "update", "patch": "patch", "delete": "delete"}


class RecordingApi:
    """Passes every call on to a `ClusterApi`, and keeps what RBAC would be asked.

    Attributes:
        used: The rights that the calls took.
        places: (resource, namespace, name) of calls for one object.
    """

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self.used: set[Right] = set()
        self.places: set[tuple[str, str, str]] = set()

    def server_version(self) -> Object:
        """Answer as a release of which nothing is known; everybody may ask."""
        return {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._api, name)
        verb = _VERBS[name]  # a method that is not known here has no right that could be tested

        def recorded(kind: Kind, *args: Any, **kwargs: Any) -> Any:
            subresource = "status" if name == "update_status" else kwargs.get("subresource", "")
            resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
            self.used.add((kind.group, resource, verb))
            if args:
                self.places.add((resource, *_place(args[0], kwargs)))
            return call(kind, *args, **kwargs)

        return recorded


def _place(first: Any, kwargs: dict[str, Any]) -> tuple[str, str]:
    if isinstance(first, str):
        return kwargs.get("namespace", ""), first
    metadata = first["metadata"]
    return metadata.get("namespace", ""), metadata.get("name", "")


def granted(rules: Any) -> Iterator[Right]:
    """Return the rights of the rules of a Role."""
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield group, resource, verb
