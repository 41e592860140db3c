"""Whether the kubelet of a node would admit a pod that is being bound to it.

Judged is by caches of all nodes and pods. What they have against a bind may be old: a node that was
relabelled or a pod that ended a moment ago. So the API server is asked for the node, its pods and
the pod before a bind is refused. A warning is given by the caches alone: it stops nothing, and a
list of the pods of a node can take many times what the bind takes. What is not known is never
against a bind: where a cache is not filled or not kept up, a node is not there, or the API server
does not answer, there is no objection. Neither does one replica know what others are letting
through at this moment.

The caches are there only between `start` and `stop`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from webhook.jsonfields.encoding import encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import (
    NODES,
    PODS,
    ApiError,
    ClusterApi,
    ListOptions,
    NotFoundError,
    Object,
    object_key,
)
from webhook.kube.informer import Informer, InformerTimings
from webhook.kube.informer_types import STALE_SECONDS
from webhook.quota.nodes.fitting import judge_without_pods, no_node_text
from webhook.quota.nodes.kubelet_admission import (
    KubeletNode,
    KubeletPod,
    KubeletRejection,
    kubelet_rejections,
    read_kept_pod,
    read_kubelet_pod,
    read_node,
)
from webhook.state.nodes.node_usage import Loads, NodeUsage

_ANSWER_SECONDS: Final = 5.0
_PLACED_ANYWHERE: Final = ("volumes", "schedulingGates", "hostname", "subdomain")
"""Fields that differ among pods of one template, or are long, and decide nothing here."""


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

    @property
    def message(self) -> str:
        """Return the reasons in a sentence, with their numbers."""
        reasons = "; ".join(one.text for one in self.rejections)
        being_bound = "pod" if self.in_flight == 1 else "pods"
        counted = f", with {self.in_flight} {being_bound} being bound to it" * bool(self.in_flight)
        return f"the kubelet of node {self.node} would not admit the pod{counted}: {reasons}"


@dataclass(frozen=True, slots=True)
class _Caches:
    """The caches while they are kept."""

    nodes: Informer[KubeletNode]
    pods: Informer[KubeletPod]
    usage: NodeUsage

    @property
    def are_known(self) -> bool:
        """Return whether both were filled and heard of their API server lately."""
        return all(
            one.has_synced and one.last_event_age_seconds <= STALE_SECONDS
            for one in (self.nodes, self.pods)
        )


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
        self._caches: _Caches | None = None
        self._answers: dict[bytes, tuple[float, str]] = {}
        """What decides where a pod fits → until when its answer holds, and the answer."""

    @property
    def informers(self) -> dict[str, Informer[KubeletNode] | Informer[KubeletPod]]:
        """Return the caches by what they hold; none while they are not kept."""
        caches = self._caches
        if caches is None:
            return {}
        return {"nodes": caches.nodes, "pods of all nodes": caches.pods}

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
        """Begin to keep the caches; nothing happens where they are kept."""
        if self._caches is not None:
            return
        usage = NodeUsage()
        nodes = Informer(self._api, NODES, transform=read_node, timings=self._timings)
        pods = Informer(self._api, PODS, transform=read_kept_pod, timings=self._timings)
        pods.add_handler(usage.on_pod)
        self._caches = _Caches(nodes, pods, usage)
        nodes.start()
        pods.start()

    def stop(self) -> None:
        """Drop the caches, if they are kept."""
        caches, self._caches = self._caches, None
        if caches is not None:
            caches.nodes.stop()
            caches.pods.stop()

    def judge(self, bind: PendingBind, *, is_confirmed: bool) -> BindObjection | None:
        """Return why a kubelet would not admit a pod; None if it would, or it is not known.

        A pod without objection counts for its node from now on, see `NodeUsage`.

        Args:
            bind: The pod and its node.
            is_confirmed: Whether an objection by the caches is judged again by the API server.
        """
        caches = self._caches
        if caches is None or not caches.are_known:
            return None
        node = caches.nodes.get(bind.node)
        if node is None:
            return None
        try:
            pod = caches.pods.get(object_key(bind.namespace, bind.name))
            if pod is None or pod.uid != bind.uid or pod.constraints is None:
                pod = self._read_pod(bind)
            judge = _Judge(pod, node)
            rejections = caches.usage.admit(bind.node, pod, judge, is_dry_run=bind.dry_run)
            if rejections and is_confirmed:
                return self._judge_live(caches.usage, bind)
            return BindObjection(bind.node, rejections, judge.in_flight) if rejections else None
        except (ApiError, InvalidFieldError):
            return None  # not known

    @property
    def is_kept(self) -> bool:
        """Return whether the caches are kept."""
        return self._caches is not None

    def nowhere(self, pod: Object, as_of: str) -> str:
        """Return that no node fits a pod that has none; empty if one does, or it is not known.

        Pods of one template have one answer for `_ANSWER_SECONDS`, because all nodes are looked at.

        Args:
            pod: The pod's API object.
            as_of: The time of day, as objects have it.
        """
        caches = self._caches
        if caches is None or not caches.are_known:
            return ""
        key, now = _placing_fields(pod), self._clock()
        answers = {one: found for one, found in self._answers.items() if found[0] > now}
        if key not in answers:
            answers[key] = now + _ANSWER_SECONDS, self._nowhere(caches, pod, as_of)
        self._answers = answers
        return answers[key][1]

    @staticmethod
    def _nowhere(caches: _Caches, pod: Object, as_of: str) -> str:
        nodes = [
            replace(one.info, requested=dict(caches.usage.requested(one.name)))
            for _, one in sorted(caches.nodes.items().items())
        ]
        try:
            verdicts = judge_without_pods(pod, nodes)
        except InvalidFieldError:
            return ""
        return "" if verdicts is None else no_node_text(verdicts, as_of)

    def forget(self, uid: str) -> None:
        """Count a pod no more whose bind was refused after it was judged."""
        caches = self._caches
        if caches is not None:
            caches.usage.forget(uid)

    def _judge_live(self, usage: NodeUsage, bind: PendingBind) -> BindObjection | None:
        before = usage.in_flight(bind.node)
        pod = self._read_pod(bind)
        node = read_node(self._api.get(NODES, bind.node))
        listed = self._api.list(PODS, ListOptions(field_selector=f"spec.nodeName={bind.node}"))
        judge = _Judge(pod, node)
        rejections = usage.admit_among(
            bind.node,
            pod,
            judge,
            stored=list(map(read_kubelet_pod, listed.items)),
            in_flight=before,
            is_dry_run=bind.dry_run,
        )
        return BindObjection(bind.node, rejections, judge.in_flight) if rejections else None

    def _read_pod(self, bind: PendingBind) -> KubeletPod:
        """Read the pod that is being bound.

        Raises:
            ApiError: The API server does not answer, or has no such pod without a node.
        """
        pod = read_kubelet_pod(self._api.get(PODS, bind.name, namespace=bind.namespace))
        if pod.uid != bind.uid or pod.node:
            raise NotFoundError.of(PODS, bind.name)
        return pod


class _Judge:
    """The judgement of a bind, called once.

    Attributes:
        in_flight: How many pods are being bound, if the pod were admitted without these.
    """

    def __init__(self, pod: KubeletPod, node: KubeletNode) -> None:
        self._pod, self._node = pod, node
        self.in_flight = 0

    def __call__(self, loads: Loads) -> tuple[KubeletRejection, ...]:
        rejections = kubelet_rejections(self._pod, self._node, loads.expected)
        if rejections and loads.in_flight:
            alone = kubelet_rejections(self._pod, self._node, loads.seen)
            self.in_flight = 0 if alone else loads.in_flight
            return alone or rejections
        return rejections


def _placing_fields(pod: Object) -> bytes:
    """Return what decides where a pod fits, as JSON."""
    spec = pod.get("spec")
    fields = dict(spec) if isinstance(spec, Mapping) else {}
    for name in _PLACED_ANYWHERE:
        fields.pop(name, None)
    for name in ("containers", "initContainers"):
        listed = fields.get(name)
        if isinstance(listed, list):
            fields[name] = [_room_fields(one) for one in listed]
    return encode_json(fields)


def _room_fields(container: object) -> object:
    if not isinstance(container, Mapping):
        return container
    return {name: container.get(name) for name in ("resources", "restartPolicy", "ports")}
