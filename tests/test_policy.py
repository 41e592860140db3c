"""The rules that the handlers decide by: what an empty configuration means, and what is refused."""

from __future__ import annotations

import pytest

from webhook.config import Configuration, JobFeatureGates, MirrorPods, MustSpecify, TerminatingPods
from webhook.config.settings import Timeouts
from webhook.jsonfields.fields import InvalidFieldError
from webhook.policy import Policy, check_configuration, compile_policy
from webhook.quota.objects.model import ScopeExpression
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.well_known import DEFAULT_NAMESPACE

GOLD = {"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}


def test_an_empty_configuration_means_the_default_rules() -> None:
    assert compile_policy(Configuration()) == Policy()


def test_every_setting_becomes_a_rule() -> None:
    configuration = Configuration(
        deferred_resources=("requests.nvidia.com/gpu",),
        must_specify=MustSpecify.BIND,
        mirror_pods=MirrorPods.ENFORCE,
        terminating_pods=TerminatingPods.HOLD,
        limited_resources=({"resource": "pods", "matchContains": ["cpu"]},),
        require_quota_for_priority=(GOLD,),
        exempt_namespaces=frozenset({"infra"}),
        timeouts=Timeouts(ledger_seconds=7),
        job_gates=JobFeatureGates(mutable_pod_resources=False),
    )
    rules = compile_policy(configuration)
    assert rules.deferred_keys == DEFERRED_KEYS | {"requests.nvidia.com/gpu"}
    assert (rules.must_specify, rules.enforces_mirror_pods) == (MustSpecify.BIND, True)
    assert rules.holds_terminating
    assert not compile_policy(Configuration()).holds_terminating
    assert rules.limited_resources[0].match_contains == ("cpu",)
    assert rules.priority_coverage == (ScopeExpression("PriorityClass", "In", ("gold",)),)
    assert rules.exempt_namespaces == {"infra", DEFAULT_NAMESPACE}
    assert rules.ledger_seconds == pytest.approx(7)
    assert rules.job_gates == {"MutableSchedulingDirectivesForSuspendedJobs"}


WRONG = {
    "a native key": (
        Configuration(deferred_resources=("requests.a.com/b", "pods")),
        "deferredResources[1]",
    ),
    "a bare resource": (
        Configuration(deferred_resources=("nvidia.com/gpu",)),
        "deferredResources[0]",
    ),
    "a native domain": (
        Configuration(deferred_resources=("requests.kubernetes.io/x",)),
        "deferredResources[0]",
    ),
    "a device class": (
        Configuration(
            deferred_resources=("requests.deviceclass.resource.kubernetes.io/fast",),
        ),
        "deferredResources[0]",
    ),
    "an operator that is none": (
        Configuration(
            limited_resources=(
                {"resource": "pods"},
                {"resource": "pods", "matchScopes": [{**GOLD, "operator": "in"}]},
            )
        ),
        "limitedResources[1].matchScopes[0].operator",
    ),
    "a value that no label can have": (
        Configuration(require_quota_for_priority=({**GOLD, "values": ["bad value!"]},)),
        "requireQuotaForPriority[0].values[0]",
    ),
    "a scope that is none": (
        Configuration(require_quota_for_priority=({**GOLD, "scopeName": "Golden"},)),
        "requireQuotaForPriority[0].scopeName",
    ),
}


@pytest.mark.parametrize(("configuration", "field"), WRONG.values(), ids=WRONG.keys())
def test_a_rule_that_cannot_be_evaluated_is_refused_at_the_start(
    configuration: Configuration, field: str
) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        check_configuration(configuration)
    assert caught.value.field == field
