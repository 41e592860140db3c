"""The guard at the bind, as its registration says."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.install.manifests import of_kind
from webhook.controllers.mask.webhook_registration import (
    RegistrationReader,
    RegistrationState,
    RegistrationWatch,
    parse_registration,
)
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.install import render
from webhook.kube.api import VALIDATING_WEBHOOKS, Object
from webhook.operations.emergency_state import opened_object
from webhook.state.well_known import BIND_ENTRY, EMERGENCY_SINCE, REGISTRATION

OPTED_IN = {"kubernetes.io/metadata.name": "team-a", "deferredquota.io/mode": "deferred"}


def shipped() -> Any:
    (found,) = of_kind("ValidatingWebhookConfiguration", cast("Any", render().registrations))
    return found


def without(field: str, value: object) -> Object:
    """Return the shipped configuration with a field of the guard's entry set."""
    made = shipped()
    for entry in made["webhooks"]:
        if entry["name"] == BIND_ENTRY:
            entry[field] = value
    return cast("Object", made)


def test_the_shipped_registration_guards_namespaces_that_opted_in() -> None:
    guard = parse_registration(shipped())
    assert guard.gap(OPTED_IN) == ""
    for labels in (
        {**OPTED_IN, "deferredquota.io/mode": "shadow"},
        {"kubernetes.io/metadata.name": "team-a"},
        {**OPTED_IN, "kubernetes.io/metadata.name": "kube-system"},
    ):
        assert "does not select this namespace" in guard.gap(labels)


def asked(**rule: object) -> Object:
    """Return the shipped configuration with the rule of the guard changed."""
    usual = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding", "bindings"],
        "scope": "Namespaced",
    }
    return without("rules", [{**usual, **rule}])


