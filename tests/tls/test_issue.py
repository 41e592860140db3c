"""Certificates that API servers accept."""

from __future__ import annotations

import ipaddress
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from tests.tls.certificates import CA, NOW, OTHER_CA, a_serving_certificate
from webhook.tls.issue import Issued, IssueError, issue_ca, issue_serving, service_names


def loaded(issued: Issued) -> x509.Certificate:
    return x509.load_pem_x509_certificate(issued.certificate)


def test_a_client_that_trusts_the_ca_accepts_the_certificate() -> None:
    store = verification.Store([loaded(CA)])
    leaf = loaded(a_serving_certificate(names=service_names("hook", "quota")))
    policy = verification.PolicyBuilder().store(store).time(NOW)
    verifier = policy.build_server_verifier(x509.DNSName("hook.quota.svc"))
    assert [link.subject for link in verifier.verify(leaf, [])] == [
        leaf.subject,
        loaded(CA).subject,
    ]


def test_a_client_that_trusts_another_ca_does_not() -> None:
    policy = verification.PolicyBuilder().store(verification.Store([loaded(OTHER_CA)])).time(NOW)
    verifier = policy.build_server_verifier(x509.DNSName("localhost"))
    with pytest.raises(verification.VerificationError):
        verifier.verify(loaded(a_serving_certificate()), [])


def test_the_ca_signs_certificates_of_servers_only() -> None:
    extensions = loaded(CA).extensions
    basic = extensions.get_extension_for_class(x509.BasicConstraints)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, True, 0)
    assert (usage.critical, usage.value.key_cert_sign) == (True, True)
    assert not usage.value.digital_signature


def test_the_serving_certificate_is_for_servers_only() -> None:
    extensions = loaded(a_serving_certificate()).extensions
    basic = extensions.get_extension_for_class(x509.BasicConstraints)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert (basic.critical, basic.value.ca) == (True, False)
    assert (usage.critical, usage.value.digital_signature) == (True, True)
    assert not usage.value.key_cert_sign
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_the_chain_is_linked_by_key_identifiers() -> None:
    ca, leaf = loaded(CA), loaded(a_serving_certificate())
    subject = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    authority = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    own = leaf.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert authority.key_identifier == subject.digest
    assert own.digest != subject.digest


def test_a_ca_without_key_identifier_signs_all_the_same() -> None:
    ca, key = loaded(CA), serialization.load_pem_private_key(CA.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(
        ca.subject,
        ca.subject,
        ca.public_key(),
        ca.serial_number,
        ca.not_valid_before_utc,
        ca.not_valid_after_utc,
    )
    for extension in ca.extensions:
        if not isinstance(extension.value, x509.SubjectKeyIdentifier):
            builder = builder.add_extension(extension.value, critical=extension.critical)
    bare = builder.sign(key, hashes.SHA256())
    pem = bare.public_bytes(serialization.Encoding.PEM)
    served = issue_serving(
        Issued(pem, CA.key), dns_names=["localhost"], now=NOW, lifetime=timedelta(days=1)
    )
    leaf = loaded(served)
    leaf.verify_directly_issued_by(bare)
    authority = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    expected = x509.SubjectKeyIdentifier.from_public_key(ca.public_key())
    assert authority.key_identifier == expected.digest


def test_names_and_addresses_are_alternative_names() -> None:
    issued = issue_serving(
        CA, dns_names=["Hook.Example", "*.quota.svc"], ip_addresses=["::1", "10.0.0.7"], now=NOW
    )
    names = loaded(issued).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hook.example", "*.quota.svc"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("::1"),
        ipaddress.ip_address("10.0.0.7"),
    ]


def test_keys_are_p256_and_belong_to_their_certificates() -> None:
    for issued in (CA, a_serving_certificate()):
        key = serialization.load_pem_private_key(issued.key, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert isinstance(key.curve, ec.SECP256R1)
        assert key.public_key() == loaded(issued).public_key()


def test_validity_begins_an_hour_ago_for_clocks_that_run_behind() -> None:
    for issued in (CA, a_serving_certificate()):
        assert loaded(issued).not_valid_before_utc == NOW - timedelta(hours=1)


@given(days=st.integers(min_value=1, max_value=3650))
def test_a_certificate_never_outlives_its_ca(days: int) -> None:
    issued = a_serving_certificate(lifetime=timedelta(days=days))
    ends = loaded(issued).not_valid_after_utc
    assert ends == min(NOW + timedelta(days=days), loaded(CA).not_valid_after_utc)


def test_serials_and_subjects_of_cas_differ() -> None:
    later = issue_ca(now=NOW + timedelta(days=1))
    assert loaded(later).serial_number != loaded(CA).serial_number
    assert loaded(later).subject != loaded(CA).subject


def test_a_name_too_long_for_a_common_name_is_still_covered() -> None:
    name = ".".join(["a" * 60] * 3)
    leaf = loaded(a_serving_certificate(names=[name], ips=[]))
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [name]


def rsa_ca() -> Issued:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Issued(CA.certificate, pem)


@pytest.mark.parametrize(
    "name", ["", ".", "a..b", "-a", "a-", "a_b", "a b", "ä", "a" * 64, "*", "x.*", "a/b", "a\n"]
)
def test_what_is_no_dns_name_is_refused(name: str) -> None:
    with pytest.raises(IssueError, match="is not a DNS name"):
        issue_serving(CA, dns_names=[name], now=NOW)


@pytest.mark.parametrize("address", ["", "localhost", "300.0.0.1", "::1%eth0/1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(IssueError, match="is not an IP address"):
        issue_serving(CA, ip_addresses=[address], now=NOW)


def test_a_certificate_without_any_name_is_refused() -> None:
    with pytest.raises(IssueError, match="at least one"):
        issue_serving(CA, now=NOW)


BAD_CAS: dict[str, tuple[Issued, str]] = {
    "garbage": (Issued(b"x", b"y"), "cannot be read"),
    "another key": (Issued(CA.certificate, OTHER_CA.key), "do not belong together"),
    "an RSA key": (rsa_ca(), "not an ECDSA key"),
}


@pytest.mark.parametrize(("ca", "message"), BAD_CAS.values(), ids=BAD_CAS.keys())
def test_a_ca_that_cannot_sign_is_refused(ca: Issued, message: str) -> None:
    with pytest.raises(IssueError, match=message):
        issue_serving(ca, dns_names=["a"], now=NOW)


def test_a_ca_that_has_ended_is_refused() -> None:
    with pytest.raises(IssueError, match="the CA has ended"):
        issue_serving(CA, dns_names=["a"], now=NOW + timedelta(days=731))


@pytest.mark.parametrize("lifetime", [timedelta(0), timedelta(days=-1)])
def test_a_lifetime_has_to_be_positive(lifetime: timedelta) -> None:
    with pytest.raises(IssueError, match="lifetime"):
        issue_ca(now=NOW, lifetime=lifetime)
    with pytest.raises(IssueError, match="lifetime"):
        a_serving_certificate(lifetime=lifetime)
