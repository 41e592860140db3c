"""Which pods a quota's scopes select."""

from __future__ import annotations

import gc
import tracemalloc
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object, a_container, a_pod, an_expression
from tests.quota.parsed import expression_of, pod_of, quota_of
from webhook.quota.charging.scopes import (
    ScopeError,
    is_terminating,
    matches,
    matching_expressions,
    quota_matching_expressions,
)
from webhook.quota.objects.model import Pod, ScopeExpression

GOLD = pod_of(priorityClassName="gold")
SILVER = pod_of(priorityClassName="silver")
CLASSLESS = pod_of()

_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
    "'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

CLASS_CASES: dict[str, tuple[ScopeExpression, bool, bool, bool]] = {
    # expression, matches class gold, class silver, no class
    "exists": (expression_of("PriorityClass"), True, True, False),
    "does not exist": (expression_of("PriorityClass", "DoesNotExist"), False, False, True),
    "in one": (expression_of("PriorityClass", "In", "gold"), True, False, False),
    "in two": (expression_of("PriorityClass", "In", "gold", "silver"), True, True, False),
    "in another": (expression_of("PriorityClass", "In", "bronze"), False, False, False),
    "in the empty name": (expression_of("PriorityClass", "In", ""), False, False, False),
    "not in one": (expression_of("PriorityClass", "NotIn", "gold"), False, True, True),
    "not in two": (expression_of("PriorityClass", "NotIn", "gold", "silver"), False, False, True),
    "not in the empty name": (expression_of("PriorityClass", "NotIn", ""), True, True, True),
    "exists with values is not looked at": (
        expression_of("PriorityClass", "Exists", "bad value!"),
        True,
        True,
        False,
    ),
}


@pytest.mark.parametrize(
    ("expression", "gold", "silver", "classless"), CLASS_CASES.values(), ids=CLASS_CASES.keys()
)
def test_a_priority_class_expression_goes_by_the_name_of_the_class(
    expression: ScopeExpression, gold: bool, silver: bool, classless: bool
) -> None:
    found = [bool(matching_expressions((expression,), pod)) for pod in (GOLD, SILVER, CLASSLESS)]
    assert found == [gold, silver, classless]


def test_the_integer_of_the_priority_is_no_class() -> None:
    pod = pod_of(priority=1000)
    assert not matches(quota_of(scopes=["PriorityClass"]), pod)
    assert matches(quota_of(expressions=[an_expression("PriorityClass", "DoesNotExist")]), pod)


def test_two_expressions_on_the_class_have_to_match_both() -> None:
    both = [
        an_expression("PriorityClass", "Exists"),
        an_expression("PriorityClass", "NotIn", "gold"),
    ]
    quota = quota_of(expressions=both)
    assert [matches(quota, pod) for pod in (GOLD, SILVER, CLASSLESS)] == [False, True, False]


def test_a_quota_without_scopes_matches_every_pod() -> None:
    assert all(matches(quota_of(), pod) for pod in (GOLD, SILVER, CLASSLESS))


TERMINATING_CASES = {
    "no deadline": (None, False),
    "zero": (0, True),
    "a deadline": (60, True),
    "a negative deadline": (-1, False),
}


@pytest.mark.parametrize(
    ("deadline", "expected"), TERMINATING_CASES.values(), ids=TERMINATING_CASES.keys()
)
def test_terminating_is_to_have_a_deadline(deadline: int | None, expected: bool) -> None:
    pod = pod_of(activeDeadlineSeconds=deadline)
    assert is_terminating(pod) is expected
    assert matches(quota_of(scopes=["Terminating"]), pod) is expected
    assert matches(quota_of(scopes=["NotTerminating"]), pod) is not expected


def test_a_pod_being_deleted_is_not_terminating() -> None:
    deleted = pod_of(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert matches(quota_of(scopes=["NotTerminating"]), deleted)


QOS_CASES: dict[str, tuple[Object, bool]] = {
    "no resources": (a_pod(), True),
    "a request": (a_pod(requests={"cpu": "1"}), False),
    "requests of zero": (a_pod(requests={"cpu": "0", "memory": "0"}), True),
    "only a vendor's device": (
        a_pod(requests={"nvidia.com/gpu": "1"}, limits={"nvidia.com/gpu": "1"}),
        True,
    ),
    "pod-level resources that are empty": (a_pod(requests={"cpu": "1"}, resources={}), True),
    "only an init container asks": (
        a_pod(init=[a_container("first", requests={"cpu": "1"})]),
        False,
    ),
    "the class on record wins": (
        a_pod(requests={"cpu": "1"}, status={"qosClass": "BestEffort"}),
        True,
    ),
}


@pytest.mark.parametrize(("raw", "expected"), QOS_CASES.values(), ids=QOS_CASES.keys())
def test_best_effort_goes_by_the_quality_of_service(raw: Object, expected: bool) -> None:
    pod = pod_of(raw)
    assert matches(quota_of(scopes=["BestEffort"]), pod) is expected
    assert matches(quota_of(scopes=["NotBestEffort"]), pod) is not expected


def _affinity(kind: str, when: str, term: Object) -> Pod:
    listed = {"podAffinityTerm": term, "weight": 1} if when.startswith("preferred") else term
    return pod_of(affinity={kind: {f"{when}DuringSchedulingIgnoredDuringExecution": [listed]}})


AFFINITY_TERMS: dict[str, tuple[Object, bool]] = {
    "names a namespace": ({"namespaces": ["other"]}, True),
    "names its own namespace": ({"namespaces": ["team-a"]}, True),
    "names none": ({"namespaces": []}, False),
    "selects by labels": ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, True),
    "selects all": ({"namespaceSelector": {}}, True),
    "selector is null": ({"namespaceSelector": None}, False),
    "stays at home": ({"topologyKey": "zone"}, False),
}


