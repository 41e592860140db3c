"""Quotas for priority classes, and rules that want one, at every handler, on a real cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from tests.builders import an_expression
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.configured import configured
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import Product, a_team, apply_namespace
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.cli import cli
from webhook.quota.objects.names import QUOTA_RESERVED

GOLD, SILVER, NONE = "rules-gold", "rules-silver", ""
CLASS: Final = "PriorityClass"
FORBIDDEN: Final = "denied the request: "
NEEDS_GOLD: Final = f"insufficient quota to match these scopes: [{{PriorityClass In [{GOLD}]}}]"
NEEDS_CPU: Final = "insufficient quota to consume: requests.cpu"
OF_GOLD: Final = an_expression(CLASS, "In", GOLD)

SELECTORS: Mapping[str, dict[str, Any]] = {
    "a-in": {"expressions": [OF_GOLD]},
    "b-not-in": {"expressions": [an_expression(CLASS, "NotIn", GOLD)]},
    "c-exists": {"expressions": [an_expression(CLASS, "Exists")]},
    "d-none": {"expressions": [an_expression(CLASS, "DoesNotExist")]},
    "e-with-scope": {
        "expressions": [an_expression(CLASS, "In", GOLD, SILVER)],
        "scopes": ["NotTerminating"],
    },
    "f-both": {"expressions": [OF_GOLD, an_expression(CLASS, "DoesNotExist")]},
}
PODS: Mapping[str, tuple[str, bool, set[str]]] = {
    "gold": (GOLD, False, {"a-in", "c-exists", "e-with-scope"}),
    "silver": (SILVER, False, {"b-not-in", "c-exists", "e-with-scope"}),
    "no class": (NONE, False, {"b-not-in", "d-none"}),
    "gold with a deadline": (GOLD, True, {"a-in", "c-exists"}),
}
"""Class, whether with a deadline, and the quotas that are about such a pod."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def classes(plane: ControlPlane) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in ((GOLD, 1000), (SILVER, 500)):
        made = Api(plane.rest).create(path, {"metadata": {"name": name}, "value": value})
        assert made.code in (201, 409), str(made)


@pytest.fixture(scope="module")
def selecting(
    plane: ControlPlane,
    _product: Product,
    classes: None,  # noqa: ARG001 - have to be there
) -> dict[str, Tenant]:
    """A namespace for each gating, with a quota of 1 cpu for each selector."""
    assert _product.webhooks
    found = {}
    for gating in ("never", "always"):
        found[gating] = team = Tenant(plane.rest, f"e2e-rules-{gating}")
        apply_namespace(team.api, team.namespace, gating=gating)
        for name, fields in SELECTORS.items():
            team.quota(name, hard={"requests.cpu": "1"}, **fields)
    return found


@pytest.fixture
def team(plane: ControlPlane, product: Product, classes: None) -> Iterator[Tenant]:  # noqa: ARG001
    """A namespace that has opted in, without gates and quotas."""
    assert product.webhooks
    with a_team(plane, f"e2e-rules-{next(_numbers)}") as made:
        yield made


def fields_of(class_name: str, *, is_timed: bool = False) -> dict[str, Any]:
    named = {"priorityClassName": class_name} if class_name else {}
    return {**named, **({"activeDeadlineSeconds": 3600} if is_timed else {})}


def charges(team: Tenant) -> dict[str, str]:
    return {name: charged for name in SELECTORS if (charged := team.charged(name)) != "0"}


# -- which pods a quota is about -----------------------------------------------------------


