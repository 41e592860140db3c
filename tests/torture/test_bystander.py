"""The other webhook: what it may do to a request."""

from __future__ import annotations

import json
import random
import ssl
import urllib.request
from pathlib import Path

from tests.e2e.harness import make_certificates
from tests.torture.bystander import (
    LONGEST_SECONDS,
    Bystander,
    answer_to,
    dither,
    registration,
)
from tests.torture.load.shapes import spaces

REVIEW = {"request": {"uid": "u-1"}}


def test_it_waits_at_times_and_refuses_at_times() -> None:
    rng = random.Random(1)  # noqa: S311 - repeatable
    chosen = [dither(rng) for _ in range(10_000)]
    waits = [wait for wait, _ in chosen if wait]
    assert 0.03 < len(waits) / len(chosen) < 0.08
    assert max(waits) > 5
    assert max(waits) <= LONGEST_SECONDS
    assert 0.03 < sum(refused for _, refused in chosen) / len(chosen) < 0.08


def test_it_answers_reviews() -> None:
    assert answer_to(REVIEW, is_refused=False)["response"] == {"uid": "u-1", "allowed": True}
    refused = answer_to(REVIEW, is_refused=True)["response"]
    assert (refused["allowed"], refused["status"]["code"]) == (False, 409)


def test_it_is_asked_where_requests_may_come_to_nothing() -> None:
    (entry,) = registration(1, b"ca", spaces(4))["webhooks"]
    (expression,) = entry["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["torture-1", "torture-3"]


def test_it_serves_over_tls(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    bystander = Bystander.start(certificates, 1)
    try:
        request = urllib.request.Request(
            f"https://127.0.0.1:{bystander.port}/", json.dumps(REVIEW).encode(), method="POST"
        )
        context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        with urllib.request.urlopen(request, context=context, timeout=30) as response:  # noqa: S310
            assert json.load(response)["response"]["uid"] == "u-1"
    finally:
        bystander.stop()
