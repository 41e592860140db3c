"""A pair that cannot be served is seen before it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tests.tls.certificates import (
    CA,
    CLIENT_ONLY,
    NO_NAMES,
    NOW,
    OTHER_CA,
    a_serving_certificate,
    written,
)
from webhook.tls.issue import Issued
from webhook.tls.pair import CertificateFileError, covers, names_of, pair_problems, read_chain

GOOD = a_serving_certificate()


def encrypted(issued: Issued) -> bytes:
    key = serialization.load_pem_private_key(issued.key, password=None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


def test_a_good_pair_has_no_problems(tmp_path: Path) -> None:
    assert pair_problems(*written(tmp_path, GOOD), now=NOW, names=["localhost"]) == ()


def test_a_chain_up_to_the_ca_has_no_problems(tmp_path: Path) -> None:
    pair = Issued(GOOD.certificate + CA.certificate, GOOD.key)
    assert pair_problems(*written(tmp_path, pair), now=NOW) == ()


PROBLEMS: dict[str, tuple[Issued, datetime, str]] = {
    "another's key": (
        Issued(GOOD.certificate, a_serving_certificate().key),
        NOW,
        "tls.key: does not belong to the certificate in",
    ),
    "ended": (GOOD, NOW + timedelta(days=90), "tls.crt: ended at 2026-04-05T08:00:00+00:00"),
    "not begun": (GOOD, NOW - timedelta(hours=2), "tls.crt: begins at 2026-01-05T07:00:00+00:00"),
    "a chain in the wrong order": (
        Issued(CA.certificate + GOOD.certificate, CA.key),
        NOW,
        "tls.crt: certificate 1 of the file is not signed by the one behind it",
    ),
    "a chain with a stranger": (
        Issued(GOOD.certificate + OTHER_CA.certificate, GOOD.key),
        NOW,
        "tls.crt: certificate 1 of the file is not signed by the one behind it",
    ),
    "no names": (NO_NAMES, NOW, "tls.crt: has no subject alternative name"),
    "for clients": (CLIENT_ONLY, NOW, "tls.crt: is not meant for servers"),
    "no certificate": (Issued(b"hello", GOOD.key), NOW, "tls.crt: holds no PEM certificate"),
    "an empty file": (Issued(b"", GOOD.key), NOW, "tls.crt: holds no PEM certificate"),
    "half a certificate": (
        Issued(GOOD.certificate[:300], GOOD.key),
        NOW,
        "tls.crt: holds no PEM certificate",
    ),
    "no key": (Issued(GOOD.certificate, b"hello"), NOW, "tls.key: holds no PEM private key"),
    "a certificate for the key": (
        Issued(GOOD.certificate, GOOD.certificate),
        NOW,
        "tls.key: holds no PEM private key",
    ),
    "an encrypted key": (
        Issued(GOOD.certificate, encrypted(GOOD)),
        NOW,
        "tls.key: the private key is encrypted",
    ),
}


@pytest.mark.parametrize(("pair", "now", "problem"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_a_problem_names_the_file(
    tmp_path: Path, pair: Issued, now: datetime, problem: str
) -> None:
    (found, *_more) = pair_problems(*written(tmp_path, pair), now=now)
    assert found.startswith(f"{tmp_path}/{problem}")


def test_all_problems_are_reported(tmp_path: Path) -> None:
    pair = Issued(NO_NAMES.certificate, GOOD.key)
    problems = pair_problems(*written(tmp_path, pair), now=NOW + timedelta(days=9), names=["x.y"])
    assert [problem.split(": ")[1].split(" ")[0] for problem in problems] == [
        "ended",
        "has",
        "does",
        "does",
    ]


UNREADABLE: dict[str, Callable[[Path], Path]] = {
    "missing": lambda directory: directory / "nothing.crt",
    "a directory": lambda directory: directory,
    "below a file": lambda directory: directory / "tls.crt" / "x",
}


@pytest.mark.parametrize("path_in", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, path_in: Callable[[Path], Path]
) -> None:
    certificate, key = written(tmp_path, GOOD)
    path = path_in(tmp_path)
    with pytest.raises(CertificateFileError) as caught:
        read_chain(path)
    assert caught.value.path == path
    assert pair_problems(path, key, now=NOW) == (str(caught.value),)
    assert pair_problems(certificate, path, now=NOW) == (str(caught.value),)


COVERED = {
    "the name": ("hook.quota.svc", True),
    "in capitals": ("Hook.Quota.SVC", True),
    "by the wildcard": ("other.example", True),
    "two labels below the wildcard": ("a.b.example", False),
    "the wildcard's parent": ("example", False),
    "another name": ("hook.quota", False),
    "an address": ("10.0.0.7", True),
    "an address written at length": ("0:0:0:0:0:0:0:1", True),
    "another address": ("10.0.0.8", False),
}


@pytest.mark.parametrize(("name", "covered"), COVERED.values(), ids=COVERED.keys())
def test_names_are_covered_as_clients_see_it(name: str, covered: bool) -> None:
    issued = a_serving_certificate(names=["hook.quota.svc", "*.example"], ips=["10.0.0.7", "::1"])
    assert covers(x509.load_pem_x509_certificate(issued.certificate), name) is covered


def test_a_certificate_tells_its_facts(tmp_path: Path) -> None:
    certificate, _ = written(tmp_path, GOOD)
    found = read_chain(certificate)[0]
    assert names_of(found) == ("localhost", "127.0.0.1")
    assert found.subject.rfc4514_string() == "CN=localhost"
    assert found.issuer.rfc4514_string().startswith("CN=deferred-quota CA 2026-01-05")
    assert found.not_valid_after_utc == NOW + timedelta(days=90)