@pytest.mark.parametrize("source", ["create", "bind", "release"])
@pytest.mark.parametrize(("name", "is_timed", "quotas"), PODS.values(), ids=PODS.keys())
def test_every_request_charges_the_quotas_of_the_class(
    selecting: dict[str, Tenant], source: str, name: str, is_timed: bool, quotas: set[str]
) -> None:
    team = selecting["always" if source == "release" else "never"]
    pod = fields_of(name, is_timed=is_timed)
    refusals = [
        f"exceeded quota: {quota}, requested: requests.cpu=600m, used: requests.cpu=600m,"
        " limited: requests.cpu=1"
        for quota in sorted(quotas)
    ]
    exceeded = refusals[0]  # an answer names the first, as the API server's own do
    try:
        if source == "create":
            team.pod("one", "600m", nodeName=NODE, **pod)
            refused = team.create("two", "600m", nodeName=NODE, **pod)
            assert (refused.code, refused.message.endswith(exceeded)) == (403, True), str(refused)
        elif source == "bind":
            assert team.bind("one", uid=team.pod("one", "600m", **pod).uid).ok
            refused = team.bind("two", uid=team.pod("two", "600m", **pod).uid)
            assert (refused.code, refused.message.endswith(exceeded)) == (403, True), str(refused)
        else:
            team.pod("one", "600m", **pod)
            becomes(lambda: "schedulingGates" in team.seen("one").body["spec"], False, "one waits")
            team.pod("two", "600m", **pod)
            says = "; ".join([*refusals, "place 1 of 1"])
            becomes(lambda: team.condition("two", QUOTA_RESERVED)[2], says, "why two waits")
        becomes(lambda: charges(team), dict.fromkeys(quotas, "600m"), "what is charged")
    finally:
        team.clear()
    # of a pod that no watch has shown the reservation expires, after 35 s here
    eventually(lambda: not charges(team), "nothing is charged in the end", 60)


# -- what needs a quota --------------------------------------------------------------------


def test_a_class_that_needs_a_quota_is_refused_without_one(team: Tenant, product: Product) -> None:
    with configured(product, requireQuotaForPriority=[OF_GOLD]):
        places: tuple[dict[str, Any], ...] = ({}, {"nodeName": NODE})
        for fields in places:
            refused = team.create("gold", "1", priorityClassName=GOLD, **fields)
            assert (refused.code, refused.reason) == (403, "Forbidden"), str(refused)
            assert refused.message.endswith(FORBIDDEN + NEEDS_GOLD)
        team.pod("silver", "1", priorityClassName=SILVER)
        team.pod("plain", "1")
        team.quota("short", scopes=["Terminating"], expressions=[OF_GOLD])
        assert not team.create("gold", "1", priorityClassName=GOLD).ok  # it is about other pods
        team.quota("gold", expressions=[OF_GOLD])
        made = team.pod("gold", "1", priorityClassName=GOLD)
        assert team.api.delete(objects.quotas(team.namespace, "gold")).ok
        bound = eventually(
            lambda: [one for one in [team.bind("gold", uid=made.uid, dry_run=True)] if not one.ok],
            "the quota is gone",
        )[0]
        assert (bound.code, bound.message.endswith(NEEDS_GOLD)) == (403, True), str(bound)


def test_as_the_platform_counts_any_quota_of_the_class_will_do(
    team: Tenant, product: Product
) -> None:
    with configured(product, requireQuotaForPriority=[OF_GOLD], coverage="platform"):
        refused = team.create("gold", "1", priorityClassName=GOLD)
        assert (refused.code, refused.message.endswith(NEEDS_GOLD)) == (403, True), str(refused)
        team.quota("short", scopes=["Terminating"], expressions=[OF_GOLD])
        assert team.bind("gold", uid=team.pod("gold", "1", priorityClassName=GOLD).uid).ok


def test_limited_resources_of_our_configuration_hold(team: Tenant, product: Product) -> None:
    limited = [
        {"resource": "pods", "matchScopes": [OF_GOLD]},
        {"resource": "pods", "matchContains": ["requests.cpu"]},
    ]
    with configured(product, limitedResources=limited):
        refused = team.create("gold", "1", priorityClassName=GOLD)
        assert (refused.code, refused.message.endswith(NEEDS_GOLD)) == (403, True), str(refused)
        refused = team.create("plain", "1", nodeName=NODE)
        assert (refused.code, refused.message.endswith(NEEDS_CPU)) == (403, True), str(refused)
        made = team.pod("plain", "1")  # compute is asked about where it is taken
        refused = team.bind("plain", uid=made.uid)
        assert (refused.code, refused.message.endswith(NEEDS_CPU)) == (403, True), str(refused)
        team.quota("p1")
        assert team.bind("plain", uid=made.uid).ok
        team.quota("gold", hard={"requests.cpu": "1"}, expressions=[OF_GOLD])
        assert team.bind("gold", uid=team.pod("gold", "1", priorityClassName=GOLD).uid).ok


# -- what may be written into a quota ------------------------------------------------------

HARD = {"hard": {"requests.cpu": "3"}}
SELECTOR = {"scopeSelector": {"matchExpressions": [an_expression(CLASS, "Exists")]}}
UPDATES = {"allow": {"hard", "selector"}, "scopes": {"hard"}, "reject": set[str]()}


