"""The Deployments of an installation: what keeps their pods, and the place that is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from webhook.jsonfields.fields import InvalidFieldError, mapping, sequence
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    NAMESPACES,
    PODS,
    VALIDATING_WEBHOOKS,
    ClusterApi,
    ForbiddenError,
    Kind,
    ListOptions,
    NotFoundError,
    Object,
    kind_of,
)
from webhook.operations.names import CLUSTER_ROLE_BINDINGS
from webhook.state.well_known import DEFAULT_NAMESPACE, REGISTRATION

DEPLOYMENTS: Final[Kind] = kind_of("apps/v1", "Deployment", namespaced=True)
WEBHOOK: Final = "deferred-quota-webhook"
"""Name of the webhook's Deployment, and of its Service."""
NAME_LABEL: Final = "app.kubernetes.io/name"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
_OWN: Final = f"{NAME_LABEL}=deferred-quota,{COMPONENT_LABEL}=namespace"
"""The labels of the namespace of an installation."""
WEBHOOK_RIGHTS: Final = "deferred-quota-webhook"
"""The ClusterRoleBinding of the webhook's service account, which every installation has."""


def asked_at(registration: Object) -> str | None:
    """Return where the API server asks by a webhook configuration.

    Returns:
        `https://HOST:PORT` of a webhook outside of the cluster, empty for a Service, None where the
        configuration has no entry.

    Raises:
        InvalidFieldError: The configuration cannot be read.
    """
    for entry in FieldReader(registration).children("webhooks"):
        place = urlsplit(entry.child("clientConfig").text("url"))
        return f"{place.scheme}://{place.netloc}" if place.netloc else ""
    return None


def system_namespace_of(api: ClusterApi) -> str:
    """Return the namespace of the installation; the default one where there is none.

    Raises:
        ApiError: The cluster does not answer.
    """
    return installed_namespace(api) or DEFAULT_NAMESPACE


def installed_namespace(api: ClusterApi) -> str:
    """Return the namespace of the installation; empty where there is none, or it may not be seen.

    An installation that was interrupted early, or its removal late, has left no more than the label
    of its namespace.

    Raises:
        ApiError: The cluster does not answer.
    """
    return proven_namespace(api) or _labelled_namespace(api)


def proven_namespace(api: ClusterApi) -> str:
    """Return the namespace of the installation by what only administrators write; empty if none.

    The registration names the Service of the webhook. One outside of the cluster has none, and an
    uninstallation that was interrupted may have left none: then the rights of the webhook say it.

    Raises:
        ApiError: The cluster does not answer.
    """
    with suppress(NotFoundError, ForbiddenError, InvalidFieldError):
        entries = FieldReader(api.get(VALIDATING_WEBHOOKS, REGISTRATION)).children("webhooks")
        services = (entry.child("clientConfig").child("service") for entry in entries)
        named = [place for service in services if (place := service.text("namespace"))]
        if named:  # one may be led elsewhere, and doctor says which
            return Counter(named).most_common(1)[0][0]
    with suppress(NotFoundError, ForbiddenError, InvalidFieldError):
        rights = FieldReader(api.get(CLUSTER_ROLE_BINDINGS, WEBHOOK_RIGHTS))
        return next((each.text("namespace") for each in rights.children("subjects")), "")
    return ""


def _labelled_namespace(api: ClusterApi) -> str:
    with suppress(ForbiddenError, InvalidFieldError):
        found = [
            FieldReader(raw).child("metadata")
            for raw in api.list(NAMESPACES, ListOptions(label_selector=_OWN)).items
        ]
        names = [each.text("name") for each in found if not each.has("deletionTimestamp")]
        return names[0] if len(names) == 1 else ""
    return ""


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
    return api.list(
        PODS, ListOptions(namespace=str(metadata["namespace"]), label_selector=selector)
    ).items


def troubles_of(api: ClusterApi, deployment: Object) -> list[str]:
    """Return what keeps the pods of a Deployment, as far as they show it.

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
