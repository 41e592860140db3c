"""The doctor knows the emergency: since when it is open, and what else is as it has to be then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.operations.healthy import (
    Pulse,
    edit,
    examined,
    healthy,
    ids,
    renewing,
    serious,
    the,
)
from tests.operations.scenes import NAMESPACE, QUICK
from webhook.config import Configuration
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.install.emergency.opening import open_emergency, plan_opening
from webhook.kube.api import RESOURCE_QUOTAS, VALIDATING_WEBHOOKS
from webhook.operations.doctor.check_context import CheckContext, Settings
from webhook.operations.enable import installation_findings, obstacles
from webhook.operations.retry import silent
from webhook.state.well_known import DEFAULT_NAMESPACE, REGISTRATION


def opened() -> FakeCluster:
    cluster = healthy()
    api = FakeClient(cluster)
    done = open_emergency(api, plan_opening(api, QUICK, silent), silent, patience=QUICK)
    assert not done.problems
    return cluster


def test_an_open_emergency_is_the_only_fault_of_a_healthy_cluster() -> None:
    cluster = opened()
    registration: Any = FakeClient(cluster).get(VALIDATING_WEBHOOKS, REGISTRATION)
    since = registration["metadata"]["annotations"]["deferredquota.io/emergency-since"]
    found = examined(cluster)
    assert ids(serious(found)) == ["emergency.open"]
    assert the(found, "emergency.open").message == (
        f"the emergency is open since {since}: binds are not guarded, and the API server enforces"
        " quotas when pods are created; quotas of several namespaces are not enforced"
    )


def test_a_quota_that_is_not_native_while_it_is_open_is_named() -> None:
    cluster = opened()

    def masked(quota: Any) -> None:
        del quota["status"]["hard"]["requests.cpu"]

    edit(cluster, RESOURCE_QUOTAS, "p1", masked, namespace=NAMESPACE)
    assert "mask.leftover" in ids(examined(cluster))


def test_what_was_opened_in_part_is_named_whichever_part_it_is() -> None:
    cluster = opened()

    def asked_again(registration: Any) -> None:
        for entry in registration["webhooks"]:
            del entry["namespaceSelector"]["matchExpressions"][-2:]

    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, asked_again)
    found = examined(cluster)
    assert "emergency.open" not in ids(found)
    message = the(found, "emergency.partial").message
    assert "namespaces are selected by bind.deferredquota.io, assigned." in message


def test_guards_that_another_program_restored_are_not_taken_for_closed() -> None:
    cluster = healthy()

    def noted(registration: Any) -> None:
        since = "2026-06-01T00:00:00Z"
        registration["metadata"]["annotations"]["deferredquota.io/emergency-since"] = since

    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, noted)
    assert "2026-06-01T00:00:00Z" in the(examined(cluster), "emergency.partial").message


def test_no_namespace_opts_in_while_it_is_open() -> None:
    cluster = opened()
    pulse = Pulse(renewing(cluster))
    usual = Settings.of(Configuration(), DEFAULT_NAMESPACE)
    settings = replace(usual, clock=pulse.clock, sleep=pulse.sleep)
    found = installation_findings(FakeClient(cluster), settings, ["other"])
    assert "emergency.open" in ids(obstacles(found, force=False))


def test_selectors_that_are_widened_are_named_all_the_same() -> None:
    cluster = opened()

    def widened(registration: Any) -> None:
        for entry in registration["webhooks"]:
            entry["namespaceSelector"]["matchExpressions"].pop(0)

    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, widened)
    assert "registration.widened" in ids(examined(cluster))
    assert CheckContext(FakeClient(cluster), Settings.of(Configuration(), "x")).emergency().is_open
