"""Nodes and pods of the tests: valid, small, with what a test names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

Object: TypeAlias = Mapping[str, object]


def node(
    name: str = "n1",
    *,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: object,
) -> dict[str, object]:
    """Return a node of 4 cores and 8Gi for 10 pods; `spec` are fields such as `taints`."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "10", **(allocatable or {})}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": room},
    }


def pod(
    *,
    requests: Mapping[str, str] | None = None,
    ports: Iterable[Object] = (),
    labels: Mapping[str, str] | None = None,
    **spec: object,
) -> dict[str, object]:
    """Return a pod of one container; `spec` are further fields, such as `nodeSelector`."""
    container = {"name": "c", "resources": {"requests": requests or {}}, "ports": list(ports)}
    return {
        "metadata": {"namespace": "team", "name": "p", "uid": "p", "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }


def assigned(pods: Iterable[Object], to: str = "n1") -> list[Object]:
    """Return the pods with this node."""
    return [{**one, "spec": {**_spec(one), "nodeName": to}} for one in pods]


def _spec(one: Object) -> Object:
    spec = one["spec"]
    assert isinstance(spec, Mapping)
    return spec
