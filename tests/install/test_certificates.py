"""Certificates in Secrets: made once, renewed in time, never taken from somebody else."""

from __future__ import annotations

import base64
import copy
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from cryptography import x509

from webhook.install import InstallError
from webhook.install.certificates import (
    Certificates,
    bundle_of,
    certificates,
)
from webhook.state.well_known import DEFAULT_NAMESPACE
from webhook.tls.bootstrap import IssuedParts
from webhook.tls.bundles import certificates_only
from webhook.tls.pair import covers, is_issued_by

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
CALLED = "deferred-quota-webhook.deferred-quota-system.svc"


def data(secret: Mapping[str, Any]) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in secret["data"].items()}


def pem(secret: object, key: str = "tls.crt") -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(data(cast("Mapping[str, Any]", secret))[key])


def again(before: Certificates, now: datetime) -> Certificates:
    return certificates(before.ca, before.tls, namespace=DEFAULT_NAMESPACE, now=now)


@pytest.fixture(scope="module")
def made() -> Certificates:
    return certificates(None, None, namespace=DEFAULT_NAMESPACE, now=NOW)


def test_the_first_ones_are_what_the_api_server_calls(made: Certificates) -> None:
    (ca,), (leaf,) = pem(made.ca), pem(made.tls)
    assert (made.made, made.reasons) == (IssuedParts.EVERYTHING, ())
    assert is_issued_by(leaf, ca)
    assert covers(leaf, CALLED)
    assert pem(made.tls, "ca.crt") == [ca]
    assert made.bundle == bundle_of(made.tls)


def test_the_key_of_the_ca_is_not_where_the_webhook_reads(made: Certificates) -> None:
    ca, tls = (data(cast("Any", each)) for each in (made.ca, made.tls))
    assert set(ca) == {"tls.crt", "tls.key"}
    assert ca["tls.key"] not in tls.values()


def test_good_ones_are_kept(made: Certificates) -> None:
    kept = again(made, NOW + 50 * DAY)
    assert kept.made is IssuedParts.NOTHING
    assert (kept.ca, kept.tls, kept.bundle) == (made.ca, made.tls, made.bundle)


def test_notes_that_cannot_be_read_are_none(made: Certificates) -> None:
    ca, tls = (copy.deepcopy(cast("Any", each)) for each in (made.ca, made.tls))
    for secret, name in ((ca, "published"), (ca, "generation"), (tls, "former-until")):
        secret["metadata"]["annotations"][f"deferredquota.io/{name}"] = "retire"
    found = certificates(ca, tls, namespace=DEFAULT_NAMESPACE, now=NOW + DAY)
    assert (found.made, found.bundle) == (IssuedParts.NOTHING, made.bundle)
    assert (data(cast("Any", found.ca)), data(cast("Any", found.tls))) == (data(ca), data(tls))


def test_a_serving_certificate_is_renewed_long_before_it_ends(made: Certificates) -> None:
    renewed = again(made, NOW + 61 * DAY)
    assert renewed.made is IssuedParts.SERVING
    assert renewed.ca == made.ca
    assert renewed.bundle == made.bundle
    assert pem(renewed.tls)[0].not_valid_after_utc > NOW + 150 * DAY
    assert "two thirds of the life of the certificate" in renewed.reasons[0]


def test_a_new_ca_signs_once_it_was_trusted_for_a_while(made: Certificates) -> None:
    served = again(made, NOW + 480 * DAY)
    renewed = again(served, NOW + 490 * DAY)
    old, new = pem(made.ca)[0], pem(renewed.ca)[0]
    assert renewed.made is IssuedParts.CA
    assert pem(renewed.tls, "ca.crt") == [new, old]
    assert pem(renewed.tls) == pem(served.tls)
    later = again(renewed, NOW + 490 * DAY + timedelta(minutes=10))
    assert later.made is IssuedParts.SERVING
    assert is_issued_by(pem(later.tls)[0], new)
    assert pem(later.tls, "ca.crt") == [new, old]
    # a certificate of the former CA could be served until then
    last = again(later, pem(served.tls)[0].not_valid_after_utc)
    assert pem(last.tls, "ca.crt") == [new]
    assert "former.crt" not in data(cast("Any", last.ca))


