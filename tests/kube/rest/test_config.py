"""Finding the way into a cluster: which file, which context, and what is wrong with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kube.rest.kubeconfigs import a_kubeconfig, a_plugin, an_exec, encoded, printing
from tests.kube.rest.scripted_server import (
    ScriptedServer,
    a_note,
    answering,
    authority,
    reply,
    server_context,
)
from webhook.kube.api import CONFIG_MAPS, ForbiddenError, UnreachableError
from webhook.kube.rest import AccessError, RestClient, RestConfig, load_config


def bearer(access: RestConfig) -> str:
    return access.credentials.identity().authorization


class TestWhichFile:
    def test_the_one_that_is_named(self, tmp_path: Path) -> None:
        access = load_config(a_kubeconfig(tmp_path, user={"token": "abc"}), environ={})
        assert (access.server, bearer(access)) == ("https://cluster.example:6443", "Bearer abc")
        assert access.source == f"context 'lab' of {tmp_path}/config"

    def test_then_those_of_the_variable(self, tmp_path: Path) -> None:
        one = a_kubeconfig(tmp_path, name="one", context="a", current=None, user={"token": "1"})
        two = a_kubeconfig(tmp_path, name="two", context="b", current="b", user={"token": "2"})
        environ = {"KUBECONFIG": f"{tmp_path}/missing::{one}:{two}"}
        # the context of the second file; cluster and user of that name of the first
        assert bearer(load_config(environ=environ)) == "Bearer 1"
        assert load_config(context="a", environ=environ).source.startswith("context 'a'")

    def test_then_the_one_of_the_user(self, tmp_path: Path) -> None:
        (tmp_path / ".kube").mkdir()
        a_kubeconfig(tmp_path / ".kube", user={"token": "mine"})
        assert bearer(load_config(environ={"HOME": str(tmp_path)})) == "Bearer mine"

    def test_another_context(self, tmp_path: Path) -> None:
        path = a_kubeconfig(tmp_path, user={"token": "abc"})
        config = json.loads(path.read_text())
        config["contexts"].append({"name": "far", "context": {"cluster": "far", "user": "me"}})
        config["clusters"].append({"name": "far", "cluster": {"server": "https://far.example/"}})
        config["users"].append({"name": "me", "user": {"token": "far-token"}})
        path.write_text(json.dumps(config))
        access = load_config(path, "far", environ={})
        assert (access.server, bearer(access)) == ("https://far.example", "Bearer far-token")

    def test_a_context_without_user_sends_no_credentials(self, tmp_path: Path) -> None:
        path = a_kubeconfig(tmp_path)
        config = json.loads(path.read_text())
        del config["contexts"][0]["context"]["user"]
        path.write_text(json.dumps(config))
        assert bearer(load_config(path, environ={})) == ""

    def test_the_namespace_of_the_context(self, tmp_path: Path) -> None:
        path = a_kubeconfig(tmp_path, user={"token": "abc"})
        assert load_config(path, environ={}).namespace == "default"
        config = json.loads(path.read_text())
        config["contexts"][0]["context"]["namespace"] = "team-a"
        path.write_text(json.dumps(config))
        assert load_config(path, environ={}).namespace == "team-a"

    def test_no_way_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(AccessError) as refusal:
            load_config(environ={"HOME": str(tmp_path)})
        assert str(refusal.value) == (
            "no way into a cluster: there is no kubeconfig ($KUBECONFIG is not set, "
            "~/.kube/config missing), and this is no pod (KUBERNETES_SERVICE_HOST is not set)"
        )

    def test_a_context_of_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(AccessError, match=r"context 'lab': there is no kubeconfig"):
            load_config(context="lab", environ={"KUBECONFIG": f"{tmp_path}/x"})


SECRET = "s3cr3t"  # noqa: S105 - of nothing
OF_NOBODY = """
current-context: x
contexts: [{name: x, context: {cluster: y, user: z}}]
clusters: [{name: y, cluster: {server: 'https://a'}}]
"""
WRONG: Mapping[str, tuple[str, str]] = {
    "no YAML": (f"a: [{SECRET}", "is no YAML: "),
    "no text": ("\0", "is no YAML"),
    "no mapping": (f"- {SECRET}", "is no kubeconfig: it must be a mapping"),
    "no context": ("{}", "current-context: is missing; name a context"),
    "another context": (
        "{current-context: x, contexts: [{name: b}, {name: a}]}",
        "there is no context 'x'; there are a, b",
    ),
    "contexts of text": ("{current-context: x, contexts: x}", "contexts: must be a list"),
    "a context of text": (
        "{current-context: x, contexts: [{name: x, context: x}]}",
        "contexts[x].context: must be a mapping",
    ),
    "a context without cluster": (
        "{current-context: x, contexts: [{name: x, context: {user: y}}]}",
        "contexts[x].context.cluster: is missing",
    ),
    "no cluster": (
        "{current-context: x, contexts: [{name: x, context: {cluster: y}}]}",
        "contexts[x].context.cluster: there is no cluster 'y'",
    ),
    "no user": (
        OF_NOBODY,
        "contexts[x].context.user: there is no user 'z'",
    ),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(AccessError) as refusal:
        load_config(path, environ={})
    assert str(refusal.value).startswith(f"{path}: {words}")
    assert SECRET not in str(refusal.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="config: No such file or directory"):
        load_config(tmp_path / "config", environ={})


CLUSTERS: Mapping[str, tuple[dict[str, object], str]] = {
    "no server": ({"server": None}, "server: is missing"),
    "no address": ({"server": "cluster:6443"}, "server: must be an address like https://host:port"),
    "no port": ({"server": "https://a:b"}, "server: must be an address like https://host:port"),
    "a number": ({"server": 5}, "server: must be text; put it in quotes"),
    "no file": ({"certificate-authority": "x.crt"}, "certificate-authority: there is no file "),
    "no base64": (
        {"certificate-authority-data": f"?{SECRET}"},
        "certificate-authority-data: is not base64",
    ),
    "no flag": (
        {"insecure-skip-tls-verify": "yes"},
        "insecure-skip-tls-verify: must be true or false",
    ),
    "both": (
        {"insecure-skip-tls-verify": True, "certificate-authority-data": "YQ=="},
        "insecure-skip-tls-verify: contradicts certificate-authority",
    ),
    "a proxy of another kind": ({"proxy-url": "socks5://a:1"}, "proxy-url: only proxies of HTTP"),
}


@pytest.mark.parametrize(("cluster", "words"), CLUSTERS.values(), ids=CLUSTERS.keys())
def test_what_is_wrong_with_a_cluster(
    tmp_path: Path, cluster: dict[str, object], words: str
) -> None:
    path = a_kubeconfig(tmp_path, cluster=cluster)
    with pytest.raises(AccessError) as refusal:
        load_config(path, environ={})
    assert str(refusal.value).startswith(f"{path}: clusters[main].cluster.{words}")
    assert str(refusal.value).endswith("(context 'lab')")
    assert SECRET not in str(refusal.value)


def test_a_certificate_that_is_none_is_found_before_the_first_request(tmp_path: Path) -> None:
    cluster = {"certificate-authority-data": encoded(b"nonsense")}
    access = load_config(a_kubeconfig(tmp_path, cluster=cluster), environ={})
    with pytest.raises(AccessError, match="certificate-authority-data: holds no certificate"):
        RestClient(access)


class TestTrust:
    def ask(self, server: ScriptedServer, directory: Path, **cluster: object) -> None:
        named = {name.replace("_", "-"): value for name, value in cluster.items()}
        path = a_kubeconfig(directory, cluster={"server": server.url, **named})
        client = RestClient(load_config(path, environ={}))
        server.closes(client)
        client.get(CONFIG_MAPS, "notes", namespace="team-a")

    @pytest.fixture
    def authority_file(self, tmp_path: Path) -> Path:
        path = tmp_path / "ca.crt"
        path.write_bytes(b"# a comment of \xc3\xa4\n" + authority().certificate)
        return path

    def test_an_authority_in_a_file_beside_the_kubeconfig(
        self, tmp_path: Path, authority_file: Path
    ) -> None:
        with ScriptedServer(
            answering(reply(body=a_note())), tls=server_context(tmp_path)
        ) as server:
            self.ask(server, tmp_path, certificate_authority=authority_file.name)

    def test_an_authority_in_the_kubeconfig(self, tmp_path: Path) -> None:
        with ScriptedServer(
            answering(reply(body=a_note())), tls=server_context(tmp_path)
        ) as server:
            data = encoded(authority().certificate)
            self.ask(server, tmp_path, certificate_authority_data=data)

    def test_an_unknown_authority(self, tmp_path: Path) -> None:
        with (
            ScriptedServer(answering(reply(body=a_note())), tls=server_context(tmp_path)) as server,
            pytest.raises(UnreachableError, match="certificate is not trusted: "),
        ):
            self.ask(server, tmp_path)

    def test_another_host(self, tmp_path: Path, authority_file: Path) -> None:
        context = server_context(tmp_path, name="api.example")
        with ScriptedServer(answering(reply(body=a_note())), tls=context) as server:
            with pytest.raises(UnreachableError, match="IP address mismatch"):
                self.ask(server, tmp_path, certificate_authority=authority_file.name)
            self.ask(
                server,
                tmp_path,
                certificate_authority=authority_file.name,
                tls_server_name="api.example",
            )

    def test_any_server(self, tmp_path: Path) -> None:
        context = server_context(tmp_path, name="api.example")
        with ScriptedServer(answering(reply(body=a_note())), tls=context) as server:
            self.ask(server, tmp_path, insecure_skip_tls_verify=True)

    def test_an_authority_that_changes(self, tmp_path: Path, authority_file: Path) -> None:
        once = reply(body=a_note(), Connection="close")
        with ScriptedServer(answering(once), tls=server_context(tmp_path)) as server:
            right = authority_file.read_bytes()
            wrong = tmp_path / "other.crt"
            wrong.write_bytes((tmp_path / "server.crt").read_bytes())
            path = a_kubeconfig(
                tmp_path, cluster={"server": server.url, "certificate-authority": "other.crt"}
            )
            client = RestClient(load_config(path, environ={}))
            client.get(CONFIG_MAPS, "notes", namespace="team-a")  # whoever is listed is trusted
            wrong.write_bytes(self.another_authority())
            with pytest.raises(UnreachableError):
                client.get(CONFIG_MAPS, "notes", namespace="team-a")
            wrong.write_bytes(right)
            client.get(CONFIG_MAPS, "notes", namespace="team-a")
            wrong.unlink()
            with pytest.raises(UnreachableError, match=r"other\.crt: No such file"):
                client.get(CONFIG_MAPS, "notes", namespace="team-a")

    @staticmethod
    def another_authority() -> bytes:
        return authority.__wrapped__().certificate


class TestInCluster:
    """The service account of a pod."""

    @pytest.fixture
    def account(self, tmp_path: Path) -> Path:
        directory = tmp_path / "serviceaccount"
        directory.mkdir()
        (directory / "token").write_text("pod-token\n")
        (directory / "ca.crt").write_bytes(authority().certificate)
        return directory

    @staticmethod
    def environ(server: ScriptedServer) -> dict[str, str]:
        return {
            "HOME": "/nonexistent",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }

    def test_every_request_names_its_client(self, tmp_path: Path, account: Path) -> None:
        """Release 36.0.0 of the package sent no Authorization header: all were anonymous."""
        with ScriptedServer(
            answering(reply(body=a_note())), tls=server_context(tmp_path)
        ) as server:
            access = load_config(environ=self.environ(server), service_account=account)
            assert access.server == f"https://127.0.0.1:{server.port}"
            client = server.client(access=access)
            client.get(CONFIG_MAPS, "notes", namespace="team-a")
            client.update(CONFIG_MAPS, a_note())
            client.watch(CONFIG_MAPS, resource_version=1).close()
        shown = [asked.headers.get("authorization") for asked in server.requests]
        assert shown == ["Bearer pod-token"] * 3

    def test_the_namespace_is_that_of_the_pod(self, account: Path) -> None:
        environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1", "HOME": "/x"}
        assert load_config(environ=environ, service_account=account).namespace == "default"
        (account / "namespace").write_text("team-a")
        assert load_config(environ=environ, service_account=account).namespace == "team-a"

    def test_refusals_name_the_service_account(self, tmp_path: Path, account: Path) -> None:
        with ScriptedServer(
            answering(reply(403, "no", Content_Type="text/plain")), tls=server_context(tmp_path)
        ) as server:
            access = load_config(environ=self.environ(server), service_account=account)
            assert access.source == f"service account of this pod ({account})"
            with pytest.raises(ForbiddenError):
                server.client(access=access).list(CONFIG_MAPS)

    @pytest.mark.parametrize("name", ["token", "ca.crt"])
    def test_a_file_that_is_missing(self, account: Path, name: str) -> None:
        (account / name).unlink()
        environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1", "HOME": "/x"}
        with pytest.raises(
            AccessError, match=rf"service account of this pod \(.*\): .*/{name}: .*No"
        ):
            load_config(environ=environ, service_account=account)

    @pytest.mark.parametrize("name", ["token", "ca.crt"])
    def test_a_file_that_is_empty(self, account: Path, name: str) -> None:
        (account / name).write_text("\n")
        environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1", "HOME": "/x"}
        with pytest.raises(AccessError, match=rf"/{name}: .*is empty"):
            load_config(environ=environ, service_account=account)

    def test_a_service_without_port(self, account: Path) -> None:
        environ = {"KUBERNETES_SERVICE_HOST": "h", "HOME": "/x"}
        with pytest.raises(AccessError, match="KUBERNETES_SERVICE_PORT is not set"):
            load_config(environ=environ, service_account=account)

    @pytest.mark.parametrize(
        "proxies", [{}, {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}]
    )
    def test_a_pod_takes_no_heavy_package(self, account: Path, proxies: Mapping[str, str]) -> None:
        program = (
            "import sys\nfrom pathlib import Path\n"
            "from webhook.kube.rest import RestClient, load_config\n"
            "access = load_config(service_account=Path(sys.argv[1]))\n"
            "RestClient(access)\n"
            "print(access.server, access.proxy or 'direct', 'kubernetes' in sys.modules)\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", program, str(account)],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3],
            env={
                "PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **proxies,
                "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443",
            },
        )  # fmt: skip
        assert ran.stdout.split() == ["https://10.96.0.1:443", "direct", "False"], ran.stderr

    def test_an_address_of_six_bytes(self, account: Path) -> None:
        environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
        access = load_config(environ={**environ, "HOME": "/x"}, service_account=account)
        assert access.server == "https://[fd00::1]:443"


def test_impersonation_asks_as_another_user(tmp_path: Path) -> None:
    with ScriptedServer(answering(reply(body=a_note()))) as server:
        path = a_kubeconfig(
            tmp_path,
            cluster={"server": server.url},
            user={"token": "t", "as": "alice", "as-groups": ["devs"]},
        )
        client = server.client(access=load_config(path, environ={}))
        client.get(CONFIG_MAPS, "notes", namespace="team-a")
    headers = server.requests[0].headers
    assert (headers["impersonate-user"], headers["impersonate-group"]) == ("alice", "devs")


def test_the_heavy_package_is_imported_only_where_it_works(tmp_path: Path) -> None:
    plain = a_kubeconfig(tmp_path, user={"token": "t"}, name="plain")
    plugin = a_plugin(tmp_path, printing(token="t"))  # noqa: S106 - of nothing
    heavy = a_kubeconfig(tmp_path, user=an_exec(plugin), name="heavy")
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from webhook.kube.rest import RestClient, load_config\n"
        "for path in sys.argv[1:]:\n"
        "    RestClient(load_config(Path(path)))\n"
        "    print('kubernetes' in sys.modules)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(plain), str(heavy)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3],
        env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert ran.stdout.split() == ["False", "True"], ran.stderr
