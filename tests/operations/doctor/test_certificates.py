"""What doctor says of the certificate that the webhook serves with."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import pytest

from tests.operations.healthy import NOW, edit, examined, healthy, ids, refusing, the
from tests.operations.scenes import load
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import SECRETS, VALIDATING_WEBHOOKS, ForbiddenError
from webhook.state.well_known import DEFAULT_NAMESPACE, REGISTRATION, TLS_SECRET
from webhook.tls.issue import issue_ca

URL = "https://192.0.2.7:9443"


def a_certificate(lifetime: timedelta) -> bytes:
    """A certificate that began a year before it ends so much later than now."""
    year = timedelta(days=365)
    return issue_ca(now=NOW + lifetime - year, lifetime=year).certificate


def with_secret(content: str) -> FakeCluster:
    cluster = healthy()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": TLS_SECRET, "namespace": DEFAULT_NAMESPACE},
        "data": {"tls.crt": content},
    }
    load(cluster, secret)
    return cluster


def outside() -> FakeCluster:
    def change(raw: Any) -> None:
        for entry in raw["webhooks"]:
            entry["clientConfig"] = {**entry["clientConfig"], "url": f"{URL}/validate"}
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
