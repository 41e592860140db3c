"""What people do to ledgers, and what cannot be counted, is put right and told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.doors.desk import eventually
from tests.builders import a_pod, a_quota, an_expression
from tests.controllers.rig import EXPIRE_SECONDS, NAMESPACE, Rig, a_rig
from webhook.cluster.api import PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS
from webhook.state.ledgers import LEDGER_NAME
from webhook.state.reserver import Reserved

LOOK_SECONDS = 0.6


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A quota of 2 cpu, counted, by a tracker that is told of changes of ledgers."""
    with a_rig(a_quota("p1"), follows=True) as made:
        made.step()
        yield made


def hand_edit(rig: Rig, path: str, value: object, op: str = "replace") -> None:
    patch = [{"op": op, "path": f"/status/{path}", "value": value}]
    rig.api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")


def look(rig: Rig) -> None:
    rig.catch_up()
    rig.pass_time(LOOK_SECONDS)
    rig.step()


# -- edits and losses ----------------------------------------------------------------------


def test_an_edit_is_noticed_at_once_repaired_and_told(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    hand_edit(rig, "quotas/0/used", {"requests.cpu": "0"})
    look(rig)
    assert rig.used() == {"requests.cpu": "1"}
    assert rig.told() == ["LedgerRepaired"]
    assert rig.counted("ledger_repairs_total", reason="edited") == 1


def test_what_doors_write_is_no_edit(rig: Rig) -> None:
    rig.pod("web", "500m")
    rig.pod("more", "500m")
    rig.step()
    assert isinstance(rig.reserve("web"), Reserved)
    look(rig)
    rig.bind("web")
    assert isinstance(rig.reserve("more"), Reserved)
    rig.pass_time(1)
    rig.step()
    look(rig)
    assert rig.told() == []


def test_a_changed_quota_is_no_edit(rig: Rig) -> None:
    patch = {"spec": {"hard": {"requests.cpu": "7"}}}
    rig.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    rig.step()
    look(rig)
    assert rig.told() == []


def test_a_reservation_is_seen_at_once_and_watched_from_then(rig: Rig) -> None:
    rig.pod("web")
    rig.step()
    rig.reserve("web")
    look(rig)
    rig.pass_time(EXPIRE_SECONDS + 0.1)
    rig.step()
    assert rig.held() == {}


def test_the_trackers_own_writes_are_not_looked_at(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    rig.catch_up()
    rig.line.calls.clear()
    rig.pass_time(LOOK_SECONDS)
    rig.step()
    assert ("get", "quotaledgers", "ledger") not in rig.line.calls


def test_a_deletion_is_noticed_at_once_and_told_and_so_is_the_new_ledger(rig: Rig) -> None:
    rig.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    look(rig)
    assert not rig.has_ledger()
    assert rig.told() == ["LedgerLost"]
    rig.pass_time(EXPIRE_SECONDS + 0.1)
    rig.step()
    assert rig.conditions()["Rebuilt"] == ("True", "LedgerLost")
    assert rig.counted("ledger_repairs_total", reason="lost") == 1


def test_the_first_ledger_of_a_namespace_is_not_called_rebuilt(rig: Rig) -> None:
    assert set(rig.conditions()) == {"Counted", "QuotasReadable"}


# -- conditions ----------------------------------------------------------------------------


def test_a_ledger_says_that_all_was_counted(rig: Rig) -> None:
    assert rig.conditions() == {
        "Counted": ("True", "AllCounted"),
        "QuotasReadable": ("True", "AllReadable"),
    }


def test_a_pod_that_cannot_be_read_is_named_and_the_count_stays(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    before = rig.ledger()
    odd = a_pod(name="odd", uid="uid-odd", node="node-1", requests={"cpu": "two"})
    rig.cluster.load([(PODS, odd)])
    rig.step()
    assert rig.conditions()["Counted"] == ("False", "PodsUnreadable")
    counted = next(one for one in rig.ledger().conditions if one.type == "Counted")
    assert "team-a/odd" in counted.message
    assert rig.ledger().accounts == before.accounts
    assert rig.ledger().pods_resource_version == before.pods_resource_version
    assert rig.told() == ["PodsUnreadable"]
    rig.delete("odd")
    rig.pass_time(40)
    rig.step()
    assert rig.conditions()["Counted"] == ("True", "AllCounted")


QUOTAS = {
    "unreadable": (a_quota("odd", hard={"requests.cpu": "much"}), "Unreadable"),
    "unmatchable": (
        a_quota("odd", expressions=[an_expression("PriorityClass", "In", "bad value!")]),
        "Unmatchable",
    ),
}


@pytest.mark.parametrize(("quota", "reason"), QUOTAS.values(), ids=QUOTAS.keys())
def test_a_quota_that_cannot_be_used_is_named(
    rig: Rig, quota: dict[str, object], reason: str
) -> None:
    rig.pod("web", node="node-1")
    rig.create(quota)
    rig.step()
    assert rig.conditions() == {
        "Counted": ("False", "QuotasUnreadable"),
        "QuotasReadable": ("False", reason),
    }
    assert all("odd" in one.message for one in rig.ledger().conditions)


def test_conditions_are_written_when_they_change_and_survive_the_doors(rig: Rig) -> None:
    first = rig.ledger().conditions
    rig.pod("web")
    rig.pass_time(100)
    rig.step()
    assert isinstance(rig.reserve("web"), Reserved)
    look(rig)
    assert rig.ledger().conditions == first
    rig.create(a_quota("odd", hard={"requests.cpu": "much"}))
    rig.pass_time(100)
    rig.step()
    changed = {one.type: one.since for one in rig.ledger().conditions}
    assert changed["QuotasReadable"] > first[0].since
    before = rig.cluster.resource_version
    rig.poke()
    rig.pass_time(100)
    rig.step()
    assert rig.cluster.resource_version == before


def test_fields_of_a_newer_version_survive_doors_and_tracker(rig: Rig) -> None:
    hand_edit(rig, "borrowed", {"p1": {"cpu": 1.5}}, op="add")
    rig.pod("web")
    rig.step()
    assert isinstance(rig.reserve("web"), Reserved)
    look(rig)
    status = rig.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)["status"]
    assert isinstance(status, dict)
    assert status["borrowed"] == {"p1": {"cpu": "1.5"}}


# -- failures ------------------------------------------------------------------------------


def test_a_namespace_that_fails_again_and_again_is_tried_less_and_less_often(rig: Rig) -> None:
    rig.line.broken.add(("update_status", "quotaledgers"))
    rig.pod("web", node="node-1")
    pauses = []
    for _ in range(8):
        rig.step()
        pauses.append(rig.tracked().due - rig.clock[0])
        rig.pass_time(pauses[-1])
    assert pauses[0] == pytest.approx(1)
    assert pauses[-1] > 20
    rig.line.broken.clear()
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}
    assert rig.tracked().failures == 0


def test_events_do_not_shorten_the_pause_after_a_failure(rig: Rig) -> None:
    rig.line.broken.add(("update_status", "quotaledgers"))
    rig.pod("web", node="node-1")
    rig.step()
    due = rig.tracked().due
    rig.pod("more", node="node-1")
    rig.catch_up()
    assert rig.tracker._agenda.next_moment() == pytest.approx(due)


def test_a_ledger_that_cannot_be_read_is_told_once_and_replaced(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    hand_edit(rig, "podsResourceVersion", "soon")
    for _ in range(4):
        look(rig)
    assert rig.told() == ["LedgerUnreadable"]
    rig.pass_time(EXPIRE_SECONDS + 1)
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}
    assert rig.conditions()["Rebuilt"] == ("True", "LedgerLost")


def test_a_pod_that_came_and_went_before_the_watch_showed_its_reservation_gives_it_back(
    rig: Rig,
) -> None:
    rig.pod("web")
    rig.line.hold(QUOTA_LEDGERS, f"metadata.name={LEDGER_NAME}")
    assert isinstance(rig.reserve("web"), Reserved)
    rig.bind("web")
    rig.delete("web")
    version = rig.cluster.resource_version

    def has_seen_the_pod_go() -> bool:
        rig.cluster.send_bookmarks()
        return rig.tracker.pods.wait_for_version(version, 0.02)

    eventually(has_seen_the_pod_go, "the tracker has seen the pod go")
    rig.round()
    assert rig.counted("ledger_settlements_total", result="unchanged") == 1
    rig.line.resume()
    look(rig)
    assert rig.held() == {}
