"""The embedded API server over its REST paths."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping

import pytest
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import Client, TestResponse

from tests.builders import a_binding, a_container, a_pod, a_quota
from tests.fakecluster.webhook_server import WebhookServer, allow, answer, deny
from tests.kube.builders import a_cluster, a_config_map, mapping, meta, names
from tests.kube.contract.base import SOON
from webhook.fakecluster.admission.chain import AdmissionChain, Rule, Webhook
from webhook.fakecluster.admission.webhook_client import WebhookCaller
from webhook.fakecluster.rest.apiserver import MAX_BODY_BYTES, ApiServer
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CONFIG_MAPS, PODS, RESOURCE_QUOTAS, ListOptions, kind_of

MAPS = "/api/v1/namespaces/team-a/configmaps"
PODS_PATH = "/api/v1/namespaces/team-a/pods"
QUOTAS = "/api/v1/namespaces/team-a/resourcequotas"
LEDGERS = "/apis/deferredquota.io/v1alpha1/namespaces/team-a/quotaledgers"


@pytest.fixture
def cluster() -> FakeCluster:
    return a_cluster()


@pytest.fixture
def store(cluster: FakeCluster) -> FakeClient:
    """The cluster behind the server's back."""
    return FakeClient(cluster)


@pytest.fixture
def server(cluster: FakeCluster) -> Client:
    return Client(ApiServer(cluster))


def body(response: TestResponse) -> dict[str, object]:
    assert response.content_type == "application/json"
    found = json.loads(response.get_data())
    assert isinstance(found, dict)
    return found


def send(
    server: Client,
    method: str,
    path: str,
    sent: object,
    *,
    content_type: str = "application/json",
    **headers: str,
) -> tuple[int, dict[str, object]]:
    data = (
        sent if isinstance(sent, bytes) else json.dumps(sent).encode() if sent is not None else b""
    )
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = server.open(path, method=method, data=data, content_type=content_type, headers=named)
    return response.status_code, body(response)


def items(listed: Mapping[str, object]) -> list[dict[str, object]]:
    found = listed["items"]
    assert isinstance(found, list)
    return found


