"""Getting, listing and selecting."""

from __future__ import annotations

import pytest

from tests.builders import a_pod
from tests.cluster.builders import (
    a_config_map,
    mapping,
    meta,
    names,
)
from tests.cluster.contract.base import ClusterContract
from webhook.cluster.api import (
    CONFIG_MAPS,
    PODS,
    QUOTA_LEDGERS,
    BadRequestError,
    ClusterApi,
    NotFoundError,
    Revision,
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


class ReadContract(ClusterContract):
    def test_what_is_missing_is_not_found(self, api: ClusterApi, namespace: str) -> None:
        with pytest.raises(NotFoundError, match=r'^pods "nobody" not found$') as refusal:
            api.get(PODS, "nobody", namespace=namespace)
        assert refusal.value.details == {"name": "nobody", "kind": "pods"}

    def test_a_custom_resource_is_named_with_its_group(
        self, api: ClusterApi, namespace: str
    ) -> None:
        with pytest.raises(NotFoundError, match=r'^quotaledgers\.deferredquota\.io "x" not found$'):
            api.get(QUOTA_LEDGERS, "x", namespace=namespace)

    def test_what_a_reader_changes_no_other_reader_sees(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        mapping(api.get(CONFIG_MAPS, "notes", namespace=namespace), "data")["text"] = "changed"
        listed = api.list(CONFIG_MAPS, namespace=namespace).items
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
        assert names(api.list(CONFIG_MAPS, namespace=namespace).items) == ["a", "b"]
        assert names(api.list(CONFIG_MAPS, field_selector="metadata.name=c").items) == ["c"]
        assert {"a", "b", "c"} <= set(names(api.list(CONFIG_MAPS).items))
        assert api.list(CONFIG_MAPS, namespace="nowhere").items == ()

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
        found = api.list(CONFIG_MAPS, namespace=namespace, label_selector=selector).items
        assert names(found) == expected

    @pytest.mark.parametrize(("selector", "expected"), FIELDS.values(), ids=FIELDS.keys())
    def test_fields_select_pods(
        self, api: ClusterApi, namespace: str, selector: str, expected: list[str]
    ) -> None:
        api.create(PODS, a_pod(name="waiting", namespace=namespace))
        api.create(PODS, a_pod(name="placed", namespace=namespace, node="n1"))
        found = api.list(PODS, namespace=namespace, field_selector=selector).items
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
            api.list(PODS, namespace=namespace, **selectors)
