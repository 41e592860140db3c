"""The controller keeps every ledger true to its pods, whatever happens, and when nothing does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.admission.handlers.harness import a_namespace, eventually, opt_in, opt_out
from tests.builders import a_pod, a_quota, an_expression
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    RESYNC_SECONDS,
    ControllerHarness,
    new_harness,
    second_harness,
)
from tests.controllers.shared.shared_quota_steps import shared_quota
from tests.reactions import Call, Proceed, preceded_by, unreachable
from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
)
from webhook.kube.cache import NamespacedCache
from webhook.kube.informer import Change
from webhook.quota.amounts.resources import to_text
from webhook.quota.charging.deferral import NamespaceQuotas
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import Undecided
from webhook.quota.ledger.ledger_codec import summary
from webhook.quota.objects.model import Pod
from webhook.state.reserver import Reserved

Object = dict[str, object]

NS = "team-a"


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """A quota of 2 cpu, counted."""
    with new_harness(a_quota("p1")) as made:
        made.step()
        yield made


def edit(harness: ControllerHarness, name: str, **spec: object) -> None:
    harness.api.patch(RESOURCE_QUOTAS, name, {"spec": spec}, namespace=NS)


def annotate(harness: ControllerHarness, name: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {"deferredquota.io/exclude": value}}}
    harness.api.patch(RESOURCE_QUOTAS, name, patch, namespace=NS)


# -- folding -------------------------------------------------------------------------------


def test_the_first_step_counts_what_is_there() -> None:
    with new_harness(a_quota("p1")) as harness:
        harness.pod("runs", "1500m", node="node-1")
        harness.pod("waits", "3")
        harness.pod("over", "1", node="node-1", status={"phase": "Failed"})
        harness.step()
        assert harness.used() == {"requests.cpu": "1500m"}
        assert harness.pending() == {"pods": "1", "requests.cpu": "3"}
        assert harness.ledger().pods_resource_version == harness.cluster.resource_version - 2


def test_a_bound_pod_moves_from_reserved_to_used_in_one_write(harness: ControllerHarness) -> None:
    harness.pod("web")
    harness.step()
    assert isinstance(harness.reserve("web"), Reserved)
    harness.bind("web")
    before = harness.cluster.resource_version
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}
    assert harness.held() == {}
    assert harness.cluster.resource_version == before + 1


def test_a_reserved_pod_that_waits_stays_reserved(harness: ControllerHarness) -> None:
    harness.pod("web")
    harness.step()
    harness.reserve("web")
    harness.api.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace=NS)
    harness.step()
    assert harness.used() == {"requests.cpu": "0"}
    assert harness.reserved() == {"requests.cpu": "1"}


@pytest.mark.parametrize("end", ["finish", "delete", "delete after a grace period"])
def test_what_an_ended_pod_used_comes_back(harness: ControllerHarness, end: str) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    if end == "finish":
        harness.finish("web")
    elif end == "delete":
        harness.delete("web")
    else:
        harness.delete("web", grace=30)
        harness.step()
        assert harness.used() == {"requests.cpu": "1"}  # it may still be running
        harness.delete("web", grace=0)
    harness.step()
    assert harness.used() == {"requests.cpu": "0"}


def test_the_reservation_of_a_deleted_pod_goes_with_it(harness: ControllerHarness) -> None:
    harness.pod("web")
    harness.step()
    harness.reserve("web")
    harness.delete("web")
    harness.step()
    assert harness.held() == {}


def test_the_reservation_of_a_deleted_pod_goes_also_when_the_write_meets_another(
    harness: ControllerHarness,
) -> None:
    harness.pod("web")
    harness.pod("other", "500m")
    harness.step()
    harness.reserve("web")
    harness.delete("web")
    harness.catch_up()
    harness.client.on(
        "update", "*", preceded_by(lambda _: harness.reserve("other")), subresource="status"
    )
    harness.reconcile_once()  # a handler was faster
    harness.client.reset()
    harness.step()
    assert set(harness.held()) == {"other"}


def test_a_resize_is_folded_once_the_pod_has_its_new_size(harness: ControllerHarness) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    harness.reserve_resize("web", "2")
    harness.step()
    assert (harness.used(), harness.reserved()) == ({"requests.cpu": "1"}, {"requests.cpu": "1"})
    resized = a_pod(name="web", node="node-1", requests={"cpu": "2"}, uid="")
    harness.api.update(PODS, resized, subresource="resize")
    harness.step()
    assert (harness.used(), harness.held()) == ({"requests.cpu": "2"}, {})


def test_nothing_is_written_when_there_is_nothing_new(harness: ControllerHarness) -> None:
    before = harness.cluster.resource_version
    harness.pass_time(RESYNC_SECONDS + 1)
    harness.step()
    assert harness.cluster.resource_version == before
    harness.create({**a_pod(name="new"), "metadata": {"name": "new", "namespace": NS}})
    version = harness.cluster.resource_version
    harness.step()
    assert harness.cluster.resource_version == version + 1  # one more pod is pending
    harness.api.patch(PODS, "new", {"metadata": {"labels": {"a": "b"}}}, namespace=NS)
    version = harness.cluster.resource_version
    harness.step()
    assert harness.cluster.resource_version == version


# -- time ----------------------------------------------------------------------------------


def test_a_pod_that_is_stuck_terminating_is_released_by_time_alone(
    harness: ControllerHarness,
) -> None:
    harness.pod("web", node="node-1")
    harness.delete("web", grace=30)
    harness.step()
    harness.pass_time(60.9)
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}
    harness.pass_time(0.2)
    harness.step()
    assert harness.used() == {"requests.cpu": "0"}


def test_an_update_of_a_released_pod_does_not_charge_it_again(harness: ControllerHarness) -> None:
    harness.pod("web", node="node-1")
    harness.delete("web", grace=5)
    harness.step()
    harness.pass_time(11.1)
    harness.step()
    harness.api.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace=NS)
    harness.step()
    assert harness.used() == {"requests.cpu": "0"}


def test_a_pod_that_is_stuck_terminating_is_held_until_it_is_gone(
    harness: ControllerHarness,
) -> None:
    harness.holds_terminating = True
    harness.pod("web", node="node-1")
    harness.delete("web", grace=1)
    harness.step()
    harness.pass_time(1000)
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}
    harness.delete("web")
    harness.step()
    assert harness.used() == {"requests.cpu": "0"}


def test_a_held_pod_that_has_ended_is_not_charged(harness: ControllerHarness) -> None:
    harness.holds_terminating = True
    harness.pod("web", node="node-1")
    harness.delete("web", grace=1)
    harness.step()
    harness.pass_time(1000)
    harness.step()
    harness.api.patch(
        PODS, "web", {"status": {"phase": "Failed"}}, namespace=NS, subresource="status"
    )
    harness.step()
    assert harness.used() == {"requests.cpu": "0"}


def test_to_hold_and_to_release_takes_effect_for_pods_that_are_stuck_already(
    harness: ControllerHarness,
) -> None:
    harness.pod("web", node="node-1")
    harness.delete("web", grace=5)
    harness.step()
    harness.pass_time(11.1)
    harness.step()
    hashes = set()
    for holds, used in ((False, "0"), (True, "1"), (False, "0")):
        harness.holds_terminating = holds
        harness.controller.recount()
        harness.step()
        assert harness.used() == {"requests.cpu": used}
        hashes.add(harness.ledger().accounts["p1"].observed.spec_hash)
    assert len(hashes) == 2, "handlers cannot tell how it was counted"


def test_a_shortened_grace_period_releases_earlier(harness: ControllerHarness) -> None:
    harness.pod("web", node="node-1")
    harness.delete("web", grace=3600)
    harness.step()
    harness.delete("web", grace=10)
    harness.step()
    harness.pass_time(21.1)
    harness.step()
    assert harness.used() == {"requests.cpu": "0"}


def test_a_reservation_that_came_to_nothing_expires_though_nothing_happens(
    harness: ControllerHarness,
) -> None:
    harness.pod("web")
    harness.step()
    harness.reserve("web")  # and storage refuses the bind: no event comes
    for _ in range(4):
        harness.pass_time(30)
        harness.step()
    assert harness.held() == {}
    assert harness.reserved() == {}


def test_a_reservation_is_watched_for_the_whole_time_first(harness: ControllerHarness) -> None:
    harness.pod("web")
    harness.step()
    harness.reserve("web")
    harness.api.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace=NS)
    harness.step()
    harness.pass_time(EXPIRE_SECONDS)
    harness.step()
    assert set(harness.held()) == {"web"}
    harness.pass_time(0.1)
    harness.step()
    assert harness.held() == {}


def test_a_repeated_request_starts_the_watch_again(harness: ControllerHarness) -> None:
    harness.pod("web")
    harness.step()
    harness.reserve("web")
    harness.pass_time(RESYNC_SECONDS)
    harness.step()
    harness.pass_time(40)
    harness.reserve("web")
    harness.pass_time(10)
    harness.step()
    assert set(harness.held()) == {"web"}


def test_nothing_is_looked_at_before_it_is_needed(harness: ControllerHarness) -> None:
    assert harness.seconds_to_next() == pytest.approx(RESYNC_SECONDS)
    harness.pod("web")
    harness.step()
    harness.reserve("web")
    harness.mark_dirty()
    harness.step()
    assert harness.seconds_to_next() == pytest.approx(EXPIRE_SECONDS)


# -- quotas --------------------------------------------------------------------------------


def test_a_changed_limit_and_a_changed_selector_count_at_once(harness: ControllerHarness) -> None:
    harness.pod("gold", node="node-1", priorityClassName="gold")
    harness.pod("silver", "500m", node="node-1", priorityClassName="silver")
    harness.step()
    edit(harness, "p1", hard={"requests.cpu": "7", "limits.cpu": "3"})
    harness.step()
    assert harness.used() == {"limits.cpu": "0", "requests.cpu": "1500m"}
    assert harness.is_exact()
    selector = {"matchExpressions": [an_expression("PriorityClass", "In", "gold")]}
    edit(harness, "p1", scopeSelector=selector)
    harness.step()
    assert harness.used() == {"limits.cpu": "0", "requests.cpu": "1"}
    assert harness.is_exact()


def test_an_edit_between_the_look_and_the_write_holds_decisions_up(
    harness: ControllerHarness,
) -> None:
    harness.pod("web")
    harness.step()
    edit(harness, "p1", hard={"requests.cpu": "7"})
    harness.catch_up()
    assert harness.reserve("web") == Undecided("usage is being counted for quota: p1")
    harness.step()
    assert isinstance(harness.reserve("web"), Reserved)


def test_reservations_move_with_the_quotas(harness: ControllerHarness) -> None:
    harness.pod("web")
    harness.step()
    harness.reserve("web")
    harness.create(a_quota("p2", hard={"requests.cpu": "1"}))
    harness.step()
    assert harness.reserved("p2") == {"requests.cpu": "1"}
    harness.api.delete(RESOURCE_QUOTAS, "p1", namespace=NS)
    harness.step()
    assert set(harness.ledger().accounts) == {"p2"}
    assert harness.held()["web"].quotas == ("p2",)


def test_the_exclude_annotation_takes_a_quota_out_and_puts_it_back(
    harness: ControllerHarness,
) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    annotate(harness, "p1", "true")
    harness.step()
    assert harness.ledger().accounts == {}
    annotate(harness, "p1", None)
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}


def test_a_quota_made_again_under_its_name_is_another_one(harness: ControllerHarness) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    harness.api.delete(RESOURCE_QUOTAS, "p1", namespace=NS)
    harness.create(a_quota("p1"))
    harness.step()
    assert harness.is_exact()


def test_without_deferred_quotas_there_is_no_ledger() -> None:
    with new_harness(a_quota("p1", hard={"pods": "1"})) as harness:
        harness.pod("web", node="node-1")
        harness.step()
        assert not harness.has_ledger()
        edit(harness, "p1", hard={"requests.cpu": "5"})
        harness.step()
        assert harness.used() == {"requests.cpu": "1"}


def test_a_quota_that_cannot_be_matched_charges_and_stops_no_pod(
    harness: ControllerHarness,
) -> None:
    harness.create(a_quota("odd", expressions=[an_expression("PriorityClass", "In", "bad value!")]))
    harness.pod("web", node="node-1")
    harness.step()
    assert harness.used("odd") == {"requests.cpu": "0"}
    assert harness.used("p1") == {"requests.cpu": "1"}


def test_a_quota_that_cannot_be_read_stops_no_other_one(harness: ControllerHarness) -> None:
    harness.create(a_quota("odd", hard={"requests.cpu": "much"}))
    harness.pod("web", node="node-1")
    harness.step()
    assert harness.used("p1") == {"requests.cpu": "1"}


# -- namespaces ----------------------------------------------------------------------------


def test_namespaces_have_ledgers_of_their_own(harness: ControllerHarness) -> None:
    harness.create(a_namespace("team-b"))
    harness.create(a_namespace("team-c", mode=""))
    for namespace in ("team-b", "team-c"):
        harness.create(a_quota("p1", namespace=namespace, hard={"requests.cpu": "9"}))
    harness.pod("web", "1", node="node-1")
    harness.pod("web", "5", namespace="team-b", node="node-1")
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}
    assert harness.used(namespace="team-b") == {"requests.cpu": "5"}
    assert not harness.has_ledger("team-c")


def test_a_namespace_that_opts_in_is_counted_with_what_runs_there() -> None:
    with new_harness(a_quota("p1"), mode="") as harness:
        harness.pod("web", node="node-1")
        harness.step()
        assert not harness.has_ledger()
        opt_in(harness.api, NS)
        harness.step()
        assert harness.used() == {"requests.cpu": "1"}


def test_a_namespace_that_opted_out_has_nothing_counted_when_it_comes_back(
    harness: ControllerHarness,
) -> None:
    harness.pod("web", "2")
    harness.pod("next", "1")
    harness.step()
    opt_out(harness.api, NS)
    harness.step()
    harness.bind("web")  # nobody watches now
    opt_in(harness.api, NS)
    harness.catch_up()
    # a handler that is faster than the controller must not go by what was counted before
    assert isinstance(harness.reserve("next"), Undecided)
    harness.step()
    assert isinstance(harness.reserve("next"), QuotaExceeded)


def test_opting_out_keeps_what_is_reserved_for_the_way_back(harness: ControllerHarness) -> None:
    harness.pod("web", "2")
    harness.pod("next", "1")
    harness.step()
    harness.reserve("web")
    opt_out(harness.api, NS)
    harness.step()
    assert (harness.ledger().accounts, set(harness.held())) == ({}, {"web"})
    assert summary(harness.ledger()) == "opted out"
    opt_in(harness.api, NS)
    harness.step()
    assert harness.reserved() == {"requests.cpu": "2"}
    assert "requests.cpu 0+2/2" in summary(harness.ledger())
    assert isinstance(harness.reserve("next"), QuotaExceeded)


def test_a_namespace_that_opts_out_and_in_at_once_is_counted(harness: ControllerHarness) -> None:
    opt_out(harness.api, NS)
    opt_in(harness.api, NS)
    harness.pod("web", node="node-1")
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}


def test_events_of_a_namespace_that_opted_out_are_not_counted(harness: ControllerHarness) -> None:
    opt_out(harness.api, NS)
    harness.step()
    before = harness.cluster.resource_version
    harness.pod("web", node="node-1")
    harness.step()
    assert harness.cluster.resource_version == before + 1


def make_anew(harness: ControllerHarness) -> None:
    """Make the namespace anew, whose ledger went with it, and count the pod that is there."""
    assert not harness.has_ledger()
    harness.create(a_namespace())
    harness.create(a_quota("p1"))
    harness.pod("web", node="node-1")
    harness.step()


def test_a_deleted_namespace_is_forgotten(harness: ControllerHarness) -> None:
    harness.api.delete(NAMESPACES, NS)
    harness.step()
    make_anew(harness)
    assert harness.used() == {"requests.cpu": "1"}


def test_one_that_was_deleted_while_its_ledger_was_written_and_is_made_anew_has_lost_none(
    harness: ControllerHarness,
) -> None:
    def deleted_after(_call: Call, proceed: Proceed) -> object:
        answer = proceed()
        harness.api.delete(NAMESPACES, NS)
        harness.catch_up()
        return answer

    harness.client.on("update", QUOTA_LEDGERS, deleted_after, times=1)
    harness.pod("web", node="node-1")
    harness.step()
    make_anew(harness)
    assert harness.used() == {"requests.cpu": "1"}


# -- ledgers that others touch -------------------------------------------------------------


def hand_edit(harness: ControllerHarness, patch: list[Object]) -> None:
    harness.api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NS, subresource="status")


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
    harness: ControllerHarness, patch: list[Object]
) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    hand_edit(harness, patch)
    harness.pass_time(RESYNC_SECONDS + 1)
    harness.step()
    assert harness.is_exact()


def test_a_reservation_invented_by_hand_expires(harness: ControllerHarness) -> None:
    invented = "x x Bind 1 p1 cpu=2"
    hand_edit(harness, [{"op": "replace", "path": "/status/reservations", "value": invented}])
    for _ in range(3):
        harness.pass_time(RESYNC_SECONDS + 1)
        harness.step()
    assert harness.held() == {}


def test_a_ledger_that_is_deleted_comes_back_when_its_reservations_are_over(
    harness: ControllerHarness,
) -> None:
    harness.pod("web", "2")
    harness.pod("next", "2")
    harness.step()
    assert isinstance(harness.reserve("web"), Reserved)
    harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NS)
    harness.pod("poke", "1m")
    harness.step()
    # the bind of `web` can still be on its way, so nobody else may be let in
    assert isinstance(harness.reserve("next"), Undecided)
    harness.pass_time(EXPIRE_SECONDS - 1)
    harness.bind("web")
    harness.step()
    assert isinstance(harness.reserve("next"), Undecided)
    harness.pass_time(1.1)
    harness.step()
    assert harness.used() == {"requests.cpu": "2"}
    assert isinstance(harness.reserve("next"), QuotaExceeded)


def test_a_ledger_whose_status_is_wiped_is_as_good_as_gone(harness: ControllerHarness) -> None:
    harness.pod("web", "2")
    harness.step()
    harness.reserve("web")
    hand_edit(harness, [{"op": "remove", "path": "/status"}])
    harness.pod("next", "2")
    harness.step()
    assert isinstance(harness.reserve("next"), Undecided)
    harness.pass_time(EXPIRE_SECONDS + 0.1)
    harness.step()
    assert harness.is_exact()


def test_a_ledger_that_cannot_be_read_stops_its_namespace_only_and_is_tried_again(
    harness: ControllerHarness,
) -> None:
    harness.create(a_namespace("team-b"))
    harness.create(a_quota("p1", namespace="team-b"))
    harness.pod("web", node="node-1")
    hand_edit(harness, [{"op": "replace", "path": "/status/podsResourceVersion", "value": "soon"}])
    harness.step()
    assert harness.used(namespace="team-b") == {"requests.cpu": "0"}
    hand_edit(harness, [{"op": "replace", "path": "/status/podsResourceVersion", "value": "1"}])
    harness.pass_time(5.1)
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}


# -- pods that cannot be read --------------------------------------------------------------


def unreadable(name: str = "odd", node: str = "node-1") -> Object:
    return a_pod(name=name, uid=f"uid-{name}", node=node, requests={"cpu": "two"})


def test_usage_that_is_not_known_keeps_the_ledger_as_it_is(harness: ControllerHarness) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    harness.cluster.load([(PODS, unreadable())])
    harness.finish("web")
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}
    harness.api.delete(PODS, "odd", namespace=NS, grace_period_seconds=0)
    harness.pass_time(1.1)
    harness.step()
    assert harness.used() == {"requests.cpu": "0"}


def test_one_that_goes_while_the_ledger_says_so_is_no_fault(harness: ControllerHarness) -> None:
    def and_it_goes(_call: Call, proceed: Proceed) -> object:
        written = proceed()
        harness.api.delete(PODS, "odd", namespace=NS, grace_period_seconds=0)
        harness.catch_up()
        return written

    harness.step()
    harness.cluster.load([(PODS, unreadable())])
    harness.client.on("update", QUOTA_LEDGERS, and_it_goes, subresource="status", times=1)
    harness.step()
    assert harness.conditions()["Counted"][0] == "False"
    harness.pass_time(1.1)
    harness.step()
    assert harness.conditions()["Counted"][0] == "True"


def test_a_pod_that_becomes_readable_is_counted(harness: ControllerHarness) -> None:
    harness.cluster.load([(PODS, unreadable())])
    harness.step()
    harness.api.update(
        PODS, a_pod(name="odd", node="node-1", uid="", requests={"cpu": "2"}), subresource="resize"
    )
    harness.pass_time(1.1)
    harness.step()
    assert harness.used() == {"requests.cpu": "2"}


def test_a_pod_that_could_not_be_read_before_the_namespace_opted_in_is_not_overlooked() -> None:
    with new_harness(a_quota("p1"), mode="") as harness:
        harness.cluster.load([(PODS, unreadable())])
        harness.pod("web", node="node-1")
        harness.catch_up()
        opt_in(harness.api, NS)
        harness.step()
        version = harness.version()
        assert version is None or version.ledger is None


def test_a_namespace_that_opts_in_has_its_own_pods_looked_at_alone(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All namespaces wait for that, and as many may opt in as there are."""
    harness.cluster.load([(PODS, unreadable())])
    harness.catch_up()
    monkeypatch.delattr(NamespacedCache, "entries")
    usage_cache = harness.controller.usage_cache
    with usage_cache.lock:
        assert [*usage_cache.track(NS).unreadable_pods] == ["uid-odd"]
        assert [*usage_cache.track("team-b").unreadable_pods] == []


