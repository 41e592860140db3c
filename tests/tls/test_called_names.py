"""Which names the API server calls, and what it trusts there, is read from what is registered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from webhook.install import render
from webhook.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Object
from webhook.tls.called_names import RegisteredCall, own_calls, registered_calls

SERVICE = "deferred-quota-webhook.deferred-quota-system.svc"
PLACES: dict[str, tuple[str, bool, set[str]]] = {
    "a Service, in a pod": ("", True, {SERVICE}),
    "a Service, outside": ("", False, set()),
    "a URL, outside": ("https://webhook.example:9443", False, {"webhook.example"}),
    "an address, outside": ("https://[2001:DB8::7]:9443", False, {"2001:db8::7"}),
    "a URL, in a pod": ("https://webhook.example:9443", True, set()),
}


def calls_of(registrations: Iterable[Object]) -> list[RegisteredCall]:
    return [call for each in registrations for call in registered_calls(VALIDATING_WEBHOOKS, each)]


def names_of(calls: Iterable[RegisteredCall]) -> set[str]:
    return {call.name for call in calls}


@pytest.mark.parametrize(("url", "is_in_pod", "names"), PLACES.values(), ids=PLACES)
def test_the_calls_are_of_the_places_that_may_be_ours(
    url: str, is_in_pod: bool, names: set[str]
) -> None:
    calls = calls_of(render(url=url).registrations)
    assert names_of(own_calls(calls, names=(), is_in_pod=is_in_pod)) == names


@pytest.mark.parametrize("is_in_pod", [True, False])
@pytest.mark.parametrize("url", ["", "https://webhook.example:9443"])
def test_given_names_say_which_calls_are_ours_wherever_it_runs(url: str, is_in_pod: bool) -> None:
    calls = calls_of(render(url=url).registrations)
    expected = {"webhook.example"} if url else {SERVICE}
    given = (SERVICE, "WEBHOOK.example")
    assert names_of(own_calls(calls, names=given, is_in_pod=is_in_pod)) == expected
    assert own_calls(calls, names=("elsewhere.example",), is_in_pod=is_in_pod) == ()


def test_an_entry_is_read_with_its_place_and_what_it_trusts() -> None:
    registration = cast("Any", render(ca_pem=b"PEM").registrations[0])
    first = registered_calls(MUTATING_WEBHOOKS, registration)[0]
    name = registration["webhooks"][0]["name"]
    where = "MutatingWebhookConfiguration deferred-quota"
    assert first == RegisteredCall(where, name, SERVICE, is_service=True, bundle=b"PEM")
    del registration["webhooks"][0]["clientConfig"]["caBundle"]
    assert registered_calls(MUTATING_WEBHOOKS, registration)[0].bundle == b""


def test_a_bundle_that_is_no_base64_is_not_taken_for_none() -> None:
    registration = cast("Any", render(ca_pem=b"PEM").registrations[0])
    registration["webhooks"][0]["clientConfig"]["caBundle"] = "?"
    assert registered_calls(MUTATING_WEBHOOKS, registration)[0].bundle


ODD: list[dict[str, Any]] = [
    {"webhooks": 7},
    {"webhooks": [{"clientConfig": "here"}]},
    {"webhooks": [{"clientConfig": {"url": "https://[broken"}}]},
    {"webhooks": [{"clientConfig": {"url": 7}}]},
    {},
]


@pytest.mark.parametrize("registration", ODD)
def test_what_cannot_be_read_calls_no_place(registration: dict[str, Any]) -> None:
    assert own_calls(calls_of([registration]), names=(), is_in_pod=False) == ()
