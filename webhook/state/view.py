"""What the doors know of the cluster: opted-in namespaces, quotas, pods that wait.

Everything comes from caches that follow the API server (`cluster.informer`), so that the common
decision asks nobody. What a cache cannot answer is asked of the API server; so is everything once
a cache has not heard of the API server for longer than `STALE_SECONDS`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from webhook.cluster.api import (
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    ApiError,
    ClusterApi,
    NotFoundError,
    Object,
    object_key,
    split_key,
)
from webhook.cluster.informer import Change, Informer, Scope, Timing
from webhook.cluster.kinds import NAMESPACE_NAME_LABEL
from webhook.cluster.shapes import decode_namespace, decode_pod, decode_quota
from webhook.quota.deferral import NamespaceQuotas, deferred_quotas
from webhook.quota.fields import InvalidFieldError, mapping, string_map, text
from webhook.quota.objects import Pod, ResourceQuota
from webhook.state.ledger_text import identity_of
from webhook.state.ledgers import LedgerStore, LedgerVersion
from webhook.state.live_quotas import LiveQuotas, unreadable_quota
from webhook.state.names import DEFERRED_MODE, MODE_LABEL
from webhook.state.shared_view import NONE_SELECTED, Selected, SharedQuotaCache, selected

STALE_SECONDS: Final = 90.0
"""An API server sends a bookmark on every watch about once a minute, if nothing happens.

Source: kubernetes v1.36, apiserver/pkg/storage/cacher/cacher.go defaultBookmarkFrequency.
"""
WAITING_PODS: Final = Scope(field_selector="spec.nodeName=")


@dataclass(frozen=True, slots=True)
class QuotasSeen:
    """The quotas of a namespace.

    Attributes:
        every: All that can be read.
        deferred: Those with deferred resources, and the quotas that it shares with others.
        unreadable: Why nothing can be decided: one sentence per quota that cannot be read.
    """

    every: tuple[ResourceQuota, ...]
    deferred: NamespaceQuotas
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod that was looked up; None when there is none.

    Attributes:
        pod: The pod.
        seen: How far pods had been seen at the look-up (`Claim.seen`).
        is_live: The API server was asked, so this is how the pod is now.
    """

    pod: Pod | None
    seen: int
    is_live: bool


@dataclass(frozen=True, slots=True)
class _Derived:
    """What was made of the quotas of a namespace, and of which."""

    quotas: tuple[ResourceQuota, ...]
    unreadable: Mapping[str, str]
    keys: Set[str]
    shared: Selected
    seen: QuotasSeen


_NO_ERRORS: Mapping[str, str] = MappingProxyType({})
_NOT_LISTED: Final = QuotasSeen(
    (), deferred_quotas((), frozenset()), ("the quotas have not been listed yet",)
)


