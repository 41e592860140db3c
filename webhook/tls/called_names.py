"""Entries of the registrations that call this webhook: their names, and what they trust.

A process in a pod is called through a Service, one outside of the cluster by a URL. Registrations
that name the other kind of place, as while the webhook moves, mean another process.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Kind, Object
from webhook.state.well_known import LAST_REGISTRATION, REGISTRATION

GUARD: Final = f"{VALIDATING_WEBHOOKS.kind} {REGISTRATION}"
"""The registration of the entries that are called for each bind, as a `RegisteredCall` names it."""
REGISTRATIONS: Final = (
    (MUTATING_WEBHOOKS, REGISTRATION),
    (MUTATING_WEBHOOKS, LAST_REGISTRATION),
    (VALIDATING_WEBHOOKS, REGISTRATION),
)


@dataclass(frozen=True, slots=True)
class RegisteredCall:
    """An entry of a registration, as the API server calls by it."""

    registration: str
    """Kind and name of the registration."""
    entry: str
    name: str
    """The host that is called."""
    is_service: bool
    bundle: bytes = field(repr=False)
    """Its caBundle, PEM; empty where it has none."""


def registered_calls(kind: Kind, registration: Object) -> tuple[RegisteredCall, ...]:
    """Return the calls of a registration; what cannot be read calls no place."""
    return tuple(_calls(kind, FieldReader(registration)))


def own_calls(
    calls: Iterable[RegisteredCall], *, names: Collection[str], is_in_pod: bool
) -> tuple[RegisteredCall, ...]:
    """Return the calls that may come to this process.

    Args:
        calls: Those of all registrations.
        names: The names by which it is called, where they were given; else it goes by the place.
        is_in_pod: Whether it runs in a pod of the cluster.
    """
    given = {name.lower() for name in names}
    return tuple(
        each
        for each in calls
        if each.name and (each.name in given if given else each.is_service == is_in_pod)
    )


def _calls(kind: Kind, registration: FieldReader) -> Iterator[RegisteredCall]:
    with contextlib.suppress(InvalidFieldError, ValueError):
        label = f"{kind.kind} {registration.child('metadata').text('name')}"
        for entry in registration.children("webhooks"):
            client = entry.child("clientConfig")
            is_service = client.has("service")
            bundle = _decoded(client.text("caBundle"))
            yield RegisteredCall(label, entry.text("name"), _host(client), is_service, bundle)


def _host(client: FieldReader) -> str:
    if not client.has("service"):
        return urlsplit(client.text("url")).hostname or ""
    service = client.child("service")
    # Source: kubernetes v1.36, apiserver/pkg/util/webhook/client.go hookClientConfig
    return f"{service.text('name')}.{service.text('namespace')}.svc"


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle, validate=True)
    except (binascii.Error, ValueError):
        return bundle.encode()  # which is no bundle, but not none either
