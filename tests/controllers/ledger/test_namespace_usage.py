"""The running count of a namespace is what a recount from scratch finds, after anything."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_container, a_pod, a_quota, an_expression
from webhook.controllers.ledger import namespace_usage
from webhook.controllers.ledger.ledger_conditions import MAX_REASON_CHARACTERS
from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.quota.amounts.go_format import expression_text
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, to_text, uncountable_names
from webhook.quota.charging import deferral, scopes
from webhook.quota.charging.deferral import NamespaceQuotas, deferred_quotas
from webhook.quota.charging.scopes import matches
from webhook.quota.objects.model import Pod, ResourceQuota, ScopeExpression
from webhook.quota.objects.names import DEFERRED_KEYS

Object = dict[str, object]

QUOTAS = (
    a_quota("all", uid="a", hard={"requests.cpu": "4", "pods": "3"}),
    a_quota("limits", uid="l", hard={"limits.cpu": "4", "cpu": "1"}),
    a_quota("gold", uid="g", expressions=[an_expression("PriorityClass", "In", "gold")]),
    a_quota("short", uid="s", scopes=["Terminating"]),
)


def chosen(indices: set[int], *, holds: bool = False) -> NamespaceQuotas:
    picked = [ResourceQuota.from_object(QUOTAS[index]) for index in sorted(indices)]
    return deferred_quotas(picked, DEFERRED_KEYS, holds_terminating=holds)


def pods() -> st.SearchStrategy[Pod]:
    return st.builds(
        lambda uid, cpu, node, phase, gold, deadline: Pod.from_object(
            a_pod(
                uid=uid,
                name=uid,
                node=node,
                requests=cast("dict[str, object]", {"cpu": cpu} if cpu else {}),
                limits=cast("dict[str, object]", {"cpu": cpu} if cpu == "1" else {}),
                status={"phase": phase},
                priorityClassName="gold" if gold else None,
                activeDeadlineSeconds=deadline,
            )
        ),
        st.sampled_from(["u1", "u2", "u3", "u4"]),
        st.sampled_from(["", "0", "1", "250m", "1.5"]),
        st.sampled_from(["", "node-1"]),
        st.sampled_from(["Pending", "Running", "Succeeded"]),
        st.booleans(),
        st.sampled_from([None, 60]),
    )


@dataclass
class UsageModel:
    """What is known, and nothing else: everything is added up again for each comparison."""

    pods: dict[str, Pod] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    quotas: NamespaceQuotas = field(default_factory=lambda: chosen({0}))

    def sums(self, *, assigned: bool) -> dict[str, dict[str, str]]:
        return {each.name: to_text(self._sum(each.name, assigned)) for each in self.quotas.quotas}

    def _sum(self, name: str, assigned: bool) -> dict[str, Quantity]:
        (quota,) = [one for one in self.quotas.quotas if one.name == name]
        total: dict[str, Quantity] = {}
        for pod in self.pods.values():
            is_released = pod.uid in self.released and not self.quotas.holds_terminating
            is_live = pod.phase != "Succeeded" and not is_released
            if not is_live or pod.is_assigned != assigned or not matches(quota.quota, pod):
                continue
            for key, amount in _amounts(pod).items():
                if key in quota.hard:
                    total[key] = total[key] + amount if key in total else amount
        return total


def _amounts(pod: Pod) -> dict[str, Quantity]:
    (container,) = pod.containers
    found: dict[str, Quantity] = {}
    if "cpu" in container.requests:
        found |= dict.fromkeys(("cpu", "requests.cpu"), container.requests["cpu"])
    if "cpu" in container.limits:
        found["limits.cpu"] = container.limits["cpu"]
    return found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), pods()),
        st.tuples(st.sampled_from(["remove", "release"]), st.sampled_from(["u1", "u2", "u3"])),
        st.tuples(
            st.sampled_from(["quotas", "quotas, held"]), st.sets(st.integers(0, len(QUOTAS) - 1))
        ),
    ),
    max_size=25,
)


def take(step: tuple[str, object], count: NamespaceUsage, model: UsageModel) -> None:
    verb, what = step
    if isinstance(what, Pod):
        count.put(what)
        model.pods[what.uid] = what
    elif isinstance(what, set):
        model.quotas = chosen(what, holds=verb == "quotas, held")
        count.set_quotas(model.quotas)
    elif verb == "remove":
        count.remove(str(what))
        model.pods.pop(str(what), None)
        model.released.discard(str(what))
    elif what in model.pods:
        count.mark_stuck(str(what))
        model.released.add(str(what))


@given(steps=STEPS)
def test_the_running_count_is_a_recount(steps: list[tuple[str, object]]) -> None:
    count, model = NamespaceUsage(), UsageModel()
    count.set_quotas(model.quotas)
    for step in steps:
        take(step, count, model)
    found = count.totals(7)
    used, pending = model.sums(assigned=True), model.sums(assigned=False)
    for name, quota in found.quotas.items():
        everything = {**dict.fromkeys(to_text(quota.hard), "0"), **used[name]}
        assert quota.used == {key: Quantity.parse(text) for key, text in everything.items()}
        # what nobody asks for any more may be shown as zero
        counted = {key: one for key, one in quota.pending.items() if key != "pods" and one}
        asked = {key: Quantity.parse(text) for key, text in pending[name].items()}
        assert counted == {key: amount for key, amount in asked.items() if amount}
    assert set(found.pods) == set(model.pods)
    assert {uid: one.is_assigned for uid, one in found.pods.items()} == {
        uid: pod.is_assigned for uid, pod in model.pods.items()
    }


def test_deleted_pods_are_remembered_until_they_hold_nothing() -> None:
    count = NamespaceUsage()
    count.remove("a")
    count.remove("b")
    assert count.totals(1).gone == {"a", "b"}
    count.forget_deleted(["a", "c"])
    assert count.totals(1).gone == {"a"}


def test_a_quota_that_cannot_be_matched_is_reported_and_charged_nothing() -> None:
    bad = a_quota("odd", expressions=[an_expression("PriorityClass", "In", "bad value!")])
    count = NamespaceUsage()
    count.set_quotas(deferred_quotas([ResourceQuota.from_object(bad)], DEFERRED_KEYS))
    count.put(Pod.from_object(a_pod(node="n", requests={"cpu": "1"})))
    assert to_text(count.totals(1).quotas["odd"].used) == {"requests.cpu": "0"}
    assert list(count.unmatchable) == ["odd"]


def test_why_a_quota_cannot_be_matched_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def counted(expression: ScopeExpression) -> str:
        written.append(expression.operator)
        return expression_text(expression)

    monkeypatch.setattr(scopes, "expression_text", counted)
    bad = a_quota("odd", expressions=[an_expression("PriorityClass", "In", "bad value!")])
    quotas = deferred_quotas([ResourceQuota.from_object(bad)], DEFERRED_KEYS)
    count = NamespaceUsage()
    count.set_quotas(quotas)
    pod = Pod.from_object(a_pod(node="n", requests={"cpu": "1"}))
    for _ in range(3):
        count.put(pod)
        assert count.observed(pod.uid) is not None
    assert written == ["In"]
    revised = replace(quotas.quotas[0].quota, expressions=(ScopeExpression("Terminating", ""),))
    count.set_quotas(deferred_quotas([revised], DEFERRED_KEYS))
    assert count.unmatchable == {}


def test_what_is_deferred_comes_with_the_quotas() -> None:
    gpus = "requests.nvidia.com/gpu"
    quota = ResourceQuota.from_object(a_quota("p1", hard={"requests.cpu": "8", gpus: "2"}))
    count = NamespaceUsage()
    count.put(Pod.from_object(a_pod(node="n", requests={"cpu": "1", "nvidia.com/gpu": "2"})))
    for keys, used in (
        (DEFERRED_KEYS, {"requests.cpu": "1"}),
        (DEFERRED_KEYS | {gpus}, {"requests.cpu": "1", gpus: "2"}),
        (DEFERRED_KEYS, {"requests.cpu": "1"}),
    ):
        count.set_quotas(deferred_quotas([quota], keys))
        assert to_text(count.totals(1).quotas["p1"].used) == used


def test_a_pod_is_charged_what_is_deferred_though_no_quota_names_it() -> None:
    gpus = "requests.nvidia.com/gpu"
    quota = ResourceQuota.from_object(a_quota("p1"))
    count = NamespaceUsage()
    count.set_quotas(deferred_quotas([quota], DEFERRED_KEYS))
    count.put(Pod.from_object(a_pod(uid="u", requests={"nvidia.com/gpu": "2"})))
    count.set_quotas(deferred_quotas([quota], DEFERRED_KEYS | {gpus}))
    seen = count.observed("u")
    assert seen is not None
    assert to_text(seen.usage) == {gpus: "2"}
    count.remove("u")
    assert not count.totals(1).quotas["p1"].pending


def test_pods_that_cannot_be_counted_are_named_when_they_change_and_not_at_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All namespaces wait for a look, and tenants decide how many such pods there are."""
    count = NamespaceUsage()
    count.set_quotas(chosen({0}))
    for uid in ("u1", "u2", "u3"):
        count.put(huge_pod(uid))
    count.put(Pod.from_object(a_pod(uid="u2", name="u2", requests={"cpu": "1"})))
    count.remove("u3")
    with monkeypatch.context() as patch:
        patch.setattr(deferral, "uncountable_names", fail)
        field = "spec.containers[0].resources.requests.cpu"
        assert count.uncountable == {"u1": f"team-a/u1: {field}"}
    count.set_quotas(deferred_quotas((), frozenset()))
    assert count.uncountable == {}


