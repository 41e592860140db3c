"""Laws of the check that hold for any pod and any quotas."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, event, given
from hypothesis import strategies as st

from tests.builders import Object, a_container, a_pod, an_expression
from tests.quota.parsed import pod_of, quota_of
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, add, mask
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.charging.evaluation import evaluate, over_hard
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.charging.scopes import matches
from webhook.quota.objects.model import Pod, ResourceQuota

KEYS = ("pods", "count/pods", "cpu", "requests.cpu", "requests.memory", "limits.cpu", "configmaps")


def units() -> st.SearchStrategy[str]:
    """Amounts that often meet exactly."""
    return st.sampled_from(["0", "500m", "1", "1.0", "2", "3"])


def ceilings() -> st.SearchStrategy[str]:
    """Amounts that are often enough."""
    return st.sampled_from(["0", "1", "2", "3", "4", "6", "1k", "1Ki"])


def uses() -> st.SearchStrategy[str]:
    """Amounts that often leave room."""
    return st.sampled_from(["0", "0", "500m", "1", "1e0", "2"])


@st.composite
def maps(draw: st.DrawFn) -> Object:
    """Requests or limits; mostly complete, so that must-specify does not decide everything."""
    names = ["cpu", "memory"] if draw(st.integers(0, 19)) != 13 else ["memory"]
    return {name: draw(units()) for name in names}


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    containers = [
        a_container(name, requests=draw(maps()), limits=draw(maps()))
        for name in draw(st.sampled_from([("a",), ("a", "b")]))
    ]
    return pod_of(
        a_pod(
            *containers,
            activeDeadlineSeconds=draw(st.sampled_from([None, None, 60])),
            priorityClassName=draw(st.sampled_from(["", "gold", "silver"])),
            metadata={"resourceVersion": "1"},
        )
    )


SELECTORS: tuple[tuple[Object, ...], ...] = (
    (),
    (),
    (an_expression("NotTerminating"),),
    (an_expression("PriorityClass", "In", "gold"),),
    (an_expression("PriorityClass", "NotIn", "gold"), an_expression("NotBestEffort")),
)


@st.composite
def quotas(draw: st.DrawFn, name: str = "q") -> ResourceQuota:
    hard = draw(st.dictionaries(st.sampled_from(KEYS), ceilings(), min_size=1, max_size=4))
    used = {key: draw(uses()) for key in hard}
    if draw(st.integers(0, 19)) == 13:
        used.popitem()
    selector = draw(st.sampled_from(SELECTORS))
    return quota_of(name, hard=hard, used=used, expressions=selector)


@st.composite
def quota_sets(draw: st.DrawFn) -> list[ResourceQuota]:
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, min_size=1, max_size=3))
    return [draw(quotas(name)) for name in names]


@given(pod=pods(), before=quota_sets(), more=quotas("zz") | quotas("00"))
def test_one_more_quota_never_allows_what_was_refused(
    pod: Pod, before: list[ResourceQuota], more: ResourceQuota
) -> None:
    if evaluate(pod, [*before, more]).allowed:
        event("allowed")
        assert evaluate(pod, before).allowed


@given(pod=pods(), given_quotas=quota_sets(), data=st.data())
def test_the_order_of_quotas_does_not_matter(
    pod: Pod, given_quotas: list[ResourceQuota], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(given_quotas))
    assert evaluate(pod, shuffled) == evaluate(pod, given_quotas)


@given(pod=pods(), given_quotas=quota_sets())
def test_what_is_allowed_stays_within_every_ceiling_it_asks_for(
    pod: Pod, given_quotas: list[ResourceQuota]
) -> None:
    answer = evaluate(pod, given_quotas)
    assume(answer.allowed)
    usage = usage_of(pod, now=None)
    for quota in filter(lambda quota: matches(quota, pod), given_quotas):
        after = answer.used_after[quota.name]
        asked = [key for key in quota.status_hard if usage.get(key)]
        event(f"asked {min(len(asked), 2)}")
        assert all(after[key] <= quota.status_hard[key] for key in asked)


@given(pod=pods(), given_quotas=quota_sets())
def test_what_is_allowed_is_added_where_it_matches_and_nowhere_else(
    pod: Pod, given_quotas: list[ResourceQuota]
) -> None:
    answer = evaluate(pod, given_quotas)
    assume(answer.allowed)
    for quota in given_quotas:
        usage = mask(usage_of(pod, now=None), quota.status_hard) if matches(quota, pod) else {}
        assert answer.used_after[quota.name] == add(quota.status_used, usage)


@given(pod=pods(), given_quotas=quota_sets(), data=st.data())
def test_a_higher_ceiling_never_refuses_what_was_allowed(
    pod: Pod, given_quotas: list[ResourceQuota], data: st.DataObject
) -> None:
    assume(evaluate(pod, given_quotas).allowed)
    first, *others = given_quotas
    key = data.draw(st.sampled_from(sorted(first.status_hard)))
    higher = first.status_hard[key] + Quantity.parse(data.draw(units()))
    raised = replace(first, status_hard={**first.status_hard, key: higher})
    assert evaluate(pod, [raised, *others]).allowed


@given(pod=pods(), given_quotas=quota_sets())
def test_a_refusal_changes_nothing_and_says_why(
    pod: Pod, given_quotas: list[ResourceQuota]
) -> None:
    answer = evaluate(pod, given_quotas)
    assume(not answer.allowed)
    assert answer.denial is not None
    event(type(answer.denial).__name__)
    assert answer.message == f'pods "web-1" is forbidden: {answer.denial.message}'
    assert answer.used_after == {}


def _listed(message: str, section: str) -> list[str]:
    pairs = message.split(f"{section}: ")[1].split(", ", maxsplit=1)[0].split(",")
    return [pair.split("=")[0] for pair in pairs]


@given(pod=pods(), given_quotas=quota_sets())
def test_an_exceeded_quota_lists_the_same_keys_thrice_sorted(
    pod: Pod, given_quotas: list[ResourceQuota]
) -> None:
    answer = evaluate(pod, given_quotas)
    assume(isinstance(answer.denial, QuotaExceeded))
    assert isinstance(answer.denial, QuotaExceeded)
    keys = sorted(answer.denial.requested)
    assert keys
    for section in ("requested", "used", "limited"):
        assert _listed(answer.message, section) == keys
    assert [cause.field for cause in answer.denial.causes] == [
        f"{answer.denial.quota}/{key}" for key in keys
    ]


@given(
    requested=st.dictionaries(st.sampled_from(KEYS), units().map(Quantity.parse)),
    used=st.dictionaries(st.sampled_from(KEYS), units().map(Quantity.parse)),
    hard=st.dictionaries(st.sampled_from(KEYS), units().map(Quantity.parse)),
)
def test_over_hard_compares_each_key_on_its_own(
    requested: ResourceList, used: ResourceList, hard: ResourceList
) -> None:
    found = over_hard("q", requested, used, hard)
    alone = {
        key for key in requested if over_hard("q", {key: requested[key]}, used, hard) is not None
    }
    assert (found.requested.keys() if found else set()) == alone