class TestObjects:
    def test_an_object_is_created_read_changed_and_deleted(self, server: Client) -> None:
        code, created = send(server, "POST", MAPS, a_config_map(text="one"))
        assert (code, meta(created)["uid"]) == (201, "uid-1")
        assert body(server.get(f"{MAPS}/notes")) == created
        code, changed = send(server, "PUT", f"{MAPS}/notes", {**created, "data": {"text": "two"}})
        assert (code, changed["data"]) == (200, {"text": "two"})
        code, gone = send(server, "DELETE", f"{MAPS}/notes", b"")
        assert (code, gone) == (
            200,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {"name": "notes", "kind": "configmaps", "uid": "uid-1"},
            },
        )
        response = server.get(f"{MAPS}/notes")
        assert (response.status_code, body(response)["reason"]) == (404, "NotFound")

    def test_a_namespace_is_taken_from_the_path(self, server: Client, store: FakeClient) -> None:
        sent = a_config_map()
        del meta(sent)["namespace"]
        send(server, "POST", MAPS, sent)
        assert names(store.list(CONFIG_MAPS, ListOptions(namespace="team-a")).items) == ["notes"]

    def test_objects_of_the_cluster_have_no_namespace(self, server: Client) -> None:
        code, created = send(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "team-b"}})
        assert (code, created["kind"]) == (201, "Namespace")
        assert body(server.get("/api/v1/namespaces/team-b")) == created

    def test_a_custom_resource_has_a_path_of_its_group(self, server: Client) -> None:
        sent = {"metadata": {"name": "ledger"}, "spec": {}}
        assert send(server, "POST", LEDGERS, sent)[0] == 201
        code, written = send(
            server,
            "PATCH",
            f"{LEDGERS}/ledger/status",
            {"status": {"summary": "x"}},
            content_type="application/merge-patch+json",
        )
        assert (code, written["status"]) == (200, {"summary": "x"})

    def test_a_kind_that_was_loaded_is_served(self, server: Client, cluster: FakeCluster) -> None:
        kind = kind_of("example.com/v1", "Widget", namespaced=True)
        cluster.load([(kind, {"metadata": {"name": "w", "namespace": "team-a"}})])
        listed = body(server.get("/apis/example.com/v1/widgets"))
        assert (listed["kind"], names(items(listed))) == ("WidgetList", ["w"])

    def test_a_dry_run_writes_nothing(self, server: Client, store: FakeClient) -> None:
        assert send(server, "POST", f"{MAPS}?dryRun=All", a_config_map())[0] == 201
        assert store.list(CONFIG_MAPS).items == ()
        code, status = send(server, "POST", f"{MAPS}?dryRun=Some", a_config_map())
        assert (code, status["reason"]) == (400, "BadRequest")

    def test_a_status_has_a_path_of_its_own(self, server: Client, store: FakeClient) -> None:
        created = store.create(RESOURCE_QUOTAS, a_quota()).object
        sent = {**created, "spec": {}, "status": {"used": {"pods": "1"}}}
        code, written = send(server, "PUT", f"{QUOTAS}/team-a/status", sent)
        assert (code, written["spec"], written["status"]) == (200, created["spec"], sent["status"])
        assert body(server.get(f"{QUOTAS}/team-a/status")) == written

    def test_a_pod_is_resized(self, server: Client, store: FakeClient) -> None:
        store.create(PODS, a_pod(requests={"cpu": "1"}))
        container = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
        code, resized = send(
            server,
            "PATCH",
            f"{PODS_PATH}/web-1/resize",
            {"spec": {"containers": [container]}},
            content_type="application/strategic-merge-patch+json",
        )
        assert code == 200
        assert mapping(resized, "spec")["containers"] == [a_container(requests={"cpu": "2"})]

    def test_numbers_stay_as_they_were_sent(self, server: Client) -> None:
        raw = b'{"metadata": {"name": "q"}, "spec": {"hard": {"cpu": 0.50, "pods": 1e1}}}'
        assert send(server, "POST", QUOTAS, raw)[0] == 201
        assert b'"cpu":0.50,"pods":1e1' in server.get(f"{QUOTAS}/q").get_data()


PATCHES: dict[str, tuple[str, object, dict[str, str]]] = {
    "JSON Patch": (
        "application/json-patch+json",
        [{"op": "replace", "path": "/data/text", "value": "two"}],
        {"text": "two", "more": "x"},
    ),
    "merge patch": (
        "application/merge-patch+json",
        {"data": {"text": None}},
        {"more": "x"},
    ),
    "strategic merge patch": (
        "application/strategic-merge-patch+json",
        {"data": {"$patch": "replace", "a": "b"}},
        {"a": "b"},
    ),
}


BAD_PATCHES: tuple[tuple[str, object, int, str], ...] = (
    ("application/apply-patch+yaml", {}, 415, "UnsupportedMediaType"),
    ("application/json", {}, 415, "UnsupportedMediaType"),
    ("application/json-patch+json", {}, 400, "BadRequest"),
    ("application/merge-patch+json", [], 400, "BadRequest"),
    ("application/merge-patch+json", b"{", 400, "BadRequest"),
    ("application/json-patch+json", [{"op": "remove", "path": "/x"}], 422, "Invalid"),
)


class TestPatches:
    @pytest.mark.parametrize(("media_type", "patch", "data"), PATCHES.values(), ids=PATCHES.keys())
    def test_three_kinds_of_patches_are_known(
        self,
        server: Client,
        store: FakeClient,
        media_type: str,
        patch: object,
        data: dict[str, str],
    ) -> None:
        store.create(CONFIG_MAPS, a_config_map(text="one", more="x"))
        code, patched = send(server, "PATCH", f"{MAPS}/notes", patch, content_type=media_type)
        assert (code, patched["data"]) == (200, data)

    @pytest.mark.parametrize(("media_type", "patch", "code", "reason"), BAD_PATCHES)
    def test_others_are_refused(
        self,
        server: Client,
        store: FakeClient,
        media_type: str,
        patch: object,
        code: int,
        reason: str,
    ) -> None:
        store.create(CONFIG_MAPS, a_config_map())
        found = send(server, "PATCH", f"{MAPS}/notes", patch, content_type=media_type)
        assert (found[0], found[1]["reason"]) == (code, reason)


