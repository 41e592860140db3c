"""Creating, updating and patching."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders import a_pod, a_quota
from tests.kube.builders import (
    a_config_map,
    a_ledger,
    mapping,
    meta,
)
from tests.kube.contract.base import STATUS, ClusterContract, run_together
from webhook.kube.api import (
    CONFIG_MAPS,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    AlreadyExistsError,
    BadRequestError,
    ClusterApi,
    ConflictError,
    InvalidError,
    ListOptions,
    NotFoundError,
    Object,
    Revision,
)

BROKEN: dict[str, list[dict[str, object]]] = {
    "a test that fails": [{"op": "test", "path": "/data/text", "value": "x"}],
    "removing what is not there": [{"op": "remove", "path": "/data/x"}],
    "replacing below what is not there": [{"op": "replace", "path": "/x/y", "value": "1"}],
    "adding below what is not there": [{"op": "add", "path": "/x/y", "value": "1"}],
}
MALFORMED: dict[str, list[dict[str, object]]] = {
    "unknown op": [{"op": "frob", "path": "/data"}],
    "no path": [{"op": "remove"}],
    "path of a number": [{"op": "remove", "path": 5}],
}


def notes_like(notes: Revision) -> Object:
    """The same object as somebody would send it who has not seen it."""
    metadata = {name: meta(notes.object)[name] for name in ("name", "namespace")}
    return {**notes.object, "metadata": metadata}


class CreateContract(ClusterContract):
    def test_a_created_object_can_be_read(self, api: ClusterApi, namespace: str) -> None:
        created = api.create(CONFIG_MAPS, a_config_map(namespace=namespace, text="one"))
        found = api.get(CONFIG_MAPS, "notes", namespace=namespace)
        assert found == created.object
        assert mapping(found, "data") == {"text": "one"}
        assert created.key == f"{namespace}/notes"
        assert meta(found)["uid"] == created.uid
        assert meta(found)["resourceVersion"] == str(created.resource_version)

    def test_the_server_chooses_uid_and_creation_time(
        self, api: ClusterApi, namespace: str
    ) -> None:
        sent = {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z"}
        created = api.create(CONFIG_MAPS, a_config_map(namespace=namespace, metadata=sent))
        assert created.uid not in ("", "mine")
        assert meta(created.object)["creationTimestamp"] != sent["creationTimestamp"]

    def test_a_name_can_be_generated(self, api: ClusterApi, namespace: str) -> None:
        sent = a_config_map("", namespace=namespace, metadata={"generateName": "notes-"})
        made = [str(meta(api.create(CONFIG_MAPS, sent).object)["name"]) for _ in range(3)]
        assert len(set(made)) == 3
        assert all(name.startswith("notes-") and len(name) == 11 for name in made)

    def test_an_object_needs_a_name(self, api: ClusterApi, namespace: str) -> None:
        with pytest.raises(InvalidError, match=r"metadata\.name: Required value: name or gen"):
            api.create(CONFIG_MAPS, a_config_map("", namespace=namespace))

    @pytest.mark.parametrize("name", ["Notes", "a b", "a/b", "-a", "a\nb", "é", "x" * 254])
    def test_a_name_must_be_a_dns_name(self, api: ClusterApi, namespace: str, name: str) -> None:
        with pytest.raises(InvalidError) as refusal:
            api.create(CONFIG_MAPS, a_config_map(name, namespace=namespace))
        causes = refusal.value.details["causes"]
        assert isinstance(causes, list)
        assert [cause["field"] for cause in causes] == ["metadata.name"]

    def test_a_name_is_taken_only_once(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        with pytest.raises(AlreadyExistsError, match=r'^configmaps "notes" already exists$'):
            api.create(CONFIG_MAPS, a_config_map(namespace=namespace, text="two"))
        assert api.get(CONFIG_MAPS, "notes", namespace=namespace) == notes.object

    def test_versions_grow_over_all_kinds(self, api: ClusterApi, namespace: str) -> None:
        versions = [
            api.create(CONFIG_MAPS, a_config_map(namespace=namespace)).resource_version,
            api.create(PODS, a_pod(namespace=namespace)).resource_version,
            api.create(RESOURCE_QUOTAS, a_quota(namespace=namespace)).resource_version,
            api.list(CONFIG_MAPS, ListOptions(namespace=namespace)).resource_version + 1,
        ]
        assert versions == sorted(set(versions))

    def test_a_new_object_has_no_status_of_its_senders(
        self, api: ClusterApi, namespace: str
    ) -> None:
        created = api.create(RESOURCE_QUOTAS, a_quota(namespace=namespace, used={"pods": "9"}))
        assert not created.object.get("status")

    @pytest.mark.parametrize(
        "metadata",
        [{"labels": {"a": 1}}, {"labels": []}, {"annotations": "x"}, {"finalizers": [1]}],
        ids=["label of a number", "labels as list", "annotations as text", "finalizer of a number"],
    )
    def test_metadata_of_the_wrong_type_is_refused(
        self, api: ClusterApi, namespace: str, metadata: dict[str, object]
    ) -> None:
        with pytest.raises(BadRequestError):
            api.create(CONFIG_MAPS, a_config_map(namespace=namespace, metadata=metadata))

    def test_an_object_of_another_kind_is_refused(self, api: ClusterApi, namespace: str) -> None:
        with pytest.raises(BadRequestError):
            api.create(PODS, a_config_map(namespace=namespace))

    def test_a_dry_run_creates_nothing(self, api: ClusterApi, namespace: str) -> None:
        tried = api.create(CONFIG_MAPS, a_config_map(namespace=namespace), dry_run=True)
        assert tried.uid
        with pytest.raises(NotFoundError):
            api.get(CONFIG_MAPS, "notes", namespace=namespace)

    def test_a_dry_run_is_refused_like_the_real_thing(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        with pytest.raises(AlreadyExistsError):
            api.create(CONFIG_MAPS, notes_like(notes), dry_run=True)
        with pytest.raises(InvalidError):
            api.create(CONFIG_MAPS, a_config_map("No", namespace=namespace), dry_run=True)


class UpdateContract(ClusterContract):
    def test_an_update_replaces_the_object(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        written = api.update(CONFIG_MAPS, {**notes.object, "data": {"text": "two"}})
        assert written.resource_version > notes.resource_version
        assert api.get(CONFIG_MAPS, "notes", namespace=namespace) == written.object
        assert mapping(written.object, "data") == {"text": "two"}

    def test_an_update_of_an_older_version_is_a_conflict(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        newest = api.update(CONFIG_MAPS, {**notes.object, "data": {"text": "two"}})
        with pytest.raises(
            ConflictError,
            match=r'^Operation cannot be fulfilled on configmaps "notes": the object has been '
            r"modified; please apply your changes to the latest version and try again$",
        ):
            api.update(CONFIG_MAPS, {**notes.object, "data": {"text": "three"}})
        assert api.get(CONFIG_MAPS, "notes", namespace=namespace) == newest.object

    def test_an_update_without_version_replaces_whatever_is_there(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        written = api.update(CONFIG_MAPS, a_config_map(namespace=namespace, text="two"))
        assert written.uid == notes.uid
        assert mapping(written.object, "data") == {"text": "two"}

    def test_an_update_of_a_custom_resource_must_name_the_version(
        self, api: ClusterApi, namespace: str
    ) -> None:
        api.create(QUOTA_LEDGERS, a_ledger(namespace=namespace))
        with pytest.raises(InvalidError, match="must be specified for an update"):
            api.update(QUOTA_LEDGERS, a_ledger(namespace=namespace))

    def test_an_update_for_another_uid_is_a_conflict(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        sent = a_config_map(namespace=namespace, metadata={"uid": "another"})
        with pytest.raises(ConflictError, match=f"another, UID in object meta: {notes.uid}$"):
            api.update(CONFIG_MAPS, sent)

    def test_an_update_creates_nothing(self, api: ClusterApi, namespace: str) -> None:
        with pytest.raises(NotFoundError):
            api.update(CONFIG_MAPS, a_config_map(namespace=namespace))

    def test_an_update_that_changes_nothing_keeps_the_version(
        self, api: ClusterApi, notes: Revision
    ) -> None:
        assert api.update(CONFIG_MAPS, notes.object).resource_version == notes.resource_version

    def test_an_update_leaves_the_status_alone(self, api: ClusterApi, namespace: str) -> None:
        created = api.create(RESOURCE_QUOTAS, a_quota(namespace=namespace))
        counted = api.update_status(RESOURCE_QUOTAS, {**created.object, "status": STATUS})
        spec = {"hard": {"requests.cpu": "3"}}
        written = api.update(RESOURCE_QUOTAS, {**counted.object, "spec": spec, "status": {}})
        assert (written.object["spec"], written.object["status"]) == (spec, STATUS)

    def test_a_status_update_leaves_the_spec_alone(self, api: ClusterApi, namespace: str) -> None:
        created = api.create(RESOURCE_QUOTAS, a_quota(namespace=namespace))
        sent = {**created.object, "spec": {"hard": {}}, "status": STATUS}
        written = api.update_status(RESOURCE_QUOTAS, sent)
        assert written.object["spec"] == created.object["spec"]
        assert written.object["status"] == STATUS

    def test_a_brief_status_update_writes_as_much_and_answers_the_identity(
        self, api: ClusterApi, namespace: str
    ) -> None:
        created = api.create(RESOURCE_QUOTAS, a_quota(namespace=namespace))
        sent = {**created.object, "status": STATUS}
        written = api.update_status(RESOURCE_QUOTAS, sent, is_brief=True)
        assert (written.key, written.uid) == (created.key, created.uid)
        stored = api.get(RESOURCE_QUOTAS, str(meta(created.object)["name"]), namespace=namespace)
        assert stored["status"] == STATUS
        assert meta(stored)["resourceVersion"] == str(written.resource_version)

    def test_a_status_update_of_an_older_version_is_a_conflict(
        self, api: ClusterApi, namespace: str
    ) -> None:
        created = api.create(QUOTA_LEDGERS, a_ledger(namespace=namespace))
        version = created.resource_version
        first_write = a_ledger(namespace=namespace, version=version, status={"summary": "one"})
        written = api.update_status(QUOTA_LEDGERS, first_write)
        second_write = a_ledger(namespace=namespace, version=version, status={"summary": "two"})
        with pytest.raises(ConflictError):
            api.update_status(QUOTA_LEDGERS, second_write)
        assert api.get(QUOTA_LEDGERS, "ledger", namespace=namespace) == written.object

    def test_a_status_update_of_a_custom_resource_keeps_its_metadata(
        self, api: ClusterApi, namespace: str
    ) -> None:
        created = api.create(QUOTA_LEDGERS, a_ledger(namespace=namespace))
        sent = a_ledger(namespace=namespace, version=created.resource_version, status={"a": 1})
        mapping(sent, "metadata")["labels"] = {"new": "label"}
        written = api.update_status(QUOTA_LEDGERS, sent)
        assert "labels" not in meta(written.object)
        assert meta(written.object)["generation"] == 1

    def test_a_kind_without_status_has_none_to_update(
        self, api: ClusterApi, notes: Revision
    ) -> None:
        with pytest.raises(NotFoundError, match="could not find the requested resource"):
            api.update_status(CONFIG_MAPS, notes.object)

    def test_the_generation_counts_changes_of_the_spec(
        self, api: ClusterApi, namespace: str
    ) -> None:
        created = api.create(QUOTA_LEDGERS, a_ledger(namespace=namespace))
        labelled = api.patch(
            QUOTA_LEDGERS, "ledger", {"metadata": {"labels": {"a": "b"}}}, namespace=namespace
        )
        changed = api.patch(QUOTA_LEDGERS, "ledger", {"spec": {"a": 1}}, namespace=namespace)
        generations = [meta(each.object)["generation"] for each in (created, labelled, changed)]
        assert generations == [1, 1, 2]

    def test_the_order_of_fields_is_no_change_of_the_spec(
        self, api: ClusterApi, namespace: str
    ) -> None:
        sent = {**a_ledger(namespace=namespace), "spec": {"a": 1, "b": 2}}
        created = api.create(QUOTA_LEDGERS, sent)
        written = api.update(QUOTA_LEDGERS, {**created.object, "spec": {"b": 2, "a": 1}})
        assert meta(written.object)["generation"] == 1

    def test_a_writer_cannot_set_the_generation(self, api: ClusterApi, namespace: str) -> None:
        created = api.create(QUOTA_LEDGERS, a_ledger(namespace=namespace))
        sent = {**created.object, "metadata": {**meta(created.object), "generation": 99}}
        assert meta(api.update(QUOTA_LEDGERS, sent).object)["generation"] == 1

    def test_a_dry_run_updates_nothing(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        sent = {**notes.object, "data": {"text": "two"}}
        tried = api.update(CONFIG_MAPS, sent, dry_run=True)
        assert mapping(tried.object, "data") == {"text": "two"}
        assert api.get(CONFIG_MAPS, "notes", namespace=namespace) == notes.object

    def test_no_update_is_lost_among_many_writers(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        del notes

        def count_up() -> None:
            done = 0
            while done < 10:
                found = api.get(CONFIG_MAPS, "notes", namespace=namespace)
                number = int(str(mapping(found, "data").get("count", "0"))) + 1
                try:
                    api.update(CONFIG_MAPS, {**found, "data": {"count": str(number)}})
                except ConflictError:
                    continue
                done += 1

        run_together(*[count_up] * 4)
        found = api.get(CONFIG_MAPS, "notes", namespace=namespace)
        assert mapping(found, "data") == {"count": "40"}


class PatchContract(ClusterContract):
    def test_a_json_patch_changes_what_it_names(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        written = api.patch(
            CONFIG_MAPS,
            "notes",
            [
                {"op": "test", "path": "/metadata/uid", "value": notes.uid},
                {"op": "replace", "path": "/data/text", "value": "two"},
                {"op": "add", "path": "/metadata/labels", "value": {}},
                {"op": "add", "path": "/metadata/labels/example.com~1b", "value": "three"},
            ],
            namespace=namespace,
        )
        assert mapping(written.object, "data") == {"text": "two"}
        assert meta(written.object)["labels"] == {"example.com/b": "three"}
        assert written.resource_version > notes.resource_version

    @pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
    def test_a_json_patch_applies_as_a_whole_or_not_at_all(
        self,
        api: ClusterApi,
        namespace: str,
        notes: Revision,
        broken: list[dict[str, object]],
    ) -> None:
        fine: dict[str, object] = {"op": "add", "path": "/data/new", "value": "1"}
        patch = [fine, *broken]
        with pytest.raises(InvalidError, match="due to an error in our request"):
            api.patch(CONFIG_MAPS, "notes", patch, namespace=namespace)
        assert api.get(CONFIG_MAPS, "notes", namespace=namespace) == notes.object

    @pytest.mark.parametrize("patch", MALFORMED.values(), ids=MALFORMED.keys())
    def test_a_json_patch_must_be_well_formed(
        self, api: ClusterApi, namespace: str, notes: Revision, patch: list[dict[str, object]]
    ) -> None:
        del notes
        with pytest.raises((BadRequestError, InvalidError)):
            api.patch(CONFIG_MAPS, "notes", patch, namespace=namespace)

    def test_a_merge_patch_replaces_and_removes(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        del notes
        patch = {"metadata": {"labels": {"a": "b"}}, "data": {"text": None, "more": "two"}}
        written = api.patch(CONFIG_MAPS, "notes", patch, namespace=namespace)
        assert mapping(written.object, "data") == {"more": "two"}
        assert meta(written.object)["labels"] == {"a": "b"}

    def test_a_patch_of_the_status_changes_nothing_else(
        self, api: ClusterApi, namespace: str
    ) -> None:
        created = api.create(RESOURCE_QUOTAS, a_quota("q", namespace=namespace))
        patch = {"spec": {"hard": {"pods": "1"}}, "status": STATUS}
        written = api.patch(RESOURCE_QUOTAS, "q", patch, namespace=namespace, subresource="status")
        assert written.object["spec"] == created.object["spec"]
        assert written.object["status"] == STATUS

    def test_a_patch_that_names_an_older_version_is_a_conflict(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        api.patch(CONFIG_MAPS, "notes", {"data": {"text": "two"}}, namespace=namespace)
        patch = {"metadata": {"resourceVersion": str(notes.resource_version)}, "data": {"a": "b"}}
        with pytest.raises(ConflictError):
            api.patch(CONFIG_MAPS, "notes", patch, namespace=namespace)

    def test_a_patch_of_nothing_is_not_found(self, api: ClusterApi, namespace: str) -> None:
        with pytest.raises(NotFoundError):
            api.patch(CONFIG_MAPS, "notes", {}, namespace=namespace)

    def test_a_dry_run_patches_nothing(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        patch = {"data": {"text": "two"}}
        tried = api.patch(CONFIG_MAPS, "notes", patch, namespace=namespace, dry_run=True)
        assert mapping(tried.object, "data") == {"text": "two"}
        assert api.get(CONFIG_MAPS, "notes", namespace=namespace) == notes.object

    def test_patches_of_different_fields_do_not_disturb_each_other(
        self, api: ClusterApi, namespace: str, notes: Revision
    ) -> None:
        del notes

        def patcher(field: str) -> Callable[[], None]:
            def patch_often() -> None:
                for number in range(10):
                    patch = {"data": {field: str(number)}}
                    api.patch(CONFIG_MAPS, "notes", patch, namespace=namespace)

            return patch_often

        run_together(*[patcher(field) for field in ("a", "b", "c")])
        found = mapping(api.get(CONFIG_MAPS, "notes", namespace=namespace), "data")
        assert found == {"text": "one", "a": "9", "b": "9", "c": "9"}
