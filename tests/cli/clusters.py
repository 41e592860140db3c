"""Clusters that commands reach as they reach real ones: by a kubeconfig, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.kube.rest.served import served
from webhook.fakecluster.rest.apiserver import ApiServer
from webhook.fakecluster.storage import FakeCluster

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


@contextmanager
def kubeconfig_of(
    cluster: FakeCluster,
    directory: Path,
    app: Callable[[FakeCluster], WSGIApplication] = ApiServer,
) -> Iterator[Path]:
    """Serve a fake cluster, as an application that is made of it; give the kubeconfig."""
    with served(cluster, app) as client:
        yield write_kubeconfig(directory, client.config.server)


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