class TestPods:
    def test_a_pod_is_bound(self, server: Client, store: FakeClient) -> None:
        store.create(PODS, a_pod())
        code, status = send(server, "POST", f"{PODS_PATH}/web-1/binding", a_binding())
        assert (code, status["status"]) == (201, "Success")
        bound = store.get(PODS, "web-1", namespace="team-a")
        assert mapping(bound, "spec")["nodeName"] == "node-1"

    def test_a_pod_is_bound_by_the_old_path(self, server: Client, store: FakeClient) -> None:
        store.create(PODS, a_pod())
        path = "/api/v1/namespaces/team-a/bindings"
        assert send(server, "POST", path, a_binding(uid="forgotten"))[0] == 201
        code, status = send(server, "POST", path, a_binding())
        assert code == 409
        assert status["message"] == (
            'Operation cannot be fulfilled on pods/binding "web-1": pod web-1 is already '
            'assigned to node "node-1"'
        )

    def test_a_binding_is_for_the_pod_of_its_path(self, server: Client, store: FakeClient) -> None:
        store.create(PODS, a_pod())
        code, status = send(server, "POST", f"{PODS_PATH}/other/binding", a_binding())
        message = "name in URL does not match name in Binding object"
        assert (code, status["message"]) == (400, message)

    def test_a_deletion_takes_options(self, server: Client, store: FakeClient) -> None:
        pod = store.create(PODS, a_pod(node="n1"))
        options = {"gracePeriodSeconds": 20, "preconditions": {"uid": "wrong"}}
        assert send(server, "DELETE", f"{PODS_PATH}/web-1", options)[0] == 409
        options["preconditions"] = {"uid": pod.uid, "resourceVersion": str(pod.resource_version)}
        code, ending = send(server, "DELETE", f"{PODS_PATH}/web-1", options)
        assert (code, meta(ending)["deletionGracePeriodSeconds"]) == (200, 20)
        code, gone = send(server, "DELETE", f"{PODS_PATH}/web-1?gracePeriodSeconds=0", {})
        assert (code, gone["kind"]) == (200, "Pod")
        assert store.list(PODS).items == ()

    @pytest.mark.parametrize(
        "options",
        [{"gracePeriodSeconds": "soon"}, {"preconditions": {"resourceVersion": "new"}}],
    )
    def test_options_that_cannot_be_read_are_refused(
        self, server: Client, store: FakeClient, options: dict[str, object]
    ) -> None:
        store.create(PODS, a_pod())
        code, status = send(server, "DELETE", f"{PODS_PATH}/web-1", options)
        assert (code, status["reason"]) == (400, "BadRequest")


class TestLists:
    def test_a_list_is_one_of_its_kind(self, server: Client, store: FakeClient) -> None:
        store.create(CONFIG_MAPS, a_config_map("b"))
        store.create(CONFIG_MAPS, a_config_map("a"))
        store.create(CONFIG_MAPS, a_config_map("c", namespace="team-b"))
        listed = body(server.get(MAPS))
        assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
        assert listed["metadata"] == {"resourceVersion": "1003"}
        assert names(items(listed)) == ["a", "b"]
        assert names(items(body(server.get("/api/v1/configmaps")))) == ["a", "b", "c"]

    def test_an_empty_list_is_a_list(self, server: Client) -> None:
        assert items(body(server.get(MAPS))) == []

    def test_selectors_select(self, server: Client, store: FakeClient) -> None:
        store.create(PODS, a_pod(name="a", node="n1", metadata={"labels": {"app": "web"}}))
        store.create(PODS, a_pod(name="b"))
        selectors = "labelSelector=app%3Dweb&fieldSelector=spec.nodeName!%3D"
        found = body(server.get(f"{PODS_PATH}?{selectors}"))
        assert names(items(found)) == ["a"]
        response = server.get(f"{PODS_PATH}?labelSelector=a%20in%20(")
        assert (response.status_code, body(response)["reason"]) == (400, "BadRequest")


