"""Namespaces that a shared quota names and that are not there are dropped with one write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.controllers.controller_harness import NAMESPACE, ControllerHarness, new_harness
from tests.controllers.shared.shared_quota_steps import (
    NAME,
    OTHER,
    TEAM,
    granted,
    label,
    shared_quota,
    sharing,
    status_of,
    steps,
)
from tests.reactions import Call, Proceed, conflict, expire, preceded_by, unavailable
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    NAMESPACES,
    QUOTA_LEDGERS,
    ApiError,
    ConflictError,
)
from webhook.state.ledger_store import LedgerStore
from webhook.state.reserver import Reserved
from webhook.state.well_known import MODE_LABEL

LEFT = "left"
GHOSTS = tuple(f"ghost-{number:03}" for number in range(300))


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """Two namespaces that share 4 cpu, counted, and one that has not opted in."""
    plain = a_namespace(LEFT)
    cast("dict[str, object]", plain["metadata"])["labels"] = {}
    with sharing(plain) as made:
        yield made


def forge(harness: ControllerHarness, *namespaces: str) -> None:
    """Write grants of namespaces beside those of the leader, as the webhook's token could."""
    listing = cast("list[Mapping[str, object]]", status_of(harness)["namespaces"])
    added = [{"name": one, "granted": {"requests.cpu": "10m"}} for one in namespaces]
    patch = [{"op": "add", "path": "/status/namespaces", "value": [*listing, *added]}]
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", patch, subresource="status")
    harness.catch_up()
    harness.client.calls.clear()


def counting(harness: ControllerHarness, namespace: str) -> None:
    """Let there be a ledger of a namespace that counts the quota."""
    store = LedgerStore(harness.api)
    version = store.create(namespace)
    assert version is not None
    accounts = {NAME: harness.ledger(OTHER).accounts[NAME]}
    store.write(namespace, version, replace(harness.ledger(OTHER), accounts=accounts))


def drop(harness: ControllerHarness, *namespaces: str) -> bool:
    leaving = harness.controller.shared_controller.leaving
    return leaving.drop(namespaces, NAME, harness.epoch[0])


def writes(harness: ControllerHarness) -> int:
    return len(harness.client.calls_of("update", CLUSTER_DEFERRED_QUOTAS))


def test_three_hundred_that_are_not_there_go_with_two_lists_and_one_write(
    harness: ControllerHarness,
) -> None:
    forge(harness, *GHOSTS)
    harness.pod("one", "4")
    assert not isinstance(harness.reserve("one"), Reserved)
    harness.client.calls.clear()
    harness.reconcile_once()
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}
    calls = [(call.verb, call.kind.plural) for call in harness.client.calls[:4]]
    assert calls == [
        ("get", CLUSTER_DEFERRED_QUOTAS.plural),
        ("list", QUOTA_LEDGERS.plural),
        ("list", NAMESPACES.plural),
        ("update", CLUSTER_DEFERRED_QUOTAS.plural),
    ]
    assert harness.client.calls[1].options["is_brief"]
    assert writes(harness) == 1
    harness.catch_up()
    assert isinstance(harness.reserve("one"), Reserved)


def test_a_few_are_looked_up_and_go_with_one_write(harness: ControllerHarness) -> None:
    forge(harness, *GHOSTS[:5])
    harness.reconcile_once()
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}
    assert harness.client.calls_of("list") == []
    assert len(harness.client.calls_of("get", QUOTA_LEDGERS)) == 5
    assert writes(harness) == 1


def test_what_a_fault_of_this_program_kept_from_being_looked_at_is_looked_at_again(
    harness: ControllerHarness,
) -> None:
    def fault(_call: Call, _proceed: Proceed) -> object:
        raise RuntimeError("a fault")

    forge(harness, *GHOSTS[:5])
    with (
        harness.client.on("get", CLUSTER_DEFERRED_QUOTAS, fault),
        pytest.raises(RuntimeError, match="a fault"),
    ):
        harness.reconcile_once()
    harness.reconcile_once()
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}