def test_a_lost_secret_of_the_ca_is_made_anew_and_the_old_ca_still_trusted(
    made: Certificates,
) -> None:
    found = certificates(None, made.tls, namespace=DEFAULT_NAMESPACE, now=NOW + DAY)
    assert found.made is IssuedParts.CA
    assert pem(found.tls) == pem(made.tls)
    assert pem(found.tls, "ca.crt") == [pem(found.ca)[0], pem(made.ca)[0]]


def test_after_the_loss_of_both_secrets_the_registered_ca_is_still_trusted(
    made: Certificates,
) -> None:
    found = certificates(
        None, None, namespace=DEFAULT_NAMESPACE, now=NOW + DAY, registered=(made.bundle, b"")
    )
    assert found.made is IssuedParts.EVERYTHING
    new, old = pem(found.ca)[0], pem(made.ca)[0]
    assert pem(found.tls, "ca.crt") == [new, old]
    assert pem(found.ca, "former.crt") == [old]
    assert is_issued_by(pem(found.tls)[0], new)
    # replicas that go on with what they read may serve a certificate of the former one until then
    later = certificates(
        found.ca,
        found.tls,
        namespace=DEFAULT_NAMESPACE,
        now=NOW + 92 * DAY,
        registered=(found.bundle,),
    )
    assert pem(later.tls, "ca.crt") == [new]


def test_a_lost_serving_certificate_is_made_anew_with_the_same_ca(made: Certificates) -> None:
    found = certificates(made.ca, None, namespace=DEFAULT_NAMESPACE, now=NOW + DAY)
    assert found.made is IssuedParts.SERVING
    assert found.ca == made.ca


@pytest.mark.parametrize("key", ["tls.crt", "tls.key"])
@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_what_cannot_be_served_is_replaced_and_named(
    made: Certificates, key: str, content: bytes
) -> None:
    broken = {**cast("Any", made.tls)}
    broken["data"] = {**broken["data"], key: base64.b64encode(content).decode()}
    found = certificates(made.ca, broken, namespace=DEFAULT_NAMESPACE, now=NOW + DAY)
    assert found.made is IssuedParts.SERVING
    assert any(f"Secret deferred-quota-tls, {key}" in reason for reason in found.reasons)


@pytest.mark.parametrize("which", ["ca", "tls"])
def test_a_secret_of_another_owner_is_refused(made: Certificates, which: str) -> None:
    found = {"ca": made.ca, "tls": made.tls}
    foreign = {**cast("Any", found[which])}
    foreign["metadata"] = {**foreign["metadata"], "labels": {"made-by": "somebody"}}
    found[which] = foreign
    with pytest.raises(InstallError, match=rf"Secret .*/deferred-quota-{which} was not made by"):
        certificates(found["ca"], found["tls"], namespace=DEFAULT_NAMESPACE, now=NOW)


@pytest.mark.parametrize("which", ["ca", "tls"])
def test_a_secret_of_a_newer_release_is_refused(made: Certificates, which: str) -> None:
    found = {"ca": made.ca, "tls": made.tls}
    newer = {**cast("Any", found[which])}
    notes = {**newer["metadata"]["annotations"]}
    assert notes["deferredquota.io/format"] == "1"
    newer["metadata"] = {
        **newer["metadata"],
        "annotations": {**notes, "deferredquota.io/format": "2"},
    }
    found[which] = newer
    expected = rf"deferred-quota-{which} has the annotation deferredquota.io/format: 2, of a newer"
    with pytest.raises(InstallError, match=expected):
        certificates(found["ca"], found["tls"], namespace=DEFAULT_NAMESPACE, now=NOW)


def test_of_a_file_with_a_key_only_the_certificates_are_taken(made: Certificates) -> None:
    data = cast("Mapping[str, str]", made.tls["data"])
    served, key = (base64.b64decode(data[name]) for name in ("tls.crt", "tls.key"))
    found = certificates_only(key + served)
    assert b"PRIVATE KEY" not in found
    assert x509.load_pem_x509_certificates(found) == x509.load_pem_x509_certificates(served)
    with pytest.raises(ValueError, match="PEM"):
        certificates_only(key)
