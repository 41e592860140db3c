"""The state of a cluster in memory: what is stored, what happened, and what reads of it see."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from webhook.fakecluster.storage.pod_strategy import Qos, selectable_field
from webhook.fakecluster.storage.store import Store
from webhook.fakecluster.storage.stored_object import StoredObject, read_object
from webhook.fakecluster.storage.strategies import StoreContext, check_readable, with_name_label
from webhook.fakecluster.storage.watch import too_old
from webhook.kube.api import (
    NAMESPACES,
    ApiError,
    BadRequestError,
    Kind,
    ListOptions,
    NotFoundError,
    Object,
    Page,
)
from webhook.kube.selectors import Selector, parse_selector

_NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_LETTERS: Final = 5
_START_VERSION: Final = 1000
_HISTORY_BYTES: Final = 8 * 1024 * 1024
_LONGEST_PREFIX: Final = 63 - _GENERATED_LETTERS


def _no_qos(pod: Object) -> str:
    del pod
    return ""


class FakeCluster:
    """All state of one fake cluster. Safe to use from several threads."""

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
        names: random.Random | None = None,
        qos: Qos = _no_qos,
        require_namespaces: bool = False,
        history_limit: int = 4096,
    ) -> None:
        """Make an empty cluster.

        Args:
            clock: The time for timestamps, aware; fractions of a second are cut off.
            new_uid: Makes the uid of a new object.
            names: The randomness of generated names.
            qos: Names the QoS class of a new pod; by default pods have none.
            require_namespaces: Refuse objects in a namespace that is not there, as a real API
                server does.
            history_limit: How many changes of a kind a watch can go back, if they take no more
                than 8 MiB.
        """
        self.store: Final = Store(
            start_version=_START_VERSION, history_limit=history_limit, history_bytes=_HISTORY_BYTES
        )
        self.new_uid: Final = new_uid
        self.require_namespaces: Final = require_namespaces
        self._clock = clock
        self._names = names or random.Random()  # noqa: S311 - names, not secrets
        self._qos = qos

    @property
    def resource_version(self) -> int:
        """Return the newest version of all."""
        return self.store.version

    def now(self) -> datetime:
        """Return the time in whole seconds, as the API keeps it."""
        return self._clock().astimezone(UTC).replace(microsecond=0)

    def store_context(self) -> StoreContext:
        """Return what the rules of objects take from outside, for one write."""
        return StoreContext(self.now(), self._qos)

    def generate_name(self, prefix: str) -> str:
        """Return a name that begins with a prefix and is probably free.

        Source: kubernetes v1.36, apiserver/pkg/storage/names/generate.go.
        """
        ending = "".join(self._names.choices(_NAME_LETTERS, k=_GENERATED_LETTERS))
        return prefix[:_LONGEST_PREFIX] + ending

    def load(self, objects: Iterable[tuple[Kind, Object]]) -> None:
        """Put objects in as they are, status and uid included, all or none.

        They get new versions; a uid and a creation time only if they have none.

        Raises:
            BadRequestError: An object cannot be read, or has no name.
            AlreadyExistsError: One is there already, or twice among them.
        """
        self.store.load([self._loadable(kind, obj) for kind, obj in objects])

    def _loadable(self, kind: Kind, obj: Object) -> StoredObject:
        stored = read_object(kind, obj)
        meta = stored.meta
        if not meta.name or bool(meta.namespace) is not kind.namespaced:
            raise BadRequestError(f"a {kind.kind} has no name, or a wrong namespace: {meta.key!r}")
        check_readable(stored)
        named = with_name_label(stored) if kind == NAMESPACES else stored
        return named.with_meta(
            uid=meta.uid or self.new_uid(),
            creation_timestamp=meta.creation_timestamp or self.now(),
            generation=meta.generation or (1 if kind.counts_generations else 0),
        )

    def compact(self) -> None:
        """Forget what happened: watches that have not seen it get 410."""
        self.store.compact()

    def cut_watches(self, error: ApiError | None = None) -> None:
        """End every running watch at once: as if its time were up, or by raising `error`."""
        self.store.cut_watches(error)

    def send_bookmarks(self) -> None:
        """Send a bookmark to every running watch that asked for them."""
        self.store.send_bookmarks()

    def get(self, kind: Kind, namespace: str, name: str) -> StoredObject:
        """Return an object as it is now.

        Raises:
            NotFoundError: There is none.
        """
        found = self.store.get(kind, namespace, name)
        if found is None:
            raise NotFoundError.of(kind, name)
        return found

    def select(self, kind: Kind, options: ListOptions) -> tuple[list[StoredObject], int]:
        """Return the selected objects of a kind, sorted by key, and the version of that moment.

        Raises:
            BadRequestError: A selector cannot be read.
        """
        selector = parse_selector(kind, options.label_selector, options.field_selector)
        found, version = self.store.select(kind, options.namespace)
        chosen = [stored for stored in found if _is_selected(selector, stored)]
        return sorted(chosen, key=lambda stored: (stored.meta.namespace, stored.meta.name)), version

    def read_pages(self, kind: Kind, options: ListOptions, limit: int) -> Iterator[Page]:
        """Yield the selected objects in parts, all as they were at the first one; see `select`.

        Raises:
            ExpiredError: The history no longer goes back to that moment.
        """
        chosen, version = self.select(kind, options)
        table = self.store.table(kind)
        for start in range(0, max(len(chosen), 1), limit):
            if start and table.history.floor > version:
                raise too_old(version, table.history.floor)
            some = chosen[start : start + limit]
            yield Page(tuple(stored.revision() for stored in some), version)

    def check_namespace(self, namespace: str) -> None:
        """Refuse to write into a namespace that is not there, if that is required."""
        if self.require_namespaces and namespace:
            self.get(NAMESPACES, "", namespace)


def _is_selected(selector: Selector, stored: StoredObject) -> bool:
    return selector.is_empty or selector.matches(
        stored.meta.labels, lambda field: selectable_field(stored, field)
    )
