"""Lists of the pods and ResourceClaims of namespaces, each for all quotas of its namespace.

A status is completed in the place of the version that was read before a list was begun: what the
API server charges from then on makes another version, so that the write fails. A list that is made
for one quota serves another one whose version was known when it was begun, and is the same when it
is read. Versions are compared for equality alone, and only those of one object.

Of a namespace that was edited since, which may have deferred in between, a list is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from webhook.kube.api import PODS, ClusterApi, ListOptions
from webhook.kube.pager import list_pages
from webhook.quota.charging.device_claims import DeviceClaim
from webhook.quota.objects.compact import compact_pod
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.state.object_decoders import decode_pod
from webhook.state.quota_lister import list_device_claims

_KEPT_SECONDS: Final = 10.0
"""How long a list is used: only the second count finds what is created after it."""
_KEPT_PODS: Final = 20_000
"""Of all lists that are kept."""


@dataclass(frozen=True, slots=True)
class KnownVersions:
    """Versions of a namespace and of its quotas, as they are known at some moment."""

    namespace: int
    quotas: Mapping[str, str]
    """By the key of the quota."""


@dataclass(slots=True)
class PodList:
    """A list of the pods of a namespace, and of its claims once they are asked for."""

    versions: KnownVersions
    """Known when it was begun."""
    began: float
    ended: float
    pods: Iterable[Pod]
    """To be taken once, where the list is not kept."""
    claims: tuple[Sequence[DeviceClaim] | None] | None = None
    """In a tuple, once they were asked for: None in it where they may not be listed."""

    def serves(self, quota: ResourceQuota, present: KnownVersions, not_before: float) -> bool:
        """Return whether it was begun after a quota was written as it is, and after a time."""
        return (
            self.began >= not_before
            and self.versions.namespace == present.namespace
            and self.versions.quotas.get(quota.key) == quota.resource_version
        )


class PodLists:
    """Lists for the quotas of namespaces, kept for a moment. For one thread.

    Args:
        clock: The monotonic clock.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._kept: dict[str, tuple[PodList, int]] = {}
        """Namespace → its list, and of how many pods; the latest one last."""

    def get(self, quota: ResourceQuota, present: KnownVersions, *, not_before: float) -> PodList:
        """Return a list that was begun after a quota was written as it is.

        Args:
            quota: The quota, as it was read just now.
            present: What is known just now.
            not_before: When the list may have been begun at the earliest.

        Raises:
            ApiError: The pods cannot be listed.
            InvalidFieldError: A pod cannot be read.
        """
        self.forget_old()
        namespace = quota.namespace
        kept, _ = self._kept.get(namespace, (None, 0))
        if kept is not None and kept.serves(quota, present, not_before):
            return kept
        known = {**present.quotas, quota.key: quota.resource_version}
        versions, began = KnownVersions(present.namespace, known), self._clock()
        stream, pods, is_kept = self._pods(namespace), [], len(known) > 1
        while is_kept and (pod := next(stream, None)) is not None:
            pods.append(pod)
            # a pod of very many names takes as much room as its creator likes
            is_kept = not pod.has_many_names and len(pods) <= _KEPT_PODS
        if not is_kept:
            return PodList(versions, began, began, chain(pods, stream))
        made = PodList(versions, began, self._clock(), pods)
        self._keep(namespace, made, len(pods))
        return made

    def claims(self, namespace: str, listed: PodList) -> Sequence[DeviceClaim] | None:
        """Return the claims of a namespace; None where they may not be listed.

        A pod and a claim that a scheduler made for it count once, whichever was listed first.

        Raises:
            ApiError: They cannot be listed.
            InvalidFieldError: One cannot be read.
        """
        if listed.claims is None:
            listed.claims = (list_device_claims(self._api, namespace),)
        return listed.claims[0]

    def forget_old(self) -> None:
        """Forget lists that are too old to be used."""
        since = self._clock() - _KEPT_SECONDS
        self._kept = {name: one for name, one in self._kept.items() if one[0].ended > since}

    def _keep(self, namespace: str, made: PodList, size: int) -> None:
        self._kept.pop(namespace, None)
        self._kept[namespace] = made, size
        while sum(count for _, count in self._kept.values()) > _KEPT_PODS:
            del self._kept[next(iter(self._kept))]

    def _pods(self, namespace: str) -> Iterator[Pod]:
        for page in list_pages(self._api, PODS, ListOptions(namespace), newest=0):
            for revision in page.items:
                raw = decode_pod(revision.data)
                pod = compact_pod(raw)
                # what is kept of such a pod is without the names that no node has
                yield Pod.from_stored(raw) if pod.has_many_names else pod