@pytest.mark.parametrize("when", ["required", "preferred"])
@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize(("term", "expected"), AFFINITY_TERMS.values(), ids=AFFINITY_TERMS.keys())
def test_cross_namespace_affinity_is_any_term_that_looks_elsewhere(
    kind: str, when: str, term: Object, expected: bool
) -> None:
    quota = quota_of(scopes=["CrossNamespacePodAffinity"])
    assert matches(quota, _affinity(kind, when, term)) is expected


@pytest.mark.parametrize("scope", ["VolumeAttributesClass", "SomethingNew", ""])
def test_scopes_that_are_not_about_pods_match_none(scope: str) -> None:
    assert not matches(quota_of(scopes=[scope]), GOLD)
    assert not matches(quota_of(expressions=[an_expression(scope, "NotIn", "gold")]), CLASSLESS)


def test_scopes_and_expressions_have_to_match_all() -> None:
    quota = quota_of(
        scopes=["NotTerminating"], expressions=[an_expression("PriorityClass", "In", "gold")]
    )
    assert matches(quota, GOLD)
    assert not matches(quota, SILVER)
    assert not matches(quota, pod_of(priorityClassName="gold", activeDeadlineSeconds=1))


def test_opposites_in_both_places_match_nothing() -> None:
    quota = quota_of(scopes=["Terminating"], expressions=[an_expression("NotTerminating")])
    assert not matches(quota, CLASSLESS)
    assert not matches(quota, pod_of(activeDeadlineSeconds=1))


def test_matching_expressions_come_in_their_order_scopes_first() -> None:
    quota = quota_of(
        scopes=["NotTerminating", "Terminating"],
        expressions=[
            an_expression("PriorityClass", "In", "gold"),
            an_expression("PriorityClass", "DoesNotExist"),
        ],
    )
    assert quota_matching_expressions(quota, GOLD) == (
        expression_of("NotTerminating"),
        expression_of("PriorityClass", "In", "gold"),
    )


def test_other_scopes_ignore_the_operator() -> None:
    odd = expression_of("NotTerminating", "in", "bad value!")
    assert matching_expressions((odd,), GOLD) == (odd,)


FAULTS = {
    "an illegal value": (
        expression_of("PriorityClass", "In", "bad value!"),
        f'values[0][PriorityClass]: Invalid value: "bad value!": {_LABEL_RULE}',
    ),
    "the second value": (
        expression_of("PriorityClass", "NotIn", "gold", "-"),
        f'values[1][PriorityClass]: Invalid value: "-": {_LABEL_RULE}',
    ),
    "a long value": (
        expression_of("PriorityClass", "In", "a" * 64),
        f'values[0][PriorityClass]: Invalid value: "{"a" * 64}": must be no more than 63 bytes',
    ),
    "two values": (
        expression_of("PriorityClass", "In", "a b", "c d"),
        (
            f'[values[0][PriorityClass]: Invalid value: "a b": {_LABEL_RULE}, '
            f'values[1][PriorityClass]: Invalid value: "c d": {_LABEL_RULE}]'
        ),
    ),
    "an operator in lower case": (
        expression_of("PriorityClass", "in", "gold"),
        '"in" is not a valid scope selector operator',
    ),
    "no operator": (
        expression_of("PriorityClass", ""),
        '"" is not a valid scope selector operator',
    ),
    "no value": (
        expression_of("PriorityClass", "In"),
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
    ),
    "a value too many": (
        expression_of("PriorityClass", "DoesNotExist", "gold"),
        'values: Invalid value: ["gold"]: values set must be empty for exists and does not exist',
    ),
    "a value that is shown as JSON, and as text": (
        expression_of("PriorityClass", "DoesNotExist", "<\x01"),
        (
            r'[values: Invalid value: ["\u003c\u0001"]: values set must be empty for exists and'
            rf' does not exist, values[0][PriorityClass]: Invalid value: "<\x01": {_LABEL_RULE}]'
        ),
    ),
}


