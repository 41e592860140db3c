"""The shipped manifests, as tests look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from webhook.config import PageSettings
from webhook.install import render
from webhook.install.rendering import Mask

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
