"""Labels of namespaces are asked for once in a while."""

from __future__ import annotations

import pytest

from webhook.cluster.api import NAMESPACES, NotFoundError
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.state.namespace_labels import NamespaceLabels


def test_labels_are_believed_for_some_seconds_only() -> None:
    api, now = MemoryClient(MemoryCluster()), [0.0]
    api.create(NAMESPACES, {"metadata": {"name": "team-a", "labels": {"tier": "gold"}}})
    labels = NamespaceLabels(api, lambda: now[0])
    assert labels.of("team-a")["tier"] == "gold"
    api.patch(NAMESPACES, "team-a", {"metadata": {"labels": {"tier": "iron"}}})
    assert labels.of("team-a")["tier"] == "gold"
    now[0] = 6.0
    assert labels.of("team-a")["tier"] == "iron"


def test_all_namespaces_can_be_asked_for_at_once() -> None:
    api = MemoryClient(MemoryCluster())
    for name, labels in {"team-a": {"tier": "gold"}, "team-b": {}}.items():
        api.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    found = NamespaceLabels(api, lambda: 0.0).every()
    assert {name: labels.get("tier") for name, labels in found.items()} == {
        "team-a": "gold",
        "team-b": None,
    }


def test_a_namespace_that_is_not_there_has_none() -> None:
    labels = NamespaceLabels(MemoryClient(MemoryCluster()), lambda: 0.0)
    with pytest.raises(NotFoundError):
        labels.of("nowhere")
