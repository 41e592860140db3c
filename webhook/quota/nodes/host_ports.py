"""Ports of the node that containers take.

Source: kubernetes v1.36, pkg/scheduler/framework/plugins/nodeports; pkg/scheduler/util/utils.go
GetHostPorts; kube-scheduler/framework/types.go HostPortInfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


class HostPorts:
    """Ports of a pod, compared with very many others: pods have as many as fit into them."""

    def __init__(self, ports: Iterable[HostPort]) -> None:
        self._addresses: dict[tuple[int, str], set[str]] = {}
        """Port and protocol → addresses."""
        for one in ports:
            self._addresses.setdefault((one.port, one.protocol), set()).add(one.address)

    def __bool__(self) -> bool:
        return bool(self._addresses)

    def conflict_with(self, other: HostPort) -> bool:
        """Return whether one of the ports and another one cannot both be taken."""
        addresses = self._addresses.get((other.port, other.protocol))
        if addresses is None:
            return False
        is_anywhere = _ALL_ADDRESSES in addresses or other.address == _ALL_ADDRESSES
        return is_anywhere or other.address in addresses


def filter_host_ports(pod: PendingPod, _: NodeView) -> NodeCheck | None:
    """Refuse nodes on which a pod has one of the ports already."""
    wanted = HostPorts(host_ports(pod.spec))
    if not wanted:
        return None

    def reasons(node: NodeInfo) -> tuple[str, ...]:
        specs = (ResourceReader(other).child("spec") for other in node.pods)
        taken = (port for spec in specs for port in host_ports(spec))
        return _TAKEN if any(map(wanted.conflict_with, taken)) else ()

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
