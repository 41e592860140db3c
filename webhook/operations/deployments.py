"""The Deployments of an installation: what keeps their pods, and whom the API server asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from webhook.cluster.api import PODS, ClusterApi, Kind, Object, kind_of
from webhook.quota.fields import mapping, sequence
from webhook.quota.reading import Node

DEPLOYMENTS: Final[Kind] = kind_of("apps/v1", "Deployment", namespaced=True)
NAME_LABEL: Final = "app.kubernetes.io/name"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"


def asked_at(registration: Object) -> str | None:
    """Say where the API server asks by a webhook configuration.

    Returns:
        `https://HOST:PORT` of a webhook outside of the cluster, empty for a Service, None where the
        configuration has no entry.

    Raises:
        InvalidFieldError: The configuration cannot be read.
    """
    for entry in Node(registration).children("webhooks"):
        place = urlsplit(entry.child("clientConfig").text("url"))
        return f"{place.scheme}://{place.netloc}" if place.netloc else ""
    return None


def conditions_of(obj: Object) -> dict[str, tuple[str, str]]:
    """Return the conditions in a status: type → (status, message)."""
    status = mapping(obj.get("status"), "status")
    raw = [mapping(each, "condition") for each in sequence(status.get("conditions"), "conditions")]
    return {
        str(each.get("type")): (str(each.get("status")), str(each.get("message"))) for each in raw
    }


def pods_of(api: ClusterApi, deployment: Object) -> Sequence[Object]:
    """Return the pods of a Deployment, former ones too, by its labels.

    Raises:
        ApiError: They cannot be listed.
    """
    metadata = mapping(deployment.get("metadata"), "metadata")
    labels = mapping(metadata.get("labels"), "metadata.labels")
    selector = ",".join(f"{name}={labels[name]}" for name in (NAME_LABEL, COMPONENT_LABEL))
    return api.list(PODS, namespace=str(metadata["namespace"]), label_selector=selector).items


def troubles_of(api: ClusterApi, deployment: Object) -> list[str]:
    """Say what keeps the pods of a Deployment, as far as they show it.

    Raises:
        ApiError: Its pods cannot be listed.
    """
    pods = pods_of(api, deployment)
    if not pods:
        status, message = conditions_of(deployment).get("ReplicaFailure", ("", ""))
        return [message] if status == "True" else []
    return sorted({trouble for pod in pods for trouble in _troubles(pod)})


def _troubles(pod: Object) -> Sequence[str]:
    status = mapping(pod.get("status"), "status")
    scheduled = conditions_of(pod).get("PodScheduled", ("", ""))
    if scheduled[0] == "False":
        return [scheduled[1]]
    found: list[str] = []
    for each in sequence(status.get("containerStatuses"), "status.containerStatuses"):
        state = mapping(mapping(each, "containerStatus").get("state"), "state")
        waiting = mapping(state.get("waiting"), "state.waiting")
        if waiting:
            found.append(": ".join(str(waiting[k]) for k in ("reason", "message") if k in waiting))
    return found
