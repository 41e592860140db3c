"""The workloads that objects belong to, by what the objects themselves say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from typing import Final

from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import Object
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.objects.model import Pod

_HASH: Final = "pod-template-hash"
_MADE: Final = frozenset({"Pod", "ReplicaSet", "Job"})
"""Kinds that the controllers of workloads make."""
_JOB_SET: Final = "jobset.sigs.k8s.io/jobset-name"
_RUN: Final = re.compile(r"(?P<name>.+)-\d{6,}", re.ASCII)
"""Name of a Job that a CronJob has made: the minute follows its own.

Source: kubernetes v1.36, pkg/controller/cronjob/utils.go getJobName.
"""


def pods_by_owner(
    raws: Iterable[Object], pods: Mapping[str, Pod]
) -> Mapping[tuple[str, str], tuple[Pod, ...]]:
    """Return the pods that have not ended by kind and name of what they belong to, and their own.

    Args:
        raws: The pods as they are stored.
        pods: Uid → pod, of those that can be read.
    """
    found: dict[tuple[str, str], tuple[Pod, ...]] = {}
    for raw in raws:
        pod = pods.get(FieldReader(raw).child("metadata").text("uid"))
        if pod is not None and not is_terminal(pod):
            for owner in {*owners_of(raw), ("Pod", pod.name)}:
                found[owner] = (*found.get(owner, ()), pod)
    return found


def owners_of(raw: Object, field: str = "") -> tuple[tuple[str, str], ...]:
    """Return kind and name of what a pod may belong to in manifests; without an owner, its own.

    A ReplicaSet that has the hash of the pod's template in its name is a Deployment's. A Job with a
    time in its name may be a CronJob's: neither is read.

    Raises:
        InvalidFieldError: Its labels, names or references cannot be read.
    """
    meta = FieldReader(raw, field).child("metadata")
    labels, controllers = meta.string_map("labels"), _controllers(meta)
    if _JOB_SET in labels:
        return (("JobSet", labels[_JOB_SET]),)
    if controllers:
        return _outermost(*controllers[0], labels.get(_HASH, ""))
    return (("Pod", meta.text("name")),)


def is_made_by(raw: Object, workloads: Set[tuple[str, str]]) -> bool:
    """Return whether a controller made an object for a workload, directly or through another one.

    Args:
        raw: The object.
        workloads: Kind and name of workloads of its namespace.
    """
    root = FieldReader(raw)
    if root.text("kind") not in _MADE:
        return False
    direct = _controllers(root.child("metadata"))
    return bool(direct) and not workloads.isdisjoint((*direct, *owners_of(raw)))


def made_note(count: int) -> str:
    """Return the note about objects that are counted with what they were made for."""
    what, are, those = ("object", "is", "that one") if count == 1 else ("objects", "are", "those")
    return (
        f"{count} {what} that a controller made for another one of the input"
        f" (metadata.ownerReferences) {are} counted with {those}"
    )


def _controllers(meta: FieldReader) -> list[tuple[str, str]]:
    owners = meta.children("ownerReferences")
    return [(one.text("kind"), one.text("name")) for one in owners if one.boolean("controller")]


def _outermost(kind: str, name: str, template_hash: str) -> tuple[tuple[str, str], ...]:
    if kind == "ReplicaSet" and template_hash and name.endswith(f"-{template_hash}"):
        return (("Deployment", name.removesuffix(f"-{template_hash}")),)
    run = _RUN.fullmatch(name) if kind == "Job" else None
    return ((kind, name),) if run is None else ((kind, name), ("CronJob", run["name"]))
