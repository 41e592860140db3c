"""What the pods of one namespace use of its deferred quotas, kept up to date pod by pod.

A change of one pod costs the same however many pods there are. Amounts are exact, so adding and
taking away never drifts. A change of the quotas counts everything again.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace

from webhook.quota.deferral import DeferredQuota, NamespaceQuotas, deferred_part
from webhook.quota.objects import Pod
from webhook.quota.pods import is_terminal, usage_of
from webhook.quota.quantity import ZERO, Quantity
from webhook.quota.resources import ResourceList, add, subtract
from webhook.quota.scopes import ScopeError, matches
from webhook.quota.settlement import Count, CountedQuota, SeenPod

_ONE = {"pods": Quantity.parse("1")}
_NO_QUOTAS = NamespaceQuotas((), frozenset())


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
    return usage_of(seen, now=None)


class NamespaceCount:
    """The running count of one namespace. Not safe to use from several threads.

    Args:
        keys: The deferred resources.
    """

    def __init__(self, keys: Set[str]) -> None:
        self._keys = keys
        self._quotas = _NO_QUOTAS
        self._unmatchable: dict[str, str] = {}
        self._pods: dict[str, Pod] = {}
        self._released: set[str] = set()
        self._seen: dict[str, SeenPod] = {}
        self._used: dict[str, _Sum] = {}
        self._pending: dict[str, _Sum] = {}
        self._gone: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a quota nor a pod."""
        return not self._quotas.quotas and not self._pods

    @property
    def quotas(self) -> NamespaceQuotas:
        """The quotas that are counted."""
        return self._quotas

    @property
    def unmatchable(self) -> dict[str, str]:
        """Quotas whose scopes cannot be evaluated: name → why. They are charged nothing."""
        return dict(self._unmatchable)

    def seen(self, uid: str) -> SeenPod | None:
        """Return a pod as counted."""
        return self._seen.get(uid)

    def set_quotas(self, quotas: NamespaceQuotas) -> None:
        """Count for other quotas; the same ones change nothing."""
        if quotas.observed == self._quotas.observed:
            return
        self._quotas = quotas
        self._unmatchable = {}
        self._used = {each.name: _Sum() for each in quotas.quotas}
        self._pending = {each.name: _Sum() for each in quotas.quotas}
        self._seen = {}
        for uid in self._pods:
            self._put(uid)

    def put(self, pod: Pod) -> None:
        """Count a pod that is new or has changed."""
        if pod.uid in self._seen:
            self._take(pod.uid)
        self._pods[pod.uid] = pod
        self._put(pod.uid)

    def remove(self, uid: str) -> None:
        """Stop counting a pod that was deleted."""
        if uid in self._seen:
            self._take(uid)
        self._pods.pop(uid, None)
        self._released.discard(uid)
        self._gone.add(uid)

    def release(self, uid: str) -> None:
        """Stop charging a pod that is stuck terminating; it stays known."""
        pod = self._pods.get(uid)
        if pod is not None:
            self._released.add(uid)
            self.put(pod)

    def forget_gone(self, kept: Iterable[str]) -> None:
        """Forget deleted pods, except those of `kept`, which still have a reservation."""
        self._gone.intersection_update(kept)

    def count(self, pods_resource_version: int) -> Count:
        """Return everything counted, for a state of the pods of this version.

        It is valid until the next change: settle with it at once.
        """
        return Count(
            pods_resource_version=pods_resource_version,
            quotas={each.name: self._counted(each) for each in self._quotas.quotas},
            pods=self._seen,
            gone=frozenset(self._gone),
        )

    def _counted(self, quota: DeferredQuota) -> CountedQuota:
        pending = self._pending[quota.name]
        used = self._used[quota.name].amounts
        return CountedQuota(
            observed=quota.observed,
            hard=quota.hard,
            used={name: used.get(name, ZERO) for name in quota.hard},
            pending={
                **{name: amount for name, amount in pending.amounts.items() if name in quota.hard},
                **({"pods": Quantity.parse(str(pending.pods))} if pending.pods else {}),
            },
        )

    def _put(self, uid: str) -> None:
        pod = self._pods[uid]
        is_live = not is_terminal(pod) and uid not in self._released
        seen = SeenPod(
            resource_version=int(pod.resource_version or 0),
            is_assigned=pod.is_assigned,
            is_live=is_live,
            usage=deferred_part(_charged(pod), self._keys) if is_live else {},
            quotas=frozenset(self._applying(pod)),
        )
        self._seen[uid] = seen
        if is_live:
            for name in seen.quotas:
                self._sums(seen)[name].put(seen.usage)

    def _take(self, uid: str) -> None:
        seen = self._seen.pop(uid)
        if seen.is_live:
            for name in seen.quotas:
                self._sums(seen)[name].take(seen.usage)

    def _sums(self, seen: SeenPod) -> dict[str, _Sum]:
        return self._used if seen.is_assigned else self._pending

    def _applying(self, pod: Pod) -> list[str]:
        applying: list[str] = []
        for quota in self._quotas.quotas:
            try:
                applies = matches(quota.quota, pod)
            except ScopeError as err:
                self._unmatchable[quota.name] = str(err)
                continue
            if applies:
                applying.append(quota.name)
        return applying
