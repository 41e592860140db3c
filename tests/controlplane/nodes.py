"""Nodes without a kubelet: objects that look ready."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def node(name: str, *, cpu: str, memory: str, pods: int) -> dict[str, Any]:
    """Give a Node that offers so much and reports no trouble."""
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "1Ti"}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    troubles = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": "Test",
            "message": "this node has no kubelet",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, status in {**troubles, "Ready": "True"}.items()
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": conditions,
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }
