"""Getting, listing and selecting."""

from __future__ import annotations

import pytest

from tests.builders import a_pod
from tests.kube.builders import (
    a_config_map,
    first,
    lines,
    mapping,
    meta,
    names,
)
from tests.kube.contract.base import SOON, ClusterContract
from webhook.kube.api import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    BadRequestError,
    ClusterApi,
    ListOptions,
    NotFoundError,
    Revision,
    find_object,
)

LABELS = {
    "all": ("", ["plain", "web", "web-2"]),
    "equal": ("app=web", ["web", "web-2"]),
    "equal, twice": ("app==web,tier=front", ["web"]),
    "not equal takes those without": ("tier!=front", ["plain", "web-2"]),
    "in": ("tier in (front, back)", ["web", "web-2"]),
    "not in": ("tier notin (front)", ["plain", "web-2"]),
    "there": ("tier", ["web", "web-2"]),
    "not there": ("!tier", ["plain"]),
    "nothing": ("app=web,!app", []),
}
FIELDS = {
    "without node": ("spec.nodeName=", ["waiting"]),
    "with a node": ("spec.nodeName!=", ["placed"]),
    "of a node": ("spec.nodeName=n1,metadata.name!=waiting", ["placed"]),
    "by phase": ("status.phase==Pending", ["placed", "waiting"]),
    "by another phase": ("status.phase=Running", []),
    "by name": ("metadata.name=waiting", ["waiting"]),
}


class PagesContract(ClusterContract):
    """Lists in parts; every page shows the same moment."""

    @pytest.fixture
    def five(self, api: ClusterApi, namespace: str) -> list[Revision]:
        """Five ConfigMaps, by name."""
        return [
            api.create(CONFIG_MAPS, a_config_map(name, namespace=namespace, text=name))
            for name in "abcde"
        ]

    def test_pages_hold_what_a_list_holds_in_the_same_order(
        self, api: ClusterApi, namespace: str, five: list[Revision]
    ) -> None:
        pages = list(api.pages(CONFIG_MAPS, ListOptions(namespace=namespace), limit=2))
        assert [len(page.items) for page in pages] == [2, 2, 1]
        items = [one for page in pages for one in page.items]
        assert [one.key for one in items] == [one.key for one in five]
        assert [one.uid for one in items] == [one.uid for one in five]
        assert [one.resource_version for one in items] == [one.resource_version for one in five]
        assert [mapping(one.object, "data")["text"] for one in items] == list("abcde")
        assert [meta(one.object)["uid"] for one in items] == [one.uid for one in five]

    def test_all_pages_are_of_one_version_from_which_a_watch_goes_on(
        self, api: ClusterApi, namespace: str, five: list[Revision]
    ) -> None:
        pages = api.pages(CONFIG_MAPS, ListOptions(namespace=namespace), limit=2)
        versions = [next(pages).resource_version]
        api.delete(CONFIG_MAPS, "e", namespace=namespace)
        later = api.create(CONFIG_MAPS, a_config_map("f", namespace=namespace))
        rest = list(pages)
        versions += [page.resource_version for page in rest]
        assert len(set(versions)) == 1
        assert five[-1].resource_version <= versions[0] < later.resource_version
        assert [one.key for page in rest for one in page.items] == [one.key for one in five[2:]]
        with api.watch(
            CONFIG_MAPS,
            ListOptions(namespace=namespace),
            resource_version=versions[0],
            timeout_seconds=SOON,
        ) as stream:
            assert lines(first(stream, 2)) == [
                ("DELETED", f"{namespace}/e"),
                ("ADDED", f"{namespace}/f"),
            ]

    def test_a_list_that_fits_is_one_page(
        self, api: ClusterApi, namespace: str, five: list[Revision]
    ) -> None:
        (page,) = api.pages(CONFIG_MAPS, ListOptions(namespace=namespace), limit=len(five))
        assert len(page.items) == len(five)

    def test_a_list_of_nothing_is_one_empty_page(self, api: ClusterApi, five: object) -> None:
        del five
        (page,) = api.pages(CONFIG_MAPS, ListOptions(namespace="nowhere"))
        assert page.items == ()
        assert page.resource_version > 0

    def test_brief_pages_hold_uid_and_version_of_the_same_objects(
        self, api: ClusterApi, namespace: str, five: list[Revision]
    ) -> None:
        pages = api.pages(CONFIG_MAPS, ListOptions(namespace=namespace), limit=2, is_brief=True)
        items = [one for page in pages for one in page.items]
        found = [(one.key, one.uid, one.resource_version) for one in items]
        assert found == [(one.key, one.uid, one.resource_version) for one in five]
        assert [meta(one.object)["uid"] for one in items] == [one.uid for one in five]

    def test_pages_are_selected_as_lists_are(
        self, api: ClusterApi, namespace: str, five: list[Revision]
    ) -> None:
        labelled = a_config_map("x", namespace=namespace, metadata={"labels": {"app": "web"}})
        api.create(CONFIG_MAPS, labelled)
        (page,) = api.pages(CONFIG_MAPS, ListOptions(namespace=namespace, label_selector="app=web"))
        assert [one.key for one in page.items] == [f"{namespace}/x"]
        (page,) = api.pages(
            CONFIG_MAPS, ListOptions(namespace=namespace, field_selector="metadata.name=c")
        )
        assert [one.key for one in page.items] == [five[2].key]

    def test_objects_without_namespace_come_in_pages_too(self, api: ClusterApi) -> None:
        for name in ("page-a", "page-b"):
            api.create(NAMESPACES, {"metadata": {"name": name}})
        keys = [one.key for page in api.pages(NAMESPACES, limit=1) for one in page.items]
        assert {"page-a", "page-b"} <= set(keys)
        assert keys == sorted(keys)

    def test_a_selector_that_cannot_be_read_is_refused_by_the_first_page(
        self, api: ClusterApi, namespace: str
    ) -> None:
        with pytest.raises(BadRequestError):
            next(api.pages(PODS, ListOptions(namespace=namespace, field_selector="spec.x=1")))


class ReadContract(ClusterContract):
    def test_what_is_missing_is_not_found(self, api: ClusterApi, namespace: str) -> None:
        with pytest.raises(NotFoundError, match=r'^pods "nobody" not found$') as refusal:
            api.get(PODS, "nobody", namespace=namespace)
        assert refusal.value.details == {"name": "nobody", "kind": "pods"}

    @pytest.mark.parametrize(
        "name", ["nobody", "Nobody", "a/b", "a%2fb", "..", "", "x" * 254, "x" * 2**21]
    )
    def test_an_object_of_any_name_can_be_asked_for(
        self, api: ClusterApi, namespace: str, name: str
    ) -> None:
        assert find_object(api, PODS, name, namespace=namespace) is None
        assert find_object(api, PODS, "web", namespace=name) is None
        assert find_object(api, NAMESPACES, name) is None

    def test_a_custom_resource_is_named_with_its_group(
        self, api: ClusterApi, namespace: str
    ) -> None:
        with pytest.raises(NotFoundError, match=r'^quotaledgers\.deferredquota\.io "x" not found$'):
            api.get(QUOTA_LEDGERS, "x", namespace=namespace)

    def test_what_a_reader_changes_no_other_reader_sees(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        mapping(api.get(CONFIG_MAPS, "notes", namespace=namespace), "data")["text"] = "changed"
        listed = api.list(CONFIG_MAPS, ListOptions(namespace=namespace)).items
        mapping(listed[0], "metadata")["uid"] = "changed"
        mapping(notes.object, "data").clear()
        found = api.get(CONFIG_MAPS, "notes", namespace=namespace)
        assert mapping(found, "data") == {"text": "one"}
        assert meta(found)["uid"] == notes.uid

    def test_what_a_writer_keeps_can_be_changed_without_harm(
        self, api: ClusterApi, namespace: str
    ) -> None:
        sent = a_config_map(namespace=namespace, text="one")
        api.create(CONFIG_MAPS, sent)
        mapping(sent, "data")["text"] = "changed"
        found = api.get(CONFIG_MAPS, "notes", namespace=namespace)
        assert mapping(found, "data") == {"text": "one"}

    def test_a_list_holds_one_namespace_or_all(self, api: ClusterApi, namespace: str) -> None:
        api.create(CONFIG_MAPS, a_config_map("b", namespace=namespace))
        api.create(CONFIG_MAPS, a_config_map("a", namespace=namespace))
        api.create(CONFIG_MAPS, a_config_map("c", namespace="default"))
        assert names(api.list(CONFIG_MAPS, ListOptions(namespace=namespace)).items) == ["a", "b"]
        assert names(
            api.list(CONFIG_MAPS, ListOptions(field_selector="metadata.name=c")).items
        ) == ["c"]
        assert {"a", "b", "c"} <= set(names(api.list(CONFIG_MAPS).items))
        assert api.list(CONFIG_MAPS, ListOptions(namespace="nowhere")).items == ()

    @pytest.mark.parametrize(("selector", "expected"), LABELS.values(), ids=LABELS.keys())
    def test_labels_select(
        self, api: ClusterApi, namespace: str, selector: str, expected: list[str]
    ) -> None:
        for name, labels in {
            "plain": {},
            "web": {"app": "web", "tier": "front"},
            "web-2": {"app": "web", "tier": "back"},
        }.items():
            metadata = {"labels": labels}
            api.create(CONFIG_MAPS, a_config_map(name, namespace=namespace, metadata=metadata))
        found = api.list(
            CONFIG_MAPS, ListOptions(namespace=namespace, label_selector=selector)
        ).items
        assert names(found) == expected

    @pytest.mark.parametrize(("selector", "expected"), FIELDS.values(), ids=FIELDS.keys())
    def test_fields_select_pods(
        self, api: ClusterApi, namespace: str, selector: str, expected: list[str]
    ) -> None:
        api.create(PODS, a_pod(name="waiting", namespace=namespace))
        api.create(PODS, a_pod(name="placed", namespace=namespace, node="n1"))
        found = api.list(PODS, ListOptions(namespace=namespace, field_selector=selector)).items
        assert names(found) == expected

    @pytest.mark.parametrize(
        "selectors",
        [{"label_selector": "a in ("}, {"field_selector": "spec.x=1"}, {"field_selector": "x"}],
        ids=["label", "unknown field", "no operator"],
    )
    def test_a_selector_that_cannot_be_read_is_refused(
        self, api: ClusterApi, namespace: str, selectors: dict[str, str]
    ) -> None:
        with pytest.raises(BadRequestError):
            api.list(PODS, ListOptions(namespace, **selectors))
