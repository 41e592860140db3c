"""The kinds of the API: how each is called, where it lives, which parts the API server keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object under one API version.

    `has_status`: it has a status subresource, so the main endpoint does not write status.
    `counts_generations`: the API server counts changes of its spec in `metadata.generation`.
    `is_custom`: defined by a CustomResourceDefinition; updates of it must name a version.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    has_status: bool = True
    counts_generations: bool = False
    is_custom: bool = False

    @property
    def api_version(self) -> str:
        """Return what stands in an object's `apiVersion`: "v1", "batch/v1"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Return the resource as error messages name it: "pods", "jobs.batch"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """Return the kind as validation messages name it: "Pod", "Job.batch"."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def make(self, metadata: Mapping[str, object], **parts: object) -> dict[str, object]:
        """Return an object of the kind, with parts such as `spec`."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata,
            **parts,
        }


def _core(kind: str, plural: str, *, status: bool = True, generations: bool = False) -> Kind:
    return Kind("", "v1", kind, plural, has_status=status, counts_generations=generations)


def _cluster(group: str, version: str, kind: str, plural: str, *, status: bool = False) -> Kind:
    return Kind(
        group,
        version,
        kind,
        plural,
        namespaced=False,
        has_status=status,
        counts_generations=bool(group),
    )


def _workload(group: str, version: str, kind: str, plural: str) -> Kind:
    return Kind(group, version, kind, plural, counts_generations=True)


def _plain(group: str, version: str, kind: str, plural: str) -> Kind:
    return Kind(group, version, kind, plural, has_status=False)


def _custom(group: str, version: str, kind: str, plural: str, *, namespaced: bool = True) -> Kind:
    return Kind(
        group, version, kind, plural, namespaced=namespaced, counts_generations=True, is_custom=True
    )


_ADMISSION: Final = "admissionregistration.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"

PODS: Final = _core("Pod", "pods", generations=True)
RESOURCE_QUOTAS: Final = _core("ResourceQuota", "resourcequotas")
NAMESPACES: Final = _cluster("", "v1", "Namespace", "namespaces", status=True)
NODES: Final = _cluster("", "v1", "Node", "nodes", status=True)
LIMIT_RANGES: Final = _core("LimitRange", "limitranges", status=False)
EVENTS: Final = _core("Event", "events", status=False)
CONFIG_MAPS: Final = _core("ConfigMap", "configmaps", status=False)
SECRETS: Final = _core("Secret", "secrets", status=False)
JOBS: Final = _workload("batch", "v1", "Job", "jobs")
PRIORITY_CLASSES: Final = _cluster("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses")
DEVICE_CLASSES: Final = _cluster("resource.k8s.io", "v1", "DeviceClass", "deviceclasses")
RESOURCE_CLAIMS: Final = _workload("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
LEASES: Final = _plain("coordination.k8s.io", "v1", "Lease", "leases")
MUTATING_WEBHOOKS: Final = _cluster(
    _ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"
)
VALIDATING_WEBHOOKS: Final = _cluster(
    _ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"
)
QUOTA_LEDGERS: Final = _custom("deferredquota.io", "v1alpha1", "QuotaLedger", "quotaledgers")
CLUSTER_DEFERRED_QUOTAS: Final = _custom(
    "deferredquota.io",
    "v1alpha1",
    "ClusterDeferredQuota",
    "clusterdeferredquotas",
    namespaced=False,
)
POD_GATINGS: Final = replace(
    _custom("deferredquota.io", "v1alpha1", "PodGating", "podgatings"), has_status=False
)
ELASTIC_QUOTAS: Final = _custom("nos.nebuly.com", "v1alpha1", "ElasticQuota", "elasticquotas")
COMPOSITE_ELASTIC_QUOTAS: Final = _custom(
    "nos.nebuly.com", "v1alpha1", "CompositeElasticQuota", "compositeelasticquotas"
)

POD_DISRUPTION_BUDGETS: Final = _workload(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"
)

POD_GROUPS: Final = tuple(
    _workload("scheduling.k8s.io", version, "PodGroup", "podgroups")
    for version in ("v1beta1", "v1alpha3", "v1alpha2")
)
"""PodGroups in the versions that API servers have had, the newest first: 1.36 has `v1alpha2`, and
serves it behind a feature gate; 1.37 has the others."""

BINDINGS: Final = _core("Binding", "bindings", status=False)
"""Only ever created, never stored: the request that gives a pod its node."""

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Set by the API server on every namespace."""

