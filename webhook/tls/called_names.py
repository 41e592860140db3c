"""Under which names the API server calls this webhook, as the registrations that are there say.

A process in a pod is called through a Service, one outside of the cluster by a URL. Registrations
that name the other kind of place, as while the webhook moves, mean another process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    ClusterApi,
    NotFoundError,
    Object,
)
from webhook.state.well_known import LAST_REGISTRATION, REGISTRATION

REGISTRATIONS: Final = (
    (MUTATING_WEBHOOKS, REGISTRATION),
    (MUTATING_WEBHOOKS, LAST_REGISTRATION),
    (VALIDATING_WEBHOOKS, REGISTRATION),
)


def read_called_names(api: ClusterApi, *, is_in_pod: bool) -> frozenset[str]:
    """Return the names that the registrations of a cluster call now; none where there are none.

    Raises:
        ApiError: They cannot be read.
    """
    found: list[Object] = []
    for kind, name in REGISTRATIONS:
        with contextlib.suppress(NotFoundError):
            found.append(api.get(kind, name))
    return called_names(found, is_in_pod=is_in_pod)


def called_names(registrations: Iterable[Object], *, is_in_pod: bool) -> frozenset[str]:
    """Return the host of every URL, or in a pod the name of every Service, that is called.

    What cannot be read names no place.
    """
    return frozenset(
        name
        for registration in registrations
        for name in _names(FieldReader(registration), is_in_pod=is_in_pod)
        if name
    )


def _names(registration: FieldReader, *, is_in_pod: bool) -> Iterator[str]:
    with contextlib.suppress(InvalidFieldError, ValueError):
        for entry in registration.children("webhooks"):
            client = entry.child("clientConfig")
            if not is_in_pod:
                yield urlsplit(client.text("url")).hostname or ""
            elif client.has("service"):
                service = client.child("service")
                # Source: kubernetes v1.36, apiserver/pkg/util/webhook/client.go hookClientConfig
                yield f"{service.text('name')}.{service.text('namespace')}.svc"
