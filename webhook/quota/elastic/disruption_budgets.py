"""PodDisruptionBudgets: which pods may be evicted now.

What a budget allows is what its controller last wrote. The API server obeys the budget itself when
a pod is evicted; here it is asked before, so that nothing is evicted for a plan that cannot go on.

A pod with two budgets is never evicted: the API server refuses it.

Source: kubernetes v1.36, pkg/registry/core/pod/storage/eviction.go Create.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.objects.label_selectors import LabelSelector, read_selector_at

_TERMS: Final = 128
"""Of the longest selector that is kept; those of usual budgets have one or two."""


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    selector: LabelSelector
    allowed: int
    """How many of its pods may be evicted now."""


@dataclass(frozen=True, slots=True)
class NamespaceBudgets:
    """The budgets of one namespace, and the pods that they protect."""

    allowed: tuple[int, ...] = ()
    """How many pods of each may be evicted now."""
    protecting: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Uid of a pod → the places of its budgets; absent without any."""


def read_budgets(raws: Iterable[Mapping[str, object]]) -> dict[str, list[DisruptionBudget]]:
    """Read PodDisruptionBudgets: namespace → its budgets.

    Those that cannot be read are left to the API server; those with very long selectors too,
    because the members of a namespace decide how many it has.
    """
    found: dict[str, list[DisruptionBudget]] = {}
    for raw in raws:
        budget = _read(raw)
        if budget is not None:
            found.setdefault(FieldReader(raw).child("metadata").text("namespace"), []).append(
                budget
            )
    return found


def _read(raw: Mapping[str, object]) -> DisruptionBudget | None:
    node = FieldReader(raw)
    try:
        selector = read_selector_at(node.child("spec"), "selector")
        allowed = node.child("status").integer("disruptionsAllowed") or 0
    except InvalidFieldError:
        return None
    if selector is None or _length(selector) > _TERMS:
        return None
    return DisruptionBudget(selector, allowed)


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
        places = tuple([place for place, one in enumerate(budgets) if one.selector.matches(labels)])
        if places:
            protecting[uid] = places
    return NamespaceBudgets(tuple([one.allowed for one in budgets]), protecting)


class DisruptionBudgets:
    """Budgets of namespaces, each looked up when one of its pods is asked about.

    Args:
        of_namespace: Returns the budgets of a namespace.
    """

    def __init__(self, of_namespace: Callable[[str], NamespaceBudgets]) -> None:
        self._of_namespace = of_namespace
        self._known: dict[str, NamespaceBudgets] = {}

    def allow(self, unit: Sequence[ElasticPod], taken: Sequence[ElasticPod]) -> bool:
        """Return whether every budget lets the pods of a unit go, after those that are taken."""
        protected = [(pod.namespace, self._places(pod)) for pod in unit]
        if any(len(places) > 1 for _, places in protected):
            return False
        asked = {(namespace, place) for namespace, places in protected for place in places}
        return all(self._is_enough(*one, (*unit, *taken)) for one in asked)

    def _is_enough(self, namespace: str, place: int, going: Iterable[ElasticPod]) -> bool:
        allowed = self._budgets(namespace).allowed[place]
        count = sum(1 for pod in going if pod.namespace == namespace and place in self._places(pod))
        return count <= allowed

    def _places(self, pod: ElasticPod) -> tuple[int, ...]:
        return self._budgets(pod.namespace).protecting.get(pod.uid, ())

    def _budgets(self, namespace: str) -> NamespaceBudgets:
        if namespace not in self._known:
            self._known[namespace] = self._of_namespace(namespace)
        return self._known[namespace]
