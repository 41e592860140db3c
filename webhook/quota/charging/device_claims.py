"""Charge of a quota for ResourceClaims: devices of dynamic resource allocation.

The API server charges the devices of a claim to `requests.NAME` where their DeviceClass has the
`extendedResourceName` NAME. Here no DeviceClass is read: each device counts for every such key,
which may be too much, and never too little.

A claim that a scheduler made for the extended resources of one pod is charged for what the pod is
not: `addExtendedResourceQuota` takes the pod's usage off, of one claim of each pod.

Source: kubernetes v1.36, pkg/quota/v1/evaluator/core/resource_claims.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.jsonfields.reader import FieldReader

_ALL_DEVICES: Final = 32
"""What a request for all devices is charged: as many as one claim may get
(`AllocationResultsMaxSize`)."""
_OF_ONE_POD: Final = "resource.kubernetes.io/extended-resource-claim"


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """A stored ResourceClaim."""

    devices: int
    """How many it may get, of whatever classes."""
    pod_uid: str = ""
    """The pod for whose extended resources a scheduler made it; empty for all others."""

    @classmethod
    def from_object(cls, raw: Mapping[str, object]) -> DeviceClaim:
        """Read a claim as `resource.k8s.io/v1` has it.

        Raises:
            InvalidFieldError: A field has the wrong type.
        """
        reader = FieldReader(raw)
        requests = reader.child("spec").child("devices").children("requests")
        return cls(sum(map(_devices, requests)), _pod_uid(reader.child("metadata")))


def least_of_pods(claims: Sequence[DeviceClaim]) -> Mapping[str, int]:
    """Return uid of a pod → the devices of the smallest claim that was made for it.

    The API server takes the pod's usage off one of its claims. Which one depends on their times
    and on the pod's status; of the smallest the least is taken off.
    """
    least: dict[str, int] = {}
    for claim in claims:
        if claim.pod_uid:
            least[claim.pod_uid] = min(claim.devices, least.get(claim.pod_uid, claim.devices))
    return least


def _devices(request: FieldReader) -> int:
    choices = request.children("firstAvailable")
    return max(map(_count, choices or [request.child("exactly")]))


def _count(request: FieldReader) -> int:
    if request.text("allocationMode") == "All":
        return _ALL_DEVICES
    count = request.integer("count")
    return 1 if count is None else count


def _pod_uid(metadata: FieldReader) -> str:
    if metadata.string_map("annotations").get(_OF_ONE_POD) != "true":
        return ""
    for owner in metadata.children("ownerReferences"):
        if owner.boolean("controller"):
            is_pod = (owner.text("apiVersion"), owner.text("kind")) == ("v1", "Pod")
            return owner.text("uid") if is_pod else ""
    return ""