GAPS = {
    "no entry": (without("name", "other.deferredquota.io"), "has no entry bind"),
    "a policy that lets pass": (without("failurePolicy", "Ignore"), "is not failurePolicy Fail"),
    "an operator of later times": (
        without(
            "namespaceSelector",
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
        ),
        "selects by 'Gt'",
    ),
    "labels that are wanted": (
        without("namespaceSelector", {"matchLabels": {"tier": "gold"}}),
        "by tier",
    ),
    "a label that must not be": (
        without(
            "namespaceSelector",
            {"matchExpressions": [{"key": "deferredquota.io/mode", "operator": "DoesNotExist"}]},
        ),
        "by deferredquota.io/mode",
    ),
    "no rule": (without("rules", []), "does not ask about CREATE pods/binding, CREATE bindings"),
    "binds that are not asked about": (asked(resources=["bindings"]), "about CREATE pods/binding"),
    "binds of the old path": (asked(resources=["pods/binding"]), "ask about CREATE bindings"),
    "another operation": (asked(operations=["UPDATE"]), "ask about CREATE pods/binding"),
    "another group": (asked(apiGroups=["apps"]), "ask about CREATE pods/binding"),
    "versions that are not served": (asked(apiVersions=["v2"]), "ask about CREATE pods/binding"),
    "another scope": (asked(scope="Cluster"), "ask about CREATE pods/binding"),
    "objects that are left out": (
        without("objectSelector", {"matchLabels": {"tier": "gold"}}),
        "has an objectSelector",
    ),
    "objects by an operator of later times": (
        without("objectSelector", {"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
        "selects by 'Gt'",
    ),
    "a condition": (
        without("matchConditions", [{"name": "some", "expression": "false"}]),
        "has matchConditions",
    ),
}


@pytest.mark.parametrize(("configuration", "words"), GAPS.values(), ids=GAPS.keys())
def test_a_registration_that_does_not_guard_is_reported(configuration: Object, words: str) -> None:
    assert words in parse_registration(configuration).gap(OPTED_IN)


WHOLE = {
    "all that may be asked": asked(
        apiGroups=["*"], operations=["*"], resources=["*/*"], scope="*", apiVersions=["*"]
    ),
    "each part of pods": asked(resources=["pods/*", "bindings"]),
    "fields that the API server fills in": without("objectSelector", {}),
    "no condition": without("matchConditions", []),
}


@pytest.mark.parametrize("configuration", WHOLE.values(), ids=WHOLE.keys())
def test_a_registration_that_asks_about_every_bind_guards(configuration: Object) -> None:
    assert parse_registration(configuration).gap(OPTED_IN) == ""


MOMENTS = {
    "never": (None, 0),
    "as the command writes it": ("2026-11-26T02:00:00Z", 1795658400),
    "of another zone": ("2026-11-26T03:00:00+01:00", 1795658400),
    "without a zone": ("2026-11-26T02:00:00", 1795658400),
    "what cannot be read": ("yesterday", 1),
    "nothing": ("", 1),
    "before all time": ("1600-01-01T00:00:00Z", 1),
}


@pytest.mark.parametrize(("written", "since"), MOMENTS.values(), ids=MOMENTS.keys())
def test_the_registration_shows_since_when_the_emergency_is_open(
    written: str | None, since: int
) -> None:
    made = shipped()
    if written is not None:
        made["metadata"]["annotations"][EMERGENCY_SINCE] = written
    assert parse_registration(made).emergency_since == since


def test_the_emergency_is_shown_while_a_guard_is_new_and_is_no_change_of_it() -> None:
    api, clock, shown = FakeClient(FakeCluster()), [10.0], list[RegistrationState]()
    guard = RegistrationReader(api, cache_seconds=0, propagation_seconds=3, clock=lambda: clock[0])
    watch = RegistrationWatch(guard, 0, shown.append)
    watch.current()
    made = shipped()
    made["metadata"]["annotations"][EMERGENCY_SINCE] = "2026-11-26T02:00:00Z"
    api.create(VALIDATING_WEBHOOKS, made)
    assert watch.current().is_settling
    clock[0] += 4
    assert not watch.current().problem
    closed = {"metadata": {"annotations": {EMERGENCY_SINCE: None}}}
    api.patch(VALIDATING_WEBHOOKS, REGISTRATION, closed)
    assert not watch.current().problem  # else nothing would be masked for some seconds
    assert [one.emergency_since for one in shown] == [0, 1795658400, 1795658400, 0]


def test_the_log_says_that_the_emergency_was_opened_and_that_the_guard_stands_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = FakeClient(FakeCluster())
    api.create(VALIDATING_WEBHOOKS, shipped())
    watch = RegistrationWatch(RegistrationReader(api, cache_seconds=0, propagation_seconds=0), 0)
    watch.current()
    with caplog.at_level("INFO"):
        change(api, opened_object(shipped()))
        watch.current()
        change(api, shipped())
        watch.current()
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ("INFO", "nothing is masked: the emergency is open"),
        ("INFO", "the guard at the bind stands"),
    ]


def test_a_selector_of_everything_guards_everything() -> None:
    assert parse_registration(without("namespaceSelector", {})).gap(OPTED_IN) == ""


def test_the_api_server_is_asked_once_in_a_while() -> None:
    api, clock = FakeClient(FakeCluster()), [10.0]
    guard = RegistrationReader(api, cache_seconds=2, propagation_seconds=0, clock=lambda: clock[0])
    assert "is not there" in guard().problem
    api.create(VALIDATING_WEBHOOKS, shipped())
    clock[0] += 1.9
    assert guard().problem
    clock[0] += 0.2
    assert not guard().problem
    api.delete(VALIDATING_WEBHOOKS, REGISTRATION)
    assert not guard().problem
    clock[0] += 2
    assert guard().problem


def test_a_guard_that_comes_is_counted_on_when_every_api_server_can_know() -> None:
    api, clock = FakeClient(FakeCluster()), [10.0]
    api.create(VALIDATING_WEBHOOKS, shipped())
    guard = RegistrationReader(api, cache_seconds=0, propagation_seconds=3, clock=lambda: clock[0])
    assert not guard().problem
    api.delete(VALIDATING_WEBHOOKS, REGISTRATION)
    assert "is not there" in guard().problem
    api.create(VALIDATING_WEBHOOKS, shipped())
    assert "only just changed" in guard().problem
    clock[0] += 2.9
    assert "only just changed" in guard().problem
    assert guard().is_settling
    clock[0] += 0.2
    assert not guard().problem


def change(api: FakeClient, to: Object) -> None:
    api.patch(VALIDATING_WEBHOOKS, REGISTRATION, {"webhooks": to["webhooks"]})


def test_a_guard_that_was_made_anew_is_not_counted_on_though_none_saw_it_gone() -> None:
    api, clock = FakeClient(FakeCluster()), [10.0]
    api.create(VALIDATING_WEBHOOKS, shipped())
    guard = RegistrationReader(api, cache_seconds=0, propagation_seconds=3, clock=lambda: clock[0])
    assert not guard().problem
    api.delete(VALIDATING_WEBHOOKS, REGISTRATION)
    api.create(VALIDATING_WEBHOOKS, shipped())
    assert "only just changed" in guard().problem
    clock[0] += 3.1
    assert not guard().problem


def test_a_guard_that_leaves_out_another_namespace_is_counted_on_for_all_others() -> None:
    """Else nothing would be masked for some seconds, and each quota have an event about it."""
    api, clock = FakeClient(FakeCluster()), [10.0]
    guard = RegistrationReader(api, cache_seconds=0, propagation_seconds=3, clock=lambda: clock[0])
    sandbox = {**OPTED_IN, "kubernetes.io/metadata.name": "sandbox"}
    (narrowed,) = of_kind(
        "ValidatingWebhookConfiguration",
        cast("Any", render(exempt_namespaces=["sandbox"]).registrations),
    )
    api.create(VALIDATING_WEBHOOKS, narrowed)
    assert guard().gap(OPTED_IN) == ""
    assert "does not select" in guard().gap(sandbox)
    change(api, shipped())
    assert guard().gap(OPTED_IN) == ""
    assert guard().is_settling
    assert "only just changed" in guard().gap(sandbox)
    clock[0] += 3.1
    assert guard().gap(sandbox) == guard().gap(OPTED_IN) == ""
    change(api, narrowed)
    assert guard().gap(OPTED_IN) == ""
    assert "does not select" in guard().gap(sandbox)


def test_a_guard_that_goes_and_comes_is_noticed_once() -> None:
    states = [
        RegistrationState(),
        RegistrationState(),
        RegistrationState("gone"),
        RegistrationState("gone"),
        RegistrationState(),
    ]
    watch = RegistrationWatch(lambda: states.pop(0), 0)
    assert [watch.has_changed() for _ in range(5)] == [True, False, True, False, True]


def test_a_guard_by_which_something_was_decided_is_noticed_although_it_was_not_looked_at() -> None:
    states = [RegistrationState(), RegistrationState("gone"), RegistrationState()]
    watch = RegistrationWatch(lambda: states.pop(0), 3600)
    assert watch.has_changed()
    assert not watch.has_changed()
    assert watch.current().problem
    assert watch.has_changed()
    assert not watch.current().problem
    assert watch.has_changed()
    assert not watch.has_changed()