def test_a_pod_that_cannot_be_read_stops_no_other_namespace(harness: ControllerHarness) -> None:
    harness.create(a_namespace("team-b"))
    odd = unreadable()
    harness.cluster.load(
        [(PODS, {**odd, "metadata": {"name": "odd", "namespace": "team-b", "uid": "u"}})]
    )
    harness.pod("web", node="node-1")
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}
    assert harness.controller.readiness_problems() == []


# -- an API server that does not answer ----------------------------------------------------


def test_what_could_not_be_settled_is_settled_later(harness: ControllerHarness) -> None:
    harness.pod("web", node="node-1")
    harness.client.on("get", QUOTA_LEDGERS, unreachable)
    harness.step()
    harness.client.reset()
    assert harness.used() == {"requests.cpu": "0"}
    harness.pass_time(1.1)
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}


def test_nothing_expires_while_the_pod_cannot_be_asked_for(harness: ControllerHarness) -> None:
    harness.pod("web")
    harness.step()
    harness.reserve("web")
    harness.client.on("get", PODS, unreachable)
    for _ in range(4):
        harness.pass_time(RESYNC_SECONDS)
        harness.step()
    assert set(harness.held()) == {"web"}


def test_nothing_expires_while_the_cache_has_not_seen_the_bind(harness: ControllerHarness) -> None:
    harness.pod("web", "2")
    harness.step()
    harness.reserve("web")
    harness.client.pause(PODS)
    harness.bind("web")
    for _ in range(4):
        harness.pass_time(RESYNC_SECONDS)
        harness.reconcile_once()
    assert set(harness.held()) == {"web"}
    harness.client.resume()
    harness.step()
    assert (harness.used(), harness.held()) == ({"requests.cpu": "2"}, {})


