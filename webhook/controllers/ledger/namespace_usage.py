"""Usage of one namespace of its deferred quotas, kept up to date pod by pod.

A change of one pod costs the same however many pods there are. Amounts are exact, so adding and
taking away never drifts. A change of the quotas counts everything again.

Of each pod only the pod itself is kept: what it was charged follows from it and from the quotas,
which do not change in between, and is worked out again when it is taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from webhook.controllers.ledger.ledger_conditions import MAX_REASON_CHARACTERS
from webhook.controllers.queue.gated_pods import GatedPods
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add, subtract, uncountable_names
from webhook.quota.charging.deferral import (
    DeferredQuota,
    NamespaceQuotas,
    deferred_part,
    uncountable_places,
)
from webhook.quota.charging.pod_usage import charged_to, is_terminal
from webhook.quota.charging.scopes import ScopeError, matches
from webhook.quota.ledger.apply_usage import CountedQuota, ObservedPod, UsageCount
from webhook.quota.objects.model import Pod

_NO_QUOTAS = NamespaceQuotas((), frozenset())
MAX_DELETED_PODS: Final = 200
"""Deleted pods of a namespace that are remembered until it is looked which of them matter."""
_MAX_FIELDS: Final = 8
"""Fields of a pod that are named as too large: those of containers fill what a condition takes."""


@dataclass(slots=True)
class _Sum:
    """Amounts of one quota; `pods` is how many pods they are of, so that none means nothing."""

    amounts: ResourceList = field(default_factory=dict)
    pods: int = 0

    def put(self, usage: ResourceList) -> None:
        self.amounts = add(self.amounts, usage)
        self.pods += 1

    def take(self, usage: ResourceList) -> None:
        self.pods -= 1
        self.amounts = subtract(self.amounts, usage) if self.pods else {}


def _charged(pod: Pod) -> ResourceList:
    """Return what a pod is charged, a resize that the node has not looked at yet included."""
    seen = replace(pod, resize_infeasible=False) if pod.resize_verdict_outdated else pod
    return charged_to(seen)


def _uncountable_text(pod: Pod, names: list[str]) -> str:
    places = dict.fromkeys(islice(uncountable_places(pod, names), _MAX_FIELDS))
    return f"{pod.key}: {', '.join(places or names)}"[:MAX_REASON_CHARACTERS]


class NamespaceUsage:
    """The running count of one namespace. Not safe to use from several threads, save `observed`."""

    def __init__(self) -> None:
        self._quotas = _NO_QUOTAS
        self._unmatchable: dict[str, str] = {}
        self._pods: dict[str, Pod] = {}
        self._stuck: set[str] = set()
        self._used: dict[str, _Sum] = {}
        self._pending: dict[str, _Sum] = {}
        self._uncountable: dict[str, str] = {}
        """Pod uid → its text, made when the pod is counted: each look would else make them all."""
        self._deleted: set[str] = set()
        self.gated_pods: Final = GatedPods()
        """Those of the pods that wait behind our gate."""

    @property
    def quotas(self) -> NamespaceQuotas:
        """The quotas that are counted."""
        return self._quotas

    @property
    def unmatchable(self) -> dict[str, str]:
        """Quotas whose scopes cannot be evaluated: name → why. They are charged nothing."""
        return dict(self._unmatchable)

    @property
    def uncountable(self) -> dict[str, str]:
        """Pods that count as more than any limit of a resource: uid → name and first fields."""
        return dict(self._uncountable)

    @property
    def stuck(self) -> frozenset[str]:
        """Uids of pods that are stuck terminating, whether they are held or not charged."""
        return frozenset(self._stuck)

    def versions(self) -> dict[str, int]:
        """Return the version of every pod that is counted, by uid."""
        return {uid: int(pod.resource_version or 0) for uid, pod in self._pods.items()}

    def pod(self, uid: str) -> Pod | None:
        """Return a pod; safe to call from any thread."""
        return self._pods.get(uid)

    def observed(self, uid: str) -> ObservedPod | None:
        """Return a pod as counted."""
        pod = self._pods.get(uid)
        return None if pod is None else self._observed(pod)

    def counts_for(self, quotas: NamespaceQuotas) -> bool:
        """Return whether pods are counted for these quotas, by this configuration."""
        return self._quotas.count_as(quotas)

    def set_quotas(self, quotas: NamespaceQuotas) -> None:
        """Count for other quotas, or by another configuration; the same ones change nothing.

        What is deferred, and whether terminating pods are held, comes with the quotas, so that what
        is counted always belongs to the hash under which it is written.
        """
        if self.counts_for(quotas):
            return
        self._quotas = quotas
        self._unmatchable = {}
        self._uncountable = {}
        self._used = {each.name: _Sum() for each in quotas.quotas}
        self._pending = {each.name: _Sum() for each in quotas.quotas}
        try:
            for pod in self._pods.values():
                self._put(pod)
        except BaseException:
            self._quotas = _NO_QUOTAS  # not all is counted: the next attempt begins anew
            raise

    def put(self, pod: Pod) -> None:
        """Count a pod that is new or has changed."""
        self._take(pod.uid)
        self._pods[pod.uid] = pod
        try:
            self._put(pod)
        except BaseException:
            del self._pods[pod.uid]  # else the next change would take out what was not put in
            raise
        self.gated_pods.put(pod)

    def remove(self, uid: str) -> None:
        """Stop counting a pod that was deleted."""
        self._take(uid)
        self._pods.pop(uid, None)
        self._stuck.discard(uid)
        self._deleted.add(uid)
        self.gated_pods.remove(uid)

    def mark_stuck(self, uid: str) -> None:
        """Stop charging a pod that is stuck terminating, unless such pods are held.

        It stays known either way: the quotas that come next may be counted otherwise.
        """
        if uid in self._pods:
            if not self._quotas.holds_terminating:
                self._take(uid)
            self._stuck.add(uid)

    def has_seen_deleted(self, uid: str) -> bool:
        """Return whether a pod was deleted, of those that are remembered."""
        return uid in self._deleted

    @property
    def deleted_count(self) -> int:
        """Number of deleted pods that are remembered."""
        return len(self._deleted)

    def forget_deleted(self, kept: Iterable[str]) -> None:
        """Forget deleted pods, except those of `kept`, which still have a reservation."""
        self._deleted.intersection_update(kept)

    def totals(self, pods_resource_version: int) -> UsageCount:
        """Return everything counted, for a state of the pods of this version.

        It is valid until the next change: reconcile with it at once.
        """
        return UsageCount(
            pods_resource_version=pods_resource_version,
            quotas={each.name: self._counted(each) for each in self._quotas.quotas},
            pods=_ObservedPods(self._pods, self._observed),
            gone=frozenset(self._deleted),
        )

    def _counted(self, quota: DeferredQuota) -> CountedQuota:
        pending = self._pending[quota.name]
        used = self._used[quota.name].amounts
        # a sum that is above what is counted is above every limit, and says no more than that
        return CountedQuota(
            observed=quota.observed,
            hard=quota.hard,
            used=deferred_part(
                {name: used.get(name, ZERO) for name in quota.hard}, quota.hard.keys()
            ),
            pending={
                **deferred_part(pending.amounts, quota.hard.keys()),
                **({"pods": Quantity.parse(str(pending.pods))} if pending.pods else {}),
            },
        )

    def _put(self, pod: Pod) -> None:
        if self._is_live(pod):
            usage, sums = self._usage(pod), self._sums(pod)
            for name in self._applying(pod, self._unmatchable):
                sums[name].put(usage)
            if names := uncountable_names(usage):
                self._uncountable[pod.uid] = _uncountable_text(pod, names)

    def _take(self, uid: str) -> None:
        """Take a pod out of the sums as it was put in: nothing that decides this has changed."""
        self._uncountable.pop(uid, None)
        pod = self._pods.get(uid)
        if pod is not None and self._is_live(pod):
            usage, sums = self._usage(pod), self._sums(pod)
            for name in self._applying(pod, {}):
                sums[name].take(usage)

    def _observed(self, pod: Pod) -> ObservedPod:
        is_live = self._is_live(pod)
        return ObservedPod(
            resource_version=int(pod.resource_version or 0),
            is_assigned=pod.is_assigned,
            is_live=is_live,
            usage=self._usage(pod) if is_live else {},
            quotas=frozenset(self._applying(pod, {})),
        )

    def _is_live(self, pod: Pod) -> bool:
        is_released = pod.uid in self._stuck and not self._quotas.holds_terminating
        return not (is_terminal(pod) or is_released)

    def _usage(self, pod: Pod) -> ResourceList:
        return deferred_part(_charged(pod), self._quotas.keys)

    def _sums(self, pod: Pod) -> dict[str, _Sum]:
        return self._used if pod.is_assigned else self._pending

    def _applying(self, pod: Pod, unmatchable: dict[str, str]) -> list[str]:
        """Return the quotas that apply to a pod; those that cannot say are noted."""
        applying: list[str] = []
        for quota in self._quotas.quotas:
            if quota.name in self._unmatchable:
                continue  # it cannot say of any pod, and why is a long text
            try:
                applies = matches(quota.quota, pod)
            except ScopeError as err:
                unmatchable[quota.name] = str(err)
                continue
            if applies:
                applying.append(quota.name)
        return applying


class _ObservedPods(Mapping[str, ObservedPod]):
    """The pods as counted, each made when it is asked for: few have a reservation."""

    def __init__(self, pods: Mapping[str, Pod], seen: Callable[[Pod], ObservedPod]) -> None:
        self._pods = pods
        self._observed = seen

    def __getitem__(self, uid: str) -> ObservedPod:
        return self._observed(self._pods[uid])

    def __iter__(self) -> Iterator[str]:
        return iter(self._pods)

    def __len__(self) -> int:
        return len(self._pods)
