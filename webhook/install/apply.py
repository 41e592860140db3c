"""Apply objects to a cluster by server-side apply, and return the outcome of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, Protocol

from webhook.jsonfields.fields import mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    ELASTIC_QUOTAS,
    ClusterApi,
    JsonPatch,
    Kind,
    NotFoundError,
    Object,
    Revision,
    find_object,
    kind_of,
)
from webhook.kube.metadata import object_name, object_namespace
from webhook.operations.retry import CONFLICTS, PASSING, Report, RetryPolicy

FIELD_MANAGER: Final = "deferred-quota-install"
"""The name under which the API server remembers which fields an installation has set."""

_PART_OF: Final = "app.kubernetes.io/part-of"
_PATIENCE: Final = RetryPolicy(seconds=30)
_SERVER_SIDE: Final = frozenset({"managedFields", "resourceVersion", "generation"})


class InstallApi(ClusterApi, Protocol):
    """An API server that also applies, and says what it is."""

    def server_version(self) -> Object:
        """Return what the server says of its version."""

    def raw(self, path: str) -> Object:
        """Read a path of the API."""

    def apply(
        self,
        kind: Kind,
        obj: Object,
        *,
        field_manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> Revision:
        """Create the object, or change the fields that are given, and own them from now on."""


class Outcome(StrEnum):
    """Outcome of one object."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


class Applier:
    """Applies objects one after another, reports each, and counts those that changed.

    Args:
        report: Receives a line for each object.
        dry_run: Whether to let the API server only check.
    """

    def __init__(self, api: InstallApi, report: Report, *, dry_run: bool = False) -> None:
        self.changes = 0
        self.dry_run = dry_run
        self._api = api
        self._report = report

    def apply_all(self, objects: Iterable[Object]) -> None:
        """Apply objects in order; what they say wins over what others have set.

        Raises:
            ApiError: One was refused; those before it are applied.
        """
        for obj in objects:
            self.apply(obj)

    def leave_all(self, objects: Iterable[Object]) -> None:
        """Report objects that are as they are to be."""
        for obj in objects:
            self._report(f"{describe(obj)}: {Outcome.UNCHANGED}")

    def apply(self, obj: Object) -> Outcome:
        """Apply one object.

        Raises:
            ApiError: It was refused.
        """
        kind = kind_of_object(obj)
        before = current(self._api, obj)
        wait = _PATIENCE.begin()
        is_bound = "resourceVersion" in mapping(obj.get("metadata"), "metadata")
        passing = PASSING if is_bound else (*PASSING, *CONFLICTS)
        try:
            after = wait.retry(
                lambda: self._api.apply(
                    kind, obj, field_manager=FIELD_MANAGER, force=True, dry_run=self.dry_run
                ),
                passing=passing,
            ).object
        except NotFoundError:
            if not self.dry_run or before is not None:
                raise
            after = obj  # its namespace would have been created before
        outcome = _outcome(before, after)
        self.changes += outcome is not Outcome.UNCHANGED
        words = f"would be {outcome}" if self.dry_run and outcome != "unchanged" else outcome
        self._report(f"{describe(obj)}: {words}")
        return outcome


def patch_once(api: ClusterApi, kind: Kind, name: str, patch: JsonPatch, *, dry_run: bool) -> None:
    """Change an object as it is; repeat what fails for now, but no conflict.

    Raises:
        ApiError: The API server refused it.
    """
    _PATIENCE.begin().retry(lambda: api.patch(kind, name, patch, dry_run=dry_run))


def delete(
    api: ClusterApi,
    kind: Kind,
    name: str,
    *,
    namespace: str = "",
    patience: RetryPolicy = _PATIENCE,
) -> None:
    """Delete an object, whatever it has become; repeat what fails for now.

    Raises:
        ApiError: It is not there, or the API server refused it.
    """
    patience.begin().retry(
        lambda: api.delete(kind, name, namespace=namespace), passing=(*PASSING, *CONFLICTS)
    )


def current(api: ClusterApi, obj: Object) -> Object | None:
    """Return the object as it is in the cluster; None when it is not there."""
    namespace = object_namespace(obj)
    return find_object(api, kind_of_object(obj), object_name(obj), namespace=namespace)


def is_foreign_definition(found: Object | None) -> bool:
    """Return whether a stored object is a definition of nos' kinds that another program brought.

    It has what is needed of them, and goes with that program, not with us.
    """
    if found is None or found.get("kind") != "CustomResourceDefinition":
        return False
    metadata = FieldReader(found).child("metadata")
    is_of_nos = metadata.text("name").endswith(f".{ELASTIC_QUOTAS.group}")
    return is_of_nos and metadata.string_map("labels").get(_PART_OF) != "deferred-quota"


def kind_of_object(obj: Object) -> Kind:
    """Return the kind that an object of ours says it has."""
    metadata = mapping(obj.get("metadata"), "metadata")
    return kind_of(str(obj["apiVersion"]), str(obj["kind"]), namespaced="namespace" in metadata)


def describe(obj: Object) -> str:
    """Name an object for a person: "Deployment deferred-quota-system/deferred-quota-webhook"."""
    metadata = mapping(obj.get("metadata"), "metadata")
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{obj['kind']} {place}{metadata['name']}"


def _outcome(before: Object | None, after: Object) -> Outcome:
    if before is None:
        return Outcome.CREATED
    return Outcome.UNCHANGED if _content(before) == _content(after) else Outcome.CHANGED


def _content(obj: Object) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return what people would call the object: all but what the API server counts."""
    metadata = mapping(obj.get("metadata"), "metadata")
    return (
        {name: value for name, value in obj.items() if name not in ("metadata", "status")},
        {name: value for name, value in metadata.items() if name not in _SERVER_SIDE},
    )
