"""Which policies a configuration makes, and which entries of the webhook stay beside them."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from webhook.config import MustSpecify, load_configuration
from webhook.install import render
from webhook.jsonfields.reader import FieldReader
from webhook.operations.creation import (
    AUTO_GATE_POLICY,
    GATE_POLICY,
    MUST_SPECIFY_POLICIES,
    CreationRules,
    creation_objects,
)
from webhook.operations.creation.cel import SCOPES, matches_any
from webhook.policy import Policy
from webhook.quota.charging.constraints import MUST_SPECIFY_KEYS
from webhook.quota.charging.limited_resources import LimitedResource
from webhook.quota.charging.scope_validation import SCOPES as ALL_SCOPES
from webhook.quota.objects.model import ScopeExpression
from webhook.state.webhook_selectors import WebhookSelector

GOLD = ScopeExpression("PriorityClass", "In", ("gold",))


def made(**rules: Any) -> dict[str, Any]:
    return {each["kind"] + " " + each["metadata"]["name"]: each for each in objects(**rules)}


def objects(**rules: Any) -> list[Any]:
    return [cast("Any", each) for each in creation_objects(CreationRules(**rules))]


def entries(rules: CreationRules, gating: str = "always") -> dict[str, Any]:
    rendered = render(creation=rules, gating=gating)
    return {
        entry["name"].partition(".")[0]: entry
        for each in cast("Any", rendered.registrations)
        for entry in each["webhooks"]
        if each["metadata"]["name"] == "deferred-quota"
    }


def variables(policy: Any) -> dict[str, str]:
    return {each["name"]: each["expression"] for each in policy["spec"]["variables"]}


def test_a_policy_never_stands_without_its_binding() -> None:
    kinds = [each["kind"].removesuffix("Binding") for each in objects()]
    names = [each["metadata"]["name"] for each in objects()]
    assert names[::2] == names[1::2] == [GATE_POLICY, AUTO_GATE_POLICY, *MUST_SPECIFY_POLICIES]
    assert kinds[::2] == kinds[1::2]
    assert all(each["kind"].endswith("Binding") for each in objects()[::2])


def test_every_key_that_obliges_containers_is_named() -> None:
    for name in MUST_SPECIFY_POLICIES:
        policy = made()[f"ValidatingAdmissionPolicy {name}"]
        missing = variables(policy)["missing"]
        assert all(f"'{key}'" in missing for key in MUST_SPECIFY_KEYS)


def test_every_scope_of_pods_is_known_to_policies() -> None:
    assert set(ALL_SCOPES) - set(SCOPES) == {"VolumeAttributesClass"}  # it is about no pod


def test_all_quotas_that_may_oblige_are_parameters_and_none_is_no_refusal() -> None:
    """For each parameter the API server copies the pod: those of elastic quotas oblige none."""
    no_elastic = [{"key": "deferredquota.io/elastic", "operator": "DoesNotExist"}]
    selectors: list[object] = [{}, {"matchExpressions": no_elastic}]
    for policy, selector in zip(MUST_SPECIFY_POLICIES, selectors, strict=True):
        binding = made()[f"ValidatingAdmissionPolicyBinding {policy}"]
        wanted = {"selector": selector, "parameterNotFoundAction": "Allow"}
        assert binding["spec"]["paramRef"] == wanted


@pytest.mark.parametrize("when", [MustSpecify.BIND, MustSpecify.OFF])
def test_what_is_not_asked_when_pods_are_created_needs_no_policy(when: MustSpecify) -> None:
    found = {each.partition(" ")[2] for each in made(policy=Policy(must_specify=when))}
    assert found.isdisjoint(MUST_SPECIFY_POLICIES)
    # where a bind may refuse silent pods, the webhook gates in namespaces whose gating is `auto`
    assert (AUTO_GATE_POLICY in found) is (when is MustSpecify.OFF)


RULES: dict[str, tuple[Policy, str]] = {
    "the default": (Policy(), "false"),
    "silent pods are refused at their bind": (Policy(must_specify=MustSpecify.BIND), "true"),
    "silent pods are never refused": (Policy(must_specify=MustSpecify.OFF), "false"),
    "a class needs a quota": (Policy(priority_coverage=(GOLD,)), "true"),
}


@pytest.mark.parametrize(("policy", "gates_all"), RULES.values(), ids=RULES.keys())
def test_a_pod_that_takes_nothing_is_gated_where_its_bind_may_be_refused(
    policy: Policy, gates_all: str
) -> None:
    gate = made(policy=policy)[f"MutatingAdmissionPolicy {GATE_POLICY}"]
    assert variables(gate)["gatesAll"] == gates_all


def test_no_value_of_a_patch_is_a_typed_object() -> None:
    assert not re.search(r"\bObject\.", str(made()[f"MutatingAdmissionPolicy {GATE_POLICY}"]))


@pytest.mark.parametrize("gating", ["always", "auto", "never"])
@pytest.mark.parametrize("label", ["always", "auto", "never", ""])
def test_the_handler_that_gates_by_need_is_called_for_namespaces_that_want_it(
    gating: str, label: str
) -> None:
    labels = {"deferredquota.io/mode": "deferred", "kubernetes.io/metadata.name": "a"}
    labels |= {"deferredquota.io/gating": label} if label else {}
    is_auto = (label or gating) == "auto"
    strict = CreationRules(gating=gating, policy=Policy(must_specify=MustSpecify.BIND))
    assert selects(entries(strict, gating)["gate"], labels) == is_auto
    rules = CreationRules(gating=gating)
    assert "gate" not in entries(rules, gating)
    found = {each["metadata"]["name"]: each["spec"] for each in objects(gating=gating)[::2]}
    assert selects(found[AUTO_GATE_POLICY]["matchResources"], labels) == is_auto
    assert selects(found[GATE_POLICY]["matchResources"], labels) != is_auto


def selects(holder: Any, labels: dict[str, str]) -> bool:
    selector = WebhookSelector.read(FieldReader(holder).child("namespaceSelector"))
    return selector.matches(labels)


def test_what_gates_by_need_goes_by_the_one_object_of_the_namespace() -> None:
    found = made()
    policy = found[f"MutatingAdmissionPolicy {AUTO_GATE_POLICY}"]
    assert policy["spec"]["paramKind"]["kind"] == "PodGating"
    binding = found[f"MutatingAdmissionPolicyBinding {AUTO_GATE_POLICY}"]
    wanted = {"name": "gating", "parameterNotFoundAction": "Allow"}
    assert binding["spec"]["paramRef"] == wanted


def test_nothing_else_is_asked_of_the_webhook_about_new_pods() -> None:
    new_pods = [
        name
        for name, entry in entries(CreationRules()).items()
        if any(
            "CREATE" in rule["operations"] and rule["resources"] == ["pods"]
            for rule in entry["rules"]
        )
    ]
    assert new_pods == ["assigned", "shadow"]


def test_rules_that_want_some_quota_stay_with_the_webhook_for_the_pods_they_are_about() -> None:
    entry = entries(CreationRules(policy=Policy(priority_coverage=(GOLD,))))["ungated"]
    conditions = {each["name"]: each["expression"] for each in entry["matchConditions"]}
    assert set(conditions) == {"has-no-node", "may-need-a-quota"}
    assert "['gold']" in conditions["may-need-a-quota"]
    terms = [each["key"] for each in entry["namespaceSelector"]["matchExpressions"]]
    assert "deferredquota.io/gating" not in terms


def test_rules_about_resources_are_asked_of_the_webhook_for_all_pods() -> None:
    limited = LimitedResource.from_object({"resource": "pods", "matchContains": ["pods"]})
    entry = entries(CreationRules(policy=Policy(limited_resources=(limited,))))["ungated"]
    assert entry["matchConditions"][-1]["expression"] == "true"


EXPRESSIONS = {
    "In": "in ['a', 'b']",
    "NotIn": "!(",
    "Exists": "!= ''",
    "DoesNotExist": "== ''",
}


@pytest.mark.parametrize(("operator", "text"), EXPRESSIONS.items())
def test_expressions_of_classes_become_conditions(operator: str, text: str) -> None:
    values = ("b", "", "a") if operator.endswith("In") else ()
    assert text in matches_any([ScopeExpression("PriorityClass", operator, values)])


def test_no_class_is_in_no_list_of_classes() -> None:
    assert matches_any([ScopeExpression("PriorityClass", "In", ("",))]).endswith("in [])")


def test_the_rules_are_those_of_the_configuration() -> None:
    text = (
        "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\ngating: auto\n"
        "mustSpecify: bind\ntrustedUsers: [jane]\nbreakGlassGroups: [ops]\n"
        "requireQuotaForPriority:\n- {scopeName: PriorityClass, operator: Exists}\n"
    )
    rules = CreationRules.of(load_configuration(text, "here"))
    gate = made(
        gating=rules.gating,
        policy=rules.policy,
        trusted_users=rules.trusted_users,
        break_glass_groups=rules.break_glass_groups,
    )[f"MutatingAdmissionPolicy {GATE_POLICY}"]
    assert list(variables(gate).items())[:4] == [
        ("gating", "'auto'"),
        ("gatesAll", "true"),
        ("trusted", "['jane']"),
        ("glassBreakers", "['ops']"),
    ]
    assert rules.needs_quotas


@pytest.mark.parametrize("gating", ["always", "never"])
def test_policies_stand_in_the_way_of_no_namespace_that_has_not_opted_in(gating: str) -> None:
    rendered = render(
        namespace="quota-system",
        exempt_namespaces=["legacy"],
        gating=gating,
        creation=CreationRules(gating=gating),
    )
    for each in cast("Any", rendered.creation[::2]):
        if each["metadata"]["name"] in {GATE_POLICY, AUTO_GATE_POLICY}:
            gates = each["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"].pop()
            assert gates["key"] == "deferredquota.io/gating"
        terms = each["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        shipped = ["kube-system", "kube-public", "kube-node-lease", "quota-system", "legacy"]
        assert terms == [
            {"key": "deferredquota.io/mode", "operator": "In", "values": ["deferred"]},
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": shipped},
        ]


def test_containers_are_looked_at_for_those_quotas_only_that_concern_the_pod() -> None:
    """Conditions are evaluated for every quota, all of them, and variables where one is needed."""
    for name in MUST_SPECIFY_POLICIES:
        spec = made()[f"ValidatingAdmissionPolicy {name}"]["spec"]
        conditions = {each["name"]: each["expression"] for each in spec["matchConditions"]}
        assert not [one for one in conditions.values() if "exists" in one or "all(" in one]
        assert "containers.size()" in conditions["has-few-containers"]
        (validation,) = spec["validations"]
        assert validation["expression"].startswith("!variables.isConcerned || ")
