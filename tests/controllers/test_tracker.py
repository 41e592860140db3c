"""The tracker keeps every ledger true to its pods, whatever happens and also when nothing does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.admission.doors.desk import a_namespace, eventually, opt_in, opt_out
from tests.builders import a_pod, a_quota, an_expression
from tests.controllers.rig import EXPIRE_SECONDS, RESYNC_SECONDS, Rig, a_rig, another_rig
from webhook.cluster.api import NAMESPACES, PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS
from webhook.cluster.informer import Change
from webhook.quota.ledger import Undecided
from webhook.quota.ledger_codec import summary
from webhook.quota.objects import Pod
from webhook.quota.refusals import QuotaExceeded
from webhook.state.reserver import Reserved

Object = dict[str, object]

NS = "team-a"


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A quota of 2 cpu, counted."""
    with a_rig(a_quota("p1")) as made:
        made.step()
        yield made


def edit(rig: Rig, name: str, **spec: object) -> None:
    rig.api.patch(RESOURCE_QUOTAS, name, {"spec": spec}, namespace=NS)


def annotate(rig: Rig, name: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {"deferredquota.io/exclude": value}}}
    rig.api.patch(RESOURCE_QUOTAS, name, patch, namespace=NS)


# -- folding -------------------------------------------------------------------------------


def test_the_first_step_counts_what_is_there() -> None:
    with a_rig(a_quota("p1")) as rig:
        rig.pod("runs", "1500m", node="node-1")
        rig.pod("waits", "3")
        rig.pod("over", "1", node="node-1", status={"phase": "Failed"})
        rig.step()
        assert rig.used() == {"requests.cpu": "1500m"}
        assert rig.pending() == {"pods": "1", "requests.cpu": "3"}
        assert rig.ledger().pods_resource_version == rig.cluster.resource_version - 2


def test_a_bound_pod_moves_from_reserved_to_used_in_one_write(rig: Rig) -> None:
    rig.pod("web")
    rig.step()
    assert isinstance(rig.reserve("web"), Reserved)
    rig.bind("web")
    before = rig.cluster.resource_version
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}
    assert rig.held() == {}
    assert rig.cluster.resource_version == before + 1


def test_a_reserved_pod_that_waits_stays_reserved(rig: Rig) -> None:
    rig.pod("web")
    rig.step()
    rig.reserve("web")
    rig.api.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace=NS)
    rig.step()
    assert rig.used() == {"requests.cpu": "0"}
    assert rig.reserved() == {"requests.cpu": "1"}


@pytest.mark.parametrize("end", ["finish", "delete", "delete after a grace period"])
def test_what_an_ended_pod_used_comes_back(rig: Rig, end: str) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    if end == "finish":
        rig.finish("web")
    elif end == "delete":
        rig.delete("web")
    else:
        rig.delete("web", grace=30)
        rig.step()
        assert rig.used() == {"requests.cpu": "1"}  # it may still be running
        rig.delete("web", grace=0)
    rig.step()
    assert rig.used() == {"requests.cpu": "0"}


def test_the_reservation_of_a_deleted_pod_goes_with_it(rig: Rig) -> None:
    rig.pod("web")
    rig.step()
    rig.reserve("web")
    rig.delete("web")
    rig.step()
    assert rig.held() == {}


def test_the_reservation_of_a_deleted_pod_goes_also_when_the_write_meets_another(rig: Rig) -> None:
    rig.pod("web")
    rig.pod("other", "500m")
    rig.step()
    rig.reserve("web")
    rig.delete("web")
    rig.catch_up()
    rig.line.before_write = lambda: rig.reserve("other")
    rig.round()  # a door was faster
    rig.line.before_write = None
    rig.step()
    assert set(rig.held()) == {"other"}