def test_a_cut_and_a_forgotten_history_are_caught_up_with(harness: ControllerHarness) -> None:
    harness.pod("first", node="node-1")
    harness.pod("second", "500m", node="node-1")
    harness.step()
    harness.client.pause(PODS)
    harness.delete("first")
    harness.pod("third", "250m", node="node-1")
    harness.cluster.compact()
    harness.cluster.cut_watches()
    harness.client.resume()
    harness.step()
    assert harness.used() == {"requests.cpu": "750m"}
    assert harness.is_exact()


# -- several controllers ----------------------------------------------------------------------


def test_a_controller_that_lags_does_not_lower_what_another_has_counted(
    harness: ControllerHarness,
) -> None:
    with second_harness(harness) as ahead:
        harness.client.pause(PODS)
        harness.pod("web", "2", node="node-1")
        ahead.step()
        assert ahead.used() == {"requests.cpu": "2"}
        edit(harness, "p1", hard={"requests.cpu": "3"})
        eventually(
            lambda: str(harness.quotas.in_namespace(NS).all_quotas[0].hard["requests.cpu"]) == "3",
            "the edit is seen",
        )
        harness.reconcile_once()
        assert ahead.used() == {"requests.cpu": "2"}


def test_a_controller_that_lagged_settles_by_itself_once_it_has_caught_up(
    harness: ControllerHarness,
) -> None:
    harness.create(a_namespace("team-b"))
    harness.step()
    harness.client.pause(PODS)
    with second_harness(harness) as ahead:
        harness.pod("web", "2", namespace="team-b", node="node-1")
        edit(harness, "p1", hard={"requests.cpu": "8"})
        ahead.step()
    edit(harness, "p1", hard={"requests.cpu": "9"})  # now only the one that lags is left
    eventually(
        lambda: str(harness.quotas.in_namespace(NS).all_quotas[0].hard["requests.cpu"]) == "9",
        "the edit is seen",
    )
    harness.reconcile_once()
    assert not harness.is_exact()
    harness.client.resume()  # what comes now is about another namespace
    harness.catch_up()
    harness.pass_time(1.1)
    harness.step()
    assert harness.is_exact()


