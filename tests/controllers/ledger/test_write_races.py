"""What two controllers, a reload, or a lost ledger can do to the count: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from tests.admission.handlers.harness import a_namespace, eventually, opt_in, opt_out
from tests.builders import a_quota
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    NAMESPACE,
    ControllerHarness,
    new_harness,
    second_harness,
)
from tests.reactions import Reaction, forbid, preceded_by, unavailable, unreachable
from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.kube.api import PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS
from webhook.quota.charging.denials import QuotaExceeded
from webhook.state.ledger_store import LedgerVersion
from webhook.state.reserver import Reserved
from webhook.state.well_known import SCHEDULING_GATE


@pytest.fixture
def pair() -> Iterator[tuple[ControllerHarness, ControllerHarness]]:
    """Two controllers of one cluster, with a quota of 2 cpu that both have counted."""
    with new_harness(a_quota("p1")) as one, second_harness(one) as other:
        one.step()
        other.step()
        yield one, other


def test_a_count_that_was_replaced_while_it_was_settled_is_not_written(
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
    one, other = pair
    one.pod("web", "2")
    one.step()
    other.step()
    assert isinstance(one.reserve("web"), Reserved)
    fetch = one.ledgers.fetch

    def while_it_opts_out_and_in(namespace: str) -> LedgerVersion | None:
        one.ledgers.fetch = fetch  # type: ignore[method-assign]
        before = one.state()
        opt_out(one.api, NAMESPACE)
        opt_in(one.api, NAMESPACE)
        one.catch_up()
        assert one.state() is not before
        one.bind("web")
        one.catch_up()
        other.step()
        return fetch(namespace)

    one.ledgers.fetch = while_it_opts_out_and_in  # type: ignore[method-assign]
    one.pass_time(1)
    one.mark_dirty()
    one.reconcile_once()
    assert one.used() == {"requests.cpu": "2"}
    one.pod("more", "2")
    assert isinstance(one.reserve("more"), QuotaExceeded)


def test_what_is_counted_is_never_said_to_be_older_than_it_is(
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
    one, _ = pair
    one.pod("web", "1", node="node-1")
    one.step()
    pod = one.controller.pods.in_namespace(NAMESPACE)[0]
    ahead = replace(pod, resource_version=str(int(pod.resource_version) + 1))
    one.put_pod(ahead)
    one.mark_dirty()
    edited = {"spec": {"hard": {"requests.cpu": "3"}}}  # so that there is something to write
    one.api.patch(RESOURCE_QUOTAS, "p1", edited, namespace=NAMESPACE)
    one.pass_time(1)
    one.step()
    assert one.ledger().pods_resource_version >= int(ahead.resource_version)


def test_a_reservation_in_a_new_ledger_is_watched_from_the_beginning(
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
    one, other = pair
    one.pod("web", "2")
    one.step()
    assert isinstance(one.reserve("web"), Reserved)
    one.pass_time(61)
    one.step()
    one.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    for _ in range(2):  # the other controller finds it gone, waits, and makes a new one
        other.mark_dirty()
        other.pass_time(EXPIRE_SECONDS + 1)
        other.step()
    assert isinstance(one.reserve("web"), Reserved)
    assert other.held()["web"].serial == 1  # as in the ledger before
    one.mark_dirty()
    one.pass_time(1)
    one.step()
    assert set(one.held()) == {"web"}


def test_a_controller_that_finds_no_ledger_at_its_start_can_wait_for_what_may_be_on_its_way() -> (
    None
):
    with new_harness(a_quota("p1")) as harness:
        assert not harness.has_ledger()
        with second_harness(harness, waits_at_start=True) as late:
            late.step()
            assert not late.has_ledger()
            late.pass_time(EXPIRE_SECONDS + 1)
            late.step()
            assert late.has_ledger()


def test_a_ledger_that_stays_unreadable_is_replaced_after_the_time_of_a_request() -> None:
    with new_harness(a_quota("p1")) as harness:
        harness.step()
        harness.pod("web", "1", node="node-1")
        broken = {"status": {"reservations": [{"uid": "u", "door": "Window"}]}}
        harness.api.patch(
            QUOTA_LEDGERS, "ledger", broken, namespace=NAMESPACE, subresource="status"
        )
        harness.step()
        assert harness.controller.readiness_problems() == []
        harness.pass_time(EXPIRE_SECONDS + 1)
        harness.step()
        assert harness.used() == {"requests.cpu": "1"}


def test_one_that_goes_before_anything_is_counted_in_it_is_waited_for_anew() -> None:
    with new_harness(a_quota("p1"), follows_ledgers=True) as harness:
        harness.step()
        for number in range(2):
            harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
            harness.mark_dirty()
            harness.step()
            harness.client.pause(PODS)
            harness.pod(f"unseen-{number}", "1")
            for seconds, has_ledger in ((EXPIRE_SECONDS - 1, False), (1, True)):
                harness.pass_time(seconds)
                harness.mark_dirty()
                harness.reconcile_once()
                assert harness.has_ledger() is has_ledger
            version = harness.version()
            assert version is not None
            assert version.ledger is None
            harness.client.resume()


def test_a_namespace_that_opts_in_later_does_not_make_the_process_unready() -> None:
    with new_harness(a_quota("p1")) as harness:
        assert harness.controller.readiness_problems() != []
        harness.step()
        assert harness.controller.readiness_problems() == []
        harness.create(a_namespace("team-b"))
        harness.catch_up()
        assert harness.controller.readiness_problems() == []


def test_an_exempt_namespace_gets_no_ledger() -> None:
    with new_harness(a_quota("p1"), exempt=frozenset({"kube-system"})) as harness:
        harness.create(a_namespace("kube-system"))
        harness.create(a_quota("p1", namespace="kube-system"))
        harness.step()
        assert harness.has_ledger()
        assert not harness.has_ledger("kube-system")


def test_pods_of_expired_reservations_are_not_asked_about_all_the_time() -> None:
    with new_harness(a_quota("p1", hard={"requests.cpu": "100"})) as harness:
        for number in range(5):
            harness.pod(f"web-{number}", "1")
        harness.step()
        for number in range(5):
            assert isinstance(harness.reserve(f"web-{number}"), Reserved)
        harness.pass_time(61)
        harness.step()
        harness.pass_time(EXPIRE_SECONDS + 1)
        harness.client.on("get", PODS, unreachable)
        harness.client.calls.clear()
        for _ in range(20):
            harness.mark_dirty()
            harness.pass_time(0.01)
            harness.step()
        assert len(harness.client.calls_of("get", PODS)) <= 5


def test_updates_of_a_pod_that_is_being_deleted_do_not_pile_up() -> None:
    with new_harness(a_quota("p1")) as harness:
        harness.pod("web", "1", node="node-1")
        harness.step()
        harness.delete("web", grace=3600)
        for number in range(20):
            harness.api.patch(
                PODS, "web", {"metadata": {"labels": {"n": str(number)}}}, namespace=NAMESPACE
            )
            harness.catch_up()
        assert len(harness.controller.usage_cache.terminating) == 1


def test_a_ledger_is_not_made_from_a_cache_that_has_not_seen_all_pods() -> None:
    with new_harness(a_quota("p1")) as harness:
        harness.step()
        harness.pod("web", "2")
        harness.pod("next", "2")
        harness.step()
        assert isinstance(harness.reserve("web"), Reserved)
        harness.client.pause(PODS)  # the watch has stalled
        harness.bind("web")
        harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
        for _ in range(4):
            harness.mark_dirty()
            harness.pass_time(EXPIRE_SECONDS)
            harness.reconcile_once()
        version = harness.version()
        assert version is None or version.ledger is None
        harness.client.resume()
        harness.pass_time(5)
        harness.step()
        assert harness.used() == {"requests.cpu": "2"}


def test_the_first_quota_is_not_counted_from_a_cache_that_has_not_seen_all_pods() -> None:
    with new_harness(a_quota("p1", hard={"pods": "9"})) as harness:
        harness.pod("web", "2")
        harness.step()
        harness.client.pause(PODS)
        harness.bind("web")
        edited = {"spec": {"hard": {"requests.cpu": "2"}}}
        harness.api.patch(RESOURCE_QUOTAS, "p1", edited, namespace=NAMESPACE)
        eventually(
            lambda: bool(harness.quotas.in_namespace(NAMESPACE).deferred.quotas), "it is seen"
        )
        harness.reconcile_once()
        version = harness.version()
        assert version is None or version.ledger is None
        harness.client.resume()
        harness.pass_time(1)
        harness.step()
        assert harness.used() == {"requests.cpu": "2"}


FOLD_SECONDS = 0.5


@pytest.fixture
def contended() -> Iterator[ControllerHarness]:
    """A quota of which a handler reserves something before each write of the controller."""
    with new_harness(
        a_quota("p1", hard={"requests.cpu": "100"}), fold_seconds=FOLD_SECONDS
    ) as harness:
        harness.step()
        for name in ("web", "old"):
            harness.pod(name)
            harness.catch_up()
            assert isinstance(harness.reserve(name), Reserved)
            harness.bind(name)
        settle(harness)
        assert (harness.used(), harness.held()) == ({"requests.cpu": "2"}, {})
        names = map("racing-{}".format, count())

        def claim() -> None:
            name = next(names)
            harness.pod(name)
            assert isinstance(harness.reserve(name), Reserved)

        harness.client.on(
            "update", QUOTA_LEDGERS, preceded_by(lambda _: claim()), subresource="status"
        )
        yield harness


def settle(harness: ControllerHarness) -> None:
    harness.pass_time(FOLD_SECONDS)
    harness.step()


def races_lost(harness: ControllerHarness) -> float:
    return harness.metric("ledger_settlements_total", result="conflict")


def bind_another(harness: ControllerHarness) -> None:
    harness.pod("more")
    harness.catch_up()
    assert isinstance(harness.reserve("more"), Reserved)
    harness.bind("more")


def test_a_write_that_only_folds_is_put_off_when_a_handler_was_first(
    contended: ControllerHarness,
) -> None:
    bind_another(contended)
    settle(contended)
    assert races_lost(contended) == 1
    contended.client.reset()
    contended.reconcile_once()
    assert set(contended.held()) >= {"more"}  # not before its time
    settle(contended)
    assert contended.used() == {"requests.cpu": "3"}
    assert "more" not in contended.held()


def test_it_is_not_put_off_for_ever(contended: ControllerHarness) -> None:
    bind_another(contended)
    for tries in (1, 2, 3, 4):
        settle(contended)
        assert races_lost(contended) == tries
    settle(contended)
    assert races_lost(contended) > 10


def test_it_is_put_off_again_after_it_lost_every_race(contended: ControllerHarness) -> None:
    bind_another(contended)
    for _ in range(5):
        settle(contended)
    before = races_lost(contended)
    settle(contended)
    assert races_lost(contended) == before + 1


def test_a_gate_that_needs_no_reservation_does_not_wait(contended: ControllerHarness) -> None:
    bind_another(contended)
    contended.pod("free", "0", schedulingGates=[{"name": SCHEDULING_GATE}])
    contended.catch_up()
    settle(contended)
    assert races_lost(contended) > 5


def test_what_frees_quota_is_not_put_off(contended: ControllerHarness) -> None:
    contended.delete("old")
    contended.step()
    assert races_lost(contended) > 5


def test_what_frees_quota_does_not_wait_for_what_was_put_off(contended: ControllerHarness) -> None:
    bind_another(contended)
    settle(contended)
    contended.client.reset()
    contended.delete("old")
    contended.step()  # no time has passed
    assert contended.used() == {"requests.cpu": "2"}


def test_a_pod_that_nothing_is_reserved_for_is_counted_at_once(
    contended: ControllerHarness,
) -> None:
    contended.pod("past", node="node-1")
    contended.catch_up()
    settle(contended)
    assert races_lost(contended) > 5


def test_of_a_few_namespaces_it_is_known_without_a_walk_whether_one_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster quota asks for each namespace that holds headroom, and all wait for the answer."""

    class Unwalked(dict[str, NamespaceState]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("all namespaces are walked")

    with new_harness(a_quota("p1")) as harness:
        harness.step()
        cache = harness.controller.usage_cache
        monkeypatch.setattr(cache, "namespaces", Unwalked(cache.namespaces))
        assert not cache.any_failing({NAMESPACE})
        for namespace in (NAMESPACE, "gone"):
            cache.workqueue.add_rate_limited(namespace)
        assert cache.any_failing({NAMESPACE, "gone"})
        assert not cache.any_failing({"gone"})


@pytest.mark.parametrize(
    ("reaction", "is_stuck"), [(forbid, True), (unavailable, False), (unreachable, False)]
)
def test_a_namespace_is_stuck_by_what_is_said_of_it_and_not_by_an_outage(
    reaction: Reaction, *, is_stuck: bool
) -> None:
    with new_harness(a_quota("p1")) as harness:
        harness.step()
        cache = harness.controller.usage_cache
        refused = harness.client.on("update", QUOTA_LEDGERS, reaction)
        harness.pod("web", "1")
        harness.bind("web")
        for _ in range(6):
            harness.pass_time(60)
            harness.step()
        assert cache.workqueue.failures(NAMESPACE) > 3
        assert cache.is_stuck(NAMESPACE) is is_stuck
        refused.remove()
        harness.pass_time(60)
        harness.step()
        assert not cache.is_stuck(NAMESPACE)
