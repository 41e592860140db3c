"""The section `jobs` of the configuration, and what the handlers make of it."""

from __future__ import annotations

import pytest

from webhook.config import ConfigurationError, JobRuleSettings, load_configuration
from webhook.jsonfields.fields import InvalidFieldError
from webhook.policy import compile_policy
from webhook.quota.jobs import ALL_GATES, JobGate
from webhook.quota.jobs.policy import Growth, JobRule, Users, Verdict

HEAD = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
FULL = """
jobs:
- namespaces: {matchLabels: {tier: gold}}
  selector: {matchExpressions: [{key: queue, operator: NotIn, values: [free]}]}
  growth: {cpu: WithinQuota, nvidia.com/gpu: Deny, "*": Allow}
  shrink: Warn
  claims: Allow
  templateMetadata: Warn
  resizers: {users: [alice], groups: [admins], serviceAccounts: [queue/manager]}
  podReplacementPolicy: Deny
  terminating: Deny
  neverFits: Warn
  unsuspend: Deny
- {}
"""


def rules(body: str) -> tuple[JobRule, ...]:
    return compile_policy(load_configuration(HEAD + body, "config.yaml")).jobs


def test_everything_can_be_said_of_a_rule() -> None:
    rule, empty = rules(FULL)
    assert rule.namespaces.matches({"tier": "gold"})
    assert not rule.namespaces.matches({})
    assert rule.jobs.matches({"queue": "x"})
    assert not rule.jobs.matches({"queue": "free"})
    growth = [rule.growth_of(name) for name in ("cpu", "nvidia.com/gpu", "memory")]
    assert growth == [Growth.WITHIN_QUOTA, Growth.DENY, Growth.ALLOW]
    assert rule.shrink_of("memory") is Verdict.WARN
    assert (rule.claims, rule.template_metadata) == (Verdict.ALLOW, Verdict.WARN)
    assert rule.resizers == Users(
        frozenset({"alice"}), frozenset({"admins"}), frozenset({"queue/manager"})
    )
    assert (rule.replacement, rule.terminating) == (Verdict.DENY, Verdict.DENY)
    assert (rule.never_fits, rule.unsuspend) == (Verdict.WARN, Verdict.DENY)
    assert empty == JobRule()


def test_the_file_and_the_core_have_the_same_defaults() -> None:
    assert rules("jobs: [{}]") == (JobRule(),)
    assert load_configuration(f"{HEAD}jobs: [{{}}]", "c").jobs == (JobRuleSettings(),)


def test_without_the_section_there_are_no_rules() -> None:
    assert rules("") == rules("jobs: []") == ()


WRONG = {
    "unknown field": ("jobs: [{grow: Deny}]", "jobs[0].grow"),
    "no list": ("jobs: {growth: Deny}", "jobs"),
    "unknown word": ("jobs: [{growth: Never}]", "jobs[0].growth"),
    "unknown word of a resource": ("jobs: [{growth: {cpu: Never}}]", "jobs[0].growth[cpu]"),
    "a word that is another's": ("jobs: [{shrink: WithinQuota}]", "jobs[0].shrink"),
    "account": (
        "jobs: [{resizers: {serviceAccounts: [manager]}}]",
        "jobs[0].resizers.serviceAccounts[0]",
    ),
    "selector": ("jobs: [{selector: {labels: {}}}]", "jobs[0].selector.labels"),
    "label": (
        "jobs: [{selector: {matchLabels: {a: 1}}}]",
        "jobs[0].selector.matchLabels[a]",
    ),
    "expression without operator": (
        "jobs: [{namespaces: {matchExpressions: [{key: a}]}}]",
        "jobs[0].namespaces.matchExpressions[0].operator",
    ),
}


@pytest.mark.parametrize(("body", "field"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_rule_is_refused_with_its_path(body: str, field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        rules(body)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("{key: a, operator: Like}", "operator"),
        ("{key: a, operator: In}", "values"),
        ("{key: a, operator: Exists, values: [b]}", "values"),
    ],
)
def test_an_operator_that_is_not_known_is_an_error_at_start(expression: str, field: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        rules(f"jobs: [{{}}, {{selector: {{matchExpressions: [{expression}]}}}}]")
    assert caught.value.field == f"jobs[1].selector.matchExpressions[0].{field}"


@pytest.mark.parametrize("found", [ALL_GATES, frozenset()])
def test_gates_are_as_found_where_nothing_else_is_said(found: frozenset[str]) -> None:
    def enabled(body: str) -> frozenset[str]:
        configuration = load_configuration(HEAD + body, "config.yaml")
        return compile_policy(configuration, detected_gates=found).job_gates

    assert enabled("") == found
    for gate in JobGate:
        assert enabled(f"jobGates: {{{gate}: Auto}}") == found
        assert enabled(f"jobGates: {{{gate}: true}}") == found | {gate}
        assert enabled(f"jobGates: {{{gate}: false}}") == found - {gate}
