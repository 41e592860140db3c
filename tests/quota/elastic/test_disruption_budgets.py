"""PodDisruptionBudgets, as plans to evict look at them."""

from __future__ import annotations

import pytest

from tests.quota.elastic.pools import Cluster, a_quota
from webhook.quota.elastic.disruption_budgets import (
    DisruptionBudgets,
    NamespaceBudgets,
    protect,
    read_budgets,
)

Object = dict[str, object]


def a_budget(allowed: int, selector: Object | None = None) -> Object:
    return {
        "metadata": {"name": "web", "namespace": "b"},
        "spec": {"selector": {"matchLabels": {"app": "web"}} if selector is None else selector},
        "status": {"disruptionsAllowed": allowed},
    }


def of_namespace(*budgets: Object) -> DisruptionBudgets:
    """Return budgets of namespace b, whose pods `b/web-...` they select."""
    read = read_budgets(budgets)
    labels = [(f"b/web-{number}", {"app": "web"}) for number in range(3)]
    return DisruptionBudgets(
        lambda name: protect(read.get(name, ()), labels if name == "b" else ())
    )


def test_a_budget_allows_so_many_and_no_more() -> None:
    cluster = Cluster(a_quota("b", 0))
    first, second, third, other = (
        cluster.pod("b", 1, name=name) for name in ("web-0", "web-1", "web-2", "other")
    )
    budgets = of_namespace(a_budget(2))
    assert budgets.allow((first, second), ())
    assert budgets.allow((first,), (second, other))
    assert not budgets.allow((first,), (second, third))
    assert budgets.allow((other,), (first, second, third))


def test_a_pod_with_two_budgets_is_never_evicted() -> None:
    pod = Cluster(a_quota("b", 0)).pod("b", 1, name="web-0")
    everything: Object = {}
    assert of_namespace(a_budget(9)).allow((pod,), ())
    assert not of_namespace(a_budget(9), a_budget(9, everything)).allow((pod,), ())


LEFT_TO_THE_API_SERVER: dict[str, Object] = {
    "wrong": {"matchLabels": 5},
    "long labels": {"matchLabels": {f"l{number}": "v" for number in range(200)}},
    "long values": {
        "matchExpressions": [
            {"key": "k", "operator": "In", "values": [str(number) for number in range(200)]}
        ]
    },
}


@pytest.mark.parametrize("selector", LEFT_TO_THE_API_SERVER.values(), ids=LEFT_TO_THE_API_SERVER)
def test_nothing_is_kept_of_long_selectors(selector: Object) -> None:
    assert read_budgets([a_budget(0, selector)]) == {}


def test_no_labels_are_kept() -> None:
    read = read_budgets([a_budget(1)])
    found = protect(read["b"], [("u", {"app": "web", "more": "x" * 1000}), ("v", {"app": "db"})])
    assert found == NamespaceBudgets((1,), {"u": (0,)})
