"""Pods of a control plane as watches show them: lists would take the processors themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from webhook.kube.api import PODS, ApiError, ListOptions, WatchEvent
from webhook.kube.rest import RestClient


def pod_changes(client: RestClient, options: ListOptions, version: int) -> Iterator[WatchEvent]:
    """Yield the changes of pods after a version, without end: a watch ends from time to time."""
    while True:
        try:
            with client.watch(PODS, options, resource_version=version) as events:
                for event in events:
                    version = event.resource_version or version
                    if event.type in ("ADDED", "MODIFIED", "DELETED"):
                        yield event
        except ApiError:
            time.sleep(0.1)


def follow_pods(
    client: RestClient, options: ListOptions, version: int, take: Callable[[WatchEvent], None]
) -> None:
    """Call `take` with each change of pods after a version, in a thread that does not end."""

    def follow() -> None:
        for event in pod_changes(client, options, version):
            take(event)

    threading.Thread(target=follow, daemon=True).start()
