"""What decides about new pods: policies, the webhook, or both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.operations.healthy import (
    POLICIES,
    POLICY_BINDINGS,
    a_bundle,
    a_pod_gating,
    edit,
    examined,
    healthy,
    ids,
    refusing,
    remove,
    serious,
    the,
)
from tests.operations.scenes import a_namespace, load
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.install import render
from webhook.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, ForbiddenError
from webhook.operations.creation import GATE_POLICY, MUST_SPECIFY_POLICIES, CreationRules
from webhook.operations.names import VALIDATING_BINDINGS, VALIDATING_POLICIES
from webhook.policy import Policy
from webhook.quota.objects.model import ScopeExpression
from webhook.state.well_known import BIND_ENTRY

IN_CLASS = Policy(priority_coverage=(ScopeExpression("PriorityClass", "Exists"),))


def deciding(rules: CreationRules | None = None) -> FakeCluster:
    """A cluster without a fault, in which policies decide about new pods."""
    cluster = both(rules)
    parts = render(creation=rules or CreationRules())
    for wanted in cast("Any", parts.registrations):
        kind = MUTATING_WEBHOOKS if wanted["kind"].startswith("Mutating") else VALIDATING_WEBHOOKS
        for entry in wanted["webhooks"]:
            entry["clientConfig"]["caBundle"] = a_bundle()
        if wanted["metadata"]["name"] == "deferred-quota":
            edit(cluster, kind, "deferred-quota", with_entries(wanted["webhooks"]))
    return cluster


def with_entries(entries: list[Any]) -> Any:
    def change(raw: Any) -> None:
        raw["webhooks"] = entries

    return change


def both(rules: CreationRules | None = None) -> FakeCluster:
    """A cluster in which policies decide beside the webhook."""
    cluster = healthy()
    load(cluster, *cast("Any", render(creation=rules or CreationRules()).creation))
    return cluster


def test_policies_in_the_place_of_entries_are_right() -> None:
    assert serious(examined(deciding())) == []
    assert "creation.twice" not in ids(examined(deciding()))


def test_entries_in_the_place_of_policies_are_right() -> None:
    assert not [one for one in ids(examined(healthy())) if one.startswith("creation.")]


def test_both_together_do_no_harm_and_are_named() -> None:
    found = examined(both())
    assert serious(found) == []
    twice = the(found, "creation.twice")
    assert "gate.deferredquota.io, shape.deferredquota.io" in twice.message


def test_entries_that_rules_about_classes_need_are_missed() -> None:
    rules = CreationRules(policy=IN_CLASS)
    assert serious(examined(deciding(rules), creation=rules)) == []
    cluster = deciding(rules)
    edit(cluster, VALIDATING_WEBHOOKS, "deferred-quota", drop("ungated.deferredquota.io"))
    assert "webhooks.incomplete" in ids(examined(cluster, creation=rules))


def test_a_condition_that_leaves_nothing_out_is_right() -> None:
    """The chart writes it where it cannot write the rules."""
    rules = CreationRules(policy=IN_CLASS)

    def widen(raw: Any) -> None:
        (entry,) = (one for one in raw["webhooks"] if one["name"] == "ungated.deferredquota.io")
        entry["matchConditions"][-1]["expression"] = "true"

    cluster = deciding(rules)
    edit(cluster, VALIDATING_WEBHOOKS, "deferred-quota", widen)
    assert serious(examined(cluster, creation=rules)) == []


def drop(name: str) -> Any:
    def change(raw: Any) -> None:
        raw["webhooks"] = [one for one in raw["webhooks"] if one["name"] != name]

    return change


def edited(spec: Any) -> None:
    spec["spec"]["variables"][0]["expression"] = "'never'"


def test_an_edited_policy_is_named_with_the_field() -> None:
    cluster = deciding()
    edit(cluster, POLICIES, GATE_POLICY, edited)
    found = the(examined(cluster), "creation.edited")
    assert found.severity == "warn"
    assert found.message.endswith("was changed: spec.variables[0].expression")
    assert found.remedy.endswith(f"kubectl edit mutatingadmissionpolicy {GATE_POLICY}")


def test_what_was_added_to_a_policy_is_named_with_the_field() -> None:
    def add(raw: Any) -> None:
        raw["spec"]["matchConstraints"]["excludeResourceRules"] = [{"operations": ["*"]}]
        raw["spec"]["matchConstraints"]["resourceRules"][0]["resourceNames"] = ["a"]

    cluster = deciding()
    edit(cluster, POLICIES, GATE_POLICY, add)
    message = the(examined(cluster), "creation.edited").message
    assert "spec.matchConstraints.excludeResourceRules" in message
    assert "spec.matchConstraints.resourceRules[0].resourceNames" in message


def test_what_another_configuration_says_is_named() -> None:
    found = examined(deciding(), creation=CreationRules(gating="never")).findings
    messages = [one.message for one in found if one.id == "creation.edited"]
    assert any("spec.variables[0].expression" in each for each in messages)


def test_a_binding_that_selects_other_namespaces_is_named() -> None:
    cluster = deciding()
    edit(
        cluster,
        VALIDATING_BINDINGS,
        MUST_SPECIFY_POLICIES[0],
        lambda raw: raw["spec"]["matchResources"]["namespaceSelector"].update(
            matchExpressions=[{"key": "team", "operator": "Exists"}]
        ),
    )
    found = the(examined(cluster), "creation.edited")
    assert "spec.matchResources.namespaceSelector.matchExpressions" in found.message


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (VALIDATING_POLICIES, MUST_SPECIFY_POLICIES[0]),
        (VALIDATING_BINDINGS, MUST_SPECIFY_POLICIES[1]),
    ],
)
def test_a_policy_that_is_not_there_is_missed(kind: Any, name: str) -> None:
    cluster = deciding()
    remove(cluster, kind, name)
    found = the(examined(cluster), "creation.missing")
    assert found.message.endswith("pods that can never be bound are created")


def test_without_the_binding_of_the_gate_the_entries_are_missed() -> None:
    cluster = deciding()
    remove(cluster, POLICY_BINDINGS, GATE_POLICY)
    found = ids(examined(cluster))
    assert "creation.missing" in found
    assert "webhooks.incomplete" in found


def test_of_a_snapshot_without_policies_it_is_not_known_what_they_do() -> None:
    cluster = deciding()
    for kind in (POLICIES, POLICY_BINDINGS, VALIDATING_POLICIES, VALIDATING_BINDINGS):
        for raw in FakeClient(cluster).list(kind).items:
            remove(cluster, kind, cast("Any", raw)["metadata"]["name"])
    found = examined(cluster, lambda: None, is_offline=True)
    assert serious(found) == []
    why = "the snapshot has no mutatingadmissionpolicies.admissionregistration.k8s.io"
    assert (found.skipped["mask"], found.skipped["creation"]) == (why, why)


def test_a_policy_that_the_configuration_does_not_want_is_named() -> None:
    rules = CreationRules(policy=Policy(must_specify=cast("Any", "bind")))
    found = examined(deciding(), creation=rules)
    assert ids(found).count("creation.superfluous") == 4


def test_a_namespace_of_which_no_policy_knows_how_to_gate_is_named() -> None:
    cluster = deciding()
    labels = {"deferredquota.io/mode": "deferred"}
    made: Any = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "by-need"}}
    made["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": "by-need"}
    load(cluster, made)
    assert "by-need" in the(examined(cluster), "creation.ungated").message
    load(cluster, a_pod_gating("by-need"))
    assert "creation.ungated" not in ids(examined(cluster))


def test_of_many_namespaces_that_no_policy_gates_the_first_are_named() -> None:
    cluster = deciding()
    for name in "bcdefgh":
        load(cluster, a_namespace(f"team-{name}"))
    message = the(examined(cluster), "creation.ungated").message
    assert message.startswith("7 opted-in namespaces")
    assert message.endswith(": team-b, team-c, team-d, team-e, team-f and 2 more")


def test_a_fault_that_the_api_server_finds_is_reported() -> None:
    cluster = deciding()
    wrong = {"fieldRef": "spec.validations[0].expression", "warning": "no such overload"}
    edit(
        cluster,
        VALIDATING_POLICIES,
        MUST_SPECIFY_POLICIES[0],
        lambda raw: raw.update(status={"typeChecking": {"expressionWarnings": [wrong]}}),
    )
    assert "no such overload" in the(examined(cluster), "creation.types").message


@pytest.mark.parametrize("make", [healthy, deciding])
def test_registrations_are_compared_although_policies_may_not_be_listed(
    make: Callable[[], FakeCluster],
) -> None:
    cluster = make()
    api = refusing(cluster, ForbiddenError("no"), POLICIES, POLICY_BINDINGS)
    found = examined(api)
    assert {one.id for one in serious(found)} == {"check.forbidden"}
    denied = [one.message for one in found.findings if one.id == "check.forbidden"]
    assert any(one.startswith("the webhook configurations: not all looked at:") for one in denied)
    edit(cluster, VALIDATING_WEBHOOKS, "deferred-quota", drop(BIND_ENTRY))
    assert "webhooks.incomplete" in ids(examined(api))
