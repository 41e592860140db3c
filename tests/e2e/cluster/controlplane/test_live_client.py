"""The live client and a real API server that restarts, dies, hangs and forgets."""

from __future__ import annotations

import json
import threading
import urllib.request
from base64 import b64encode
from collections.abc import Iterator

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.waiting import PATIENCE_SECONDS, eventually
from tests.kube.builders import a_config_map, first, mapping, meta
from webhook.kube.api import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    SECRETS,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    ListOptions,
    Object,
    RequestTimeoutError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UnreachableError,
)
from webhook.kube.informer import Informer, InformerTimings
from webhook.kube.rest import RestClient, RestConfig, load_config
from webhook.kube.rest.identity import Credentials, Identity

SPACE = "live"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, for it is treated badly."""
    directory = tmp_path_factory.mktemp("plane")
    with ControlPlane.start(directory, scheduler=False, controller_manager=False) as running:
        running.kubectl("create", "namespace", SPACE)
        yield running


@pytest.fixture
def client(plane: ControlPlane) -> Iterator[RestClient]:
    client = RestClient(load_config(plane.kubeconfig(), environ={}))
    yield client
    plane.apiserver.resume()
    client.close()


def note(name: str, **data: str) -> Object:
    return a_config_map(name, namespace=SPACE, metadata=None, **data)


def get(client: RestClient, name: str) -> Object:
    return client.get(CONFIG_MAPS, name, namespace=SPACE)


class TestWho:
    def test_the_server_says_its_version(self, client: RestClient) -> None:
        assert str(client.server_version()["gitVersion"]).startswith("v1.")

    def test_a_missing_right_is_named(self, plane: ControlPlane) -> None:
        alice = RestClient(load_config(plane.kubeconfig("alice", ("devs",)), environ={}))
        with pytest.raises(ForbiddenError, match='User "alice" cannot list resource "pods" in API'):
            alice.list(PODS)
        alice.close()

    def test_a_service_account(self, plane: ControlPlane, client: RestClient) -> None:
        plane.kubectl("create", "serviceaccount", "robot", "--namespace", SPACE)
        path = plane.service_account_kubeconfig(SPACE, "robot")
        robot = RestClient(load_config(path, environ={}))
        who = f'User "system:serviceaccount:{SPACE}:robot" cannot get resource "configmaps"'
        client.create(CONFIG_MAPS, note("for-robots"))
        with pytest.raises(ForbiddenError, match=who):
            get(robot, "for-robots")
        role = ("role", "readers", "--verb=get", "--resource=configmaps")
        plane.kubectl("create", *role, "--namespace", SPACE)
        binding = ("rolebinding", "robot", "--role=readers", f"--serviceaccount={SPACE}:robot")
        plane.kubectl("create", *binding, "--namespace", SPACE)

        def may_read() -> bool:
            try:
                return meta(get(robot, "for-robots"))["name"] == "for-robots"
            except ForbiddenError:
                return False

        eventually(may_read, "the role counts")
        robot.close()

    def test_an_invented_token(self, client: RestClient) -> None:
        access = client.config
        stranger = RestClient(
            RestConfig(
                server=access.server,
                source="a token of nobody",
                credentials=Credentials(lambda: Identity("Bearer nonsense")),
                trust=access.trust,
            )
        )
        with pytest.raises(UnauthorizedError, match="does not know a token of nobody"):
            stranger.list(PODS)
        stranger.close()


class TestSizes:
    def test_large_objects_come_back_whole(self, client: RestClient) -> None:
        text = "ä" * 400_000
        created = client.create(CONFIG_MAPS, note("large", text=text))
        assert mapping(get(client, "large"), "data") == {"text": text}
        start = created.resource_version
        client.patch(CONFIG_MAPS, "large", {"data": {"more": "x"}}, namespace=SPACE)
        with client.watch(
            CONFIG_MAPS, ListOptions(namespace=SPACE), resource_version=start, timeout_seconds=30
        ) as stream:
            (event,) = first(stream, 1)
        assert mapping(event.object, "data") == {"text": text, "more": "x"}

    @pytest.mark.parametrize("megabytes", [4, 80], ids=["read to its end", "not read to its end"])
    def test_what_is_too_large_is_refused_as_such(self, client: RestClient, megabytes: int) -> None:
        with pytest.raises(TooLargeError, match="Request entity too large"):
            client.create(CONFIG_MAPS, note("huge", text="x" * (megabytes << 20)))

    def test_a_long_list_comes_in_pages_of_one_version(self, client: RestClient) -> None:
        for number in range(25):
            client.create(SECRETS, {"metadata": {"name": f"s-{number:02}", "namespace": SPACE}})
        pages = list(client.pages(SECRETS, ListOptions(namespace=SPACE), limit=7))
        assert [len(page.items) for page in pages] == [7, 7, 7, 4]
        assert len({page.resource_version for page in pages}) == 1
        listed = [item.object for page in pages for item in page.items]
        assert tuple(listed) == client.list(SECRETS, ListOptions(namespace=SPACE)).items
        assert listed[0]["kind"] == "Secret"
        assert listed[0] == client.get(SECRETS, "s-00", namespace=SPACE)


class TestApplying:
    def test_what_is_applied_twice_is_written_once(self, client: RestClient) -> None:
        one = client.apply(CONFIG_MAPS, note("applied", a="b"), field_manager="tests")
        two = client.apply(CONFIG_MAPS, note("applied", a="b"), field_manager="tests")
        assert one.resource_version == two.resource_version
        tried = client.apply(
            CONFIG_MAPS, note("applied", a="c"), field_manager="tests", dry_run=True
        )
        assert mapping(tried.object, "data") == {"a": "c"}
        assert get(client, "applied") == two.object

    def test_fields_of_others_are_taken_by_force_only(self, client: RestClient) -> None:
        client.apply(CONFIG_MAPS, note("shared", a="b"), field_manager="one")
        with pytest.raises(ConflictError, match=r'conflict with "one": \.data\.a'):
            client.apply(CONFIG_MAPS, note("shared", a="c"), field_manager="two")
        client.apply(CONFIG_MAPS, note("shared", a="c"), field_manager="two", force=True)
        assert mapping(get(client, "shared"), "data") == {"a": "c"}

    def test_a_version_that_is_named_is_meant(self, client: RestClient) -> None:
        old = client.apply(CONFIG_MAPS, note("versioned", a="b"), field_manager="one")
        client.patch(CONFIG_MAPS, "versioned", {"data": {"x": "y"}}, namespace=SPACE)
        metadata = {"resourceVersion": str(old.resource_version)}
        late = a_config_map("versioned", namespace=SPACE, metadata=metadata, a="b")
        with pytest.raises(ConflictError, match="the object has been modified"):
            client.apply(CONFIG_MAPS, late, field_manager="one")


class TestRestarts:
    def test_calls_after_a_restart_take_new_connections(
        self, plane: ControlPlane, client: RestClient
    ) -> None:
        created = client.create(CONFIG_MAPS, note("before"))
        plane.apiserver.restart()
        changed = {**created.object, "data": {"a": "b"}}
        assert client.update(CONFIG_MAPS, changed).resource_version > created.resource_version

    def test_an_informer_misses_nothing(self, plane: ControlPlane, client: RestClient) -> None:
        timing = InformerTimings(first_pause=0.05, longest_pause=0.2)
        scope = ListOptions(namespace=SPACE, label_selector="followed")
        informer = Informer(
            client, CONFIG_MAPS, transform=lambda obj: obj, options=scope, timings=timing
        )
        informer.start()
        assert informer.wait_for_sync(PATIENCE_SECONDS)
        for number in range(6):
            if number % 2:
                plane.apiserver.kill()
                plane.apiserver.start()
            metadata = {"labels": {"followed": "yes"}}
            sent = a_config_map(f"f-{number}", namespace=SPACE, metadata=metadata)
            eventually(lambda sent=sent: self.arrives(client, sent), "it is written")  # type: ignore[misc]
        eventually(lambda: len(informer) == 6, "all have arrived")
        informer.stop()

    @staticmethod
    def arrives(client: RestClient, sent: Object) -> bool:
        try:
            client.apply(CONFIG_MAPS, sent, field_manager="tests")
        except UnavailableError:
            return False
        return True

    def test_a_watch_of_a_server_that_dies_is_an_error(
        self, plane: ControlPlane, client: RestClient
    ) -> None:
        start = client.list(CONFIG_MAPS).resource_version
        with client.watch(CONFIG_MAPS, resource_version=start, timeout_seconds=60) as stream:
            client.apply(CONFIG_MAPS, note("seen"), field_manager="tests")
            next(stream)
            plane.apiserver.kill()
            with pytest.raises(UnreachableError):
                for _ in stream:
                    pass
        with pytest.raises(UnreachableError, match="Connection refused"):
            client.list(CONFIG_MAPS)
        plane.apiserver.start()
        assert client.list(CONFIG_MAPS).items

    def test_a_server_that_hangs_is_not_waited_for(
        self, plane: ControlPlane, client: RestClient
    ) -> None:
        hasty = RestClient(client.config, timeout_seconds=3)
        hasty.list(NAMESPACES)
        plane.apiserver.pause()
        with pytest.raises(RequestTimeoutError, match="no answer within 3 s"):
            hasty.create(CONFIG_MAPS, note("late"))  # on the connection that it had
        with pytest.raises(UnreachableError, match="no connection within 3 s"):
            hasty.create(CONFIG_MAPS, note("later"))
        plane.apiserver.resume()
        eventually(lambda: client.list(NAMESPACES).items, "it answers again")
        hasty.close()


def compact(plane: ControlPlane, version: int) -> None:
    """Make etcd forget everything before a version, as the API server does every five minutes."""
    body = json.dumps({"revision": str(version), "physical": True}).encode()
    request = urllib.request.Request(f"{plane.etcd_url}/v3/kv/compaction", body)  # noqa: S310
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310
        assert answer.status == 200


def etcd_version(plane: ControlPlane) -> int:
    body = json.dumps({"key": b64encode(b"x").decode()}).encode()
    request = urllib.request.Request(f"{plane.etcd_url}/v3/kv/range", body)  # noqa: S310
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310
        return int(json.loads(answer.read())["header"]["revision"])


class TestForgetting:
    @pytest.fixture
    def forgotten(self, plane: ControlPlane, client: RestClient) -> int:
        """A version that neither the API server nor etcd knows any more."""
        version = client.apply(CONFIG_MAPS, note("old"), field_manager="tests").resource_version
        for number in range(3):
            client.patch(CONFIG_MAPS, "old", {"data": {"n": str(number)}}, namespace=SPACE)
        compact(plane, etcd_version(plane))
        plane.apiserver.restart()
        return version

    def test_a_watch_from_a_forgotten_version_is_expired(
        self, client: RestClient, forgotten: int
    ) -> None:
        def follow() -> None:
            with client.watch(
                CONFIG_MAPS, resource_version=forgotten, timeout_seconds=10
            ) as stream:
                for event in stream:
                    if event.type == "ERROR":
                        raise event.error()

        with pytest.raises(ExpiredError, match="too old resource version"):
            follow()

    def test_a_list_that_cannot_be_continued_is_expired(
        self, plane: ControlPlane, client: RestClient
    ) -> None:
        for number in range(3):
            client.apply(CONFIG_MAPS, note(f"page-{number}"), field_manager="tests")
        pages = client.pages(CONFIG_MAPS, ListOptions(namespace=SPACE), limit=1)
        next(pages)
        for number in range(3):
            client.patch(CONFIG_MAPS, "page-1", {"data": {"n": str(number)}}, namespace=SPACE)
        compact(plane, etcd_version(plane))
        plane.apiserver.restart()
        with pytest.raises(ExpiredError):
            list(pages)


def test_names_are_read_without_the_objects(client: RestClient) -> None:
    client.create(CONFIG_MAPS, note("named"))
    assert "named" in client.names(CONFIG_MAPS, namespace=SPACE, limit=500)
    assert SPACE in client.names(NAMESPACES, limit=500)
    assert len(client.names(NAMESPACES, limit=1)) == 1


def test_many_threads_share_a_client(client: RestClient) -> None:
    client.create(CONFIG_MAPS, note("counter", count="0"))
    failures: list[Exception] = []

    def count_up() -> None:
        done = 0
        while done < 25:
            found = get(client, "counter")
            number = int(str(mapping(found, "data")["count"])) + 1
            try:
                client.update(CONFIG_MAPS, {**found, "data": {"count": str(number)}})
            except ConflictError:
                continue
            except Exception as err:  # noqa: BLE001 - whatever it is, the test fails
                failures.append(err)
                return
            done += 1

    threads = [threading.Thread(target=count_up) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert mapping(get(client, "counter"), "data") == {"count": "200"}
