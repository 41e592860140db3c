"""Names in the cluster that more than one part of the program goes by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.quota.objects import names

DEFAULT_NAMESPACE: Final = "deferred-quota-system"
"""Where it is installed unless an administrator chooses another namespace."""
CONFIG_MAP: Final = "deferred-quota-config"
"""Where an installation keeps its configuration, in its namespace."""
NOT_IN_FORCE: Final = "ConfigurationNotInForce"
IN_FORCE: Final = "ConfigurationInForce"
CONFIGURATION_REPORTS: Final = frozenset({NOT_IN_FORCE, IN_FORCE})
"""Reasons of the events about that configuration; the newest holds."""
LEADER_LEASE: Final = "deferred-quota-controller"
"""The Lease with which controllers elect a leader."""
REGISTRATION: Final = "deferred-quota"
"""Name of the mutating and of the validating webhook configuration."""
LAST_REGISTRATION: Final = "zz-deferred-quota-jobs"
"""Name of a second mutating one, which the API server asks last: it goes by their names."""
BIND_ENTRY: Final = names.BIND_ENTRY
"""The entry of the validating one that is asked about every bind."""
KNOWN_CLIENTS_ONLY: Final = "this webhook answers only clients that it knows by their certificate"
"""What `serve --client-ca` says to other clients; the API server hands it on."""
SHADOW_ENTRY: Final = "shadow.deferredquota.io"
"""The entry of the validating one for pods in namespaces in shadow mode."""
EMERGENCY: Final = "deferredquota.io/emergency"
"""A label that is required and forbidden where `deferred-quota emergency open` stops the asking."""
EMERGENCY_SINCE: Final = "deferredquota.io/emergency-since"
"""On the registration of the guard, from the first write of `open` to the last one of `close`."""
GUARDED_ANNOTATION: Final = "deferredquota.io/guarded"
"""Written on the Binding, it lands on the pod: this pod came through the guard at its bind."""

MODE_LABEL: Final = "deferredquota.io/mode"
DEFERRED_MODE: Final = "deferred"
SHADOW_MODE: Final = "shadow"
KNOWN_MODES: Final = (DEFERRED_MODE, SHADOW_MODE)

GATING_LABEL: Final = "deferredquota.io/gating"
ALWAYS_GATING: Final = "always"
"""Every pod that a quota selects is created with our scheduling gate."""
AUTO_GATING: Final = "auto"
"""Only pods for which little quota is free, counted with the pods before them, are gated."""
NEVER_GATING: Final = "never"
"""No pod is gated; binds are guarded all the same."""

FORMER_GATING_LABEL: Final = "deferredquota.io/pacing"
"""Name of `GATING_LABEL` in earlier versions; understood in this one, where that is absent."""
FORMER_GATING_MODES: Final[Mapping[str, str]] = {
    "gate": ALWAYS_GATING,
    "auto": AUTO_GATING,
    "none": NEVER_GATING,
}
"""Value of `FORMER_GATING_LABEL` → value of `GATING_LABEL`."""

POD_GATING: Final = "gating"
"""The PodGating of a namespace: up to which size its new pods go ungated."""

SCHEDULING_GATE: Final = "deferredquota.io/quota"
"""The scheduling gate of pods that wait for quota."""

UNGATED_ANNOTATION: Final = names.UNGATED_ANNOTATION

UNEVALUATED_LABEL: Final = "deferredquota.io/unevaluated"
"""Written on a new pod that the gating handler leaves to `shape.`, which may refuse it."""
UNEVALUATED: Final = "true"

DEFERRED_RESOURCES_ANNOTATION: Final = "deferredquota.io/deferred-resources"
"""On the registration of the guard: the extended resources that the mask may hide, by commas."""

MANAGED_PREFIX: Final = "deferredquota.io/"
"""Labels and annotations of pods that begin so are ours to write."""
CAPACITY_LABEL: Final = "nos.nebuly.com/capacity"
"""A label of pods that is ours to write, by the name that others know it by."""
RECLAIM_GROUP_LABEL: Final = "elastic.deferredquota.io/group"
"""Of pods of one namespace that are evicted together; their owners write it."""
ELASTIC_LABEL: Final = "deferredquota.io/elastic"
"""Of the ClusterDeferredQuotas that the controller keeps for elastic quotas."""

GATING_MODES: Final = (ALWAYS_GATING, AUTO_GATING, NEVER_GATING)


def controller_user(namespace: str) -> str:
    """Return the user name of the controller of an installation in `namespace`."""
    return f"system:serviceaccount:{namespace}:deferred-quota-controller"


def webhook_user(namespace: str) -> str:
    """Return the user name of the webhook of an installation in `namespace`."""
    return f"system:serviceaccount:{namespace}:deferred-quota-webhook"


def own_users(namespace: str) -> frozenset[str]:
    """Return the user names of the processes of an installation in `namespace`."""
    return frozenset({controller_user(namespace), webhook_user(namespace)})


def gating_of(labels: Mapping[str, str], configured: str) -> str:
    """Return the gating of a namespace with these labels; `configured` where they name none.

    The label of earlier versions counts where the new one is absent.
    """
    former = FORMER_GATING_MODES.get(labels.get(FORMER_GATING_LABEL, ""), configured)
    value = labels.get(GATING_LABEL, former)
    return value if value in GATING_MODES else configured


def gate_removal(uid: str, index: int) -> list[dict[str, object]]:
    """Return the JSON Patch that removes our gate; it fails if anything is not as it was seen.

    Args:
        uid: The pod that is meant.
        index: The gate's place among all gates of the pod.
    """
    gate = f"/spec/schedulingGates/{index}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": f"{gate}/name", "value": SCHEDULING_GATE},
        {"op": "remove", "path": gate},
    ]


CA_SECRET: Final = "deferred-quota-ca"  # noqa: S105 - a name
"""Where the CA of an installation is, with its key."""
TLS_SECRET: Final = "deferred-quota-tls"  # noqa: S105 - a name
"""What the webhook serves with in the cluster, and the CAs that clients are to trust."""
INJECTED_ANNOTATIONS: Final = (
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
)
"""By which cert-manager writes the `caBundle` of a registration."""
ISSUED_ANNOTATION: Final = "cert-manager.io/certificate-name"
"""What cert-manager notes on a Secret that it writes."""
