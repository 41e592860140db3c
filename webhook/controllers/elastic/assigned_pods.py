"""Pods with a node, as elastic quotas look at them: kept of every namespace, so kept small."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import PODS, ClusterApi, ListOptions, Object
from webhook.kube.informer import Informer, InformerTimings
from webhook.quota.charging.pod_usage import charged_to, is_terminal
from webhook.quota.elastic.capacity import (
    ElasticPod,
    PodHealth,
    bound_at,
    health_of,
    is_of_daemon_set,
    was_bound_within,
)
from webhook.quota.elastic.elastic_quotas import ElasticQuota, charge
from webhook.quota.elastic.fair_share import nanos
from webhook.quota.elastic.pod_groups import pod_group_of
from webhook.quota.nodes.requested import Requested, kept_requested, requested_of
from webhook.quota.objects.compact import compact_pod
from webhook.quota.objects.model import Pod
from webhook.state.object_decoders import decode_assigned_pod
from webhook.state.well_known import CAPACITY_LABEL, RECLAIM_GROUP_LABEL

CRITICAL_PRIORITY: Final = 2 * 10**9
"""From which a pod keeps the cluster alive."""

KnownPods: TypeAlias = Callable[[str], Pod | None]
"""Returns the pod of a key, as another cache of this process keeps it."""

_NOTHING: Final = Requested({}, 0, 0)


@dataclass(frozen=True, slots=True)
class AssignedPod:
    """An assigned pod with what `compact_pod` leaves out and elastic quotas ask for."""

    pod: Pod
    created: datetime | None
    capacity: str
    """Value of the label; empty without."""
    group: str
    """Pods of a namespace with one group are evicted together; empty: alone."""
    pod_group: str
    """Name of the PodGroup that it is in; empty without."""
    bound: datetime | None
    """When it got its node."""
    is_of_daemon_set: bool
    requested: Requested
    """What it takes of its node."""
    grace_seconds: int
    """How long it may take to end, as its creator wrote it."""
    health: PodHealth

    def is_like(self, other: AssignedPod) -> bool:
        """Return whether both are one pod that is labelled alike."""
        pod, another = self.pod, other.pod
        return (
            (self.capacity, pod.uid, pod.priority, is_terminal(pod))
            == (other.capacity, another.uid, another.priority, is_terminal(another))
        ) and charged_to(pod) == charged_to(another)

    def is_young(self, seconds: int, now: datetime) -> bool:
        """Return whether it was bound less than some seconds ago; a time ahead counts as now."""
        return was_bound_within(self.bound, seconds, now)


def follow_assigned_pods(
    api: ClusterApi, known: KnownPods, timings: InformerTimings | None = None
) -> Informer[AssignedPod]:
    """Return an informer of the pods of all namespaces that have a node."""
    return Informer(
        api,
        PODS,
        transform=lambda raw: read_assigned_pod(raw, known),
        options=ListOptions(field_selector="spec.nodeName!="),
        timings=timings,
        decode=decode_assigned_pod,
    )


def read_assigned_pod(raw: Object, known: KnownPods = lambda _key: None) -> AssignedPod:
    """Read a pod, to be kept.

    Args:
        raw: The pod's API object.
        known: Where an equal pod is kept already: it is kept once.
    """
    metadata = FieldReader(raw).child("metadata")
    labels = metadata.string_map("labels")
    pod = compact_pod(raw)
    kept = known(pod.key)
    return AssignedPod(
        kept if kept is not None and kept == pod else pod,
        metadata.timestamp("creationTimestamp"),
        sys.intern(labels.get(CAPACITY_LABEL, "")),
        labels.get(RECLAIM_GROUP_LABEL, ""),
        sys.intern(pod_group_of(FieldReader(raw))),
        bound_at(FieldReader(raw)),
        is_of_daemon_set(metadata),
        _requested(raw),
        FieldReader(raw).child("spec").integer("terminationGracePeriodSeconds") or 0,
        health_of(FieldReader(raw)),
    )


def _requested(raw: Object) -> Requested:
    try:
        return kept_requested(requested_of(raw))
    except InvalidFieldError:
        return _NOTHING


@dataclass(frozen=True, slots=True)
class EvictionLimits:
    """Limits of evictions of assigned pods, besides those that every cluster needs."""

    protect_seconds: int = 0
    """For so long after its bind a pod is evicted for the min of an owner only."""
    protect_own_seconds: int = 0
    """For so long it is not evicted at all."""


def elastic_pod(
    one: AssignedPod, quota: ElasticQuota, gb_per_gpu: int, limits: EvictionLimits, now: datetime
) -> ElasticPod:
    """Return a pod as plans and labels look at it."""
    pod = one.pod
    priority = pod.priority or 0
    is_kept = pod.is_mirror or priority >= CRITICAL_PRIORITY or one.is_of_daemon_set
    return ElasticPod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        created=one.created,
        priority=priority,
        amounts=nanos(charge(charged_to(pod), quota.names, gb_per_gpu)),
        node=pod.node_name,
        group=one.group,
        pod_group=one.pod_group,
        is_exempt=is_kept or one.is_young(limits.protect_own_seconds, now),
        is_young=one.is_young(limits.protect_seconds, now),
        grace_seconds=max(one.grace_seconds, pod.deletion_grace_period_seconds or 0),
        health=one.health,
    )
