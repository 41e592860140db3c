"""New files are taken up, bad ones are not."""

from __future__ import annotations

import logging
import ssl
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.tls.certificates import CA, NOW, a_serving_certificate, written
from webhook.telemetry.metrics import Metrics
from webhook.tls.files import CertificateFiles, server_context
from webhook.tls.issue import Issued
from webhook.tls.pair import CertificateFileError


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def files(tmp_path: Path, clock: Clock, metrics: Metrics) -> CertificateFiles:
    certificate, key = written(tmp_path, a_serving_certificate())
    files = CertificateFiles(certificate, key, clock=clock)
    files.observe(metrics)
    return files


def served(context: ssl.SSLContext) -> bytes:
    """The certificate that a client of this context gets, as DER."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server)
    theirs = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (ours, theirs, ours):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    shown = ours.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def der(issued: Issued) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.certificate.decode())


def reloads(metrics: Metrics, result: str) -> float:
    name = "deferred_quota_tls_reloads_total"
    return metrics.registry.get_sample_value(name, {"result": result}) or 0


def test_the_context_is_kept_while_the_files_are_the_same(files: CertificateFiles) -> None:
    assert files.context() is files.context()


def test_new_files_are_taken_up_with_the_next_connection(
    files: CertificateFiles, tmp_path: Path, metrics: Metrics
) -> None:
    files.context()
    renewed = a_serving_certificate(lifetime=timedelta(days=30))
    written(tmp_path, renewed)
    assert served(files.context()) == der(renewed)
    assert reloads(metrics, "loaded") == 2
    not_after = metrics.registry.get_sample_value(
        "deferred_quota_tls_certificate_not_after_seconds"
    )
    assert not_after == (NOW + timedelta(days=30)).timestamp()


def test_a_swapped_link_is_a_change(tmp_path: Path, clock: Clock) -> None:
    """A mounted Secret changes in this way: the files are links through a link."""
    versions = {}
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        versions[version] = a_serving_certificate()
        written(tmp_path / version, versions[version])
    data = tmp_path / "..data"
    data.symlink_to("one")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    files = CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key", clock=clock)
    assert served(files.context()) == der(versions["one"])
    new = tmp_path / "..data_tmp"
    new.symlink_to("two")
    new.replace(data)
    assert served(files.context()) == der(versions["two"])


BROKEN: dict[str, Issued] = {
    "a key of another": Issued(a_serving_certificate().certificate, a_serving_certificate().key),
    "garbage": Issued(b"x", b"y"),
    "empty files": Issued(b"", b""),
    "ended": a_serving_certificate(now=NOW - timedelta(days=20), lifetime=timedelta(days=1)),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_the_last_good_pair_stays_when_the_new_one_is_broken(
    files: CertificateFiles,
    tmp_path: Path,
    metrics: Metrics,
    caplog: pytest.LogCaptureFixture,
    broken: Issued,
) -> None:
    good = files.context()
    written(tmp_path, broken)
    assert files.context() is good
    assert files.context() is good
    assert reloads(metrics, "refused") == 1  # told once, not with every connection
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert str(tmp_path) in str(vars(record)["problems"])
    assert files.serving_problems() == ()


def test_files_that_are_gone_leave_the_last_good_pair(
    files: CertificateFiles, tmp_path: Path
) -> None:
    good = files.context()
    (tmp_path / "tls.crt").unlink()
    assert files.context() is good


def test_a_repaired_pair_is_taken_up(files: CertificateFiles, tmp_path: Path) -> None:
    files.context()
    written(tmp_path, Issued(b"x", b"y"))
    files.context()
    repaired = a_serving_certificate()
    written(tmp_path, repaired)
    assert served(files.context()) == der(repaired)


def test_a_pair_that_lacks_a_name_is_not_taken_up(tmp_path: Path, clock: Clock) -> None:
    good = a_serving_certificate(names=["hook.quota.svc"])
    certificate, key = written(tmp_path, good)
    files = CertificateFiles(certificate, key, names=["hook.quota.svc"], clock=clock)
    files.context()
    written(tmp_path, a_serving_certificate(names=["localhost"]))
    assert served(files.context()) == der(good)


def test_without_any_good_pair_there_is_no_context(tmp_path: Path, clock: Clock) -> None:
    certificate, key = written(tmp_path, Issued(b"x", b"y"))
    files = CertificateFiles(certificate, key, clock=clock)
    with pytest.raises(CertificateFileError, match="never usable"):
        files.context()
    assert files.serving_problems() == (f"{certificate}: was never usable",)
    assert files.file_problems() == (f"{certificate}: holds no PEM certificate that can be read",)


def test_a_certificate_that_ends_while_it_is_served_is_reported(
    files: CertificateFiles, clock: Clock
) -> None:
    files.context()
    assert files.serving_problems() == ()
    clock.now = NOW + timedelta(days=90)
    assert files.serving_problems() == (
        "the serving certificate ended at 2026-04-05T08:00:00+00:00",
    )


def test_checking_the_files_also_loads_them(files: CertificateFiles, tmp_path: Path) -> None:
    assert files.file_problems() == ()
    good = files.context()
    written(tmp_path, Issued(b"x", b"y"))
    assert files.context() is good


def test_old_protocols_are_not_spoken(tmp_path: Path) -> None:
    context = server_context(*written(tmp_path, a_serving_certificate()))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_the_ca_signs_what_is_served(files: CertificateFiles) -> None:
    assert served(files.context()) != der(CA)


# -- names by which the server is called -------------------------------------------------------

OTHER_HOST = a_serving_certificate(names=["elsewhere.example"])


def test_a_pair_for_another_host_is_refused_when_it_is_renewed(
    files: CertificateFiles, tmp_path: Path, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    good = files.context()
    files.require({"localhost"})
    written(tmp_path, OTHER_HOST)
    assert files.context() is good
    assert reloads(metrics, "refused") == 1
    (problem,) = files.refusals()
    assert problem == f"{tmp_path / 'tls.crt'}: does not cover the name localhost"
    assert "the last good one stays" in caplog.text
    assert files.serving_problems() == ()
    files.require({"elsewhere.example"})  # what was refused is looked at once more
    assert served(files.context()) == der(OTHER_HOST)
    assert files.refusals() == files.serving_problems() == ()


def test_a_first_pair_for_another_host_is_served_and_reported(tmp_path: Path, clock: Clock) -> None:
    certificate, key = written(tmp_path, OTHER_HOST)
    files = CertificateFiles(certificate, key, names=["hook.quota.svc"], clock=clock)
    assert files.file_problems() == ()
    (problem,) = files.serving_problems()
    assert problem == (
        f"{certificate}: the serving certificate does not cover hook.quota.svc, by which the API"
        " server calls this webhook"
    )
    good = a_serving_certificate(names=["hook.quota.svc"])
    written(tmp_path, good)
    assert served(files.context()) == der(good)
    assert files.serving_problems() == ()


# -- pairs that are offered, as they are read from the Secret ----------------------------------

PLACE = "Secret quota/tls"
LATER, LATEST = (a_serving_certificate(now=NOW + timedelta(hours=hours)) for hours in (1, 2))
_TIME = NOW + timedelta(hours=3)


def test_an_offered_pair_that_is_newer_is_served_at_once(
    files: CertificateFiles, clock: Clock, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    files.context()
    clock.now = _TIME
    with caplog.at_level(logging.INFO):
        files.offer(LATER, PLACE)
        files.offer(LATER, PLACE)
    assert served(files.context()) == der(LATER)
    assert reloads(metrics, "loaded") == 2
    (record,) = [each for each in caplog.records if vars(each).get("path") == PLACE]
    assert (record.message, vars(record)["path"]) == ("certificate loaded", PLACE)


def test_files_that_are_late_replace_no_newer_pair(
    files: CertificateFiles, tmp_path: Path, clock: Clock, metrics: Metrics
) -> None:
    clock.now = _TIME
    files.offer(LATEST, PLACE)
    assert served(files.context()) == der(LATEST)
    written(tmp_path, LATER)
    assert served(files.context()) == der(LATEST)
    written(tmp_path, LATEST)
    assert served(files.context()) == der(LATEST)
    assert (reloads(metrics, "refused"), files.refusals()) == (0, ())


def test_a_secret_that_is_read_late_replaces_no_newer_files(
    files: CertificateFiles, tmp_path: Path, clock: Clock
) -> None:
    clock.now = _TIME
    written(tmp_path, LATEST)
    files.context()
    files.offer(LATER, PLACE)
    assert served(files.context()) == der(LATEST)


def test_an_older_pair_is_served_when_both_have_it(
    files: CertificateFiles, tmp_path: Path, clock: Clock
) -> None:
    """As when etcd was restored from a backup."""
    clock.now = _TIME
    written(tmp_path, LATEST)
    files.offer(LATEST, PLACE)
    files.offer(LATER, PLACE)
    assert served(files.context()) == der(LATEST)
    written(tmp_path, LATER)
    assert served(files.context()) == der(LATER)


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_offer_is_reported_once_and_the_last_good_one_stays(
    files: CertificateFiles,
    clock: Clock,
    metrics: Metrics,
    caplog: pytest.LogCaptureFixture,
    broken: Issued,
) -> None:
    clock.now = _TIME
    files.offer(LATER, PLACE)
    for _ in range(3):
        files.offer(broken, PLACE)
        assert served(files.context()) == der(LATER)  # not what is in the files
    assert reloads(metrics, "refused") == 1
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert all(each.startswith(f"{PLACE}, tls.") for each in vars(record)["problems"])
    assert files.refusals() == vars(record)["problems"]
    assert "PRIVATE KEY" not in caplog.text
    files.offer(LATEST, PLACE)
    assert (served(files.context()), files.refusals()) == (der(LATEST), ())


def test_an_offer_that_begins_later_is_served_then(files: CertificateFiles, clock: Clock) -> None:
    files.context()
    ahead = a_serving_certificate(now=NOW + timedelta(hours=1, seconds=2))
    files.offer(ahead, PLACE)
    assert "which is not yet" in files.refusals()[0]
    clock.now = NOW + timedelta(seconds=3)
    files.offer(ahead, PLACE)
    assert (served(files.context()), files.refusals()) == (der(ahead), ())


def test_files_that_begin_later_are_served_then(
    files: CertificateFiles, clock: Clock, tmp_path: Path, metrics: Metrics
) -> None:
    """As where the clock of the program that renews them is ahead of ours."""
    before = served(files.context())
    ahead = a_serving_certificate(now=NOW + timedelta(hours=1, seconds=30))
    written(tmp_path, ahead)
    for _ in range(3):
        assert served(files.context()) == before
    assert "which is not yet" in files.refusals()[0]
    assert reloads(metrics, "refused") == 1
    clock.now = NOW + timedelta(seconds=31)
    assert (served(files.context()), files.refusals()) == (der(ahead), ())


def test_a_pair_that_has_ended_gives_way_to_one_that_has_not(
    files: CertificateFiles, clock: Clock
) -> None:
    clock.now = _TIME
    short = a_serving_certificate(now=NOW + timedelta(hours=1), lifetime=timedelta(hours=5))
    before = served(files.context())
    files.offer(short, PLACE)
    assert served(files.context()) == der(short)
    clock.now = NOW + timedelta(hours=7)
    assert served(files.context()) == before
    assert files.serving_problems() == ()


def test_an_offer_has_to_cover_the_names(files: CertificateFiles, clock: Clock) -> None:
    files.context()
    files.require({"localhost"})
    clock.now = _TIME
    other = a_serving_certificate(names=["elsewhere.example"], now=NOW + timedelta(hours=1))
    before = served(files.context())
    files.offer(other, PLACE)
    assert served(files.context()) == before
    assert files.refusals() == (f"{PLACE}, tls.crt: does not cover the name localhost",)
    files.require({"elsewhere.example"})
    assert served(files.context()) == der(other)
    assert files.refusals() == ()


def test_an_offer_that_covers_the_names_is_better_than_newer_files_that_do_not(
    tmp_path: Path, clock: Clock
) -> None:
    clock.now = _TIME
    certificate, key = written(
        tmp_path, a_serving_certificate(names=["elsewhere.example"], now=NOW + timedelta(hours=1))
    )
    files = CertificateFiles(certificate, key, names=["localhost"], clock=clock)
    files.context()
    good = a_serving_certificate()
    files.offer(good, PLACE)
    assert served(files.context()) == der(good)
    assert files.serving_problems() == ()


def test_an_offer_does_without_usable_files(tmp_path: Path, clock: Clock) -> None:
    files = CertificateFiles(*written(tmp_path, Issued(b"x", b"y")), clock=clock)
    good = a_serving_certificate()
    files.offer(good, PLACE)
    assert served(files.context()) == der(good)
    assert files.refusals() == (
        f"{tmp_path / 'tls.crt'}: holds no PEM certificate that can be read",
    )


def test_no_key_of_an_offer_stays_on_a_disk(
    files: CertificateFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    clock.now = _TIME
    files.offer(LATER, PLACE)
    assert served(files.context()) == der(LATER)
    assert list(place.iterdir()) == []
    place.rmdir()
    files.offer(LATEST, PLACE)  # there is no place for it
    assert served(files.context()) == der(LATER)
    assert files.refusals()[0].startswith(f"{PLACE}: ")
