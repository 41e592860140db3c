"""Rules for Jobs, by themselves: which users they apply to, and what they never refuse."""

from __future__ import annotations

import time

import pytest
from hypothesis import given

from tests.builders import Object
from tests.quota.jobs.job_strategies import job_updates
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.jobs import job_state, job_update_errors
from webhook.quota.jobs.policy import (
    ANY,
    Findings,
    Growth,
    JobRule,
    Users,
    Verdict,
    hidden_changes,
    judged_replacement,
    judged_resizes,
    rule_for,
)
from webhook.quota.jobs.resize_diff import Resize, resizes_of
from webhook.quota.objects.label_selectors import read_label_selector

LENIENT = JobRule(
    claims=Verdict.ALLOW,
    template_metadata=Verdict.ALLOW,
    replacement=Verdict.ALLOW,
    terminating=Verdict.ALLOW,
)
STRICT = JobRule(growth={ANY: Growth.DENY}, shrink={ANY: Verdict.DENY})


def findings(rule: JobRule, old: Object, new: Object, gates: frozenset[str]) -> Findings:
    state = job_state(old, field="old")
    scheduling = state.may_change_scheduling(gates)
    return (
        hidden_changes(rule, old, new, scheduling=scheduling)
        + judged_resizes(rule, resizes_of(old, new))
        + judged_replacement(rule, state, new)
    )


@given(job_updates())
def test_a_rule_that_allows_everything_adds_nothing_to_the_api_server(
    update: tuple[Object, Object, frozenset[str]],
) -> None:
    old, new, gates = update
    if not job_update_errors(old, new, gates):
        assert findings(LENIENT, old, new, gates) == Findings()


@given(job_updates())
def test_without_rules_only_what_slips_through_is_refused(
    update: tuple[Object, Object, frozenset[str]],
) -> None:
    old, new, gates = update
    if not job_update_errors(old, new, gates):
        for error in findings(JobRule(), old, new, gates).errors:
            assert error.field.endswith(".resources.claims") or error.field.endswith(".metadata")


@given(job_updates())
def test_a_strict_rule_refuses_every_resize_but_limits_that_are_added(
    update: tuple[Object, Object, frozenset[str]],
) -> None:
    old, new, gates = update
    if not job_update_errors(old, new, gates):
        resizes = resizes_of(old, new)
        fields = [error.field for error in judged_resizes(STRICT, resizes).errors]
        assert fields == [each.field for each in resizes if each.before is not None]


def test_the_first_rule_whose_selectors_match_is_taken() -> None:
    gold = read_label_selector({"matchLabels": {"tier": "gold"}}, "")
    assert gold is not None
    first, second = JobRule(jobs=gold, namespaces=gold), JobRule(jobs=gold, claims=Verdict.WARN)
    assert rule_for([first, second], {"tier": "gold"}, {"tier": "gold"}) is first
    assert rule_for([first, second], {"tier": "gold"}, {}) is second
    assert rule_for([first, second], {}, {"tier": "gold"}) == JobRule()


@pytest.mark.parametrize(
    ("username", "groups", "included"),
    [
        ("alice", (), True),
        ("bob", ("admins",), True),
        ("bob", ("users",), False),
        ("system:serviceaccount:queue:manager", (), True),
        ("system:serviceaccount:queue:manager:x", (), False),
        ("queue/manager", (), False),
    ],
)
def test_users_are_distinguished(username: str, groups: tuple[str, ...], included: bool) -> None:
    users = Users(frozenset({"alice"}), frozenset({"admins"}), frozenset({"queue/manager"}))
    assert users.include(username, groups) == included


def test_findings_of_thousands_of_containers_are_not_copied_for_each() -> None:
    shrinks = JobRule(shrink={"*": Verdict.WARN})

    def seconds(count: int) -> float:
        half = Resize("spec", "cpu", False, Quantity.parse("2"), Quantity.parse("1"))
        began = time.process_time()
        assert len(judged_resizes(shrinks, [half] * count).warnings) == count
        return time.process_time() - began

    few, many = (min(seconds(count) for _ in range(3)) for count in (1000, 16_000))
    assert many / few < 4 * 16
