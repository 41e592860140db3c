"""Objects of a cluster without what could be secret and no command reads.

Of pods, and of the templates of workloads, only what decides about quota and nodes stays: fields
are named that stay, so that one which a later release adds is left out. Gone are environments,
commands, probes, mounts, Secrets and ConfigMaps that are mounted, service accounts, and all
annotations but those that the product reads. A kubelet quotes commands, what probes were answered,
and names of Secrets: of its messages those about images stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from webhook.kube.api import Object

_Fields: TypeAlias = Mapping[str, object]

_KEPT_ANNOTATIONS: Final = (
    "deferredquota.io/",
    "kubernetes.io/config.mirror",
    "kubernetes.io/config.source",
    "pv.kubernetes.io/bind-completed",
    "volume.kubernetes.io/selected-node",
    "volume.beta.kubernetes.io/storage-class",
)
_METADATA: Final = frozenset(
    {
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
    }
)
_CONTAINER: Final = frozenset(
    {
        "name",
        "image",
        "resources",
        "ports",
        "restartPolicy",
        "resizePolicy",
    }
)
_CONTAINER_LISTS: Final = ("containers", "initContainers")
_POD_SPEC: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "affinity",
        "containers",
        "hostNetwork",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "schedulingGroup",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    }
)
_VOLUME: Final = frozenset(
    {
        "name",
        "persistentVolumeClaim",
        "ephemeral",
        "gcePersistentDisk",
        "awsElasticBlockStore",
    }
)
_NODE_STATUS: Final = frozenset(
    {
        "allocatable",
        "capacity",
        "conditions",
        "images",
    }
)
_CLAIM_SPEC: Final = frozenset(
    {
        "accessModes",
        "resources",
        "selector",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeName",
        "volumeMode",
    }
)
_VOLUME_SPEC: Final = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "nodeAffinity",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
        "persistentVolumeReclaimPolicy",
        "gcePersistentDisk",
        "awsElasticBlockStore",
    }
)
_CONTAINER_STATUSES: Final = (
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
)
_CONTAINER_STATUS: Final = frozenset(
    {
        "name",
        "image",
        "imageID",
        "ready",
        "started",
        "restartCount",
        "resources",
        "allocatedResources",
        "allocatedResourcesStatus",
    }
)
_STATES: Final = ("state", "lastState")
_ABOUT_IMAGES: Final = frozenset(
    {
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
"""Reasons why a container waits whose messages stay.

