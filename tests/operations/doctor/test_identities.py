"""What doctor says of the policies that hold our own identities, and where they are not there."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import pytest

from tests.operations.healthy import (
    Change,
    edit,
    examined,
    healthy,
    ids,
    refusing,
    remove,
    the,
)
from webhook.install import render
from webhook.kube.api import ForbiddenError, NotFoundError
from webhook.kube.kinds import DEVICE_CLASSES
from webhook.operations.names import (
    CLUSTER_QUOTAS_POLICY,
    DEVICE_CLAIMS_POLICY,
    LEDGERS_POLICY,
    OWN_NAMESPACE_POLICY,
    SERVICE_ACCOUNTS_POLICY,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
)

NAMES = (
    SERVICE_ACCOUNTS_POLICY,
    OWN_NAMESPACE_POLICY,
    CLUSTER_QUOTAS_POLICY,
    DEVICE_CLAIMS_POLICY,
    LEDGERS_POLICY,
)
GPU = "requests.nvidia.com/gpu"


def of_identities(**settings: Any) -> list[str]:
    cluster = settings.pop("cluster")
    return [one for one in ids(examined(cluster, **settings)) if one.startswith("identities.")]


def shipped(**configured: Any) -> dict[str, Any]:
    found = (cast("Any", each) for each in render(**configured).identities)
    return {
        each["metadata"]["name"]: each for each in found if not each["kind"].endswith("Binding")
    }


def test_fields_that_the_api_server_fills_in_are_no_change() -> None:
    def fill_in(raw: Any) -> None:
        place = raw["spec"].setdefault("matchResources", {})
        place.update(matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})

    cluster = healthy()
    for name in NAMES:
        edit(cluster, VALIDATING_BINDINGS, name, fill_in)
    assert of_identities(cluster=cluster) == []


def test_nothing_is_wrong_with_what_is_shipped() -> None:
    assert of_identities(cluster=healthy()) == []


def test_an_api_server_without_such_policies_is_named() -> None:
    missing = NotFoundError("the server could not find the requested resource")
    api = refusing(healthy(), missing, VALIDATING_POLICIES, VALIDATING_BINDINGS)
    found = the(examined(api), "identities.unserved")
    assert "has no ValidatingAdmissionPolicy" in found.message
    assert "a client with the controller's token may change image, gates" in found.message


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_that_is_gone_is_named(name: str) -> None:
    cluster = healthy()
    remove(cluster, VALIDATING_POLICIES, name)
    found = the(examined(cluster), "identities.missing")
    assert (found.severity, found.subject and found.subject.name) == ("warn", name)
    assert found.message.startswith("does not exist: a client with")
    assert ("components/device-claims" in found.remedy) is (name == DEVICE_CLAIMS_POLICY)


def without_classes(cluster: Any) -> Any:
    missing = NotFoundError("the server could not find the requested resource")
    return examined(refusing(cluster, missing, DEVICE_CLASSES))


def test_a_policy_by_which_pods_are_refused_without_device_classes_is_an_error() -> None:
    found = the(without_classes(healthy()), "identities.refuses-pods")
    assert found.severity == "error"
    assert found.subject
    assert found.subject.name == DEVICE_CLAIMS_POLICY
    assert "refuses every new pod" in found.message
    assert f"validatingadmissionpolicybinding {DEVICE_CLAIMS_POLICY}" in found.remedy


def test_without_device_classes_and_the_policy_about_them_nothing_is_wrong() -> None:
    cluster = healthy()
    remove(cluster, VALIDATING_BINDINGS, DEVICE_CLAIMS_POLICY)
    assert not any(one.startswith("identities.") for one in ids(without_classes(cluster)))
    remove(cluster, VALIDATING_POLICIES, DEVICE_CLAIMS_POLICY)
    assert not any(one.startswith("identities.") for one in ids(without_classes(cluster)))


def test_device_classes_that_may_not_be_read_are_no_error() -> None:
    forbidden = ForbiddenError("deviceclasses is forbidden")
    found = ids(examined(refusing(healthy(), forbidden, DEVICE_CLASSES)))
    assert "identities.refuses-pods" not in found


def unbound(raw: Any) -> None:
    raw["spec"]["policyName"] = "another"


def audited(raw: Any) -> None:
    raw["spec"]["validationActions"] = ["Audit"]


def narrowed(raw: Any) -> None:
    raw["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": {"a": "b"}}}


def of_exact_versions(raw: Any) -> None:
    raw["spec"]["matchResources"] = {"matchPolicy": "Exact"}


@pytest.mark.parametrize("change", [unbound, audited, narrowed, of_exact_versions])
@pytest.mark.parametrize("name", NAMES)
def test_a_policy_that_does_not_deny_is_named(name: str, change: Change) -> None:
    cluster = healthy()
    edit(cluster, VALIDATING_BINDINGS, name, change)
    assert of_identities(cluster=cluster) == ["identities.unbound"]


def unparametrised(raw: Any) -> None:
    del raw["spec"]["paramRef"]


def of_one_class(raw: Any) -> None:
    raw["spec"]["paramRef"] = {"name": "a", "parameterNotFoundAction": "Allow"}


def of_some_classes(raw: Any) -> None:
    raw["spec"]["paramRef"]["selector"] = {"matchLabels": {"a": "b"}}


@pytest.mark.parametrize("change", [unparametrised, of_one_class, of_some_classes])
def test_a_binding_that_leaves_device_classes_out_is_named(change: Change) -> None:
    cluster = healthy()
    edit(cluster, VALIDATING_BINDINGS, DEVICE_CLAIMS_POLICY, change)
    assert of_identities(cluster=cluster) == ["identities.unbound"]


def of_another_kind(raw: Any) -> None:
    raw["spec"]["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}


def test_a_policy_that_is_not_about_device_classes_is_named() -> None:
    cluster = healthy()
    edit(cluster, VALIDATING_POLICIES, DEVICE_CLAIMS_POLICY, of_another_kind)
    assert of_identities(cluster=cluster) == ["identities.edited"]


def ignoring(raw: Any) -> None:
    raw["spec"]["failurePolicy"] = "Ignore"


def weaker(raw: Any) -> None:
    raw["spec"]["validations"][0]["expression"] = "true"


def fewer(raw: Any) -> None:
    del raw["spec"]["validations"][0]


def about_less(raw: Any) -> None:
    raw["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = ["nothing"]


def about_some(raw: Any) -> None:
    raw["spec"]["matchConstraints"]["objectSelector"] = {"matchLabels": {"a": "b"}}


def elsewhere(raw: Any) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}
    raw["spec"]["matchConstraints"]["namespaceSelector"] = selector


def never(raw: Any) -> None:
    raw["spec"]["matchConditions"].append({"name": "never", "expression": "false"})


def other_scope(raw: Any) -> None:
    rule = raw["spec"]["matchConstraints"]["resourceRules"][0]
    rule["scope"] = "Cluster" if rule.get("scope", "*") != "Cluster" else "Namespaced"


@pytest.mark.parametrize(
    "change", [ignoring, weaker, fewer, about_less, about_some, elsewhere, never, other_scope]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_policy_that_was_changed_is_named(name: str, change: Change) -> None:
    cluster = healthy()
    edit(cluster, VALIDATING_POLICIES, name, change)
    assert of_identities(cluster=cluster) == ["identities.edited"]
    remedy = the(examined(cluster), "identities.edited").remedy
    assert remedy.endswith(f"kubectl edit validatingadmissionpolicy {name}")


@pytest.mark.parametrize("name", [one for one in NAMES if one != DEVICE_CLAIMS_POLICY])
def test_another_identity_than_ours_is_named(name: str) -> None:
    def change(raw: Any) -> None:
        condition = raw["spec"]["matchConditions"][0]
        condition["expression"] = condition["expression"].replace("-controller", "-other")

    cluster = healthy()
    edit(cluster, VALIDATING_POLICIES, name, change)
    assert of_identities(cluster=cluster) == ["identities.lists"]


@pytest.mark.parametrize(
    "configured",
    [
        {"deferred_keys": frozenset({"cpu", GPU})},
        {"exempt": frozenset({"another"})},
        {"trusted_users": frozenset({"somebody"})},
        {"glass_breakers": frozenset({"breakers"})},
    ],
    ids=lambda each: next(iter(each)),
)
def test_a_list_that_is_not_that_of_the_configuration_is_named(configured: Any) -> None:
    assert set(of_identities(cluster=healthy(), **configured)) == {"identities.lists"}


def replace(raw: Any, wanted: Any) -> None:
    raw.update(wanted)


def test_what_is_configured_is_read_back() -> None:
    cluster = healthy()
    names = {"o'brien", 'a "b" \\ c', "ü"}
    for name, wanted in shipped(trusted_users=names, exempt_namespaces=["x"]).items():
        edit(cluster, VALIDATING_POLICIES, name, partial(replace, wanted=wanted))
    settings = {"trusted_users": frozenset(names), "exempt": frozenset({"x"})}
    assert of_identities(cluster=cluster, **settings) == []


def test_what_the_api_server_finds_wrong_is_reported() -> None:
    def change(raw: Any) -> None:
        warning = {"fieldRef": "spec.validations[0].expression", "warning": "undefined field"}
        raw["status"] = {"typeChecking": {"expressionWarnings": [warning]}}

    cluster = healthy()
    edit(cluster, VALIDATING_POLICIES, LEDGERS_POLICY, change)
    found = the(examined(cluster), "identities.types")
    assert found.message == (
        "spec.validations[0].expression: the API server finds a fault: undefined field"
    )
