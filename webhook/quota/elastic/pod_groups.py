"""Pods that are evicted together: those of one label, and those of a PodGroup as a whole.

A PodGroup says by `spec.disruptionMode` whether its pods are disrupted one by one, which is the
default, or only together: `PodGroup` in `scheduling.k8s.io/v1alpha2`, `all` from `v1alpha3` on. A
pod that names a PodGroup that is not there goes alone, as it does for the scheduler.

A pod may have a label and a PodGroup. Then it goes with all pods of both, so that neither parts.

Source: kubernetes v1.36, api/scheduling/v1alpha2/types.go DisruptionMode; v1.37,
api/scheduling/v1beta1/types.go DisruptionMode; v1.36, pkg/scheduler/framework/preemption/types.go
isPodGroupPreemptiblePod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from webhook.jsonfields.reader import FieldReader
from webhook.quota.elastic.capacity import ElasticPod

_TOGETHER: Final = "PodGroup"
_MOST: Final = 10_000
"""PodGroups of a namespace that are looked at: its members decide how many it has."""

_Key = tuple[str, str]
"""Namespace, and the value of a label, or a slash and the name of a PodGroup: no label has one."""


def pod_group_of(pod: FieldReader) -> str:
    """Return the name of the PodGroup that a pod is in; empty without."""
    return pod.child("spec").child("schedulingGroup").text("podGroupName")


class PodGroups:
    """PodGroups of namespaces, those of each looked up when one of its pods is asked about.

    Args:
        of_namespace: Returns the PodGroups of a namespace; not all of them need be taken from it.
    """

    def __init__(self, of_namespace: Callable[[str], Iterable[Mapping[str, object]]]) -> None:
        self._of_namespace = of_namespace
        self._known: dict[str, frozenset[str]] = {}

    def is_disrupted_whole(self, namespace: str, name: str) -> bool:
        """Return whether the pods of a PodGroup are disrupted together."""
        if namespace not in self._known:
            listed = islice(self._of_namespace(namespace), _MOST)
            self._known[namespace] = frozenset(
                FieldReader(raw).child("metadata").text("name") for raw in listed if _is_whole(raw)
            )
        return name in self._known[namespace]


def _is_whole(raw: Mapping[str, object]) -> bool:
    spec = raw.get("spec")
    mode = spec.get("disruptionMode") if isinstance(spec, Mapping) else None
    if isinstance(mode, Mapping):
        return mode.get("all") is not None
    return mode == _TOGETHER


def with_units(
    pods: Sequence[ElasticPod], is_disrupted_whole: Callable[[str, str], bool]
) -> Sequence[ElasticPod]:
    """Return pods with one `group` for all that are evicted together.

    Args:
        pods: Pods with the group of their label, and the name of their PodGroup.
        is_disrupted_whole: Whether the pods of a PodGroup, by namespace and name, go together.
    """
    groups = {
        pod.uid: (pod.namespace, f"/{pod.pod_group}")
        for pod in pods
        if pod.pod_group and is_disrupted_whole(pod.namespace, pod.pod_group)
    }
    if not groups:
        return pods
    joined = _Joined()
    for pod in pods:
        if pod.group and pod.uid in groups:
            joined.join((pod.namespace, pod.group), groups[pod.uid])
    found = []
    for pod in pods:
        key = groups.get(pod.uid, (pod.namespace, pod.group))
        found.append(replace(pod, group=joined.first(key)[1]) if key[1] else pod)
    return found


class _Joined:
    """Groups that are one: those with a pod in common, directly or over other groups."""

    def __init__(self) -> None:
        self._next: dict[_Key, _Key] = {}

    def join(self, key: _Key, other: _Key) -> None:
        """Have two groups, with all that they are joined to, be one."""
        first, second = self.first(key), self.first(other)
        if first != second:
            self._next[first] = second

    def first(self, key: _Key) -> _Key:
        """Return which of the groups that are one stands for all of them."""
        while key in self._next:
            after = self._next[key]
            self._next[key] = after = self._next.get(after, after)  # half the way the next time
            key = after
        return key
