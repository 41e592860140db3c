"""What the API server is told to ask: the same as the embedded one, and nothing a cluster needs."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Final, Literal, cast

import pytest

from tests.admission.reviews import a_request
from tests.builders import a_binding, a_pod
from tests.install.manifests import MASKS, SYSTEM, Manifest, entries, everything, of_kind
from tests.kube.builders import a_write
from webhook.admission.handlers.dispatch import ROUTES, fails_closed
from webhook.admission.review import Phase
from webhook.config import Configuration
from webhook.fakecluster.admission import webhook_configurations
from webhook.fakecluster.admission.chain import Webhook
from webhook.install import render
from webhook.install.rendering import Mask
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import JOBS, PODS
from webhook.kube.selectors import parse_labels
from webhook.operations import names
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import (
    CAPACITY_LABEL,
    DEFAULT_NAMESPACE,
    LAST_REGISTRATION,
    MANAGED_PREFIX,
    SCHEDULING_GATE,
    SHADOW_ENTRY,
    UNEVALUATED,
    UNEVALUATED_LABEL,
    controller_user,
)
from webhook.telemetry.metrics import HANDLERS

HOOKS: Final = webhook_configurations.webhooks("https://here")
BY_GATING: Final = {"gate.deferredquota.io", "ungated.deferredquota.io"}
CONDITIONS: Final = {
    "jobs.deferredquota.io": "changes-the-spec",
    "assigned.deferredquota.io": "has-node",
    "marks.deferredquota.io": "touches-our-marks",
    "shape.deferredquota.io": "has-no-node",
    "ungated.deferredquota.io": "has-no-node",
}


@pytest.mark.parametrize("phase", ["mutating", "validating"])
def test_the_registrations_are_those_of_the_embedded_api_server(phase: str) -> None:
    wanted = {hook.name: registered(hook) for hook in HOOKS if hook.phase == phase}
    found = entries("webhook", phase.capitalize())
    assert {name: summarized(entry) for name, entry in found.items()} == wanted


@pytest.mark.parametrize("phase", [Phase.MUTATING, Phase.VALIDATING])
def test_what_is_registered_is_handled_and_nothing_else(phase: Phase) -> None:
    registered = {
        (group, resource, operation)
        for name, entry in entries("webhook", phase.value.capitalize()).items()
        if name != SHADOW_ENTRY
        for rule in entry["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }
    assert registered == {key[1:] for key in ROUTES if key[0] is phase}


SPECS: dict[str, tuple[Manifest, set[tuple[str, str]]]] = {
    "without node": ({}, {("pods", "has-node"), ("pods", "may-charge")}),
    "with a node": ({"nodeName": "n"}, {("pods", "has-no-node"), ("pods", "may-charge")}),
    "with a deadline": ({"activeDeadlineSeconds": 5}, {("pods", "has-node")}),
    "of another size": ({"containers": [{"resources": {"requests": {}}}]}, {("pods", "has-node")}),
}
"""Spec of a pod that had none before; conditions of registrations that it does not meet."""


@pytest.mark.parametrize(("spec", "unmet"), SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("phase", [Phase.MUTATING, Phase.VALIDATING])
def test_routes_know_which_registrations_fail_without_an_answer(
    phase: Phase, spec: Manifest, unmet: set[tuple[str, str]]
) -> None:
    policies: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for name, entry in entries("webhook", phase.value.capitalize()).items():
        conditions = [one["name"] for one in entry.get("matchConditions", ())]
        for rule in entry["rules"] if name != SHADOW_ENTRY else ():
            for key in product(rule["apiGroups"], rule["resources"], rule["operations"]):
                if not unmet & {(key[1], condition) for condition in conditions}:
                    policies[key].add(entry["failurePolicy"])
    assert policies
    for (group, path, operation), found in policies.items():
        resource, _, subresource = path.partition("/")
        request = a_request(
            {
                "resource": {"group": group, "version": "v1", "resource": resource},
                "subResource": subresource,
                "operation": operation,
                "object": {"spec": spec},
                "oldObject": {} if operation == "UPDATE" else None,
            },
            phase=phase,
        )
        assert fails_closed(request) is ("Fail" in found), (path, operation)


def test_every_route_has_its_name_in_the_metrics() -> None:
    assert {route.name for route in ROUTES.values()} <= HANDLERS


def registered(hook: Webhook) -> dict[str, Any]:
    return {
        "policy": hook.failure_policy,
        "timeout": hook.timeout_seconds,
        "side_effects": hook.side_effects,
        "path": hook.url.removeprefix("https://here"),
        "rules": [(rule.operations, rule.resources, rule.groups) for rule in hook.rules],
        "opted_in": hook.namespace_selector,
        "objects": hook.object_selector,
        "reinvocation": hook.reinvocation,
    }


def summarized(entry: Manifest) -> dict[str, Any]:
    return {
        "policy": entry["failurePolicy"],
        "timeout": entry["timeoutSeconds"],
        "side_effects": entry["sideEffects"],
        "path": entry["clientConfig"]["service"]["path"],
        "rules": [
            tuple(frozenset(rule[key]) for key in ("operations", "resources", "apiGroups"))
            for rule in entry["rules"]
        ],
        "opted_in": ",".join(requirements(entry)),
        "objects": ",".join(written(entry["objectSelector"]["matchExpressions"]))
        if "objectSelector" in entry
        else "",
        "reinvocation": entry.get("reinvocationPolicy", "Never"),
    }


def requirements(entry: Manifest) -> Iterator[str]:
    """Write the selector of namespaces as in a query, without the names that are left out."""
    mode, _, *others = entry["namespaceSelector"]["matchExpressions"]
    yield f"{mode['key']}={','.join(mode['values'])}"
    yield from written(others)


def written(expressions: Iterable[Manifest]) -> Iterator[str]:
    for each in expressions:
        yield f"{each['key']} {each['operator'].lower()} ({','.join(each['values'])})"


def marked(field: str, key: str, value: str = "a") -> Manifest:
    return a_pod(metadata={field: {key: value}})


GATED = [{"name": "example.com/x"}, {"name": SCHEDULING_GATE}]
UPDATES: dict[str, tuple[Manifest, Manifest, bool]] = {
    "nothing": (a_pod(), a_pod(), False),
    "the image": (a_pod(), a_pod(requests={"cpu": "1"}), False),
    "our gate": (a_pod(schedulingGates=GATED), a_pod(schedulingGates=GATED[:1]), True),
    "all gates": (a_pod(schedulingGates=GATED), a_pod(), True),
    "another gate": (a_pod(schedulingGates=GATED), a_pod(schedulingGates=GATED[1:]), False),
    "our gate comes, which the API server refuses": (a_pod(), a_pod(schedulingGates=GATED), False),
    "a mark comes": (a_pod(), marked("annotations", "deferredquota.io/guarded"), True),
    "a mark goes": (marked("labels", "nos.nebuly.com/capacity"), a_pod(), True),
    "a mark changes": (
        marked("labels", "deferredquota.io/x"),
        marked("labels", "deferredquota.io/x", "b"),
        True,
    ),
    "a mark stays": (
        marked("labels", "deferredquota.io/x"),
        marked("labels", "deferredquota.io/x"),
        False,
    ),
    "another label": (a_pod(), marked("labels", "example.com/deferredquota.io"), False),
}


@pytest.mark.parametrize(("old", "new", "is_asked"), UPDATES.values(), ids=UPDATES)
def test_an_update_is_asked_about_when_it_touches_what_is_ours(
    old: Manifest, new: Manifest, is_asked: bool
) -> None:
    request = a_write("UPDATE", PODS, new, old)
    condition = hook_of("marks.deferredquota.io").condition
    assert condition is not None
    assert condition(request) is is_asked


def spec(**fields: object) -> Manifest:
    return {"metadata": {"name": "train"}, "spec": fields}


ABOUT_JOBS: dict[str, tuple[str, Manifest | None, Manifest, bool]] = {
    "a new one": ("CREATE", None, spec(), True),
    "a spec that changes": ("UPDATE", spec(suspend=True), spec(suspend=False), True),
    "a field that comes": ("UPDATE", spec(), spec(parallelism=0), True),
    "nothing": ("UPDATE", spec(suspend=True), spec(suspend=True), False),
    "labels": (
        "UPDATE",
        spec(),
        {**spec(), "metadata": {"name": "train", "labels": {"a": "b"}}},
        False,
    ),
    "the status": ("UPDATE", spec(), {**spec(), "status": {"active": 1}}, False),
    "no spec at all": ("UPDATE", {"metadata": {}}, {"metadata": {"labels": {}}}, False),
    "the first spec": ("UPDATE", {"metadata": {}}, spec(), True),
}


@pytest.mark.parametrize("phase", ["mutating", "validating"])
@pytest.mark.parametrize(
    ("operation", "old", "new", "is_asked"), ABOUT_JOBS.values(), ids=ABOUT_JOBS
)
def test_jobs_are_asked_about_when_they_are_new_or_their_spec_changes(
    operation: Literal["CREATE", "UPDATE"],
    old: Manifest | None,
    new: Manifest,
    is_asked: bool,
    phase: str,
) -> None:
    request = a_write(operation, JOBS, new, old)
    (condition,) = [
        hook.condition
        for hook in HOOKS
        if hook.name == "jobs.deferredquota.io" and hook.phase == phase
    ]
    assert condition is not None
    assert condition(request) is is_asked


def test_both_entries_of_jobs_have_the_same_condition() -> None:
    found = [
        " ".join(condition["expression"].split())
        for phase in ("Mutating", "Validating")
        for condition in entries("webhook", phase)["jobs.deferredquota.io"]["matchConditions"]
    ]
    # by the operation: the old object of a creation is null, and has no fields to compare
    assert (
        found
        == ['request.?operation.orValue("") == "CREATE" || object.?spec != oldObject.?spec'] * 2
    )


@pytest.mark.parametrize("mask", MASKS)
def test_what_refuses_changes_of_jobs_is_asked_after_all_that_may_change_them(mask: Mask) -> None:
    ours = {
        each["metadata"]["name"]: [entry["name"] for entry in each["webhooks"]]
        for each in of_kind("MutatingWebhookConfiguration", everything(mask))
    }
    others = ["istio-sidecar-injector", "kueue-mutating-webhook-configuration", "z-own"]
    in_order = sorted([*ours, *others])  # as the API server asks them
    assert in_order[-1] == LAST_REGISTRATION
    assert ours[LAST_REGISTRATION] == ["jobs.deferredquota.io"]
    mutating = [hook.name for hook in HOOKS if hook.phase == "mutating"]
    assert mutating[-1] == "jobs.deferredquota.io"


def test_our_own_releases_are_not_asked_about() -> None:
    entry = entries("policy", "Validating")["marks.deferredquota.io"]
    (condition,) = [
        each["expression"]
        for each in entry["matchConditions"]
        if each["name"] == "is-not-the-controller"
    ]
    assert " ".join(condition.split()) == (
        f'request.?userInfo.?username.orValue("") != "{controller_user(DEFAULT_NAMESPACE)}"'
    )


def test_the_expression_of_marks_names_what_is_ours() -> None:
    (marks, _) = entries("policy", "Validating")["marks.deferredquota.io"]["matchConditions"]
    assert set(re.findall(r'"([^"]+)"', marks["expression"])) == {
        SCHEDULING_GATE,
        MANAGED_PREFIX,
        CAPACITY_LABEL,
    }


@pytest.mark.parametrize("gating", ["always", "auto", "never"])
def test_pods_are_gated_in_namespaces_that_want_it(gating: str) -> None:
    (gate,) = [
        each
        for mutating in of_kind("MutatingWebhookConfiguration", rendered(gating))
        for each in mutating["webhooks"]
        if each["name"] == "gate.deferredquota.io"
    ]
    selector = WebhookSelector.read(FieldReader(gate["namespaceSelector"]))
    hook = next(
        one
        for one in webhook_configurations.webhooks("https://here", gating=gating)
        if one.name == "gate.deferredquota.io"
    )
    embedded = parse_labels(hook.namespace_selector)
    for value, wanted in {
        "": gating != "never",
        "always": True,
        "auto": True,
        "never": False,
    }.items():
        labels = {"deferredquota.io/mode": "deferred", "kubernetes.io/metadata.name": "a"}
        if value:
            labels["deferredquota.io/gating"] = value
        assert selector.matches(labels) is wanted, value
        assert all(term.accepts(labels.get(term.key)) for term in embedded) is wanted, value
        assert not selector.matches({**labels, "deferredquota.io/mode": "shadow"})


@pytest.mark.parametrize("gating", ["always", "auto", "never"])
@pytest.mark.parametrize("value", ["", "always", "auto", "never", "typo"])
def test_where_nothing_gates_every_new_pod_is_looked_at(gating: str, value: str) -> None:
    labels = {"deferredquota.io/mode": "deferred", "kubernetes.io/metadata.name": "a"}
    if value:
        labels["deferredquota.io/gating"] = value
    found = {
        each["name"].partition(".")[0]: WebhookSelector.read(FieldReader(each["namespaceSelector"]))
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for configuration in of_kind(kind, rendered(gating))
        for each in configuration["webhooks"]
    }
    hooks = {
        hook.name.partition(".")[0]: parse_labels(hook.namespace_selector)
        for hook in webhook_configurations.webhooks("https://here", gating=gating)
    }
    is_gated = found["gate"].matches(labels)
    assert found["ungated"].matches(labels) is not is_gated
    for name, wanted in {"gate": is_gated, "ungated": not is_gated}.items():
        assert all(term.accepts(labels.get(term.key)) for term in hooks[name]) is wanted


def test_the_embedded_api_server_gates_by_the_default_of_the_configuration() -> None:
    default = inspect.signature(webhook_configurations.webhooks).parameters["gating"].default
    assert default == Configuration().gating


def rendered(gating: str) -> list[Manifest]:
    return cast("list[Manifest]", render(gating=gating).objects)


def test_conditions_are_where_the_embedded_api_server_has_some() -> None:
    found = {
        name: entry["matchConditions"][0]["name"]
        for name, entry in entries("webhook", "Validating").items()
        if name in {hook.name for hook in HOOKS if hook.condition is not None}
        and hook_of(name).condition is not None
    }
    assert found == CONDITIONS


def hook_of(name: str) -> Webhook:
    return next(hook for hook in HOOKS if hook.name == name and hook.phase == "validating")


@pytest.mark.parametrize("node", ["", "node-0"])
def test_a_new_pod_is_asked_about_by_one_of_two_entries(node: str) -> None:
    request = a_write("CREATE", PODS, a_pod(node=node))
    for name, with_node in {"assigned": True, "shape": False, "ungated": False}.items():
        is_asked = hook_of(f"{name}.deferredquota.io").condition
        assert is_asked is not None
        assert is_asked(request) is (with_node == bool(node))


@pytest.mark.parametrize("labels", [{}, {"app": "web"}, {UNEVALUATED_LABEL: UNEVALUATED}])
def test_of_what_the_gating_handler_has_seen_only_what_it_leaves_is_asked_about(
    labels: dict[str, str],
) -> None:
    for name, is_asked in {"shape": UNEVALUATED_LABEL in labels, "ungated": True}.items():
        entry = entries("policy", "Validating")[f"{name}.deferredquota.io"]
        selector = WebhookSelector.read(FieldReader(entry.get("objectSelector", {})))
        assert selector.matches(labels) is is_asked
        embedded = parse_labels(hook_of(f"{name}.deferredquota.io").object_selector)
        assert all(term.accepts(labels.get(term.key)) for term in embedded) is is_asked


def test_a_condition_cannot_fail_on_a_field_that_is_not_there() -> None:
    for mask in MASKS:
        for phase in ("Mutating", "Validating"):
            for name, entry in entries(mask, phase).items():
                for condition in entry.get("matchConditions", ()):
                    assert_reads_safely(condition["expression"], name)


def assert_reads_safely(expression: str, name: str) -> None:
    """Every field below an object's own is read as one that may be missing."""
    for path in re.findall(r"(?:object|oldObject|request)\.([A-Za-z.?]+)", expression):
        parts = [part for part in path.split(".") if part]
        optional = [part.startswith("?") or part in ("orValue", "hasValue") for part in parts]
        assert all(optional) or path.startswith("metadata.?annotations"), (name, path)