def test_a_resize_is_folded_once_the_pod_has_its_new_size(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    rig.reserve_resize("web", "2")
    rig.step()
    assert (rig.used(), rig.reserved()) == ({"requests.cpu": "1"}, {"requests.cpu": "1"})
    resized = a_pod(name="web", node="node-1", requests={"cpu": "2"}, uid="")
    rig.api.update(PODS, resized, subresource="resize")
    rig.step()
    assert (rig.used(), rig.held()) == ({"requests.cpu": "2"}, {})


def test_nothing_is_written_when_there_is_nothing_new(rig: Rig) -> None:
    before = rig.cluster.resource_version
    rig.pass_time(RESYNC_SECONDS + 1)
    rig.step()
    assert rig.cluster.resource_version == before
    rig.create({**a_pod(name="new"), "metadata": {"name": "new", "namespace": NS}})
    version = rig.cluster.resource_version
    rig.step()
    assert rig.cluster.resource_version == version + 1  # one more pod is pending
    rig.api.patch(PODS, "new", {"metadata": {"labels": {"a": "b"}}}, namespace=NS)
    version = rig.cluster.resource_version
    rig.step()
    assert rig.cluster.resource_version == version


# -- time ----------------------------------------------------------------------------------


def test_a_pod_that_is_stuck_terminating_is_released_by_time_alone(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.delete("web", grace=30)
    rig.step()
    rig.pass_time(60.9)
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}
    rig.pass_time(0.2)
    rig.step()
    assert rig.used() == {"requests.cpu": "0"}


def test_an_update_of_a_released_pod_does_not_charge_it_again(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.delete("web", grace=5)
    rig.step()
    rig.pass_time(11.1)
    rig.step()
    rig.api.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace=NS)
    rig.step()
    assert rig.used() == {"requests.cpu": "0"}


def test_a_pod_that_is_stuck_terminating_is_held_until_it_is_gone(rig: Rig) -> None:
    rig.holds_terminating = True
    rig.pod("web", node="node-1")
    rig.delete("web", grace=1)
    rig.step()
    rig.pass_time(1000)
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}
    rig.delete("web")
    rig.step()
    assert rig.used() == {"requests.cpu": "0"}


def test_a_held_pod_that_has_ended_is_not_charged(rig: Rig) -> None:
    rig.holds_terminating = True
    rig.pod("web", node="node-1")
    rig.delete("web", grace=1)
    rig.step()
    rig.pass_time(1000)
    rig.step()
    rig.api.patch(PODS, "web", {"status": {"phase": "Failed"}}, namespace=NS, subresource="status")
    rig.step()
    assert rig.used() == {"requests.cpu": "0"}


