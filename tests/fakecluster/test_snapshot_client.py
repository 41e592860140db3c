"""A snapshot that is only read shows what a fake cluster of the same objects shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import a_pod, a_quota
from webhook.fakecluster.manifests.snapshot import read_snapshot
from webhook.fakecluster.manifests.snapshot_client import SnapshotClient
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    PODS,
    RESOURCE_QUOTAS,
    BadRequestError,
    ListOptions,
    NotFoundError,
    Object,
)

PODS_THERE = [
    a_pod(name="b", uid="1", node="node-1", metadata={"labels": {"app": "x"}}),
    a_pod(name="a", uid="2", status={"phase": "Succeeded"}),
    a_pod(name="a", namespace="team-b", uid="3", metadata={"labels": {"app": "y"}}),
]


@pytest.fixture
def clients() -> tuple[SnapshotClient, FakeClient]:
    whole = {"apiVersion": "v1", "kind": "List", "items": [*PODS_THERE, a_quota("q")]}
    found = read_snapshot([("cluster.json", json.dumps(whole).encode())])
    cluster = FakeCluster()
    cluster.load([(one.kind, one.object) for one in found])
    return SnapshotClient(found), FakeClient(cluster)


def identity(raw: Object) -> tuple[object, ...]:
    metadata: Any = raw["metadata"]
    return metadata.get("namespace"), metadata["name"], metadata["uid"], raw.get("spec")


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"namespace": "team-a"},
        {"namespace": "none"},
        {"field_selector": "spec.nodeName!="},
        {"field_selector": "spec.nodeName=node-1,status.phase=Pending"},
        {"field_selector": "metadata.name=a", "namespace": "team-b"},
        {"label_selector": "app in (x,y)"},
        {"label_selector": "!app"},
    ],
    ids=str,
)
def test_both_list_the_same(
    asked: dict[str, str], clients: tuple[SnapshotClient, FakeClient]
) -> None:
    options = ListOptions(**asked)
    read, stored = ([*map(identity, one.list(PODS, options).items)] for one in clients)
    assert read == stored
    paged = clients[0].pages(PODS, options, limit=1)
    assert [identity(one.object) for page in paged for one in page.items] == read


def test_both_get_the_same(clients: tuple[SnapshotClient, FakeClient]) -> None:
    for client in clients:
        assert identity(client.get(RESOURCE_QUOTAS, "q", namespace="team-a"))[1] == "q"
        with pytest.raises(NotFoundError):
            client.get(PODS, "q", namespace="team-a")
        with pytest.raises(BadRequestError):
            client.list(PODS, ListOptions(field_selector="spec.host=x"))
