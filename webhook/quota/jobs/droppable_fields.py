"""Fields of an update that an API server may drop before it judges: left out here.

An API server drops fields whose feature gate is off, if the stored Job does not use them, and does
so after mutating webhooks. Denying such an update earlier would deny what the API server takes.
Which gates are on cannot be known, nor which fields a newer release has. So whatever is absent in
the stored Job and may be dropped, or is not known, is left out of the new one. The API server
refuses it by itself, where it does not drop it.

1. A field that is gated or not known, and that the stored object does not have, is left out.
2. An object of which nothing is left by that is left out as well, if the stored one has none.
3. `procMount` is not dropped but put back to its default, so it never counts. Neither do managed
   fields: in a template they mean nothing, and nest deeper than can be read.
4. A volume of an image goes with its mounts, if no stored volume is one.
5. Claims of containers go, if the stored pod has no claims.

Source: kubernetes v1.36, pkg/api/pod/util.go dropDisabledFields;
pkg/registry/batch/job/strategy.go PrepareForUpdate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from webhook.quota.jobs.equality import ANY, MAX_DEPTH, Shape
from webhook.quota.jobs.job_fields import JOB_SHAPE

_Members: TypeAlias = Mapping[str, object]

_PUT_BACK: Final = "procMount"
_MANAGED_FIELDS: Final = "managedFields"
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


def without_droppable(old: _Members, new: _Members) -> _Members:
    """Return the Job of an update without what the API server may drop of it.

    Args:
        old: The stored Job.
        new: The Job of the update; it stays as it is. What is of a wrong type in either is kept.
    """
    before, after = old.get("spec"), new.get("spec")
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return new
    return {**new, "spec": _left(before, _without_pod_parts(before, after), JOB_SHAPE, 0)}


def _left(old: object, new: object, shape: Shape, depth: int) -> object:
    if shape.read is not None:
        return new
    if depth > MAX_DEPTH:  # of such a depth no stored Job is compared
        return old
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        return _left_members(old, new, shape, depth)
    if isinstance(new, list) and isinstance(old, list):
        kind = shape.items or ANY
        paired = [_left(one, other, kind, depth + 1) for one, other in zip(old, new, strict=False)]
        return [*paired, *new[len(paired) :]]
    return new


def _left_members(old: _Members, new: _Members, shape: Shape, depth: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in new.items():
        before, known = old.get(name), shape.members.get(name)
        may_be_dropped = known is None or name in shape.gated
        if before is None and may_be_dropped:
            continue
        if name == _MANAGED_FIELDS or (name == _PUT_BACK and may_be_dropped):
            found[name] = before
        elif before is None and known is not None and known.members and isinstance(value, Mapping):
            left = _left_members({}, value, known, depth + 1)
            if left or not value:
                found[name] = left
        else:
            found[name] = _left(before, value, known or ANY, depth + 1)
    return found


def _without_pod_parts(old: _Members, new: _Members) -> _Members:
    """Leave out of a Job's spec what goes from several places of the pod together."""
    before, after, template = _pod(old), _pod(new), new.get("template")
    if not isinstance(template, Mapping):
        return new
    images = {_name(one) for one in _objects(after.get("volumes")) if one.get("image") is not None}
    if any(one.get("image") is not None for one in _objects(before.get("volumes"))):
        images = set()
    pod = dict(after)
    if images:
        pod["volumes"] = _without(after.get("volumes"), images)
    for part in _CONTAINERS:
        containers = after.get(part)
        if isinstance(containers, list):
            claims = bool(before.get("resourceClaims"))
            pod[part] = [_without_parts(one, images, claims=claims) for one in containers]
    return {**new, "template": {**template, "spec": pod}} if after else new


def _without_parts(container: object, volumes: set[str], *, claims: bool) -> object:
    """Leave out of a container the mounts of volumes and, without `claims`, its claims."""
    if not isinstance(container, Mapping):
        return container
    left = dict(container)
    resources = container.get("resources")
    if volumes and "volumeMounts" in container:
        left["volumeMounts"] = _without(container["volumeMounts"], volumes)
    if not claims and isinstance(resources, Mapping):
        left["resources"] = {key: each for key, each in resources.items() if key != "claims"}
    return left


def _without(items: object, names: set[str]) -> object:
    """Return a list without the objects of these names."""
    if not isinstance(items, list):
        return items
    return [one for one in items if not isinstance(one, Mapping) or _name(one) not in names]


def _pod(spec: _Members) -> _Members:
    template = spec.get("template")
    pod = template.get("spec") if isinstance(template, Mapping) else None
    return pod if isinstance(pod, Mapping) else {}


def _objects(items: object) -> list[_Members]:
    return [one for one in items if isinstance(one, Mapping)] if isinstance(items, list) else []


def _name(one: _Members) -> str:
    return str(one.get("name"))
