"""The score of nodes that have a pod's images already.

On how many nodes an image is, the scheduler counts when it looks at a node that has changed, so
its count can be older than the one here.

Source: kubernetes v1.36, pkg/scheduler/framework/plugins/imagelocality/image_locality.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.nodes.filters import MAX_NODE_SCORE
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod

_MIB: Final = 2**20
_LEAST: Final = 23 * _MIB
_MOST_PER_CONTAINER: Final = 1000 * _MIB


def score_image_locality(
    pod: PendingPod, view: NodeView, nodes: Sequence[NodeInfo]
) -> Sequence[int]:
    """Prefer nodes with large images of the pod, more so where many nodes have these."""
    names = list(_image_names(pod.spec))
    containers = len(pod.spec.children("containers")) + len(pod.spec.children("initContainers"))
    present, sizes = _present(view, frozenset(names))
    counts: dict[str, int] = {}
    for images in present.values():
        for name in images:
            counts[name] = counts.get(name, 0) + 1
    # in floats because the scheduler computes in them
    weights = {
        name: int(float(size) * (float(counts[name]) / float(len(view.infos))))
        for name, size in sizes.items()
    }
    most = _MOST_PER_CONTAINER * containers

    def score(node: NodeInfo) -> int:
        images = present.get(node.name, frozenset())
        total = sum(weights[name] for name in names if name in images)
        return MAX_NODE_SCORE * (min(max(total, _LEAST), most) - _LEAST) // (most - _LEAST)

    return [score(node) for node in nodes] if containers else [0] * len(nodes)


def _present(
    view: NodeView, names: frozenset[str]
) -> tuple[dict[str, frozenset[str]], dict[str, int]]:
    """Return which of the images each node has, and how many bytes each of them takes."""
    present: dict[str, frozenset[str]] = {}
    sizes: dict[str, int] = {}
    for node in view.infos:
        for image in ResourceReader(node.raw).child("status").children("images"):
            found = names.intersection(image.strings("names"))
            for name in found:
                sizes.setdefault(name, image.integer("sizeBytes") or 0)
            if found:
                present[node.name] = present.get(node.name, frozenset()) | found
    return present, sizes


def _image_names(spec: ResourceReader) -> Iterator[str]:
    for container in (*spec.children("initContainers"), *spec.children("containers")):
        yield _with_tag(container.text("image"))
    for volume in spec.children("volumes"):
        if volume.has("image"):
            yield _with_tag(volume.child("image").text("reference"))


def _with_tag(name: str) -> str:
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
