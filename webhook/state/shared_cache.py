"""Cache of shared quotas, and which of them concern a namespace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, ApiError, ClusterApi, NotFoundError
from webhook.kube.informer import Change, Informer, InformerTimings
from webhook.kube.informer_types import STALE_SECONDS
from webhook.kube.joint_reads import JointReads
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.shared.cluster_quotas import (
    NAMESPACE_NAME_LABEL,
    ClusterQuota,
    ClusterQuotaSpec,
    UnreadableClusterQuota,
    named_namespaces,
)
from webhook.state.shared_quotas import SharedQuotaStore, SharedQuotaVersion, read_shared_quota

_TTL_SECONDS: Final = 5.0

Specs: TypeAlias = tuple[ClusterQuotaSpec, ...]
"""What the owners of shared quotas wrote, sorted by name; the same object while it is not edited,
however often what is granted changes."""


@dataclass(frozen=True, slots=True)
class SharedQuotaView:
    """The shared quotas that concern one namespace."""

    quotas: tuple[ResourceQuota, ...] = ()
    """Those that can be read, by their names in ledgers."""
    errors: tuple[str, ...] = ()
    """Why the others cannot, one sentence each."""


NONE_SELECTED: Final = SharedQuotaView()


class _SpecIndex:
    """Specs by the namespaces that they name: most name theirs, and each concerns few of all."""

    def __init__(self, specs: Specs) -> None:
        self.specs: Final = specs
        self._by_namespace: dict[str, list[ClusterQuotaSpec]] = {}
        self._others: list[ClusterQuotaSpec] = []
        """Those that name none."""
        for one in specs:
            names = named_namespaces(one)
            if names is None:
                self._others.append(one)
            else:
                for name in dict.fromkeys(names):
                    self._by_namespace.setdefault(name, []).append(one)

    def candidates(self, labels: Mapping[str, str]) -> Specs:
        """Return those that may concern a namespace with these labels, sorted by name."""
        named = self._by_namespace.get(labels.get(NAMESPACE_NAME_LABEL, ""), ())
        return _sorted([*self._others, *named])


class SharedQuotaCache:
    """The shared quotas of a cluster. Safe to use from several threads.

    Where the kind is not installed there are none.

    Args:
        api: The API server, to ask when nothing is heard of it.
        store: Where what is heard is kept aside too.
        timing: Clock and pauses of the informer.
    """

    def __init__(
        self,
        api: ClusterApi,
        store: SharedQuotaStore,
        *,
        timing: InformerTimings = InformerTimings(),
    ) -> None:
        self._api = api
        self._clock = timing.clock
        self._lock = threading.Lock()
        self._by_key: dict[str, ClusterQuotaSpec] = {}
        self._index: _SpecIndex | None = None
        """The same by namespaces, made when it is asked for: a first list notes one after the
        other."""
        self._edits: tuple[Specs, Specs, _SpecIndex] = ((), (), _SpecIndex(()))
        """Specs of before and of after, and those that are in one of the two alone."""
        self._listed: tuple[float, Specs] | None = None
        self._lists: JointReads[Specs] = JointReads(at_once=1)
        self._on_specs: list[
            Callable[[ClusterQuotaSpec | None, ClusterQuotaSpec | None], None]
        ] = []
        self.informer: Final[Informer[SharedQuotaVersion]] = store.follow(timing)
        self.informer.add_handler(self._note)

    @property
    def is_absent(self) -> bool:
        """Whether the kind is not installed, by the last answer."""
        return self.informer.is_absent

    @property
    def is_known(self) -> bool:
        """Whether it is known which there are."""
        return self.informer.has_synced or self.is_absent

    @property
    def specs(self) -> Specs:
        """Specs as they were last seen."""
        return self._indexed().specs

    def _indexed(self) -> _SpecIndex:
        index = self._index
        if index is None:
            with self._lock:
                index = self._index = self._index or _SpecIndex(_sorted([*self._by_key.values()]))
        return index

    def on_specs(
        self, handler: Callable[[ClusterQuotaSpec | None, ClusterQuotaSpec | None], None]
    ) -> None:
        """Call `handler`, on the informer's thread, when an owner has changed something.

        It gets the quota as it was before, and as it is now; None where there was, or is, none.
        """
        self._on_specs.append(handler)

    def staleness_errors(self, namespace: str = "") -> tuple[str, ...]:
        """Return why a request about a namespace cannot rely on what the cache has.

        One that has not heard of the API server for `STALE_SECONDS` is compared with a list that is
        asked for now: where they differ, nothing is decided.
        """
        if not self.informer.has_synced:
            return () if self.is_absent else ("the shared quotas have not been listed yet",)
        age = self.informer.last_event_age_seconds
        if self.is_absent or (self.informer.is_following and age <= STALE_SECONDS):
            return ()
        try:
            is_current = self._is_as(self._live(namespace))
        except ApiError as err:
            return (f"the shared quotas cannot be listed: {err.message}",)
        except InvalidFieldError as err:
            return (f"the shared quotas cannot be listed: {err}",)
        return () if is_current else ("the shared quotas have changed",)

    def newest(self, namespace: str = "") -> Specs:
        """Ask the API server for all that there are now, for a request about a namespace.

        Raises:
            ApiError: It does not answer.
            InvalidFieldError: One cannot be read, not even its name.
        """
        return self._lists.read("", self._list, namespace=namespace)

    def _list(self) -> Specs:
        try:
            return _sorted(
                [
                    read_shared_quota(one.object).quota
                    for page in self._api.pages(CLUSTER_DEFERRED_QUOTAS)
                    for one in page.items
                ]
            )
        except NotFoundError:
            return ()

    def is_current(self) -> bool:
        """Ask the API server whether the cache shows what there is now.

        Raises:
            ApiError: It does not answer.
            InvalidFieldError: One cannot be read, not even its name.
        """
        return self._is_as(self.newest())

    def _is_as(self, listed: Specs) -> bool:
        known = self.specs
        return len(listed) == len(known) and all(
            one.is_same(other) for one, other in zip(listed, known, strict=True)
        )

    def selected(self, labels: Mapping[str, str]) -> SharedQuotaView:
        """Return those that concern a namespace with these labels."""
        return selected(self._indexed().candidates(labels), labels)

    def has_edited(self, labels: Mapping[str, str], *, since: Specs, until: Specs) -> bool:
        """Return whether others concern a namespace with these labels by later specs.

        The controller asks for all namespaces after each edit, and most are concerned by few of
        very many.
        """
        if since is until:
            return False
        edits = self._edits
        if edits[0] is not since or edits[1] is not until:
            kept = {*map(id, since)} & {*map(id, until)}
            edited = [one for one in (*since, *until) if id(one) not in kept]
            edits = self._edits = (since, until, _SpecIndex(tuple(edited)))
        return any(one.selects(labels) for one in edits[2].candidates(labels))

    def _live(self, namespace: str) -> Specs:
        now = self._clock()
        known = self._listed
        if known is not None and now - known[0] <= _TTL_SECONDS:
            return known[1]
        specs = self.newest(namespace)
        self._listed = (now, specs)
        return specs

    def _note(self, change: Change[SharedQuotaVersion]) -> None:
        with self._lock:
            former = self._by_key.pop(change.key, None)
            if change.new is not None:
                self._by_key[change.key] = change.new.quota
            elif change.type != "DELETED":
                self._by_key[change.key] = UnreadableClusterQuota(
                    change.key, change.uid, None, str(change.error)
                )
            present = self._by_key.get(change.key)
            if present is not None and former is not None and former.is_same(present):
                self._by_key[change.key] = former
                return
            self._index = None
        for handler in self._on_specs:
            handler(former, present)


def selected(specs: Specs, labels: Mapping[str, str]) -> SharedQuotaView:
    """Return those that concern a namespace with these labels."""
    concerned = [one for one in specs if one.selects(labels)]
    if not concerned:
        return NONE_SELECTED
    return SharedQuotaView(
        tuple(one.quota for one in concerned if isinstance(one, ClusterQuota)),
        tuple(_error_text(one) for one in concerned if isinstance(one, UnreadableClusterQuota)),
    )


def _sorted(specs: Sequence[ClusterQuotaSpec]) -> Specs:
    return tuple(sorted(specs, key=lambda one: one.name))


def _error_text(one: UnreadableClusterQuota) -> str:
    return f"ClusterDeferredQuota {one.name} cannot be read: {one.fault}"
