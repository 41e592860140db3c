"""Keys of pods that agree in what they are judged by, so that it is read once for all of them.

Pods of one template differ in more than their names and nodes: each has a volume for the token of
its service account, addresses, and containers with ids and times of their own. Of all that nothing
is in a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.jsonfields.encoding import InvalidJsonError, encode_json

_KEY_BYTES: Final = 8192
"""Of the longest key that is remembered; those of usual pods have a few hundred."""
_STATUS_FIELDS: Final = ("name", "resources", "allocatedResources")


def template_key(
    raw: Mapping[str, object],
    spec_fields: tuple[str, ...],
    container_fields: tuple[str, ...],
    status_fields: tuple[str, ...] = (),
) -> bytes | None:
    """Return parts of a pod that pods of one template have in common, as JSON of a pod.

    What its node reports of its resources is always among them.

    Args:
        raw: The pod's API object.
        spec_fields: Which fields of its spec, besides containers.
        container_fields: Which fields of these.
        status_fields: Which fields of its status, besides resources.

    Returns:
        None where the key would be long, or the pod has not the structure of one.
    """
    spec, status = raw.get("spec"), raw.get("status")
    if type(spec) is not dict or (status is not None and type(status) is not dict):
        return None
    try:
        key = {name: spec[name] for name in spec_fields if name in spec}
        for name in ("containers", "initContainers"):
            key[name] = _members(spec.get(name), container_fields)
        if status is None:
            return if_short(encode_json({"spec": key}))
        reported = {name: status[name] for name in status_fields if name in status}
        reported |= {
            "containerStatuses": _members(status.get("containerStatuses"), _STATUS_FIELDS),
            "initContainerStatuses": _members(status.get("initContainerStatuses"), _STATUS_FIELDS),
            "resources": status.get("resources"),
            "allocatedResources": status.get("allocatedResources"),
            "conditions": _resize_conditions(status.get("conditions")),
        }
        return if_short(encode_json({"spec": key, "status": reported}))
    except (InvalidJsonError, TypeError, AttributeError):
        return None


def if_short(key: bytes | None) -> bytes | None:
    """Return a key that may be remembered, or None."""
    return key if key is not None and len(key) <= _KEY_BYTES else None


def _members(items: object, fields: tuple[str, ...]) -> object:
    if not isinstance(items, list):
        return items
    return [{name: item.get(name) for name in fields} for item in items]


def _resize_conditions(conditions: object) -> object:
    if not isinstance(conditions, list):
        return conditions
    return [one for one in conditions if one.get("type") == "PodResizePending"]
