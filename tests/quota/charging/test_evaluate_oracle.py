"""Random pods and quotas, as kubernetes v1.36.2's own code judged them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.quota.oracle import VECTORS
from webhook.jsonfields.encoding import decode_json
from webhook.quota.amounts.resources import parse_resource_list
from webhook.quota.charging.constraints import constraint_text, missing_resources
from webhook.quota.charging.evaluation import evaluate
from webhook.quota.charging.scopes import matching_expressions
from webhook.quota.objects.model import Pod, ScopeExpression


@dataclass(frozen=True, slots=True)
class Decision:
    """A pod created beside quotas, and the platform's verdict."""

    pod: Mapping[str, object]
    quotas: Sequence[Mapping[str, object]]
    limited: Mapping[str, object] | None
    message: str
    """Empty when it was allowed."""
    used_after: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Selection:
    """A pod, and what the platform says of scopes and of amounts that are not stated."""

    pod: Mapping[str, object]
    scopes: Mapping[str, bool]
    priority: Sequence[tuple[ScopeExpression, bool]]
    required: Sequence[str]
    constraint: str
    """Empty when all is stated."""


def _decision(line: str) -> Decision:
    match decode_json(line):
        case {
            "allowed": False,
            "pod": dict(pod),
            "quotas": list(quotas),
            "limitedResources": limited,
            "message": str(message),
        }:
            return Decision(pod, quotas, limited, message, {})
        case {
            "allowed": True,
            "pod": dict(pod),
            "quotas": list(quotas),
            "limitedResources": limited,
            "usedAfter": dict(used),
        }:
            return Decision(pod, quotas, limited, "", used)
        case _:
            raise AssertionError("not a decision")


def _selection(line: str) -> Selection:
    match decode_json(line):
        case {
            "pod": dict(pod),
            "scopes": dict(scopes),
            "priority": list(priority),
            "constraints": {"required": list(required), "error": str(error)},
        }:
            read = [
                (ScopeExpression.from_object(each["selector"]), each["match"]) for each in priority
            ]
            return Selection(pod, scopes, read, required, error)
        case _:
            raise AssertionError("not an answer about scopes")


def _lines(name: str) -> list[str]:
    return (VECTORS / name).read_text().splitlines()


DECISIONS = [_decision(line) for line in _lines("decide.jsonl")]
SELECTIONS = [_selection(line) for line in _lines("pods.jsonl")]


@pytest.mark.parametrize("case", DECISIONS)
def test_verdict_message_and_sums_agree(case: Decision) -> None:
    found = evaluate(case.pod, case.quotas, [case.limited] if case.limited else [])
    assert found.allowed is (case.message == "")
    assert found.message == case.message
    assert found.used_after == {
        name: parse_resource_list(used, field=name) for name, used in case.used_after.items()
    }


@pytest.mark.parametrize("case", SELECTIONS)
def test_scopes_agree(case: Selection) -> None:
    pod = Pod.from_object(case.pod)
    found = {
        name: bool(matching_expressions((ScopeExpression(name, "Exists"),), pod))
        for name in case.scopes
    }
    assert found == case.scopes


@pytest.mark.parametrize("case", SELECTIONS)
def test_expressions_on_the_priority_class_agree(case: Selection) -> None:
    pod = Pod.from_object(case.pod)
    expressions = tuple(expression for expression, _ in case.priority)
    expected = tuple(expression for expression, is_match in case.priority if is_match)
    assert matching_expressions(expressions, pod) == expected


@pytest.mark.parametrize("case", SELECTIONS)
def test_must_specify_agrees(case: Selection) -> None:
    missing = missing_resources(Pod.from_object(case.pod), case.required)
    assert constraint_text(missing) == case.constraint
