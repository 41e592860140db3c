"""The fake cluster as a whole: its clock, uids and names, namespaces, loading, what is shared."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.builders import a_binding, a_pod, a_quota
from tests.kube.builders import (
    NOW,
    a_cluster,
    a_config_map,
    a_ledger,
    first,
    mapping,
    meta,
    names,
)
from tests.kube.contract.base import SOON
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.jsonfields.encoding import NumberText
from webhook.kube.api import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    AlreadyExistsError,
    ApiError,
    BadRequestError,
    ConflictError,
    Kind,
    NotFoundError,
    Object,
)


@pytest.fixture
def cluster() -> FakeCluster:
    return a_cluster()


@pytest.fixture
def api(cluster: FakeCluster) -> FakeClient:
    return FakeClient(cluster)


def a_namespace(name: str = "team-a", **labels: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }


class TestSources:
    def test_the_same_sources_make_the_same_cluster(self) -> None:
        def story() -> Object:
            api = FakeClient(a_cluster(seed=7))
            generated = a_config_map("", metadata={"generateName": "notes-"})
            return api.create(CONFIG_MAPS, generated).object

        assert story() == story()
        assert meta(story())["uid"] == "uid-1"
        assert meta(story())["resourceVersion"] == "1001"

    def test_times_are_in_whole_seconds_of_utc(self) -> None:
        moment = datetime(2026, 1, 5, 8, 0, 1, 999_999, tzinfo=UTC)
        api = FakeClient(FakeCluster(clock=lambda: moment))
        created = api.create(CONFIG_MAPS, a_config_map())
        assert meta(created.object)["creationTimestamp"] == "2026-01-05T08:00:01Z"

    def test_a_generated_name_that_is_taken_is_drawn_again(self) -> None:
        sent = a_config_map("", metadata={"generateName": "notes-"})
        taken = FakeClient(a_cluster(seed=7)).create(CONFIG_MAPS, sent).key.partition("/")[2]
        api = FakeClient(a_cluster(seed=7))
        api.create(CONFIG_MAPS, a_config_map(taken))
        assert api.create(CONFIG_MAPS, sent).key != f"team-a/{taken}"

    def test_a_long_prefix_is_cut_so_that_the_name_fits(self, api: FakeClient) -> None:
        sent = a_config_map("", metadata={"generateName": "n" * 100})
        name = api.create(CONFIG_MAPS, sent).key.partition("/")[2]
        assert len(name) == 63

    def test_pods_get_the_class_that_the_cluster_names(self) -> None:
        def by_annotation(pod: Object) -> str:
            return str(mapping(pod, "metadata", "annotations")["class"])

        api = FakeClient(a_cluster(qos=by_annotation))
        pod = api.create(PODS, a_pod(metadata={"annotations": {"class": "Burstable"}}))
        assert mapping(pod.object, "status") == {"phase": "Pending", "qosClass": "Burstable"}

    def test_clients_of_one_cluster_see_the_same(self, cluster: FakeCluster) -> None:
        written = FakeClient(cluster).create(CONFIG_MAPS, a_config_map())
        assert FakeClient(cluster).get(CONFIG_MAPS, "notes", namespace="team-a") == written.object


PLACES: tuple[tuple[Kind, Object], ...] = (
    (CONFIG_MAPS, a_config_map(namespace="")),
    (NAMESPACES, {"metadata": {"name": "a", "namespace": "b"}}),
)


class TestNamespaces:
    @pytest.fixture
    def strict(self) -> FakeClient:
        return FakeClient(a_cluster(require_namespaces=True))

    def test_a_namespace_has_its_name_as_label(self, api: FakeClient) -> None:
        created = api.create(NAMESPACES, a_namespace("team-a", a="b"))
        assert meta(created.object)["labels"] == {"a": "b", "kubernetes.io/metadata.name": "team-a"}
        assert created.object["status"] == {"phase": "Active"}
        cleared = api.update(NAMESPACES, a_namespace("team-a"))
        assert meta(cleared.object)["labels"] == {"kubernetes.io/metadata.name": "team-a"}

    def test_nothing_can_be_created_in_a_namespace_that_is_not_there(
        self, strict: FakeClient
    ) -> None:
        with pytest.raises(NotFoundError, match=r'^namespaces "team-a" not found$'):
            strict.create(CONFIG_MAPS, a_config_map())
        strict.create(NAMESPACES, a_namespace())
        strict.create(CONFIG_MAPS, a_config_map())

    def test_what_was_in_a_namespace_goes_with_it(self, strict: FakeClient) -> None:
        for name in ("team-a", "team-b"):
            strict.create(NAMESPACES, a_namespace(name))
            strict.create(PODS, a_pod(namespace=name, node="n1"))
            strict.create(CONFIG_MAPS, a_config_map(namespace=name))
        strict.delete(NAMESPACES, "team-a")
        assert names(strict.list(NAMESPACES).items) == ["team-b"]
        assert len(strict.list(PODS).items) == len(strict.list(CONFIG_MAPS).items) == 1

    @pytest.mark.parametrize(("kind", "obj"), PLACES, ids=["missing", "too much"])
    def test_an_object_is_in_a_namespace_if_its_kind_is(
        self, api: FakeClient, kind: Kind, obj: Object
    ) -> None:
        with pytest.raises(BadRequestError, match="namespace may not be set"):
            api.create(kind, obj)


BROKEN: dict[str, tuple[Kind, Object, type[ApiError]]] = {
    "twice": (CONFIG_MAPS, a_config_map("good"), AlreadyExistsError),
    "no name": (CONFIG_MAPS, a_config_map(""), BadRequestError),
    "no namespace": (CONFIG_MAPS, a_config_map(namespace=""), BadRequestError),
    "namespace of a cluster kind": (
        NAMESPACES,
        {"metadata": {"name": "a", "namespace": "b"}},
        BadRequestError,
    ),
    "another kind": (PODS, a_config_map(), BadRequestError),
    "a node of the wrong type": (PODS, {**a_pod(), "spec": {"nodeName": 5}}, BadRequestError),
    "a version that is none": (
        CONFIG_MAPS,
        a_config_map(metadata={"resourceVersion": "new"}),
        BadRequestError,
    ),
    "not JSON": (CONFIG_MAPS, {**a_config_map(), "data": {"a": object()}}, BadRequestError),
}


class TestLoading:
    def test_what_is_loaded_keeps_uid_status_and_times(self, cluster: FakeCluster) -> None:
        metadata = {
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "deletionTimestamp": "2020-01-01T00:01:00Z",
            "deletionGracePeriodSeconds": 30,
            "generation": 4,
        }
        pod = a_pod(node="n1", uid="kept", metadata=metadata, status={"phase": "Running"})
        cluster.load([(PODS, pod)])
        found = FakeClient(cluster).get(PODS, "web-1", namespace="team-a")
        assert meta(found) == {**meta(pod), "resourceVersion": "1001"}
        assert (found["spec"], found["status"]) == (pod["spec"], pod["status"])

    def test_what_is_missing_is_filled_in(self, cluster: FakeCluster) -> None:
        cluster.load([(NAMESPACES, a_namespace()), (QUOTA_LEDGERS, a_ledger())])
        namespace, ledger = (
            meta(FakeClient(cluster).list(kind).items[0]) for kind in (NAMESPACES, QUOTA_LEDGERS)
        )
        assert namespace["uid"]
        assert namespace["labels"] == {"kubernetes.io/metadata.name": "team-a"}
        assert ledger["creationTimestamp"] == NOW.isoformat().replace("+00:00", "Z")
        assert ledger["generation"] == 1

    def test_versions_go_on_above_what_was_loaded(self, cluster: FakeCluster) -> None:
        cluster.load([(CONFIG_MAPS, a_config_map(metadata={"resourceVersion": "41234"}))])
        assert cluster.resource_version == 41235
        assert FakeClient(cluster).list(CONFIG_MAPS).resource_version == 41235

    def test_a_running_watch_sees_what_is_loaded(self, cluster: FakeCluster) -> None:
        api = FakeClient(cluster)
        with api.watch(CONFIG_MAPS, resource_version=1000, timeout_seconds=SOON) as stream:
            cluster.load([(CONFIG_MAPS, a_config_map("a")), (CONFIG_MAPS, a_config_map("b"))])
            assert [event.key for event in first(stream, 2)] == ["team-a/a", "team-a/b"]

    @pytest.mark.parametrize(("kind", "obj", "error"), BROKEN.values(), ids=BROKEN.keys())
    def test_one_bad_object_loads_nothing(
        self, cluster: FakeCluster, kind: Kind, obj: Object, error: type[ApiError]
    ) -> None:
        with pytest.raises(error):
            cluster.load([(CONFIG_MAPS, a_config_map("good")), (kind, obj)])
        assert FakeClient(cluster).list(CONFIG_MAPS).items == ()

    def test_what_is_there_is_not_loaded_again(self, cluster: FakeCluster) -> None:
        cluster.load([(CONFIG_MAPS, a_config_map())])
        with pytest.raises(AlreadyExistsError):
            cluster.load([(CONFIG_MAPS, a_config_map("other")), (CONFIG_MAPS, a_config_map())])
        assert len(FakeClient(cluster).list(CONFIG_MAPS).items) == 1


def deep(levels: int) -> object:
    """Lists in lists."""
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


NOT_JSON: dict[str, object] = {
    "a surrogate": "\ud800",
    "an object of Python": object(),
    "deep": deep(100_000),
    "a key of two parts": {("a",): 1},
}


READERS: dict[str, Callable[[FakeClient], object]] = {
    "pods": lambda api: api.create(PODS, {**a_pod(), "spec": {"schedulingGates": "x"}}),
    "status": lambda api: api.create(PODS, {**a_pod(), "status": {"qosClass": {}}}),
    "metadata": lambda api: api.create(PODS, {**a_pod(), "metadata": 5}),
    "spec": lambda api: api.create(PODS, {**a_pod(), "spec": []}),
    "binding": lambda api: api.bind({**a_binding(), "target": []}),
    "version": lambda api: api.update(PODS, a_pod(metadata={"resourceVersion": "x"})),
}


class TestContent:
    def test_a_status_write_shares_the_spec_it_does_not_touch(self, api: FakeClient) -> None:
        version = api.create(QUOTA_LEDGERS, a_ledger()).resource_version
        before = api.cluster.get(QUOTA_LEDGERS, "team-a", "ledger")
        api.update_status(QUOTA_LEDGERS, a_ledger(version=version, status={"summary": "new"}))
        after = api.cluster.get(QUOTA_LEDGERS, "team-a", "ledger")
        assert after.parts["spec"] is before.parts["spec"]
        assert after.meta.uid == before.meta.uid

    def test_numbers_stay_as_they_were_written(self, api: FakeClient) -> None:
        sent = {**a_quota(), "spec": {"hard": {"requests.cpu": NumberText("0.50"), "pods": 7}}}
        created = api.create(RESOURCE_QUOTAS, sent)
        assert b'"requests.cpu":0.50,"pods":7' in created.data
        hard = mapping(created.object, "spec", "hard")
        assert hard == {"requests.cpu": "0.50", "pods": 7}
        assert isinstance(hard["requests.cpu"], NumberText)

    def test_a_field_that_is_null_is_a_field_that_is_not_there(self, api: FakeClient) -> None:
        sent = a_config_map(metadata={"labels": None, "creationTimestamp": None, "uid": None})
        created = api.create(CONFIG_MAPS, {**sent, "immutable": None})
        assert set(created.object) == {"apiVersion", "kind", "metadata", "data"}
        pod = api.create(PODS, {**a_pod(), "status": None})
        assert mapping(pod.object, "status") == {"phase": "Pending"}

    def test_field_owners_are_not_kept(self, api: FakeClient) -> None:
        sent = a_config_map(metadata={"managedFields": [{"manager": "kubectl"}], "strange": 1})
        assert set(meta(api.create(CONFIG_MAPS, sent).object)) == {
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
        }

    def test_a_version_cannot_be_given_to_a_new_object(self, api: FakeClient) -> None:
        with pytest.raises(BadRequestError, match="resourceVersion should not be set"):
            api.create(CONFIG_MAPS, a_config_map(metadata={"resourceVersion": "5"}))

    @pytest.mark.parametrize("value", NOT_JSON.values(), ids=NOT_JSON.keys())
    def test_what_is_not_json_is_refused(self, api: FakeClient, value: object) -> None:
        with pytest.raises(BadRequestError, match="cannot be written as JSON"):
            api.create(CONFIG_MAPS, {**a_config_map(), "data": value})

    @pytest.mark.parametrize("send", READERS.values(), ids=READERS.keys())
    def test_a_field_of_the_wrong_type_is_refused_with_its_name(
        self, api: FakeClient, send: Callable[[FakeClient], object]
    ) -> None:
        api.cluster.load([(PODS, a_pod(metadata={"creationTimestamp": None}))])
        with pytest.raises(BadRequestError):
            send(api)


TARGETS = {
    "another kind": (
        {"kind": "Pod", "name": "n1"},
        'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"',
    ),
    "no name": ({"kind": "Node"}, "target.name: Required value"),
    "nothing": ({}, "target.name: Required value"),
}


class TestBinding:
    def test_the_old_path_forgets_the_uid(self, api: FakeClient) -> None:
        api.create(PODS, a_pod())
        with pytest.raises(ConflictError):
            api.bind(a_binding(uid="wrong"))
        api.bind(a_binding(uid="wrong"), legacy=True)
        assert mapping(api.get(PODS, "web-1", namespace="team-a"), "spec")["nodeName"] == "node-1"

    @pytest.mark.parametrize(("target", "text"), TARGETS.values(), ids=TARGETS.keys())
    def test_a_binding_must_name_a_node(
        self, api: FakeClient, target: dict[str, str], text: str
    ) -> None:
        api.create(PODS, a_pod())
        with pytest.raises(ApiError) as refusal:
            api.bind({**a_binding(), "target": target})
        assert (refusal.value.code, refusal.value.message) == (500, text)

    def test_a_binding_for_another_namespace_is_refused(self, api: FakeClient) -> None:
        with pytest.raises(BadRequestError, match="does not match the namespace sent"):
            api.bind(a_binding(), namespace="team-b")

    def test_a_bind_keeps_other_conditions_and_ends_a_nomination(self, api: FakeClient) -> None:
        ready = {
            "type": "Ready",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": "2020-01-01T00:00:00Z",
        }
        waiting = {**ready, "type": "PodScheduled", "reason": "Unschedulable", "message": "no node"}
        status = {"nominatedNodeName": "n9", "conditions": [waiting, ready]}
        api.cluster.load([(PODS, a_pod(status=status))])
        api.bind(a_binding())
        found = mapping(api.get(PODS, "web-1", namespace="team-a"), "status")
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": NOW.isoformat().replace("+00:00", "Z"),
        }
        assert found == {"phase": "Pending", "conditions": [scheduled, ready]}

    def test_a_pod_that_was_scheduled_keeps_the_time_of_it(self, api: FakeClient) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": "2020-01-01T00:00:00Z",
        }
        api.cluster.load([(PODS, a_pod(status={"conditions": [condition]}))])
        api.bind(a_binding())
        found = mapping(api.get(PODS, "web-1", namespace="team-a"), "status")
        assert found["conditions"] == [condition]


class TestDeletion:
    def test_a_deletion_without_grace_is_seen_as_two_writes(self, api: FakeClient) -> None:
        api.create(PODS, a_pod(node="n1"))
        api.delete(PODS, "web-1", namespace="team-a", grace_period_seconds=0)
        with api.watch(PODS, resource_version=1000, timeout_seconds=SOON) as stream:
            events = first(stream, 3)
        assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
        assert meta(events[2].object)["deletionGracePeriodSeconds"] == 0
        assert meta(events[2].object)["generation"] == 2

    def test_a_negative_grace_period_is_one_second(self, api: FakeClient) -> None:
        api.create(PODS, a_pod(node="n1"))
        api.delete(PODS, "web-1", namespace="team-a", grace_period_seconds=-5)
        found = meta(api.get(PODS, "web-1", namespace="team-a"))
        assert found["deletionGracePeriodSeconds"] == 1
        assert found["deletionTimestamp"] == "2026-01-05T08:00:01Z"

    def test_an_update_cannot_take_a_deletion_back(self, api: FakeClient) -> None:
        api.create(PODS, a_pod(node="n1", terminationGracePeriodSeconds=30))
        ending = api.delete(PODS, "web-1", namespace="team-a")
        patch = {"metadata": {"deletionTimestamp": None, "labels": {"a": "b"}}}
        api.patch(PODS, "web-1", patch, namespace="team-a")
        found = meta(api.get(PODS, "web-1", namespace="team-a"))
        assert found["deletionTimestamp"] == meta(ending.object)["deletionTimestamp"]