def test_to_hold_and_to_release_takes_effect_for_pods_that_are_stuck_already(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.delete("web", grace=5)
    rig.step()
    rig.pass_time(11.1)
    rig.step()
    hashes = set()
    for holds, used in ((False, "0"), (True, "1"), (False, "0")):
        rig.holds_terminating = holds
        rig.tracker.recount()
        rig.step()
        assert rig.used() == {"requests.cpu": used}
        hashes.add(rig.ledger().accounts["p1"].observed.spec_hash)
    assert len(hashes) == 2, "doors cannot tell how it was counted"


def test_a_shortened_grace_period_releases_earlier(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.delete("web", grace=3600)
    rig.step()
    rig.delete("web", grace=10)
    rig.step()
    rig.pass_time(21.1)
    rig.step()
    assert rig.used() == {"requests.cpu": "0"}


def test_a_reservation_that_came_to_nothing_expires_though_nothing_happens(rig: Rig) -> None:
    rig.pod("web")
    rig.step()
    rig.reserve("web")  # and storage refuses the bind: no event comes
    for _ in range(4):
        rig.pass_time(30)
        rig.step()
    assert rig.held() == {}
    assert rig.reserved() == {}


def test_a_reservation_is_watched_for_the_whole_time_first(rig: Rig) -> None:
    rig.pod("web")
    rig.step()
    rig.reserve("web")
    rig.api.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace=NS)
    rig.step()
    rig.pass_time(EXPIRE_SECONDS)
    rig.step()
    assert set(rig.held()) == {"web"}
    rig.pass_time(0.1)
    rig.step()
    assert rig.held() == {}


def test_a_repeated_request_starts_the_watch_again(rig: Rig) -> None:
    rig.pod("web")
    rig.step()
    rig.reserve("web")
    rig.pass_time(RESYNC_SECONDS)
    rig.step()
    rig.pass_time(40)
    rig.reserve("web")
    rig.pass_time(10)
    rig.step()
    assert set(rig.held()) == {"web"}


def test_nothing_is_looked_at_before_it_is_needed(rig: Rig) -> None:
    agenda = rig.tracker._agenda
    assert agenda.next_moment() - rig.clock[0] == pytest.approx(RESYNC_SECONDS)
    rig.pod("web")
    rig.step()
    rig.reserve("web")
    rig.poke()
    rig.step()
    assert agenda.next_moment() - rig.clock[0] == pytest.approx(EXPIRE_SECONDS)


# -- quotas --------------------------------------------------------------------------------


def test_a_changed_limit_and_a_changed_selector_count_at_once(rig: Rig) -> None:
    rig.pod("gold", node="node-1", priorityClassName="gold")
    rig.pod("silver", "500m", node="node-1", priorityClassName="silver")
    rig.step()
    edit(rig, "p1", hard={"requests.cpu": "7", "limits.cpu": "3"})
    rig.step()
    assert rig.used() == {"limits.cpu": "0", "requests.cpu": "1500m"}
    assert rig.is_exact()
    selector = {"matchExpressions": [an_expression("PriorityClass", "In", "gold")]}
    edit(rig, "p1", scopeSelector=selector)
    rig.step()
    assert rig.used() == {"limits.cpu": "0", "requests.cpu": "1"}
    assert rig.is_exact()


def test_an_edit_between_the_look_and_the_write_holds_decisions_up(rig: Rig) -> None:
    rig.pod("web")
    rig.step()
    edit(rig, "p1", hard={"requests.cpu": "7"})
    rig.catch_up()
    assert rig.reserve("web") == Undecided("usage is being counted for quota: p1")
    rig.step()
    assert isinstance(rig.reserve("web"), Reserved)


def test_reservations_move_with_the_quotas(rig: Rig) -> None:
    rig.pod("web")
    rig.step()
    rig.reserve("web")
    rig.create(a_quota("p2", hard={"requests.cpu": "1"}))
    rig.step()
    assert rig.reserved("p2") == {"requests.cpu": "1"}
    rig.api.delete(RESOURCE_QUOTAS, "p1", namespace=NS)
    rig.step()
    assert set(rig.ledger().accounts) == {"p2"}
    assert rig.held()["web"].quotas == ("p2",)


def test_the_exclude_annotation_takes_a_quota_out_and_puts_it_back(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    annotate(rig, "p1", "true")
    rig.step()
    assert rig.ledger().accounts == {}
    annotate(rig, "p1", None)
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}


def test_a_quota_made_again_under_its_name_is_another_one(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    rig.api.delete(RESOURCE_QUOTAS, "p1", namespace=NS)
    rig.create(a_quota("p1"))
    rig.step()
    assert rig.is_exact()


def test_without_deferred_quotas_there_is_no_ledger() -> None:
    with a_rig(a_quota("p1", hard={"pods": "1"})) as rig:
        rig.pod("web", node="node-1")
        rig.step()
        assert not rig.has_ledger()
        edit(rig, "p1", hard={"requests.cpu": "5"})
        rig.step()
        assert rig.used() == {"requests.cpu": "1"}


def test_a_quota_that_cannot_be_matched_charges_nobody_and_stops_nobody(rig: Rig) -> None:
    rig.create(a_quota("odd", expressions=[an_expression("PriorityClass", "In", "bad value!")]))
    rig.pod("web", node="node-1")
    rig.step()
    assert rig.used("odd") == {"requests.cpu": "0"}
    assert rig.used("p1") == {"requests.cpu": "1"}


def test_a_quota_that_cannot_be_read_stops_no_other_one(rig: Rig) -> None:
    rig.create(a_quota("odd", hard={"requests.cpu": "much"}))
    rig.pod("web", node="node-1")
    rig.step()
    assert rig.used("p1") == {"requests.cpu": "1"}


# -- namespaces ----------------------------------------------------------------------------


def test_namespaces_have_ledgers_of_their_own(rig: Rig) -> None:
    rig.create(a_namespace("team-b"))
    rig.create(a_namespace("team-c", mode=""))
    for namespace in ("team-b", "team-c"):
        rig.create(a_quota("p1", namespace=namespace, hard={"requests.cpu": "9"}))
    rig.pod("web", "1", node="node-1")
    rig.pod("web", "5", namespace="team-b", node="node-1")
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}
    assert rig.used(namespace="team-b") == {"requests.cpu": "5"}
    assert not rig.has_ledger("team-c")


def test_a_namespace_that_opts_in_is_counted_with_what_runs_there() -> None:
    with a_rig(a_quota("p1"), mode="") as rig:
        rig.pod("web", node="node-1")
        rig.step()
        assert not rig.has_ledger()
        opt_in(rig.api, NS)
        rig.step()
        assert rig.used() == {"requests.cpu": "1"}


def test_a_namespace_that_opted_out_has_nothing_counted_when_it_comes_back(rig: Rig) -> None:
    rig.pod("web", "2")
    rig.pod("next", "1")
    rig.step()
    opt_out(rig.api, NS)
    rig.step()
    rig.bind("web")  # nobody watches now
    opt_in(rig.api, NS)
    rig.catch_up()
    # a door that is faster than the tracker must not go by what was counted before
    assert isinstance(rig.reserve("next"), Undecided)
    rig.step()
    assert isinstance(rig.reserve("next"), QuotaExceeded)


def test_opting_out_keeps_what_is_reserved_for_the_way_back(rig: Rig) -> None:
    rig.pod("web", "2")
    rig.pod("next", "1")
    rig.step()
    rig.reserve("web")
    opt_out(rig.api, NS)
    rig.step()
    assert (rig.ledger().accounts, set(rig.held())) == ({}, {"web"})
    assert summary(rig.ledger()) == "opted out"
    opt_in(rig.api, NS)
    rig.step()
    assert rig.reserved() == {"requests.cpu": "2"}
    assert "requests.cpu 0+2/2" in summary(rig.ledger())
    assert isinstance(rig.reserve("next"), QuotaExceeded)


def test_a_namespace_that_opts_out_and_in_at_once_is_counted(rig: Rig) -> None:
    opt_out(rig.api, NS)
    opt_in(rig.api, NS)
    rig.pod("web", node="node-1")
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}