@pytest.mark.parametrize("mask", MASKS)
def test_binds_are_asked_about_before_they_are_judged_only_to_pin_a_uid(mask: Mask) -> None:
    (condition,) = entries(mask, "Mutating")["stamp.deferredquota.io"]["matchConditions"]
    assert condition == {"name": "has-no-uid", "expression": names.HAS_NO_UID}


def test_a_mask_that_is_a_policy_needs_no_entry() -> None:
    assert "mask.deferredquota.io" not in entries("policy", "Mutating")


UIDS: dict[str, tuple[Manifest, bool]] = {
    "a scheduler's": (a_binding(uid="uid-1"), False),
    "an empty one": ({"metadata": {"name": "web-1", "uid": ""}}, True),
    "none": (a_binding(), True),
    "no metadata at all": ({"target": {"name": "node-1"}}, True),
}


@pytest.mark.parametrize(("binding", "is_asked"), UIDS.values(), ids=UIDS)
def test_the_embedded_api_server_asks_to_pin_where_there_is_no_uid(
    binding: Manifest, is_asked: bool
) -> None:
    (condition,) = [hook.condition for hook in HOOKS if hook.name == "stamp.deferredquota.io"]
    assert condition is not None
    assert condition(a_write("CREATE", PODS, binding, subresource="binding")) is is_asked


