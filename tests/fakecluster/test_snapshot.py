"""Snapshots: all objects of some files, or an error with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.builders import a_pod, a_quota
from tests.kube.builders import a_cluster, a_config_map, a_ledger, mapping, meta
from webhook.fakecluster.manifests.snapshot import (
    SnapshotError,
    SnapshotObject,
    read_files,
    read_snapshot,
)
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import NAMESPACES, PODS, Object

WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}


def read(*texts: str, **options: object) -> tuple[SnapshotObject, ...]:
    inputs = [(f"{number}.yaml", text.encode()) for number, text in enumerate(texts, start=1)]
    return read_snapshot(inputs, **options)  # type: ignore[arg-type] # checked by the callee


def refused(*texts: str) -> SnapshotError:
    with pytest.raises(SnapshotError) as refusal:
        read(*texts)
    return refusal.value


def a_list(*objects: Object, kind: str = "List") -> dict[str, object]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {}, "items": list(objects)}


def names(found: tuple[SnapshotObject, ...]) -> list[str]:
    return [f"{one.kind.kind}/{meta(one.object)['name']}" for one in found]


SHAPES = {
    "one document": yaml.safe_dump(a_pod()) + "---\n" + yaml.safe_dump(a_quota()),
    "a List": yaml.safe_dump(a_list(a_pod(), a_quota())),
    "a List of Lists": yaml.safe_dump(a_list(a_list(a_pod()), a_list(a_quota()))),
    "JSON": json.dumps(a_list(a_pod(), a_quota())),
    "JSON lines": json.dumps(a_pod()) + "\n" + json.dumps(a_quota()) + "\n",
    "JSON one after the other": json.dumps(a_pod()) + json.dumps(a_quota(), indent=1),
}


class TestShapes:
    @pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
    def test_objects_come_in_every_shape_of_kubectl(self, text: str) -> None:
        found = read(text)
        assert [one.object for one in found] == [a_pod(), a_quota()]
        assert [one.kind.resource for one in found] == ["pods", "resourcequotas"]

    def test_a_typed_list_says_what_its_items_are(self) -> None:
        bare = {name: value for name, value in a_pod().items() if name in ("metadata", "spec")}
        (found,) = read(yaml.safe_dump(a_list(bare, kind="PodList")))
        assert found.kind == PODS
        assert (found.object["apiVersion"], found.object["kind"]) == ("v1", "Pod")
        assert (found.document, found.field) == (1, "items[0]")

    def test_a_kind_that_only_ends_like_a_list_is_an_object(self) -> None:
        (found,) = read(yaml.safe_dump({**WIDGET, "kind": "AllowList"}))
        assert (found.kind.kind, found.field) == ("AllowList", "")

    def test_an_empty_list_holds_nothing(self) -> None:
        assert read(yaml.safe_dump(a_list())) == ()
        assert read("apiVersion: v1\nkind: PodList\nitems: null\n") == ()
        assert read("---\n---\n") == ()

    def test_files_are_read_in_their_order(self) -> None:
        found = read(*(yaml.safe_dump(a_config_map(name)) for name in ("b", "a", "c")))
        assert names(found) == ["ConfigMap/b", "ConfigMap/a", "ConfigMap/c"]
        assert [one.file for one in found] == ["1.yaml", "2.yaml", "3.yaml"]

    def test_unknown_kinds_are_custom_resources(self) -> None:
        namespaced = {**WIDGET, "metadata": {"name": "w", "namespace": "team-a"}}
        found = read(yaml.safe_dump(WIDGET), yaml.safe_dump(namespaced))
        assert [one.kind.namespaced for one in found] == [False, True]
        assert {one.kind.resource for one in found} == {"widgets.example.com"}
        assert meta(found[0].object) == {"name": "w"}

    def test_numbers_keep_their_source(self) -> None:
        text = yaml.safe_dump(a_quota()).replace("requests.cpu: '2'", "requests.cpu: 0.50")
        (found,) = read(text)
        assert mapping(found.object, "spec", "hard") == {"requests.cpu": "0.50"}

    def test_a_snapshot_fills_a_cluster(self) -> None:
        cluster = a_cluster()
        cluster.load(
            [
                (one.kind, one.object)
                for one in read(
                    yaml.safe_dump_all(
                        [
                            a_pod(node="n1", status={"phase": "Running"}),
                            a_quota(),
                            a_ledger(),
                            WIDGET,
                        ]
                    )
                )
            ]
        )
        pod = FakeClient(cluster).get(PODS, "web-1", namespace="team-a")
        assert mapping(pod, "status") == {"phase": "Running"}
        assert cluster.resource_version == 1004


class TestNamespaces:
    def test_a_namespace_is_filled_in_where_a_kind_needs_one(self) -> None:
        pod = a_pod(namespace="")
        (found,) = read(yaml.safe_dump(pod))
        assert meta(found.object)["namespace"] == "default"

    def test_namespaces_are_made_for_their_inhabitants(self) -> None:
        own = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "team-b", "labels": {"own": "label"}},
        }
        texts = [
            yaml.safe_dump(one)
            for one in (a_pod(), a_quota(), a_config_map(namespace="team-b"), own, WIDGET)
        ]
        found = read(*texts, namespace_labels={"deferredquota.io/mode": "deferred"})
        namespaces = [one for one in found if one.kind == NAMESPACES]
        made = {meta(one.object)["name"]: one for one in namespaces}
        assert (len(namespaces), set(made)) == (2, {"team-a", "team-b"})
        assert meta(made["team-a"].object)["labels"] == {"deferredquota.io/mode": "deferred"}
        assert meta(made["team-b"].object)["labels"] == {"own": "label"}
        assert (made["team-a"].file, made["team-b"].file) == ("", "4.yaml")

    def test_no_namespaces_are_made_unless_asked_for(self) -> None:
        assert names(read(yaml.safe_dump(a_pod()))) == ["Pod/web-1"]


def without(obj: Object, *path: str) -> dict[str, object]:
    """A copy of an object that lacks one field."""
    copied = json.loads(json.dumps(obj))
    inner = mapping(copied, *path[:-1])
    del inner[path[-1]]
    assert isinstance(copied, dict)
    return copied


def with_meta(**fields: object) -> dict[str, object]:
    return {**a_config_map(), "metadata": {"name": "a", "namespace": "b", **fields}}


BROKEN: dict[str, tuple[object, str, str]] = {
    "a scalar": (5, "", "must be an object, not a number"),
    "a text": ("x", "", "must be an object, not a string"),
    "a boolean": (True, "", "must be an object, not a boolean"),
    "a list": ([a_pod()], "", "must be an object, not a list"),
    "no apiVersion": (without(a_pod(), "apiVersion"), "apiVersion", "required"),
    "no kind": (without(a_pod(), "kind"), "kind", "required"),
    "a kind that is a number": ({**a_pod(), "kind": 5}, "kind", "must be a string, not a number"),
    "an empty kind": ({**a_pod(), "kind": ""}, "kind", "required"),
    "no metadata": (
        without(a_pod(), "metadata"),
        "metadata.name",
        "Required value: name or generateName is required",
    ),
    "metadata of another type": ({**a_pod(), "metadata": []}, "metadata", "must be an object"),
    "no name": (
        without(a_pod(), "metadata", "name"),
        "metadata.name",
        "Required value: name or generateName is required",
    ),
    "a name that is a number": (
        with_meta(name=5),
        "metadata.name",
        "must be a string, not a number",
    ),
    "a label that is a number": (
        with_meta(labels={"a": 1}),
        "metadata.labels[...]",
        "must be a string, not a number",
    ),
    "a time that is none": (
        with_meta(creationTimestamp="now"),
        "metadata.creationTimestamp",
        "Invalid RFC3339 encoded datetime",
    ),
    "a node that is a number": (
        {**a_pod(), "spec": {"nodeName": 5}},
        "spec.nodeName",
        "must be a string, not a number",
    ),
    "items of another type": ({**a_list(), "items": {}}, "items", "must be a list, not an object"),
    "an item that is no object": (
        a_list(a_pod(), 5),  # type: ignore[arg-type] # that is the point
        "items[1]",
        "must be an object, not a number",
    ),
    "an item without kind": (
        a_list(a_pod(), without(a_quota(), "kind")),
        "items[1].kind",
        "required",
    ),
    "an item without apiVersion": (
        a_list(a_pod(), without(a_quota(), "apiVersion")),
        "items[1].apiVersion",
        "required",
    ),
    "an item with a bad label": (
        a_list(a_pod(), with_meta(labels=[])),
        "items[1].metadata.labels",
        "must be an object, not a list",
    ),
    "an item twice": (
        a_list(a_pod(), a_pod()),
        "items[1]",
        "Pod team-a/web-1 is already in 1.yaml, document 2",
    ),
}


@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps], ids=["yaml", "json"])
@pytest.mark.parametrize(("value", "field", "detail"), BROKEN.values(), ids=BROKEN.keys())
def test_one_broken_object_is_reported_and_nothing_is_read(
    dump: object, value: object, field: str, detail: str
) -> None:
    assert callable(dump)
    good = dump(a_config_map("good"))
    separator = "\n" if good.startswith("{") else "---\n"
    refusal = refused(good + separator + dump(value))
    assert (refusal.file, refusal.place.document, refusal.field) == ("1.yaml", 2, field)
    assert refusal.detail == detail
    assert refusal.place.line is not None


def test_a_namespace_of_a_kind_that_has_none_goes_as_kubectl_leaves_it_out() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "namespace": "b"}}
    (read,) = read_snapshot([("1.yaml", yaml.safe_dump(node).encode())])
    assert (read.namespace, read.key) == ("", "a")
    assert read.object == {**node, "metadata": {"name": "a"}}


def test_an_object_in_two_files_is_reported_with_both() -> None:
    refusal = refused(yaml.safe_dump(a_pod()), "---\n---\n" + yaml.safe_dump(a_pod()))
    assert str(refusal) == (
        "2.yaml: document 2, line 3: Pod team-a/web-1 is already in 1.yaml, document 1"
    )


def test_a_line_of_a_list_is_the_line_of_its_item() -> None:
    text = (
        "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- metadata:\n    name: B\n"
    )
    refusal = refused(text)
    assert (refusal.place.line, refusal.field) == (6, "items[1].metadata.name")


def test_lists_cannot_nest_without_end() -> None:
    nested = a_list()
    for _ in range(10):
        nested = a_list(nested)
    assert refused(json.dumps(nested)).detail == "lists in lists nest too deep"


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"missing\.yaml: No such file or directory"):
        read_files([tmp_path / "missing.yaml"])


def test_files_are_read_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump(a_pod()))
    assert names(read_snapshot(read_files([path]))) == ["Pod/web-1"]
