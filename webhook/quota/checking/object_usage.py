"""Charges of quotas for objects other than pods: their number, ports and storage.

Source: kubernetes v1.36, pkg/quota/v1/evaluator/core/services.go,
persistent_volume_claims.go, registry.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, child
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import ResourceList, total_of
from webhook.quota.charging.workload_pods import times

_Object = Mapping[str, object]

_ONE: Final = Quantity.parse("1")
_LEGACY: Final = frozenset(
    {"configmaps", "resourcequotas", "replicationcontrollers", "secrets", "services"}
)
"""Core resources whose bare name is a quota key too."""
_CLASS_SUFFIX: Final = ".storageclass.storage.k8s.io/"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"

FIRST_OBJECTS: Final = (("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default"))
"""Resource and name of what a new namespace holds when its controllers have looked at it: the
cluster's CA as a ConfigMap, and the default ServiceAccount. They are never new."""


def object_usage(raw: _Object, resource: str, *, field: str = "") -> ResourceList:
    """Return what one object that is no pod is charged.

    Args:
        raw: The object.
        resource: As error messages name it: "services", "deployments.apps".
        field: YAML path of the object.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    usage: dict[str, Quantity] = {f"count/{resource}": _ONE}
    if resource in _LEGACY:
        usage[resource] = _ONE
    if resource == "services":
        usage.update(_service(ResourceReader(raw, field).child("spec")))
    if resource == "persistentvolumeclaims":
        usage.update(_claim(ResourceReader(raw, field)))
    return usage


def first_usage() -> ResourceList:
    """Return what the first objects of a namespace are charged."""
    return total_of(object_usage({}, resource) for resource, _ in FIRST_OBJECTS)


def made_usage(raw: _Object, resource: str, count: int, *, field: str = "") -> ResourceList:
    """Return what is charged for the objects that a controller makes beside the pods.

    A ReplicaSet of a Deployment, one Job of a CronJob, the claims of a StatefulSet.

    Args:
        raw: The object.
        resource: As in `object_usage`.
        count: How many pods it has.
        field: YAML path of the object.
    """
    match resource:
        case "deployments.apps":
            return {"count/replicasets.apps": _ONE}
        case "cronjobs.batch":
            return {"count/jobs.batch": _ONE}
        case "statefulsets.apps":
            claims = map(_claim, claim_templates(raw, field=field))
            return total_of(
                times({"count/persistentvolumeclaims": _ONE, **usage}, count) for usage in claims
            )
        case _:
            return {}


def claim_templates(raw: _Object, *, field: str = "") -> Iterator[ResourceReader]:
    """Yield the templates of the claims of a StatefulSet."""
    yield from ResourceReader(raw, field).child("spec").children("volumeClaimTemplates")


def claim_requests(claim: ResourceReader) -> ResourceList:
    """Return the requests of a PersistentVolumeClaim."""
    return claim.child("spec").child("resources").resource_list("requests")


def _service(spec: ResourceReader) -> dict[str, Quantity]:
    ports = spec.children("ports")
    is_balanced = spec.text("type") == "LoadBalancer"
    has_ports = is_balanced or spec.text("type") == "NodePort"
    if is_balanced and spec.has("allocateLoadBalancerNodePorts"):
        allocates = spec.boolean("allocateLoadBalancerNodePorts")
        ports = [one for one in ports if allocates or one.integer("nodePort")]
    return {
        "services.nodeports": Quantity.parse(str(len(ports))) if has_ports else ZERO,
        "services.loadbalancers": _ONE if is_balanced else ZERO,
    }


def _claim(claim: ResourceReader) -> dict[str, Quantity]:
    usage = {"persistentvolumeclaims": _ONE}
    storage = claim_requests(claim).get("storage")
    if storage is not None:
        if storage.sign < 0:
            path = claim.child("spec").child("resources").path("requests")
            raise InvalidFieldError(child(path, "storage"), "must be greater than zero")
        whole = storage if storage.is_whole else Quantity.of_units(storage.value, storage.format)
        usage["requests.storage"] = whole
    annotations = claim.child("metadata").string_map("annotations")
    name = annotations.get(_BETA_CLASS) or claim.child("spec").text("storageClassName")
    if name:
        usage.update({f"{name}{_CLASS_SUFFIX}{key}": amount for key, amount in usage.items()})
    return usage
