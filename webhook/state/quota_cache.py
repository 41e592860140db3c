"""The quotas of namespaces, their own and those that they share with others.

They come from caches that follow the API server (`kube.informer`). It is asked where a cache has
not heard of it for longer than `STALE_SECONDS`, and where an absence of quotas has to be certain.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import (
    RESOURCE_QUOTAS,
    ApiError,
    ClusterApi,
    NotFoundError,
    split_key,
)
from webhook.kube.informer import Change, Informer, InformerTimings
from webhook.kube.informer_types import STALE_SECONDS
from webhook.quota.charging.deferral import NamespaceQuotas, deferred_quotas
from webhook.quota.objects.compact import compact_quota
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.quota_bounds import (
    MOST_QUOTAS,
    first_quotas,
    too_many_text,
    unreadable_quota,
)
from webhook.state.namespace_labels import labels_of, read_namespace
from webhook.state.object_decoders import decode_quota
from webhook.state.quota_lister import QuotaLister
from webhook.state.shared_cache import (
    NONE_SELECTED,
    SharedQuotaCache,
    SharedQuotaView,
    Specs,
    selected,
)


@dataclass(frozen=True, slots=True)
class NamespaceQuotaView:
    """The quotas of a namespace."""

    all_quotas: tuple[ResourceQuota, ...]
    deferred: NamespaceQuotas
    """Those with deferred resources, and the quotas that it shares with others."""
    errors: tuple[str, ...] = ()
    """Why nothing can be decided: one sentence per quota that cannot be read."""


@dataclass(frozen=True, slots=True)
class _CachedView:
    """View that was made of the quotas of a namespace, and those quotas."""

    quotas: tuple[ResourceQuota, ...]
    errors: Mapping[str, str]
    keys: Set[str]
    holds_terminating: bool
    shared: SharedQuotaView
    view: NamespaceQuotaView


_NO_ERRORS: Mapping[str, str] = MappingProxyType({})
_NOT_LISTED: Final = NamespaceQuotaView(
    (), deferred_quotas((), frozenset()), ("the quotas have not been listed yet",)
)


class QuotaCache:
    """The ResourceQuotas of all namespaces, as the core reads them, and what namespaces share.

    Args:
        api: The API server to follow, and to ask when nothing is heard of it.
        deferred_keys: Tells which resources are deferred now.
        holds_terminating: Whether pods that are stuck terminating are charged until they are gone.
        shared: The quotas that namespaces share.
        labels: Tells the labels of a namespace that has opted in; None if they are not known.
        timing: Clock and pauses of the informer.
    """

    def __init__(
        self,
        api: ClusterApi,
        deferred_keys: Callable[[], Set[str]],
        *,
        holds_terminating: Callable[[], bool] = lambda: False,
        shared: SharedQuotaCache,
        labels: Callable[[str], Mapping[str, str] | None] = lambda _namespace: None,
        timing: InformerTimings = InformerTimings(),
    ) -> None:
        self.shared: Final = shared
        self._api = api
        self._labels = labels
        self._selected: dict[str, tuple[Specs, Mapping[str, str], SharedQuotaView]] = {}
        self.informer: Final = Informer(
            api,
            RESOURCE_QUOTAS,
            transform=compact_quota,
            timings=timing,
            decode=decode_quota,
        )
        self._live = QuotaLister(api, timing.clock)
        self._keys = deferred_keys
        self._holds_terminating = holds_terminating
        self._derived: dict[str, _CachedView] = {}
        self._errors: dict[str, Mapping[str, str]] = {}
        self._lock = threading.Lock()
        self.informer.add_handler(self._note_error)

    def __len__(self) -> int:
        """Return of how many namespaces the derived quotas are kept."""
        return len(self._derived)

    def forget(self, namespace: str) -> None:
        """Forget what was derived for a namespace that is gone; its quotas go by themselves."""
        self._derived.pop(namespace, None)
        self._selected.pop(namespace, None)

    def keys(self) -> Set[str]:
        """Return which resources are deferred now."""
        return self._keys()

    def deferred_of(self, quotas: Iterable[ResourceQuota]) -> NamespaceQuotas:
        """Choose those of some quotas that are deferred, as the configuration is now."""
        return deferred_quotas(quotas, self._keys(), holds_terminating=self._holds_terminating())

    def up_to_date(self, namespace: str) -> NamespaceQuotaView:
        """Return the quotas of a namespace as they were no longer ago than is believed.

        Before the first list it is not known which there are, so nothing can be decided.
        """
        seen = self._up_to_date(namespace)
        doubts = self.shared.staleness_errors(namespace)
        if self.shared.specs and self._labels(namespace) is None:
            doubts += ("the labels of the namespace have not been seen yet",)
        return replace(seen, errors=(*seen.errors, *doubts)) if doubts else seen

    def _up_to_date(self, namespace: str) -> NamespaceQuotaView:
        if not self.informer.has_synced:
            return _NOT_LISTED
        age = self.informer.last_event_age_seconds
        # without a watch a quota may have been created that is not in the cache
        if self.informer.is_following and age <= STALE_SECONDS:
            return self.in_namespace(namespace)
        try:
            return self._listed(namespace, self._shared_by(namespace))
        except ApiError as err:
            return _unheard(age, err)

    def live(self, namespace: str) -> NamespaceQuotaView:
        """Return the quotas of a namespace as the API server lists them.

        An answer is used again for some seconds, but never one without deferred quotas. What
        namespaces share is asked for every time, and so are the labels that it goes by.

        Raises:
            ApiError: It does not answer.
        """
        return self._listed(namespace, self._shared_now(namespace))

    def _listed(self, namespace: str, shared: SharedQuotaView) -> NamespaceQuotaView:
        quotas, unreadable = self._live.of(namespace, is_believed=self._has_deferred)
        every = (*first_quotas(quotas), *shared.quotas)
        errors = (*unreadable, *_too_many(quotas), *shared.errors)
        return NamespaceQuotaView(quotas, self.deferred_of(every), errors)

    def in_namespace(self, namespace: str) -> NamespaceQuotaView:
        """Return the quotas of a namespace; asked again, it costs nothing until they change."""
        quotas = self.informer.in_namespace(namespace)
        errors = self._errors.get(namespace, _NO_ERRORS)
        keys, holds = self._keys(), self._holds_terminating()
        shared = self._shared_by(namespace)
        if not quotas and not errors and shared is NONE_SELECTED:
            self._derived.pop(namespace, None)  # nothing is kept of deleted namespaces
            return NamespaceQuotaView((), deferred_quotas((), keys, holds_terminating=holds))
        derived = self._derived.get(namespace)
        if (
            derived is None
            or derived.quotas is not quotas
            or derived.errors is not errors
            or derived.keys is not keys
            or derived.holds_terminating != holds
            or derived.shared is not shared
        ):
            every = (*first_quotas(quotas), *shared.quotas)
            deferred = deferred_quotas(every, keys, holds_terminating=holds)
            faults = (*errors.values(), *_too_many(quotas), *shared.errors)
            seen = NamespaceQuotaView(quotas, deferred, faults)
            derived = _CachedView(quotas, errors, keys, holds, shared, seen)
            self._derived[namespace] = derived
        return derived.view

    def _shared_by(self, namespace: str) -> SharedQuotaView:
        """Return the shared quotas of a namespace; the same object until something changes."""
        specs = self.shared.specs
        if not specs:
            return NONE_SELECTED
        labels = self._labels(namespace)
        if labels is None:  # it has not opted in
            self._selected.pop(namespace, None)
            return NONE_SELECTED
        known = self._selected.get(namespace)
        if (
            known is None
            or known[1] is not labels
            or self.shared.has_edited(labels, since=known[0], until=specs)
        ):
            view = self.shared.selected(labels)
            if self.shared.specs is specs:  # else it may be of an edit that was undone since
                self._selected[namespace] = (specs, labels, view)
            return view
        if known[0] is not specs:
            self._selected[namespace] = (specs, labels, known[2])
        return known[2]

    def _shared_now(self, namespace: str) -> SharedQuotaView:
        """Ask the API server for the shared quotas of a namespace.

        Raises:
            ApiError: It does not answer.
        """
        try:
            specs = self.shared.newest(namespace)
            found = read_namespace(self._api, namespace) if specs else {}
            return selected(specs, labels_of(found, namespace)) if specs else NONE_SELECTED
        except NotFoundError:
            return NONE_SELECTED
        except InvalidFieldError as err:
            return SharedQuotaView(errors=(f"the shared quotas cannot be read: {err}",))

    def _has_deferred(self, quotas: tuple[ResourceQuota, ...]) -> bool:
        return bool(self.deferred_of(quotas).quotas)

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


def _too_many(quotas: tuple[ResourceQuota, ...]) -> Iterator[str]:
    if len(quotas) > MOST_QUOTAS:
        yield too_many_text()


def _unheard(age_seconds: float, err: ApiError) -> NamespaceQuotaView:
    reason = (
        f"the API server was last heard of {age_seconds:.0f} seconds ago, and the quotas cannot be "
        f"listed: {err.message}"
    )
    return NamespaceQuotaView((), deferred_quotas((), frozenset()), (reason,))
