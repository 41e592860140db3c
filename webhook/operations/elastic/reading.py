"""Elastic quotas and their pods, as a cluster or a snapshot has them now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from webhook.config import TerminatingPods
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    Object,
)
from webhook.operations.explain.namespaces import newest_moment
from webhook.operations.explain.session import Session
from webhook.operations.reading import name_of
from webhook.quota.charging.gpu_memory import GPU_MEMORY, gpu_memory
from webhook.quota.charging.pod_usage import charged_to, is_stuck_terminating, is_terminal
from webhook.quota.elastic.beneficiaries import usage_of_pods
from webhook.quota.elastic.capacity import (
    ElasticPod,
    bound_at,
    ends_within,
    health_of,
    is_of_daemon_set,
    was_bound_within,
)
from webhook.quota.elastic.derived_quotas import uncharged_resources
from webhook.quota.elastic.elastic_quotas import (
    ElasticQuota,
    charge,
    conflicts,
    elastic_quota_errors,
    read_stored_quota,
    unknown_resource_text,
    unknown_resources,
)
from webhook.quota.elastic.fair_share import Pool, nanos
from webhook.quota.elastic.pod_groups import pod_group_of
from webhook.quota.objects.model import Pod
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL, RECLAIM_GROUP_LABEL

_ASSIGNED: Final = "spec.nodeName!="
_CRITICAL: Final = 2 * 10**9
"""Priority from which a pod keeps the cluster alive."""


@dataclass(frozen=True, slots=True)
class Elastic:
    """The elastic quotas of a cluster."""

    pools: Mapping[str, Pool]
    pods: Mapping[str, Sequence[ElasticPod]]
    """Key of each quota → its assigned pods, those that are ending included."""
    ending: frozenset[str]
    """Uids of the pods that count as gone."""
    raws: Sequence[Object]
    """All assigned pods of the cluster, as far as they may be read."""
    gb_per_gpu: int
    now: datetime
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
    is_whole: bool = True
    """Whether the elastic quotas could be read."""

    def usage(self) -> dict[str, dict[str, int]]:
        """Return what the pods of each quota take, 10⁻⁹ units."""
        return usage_of_pods(self.pods)

    def quota_of(self, namespace: str) -> ElasticQuota | None:
        """Return the quota that counts a namespace."""
        for pool in self.pools.values():
            if namespace in pool.quota_of:
                return pool.quotas[pool.quota_of[namespace]]
        return None


@dataclass(slots=True)
class _Reader:
    session: Session
    gb_per_gpu: int
    notes: list[str] = field(default_factory=list)
    is_whole: bool = True

    def quotas(self) -> list[ElasticQuota]:
        """Return the quotas that count, of the namespaces that have opted in."""
        found = list(self._readable())
        faults = conflicts(found)
        self.notes.extend(f"{key}: {fault}: not counted" for key, fault in faults.items())
        opted_in = self._namespaces()
        kept = []
        for quota in found:
            if quota.key in faults:
                continue
            here = self._opted_in(quota, opted_in)
            if here.namespaces:
                kept.append(here)
        return kept

    def _readable(self) -> Iterator[ElasticQuota]:
        for kind in (ELASTIC_QUOTAS, COMPOSITE_ELASTIC_QUOTAS):
            before = len(self.session.unknown)
            raws = self.session.readable(kind) or ()
            self.is_whole = self.is_whole and len(self.session.unknown) == before
            for raw in raws:
                quota = self._quota({"kind": kind.kind, **raw})
                if quota is not None:
                    yield quota

    def _quota(self, raw: Object) -> ElasticQuota | None:
        metadata = FieldReader(raw).child("metadata")
        where = f"{raw['kind']} {metadata.text('namespace')}/{metadata.text('name')}"
        errors = elastic_quota_errors(raw)
        try:
            quota = read_stored_quota(raw)
        except InvalidFieldError as err:
            self.notes.append(f"{where}: {err}: not counted")
            return None
        self.notes.extend(f"{where}: {error}: what limits more counts" for error in errors)
        unknown = unknown_resources(quota)
        for name in unknown:
            self.notes.append(f"{where}: {unknown_resource_text(name)}")
        for name in uncharged_resources(quota):
            if name not in unknown:
                self.notes.append(f"{where}: {name}: no bind is charged for it")
        return quota

    def _namespaces(self) -> Mapping[str, bool] | None:
        """Return whether each namespace has opted in; None where that is not known."""
        raws = self.session.readable(NAMESPACES, "the labels of namespaces")
        if not raws:
            return None
        return {
            name_of(raw): FieldReader(raw).child("metadata").string_map("labels").get(MODE_LABEL)
            == DEFERRED_MODE
            for raw in raws
        }

    def _opted_in(self, quota: ElasticQuota, opted_in: Mapping[str, bool] | None) -> ElasticQuota:
        if opted_in is None:
            return quota
        for name in quota.namespaces:
            if name not in opted_in:
                self.notes.append(f"{quota.key}: namespace {name} does not exist")
            elif not opted_in[name]:
                self.notes.append(
                    f"{quota.key}: namespace {name} has not opted in and is not counted:"
                    f" deferred-quota enable {name}"
                )
        kept = tuple(name for name in quota.namespaces if opted_in.get(name))
        return replace(quota, namespaces=kept)


def read_elastic_quotas(session: Session, gb_per_gpu: int) -> list[ElasticQuota]:
    """Read the elastic quotas that count, of the namespaces that have opted in.

    Raises:
        ApiError: The cluster does not answer.
    """
    return _Reader(session, gb_per_gpu).quotas()


def read_elastic(session: Session, gb_per_gpu: int) -> Elastic:
    """Read the elastic quotas of a cluster, and the pods that they count.

    Raises:
        ApiError: The cluster does not answer.
    """
    reader = _Reader(session, gb_per_gpu)
    quotas = reader.quotas()
    pools = {
        name: Pool(name, [one for one in quotas if one.pool == name])
        for name in sorted({one.pool for one in quotas})
    }
    what = "the pods of all namespaces"
    raws = session.readable(PODS, what, field_selector=_ASSIGNED) or ()
    taken = newest_moment(session, raws) if session.options.is_offline else None
    now = taken or session.options.now()
    elastic = Elastic(pools, {one.key: [] for one in quotas}, frozenset(), raws, gb_per_gpu, now)
    pods: dict[str, list[ElasticPod]] = {one.key: [] for one in quotas}
    configuration = session.options.configuration
    is_held = configuration.terminating_pods is TerminatingPods.HOLD
    max_grace = configuration.elastic.reclaim.max_grace_seconds
    ending = set()
    for raw in raws:
        pod = _counted(raw, reader)
        quota = None if pod is None else elastic.quota_of(pod.namespace)
        if pod is None or quota is None:
            continue
        counted = elastic_pod(pod, raw, quota, gb_per_gpu, now)
        if is_held and is_stuck_terminating(pod, now=now):
            counted = replace(counted, is_exempt=True)
        elif ends_within(pod, max_grace, now):
            ending.add(pod.uid)
        pods[quota.key].append(counted)
        reader.notes.extend(_profile_notes(pod, quota))
    notes = (*reader.notes, *session.unknown)
    return replace(
        elastic, pods=pods, ending=frozenset(ending), notes=notes, is_whole=reader.is_whole
    )


def _counted(raw: Object, reader: _Reader) -> Pod | None:
    """Return an assigned pod that is charged; None for another one."""
    try:
        pod = Pod.from_stored(raw)
    except InvalidFieldError as err:
        metadata = FieldReader(raw).child("metadata")
        where = f"{metadata.text('namespace')}/{metadata.text('name')}"
        reader.notes.append(f"pod {where}: {err}: not counted")
        return None
    return pod if pod.is_assigned and not is_terminal(pod) else None


def _profile_notes(pod: Pod, quota: ElasticQuota) -> Iterator[str]:
    memory = gpu_memory(charged_to(pod)) if GPU_MEMORY in quota.names else None
    for name in () if memory is None else memory.unknown:
        yield f"pod {pod.key}: {name}: names no amount of memory, and counts 0 as {GPU_MEMORY}"


def elastic_pod(
    pod: Pod, raw: Object, quota: ElasticQuota, gb_per_gpu: int, now: datetime
) -> ElasticPod:
    """Return a pod as elastic quotas look at it."""
    priority = pod.priority or 0
    return ElasticPod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid or pod.key,
        created=pod.created,
        priority=priority,
        amounts=nanos(charge(charged_to(pod), quota.names, gb_per_gpu)),
        node=pod.node_name,
        group=pod.labels.get(RECLAIM_GROUP_LABEL, ""),
        pod_group=pod_group_of(FieldReader(raw)),
        is_exempt=pod.is_mirror
        or priority >= _CRITICAL
        or is_of_daemon_set(FieldReader(raw).child("metadata")),
        is_young=was_bound_within(bound_at(FieldReader(raw)), quota.protect_seconds, now),
        health=health_of(FieldReader(raw)),
    )


@dataclass(frozen=True, slots=True)
class PodPriority:
    """Priority that a PriorityClass gives to a pod."""

    value: int
    preempts: bool


def priority_of(session: Session, raw: Object) -> PodPriority:
    """Return the priority of a pod, and whether it may take the place of others.

    As the API server would set it, for a pod that it has not seen.
    """
    spec = FieldReader(raw).child("spec")
    priority, policy = spec.integer("priority"), spec.text("preemptionPolicy")
    if priority is None:
        given = _priority_class(session, spec.text("priorityClassName"))
        if given is not None:
            priority = given.integer("value")
            policy = policy or given.text("preemptionPolicy")
    return PodPriority(priority or 0, policy != "Never")


def _priority_class(session: Session, name: str) -> FieldReader | None:
    raws = session.readable(PRIORITY_CLASSES, "priority classes") or ()
    classes = list(map(FieldReader, raws))
    if name:
        return next((one for one in classes if one.child("metadata").text("name") == name), None)
    defaults = [one for one in classes if one.boolean("globalDefault")]
    return min(defaults, key=lambda one: one.integer("value") or 0, default=None)
