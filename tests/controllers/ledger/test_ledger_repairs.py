"""What people do to ledgers, and what cannot be counted, is put right and told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from tests.admission.handlers.harness import wait_until_seen
from tests.builders import a_pod, a_quota, an_expression
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    NAMESPACE,
    ControllerHarness,
    new_harness,
)
from tests.install.manifests import of_kind
from tests.reactions import Call, Proceed, unreachable
from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.install import render
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    BadRequestError,
    UnavailableError,
)
from webhook.operations.emergency_state import opened_object
from webhook.quota.ledger.ledger import Undecided
from webhook.quota.objects.model import Pod
from webhook.state.ledger_store import LEDGER_NAME
from webhook.state.reserver import Reserved
from webhook.state.well_known import EMERGENCY_SINCE, REGISTRATION

LOOK_SECONDS = 0.6


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """A quota of 2 cpu, counted, by a controller that is told of changes of ledgers."""
    with new_harness(a_quota("p1"), follows_ledgers=True) as made:
        made.step()
        yield made


def hand_edit(harness: ControllerHarness, path: str, value: object, op: str = "replace") -> None:
    patch = [{"op": op, "path": f"/status/{path}", "value": value}]
    harness.api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")


def look(harness: ControllerHarness) -> None:
    harness.catch_up()
    harness.pass_time(LOOK_SECONDS)
    harness.step()


def open_emergency(harness: ControllerHarness) -> Mapping[str, object]:
    """Let the guard be asked about nothing; return what it is asked about otherwise."""
    (guard,) = of_kind("ValidatingWebhookConfiguration", cast("Any", render().registrations))
    harness.api.create(VALIDATING_WEBHOOKS, opened_object(guard))
    return {"webhooks": guard["webhooks"]}


# -- edits and losses ----------------------------------------------------------------------


def test_an_edit_is_noticed_at_once_repaired_and_reported(harness: ControllerHarness) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    hand_edit(harness, "quotas/0/used", {"requests.cpu": "0"})
    look(harness)
    assert harness.used() == {"requests.cpu": "1"}
    assert harness.events_recorded() == ["LedgerRepaired"]
    assert harness.metric("ledger_repairs_total", reason="edited") == 1


def test_what_handlers_write_is_no_edit(harness: ControllerHarness) -> None:
    harness.pod("web", "500m")
    harness.pod("more", "500m")
    harness.step()
    assert isinstance(harness.reserve("web"), Reserved)
    look(harness)
    harness.bind("web")
    assert isinstance(harness.reserve("more"), Reserved)
    harness.pass_time(1)
    harness.step()
    look(harness)
    assert harness.events_recorded() == []


def test_a_changed_quota_is_no_edit(harness: ControllerHarness) -> None:
    patch = {"spec": {"hard": {"requests.cpu": "7"}}}
    harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    harness.step()
    look(harness)
    assert harness.events_recorded() == []


def test_a_reservation_is_seen_at_once_and_watched_from_then(harness: ControllerHarness) -> None:
    harness.pod("web")
    harness.step()
    harness.reserve("web")
    look(harness)
    harness.pass_time(EXPIRE_SECONDS + 0.1)
    harness.step()
    assert harness.held() == {}


def test_the_controllers_own_writes_are_not_looked_at(harness: ControllerHarness) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    harness.catch_up()
    harness.client.calls.clear()
    harness.pass_time(LOOK_SECONDS)
    harness.step()
    assert harness.client.calls_of("get", QUOTA_LEDGERS) == []


def test_a_deletion_is_noticed_at_once_and_reported_and_so_is_the_new_ledger(
    harness: ControllerHarness,
) -> None:
    harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    look(harness)
    assert not harness.has_ledger()
    assert harness.events_recorded() == ["LedgerLost"]
    harness.pass_time(EXPIRE_SECONDS + 0.1)
    harness.step()
    assert harness.conditions()["Rebuilt"] == ("True", "LedgerLost")
    assert harness.metric("ledger_repairs_total", reason="lost") == 1


def test_a_deletion_in_the_emergency_is_no_loss(
    harness: ControllerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    guards = {"metadata": {"name": REGISTRATION, "annotations": {EMERGENCY_SINCE: "2026-11-26"}}}
    harness.api.create(VALIDATING_WEBHOOKS, guards)
    with caplog.at_level("INFO"):
        harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
        look(harness)
    (record,) = [one for one in caplog.records if one.message.startswith("the ledger is gone")]
    assert record.levelname == "INFO"
    harness.pass_time(EXPIRE_SECONDS + 0.1)
    harness.step()
    assert harness.has_ledger()
    assert harness.events_recorded() == []
    assert harness.metric("ledger_repairs_total", reason="lost") == 0


def test_the_time_of_a_request_begins_once_binds_are_asked_about_again(
    harness: ControllerHarness,
) -> None:
    """In an emergency, and where the ledger went some time before the guard was put back."""
    entries = open_emergency(harness)
    harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    look(harness)
    harness.pass_time(EXPIRE_SECONDS)
    harness.step()
    assert not harness.has_ledger()
    harness.api.patch(VALIDATING_WEBHOOKS, REGISTRATION, entries)
    harness.pass_time(5)
    harness.step()
    harness.pass_time(EXPIRE_SECONDS - 1)
    harness.step()
    assert not harness.has_ledger()
    harness.pass_time(1.1)
    harness.step()
    assert harness.has_ledger()


@pytest.mark.parametrize("answers", ["late", "not at all"])
def test_nor_does_it_begin_by_a_look_that_does_not_show_it(
    harness: ControllerHarness, answers: str
) -> None:
    entries = open_emergency(harness)
    harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    look(harness)

    def closed_meanwhile(_call: Call, proceed: Proceed) -> object:
        harness.pass_time(5)
        harness.api.patch(VALIDATING_WEBHOOKS, REGISTRATION, entries)
        if answers == "late":
            return proceed()
        raise UnavailableError("busy")

    harness.client.on("get", VALIDATING_WEBHOOKS, closed_meanwhile, times=1)
    for seconds in (5, 5, EXPIRE_SECONDS - 6):
        harness.pass_time(seconds)
        harness.step()
    assert not harness.has_ledger()
    harness.pass_time(7)
    harness.step()
    assert harness.has_ledger()


def test_a_process_that_waits_for_the_end_of_the_emergency_is_ready() -> None:
    """It can go on for days, and a release that ends it may be rolled out meanwhile."""
    with new_harness(a_quota("p1"), waits_at_start=True) as harness:
        open_emergency(harness)
        harness.step()
        harness.pass_time(EXPIRE_SECONDS + 1)
        harness.step()
        assert harness.controller.readiness_problems() == []
        assert not harness.has_ledger()


def test_the_first_ledger_of_a_namespace_is_not_called_rebuilt(harness: ControllerHarness) -> None:
    assert set(harness.conditions()) == {"Counted", "QuotasReadable"}


def test_a_ledger_of_a_newer_release_is_left_alone(harness: ControllerHarness) -> None:
    harness.pod("web")
    hand_edit(harness, "format", 3)
    stored = harness.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    for _ in range(3):  # past the time after which one that is lost is made anew
        look(harness)
        assert isinstance(harness.reserve("web"), Undecided)
        harness.pass_time(EXPIRE_SECONDS)
    assert harness.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE) == stored
    assert harness.events_recorded() == ["LedgerOfNewerRelease"]
    (said,) = harness.ledgers.newer_formats()
    assert said == (
        "the ledger of namespace team-a cannot be read: status.format: is 3, of a newer release: "
        "this one reads up to 2"
    )
    hand_edit(harness, "format", 1)
    look(harness)
    assert harness.ledgers.newer_formats() == []
    assert isinstance(harness.reserve("web"), Reserved)


# -- conditions ----------------------------------------------------------------------------


def test_a_ledger_says_that_all_was_counted(harness: ControllerHarness) -> None:
    assert harness.conditions() == {
        "Counted": ("True", "AllCounted"),
        "QuotasReadable": ("True", "AllReadable"),
    }


def test_a_pod_that_cannot_be_read_is_named_and_the_count_stays(harness: ControllerHarness) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    before = harness.ledger()
    odd = a_pod(name="odd", uid="uid-odd", node="node-1", requests={"cpu": "two"})
    harness.cluster.load([(PODS, odd)])
    harness.step()
    assert harness.conditions()["Counted"] == ("False", "PodsUnreadable")
    counted = next(one for one in harness.ledger().conditions if one.type == "Counted")
    assert "team-a/odd" in counted.message
    assert harness.ledger().accounts == before.accounts
    assert harness.ledger().pods_resource_version == before.pods_resource_version
    assert harness.events_recorded() == ["PodsUnreadable"]
    harness.delete("odd")
    harness.pass_time(40)
    harness.step()
    assert harness.conditions()["Counted"] == ("True", "AllCounted")


def test_a_pod_that_fails_to_be_counted_is_named_and_keeps_no_other_from_it(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("faulty", "web"):
        harness.pod(name, node="node-1")
    harness.step()
    before, original = harness.ledger(), NamespaceUsage.put

    def put(usage: NamespaceUsage, pod: Pod) -> None:
        if pod.name == "faulty":
            raise ValueError("a fault")
        original(usage, pod)

    monkeypatch.setattr(NamespaceUsage, "put", put)
    cache = harness.controller.usage_cache
    with cache.lock:
        counted = cache.track(NAMESPACE).usage
    assert [*counted.versions()] == ["uid-web"]
    harness.step()
    assert harness.conditions()["Counted"] == ("False", "PodsUnreadable")
    assert harness.ledger().accounts == before.accounts
    monkeypatch.undo()
    harness.finish("faulty")
    harness.pass_time(40)
    harness.step()
    assert harness.conditions()["Counted"] == ("True", "AllCounted")
    assert harness.used() == {"requests.cpu": "1"}


QUOTAS = {
    "unreadable": (a_quota("odd", hard={"requests.cpu": "much"}), "Unreadable"),
    "unmatchable": (
        a_quota("odd", expressions=[an_expression("PriorityClass", "In", "bad value!")]),
        "Unmatchable",
    ),
}


@pytest.mark.parametrize(("quota", "reason"), QUOTAS.values(), ids=QUOTAS.keys())
def test_a_quota_that_cannot_be_used_is_named(
    harness: ControllerHarness, quota: dict[str, object], reason: str
) -> None:
    harness.pod("web", node="node-1")
    harness.create(quota)
    harness.step()
    assert harness.conditions() == {
        "Counted": ("False", "QuotasUnreadable"),
        "QuotasReadable": ("False", reason),
    }
    assert all("odd" in one.message for one in harness.ledger().conditions)


def test_conditions_are_written_when_they_change_and_survive_the_handlers(
    harness: ControllerHarness,
) -> None:
    first = harness.ledger().conditions
    harness.pod("web")
    harness.pass_time(100)
    harness.step()
    assert isinstance(harness.reserve("web"), Reserved)
    look(harness)
    assert harness.ledger().conditions == first
    harness.create(a_quota("odd", hard={"requests.cpu": "much"}))
    harness.pass_time(100)
    harness.step()
    changed = {one.type: one.last_transition_time for one in harness.ledger().conditions}
    assert changed["QuotasReadable"] > first[0].last_transition_time
    before = harness.cluster.resource_version
    harness.mark_dirty()
    harness.pass_time(100)
    harness.step()
    assert harness.cluster.resource_version == before


FORGED = {
    "a condition of ours": {"type": "Counted", "status": "False", "reason": "Forged"},
    "what ledgers never say": {"type": "Forged", "status": "True"},
    "a loss": {"type": "Rebuilt", "status": "True", "reason": "LedgerLost", "message": "run this"},
}


@pytest.mark.parametrize("condition", FORGED.values(), ids=FORGED.keys())
def test_a_forged_condition_does_not_stay(
    harness: ControllerHarness, condition: dict[str, str]
) -> None:
    before = harness.ledger().conditions
    others = [one for one in conditions_of(harness) if one["type"] != condition["type"]]
    hand_edit(harness, "conditions", [*others, condition])
    look(harness)
    said = {(one.type, one.status, one.reason, one.message) for one in harness.ledger().conditions}
    assert said == {(one.type, one.status, one.reason, one.message) for one in before}


@pytest.mark.parametrize("name", ["cdq/a/b", "cdq/", "cdq/..", f"cdq/{'x' * 254}"])
def test_a_forged_account_of_a_quota_that_no_quota_is_called_does_not_stay(
    harness: ControllerHarness, name: str
) -> None:
    """A client refuses to ask for such a name."""

    def refused(call: Call, _proceed: Proceed) -> object:
        raise BadRequestError(f"metadata.name: Invalid value: {call.name!r}")

    observed = {"uid": "u", "specHash": "h"}
    forged = {"name": name, "observed": observed, "hard": {"requests.cpu": "1"}, "used": {}}
    harness.client.on("get", CLUSTER_DEFERRED_QUOTAS, refused)
    hand_edit(harness, "quotas/-", forged, "add")
    assert name in harness.ledger().accounts
    look(harness)
    assert harness.ledger().accounts.keys() == {"p1"}


@pytest.mark.parametrize(
    ("path", "value"), [("summary", "all is well"), ("quotas/0/reserved", {"requests.cpu": "9"})]
)
def test_what_is_derived_is_written_again_where_it_was_forged(
    harness: ControllerHarness, path: str, value: object
) -> None:
    harness.pod("web")
    harness.step()
    assert isinstance(harness.reserve("web"), Reserved)
    look(harness)
    before = status_of(harness)
    hand_edit(harness, path, value)
    assert status_of(harness) != before
    look(harness)
    after = status_of(harness)
    assert {**after, "podsResourceVersion": before["podsResourceVersion"]} == before
    version = harness.cluster.resource_version
    harness.mark_dirty()
    look(harness)
    assert harness.cluster.resource_version == version


def conditions_of(harness: ControllerHarness) -> list[dict[str, str]]:
    return cast("list[dict[str, str]]", status_of(harness)["conditions"])


def status_of(harness: ControllerHarness) -> dict[str, object]:
    stored = harness.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    return cast("dict[str, object]", stored["status"])


def test_fields_of_a_newer_version_survive_handlers_and_controller(
    harness: ControllerHarness,
) -> None:
    hand_edit(harness, "borrowed", {"p1": {"cpu": 1.5}}, op="add")
    harness.pod("web")
    harness.step()
    assert isinstance(harness.reserve("web"), Reserved)
    look(harness)
    status = harness.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)["status"]
    assert isinstance(status, dict)
    assert status["borrowed"] == {"p1": {"cpu": "1.5"}}


# -- failures ------------------------------------------------------------------------------


def test_a_namespace_that_fails_again_and_again_is_tried_less_and_less_often(
    harness: ControllerHarness,
) -> None:
    harness.client.on("update", QUOTA_LEDGERS, unreachable)
    harness.pod("web", node="node-1")
    pauses = []
    for _ in range(8):
        harness.step()
        pauses.append(harness.seconds_to_next())
        harness.pass_time(pauses[-1])
    assert pauses[0] == pytest.approx(1)
    assert pauses[-1] > 20
    harness.client.reset()
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}
    assert harness.controller.workers.queue.failures(NAMESPACE) == 0


def test_a_namespace_rests_after_work_that_took_long_whatever_happens_there(
    harness: ControllerHarness,
) -> None:
    def take_long(_call: Call, proceed: Proceed) -> object:
        harness.processor_seconds += 0.2
        return proceed()

    harness.client.on("update", QUOTA_LEDGERS, take_long)
    harness.pod("web", node="node-1")
    harness.step()
    harness.pod("more", node="node-1")
    harness.catch_up()
    assert harness.seconds_to_next() == pytest.approx(1.8)
    harness.pass_time(1.8)
    harness.step()
    assert harness.used() == {"requests.cpu": "2"}


def test_events_do_not_shorten_the_pause_after_a_failure(harness: ControllerHarness) -> None:
    harness.client.on("update", QUOTA_LEDGERS, unreachable)
    harness.pod("web", node="node-1")
    harness.step()
    due = harness.seconds_to_next()
    harness.pod("more", node="node-1")
    harness.catch_up()
    assert harness.seconds_to_next() == pytest.approx(due)


def test_a_ledger_that_cannot_be_read_is_reported_once_and_replaced(
    harness: ControllerHarness,
) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    hand_edit(harness, "podsResourceVersion", "soon")
    for _ in range(4):
        look(harness)
    assert harness.events_recorded() == ["LedgerUnreadable"]
    harness.pass_time(EXPIRE_SECONDS + 1)
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}
    assert harness.conditions()["Rebuilt"] == ("True", "LedgerLost")


def test_a_pod_that_came_and_went_before_the_watch_showed_its_reservation_gives_it_back(
    harness: ControllerHarness,
) -> None:
    harness.pod("web")
    harness.client.pause(QUOTA_LEDGERS, f"metadata.name={LEDGER_NAME}")
    assert isinstance(harness.reserve("web"), Reserved)
    harness.bind("web")
    harness.delete("web")
    wait_until_seen(harness.cluster, [harness.controller.pods])
    harness.reconcile_once()
    assert harness.metric("ledger_settlements_total", result="unchanged") == 1
    harness.client.resume()
    look(harness)
    assert harness.held() == {}
