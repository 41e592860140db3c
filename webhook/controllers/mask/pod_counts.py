"""Usage of the pods of a namespace, by one list for all of its quotas that wait for a count."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.kube.api import PODS, ClusterApi, ListOptions
from webhook.kube.pager import list_pages
from webhook.quota.amounts.resources import ResourceList, add
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.charging.status_mask import native_used, usage_in_scopes
from webhook.quota.objects.compact import compact_pod
from webhook.quota.objects.model import ResourceQuota, ScopeExpression
from webhook.state.object_decoders import decode_pod

_Scopes: TypeAlias = tuple[tuple[str, ...], tuple[ScopeExpression, ...]]
_KEPT_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Count:
    began: float
    kept_until: float
    usages: dict[_Scopes, ResourceList]
    waiting: set[str]
    """Quotas that waited when it began, and have not been given it."""


class PodCounts:
    """Counts of the pods of namespaces. Not safe to use from several threads."""

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def native_count(
        self,
        quota: ResourceQuota,
        waiting: Iterable[ResourceQuota],
        *,
        not_before: float = -math.inf,
    ) -> ResourceList:
        """Count what the API server charges in a quota, by pods listed since it waits for that.

        Args:
            waiting: The quotas of the namespace that wait now; read only if pods are listed.
            not_before: When the list may have begun at the earliest.

        Raises:
            ScopeError: The scopes of the quota cannot be evaluated.
            ApiError: The API server does not answer.
        """
        now, scopes = self._clock(), _scopes(quota)
        self._counts = {
            namespace: count for namespace, count in self._counts.items() if count.kept_until > now
        }
        count = self._counts.get(quota.namespace)
        if (
            count is None
            or quota.key not in count.waiting
            or count.began < not_before
            or scopes not in count.usages
        ):
            count = self._counts[quota.namespace] = self._count(quota, waiting)
        count.waiting.discard(quota.key)
        return native_used(quota, count.usages[scopes])

    def _count(self, quota: ResourceQuota, waiting: Iterable[ResourceQuota]) -> _Count:
        began = self._clock()
        quotas = [*waiting, quota]
        by_scopes = {_scopes(each): each for each in quotas}
        usages: dict[_Scopes, ResourceList] = {scopes: {} for scopes in by_scopes}
        for page in list_pages(self._api, PODS, ListOptions(quota.namespace), newest=0):
            pods = [compact_pod(decode_pod(revision.data)) for revision in page.items]
            for scopes, usage in [*usages.items()]:
                try:
                    usages[scopes] = add(usage, usage_in_scopes(by_scopes[scopes], pods))
                except ScopeError:
                    if scopes == _scopes(quota):
                        raise
                    del usages[scopes]
        kept_until = self._clock() + _KEPT_SECONDS
        return _Count(began, kept_until, usages, {each.key for each in quotas})


def _scopes(quota: ResourceQuota) -> _Scopes:
    return quota.scopes, quota.expressions