@pytest.mark.parametrize(("setting", "allowed"), UPDATES.items(), ids=UPDATES.keys())
def test_a_quota_may_be_changed_as_far_as_is_configured(
    team: Tenant, product: Product, setting: str, allowed: set[str]
) -> None:
    team.quota(expressions=[OF_GOLD])
    path = objects.quotas(team.namespace, "p1")
    with configured(product, quotaUpdate=setting):
        for what, field, spec in (
            ("hard", "spec.hard", HARD),
            ("selector", "spec.scopeSelector", SELECTOR),
        ):
            answer = team.api.patch(path, {"spec": spec}, dry_run=True)
            assert answer.ok == (what in allowed), str(answer)
            if not answer.ok:
                assert (answer.code, answer.reason) == (422, "Invalid")
                assert field in answer.message
                assert "field is immutable" in answer.message
        assert team.api.patch(path, {"metadata": {"labels": {"a": "b"}}}).ok
        assert team.api.delete(path).ok


OLD = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: named}
spec:
  hard: {requests.cpu: "1"}
  priorityClassNameList: [rules-gold, of-nobody-yet]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: any}
spec:
  hard: {requests.cpu: "5"}
  priorityClassNameList: ["*"]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: everybody}
spec:
  hard: {requests.cpu: "9"}
"""


def test_converted_quotas_are_taken_and_mean_what_they_meant(
    plane: ControlPlane, team: Tenant, tmp_path: Path
) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(OLD)
    done = CliRunner().invoke(cli, ["convert", "-f", str(path)])
    assert done.exit_code == 0, done.output
    plane.kubectl("apply", "--namespace", team.namespace, "-f", "-", stdin=done.stdout)
    spec = team.api.get(objects.quotas(team.namespace, "named")).body["spec"]
    expression = {"scopeName": CLASS, "operator": "In", "values": [GOLD, "of-nobody-yet"]}
    assert spec == {
        "hard": {"requests.cpu": "1"},
        "scopeSelector": {"matchExpressions": [expression]},
    }
    becomes(lambda: set(team.accounts()), {"named", "any", "everybody"}, "what is counted")
    team.bound("gold", "1", priorityClassName=GOLD)
    team.bound("silver", "1", priorityClassName=SILVER)
    team.bound("plain", "1")
    used = {name: team.used(name)["requests.cpu"] for name in team.accounts()}
    assert used == {"named": "1", "any": "2", "everybody": "3"}
    assert (
        "exceeded quota: named"
        in team.create("more", "1", priorityClassName=GOLD, nodeName=NODE).message
    )


def test_a_class_that_does_not_exist_matches_no_pod(team: Tenant) -> None:
    team.quota("later", expressions=[an_expression(CLASS, "In", "of-nobody-yet")])
    team.quota("never", expressions=[an_expression(CLASS, "NotIn", "of-nobody-yet")])
    team.bound("plain", "1")
    assert (team.charged("later"), team.charged("never")) == ("0", "1")


BAD: Mapping[str, tuple[dict[str, object], str]] = {
    "a value that no label may have": (
        an_expression(CLASS, "In", "bad value!"),
        "spec.scopeSelector.matchExpressions[0].values[0]",
    ),
    "no values": (an_expression(CLASS, "In"), "must be at least one value"),
    "values for Exists": (an_expression(CLASS, "Exists", "a"), "must be no value"),
    "an unknown scope": (an_expression("Bogus"), "unsupported scope"),
    "an unknown operator": (an_expression(CLASS, "Near", "a"), "not a valid selector operator"),
}


@pytest.mark.parametrize(("expression", "said"), BAD.values(), ids=BAD.keys())
def test_a_scope_that_would_break_every_pod_is_refused_when_it_is_written(
    team: Tenant, expression: dict[str, object], said: str
) -> None:
    spec = {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [expression]}}
    quotas = objects.quotas(team.namespace)
    refused = team.api.create(quotas, {"metadata": {"name": "p1"}, "spec": spec})
    assert (refused.code, refused.reason) == (422, "Invalid"), str(refused)
    assert said in refused.message
    good = {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [OF_GOLD]}}
    assert team.api.create(quotas, {"metadata": {"name": "p1"}, "spec": good}).ok
    changed = team.api.patch(objects.quotas(team.namespace, "p1"), {"spec": spec})
    assert (changed.code, changed.reason) == (422, "Invalid"), str(changed)
    assert said in changed.message
