"""What the policy of our service accounts knows by its text is worded as the code words it."""

from __future__ import annotations

import re

import pytest

from tests.admission.handlers.harness import a_namespace, new_cluster
from tests.builders import a_pod, a_quota
from tests.controllers.controller_harness import ControllerHarness
from tests.controllers.requeue.requeue_harness import RequeueHarness
from tests.install.manifests import the_one
from webhook.controllers.requeue.requeue_client import REQUEUED_ANNOTATION
from webhook.kube.api import NAMESPACES, RESOURCE_QUOTAS
from webhook.quota.charging.denials import InsufficientQuota, MustSpecify, UncoveredScopes
from webhook.quota.objects.model import ScopeExpression
from webhook.quota.objects.scheduler_messages import exceeded_text, is_denied_by_quota
from webhook.quota.queue.pod_conditions import RESERVED, untried_by, untried_condition

SPEC = the_one("ValidatingAdmissionPolicy", "deferred-quota-service-accounts")["spec"]
VARIABLES: dict[str, str] = {each["name"]: each["expression"] for each in SPEC["variables"]}
DENIALS = {
    "no room": exceeded_text(quota="cdq/p1", requested="cpu=1", used="cpu=2", limited="cpu=2"),
    "a resource is not named": MustSpecify("p1", {"requests.cpu": ("main",)}).message,
    "no quota covers it": InsufficientQuota(("requests.cpu",)).message,
    "no quota covers its scope": UncoveredScopes(
        (ScopeExpression("PriorityClass", "In", ("gold",)),)
    ).message,
}


def literals(expression: str) -> list[str]:
    return re.findall("'([^']*)'", expression)


def pattern(expression: str) -> re.Pattern[str]:
    (text,) = re.findall(r"matches\('([^']*)'\)", expression)
    return re.compile(text)


@pytest.mark.parametrize("denial", DENIALS.values(), ids=DENIALS.keys())
def test_a_pod_that_the_requeuer_touches_is_turned_down_for_the_policy_too(denial: str) -> None:
    message = f"0/3 nodes are available: 1 Insufficient cpu, 2 {denial}."
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    assert is_denied_by_quota(a_pod(status={"conditions": [condition]}))
    assert {condition["type"], condition["reason"]} < {*literals(VARIABLES["isTurnedDown"])}
    assert pattern(VARIABLES["isTurnedDown"]).search(message)


@pytest.mark.parametrize("name", ["default-scheduler", "x" * 253, "x" * 254, "a\x1b[2J", "ä"])
def test_that_quota_is_reserved_is_said_in_the_sentences_that_the_policy_takes(name: str) -> None:
    assert literals(VARIABLES["reserved"]) == [RESERVED.text]
    untried, odd, unprinted, dots = literals(VARIABLES["untried"])
    (most,) = {int(one) for one in re.findall(r"(?:<=|0,) (\d+)", VARIABLES["untried"])}
    written = name if len(name) <= most else name[:most] + dots
    written = unprinted if re.search(odd, name) else written
    assert untried_condition(untried_by(a_pod(schedulerName=name))).text == (
        f"{RESERVED.text}{untried}{written}"
    )
    (rule,) = [one for one in SPEC["validations"] if "in two sentences" in one["message"]]
    assert {RESERVED.status, RESERVED.reason} < {*literals(rule["expression"])}


def test_a_requeued_pod_gets_a_time_as_the_policy_takes_it() -> None:
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace()), (RESOURCE_QUOTAS, a_quota("p1"))])
    harness = ControllerHarness(cluster)
    requeuing = RequeueHarness(harness)
    harness.start()
    try:
        requeuing.reject_pod("web")
        assert requeuing.reconcile() == ["web"]
    finally:
        harness.stop()
    (rule,) = [one for one in SPEC["validations"] if "annotation but" in one["message"]]
    assert REQUEUED_ANNOTATION in literals(rule["expression"])
    assert pattern(rule["expression"]).search(requeuing.annotation("web"))
