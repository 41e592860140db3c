"""A shared quota is complete once all who take part are counted, and handlers wait until it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.builders import a_pod, a_quota
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    NAMESPACE,
    ControllerHarness,
    new_harness,
)
from tests.controllers.shared.shared_quota_steps import (
    HIGH,
    NAME,
    OTHER,
    TEAM,
    granted,
    is_complete,
    settle,
    shared_quota,
    sharing,
    status_of,
    steps,
)
from tests.reactions import Call, Proceed, fail
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    ConflictError,
    UnavailableError,
    UnreachableError,
)
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import Undecided
from webhook.state.ledger_store import LEDGER_NAME, LedgerStore
from webhook.state.reserver import Reserved
from webhook.state.well_known import MODE_LABEL


def an_unreadable_pod(namespace: str) -> dict[str, object]:
    return a_pod(name="odd", namespace=namespace, node="node-1", requests={"cpu": "two"})


def test_handlers_wait_until_all_namespaces_that_take_part_are_counted() -> None:
    with sharing() as harness:
        harness.api.patch(
            CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "5"}}}
        )
        harness.pod("one", "1")
        harness.catch_up()
        counting = Undecided("usage is being counted for quota: cdq/both")
        assert harness.reserve("one") == counting  # the ledgers count the former spec
        harness.reconcile_once()
        assert harness.reserve("one") == counting  # they do, and the quota does not say so yet
        assert not is_complete(harness)
        steps(harness)
        assert is_complete(harness)
        assert isinstance(harness.reserve("one"), Reserved)


@pytest.mark.parametrize("then", ["", "opts out and in", "is made anew", "drifts", "is unreadable"])
@pytest.mark.parametrize("is_silent", [False, True], ids=["seen", "silent"])
def test_one_that_lost_its_ledger_is_counted_anew_before_the_others_go_on(
    then: str, is_silent: bool
) -> None:
    """As after an emergency, which deletes all ledgers while pods are bound unasked.

    The quota had been edited, and one of two namespaces was counted since.
    """
    with sharing() as harness:
        harness.pod("waits", "5")
        harness.catch_up()
        harness.api.patch(
            CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "5"}}}
        )
        harness.catch_up()
        for _ in range(5):
            settle(harness, OTHER)
        for namespace in (NAMESPACE, OTHER):
            harness.api.delete(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        harness.pod("unasked", "3", OTHER, node="node-1")
        if then == "is unreadable":
            harness.cluster.load([(PODS, an_unreadable_pod(OTHER))])
        harness.catch_up()
        settle(harness, NAMESPACE)
        if not is_silent:
            settle(harness, OTHER)
        change_state(harness, then)
        harness.pass_time(EXPIRE_SECONDS + 1)
        for _ in range(5):
            settle(harness, NAMESPACE)
            harness.catch_up()
        assert not is_complete(harness)
        assert isinstance(harness.reserve("waits"), Undecided)
        if then == "is unreadable":
            harness.api.delete(PODS, "odd", namespace=OTHER)
        steps(harness)
        harness.pass_time(EXPIRE_SECONDS + 1)
        steps(harness)
        assert is_complete(harness)
        assert isinstance(harness.reserve("waits"), QuotaExceeded)


def change_state(harness: ControllerHarness, then: str) -> None:
    """Have another state take the place of that of a namespace which was counted."""
    if then == "opts out and in":
        for mode in (None, "deferred"):
            harness.api.patch(NAMESPACES, OTHER, {"metadata": {"labels": {MODE_LABEL: mode}}})
            harness.catch_up()
    elif then == "is made anew":
        harness.api.delete(NAMESPACES, OTHER)
        harness.catch_up()
        harness.create(a_namespace(OTHER))
        harness.pod("unasked", "3", OTHER, node="node-1")
        harness.catch_up()
    elif then == "drifts":
        with harness.controller.usage_cache.lock:
            harness.controller.usage_cache.track(OTHER)


@pytest.mark.parametrize("leaves", ["the quota", "altogether"])
def test_one_that_was_counted_and_loses_its_ledger_as_it_leaves_is_not_waited_for(
    leaves: str,
) -> None:
    apart = {"matchExpressions": [{"key": "apart", "operator": "DoesNotExist"}]}
    with sharing(a_namespace("team-c")) as harness:
        harness.api.patch(
            CLUSTER_DEFERRED_QUOTAS,
            "both",
            {"spec": {"hard": {"requests.cpu": "5"}, "namespaceSelector": apart}},
        )
        harness.catch_up()
        for namespace in (OTHER, NAMESPACE):
            for _ in range(3):
                settle(harness, namespace)
        labels = {"apart": "1"} if leaves == "the quota" else {MODE_LABEL: None}
        harness.api.patch(NAMESPACES, OTHER, {"metadata": {"labels": labels}})
        harness.catch_up()
        harness.controller.poll()  # the ledger is there still: its reconciliation is left to leave
        harness.api.delete(QUOTA_LEDGERS, LEDGER_NAME, namespace=OTHER)
        steps(harness)
        assert is_complete(harness)
        assert granted(harness) == {NAMESPACE: "0", "team-c": "0"}


def test_one_is_complete_soon_when_the_last_that_was_not_counted_is_gone() -> None:
    with sharing() as harness:
        harness.api.patch(
            CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "5"}}}
        )
        harness.catch_up()
        for _ in range(3):
            settle(harness, NAMESPACE)
        assert not is_complete(harness)
        harness.api.delete(NAMESPACES, OTHER)
        steps(harness)
        assert granted(harness) == {NAMESPACE: "0"}
        assert is_complete(harness)


def test_none_is_looked_at_again_when_one_that_was_not_counted_is_gone() -> None:
    """There can be thousands of them."""
    others = [f"n{number}" for number in range(6)]
    with sharing(*map(a_namespace, others)) as harness:
        harness.api.patch(
            CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "5"}}}
        )
        harness.catch_up()
        for namespace in (NAMESPACE, *others) * 3:
            settle(harness, namespace)
        harness.api.delete(NAMESPACES, OTHER)
        harness.catch_up()
        process_ready(harness, except_for="")
        assert not is_complete(harness)
        for _ in range(3):  # that it has left is written first
            harness.controller.poll()
            harness.catch_up()
        assert is_complete(harness)
        assert harness.controller.workers.queue.ready_count() == 0


def test_one_that_comes_and_goes_between_two_looks_is_not_waited_for() -> None:
    with sharing(a_namespace("late", mode="native")) as harness:
        harness.pod("waits", "1")
        steps(harness)
        harness.api.patch(
            CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "5"}}}
        )
        harness.catch_up()
        for namespace in (*[OTHER] * 3, NAMESPACE, *[OTHER] * 3):
            settle(harness, namespace)
        harness.pass_time(1.5)
        harness.mark_dirty(NAMESPACE)
        harness.controller.poll()
        assert not is_complete(harness)
        harness.api.patch(NAMESPACES, "late", {"metadata": {"labels": {MODE_LABEL: "deferred"}}})
        harness.catch_up()
        for _ in range(4):
            process_ready(harness, except_for="late")
            harness.pass_time(1.5)
        harness.api.patch(NAMESPACES, "late", {"metadata": {"labels": {MODE_LABEL: "native"}}})
        harness.catch_up()
        for _ in range(50):
            harness.pass_time(0.2)
            harness.step()
        assert is_complete(harness)


def process_ready(harness: ControllerHarness, *, except_for: str) -> None:
    """Reconcile all namespaces that are due but one."""
    queue = harness.controller.workers.queue
    for _ in range(queue.ready_count()):
        one = queue.get()
        assert one is not None
        if one != except_for:
            harness.controller.workers.process(one)
        else:
            queue.add(one)
            queue.done(one)


def test_one_that_cannot_be_counted_is_not_waited_for_when_it_opts_out() -> None:
    with new_harness(a_namespace(OTHER), shared_quota("4"), follows_ledgers=True) as harness:
        harness.cluster.load([(PODS, an_unreadable_pod(OTHER))])
        steps(harness)
        assert not is_complete(harness)
        harness.api.patch(NAMESPACES, OTHER, {"metadata": {"labels": {MODE_LABEL: None}}})
        steps(harness)
        assert is_complete(harness)


def test_it_says_which_are_being_counted_still() -> None:
    with new_harness(a_namespace(OTHER), shared_quota("4"), follows_ledgers=True) as harness:
        told = ["usage is being counted for quota: cdq/both"]
        harness.step()
        assert harness.controller.readiness_problems() == []
        assert not is_complete(harness)
        assert harness.controller.pending_shared_quotas() == told
        steps(harness)
        assert harness.controller.pending_shared_quotas() == []
        harness.api.patch(
            CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "5"}}}
        )
        harness.catch_up()
        assert harness.controller.pending_shared_quotas() == told
        settle(harness, NAMESPACE)
        settle(harness, NAMESPACE)
        assert (
            harness.controller.pending_shared_quotas() == told
        )  # the other one is not counted yet
        steps(harness)
        assert harness.controller.pending_shared_quotas() == []


def test_one_that_says_more_than_is_true_is_being_counted() -> None:
    """It stands in a snapshot as it was in its cluster, and a namespace has come since."""
    with sharing() as harness:
        harness.create(a_namespace("new"))
        harness.catch_up()
        assert is_complete(harness)
        assert harness.controller.pending_shared_quotas() == [
            "usage is being counted for quota: cdq/both"
        ]
        steps(harness)
        assert harness.controller.pending_shared_quotas() == []


def test_one_that_waiting_does_not_complete_is_not_being_counted() -> None:
    with new_harness(
        a_namespace(OTHER),
        shared_quota("4"),
        shared_quota("4", "nobody", namespaceSelector=TEAM),
        shared_quota("4x", "odd"),
        follows_ledgers=True,
    ) as harness:
        harness.cluster.load([(PODS, an_unreadable_pod(OTHER))])
        steps(harness)
        assert not is_complete(harness)
        assert harness.controller.pending_shared_quotas() == []


def test_one_without_namespaces_is_complete() -> None:
    with new_harness(shared_quota(namespaceSelector=TEAM), follows_ledgers=True) as harness:
        steps(harness)
        assert "observed" in status_of(harness)
        assert granted(harness) == {}


TAKEN_BACK = pytest.mark.parametrize(
    ("other", "back"),
    [
        ({"scopeSelector": HIGH}, {"scopeSelector": None}),
        (
            {"hard": {"requests.cpu": None, "requests.memory": "1Gi"}},
            {"hard": {"requests.cpu": "4", "requests.memory": None}},
        ),
    ],
    ids=["scopes", "resources"],
)


@TAKEN_BACK
def test_an_edit_that_is_taken_back_is_counted_anew(
    other: Mapping[str, object], back: Mapping[str, object]
) -> None:
    with new_harness(a_namespace(OTHER), shared_quota("4"), follows_ledgers=True) as harness:
        harness.pod("one", "3", node="node-1")
        harness.pod("other", "2", OTHER)
        steps(harness)
        assert is_complete(harness)
        assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": other})
        harness.catch_up()
        for _ in range(3):
            settle(harness, NAMESPACE)
        assert status_of(harness).get("observed") is None
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": back})
        harness.catch_up()
        assert isinstance(harness.reserve("other", OTHER), Undecided)
        steps(harness)
        assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
        assert is_complete(harness)
        assert isinstance(harness.reserve("other", OTHER), QuotaExceeded)


@pytest.mark.parametrize("others", ["go on", "cannot be reconciled"])
@pytest.mark.parametrize("leaves", ["by its ledger", "without a ledger"])
def test_a_selector_that_is_taken_back_after_some_have_left_is_counted_anew(
    leaves: str, others: str
) -> None:
    with sharing(a_namespace("team-c")) as harness:
        harness.pod("runs", "3", OTHER, node="node-1")
        harness.pod("waits", "4")
        steps(harness)
        if others == "cannot be reconciled":
            harness.cluster.load([(PODS, an_unreadable_pod("team-c"))])
        if leaves == "without a ledger":
            harness.api.delete(QUOTA_LEDGERS, LEDGER_NAME, namespace=OTHER)
            harness.catch_up()
            settle(harness, OTHER)
        select(harness, TEAM)
        if leaves == "by its ledger":
            settle(harness, OTHER)
        else:
            harness.controller.poll()
        assert OTHER not in granted(harness)
        if others == "cannot be reconciled":
            for _ in range(60):
                harness.pass_time(10)
                harness.step()
        select(harness, {})
        for _ in range(2):
            settle(harness, NAMESPACE)
        assert not is_complete(harness)
        assert isinstance(harness.reserve("waits"), Undecided)
        if others == "cannot be reconciled":
            harness.api.delete(PODS, "odd", namespace="team-c")
        harness.pass_time(EXPIRE_SECONDS + 1)
        steps(harness)
        assert is_complete(harness)
        assert isinstance(harness.reserve("waits"), QuotaExceeded)


def select(harness: ControllerHarness, selector: Mapping[str, object]) -> None:
    path = "/spec/namespaceSelector"
    edit = [{"op": "replace", "path": path, "value": selector}]
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", edit)
    harness.catch_up()


def test_so_is_one_by_which_a_lost_ledger_was_made_anew() -> None:
    with sharing(a_quota(namespace=OTHER)) as harness:
        harness.pod("runs", "3", OTHER, node="node-1")
        steps(harness)
        harness.api.delete(QUOTA_LEDGERS, LEDGER_NAME, namespace=OTHER)
        harness.catch_up()
        settle(harness, OTHER)
        harness.pass_time(EXPIRE_SECONDS + 1)

        def write(_call: Call, proceed: Proceed) -> object:
            written = proceed()
            select(harness, {})
            return written

        select(harness, TEAM)
        harness.mark_dirty(OTHER)
        with harness.client.on("update", QUOTA_LEDGERS, write, times=1):
            process_ready(harness, except_for=NAMESPACE)
        assert NAME not in harness.ledger(OTHER).accounts
        assert granted(harness)[OTHER] == "3"
        assert not is_complete(harness)
        steps(harness)
        assert is_complete(harness)
        assert granted(harness)[OTHER] == "3"


@pytest.mark.parametrize("leader", ["the same", "the next one"])
def test_no_ledger_stops_to_count_after_an_edit_was_taken_back_and_counted(leader: str) -> None:
    with sharing(a_quota(namespace=OTHER)) as harness:
        late: list[Proceed] = []

        def hold(_call: Call, proceed: Proceed) -> object:
            late.append(proceed)
            raise UnreachableError("no answer in time")

        select(harness, TEAM)
        with harness.client.on("update", QUOTA_LEDGERS, hold, times=1):
            settle(harness, OTHER)
        harness.epoch[0] += leader == "the next one"
        select(harness, {})
        steps(harness)
        assert is_complete(harness)
        with pytest.raises(ConflictError):
            late[0]()


@TAKEN_BACK
def test_so_is_one_of_a_quota_that_was_not_complete_yet(
    other: Mapping[str, object], back: Mapping[str, object]
) -> None:
    with new_harness(a_namespace(OTHER), a_namespace("late"), shared_quota("4")) as harness:
        harness.pod("waits", "4")
        harness.pod("slips", "3", OTHER)
        harness.catch_up()
        for _ in range(3):
            settle(harness, NAMESPACE)
            settle(harness, OTHER)
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": other})
        harness.catch_up()
        settle(harness, OTHER)  # its ledger says so, and no handler charges the former resource
        harness.bind("slips", OTHER)
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": back})
        harness.catch_up()
        for _ in range(3):
            settle(harness, NAMESPACE)
            settle(harness, "late")
        assert not is_complete(harness)
        assert isinstance(harness.reserve("waits"), Undecided)
        steps(harness)
        assert is_complete(harness)
        assert isinstance(harness.reserve("waits"), QuotaExceeded)


@pytest.mark.parametrize("fails", ["the list", "the write"])
def test_one_of_them_tries_it_for_all_while_it_cannot_be_marked(fails: str) -> None:
    others = [f"n{number}" for number in range(6)]
    with sharing(*map(a_namespace, others)) as harness:
        harness.api.patch(
            CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "5"}}}
        )
        harness.catch_up()
        for namespace in (OTHER, *others) * 3:
            settle(harness, namespace)
        settle(harness, NAMESPACE)  # it is granted with the next look
        if fails == "the list":
            harness.client.on("list", QUOTA_LEDGERS, fail(UnavailableError("busy")))
        else:
            harness.client.on(
                "update",
                CLUSTER_DEFERRED_QUOTAS,
                fail(UnavailableError("busy")),
                subresource="status",
            )
        harness.client.calls.clear()
        for _ in range(50):
            harness.pass_time(0.2)
            harness.step()
        assert 5 <= len(harness.client.calls_of("list", QUOTA_LEDGERS)) <= 11
        assert not is_complete(harness)
        harness.client.reset()
        harness.pass_time(1.5)
        harness.step()
        assert is_complete(harness)


def test_it_is_one_that_can_be_reconciled() -> None:
    with sharing(a_namespace("broken")) as harness:
        harness.api.patch(
            CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "5"}}}
        )
        harness.catch_up()
        for namespace in ("broken", OTHER) * 3:
            settle(harness, namespace)
        harness.cluster.load([(PODS, an_unreadable_pod("broken"))])
        harness.catch_up()
        settle(harness, "broken")
        harness.client.on("list", QUOTA_LEDGERS, fail(UnavailableError("busy")), times=1)
        for _ in range(30):
            harness.pass_time(0.2)
            harness.step()
        assert is_complete(harness)


def test_accounts_that_were_taken_out_of_ledgers_are_counted_before_an_admission() -> None:
    with new_harness(a_namespace(OTHER), shared_quota("4"), follows_ledgers=True) as harness:
        harness.pod("other", "2", OTHER)
        steps(harness)
        assert is_complete(harness)
        store = LedgerStore(harness.api)
        for namespace in (NAMESPACE, OTHER):  # as a release that knows no shared quotas does
            version = store.fetch(namespace)
            assert version is not None
            assert version.ledger is not None
            store.write(namespace, version, replace(version.ledger, accounts={}))
        harness.pod("one", "3", node="node-1")
        harness.catch_up()
        settle(harness, OTHER)
        assert isinstance(harness.reserve("other", OTHER), Undecided)
        steps(harness)
        assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
        assert is_complete(harness)
        assert isinstance(harness.reserve("other", OTHER), QuotaExceeded)


def test_a_quota_that_is_seen_before_it_is_counted_is_not_complete() -> None:
    with new_harness(a_namespace(OTHER), follows_ledgers=True) as harness:
        quotas = [
            a_quota("p1", namespace=one, hard={"requests.cpu": "100"}) for one in (NAMESPACE, OTHER)
        ]
        harness.cluster.load([(RESOURCE_QUOTAS, one) for one in quotas])
        harness.pod("one", "3", node="node-1")
        harness.pod("other", "2", OTHER)
        steps(harness)
        keeper = harness.controller.shared_controller
        looked: list[bool] = []

        def look_between() -> None:
            if not looked:
                looked.append(True)
                keeper.requeue()
                keeper.reconcile(1)

        harness.before_spec_changes.append(look_between)
        harness.create(shared_quota("4"))
        harness.catch_up()
        assert looked
        settle(harness, OTHER)
        settle(harness, OTHER)
        assert isinstance(harness.reserve("other", OTHER), Undecided)
        steps(harness)
        assert isinstance(harness.reserve("other", OTHER), QuotaExceeded)


def test_nothing_is_remembered_of_quotas_that_are_gone() -> None:
    unreadable = shared_quota(name="odd", hard={"requests.cpu": "much"}, namespaceSelector=TEAM)
    with new_harness(a_namespace(OTHER), shared_quota("1"), unreadable) as harness:
        steps(harness)
        harness.api.delete(NAMESPACES, OTHER)
        steps(harness)
        controller = harness.controller.shared_controller
        controller.shared.note_waiting("cdq/both", NAMESPACE, is_waiting=True)
        for noted in (controller.shared.noted_quotas(), controller.leaving.noted_quotas()):
            assert noted == {"cdq/both"}
        assert controller.noted_quotas() == {"cdq/both", "cdq/odd"}
        for name in ("both", "odd"):
            harness.api.delete(CLUSTER_DEFERRED_QUOTAS, name)
        steps(harness)
        assert controller.noted_quotas() == set()
        harness.create(shared_quota("1"))
        steps(harness)
        assert is_complete(harness)


def test_an_update_that_is_not_stored_holds_up_no_further_resource_for_long() -> None:
    """Its pod may take what no handler has claimed, so that nothing is counted until it is over."""
    with sharing() as harness:
        harness.pod("idle", "1")
        harness.pod("waits", "1", OTHER)
        steps(harness)
        assert isinstance(harness.reserve_activity("idle", 1000), Reserved)
        steps(harness)
        hard = {"requests.cpu": "4", "requests.memory": "9Gi"}
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": hard}})
        steps(harness)
        assert isinstance(harness.reserve("waits", OTHER), Undecided)
        harness.pass_time(EXPIRE_SECONDS)
        steps(harness)
        assert is_complete(harness)
        assert isinstance(harness.reserve("waits", OTHER), Reserved)
