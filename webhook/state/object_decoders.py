"""Decoders that make only those fields of an object that quota reads.

A pod as the API server sends it is thousands of bytes, of which quota reads a few hundred: the
rest (environment, volumes, probes, managedFields) is skipped without becoming Python values.
What is read is decoded as `codec.decode_object` decodes it: numbers are never floats, and leaves
are whatever was written, so that `webhook.quota` says in its own words what is wrong with one.
An object whose structure is not that of its kind is decoded as a whole, for the same reason.

A field that `webhook.quota.objects.model` newly reads has to be added here; the tests compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypedDict, TypeVar

import msgspec

from webhook.jsonfields.encoding import NumberText, decode_deep, decode_json
from webhook.kube.api import Decode, Object
from webhook.kube.codec import decode_object
from webhook.quota.objects.model import MIRROR_ANNOTATION
from webhook.state.well_known import CAPACITY_LABEL, MANAGED_PREFIX

_M = TypeVar("_M")
_S = TypeVar("_S")
_T = TypeVar("_T")


class _Identity(TypedDict, total=False):
    namespace: Any
    name: Any
    generateName: Any
    uid: Any
    resourceVersion: Any
    creationTimestamp: Any
    generation: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any


class _Metadata(_Identity, total=False):
    labels: dict[str, Any] | None
    annotations: dict[str, Any] | None


class _Owner(TypedDict, total=False):
    kind: Any
    apiVersion: Any
    controller: Any


class _OwnedMetadata(_Metadata, total=False):
    ownerReferences: list[_Owner | None] | None


class _UnreadMetadata(_Identity, total=False):
    labels: msgspec.Raw
    annotations: msgspec.Raw


class _Resources(TypedDict, total=False):
    requests: dict[str, Any] | None
    limits: dict[str, Any] | None


class _Container(TypedDict, total=False):
    name: Any
    restartPolicy: Any
    resources: _Resources | None


class _KubeletContainer(_Container, total=False):
    ports: Any


class _Gate(TypedDict, total=False):
    name: Any


class _Group(TypedDict, total=False):
    podGroupName: Any


class _AffinityTerm(TypedDict, total=False):
    namespaces: list[Any] | None
    namespaceSelector: dict[str, Any] | None


class _WeightedTerm(TypedDict, total=False):
    podAffinityTerm: _AffinityTerm | None


class _PodAffinity(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: list[_AffinityTerm | None] | None
    preferredDuringSchedulingIgnoredDuringExecution: list[_WeightedTerm | None] | None


class _Affinity(TypedDict, total=False):
    podAffinity: _PodAffinity | None
    podAntiAffinity: _PodAffinity | None


class _AnyPodSpec(TypedDict, total=False):
    nodeName: Any
    priority: Any
    priorityClassName: Any
    preemptionPolicy: Any
    activeDeadlineSeconds: Any
    overhead: dict[str, Any] | None
    resources: _Resources | None
    schedulingGates: list[_Gate | None] | None
    schedulingGroup: _Group | None


class _PodSpec(_AnyPodSpec, total=False):
    containers: list[_Container | None] | None
    initContainers: list[_Container | None] | None
    affinity: _Affinity | None


class _AssignedPodSpec(_PodSpec, total=False):
    terminationGracePeriodSeconds: Any


class _KubeletPodSpec(_AnyPodSpec, total=False):
    containers: list[_KubeletContainer | None] | None
    initContainers: list[_KubeletContainer | None] | None
    affinity: Any
    nodeSelector: Any
    tolerations: Any
    os: Any
    hostNetwork: Any


class _ContainerStatus(TypedDict, total=False):
    name: Any
    resources: _Resources | None
    allocatedResources: dict[str, Any] | None


class _Condition(TypedDict, total=False):
    type: Any
    status: Any
    reason: Any
    message: Any
    observedGeneration: Any


class _TimedCondition(_Condition, total=False):
    lastTransitionTime: Any


class _AnyPodStatus(TypedDict, total=False):
    phase: Any
    qosClass: Any
    nominatedNodeName: Any
    resources: _Resources | None
    allocatedResources: dict[str, Any] | None
    containerStatuses: list[_ContainerStatus | None] | None
    initContainerStatuses: list[_ContainerStatus | None] | None


class _PodStatus(_AnyPodStatus, total=False):
    conditions: list[_Condition | None] | None


class _AssignedPodStatus(_AnyPodStatus, total=False):
    conditions: list[_TimedCondition | None] | None


class _Pod(TypedDict, Generic[_M, _S, _T], total=False):
    metadata: _M | None
    spec: _S | None
    status: _T | None


class _ScopeSelector(TypedDict, total=False):
    matchExpressions: list[Any] | None


class _QuotaSpec(TypedDict, total=False):
    hard: dict[str, Any] | None
    scopes: list[Any] | None
    scopeSelector: _ScopeSelector | None


class _QuotaStatus(TypedDict, total=False):
    hard: dict[str, Any] | None
    used: dict[str, Any] | None


class _Quota(TypedDict, total=False):
    metadata: _Metadata | None
    spec: _QuotaSpec | None
    status: _QuotaStatus | None


class _Namespace(TypedDict, total=False):
    metadata: _Metadata | None


_JUDGED: Final = (MANAGED_PREFIX, CAPACITY_LABEL, MIRROR_ANNOTATION)
_SIGNS_OF_JUDGED: Final = (*map(str.encode, _JUDGED), b"\\")


def _decoder(shape: type[Mapping[str, object]]) -> Decode:
    decoder: Final = msgspec.json.Decoder(shape, float_hook=NumberText)

    def decode(data: bytes) -> Object:
        try:
            return decode_deep(decoder, data)
        except msgspec.MsgspecError:
            return decode_object(data)

    return decode


decode_pod: Final = _decoder(_Pod[_Metadata, _PodSpec, _PodStatus])
"""Decode what `Pod.from_object` reads of a pod.

