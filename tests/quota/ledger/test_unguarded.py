"""Pods that got a node without a claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webhook.quota.amounts.resources import ResourceList, parse_resource_list
from webhook.quota.ledger.apply_usage import ObservedPod, is_unguarded, is_watched
from webhook.quota.ledger.ledger import (
    Account,
    Ledger,
    QuotaRevision,
    Reservation,
    ReservationSource,
)


def amounts(**given: str) -> ResourceList:
    return parse_resource_list(given, field="")


def an_account(name: str = "p1", spec_hash: str = "h", **hard: str) -> Account:
    observed = QuotaRevision(name, f"uid-{name}", spec_hash)
    return Account(observed, amounts(**(hard or {"cpu": "2"})), {})


def a_ledger(*accounts: Account, reserved: tuple[Reservation, ...] = ()) -> Ledger:
    return Ledger({one.observed.name: one for one in accounts}, {one.uid: one for one in reserved})


def a_reservation(uid: str, *, is_intent: bool = False) -> Reservation:
    usage = amounts(cpu="1")
    source = ReservationSource.BIND
    return Reservation(uid, uid, source, usage, {}, ("p1",), 1, is_intent=is_intent)


POD = ObservedPod(
    resource_version=7,
    is_assigned=True,
    is_live=True,
    usage=amounts(cpu="1"),
    quotas=frozenset({"p1"}),
)


def test_a_pod_that_takes_what_is_limited_and_has_no_reservation_came_past() -> None:
    assert is_unguarded("u", POD, a_ledger(an_account(), reserved=(a_reservation("other"),)))


SILENT: dict[str, tuple[ObservedPod | None, Ledger]] = {
    "it was reserved for": (POD, a_ledger(an_account(), reserved=(a_reservation("u"),))),
    "an update of it was remembered": (
        POD,
        a_ledger(an_account(), reserved=(a_reservation("u", is_intent=True),)),
    ),
    "it is gone": (None, a_ledger(an_account())),
    "it waits": (replace(POD, is_assigned=False), a_ledger(an_account())),
    "it has finished": (replace(POD, is_live=False), a_ledger(an_account())),
    "it takes nothing": (replace(POD, usage={}), a_ledger(an_account())),
    "it names an amount of zero": (
        replace(POD, usage=amounts(cpu="0")),
        a_ledger(an_account()),
    ),
    "no quota selects it": (replace(POD, quotas=frozenset()), a_ledger(an_account())),
    "a quota selects it that was not counted": (POD, a_ledger(an_account("p2"))),
    "it takes only what no quota limits": (POD, a_ledger(an_account(memory="1Gi"))),
    "nothing is counted": (POD, a_ledger()),
}


@pytest.mark.parametrize(("pod", "ledger"), SILENT.values(), ids=SILENT)
def test_nothing_is_said_where_a_handler_may_have_had_no_reason_to_claim(
    pod: ObservedPod | None, ledger: Ledger
) -> None:
    assert not is_unguarded("u", pod, ledger)


WATCHED: dict[str, tuple[Ledger | None, Ledger, bool]] = {
    "the same quotas": (
        a_ledger(an_account()),
        a_ledger(replace(an_account(), used=amounts(cpu="1"))),
        True,
    ),
    "no ledger before": (None, a_ledger(an_account()), False),
    "nothing counted before": (a_ledger(), a_ledger(an_account()), False),
    "nothing counted at all": (a_ledger(), a_ledger(), False),
    "a quota more": (a_ledger(an_account()), a_ledger(an_account(), an_account("p2")), False),
    "a quota less": (a_ledger(an_account(), an_account("p2")), a_ledger(an_account()), False),
    "an edited quota": (a_ledger(an_account()), a_ledger(an_account(spec_hash="i")), False),
}


@pytest.mark.parametrize(("former", "following", "expected"), WATCHED.values(), ids=WATCHED)
def test_pods_are_watched_where_two_ledgers_count_the_same(
    former: Ledger | None, following: Ledger, expected: bool
) -> None:
    assert is_watched(former, following) is expected