class QuotaCache:
    """The ResourceQuotas of all namespaces, as the core reads them, and what namespaces share.

    Args:
        api: The API server to follow, and to ask when nothing is heard of it.
        deferred_keys: Tells which resources are deferred now.
        shared: The quotas that namespaces share, if any do.
        labels: Tells the labels of a namespace that has opted in; None if they are not known.
        timing: Clock and pauses of the informer.
        stale_seconds: How long the cache is believed without a word of the API server.
    """

    def __init__(
        self,
        api: ClusterApi,
        deferred_keys: Callable[[], Set[str]],
        *,
        shared: SharedQuotaCache | None = None,
        labels: Callable[[str], Mapping[str, str] | None] = lambda _namespace: None,
        timing: Timing = Timing(),
        stale_seconds: float = STALE_SECONDS,
    ) -> None:
        self.shared: Final = shared
        self._api = api
        self._labels = labels
        self._selected: dict[str, tuple[object, Mapping[str, str], Selected]] = {}
        self.informer: Final = Informer(
            api,
            RESOURCE_QUOTAS,
            transform=ResourceQuota.from_object,
            timing=timing,
            decode=decode_quota,
        )
        self._stale_seconds = stale_seconds
        self._live = LiveQuotas(api, timing.clock)
        self._keys = deferred_keys
        self._derived: dict[str, _Derived] = {}
        self._errors: dict[str, Mapping[str, str]] = {}
        self._lock = threading.Lock()
        self.informer.add_handler(self._note_error)

    def keys(self) -> Set[str]:
        """Return which resources are deferred now."""
        return self._keys()

    def up_to_date(self, namespace: str) -> QuotasSeen:
        """Return the quotas of a namespace as they were no longer ago than is believed.

        Before the first list nobody knows which there are, so nothing can be decided.
        """
        seen = self._up_to_date(namespace)
        if self.shared is None:
            return seen
        doubts = self.shared.doubt(self._stale_seconds)
        if self.shared.specs and self._labels(namespace) is None:
            doubts += ("the labels of the namespace have not been seen yet",)
        return replace(seen, unreadable=(*seen.unreadable, *doubts)) if doubts else seen

    def _up_to_date(self, namespace: str) -> QuotasSeen:
        if not self.informer.has_synced:
            return _NOT_LISTED
        age = self.informer.last_event_age_seconds
        # while no watch stands, a quota may come that is not known here
        if self.informer.is_following and age <= self._stale_seconds:
            return self.in_namespace(namespace)
        try:
            return self._listed(namespace, self._shared_by(namespace))
        except ApiError as err:
            return _unheard(age, err)

    def live(self, namespace: str) -> QuotasSeen:
        """Return the quotas of a namespace as the API server lists them.

        An answer is used again for some seconds, but never one without deferred quotas. What
        namespaces share is asked for every time, and so are the labels that it goes by.

        Raises:
            ApiError: It does not answer.
        """
        return self._listed(namespace, self._shared_now(namespace))

    def _listed(self, namespace: str, shared: Selected) -> QuotasSeen:
        quotas, unreadable = self._live.of(namespace, is_believed=self._has_deferred)
        deferred = deferred_quotas((*quotas, *shared.quotas), self._keys())
        return QuotasSeen(quotas, deferred, (*unreadable, *shared.unreadable))

    def in_namespace(self, namespace: str) -> QuotasSeen:
        """Return the quotas of a namespace; asked again, it costs nothing until they change."""
        quotas = self.informer.in_namespace(namespace)
        errors = self._errors.get(namespace, _NO_ERRORS)
        keys = self._keys()
        shared = self._shared_by(namespace)
        if not quotas and not errors and shared is NONE_SELECTED:
            self._derived.pop(namespace, None)  # namespaces come and go
            return QuotasSeen((), deferred_quotas((), keys))
        derived = self._derived.get(namespace)
        if (
            derived is None
            or derived.quotas is not quotas
            or derived.unreadable is not errors
            or derived.keys is not keys
            or derived.shared is not shared
        ):
            deferred = deferred_quotas((*quotas, *shared.quotas), keys)
            seen = QuotasSeen(quotas, deferred, (*errors.values(), *shared.unreadable))
            derived = _Derived(quotas, errors, keys, shared, seen)
            self._derived[namespace] = derived
        return derived.seen

    def _shared_by(self, namespace: str) -> Selected:
        """Return the shared quotas of a namespace; the same object until something changes."""
        specs = () if self.shared is None else self.shared.specs
        if self.shared is None or not specs:
            return NONE_SELECTED
        labels = self._labels(namespace)
        if labels is None:  # it has not opted in
            self._selected.pop(namespace, None)
            return NONE_SELECTED
        known = self._selected.get(namespace)
        if known is None or known[0] is not specs or known[1] is not labels:
            known = (specs, labels, self.shared.selected(labels))
            self._selected[namespace] = known
        return known[2]

    def _shared_now(self, namespace: str) -> Selected:
        """Ask the API server for the shared quotas of a namespace.

        Raises:
            ApiError: It does not answer.
        """
        if self.shared is None:
            return NONE_SELECTED
        try:
            specs = self.shared.newest()
            found = self._api.get(NAMESPACES, namespace) if specs else {}
            return selected(specs, labels_of(found, namespace)) if specs else NONE_SELECTED
        except NotFoundError:
            return NONE_SELECTED
        except InvalidFieldError as err:
            return Selected(unreadable=(f"the shared quotas cannot be read: {err}",))

    def _has_deferred(self, quotas: tuple[ResourceQuota, ...]) -> bool:
        return bool(deferred_quotas(quotas, self._keys()).quotas)

    def _note_error(self, change: Change[ResourceQuota]) -> None:
        namespace, name = split_key(change.key)
        with self._lock:
            errors = dict(self._errors.get(namespace, _NO_ERRORS))
            errors.pop(name, None)
            if change.error is not None:
                errors[name] = unreadable_quota(name, change.error)
            if errors:
                self._errors[namespace] = MappingProxyType(errors)
            else:
                self._errors.pop(namespace, None)


