"""TLS as API servers speak it, and certificates that change while it is spoken."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.admission.reviews import a_review
from tests.e2e.harness import Server, eventually, make_certificates, post, running_server
from webhook.tls.bootstrap import CertificateDirectory
from webhook.tls.issue import Issued, issue_serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("tls"), threads=4) as server:
        yield server


def client_context(server: Server, version: ssl.TLSVersion) -> ssl.SSLContext:
    """A client that speaks one version of TLS, trusts the CA and knows HTTP/1.1 only."""
    assert server.certificates is not None
    context = ssl.create_default_context(cafile=str(server.certificates / "ca.crt"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("DEFAULT@SECLEVEL=0")  # or the client itself refuses old versions
    context.set_alpn_protocols(["http/1.1"])
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(server: Server, version: ssl.TLSVersion) -> None:
    context = client_context(server, version)
    with context.wrap_socket(server.socket(), server_hostname="localhost") as sock:
        assert (sock.version(), sock.selected_alpn_protocol()) == (
            {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version],
            "http/1.1",
        )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_older_versions_are_not(server: Server, version: ssl.TLSVersion) -> None:
    context = client_context(server, version)
    with server.socket() as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname="localhost")


def test_sessions_are_resumed(server: Server) -> None:
    context = client_context(server, ssl.TLSVersion.TLSv1_2)
    with context.wrap_socket(server.socket(), server_hostname="localhost") as first:
        session = first.session
    again = context.wrap_socket(server.socket(), server_hostname="localhost", session=session)
    with again:
        assert again.session_reused


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_client_finds_its_name_in_the_certificate(server: Server, name: str) -> None:
    with server.context.wrap_socket(server.socket(), server_hostname=name):
        pass


def test_a_client_that_calls_another_name_does_not_trust_it(server: Server) -> None:
    with server.socket() as plain, pytest.raises(ssl.SSLCertVerificationError):
        server.context.wrap_socket(plain, server_hostname="webhook.example")


@pytest.mark.parametrize("name", [None, "127.0.0.1", "webhook.example"])
def test_whatever_name_a_client_calls_it_is_shown_the_one_certificate(
    server: Server, name: str | None
) -> None:
    """An API server that dials an address names nothing, and it is for the client to refuse."""
    usual = shown(server)
    careless = ssl.create_default_context()
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    with careless.wrap_socket(server.socket(), server_hostname=name) as sock:
        certificate = ssl.DER_cert_to_PEM_cert(sock.getpeercert(binary_form=True) or b"").strip()
    assert certificate == usual


def test_a_client_that_knows_rsa_only_is_refused_and_others_are_served(server: Server) -> None:
    before = server.metric("connections_closed_total", reason="handshake_failed")
    context = client_context(server, ssl.TLSVersion.TLSv1_2)
    context.set_ciphers("aRSA:@SECLEVEL=0")
    with server.socket() as plain, pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
        context.wrap_socket(plain, server_hostname="localhost")
    assert eventually(
        lambda: server.metric("connections_closed_total", reason="handshake_failed") == before + 1
    )
    context.set_ciphers("aECDSA:@SECLEVEL=0")
    with context.wrap_socket(server.socket(), server_hostname="localhost") as sock:
        assert sock.version() == "TLSv1.2"


def test_a_client_without_the_ca_does_not_trust_it(server: Server) -> None:
    with server.socket() as plain, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")


def test_a_handshake_in_single_bytes_is_completed(server: Server) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = server.context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with server.socket() as sock:
        for _ in range(10):
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
                break
            for byte in outgoing.read():
                sock.send(bytes([byte]))
            incoming.write(sock.recv(65536))
        sock.sendall(outgoing.read())
        assert client.version() == "TLSv1.3"


def renew(certificates: Path) -> Issued:
    """Write a new serving certificate of the same CA, in place of the old one."""
    files = CertificateDirectory(certificates)
    ca = Issued(files.ca_certificate.read_bytes(), files.ca_key.read_bytes())
    issued = issue_serving(
        ca, dns_names=["localhost"], ip_addresses=["127.0.0.1"], now=datetime.now(UTC)
    )
    write_pair(certificates, issued)
    return issued


def write_pair(certificates: Path, pair: Issued) -> None:
    for name, data in (("tls.key", pair.key), ("tls.crt", pair.certificate)):
        part = certificates / f".{name}"
        part.write_bytes(data)
        part.replace(certificates / name)


def shown(server: Server) -> str:
    with server.tls_socket() as sock:
        return ssl.DER_cert_to_PEM_cert(sock.getpeercert(binary_form=True) or b"").strip()


def test_renewed_certificates_are_served_without_a_lost_request(tmp_path: Path) -> None:
    stop = threading.Event()
    codes: list[int] = []
    lost: list[Exception] = []

    def ask(busy: Server) -> None:
        while not stop.is_set():
            with contextlib.closing(busy.connect()) as connection:
                for _ in range(5):
                    try:
                        codes.append(post(connection, a_review()).status)
                    except (OSError, http.client.HTTPException) as err:
                        lost.append(err)

    with running_server(tmp_path, threads=4, log_level="warning") as server:
        assert server.certificates is not None
        threads = [threading.Thread(target=ask, args=(server,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(8):
            served = renew(server.certificates).certificate.decode().strip()
            assert eventually(lambda served=served: shown(server) == served)
        stop.set()
        for thread in threads:
            thread.join()
        assert server.metric("tls_reloads_total", result="loaded") >= 8
    assert lost == []
    assert set(codes) == {200}


def test_a_kept_connection_lives_on_through_a_renewal(server: Server) -> None:
    assert server.certificates is not None
    with contextlib.closing(server.connect()) as connection:
        assert post(connection, a_review()).status == 200
        local = connection.sock.getsockname()
        renew(server.certificates)
        shown(server)
        assert post(connection, a_review()).status == 200
        assert connection.sock.getsockname() == local


def test_a_broken_pair_is_refused_and_the_last_good_one_served(tmp_path: Path) -> None:
    with running_server(tmp_path, threads=2) as server:
        assert server.certificates is not None
        before = shown(server)
        stranger = CertificateDirectory(make_certificates(tmp_path / "stranger"))
        good = (server.certificates / "tls.crt").read_bytes()
        write_pair(server.certificates, Issued(good, stranger.key.read_bytes()))
        assert shown(server) == before
        assert server.post(a_review()).status == 200
        assert server.ops("/readyz").status == 200
        assert server.metric("tls_reloads_total", result="refused") >= 1
        (line,) = server.log_lines("certificate refused, the last good one stays")
        assert "tls.key: does not belong to the certificate in" in line["problems"][0]
        served = renew(server.certificates).certificate.decode().strip()
        assert shown(server) == served


def test_the_end_of_the_certificate_is_a_metric(server: Server) -> None:
    with server.tls_socket() as sock:
        certificate = sock.getpeercert() or {}
    ends = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    assert server.metric("tls_certificate_not_after_seconds") == ends


def test_new_files_are_noticed_without_a_connection(tmp_path: Path) -> None:
    with running_server(tmp_path, threads=2) as server:
        assert server.certificates is not None
        renew(server.certificates)
        assert eventually(
            lambda: server.metric("tls_reloads_total", result="loaded") == 1, seconds=10
        )
        assert server.metric("connections_open") == 0


def test_the_client_is_gone_before_its_handshake(server: Server) -> None:
    for _ in range(20):
        sock = server.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        sock.close()  # a reset
    assert server.post(a_review()).status == 200
