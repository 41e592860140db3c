"""What doctor says of the certificate that the webhook serves with."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.operations.healthy import NOW, edit, examined, healthy, ids, refusing, the
from tests.operations.scenes import load
from tests.tls.certificates import a_ca_of, a_serving_certificate, written
from tests.tls.listening import listening
from webhook.cli.cluster_context import refusal, refusal_at, served_at
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import SECRETS, VALIDATING_WEBHOOKS, ForbiddenError
from webhook.kube.kinds import Kind
from webhook.state.well_known import (
    DEFAULT_NAMESPACE,
    INJECTED_ANNOTATIONS,
    ISSUED_ANNOTATION,
    REGISTRATION,
    TLS_SECRET,
)
from webhook.tls.called_names import REGISTRATIONS
from webhook.tls.files import server_context
from webhook.tls.issue import Issued, issue_ca, issue_serving

URL = "https://192.0.2.7:9443"


def a_certificate(lifetime: timedelta) -> bytes:
    """A certificate that began a year before it ends so much later than now."""
    year = timedelta(days=365)
    return issue_ca(now=NOW + lifetime - year, lifetime=year).certificate


def with_secret(content: str, **notes: str) -> FakeCluster:
    cluster = healthy()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": TLS_SECRET, "namespace": DEFAULT_NAMESPACE, "annotations": notes},
        "data": {"tls.crt": content},
    }
    load(cluster, secret)
    return cluster


def outside(url: str = URL) -> FakeCluster:
    def change(raw: Any) -> None:
        for entry in raw["webhooks"]:
            entry["clientConfig"] = {**entry["clientConfig"], "url": f"{url}/validate"}
            del entry["clientConfig"]["service"]

    cluster = healthy()
    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, change)
    return cluster


@pytest.mark.parametrize(
    ("left", "expected", "words"),
    [
        (timedelta(days=-1), "certificate.ended", "ended at 2026-05-31"),
        (timedelta(days=6), "certificate.ends", "ends at 2026-06-07"),
        (timedelta(days=370), "certificate.ended", "begins at 2026-06-05"),
    ],
)
def test_a_certificate_that_ends_soon_is_named(left: timedelta, expected: str, words: str) -> None:
    pem = a_certificate(left)
    inside = the(examined(with_secret(base64.b64encode(pem).decode())), expected)
    assert str(inside.subject) == f"Secret {DEFAULT_NAMESPACE}/{TLS_SECRET}"
    assert words in inside.message
    assert "scripts/install" in inside.remedy

    asked: list[str] = []

    def served(url: str) -> bytes:
        asked.append(url)
        return pem

    found = the(examined(outside(), served_at=served), expected)
    assert asked == [URL]
    assert words in found.message
    assert "scripts/install" not in found.remedy


def test_one_that_lasts_is_not() -> None:
    pem = a_certificate(timedelta(days=8))
    found = examined(with_secret(base64.b64encode(pem).decode()))
    assert not {each for each in ids(found) if each.startswith("certificate.")}
    assert "certificates" in found.checked


@pytest.mark.parametrize("content", ["%", base64.b64encode(b"nothing").decode()])
def test_what_is_no_certificate_is_named(content: str) -> None:
    assert the(examined(with_secret(content)), "certificate.unreadable").severity == "error"


def test_a_secret_that_may_not_be_read_is_only_worth_knowing() -> None:
    found = examined(refusing(healthy(), ForbiddenError("no"), SECRETS))
    assert set(found.skipped) == {"certificates"}
    assert the(found, "check.forbidden").severity == "info"


def test_a_bundle_that_does_not_verify_the_certificate_is_named() -> None:
    """Replicas that serve it are not ready, and their `/readyz` can only be read from inside."""
    ca = issue_ca(now=NOW)
    leaf = issue_serving(ca, dns_names=["a"], now=NOW).certificate
    cluster = with_secret(base64.b64encode(leaf).decode())
    for place in REGISTRATIONS:
        trusts(cluster, issue_ca(now=NOW).certificate + ca.certificate, *place)
    assert "certificate.not-trusted" not in ids(examined(cluster, refusal=refusal))
    for place in REGISTRATIONS:
        trusts(cluster, issue_ca(now=NOW).certificate, *place)
    found = [
        each
        for each in examined(cluster, refusal=refusal).findings
        if each.id == "certificate.not-trusted"
    ]
    assert {str(each.subject) for each in found} == {
        f"{kind.kind} {name}" for kind, name in REGISTRATIONS
    }
    for each in found:
        assert each.severity == "error"
        assert re.fullmatch(
            r"webhook \S+( and \d+ more)?: clientConfig.caBundle does not verify the certificate of"
            r" Secret deferred-quota-system/deferred-quota-tls, no CA in it has signed it: a"
            r" replica that serves it is not ready",
            each.message,
        )
        assert "certs inject" in each.remedy


@pytest.mark.parametrize("guards", [1, 2])
def test_a_bundle_beside_a_guard_that_verifies_the_certificate_is_only_warned_of(
    guards: int,
) -> None:
    """As in `tls.verification`: the replica stays ready, for the binds that it decides."""
    ca = issue_ca(now=NOW)
    leaf = issue_serving(ca, dns_names=["a"], now=NOW).certificate
    cluster = with_secret(base64.b64encode(leaf).decode())
    for place in REGISTRATIONS:
        trusts(cluster, issue_ca(now=NOW).certificate, *place)

    def change(raw: Any) -> None:
        for entry in raw["webhooks"][-guards:]:
            entry["clientConfig"]["caBundle"] = base64.b64encode(ca.certificate).decode()

    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, change)
    found = [
        each
        for each in examined(cluster, refusal=refusal).findings
        if each.id == "certificate.not-trusted"
    ]
    assert len(found) == len(REGISTRATIONS)
    for each in found:
        assert each.severity == ("warn" if "jobs" in str(each.subject) else "error")
        assert each.message.endswith(": calls of these entries fail")


def test_a_root_verifies_what_a_ca_between_has_signed(tmp_path: Path) -> None:
    """In the Secret and at a URL, as the handshake of the replica itself finds it."""
    now = datetime.now(UTC)
    root = a_ca_of(issue_ca(now=now), "root", now=now)  # its own issuer would allow no CA behind it
    between = a_ca_of(root, "between", now=now)
    leaf = a_serving_certificate(ca=between, now=now)
    chain = leaf.certificate + between.certificate
    pair = written(tmp_path, Issued(chain, leaf.key))
    for served, bundle, is_verified in (
        (chain, root.certificate, True),
        (chain, between.certificate, True),
        (chain, leaf.certificate, True),
        (leaf.certificate, root.certificate, False),
        (chain, issue_ca(now=now).certificate, False),
        # a CA that is in the file, and has signed nothing of the chain
        (chain + root.certificate, issue_ca(now=now).certificate, False),
        (leaf.certificate + root.certificate, root.certificate, False),
        (b"", root.certificate, False),
    ):
        assert (refusal(served, bundle) == "") is is_verified
    with listening(lambda: server_context(*pair)) as (host, port):
        url = f"https://{host}:{port}"
        assert refusal_at(url, root.certificate) == ""
        assert "issuer" in refusal_at(url, issue_ca(now=now).certificate)
        cluster = outside(url)
        for place in REGISTRATIONS:
            trusts(cluster, root.certificate, *place)
        looked = examined(cluster, served_at=served_at, refusal=refusal, refusal_at=refusal_at)
        assert "certificate.not-trusted" not in ids(looked)
        trusts(cluster, issue_ca(now=now).certificate)
        looked = examined(cluster, served_at=served_at, refusal=refusal, refusal_at=refusal_at)
        found = the(looked, "certificate.not-trusted")
        assert f"that is served at {url}, " in found.message
        assert "issuer" in found.message
    assert refusal_at(url, root.certificate) == ""  # it answers no more, which another check says


def test_an_entry_without_a_bundle_is_named_by_another_check() -> None:
    leaf = issue_serving(issue_ca(now=NOW), dns_names=["a"], now=NOW).certificate
    cluster = with_secret(base64.b64encode(leaf).decode())
    for bundle in (b"", b"garbage"):
        for place in REGISTRATIONS:
            trusts(cluster, bundle, *place)
        assert "certificate.not-trusted" not in ids(examined(cluster, refusal=refusal))


def trusts(
    cluster: FakeCluster,
    bundle: bytes,
    kind: Kind = VALIDATING_WEBHOOKS,
    name: str = REGISTRATION,
) -> None:
    """Write a `caBundle` into the entries of a registration."""

    def change(raw: Any) -> None:
        for entry in raw["webhooks"]:
            entry["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()

    edit(cluster, kind, name, change)


ISSUED = {ISSUED_ANNOTATION: "deferred-quota-webhook"}
GOOD = base64.b64encode(a_certificate(timedelta(days=90))).decode()


def inject(
    cluster: FakeCluster, *registrations: tuple[Kind, str], by: str = INJECTED_ANNOTATIONS[0]
) -> FakeCluster:
    """Let cert-manager write the `caBundle` of registrations, by default of all of ours."""

    def annotate(raw: Any) -> None:
        note = f"{DEFAULT_NAMESPACE}/deferred-quota-ca"
        raw["metadata"].setdefault("annotations", {})[by] = note

    for kind, name in registrations or REGISTRATIONS:
        edit(cluster, kind, name, annotate)
    return cluster


def owners(cluster: FakeCluster | FakeClient, *, rotates: bool) -> dict[str, str]:
    found = examined(cluster, rotates=rotates).findings
    return {str(each.subject): each.message for each in found if each.id.endswith("two-owners")}


def test_one_owner_is_no_fault() -> None:
    assert owners(inject(with_secret(GOOD, **ISSUED)), rotates=False) == {}
    assert owners(with_secret(GOOD), rotates=True) == {}


def test_that_cert_manager_and_the_controller_keep_the_same_is_named() -> None:
    for cluster in (
        inject(with_secret(GOOD, **ISSUED)),
        refusing(inject(healthy()), ForbiddenError("no"), SECRETS),  # as most users
    ):
        found = owners(cluster, rotates=True)
        assert sorted(found) == [
            "MutatingWebhookConfiguration deferred-quota",
            "MutatingWebhookConfiguration zz-deferred-quota-jobs",
            "ValidatingWebhookConfiguration deferred-quota",
        ]
        assert all("certificates.rotate" in message for message in found.values())


def test_registrations_that_cert_manager_does_not_write_are_named_beside_its_secret() -> None:
    (kind, name), *others = REGISTRATIONS
    cluster = inject(with_secret(GOOD, **ISSUED), *others)
    (left,) = owners(cluster, rotates=False).items()
    assert left[0] == f"{kind.kind} {name}"
    assert "does not follow" in left[1]
    found = owners(with_secret(GOOD, **ISSUED), rotates=True)
    assert "certificates.rotate" in found[f"Secret {DEFAULT_NAMESPACE}/{TLS_SECRET}"]
    assert len(found) == 4


def test_registrations_that_cert_manager_writes_are_named_beside_our_secret() -> None:
    found = owners(inject(with_secret(GOOD)), rotates=False)
    assert len(found) == 3
    assert all("does not trust" in message for message in found.values())


def test_a_ca_that_is_given_by_hand_beside_a_secret_of_cert_manager_is_no_error() -> None:
    found = examined(with_secret(GOOD, **ISSUED), rotates=False).findings
    severities = {each.severity for each in found if each.id == "certificate.two-owners"}
    assert severities == {"warn"}


def test_the_injector_may_write_the_ca_of_a_secret_that_cert_manager_does_not_issue() -> None:
    cluster = inject(with_secret(GOOD), by=INJECTED_ANNOTATIONS[1])
    assert owners(cluster, rotates=False) == {}
    assert len(owners(cluster, rotates=True)) == 3


def test_a_certificate_of_cert_manager_is_not_renewed_by_an_installation() -> None:
    pem = base64.b64encode(a_certificate(timedelta(days=6))).decode()
    found = examined(inject(with_secret(pem, **ISSUED)), rotates=False)
    assert "cert-manager" in the(found, "certificate.ends").remedy
