"""Clusters that commands reach as they reach real ones: by a kubeconfig, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.cluster.live.embedded import served
from webhook.cluster.memory import MemoryCluster


@contextmanager
def kubeconfig_of(cluster: MemoryCluster, directory: Path) -> Iterator[Path]:
    """Serve a cluster in memory and give the kubeconfig of it."""
    with served(cluster) as client:
        yield write_kubeconfig(directory, client.access.server)


def write_kubeconfig(directory: Path, server: str) -> Path:
    """Write a kubeconfig with one context, `twin`."""
    path = directory / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "twin",
        "clusters": [{"name": "twin", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "twin", "context": {"cluster": "twin", "user": "me"}}],
    }
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path
