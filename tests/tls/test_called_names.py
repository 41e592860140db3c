"""Which names the API server calls is read from what is registered."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.install import render
from webhook.kube.api import VALIDATING_WEBHOOKS
from webhook.tls.called_names import called_names, read_called_names

SERVICE = "deferred-quota-webhook.deferred-quota-system.svc"
PLACES: dict[str, tuple[str, bool, set[str]]] = {
    "a Service, in a pod": ("", True, {SERVICE}),
    "a Service, outside": ("", False, set()),
    "a URL, outside": ("https://webhook.example:9443", False, {"webhook.example"}),
    "an address, outside": ("https://[2001:DB8::7]:9443", False, {"2001:db8::7"}),
    "a URL, in a pod": ("https://webhook.example:9443", True, set()),
}


@pytest.mark.parametrize(("url", "is_in_pod", "names"), PLACES.values(), ids=PLACES)
def test_the_names_are_of_the_places_that_may_be_ours(
    url: str, is_in_pod: bool, names: set[str]
) -> None:
    assert called_names(render(url=url).registrations, is_in_pod=is_in_pod) == names


def test_what_is_not_registered_calls_nobody() -> None:
    api = FakeClient(FakeCluster())
    assert read_called_names(api, is_in_pod=True) == set()
    registrations: list[Any] = list(render().registrations)
    api.create(VALIDATING_WEBHOOKS, registrations[-1])
    assert read_called_names(api, is_in_pod=True) == {SERVICE}


ODD: list[dict[str, Any]] = [
    {"webhooks": 7},
    {"webhooks": [{"clientConfig": "here"}]},
    {"webhooks": [{"clientConfig": {"url": "https://[broken"}}]},
    {},
]


@pytest.mark.parametrize("registration", ODD)
def test_what_cannot_be_read_calls_nobody(registration: dict[str, Any]) -> None:
    assert called_names([registration], is_in_pod=False) == set()
