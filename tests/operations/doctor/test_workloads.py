"""The Deployments of the webhook and of the controller, as the doctor sees them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import a_pod
from tests.operations.healthy import (
    Change,
    a_lease,
    edit,
    examined,
    healthy,
    ids,
    refusing,
    remove,
    renewing,
    serious,
    the,
)
from tests.operations.scenes import load
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import LEASES, VALIDATING_WEBHOOKS, ApiError, ForbiddenError, UnavailableError
from webhook.operations.deployments import DEPLOYMENTS
from webhook.operations.doctor.runner import Examination
from webhook.operations.findings import Finding, Subject
from webhook.state.well_known import DEFAULT_NAMESPACE, LEADER_LEASE, REGISTRATION


def changed(component: str, change: Change) -> FakeCluster:
    cluster = healthy()
    name = f"deferred-quota-{component}"
    edit(cluster, DEPLOYMENTS, name, change, namespace=DEFAULT_NAMESPACE)
    return cluster


def available(number: int) -> Change:
    def change(raw: Any) -> None:
        raw["status"]["availableReplicas"] = number

    return change


def scaled_to_none(raw: Any) -> None:
    raw["spec"]["replicas"] = 0
    raw["status"] = {"observedGeneration": 1}


def without_status(raw: Any) -> None:
    raw["status"] = {}


def being_replaced(raw: Any) -> None:
    raw["status"]["updatedReplicas"] = 1


def not_looked_at(raw: Any) -> None:
    raw["metadata"]["generation"] = 2


WEBHOOK, CONTROLLER = "webhook", "controller"
NO_NODE = "in namespaces that have opted in no pod gets a node"
NO_COUNT = "ledgers are not counted, reservations do not expire, and no gate is removed"
STATES = {
    "no webhook": (
        WEBHOOK,
        available(0),
        ("deployment.unavailable", "error", f"0 of 3 replicas are available: {NO_NODE}"),
    ),
    "a webhook that was never started": (
        WEBHOOK,
        without_status,
        ("deployment.unavailable", "error", f"0 of 3 replicas are available: {NO_NODE}"),
    ),
    "a webhook that is scaled to none": (
        WEBHOOK,
        scaled_to_none,
        ("deployment.unavailable", "error", f"is scaled to 0: {NO_NODE}"),
    ),
    "some webhooks": (
        WEBHOOK,
        available(1),
        ("deployment.incomplete", "warn", "1 of 3 replicas are available"),
    ),
    "a webhook that is being replaced": (
        WEBHOOK,
        being_replaced,
        ("deployment.incomplete", "warn", "is being replaced: 1 of 3 replicas are as it says"),
    ),
    "a webhook that was just changed": (
        WEBHOOK,
        not_looked_at,
        ("deployment.incomplete", "warn", "is being replaced: 3 of 3 replicas are as it says"),
    ),
    "no controller": (
        CONTROLLER,
        available(0),
        ("deployment.unavailable", "warn", f"0 of 2 replicas are available: {NO_COUNT}"),
    ),
    "one controller": (
        CONTROLLER,
        available(1),
        ("deployment.incomplete", "warn", "1 of 2 replicas are available"),
    ),
}


@pytest.mark.parametrize(("component", "change", "told"), STATES.values(), ids=STATES)
def test_replicas_that_are_missing_are_reported(
    component: str, change: Change, told: tuple[str, str, str]
) -> None:
    (found,) = serious(examined(changed(component, change)))
    assert (found.id, found.severity, found.message) == told
    assert str(found.subject) == f"Deployment {DEFAULT_NAMESPACE}/deferred-quota-{component}"


def test_what_keeps_the_pods_is_said() -> None:
    cluster = changed(WEBHOOK, available(0))
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    labels = {
        "app.kubernetes.io/name": "deferred-quota",
        "app.kubernetes.io/component": "webhook",
    }
    pod = a_pod(
        name="webhook-1",
        namespace=DEFAULT_NAMESPACE,
        metadata={"labels": labels},
        status={"containerStatuses": [{"name": "webhook", "state": {"waiting": waiting}}]},
    )
    load(cluster, pod)
    found = the(examined(cluster), "deployment.unavailable")
    assert "are available (ImagePullBackOff: no such image): " in found.message
    assert found.remedy.endswith("-l app.kubernetes.io/component=webhook")


def outside(raw: Any) -> None:
    for entry in raw["webhooks"]:
        del entry["clientConfig"]["service"]
        entry["clientConfig"]["url"] = "https://192.0.2.7:9443/validate"


def test_a_webhook_that_is_not_called_is_reported() -> None:
    cluster = changed(WEBHOOK, available(0))
    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, outside)
    found = the(examined(cluster), "deployment.unasked")
    assert found.severity == "info"
    assert found.message == "is not called: the API server calls https://192.0.2.7:9443"


def moved(holder: str, change: Change = scaled_to_none) -> FakeCluster:
    """A cluster in which the API server calls a webhook elsewhere, and some process leads."""
    cluster = changed(CONTROLLER, change)
    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, outside)
    remove(cluster, LEASES, LEADER_LEASE, namespace=DEFAULT_NAMESPACE)
    load(cluster, a_lease(holder))
    return cluster


def of_controller(found: Examination) -> list[Finding]:
    subject = Subject(DEPLOYMENTS.kind, "deferred-quota-controller", DEFAULT_NAMESPACE)
    return [one for one in found.findings if one.subject == subject]


def test_a_controller_that_is_scaled_to_none_is_right_where_one_leads_elsewhere() -> None:
    (found,) = of_controller(examined(moved("laptop-7-0a1b2c3d")))
    assert (found.id, found.severity) == ("deployment.unneeded", "info")
    assert found.message == (
        "is scaled to 0, and laptop-7-0a1b2c3d leads, which is none of its pods"
    )


NEEDED: dict[str, tuple[str, Change, bool]] = {
    "none leads": ("", scaled_to_none, True),
    "its last pod leads": ("deferred-quota-controller-1-7-0a1b2c3d", scaled_to_none, True),
    "none renews": ("laptop-7-0a1b2c3d", scaled_to_none, False),
    "it is to run": ("laptop-7-0a1b2c3d", available(0), True),
}


@pytest.mark.parametrize(("holder", "change", "renews"), NEEDED.values(), ids=NEEDED)
def test_a_controller_that_does_not_run_is_reported_else(
    holder: str, change: Change, renews: bool
) -> None:
    cluster = moved(holder, change)
    events = [renewing(cluster)] if renews else [lambda: None]
    (found,) = of_controller(examined(cluster, *events))
    assert (found.id, found.severity) == ("deployment.unavailable", "warn")


def test_one_that_is_called_in_the_cluster_is_to_be_led_there() -> None:
    cluster = changed(CONTROLLER, scaled_to_none)
    remove(cluster, LEASES, LEADER_LEASE, namespace=DEFAULT_NAMESPACE)
    load(cluster, a_lease("laptop-7-0a1b2c3d"))
    assert ids(of_controller(examined(cluster))) == ["deployment.unavailable"]


def test_processes_may_run_elsewhere() -> None:
    cluster = healthy()
    for component in (WEBHOOK, CONTROLLER):
        remove(cluster, DEPLOYMENTS, f"deferred-quota-{component}", namespace=DEFAULT_NAMESPACE)
    found = examined(cluster)
    assert serious(found) == []
    assert "workloads" in found.checked


def test_deployments_of_others_are_not_looked_at() -> None:
    def rename(raw: Any) -> None:
        raw["metadata"]["labels"]["app.kubernetes.io/name"] = "another"
        raw["status"] = {}

    assert serious(examined(changed(WEBHOOK, rename))) == []


def test_a_user_that_may_not_see_them_learns_so() -> None:
    found = examined(refusing(healthy(), ForbiddenError("no"), DEPLOYMENTS))
    assert the(found, "check.forbidden").message == (
        "the Deployments: not looked at: you may not list deployments of apps in namespace"
        f" {DEFAULT_NAMESPACE}"
    )


# -- who the controller is ---------------------------------------------------------------------


def running_as(account: str | None) -> Change:
    def change(raw: Any) -> None:
        pod = raw["spec"]["template"]["spec"]
        pod.pop("serviceAccountName")
        if account is not None:
            pod["serviceAccountName"] = account

    return change


def untrusted(component: str, account: str | None, **settings: Any) -> list[Finding]:
    found = examined(changed(component, running_as(account)), **settings)
    return [one for one in found.findings if one.id == "deployment.untrusted"]


@pytest.mark.parametrize(("account", "user"), [("other", "other"), (None, "default")])
def test_a_controller_that_the_webhook_does_not_know_is_reported(
    account: str | None, user: str
) -> None:
    (found,) = untrusted(CONTROLLER, account)
    name = f"system:serviceaccount:{DEFAULT_NAMESPACE}:{user}"
    assert found.severity == "error"
    assert found.message.startswith(f"runs as {name}, which the webhook does not take for the")
    assert f"Add {name} to trustedUsers" in found.remedy


TRUSTED: dict[str, tuple[str, dict[str, Any]]] = {
    "by its name": (
        "other",
        {"trusted_users": {f"system:serviceaccount:{DEFAULT_NAMESPACE}:other"}},
    ),
    "by its group": ("other", {"glass_breakers": {f"system:serviceaccounts:{DEFAULT_NAMESPACE}"}}),
    "as the shipped one": ("deferred-quota-controller", {}),
    "as the shipped webhook": ("deferred-quota-webhook", {}),
}


@pytest.mark.parametrize(("account", "settings"), TRUSTED.values(), ids=TRUSTED)
def test_one_that_it_knows_is_fine(account: str, settings: dict[str, Any]) -> None:
    assert untrusted(CONTROLLER, account, **settings) == []


def test_what_a_webhook_outside_of_the_cluster_trusts_is_not_to_be_seen() -> None:
    cluster = changed(CONTROLLER, running_as("other"))
    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, outside)
    assert "deployment.untrusted" not in ids(examined(cluster))


def test_the_webhook_takes_no_gates_off_and_may_have_any_name() -> None:
    assert untrusted(WEBHOOK, "other") == []


def with_replicas(*names: str, ready: str = "True") -> FakeCluster:
    cluster = healthy()
    labels = {
        "app.kubernetes.io/name": "deferred-quota",
        "app.kubernetes.io/component": "webhook",
    }
    for name in names:
        pod: Any = a_pod(name=name, namespace=DEFAULT_NAMESPACE, uid=name)
        pod["metadata"]["labels"] = labels
        pod["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        load(cluster, pod)
    return cluster


def test_what_a_replica_says_of_its_own_configuration_file_is_said() -> None:
    asked: list[str] = []

    def answer(path: str) -> dict[str, object]:
        asked.append(path)
        notes = ["configuration rejected since 12:00: gating: unknown"] if "web-2" in path else []
        return {"status": "ok", "notes": notes}

    found = the(examined(with_replicas("web-1", "web-2"), get_path=answer), "deployment.note")
    assert asked == [
        f"/api/v1/namespaces/{DEFAULT_NAMESPACE}/pods/web-{n}:8080/proxy/readyz" for n in (1, 2)
    ]
    assert found.severity == "warn"
    assert str(found.subject) == f"Deployment {DEFAULT_NAMESPACE}/deferred-quota-webhook"
    assert found.message.endswith(
        "1 replica says at /readyz: configuration rejected since 12:00: gating: unknown"
    )
    assert found.details == ("web-2",)


@pytest.mark.parametrize("error", [ForbiddenError("no"), UnavailableError("failing")])
def test_a_replica_that_may_not_be_asked_keeps_no_check_from_going_on(error: ApiError) -> None:
    def refuse(_: str) -> dict[str, object]:
        raise error

    found = examined(with_replicas("web-1"), get_path=refuse)
    assert "workloads" in found.checked
    assert "deployment.note" not in ids(found)


def test_a_replica_that_is_not_ready_is_not_asked() -> None:
    found = examined(with_replicas("web-1", ready="False"), get_path=lambda _: {"notes": ["x"]})
    assert "deployment.note" not in ids(found)


def test_an_answer_of_another_form_is_not_believed() -> None:
    found = examined(with_replicas("web-1"), get_path=lambda _: {"notes": 7})
    assert "workloads" in found.checked
    assert "deployment.note" not in ids(found)
