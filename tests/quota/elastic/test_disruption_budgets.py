"""PodDisruptionBudgets, as plans to evict look at them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.quota.elastic.pools import Cluster, a_quota
from webhook.jsonfields.reader import FieldReader
from webhook.quota.elastic.capacity import ElasticPod, PodHealth, health_of
from webhook.quota.elastic.disruption_budgets import (
    DisruptionBudgets,
    NamespaceBudgets,
    protect,
    read_budgets,
)
from webhook.quota.elastic.victims import AnyRoom, Circumstances
from webhook.quota.objects.label_selectors import LabelSelector

Object = dict[str, object]


def a_budget(allowed: int, selector: Object | None = None) -> Object:
    return {
        "metadata": {"name": "web", "namespace": "b"},
        "spec": {"selector": {"matchLabels": {"app": "web"}} if selector is None else selector},
        "status": {"disruptionsAllowed": allowed},
    }


def of_namespace(*budgets: Object) -> DisruptionBudgets:
    """Return budgets of namespace b, whose pods `b/web-...` they select."""
    labels = [(f"b/web-{number}", {"app": "web"}) for number in range(3)]
    protected = {"b": protect(read_budgets(budgets), labels)}
    return DisruptionBudgets(lambda name: protected.get(name, NamespaceBudgets()))


def test_a_budget_allows_so_many_and_no_more() -> None:
    cluster = Cluster(a_quota("b", 0))
    first, second, third, other = (
        cluster.pod("b", 1, name=name) for name in ("web-0", "web-1", "web-2", "other")
    )
    budgets = of_namespace(a_budget(2))

    def allow(unit: tuple[ElasticPod, ...], taken: tuple[ElasticPod, ...]) -> bool:
        walk = budgets.begin()
        walk.take(taken)
        return walk.allow(unit)

    assert allow((first, second), ())
    assert allow((first,), (second, other))
    assert not allow((first,), (second, third))
    assert allow((other,), (first, second, third))


def test_a_pod_that_was_evicted_counts_for_later_plans() -> None:
    cluster = Cluster(a_quota("b", 0))
    first, second, third, other = (
        cluster.pod("b", 1, name=name) for name in ("web-0", "web-1", "web-2", "other")
    )
    budgets = of_namespace(a_budget(2))
    budgets.take(third)  # what it left is in what is read for the first plan
    assert budgets.begin().allow((first, second))
    for evicted in (third, other):
        budgets.take(evicted)
    assert not budgets.begin().allow((first, second))
    assert budgets.begin().allow((first,))


def test_a_pod_with_two_budgets_is_never_evicted() -> None:
    pod = Cluster(a_quota("b", 0)).pod("b", 1, name="web-0")
    everything: Object = {}
    assert of_namespace(a_budget(9)).begin().allow((pod,))
    assert not of_namespace(a_budget(9), a_budget(9, everything)).begin().allow((pod,))


HEALTHY: dict[str, tuple[Object, Object, bool]] = {
    "nothing is said": ({}, {}, False),
    "of as many as are desired": ({}, {"currentHealthy": 2, "desiredHealthy": 2}, True),
    "of fewer": ({}, {"currentHealthy": 1, "desiredHealthy": 2}, False),
    "of none": ({}, {"currentHealthy": 2, "desiredHealthy": 0}, False),
    "always": ({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, {}, True),
    "by name": (
        {"unhealthyPodEvictionPolicy": "IfHealthyBudget"},
        {"currentHealthy": 3, "desiredHealthy": 2},
        True,
    ),
}


@pytest.mark.parametrize(("spec", "status", "spares_unready"), HEALTHY.values(), ids=HEALTHY)
def test_a_budget_is_not_asked_about_pods_that_do_not_count_for_it(
    spec: Object, status: Object, *, spares_unready: bool
) -> None:
    cluster = Cluster(a_quota("b", 0))
    raw = a_budget(0)
    raw["spec"] = {**raw["spec"], **spec}  # type: ignore[dict-item]
    raw["status"] = {"disruptionsAllowed": 0, **status}
    everything: Object = {}
    one, two = of_namespace(raw), of_namespace(raw, a_budget(9, everything))
    allowed = {
        health: [
            budgets.begin().allow((cluster.pod("b", 1, name="web-0", health=health),))
            for budgets in (one, two)
        ]
        for health in PodHealth
    }
    assert allowed == {
        PodHealth.READY: [False, False],
        PodHealth.UNREADY: [spares_unready, False],
        PodHealth.IGNORED: [True, True],
    }


def test_a_pod_that_no_budget_was_asked_about_takes_none_of_what_it_allows() -> None:
    cluster = Cluster(a_quota("b", 0))
    pending, ready = (
        cluster.pod("b", 1, name=name, health=health)
        for name, health in (("web-0", PodHealth.IGNORED), ("web-1", PodHealth.READY))
    )
    budgets = of_namespace(a_budget(1))
    walk = budgets.begin()
    walk.take((pending,))
    assert walk.allow((ready,))
    budgets.take(pending)
    assert budgets.begin().allow((ready,))


@pytest.mark.parametrize(("observed", "allowed"), [(None, 0), (6, 0), (7, 5)])
def test_a_budget_allows_nothing_until_its_controller_has_seen_the_last_edit(
    observed: int | None, allowed: int
) -> None:
    """The API server refuses all until then, so a tenant that edits it again and again."""
    raw = a_budget(5)
    raw["metadata"] = {"name": "web", "namespace": "b", "generation": 7}
    seen = {} if observed is None else {"observedGeneration": observed}
    raw["status"] = {"disruptionsAllowed": 5, **seen}
    assert [one.allowed for one in read_budgets([raw])] == [allowed]


def test_a_budget_that_cannot_be_read_protects_nothing() -> None:
    assert read_budgets([a_budget(0, {"matchLabels": 5})]) == []


LONG: dict[str, Object] = {
    "labels": {"matchLabels": {f"l{number}": "v" for number in range(200)}},
    "values": {
        "matchExpressions": [
            {"key": "k", "operator": "NotIn", "values": [str(number) for number in range(200)]}
        ]
    },
}


@pytest.mark.parametrize("selector", LONG.values(), ids=LONG)
def test_a_budget_with_a_long_selector_is_one_of_all_pods(selector: Object) -> None:
    """Taken for none, it would have plans go on with pods that the API server refuses."""
    pods = [Cluster(a_quota("b", 0)).pod("b", 1, name=f"web-{one}") for one in range(2)]
    for allowed in range(2):
        (read,) = read_budgets([a_budget(allowed, selector)])
        assert read.selector == LabelSelector({}), "nothing is kept of it"
        budgets = of_namespace(a_budget(allowed, selector))
        found = [budgets.begin().allow(unit) for unit in ((pods[0],), tuple(pods))]
        assert found == [allowed > 0, False]
    two = of_namespace(a_budget(1), a_budget(1, selector))
    assert not two.begin().allow((pods[0],)), "of two, no pod goes that may have both"


LARGE: dict[str, Object] = {
    "long ones": {
        "matchExpressions": [
            {"key": f"k{number}", "operator": "DoesNotExist"} for number in range(120)
        ]
    },
    "too long ones": LONG["labels"],
    "those that select everything": {},
}


@pytest.mark.parametrize("selector", LARGE.values(), ids=LARGE)
def test_the_members_of_a_namespace_do_not_decide_how_many_are_read(selector: Object) -> None:
    read = 0

    def very_many() -> Iterator[Object]:
        nonlocal read
        for _ in range(50_000):
            read += 1
            yield a_budget(0, selector)

    budgets = read_budgets(very_many())
    assert read < 3000
    assert sum(len(one.selector.requirements) for one in budgets) <= 2048
    pod = Cluster(a_quota("b", 0)).pod("b", 1)
    found = protect(budgets, [(pod.uid, {"k0": ""})])
    assert not DisruptionBudgets(lambda _: found).begin().allow((pod,)), "what is left protects it"


def test_of_many_budgets_of_a_pod_two_are_kept() -> None:
    read = read_budgets([a_budget(1)] * 500)
    assert protect(read, [("u", {"app": "web"})]).protecting == {"u": (0, 1)}


def test_no_labels_are_kept() -> None:
    read = read_budgets([a_budget(1)])
    found = protect(read, [("u", {"app": "web", "more": "x" * 1000}), ("v", {"app": "db"})])
    assert found == NamespaceBudgets((1,), protecting={"u": (0,), "v": ()})


def test_pods_that_were_not_looked_at_are_protected_where_there_are_more() -> None:
    cluster = Cluster(a_quota("b", 0))
    pods = [cluster.pod("b", 1, name=name) for name in ("web", "db", "more")]
    pending = cluster.pod("b", 1, name="pending", health=PodHealth.IGNORED)
    labels = [(pods[0].uid, {"app": "web"}), (pods[1].uid, {"app": "db"})]
    found = protect(read_budgets([a_budget(1)]), labels)

    def allowed(given: NamespaceBudgets) -> list[bool]:
        budgets = DisruptionBudgets(lambda _: given)
        return [budgets.begin().allow((pod,)) for pod in (*pods, pending)]

    assert allowed(found) == [True, True, True, True]
    assert allowed(found.protecting_others()) == [True, True, False, True]


def test_a_pod_that_ends_already_is_protected_by_no_budget() -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    found = [
        health_of(FieldReader({"metadata": metadata, "status": status}))
        for metadata, status in (({}, ready), (ending, ready), ({}, {**ready, "phase": "Pending"}))
    ]
    assert found == [PodHealth.READY, PodHealth.IGNORED, PodHealth.IGNORED]
    assert health_of(FieldReader({"status": {"phase": "Running"}})) is PodHealth.UNREADY


@pytest.mark.parametrize("beside", [[], ["b"], ["a", "b"]], ids=["alone", "of it", "of both"])
@pytest.mark.parametrize("node", ["n1", "n3"])
def test_a_budget_keeps_nothing_that_others_have_on_another_node(
    node: str, beside: list[str]
) -> None:
    """Which node comes first by name is what a tenant chooses."""
    cluster = Cluster(a_quota("owner", 9 + len(beside)), a_quota("a", 0), a_quota("b", 0))
    cluster.run("b", 1, 1, 1, node=node)
    free = cluster.run("a", 1, 1, 1, node="n2")
    for namespace in beside:  # as many that are kept, or not, beside those that may go
        cluster.run(namespace, 1, node="n2")
    for number in range(3):
        cluster.run("a", 1, node=f"small-{number}")
    kept = {pod.uid: (0,) for pod in cluster.pods[cluster.pool.quota_of["b"]]}
    protected = {"b": NamespaceBudgets((0,), frozenset(), kept)}
    budgets = DisruptionBudgets(lambda name: protected.get(name, NamespaceBudgets()))

    def has_node(gone: Sequence[ElasticPod]) -> bool:
        return max(Counter(pod.node for pod in gone).values(), default=0) >= 3

    found = cluster.plan(
        cluster.queued("owner", 3),
        Circumstances(disruptions=budgets.begin, room=lambda gone: AnyRoom(gone, has_node)),
    )
    assert budgets.begin().allow(found.victims)
    assert {pod.node for pod in found.victims} == {"n2"}
    assert len({pod.uid for pod in found.victims} & {pod.uid for pod in free}) >= 2
