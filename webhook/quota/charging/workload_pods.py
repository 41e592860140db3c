"""Pods of an object: a Pod itself, or what a controller makes from its template.

Counts are those of the finished state: no surge of a rollout, no pod of an earlier run. A count
that is left out is what the API server fills in.

Source: kubernetes v1.36, pkg/apis/apps/v1/defaults.go, pkg/apis/batch/v1/defaults.go and
pkg/controller/job/job_controller.go manageJob.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, child, mapping, sequence
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList

_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods that are alike."""

    count: int
    """How many; for `per_node` on each node."""
    pod: Mapping[str, object]
    """One of them as a manifest, with namespace and name as far as they are known."""
    field: str
    """YAML path of the pod within the object; empty if the object is a pod."""
    per_node: bool = False
    """Whether every node runs `count` of them."""


@dataclass(frozen=True, slots=True)
class _Template:
    """Place of a kind's template, and how it counts."""

    holder: tuple[str, ...]
    """Path of the object that has the field `template`."""
    count: Callable[[FieldReader], int]
    """Reads the number of pods from that object."""
    per_node: bool = False


def pods_of(raw: Mapping[str, object], *, field: str = "") -> PodSet | None:
    """Return the pods that an object stands for; None for a kind that makes no pods.

    - Deployment, ReplicaSet, StatefulSet, ReplicationController: `replicas`.
    - DaemonSet: one on each node. PodTemplate: one.
    - Job: as many as run at once, which are `parallelism`, but not more than `completions`.
      CronJob: one run of its job. Suspended ones count as if they ran.

    The pod is not defaulted: see `defaults.default_pod`.

    Args:
        raw: The decoded object; its version does not matter, group and kind do.
        field: YAML path of the object itself, for messages.

    Raises:
        InvalidFieldError: A field that is read has the wrong type or an impossible value, or
            there is no template or no container.
    """
    root = FieldReader(raw, field)
    group = root.text("apiVersion").rpartition("/")[0]
    return pods_of_kind(raw, group, root.text("kind"), field=field)


def pods_of_kind(
    raw: Mapping[str, object], group: str, kind: str, *, field: str = ""
) -> PodSet | None:
    """Return the pods of an object of a known kind, whatever it says itself; see `pods_of`."""
    if (group, kind) == ("", "Pod"):
        require_container(raw, field)
        return PodSet(1, raw, field)
    template = _TEMPLATES.get((group, kind))
    return None if template is None else _from_template(raw, template, field)


def times(resources: ResourceList, count: int) -> ResourceList:
    """Return the amounts of `count` pods that use `resources` each."""
    if count == 1:
        return resources  # keeps the text of each amount
    return {
        name: Quantity(amount.nano * count, amount.format) for name, amount in resources.items()
    }


def _from_template(raw: Mapping[str, object], template: _Template, field: str) -> PodSet:
    holder, path = raw, field
    for name in template.holder:
        path = child(path, name)
        holder = mapping(holder.get(name), path)
    count = template.count(FieldReader(holder, path))
    path = child(path, "template")
    written = mapping(holder.get("template"), path)
    require_container(written, path)
    return PodSet(count, _pod(raw, written, field, path), path, template.per_node)


def _pod(
    owner: Mapping[str, object], template: Mapping[str, object], field: str, path: str
) -> Mapping[str, object]:
    meta = FieldReader(owner, field).child("metadata")
    made = mapping(template.get("metadata"), child(path, "metadata"))
    identity = {"namespace": meta.text("namespace"), "generateName": f"{meta.text('name')}-"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**made, "name": None, **identity},
        "spec": template.get("spec"),
    }


def require_container(pod: Mapping[str, object], field: str) -> None:
    """Refuse a pod, or a template of one, that has no container.

    Raises:
        InvalidFieldError: It has none; the error has the path.
    """
    spec = child(field, "spec")
    containers = child(spec, "containers")
    if not sequence(mapping(pod.get("spec"), spec).get("containers"), containers):
        raise InvalidFieldError(containers, "must have a container")


def _replicas(holder: FieldReader) -> int:
    return _whole(holder, "replicas", 1)


def _running(job: FieldReader) -> int:
    running = _whole(job, "parallelism", 1)
    return min(running, _whole(job, "completions", running))


def _one(_: FieldReader) -> int:
    return 1


def _whole(holder: FieldReader, name: str, default: int) -> int:
    value = holder.integer(name)
    if value is None:
        return default
    if not 0 <= value <= _MOST:
        raise InvalidFieldError(holder.path(name), f"must be from 0 to {_MOST}, not {value}")
    return value


_TEMPLATES: Final[Mapping[tuple[str, str], _Template]] = {
    ("apps", "Deployment"): _Template(("spec",), _replicas),
    ("apps", "ReplicaSet"): _Template(("spec",), _replicas),
    ("apps", "StatefulSet"): _Template(("spec",), _replicas),
    ("apps", "DaemonSet"): _Template(("spec",), _one, per_node=True),
    ("", "ReplicationController"): _Template(("spec",), _replicas),
    ("batch", "Job"): _Template(("spec",), _running),
    ("batch", "CronJob"): _Template(("spec", "jobTemplate", "spec"), _running),
    ("", "PodTemplate"): _Template((), _one),
}
