"""Ports of the node that containers take.

Source: kubernetes v1.36, pkg/scheduler/framework/plugins/nodeports; pkg/scheduler/util/utils.go
GetHostPorts; kube-scheduler/framework/types.go HostPortInfo.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.nodes.filters import NodeCheck
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod

_ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104 - compared, nothing listens
_TAKEN: Final = ("node(s) didn't have free ports for the requested pod ports",)


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of a node, on one address or on all."""

    address: str
    protocol: str
    port: int

    def conflicts_with(self, other: HostPort) -> bool:
        """Return whether not both can be taken."""
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        return self.address == other.address or _ALL_ADDRESSES in (self.address, other.address)


def filter_host_ports(pod: PendingPod, _: NodeView) -> NodeCheck | None:
    """Refuse nodes on which a pod has one of the ports already."""
    wanted = frozenset(host_ports(pod.spec))
    if not wanted:
        return None
    numbers = frozenset(port.port for port in wanted)

    def reasons(node: NodeInfo) -> tuple[str, ...]:
        taken = (
            port
            for other in node.pods
            for port in host_ports(ResourceReader(other).child("spec"))
            if port.port in numbers
        )
        return _TAKEN if any(port.conflicts_with(one) for port in taken for one in wanted) else ()

    return NodeCheck(reasons)


def host_ports(spec: ResourceReader) -> Iterator[HostPort]:
    """Yield ports that containers and sidecars take; other init containers are not looked at."""
    sidecars = [
        one for one in spec.children("initContainers") if one.text("restartPolicy") == "Always"
    ]
    # an API server fills in the host port of a pod in the node's own network
    is_host_network = spec.boolean("hostNetwork")
    for container in (*sidecars, *spec.children("containers")):
        for port in container.children("ports"):
            number = port.integer("hostPort") or 0
            if number == 0 and is_host_network:
                number = port.integer("containerPort") or 0
            if number > 0:
                address = port.text("hostIP") or _ALL_ADDRESSES
                yield HostPort(address, port.text("protocol") or "TCP", number)
