"""PodDisruptionBudgets: which pods may be evicted now.

What a budget allows is what its controller last wrote. The API server obeys the budget itself when
a pod is evicted; here it is asked before, so that nothing is evicted for a plan that cannot go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.objects.label_selectors import LabelSelector, read_selector_at


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    namespace: str
    selector: LabelSelector | None
    """None selects no pod."""
    allowed: int
    """How many of its pods may be evicted now."""

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether it protects a pod."""
        if self.selector is None or self.namespace != namespace:
            return False
        return self.selector.matches(labels)


def read_budgets(raws: Iterable[Mapping[str, object]]) -> list[DisruptionBudget]:
    """Read PodDisruptionBudgets; those that cannot be read are left to the API server."""
    found = (_read(raw) for raw in raws)
    return [one for one in found if one is not None]


def _read(raw: Mapping[str, object]) -> DisruptionBudget | None:
    node = FieldReader(raw)
    try:
        return DisruptionBudget(
            node.child("metadata").text("namespace"),
            read_selector_at(node.child("spec"), "selector"),
            node.child("status").integer("disruptionsAllowed") or 0,
        )
    except InvalidFieldError:
        return None


class DisruptionBudgets:
    """Budgets, and the labels of the pods that they protect.

    Args:
        budgets: All that matter.
        labels_of: Returns the labels of a pod; asked only where its namespace has a budget.
    """

    def __init__(
        self,
        budgets: Iterable[DisruptionBudget],
        labels_of: Callable[[ElasticPod], Mapping[str, str]],
    ) -> None:
        self._budgets = tuple(budgets)
        self._labels_of = labels_of

    def allow(self, unit: Sequence[ElasticPod], taken: Sequence[ElasticPod]) -> bool:
        """Return whether every budget lets the pods of a unit go, after those that are taken."""
        for budget in self._budgets:
            if any(self._covers(budget, pod) for pod in unit):
                going = [pod for pod in (*unit, *taken) if self._covers(budget, pod)]
                if len(going) > budget.allowed:
                    return False
        return True

    def _covers(self, budget: DisruptionBudget, pod: ElasticPod) -> bool:
        if budget.namespace != pod.namespace:
            return False
        return budget.covers(pod.namespace, self._labels_of(pod))
