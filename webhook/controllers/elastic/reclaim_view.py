"""View of which plans to reclaim are made: pools, their pods, what is on its way, and nodes.

Beside the assigned pods count what is reserved for requests on their way, and what is promised: as
pods that are never evicted. Pods that are ending count as gone, but for those that may
take longer than the configuration allows: their creators choose how long. With
`terminatingPods: Hold` a pod that should be gone by now, and is kept by a finalizer or by a kubelet
that is silent, counts as taken: it may be charged for ever.

What is reserved for a pod that is created with a node, bound or resized counts as ending until
that is seen: it is stored in a moment, or never, because something after the webhook refused it,
and what is reserved for it expires. A tenant can have as many of these as it likes. So does what is
reserved for a released pod for longer than such a pod may wait for its node: resizes have it
written anew. Once that is promised, no request that renews it is admitted but the first bind of
a released pod. Not so within `min`: that is nothing to promise to others, and the next try of a
bind has its room.

Ledgers, by which pods wait, are counted by another cache than that of the assigned pods, and either
may be behind. What one of them has seen go has gone, and what only one shows is taken; where the
cache of assigned pods is the one behind, too little is known of a pod to evict it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from webhook.config import ElasticSettings
from webhook.controllers.elastic.assigned_pods import AssignedPod, EvictionLimits, elastic_pod
from webhook.controllers.elastic.promises import HeldPromise
from webhook.kube.informer import Informer
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.pod_usage import charged_to, is_stuck_terminating, is_terminal
from webhook.quota.elastic.beneficiaries import usage_of_pods
from webhook.quota.elastic.capacity import ElasticPod, ends_within
from webhook.quota.elastic.derived_quotas import quota_key
from webhook.quota.elastic.elastic_quotas import ElasticQuota, charge
from webhook.quota.elastic.fair_share import Nanos, Pool, nanos
from webhook.quota.ledger.ledger import Ledger, ReservationSource
from webhook.quota.nodes.node_room import PlacedPod
from webhook.quota.objects.model import Pod
from webhook.state.ledger_store import LedgerStore
from webhook.state.shared_quotas import SharedQuotaStore

_NEWEST: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class ReclaimView:
    """The elastic quotas and their pods at one moment."""

    quotas: Mapping[str, ElasticQuota]
    """By each namespace that they count."""
    pools: Mapping[str, Pool]
    pods: Mapping[str, list[ElasticPod]]
    """Key of each quota → its pods, reserved and promised ones included."""
    leaving: Mapping[str, list[ElasticPod]]
    """Key of each quota → its pods that are ending, and what is reserved that is used at once or
    never."""
    unstored: frozenset[str]
    """Uids of the latter."""
    informer: Informer[AssignedPod]
    released: Mapping[str, ElasticPod] = field(default_factory=dict)
    """Uid → a pod that was released not too long ago, and has quota and no node."""
    promised: Mapping[str, ElasticPod] = field(default_factory=dict)
    """Uid → a pod to which quota is promised and for which none is reserved."""

    @cached_property
    def ending(self) -> frozenset[str]:
        """Uids of what leaves."""
        return frozenset(one.uid for pods in self.leaving.values() for one in pods)

    @cached_property
    def placed(self) -> list[PlacedPod]:
        """All pods of the cluster that have a node, with what they take of it."""
        return [
            PlacedPod(one.pod.uid, one.pod.node_name, one.requested)
            for one in self.informer.items().values()
            if not is_terminal(one.pod)
        ]

    def unassigned_before(self, quota: ElasticQuota, uid: str) -> list[ElasticPod]:
        """Return the pods of a quota's pool that go to nodes, and are on none, beside one of it.

        For a pod with a promise no other promise counts: its plan was made beside those that there
        were, and two that both counted the other would both come to nothing.
        """
        promised = {} if uid in self.promised else self.promised
        return [
            one
            for one in (*promised.values(), *self.released.values())
            if one.uid != uid and self.quotas[one.namespace].pool == quota.pool
        ]

    def without(self, quota: ElasticQuota, uid: str) -> dict[str, list[ElasticPod]]:
        """Return the pods of a quota's pool, but for what is promised to one pod."""
        members = self.pools[quota.pool].quotas
        found = {key: [one for one in self.pods[key] if one.uid != uid] for key in members}
        # what its own namespaces create or bind may be stored yet: no other makes room for that
        found[quota.key] += [one for one in self.leaving[quota.key] if one.uid in self.unstored]
        return found

    def with_leaving(self, quota: ElasticQuota, uid: str) -> dict[str, list[ElasticPod]]:
        """Return the same with what leaves."""
        return {
            key: [one for one in self.pods[key] if one.uid != uid] + self.leaving[key]
            for key in self.pools[quota.pool].quotas
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimParts:
    """Sources of plans, and stores of promises."""

    quotas: Callable[[], Mapping[str, ElasticQuota]]
    """Returns the elastic quotas that count, by namespace."""
    assigned: Informer[AssignedPod]
    pods: Callable[[], Informer[Pod]]
    """Returns the cache of all pods, those without a node included."""
    caches: Callable[[], Mapping[str, Informer[Any]]]
    """Returns all caches that plans depend on, by what they hold."""
    ledgers: LedgerStore
    shared: SharedQuotaStore
    cluster_quotas: Callable[[], Iterable[str]]
    """Returns the names of the cluster quotas that there are, as ledgers name them."""
    requeue_after: Callable[[str, float], None]
    """Requeues a namespace after some seconds."""
    settings: Callable[[], ElasticSettings]
    """Returns what the configuration says of elastic quotas."""
    uncharged_at: Callable[[str, str], float]
    """Returns when a pod is charged no more although it is there, by its namespace and uid; never
    for one that is not being deleted."""
    holds_terminating: Callable[[], bool]
    """Returns whether pods that are stuck terminating are charged until they are gone."""
    patience: Callable[[], float]
    """Returns for how many seconds a promise is kept while nothing happens."""
    max_reservations: Callable[[], int]
    """Returns how many reservations the ledger of a namespace may hold."""


@dataclass(frozen=True, slots=True)
class ReclaimSources:
    """Sources of a view."""

    pods: Informer[AssignedPod]
    counted: Informer[Pod]
    """All pods, by which ledgers are counted."""
    ledgers: LedgerStore
    settings: ElasticSettings
    holds_terminating: bool
    """Whether pods that are stuck terminating are charged until they are gone."""
    evicted: Collection[str]
    """Uids of pods that were evicted; the cache may not show it yet."""
    overdue: Collection[str]
    """Uids of pods for which quota is reserved since a release that was too long ago."""
    now: datetime


class OverdueReleases:
    """Uids of pods for which quota is reserved since a release that was too long ago.

    For how long reservations stand is known from what this process has seen: no time is written.

    Args:
        most_seconds: Returns for how long a released pod may wait for its node.
    """

    def __init__(self, clock: Callable[[], float], most_seconds: Callable[[], float]) -> None:
        self._clock, self._most_seconds = clock, most_seconds
        self._since: dict[str, float] = {}

    def look(self, quotas: Iterable[str], ledgers: LedgerStore) -> None:
        """Note what is reserved in the namespaces of elastic quotas now."""
        now = self._clock()
        self._since = {
            uid: self._since.get(uid, now)
            for ledger in [ledger_of(ledgers, namespace) for namespace in quotas]
            if ledger is not None
            for uid, one in ledger.reservations.items()
            if one.source is ReservationSource.RELEASE
        }

    def uids(self) -> frozenset[str]:
        """Return those that are overdue at the last look."""
        before = self._clock() - self._most_seconds()
        return frozenset([uid for uid, since in self._since.items() if since < before])

    def reset(self) -> None:
        """Begin anew: others may have led since."""
        self._since = {}


def read_view(
    quotas: Mapping[str, ElasticQuota],
    sources: ReclaimSources,
    promises: Iterable[HeldPromise],
) -> ReclaimView:
    """Return the quotas with their pods, from the caches.

    Args:
        quotas: Those that count, by each namespace that they count.
        sources: Where their pods are.
        promises: What is promised.
    """
    every = {one.key: one for one in quotas.values()}
    pools = {
        name: Pool(name, [one for one in every.values() if one.pool == name])
        for name in sorted({one.pool for one in every.values()})
    }
    pods: dict[str, list[ElasticPod]] = {key: [] for key in every}
    leaving: dict[str, list[ElasticPod]] = {key: [] for key in every}
    unstored: set[str] = set()
    counted: set[str] = set()
    released: dict[str, ElasticPod] = {}
    promised: dict[str, ElasticPod] = {}
    for namespace, quota in quotas.items():
        # before the pods: what is dropped because its pod was seen is in one of both at least
        reserved = [*_reserved(namespace, quota, sources)]
        here: dict[str, ElasticPod] = {}
        for pod, is_ending in _assigned(namespace, quota, sources):
            here[pod.uid] = pod
            (leaving if is_ending else pods)[quota.key].append(pod)
        counted.update(here)
        for pod, source in reserved:
            counted.add(pod.uid)
            if pod.uid in here:
                pod = _beyond(pod, here[pod.uid])  # noqa: PLW2901
            elif source is ReservationSource.RELEASE and pod.uid not in sources.overdue:
                pods[quota.key].append(pod)
                released[pod.uid] = pod
                continue
            if pod.amounts:
                unstored.add(pod.uid)
                leaving[quota.key].append(pod)
    for quota in every.values():
        _hold_within_min(quota, pods, leaving, unstored)
    for promise in promises:
        owner = quotas.get(promise.namespace)
        if owner is not None and promise.uid not in counted:
            amounts = _promised(promise, owner, sources.settings.gpu_memory_gb)
            held = _held(promise.namespace, promise.pod, promise.uid, amounts)
            promised[promise.uid] = held
            pods[owner.key].append(held)
    return ReclaimView(
        quotas, pools, pods, leaving, frozenset(unstored), sources.pods, released, promised
    )


def ledger_of(ledgers: LedgerStore, namespace: str) -> Ledger | None:
    """Return the ledger of a namespace as it is known; None where there is none."""
    known = ledgers.known(namespace)
    return None if known is None else known.ledger


def _assigned(
    namespace: str, quota: ElasticQuota, sources: ReclaimSources
) -> Iterator[tuple[ElasticPod, bool]]:
    """Yield the assigned pods of a namespace that take something, and whether each is ending."""
    settings = sources.settings
    limits = EvictionLimits(quota.protect_seconds, settings.reclaim.protect_own_seconds)
    max_grace = settings.reclaim.max_grace_seconds
    for stored, one in _stored(namespace, sources):
        if is_terminal(stored):
            continue
        if one is None:
            amounts = nanos(charge(charged_to(stored), quota.names, settings.gpu_memory_gb))
            held = _held(namespace, stored.name, stored.uid, amounts)
            pod = replace(held, priority=stored.priority or 0)
        else:
            pod = elastic_pod(one, quota, settings.gpu_memory_gb, limits, sources.now)
        if sources.holds_terminating and is_stuck_terminating(stored, now=sources.now):
            yield replace(pod, is_exempt=True), False  # no eviction ends it
            continue
        is_evicted = pod.uid in sources.evicted
        yield pod, is_evicted or ends_within(stored, max_grace, sources.now)


def _stored(namespace: str, sources: ReclaimSources) -> Iterator[tuple[Pod, AssignedPod | None]]:
    """Yield the pods with a node by the newest that either cache shows of each."""
    # versions before pods: a cache has seen at least what there was up to its version
    counted_version = sources.counted.resource_version
    assigned_version = sources.pods.resource_version
    counted = {pod.uid: pod for pod in sources.counted.in_namespace(namespace) if pod.is_assigned}
    for one in sources.pods.in_namespace(namespace):
        other = counted.pop(one.pod.uid, None)
        if other is None:
            if not _has_seen_go(sources.counted, counted_version, one.pod):
                yield one.pod, one
        elif other is one.pod or _version(other) <= _version(one.pod):
            yield one.pod, one
        else:
            yield other, replace(one, pod=other)
    for pod in counted.values():
        if not _has_seen_go(sources.pods, assigned_version, pod):
            yield pod, None


def _has_seen_go(cache: Informer[Any], version: int, pod: Pod) -> bool:
    """Return whether a cache without a pod has come as far as a version with it."""
    entry = cache.entry(pod.key)
    if entry is None:
        return version >= _version(pod)
    # else it cannot be read; of another one of its name a list that goes on may show more
    return entry.uid != pod.uid and max(version, entry.resource_version) >= _version(pod)


def _version(pod: Pod) -> int:
    return int(pod.resource_version or 0)


def _reserved(
    namespace: str, quota: ElasticQuota, sources: ReclaimSources
) -> Iterator[tuple[ElasticPod, ReservationSource]]:
    ledger = ledger_of(sources.ledgers, namespace)
    for uid, one in ({} if ledger is None else ledger.reservations).items():
        if not one.is_intent:
            amounts = _by_name(one.usage, quota, sources.settings.gpu_memory_gb)
            yield _held(namespace, one.pod, uid, amounts), one.source


def _promised(promise: HeldPromise, quota: ElasticQuota, gb_per_gpu: int) -> Nanos:
    by_key: ResourceList = {}
    for amounts in promise.amounts.values():
        by_key = {**by_key, **amounts}
    return _by_name(by_key, quota, gb_per_gpu)


def _by_name(by_key: ResourceList, quota: ElasticQuota, gb_per_gpu: int) -> Nanos:
    """Return what is held by quota key as the quota names it.

    Memory of GPUs has a key of its own: what is stored need not name the GPUs it is worked out of.
    """
    keys = {name: quota_key(name, gb_per_gpu) for name in quota.names}
    return {name: by_key[key].nano for name, key in keys.items() if key and key in by_key}


def _hold_within_min(
    quota: ElasticQuota,
    pods: dict[str, list[ElasticPod]],
    leaving: dict[str, list[ElasticPod]],
    unstored: set[str],
) -> None:
    """Count what is reserved as taken where a quota takes no more with it than is guaranteed."""
    key = quota.key
    held = [pod for pod in leaving[key] if pod.uid in unstored]
    if not held:
        return
    taken = usage_of_pods({key: [*pods[key], *held]})[key]
    if all(amount <= quota.min.get(name, ZERO).nano for name, amount in taken.items()):
        pods[key] += held
        leaving[key] = [pod for pod in leaving[key] if pod.uid not in unstored]
        unstored.difference_update([pod.uid for pod in held])


def _beyond(reserved: ElasticPod, pod: ElasticPod) -> ElasticPod:
    """Return what is reserved for a pod with a node beyond what it takes, as a pod of its own."""
    amounts = {
        name: amount - pod.amounts.get(name, 0)
        for name, amount in reserved.amounts.items()
        if amount > pod.amounts.get(name, 0)
    }
    return _held(pod.namespace, pod.name, f"{pod.uid}/resize", amounts)


def _held(namespace: str, name: str, uid: str, amounts: Nanos) -> ElasticPod:
    """Return what is taken and cannot be evicted; in label order it comes last."""
    return ElasticPod(namespace, name, uid, _NEWEST, 0, amounts, is_exempt=True)
