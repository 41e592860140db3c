"""Caches of all nodes and pods, by which binds are judged as the kubelets of their nodes would.

An objection by the caches may be outdated: a node was relabelled or a pod ended a moment ago. So
the node, its pods and the pod are read from the API server before a bind is denied. A warning is
given by the caches alone: it stops nothing, and a list of the pods of a node can take many times as
long as the bind. Something that is not known is never an objection: a cache is not filled or not
followed, the node does not exist, or the API server does not answer. Nor does one replica know what
others admit at this moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
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
from webhook.kube.pager import list_pages
from webhook.quota.nodes.fitting import judge_without_pods, no_node_text
from webhook.quota.nodes.kubelet_admission import (
    KubeletAdmission,
    KubeletNode,
    KubeletPod,
    KubeletRejection,
    as_placed,
    read_kept_pod,
    read_kubelet_pod,
    read_node,
)
from webhook.state.nodes.bind_fit import BindObjection, PendingBind
from webhook.state.nodes.node_usage import Loads, NodeUsage
from webhook.state.object_decoders import decode_kubelet_pod

_ANSWER_SECONDS: Final = 5.0
_TURN_SECONDS: Final = 0.5
_PLACED_ANYWHERE: Final = ("volumes", "schedulingGates", "hostname", "subdomain")
"""Fields that differ among pods of one template, or are long, and decide nothing here."""


class NodeCaches:
    """The caches of `BindFit` while they are kept; its methods are described there."""

    def __init__(
        self, api: ClusterApi, timings: InformerTimings | None, clock: Callable[[], float]
    ) -> None:
        self._api = api
        self._clock = clock
        self._nodes = Informer(api, NODES, transform=read_node, timings=timings)
        self._pods = Informer(
            api, PODS, transform=read_kept_pod, timings=timings, decode=decode_kubelet_pod
        )
        self._usage = NodeUsage()
        self._pods.add_handler(self._usage.on_pod)
        self._reading = threading.Lock()
        """Held while the pods of a node are read: they can be very large."""
        self._answers: dict[bytes, tuple[float, str]] = {}
        """What decides where a pod fits → until when its answer holds, and the answer."""

    @property
    def informers(self) -> dict[str, Informer[KubeletNode] | Informer[KubeletPod]]:
        """Return the caches by what they hold."""
        return {"nodes": self._nodes, "pods of all nodes": self._pods}

    @property
    def are_known(self) -> bool:
        """Return whether both were filled and heard of their API server lately."""
        return all(
            one.has_synced and one.last_event_age_seconds <= STALE_SECONDS
            for one in (self._nodes, self._pods)
        )

    def start(self) -> None:
        """Start the informers."""
        self._nodes.start()
        self._pods.start()

    def stop(self) -> None:
        """End following."""
        self._nodes.stop()
        self._pods.stop()

    def judge(self, bind: PendingBind, *, is_confirmed: bool) -> BindObjection | None:
        """Return why a kubelet would not admit a pod; None if it would, or it is not known."""
        if not self.are_known:
            return None
        node = self._nodes.get(bind.node)
        if node is None:
            return None
        try:
            pod = self._pods.get(object_key(bind.namespace, bind.name))
            if pod is None or pod.uid != bind.uid or pod.constraints is None:
                pod = self._read_pod(bind)
            judge, placed = _Judge(pod, node), as_placed(pod)
            rejections = self._usage.admit(bind.node, placed, judge, is_dry_run=bind.dry_run)
            found = BindObjection(bind.node, rejections, judge.in_flight) if rejections else None
            if found is None or not (is_confirmed and found.may_deny):
                return found
            if not self._reading.acquire(timeout=_TURN_SECONDS):
                return replace(found, is_final=False)
            try:
                return self._judge_live(bind)
            finally:
                self._reading.release()
        except (ApiError, InvalidFieldError):
            return None  # not known

    def nowhere(self, pod: Object, as_of: str) -> str:
        """Return that no node fits a pod that has none; empty if one does, or it is not known.

        Pods of one template have one answer for `_ANSWER_SECONDS`, because all nodes are looked at.
        """
        if not self.are_known:
            return ""
        key, now = _placing_fields(pod), self._clock()
        answers = {one: found for one, found in self._answers.items() if found[0] > now}
        if key not in answers:
            answers[key] = now + _ANSWER_SECONDS, self._nowhere(pod, as_of)
        self._answers = answers
        return answers[key][1]

    def forget(self, uid: str) -> None:
        """Count a pod no more whose bind was refused after it was judged."""
        self._usage.forget(uid)

    def _nowhere(self, pod: Object, as_of: str) -> str:
        nodes = [
            replace(one.info, requested=dict(self._usage.requested(one.name)))
            for _, one in sorted(self._nodes.items().items())
        ]
        try:
            verdicts = judge_without_pods(pod, nodes)
        except InvalidFieldError:
            return ""
        return "" if verdicts is None else no_node_text(verdicts, as_of)

    def _judge_live(self, bind: PendingBind) -> BindObjection | None:
        before = self._usage.in_flight(bind.node)
        pod = self._read_pod(bind)
        node = read_node(self._api.get(NODES, bind.node))
        on_node = ListOptions(field_selector=f"spec.nodeName={bind.node}")
        pages = list_pages(self._api, PODS, on_node, newest=0)
        judge = _Judge(pod, node)
        rejections = self._usage.admit_among(
            bind.node,
            as_placed(pod),
            judge,
            stored=[
                read_kept_pod(decode_kubelet_pod(one.data)) for page in pages for one in page.items
            ],
            in_flight=before,
            is_dry_run=bind.dry_run,
        )
        return BindObjection(bind.node, rejections, judge.in_flight) if rejections else None

    def _read_pod(self, bind: PendingBind) -> KubeletPod:
        """Read the pod that is being bound.

        Raises:
            ApiError: The API server does not answer, or has no such pod without a node.
        """
        pod = read_kubelet_pod(
            self._api.get(PODS, bind.name, namespace=bind.namespace, decode=decode_kubelet_pod)
        )
        if pod.uid != bind.uid or pod.node:
            raise NotFoundError.of(PODS, bind.name)
        return pod


class _Judge:
    """The judgement of a bind, called once, while no other bind is judged.

    Attributes:
        in_flight: How many pods are being bound, if the pod were admitted without these.
    """

    def __init__(self, pod: KubeletPod, node: KubeletNode) -> None:
        self._admission = KubeletAdmission(pod, node)
        self.in_flight = 0

    def __call__(self, loads: Loads) -> tuple[KubeletRejection, ...]:
        rejections = self._admission.rejections(loads.expected)
        if rejections and loads.in_flight:
            alone = self._admission.rejections(loads.seen)
            self.in_flight = 0 if alone else loads.in_flight
            return alone or rejections
        return rejections


def _placing_fields(pod: Object) -> bytes:
    """Return what decides where a pod fits, as the hash of its JSON: pods may be of megabytes."""
    spec = pod.get("spec")
    fields = dict(spec) if isinstance(spec, Mapping) else {}
    for name in _PLACED_ANYWHERE:
        fields.pop(name, None)
    for name in ("containers", "initContainers"):
        listed = fields.get(name)
        if isinstance(listed, list):
            fields[name] = [_room_fields(one) for one in listed]
    return sha256(encode_json(fields)).digest()


def _room_fields(container: object) -> object:
    if not isinstance(container, Mapping):
        return container
    return {name: container.get(name) for name in ("resources", "restartPolicy", "ports")}
