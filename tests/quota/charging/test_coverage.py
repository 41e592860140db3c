"""Resources that need a covering quota, by rule and by kind of request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object, a_container_status, a_pod, a_quota, an_expression
from webhook.quota.charging.coverage import (
    CoverageRules,
    Uncovered,
    uncovered_assignment,
    uncovered_creation,
    uncovered_growth,
)
from webhook.quota.charging.deferral import QuotaScopeError
from webhook.quota.charging.evaluation import evaluate
from webhook.quota.charging.limited_resources import LimitedResource
from webhook.quota.objects.model import Pod, ResourceQuota, ScopeExpression
from webhook.quota.objects.names import DEFERRED_KEYS

IN_GOLD = ScopeExpression("PriorityClass", "In", ("gold",))
GOLD_QUOTA = a_quota("g", hard={"pods": "1"}, expressions=[an_expression("PriorityClass")])
BAD = a_quota("odd", expressions=[an_expression("PriorityClass", "In", "bad value!")])


def contains(*parts: str) -> CoverageRules:
    return CoverageRules((LimitedResource("pods", match_contains=parts),))


def scopes(*expressions: ScopeExpression, resource: str = "pods") -> CoverageRules:
    return CoverageRules((LimitedResource(resource, match_scopes=expressions),))


def pod(**fields: object) -> Pod:
    return Pod.from_object(a_pod(**{"requests": {"cpu": "1"}, **fields}))  # type: ignore[arg-type]


def quotas(*made: Object) -> list[ResourceQuota]:
    return [ResourceQuota.from_object(one) for one in made]


def said(refusal: Uncovered | None) -> str:
    return "" if refusal is None else f"{refusal.code} {refusal.reason}: {refusal.message}"


def creation(new: Pod, rules: CoverageRules, *made: Object) -> str:
    return said(uncovered_creation(new, quotas(*made), rules, DEFERRED_KEYS))


def assignment(new: Pod, rules: CoverageRules, *made: Object) -> str:
    return said(uncovered_assignment(new, quotas(*made), rules))


def growth(old: Pod, new: Pod, rules: CoverageRules, *made: Object) -> str:
    return said(uncovered_growth(old, new, quotas(*made), rules, DEFERRED_KEYS))


def consume(keys: str) -> str:
    return f"403 Forbidden: insufficient quota to consume: {keys}"


def in_scopes(expressions: str) -> str:
    return f"403 Forbidden: insufficient quota to match these scopes: [{expressions}]"


# rules; quotas; what is missing when the pod is created to wait, and when it gets its node
KEYS: dict[str, tuple[CoverageRules, list[Object], str, str]] = {
    "no rule": (CoverageRules(), [], "", ""),
    "a deferred key waits for the node": (
        contains("cpu"),
        [],
        "",
        consume("cpu,requests.cpu"),
    ),
    "a native key does not": (
        contains("pods"),
        [],
        consume("count/pods,pods"),
        consume("count/pods,pods"),
    ),
    "both": (
        contains("requests.cpu", "pods"),
        [],
        consume("count/pods,pods"),
        consume("count/pods,pods,requests.cpu"),
    ),
    "the alias is a key of its own": (
        contains("cpu"),
        [a_quota(hard={"requests.cpu": "1"})],
        "",
        consume("cpu"),
    ),
    "covered by two quotas together": (
        contains("cpu"),
        [a_quota("a", hard={"requests.cpu": "1"}), a_quota("b", hard={"cpu": "0"})],
        "",
        "",
    ),
    "a quota that does not select the pod": (
        contains("requests.cpu"),
        [a_quota(scopes=["Terminating"])],
        "",
        consume("requests.cpu"),
    ),
    "an excluded quota": (
        contains("requests.cpu"),
        [a_quota(metadata={"annotations": {"deferredquota.io/exclude": "true"}})],
        "",
        "",
    ),
    "nothing of it is used": (contains("memory"), [], "", ""),
    "another resource": (
        CoverageRules((LimitedResource("services", match_contains=("cpu",)),)),
        [],
        "",
        "",
    ),
}


@pytest.mark.parametrize(("rules", "made", "waiting", "placed"), KEYS.values(), ids=KEYS.keys())
def test_a_limited_key_is_asked_about_when_the_pod_is_charged_for_it(
    rules: CoverageRules, made: list[Object], waiting: str, placed: str
) -> None:
    assert creation(pod(), rules, *made) == waiting
    assert assignment(pod(), rules, *made) == placed


SCOPES: dict[str, tuple[CoverageRules, dict[str, object], list[Object], str]] = {
    "no quota": (scopes(IN_GOLD), {}, [], in_scopes("{PriorityClass In [gold]}")),
    "another class": (scopes(IN_GOLD), {"priorityClassName": "silver"}, [], ""),
    "an expression that matches": (scopes(IN_GOLD), {}, [GOLD_QUOTA], ""),
    "an expression of the scope that does not match": (
        scopes(IN_GOLD),
        {},
        [a_quota(expressions=[an_expression("PriorityClass", "DoesNotExist")])],
        in_scopes("{PriorityClass In [gold]}"),
    ),
    "all but another class": (
        scopes(IN_GOLD),
        {},
        [a_quota(expressions=[an_expression("PriorityClass", "NotIn", "silver")])],
        "",
    ),
    "a quota that limits nothing of pods and does not select the pod": (
        scopes(IN_GOLD),
        {},
        [
            a_quota(
                hard={"configmaps": "1"},
                scopes=["Terminating"],
                expressions=[an_expression("PriorityClass")],
            )
        ],
        "",
    ),
    "whatever resource the entry names": (
        scopes(IN_GOLD, resource="persistentvolumeclaims"),
        {},
        [],
        in_scopes("{PriorityClass In [gold]}"),
    ),
    "several in their order, and only those that nobody covers": (
        scopes(
            ScopeExpression("NotTerminating", "Exists"),
            ScopeExpression("PriorityClass", "In", ("gold", "silver")),
            ScopeExpression("NotBestEffort", "Exists"),
            ScopeExpression("PriorityClass", "Exists"),
            ScopeExpression("Terminating", "Exists"),
        ),
        {},
        [a_quota(scopes=["NotBestEffort"])],
        in_scopes(
            "{NotTerminating Exists []} {PriorityClass In [gold silver]} {PriorityClass Exists []}"
        ),
    ),
    "required, and covered only as the platform counts": (
        CoverageRules(required=(IN_GOLD,)),
        {},
        [a_quota(hard={"configmaps": "1"}, expressions=[an_expression("PriorityClass")])],
        in_scopes("{PriorityClass In [gold]}"),
    ),
    "required as the platform counts": (
        CoverageRules(required=(IN_GOLD,), coverage="platform"),
        {},
        [a_quota(hard={"configmaps": "1"}, expressions=[an_expression("PriorityClass")])],
        "",
    ),
    "required by both rules: one refusal": (
        CoverageRules((LimitedResource("pods", match_scopes=(IN_GOLD,)),), (IN_GOLD,)),
        {},
        [],
        in_scopes("{PriorityClass In [gold]}"),
    ),
    "keys come before scopes": (
        CoverageRules((LimitedResource("pods", "", ("count/pods",), (IN_GOLD,)),), (IN_GOLD,)),
        {},
        [],
        consume("count/pods"),
    ),
}


@pytest.mark.parametrize(
    ("rules", "fields", "made", "expected"), SCOPES.values(), ids=SCOPES.keys()
)
def test_scopes_are_asked_about_whether_or_not_the_pod_has_a_node(
    rules: CoverageRules, fields: dict[str, object], made: list[Object], expected: str
) -> None:
    new = pod(**{"priorityClassName": "gold", **fields})
    assert creation(new, rules, *made) == expected
    assert assignment(new, rules, *made) == expected


def test_a_quota_that_cannot_be_evaluated_is_named_where_its_consent_is_needed() -> None:
    gold = pod(priorityClassName="gold")
    for rules in (contains("requests.cpu"), scopes(IN_GOLD)):
        with pytest.raises(QuotaScopeError) as caught:
            assignment(gold, rules, BAD)
        assert caught.value.quota == "odd"
    for rules in (
        CoverageRules(),
        contains("memory"),
        scopes(ScopeExpression("Terminating", "Exists")),
    ):
        assert assignment(gold, rules, BAD) == ""


# -- growth --------------------------------------------------------------------------------

PRIORITY_RULES = {
    "limited": scopes(IN_GOLD),
    "required": CoverageRules(required=(IN_GOLD,)),
}


def gold(cpu: str = "1", **fields: object) -> Pod:
    return pod(**{"requests": {"cpu": cpu}, "priorityClassName": "gold", "node": "n", **fields})


@pytest.mark.parametrize("rules", PRIORITY_RULES.values(), ids=PRIORITY_RULES.keys())
def test_a_running_pod_is_asked_again_only_when_it_is_charged_more(rules: CoverageRules) -> None:
    missing = in_scopes("{PriorityClass In [gold]}")
    assert growth(gold("1"), gold("2"), rules) == missing
    assert growth(gold("2"), gold("1"), rules) == ""
    assert growth(gold("1"), gold("1"), rules) == ""
    assert growth(gold("1"), gold("2"), rules, GOLD_QUOTA) == ""
    assert growth(gold("1", node=""), gold("2", node=""), rules) == ""


@pytest.mark.parametrize("rules", PRIORITY_RULES.values(), ids=PRIORITY_RULES.keys())
def test_a_deadline_is_growth_where_it_moves_the_pod_into_a_quota(rules: CoverageRules) -> None:
    short = a_quota("short", hard={"pods": "9"}, scopes=["Terminating"])
    old, new = gold(), gold(activeDeadlineSeconds=60)
    assert growth(old, new, rules, short) == in_scopes("{PriorityClass In [gold]}")
    assert growth(old, new, rules, short, GOLD_QUOTA) == ""
    assert growth(old, new, rules, a_quota("all")) == ""
    assert growth(old, new, rules, a_quota(hard={"configmaps": "1"}, scopes=["Terminating"])) == ""
    assert growth(new, old, rules, short) == ""


def test_growth_is_asked_about_all_deferred_keys_that_the_pod_takes_and_no_others() -> None:
    both = {"cpu": "1", "memory": "1"}
    old, new = gold(requests=both), gold(requests={**both, "memory": "2"})
    limited = contains("requests.", "pods")
    assert growth(old, new, limited) == consume("requests.cpu,requests.memory")
    memory = a_quota(hard={"requests.memory": "1"})
    assert growth(old, new, limited, memory) == consume("requests.cpu")


def test_growth_that_a_former_verdict_hides_is_growth() -> None:
    status = {
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
        "containerStatuses": [a_container_status(requests={"cpu": "1"}, allocated={"cpu": "1"})],
    }
    old, new = gold("1", status=status), gold("2", status=status)
    assert growth(old, new, contains("requests.cpu")) == consume("requests.cpu")


def test_growth_of_a_native_key_is_left_to_the_api_server() -> None:
    old, new = gold(), gold(requests={"cpu": "1", "ephemeral-storage": "1"})
    assert growth(old, new, contains("ephemeral")) == ""


# -- as the API server ---------------------------------------------------------------------

_CLASSES = st.sampled_from(["", "gold", "silver"])
_EXPRESSIONS = st.sampled_from(
    [
        an_expression("PriorityClass"),
        an_expression("PriorityClass", "DoesNotExist"),
        an_expression("PriorityClass", "In", "gold"),
        an_expression("PriorityClass", "NotIn", "gold", "silver"),
        an_expression("Terminating"),
        an_expression("NotTerminating"),
    ]
)
_HARD = st.dictionaries(
    st.sampled_from(["pods", "count/pods", "cpu", "requests.cpu", "configmaps"]),
    st.just("100"),
    max_size=3,
)
_QUOTAS = st.lists(st.tuples(_HARD, st.lists(_EXPRESSIONS, max_size=2)), max_size=3)
_LIMITED = st.lists(
    st.fixed_dictionaries(
        {
            "resource": st.sampled_from(["pods", "services"]),
            "matchContains": st.lists(st.sampled_from(["cpu", "pods", "requests."]), max_size=2),
            "matchScopes": st.lists(_EXPRESSIONS, max_size=2),
        }
    ),
    max_size=2,
)


@given(
    priority_class=_CLASSES,
    deadline=st.sampled_from([None, 60]),
    specs=_QUOTAS,
    limited=_LIMITED,
)
def test_a_pod_with_a_node_is_answered_as_the_api_server_answers_where_status_is_complete(
    priority_class: str,
    deadline: int | None,
    specs: list[tuple[dict[str, str], list[Object]]],
    limited: list[Object],
) -> None:
    raw = a_pod(
        requests={"cpu": "1"}, priorityClassName=priority_class, activeDeadlineSeconds=deadline
    )
    made = [
        a_quota(f"q{index}", hard=hard, used=dict.fromkeys(hard, "0"), expressions=expressions)
        for index, (hard, expressions) in enumerate(specs)
    ]
    rules = CoverageRules(tuple(LimitedResource.from_object(each) for each in limited))
    found = uncovered_assignment(Pod.from_object(raw), quotas(*made), rules)
    native = evaluate(raw, made, limited).denial
    assert (None if found is None else found.message) == (
        None if native is None else native.message
    )
