"""The nodes of a cluster, and all that decides where a pod fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from webhook.jsonfields.fields import InvalidFieldError, mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NAMESPACES, PODS, Object
from webhook.kube.kinds import DEVICE_CLASSES
from webhook.operations.explain.namespaces import Inside
from webhook.operations.explain.session import Session
from webhook.operations.names import CLAIMS, STORAGE_CLASSES, VOLUMES
from webhook.quota.explaining.node_causes import NodeAnswer, node_answer
from webhook.quota.nodes.fitting import judge_nodes
from webhook.quota.nodes.model import NodeView, PendingPod
from webhook.quota.nodes.node_resources import may_be_devices
from webhook.quota.objects.names import device_class_resource

_ASSIGNED = "spec.nodeName!="
_REQUIRED = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
_NOT_FROM_HERE = (
    "not looked at from here, as the pod requires too much of them; the command line looks at them"
)


def judged_nodes(session: Session, inside: Inside, raw: Object) -> NodeAnswer | None:
    """Return what the nodes mean for a pod without one; None where they are not known.

    Raises:
        ApiError: The cluster does not answer.
    """
    if inside.nodes is None:
        return None
    view = judged_view(session, raw, inside.facts.name, inside.nodes)
    spec = FieldReader(raw).child("spec")
    view = replace(view, pods=_pods(session, inside))
    required = mapping(raw.get("spec"), "spec")
    values = sum(_values(required[name]) for name in _REQUIRED if name in required)
    weight = values * (len(view.nodes) + len(view.pods))
    if 0 < session.options.most_weight < weight:
        session.unknown.append(f"nodes: {_NOT_FROM_HERE}")
        return None
    try:
        if any(map(may_be_devices, PendingPod.from_object(raw).amounts)):
            view = replace(view, devices=device_resources(session))
        return node_answer(judge_nodes(raw, view), has_selector=spec.has("nodeSelector"))
    except InvalidFieldError as err:
        session.unknown.append(f"nodes: {err}")
        return None


def judged_view(session: Session, raw: Object, namespace: str, nodes: Sequence[Object]) -> NodeView:
    """Return what decides where a pod fits, without the pods that have a node.

    Raises:
        ApiError: The cluster does not answer.
    """
    spec = FieldReader(raw).child("spec")
    has_volumes = any(
        one.has("persistentVolumeClaim") or one.has("ephemeral") for one in spec.children("volumes")
    )
    affinity = spec.child("affinity")
    has_affinity = affinity.has("podAffinity") or affinity.has("podAntiAffinity")
    return NodeView(
        nodes,
        (),
        claims=session.readable(CLAIMS, namespace=namespace) if has_volumes else None,
        volumes=session.readable(VOLUMES) if has_volumes else None,
        storage_classes=session.readable(STORAGE_CLASSES) if has_volumes else None,
        namespaces=session.readable(NAMESPACES) if has_affinity else None,
    )


def device_resources(session: Session) -> frozenset[str]:
    """Return the resources that are devices of a DeviceClass, as far as they are known.

    Raises:
        ApiError: The cluster does not answer.
    """
    unread: frozenset[str] = frozenset()
    return session.read(
        lambda: frozenset(_device_names(session.objects(DEVICE_CLASSES))),
        unread,
        DEVICE_CLASSES.plural,
    )


def _device_names(classes: Iterable[Object]) -> Iterator[str]:
    for raw in classes:
        yield device_class_resource(FieldReader(raw).child("metadata").text("name"))
        yield FieldReader(raw).child("spec").text("extendedResourceName")


def _pods(session: Session, inside: Inside) -> Sequence[Object]:
    """Return the pods that have a node; those of the namespace where the others are not known."""
    what = "pods of other namespaces, which may take more of the nodes"
    # those of the namespace were read before, and a live cluster takes its time for each
    own = () if session.options.is_offline else inside.pods
    selector = f"{_ASSIGNED},metadata.namespace!={inside.facts.name}" if own else _ASSIGNED
    found = session.readable(PODS, what, field_selector=selector)
    if found is None:
        return inside.pods
    return (*(raw for raw in own if FieldReader(raw).child("spec").has("nodeName")), *found)


def _values(raw: object) -> int:
    """Return how many values there are in a field."""
    if isinstance(raw, Mapping):
        return sum(map(_values, raw.values()))
    return sum(map(_values, raw)) if isinstance(raw, list) else 1
