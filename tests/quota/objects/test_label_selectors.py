"""Which labels a label selector selects."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import Object
from webhook.quota.objects.label_selectors import LabelSelector, read_label_selector

LABELS = {"app": "train", "tier": ""}


def expression(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


CASES: Mapping[str, tuple[Object, bool]] = {
    "everything": ({}, True),
    "a label": ({"matchLabels": {"app": "train"}}, True),
    "another value": ({"matchLabels": {"app": "serve"}}, False),
    "a label that is not there": ({"matchLabels": {"team": "x"}}, False),
    "an empty value is a value": ({"matchLabels": {"tier": ""}}, True),
    "an absent label has not even an empty one": ({"matchLabels": {"team": ""}}, False),
    "In": (expression("app", "In", "serve", "train"), True),
    "In, other values": (expression("app", "In", "serve"), False),
    "In, no such label": (expression("team", "In", "x"), False),
    "NotIn": (expression("app", "NotIn", "serve"), True),
    "NotIn, the value": (expression("app", "NotIn", "train"), False),
    "NotIn, no such label": (expression("team", "NotIn", "x"), True),
    "Exists": (expression("tier", "Exists"), True),
    "Exists, no such label": (expression("team", "Exists"), False),
    "DoesNotExist": (expression("team", "DoesNotExist"), True),
    "DoesNotExist, it does": (expression("tier", "DoesNotExist"), False),
    "label and expression": (
        {"matchLabels": {"app": "train"}} | expression("tier", "DoesNotExist"),
        False,
    ),
}


def selector_of(raw: Object) -> LabelSelector:
    selector = read_label_selector(raw, "spec.selector")
    assert selector is not None
    return selector


@pytest.mark.parametrize(("raw", "matches"), CASES.values(), ids=CASES.keys())
def test_selects_labels(raw: Object, matches: bool) -> None:
    selector = selector_of(raw)

    assert selector.is_valid
    assert selector.matches(LABELS) == matches


INVALID: Mapping[str, Object] = {
    "unknown operator": expression("app", "Like", "train"),
    "no operator": expression("app", ""),
    "In without values": expression("app", "In"),
    "NotIn without values": expression("team", "NotIn"),
    "Exists with values": expression("app", "Exists", "train"),
    "DoesNotExist with values": expression("team", "DoesNotExist", "x"),
}


@pytest.mark.parametrize("raw", INVALID.values(), ids=INVALID.keys())
def test_an_invalid_selector_selects_nothing(raw: Object) -> None:
    selector = selector_of(raw)

    assert not selector.is_valid
    assert not selector.matches(LABELS)


def test_no_selector_is_not_an_empty_one() -> None:
    assert read_label_selector(None, "spec.selector") is None