def test_one_whose_ledger_counts_the_quota_stays_until_it_does_not(
    harness: ControllerHarness,
) -> None:
    counting(harness, LEFT)
    forge(harness, LEFT, *GHOSTS)
    assert not drop(harness, LEFT, *GHOSTS)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0", LEFT: "10m"}
    assert drop(harness, LEFT)
    assert LEFT in granted(harness)
    harness.catch_up()
    steps(harness)  # its ledger is cleared before
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}
    assert harness.ledger(LEFT).accounts == {}


def test_one_with_a_ledger_that_does_not_count_the_quota_goes(harness: ControllerHarness) -> None:
    version = LedgerStore(harness.api).create(LEFT)
    assert version is not None
    forge(harness, LEFT, *GHOSTS)
    steps(harness, 2)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}


def test_one_that_opted_in_a_moment_ago_stays(harness: ControllerHarness) -> None:
    forge(harness, "new", LEFT, *GHOSTS)
    harness.create(a_namespace("new"))
    harness.api.patch(NAMESPACES, LEFT, {"metadata": {"labels": {MODE_LABEL: "deferred"}}})
    assert not drop(harness, "new", LEFT, *GHOSTS)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0", "new": "10m", LEFT: "10m"}
    assert drop(harness, "new", LEFT)
    assert {"new", LEFT} <= granted(harness).keys()
    steps(harness)
    assert granted(harness) == dict.fromkeys((NAMESPACE, OTHER, "new", LEFT), "0")


def test_one_that_opted_in_while_ledgers_were_listed_stays(harness: ControllerHarness) -> None:
    forge(harness, "new", *GHOSTS)

    def create(_call: Call) -> None:
        harness.create(a_namespace("new"))

    harness.client.on("list", NAMESPACES, preceded_by(create), times=1)
    assert not drop(harness, "new", *GHOSTS)
    assert "new" in granted(harness)


def test_nothing_is_dropped_from_a_quota_that_was_written_meanwhile(
    harness: ControllerHarness,
) -> None:
    """A handler may have raised what one of them holds, by a ledger that came after the list."""
    forge(harness, *GHOSTS)
    patch: list[dict[str, object]] = [{"op": "add", "path": "/status/serial", "value": 1000}]

    def write(_call: Call) -> None:
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", patch, subresource="status")

    harness.client.on("list", NAMESPACES, preceded_by(write), times=1)
    with pytest.raises(ConflictError):
        drop(harness, *GHOSTS)
    assert len(granted(harness)) == 302
    assert not drop(harness, *GHOSTS)  # some, by lookups, as what lists show is written too late
    assert len(granted(harness)) == 292
    harness.pass_time(5.1)
    assert drop(harness, *GHOSTS)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}


def test_of_a_list_that_does_not_come_to_its_end_nothing_is_believed(
    harness: ControllerHarness,
) -> None:
    forge(harness, *GHOSTS)
    counting(harness, LEFT)

    def in_pages(call: Call, proceed: object) -> object:
        paged = replace(call, options={**call.options, "limit": 1})
        return proceed(paged)  # type: ignore[operator]

    harness.client.on("list", QUOTA_LEDGERS, in_pages)
    with harness.client.on("continue", QUOTA_LEDGERS, expire):
        assert not drop(harness, *GHOSTS)
    assert len(granted(harness)) == 292  # those that were looked up are gone
    harness.pass_time(5.1)
    assert drop(harness, *GHOSTS)


@pytest.mark.parametrize("kind", [QUOTA_LEDGERS, NAMESPACES], ids=lambda one: one.plural)
def test_where_nothing_can_be_listed_some_at_a_time_are_looked_up(
    harness: ControllerHarness, kind: object
) -> None:
    harness.client.on("list", kind, unavailable)  # type: ignore[arg-type]
    forge(harness, *GHOSTS[:25])
    left = []
    for _ in range(3):
        harness.step()
        left.append(len(granted(harness)) - 2)
    assert left == [15, 5, 0]
    assert writes(harness) == 3


