"""A namespace that is Terminating, and whose ledger is gone, keeps no shared quota from others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    NAMESPACE,
    ControllerHarness,
    new_harness,
)
from tests.controllers.shared.shared_quota_steps import (
    OTHER,
    TEAM,
    granted,
    is_complete,
    label,
    shared_quota,
    sharing,
    status_of,
    steps,
)
from tests.reactions import Call, Proceed, Reactor
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    ForbiddenError,
)
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import Undecided
from webhook.state.reserver import Reserved


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """Two namespaces that share 4 cpu, counted, of which a pod of the other one runs."""
    with sharing() as made:
        made.pod("other", "1", OTHER, node="node-1")
        steps(made)
        assert granted(made) == {NAMESPACE: "0", OTHER: "1"}
        yield made


def terminate(harness: ControllerHarness) -> Reactor:
    """Delete the ledger of the other namespace; none can be made there, as API servers answer."""

    def refuse(call: Call, proceed: Proceed) -> object:
        if call.namespace != OTHER:
            return proceed()
        causes = [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]
        raise ForbiddenError("it is being terminated", details={"causes": causes})

    reactor = harness.client.on("create", QUOTA_LEDGERS, refuse)
    harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=OTHER)
    steps(harness, 1)
    return reactor


def edit(harness: ControllerHarness, **hard: str) -> None:
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": hard}})
    harness.catch_up()


def edit_limit(harness: ControllerHarness) -> None:
    edit(harness, **{"requests.cpu": "5"})


def wait(harness: ControllerHarness) -> None:
    """Let pauses after failures and the time of requests pass."""
    for _ in range(4):
        harness.pass_time(EXPIRE_SECONDS)
        steps(harness)


def test_the_others_go_on_after_an_edit(harness: ControllerHarness) -> None:
    terminate(harness)
    edit_limit(harness)
    wait(harness)
    assert is_complete(harness)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "1"}
    harness.pod("one", "4")
    harness.pod("more", "1")
    harness.pod("late", "1", OTHER)
    harness.catch_up()
    assert isinstance(harness.reserve("one"), Reserved)
    assert isinstance(harness.reserve("more"), QuotaExceeded)
    assert isinstance(harness.reserve("late", OTHER), Undecided)


def test_what_its_pods_take_of_another_resource_is_counted_before(
    harness: ControllerHarness,
) -> None:
    harness.pod("large", "1", OTHER, node="node-1", requests={"cpu": "1", "memory": "3Gi"})
    steps(harness)
    terminate(harness)
    edit(harness, **{"requests.memory": "4Gi"})
    wait(harness)
    assert is_complete(harness)
    held = {str(one["name"]): one["granted"] for one in status_of(harness)["namespaces"]}  # type: ignore[attr-defined]
    assert held[OTHER]["requests.memory"] == "3Gi"
    harness.pod("one", requests={"cpu": "1", "memory": "2Gi"})
    harness.catch_up()
    assert isinstance(harness.reserve("one"), QuotaExceeded)


def test_its_pods_are_compared_with_a_list_before_they_count(harness: ControllerHarness) -> None:
    """No version in a ledger says how far the cache has to have come."""
    harness.pod("large", "1", OTHER, node="node-1", requests={"cpu": "1", "memory": "3Gi"})
    steps(harness)
    terminate(harness)
    harness.client.calls.clear()
    edit(harness, **{"requests.memory": "4Gi"})
    wait(harness)
    assert is_complete(harness)
    assert OTHER in {call.namespace for call in harness.client.calls_of("list", PODS)}


def test_they_are_so_each_time(harness: ControllerHarness) -> None:
    terminate(harness)
    edit_limit(harness)
    wait(harness)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "1"}
    harness.pod("unasked", "3", OTHER, node="node-1")
    harness.catch_up()
    harness.lose_pod("unasked", OTHER)
    harness.state(OTHER).usage.forget_deleted(())
    edit(harness, **{"requests.cpu": "4"})
    wait(harness)
    assert is_complete(harness)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "4"}


def test_a_bind_that_its_ledger_admitted_last_is_waited_for(harness: ControllerHarness) -> None:
    harness.pod("last", "1", OTHER, requests={"cpu": "1", "memory": "3Gi"})
    harness.catch_up()
    assert isinstance(harness.reserve("last", OTHER), Reserved)
    terminate(harness)
    edit(harness, **{"requests.memory": "4Gi"})
    for _ in range(10):
        harness.pass_time(EXPIRE_SECONDS / 20)
        steps(harness, 1)
        assert not is_complete(harness)
    harness.bind("last", OTHER)
    wait(harness)
    assert is_complete(harness)
    harness.pod("one", requests={"cpu": "1", "memory": "2Gi"})
    harness.catch_up()
    assert isinstance(harness.reserve("one"), QuotaExceeded)


def test_what_its_pods_give_back_is_free_for_others(harness: ControllerHarness) -> None:
    harness.pod("waits", "4")
    steps(harness)
    terminate(harness)
    harness.api.delete(PODS, "other", namespace=OTHER, grace_period_seconds=0)
    steps(harness)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "1"}  # a bind may be on its way still
    wait(harness)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}
    assert isinstance(harness.reserve("waits"), Reserved)


def test_so_is_its_headroom() -> None:
    headroom = [{"namespaces": [OTHER], "amounts": {"requests.cpu": "3"}}]
    quota = shared_quota("4", headroom=headroom)
    with new_harness(a_namespace(OTHER), quota, follows_ledgers=True) as harness:
        harness.pod("first", "1", OTHER)
        steps(harness)
        assert isinstance(harness.reserve("first", OTHER), Reserved)
        harness.bind("first", OTHER)
        steps(harness)
        harness.api.delete(PODS, "first", namespace=OTHER, grace_period_seconds=0)
        steps(harness)
        assert granted(harness)[OTHER] != "0"
        terminate(harness)
        harness.pod("waits", "4")
        wait(harness)
        assert isinstance(harness.reserve("waits"), Reserved)


def test_where_nothing_is_missing_nothing_is_listed_or_written(harness: ControllerHarness) -> None:
    terminate(harness)
    edit_limit(harness)
    wait(harness)
    harness.client.calls.clear()
    wait(harness)
    assert harness.client.calls_of("create", QUOTA_LEDGERS)
    assert harness.client.calls_of("list", PODS) == []
    assert harness.client.calls_of("update", CLUSTER_DEFERRED_QUOTAS) == []


def test_pods_that_run_there_unasked_are_counted(harness: ControllerHarness) -> None:
    terminate(harness)
    edit_limit(harness)
    wait(harness)
    harness.pod("unasked", "3", OTHER, node="node-1")
    wait(harness)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "4"}
    harness.pod("one", "2")
    harness.catch_up()
    assert isinstance(harness.reserve("one"), QuotaExceeded)


def test_one_that_is_made_anew_with_its_name_takes_part_as_any(harness: ControllerHarness) -> None:
    refusals = terminate(harness)
    edit_limit(harness)
    wait(harness)
    harness.api.delete(PODS, "other", namespace=OTHER)
    harness.api.delete(NAMESPACES, OTHER)
    refusals.remove()
    harness.create(a_namespace(OTHER))
    wait(harness)
    assert is_complete(harness)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}
    harness.pod("one", "3")
    harness.pod("new", "2", OTHER)
    harness.pod("more", "3", OTHER)
    harness.catch_up()
    assert isinstance(harness.reserve("one"), Reserved)
    assert isinstance(harness.reserve("more", OTHER), QuotaExceeded)
    assert isinstance(harness.reserve("new", OTHER), Reserved)


def test_one_that_matches_no_more_is_dropped(harness: ControllerHarness) -> None:
    terminate(harness)
    label(harness, NAMESPACE)
    spec = {"namespaceSelector": TEAM, "hard": {"requests.cpu": "5"}}
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": spec})
    wait(harness)
    assert granted(harness) == {NAMESPACE: "0"}
    assert is_complete(harness)


def test_one_that_is_gone_is_dropped(harness: ControllerHarness) -> None:
    terminate(harness)
    edit_limit(harness)
    wait(harness)
    harness.api.delete(PODS, "other", namespace=OTHER)
    harness.api.delete(NAMESPACES, OTHER)
    wait(harness)
    assert granted(harness) == {NAMESPACE: "0"}
    assert is_complete(harness)