KNOWN_KINDS: Final[tuple[Kind, ...]] = (
    PODS,
    RESOURCE_QUOTAS,
    NAMESPACES,
    NODES,
    LIMIT_RANGES,
    EVENTS,
    CONFIG_MAPS,
    SECRETS,
    _core("Service", "services"),
    _core("ServiceAccount", "serviceaccounts", status=False),
    _core("PersistentVolumeClaim", "persistentvolumeclaims"),
    _cluster("", "v1", "PersistentVolume", "persistentvolumes", status=True),
    _core("ReplicationController", "replicationcontrollers", generations=True),
    _core("Endpoints", "endpoints", status=False),
    _workload("apps", "v1", "Deployment", "deployments"),
    _workload("apps", "v1", "ReplicaSet", "replicasets"),
    _workload("apps", "v1", "StatefulSet", "statefulsets"),
    _workload("apps", "v1", "DaemonSet", "daemonsets"),
    JOBS,
    _workload("batch", "v1", "CronJob", "cronjobs"),
    PRIORITY_CLASSES,
    LEASES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS[-1],
    _workload("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    _workload("networking.k8s.io", "v1", "Ingress", "ingresses"),
    _workload("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    RESOURCE_CLAIMS,
    _plain("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
    DEVICE_CLASSES,
    _cluster("storage.k8s.io", "v1", "StorageClass", "storageclasses"),
    _plain("events.k8s.io", "v1", "Event", "events"),
    _plain(_RBAC, "v1", "Role", "roles"),
    _plain(_RBAC, "v1", "RoleBinding", "rolebindings"),
    _cluster(_RBAC, "v1", "ClusterRole", "clusterroles"),
    _cluster(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings"),
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    _cluster(_ADMISSION, "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
    _cluster(_ADMISSION, "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    _cluster(_ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    _cluster(
        _ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"
    ),
    _cluster(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        status=True,
    ),
    QUOTA_LEDGERS,
    CLUSTER_DEFERRED_QUOTAS,
    POD_GATINGS,
    ELASTIC_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
)

_BY_KIND: Final = {(kind.group, kind.kind): kind for kind in KNOWN_KINDS}


def known_kind(api_version: str, kind: str) -> Kind | None:
    """Find a kind of the table by what its objects say of themselves; None if it is not there.

    Another version of a known kind is the same kind under that version.
    """
    group, version = split_api_version(api_version)
    found = _BY_KIND.get((group, kind))
    return None if found is None else _at_version(found, version)


def kind_of(api_version: str, kind: str, *, namespaced: bool) -> Kind:
    """Find a kind, or make one of a custom resource that the table does not have.

    Args:
        api_version: As in the object.
        kind: As in the object.
        namespaced: What to take for an unknown kind, usually whether its object has a namespace.

    Its plural is guessed as Kubernetes guesses one (apimachinery, pkg/api/meta/restmapper.go
    UnsafeGuessKindToResource).
    """
    found = known_kind(api_version, kind)
    if found is not None:
        return found
    group, version = split_api_version(api_version)
    return _custom(group, version, kind, guess_plural(kind), namespaced=namespaced)


def guess_plural(kind: str) -> str:
    """Return the usual resource name of a kind: "Policy" is "policies", "Box" is "boxes"."""
    single = kind.lower()
    if single.endswith(("s", "x", "ch", "sh")):
        return f"{single}es"
    if single.endswith("y"):
        return f"{single[:-1]}ies"
    return f"{single}s"


def split_api_version(api_version: str) -> tuple[str, str]:
    """Split "batch/v1" into group and version; the core group is empty."""
    group, _, version = api_version.rpartition("/")
    return group, version


def _at_version(kind: Kind, version: str) -> Kind:
    return kind if kind.version == version else replace(kind, version=version)


def is_path_segment(text: str) -> bool:
    """Return whether text can be one segment of a path, as the names of all objects can.

    Source: kubernetes v1.36, apimachinery/pkg/api/validation/path/name.go.
    """
    return text not in ("", ".", "..") and not ("/" in text or "%" in text)


def object_key(namespace: str, name: str) -> str:
    """Return "namespace/name", or the bare name where there is no namespace."""
    return f"{namespace}/{name}" if namespace else name


def split_key(key: str) -> tuple[str, str]:
    """Split a key into namespace and name; the namespace is empty for a bare name."""
    namespace, _, name = key.rpartition("/")
    return namespace, name