def test_entries_are_complete_and_trust_no_ca_yet() -> None:
    for phase in ("Mutating", "Validating"):
        for entry in entries("webhook", phase).values():
            assert entry["admissionReviewVersions"] == ["v1"]
            assert entry["matchPolicy"] == "Equivalent"
            assert ("reinvocationPolicy" in entry) == (phase == "Mutating")
            assert "caBundle" not in entry["clientConfig"]
            is_for_some = entry["name"] == "shape.deferredquota.io"
            assert ("objectSelector" in entry) == is_for_some, "a Binding has no labels of the pod"


def constraints() -> Iterator[tuple[str, Manifest, list[Manifest]]]:
    """Return (name, namespace selector, rules) of all that stands in the way of requests."""
    for mask in MASKS:
        for phase in ("Mutating", "Validating"):
            for name, entry in entries(mask, phase).items():
                yield name, entry["namespaceSelector"], entry["rules"]
    bindings = {
        binding["spec"]["policyName"]: binding["spec"]["matchResources"]
        for binding in of_kind("MutatingAdmissionPolicyBinding", everything("policy"))
    }
    for policy in of_kind("MutatingAdmissionPolicy", everything("policy")):
        name, match = policy["metadata"]["name"], policy["spec"]["matchConstraints"]
        assert "namespaceSelector" not in match, "it is looked at for every request"
        yield name, bindings[name]["namespaceSelector"], match["resourceRules"]


