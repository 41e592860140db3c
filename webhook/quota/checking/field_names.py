"""Fields that the API server does not know: kubectl has it refuse them, where others drop them.

A field that is not written as its type has it, such as `resources.request`, says nothing. The types
are those of Kubernetes 1.37; a field that a newer release adds is refused here, too.

Source: kubernetes v1.36, apimachinery/pkg/runtime/serializer/json/json.go strictDecodeInto;
api/core/v1/types.go, api/apps/v1/types.go, api/batch/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from webhook.jsonfields.fields import child
from webhook.quota.jobs.equality import ANY, Shape, list_of, part, struct
from webhook.quota.jobs.job_fields import CLAIM_SHAPE, JOB_SHAPE, METADATA_SHAPE, TEMPLATE_SHAPE

_REPLICAS: Final = "replicas selector minReadySeconds"
_TEMPLATE: Final = {"template": TEMPLATE_SHAPE}
_CLAIM: Final = struct("apiVersion kind status", metadata=METADATA_SHAPE, spec=CLAIM_SHAPE)
_SPECS: Final[Mapping[str, Shape]] = {
    "pods": TEMPLATE_SHAPE.members["spec"],
    "replicationcontrollers": struct(_REPLICAS, others=_TEMPLATE),
    "replicasets.apps": struct(_REPLICAS, others=_TEMPLATE),
    "deployments.apps": struct(
        _REPLICAS,
        "paused progressDeadlineSeconds revisionHistoryLimit",
        strategy=struct("type", rollingUpdate=struct("maxSurge maxUnavailable")),
        others=_TEMPLATE,
    ),
    "statefulsets.apps": struct(
        _REPLICAS,
        "ordinals persistentVolumeClaimRetentionPolicy podManagementPolicy revisionHistoryLimit",
        "serviceName updateStrategy",
        volumeClaimTemplates=list_of(_CLAIM),
        others=_TEMPLATE,
    ),
    "daemonsets.apps": struct(
        "minReadySeconds revisionHistoryLimit selector",
        updateStrategy=struct("type", rollingUpdate=struct("maxSurge maxUnavailable")),
        others=_TEMPLATE,
    ),
    "jobs.batch": JOB_SHAPE,
    "cronjobs.batch": struct(
        "concurrencyPolicy failedJobsHistoryLimit schedule startingDeadlineSeconds",
        "successfulJobsHistoryLimit suspend timeZone",
        jobTemplate=struct(metadata=METADATA_SHAPE, spec=part(JOB_SHAPE)),
    ),
    "persistentvolumeclaims": CLAIM_SHAPE,
}
OBJECT_SHAPES: Final[Mapping[str, Shape]] = {
    resource: struct("apiVersion kind status", metadata=METADATA_SHAPE, spec=spec)
    for resource, spec in _SPECS.items()
}
"""Resource, as error messages name it → its objects, of those that quotas charge most for."""


def unknown_fields(raw: Mapping[str, object], resource: str) -> dict[str, str]:
    """Return the fields of an object's metadata and spec that the API server does not know.

    Args:
        raw: The object, or what stands for it; what is of a wrong type is not looked at.
        resource: Its kind as error messages name it: "deployments.apps".

    Returns:
        The YAML path of each in the object → the name that is meant, empty where none is like it.
    """
    return dict(_unknown(raw, "", OBJECT_SHAPES.get(resource, ANY)))


def _unknown(value: object, field: str, shape: Shape) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and shape.members:
        for name, item in value.items():
            member = shape.members.get(name)
            if member is not None:
                yield from _unknown(item, child(field, name), member)
            else:
                yield child(field, name), "".join(get_close_matches(name, shape.members, n=1))
    elif isinstance(value, list) and shape.items is not None:
        for index, item in enumerate(value):
            yield from _unknown(item, f"{field}[{index}]", shape.items)
