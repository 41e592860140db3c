"""Participants of shared quotas, read from the API server where a cache could take something away.

The caches of a new leader may be behind those of the one before. What it adds by them does no harm;
before it takes away a grant or an account, it has to know what is true now.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ClusterApi, NotFoundError, UnavailableError
from webhook.kube.metadata import object_name
from webhook.quota.charging.deferral import limits_of
from webhook.quota.shared.cluster_quotas import ClusterQuota, UnreadableClusterQuota
from webhook.state.lazy_ledger import identity_of
from webhook.state.namespace_labels import (
    is_deferred,
    labels_of,
    namespace_metadata,
    read_namespace,
)

_WAIT_SECONDS: Final = 3.0
"""How long the cache of namespaces has to come as far as a list."""


class Participation:
    """Participants of shared quotas, as the API server shows them.

    Args:
        managed: What caches show.
    """

    def __init__(self, api: ClusterApi, managed: ManagedNamespaces) -> None:
        self._api = api
        self._managed = managed

    def deferred_quota(self, quota: ClusterQuota | UnreadableClusterQuota) -> ClusterQuota | None:
        """Return a quota if it can be read and limits something that is deferred now."""
        if isinstance(quota, ClusterQuota):
            return quota if limits_of(quota.quota, self._managed.deferred_keys()) else None
        return None

    def has_left(self, namespace: str, quota: ClusterQuota) -> bool:
        """Return whether a namespace takes no part in a quota now.

        Raises:
            ApiError: The API server does not answer.
        """
        if namespace in self._managed.exempt():
            return True
        try:
            stored = read_namespace(self._api, namespace)
        except NotFoundError:
            return True
        try:
            return not (is_deferred(stored) and quota.selects(labels_of(stored, namespace)))
        except InvalidFieldError:
            return False

    def is_opted_in(self, namespace: str) -> bool:
        """Return whether a namespace is opted in now, and not exempt.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: The namespace cannot be read.
        """
        if namespace in self._managed.exempt():
            return False
        try:
            return is_deferred(read_namespace(self._api, namespace))
        except NotFoundError:
            return False

    def is_as_cached(self, namespace: str) -> bool:
        """Return whether the cache shows a namespace as it is now.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: The namespace cannot be read.
        """
        try:
            stored = read_namespace(self._api, namespace)
        except NotFoundError:
            return False
        entry = self._managed.namespaces.informer.entry(namespace)
        return entry is not None and (entry.uid, entry.resource_version) == identity_of(stored)

    def check_caches(self) -> Set[str] | None:
        """Make sure, before a leadership begins, that the caches show what there is now.

        Returns:
            The namespaces that are opted in, if it took a list of all to find out; else None.

        Raises:
            ApiError: They do not yet, or the API server does not answer.
        """
        shared = self._managed.quotas.shared
        try:
            is_current = shared.is_current()
        except InvalidFieldError:
            is_current = True  # it stays like that until it is repaired
        if not is_current:
            raise UnavailableError("the cache of shared quotas is behind")
        return self.check_namespaces() if shared.specs else None

    def managed_namespaces(self) -> Set[str]:
        """Return the namespaces that are opted in now.

        Raises:
            ApiError: The API server does not answer.
        """
        return {object_name(one) for one in namespace_metadata(self._api, opted_in=True)}

    def check_namespaces(self) -> Set[str]:
        """Make sure that the cache of namespaces shows what there is now; return the opted-in ones.

        It has to come as far as the newest that is listed; what it lacks then has gone since.
        Clients change, create and delete namespaces all the time, so at no moment need it show just
        what was listed, and that must not keep a leadership from beginning.

        Raises:
            ApiError: It does not come as far in time, or the API server does not answer.
        """
        opted_in: set[str] = set()
        newest = 0
        for raw in namespace_metadata(self._api):
            try:
                name, version, is_in = object_name(raw), identity_of(raw)[1], is_deferred(raw)
            except InvalidFieldError:
                continue
            newest = max(newest, version)
            if is_in:
                opted_in.add(name)
        if not self._managed.namespaces.informer.wait_for_version(newest, _WAIT_SECONDS):
            raise UnavailableError("the cache of namespaces is behind")
        return opted_in
