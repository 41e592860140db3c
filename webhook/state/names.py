"""Names in the cluster that more than one part of the program goes by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.quota import names

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
BIND_ENTRY: Final = "bind.deferredquota.io"
"""The entry of the validating one that is asked about every bind."""
SHADOW_ENTRY: Final = "shadow.deferredquota.io"
"""The entry of the validating one that is told of pods in namespaces in shadow mode."""
GUARDED_ANNOTATION: Final = "deferredquota.io/guarded"
"""Written on the Binding, it lands on the pod: this pod came through the guard at its bind."""

MODE_LABEL: Final = "deferredquota.io/mode"
DEFERRED_MODE: Final = "deferred"
SHADOW_MODE: Final = "shadow"
KNOWN_MODES: Final = (DEFERRED_MODE, SHADOW_MODE)

PACING_LABEL: Final = "deferredquota.io/gating"
GATE_PACING: Final = "always"
"""Every pod that a quota selects is created with our scheduling gate."""
AUTO_PACING: Final = "auto"
"""Only pods for which little quota is free, counted with the pods before them, are gated."""
NO_PACING: Final = "never"
"""No pod is gated; binds are guarded all the same."""

FORMER_PACING_LABEL: Final = "deferredquota.io/pacing"
"""Name of `PACING_LABEL` in earlier versions; understood in this one, where that is absent."""
FORMER_PACINGS: Final[Mapping[str, str]] = {
    "gate": GATE_PACING,
    "auto": AUTO_PACING,
    "none": NO_PACING,
}
"""Value of `FORMER_PACING_LABEL` → value of `PACING_LABEL`."""

GATE: Final = "deferredquota.io/quota"
"""The scheduling gate of pods that wait for quota."""

LET_THROUGH_ANNOTATION: Final = names.LET_THROUGH_ANNOTATION

UNJUDGED_LABEL: Final = "deferredquota.io/unevaluated"
"""Written on a new pod that the gate door leaves to `shape.`, which may refuse it."""
UNJUDGED: Final = "true"

DEFERRED_RESOURCES_ANNOTATION: Final = "deferredquota.io/deferred-resources"
"""On the registration of the guard: the extended resources that the mask may hide, by commas."""

MARK_PREFIX: Final = "deferredquota.io/"
"""Labels and annotations of pods that begin so are ours to write."""
CAPACITY_LABEL: Final = "nos.nebuly.com/capacity"
"""A label of pods that is ours to write, by the name that others know it by."""


def controller_user(namespace: str) -> str:
    """Return the user name of the controller of an installation in `namespace`."""
    return f"system:serviceaccount:{namespace}:deferred-quota-controller"


def webhook_user(namespace: str) -> str:
    """Return the user name of the webhook of an installation in `namespace`."""
    return f"system:serviceaccount:{namespace}:deferred-quota-webhook"


def own_users(namespace: str) -> frozenset[str]:
    """Return the user names of the processes of an installation in `namespace`."""
    return frozenset({controller_user(namespace), webhook_user(namespace)})