def blocked(harness: ControllerHarness, name: str) -> tuple[threading.Event, threading.Event]:
    """Stop the informer of pods just after the controller was told of the pod `name`."""
    reached, releasable = threading.Event(), threading.Event()

    def wait(change: Change[Pod]) -> None:
        if change.key == f"{NS}/{name}":
            reached.set()
            assert releasable.wait(10)

    harness.after_pod_changes.append(wait)
    return reached, releasable


def test_what_was_counted_is_never_said_to_be_older_than_it_is(harness: ControllerHarness) -> None:
    harness.pod("web", "2")
    harness.step()
    harness.reserve("web")
    reached, releasable = blocked(harness, "web")
    try:
        harness.bind("web")
        bound = harness.cluster.resource_version
        assert reached.wait(5)
        harness.reconcile_once()  # counts the bind, though the cache is not said to be that far yet
        assert harness.used() == {"requests.cpu": "2"}
        # otherwise a controller that has not seen the bind could write over this
        assert harness.ledger().pods_resource_version >= bound
    finally:
        releasable.set()


def test_half_a_new_list_does_not_lower_what_another_has_counted(
    harness: ControllerHarness,
) -> None:
    harness.pod("a", "1", node="node-1")
    harness.pod("web", "1")
    harness.step()
    harness.reserve("web")
    with second_harness(harness) as ahead:
        harness.client.calls.clear()
        harness.client.on("watch", PODS, unreachable)
        harness.cluster.cut_watches()
        eventually(lambda: bool(harness.client.calls_of("watch", PODS)), "the watch has failed")
        reached, releasable = blocked(harness, "a")
        try:
            harness.delete("a")
            harness.bind("web")
            ahead.step()
            assert (ahead.used(), ahead.held()) == ({"requests.cpu": "1"}, {})
            harness.cluster.compact()
            harness.client.reset()
            assert reached.wait(5)  # of the new list, only the deletion of `a` is taken in
            harness.pass_time(1.1)
            harness.reconcile_once()
            assert ahead.used() == {"requests.cpu": "1"}
        finally:
            releasable.set()
        harness.step()
        assert harness.is_exact()