@pytest.mark.parametrize(("expression", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_an_expression_that_cannot_be_evaluated_is_an_error_in_the_platforms_words(
    expression: ScopeExpression, words: str
) -> None:
    with pytest.raises(ScopeError) as caught:
        matching_expressions((expression,), CLASSLESS)
    assert caught.value.expression == expression
    assert caught.value.detail == f"failed to parse and convert selector: {words}"


def test_an_error_says_which_expression_it_is() -> None:
    bad = an_expression("PriorityClass", "In", "bad value!")
    quota = quota_of(expressions=[an_expression("PriorityClass"), bad])
    with pytest.raises(ScopeError, match=r"^error on matching scope \{PriorityClass In ") as caught:
        matches(quota, GOLD)
    assert caught.value.field == "spec.scopeSelector.matchExpressions[1]"


def test_a_bad_expression_is_an_error_even_where_another_rules_the_pod_out() -> None:
    bad = an_expression("PriorityClass", "In", "bad value!")
    with pytest.raises(ScopeError):
        matches(quota_of(scopes=["Terminating"], expressions=[bad]), GOLD)
    with pytest.raises(ScopeError):
        quota_matching_expressions(quota_of(scopes=["Terminating"], expressions=[bad]), GOLD)


def test_what_is_made_of_the_scopes_of_a_quota_goes_with_it() -> None:
    def matched(number: int) -> bool:
        names = [f"class-{number}-{index}" for index in range(5_000)]
        return matches(quota_of(expressions=[an_expression("PriorityClass", "In", *names)]), GOLD)

    assert not matched(0)
    tracemalloc.start()
    try:
        assert not any(map(matched, range(1, 9)))
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 100_000


def test_an_expression_that_is_stored_very_often_is_looked_at_once() -> None:
    expressions = [an_expression("PriorityClass")] * 900
    assert len(quota_matching_expressions(quota_of(expressions=expressions), GOLD)) == 1


class _Asked:
    """A pod of class `gold` that counts how often it is looked at; no rule may ask for more."""

    asked = 0
    qos_class = "Burstable"
    cross_namespace_affinity = True

    @property
    def priority_class_name(self) -> str:
        self.asked += 1
        return "gold"

    @property
    def active_deadline_seconds(self) -> int:
        self.asked += 1
        return 60


def test_a_pod_is_looked_at_no_more_often_for_more_expressions() -> None:
    quota = quota_of(
        scopes=["Terminating", "NotBestEffort", "CrossNamespacePodAffinity"],
        expressions=[
            *[an_expression("PriorityClass", "NotIn", f"class-{index}") for index in range(200)],
            *[an_expression("PriorityClass", "In", "gold", f"class-{index}") for index in range(9)],
            *[an_expression("Terminating", "In", f"class-{index}") for index in range(200)],
        ],
    )
    asked = _Asked()
    assert matches(quota, cast("Pod", asked))
    assert asked.asked == 2


CLASS_NAMES = st.sampled_from(["", "gold", "silver", "bronze"])
EXPRESSIONS = st.one_of(
    st.builds(
        lambda operator, names: an_expression("PriorityClass", operator, *names),
        st.sampled_from(["In", "NotIn"]),
        st.lists(CLASS_NAMES, min_size=1, max_size=3),
    ),
    st.sampled_from(
        [an_expression("PriorityClass"), an_expression("PriorityClass", "DoesNotExist")]
    ),
    st.builds(
        an_expression,
        st.sampled_from(
            [
                "Terminating",
                "NotTerminating",
                "BestEffort",
                "NotBestEffort",
                "CrossNamespacePodAffinity",
                "SomethingNew",
            ]
        ),
        st.sampled_from(["Exists", "In"]),
    ),
)
PODS = st.builds(
    lambda name, deadline, request, namespaces: pod_of(
        priorityClassName=name,
        activeDeadlineSeconds=deadline,
        requests=request,
        affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": namespaces}]
            }
        },
    ),
    CLASS_NAMES,
    st.sampled_from([None, 60]),
    st.sampled_from([{}, {"cpu": "1"}]),
    st.sampled_from([[], ["other"]]),
)


@given(expressions=st.lists(EXPRESSIONS, max_size=5), pod=PODS)
def test_a_quota_matches_the_pods_that_each_expression_matches(
    expressions: list[Object], pod: Pod
) -> None:
    alone = [matches(quota_of(expressions=[one]), pod) for one in expressions]
    quota = quota_of(expressions=expressions)
    assert matches(quota, pod) is all(alone)
    matching = quota_matching_expressions(quota, pod)
    assert matches(quota, pod) is (set(matching) == set(quota.expressions))
