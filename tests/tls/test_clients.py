"""Which clients are accepted where they are asked for certificates."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.tls.certificates import CA, CLIENT_ONLY, NOW, OTHER_CA, a_serving_certificate, written
from webhook.tls.clients import TrustedClients
from webhook.tls.files import CertificateFiles
from webhook.tls.issue import CA_LIFETIME, Issued, issue_ca

NAME = "kube-apiserver"
FIRST_ENDED = NOW + CA_LIFETIME + timedelta(days=1)
LATER_CA = issue_ca(now=FIRST_ENDED - timedelta(days=30))
EARLIER_CA = issue_ca(now=NOW - timedelta(days=30))
ALL_ENDED = NOW + 2 * CA_LIFETIME


def clients(directory: Path, pem: bytes = CA.certificate) -> TrustedClients:
    authority = directory / "client-ca.crt"
    authority.write_bytes(pem)
    return TrustedClients((authority,), (NAME, "kube-scheduler"))


END = "Nov 28 12:00:00 2026 GMT"
BEFORE = datetime(2026, 11, 28, tzinfo=UTC)


def subject(*names: str) -> Mapping[str, object]:
    """What the TLS layer gives of a certificate with these common names, and an organization."""
    parts = [
        (("organizationName", "kube-apiserver"),),
        *((("commonName", each),) for each in names),
    ]
    return {"subject": tuple(parts), "version": 3, "notAfter": END}


@pytest.mark.parametrize("name", [NAME, "kube-scheduler"])
def test_a_client_with_an_accepted_name_is_let_in(tmp_path: Path, name: str) -> None:
    end = datetime(2026, 11, 28, 12, tzinfo=UTC)
    assert clients(tmp_path).refusal(subject(name), end) == ("", "")
    reason, words = clients(tmp_path).refusal(subject(name), end + timedelta(seconds=1))
    assert reason == "untrusted"
    assert words.startswith(f"the client's certificate has ended on {END}: ")


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
    reason, words = clients(tmp_path).refusal(subject(*names), BEFORE)
    assert reason == "other_name"
    assert words.startswith("the client's certificate is for ")
    assert "not 'kube-apiserver' and 'kube-scheduler'" in words
    assert "kubeConfigFile" in words


@pytest.mark.parametrize("certificate", [None, {}])
def test_a_client_without_a_certificate_is_refused(
    tmp_path: Path, certificate: Mapping[str, object] | None
) -> None:
    reason, words = clients(tmp_path).refusal(certificate, BEFORE)
    assert reason == "no_certificate"
    assert words.startswith("the client shows no certificate: ")


@pytest.mark.parametrize(
    ("pem", "problem"),
    {
        "nothing": (b"", "holds no PEM certificate that can be read"),
        "garbage": (b"\x00\xff garbage", "holds no PEM certificate that can be read"),
        "only a key": (CA.key, "holds no PEM certificate that can be read"),
        "no CA": (CLIENT_ONLY.certificate, "CN=localhost is the certificate of no CA"),
        "no CA beside one": (
            CA.certificate + CLIENT_ONLY.certificate,
            "CN=localhost is the certificate of no CA",
        ),
    }.values(),
    ids=["nothing", "garbage", "only a key", "no CA", "no CA beside one"],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, pem: bytes, problem: str) -> None:
    (found,) = clients(tmp_path, pem).file_problems(NOW)
    assert found.startswith(f"{tmp_path / 'client-ca.crt'}: {problem}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    trusted = TrustedClients((tmp_path / "missing.crt",), (NAME,))
    assert trusted.file_problems(NOW) == (f"{tmp_path}/missing.crt: No such file or directory",)


@pytest.mark.parametrize("pem", [CA.certificate, CA.certificate + OTHER_CA.certificate])
def test_where_all_cas_have_ended_that_is_a_problem(tmp_path: Path, pem: bytes) -> None:
    found = clients(tmp_path, pem).file_problems(ALL_ENDED)
    assert len(found) == pem.count(b"BEGIN")
    assert all("client-ca.crt: CN=deferred-quota CA" in each for each in found)
    assert all(" ended at " in each for each in found)


@pytest.mark.parametrize(
    ("now", "outside"), [(FIRST_ENDED, "ended at "), (NOW - timedelta(days=1), "begins at ")]
)
@pytest.mark.parametrize("is_bundle", [True, False])
def test_a_ca_outside_its_time_is_left_beside_a_good_one(
    tmp_path: Path, now: datetime, outside: str, *, is_bundle: bool
) -> None:
    first, second = tmp_path / "first.crt", tmp_path / "second.crt"
    good = LATER_CA if now > NOW else EARLIER_CA
    first.write_bytes(CA.certificate + (good.certificate if is_bundle else b""))
    second.write_bytes(good.certificate)
    trusted = TrustedClients((first,) if is_bundle else (first, second), (NAME,))
    problems, (note,) = trusted.checked(now)
    assert not problems
    assert note.startswith(f"{first}: CN=deferred-quota CA ")
    assert outside in note


def test_a_new_pair_is_served_beside_a_ca_that_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = clients(tmp_path, CA.certificate + LATER_CA.certificate)
    clock = [NOW]
    pair = written(tmp_path, a_serving_certificate(lifetime=2 * CA_LIFETIME))
    files = CertificateFiles(*pair, clients=trusted, clock=lambda: clock[0])
    before = files.context()
    clock[0] = FIRST_ENDED
    written(tmp_path, a_serving_certificate(ca=LATER_CA, now=FIRST_ENDED))
    assert files.context() is not before
    assert not files.refusals()
    assert caplog.records[-1].message == "a CA of clients is outside its time"
    assert " ended at " in str(vars(caplog.records[-1])["problems"])


def test_a_ca_that_has_ended_is_one_line_however_often_a_refused_pair_is_tried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = clients(tmp_path, CA.certificate + LATER_CA.certificate)
    pair = written(tmp_path, a_serving_certificate(ca=LATER_CA, now=FIRST_ENDED))
    files = CertificateFiles(*pair, clients=trusted, clock=lambda: FIRST_ENDED)
    files.context()
    for _ in range(3):
        files.offer(Issued(b"x", b"y"), "Secret a/b")
    assert files.refusals()
    lines = [each.message for each in caplog.records]
    assert lines.count("a CA of clients is outside its time") == 1


def test_clients_are_asked_for_certificates_of_all_cas_of_a_file(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    clients(tmp_path, CA.certificate + CA.key + LATER_CA.certificate).apply(context)
    assert context.cert_store_stats()["x509_ca"] == 2


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


def test_without_a_ca_no_certificate_is_asked_for(tmp_path: Path) -> None:
    files = CertificateFiles(*written(tmp_path, a_serving_certificate()), clock=lambda: NOW)
    assert files.context().verify_mode is ssl.CERT_NONE
    assert files.client_refusal(None) == ("", "")


def test_an_offered_pair_asks_for_certificates_of_the_newest_ca_too(tmp_path: Path) -> None:
    trusted = clients(tmp_path)
    now = NOW + timedelta(hours=1)
    files = CertificateFiles(
        *written(tmp_path, a_serving_certificate()), clients=trusted, clock=lambda: now
    )
    files.offer(a_serving_certificate(now=now), "a Secret")
    before = files.context()
    clients(tmp_path, OTHER_CA.certificate)
    after = files.context()
    assert (before.verify_mode, after.verify_mode) == (ssl.CERT_OPTIONAL, ssl.CERT_OPTIONAL)
    assert before.get_ca_certs() != after.get_ca_certs()
    clients(tmp_path, b"")
    assert files.context() is after
    assert all("client-ca.crt: holds no PEM certificate" in each for each in files.refusals())
