"""What the programs of the control plane are called with; values in, values out.

Further flags come last: of a flag that is given twice the last one stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SERVICE_RANGE: Final = "10.96.0.0/16"
SERVICE_ADDRESS: Final = "10.96.0.1"  # the API server gives its own Service the first address

# A test's clients are never the bottleneck.
_QPS: Final = 2000
_BURST: Final = 4000

# They look for kubelets and cloud providers, of which there are none: a node without a heartbeat
# would be tainted and its pods evicted.
_NO_CONTROLLERS: Final = (
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "cloud-node-lifecycle-controller",
    "node-ipam-controller",
    "node-route-controller",
    "service-lb-controller",
    "persistentvolume-attach-detach-controller",
)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the programs listen, on 127.0.0.1."""

    etcd: int
    apiserver: int
    scheduler: int
    controller_manager: int


@dataclass(frozen=True, slots=True)
class Extras:
    """What a test wants otherwise.

    Attributes:
        apiserver: Further flags.
        controller_manager: Further flags, such as `--resource-quota-sync-period=2s`.
        scheduler: Fields of KubeSchedulerConfiguration, such as `podMaxBackoffSeconds`.
        feature_gates: Gates of the API server, the controller manager and the scheduler.
    """

    apiserver: Sequence[str] = ()
    controller_manager: Sequence[str] = ()
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    feature_gates: Mapping[str, bool] = field(default_factory=dict)


def etcd_arguments(directory: Path, url: str) -> list[str]:
    """Give etcd's flags: plain HTTP on loopback; no fsync, since nothing need survive a crash."""
    return [
        f"--data-dir={directory}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        "--listen-peer-urls=http://127.0.0.1:0",  # it has no peers
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def apiserver_arguments(
    keys: Mapping[str, Path], ports: Ports, extras: Extras, *, has_service_accounts: bool = True
) -> list[str]:
    """Give the API server's flags.

    Args:
        keys: Paths of `ca`, `certificate` and `key`; `signing` and `checking` of tokens.
        ports: Where it and etcd listen.
        extras: Flags and gates of the test.
        has_service_accounts: Whether something makes the service accounts that pods need; without
            it, pods are admitted without one.
    """
    arguments = [
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.apiserver}",
        f"--tls-cert-file={keys['certificate']}",
        f"--tls-private-key-file={keys['key']}",
        f"--client-ca-file={keys['ca']}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={keys['checking']}",
        f"--service-account-signing-key-file={keys['signing']}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        # endpoints may not be loopback addresses, and it has no other
        "--endpoint-reconciler-type=none",
        # asked to end, it closes watches instead of waiting a minute for their clients
        "--shutdown-watch-termination-grace-period=5s",
    ]
    if not has_service_accounts:
        arguments.append("--disable-admission-plugins=ServiceAccount")
    return [*arguments, *_gates(extras.feature_gates), *extras.apiserver]


def controller_manager_arguments(
    keys: Mapping[str, Path], kubeconfig: Path, ports: Ports, extras: Extras
) -> list[str]:
    """Give the controller manager's flags: all controllers but those that need real nodes."""
    return [
        f"--kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.controller_manager}",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={keys['signing']}",
        f"--root-ca-file={keys['ca']}",
        "--controllers=" + ",".join(["*", *(f"-{name}" for name in _NO_CONTROLLERS)]),
        f"--kube-api-qps={_QPS}",
        f"--kube-api-burst={_BURST}",
        *_gates(extras.feature_gates),
        *extras.controller_manager,
    ]


def scheduler_arguments(config: Path, ports: Ports, extras: Extras) -> list[str]:
    """Give the scheduler's flags; the rest is in its configuration."""
    return [
        f"--config={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.scheduler}",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        *_gates(extras.feature_gates),
    ]


def scheduler_configuration(
    kubeconfig: Path, extras: Extras, given: Mapping[str, Any] | None = None
) -> str:
    """Give the scheduler's configuration file, as JSON.

    Args:
        kubeconfig: How it reaches the API server.
        extras: Fields of the test.
        given: A whole configuration. The connection and the election are not taken from it.
    """
    configuration = {
        **(given or {}),
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": _QPS, "burst": _BURST},
        "leaderElection": {"leaderElect": False},
        **extras.scheduler,
    }
    return json.dumps(configuration, indent=2)


def _gates(gates: Mapping[str, bool]) -> list[str]:
    text = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(gates.items()))
    return [f"--feature-gates={text}"] if text else []
