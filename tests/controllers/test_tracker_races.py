"""What two trackers, a reload, or a lost ledger can do to the count: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.admission.doors.desk import a_namespace, eventually, opt_in, opt_out
from tests.builders import a_quota
from tests.controllers.rig import EXPIRE_SECONDS, NAMESPACE, Rig, a_rig, another_rig
from webhook.cluster.api import PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS
from webhook.quota.refusals import QuotaExceeded
from webhook.state.ledgers import LedgerVersion
from webhook.state.reserver import Reserved


@pytest.fixture
def pair() -> Iterator[tuple[Rig, Rig]]:
    """Two trackers of one cluster, with a quota of 2 cpu that both have counted."""
    with a_rig(a_quota("p1")) as one, another_rig(one) as other:
        one.step()
        other.step()
        yield one, other


def test_a_count_that_was_replaced_while_it_was_settled_is_not_written(
    pair: tuple[Rig, Rig],
) -> None:
    one, other = pair
    one.pod("web", "2")
    one.step()
    other.step()
    assert isinstance(one.reserve("web"), Reserved)
    fetch = one.ledgers.fetch

    def while_it_opts_out_and_in(namespace: str) -> LedgerVersion | None:
        one.ledgers.fetch = fetch  # type: ignore[method-assign]
        before = one.tracked()
        opt_out(one.api, NAMESPACE)
        opt_in(one.api, NAMESPACE)
        one.catch_up()
        assert one.tracked() is not before
        one.bind("web")
        one.catch_up()
        other.step()
        return fetch(namespace)

    one.ledgers.fetch = while_it_opts_out_and_in  # type: ignore[method-assign]
    one.pass_time(1)
    one.poke()
    one.round()
    assert one.used() == {"requests.cpu": "2"}
    one.pod("more", "2")
    assert isinstance(one.reserve("more"), QuotaExceeded)


def test_what_is_counted_is_never_said_to_be_older_than_it_is(pair: tuple[Rig, Rig]) -> None:
    one, _ = pair
    one.pod("web", "1", node="node-1")
    one.step()
    pod = one.tracker.pods.in_namespace(NAMESPACE)[0]
    ahead = replace(pod, resource_version=str(int(pod.resource_version) + 1))
    with one.tracker._counts.lock:
        one.tracker._counts.put(NAMESPACE, one.tracked(), ahead)
    one.poke()
    edited = {"spec": {"hard": {"requests.cpu": "3"}}}  # so that there is something to write
    one.api.patch(RESOURCE_QUOTAS, "p1", edited, namespace=NAMESPACE)
    one.pass_time(1)
    one.step()
    assert one.ledger().pods_resource_version >= int(ahead.resource_version)


def test_a_reservation_in_a_new_ledger_is_watched_from_the_beginning(
    pair: tuple[Rig, Rig],
) -> None:
    one, other = pair
    one.pod("web", "2")
    one.step()
    assert isinstance(one.reserve("web"), Reserved)
    one.pass_time(61)
    one.step()
    one.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    for _ in range(2):  # the other tracker finds it gone, waits, and makes a new one
        other.poke()
        other.pass_time(EXPIRE_SECONDS + 1)
        other.step()
    assert isinstance(one.reserve("web"), Reserved)
    assert other.held()["web"].serial == 1  # as in the ledger before
    one.poke()
    one.pass_time(1)
    one.step()
    assert set(one.held()) == {"web"}


def test_a_tracker_that_finds_no_ledger_at_its_start_can_wait_for_what_may_be_on_its_way() -> None:
    with a_rig(a_quota("p1")) as rig:
        assert not rig.has_ledger()
        with another_rig(rig, waits_at_start=True) as late:
            late.step()
            assert not late.has_ledger()
            late.pass_time(EXPIRE_SECONDS + 1)
            late.step()
            assert late.has_ledger()


def test_a_ledger_that_stays_unreadable_is_replaced_after_the_time_of_a_request() -> None:
    with a_rig(a_quota("p1")) as rig:
        rig.step()
        rig.pod("web", "1", node="node-1")
        broken = {"status": {"reservations": [{"uid": "u", "door": "Window"}]}}
        rig.api.patch(QUOTA_LEDGERS, "ledger", broken, namespace=NAMESPACE, subresource="status")
        rig.step()
        assert rig.tracker.not_ready() == []
        rig.pass_time(EXPIRE_SECONDS + 1)
        rig.step()
        assert rig.used() == {"requests.cpu": "1"}


def test_a_namespace_that_opts_in_later_does_not_make_the_process_unready() -> None:
    with a_rig(a_quota("p1")) as rig:
        assert rig.tracker.not_ready() != []
        rig.step()
        assert rig.tracker.not_ready() == []
        rig.create(a_namespace("team-b"))
        rig.catch_up()
        assert rig.tracker.not_ready() == []


def test_an_exempt_namespace_gets_no_ledger() -> None:
    with a_rig(a_quota("p1"), exempt=frozenset({"kube-system"})) as rig:
        rig.create(a_namespace("kube-system"))
        rig.create(a_quota("p1", namespace="kube-system"))
        rig.step()
        assert rig.has_ledger()
        assert not rig.has_ledger("kube-system")


def test_pods_of_expired_reservations_are_not_asked_about_all_the_time() -> None:
    with a_rig(a_quota("p1", hard={"requests.cpu": "100"})) as rig:
        for number in range(5):
            rig.pod(f"web-{number}", "1")
        rig.step()
        for number in range(5):
            assert isinstance(rig.reserve(f"web-{number}"), Reserved)
        rig.pass_time(61)
        rig.step()
        rig.pass_time(EXPIRE_SECONDS + 1)
        rig.line.broken.add(("get", "pods"))
        rig.line.calls.clear()
        for _ in range(20):
            rig.poke()
            rig.pass_time(0.01)
            rig.step()
        assert sum(call[:2] == ("get", "pods") for call in rig.line.calls) <= 5


def test_updates_of_a_pod_that_is_being_deleted_do_not_pile_up() -> None:
    with a_rig(a_quota("p1")) as rig:
        rig.pod("web", "1", node="node-1")
        rig.step()
        rig.delete("web", grace=3600)
        for number in range(20):
            rig.api.patch(
                PODS, "web", {"metadata": {"labels": {"n": str(number)}}}, namespace=NAMESPACE
            )
            rig.catch_up()
        assert len(rig.tracker._counts._terminating) == 1


def test_a_ledger_is_not_made_from_a_cache_that_has_not_seen_all_pods() -> None:
    with a_rig(a_quota("p1")) as rig:
        rig.step()
        rig.pod("web", "2")
        rig.pod("next", "2")
        rig.step()
        assert isinstance(rig.reserve("web"), Reserved)
        rig.line.hold(PODS)  # the watch has stalled
        rig.bind("web")
        rig.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
        for _ in range(4):
            rig.poke()
            rig.pass_time(EXPIRE_SECONDS)
            rig.round()
        version = rig.version()
        assert version is None or version.ledger is None
        rig.line.resume()
        rig.pass_time(5)
        rig.step()
        assert rig.used() == {"requests.cpu": "2"}


def test_the_first_quota_is_not_counted_from_a_cache_that_has_not_seen_all_pods() -> None:
    with a_rig(a_quota("p1", hard={"pods": "9"})) as rig:
        rig.pod("web", "2")
        rig.step()
        rig.line.hold(PODS)
        rig.bind("web")
        edited = {"spec": {"hard": {"requests.cpu": "2"}}}
        rig.api.patch(RESOURCE_QUOTAS, "p1", edited, namespace=NAMESPACE)
        eventually(lambda: bool(rig.quotas.in_namespace(NAMESPACE).deferred.quotas), "it is seen")
        rig.round()
        version = rig.version()
        assert version is None or version.ledger is None
        rig.line.resume()
        rig.pass_time(1)
        rig.step()
        assert rig.used() == {"requests.cpu": "2"}
