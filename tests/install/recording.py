"""The rights that the calls of a client take, and those that rules grant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.reactions import VERSION, Call, ReactiveClient

Right = tuple[str, str, str]
"""API group, resource with its subresource, verb."""


def used_rights(client: ReactiveClient) -> set[Right]:
    """Return the rights that the calls of a client took; everybody may read the version."""
    return {
        (call.kind.group, _resource(call), "list" if call.verb == "continue" else call.verb)
        for call in tuple(client.calls)
        if call.kind != VERSION
    }


def used_objects(client: ReactiveClient, resource: str) -> set[tuple[str, str, str]]:
    """Return resource, namespace and name of the calls for one object of such a resource."""
    return {
        (_resource(call), call.namespace, call.name)
        for call in tuple(client.calls)
        if call.name and re.search(resource, _resource(call))
    }


def _resource(call: Call) -> str:
    return f"{call.kind.plural}/{call.subresource}" if call.subresource else call.kind.plural


def granted(rules: Any) -> Iterator[Right]:
    """Return the rights of the rules of a Role."""
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield group, resource, verb