class NamespaceCache:
    """Which namespaces defer their quotas.

    Args:
        api: The API server to follow, and to ask about namespaces it has not shown yet.
        timing: Clock and pauses of the informer.
    """

    def __init__(self, api: ClusterApi, *, timing: Timing = Timing()) -> None:
        self._api = api
        self._opted_in_at: dict[str, int] = {}
        self._noted: dict[str, int] = {}
        """The version of each Namespace that was looked at for this."""
        self._labels: dict[str, Mapping[str, str]] = {}
        self._lock = threading.Lock()
        self.informer: Final = Informer(
            api, NAMESPACES, transform=self._read, timing=timing, decode=decode_namespace
        )
        self.informer.add_handler(self._note_change)

    def is_opted_in(self, namespace: str) -> bool:
        """Say whether a namespace defers its quotas.

        Raises:
            ApiError: The namespace is not in the cache and the API server does not answer.
        """
        entry = self.informer.entry(namespace)
        if entry is not None and entry.value is True and self.informer.is_following:
            return True
        # The API server only calls where its own view of the labels says so: a cache that says
        # no is behind, or the registration is too wide. And while no watch stands, a namespace
        # may opt out and in again unseen.
        try:
            found = self._api.get(NAMESPACES, namespace)
        except NotFoundError:
            return False
        try:
            is_opted_in = is_deferred(found)
        except InvalidFieldError:
            is_opted_in = True  # whatever its labels say, the API server took them for a yes
        if is_opted_in:
            self._note_opted_in(namespace, identity_of(found)[1])
        return is_opted_in

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace that has opted in; None of others, or if not seen yet.

        It is the same object until they change.
        """
        return self._labels.get(namespace)

    def opted_in_at(self, namespace: str) -> int:
        """Return the version of the Namespace by which it opted in; 0 if that was never seen.

        It is the one that the watch showed first with the label. Where a list showed it, it may
        have opted out and in again unseen, so it is the version that the list showed.
        """
        entry = self.informer.entry(namespace)
        if entry is not None and entry.resource_version > self._noted.get(namespace, 0):
            return entry.resource_version  # it is there and was not looked at yet
        return self._opted_in_at.get(namespace, 0)

    def _read(self, namespace: Object) -> bool:
        """Note the labels, if it has opted in, and say whether it has."""
        metadata = mapping(namespace.get("metadata"), "metadata")
        name = text(metadata.get("name"), "metadata.name")
        is_opted_in = is_deferred(namespace)
        if not is_opted_in:
            self._labels.pop(name, None)
            return False
        labels = labels_of(namespace, name)
        if labels != self._labels.get(name):
            self._labels[name] = labels
        return True

    def _note_change(self, change: Change[bool]) -> None:
        if change.type == "DELETED":
            with self._lock:
                self._labels.pop(change.key, None)
                self._opted_in_at.pop(change.key, None)
                self._noted.pop(change.key, None)
            return
        if change.new is True and (change.old is not True or not self.informer.is_following):
            self._note_opted_in(change.key, change.resource_version)
        self._noted[change.key] = change.resource_version

    def _note_opted_in(self, namespace: str, version: int) -> None:
        with self._lock:
            self._opted_in_at[namespace] = max(version, self._opted_in_at.get(namespace, 0))


class CachedView:
    """All that the doors look at. Safe to use from several threads.

    Args:
        api: The API server.
        ledgers: Where ledgers are known.
        quotas: The cached quotas.
        namespaces: The cached namespaces.
        timing: Clock and pauses of the informer of waiting pods.
        stale_seconds: How long that is believed without a word of the API server.
    """

    def __init__(
        self,
        api: ClusterApi,
        ledgers: LedgerStore,
        quotas: QuotaCache,
        namespaces: NamespaceCache,
        *,
        timing: Timing = Timing(),
        stale_seconds: float = STALE_SECONDS,
    ) -> None:
        self._api = api
        self._stale_seconds = stale_seconds
        self._ledgers = ledgers
        self._quotas = quotas
        self._namespaces = namespaces
        self.pods: Final = Informer(
            api,
            PODS,
            transform=Pod.from_object,
            scope=WAITING_PODS,
            timing=timing,
            decode=decode_pod,
        )

    def is_opted_in(self, namespace: str) -> bool:
        """Say whether the namespace defers its quotas."""
        return self._namespaces.is_opted_in(namespace)

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace that has opted in, as last seen; None if never."""
        return self._namespaces.labels(namespace)

    def quotas(self, namespace: str) -> QuotasSeen:
        """Return the quotas of a namespace as last seen."""
        return self._quotas.up_to_date(namespace)

    def live_quotas(self, namespace: str) -> QuotasSeen:
        """Ask the API server for the quotas of a namespace.

        Raises:
            ApiError: It does not answer.
        """
        return self._quotas.live(namespace)

    def pod(self, namespace: str, name: str) -> PodSeen:
        """Return a waiting pod as last seen, or live if the cache does not have it or is too old.

        Raises:
            ApiError: The API server had to be asked and does not answer.
            InvalidFieldError: The pod cannot be read.
        """
        seen = self.pods.resource_version  # before the pod: it is at least as new
        pod = self.pods.get(object_key(namespace, name))
        if pod is None or self.pods.last_event_age_seconds > self._stale_seconds:
            return self.live_pod(namespace, name)
        return PodSeen(pod, seen, is_live=False)

    def live_pod(self, namespace: str, name: str) -> PodSeen:
        """Ask the API server for a pod.

        Raises:
            ApiError: It does not answer.
            InvalidFieldError: The pod cannot be read.
        """
        known = self._ledgers.known(namespace)
        barrier = 0 if known is None else known.barrier
        try:
            raw = self._api.get(PODS, name, namespace=namespace)
        except NotFoundError:
            return PodSeen(None, barrier, is_live=True)
        return PodSeen(Pod.from_object(raw), barrier, is_live=True)

    def ledger(self, namespace: str) -> LedgerVersion | None:
        """Return the namespace's ledger as last known; None when none is."""
        return self._ledgers.known(namespace)


def _unheard(age_seconds: float, err: ApiError) -> QuotasSeen:
    reason = (
        f"the API server was last heard of {age_seconds:.0f} seconds ago, and the quotas cannot be "
        f"listed: {err.message}"
    )
    return QuotasSeen((), deferred_quotas((), frozenset()), (reason,))


def labels_of(namespace: Object, name: str) -> dict[str, str]:
    """Return the labels of a Namespace object, with that of its name.

    Raises:
        InvalidFieldError: They cannot be read.
    """
    metadata = mapping(namespace.get("metadata"), "metadata")
    return {NAMESPACE_NAME_LABEL: name, **string_map(metadata.get("labels"), "metadata.labels")}


def is_deferred(namespace: Object) -> bool:
    """Say whether a Namespace object asks to defer its quotas.

    Raises:
        InvalidFieldError: Its labels cannot be read.
    """
    metadata = mapping(namespace.get("metadata"), "metadata")
    labels = mapping(metadata.get("labels"), "metadata.labels")
    return labels.get(MODE_LABEL) == DEFERRED_MODE
