from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import a_pod
from tests.operations.healthy import (
    Guard,
    a_guarded_pod,
    count,
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
from tests.operations.scenes import NAMESPACE, a_masked_quota, load
from tests.reactions import Call, Proceed, ReactiveClient
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    ForbiddenError,
    Object,
)
from webhook.quota.amounts.resources import parse_resource_list
from webhook.quota.ledger.ledger import (
    GUARDED,
    NO_GUARD,
    Account,
    Condition,
    Ledger,
    Reservation,
    ReservationSource,
)
from webhook.quota.ledger.ledger_codec import FORMAT
from webhook.state.well_known import REGISTRATION


def amounts(**cpu: str) -> dict[str, object]:
    return {"requests.cpu": cpu["cpu"]}


def with_used(cpu: str) -> Callable[[Ledger], Ledger]:
    """Let the ledger say that so much is used."""

    def change(ledger: Ledger) -> Ledger:
        used = parse_resource_list({"requests.cpu": cpu}, field="")
        accounts = {
            name: Account(one.observed, one.hard, used) for name, one in ledger.accounts.items()
        }
        return replace(ledger, accounts=accounts)

    return change


def with_reservation(pod: str, *, after: int = 0, cpu: str = "1") -> Callable[[Ledger], Ledger]:
    """Let the ledger hold a reservation for a pod."""
    usage = parse_resource_list({"requests.cpu": cpu}, field="")
    held = Reservation(
        uid=f"uid-{pod}",
        pod=pod,
        source=ReservationSource.BIND,
        usage=usage,
        charges={"p1": usage},
        quotas=("p1",),
        serial=1,
        base_version=after,
    )
    return lambda ledger: replace(ledger, reservations={held.uid: held}, serial=1)