def test_events_of_a_namespace_that_opted_out_are_not_counted(rig: Rig) -> None:
    opt_out(rig.api, NS)
    rig.step()
    before = rig.cluster.resource_version
    rig.pod("web", node="node-1")
    rig.step()
    assert rig.cluster.resource_version == before + 1


def test_a_deleted_namespace_is_forgotten(rig: Rig) -> None:
    rig.api.delete(NAMESPACES, NS)
    rig.step()
    assert not rig.has_ledger()
    rig.create(a_namespace())
    rig.create(a_quota("p1"))
    rig.pod("web", node="node-1")
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}


# -- ledgers that others touch -------------------------------------------------------------


def hand_edit(rig: Rig, patch: list[Object]) -> None:
    rig.api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NS, subresource="status")


EDITS: dict[str, list[Object]] = {
    "usage lowered": [
        {"op": "replace", "path": "/status/quotas/0/used", "value": {"requests.cpu": "0"}}
    ],
    "a limit raised": [
        {"op": "replace", "path": "/status/quotas/0/hard", "value": {"requests.cpu": "99"}}
    ],
    "a quota taken out": [{"op": "remove", "path": "/status/quotas/0"}],
    "a quota invented": [
        {
            "op": "add",
            "path": "/status/quotas/-",
            "value": {
                "name": "x",
                "observed": {"uid": "x", "specHash": "x"},
                "hard": {"cpu": "1"},
                "used": {},
            },
        }
    ],
}


