"""Clusters that commands reach as they reach real ones: by a kubeconfig, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.cluster.live.embedded import served
from webhook.cluster.memory import MemoryCluster
from webhook.embedded.apiserver import ApiServer

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


@contextmanager
def kubeconfig_of(
    cluster: MemoryCluster,
    directory: Path,
    app: Callable[[MemoryCluster], WSGIApplication] = ApiServer,
) -> Iterator[Path]:
    """Serve a cluster in memory, as an application that is made of it; give the kubeconfig."""
    with served(cluster, app) as client:
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
