"""One registration or binding, switched by one write of the version that was read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from webhook.install.apply import patch_once
from webhook.jsonfields.fields import mapping
from webhook.kube.api import (
    ApiError,
    ClusterApi,
    ConflictError,
    ForbiddenError,
    InvalidError,
    JsonPatch,
    Kind,
    NotFoundError,
    Object,
    find_object,
)
from webhook.operations.emergency_state import (
    GUARDS,
    OTHERS,
    POLICY_BINDINGS,
    EmergencyState,
    closed_selector,
    is_nowhere,
    opened_selector,
    selectors_of,
    state_of,
)
from webhook.operations.names import POLICY_VERSIONS, policy_kinds
from webhook.operations.retry import Report, RetryPolicy
from webhook.state.well_known import EMERGENCY_SINCE

_ATTEMPTS: Final = 5
_ANNOTATION: Final = "/metadata/annotations/" + EMERGENCY_SINCE.replace("/", "~1")


class EmergencySwitch:
    """The registrations and bindings of one cluster, each read anew before it is written.

    Args:
        report: Receives a line for each write.
        patience: How long to repeat a read that fails for now.
    """

    def __init__(self, api: ClusterApi, report: Report, patience: RetryPolicy) -> None:
        self._api = api
        self._report = report
        self._patience = patience
        self.writes = 0
        self.problems: list[str] = []

    def state(self) -> EmergencyState:
        """Return the state of the emergency.

        Raises:
            ApiError: The API server does not answer.
        """
        places = (GUARDS, *OTHERS, *self.bindings())
        found = [self.find(kind, name) for kind, name in places]
        return state_of([obj for obj in found if obj is not None])

    def bindings(self) -> tuple[tuple[Kind, str], ...]:
        """Return the bindings of the mask and of the mark, by the version that is served."""
        for version in POLICY_VERSIONS:
            _, kind = policy_kinds(version)
            with contextlib.suppress(NotFoundError):
                self._patience.begin().retry(lambda kind=kind: self._api.list(kind))  # type: ignore[misc]
                return tuple((kind, name) for name in POLICY_BINDINGS)
        return ()

    def find(self, kind: Kind, name: str) -> Object | None:
        """Return an object as it is now; None where there is none."""
        return self._patience.begin().retry(lambda: find_object(self._api, kind, name))

    def open(self, kind: Kind, name: str, *, since: str = "") -> None:
        """Let an object select no namespace, and note since when in the same write."""
        self._write(
            kind,
            name,
            lambda obj: [*_since(obj, since), *_changes(obj, opened_selector, to_nowhere=True)],
            "selects no namespace",
        )

    def close(self, kind: Kind, name: str) -> None:
        """Let an object select namespaces as before."""
        self._write(
            kind,
            name,
            lambda obj: list(_changes(obj, closed_selector, to_nowhere=False)),
            "selects namespaces as before",
        )

    def forget(self, kind: Kind, name: str) -> None:
        """Remove the note since when the emergency is open."""
        self._write(
            kind,
            name,
            lambda obj: (
                [{"op": "remove", "path": _ANNOTATION}] if EMERGENCY_SINCE in _notes(obj) else []
            ),
            "notes no emergency any more",
        )

    def _write(
        self,
        kind: Kind,
        name: str,
        changes: Callable[[Object], list[Mapping[str, object]]],
        done: str,
    ) -> None:
        try:
            is_written = self._patched(kind, name, changes)
        except (ForbiddenError, InvalidError, ConflictError) as err:
            self.problems.append(f"{kind.kind} {name}: {err.message}")
            return
        if is_written:
            self.writes += 1
            self._report(f"{kind.kind} {name}: {done}")

    def _patched(
        self, kind: Kind, name: str, changes: Callable[[Object], list[Mapping[str, object]]]
    ) -> bool:
        for attempt in range(_ATTEMPTS):
            found = self.find(kind, name)
            wanted = [] if found is None else changes(found)
            if found is None or not wanted:
                return attempt > 0  # a write that was answered by an error may be stored
            version = mapping(found.get("metadata"), "metadata")["resourceVersion"]
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            patch: JsonPatch = [test, *map(dict, wanted)]
            try:
                patch_once(self._api, kind, name, patch, dry_run=False)
            except NotFoundError:
                return False
            except ApiError as err:
                # another client was faster: the certificates are kept in the same objects
                if attempt == _ATTEMPTS - 1 or not isinstance(err, (InvalidError, ConflictError)):
                    raise
                continue
            return True
        return False


def _changes(
    obj: Object,
    change: Callable[[Mapping[str, object]], Mapping[str, object]],
    *,
    to_nowhere: bool,
) -> Iterator[Mapping[str, object]]:
    for _, pointer, holder in selectors_of(obj):
        if is_nowhere(holder) is not to_nowhere:
            yield {"op": "add", "path": f"{pointer}/namespaceSelector", "value": change(holder)}


def _since(obj: Object, since: str) -> Iterator[Mapping[str, object]]:
    if not since or EMERGENCY_SINCE in _notes(obj):
        return
    if not _notes(obj):
        yield {"op": "add", "path": "/metadata/annotations", "value": {}}
    yield {"op": "add", "path": _ANNOTATION, "value": since}


def _notes(obj: Object) -> Mapping[str, object]:
    return mapping(
        mapping(obj.get("metadata"), "metadata").get("annotations"), "metadata.annotations"
    )