# -- the thread ----------------------------------------------------------------------------


def test_the_thread_settles_what_changes_and_ends_when_stopped() -> None:
    with new_harness(a_quota("p1")) as harness:
        harness.controller.start_threads()
        problems = harness.controller.readiness_problems
        # a ledger is created before its first count is written
        eventually(lambda: problems() == [], "the first count is written")
        harness.pod("web", node="node-1")
        eventually(lambda: harness.used() == {"requests.cpu": "1"}, "the pod is counted")
        assert harness.controller.readiness_problems() == []
        harness.controller.stop()
        assert not [one for one in threading.enumerate() if one.name.startswith("ledger-")]


def test_before_the_pods_are_listed_the_controller_is_not_ready_and_writes_nothing() -> None:
    with new_harness(a_quota("p1")) as harness:
        late = ControllerHarness(harness.cluster, harness.clock)
        assert late.controller.readiness_problems() == ["the controller has not seen all pods yet"]
        late.reconcile_once()
        assert not harness.has_ledger()
        assert harness.controller.readiness_problems() == [
            "the ledger of namespace team-a has not been counted yet"
        ]
        harness.step()
        assert harness.controller.readiness_problems() == []


def test_one_namespace_that_cannot_be_counted_does_not_keep_the_others_waiting() -> None:
    with new_harness(a_quota("p1")) as harness:
        harness.create(a_namespace("team-b"))
        harness.create(a_quota("p1", namespace="team-b"))
        harness.cluster.load([(PODS, unreadable())])
        harness.step()
        assert harness.controller.readiness_problems() == []
        assert harness.has_ledger("team-b")


