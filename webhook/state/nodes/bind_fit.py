"""Whether the kubelet of a node would admit a pod that is being bound to it.

Judged is by caches of all nodes and pods (`node_caches`), which are there only between `start` and
`stop`: most installations judge no nodes, and what judges them is imported with the first start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from webhook.kube.api import ClusterApi, Object
from webhook.kube.informer import InformerTimings

if TYPE_CHECKING:
    from webhook.kube.informer import Informer
    from webhook.quota.nodes.kubelet_admission import KubeletNode, KubeletPod, KubeletRejection
    from webhook.state.nodes.node_caches import NodeCaches


_MOST_REASONS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBind:
    """A pod that is being bound, and its node."""

    namespace: str
    name: str
    uid: str
    """Another pod of the name is not judged."""
    node: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class BindObjection:
    """The reasons why a kubelet would not admit a pod."""

    node: str
    rejections: tuple[KubeletRejection, ...]
    in_flight: int
    """Pods that are being bound to the node, without which there would be no reason; else 0."""
    is_final: bool = True
    """False where others are being judged by the API server, so that it could not be asked."""

    @property
    def may_deny(self) -> bool:
        """Whether the bind may be refused for it.

        A scheduler that did not see a reason itself would choose the node again and again, and
        evict others for the pod each time.
        """
        return any(one.is_filtered for one in self.rejections)

    @property
    def message(self) -> str:
        """Return the reasons in a sentence, with their numbers."""
        reasons = "; ".join([one.text for one in self.rejections[:_MOST_REASONS]])
        reasons += "; ..." * (len(self.rejections) > _MOST_REASONS)
        being_bound = "pod" if self.in_flight == 1 else "pods"
        counted = f", with {self.in_flight} {being_bound} being bound to it" * bool(self.in_flight)
        return f"the kubelet of node {self.node} would not admit the pod{counted}: {reasons}"


class BindFit:
    """Judges binds by the nodes. Safe to use from several threads; started and stopped by one.

    Args:
        api: The API server.
        timings: Clock and pauses of the informers.
        clock: The monotonic clock of answers that are kept.
    """

    def __init__(
        self,
        api: ClusterApi,
        timings: InformerTimings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._clock = clock
        self._timings = timings
        self._caches: NodeCaches | None = None

    @property
    def informers(self) -> dict[str, Informer[KubeletNode] | Informer[KubeletPod]]:
        """Return the caches by what they hold; none while they are not kept."""
        caches = self._caches
        return {} if caches is None else caches.informers

    @property
    def problems(self) -> list[str]:
        """Return why nothing is judged although it should be."""
        return [
            f"nodeFit: {name} cannot be listed: {one.last_error}"
            for name, one in self.informers.items()
            if not one.has_synced and one.last_error is not None
        ]

    @property
    def pending(self) -> list[str]:
        """Return which caches are being filled for the first time; one that failed is none."""
        return [
            f"{name} have not been listed yet"
            for name, one in self.informers.items()
            if not one.has_synced and one.last_error is None
        ]

    def start(self) -> None:
        """Start the caches, unless they are started."""
        if self._caches is not None:
            return
        from webhook.state.nodes.node_caches import NodeCaches  # noqa: PLC0415 - slow

        self._caches = NodeCaches(self._api, self._timings, self._clock)
        self._caches.start()

    def stop(self) -> None:
        """Drop the caches, if they are kept."""
        caches, self._caches = self._caches, None
        if caches is not None:
            caches.stop()

    @property
    def is_kept(self) -> bool:
        """Return whether the caches are kept."""
        return self._caches is not None

    def judge(self, bind: PendingBind, *, is_confirmed: bool) -> BindObjection | None:
        """Return why a kubelet would not admit a pod; None if it would, or it is not known.

        A pod without objection counts for its node from now on, see `NodeUsage`.

        Args:
            bind: The pod and its node.
            is_confirmed: Whether an objection by the caches that may deny the bind is judged again
                by the API server.
        """
        caches = self._caches
        return None if caches is None else caches.judge(bind, is_confirmed=is_confirmed)

    def nowhere(self, pod: Object, as_of: str) -> str:
        """Return that no node fits a pod that has none; empty if one does, or it is not known.

        Args:
            pod: The pod's API object.
            as_of: The time of day, as objects have it.
        """
        caches = self._caches
        return "" if caches is None else caches.nowhere(pod, as_of)

    def forget(self, uid: str) -> None:
        """Count a pod no more whose bind was refused after it was judged."""
        caches = self._caches
        if caches is not None:
            caches.forget(uid)
