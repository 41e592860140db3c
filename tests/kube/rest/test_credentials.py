"""Credentials: tokens, files of tokens, certificates and plugins, and how they are kept fresh."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.kube.rest.kubeconfigs import (
    a_kubeconfig,
    a_plugin,
    an_exec,
    calls_of,
    encoded,
    printing,
)
from tests.kube.rest.scripted_server import (
    ScriptedServer,
    ServerConnection,
    a_client_certificate,
    a_note,
    answering,
    reply,
    server_context,
    status,
)
from webhook.kube.api import CONFIG_MAPS, UnauthorizedError
from webhook.kube.rest import AccessError, RestClient, load_config
from webhook.kube.rest.credentials import load_credentials, token_file_credentials
from webhook.kube.rest.identity import Credentials, Identity
from webhook.kube.rest.kubeconfig import read_kubeconfig
from webhook.tls.issue import Issued

UNAUTHORIZED = reply(401, status(401, "Unauthorized", "Unauthorized"))
SECRET = "s3cr3t"  # noqa: S105 - of nothing


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def credentials(path: Path, clock: Clock | None = None) -> Credentials:
    return load_credentials(read_kubeconfig([path]), clock=clock or Clock())


def bearer(found: Credentials) -> str:
    return found.identity().authorization


def get(client: RestClient) -> object:
    return client.get(CONFIG_MAPS, "notes", namespace="team-a")


def knowing(*tokens: str) -> object:
    """A script that answers these tokens, and no others."""

    def script(peer: ServerConnection) -> None:
        while True:
            known = peer.read().headers.get("authorization", "").removeprefix("Bearer ") in tokens
            peer.send(reply(body=a_note()) if known else UNAUTHORIZED)

    return script


USERS: Mapping[str, tuple[dict[str, object], str]] = {
    "an empty token file": ({"tokenFile": "empty"}, "empty: the token is empty"),
    "no token file": ({"tokenFile": "nothing"}, "users[admin].user.tokenFile: there is no file"),
    "a token with a line end": ({"token": f"{SECRET}\nX: y"}, "users[admin].user.token: the token"),
    "a token with an umlaut": ({"token": f"{SECRET}ä"}, "users[admin].user.token: the token has"),
    "a password": (
        {"username": "a", "password": SECRET},
        "users[admin].user.username: the API server takes no passwords any more; use a token",
    ),
    "a certificate without key": (
        {"client-certificate-data": "YQ=="},
        "users[admin].user.client-key: is missing, beside client-certificate",
    ),
    "a key without certificate": (
        {"client-key-data": "YQ=="},
        "users[admin].user.client-certificate: is missing, beside client-key",
    ),
    "a plugin without command": (
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}},
        "users[admin].user.exec.command: is missing",
    ),
    "a plugin without version": ({"exec": {"command": "x"}}, "users[admin].user.exec.apiVersion:"),
    "a provider of old": (
        {"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}},
        "users[admin].user.auth-provider.name: 'gcp' is not supported; use an exec plugin",
    ),
}


@pytest.mark.parametrize(("user", "words"), USERS.values(), ids=USERS.keys())
def test_what_is_wrong_with_a_user(tmp_path: Path, user: dict[str, object], words: str) -> None:
    (tmp_path / "empty").write_text("\n")
    path = a_kubeconfig(tmp_path, user=user)
    with pytest.raises(AccessError) as refusal:
        credentials(path)
    assert words in str(refusal.value)
    assert str(tmp_path) in str(refusal.value)
    assert SECRET not in str(refusal.value)


class TestTokenFiles:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "token"
        path.write_text("one\n")
        return path

    def test_a_file_counts_more_than_a_token(self, tmp_path: Path, file: Path) -> None:
        path = a_kubeconfig(tmp_path, user={"token": "old", "tokenFile": file.name})
        assert bearer(credentials(path)) == "Bearer one"

    def test_it_is_read_again_every_minute(self, file: Path) -> None:
        clock = Clock()
        found = token_file_credentials(file, clock=clock)
        file.write_text("two")
        clock.now += 59
        assert bearer(found) == "Bearer one"
        clock.now += 1
        assert bearer(found) == "Bearer two"

    def test_while_it_cannot_be_read_the_old_token_stands(self, file: Path) -> None:
        clock = Clock()
        found = token_file_credentials(file, clock=clock)
        file.unlink()
        clock.now += 60
        assert bearer(found) == "Bearer one"
        file.write_text("two")
        clock.now += 9
        assert bearer(found) == "Bearer one"
        clock.now += 1
        assert bearer(found) == "Bearer two"

    def test_it_is_read_again_when_the_token_is_refused(self, file: Path) -> None:
        with ScriptedServer(knowing("one", "two"), knowing("two")) as server:  # type: ignore[arg-type]
            client = server.client(token_file_credentials(file))
            get(client)
            file.write_text("two")
            get(client)  # with the old token, which is still good
            client.close()
            assert get(client) == a_note()
            client.update(CONFIG_MAPS, a_note())
        shown = [asked.headers["authorization"] for asked in server.requests]
        assert shown == ["Bearer one"] * 3 + ["Bearer two"] * 2

    def test_a_write_that_was_refused_is_sent_again_with_the_new_token(self, file: Path) -> None:
        with ScriptedServer(knowing("two")) as server:  # type: ignore[arg-type]
            client = server.client(token_file_credentials(file))
            file.write_text("two")
            assert client.update(CONFIG_MAPS, a_note()).resource_version == 5
            assert [asked.method for asked in server.requests] == ["PUT", "PUT"]

    def test_a_watch_too(self, file: Path) -> None:
        with ScriptedServer(knowing("two")) as server:  # type: ignore[arg-type]
            client = server.client(token_file_credentials(file))
            file.write_text("two")
            client.watch(CONFIG_MAPS, resource_version=1).close()
            assert len(server.requests) == 2

    def test_a_token_that_stays_refused_is_sent_once(self, file: Path) -> None:
        with ScriptedServer(answering(UNAUTHORIZED)) as server:
            client = server.client(token_file_credentials(file))
            for _ in range(2):
                with pytest.raises(UnauthorizedError, match="does not know the credentials of a"):
                    get(client)
            assert len(server.requests) == 2

    def test_a_new_token_that_is_refused_too(self, file: Path) -> None:
        with ScriptedServer(answering(UNAUTHORIZED)) as server:
            client = server.client(token_file_credentials(file))
            file.write_text("two")
            with pytest.raises(UnauthorizedError):
                get(client)
            assert len(server.requests) == 2


def test_many_threads_renew_once() -> None:
    loaded: list[Identity] = []

    def load() -> Identity:
        loaded.append(Identity(f"Bearer {len(loaded)}"))
        return loaded[-1]

    found = Credentials(load)
    refused = found.identity()
    assert found.renew(refused)
    assert found.renew(refused)
    assert len(loaded) == 2
    assert bearer(found) == "Bearer 1"


def write_pair(directory: Path, pair: Issued) -> None:
    (directory / "a.crt").write_bytes(pair.certificate)
    (directory / "a.key").write_bytes(pair.key)


class TestCertificates:
    @pytest.mark.parametrize("as_data", [True, False], ids=["data", "files"])
    def test_the_server_sees_its_common_name(self, tmp_path: Path, *, as_data: bool) -> None:
        alice = a_client_certificate("alice")
        seen: list[str] = []

        def script(peer: ServerConnection) -> None:
            seen.append(peer.common_name())
            answering(reply(body=a_note()))(peer)

        context = server_context(tmp_path, clients=[alice])
        with ScriptedServer(script, tls=context) as server:
            write_pair(tmp_path, alice)
            data = {
                "client-certificate-data": encoded(alice.certificate),
                "client-key-data": encoded(alice.key),
            }
            files = {"client-certificate": "a.crt", "client-key": "a.key"}
            path = a_kubeconfig(
                tmp_path,
                user=data if as_data else files,
                cluster={"server": server.url, "insecure-skip-tls-verify": True},
            )
            assert get(server.client(access=load_config(path, environ={}))) == a_note()
        assert seen == ["alice"]

    def test_files_that_change_are_shown_on_the_next_connection(self, tmp_path: Path) -> None:
        alice, again = a_client_certificate("alice"), a_client_certificate("alice-again")
        seen: list[str] = []

        def script(peer: ServerConnection) -> None:
            seen.append(peer.common_name())
            answering(reply(body=a_note(), Connection="close"))(peer)

        context = server_context(tmp_path, clients=[alice, again])
        with ScriptedServer(script, tls=context) as server:
            path = a_kubeconfig(
                tmp_path,
                user={"client-certificate": "a.crt", "client-key": "a.key"},
                cluster={"server": server.url, "insecure-skip-tls-verify": True},
            )
            write_pair(tmp_path, alice)
            client = server.client(access=load_config(path, environ={}))
            get(client)
            get(client)
            write_pair(tmp_path, again)
            get(client)
        assert seen == ["alice", "alice", "alice-again"]

    def test_a_pair_that_does_not_fit_is_found_before_the_first_request(
        self, tmp_path: Path
    ) -> None:
        one, two = a_client_certificate("a"), a_client_certificate("b")
        user = {
            "client-certificate-data": encoded(one.certificate),
            "client-key-data": encoded(two.key),
        }
        access = load_config(a_kubeconfig(tmp_path, user=user), environ={})
        with pytest.raises(AccessError, match="client-certificate-data, client-key-data: no cert"):
            RestClient(access)


def in_time(seconds: float) -> str:
    ends = datetime.now(UTC) + timedelta(seconds=seconds)
    return ends.strftime("%Y-%m-%dT%H:%M:%SZ")


class TestPlugins:
    def test_a_token_is_asked_for_once(self, tmp_path: Path) -> None:
        plugin = a_plugin(tmp_path, printing(token="abc"))  # noqa: S106 - of nothing
        clock = Clock()
        found = credentials(a_kubeconfig(tmp_path, user=an_exec(plugin)), clock)
        clock.now += 1e9
        assert bearer(found) == bearer(found) == "Bearer abc"
        (told,) = calls_of(tmp_path)
        assert json.loads(told)["apiVersion"] == "client.authentication.k8s.io/v1"

    def test_a_token_that_ends_is_asked_for_again(self, tmp_path: Path) -> None:
        answer = printing(token="abc", expirationTimestamp=in_time(3600))  # noqa: S106
        clock = Clock()
        user = an_exec(a_plugin(tmp_path, answer), args=None, env=None)
        found = credentials(a_kubeconfig(tmp_path, user=user), clock)
        clock.now += 3500
        bearer(found)
        assert len(calls_of(tmp_path)) == 1
        clock.now += 100
        bearer(found)
        assert len(calls_of(tmp_path)) == 2

    def test_a_token_that_is_refused_is_asked_for_again(self, tmp_path: Path) -> None:
        plugin = a_plugin(tmp_path, printing(token="abc"))  # noqa: S106 - of nothing
        with ScriptedServer(knowing("new")) as server:  # type: ignore[arg-type]
            path = a_kubeconfig(tmp_path, user=an_exec(plugin), cluster={"server": server.url})
            client = server.client(access=load_config(path, environ={}))
            a_plugin(tmp_path, printing(token="new"))  # noqa: S106 - of nothing
            assert get(client) == a_note()
        assert len(calls_of(tmp_path)) == 2

    def test_a_certificate(self, tmp_path: Path) -> None:
        alice = a_client_certificate("alice")
        answer = printing(
            clientCertificateData=alice.certificate.decode(), clientKeyData=alice.key.decode()
        )
        seen: list[str] = []

        def script(peer: ServerConnection) -> None:
            seen.append(peer.common_name())
            answering(reply(body=a_note()))(peer)

        with ScriptedServer(script, tls=server_context(tmp_path, clients=[alice])) as server:
            path = a_kubeconfig(
                tmp_path,
                user=an_exec(a_plugin(tmp_path, answer)),
                cluster={"server": server.url, "insecure-skip-tls-verify": True},
            )
            get(server.client(access=load_config(path, environ={})))
        assert seen == ["alice"]

    def test_it_gets_the_cluster_if_it_asks(self, tmp_path: Path) -> None:
        plugin = a_plugin(tmp_path, printing(token="abc"))  # noqa: S106 - of nothing
        user = an_exec(plugin, provideClusterInfo=True, env=[{"name": "A", "value": "b"}])
        credentials(a_kubeconfig(tmp_path, user=user))
        (told,) = calls_of(tmp_path)
        assert json.loads(told)["spec"]["cluster"]["server"] == "https://cluster.example:6443"

    FAILING: Mapping[str, tuple[str, str]] = {
        "an error": ("echo wrong password >&2; exit 3", "process returned 3. wrong password"),
        "nothing": ("true", "failed to decode process output"),
        "no credential": ("echo {}", "missing key 'apiVersion'"),
        "neither token nor certificate": (printing(), "gave neither a token nor a certificate"),
        "half a certificate": (printing(clientKeyData="x"), "gave neither a token nor"),
        "no time": (
            printing(token="a", expirationTimestamp="soon"),  # noqa: S106 - of nothing
            "gave an expirationTimestamp that is none",
        ),
        "a time without zone": (
            printing(token="a", expirationTimestamp="2026-01-01T00:00:00"),  # noqa: S106
            "gave an expirationTimestamp that is none",
        ),
    }

    @pytest.mark.parametrize(("answer", "words"), FAILING.values(), ids=FAILING.keys())
    def test_a_plugin_that_fails_stops_the_start(
        self, tmp_path: Path, answer: str, words: str
    ) -> None:
        path = a_kubeconfig(tmp_path, user=an_exec(a_plugin(tmp_path, answer)))
        with pytest.raises(AccessError) as refusal:
            credentials(path)
        place = f"{path}: users[admin].user.exec: the plugin '{tmp_path}/plugin' "
        assert str(refusal.value).startswith(place)
        assert words in str(refusal.value)

    def test_a_plugin_that_is_not_installed(self, tmp_path: Path) -> None:
        user = an_exec("no-such-plugin", installHint="Install it from example.com.")
        with pytest.raises(AccessError) as refusal:
            credentials(a_kubeconfig(tmp_path, user=user))
        assert "No such file or directory: 'no-such-plugin'" in str(refusal.value)
        assert str(refusal.value).endswith("\nInstall it from example.com.")

    def test_a_plugin_that_fails_later_leaves_the_old_token(self, tmp_path: Path) -> None:
        answer = printing(token="abc", expirationTimestamp=in_time(3600))  # noqa: S106
        clock = Clock()
        found = credentials(a_kubeconfig(tmp_path, user=an_exec(a_plugin(tmp_path, answer))), clock)
        a_plugin(tmp_path, "exit 1")
        clock.now += 4000
        assert bearer(found) == "Bearer abc"


def a_jwt(expires: float) -> str:
    parts = ({"alg": "none"}, {"exp": int(expires)})
    encoded_parts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts]
    return b".".join([part.rstrip(b"=") for part in encoded_parts] + [b"sig"]).decode()


class TestOpenIdConnect:
    @staticmethod
    def user(token: str, **config: str) -> dict[str, object]:
        return {"auth-provider": {"name": "oidc", "config": {"id-token": token, **config}}}

    def test_a_token_that_counts_is_used(self, tmp_path: Path) -> None:
        token = a_jwt(time.time() + 3600)
        found = credentials(a_kubeconfig(tmp_path, user=self.user(token)))
        assert bearer(found) == f"Bearer {token}"

    def test_one_that_has_ended_and_cannot_be_renewed_stops_the_start(self, tmp_path: Path) -> None:
        user = self.user(a_jwt(time.time() - 3600))
        with pytest.raises(AccessError, match=r"users\[admin\]\.user\.auth-provider"):
            credentials(a_kubeconfig(tmp_path, user=user))

    def test_one_that_is_none_stops_the_start(self, tmp_path: Path) -> None:
        with pytest.raises(AccessError, match=r"auth-provider\.config: gave no id-token"):
            credentials(a_kubeconfig(tmp_path, user=self.user("nonsense")))