Raises:
    BadRequestError: The text is not a JSON object.
"""

decode_assigned_pod: Final = _decoder(_Pod[_OwnedMetadata, _AssignedPodSpec, _AssignedPodStatus])
"""Decode what `read_assigned_pod` of elastic quotas reads of a pod; raises as `decode_pod`."""

decode_kubelet_pod: Final = _decoder(_Pod[_Identity, _KubeletPodSpec, _PodStatus])
"""Decode what `read_kubelet_pod` and `read_kept_pod` read of a pod; raises as `decode_pod`."""

_decode_live_pod: Final = _decoder(_Pod[_UnreadMetadata, _PodSpec, _PodStatus])


def decode_live_pod(data: bytes) -> Object:
    """Decode a pod as `decode_pod` does, with those labels and annotations that are ours to write.

    Of others a tenant may write megabytes, in ever so many pods that are bound at a time.

    Raises:
        BadRequestError: The text is not a JSON object.
    """
    pod = _decode_live_pod(data)
    metadata = pod.get("metadata")
    if isinstance(metadata, dict):
        for name in ("labels", "annotations"):
            if isinstance(found := metadata.get(name), msgspec.Raw):
                metadata[name] = _judged(bytes(found))
    return pod


def _judged(data: bytes) -> object:
    """Return those of labels or annotations that something is decided by."""
    # a backslash may spell any of them in another way
    if data.startswith(b"{") and not any(sign in data for sign in _SIGNS_OF_JUDGED):
        return {}
    found = decode_json(data)
    if not isinstance(found, dict):
        return found
    return {key: value for key, value in found.items() if key.startswith(_JUDGED)}


decode_quota: Final = _decoder(_Quota)
"""Decode what `ResourceQuota.from_object` reads of a quota; raises as `decode_pod`."""

decode_namespace: Final = _decoder(_Namespace)
"""Decode the metadata of a namespace; raises as `decode_pod`."""