REFUSALS: dict[str, tuple[str, str, object, dict[str, str], int, str]] = {
    "not JSON": ("POST", MAPS, b"{", {}, 400, "BadRequest"),
    "not an object": ("POST", MAPS, [], {}, 400, "BadRequest"),
    "nothing": ("POST", MAPS, b"", {}, 400, "BadRequest"),
    "deep": ("POST", MAPS, b"[" * 100_000, {}, 400, "BadRequest"),
    "metadata of a number": ("POST", MAPS, {"metadata": 5}, {}, 400, "BadRequest"),
    "another namespace": (
        "POST",
        MAPS,
        a_config_map(namespace="team-b"),
        {},
        400,
        "BadRequest",
    ),
    "another kind": ("POST", MAPS, a_pod(), {}, 400, "BadRequest"),
    "another name": ("PUT", f"{MAPS}/other", a_config_map(), {}, 400, "BadRequest"),
    "protobuf": (
        "POST",
        MAPS,
        b"k8s",
        {"content_type": "application/vnd.kubernetes.protobuf"},
        415,
        "UnsupportedMediaType",
    ),
    "too large": (
        "POST",
        MAPS,
        b"x" * (MAX_BODY_BYTES + 1),
        {},
        413,
        "RequestEntityTooLarge",
    ),
    "a name that is none": ("POST", MAPS, a_config_map("A B"), {}, 422, "Invalid"),
    "nothing to update": ("PUT", f"{MAPS}/notes", a_config_map(), {}, 404, "NotFound"),
    "an unknown path": ("GET", "/api/v1/frobs", b"", {}, 404, "NotFound"),
    "an unknown group": ("GET", "/apis/frob/v1", b"", {}, 404, "NotFound"),
    "an unknown subresource": ("GET", f"{MAPS}/notes/frob", b"", {}, 404, "NotFound"),
    "a subresource to create": ("POST", f"{MAPS}/notes/frob", {}, {}, 405, "MethodNotAllowed"),
    "an unknown method": ("TRACE", f"{MAPS}/notes", b"", {}, 405, "MethodNotAllowed"),
    "all at once": ("DELETE", MAPS, b"", {}, 405, "MethodNotAllowed"),
    "bindings cannot be listed": (
        "GET",
        "/api/v1/namespaces/team-a/bindings",
        b"",
        {},
        405,
        "MethodNotAllowed",
    ),
    "a watch from a word": (
        "GET",
        f"{MAPS}?watch=1&resourceVersion=new",
        b"",
        {},
        400,
        "BadRequest",
    ),
    "a watch for a word": (
        "GET",
        f"{MAPS}?watch=1&timeoutSeconds=soon",
        b"",
        {},
        400,
        "BadRequest",
    ),
}


@pytest.mark.parametrize(
    ("method", "path", "sent", "options", "code", "reason"), REFUSALS.values(), ids=REFUSALS.keys()
)
def test_what_cannot_be_done_is_answered_with_a_status(
    server: Client,
    method: str,
    path: str,
    sent: object,
    options: dict[str, str],
    code: int,
    reason: str,
) -> None:
    found, status = send(server, method, path, sent, **options)
    assert (found, status["code"], status["reason"]) == (code, code, reason)
    assert (status["kind"], status["status"]) == ("Status", "Failure")


