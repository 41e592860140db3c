"""Listers of quotas of one namespace, of elastic ones, and of ResourceClaims that are charged.

Those of one namespace are for when the watch may be silent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import (
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    ClusterApi,
    ForbiddenError,
    ListOptions,
    NotFoundError,
)
from webhook.kube.joint_reads import JointReads
from webhook.kube.metadata import object_name
from webhook.kube.pager import list_pages
from webhook.quota.charging.device_claims import DeviceClaim
from webhook.quota.elastic.elastic_quotas import ElasticQuota, read_stored_quota
from webhook.quota.objects.compact import compact_quota
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.quota_bounds import unreadable_quota
from webhook.state.object_decoders import decode_quota

_TTL_SECONDS: Final = 5.0
_MAX_NAMESPACES: Final = 1000
_AT_ONCE: Final = 3
"""Lists that may be read at a time, each in parts of 16 MiB: tenants make quotas of megabytes."""


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
        self._reads: JointReads[_Listed] = JointReads(at_once=_AT_ONCE)

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
            listed = self._reads.read(namespace, partial(self._ask, namespace))
            if len(self._listed) >= _MAX_NAMESPACES:
                self._listed = {}
            self._listed[namespace] = listed
        return listed.quotas, listed.unreadable

    def _ask(self, namespace: str) -> _Listed:
        asked_at = self._clock()
        quotas: list[ResourceQuota] = []
        unreadable: list[str] = []
        for page in self._api.pages(RESOURCE_QUOTAS, ListOptions(namespace=namespace)):
            for one in page.items:
                raw = decode_quota(one.data)
                try:
                    quotas.append(compact_quota(raw))
                except InvalidFieldError as err:
                    unreadable.append(unreadable_quota(object_name(raw), err))
        return _Listed(tuple(quotas), tuple(unreadable), asked_at)


class ElasticQuotaLister:
    """Lists the elastic quotas of all namespaces. Safe to use from several threads."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._reads: JointReads[tuple[ElasticQuota, ...]] = JointReads(at_once=1)

    def all(self, namespace: str) -> tuple[ElasticQuota, ...]:
        """Return those that can be read, for a request about one namespace; none without the kind.

        Raises:
            ApiError: The API server does not answer.
        """
        return self._reads.read("", self._list, namespace=namespace)

    def _list(self) -> tuple[ElasticQuota, ...]:
        found: list[ElasticQuota] = []
        for kind in (ELASTIC_QUOTAS, COMPOSITE_ELASTIC_QUOTAS):
            with suppress(NotFoundError):
                for page in self._api.pages(kind):
                    for one in page.items:
                        with suppress(InvalidFieldError):  # it does not count
                            found.append(read_stored_quota({**one.object, "kind": kind.kind}))
        return tuple(found)


def list_device_claims(api: ClusterApi, namespace: str) -> Sequence[DeviceClaim] | None:
    """Return the claims of a namespace; None where they may not be listed.

    An API server that does not serve `resource.k8s.io/v1` charges no extended resource for any
    (kubernetes v1.34, pkg/quota/v1/install/registry.go), so there are none then.

    Raises:
        ApiError: The API server does not answer.
        InvalidFieldError: A claim cannot be read.
    """
    try:
        return [
            DeviceClaim.from_object(revision.object)
            for page in list_pages(api, RESOURCE_CLAIMS, ListOptions(namespace), newest=0)
            for revision in page.items
        ]
    except NotFoundError:
        return ()
    except ForbiddenError:
        return None
