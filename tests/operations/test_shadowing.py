"""Namespaces are watched, and what was found is read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admission.handlers.harness import eventually
from tests.builders import a_pod, a_quota, out_of_bounds
from tests.operations.healthy import a_controller, healthy, serious
from tests.operations.scenes import NAMESPACE, QUICK, a_cluster, a_namespace, labels_of, record
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import NAMESPACES, QUOTA_LEDGERS
from webhook.operations.disable import opt_out
from webhook.operations.doctor.check_context import Settings
from webhook.operations.enable import installation_findings, set_label, wait_until_complete
from webhook.operations.findings import Severity
from webhook.operations.shadow_mode import (
    all_watched,
    begin_anew,
    read_watched,
    still_unwatched,
    watching_plan,
)
from webhook.state.well_known import SHADOW_ENTRY, SHADOW_MODE

QUOTA = a_quota("p1", hard={"requests.cpu": "4", "pods": "9"}, used={"requests.cpu": "3"})
RUNS = a_pod(name="runs", uid="u1", node="n", requests={"cpu": "1"})


def ledger_of(api: FakeClient) -> Any:
    return api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)


def test_a_namespace_is_watched_once_its_quotas_are() -> None:
    cluster = a_cluster(a_namespace(mode=""), QUOTA, RUNS)
    api = FakeClient(cluster)
    with a_controller(cluster):
        assert still_unwatched(api, Settings(), NAMESPACE) == ("nothing is recorded",)
        set_label(api, NAMESPACE, mode=SHADOW_MODE)
        missing = wait_until_complete(
            NAMESPACE, lambda: still_unwatched(api, Settings(), NAMESPACE), patience=QUICK
        )
    assert missing == ()
    assert labels_of(api)["deferredquota.io/mode"] == "shadow"
    found = read_watched(api, NAMESPACE)
    assert found.is_watched
    assert found.record is not None
    span = found.record.quotas["p1"].resources["requests.cpu"]
    assert (str(span.hard), str(span.assigned), str(span.charged)) == ("4", "1", "3")


def test_a_record_of_an_earlier_shadow_mode_is_not_taken_for_the_present_one() -> None:
    cluster = a_cluster(a_namespace(mode="shadow"), QUOTA, RUNS)
    api = FakeClient(cluster)

    def look() -> tuple[str, ...]:
        return still_unwatched(api, Settings(), NAMESPACE)

    with a_controller(cluster):
        assert wait_until_complete(NAMESPACE, look, patience=QUICK) == ()
        opt_out(api, NAMESPACE, patience=QUICK)
        eventually(lambda: "shadow: ended" in str(ledger_of(api)), "the record has ended")
    set_label(api, NAMESPACE, mode=SHADOW_MODE)
    assert look() == ("the record is of an earlier time in shadow mode",)
    with a_controller(cluster):
        assert wait_until_complete(NAMESPACE, look, patience=QUICK) == ()


def test_a_quota_that_is_not_watched_yet_is_named() -> None:
    api = FakeClient(a_cluster(a_namespace(mode="shadow"), QUOTA))
    record(api, {"since": "2026-01-01T00:00:00Z"})
    assert still_unwatched(api, Settings(), NAMESPACE) == ("quota p1: is not watched yet",)


def test_of_very_many_quotas_those_are_waited_for_that_are_watched() -> None:
    (many, _), _ = out_of_bounds().values()
    api = FakeClient(a_cluster(a_namespace(mode="shadow"), *many))
    record(api, {"since": "2026-01-01T00:00:00Z"})
    missing = still_unwatched(api, Settings(), NAMESPACE)
    assert (len(missing), missing[-1]) == (128, "quota q127: is not watched yet")


def test_all_that_are_or_were_watched_are_read() -> None:
    api = FakeClient(
        a_cluster(
            a_namespace("a", "shadow"), a_namespace("b", "deferred"), a_namespace("c", ""),
            a_namespace("d", "shadow"), a_namespace("e", "shadow"),
        )
    )  # fmt: skip
    for name in ("a", "b"):
        record(api, {"since": "2026-01-01T00:00:00Z"}, name)
    record(api, {"since": 7}, "d")
    found = {one.namespace: one for one in all_watched(api)}
    assert sorted(found) == ["a", "b", "d", "e"]
    assert (found["a"].is_watched, found["b"].is_watched) == (True, False)
    assert found["d"].problem.startswith("the record cannot be read: status.shadow.since")
    assert found["e"].problem == "nothing is recorded"
    (named,) = all_watched(api, ["missing"])
    assert named.problem == "there is no such namespace"
    assert [one.namespace for one in all_watched(api, ["c", "a", "c"])] == ["c", "a"]


def test_a_record_is_taken_away_and_nothing_else() -> None:
    api = FakeClient(a_cluster(a_namespace(mode="shadow")))
    assert begin_anew(api, NAMESPACE).problem == "nothing is recorded"
    record(api, {"since": "2026-01-01T00:00:00Z"})
    assert begin_anew(api, NAMESPACE).record is not None
    assert begin_anew(api, NAMESPACE).record is None
    assert begin_anew(api, "missing").problem == "there is no such namespace"
    assert ledger_of(api)["status"] == {"summary": "shadow"}


def test_what_speaks_against_deferring_does_not_speak_against_watching() -> None:
    odd = a_quota(
        "odd", uid="u-odd", expressions=[{"scopeName": "PriorityClass", "operator": "In"}]
    )
    api = FakeClient(a_cluster(a_namespace(mode=""), QUOTA, odd))
    plan = watching_plan(api, Settings(), NAMESPACE, must_specify=True)
    assert {one.severity for one in plan.findings} == {Severity.WARN}
    assert all(one.message.startswith("if the namespace opted in: ") for one in plan.findings)


@pytest.mark.parametrize(
    ("name", "mode", "finding"),
    [
        ("kube-system", "", "namespace.exempt"),
        ("deferred-quota-system", "", "namespace.own"),
        ("missing", None, "namespace.missing"),
        (NAMESPACE, "deferred", "shadow.deferred"),
    ],
)
def test_some_namespaces_are_never_watched(name: str, mode: str | None, finding: str) -> None:
    there = [] if mode is None else [a_namespace(name, mode)]
    plan = watching_plan(FakeClient(a_cluster(*there)), Settings(), name, must_specify=True)
    errors = [one.id for one in plan.findings if one.severity is Severity.ERROR]
    assert errors == [finding]


def test_watching_takes_no_mask_but_what_tells_of_creations() -> None:
    cluster = healthy()
    api = FakeClient(cluster)
    api.create(NAMESPACES, a_namespace("team-b", ""))
    settings = Settings(leader_seconds=0.0)
    ids = {one.id for one in installation_findings(api, settings, ["team-b"], mode=SHADOW_MODE)}
    assert not [one for one in ids if one.startswith("mask")]


def test_an_entry_that_does_not_select_what_is_watched_is_found() -> None:
    from tests.operations.healthy import examined, the  # noqa: PLC0415
    from webhook.kube.api import VALIDATING_WEBHOOKS  # noqa: PLC0415

    cluster = healthy()
    api = FakeClient(cluster)
    raw: Any = dict(api.get(VALIDATING_WEBHOOKS, "deferred-quota"))
    (entry,) = [one for one in raw["webhooks"] if one["name"] == SHADOW_ENTRY]
    entry["failurePolicy"] = "Fail"
    (bind,) = [one for one in raw["webhooks"] if one["name"] == "bind.deferredquota.io"]
    bind["namespaceSelector"]["matchExpressions"][0]["values"] = ["deferred", "shadow"]
    api.update(VALIDATING_WEBHOOKS, raw)
    found = examined(cluster)
    assert the(found, "webhooks.failure-policy").message == (
        f"webhook {SHADOW_ENTRY}: failurePolicy: is Fail, must be Ignore: an outage of the webhook"
        " stops requests"
    )
    assert "selects namespaces in shadow mode" in the(found, "registration.widened").message
    assert serious(found)