class TestDiscovery:
    def test_a_server_says_its_version(self, server: Client) -> None:
        version = body(server.get("/version"))
        assert (version["major"], version["minor"]) == ("1", "36")

    @pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
    def test_a_server_is_well(self, server: Client, path: str) -> None:
        assert server.get(path).status_code == 200

    def test_groups_and_resources_are_listed(self, server: Client) -> None:
        assert body(server.get("/api"))["versions"] == ["v1"]
        groups = body(server.get("/apis"))["groups"]
        assert isinstance(groups, list)
        found = {group["name"]: group["preferredVersion"]["groupVersion"] for group in groups}
        assert found["deferredquota.io"] == "deferredquota.io/v1alpha1"
        assert body(server.get("/apis/batch"))["name"] == "batch"
        assert body(server.get("/apis/batch/v1"))["groupVersion"] == "batch/v1"

    def test_resources_say_what_can_be_done_with_them(self, server: Client) -> None:
        listed = body(server.get("/api/v1"))["resources"]
        assert isinstance(listed, list)
        resources = {entry["name"]: entry for entry in listed}
        assert resources["pods"]["shortNames"] == ["po"]
        assert set(resources["pods"]["verbs"]) >= {"create", "get", "list", "watch", "patch"}
        assert resources["pods/binding"]["kind"] == "Binding"
        assert resources["resourcequotas/status"]["verbs"] == ["get", "patch", "update"]
        assert resources["namespaces"]["namespaced"] is False
        assert "configmaps/status" not in resources


class TestAdmission:
    @pytest.fixture
    def behind(
        self, cluster: FakeCluster, hooks: WebhookServer, caller: WebhookCaller
    ) -> Iterator[Client]:
        """A server behind one validating webhook, at /hook."""
        rule = Rule(frozenset({"*"}), frozenset({"*/*"}))
        hook = Webhook("guard.example.com", f"{hooks.url}/hook", "validating", (rule,))
        chain = AdmissionChain([hook], caller, namespace_labels=lambda _: {})
        yield Client(ApiServer(cluster, chain))
        chain.close()

    def test_a_denial_is_an_answer_with_everything_in_it(
        self, behind: Client, hooks: WebhookServer
    ) -> None:
        details = {"name": "web-1", "kind": "pods", "retryAfterSeconds": 1}
        hooks.answers["/hook"] = deny(
            message="busy", code=429, reason="TooManyRequests", details=details
        )
        response = behind.post(PODS_PATH, json=a_pod())
        assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
        status = body(response)
        assert status["message"] == (
            'admission webhook "guard.example.com" denied the request: busy'
        )
        assert (status["reason"], status["details"]) == ("TooManyRequests", details)

    def test_warnings_are_headers(self, behind: Client, hooks: WebhookServer) -> None:
        said = {"allowed": True, "warnings": ["größer", "größer", "two"]}
        hooks.answers["/hook"] = lambda asked: answer(asked, said)
        response = behind.post(PODS_PATH, json=a_pod())
        headers = response.headers.getlist("Warning")
        warnings = [value.encode("latin-1").decode() for value in headers]
        assert (response.status_code, warnings) == (201, ['299 - "größer"', '299 - "two"'])

    def test_a_denial_keeps_its_warnings(self, behind: Client, hooks: WebhookServer) -> None:
        said = {"allowed": False, "warnings": ["careful"]}
        hooks.answers["/hook"] = lambda asked: answer(asked, said)
        response = behind.post(PODS_PATH, json=a_pod())
        headers = response.headers.getlist("Warning")
        assert (response.status_code, headers) == (400, ['299 - "careful"'])

    def test_a_webhook_learns_which_user_asks_and_how(
        self, behind: Client, hooks: WebhookServer
    ) -> None:
        hooks.answers["/hook"] = allow
        path = f"{PODS_PATH}?fieldManager=kubectl-create&fieldValidation=Strict&dryRun=All"
        behind.post(
            path, json=a_pod(), headers={"Impersonate-User": "bob", "Impersonate-Group": "devs"}
        )
        behind.post(PODS_PATH, json=a_pod())
        first, second = (asked.request for asked in hooks.asked)
        groups = ["devs", "system:authenticated"]
        assert first["userInfo"] == {"username": "bob", "groups": groups}
        assert first["dryRun"] is True
        assert first["options"] == {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "dryRun": ["All"],
            "fieldManager": "kubectl-create",
            "fieldValidation": "Strict",
        }
        assert second["userInfo"] == {
            "username": "admin",
            "uid": "admin",
            "groups": ["system:masters", "system:authenticated"],
        }

    def test_reading_calls_no_webhook(self, behind: Client, hooks: WebhookServer) -> None:
        behind.get(PODS_PATH)
        behind.get(f"{PODS_PATH}/web-1")
        assert hooks.asked == []