@pytest.mark.parametrize("patch", EDITS.values(), ids=EDITS.keys())
def test_a_ledger_edited_by_hand_is_corrected_though_nothing_else_happens(
    rig: Rig, patch: list[Object]
) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    hand_edit(rig, patch)
    rig.pass_time(RESYNC_SECONDS + 1)
    rig.step()
    assert rig.is_exact()


def test_a_reservation_invented_by_hand_expires(rig: Rig) -> None:
    invented = "x x Bind 1 p1 cpu=2"
    hand_edit(rig, [{"op": "replace", "path": "/status/reservations", "value": invented}])
    for _ in range(3):
        rig.pass_time(RESYNC_SECONDS + 1)
        rig.step()
    assert rig.held() == {}


def test_a_ledger_that_is_deleted_comes_back_when_its_reservations_are_over(rig: Rig) -> None:
    rig.pod("web", "2")
    rig.pod("next", "2")
    rig.step()
    assert isinstance(rig.reserve("web"), Reserved)
    rig.api.delete(QUOTA_LEDGERS, "ledger", namespace=NS)
    rig.pod("poke", "1m")
    rig.step()
    # the bind of `web` can still be on its way, so nobody else may be let in
    assert isinstance(rig.reserve("next"), Undecided)
    rig.pass_time(EXPIRE_SECONDS - 1)
    rig.bind("web")
    rig.step()
    assert isinstance(rig.reserve("next"), Undecided)
    rig.pass_time(1.1)
    rig.step()
    assert rig.used() == {"requests.cpu": "2"}
    assert isinstance(rig.reserve("next"), QuotaExceeded)


def test_a_ledger_whose_status_is_wiped_is_as_good_as_gone(rig: Rig) -> None:
    rig.pod("web", "2")
    rig.step()
    rig.reserve("web")
    hand_edit(rig, [{"op": "remove", "path": "/status"}])
    rig.pod("next", "2")
    rig.step()
    assert isinstance(rig.reserve("next"), Undecided)
    rig.pass_time(EXPIRE_SECONDS + 0.1)
    rig.step()
    assert rig.is_exact()


def test_a_ledger_that_cannot_be_read_stops_its_namespace_only_and_is_tried_again(
    rig: Rig,
) -> None:
    rig.create(a_namespace("team-b"))
    rig.create(a_quota("p1", namespace="team-b"))
    rig.pod("web", node="node-1")
    hand_edit(rig, [{"op": "replace", "path": "/status/podsResourceVersion", "value": "soon"}])
    rig.step()
    assert rig.used(namespace="team-b") == {"requests.cpu": "0"}
    hand_edit(rig, [{"op": "replace", "path": "/status/podsResourceVersion", "value": "1"}])
    rig.pass_time(5.1)
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}


# -- pods that cannot be read --------------------------------------------------------------


def unreadable(name: str = "odd", node: str = "node-1") -> Object:
    return a_pod(name=name, uid=f"uid-{name}", node=node, requests={"cpu": "two"})


def test_usage_that_is_not_known_keeps_the_ledger_as_it_is(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    rig.cluster.load([(PODS, unreadable())])
    rig.finish("web")
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}
    rig.api.delete(PODS, "odd", namespace=NS, grace_period_seconds=0)
    rig.pass_time(1.1)
    rig.step()
    assert rig.used() == {"requests.cpu": "0"}


def test_a_pod_that_becomes_readable_is_counted(rig: Rig) -> None:
    rig.cluster.load([(PODS, unreadable())])
    rig.step()
    rig.api.update(
        PODS, a_pod(name="odd", node="node-1", uid="", requests={"cpu": "2"}), subresource="resize"
    )
    rig.pass_time(1.1)
    rig.step()
    assert rig.used() == {"requests.cpu": "2"}


