"""Lister of the quotas of one namespace, for when the watch may be silent, and of elastic ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, mapping
from webhook.kube.api import (
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    RESOURCE_QUOTAS,
    ClusterApi,
    ListOptions,
    NotFoundError,
    Object,
)
from webhook.quota.elastic.elastic_quotas import ElasticQuota, read_stored_quota
from webhook.quota.objects.compact import compact_quota
from webhook.quota.objects.model import ResourceQuota

_TTL_SECONDS: Final = 5.0
_MAX_NAMESPACES: Final = 1000


@dataclass(frozen=True, slots=True)
class _Listed:
    """The quotas of a namespace, those that cannot be read, and when they were asked for."""

    quotas: tuple[ResourceQuota, ...]
    unreadable: tuple[str, ...]
    asked_at: float


class QuotaLister:
    """Lists the quotas of one namespace at a time. Safe to use from several threads.

    Args:
        api: The API server to ask.
        clock: A monotonic clock; an answer is believed for some seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._listed: dict[str, _Listed] = {}

    def of(
        self, namespace: str, *, is_believed: Callable[[tuple[ResourceQuota, ...]], bool]
    ) -> tuple[tuple[ResourceQuota, ...], tuple[str, ...]]:
        """Return the quotas that can be read, and of the others why they cannot.

        Args:
            is_believed: Tells whether an answer of some seconds ago is good enough.

        Raises:
            ApiError: The API server does not answer.
        """
        asked_at = self._clock()
        listed = self._listed.get(namespace)
        is_recent = listed is not None and asked_at - listed.asked_at <= _TTL_SECONDS
        if listed is None or not is_recent or not is_believed(listed.quotas):
            listed = self._ask(namespace, asked_at)
            if len(self._listed) >= _MAX_NAMESPACES:
                self._listed = {}
            self._listed[namespace] = listed
        return listed.quotas, listed.unreadable

    def _ask(self, namespace: str, asked_at: float) -> _Listed:
        quotas: list[ResourceQuota] = []
        unreadable: list[str] = []
        for raw in self._api.list(RESOURCE_QUOTAS, ListOptions(namespace=namespace)).items:
            try:
                quotas.append(compact_quota(raw))
            except InvalidFieldError as err:
                unreadable.append(unreadable_quota(_name_of(raw), err))
        return _Listed(tuple(quotas), tuple(unreadable), asked_at)


def unreadable_quota(name: str, err: Exception) -> str:
    """Return why nothing can be decided in a namespace with this quota."""
    return f"quota {name} cannot be read: {err}"


def _name_of(raw: Object) -> str:
    return str(mapping(raw.get("metadata"), "metadata").get("name", ""))


def list_elastic_quotas(api: ClusterApi) -> tuple[ElasticQuota, ...]:
    """List the elastic quotas of all namespaces that can be read; none where there is no such kind.

    Raises:
        ApiError: The API server does not answer.
    """
    found: list[ElasticQuota] = []
    for kind in (ELASTIC_QUOTAS, COMPOSITE_ELASTIC_QUOTAS):
        try:
            raws = api.list(kind).items
        except NotFoundError:
            continue
        for raw in raws:
            with suppress(InvalidFieldError):  # it does not count
                found.append(read_stored_quota({**raw, "kind": kind.kind}))
    return tuple(found)
