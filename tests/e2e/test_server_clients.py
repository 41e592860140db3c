"""A server that asks clients for certificates, and the clients that come."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.admission.reviews import a_review
from tests.controlplane.pki import Pki
from tests.e2e.harness import Reply, Server, eventually, post, running_server
from webhook.cli.cluster_context import answers_all
from webhook.tls.issue import Issued, issue_ca

NAME = "kube-apiserver"


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    directory = tmp_path_factory.mktemp("client-ca")
    made = Pki(directory, issue_ca(now=datetime.now(UTC)))
    made.ca_file.write_bytes(made.ca.certificate)
    return made


@pytest.fixture(scope="module")
def server(ca: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(
        tmp_path_factory.mktemp("clients"),
        threads=4,
        client_authorities=[str(ca.ca_file)],
        client_names=[NAME],
    ) as server:
        yield server


def context_of(
    server: Server,
    directory: Path,
    client: Issued | None,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> ssl.SSLContext:
    """A client that trusts the server, and shows a certificate."""
    assert server.certificates is not None
    context = ssl.create_default_context(cafile=str(server.certificates / "ca.crt"))
    context.maximum_version = version
    if client is not None:
        certificate, key = directory / "client.crt", directory / "client.key"
        certificate.write_bytes(client.certificate)
        key.write_bytes(client.key)
        context.load_cert_chain(certificate, key)
    return context


def asked(server: Server, context: ssl.SSLContext, review: object = None) -> Reply:
    connection = http.client.HTTPSConnection("localhost", server.port, timeout=5, context=context)
    with contextlib.closing(connection):
        return post(connection, a_review() if review is None else review)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_api_server_is_answered(
    server: Server, ca: Pki, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    client = ca.issue_client(NAME, ["masters"])
    context = context_of(server, tmp_path, client, version)
    connection = http.client.HTTPSConnection("localhost", server.port, timeout=5, context=context)
    with contextlib.closing(connection):
        for _ in range(2):
            reply = post(connection, a_review())
            assert (reply.status, reply.json["response"]["allowed"]) == (200, True)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_without_a_certificate_gets_the_reason(
    server: Server, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    before = server.metric("clients_refused_total", reason="no_certificate")
    reply = asked(server, context_of(server, tmp_path, None, version))
    assert reply.status == 403
    assert reply.json["message"].startswith("the client shows no certificate: ")
    assert reply.headers["Connection"] == "close"
    assert server.metric("clients_refused_total", reason="no_certificate") == before + 1


def test_a_client_that_only_shakes_hands_is_not_counted(server: Server) -> None:
    """As the server itself, which sees whether it is trusted."""
    before = server.metric("clients_refused_total", reason="no_certificate")
    closed = server.metric("connections_closed_total", reason="peer")
    with server.tls_socket() as sock:
        assert sock.version()
    assert eventually(lambda: server.metric("connections_closed_total", reason="peer") > closed)
    assert server.metric("clients_refused_total", reason="no_certificate") == before


def test_a_client_with_another_name_gets_the_reason(
    server: Server, ca: Pki, tmp_path: Path
) -> None:
    client = ca.issue_client("kube-apiserver-kubelet-client", ["system:masters"])
    reply = asked(server, context_of(server, tmp_path, client))
    assert reply.status == 403
    words = "the client's certificate is for 'kube-apiserver-kubelet-client', not 'kube-apiserver'"
    assert words in reply.json["message"]
    assert server.metric("clients_refused_total", reason="other_name") >= 1


def test_a_large_request_is_refused_before_it_is_read(server: Server, tmp_path: Path) -> None:
    reply = asked(server, context_of(server, tmp_path, None), b"[" * 1024 * 1024)
    assert reply.status == 403  # 400 is what it would be for its body


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_of_another_ca_ends_the_handshake(
    server: Server, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    other = Pki(tmp_path, issue_ca(now=datetime.now(UTC)))
    context = context_of(server, tmp_path, other.issue_client(NAME, []), version)
    with pytest.raises(ssl.SSLError, match=r"UNKNOWN_CA|DECRYPT_ERROR"):
        asked(server, context)
    assert eventually(lambda: server.metric("clients_refused_total", reason="untrusted") >= 1)


def test_a_serving_certificate_is_none_of_a_client(tmp_path: Path) -> None:
    made = Pki.make(tmp_path, service_address="127.0.0.2")
    serving, key = made.serving
    shown = Issued(serving.read_bytes(), key.read_bytes())
    with running_server(
        tmp_path / "server", client_authorities=[str(made.ca_file)], client_names=["localhost"]
    ) as strict:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            asked(strict, context_of(strict, tmp_path, shown))
        assert eventually(lambda: strict.metric("clients_refused_total", reason="untrusted") == 1)


def test_probes_and_metrics_ask_for_no_certificate(server: Server) -> None:
    assert [server.ops(page).status for page in ("/livez", "/readyz", "/metrics")] == [200] * 3


def test_doctor_sees_that_the_port_is_closed(server: Server) -> None:
    assert not answers_all(f"https://localhost:{server.port}")


def test_few_lines_tell_of_many_refusals(ca: Pki, tmp_path: Path) -> None:
    with running_server(
        tmp_path, client_authorities=[str(ca.ca_file)], client_names=[NAME]
    ) as server:
        context = context_of(server, tmp_path, None)
        for _ in range(20):
            assert asked(server, context).status == 403
        (line,) = server.log_lines("client refused")
        assert (line["reason"], line["client"]) == ("no_certificate", "127.0.0.1")
        assert "kubeConfigFile" in line["detail"]
        assert server.metric("clients_refused_total", reason="no_certificate") == 20
        assert json.loads(server.ops("/readyz").body)["status"] == "ok"


def test_a_new_ca_counts_from_the_next_connection_on(ca: Pki, tmp_path: Path) -> None:
    authority = tmp_path / "client-ca.crt"
    authority.write_bytes(ca.ca.certificate)
    with running_server(
        tmp_path, client_authorities=[str(authority)], client_names=[NAME]
    ) as server:
        former = context_of(server, tmp_path, ca.issue_client(NAME, []))
        assert asked(server, former).status == 200
        other = Pki(tmp_path, issue_ca(now=datetime.now(UTC)))
        part = tmp_path / "part"
        part.write_bytes(other.ca.certificate)
        part.replace(authority)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            asked(server, former)
        client = context_of(server, tmp_path, other.issue_client(NAME, []))
        assert asked(server, client).status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_two_cas_of_a_file_are_trusted_for_a_while(
    ca: Pki, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    authority = tmp_path / "client-ca.crt"
    other = Pki(tmp_path, issue_ca(now=datetime.now(UTC) - timedelta(days=1)))
    ended = issue_ca(now=datetime.now(UTC) - timedelta(days=9), lifetime=timedelta(days=8))
    both = ended.certificate + ca.ca.certificate + other.ca.certificate
    authority.write_bytes(both)
    with running_server(
        tmp_path, client_authorities=[str(authority)], client_names=[NAME]
    ) as server:
        for each in (ca, other):
            client = context_of(server, tmp_path, each.issue_client(NAME, []), version)
            assert asked(server, client).status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_former_session_lets_no_certificate_in_that_has_ended(
    server: Server, ca: Pki, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """A client that resumes a session is not asked for its certificate again."""
    end = datetime.now(UTC) + timedelta(seconds=5)
    context = context_of(server, tmp_path, ca.issue_client(NAME, [], end=end), version)
    former: ssl.SSLSession | None = None
    answers = []
    with contextlib.ExitStack() as kept:
        while datetime.now(UTC) < end + timedelta(seconds=2):
            try:
                plain = socket.create_connection(("localhost", server.port), timeout=5)
                sock = context.wrap_socket(plain, server_hostname="localhost", session=former)
                kept.enter_context(sock)  # else its server may forget the session
                sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answers.append(sock.recv(12))
                former = sock.session
            except (ssl.SSLError, ConnectionError):
                answers.append(b"no handshake")
            time.sleep(0.2)
    last = b"HTTP/1.1 403" if version is ssl.TLSVersion.TLSv1_2 else b"no handshake"
    assert (answers[0], answers[-1]) == (b"HTTP/1.1 200", last)
