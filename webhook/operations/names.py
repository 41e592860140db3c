"""Names of what an installation puts into a cluster, and what it registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from webhook.kube.api import ListOptions
from webhook.kube.kinds import Kind, kind_of
from webhook.kube.selectors import Term
from webhook.state.webhook_selectors import BINDS
from webhook.state.well_known import (
    BIND_ENTRY,
    DEFERRED_MODE,
    MODE_LABEL,
    SHADOW_ENTRY,
    SHADOW_MODE,
    UNEVALUATED,
    UNEVALUATED_LABEL,
)

RUNTIME_CLASSES: Final = kind_of("node.k8s.io/v1", "RuntimeClass", namespaced=False)
CLAIMS: Final = kind_of("v1", "PersistentVolumeClaim", namespaced=True)
VOLUMES: Final = kind_of("v1", "PersistentVolume", namespaced=False)
STORAGE_CLASSES: Final = kind_of("storage.k8s.io/v1", "StorageClass", namespaced=False)
CRON_JOBS: Final = kind_of("batch/v1", "CronJob", namespaced=True)
MASK_POLICY: Final = "deferred-quota-mask"
STAMP_POLICY: Final = "deferred-quota-stamp"
SERVICE_ACCOUNTS_POLICY: Final = "deferred-quota-service-accounts"
OWN_NAMESPACE_POLICY: Final = "deferred-quota-own-namespace"
CLUSTER_QUOTAS_POLICY: Final = "deferred-quota-cluster-quotas"
LEDGERS_POLICY: Final = "deferred-quota-ledgers"
DEVICE_CLAIMS_POLICY: Final = "deferred-quota-device-claims"
DEVICE_CLASS_MINOR: Final = 34
"""Kubernetes 1.34: the first with DeviceClasses in `resource.k8s.io/v1`. An older API server looks
for them each second, as the policy has them as parameters, and logs that there are none."""
IS_OURS: Final = "is-ours"
IS_NOT_OURS: Final = "is-not-ours"
"""Conditions of these policies, which name our service accounts."""
KEYS: Final = "keys"
EXEMPT: Final = "exempt"
TRUSTED: Final = "trusted"
GLASS_BREAKERS: Final = "glassBreakers"
"""Variables of these policies, which list what the configuration says."""
OPTED_IN: Final = ListOptions(label_selector=f"{MODE_LABEL}={DEFERRED_MODE}")
"""What lists the namespaces whose quotas are deferred."""
CONFIG_KEY: Final = "config.yaml"
"""Where an installation keeps its configuration, in its ConfigMap."""
LEDGER_CRD: Final = "quotaledgers.deferredquota.io"
CLUSTER_QUOTA_CRD: Final = "clusterdeferredquotas.deferredquota.io"
OTHER_MANAGERS: Final[Mapping[str, str]] = {
    "applicationawareresourcequotas.aaq.kubevirt.io": "Application Aware Quota",
    "applicationawareclusterresourcequotas.aaq.kubevirt.io": "Application Aware Quota",
    "elasticquotas.scheduling.x-k8s.io": "the scheduler's plugin CapacityScheduling",
    "localqueues.kueue.x-k8s.io": "Kueue",
}
"""Definitions of what limits pods elsewhere → whose it is."""

_RBAC: Final = "rbac.authorization.k8s.io/v1"
_ADMISSION: Final = "admissionregistration.k8s.io"


def _kind(api_version: str, kind: str, *, namespaced: bool = False) -> Kind:
    return kind_of(api_version, kind, namespaced=namespaced)


CUSTOM_RESOURCE_DEFINITIONS: Final = _kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
CLUSTER_ROLES: Final = _kind(_RBAC, "ClusterRole")
CLUSTER_ROLE_BINDINGS: Final = _kind(_RBAC, "ClusterRoleBinding")
ROLES: Final = _kind(_RBAC, "Role", namespaced=True)
ROLE_BINDINGS: Final = _kind(_RBAC, "RoleBinding", namespaced=True)
NETWORK_POLICIES: Final = _kind("networking.k8s.io/v1", "NetworkPolicy", namespaced=True)
VALIDATING_POLICIES: Final = _kind(f"{_ADMISSION}/v1", "ValidatingAdmissionPolicy")
VALIDATING_BINDINGS: Final = _kind(f"{_ADMISSION}/v1", "ValidatingAdmissionPolicyBinding")
POLICY_VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
"""Versions of mutating admission policies, the newest first."""


def policy_kinds(version: str) -> tuple[Kind, Kind]:
    """Return the kinds of mutating admission policies and of their bindings."""
    api_version = f"{_ADMISSION}/{version}"
    return (
        _kind(api_version, "MutatingAdmissionPolicy"),
        _kind(api_version, "MutatingAdmissionPolicyBinding"),
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """One webhook of a configuration, as it has to be."""

    policy: str
    covers: tuple[tuple[str, str, str], ...]
    """(operation, API group, resource) of every request that it has to see."""
    without: str
    """What is missing where it is missing."""
    mode: str = DEFERRED_MODE
    """Which namespaces it is for, by their label."""
    objects: tuple[Term, ...] = ()
    """Which objects it may leave out, as the label selector of those that it sees."""


_JOBS: Final = (("CREATE", "batch", "jobs"), ("UPDATE", "batch", "jobs"))
_WORKLOADS: Final = tuple(
    (operation, group, resource)
    for group, resource in (
        ("batch", "jobs"),
        ("batch", "cronjobs"),
        ("jobset.x-k8s.io", "jobsets"),
    )
    for operation in ("CREATE", "UPDATE")
)
_NEW_PODS: Final = (("CREATE", "", "pods"),)
_UNJUDGED: Final = frozenset({UNEVALUATED})

MASK_ENTRY: Final = "mask.deferredquota.io"
STAMP_ENTRY: Final = "stamp.deferredquota.io"
"""Pins the uid in Bindings that have none."""
HAS_NO_UID: Final = 'object.?metadata.?uid.orValue("") == ""'
"""The only condition of that entry."""
GATE_ENTRY: Final = "gate.deferredquota.io"
"""Selects only the namespaces that want gates."""
UNGATED_ENTRY: Final = "ungated.deferredquota.io"
"""Selects only the other namespaces."""
SHAPE_ENTRY: Final = "shape.deferredquota.io"
"""Is asked about pods that the gating handler leaves to it."""
MARKS_ENTRY: Final = "marks.deferredquota.io"
"""Refuses that people take gates off pods."""
MUTATING: Final[Mapping[str, Entry]] = {
    STAMP_ENTRY: Entry(
        "Fail", BINDS, "a Binding without uid could bind another pod than the one charged"
    ),
    GATE_ENTRY: Entry(
        "Ignore",
        _NEW_PODS,
        "pods do not wait for quota: the scheduler tries those that do not fit, again and again",
    ),
    MASK_ENTRY: Entry(
        "Ignore",
        (("UPDATE", "", "resourcequotas/status"),),
        "the API server goes on to charge pods when they are created",
    ),
}
MUTATING_LAST: Final[Mapping[str, Entry]] = {
    "jobs.deferredquota.io": Entry(
        "Ignore", _JOBS, "changes of Jobs are refused in the API server's words only"
    ),
}
"""Those that have a configuration of their own, so that they see what others make of a request."""
VALIDATING: Final[Mapping[str, Entry]] = {
    BIND_ENTRY: Entry("Fail", BINDS, "pods are bound without being charged"),
    "assigned.deferredquota.io": Entry(
        "Fail", _NEW_PODS, "pods created with a node are not charged"
    ),
    SHAPE_ENTRY: Entry(
        "Ignore",
        _NEW_PODS,
        "pods that can never be bound are created",
        objects=(Term(UNEVALUATED_LABEL, _UNJUDGED),),
    ),
    UNGATED_ENTRY: Entry("Ignore", _NEW_PODS, "pods that can never be bound are created"),
    "resize.deferredquota.io": Entry(
        "Fail",
        (("UPDATE", "", "pods/resize"), ("UPDATE", "", "pods")),
        "pods grow without being charged",
    ),
    MARKS_ENTRY: Entry(
        "Ignore",
        (("UPDATE", "", "pods"),),
        "users with the right to change a pod can take its scheduling gate off and jump the queue",
    ),
    "jobs.deferredquota.io": Entry(
        "Ignore", _WORKLOADS, "Jobs that can never run are accepted, and rules for them ignored"
    ),
    "quotas.deferredquota.io": Entry(
        "Ignore",
        (
            ("CREATE", "", "resourcequotas"),
            ("UPDATE", "", "resourcequotas"),
            ("CREATE", "deferredquota.io", "clusterdeferredquotas"),
            ("UPDATE", "deferredquota.io", "clusterdeferredquotas"),
            ("CREATE", "nos.nebuly.com", "elasticquotas"),
            ("UPDATE", "nos.nebuly.com", "elasticquotas"),
            ("CREATE", "nos.nebuly.com", "compositeelasticquotas"),
            ("UPDATE", "nos.nebuly.com", "compositeelasticquotas"),
        ),
        "quotas that break every pod creation are accepted, and cluster quotas that limit nothing",
    ),
    SHADOW_ENTRY: Entry(
        "Ignore",
        _NEW_PODS,
        "what quota refuses in namespaces in shadow mode is not seen",
        mode=SHADOW_MODE,
    ),
}
