"""The shipped manifests, as tests look at them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from webhook.config import PageSettings
from webhook.install import MANIFESTS, render
from webhook.install.kustomizations import add_component
from webhook.install.rendering import Mask
from webhook.kube.api import Object

Manifest = Mapping[str, Any]

SYSTEM: Final = "deferred-quota-system"
PAGE: Final = PageSettings(enabled=True)
MASKS: Final[tuple[Mask, ...]] = ("policy", "webhook")


@lru_cache
def everything(mask: Mask = "webhook", url: str = "") -> tuple[Manifest, ...]:
    """Return all that an installation can have with this mask."""
    return tuple(
        cast(
            "list[Manifest]", render(mask=mask, stamps=mask == "policy", url=url, page=PAGE).objects
        )
    )


def with_cert_manager(objects: Iterable[Object], namespace: str = SYSTEM) -> list[Manifest]:
    """Return the objects of an installation as they are where cert-manager keeps certificates."""
    copied = json.loads(json.dumps(list(objects)))  # it is patched in place
    made = add_component(MANIFESTS / "components/cert-manager", copied)
    return cast("list[Manifest]", json.loads(json.dumps(made).replace(SYSTEM, namespace)))


def of_cert_manager(namespace: str = SYSTEM) -> list[Manifest]:
    """Return the objects of the overlay for cert-manager, in a namespace."""
    made = render(namespace=namespace, rotates=False, mask="webhook").objects
    return with_cert_manager(made, namespace)


def of_kind(kind: str, objects: Sequence[Manifest]) -> list[Manifest]:
    return [each for each in objects if each["kind"] == kind]


def the_one(kind: str, name: str) -> Manifest:
    (found,) = [
        each for each in of_kind(kind, everything("policy")) if each["metadata"]["name"] == name
    ]
    return found


def entries(mask: Mask, kind: str) -> dict[str, Manifest]:
    """Return the entries of the "Mutating" or "Validating" configurations by name."""
    found = of_kind(f"{kind}WebhookConfiguration", everything(mask))
    return {each["name"]: each for one in found for each in one["webhooks"]}


def identity(obj: Manifest) -> tuple[str, str, str]:
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace", ""), metadata["name"]
