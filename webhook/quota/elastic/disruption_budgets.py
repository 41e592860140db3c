"""PodDisruptionBudgets: which pods may be evicted now.

What a budget allows is what its controller last wrote. The API server obeys the budget itself when
a pod is evicted; here it is asked before, so that nothing is evicted for a plan that cannot go on.

A pod with two budgets is never evicted, once it has started: the API server refuses it. A budget
is not asked about a pod that has not, or ends already, nor always about one that is not ready.

The members of a namespace decide how many budgets it has, and how large they are. What is not
looked at is taken for a budget of all its pods: taken for none, plans would go on with pods that
the API server refuses one after the other, and owners wait for what others have borrowed.

Source: kubernetes v1.36, pkg/registry/core/pod/storage/eviction.go Create.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.quota.elastic.capacity import ElasticPod, PodHealth
from webhook.quota.objects.label_selectors import LabelSelector, read_selector_at

_TERMS: Final = 128
"""Of the longest selector that is kept; those of usual budgets have one or two. A longer one is
taken to select everything."""
_TERMS_OF_NAMESPACE: Final = 2048
"""Of all selectors of a namespace: each of them is compared with each of its pods."""
_ENOUGH: Final = 2
"""Budgets by which a pod is never evicted, however many more it has."""


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    selector: LabelSelector
    allowed: int
    """How many of its pods may be evicted now."""
    spares_unready: bool = False
    """Whether it is not asked about pods that are not ready."""


_EVERYTHING: Final = LabelSelector({})
UNREAD: Final = DisruptionBudget(_EVERYTHING, 0)
"""What stands for all that are not looked at."""


@dataclass(frozen=True, slots=True)
class NamespaceBudgets:
    """The budgets of one namespace, and the pods that they protect."""

    allowed: tuple[int, ...] = ()
    """How many pods of each may be evicted now."""
    sparing: frozenset[int] = frozenset()
    """The places of those that are not asked about pods that are not ready."""
    protecting: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Uid of a pod → the places of its budgets, of two at most."""
    others: tuple[int, ...] = ()
    """The places of the budgets of all pods that are not named."""

    def protecting_others(self) -> NamespaceBudgets:
        """Return the same where no pod may be evicted that is not named."""
        return replace(self, allowed=(*self.allowed, 0), others=(len(self.allowed),))

    def asked_about(self, pod: ElasticPod) -> tuple[int, ...]:
        """Return the places of the budgets that an eviction of a pod asks now."""
        if pod.health is PodHealth.IGNORED:
            return ()
        places = self.protecting.get(pod.uid, self.others)
        is_spared = pod.health is PodHealth.UNREADY and len(places) == 1
        return () if is_spared and places[0] in self.sparing else places


def read_budgets(raws: Iterable[Mapping[str, object]]) -> list[DisruptionBudget]:
    """Read the PodDisruptionBudgets of one namespace, as many of them as are looked at.

    One that cannot be read selects nothing for the API server either. One with a very long selector
    is taken to select everything, which is never less. After very many terms nothing is taken from
    `raws` any more, and `UNREAD` stands for what is left.
    """
    found: list[DisruptionBudget] = []
    terms = 0
    for raw in raws:
        budget = read_budget(raw)
        length = 1 if budget is None else max(1, _length(budget.selector))
        terms += min(length, _TERMS)
        if terms > _TERMS_OF_NAMESPACE:
            return [*found, UNREAD]
        if budget is not None:
            found.append(budget if length <= _TERMS else replace(budget, selector=_EVERYTHING))
    return found


def read_budget(raw: Mapping[str, object]) -> DisruptionBudget | None:
    """Read a PodDisruptionBudget; None if it cannot be read, or selects nothing."""
    node = FieldReader(raw)
    try:
        selector = read_selector_at(node.child("spec"), "selector")
        policy = node.child("spec").text("unhealthyPodEvictionPolicy")
        status = node.child("status")
        generation = node.child("metadata").integer("generation") or 0
        is_current = (status.integer("observedGeneration") or 0) >= generation
        # after an edit the API server refuses every pod until the budget's controller has seen it
        allowed = (status.integer("disruptionsAllowed") or 0) if is_current else 0
        healthy = status.integer("currentHealthy") or 0
        desired = status.integer("desiredHealthy") or 0
    except InvalidFieldError:
        return None
    spares_unready = policy == "AlwaysAllow" or healthy >= desired > 0
    return None if selector is None else DisruptionBudget(selector, allowed, spares_unready)


def _length(selector: LabelSelector) -> int:
    values = sum(1 + len(one.values) for one in selector.requirements)
    return len(selector.labels) + values


def protect(
    budgets: Sequence[DisruptionBudget], pods: Iterable[tuple[str, Mapping[str, str]]]
) -> NamespaceBudgets:
    """Return which pods the budgets of their namespace protect.

    Args:
        budgets: The budgets.
        pods: Uid and labels of each pod; the labels are not kept.
    """
    protecting = {}
    for uid, labels in pods:
        matching = (place for place, one in enumerate(budgets) if one.selector.matches(labels))
        protecting[uid] = tuple(islice(matching, _ENOUGH))
    sparing = [place for place, one in enumerate(budgets) if one.spares_unready]
    return NamespaceBudgets(tuple([one.allowed for one in budgets]), frozenset(sparing), protecting)


class DisruptionBudgets:
    """Budgets of namespaces, each looked up when one of its pods is asked about.

    Args:
        of_namespace: Returns the budgets of a namespace.
    """

    def __init__(self, of_namespace: Callable[[str], NamespaceBudgets]) -> None:
        self._of_namespace = of_namespace
        self._known: dict[str, NamespaceBudgets] = {}

    def of(self, namespace: str) -> NamespaceBudgets:
        """Return the budgets of a namespace."""
        if namespace not in self._known:
            self._known[namespace] = self._of_namespace(namespace)
        return self._known[namespace]

    def take(self, pod: ElasticPod) -> None:
        """Count a pod that was evicted, where its budgets were looked up before."""
        budgets = self._known.get(pod.namespace)
        places = () if budgets is None else budgets.asked_about(pod)
        if budgets is not None and places:
            left = [one - (place in places) for place, one in enumerate(budgets.allowed)]
            self._known[pod.namespace] = replace(budgets, allowed=tuple(left))

    def begin(self) -> BudgetWalk:
        """Return the budgets while no pod is taken for a plan."""
        return BudgetWalk(self.of)


class BudgetWalk:
    """Budgets while pods are taken for one plan, counted as they are.

    Args:
        of_namespace: Returns the budgets of a namespace.
    """

    def __init__(self, of_namespace: Callable[[str], NamespaceBudgets]) -> None:
        self._of_namespace = of_namespace
        self._taken: Counter[tuple[str, int]] = Counter()

    def allow(self, unit: Sequence[ElasticPod]) -> bool:
        """Return whether every budget lets the pods of a unit go, after those that are taken."""
        protected = [(pod.namespace, self._places(pod)) for pod in unit]
        if any(len(places) > 1 for _, places in protected):
            return False
        asked = Counter((namespace, place) for namespace, places in protected for place in places)
        return all(
            count + self._taken[namespace, place] <= self._of_namespace(namespace).allowed[place]
            for (namespace, place), count in asked.items()
        )

    def take(self, unit: Sequence[ElasticPod]) -> None:
        """Count the pods of a unit as gone."""
        for pod in unit:
            self._taken.update([(pod.namespace, place) for place in self._places(pod)])

    def _places(self, pod: ElasticPod) -> tuple[int, ...]:
        return self._of_namespace(pod.namespace).asked_about(pod)