def test_of_a_pod_that_cannot_be_counted_no_more_is_looked_for_than_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counting a namespace again has all such pods looked at, and all others wait for that."""
    count = NamespaceUsage()
    count.set_quotas(chosen({0}))
    looks: list[ResourceList] = []

    def noted(amounts: ResourceList) -> list[str]:
        looks.append(amounts)
        return uncountable_names(amounts)

    monkeypatch.setattr(deferral, "uncountable_names", noted)
    count.put(huge_pod("u1", containers=100))
    assert len(looks) < 20
    assert len(count.uncountable["u1"]) == MAX_REASON_CHARACTERS


def huge_pod(uid: str, *, containers: int = 1) -> Pod:
    """A pod each of whose containers asks for more than can be counted."""
    asked = [a_container(f"c{index}", requests={"cpu": "1e40"}) for index in range(containers)]
    return Pod.from_object(a_pod(*asked, uid=uid, name=uid))


@pytest.mark.parametrize("when", ["a pod", "a change", "other quotas"])
def test_after_a_fault_nothing_is_counted_too_low(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Law 9: what was not added must not be taken out, nor left out of the next count."""
    former, pod, other = [
        Pod.from_object(a_pod(uid=uid, name=uid, node="n", requests={"cpu": cpu}))
        for uid, cpu in (("u1", "250m"), ("u1", "1"), ("u2", "2"))
    ]
    count, quotas = NamespaceUsage(), chosen({0})
    fails = partial(count.put, pod)
    count.put(other)
    if when == "other quotas":
        count.put(pod)
        fails = partial(count.set_quotas, quotas)
    else:
        count.set_quotas(quotas)
    if when == "a change":
        count.put(former)
    with monkeypatch.context() as patch:
        patch.setattr(namespace_usage, "add", fail)
        with pytest.raises(ValueError, match="a fault"):
            fails()
    count.set_quotas(quotas)
    count.put(pod)
    assert to_text(count.totals(1).quotas["all"].used) == {"requests.cpu": "3"}


def fail(*_: object) -> None:
    raise ValueError("a fault")