class _Http11(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def address(cluster: FakeCluster) -> Iterator[tuple[str, int]]:
    """The address of a server that listens."""
    server = make_server("127.0.0.1", 0, ApiServer(cluster), threaded=True, request_handler=_Http11)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield "127.0.0.1", server.server_port
    cluster.cut_watches()
    server.shutdown()
    server.server_close()
    thread.join()


class TestWatches:
    def test_a_watch_streams_lines_as_things_happen(
        self, address: tuple[str, int], store: FakeClient
    ) -> None:
        store.create(CONFIG_MAPS, a_config_map("before"))
        with _open(address, f"{MAPS}?watch=true&resourceVersion=1000") as lines:
            assert lines.head["Content-Type"] == "application/json"
            assert lines.next_two() == ("ADDED", "before")
            store.create(CONFIG_MAPS, a_config_map("after"))
            assert lines.next_two() == ("ADDED", "after")
            store.delete(CONFIG_MAPS, "after", namespace="team-a")
            assert lines.next_two() == ("DELETED", "after")

    def test_a_watch_stands_before_anything_happens(
        self, address: tuple[str, int], store: FakeClient
    ) -> None:
        with _open(address, f"{MAPS}?watch=1&resourceVersion=1000") as lines:
            store.create(CONFIG_MAPS, a_config_map("a"))
            assert lines.next_two() == ("ADDED", "a")

    @pytest.mark.parametrize("version", ["", "&resourceVersion=0"])
    def test_a_watch_from_nowhere_begins_with_what_is_there(
        self, address: tuple[str, int], store: FakeClient, version: str
    ) -> None:
        store.create(CONFIG_MAPS, a_config_map("b"))
        store.create(CONFIG_MAPS, a_config_map("a"))
        with _open(address, f"{MAPS}?watch=1{version}") as lines:
            store.create(CONFIG_MAPS, a_config_map("c"))
            assert [lines.next_two()[1] for _ in range(3)] == ["a", "b", "c"]

    def test_a_watch_ends_when_its_time_is_up(self, address: tuple[str, int]) -> None:
        path = f"{MAPS}?watch=1&resourceVersion=1000&timeoutSeconds=1&allowWatchBookmarks=true"
        with _open(address, path) as lines:
            assert lines.next() == ("BOOKMARK", "", "1000")
            assert lines.next() is None

    def test_a_version_that_is_forgotten_is_an_error_line(
        self, address: tuple[str, int], cluster: FakeCluster, store: FakeClient
    ) -> None:
        store.create(CONFIG_MAPS, a_config_map())
        cluster.compact()
        with _open(address, f"{MAPS}?watch=1&resourceVersion=1000") as lines:
            event = lines.raw()
            assert event["type"] == "ERROR"
            assert mapping(event, "object")["code"] == 410
            assert lines.next() is None


class _Lines:
    """An open watch over HTTP."""

    def __init__(self, connection: http.client.HTTPConnection, path: str) -> None:
        self._connection = connection
        connection.request("GET", path)
        self._response = connection.getresponse()
        self.head = dict(self._response.getheaders())

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()

    def raw(self) -> dict[str, object]:
        found = json.loads(self._response.readline())
        assert isinstance(found, dict)
        return found

    def next(self) -> tuple[str, str, str] | None:
        line = self._response.readline()
        if not line:
            return None
        event = json.loads(line)
        metadata = meta(event["object"])
        return event["type"], str(metadata.get("name", "")), str(metadata["resourceVersion"])

    def next_two(self) -> tuple[str, str]:
        found = self.next()
        assert found is not None
        return found[:2]


def _open(address: tuple[str, int], path: str) -> _Lines:
    return _Lines(http.client.HTTPConnection(*address, timeout=SOON), path)