def test_entries_concern_namespaces_that_opted_in_only() -> None:
    spared = {"kube-system", "kube-public", "kube-node-lease", SYSTEM}
    for name, selector, _ in constraints():
        opted_in, elsewhere, *narrower = selector["matchExpressions"]
        assert [each["key"] for each in narrower] == (
            ["deferredquota.io/gating"] if name in BY_GATING else []
        )
        assert opted_in == {
            "key": "deferredquota.io/mode",
            "operator": "In",
            "values": ["shadow" if name == "shadow.deferredquota.io" else "deferred"],
        }, name
        assert elsewhere["key"] == "kubernetes.io/metadata.name", name
        assert (elsewhere["operator"], set(elsewhere["values"])) == ("NotIn", spared), name


def test_we_ask_about_nothing_that_a_cluster_needs_to_come_up() -> None:
    allowed = {
        "": {
            "pods", "pods/binding", "pods/resize", "bindings", "resourcequotas",
            "resourcequotas/status",
        },
        "batch": {"jobs", "cronjobs"},
        "jobset.x-k8s.io": {"jobsets"},
        "deferredquota.io": {"clusterdeferredquotas"},
        "nos.nebuly.com": {"elasticquotas", "compositeelasticquotas"},
    }  # fmt: skip
    versions = {
        "jobset.x-k8s.io": "v1alpha2",
        "deferredquota.io": "v1alpha1",
        "nos.nebuly.com": "v1alpha1",
    }
    for name, _, rules in constraints():
        for rule in rules:
            is_ours = rule["apiGroups"] == ["deferredquota.io"]
            assert rule["scope"] == ("Cluster" if is_ours else "Namespaced"), name
            for group in rule["apiGroups"]:
                assert rule["apiVersions"] == [versions.get(group, "v1")], name
                assert set(rule["resources"]) <= allowed[group], name


