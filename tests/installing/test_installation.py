"""Installing: in the right order, once, and never by halves without saying so."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from tests.installing.twin import Twin
from webhook.cluster.api import (
    CONFIG_MAPS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
    VALIDATING_WEBHOOKS,
)
from webhook.installing import InstallError
from webhook.installing.certificates import certificates
from webhook.installing.installation import InstallApi, Wish, choose_mask, install
from webhook.operations.patience import Patience

SYSTEM = "deferred-quota-system"
QUICK = Patience(seconds=0.05, pause_seconds=0.01)
GPU = (
    "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
    "deferredResources: [requests.nvidia.com/gpu]\n"
)


def run(twin: Twin, **wish: Any) -> tuple[int, list[str]]:
    lines: list[str] = []
    changes = install(cast("InstallApi", twin), Wish(patience=QUICK, **wish), lines.append)
    return changes, lines


def secret(twin: Twin, name: str) -> Any:
    return twin.api.get(SECRETS, name, namespace=SYSTEM)


def trusted(twin: Twin) -> set[str]:
    found: list[Any] = [
        twin.api.get(kind, "deferred-quota") for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
    ]
    return {entry["clientConfig"]["caBundle"] for each in found for entry in each["webhooks"]}


def test_nothing_is_asked_before_somebody_answers_and_nothing_hidden_before_it_is_guarded() -> None:
    twin = Twin()
    run(twin)
    order = [line.removeprefix("apply ") for line in twin.written]
    assert order[:2] == [
        f"Namespace {SYSTEM}",
        "CustomResourceDefinition quotaledgers.deferredquota.io",
    ]
    secrets = order.index(f"Secret {SYSTEM}/deferred-quota-tls")
    deployment = order.index(f"Deployment {SYSTEM}/deferred-quota-webhook")
    guard = order.index("ValidatingWebhookConfiguration deferred-quota")
    mask = order.index("MutatingAdmissionPolicyBinding deferred-quota-mask")
    assert secrets < deployment < guard < mask


def test_the_api_server_trusts_what_the_webhook_serves() -> None:
    twin = Twin()
    run(twin)
    assert trusted(twin) == {secret(twin, "deferred-quota-tls")["data"]["ca.crt"]}


def test_a_second_time_changes_nothing() -> None:
    twin = Twin()
    changes, lines = run(twin)
    assert changes == sum(line.endswith(": created") for line in lines) == len(twin.written)
    before = list(twin.written)
    changes, lines = run(twin)
    assert changes == 0
    assert twin.written == before
    assert "certificates: kept" in lines


@pytest.mark.parametrize("url", ["", "https://192.0.2.7:9443"])
def test_a_dry_run_writes_nothing(url: str) -> None:
    twin = Twin()
    changes, lines = run(twin, dry_run=True, url=url)
    assert changes == sum("would be created" in line for line in lines) > 10
    assert twin.written == []
    assert [
        str(cast("Any", each)["metadata"]["name"]) for each in twin.api.list(NAMESPACES).items
    ] == []


def test_a_deployment_that_does_not_come_up_is_never_asked() -> None:
    twin = Twin()
    twin.available = False
    with pytest.raises(
        InstallError, match=r"deferred-quota-webhook: 0 of 3 replicas are available"
    ):
        run(twin)
    assert not any("Webhook" in line or "Policy" in line for line in twin.written)
    twin.available = True
    run(twin, waits=False)
    assert "apply ValidatingWebhookConfiguration deferred-quota" in twin.written


def test_a_new_ca_is_trusted_before_it_is_served_with() -> None:
    twin = Twin()
    run(twin)
    long_ago = certificates(None, None, now=datetime.now(UTC) - timedelta(days=500))
    for each in (long_ago.ca, long_ago.tls):
        metadata: Any = each["metadata"]
        found = secret(twin, metadata["name"])
        twin.api.update(SECRETS, {**found, "data": each["data"]})
    twin.written.clear()
    _, lines = run(twin)
    assert any("two thirds of the life of the CA" in line for line in lines)
    serving = twin.written.index(f"apply Secret {SYSTEM}/deferred-quota-tls")
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        assert twin.written.index(f"patch {kind} deferred-quota") < serving
    (bundle,) = trusted(twin)
    assert base64.b64decode(bundle).count(b"BEGIN CERTIFICATE") == 2


def test_the_mask_can_be_changed_and_changed_back() -> None:
    twin = Twin()
    run(twin, mask="policy")
    run(twin, mask="webhook")
    deleted = [line for line in twin.written if line.startswith("delete")]
    policies = ["deferred-quota-mask"] * 2 + ["deferred-quota-stamp"] * 2
    assert [line.rsplit(" ", 1)[1] for line in deleted] == policies
    entries = cast("Any", twin.api.get(MUTATING_WEBHOOKS, "deferred-quota"))["webhooks"]
    assert [each["name"].partition(".")[0] for each in entries] == ["stamp", "jobs", "mask"]
    run(twin, mask="policy")
    entries = cast("Any", twin.api.get(MUTATING_WEBHOOKS, "deferred-quota"))["webhooks"]
    assert [each["name"].partition(".")[0] for each in entries] == ["stamp", "jobs"]


def test_the_configuration_stays_until_another_is_given() -> None:
    twin = Twin()
    run(twin, configuration=GPU)
    assert run(twin)[0] == 0
    found = cast("Any", twin.api.get(CONFIG_MAPS, "deferred-quota-config", namespace=SYSTEM))
    assert found["data"] == {"config.yaml": GPU}


BAD = {
    "unknown field": ("surprise: 1", "configuration: surprise"),
    "no extended resource": ("deferredResources: [pods]", r"configuration: deferredResources\[0\]"),
}


@pytest.mark.parametrize(("line", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_configuration_is_refused_before_anything_is_written(line: str, message: str) -> None:
    twin = Twin()
    text = f"apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n{line}\n"
    with pytest.raises(InstallError, match=message):
        run(twin, configuration=text)
    assert twin.written == []


@pytest.mark.parametrize(
    ("wanted", "served", "chosen"),
    [
        ("auto", True, "policy"),
        ("auto", False, "webhook"),
        ("policy", True, "policy"),
        ("webhook", True, "webhook"),
    ],
)
def test_the_mask_is_what_the_api_server_can_do(wanted: Any, served: bool, chosen: str) -> None:
    twin = Twin()
    twin.resources = twin.resources if served else twin.resources[1:]
    assert choose_mask(cast("InstallApi", twin), wanted) == chosen


def test_a_policy_that_is_not_served_is_an_error_with_the_way_out() -> None:
    twin = Twin()
    twin.resources = ()
    with pytest.raises(InstallError, match="use --mask webhook"):
        run(twin, mask="policy")


@pytest.mark.parametrize(
    ("minor", "is_old"), [("29", True), ("9", True), ("30", False), ("36+", False)]
)
def test_an_api_server_that_is_too_old_is_refused(minor: str, is_old: bool) -> None:
    twin = Twin()
    twin.minor = minor
    if is_old:
        with pytest.raises(InstallError, match=r"1\.30 or newer is needed"):
            run(twin)
        assert twin.written == []
    else:
        assert run(twin)[0] > 0