def test_a_pod_that_could_not_be_read_before_the_namespace_opted_in_is_not_overlooked() -> None:
    with a_rig(a_quota("p1"), mode="") as rig:
        rig.cluster.load([(PODS, unreadable())])
        rig.pod("web", node="node-1")
        rig.catch_up()
        opt_in(rig.api, NS)
        rig.step()
        version = rig.version()
        assert version is None or version.ledger is None


def test_a_pod_that_cannot_be_read_elsewhere_stops_nobody(rig: Rig) -> None:
    rig.create(a_namespace("team-b"))
    odd = unreadable()
    rig.cluster.load(
        [(PODS, {**odd, "metadata": {"name": "odd", "namespace": "team-b", "uid": "u"}})]
    )
    rig.pod("web", node="node-1")
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}
    assert rig.tracker.not_ready() == []


# -- an API server that does not answer ----------------------------------------------------


def test_what_could_not_be_settled_is_settled_later(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.line.broken.add(("get", "quotaledgers"))
    rig.step()
    rig.line.broken.clear()
    assert rig.used() == {"requests.cpu": "0"}
    rig.pass_time(1.1)
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}


def test_nothing_expires_while_the_pod_cannot_be_asked_for(rig: Rig) -> None:
    rig.pod("web")
    rig.step()
    rig.reserve("web")
    rig.line.broken.add(("get", "pods"))
    for _ in range(4):
        rig.pass_time(RESYNC_SECONDS)
        rig.step()
    assert set(rig.held()) == {"web"}


def test_nothing_expires_while_the_cache_has_not_seen_the_bind(rig: Rig) -> None:
    rig.pod("web", "2")
    rig.step()
    rig.reserve("web")
    rig.line.hold(PODS)
    rig.bind("web")
    for _ in range(4):
        rig.pass_time(RESYNC_SECONDS)
        rig.round()
    assert set(rig.held()) == {"web"}
    rig.line.resume()
    rig.step()
    assert (rig.used(), rig.held()) == ({"requests.cpu": "2"}, {})


def test_a_cut_and_a_forgotten_history_are_caught_up_with(rig: Rig) -> None:
    rig.pod("first", node="node-1")
    rig.pod("second", "500m", node="node-1")
    rig.step()
    rig.line.hold(PODS)
    rig.delete("first")
    rig.pod("third", "250m", node="node-1")
    rig.cluster.compact()
    rig.cluster.cut_watches()
    rig.line.resume()
    rig.step()
    assert rig.used() == {"requests.cpu": "750m"}
    assert rig.is_exact()


# -- several trackers ----------------------------------------------------------------------


def test_a_tracker_that_lags_does_not_lower_what_another_has_counted(rig: Rig) -> None:
    with another_rig(rig) as ahead:
        rig.line.hold(PODS)
        rig.pod("web", "2", node="node-1")
        ahead.step()
        assert ahead.used() == {"requests.cpu": "2"}
        edit(rig, "p1", hard={"requests.cpu": "3"})
        eventually(
            lambda: str(rig.quotas.in_namespace(NS).every[0].hard["requests.cpu"]) == "3",
            "the edit is seen",
        )
        rig.round()
        assert ahead.used() == {"requests.cpu": "2"}


def test_a_tracker_that_lagged_settles_by_itself_once_it_has_caught_up(rig: Rig) -> None:
    rig.create(a_namespace("team-b"))
    rig.step()
    rig.line.hold(PODS)
    with another_rig(rig) as ahead:
        rig.pod("web", "2", namespace="team-b", node="node-1")
        edit(rig, "p1", hard={"requests.cpu": "8"})
        ahead.step()
    edit(rig, "p1", hard={"requests.cpu": "9"})  # now only the one that lags is left
    eventually(
        lambda: str(rig.quotas.in_namespace(NS).every[0].hard["requests.cpu"]) == "9",
        "the edit is seen",
    )
    rig.round()
    assert not rig.is_exact()
    rig.line.resume()  # what comes now is about another namespace
    rig.catch_up()
    rig.pass_time(1.1)
    rig.step()
    assert rig.is_exact()


