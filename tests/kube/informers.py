"""Informers of ConfigMaps, whose copies hold the `text` of each."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import TypeAlias

from tests.kube.builders import a_config_map, mapping
from tests.kube.contract.base import SOON
from webhook.kube.api import ALL, CONFIG_MAPS, ClusterApi, ListOptions, Object
from webhook.kube.informer import Change, Informer, InformerTimings

AT_ONCE = InformerTimings(rand=lambda: 0.0)
"""No pauses between attempts."""

Seen: TypeAlias = "queue.Queue[Change[str]]"


def text_of(obj: Object) -> str:
    """What the copies in these tests hold: the `text` of a ConfigMap."""
    text = mapping(obj, "data").get("text", "")
    if text == "unreadable":
        raise ValueError("cannot be read")
    return str(text)


Start = Callable[..., "tuple[Informer[str], Seen]"]


def an_informer(
    api: ClusterApi, *, scope: ListOptions = ALL, timing: InformerTimings = AT_ONCE
) -> Informer[str]:
    return Informer(api, CONFIG_MAPS, transform=text_of, options=scope, timings=timing)


def write(api: ClusterApi, name: str, text: str) -> int:
    return api.create(CONFIG_MAPS, a_config_map(name, text=text)).resource_version


def rewrite(api: ClusterApi, name: str, text: str) -> int:
    patch = {"data": {"text": text}}
    return api.patch(CONFIG_MAPS, name, patch, namespace="team-a").resource_version


def remove(api: ClusterApi, name: str) -> int:
    return api.delete(CONFIG_MAPS, name, namespace="team-a").resource_version


def next_changes(seen: Seen, number: int) -> list[tuple[str, str, str | None, str | None]]:
    """Wait for some changes; say type, name, old and new value of each."""
    changes = [seen.get(timeout=SOON) for _ in range(number)]
    return [(one.type, one.key.partition("/")[2], one.old, one.new) for one in changes]
