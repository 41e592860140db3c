"""A ledger after its pods have been counted: one table per rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.ledger.apply_usage import (
    CountedQuota,
    Expiry,
    ObservedPod,
    UsageCount,
    apply_usage,
    only_folds,
)
from webhook.quota.ledger.ledger import (
    Account,
    Ledger,
    QuotaRevision,
    Reservation,
    ReservationSource,
)

Amounts = Mapping[str, str]


def cpu(text: str) -> ResourceList:
    return {"requests.cpu": Quantity.parse(text)}


def observed(name: str = "q", spec: str = "s1") -> QuotaRevision:
    return QuotaRevision(name, f"uid-{name}", spec)


def held(
    *quotas: str,
    usage: str = "1",
    charges: Amounts | None = None,
    after: int = 0,
    is_intent: bool = False,
    serial: int = 1,
) -> Reservation:
    """A reservation of pod `a`, which holds all of its usage in each of its quotas."""
    amounts = dict.fromkeys(quotas, usage) if charges is None else charges
    return Reservation(
        uid="a",
        pod="pod-a",
        source=ReservationSource.BIND,
        usage=cpu(usage),
        charges={} if is_intent else {name: cpu(text) for name, text in amounts.items()},
        quotas=quotas,
        serial=serial,
        base_version=after,
        is_intent=is_intent,
    )


def ledger(*reservations: Reservation, version: int = 10, barrier: int = 0) -> Ledger:
    account = Account(observed(), cpu("5"), cpu("0"))
    return Ledger(
        {"q": account},
        {one.uid: one for one in reservations},
        pods_resource_version=version,
        serial=7,
        pods_barrier=barrier,
    )


def seen(
    *quotas: str,
    version: int = 5,
    assigned: bool = False,
    live: bool = True,
    usage: str = "1",
) -> ObservedPod:
    return ObservedPod(version, assigned, live, cpu(usage) if live else {}, frozenset(quotas))


def count(
    pod: ObservedPod | None = None,
    quotas: Mapping[str, str] | None = None,
    *,
    version: int = 20,
    hard: str = "5",
    used: str = "3",
) -> UsageCount:
    """A count of quota `q`, or of those given as name → spec."""
    specs = {"q": "s1"} if quotas is None else quotas
    counted = {
        name: CountedQuota(observed(name, spec), cpu(hard), cpu(used))
        for name, spec in specs.items()
    }
    return UsageCount(version, counted, {} if pod is None else {"a": pod})


def test_the_first_ledger_holds_what_was_counted_and_no_reservation() -> None:
    made = apply_usage(None, count())
    assert made is not None
    assert made.accounts["q"] == Account(observed(), cpu("5"), cpu("3"))
    assert (made.reservations, made.pods_resource_version, made.serial) == ({}, 20, 0)


@pytest.mark.parametrize(("version", "is_used"), [(9, False), (10, True), (11, True)])
def test_a_count_older_than_the_last_one_is_not_used(version: int, is_used: bool) -> None:
    following = apply_usage(ledger(), count(version=version))
    assert (following is not None) == is_used
    if following is not None:
        assert following.pods_resource_version == version
        assert following.serial == 7


KEPT: dict[str, tuple[Reservation, ObservedPod | None, Mapping[str, str] | None]] = {
    "a pod that is not seen yet": (held("q"), None, {"q": "1"}),
    "a pod that waits": (held("q"), seen("q"), {"q": "1"}),
    "an intent of a pod that waits": (held("q", is_intent=True), seen("q"), {}),
    "a pod that has ended": (held("q"), seen("q", assigned=True, live=False), None),
    "a pod that ended before it got a node": (held("q"), seen("q", live=False), None),
    "a pod that is assigned": (held("q"), seen("q", assigned=True), None),
    "an intent of a pod that is assigned": (
        held("q", is_intent=True, after=9),
        seen("q", assigned=True),
        None,
    ),
    "a resize that is not stored": (
        held("q", usage="3", charges={"q": "2"}, after=5),
        seen("q", assigned=True),
        {"q": "2"},
    ),
    "a resize that is stored": (
        held("q", usage="3", charges={"q": "2"}, after=4),
        seen("q", assigned=True, usage="3"),
        None,
    ),
    "a deadline that is not stored": (
        held("q", after=5),
        seen(assigned=True),
        {"q": "1"},
    ),
    "a bind and a resize of which only the bind is stored": (
        held("q", usage="3", after=5),
        seen("q", assigned=True),
        {"q": "2"},
    ),
}


@pytest.mark.parametrize(("before", "pod", "after"), KEPT.values(), ids=KEPT.keys())
def test_a_reservation_is_folded_or_kept(
    before: Reservation, pod: ObservedPod | None, after: Mapping[str, str] | None
) -> None:
    following = apply_usage(ledger(before), count(pod))
    assert following is not None
    if after is None:
        assert following.reservations == {}
        assert following.accounts["q"].reserved == {}
        return
    charges = following.reservations["a"].charges
    assert charges == {name: cpu(text) for name, text in after.items()}
    assert following.accounts["q"].reserved == (cpu(after["q"]) if after else {})


def test_the_reservation_of_a_deleted_pod_goes() -> None:
    gone = replace(count(), gone=frozenset({"a"}))
    following = apply_usage(ledger(held("q")), gone)
    assert following is not None
    assert following.reservations == {}


@pytest.mark.parametrize("serial", [1, 2], ids=["as watched", "written again"])
def test_a_reservation_expires_only_as_it_was_watched(serial: int) -> None:
    before = ledger(held("q", serial=serial), barrier=3)
    following = apply_usage(before, count(seen("q")), expired={"a": Expiry(1, 5)})
    assert following is not None
    assert ("a" in following.reservations) == (serial == 2)
    assert following.pods_barrier == (5 if serial == 1 else 3)


def test_the_barrier_never_falls() -> None:
    following = apply_usage(ledger(held("q"), barrier=8), count(), expired={"a": Expiry(1, 0)})
    assert following is not None
    assert following.pods_barrier == 8


QUOTAS: dict[str, tuple[dict[str, str], ObservedPod | None, Mapping[str, str]]] = {
    "an edited quota is charged with everything": (
        {"q": "s2"},
        seen("q"),
        {"q": "1"},
    ),
    "a new quota that applies is charged": (
        {"q": "s1", "new": "s1"},
        seen("q", "new"),
        {"q": "1", "new": "1"},
    ),
    "a new quota that does not apply is not": ({"q": "s1", "new": "s1"}, seen("q"), {"q": "1"}),
    "a new quota is charged for a pod that is not seen": (
        {"q": "s1", "new": "s1"},
        None,
        {"q": "1", "new": "1"},
    ),
    "a quota that is gone is charged nothing": ({"new": "s1"}, seen("new"), {"new": "1"}),
}


@pytest.mark.parametrize(("quotas", "pod", "charges"), QUOTAS.values(), ids=QUOTAS.keys())
def test_reservations_follow_the_quotas(
    quotas: dict[str, str], pod: ObservedPod | None, charges: Mapping[str, str]
) -> None:
    following = apply_usage(ledger(held("q")), count(pod, quotas))
    assert following is not None
    assert following.reservations["a"].charges == {
        name: cpu(text) for name, text in charges.items()
    }
    assert {name: one.reserved for name, one in following.accounts.items()} == {
        name: cpu(charges[name]) if name in charges else {} for name in quotas
    }


def test_a_quota_that_came_while_a_resize_was_on_its_way_is_charged_with_all_of_it() -> None:
    before = ledger(held("q", usage="3", charges={"q": "2"}, after=5))
    counted = count(seen("q", assigned=True), {"q": "s1", "new": "s1"}, hard="6")
    following = apply_usage(before, counted)
    assert following is not None
    assert following.reservations["a"].charges == {"q": cpu("2"), "new": cpu("3")}


def capped(usage: str = "3", charge: str = "1", uid: str = "a", serial: int = 1) -> Reservation:
    """A reservation of a pod that may not be refused, for which there was no more."""
    one = held("q", usage=usage, charges={"q": charge}, serial=serial)
    return replace(one, uid=uid, is_capped=True)


CAPPED = {
    "nothing is given back": ("4", "1", True),
    "some is given back": ("3", "2", True),
    "enough is given back": ("1", "3", False),
    "more is used than the limit": ("9", "1", True),
}


@pytest.mark.parametrize(("used", "charge", "is_capped"), CAPPED.values(), ids=CAPPED.keys())
def test_a_reservation_that_is_short_is_filled_up_with_what_is_given_back(
    used: str, charge: str, is_capped: bool
) -> None:
    following = apply_usage(ledger(capped()), count(used=used))
    assert following is not None
    one = following.reservations["a"]
    assert (one.charges, one.is_capped) == ({"q": cpu(charge)}, is_capped)
    assert following.accounts["q"].reserved == cpu(charge)


def test_what_is_left_goes_to_the_oldest_of_those_that_are_short() -> None:
    younger = capped("3", "0", uid="a", serial=2)
    older = capped("3", "0", uid="b", serial=1)
    following = apply_usage(ledger(younger, older), count(used="1"))
    assert following is not None
    charges = {uid: one.charges["q"] for uid, one in following.reservations.items()}
    assert charges == {"a": cpu("1"), "b": cpu("3")}


@pytest.mark.parametrize("pod", [None, seen("q", usage="1000")], ids=["not seen", "waits"])
def test_a_reservation_that_is_short_stays_within_a_limit_that_is_changed(
    pod: ObservedPod | None,
) -> None:
    following = apply_usage(ledger(capped("1000", "2")), count(pod, {"q": "s2"}, used="4"))
    assert following is not None
    assert following.reservations["a"].charges == {"q": cpu("1")}


def test_an_unseen_pod_is_charged_by_a_new_quota_no_further_than_to_its_limit() -> None:
    before = ledger(held(usage="1000"))
    following = apply_usage(before, count(None, {"q": "s1", "new": "s1"}))
    assert following is not None
    assert following.reservations["a"].charges == {"new": cpu("2")}


def test_an_update_whose_old_pod_was_invented_is_charged_no_further_than_to_the_limit() -> None:
    before = ledger(held("q", usage="1000", charges={"q": "0"}, after=10**19))
    following = apply_usage(before, count(seen("q", assigned=True)))
    assert following is not None
    assert following.reservations["a"].charges == {"q": cpu("2")}


def test_an_update_on_its_way_can_move_a_pod_into_a_quota_that_is_new() -> None:
    before = ledger(held("q", after=5))
    following = apply_usage(before, count(seen("q", version=5), {"q": "s1", "new": "s1"}))
    assert following is not None
    assert following.reservations["a"].charges == {"q": cpu("1"), "new": cpu("1")}


def test_an_update_that_was_stored_leaves_a_new_quota_to_what_is_seen() -> None:
    before = ledger(held("q", after=5))
    following = apply_usage(before, count(seen("q", version=6), {"q": "s1", "new": "s1"}))
    assert following is not None
    assert following.reservations["a"].charges == {"q": cpu("1")}


def of_memory(pod: ObservedPod | None) -> UsageCount:
    """A count of quota `q` after memory has become a deferred resource too."""
    both = {**cpu("5"), "requests.memory": Quantity.parse("9")}
    counted = CountedQuota(
        observed(spec="s1-both"), both, {name: cpu("0")["requests.cpu"] for name in both}
    )
    if pod is not None:
        pod = replace(pod, usage={**pod.usage, "requests.memory": Quantity.parse("4")})
    return UsageCount(20, {"q": counted}, {} if pod is None else {"a": pod})


def test_a_resource_that_becomes_deferred_is_reserved_for_the_pods_that_are_seen() -> None:
    following = apply_usage(ledger(held("q")), of_memory(seen("q")))
    assert following is not None
    memory = {"requests.memory": Quantity.parse("4")}
    assert following.reservations["a"].charges == {"q": {**cpu("1"), **memory}}
    assert following.accounts["q"].reserved == {**cpu("1"), **memory}


def test_a_resource_that_becomes_deferred_waits_for_the_pods_that_are_not_seen() -> None:
    before = ledger(held("q"))
    assert apply_usage(before, of_memory(None)) is None
    assert apply_usage(before, of_memory(None), expired={"a": Expiry(1, 0)}) is not None
    assert apply_usage(ledger(), of_memory(None)) is not None


@pytest.mark.parametrize(
    ("version", "is_counted"),
    [(4, False), (5, False), (6, True)],
    ids=["an older pod is seen", "the pod is seen that is updated", "it is seen after the update"],
)
@pytest.mark.parametrize("is_assigned", [False, True])
def test_a_resource_that_becomes_deferred_waits_for_updates_that_are_not_seen(
    version: int, is_counted: bool, is_assigned: bool
) -> None:
    update = held("q", after=5)
    following = apply_usage(
        ledger(update), of_memory(seen("q", version=version, assigned=is_assigned))
    )
    assert (following is not None) is is_counted


@pytest.mark.parametrize(("serial", "is_counted"), [(1, True), (2, False)])
def test_a_resource_that_becomes_deferred_does_not_wait_for_an_update_that_is_over(
    serial: int, is_counted: bool
) -> None:
    before = ledger(held("q", after=5))
    proof = Expiry(serial, 5, is_kept=True)
    following = apply_usage(before, of_memory(seen("q", version=5)), expired={"a": proof})
    assert (following is not None) is is_counted
    if following is not None:
        memory = {"requests.memory": Quantity.parse("4")}
        assert following.reservations["a"].charges == {"q": {**cpu("1"), **memory}}


def test_handlers_have_to_have_seen_the_pods_that_a_new_ledger_was_counted_from() -> None:
    following = apply_usage(None, count(version=20))
    assert following is not None
    assert following.pods_barrier == 20


def test_handlers_have_to_have_seen_the_pods_that_a_new_resource_was_counted_from() -> None:
    following = apply_usage(ledger(barrier=3), of_memory(None))
    assert following is not None
    assert following.pods_barrier == 20
    unchanged = apply_usage(ledger(barrier=3), count(version=20))
    assert unchanged is not None
    assert unchanged.pods_barrier == 3


def test_what_was_counted_before_the_namespace_opted_in_is_not_taken_as_counted() -> None:
    """A pod that waits may have been changed unasked: it is held for all that it asks now."""
    before = ledger(held("q"), barrier=3)
    waiting = count(seen("q", usage="2"))
    as_usual = apply_usage(before, waiting)
    following = apply_usage(before, waiting, is_from_before=True)
    assert as_usual is not None
    assert following is not None
    assert (as_usual.pods_barrier, as_usual.accounts["q"].reserved) == (3, cpu("1"))
    assert (following.pods_barrier, following.accounts["q"].reserved) == (20, cpu("2"))


def test_a_reservation_from_before_the_namespace_opted_in_is_kept_unseen() -> None:
    following = apply_usage(ledger(held("q")), count(), is_from_before=True)
    assert following is not None
    assert set(following.reservations) == {"a"}


def a_ledger(
    used: str = "2", reserved: str = "1", hard: str = "4", *reservations: Reservation
) -> Ledger:
    account = Account(observed(), cpu(hard), cpu(used), reserved=cpu(reserved))
    return Ledger({"q": account}, {one.uid: one for one in reservations})


FOLDS: dict[str, tuple[Ledger | None, Ledger, bool]] = {
    "reserved became used": (a_ledger("2", "1"), a_ledger("3", "0"), True),
    "nothing": (a_ledger(), a_ledger(), True),
    "something was freed": (a_ledger("2", "1"), a_ledger("2", "0"), False),
    "something was taken": (a_ledger("2", "1"), a_ledger("4", "0"), False),
    "another limit": (a_ledger("2", "1"), a_ledger("3", "0", "5"), False),
    "a new reservation": (a_ledger("2", "1"), a_ledger("2", "1", "4", held("q")), False),
    "another quota": (a_ledger(), Ledger({}, {}), False),
    "the first ledger": (None, a_ledger(), False),
    "another spec": (
        a_ledger(),
        Ledger({"q": replace(a_ledger().accounts["q"], observed=observed(spec="s2"))}, {}),
        False,
    ),
    "another grant": (
        a_ledger(),
        Ledger({"q": replace(a_ledger().accounts["q"], granted=cpu("4"))}, {}),
        False,
    ),
}


@pytest.mark.parametrize(("former", "following", "expected"), FOLDS.values(), ids=FOLDS.keys())
def test_only_what_is_taken_all_the_same_is_a_fold(
    former: Ledger | None, following: Ledger, expected: bool
) -> None:
    assert only_folds(former, following) is expected
