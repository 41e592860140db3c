"""Where admission steps into writes of the fake API server, and what it sees there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders import a_binding, a_pod, a_quota
from tests.kube.builders import a_cluster, a_config_map, first, mapping, meta
from tests.kube.contract.base import SOON
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.fakecluster.storage.admission_hook import WriteRequest
from webhook.kube.api import (
    BINDINGS,
    CONFIG_MAPS,
    PODS,
    RESOURCE_QUOTAS,
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    Object,
    Preconditions,
)


class Recording:
    """An admission that remembers what it was asked and does what a test tells it to."""

    def __init__(
        self,
        change: Callable[[WriteRequest], Object | None] = lambda request: request.new,
        check: Callable[[WriteRequest], None] = lambda request: None,  # noqa: ARG005
    ) -> None:
        self.mutated: list[WriteRequest] = []
        self.validated: list[WriteRequest] = []
        self.change = change
        self.check = check

    def mutate(self, request: WriteRequest) -> Object | None:
        self.mutated.append(request)
        return self.change(request)

    def validate(self, request: WriteRequest) -> None:
        self.validated.append(request)
        self.check(request)


@pytest.fixture
def cluster() -> FakeCluster:
    return a_cluster()


@pytest.fixture
def asked() -> Recording:
    return Recording()


@pytest.fixture
def api(cluster: FakeCluster, asked: Recording) -> FakeClient:
    return FakeClient(cluster, admission=asked)


def new(request: WriteRequest) -> Object:
    assert request.new is not None
    return request.new


def labelled(request: WriteRequest) -> Object:
    """The object of a request with a label."""
    obj = new(request)
    return {**obj, "metadata": {**meta(obj), "labels": {"set-by": "admission"}}}


def refuse(request: WriteRequest) -> None:
    raise ForbiddenError(f"no {request.operation}")


class TestCreate:
    def test_what_is_not_chosen_yet_is_seen_only_when_validating(
        self, api: FakeClient, asked: Recording
    ) -> None:
        sent = a_pod(metadata={"generateName": "web-", "name": ""}, status={"hostIP": "10.0.0.1"})
        created = api.create(PODS, sent)
        early, late = asked.mutated[0], asked.validated[0]
        assert early.name == ""
        assert {"uid", "creationTimestamp", "name"}.isdisjoint(meta(new(early)))
        assert mapping(new(early), "status")["hostIP"] == "10.0.0.1"
        assert late.name == meta(created.object)["name"]
        assert meta(new(late))["uid"] == created.uid
        assert mapping(new(late), "status") == {"phase": "Pending"}
        assert "resourceVersion" not in meta(new(late))

    def test_a_request_says_what_is_done(self, api: FakeClient, asked: Recording) -> None:
        api.create(PODS, a_pod(), dry_run=True)
        request = asked.mutated[0]
        assert (request.operation, request.kind, request.resource) == ("CREATE", PODS, PODS)
        assert (request.subresource, request.namespace, request.name) == ("", "team-a", "web-1")
        assert (request.old, request.dry_run) == (None, True)
        assert request.options == {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "dryRun": ["All"],
        }

    def test_what_admission_makes_of_an_object_is_stored(
        self, api: FakeClient, asked: Recording
    ) -> None:
        asked.change = labelled
        created = api.create(CONFIG_MAPS, a_config_map())
        assert meta(created.object)["labels"] == {"set-by": "admission"}
        assert meta(new(asked.validated[0]))["labels"] == {"set-by": "admission"}

    @pytest.mark.parametrize("phase", ["change", "check"])
    def test_what_admission_refuses_is_not_stored(
        self, api: FakeClient, asked: Recording, phase: str
    ) -> None:
        setattr(asked, phase, refuse)
        with pytest.raises(ForbiddenError, match="no CREATE"):
            api.create(CONFIG_MAPS, a_config_map())
        assert api.list(CONFIG_MAPS).items == ()

    def test_the_rules_of_the_kind_lie_between_the_phases(
        self, api: FakeClient, asked: Recording
    ) -> None:
        with pytest.raises(Exception, match="cannot be set until all schedulingGates"):
            api.create(PODS, a_pod(node="n1", schedulingGates=[{"name": "a"}]))
        assert (len(asked.mutated), len(asked.validated)) == (1, 0)

    def test_a_generated_name_that_is_taken_validates_again_with_a_new_uid(self) -> None:
        sent = a_config_map("", metadata={"generateName": "notes-"})
        taken = FakeClient(a_cluster(seed=7)).create(CONFIG_MAPS, sent).key.partition("/")[2]
        asked = Recording()
        api = FakeClient(a_cluster(seed=7), admission=asked)
        api.create(CONFIG_MAPS, a_config_map(taken))
        api.create(CONFIG_MAPS, sent)
        assert len(asked.mutated) == 2
        uids = [meta(new(request))["uid"] for request in asked.validated]
        assert len(set(uids)) == len(uids) == 3

    def test_admission_cannot_move_an_object_or_take_it_away(
        self, api: FakeClient, asked: Recording
    ) -> None:
        asked.change = lambda _: a_config_map(namespace="team-b")
        with pytest.raises(BadRequestError, match="does not match the namespace"):
            api.create(CONFIG_MAPS, a_config_map())
        asked.change = lambda _: None
        with pytest.raises(BadRequestError, match="took the object away"):
            api.create(CONFIG_MAPS, a_config_map())


class TestUpdate:
    def test_an_update_shows_old_and_new(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        before = FakeClient(cluster).create(RESOURCE_QUOTAS, a_quota("q"))
        patch = {"spec": {"hard": {"pods": "1"}}, "status": {"forged": "status"}}
        api.patch(RESOURCE_QUOTAS, "q", patch, namespace="team-a")
        early, late = asked.mutated[0], asked.validated[0]
        assert (early.operation, early.subresource, early.name) == ("UPDATE", "", "q")
        assert early.old == late.old == before.object
        assert mapping(new(early), "spec", "hard") == {"requests.cpu": "2", "pods": "1"}
        assert mapping(new(early), "status") == {"forged": "status"}
        assert mapping(new(late), "status") == {}
        assert meta(new(late))["resourceVersion"] == str(before.resource_version)
        assert early.options["kind"] == "UpdateOptions"

    SUBRESOURCES = ("status", "resize")

    @pytest.mark.parametrize("subresource", SUBRESOURCES)
    def test_a_subresource_is_named(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording, subresource: str
    ) -> None:
        FakeClient(cluster).create(PODS, a_pod())
        api.patch(PODS, "web-1", {}, namespace="team-a", subresource=subresource)
        assert asked.mutated[0].subresource == asked.validated[0].subresource == subresource

    def test_a_generation_is_counted_between_the_phases(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        FakeClient(cluster).create(PODS, a_pod())
        patch = {"spec": {"activeDeadlineSeconds": 5}}
        api.patch(PODS, "web-1", patch, namespace="team-a")
        assert meta(new(asked.mutated[0]))["generation"] == 1
        assert meta(new(asked.validated[0]))["generation"] == 2

    def test_a_write_that_loses_a_race_asks_everything_again(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        other = FakeClient(cluster)
        other.create(CONFIG_MAPS, a_config_map())
        asked.change = labelled

        def interfere(request: WriteRequest) -> None:
            if len(asked.validated) < 3:
                patch = {"data": {f"n{len(asked.validated)}": "x"}}
                other.patch(CONFIG_MAPS, request.name, patch, namespace="team-a")

        asked.check = interfere
        written = api.patch(CONFIG_MAPS, "notes", {"data": {"mine": "y"}}, namespace="team-a")
        assert mapping(written.object, "data") == {"n1": "x", "n2": "x", "mine": "y"}
        assert meta(written.object)["labels"] == {"set-by": "admission"}
        assert (len(asked.mutated), len(asked.validated)) == (3, 3)

    def test_a_write_of_one_version_that_loses_a_race_is_a_conflict(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        other = FakeClient(cluster)
        before = other.create(CONFIG_MAPS, a_config_map())
        asked.check = lambda request: _touch(other, request.name)
        with pytest.raises(ConflictError):
            api.update(CONFIG_MAPS, {**before.object, "data": {"mine": "y"}})
        data = mapping(api.get(CONFIG_MAPS, "notes", namespace="team-a"), "data")
        assert data == {"touched": "yes"}

    def test_admission_may_change_a_write_into_nothing(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        before = FakeClient(cluster).create(CONFIG_MAPS, a_config_map())
        asked.change = lambda request: request.old
        after = api.patch(CONFIG_MAPS, "notes", {"data": {"a": "b"}}, namespace="team-a")
        assert after.resource_version == before.resource_version


def _touch(api: FakeClient, name: str) -> None:
    api.patch(CONFIG_MAPS, name, {"data": {"touched": "yes"}}, namespace="team-a")


class TestDelete:
    def test_a_deletion_shows_what_goes(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        before = FakeClient(cluster).create(CONFIG_MAPS, a_config_map())
        api.delete(
            CONFIG_MAPS, "notes", namespace="team-a", preconditions=Preconditions(before.uid)
        )
        for request in (*asked.mutated, *asked.validated):
            assert (request.operation, request.new, request.old) == ("DELETE", None, before.object)
            assert request.options == {
                "kind": "DeleteOptions",
                "apiVersion": "meta.k8s.io/v1",
                "preconditions": {"uid": before.uid},
            }
        assert len(asked.mutated) == len(asked.validated) == 1

    def test_a_pod_deleted_without_grace_is_asked_about_twice(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        FakeClient(cluster).create(PODS, a_pod(node="n1"))
        api.delete(PODS, "web-1", namespace="team-a", grace_period_seconds=0)
        marked = ["deletionTimestamp" in meta(one.old or {}) for one in asked.validated]
        assert marked == [False, True]
        assert {one.options["gracePeriodSeconds"] for one in asked.mutated} == {0}

    @pytest.mark.parametrize("recreate", [False, True])
    def test_a_pod_that_another_client_removes_meanwhile_is_gone(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording, *, recreate: bool
    ) -> None:
        other = FakeClient(cluster)
        other.create(PODS, a_pod(node="n1"))

        def remove_first(request: WriteRequest) -> None:
            if "deletionTimestamp" in meta(request.old or {}):
                other.delete(PODS, "web-1", namespace="team-a", grace_period_seconds=0)
                if recreate:
                    other.create(PODS, a_pod(node="n2"))

        asked.check = remove_first
        gone = api.delete(PODS, "web-1", namespace="team-a", grace_period_seconds=0)
        assert "deletionTimestamp" in meta(gone.object)
        nodes = [mapping(pod, "spec")["nodeName"] for pod in other.list(PODS).items]
        assert nodes == (["n2"] if recreate else [])

    def test_a_deletion_that_loses_a_race_looks_again(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        other = FakeClient(cluster)
        before = other.create(CONFIG_MAPS, a_config_map())

        def interfere(request: WriteRequest) -> None:
            if len(asked.validated) == 1:
                _touch(other, request.name)

        asked.check = interfere
        version = before.resource_version
        with pytest.raises(ConflictError, match="might have been modified"):
            api.delete(
                CONFIG_MAPS, "notes", namespace="team-a", preconditions=Preconditions("", version)
            )
        api.delete(
            CONFIG_MAPS, "notes", namespace="team-a", preconditions=Preconditions(before.uid)
        )
        assert other.list(CONFIG_MAPS).items == ()

    def test_a_pod_that_finalizers_hold_is_asked_about_once(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        FakeClient(cluster).create(PODS, a_pod(metadata={"finalizers": ["example.com/hold"]}))
        api.delete(PODS, "web-1", namespace="team-a")
        assert len(asked.validated) == 1

    def test_a_refused_deletion_leaves_the_object(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        FakeClient(cluster).create(CONFIG_MAPS, a_config_map())
        asked.check = refuse
        with pytest.raises(ForbiddenError, match="no DELETE"):
            api.delete(CONFIG_MAPS, "notes", namespace="team-a")
        assert len(api.list(CONFIG_MAPS).items) == 1


class TestBind:
    def test_a_bind_shows_the_binding(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        pod = FakeClient(cluster).create(PODS, a_pod())
        api.bind(a_binding(uid=pod.uid))
        for request in (asked.mutated[0], asked.validated[0]):
            assert (request.operation, request.kind, request.resource) == ("CREATE", BINDINGS, PODS)
            assert (request.subresource, request.name) == ("binding", "web-1")
            assert (new(request), request.old) == (a_binding(uid=pod.uid), None)

    def test_the_old_path_shows_no_uid_and_another_resource(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        FakeClient(cluster).create(PODS, a_pod())
        api.bind(a_binding(uid="forgotten"), legacy=True)
        request = asked.mutated[0]
        assert (request.resource, request.subresource) == (BINDINGS, "")
        assert new(request) == a_binding()

    @pytest.mark.parametrize("legacy", [False, True])
    def test_a_uid_that_admission_stamps_is_a_precondition(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording, *, legacy: bool
    ) -> None:
        pod = FakeClient(cluster).create(PODS, a_pod())
        asked.change = lambda _: a_binding(uid="another")
        with pytest.raises(ConflictError, match="UID in precondition: another"):
            api.bind(a_binding(), legacy=legacy)
        asked.change = lambda _: a_binding(uid=pod.uid, annotations={"stamped": "yes"})
        api.bind(a_binding(), legacy=legacy)
        bound = api.get(PODS, "web-1", namespace="team-a")
        assert meta(bound)["annotations"] == {"stamped": "yes"}

    def test_a_refused_bind_leaves_the_pod(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        pod = FakeClient(cluster).create(PODS, a_pod())
        asked.check = refuse
        with pytest.raises(ForbiddenError, match="no CREATE"):
            api.bind(a_binding())
        assert api.get(PODS, "web-1", namespace="team-a") == pod.object

    def test_storage_looks_at_the_pod_as_it_is_after_admission(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        other = FakeClient(cluster)
        other.create(PODS, a_pod())
        asked.check = lambda _: other.bind(a_binding(node="faster"))
        with pytest.raises(ConflictError, match='already assigned to node "faster"'):
            api.bind(a_binding())

    def test_a_pod_that_changes_meanwhile_is_bound_all_the_same(
        self, cluster: FakeCluster, api: FakeClient, asked: Recording
    ) -> None:
        other = FakeClient(cluster)
        pod = other.create(PODS, a_pod())
        patch = {"metadata": {"labels": {"a": "b"}}}
        asked.check = lambda _: _ignore(other.patch(PODS, "web-1", patch, namespace="team-a"))
        api.bind(a_binding())
        with api.watch(PODS, resource_version=pod.resource_version, timeout_seconds=SOON) as stream:
            bound = first(stream, 2)[1].object
        assert (meta(bound)["labels"], mapping(bound, "spec")["nodeName"]) == ({"a": "b"}, "node-1")


def _ignore(value: object) -> None:
    del value


def test_two_creates_of_one_name_are_one(cluster: FakeCluster) -> None:
    other = FakeClient(cluster)
    asked = Recording(check=lambda _: _ignore(other.create(CONFIG_MAPS, a_config_map())))
    with pytest.raises(AlreadyExistsError):
        FakeClient(cluster, admission=asked).create(CONFIG_MAPS, a_config_map(text="late"))
