"""What the paths of Kubernetes mean."""

from __future__ import annotations

import pytest

from webhook.fakecluster.rest.routes import Route, parse_path
from webhook.kube.api import (
    BINDINGS,
    CLUSTER_DEFERRED_QUOTAS,
    JOBS,
    KNOWN_KINDS,
    NAMESPACES,
    NODES,
    PODS,
    QUOTA_LEDGERS,
)

PATHS = {
    "/api/v1/pods": Route(PODS),
    "/api/v1/namespaces": Route(NAMESPACES),
    "/api/v1/namespaces/a": Route(NAMESPACES, "", "a"),
    "/api/v1/namespaces/a/status": Route(NAMESPACES, "", "a", "status"),
    "/api/v1/namespaces/a/pods": Route(PODS, "a"),
    "/api/v1/namespaces/a/pods/b": Route(PODS, "a", "b"),
    "/api/v1/namespaces/a/pods/b/binding": Route(PODS, "a", "b", "binding"),
    "/api/v1/namespaces/a/bindings": Route(BINDINGS, "a"),
    "/api/v1/nodes/n1/status": Route(NODES, "", "n1", "status"),
    "/apis/batch/v1/namespaces/a/jobs/b/status": Route(JOBS, "a", "b", "status"),
    "/apis/deferredquota.io/v1alpha1/quotaledgers": Route(QUOTA_LEDGERS),
    "/apis/deferredquota.io/v1alpha1/clusterdeferredquotas/both/status": Route(
        CLUSTER_DEFERRED_QUOTAS, name="both", subresource="status"
    ),
    "/api/v1/namespaces/a/pods/": Route(PODS, "a"),
}


@pytest.mark.parametrize(("path", "route"), PATHS.items())
def test_a_path_names_a_resource(path: str, route: Route) -> None:
    assert parse_path(path, KNOWN_KINDS) == route


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api/v1",
        "/api/v2/pods",
        "/apis/batch/v1",
        "/api/v1/pods/b",
        "/api/v1/namespaces/a/nodes",
        "/api/v1/namespaces/a/frobs",
        "/api/v1/namespaces/a/pods/b/c/d",
        "/api/v1/jobs",
        "/apis/example.com/v1/pods",
    ],
)
def test_other_paths_name_nothing(path: str) -> None:
    assert parse_path(path, KNOWN_KINDS) is None