def test_those_that_stay_keep_no_other_from_its_turn(harness: ControllerHarness) -> None:
    harness.client.on("list", QUOTA_LEDGERS, unavailable)
    stay = [f"a-{number:02}" for number in range(15)]
    for namespace in stay:
        counting(harness, namespace)
    forge(harness, *stay, *GHOSTS[:15])
    for _ in range(3):
        drop(harness, *stay, *GHOSTS[:15])
        harness.pass_time(1.1)
    assert granted(harness).keys() == {NAMESPACE, OTHER, *stay}


def test_a_ledger_that_cannot_be_read_keeps_its_namespace_alone(harness: ControllerHarness) -> None:
    version = LedgerStore(harness.api).create(LEFT)
    assert version is not None
    ledger = replace(harness.ledger(OTHER), accounts={}, reservations={})
    LedgerStore(harness.api).write(LEFT, version, ledger)
    damage = {"status": {"reservations": "no lines of ours"}}
    harness.api.patch(QUOTA_LEDGERS, "ledger", damage, namespace=LEFT, subresource="status")
    forge(harness, LEFT, *GHOSTS[:5])
    harness.step()
    assert granted(harness).keys() == {NAMESPACE, OTHER, LEFT}
    harness.client.calls.clear()
    for _ in range(5):
        harness.step()
    assert len(harness.client.calls_of("get", QUOTA_LEDGERS)) == 1  # it is tried again, not always
    harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=LEFT)
    steps(harness, 1)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}


@pytest.mark.parametrize("odd", ["..", "a/b", "A", "a.b", "x" * 64, "?", " "])
def test_a_name_that_no_namespace_can_have_is_of_none(harness: ControllerHarness, odd: str) -> None:
    forge(harness, odd)
    harness.reconcile_once()
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}
    assert harness.client.calls_of("get", QUOTA_LEDGERS) == []


def test_lists_pause_so_that_the_leader_has_time_for_the_rest(harness: ControllerHarness) -> None:
    forge(harness, *GHOSTS)
    harness.client.on("update", CLUSTER_DEFERRED_QUOTAS, conflict)
    for _ in range(5):
        with pytest.raises(ApiError):
            drop(harness, *GHOSTS)
        harness.pass_time(1.0)
    assert len(harness.client.calls_of("list", QUOTA_LEDGERS)) == 1


def test_headroom_of_those_that_go_goes_with_them(harness: ControllerHarness) -> None:
    parts = [{"namespaces": [NAMESPACE], "amounts": {"requests.cpu": "4"}}]
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"headroom": parts}})
    steps(harness)
    listing = cast("list[Mapping[str, object]]", status_of(harness)["namespaces"])
    amounts = {"requests.cpu": "10m"}
    added = [{"name": one, "granted": amounts, "headroom": amounts} for one in GHOSTS]
    patch = [{"op": "add", "path": "/status/namespaces", "value": [*listing, *added]}]
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", patch, subresource="status")
    steps(harness, 2)
    assert granted(harness).keys() == {NAMESPACE, OTHER}


def test_one_that_never_had_a_quota_goes_too() -> None:
    """It is opted in, so it is reconciled, and nothing is ever written for it."""
    objects = [a_namespace(OTHER), shared_quota(namespaceSelector=TEAM)]
    with new_harness(*objects, follows_ledgers=True) as harness:
        label(harness, OTHER)
        steps(harness)
        assert harness.is_tracked(NAMESPACE)
        forge(harness, NAMESPACE)
        steps(harness, 1)
        assert granted(harness) == {OTHER: "0"}
        assert not harness.has_ledger()
