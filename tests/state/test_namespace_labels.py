"""One label of a namespace opts in; all of them are asked for once in a while."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import cast

import pytest

from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.shared.participation import Participation
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import NAMESPACES, ClusterApi, NotFoundError, Page, Revision
from webhook.state.namespace_labels import NamespaceLabels, is_deferred

LABELS: dict[str, tuple[object, bool]] = {
    "deferred": ({"deferredquota.io/mode": "deferred"}, True),
    "shadow": ({"deferredquota.io/mode": "shadow"}, False),
    "another word": ({"deferredquota.io/mode": "Deferred"}, False),
    "none": ({}, False),
    "null": (None, False),
}


@pytest.mark.parametrize(("labels", "expected"), LABELS.values(), ids=LABELS.keys())
def test_one_label_opts_in(labels: object, expected: bool) -> None:
    assert is_deferred({"metadata": {"labels": labels}}) == expected


def test_labels_that_cannot_be_read_name_the_field() -> None:
    with pytest.raises(InvalidFieldError, match=r"metadata\.labels"):
        is_deferred({"metadata": {"labels": []}})


def test_labels_are_believed_for_some_seconds_only() -> None:
    api, now = FakeClient(FakeCluster()), [0.0]
    api.create(NAMESPACES, {"metadata": {"name": "team-a", "labels": {"tier": "gold"}}})
    labels = NamespaceLabels(api, lambda: now[0])
    assert labels.of("team-a")["tier"] == "gold"
    api.patch(NAMESPACES, "team-a", {"metadata": {"labels": {"tier": "iron"}}})
    assert labels.of("team-a")["tier"] == "gold"
    now[0] = 6.0
    assert labels.of("team-a")["tier"] == "iron"


def test_all_namespaces_can_be_asked_for_at_once() -> None:
    api = FakeClient(FakeCluster())
    for name, labels in {"team-a": {"tier": "gold"}, "team-b": {}}.items():
        api.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    found = NamespaceLabels(api, lambda: 0.0).all("team-a")
    assert {name: labels.get("tier") for name, labels in found.items()} == {
        "team-a": "gold",
        "team-b": None,
    }


def test_a_namespace_that_is_not_there_has_none() -> None:
    labels = NamespaceLabels(FakeClient(FakeCluster()), lambda: 0.0)
    with pytest.raises(NotFoundError):
        labels.of("nowhere")


class _Labelled:
    """An API server whose namespaces have many labels; no list shows all of them at once."""

    def __init__(self, namespaces: int) -> None:
        self._names = [f"team-{number}" for number in range(namespaces)]

    def pages(self, *_of: object, is_brief: bool) -> Iterator[Page]:
        assert is_brief
        for version, name in enumerate(self._names, start=1):
            labels = {f"{name}-{number}": "" for number in range(2000)}
            raw = {"metadata": {"name": name, "labels": labels, "resourceVersion": f"{version}"}}
            data = json.dumps(raw).encode()
            del labels, raw
            yield Page((Revision(key=name, uid=name, resource_version=version, data=data),), 99)


class _Seen:
    """A cache of namespaces that has seen them all."""

    def __init__(self) -> None:
        self.namespaces = self.informer = self

    def wait_for_version(self, version: int, _timeout_seconds: float) -> bool:
        return version <= 99


def test_a_leadership_begins_with_few_labels_at_a_time() -> None:
    def peak(namespaces: int) -> int:
        api = cast("ClusterApi", _Labelled(namespaces))
        participation = Participation(api, cast("ManagedNamespaces", _Seen()))
        tracemalloc.start()
        try:
            assert len(participation.managed_namespaces()) == namespaces
            assert participation.check_namespaces() == frozenset()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(30) < 2 * peak(3)
