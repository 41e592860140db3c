"""LabelSelectors, as the API server understands them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.state.webhook_selectors import UnknownOperatorError, WebhookSelector

Raw = dict[str, Any]

ONE, OTHER, NO = {"tier": "gold"}, {"tier": "iron"}, {"zone": "gold"}


def an_expression(operator: str, *values: str, key: str = "tier") -> Raw:
    return {"key": key, "operator": operator, "values": list(values)}


def read(raw: Raw) -> WebhookSelector:
    return WebhookSelector.read(FieldReader(raw))


REQUIREMENTS: dict[str, tuple[Raw, tuple[bool, bool, bool]]] = {
    "a label": ({"matchLabels": {"tier": "gold"}}, (True, False, False)),
    "in": ({"matchExpressions": [an_expression("In", "gold", "lead")]}, (True, False, False)),
    "not in": ({"matchExpressions": [an_expression("NotIn", "gold")]}, (False, True, True)),
    "exists": ({"matchExpressions": [an_expression("Exists")]}, (True, True, False)),
    "not there": ({"matchExpressions": [an_expression("DoesNotExist")]}, (False, False, True)),
    "in nothing": ({"matchExpressions": [an_expression("In")]}, (False, False, False)),
}


@pytest.mark.parametrize(("raw", "expected"), REQUIREMENTS.values(), ids=REQUIREMENTS)
def test_a_requirement_holds_for_the_value_another_value_and_none(
    raw: Raw, expected: tuple[bool, bool, bool]
) -> None:
    selector = read(raw)
    assert tuple(selector.matches(labels) for labels in (ONE, OTHER, NO)) == expected


@pytest.mark.parametrize(
    "raw",
    [{}, {"matchLabels": {}, "matchExpressions": []}, {"matchLabels": None}],
    ids=["nothing", "empty lists", "null"],
)
def test_a_selector_without_requirements_selects_everything(raw: Raw) -> None:
    selector = read(raw)
    assert selector.is_empty
    assert selector.matches({})
    assert selector.matches(ONE)


@pytest.mark.parametrize(("raw", "_expected"), REQUIREMENTS.values(), ids=REQUIREMENTS)
def test_a_selector_with_a_requirement_is_not_empty(raw: Raw, _expected: object) -> None:
    assert not read(raw).is_empty


@pytest.mark.parametrize("operator", ["Gt", "in", ""])
def test_an_unknown_operator_is_named_with_its_place(operator: str) -> None:
    raw = {"spec": {"matchExpressions": [an_expression("Exists"), an_expression(operator, "1")]}}
    with pytest.raises(UnknownOperatorError) as caught:
        WebhookSelector.read(FieldReader(raw).child("spec"))
    assert caught.value.operator == operator
    assert str(caught.value) == f"spec.matchExpressions[1].operator: unknown operator {operator!r}"


WRONG: dict[str, tuple[Raw, str]] = {
    "labels": ({"matchLabels": ["tier"]}, "matchLabels"),
    "the value of a label": ({"matchLabels": {"tier": 5}}, "matchLabels.tier"),
    "expressions": ({"matchExpressions": {"key": "tier"}}, "matchExpressions"),
    "an expression": ({"matchExpressions": ["tier"]}, "matchExpressions[0]"),
    "an operator": (
        {"matchExpressions": [{"key": "tier", "operator": 5}]},
        "matchExpressions[0].operator",
    ),
    "a key": (
        {"matchExpressions": [{"key": 5, "operator": "Exists"}]},
        "matchExpressions[0].key",
    ),
    "a key beside an unknown operator": (
        {"matchExpressions": [{"key": 5, "operator": "Gt"}]},
        "matchExpressions[0].key",
    ),
    "values": (
        {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": "gold"}]},
        "matchExpressions[0].values",
    ),
}


@pytest.mark.parametrize(("raw", "field"), WRONG.values(), ids=WRONG)
def test_a_wrong_type_is_not_taken_for_an_unknown_operator(raw: Raw, field: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        read(raw)
    assert not isinstance(caught.value, UnknownOperatorError)
    assert caught.value.field == field


_WORDS = st.sampled_from(["a", "b"])
_LABELS = st.dictionaries(_WORDS, _WORDS)
_SELECTORS = st.builds(
    lambda labels, expressions: read({"matchLabels": labels, "matchExpressions": expressions}),
    _LABELS,
    st.lists(
        st.builds(
            lambda operator, values, key: an_expression(operator, *values, key=key),
            st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
            st.lists(_WORDS),
            _WORDS,
        ),
        max_size=3,
    ),
)


@given(one=_SELECTORS, other=_SELECTORS, labels=_LABELS)
def test_the_terms_of_two_selectors_select_what_both_select(
    one: WebhookSelector, other: WebhookSelector, labels: dict[str, str]
) -> None:
    both = WebhookSelector(one.terms + other.terms)
    assert both.matches(labels) is (one.matches(labels) and other.matches(labels))