def test_a_missing_ledger_is_found() -> None:
    cluster = healthy()
    remove(cluster, QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    found = examined(cluster)
    missing = the(found, "ledger.missing")
    assert missing.message.endswith("no pod can be bound in this namespace")
    system = "-n deferred-quota-system"
    steps = (
        f"1. See that a controller leads: kubectl get lease deferred-quota-controller {system}",
        "2. It counts anew what was deleted, emptied or made unreadable after 45 seconds",
        f"kubectl logs {system} -l app.kubernetes.io/component=controller --tail=-1 | grep",
    )
    assert missing.remedy.endswith(f" | grep '\"{NAMESPACE}\"'")
    places = [missing.remedy.index(step) for step in steps]
    assert places == sorted(places)


def test_a_ledger_that_comes_meanwhile_is_no_finding() -> None:
    cluster = healthy()
    remove(cluster, QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    assert serious(examined(cluster, renewing(cluster), lambda: count(cluster))) == []


def test_a_namespace_without_deferred_quotas_needs_no_ledger() -> None:
    cluster = healthy()
    remove(cluster, RESOURCE_QUOTAS, "p1", namespace=NAMESPACE)
    remove(cluster, QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    assert serious(examined(cluster)) == []


def test_a_ledger_that_was_not_counted_is_found() -> None:
    cluster = healthy()
    api = FakeClient(cluster)
    raw = dict(api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE))
    api.update_status(QUOTA_LEDGERS, {**raw, "status": {}})
    finding = the(examined(cluster, expire_seconds=60.0), "ledger.uncounted")
    assert finding.severity == "error"
    assert "after 60 seconds" in finding.remedy


def test_a_ledger_that_cannot_be_read_is_found_and_names_the_field() -> None:
    cluster = healthy()
    patch = {"status": {"quotas": [{"name": "p1", "hard": {"cpu": "lots"}, "used": {}}]}}
    api = FakeClient(cluster)
    api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")
    found = the(examined(cluster), "ledger.unreadable")
    assert "status.quotas[0].hard.cpu" in found.message
    assert "elete" not in found.remedy.replace("was deleted", ""), "its leader replaces it"


def test_a_ledger_of_a_newer_release_is_no_reason_to_delete_it() -> None:
    cluster = healthy()
    api = FakeClient(cluster)
    patch = {"status": {"format": FORMAT + 1}}
    api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")
    found = examined(cluster)
    assert the(found, "ledger.newer").severity == "info"
    assert "ledger.unreadable" not in ids(found)


def test_a_ledger_that_becomes_unreadable_while_it_is_looked_at_is_found() -> None:
    cluster = healthy()
    count(cluster, with_used("3"))
    api = FakeClient(cluster)

    def spoil() -> None:
        patch = {"status": {"quotas": 7}}
        api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")

    found = examined(cluster, renewing(cluster), spoil)
    assert ids(serious(found)) == ["ledger.unreadable"]


def test_a_quota_that_was_edited_and_not_counted_again_is_found() -> None:
    cluster = healthy()
    patch = {"spec": {"hard": {"requests.cpu": "5"}}}
    FakeClient(cluster).patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    found = the(examined(cluster), "ledger.outdated")
    assert "other versions of quota p1" in found.message


def test_a_new_quota_that_is_not_counted_is_found() -> None:
    cluster = healthy()
    load(cluster, a_masked_quota("p2", hard={"cpu": "1"}))
    assert "quota p2" in the(examined(cluster), "ledger.outdated").message


def marked(uid: str) -> Callable[[Ledger], Ledger]:
    """Let the ledger name a registration under which it was counted."""
    mark = Condition(GUARDED, "True", "Registered", uid)
    return lambda ledger: replace(ledger, conditions=(mark,))


def uid_of_the_guard(cluster: FakeCluster) -> str:
    found: Any = FakeClient(cluster).get(VALIDATING_WEBHOOKS, REGISTRATION)
    return str(found["metadata"]["uid"])


def test_a_ledger_from_before_the_registration_is_found() -> None:
    cluster = healthy()
    count(cluster, marked("another"))
    found = the(examined(cluster), "ledger.former-guard")
    assert found.severity == "error"
    assert "counted under another registration of the guard" in found.message
    assert found.remedy.startswith("1. See that a controller leads")


def test_a_ledger_of_the_registration_and_one_that_becomes_it_are_no_finding() -> None:
    cluster = healthy()
    mark = marked(uid_of_the_guard(cluster))
    count(cluster, mark)
    assert serious(examined(cluster)) == []
    count(cluster, marked("another"))
    assert serious(examined(cluster, renewing(cluster), lambda: count(cluster, mark))) == []


@pytest.mark.parametrize(("mark", "is_found"), [("another", True), (NO_GUARD, False)])
def test_without_a_registration_a_ledger_that_names_one_is_found(mark: str, is_found: bool) -> None:
    cluster = healthy()
    remove(cluster, VALIDATING_WEBHOOKS, REGISTRATION)
    count(cluster, marked(mark))
    assert ("ledger.former-guard" in ids(examined(cluster))) is is_found


def test_a_registration_that_may_not_be_read_is_not_compared() -> None:
    cluster = healthy()
    count(cluster, marked("another"))
    client = refusing(cluster, ForbiddenError("you may not"), VALIDATING_WEBHOOKS)
    assert "ledger.former-guard" not in ids(examined(client))


def test_too_little_is_an_error_with_the_numbers() -> None:
    cluster = healthy()
    count(cluster, with_used("250m"))
    found = the(examined(cluster), "ledger.under-counted")
    assert found.severity == "error"
    assert found.message == (
        "quota p1: assigned pods take requests.cpu=1, and used + reserved is requests.cpu=250m:"
        " more can be admitted than it allows"
    )


def test_a_ledger_that_does_not_count_terminating_pods_as_configured_is_found() -> None:
    cluster = healthy()
    found = the(examined(cluster, holds_terminating=True), "ledger.outdated")
    assert "other versions of quota p1" in found.message


def test_a_pod_that_is_held_and_not_counted_is_found() -> None:
    past = {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 1}
    cluster = healthy()
    edit(cluster, PODS, "web-1", lambda raw: raw["metadata"].update(past), namespace=NAMESPACE)
    for holds in (False, True):
        count(cluster, counted_as_configured(with_used("0"), holds=holds))
        found = ids(examined(cluster, holds_terminating=holds))
        assert ("ledger.under-counted" in found) is holds
        assert "ledger.outdated" not in found


def counted_as_configured(
    change: Callable[[Ledger], Ledger], *, holds: bool
) -> Callable[[Ledger], Ledger]:
    """Name how terminating pods were counted, as the controller does."""

    def changed(ledger: Ledger) -> Ledger:
        ledger = change(ledger)
        account = ledger.accounts["p1"]
        ending = "-hold" if holds else ""
        observed = replace(account.observed, spec_hash=f"{account.observed.spec_hash}{ending}")
        return replace(ledger, accounts={"p1": replace(account, observed=observed)})

    return changed


def test_a_reservation_counts_beside_what_is_used() -> None:
    cluster = healthy()
    load(cluster, a_guarded_pod("web-2"))
    count(cluster, lambda ledger: with_reservation("web-2")(with_used("1")(ledger)))
    found = examined(cluster)
    assert "ledger.under-counted" not in ids(found)


def test_too_much_is_a_warning() -> None:
    cluster = healthy()
    count(cluster, with_used("3"))
    found = the(examined(cluster), "ledger.over-counted")
    assert (found.severity, found.message) == (
        "warn",
        "quota p1: used is requests.cpu=3, and assigned pods take requests.cpu=1",
    )


def test_pods_that_are_being_deleted_may_count_or_not() -> None:
    cluster = healthy()
    load(cluster, a_guarded_pod("web-2"))
    api = FakeClient(cluster)
    api.delete(PODS, "web-2", namespace=NAMESPACE, grace_period_seconds=30)
    for used in ("1", "2"):
        count(cluster, with_used(used))
        assert serious(examined(cluster)) == []


def test_pods_that_have_ended_do_not_count() -> None:
    cluster = healthy()
    done = a_pod(name="done", uid="uid-done", node="n", status={"phase": "Failed"})
    load(cluster, {**done, "metadata": {**a_guarded_pod("done")["metadata"]}})  # type: ignore[dict-item]
    assert serious(examined(cluster)) == []


def test_a_reservation_of_a_pod_that_has_its_node_is_settled_at_once() -> None:
    cluster = healthy()
    count(cluster, with_reservation("web-1"))
    found = the(examined(cluster), "ledger.old-reservations")
    assert found.message == "1 reservation is not settled: requests.cpu=1 is held"
    assert found.details == ("web-1",)


def test_a_reservation_that_waits_for_a_resize_may_stay() -> None:
    cluster = healthy()
    count(cluster, with_reservation("web-1", after=10**6))
    assert serious(examined(cluster)) == []


def test_a_reservation_that_is_written_again_is_young() -> None:
    cluster = healthy()
    count(cluster, with_reservation("web-1"))
    serials = itertools.count(2)

    def again() -> None:
        def newer(ledger: Ledger) -> Ledger:
            following = with_reservation("web-1")(ledger)
            (one,) = following.reservations.values()
            serial = next(serials)
            renewed = replace(one, serial=serial)
            return replace(following, reservations={one.uid: renewed}, serial=serial)

        count(cluster, newer)

    assert serious(examined(cluster, renewing(cluster), again)) == []


def test_what_is_held_for_a_new_pod_of_the_name_is_not_old() -> None:
    cluster = healthy()
    count(cluster, with_reservation("web-1"))

    def anew() -> None:
        def both(ledger: Ledger) -> Ledger:
            following = with_reservation("web-1")(ledger)
            (old,) = following.reservations.values()
            new = replace(old, uid="uid-anew", serial=2)
            return replace(following, reservations={old.uid: old, new.uid: new}, serial=2)

        count(cluster, both)

    found = the(examined(cluster, renewing(cluster), anew), "ledger.old-reservations")
    assert found.message == "1 reservation is not settled: requests.cpu=1 is held"


def test_a_reservation_of_a_waiting_pod_is_old_only_after_its_time() -> None:
    cluster = healthy()
    load(cluster, a_pod(name="waits", uid="uid-waits"))
    count(cluster, with_reservation("waits"))
    assert serious(examined(cluster, pause_seconds=3.0)) == []
    assert ids(serious(examined(cluster, pause_seconds=120.0))) == ["ledger.old-reservations"]


def test_what_the_controller_says_is_passed_on() -> None:
    cluster = healthy()
    told = (
        Condition("Counted", "False", "PodsUnreadable", "pod web-7: spec.containers"),
        Condition("QuotasReadable", "True"),
    )
    count(cluster, lambda ledger: replace(ledger, conditions=told))
    found = the(examined(cluster), "ledger.condition")
    assert found.message == "condition Counted is False: pod web-7: spec.containers"


def test_a_ledger_that_never_stands_still_is_not_compared() -> None:
    cluster: FakeCluster = healthy()
    count(cluster, with_used("0"))
    api = ReactiveClient(cluster, admission=Guard())

    def change(call: Call, proceed: Proceed) -> object:
        ledger = proceed()
        patch = {"metadata": {"annotations": {"turn": str(cluster.resource_version)}}}
        api.patch(call.kind, call.name, patch, namespace=call.namespace)
        return ledger

    api.on("get", QUOTA_LEDGERS, change)
    found = examined(api)
    assert the(found, "ledger.busy").severity == "info"
    assert serious(found) == []
    lists = [call.namespace for call in api.calls_of("list", RESOURCE_QUOTAS)]
    assert lists == ["", NAMESPACE, NAMESPACE]  # very many ledgers may be like that


def test_a_quota_over_its_limit_is_found_with_the_numbers() -> None:
    cluster = healthy()
    count(cluster, with_reservation("web-2", cpu="3500m"))
    found = the(examined(cluster), "quota.over")
    assert (found.severity, str(found.subject)) == ("warn", "ResourceQuota team-a/p1")
    assert found.message == (
        "is over its limit: used requests.cpu=1, reserved requests.cpu=3500m,"
        " limited requests.cpu=4"
    )
    assert "until enough of them have ended" in found.remedy


def test_a_quota_over_its_limit_without_reservations_names_none() -> None:
    cluster = healthy()
    count(cluster, with_used("5"))
    assert the(examined(cluster), "quota.over").message == (
        "is over its limit: used requests.cpu=5, limited requests.cpu=4"
    )


def test_a_quota_that_is_full_is_no_finding() -> None:
    cluster = healthy()
    count(cluster, with_reservation("web-2", cpu="3"))
    assert "quota.over" not in ids(examined(cluster))


def an_event(time: str, message: str, **fields: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"ledger.{time}", "namespace": NAMESPACE},
        "involvedObject": {"kind": "QuotaLedger", "name": "ledger", "namespace": NAMESPACE},
        "type": "Warning",
        "reason": "LedgerLost",
        "message": message,
        "lastTimestamp": f"2026-06-01T00:00:{time}Z",
        "reportingComponent": "deferred-quota-controller",
        **fields,
    }


def test_an_event_that_names_us_is_shown_beside_what_to_do() -> None:
    cluster = healthy()
    remove(cluster, QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    before = the(examined(cluster), "ledger.missing").remedy
    assert "Look at the log of the controller that leads." in before
    tomorrow = {"lastTimestamp": "2026-06-02T00:00:00Z"}
    load(
        cluster,
        an_event("01", "an older one"),
        an_event("02", "the ledger was deleted"),
        an_event("03", "of somebody else", reportingComponent="kubelet"),
        an_event("04", "of another object", involvedObject={"kind": "Pod", "name": "ledger"}),
        an_event("05", "as it should be", type="Normal"),
        an_event("06", "of a time to come", **tomorrow),
        an_event("07", "of no time", lastTimestamp="now"),
    )
    assert the(examined(cluster), "ledger.missing").remedy == (
        f"{before} An event that names deferred-quota as its source says, at 2026-06-01T00:00:02Z:"
        " LedgerLost: the ledger was deleted"
    )