Source: kubernetes v1.36, pkg/kubelet/images/types.go and cri-api/pkg/errors/errors.go.
"""
_KUBELET: Final = "kubelet"
_OURS: Final = "deferred-quota"
_EXPLAINED: Final = frozenset(
    {"CronJob", "DaemonSet", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet"}
)
"""Kinds of objects whose events are read, whichever component wrote them."""
_CLASS_FIELDS: Final = frozenset(
    {
        "parameters",
        "mountOptions",
    }
)


def redacted(raw: Object) -> dict[str, object]:
    """Return an object as it is kept in a snapshot; the object itself is not changed."""
    kept = {**raw, "metadata": _metadata(_fields(raw.get("metadata")))}
    change = _CHANGES.get(str(raw.get("kind")))
    return kept if change is None else change(kept)


def _metadata(metadata: _Fields) -> dict[str, object]:
    kept = {name: value for name, value in metadata.items() if name in _METADATA}
    annotations = {
        name: value
        for name, value in _fields(metadata.get("annotations")).items()
        if name.startswith(_KEPT_ANNOTATIONS)
    }
    kept.pop("annotations", None)
    return {**kept, "annotations": annotations} if annotations else kept


def _pod(raw: dict[str, object]) -> dict[str, object]:
    kept = {**raw, "spec": _pod_spec(raw.get("spec"))}
    return {**kept, "status": _pod_status(raw["status"])} if "status" in raw else kept


def _pod_status(raw: object) -> dict[str, object]:
    status = dict(_fields(raw))
    for name in _CONTAINER_STATUSES:
        if name in status:
            status[name] = [_container_status(one) for one in _items(status[name])]
    return status


def _container_status(raw: object) -> dict[str, object]:
    status, states = _only(raw, _CONTAINER_STATUS), _only(raw, _STATES)
    return {**status, **{name: _state(state) for name, state in states.items()}}


def _state(raw: object) -> dict[str, object]:
    return {
        name: state if _is_about_image(state) else _without_message(state)
        for name, state in _fields(raw).items()
    }


def _is_about_image(state: object) -> bool:
    return _fields(state).get("reason") in _ABOUT_IMAGES


def _without_message(raw: object) -> dict[str, object]:
    return {name: value for name, value in _fields(raw).items() if name != "message"}


def _event(raw: dict[str, object]) -> dict[str, object]:
    component = raw.get("reportingComponent") or _fields(raw.get("source")).get("component")
    about = _fields(raw.get("involvedObject")).get("kind")
    is_kept = about in _EXPLAINED and component != _KUBELET
    return raw if is_kept or str(component).startswith(_OURS) else _without_message(raw)


def _pod_spec(raw: object) -> dict[str, object]:
    spec = _only(raw, _POD_SPEC)
    for name in _CONTAINER_LISTS:
        if name in spec:
            spec[name] = [_only(one, _CONTAINER) for one in _items(spec[name])]
    if "volumes" in spec:
        spec["volumes"] = [_volume(one) for one in _items(spec["volumes"])]
    return spec


def _volume(raw: object) -> dict[str, object]:
    kept = _only(raw, _VOLUME)
    if "ephemeral" in kept:
        template = _fields(kept["ephemeral"]).get("volumeClaimTemplate")
        kept["ephemeral"] = {"volumeClaimTemplate": _claim_template(template)}
    # of what is mounted only that something is: an emptyDir decides nothing
    return kept if len(kept) > 1 else {**kept, "emptyDir": {}}


def _workload(raw: dict[str, object]) -> dict[str, object]:
    return {**raw, "spec": _with_template(raw.get("spec"))}


def _cron_job(raw: dict[str, object]) -> dict[str, object]:
    spec = dict(_fields(raw.get("spec")))
    template = dict(_fields(spec.get("jobTemplate")))
    template["metadata"] = _metadata(_fields(template.get("metadata")))
    template["spec"] = _with_template(template.get("spec"))
    return {**raw, "spec": {**spec, "jobTemplate": template}}


def _with_template(raw: object) -> dict[str, object]:
    spec = dict(_fields(raw))
    if "template" in spec:
        spec["template"] = _template(spec["template"])
    if "volumeClaimTemplates" in spec:
        spec["volumeClaimTemplates"] = [
            _claim_template(one) for one in _items(spec["volumeClaimTemplates"])
        ]
    return spec


def _claim_template(raw: object) -> dict[str, object]:
    return {"metadata": _metadata(_fields(_fields(raw).get("metadata"))), "spec": _claim_spec(raw)}


def _claim_spec(raw: object) -> dict[str, object]:
    return _only(_fields(raw).get("spec"), _CLAIM_SPEC)


def _template(raw: object) -> dict[str, object]:
    template = _fields(raw)
    metadata = _metadata(_fields(template.get("metadata")))
    return {"metadata": metadata, "spec": _pod_spec(template.get("spec"))}


def _node(raw: dict[str, object]) -> dict[str, object]:
    return {**raw, "status": _only(raw.get("status"), _NODE_STATUS)}


def _claim(raw: dict[str, object]) -> dict[str, object]:
    return {**raw, "spec": _claim_spec(raw)}


def _persistent_volume(raw: dict[str, object]) -> dict[str, object]:
    return {**raw, "spec": _only(raw.get("spec"), _VOLUME_SPEC)}


def _storage_class(raw: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in raw.items() if name not in _CLASS_FIELDS}


_CHANGES: Final[Mapping[str, Callable[[dict[str, object]], dict[str, object]]]] = {
    "Pod": _pod,
    "Node": _node,
    "CronJob": _cron_job,
    "Event": _event,
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _persistent_volume,
    "StorageClass": _storage_class,
    **dict.fromkeys(
        (
            "DaemonSet",
            "Deployment",
            "Job",
            "ReplicaSet",
            "ReplicationController",
            "StatefulSet",
        ),
        _workload,
    ),
}
"""Kind → what is left out of it; of a kind that is not there only annotations are."""


def _only(raw: object, names: Iterable[str]) -> dict[str, object]:
    return {name: value for name, value in _fields(raw).items() if name in names}


def _fields(raw: object) -> _Fields:
    return raw if isinstance(raw, Mapping) else {}


def _items(raw: object) -> list[object]:
    return raw if isinstance(raw, list) else []
