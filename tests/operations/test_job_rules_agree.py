"""What is refused before a Job is suspended is what the webhook refuses when it is suspended."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.admission.handlers.harness import AdmissionHarness, a_review, admission_harness
from tests.builders import a_quota
from tests.operations.jobs import STARTED, World, wanted
from tests.operations.scenes import NAMESPACE, load
from webhook.admission.review import Phase
from webhook.config import load_configuration
from webhook.operations.jobs.planning import Order, ResizeRefusedError, plan_resize
from webhook.operations.jobs.rules import ClusterRules
from webhook.policy import compile_policy
from webhook.quota.jobs.resize_plan import with_changes

HEAD = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "Configuration"}
RULES: Mapping[str, dict[str, Any]] = {
    "none": {},
    "no growth": {"growth": {"cpu": "Deny"}},
    "growth within the quota": {"growth": {"*": "WithinQuota"}},
    "no shrinking": {"shrink": {"*": "Deny"}},
    "memory only": {"growth": {"memory": "Deny"}, "shrink": {"memory": "Deny"}},
    "replacement": {"podReplacementPolicy": "Deny"},
    "all at a time": {"unsuspend": "Deny"},
    "of others": {"selector": {"matchLabels": {"app": "other"}}, "shrink": {"*": "Deny"}},
}
SIZES = ({"cpu": "1"}, {"cpu": "3", "memory": "1Gi"}, {"cpu": "5"}, {"cpu": "9"})
QUOTAS = ("", "5", "12", "14", "100")


def is_refused_before(
    rules: ClusterRules, world: World, size: Mapping[str, str], stays: bool
) -> bool:
    order = Order(NAMESPACE, "train", {"main": wanted(size)}, stays, rules)
    try:
        plan_resize(world.api, order)
    except ResizeRefusedError:
        return True
    return False


def is_refused_after(
    harness: AdmissionHarness, world: World, size: Mapping[str, str], stays: bool
) -> bool:
    plan = plan_resize(world.api, Order(NAMESPACE, "train", {"main": wanted(size)}, stays))
    condition = {"type": "Suspended", "status": "True"}
    status = {"startTime": STARTED, "conditions": [condition]}
    old: dict[str, Any] = {**world.job, "status": status}
    old["spec"] = {**old["spec"], "suspend": True}
    new: dict[str, Any] = dict(with_changes(old, plan.changes))
    new["spec"] = {**new["spec"], "suspend": stays}
    review = a_review("UPDATE", "jobs", new, old=old, group="batch")
    return not harness.post(review, Phase.VALIDATING).allowed


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_both_refuse_the_same(tmp_path: Path, rule: dict[str, Any]) -> None:
    configuration = {**HEAD, "jobs": [rule]}
    found = compile_policy(load_configuration(json.dumps(configuration), "config.yaml"))
    rules = ClusterRules(found.jobs, found.exempt_namespaces)
    verdicts = set()
    policies = ("Failed", "TerminatingOrFailed")
    for cpu, policy in itertools.product(QUOTAS, policies):
        quotas = [a_quota("p1", hard={"requests.cpu": cpu})] if cpu else []
        directory = tmp_path / f"{cpu}-{policy}"
        directory.mkdir()
        with admission_harness(
            *quotas, directory=directory, settings={"jobs": [rule]}, with_controller=False
        ) as harness:
            for size, stays in itertools.product(SIZES, (False, True)):
                world = World(podReplacementPolicy=policy)
                before = World(podReplacementPolicy=policy)
                load(before.cluster, *quotas)
                told = is_refused_before(rules, before, size, stays)
                case = (cpu, policy, size, stays)
                assert told == is_refused_after(harness, world, size, stays), case
                verdicts.add(told)
    assert verdicts == {True, False}
