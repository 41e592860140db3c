"""A directory of certificates that is made once and then kept."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from tests.tls.certificates import NOW
from webhook.tls.bootstrap import (
    CertificateDirectory,
    CertificateSpec,
    IssuedParts,
    Outcome,
    bootstrap,
    serving_problems,
)
from webhook.tls.issue import IssueError
from webhook.tls.pair import read_chain

WANTED = CertificateSpec(dns_names=["localhost"], ip_addresses=["::1"], lifetime=timedelta(days=30))


@pytest.fixture
def directory(tmp_path: Path) -> CertificateDirectory:
    return CertificateDirectory(tmp_path / "deep" / "certs")


def contents(directory: CertificateDirectory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.path.iterdir()}


def test_an_empty_directory_gets_everything(directory: CertificateDirectory) -> None:
    assert bootstrap(directory, WANTED, now=NOW) == Outcome(IssuedParts.EVERYTHING, ())
    assert set(contents(directory)) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert serving_problems(directory, WANTED.names, now=NOW) == ()


def test_only_the_owner_reads_keys(directory: CertificateDirectory) -> None:
    bootstrap(directory, WANTED, now=NOW)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.files}
    assert modes == {"ca.crt": 0o644, "ca.key": 0o600, "tls.crt": 0o644, "tls.key": 0o600}


def test_good_files_are_kept(directory: CertificateDirectory) -> None:
    bootstrap(directory, WANTED, now=NOW)
    before = contents(directory)
    later = NOW + timedelta(days=29)
    assert bootstrap(directory, WANTED, now=later) == Outcome(IssuedParts.NOTHING, ())
    assert contents(directory) == before


def test_a_certificate_that_has_ended_is_renewed_under_the_same_ca(
    directory: CertificateDirectory,
) -> None:
    bootstrap(directory, WANTED, now=NOW)
    before = contents(directory)
    later = NOW + timedelta(days=31)
    outcome = bootstrap(directory, WANTED, now=later)
    assert outcome.made is IssuedParts.SERVING
    assert "ended at" in outcome.reasons[0]
    after = contents(directory)
    assert (after["ca.crt"], after["ca.key"]) == (before["ca.crt"], before["ca.key"])
    assert serving_problems(directory, WANTED.names, now=later) == ()


def test_a_missing_name_is_a_reason_for_a_new_certificate(directory: CertificateDirectory) -> None:
    bootstrap(directory, WANTED, now=NOW)
    more = CertificateSpec(
        dns_names=["localhost", "x.y"], ip_addresses=[], lifetime=timedelta(days=30)
    )
    outcome = bootstrap(directory, more, now=NOW)
    assert outcome.made is IssuedParts.SERVING
    assert outcome.reasons == (f"{directory.certificate}: does not cover the name x.y",)


def test_without_the_key_of_the_ca_good_files_are_still_kept(
    directory: CertificateDirectory,
) -> None:
    bootstrap(directory, WANTED, now=NOW)
    directory.ca_key.unlink()
    assert bootstrap(directory, WANTED, now=NOW).made is IssuedParts.NOTHING


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
def test_a_broken_ca_is_replaced_with_what_it_signed(
    directory: CertificateDirectory, name: str
) -> None:
    bootstrap(directory, WANTED, now=NOW)
    (directory.path / name).write_bytes(b"broken")
    directory.certificate.unlink()
    outcome = bootstrap(directory, WANTED, now=NOW)
    assert outcome.made is IssuedParts.EVERYTHING
    assert outcome.reasons
    assert serving_problems(directory, WANTED.names, now=NOW) == ()


def test_a_certificate_of_another_ca_is_not_kept(directory: CertificateDirectory) -> None:
    bootstrap(directory, WANTED, now=NOW)
    other = CertificateDirectory(directory.path.parent / "other")
    bootstrap(other, WANTED, now=NOW)
    directory.certificate.write_bytes(other.certificate.read_bytes())
    directory.key.write_bytes(other.key.read_bytes())
    outcome = bootstrap(directory, WANTED, now=NOW)
    assert outcome.made is IssuedParts.SERVING
    assert "is not signed by" in outcome.reasons[0]


def test_force_makes_everything_anew(directory: CertificateDirectory) -> None:
    bootstrap(directory, WANTED, now=NOW)
    before = contents(directory)
    assert bootstrap(directory, WANTED, now=NOW, force=True).made is IssuedParts.EVERYTHING
    after = contents(directory)
    assert all(after[name] != before[name] for name in before)


def test_a_ca_lasts_as_long_as_what_it_signs(directory: CertificateDirectory) -> None:
    wanted = CertificateSpec(dns_names=["a"], ip_addresses=[], lifetime=timedelta(days=3000))
    bootstrap(directory, wanted, now=NOW)
    leaf = read_chain(directory.certificate)[0]
    assert leaf.not_valid_after_utc == NOW + timedelta(days=3000)


def test_a_name_that_cannot_be_issued_leaves_no_files(directory: CertificateDirectory) -> None:
    with pytest.raises(IssueError):
        bootstrap(
            directory,
            CertificateSpec(dns_names=["a b"], ip_addresses=[], lifetime=timedelta(days=1)),
            now=NOW,
        )
    assert contents(directory) == {}


def test_many_at_once_agree_on_one_set(directory: CertificateDirectory) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: bootstrap(directory, WANTED, now=NOW).made, range(8)))
    assert sorted(made) == [IssuedParts.EVERYTHING, *[IssuedParts.NOTHING] * 7]
    assert serving_problems(directory, WANTED.names, now=NOW) == ()