def test_other_deferred_resources_are_counted_anew(harness: ControllerHarness) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    harness.controller.recount()
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}


# -- quotas that are edited without an end ---------------------------------------------------


def counting_takes(
    harness: ControllerHarness, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Let it take long to count pods for other quotas; return the threads that did so."""
    counted: list[str] = []
    original = NamespaceUsage.set_quotas

    def slow(usage: NamespaceUsage, quotas: NamespaceQuotas) -> None:
        if quotas.observed != usage.quotas.observed:
            counted.append(threading.current_thread().name)
            harness.pass_time(seconds)
        original(usage, quotas)

    monkeypatch.setattr(NamespaceUsage, "set_quotas", slow)
    return counted


def test_an_edited_quota_is_not_counted_where_quotas_are_watched(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tenant decides how long that takes, and the quotas of others come behind it."""
    counted = counting_takes(harness, 1.0, monkeypatch)
    for hard in ("3", "4"):
        edit(harness, "p1", hard={"requests.cpu": hard})
        harness.catch_up()
    assert counted == []
    harness.step()
    assert counted == [threading.current_thread().name]
    assert to_text(harness.ledger().accounts["p1"].hard) == {"requests.cpu": "4"}


def test_an_edited_quota_is_noted_under_the_lock(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a reconciliation that begins at the same time could take the note away."""
    cache = harness.controller.usage_cache
    original, locked = cache.mark_dirty, list[bool]()

    def observe(namespace: str, state: NamespaceState) -> None:
        locked.append(cache.lock.locked())
        original(namespace, state)

    monkeypatch.setattr(cache, "mark_dirty", observe)
    edit(harness, "p1", hard={"requests.cpu": "3"})
    harness.catch_up()
    assert locked == [True]


def test_an_edited_shared_quota_is_not_counted_where_they_are_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with new_harness(shared_quota("4"), follows_ledgers=True) as harness:
        harness.step()
        counted = counting_takes(harness, 1.0, monkeypatch)
        spec = shared_quota("5")["spec"]
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": spec})
        harness.catch_up()
        assert counted == []
        harness.step()
        assert counted == [threading.current_thread().name]


@pytest.mark.parametrize(
    ("count_seconds", "steps"),
    [(0.5, ((0.0, 1), (4.0, 1), (1.0, 2))), (60.0, ((0.0, 1), (4.0, 1), (2.0, 2)))],
    ids=["nine times as long", "five seconds at most"],
)
def test_a_namespace_rests_after_a_long_count_for_other_quotas(
    harness: ControllerHarness,
    monkeypatch: pytest.MonkeyPatch,
    count_seconds: float,
    steps: tuple[tuple[float, int], ...],
) -> None:
    """All namespaces wait for it."""
    counted = counting_takes(harness, count_seconds, monkeypatch)
    edit(harness, "p1", hard={"requests.cpu": "3"})
    harness.step()
    for hard, (seconds, times) in enumerate(steps, start=4):
        harness.pass_time(seconds)
        edit(harness, "p1", hard={"requests.cpu": str(hard)})
        harness.step()
        assert len(counted) == times
    assert to_text(harness.ledger().accounts["p1"].hard) == {"requests.cpu": "6"}
