"""Managers of the fields of a Job, as far as `metadata.managedFields` names them.

The API server notes with each field the manager that wrote it last, and when. An update by one
manager takes the fields that it changes away from all others.

Source: kubernetes v1.36, apimachinery/pkg/apis/meta/v1/types.go ManagedFieldsEntry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from webhook.jsonfields.fields import mapping, sequence, text, timestamp

_BY_HAND: Final = frozenset({"kubectl", "deferred-quota"})
"""Clients that a person runs; they are taken for one, because which person is not noted."""

_CONTAINERS: Final = ("f:containers", "f:initContainers")


@dataclass(frozen=True, slots=True)
class TwoManagers:
    """A Job that one manager resized, and another one resumes."""

    resized_by: str
    resumed_by: str


def two_managers(job: Mapping[str, object]) -> TwoManagers | None:
    """Return whether a Job that an update resumes was resized by another manager.

    A manager resized the Job if it wrote the resources of a container after the Job was created.

    Args:
        job: The new Job of the update, in which its manager is noted already.

    Raises:
        InvalidFieldError: A field has the wrong type.
    """
    metadata = mapping(job.get("metadata"), "metadata")
    created = timestamp(metadata.get("creationTimestamp"), "metadata.creationTimestamp")
    resized: list[tuple[datetime, str]] = []
    resumed: dict[str, str] = {}
    for entry, field in _entries(metadata):
        spec = _below(entry.get("fieldsV1"), "f:spec")
        name = text(entry.get("manager"), f"{field}.manager")
        time = timestamp(entry.get("time"), f"{field}.time")
        if "f:suspend" in spec:
            resumed[_client(name)] = name
        if created is not None and time is not None and time > created and _has_resources(spec):
            resized.append((time, name))
    others = [each for each in resized if _client(each[1]) not in resumed]
    if not resumed or not others:
        return None
    return TwoManagers(max(others)[1], min(resumed.values()))


def _client(manager: str) -> str:
    """Return the client behind a manager: kubectl's commands have names of their own.

    Source: kubernetes v1.36, kubectl/pkg/cmd: field managers kubectl-set, kubectl-patch, ...
    """
    by_hand = manager in _BY_HAND or manager.startswith("kubectl-")
    return "kubectl" if by_hand else manager


def _entries(metadata: Mapping[str, object]) -> Iterator[tuple[Mapping[str, object], str]]:
    """Yield managers and what they wrote, except in subresources, with the path of each."""
    path = "metadata.managedFields"
    for index, item in enumerate(sequence(metadata.get("managedFields"), path)):
        field = f"{path}[{index}]"
        entry = mapping(item, field)
        if not entry.get("subresource"):
            yield entry, field


def _has_resources(spec: Mapping[str, object]) -> bool:
    """Return whether fields of a Job's spec have resources of a container among them."""
    pod = _below(_below(spec, "f:template"), "f:spec")
    containers = [one for name in _CONTAINERS for one in _below(pod, name).values()]
    return any(isinstance(one, Mapping) and "f:resources" in one for one in containers)


def _below(fields: object, name: str) -> Mapping[str, object]:
    found = fields.get(name) if isinstance(fields, Mapping) else None
    return found if isinstance(found, Mapping) else {}
