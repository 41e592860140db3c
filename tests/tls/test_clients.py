"""Which clients are accepted where they are asked for certificates."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from tests.tls.certificates import CA, CLIENT_ONLY, NOW, OTHER_CA, a_serving_certificate, written
from webhook.tls.clients import TrustedClients
from webhook.tls.files import CertificateFiles
from webhook.tls.issue import CA_LIFETIME

NAME = "kube-apiserver"


def clients(directory: Path, pem: bytes = CA.certificate) -> TrustedClients:
    authority = directory / "client-ca.crt"
    authority.write_bytes(pem)
    return TrustedClients((authority,), (NAME, "kube-scheduler"))


def subject(*names: str) -> Mapping[str, object]:
    """What the TLS layer gives of a certificate with these common names, and an organization."""
    parts = [
        (("organizationName", "kube-apiserver"),),
        *((("commonName", each),) for each in names),
    ]
    return {"subject": tuple(parts), "version": 3}


@pytest.mark.parametrize("name", [NAME, "kube-scheduler"])
def test_a_client_with_an_accepted_name_is_let_in(tmp_path: Path, name: str) -> None:
    assert not clients(tmp_path).refusal(subject(name))


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("kube-apiserver-kubelet-client",),
        ("KUBE-APISERVER",),
        ("kube-apiserver\0.example",),
        (NAME, "eve"),
        (NAME, NAME),
    ],
    ids=repr,
)
def test_a_client_with_another_name_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    words = clients(tmp_path).refusal(subject(*names))
    assert words.startswith("the client's certificate is for ")
    assert "not 'kube-apiserver' and 'kube-scheduler'" in words
    assert "kubeConfigFile" in words


@pytest.mark.parametrize("certificate", [None, {}])
def test_a_client_without_a_certificate_is_refused(
    tmp_path: Path, certificate: Mapping[str, object] | None
) -> None:
    words = clients(tmp_path).refusal(certificate)
    assert words.startswith("the client shows no certificate: ")


@pytest.mark.parametrize(
    ("pem", "problem"),
    {
        "nothing": (b"", "holds no PEM certificate that can be read"),
        "garbage": (b"\x00\xff garbage", "holds no PEM certificate that can be read"),
        "only a key": (CA.key, "holds no PEM certificate that can be read"),
        "several": (CA.certificate + OTHER_CA.certificate, "holds 2 certificates"),
        "no CA": (CLIENT_ONLY.certificate, "is the certificate of no CA"),
    }.values(),
    ids=["nothing", "garbage", "only a key", "several", "no CA"],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, pem: bytes, problem: str) -> None:
    (found,) = clients(tmp_path, pem).file_problems(NOW)
    assert found.startswith(f"{tmp_path / 'client-ca.crt'}: {problem}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    trusted = TrustedClients((tmp_path / "missing.crt",), (NAME,))
    assert trusted.file_problems(NOW) == (f"{tmp_path}/missing.crt: No such file or directory",)


def test_a_ca_that_has_ended_is_a_problem(tmp_path: Path) -> None:
    (found,) = clients(tmp_path).file_problems(NOW + CA_LIFETIME + timedelta(days=1))
    assert "client-ca.crt: ended at " in found


def test_clients_are_asked_for_certificates_of_all_cas(tmp_path: Path) -> None:
    first, second = tmp_path / "first.crt", tmp_path / "second.crt"
    first.write_bytes(CA.certificate)
    second.write_bytes(OTHER_CA.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    TrustedClients((first, second), (NAME,)).apply(context)
    assert context.verify_mode is ssl.CERT_OPTIONAL
    assert context.cert_store_stats()["x509_ca"] == 2


def test_a_new_ca_is_taken_up_and_a_bad_one_is_not(tmp_path: Path) -> None:
    trusted = clients(tmp_path)
    pair = written(tmp_path, a_serving_certificate())
    files = CertificateFiles(*pair, clients=trusted, clock=lambda: NOW)
    before = files.context()
    clients(tmp_path, OTHER_CA.certificate)
    after = files.context()
    assert before is not after
    assert before.get_ca_certs() != after.get_ca_certs()
    clients(tmp_path, b"")
    assert files.context() is after
    assert "client-ca.crt: holds no PEM certificate" in files.refusals()[0]


def test_a_server_with_a_bad_ca_has_no_context(tmp_path: Path) -> None:
    trusted = clients(tmp_path, b"")
    pair = written(tmp_path, a_serving_certificate())
    assert CertificateFiles(*pair, clients=trusted, clock=lambda: NOW).file_problems()


def test_without_a_ca_nobody_is_asked(tmp_path: Path) -> None:
    files = CertificateFiles(*written(tmp_path, a_serving_certificate()), clock=lambda: NOW)
    assert files.context().verify_mode is ssl.CERT_NONE
    assert not files.client_refusal(None)