def test_nothing_is_asked_in_shadow_mode_that_could_hold_a_request_up() -> None:
    watched = {"kubernetes.io/metadata.name": "team-a", "deferredquota.io/mode": "shadow"}
    for mask in MASKS:
        assert not _selecting(entries(mask, "Mutating"), watched)
        (entry,) = _selecting(entries(mask, "Validating"), watched)
        assert entry["name"] == SHADOW_ENTRY
        assert (entry["failurePolicy"], entry["timeoutSeconds"]) == ("Ignore", 1)
        (rule,) = entry["rules"]
        assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])


def _selecting(found: dict[str, Manifest], labels: dict[str, str]) -> list[Manifest]:
    return [
        entry
        for entry in found.values()
        if WebhookSelector.read(FieldReader(entry["namespaceSelector"])).matches(labels)
    ]


def test_nothing_can_fail_the_status_of_a_quota() -> None:
    for policy in of_kind("MutatingAdmissionPolicy", everything("policy")):
        assert policy["spec"]["failurePolicy"] == "Ignore"
    mask = entries("webhook", "Mutating")["mask.deferredquota.io"]
    assert (mask["failurePolicy"], mask["timeoutSeconds"]) == ("Ignore", 2)
    for entry in entries("webhook", "Validating").values():
        for rule in entry["rules"]:
            assert "resourcequotas/status" not in rule["resources"]


def test_the_mask_hides_what_is_deferred() -> None:
    (policy,) = [
        each
        for each in of_kind("MutatingAdmissionPolicy", everything("policy"))
        if each["metadata"]["name"] == names.MASK_POLICY
    ]
    (keys,) = [each["expression"] for each in policy["spec"]["variables"]]
    assert set(re.findall(r"'([^']+)'", keys)) == DEFERRED_KEYS