def blocked(rig: Rig, name: str) -> tuple[threading.Event, threading.Event]:
    """Stop the informer of pods just after the tracker was told of the pod `name`."""
    reached, may_go = threading.Event(), threading.Event()

    def wait(change: Change[Pod]) -> None:
        if change.key == f"{NS}/{name}":
            reached.set()
            assert may_go.wait(10)

    rig.tracker.pods._handlers.append(wait)
    return reached, may_go


def test_what_was_counted_is_never_said_to_be_older_than_it_is(rig: Rig) -> None:
    rig.pod("web", "2")
    rig.step()
    rig.reserve("web")
    reached, may_go = blocked(rig, "web")
    try:
        rig.bind("web")
        bound = rig.cluster.resource_version
        assert reached.wait(5)
        rig.round()  # counts the bind, though the cache is not said to be that far yet
        assert rig.used() == {"requests.cpu": "2"}
        # otherwise a tracker that has not seen the bind could write over this
        assert rig.ledger().pods_resource_version >= bound
    finally:
        may_go.set()


def test_half_a_new_list_does_not_lower_what_another_has_counted(rig: Rig) -> None:
    rig.pod("a", "1", node="node-1")
    rig.pod("web", "1")
    rig.step()
    rig.reserve("web")
    with another_rig(rig) as ahead:
        rig.line.calls.clear()
        rig.line.broken.add(("watch", "pods"))
        rig.cluster.cut_watches()
        eventually(lambda: ("watch", "pods", "") in rig.line.calls, "the watch has failed")
        reached, may_go = blocked(rig, "a")
        try:
            rig.delete("a")
            rig.bind("web")
            ahead.step()
            assert (ahead.used(), ahead.held()) == ({"requests.cpu": "1"}, {})
            rig.cluster.compact()
            rig.line.broken.clear()
            assert reached.wait(5)  # of the new list, only the deletion of `a` is taken in
            rig.pass_time(1.1)
            rig.round()
            assert ahead.used() == {"requests.cpu": "1"}
        finally:
            may_go.set()
        rig.step()
        assert rig.is_exact()


# -- the thread ----------------------------------------------------------------------------


def test_the_thread_settles_what_changes_and_ends_when_told() -> None:
    with a_rig(a_quota("p1")) as rig:
        for one in rig.tracker._rounds:
            one.start()
        eventually(rig.has_ledger, "the first count is written")
        rig.pod("web", node="node-1")
        eventually(lambda: rig.used() == {"requests.cpu": "1"}, "the pod is counted")
        assert rig.tracker.not_ready() == []
        rig.tracker.stop()
        assert not [one for one in threading.enumerate() if one.name.startswith("tracker")]


def test_before_the_pods_are_listed_the_tracker_is_not_ready_and_writes_nothing() -> None:
    with a_rig(a_quota("p1")) as rig:
        late = Rig(rig.cluster, rig.clock)
        assert late.tracker.not_ready() == ["the tracker has not seen all pods yet"]
        late.round()
        assert not rig.has_ledger()
        assert rig.tracker.not_ready() == [
            "the ledger of namespace team-a has not been counted yet"
        ]
        rig.step()
        assert rig.tracker.not_ready() == []


def test_one_namespace_that_cannot_be_counted_does_not_keep_the_others_waiting() -> None:
    with a_rig(a_quota("p1")) as rig:
        rig.create(a_namespace("team-b"))
        rig.create(a_quota("p1", namespace="team-b"))
        rig.cluster.load([(PODS, unreadable())])
        rig.step()
        assert rig.tracker.not_ready() == []
        assert rig.has_ledger("team-b")


def test_other_deferred_resources_are_counted_anew(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    rig.tracker.recount()
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}
