"""What a namespace may give away of a shared quota."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.ledger.ledger import (
    Account,
    Admitted,
    Claim,
    Denied,
    Ledger,
    ReservationSource,
    admit,
    admit_all,
    exceeded_quotas,
)
from webhook.quota.shared.cluster_quotas import QuotaPart, cluster_quota
from webhook.quota.shared.escrow import (
    Raise,
    Shared,
    beside,
    granting,
    growth,
    has_room,
    headroom,
    headroom_limit,
    open_to,
    raised,
    shared_names,
    without_headroom,
)
from webhook.quota.shared.grants import (
    MAX_PROMISES,
    Grants,
    Promise,
    grants_from_status,
    grants_status,
    with_headroom,
    with_promise,
    with_raised,
    with_recall,
)

CPU = "requests.cpu"


def cpu(amount: str) -> ResourceList:
    return {CPU: Quantity.parse(amount)}


QUOTA = cluster_quota(
    {
        "metadata": {"name": "both", "uid": "u"},
        "spec": {"namespaceSelector": {}, "hard": {CPU: "10"}},
    }
)
(DEFERRED,) = deferred_quotas([QUOTA.quota], {CPU}).quotas
NAME = DEFERRED.name


def a_ledger(used: str = "1", granted: str = "1") -> Ledger:
    account = Account(DEFERRED.observed, cpu("10"), cpu(used), granted=cpu(granted))
    return Ledger({NAME: account}, {})


def shared(**namespaces: str) -> Shared:
    held = {name: cpu(amount) for name, amount in namespaces.items()}
    return Shared(QUOTA, Grants(held, DEFERRED.observed))


def claim(amount: str, uid: str = "uid") -> Claim:
    return Claim(uid, "web", ReservationSource.BIND, cpu(amount), (NAME,))


def released(amount: str) -> Claim:
    return replace(claim(amount), source=ReservationSource.RELEASE)


def promising(found: Shared, uid: str, amount: str) -> Shared:
    return Shared(QUOTA, with_promise(found.grants, Promise(uid, "a", "web", cpu(amount))))


@pytest.mark.parametrize(("asked", "fits"), [("5", True), ("6", False)])
def test_what_others_hold_is_taken(asked: str, *, fits: bool) -> None:
    ledger = beside(a_ledger(), "a", {NAME: shared(a="1", b="4")})
    _, verdict = admit(ledger, claim(asked))
    assert isinstance(verdict, Admitted) is fits
    assert bool(exceeded_quotas(ledger, claim(asked))) is not fits
    if isinstance(verdict, Denied):
        assert verdict.denial.used == cpu("5")  # its own and theirs


def test_only_what_is_added_beyond_what_is_held_has_to_be_granted() -> None:
    known = a_ledger(used="1", granted="3")
    within, _ = admit(known, claim("2"))
    assert growth(known, within, [NAME]) == {}
    beyond, _ = admit(known, claim("3"))
    assert growth(known, beyond, [NAME]) == {NAME: cpu("4")}
    assert granting(beyond, {NAME: cpu("4")}).accounts[NAME].granted == cpu("4")


def test_what_was_too_much_before_is_not_granted_to_a_pod_that_adds_nothing() -> None:
    known = a_ledger(used="5", granted="1")
    following = replace(known, serial=9)
    assert growth(known, following, [NAME]) == {}


def test_a_quota_is_open_to_its_namespaces_once_all_are_counted() -> None:
    account = a_ledger().accounts[NAME]
    complete = shared(a="1")
    assert open_to("a", account, complete)
    assert not open_to("b", account, complete)
    assert not open_to("a", account, None)
    counting = replace(complete, grants=replace(complete.grants, observed=None))
    assert not open_to("a", account, counting)
    former = replace(DEFERRED.observed, spec_hash="former")
    assert not open_to("a", replace(account, observed=former), complete)
    recreated = replace(QUOTA, quota=replace(QUOTA.quota, uid="other"))
    assert not open_to("a", account, replace(complete, quota=recreated))


def test_a_quota_is_open_only_to_namespaces_that_count_terminating_pods_alike() -> None:
    held = deferred_quotas([QUOTA.quota], {CPU}, holds_terminating=True).quotas[0].observed
    account = replace(a_ledger().accounts[NAME], observed=held)
    released = shared(a="1")
    assert not open_to("a", account, released)
    assert open_to("a", account, replace(released, grants=replace(released.grants, observed=held)))


def test_only_shared_quotas_are_looked_up() -> None:
    ledger = a_ledger()
    account = replace(ledger.accounts[NAME], observed=replace(DEFERRED.observed, name="p1"))
    both = replace(ledger, accounts={**ledger.accounts, "p1": account})
    assert shared_names(both) == (NAME,)
    assert shared_names(None) == ()


@pytest.mark.parametrize("namespace", ["a", "b"])
def test_what_is_promised_to_a_pod_is_taken_for_all_others(namespace: str) -> None:
    here = promising(shared(a="1", b="1"), "owner", "5")
    ledger = beside(a_ledger(), namespace, {NAME: here})
    assert isinstance(admit(ledger, claim("3"))[1], Admitted)
    _, verdict = admit(ledger, claim("4"))
    assert isinstance(verdict, Denied)
    assert verdict.denial.used == cpu("7")
    assert isinstance(admit(ledger, claim("8", uid="owner"))[1], Admitted)
    assert isinstance(admit(ledger, claim("9", uid="owner"))[1], Denied)


def test_a_promise_is_counted_once_beside_its_reservation() -> None:
    here = promising(shared(a="1", b="1"), "owner", "5")
    claims = [claim("5", uid="owner"), claim("3")]
    following, verdicts = admit_all(beside(a_ledger(), "a", {NAME: here}), claims)
    assert [type(one) for one in verdicts] == [Admitted, Admitted]
    again = beside(following, "a", {NAME: here})
    assert again.accounts[NAME].used_elsewhere == cpu("1")
    assert isinstance(admit(again, claim("1", uid="third"))[1], Denied)


def test_an_intent_of_its_pod_redeems_no_promise() -> None:
    here = promising(shared(a="1", b="1"), "owner", "5")
    intent = replace(claim("5", uid="owner"), source=ReservationSource.RESIZE, is_intent=True)
    known, verdict = admit(beside(a_ledger(), "a", {NAME: here}), intent)
    assert isinstance(verdict, Admitted)
    ledger = beside(known, "a", {NAME: here})
    assert ledger.accounts[NAME].used_elsewhere == cpu("6")
    assert isinstance(admit(ledger, claim("4"))[1], Denied)
    assert isinstance(admit(ledger, claim("9", uid="owner"))[1], Denied)
    claims = [claim("5", uid="owner"), claim("3"), claim("1", uid="third")]
    following, verdicts = admit_all(ledger, claims)
    assert [type(one) for one in verdicts] == [Admitted, Admitted, Denied]
    assert following.accounts[NAME].promised == {}
    again = beside(following, "a", {NAME: here})
    assert again.accounts[NAME].used_elsewhere == cpu("1")


def test_promises_beyond_the_limit_let_nothing_in_but_their_pods_once_there_is_room() -> None:
    full = promising(shared(a="1", b="9"), "owner", "5")
    ledger = beside(a_ledger(), "a", {NAME: full})
    assert isinstance(admit(ledger, claim("1"))[1], Denied)
    assert isinstance(admit(ledger, claim("5", uid="owner"))[1], Denied)
    freed = promising(shared(a="1", b="4"), "owner", "5")
    ledger = beside(a_ledger(), "a", {NAME: freed})
    assert isinstance(admit(ledger, claim("1"))[1], Denied)
    assert isinstance(admit(ledger, claim("5", uid="owner"))[1], Admitted)


def test_what_was_promised_later_keeps_nothing_from_a_pod() -> None:
    """Of 10 cpu, 7 are used, and 2 are promised to each of two pods: one of their victims ended."""
    found = promising(promising(shared(a="0", b="7"), "z-first", "2"), "a-later", "2")
    known = beside(a_ledger(used="0", granted="0"), "a", {NAME: found})
    _, verdict = admit(known, claim("2", uid="a-later"))
    assert isinstance(verdict, Denied)
    assert verdict.denial.used == cpu("9")  # what was promised before it counts
    assert has_room(found, found.grants.promises["z-first"])
    assert not has_room(found, found.grants.promises["a-later"])
    known, verdict = admit(known, claim("2", uid="z-first"))
    assert isinstance(verdict, Admitted)
    for uid in ("a-later", "another"):  # together with what is taken now, it does not fit
        assert isinstance(admit(known, claim("2", uid=uid))[1], Denied)
    assert isinstance(admit(known, claim("1", uid="a-later"))[1], Admitted)


def promising_three(used: str) -> Ledger:
    """Return a ledger of a quota of 10 cpu, of which 2 are promised to each of three pods."""
    found = shared(a="0", b=used)
    for uid in ("z", "m", "a"):
        found = promising(found, uid, "2")
    return beside(a_ledger(used="0", granted="0"), "a", {NAME: found})


@pytest.mark.parametrize(
    ("used", "claims", "admitted"),
    [
        ("8", "m a z", "z"),
        ("8", "z m a", "z"),
        ("6", "a m z", "m z"),
        ("6", "z a m", "z m"),
        ("4", "a z m", "a z m"),
        ("4", "m other a z", "m a z"),
    ],
)
def test_claims_of_one_batch_come_in_the_order_of_their_promises(
    used: str, claims: str, admitted: str
) -> None:
    _, verdicts = admit_all(promising_three(used), [claim("2", uid=uid) for uid in claims.split()])
    found = [one.reservation.uid for one in verdicts if isinstance(one, Admitted)]
    assert found == admitted.split()


def anyway(amount: str, uid: str) -> Claim:
    return replace(claim(amount, uid), skip_limits=True)


def test_what_runs_anyway_takes_no_more_than_there_is_whatever_is_promised_after_it() -> None:
    _, verdict = admit(promising_three("7"), anyway("9", "z"))
    assert isinstance(verdict, Admitted)
    assert verdict.reservation.charges == {NAME: cpu("3")}


def test_a_promise_that_changes_keeps_its_place() -> None:
    found = promising(promising(promising(shared(), "z", "2"), "a", "2"), "z", "3")
    assert [*found.grants.promises] == ["z", "a"]


@pytest.mark.parametrize(
    ("kept", "fits"),
    [("2", True), ("3", True), ("4", False)],
)
def test_what_was_promised_later_leaves_what_is_kept_for_its_namespace(
    kept: str, *, fits: bool
) -> None:
    """Of 10 cpu, b holds 1 and c 5; 2 are promised to a, then 2 to b, for which some are kept."""
    here = keeping(shared(a="0", b="1"), kept, "b")
    grants = with_raised(here.grants, "c", cpu("5"))
    for one in (Promise("first", "a", "web", cpu("2")), Promise("later", "b", "web", cpu("2"))):
        grants = with_promise(grants, one)
    found = replace(here, grants=grants)
    known = beside(a_ledger(used="0", granted="0"), "a", {NAME: found})
    _, verdict = admit(known, claim("2", uid="first"))
    assert isinstance(verdict, Admitted) is fits
    assert has_room(found, grants.promises["first"]) is fits
    assert isinstance(admit(known, claim("1"))[1], Denied)
    known, _ = admit(known, anyway("1", "runs"))
    assert isinstance(admit(known, claim("2", uid="first"))[1], Admitted) is (kept == "2")


def test_many_promises_beside_much_that_is_kept_take_no_time() -> None:
    """A ledger is decided by under a lock, and a stolen token may write as many promises."""
    namespaces = [f"n{number}" for number in range(1024)]
    parts = tuple([QuotaPart(frozenset({name}), cpu("1")) for name in namespaces])
    promises = {
        str(number): Promise(str(number), "a", "web", cpu("1")) for number in range(MAX_PROMISES)
    }
    grants = Grants(dict.fromkeys(namespaces, cpu("1")), DEFERRED.observed, promises=promises)
    many = Shared(replace(QUOTA, kept=parts), grants)
    ledger, started = a_ledger(), time.thread_time()
    beside(ledger, "a", {NAME: many})
    assert time.thread_time() - started < 1.0


def test_promises_are_kept_in_the_order_in_which_they_were_made() -> None:
    found = promising(promising(shared(), "z", "2"), "a", "2")
    status = grants_status(found.grants, cpu("10"))
    assert [*grants_from_status(status, "cdq").promises] == ["z", "a"]


def test_promises_beyond_the_limit_take_nothing_of_a_reservation_that_stands() -> None:
    known, _ = admit(beside(a_ledger(), "a", {NAME: shared(a="1", b="1")}), released("2"))
    full = beside(known, "a", {NAME: promising(shared(a="3", b="6"), "owner", "5")})
    assert isinstance(admit(full, claim("2"))[1], Admitted)
    assert exceeded_quotas(full, claim("2")) == ()
    assert isinstance(admit(full, claim("3"))[1], Denied)
    # what others hold still counts
    fuller = beside(known, "a", {NAME: promising(shared(a="3", b="8"), "owner", "5")})
    _, verdict = admit(fuller, claim("2"))
    assert isinstance(verdict, Denied)
    assert verdict.denial.used == cpu("9")


RESIZE = replace(claim("2"), source=ReservationSource.RESIZE, is_intent=True)
"""Of a pod without a node in a namespace without gates, or behind one."""
GROWTH = replace(RESIZE, is_intent=False)
"""Of a pod with a node."""


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (claim("2"), claim("2")),
        (claim("2"), RESIZE),
        (claim("2"), released("2")),
        (released("2"), RESIZE),
        (released("2"), released("2")),
        (GROWTH, GROWTH),
    ],
)
def test_no_client_has_it_written_anew(first: Claim, again: Claim) -> None:
    known, _ = admit(beside(a_ledger(), "a", {NAME: shared(a="1", b="1")}), first)
    assert isinstance(admit(known, again)[1], Admitted)
    full = beside(known, "a", {NAME: promising(shared(a="3", b="6"), "owner", "5")})
    unchanged, verdict = admit(full, again)
    assert isinstance(verdict, Denied)
    assert [one.quota for one in exceeded_quotas(full, again)] == [NAME]
    assert unchanged.reservations == known.reservations


def test_nor_by_a_change_of_what_is_not_promised() -> None:
    memory = {"requests.memory": Quantity.parse("1")}
    both = {CPU: Quantity.parse("10"), "requests.memory": Quantity.parse("9")}
    quota = replace(QUOTA, quota=replace(QUOTA.quota, hard=both))
    account = Account(DEFERRED.observed, both, {})
    before = replace(GROWTH, usage=add(cpu("2"), memory), counted={NAME: memory})
    known, _ = admit(Ledger({NAME: account}, {}), before)
    more = add(memory, memory)
    again = replace(before, usage=add(cpu("1"), more), counted={NAME: add(cpu("1"), memory)})
    assert isinstance(admit(known, again)[1], Admitted)
    promise = Promise("owner", "b", "web", cpu("9"))
    full = beside(known, "a", {NAME: Shared(quota, with_promise(Grants(), promise))})
    unchanged, verdict = admit(full, again)
    assert isinstance(verdict, Denied)
    assert verdict.denial.limited == cpu("10")
    assert unchanged.reservations == known.reservations


@pytest.mark.parametrize("again", [RESIZE, released("2")])
@pytest.mark.parametrize("first", [claim("1"), released("1")])
def test_a_resize_makes_nothing_else_of_what_is_reserved(first: Claim, again: Claim) -> None:
    known, _ = admit(beside(a_ledger(), "a", {NAME: shared(a="1", b="1")}), first)
    larger, verdict = admit(known, again)
    assert isinstance(verdict, Admitted)
    assert larger.reservations["uid"].source is first.source
    assert larger.reservations["uid"].charges == {NAME: cpu("2")}


def test_promises_are_compared_with_a_resource_of_which_a_reservation_is_to_grow() -> None:
    memory = {"requests.memory": Quantity.parse("1")}
    both = {CPU: Quantity.parse("10"), **add(memory, memory)}
    quota = replace(QUOTA, quota=replace(QUOTA.quota, hard=both))
    account = Account(DEFERRED.observed, both, {})
    within = replace(claim("2"), usage=add(cpu("2"), memory))
    before = replace(within, source=ReservationSource.RELEASE)
    known, _ = admit(Ledger({NAME: account}, {}), before)
    promise = Promise("owner", "b", "web", add(cpu("9"), memory))
    full = beside(known, "a", {NAME: Shared(quota, with_promise(Grants(), promise))})
    assert isinstance(admit(full, within)[1], Admitted)
    _, verdict = admit(full, replace(within, usage=add(within.usage, memory)))
    assert isinstance(verdict, Denied)
    assert verdict.denial.used == memory  # cpu is promised beyond the limit, and does not grow


def keeping(found: Shared, amount: str, *namespaces: str) -> Shared:
    part = QuotaPart(frozenset(namespaces), cpu(amount))
    return Shared(replace(QUOTA, kept=(*found.quota.kept, part)), found.grants)


@pytest.mark.parametrize(
    ("namespace", "asked", "fits"),
    [("a", "5", True), ("a", "6", False), ("b", "8", True), ("b", "9", False)],
)
def test_what_is_kept_for_a_namespace_is_taken_for_all_others(
    namespace: str, asked: str, *, fits: bool
) -> None:
    # of 10: a holds 1, b 1, and 4 are kept for b
    here = keeping(shared(a="1", b="1"), "4", "b")
    ledger = beside(a_ledger(), namespace, {NAME: here})
    assert isinstance(admit(ledger, claim(asked))[1], Admitted) is fits


def test_what_runs_anyway_is_held_before_what_is_promised_and_kept() -> None:
    mirror = replace(claim("3", uid="mirror"), skip_limits=True)
    kept = keeping(shared(a="1", b="5"), "9", "b")
    promised = promising(shared(a="1", b="5"), "owner", "4")
    _, verdict = admit(beside(a_ledger(), "a", {NAME: kept}), mirror)
    assert isinstance(verdict, Admitted)
    assert verdict.reservation.charges == {NAME: cpu("3")}
    known, verdict = admit(beside(a_ledger(), "a", {NAME: promised}), mirror)
    assert isinstance(verdict, Admitted)
    assert verdict.reservation.charges == {NAME: cpu("3")}
    assert not verdict.reservation.is_capped
    assert growth(a_ledger(), known, [NAME]) == {NAME: cpu("4")}
    # then the promised pod does not fit any more
    held = promising(shared(a="4", b="5"), "owner", "4")
    assert isinstance(admit(beside(known, "a", {NAME: held}), claim("4", uid="owner"))[1], Denied)
    full = promising(shared(a="1", b="8"), "owner", "4")
    _, verdict = admit(beside(a_ledger(), "a", {NAME: full}), mirror)
    assert isinstance(verdict, Admitted)
    assert verdict.reservation.charges == {NAME: cpu("1")}


def test_what_is_kept_takes_nothing_of_a_reservation_that_stands() -> None:
    known, _ = admit(beside(a_ledger(), "a", {NAME: shared(a="1", b="1")}), released("2"))
    edited = beside(known, "a", {NAME: keeping(shared(a="3", b="1"), "8", "b")})
    assert isinstance(admit(edited, claim("2"))[1], Admitted)
    assert isinstance(admit(edited, claim("3"))[1], Denied)


def test_several_namespaces_take_together_what_is_kept_for_them() -> None:
    here = keeping(shared(a="1", b="2", c="1"), "5", "b", "c")
    assert beside(a_ledger(), "a", {NAME: here}).accounts[NAME].used_elsewhere == cpu("5")
    assert beside(a_ledger(), "b", {NAME: here}).accounts[NAME].used_elsewhere == cpu("2")
    more = keeping(shared(a="1", b="4", c="3"), "5", "b", "c")
    assert beside(a_ledger(), "a", {NAME: more}).accounts[NAME].used_elsewhere == cpu("7")


def test_a_promise_to_a_pod_takes_of_what_is_kept_for_its_namespace() -> None:
    here = keeping(promising(shared(a="1", b="1"), "x", "2"), "4", "a")
    assert beside(a_ledger(), "b", {NAME: here}).accounts[NAME].used_elsewhere == cpu("4")


def test_what_is_kept_is_read_and_no_part_of_what_is_counted() -> None:
    spec = {"namespaceSelector": {}, "hard": {CPU: "10"}}
    kept = [{"namespaces": ["b"], "amounts": {CPU: "4"}}]
    read = cluster_quota({"metadata": {"name": "both", "uid": "u"}, "spec": {**spec, "kept": kept}})
    assert read.kept == (QuotaPart(frozenset({"b"}), cpu("4")),)
    assert read.quota.spec_hash == QUOTA.quota.spec_hash


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ({"amounts": {CPU: "1"}}, "spec.kept[0].namespaces: must name at least one"),
        (
            {"namespaces": ["b"], "amounts": {CPU: "-1"}},
            "spec.kept[0].amounts[requests.cpu]: must not be negative",
        ),
    ],
)
def test_a_part_that_makes_no_sense_cannot_be_read(part: object, fault: str) -> None:
    spec = {"namespaceSelector": {}, "hard": {CPU: "10"}, "kept": [part]}
    with pytest.raises(InvalidFieldError) as caught:
        cluster_quota({"metadata": {"name": "both", "uid": "u"}, "spec": spec})
    assert str(caught.value) == fault


def with_spare(found: Shared, **unused: str) -> Shared:
    grants = found.grants
    for name, amount in unused.items():
        grants = with_headroom(grants, name, cpu(amount))
    return replace(found, grants=grants)


def with_parts(found: Shared, **least: str) -> Shared:
    parts = tuple(QuotaPart(frozenset(name), cpu(amount)) for name, amount in least.items())
    return replace(found, quota=replace(found.quota, headroom=parts))


HEADROOM: dict[str, tuple[Shared, str, str, str]] = {
    "what the spec allows": (with_parts(shared(a="1", b="0"), a="5"), "1", "4", "2"),
    "half of what is free": (with_parts(shared(a="1", b="5"), a="9"), "1", "2", "2"),
    "the headroom of others is a part of that half": (
        with_parts(with_spare(shared(a="1", b="5"), b="3"), a="9"), "1", "500m", "500m",
    ),
    "what all of its quota hold is taken of its part": (
        with_parts(shared(a="1", b="2", c="0"), ab="5"), "1", "2", "1",
    ),
    "all where it is alone": (with_parts(shared(a="1"), a="9"), "1", "8", "8"),
    "nothing where it needs all that the spec allows": (
        with_parts(shared(a="5", b="0"), a="5"), "5", "0", "0",
    ),
    "nothing where nothing is free": (with_parts(shared(a="5", b="5"), a="8"), "5", "0", "0"),
    "nothing where more is held than there is": (
        with_parts(shared(a="5", b="9"), a="8"), "5", "0", "0",
    ),
    "nothing that is promised": (
        with_parts(promising(shared(a="1", b="1"), "p", "8"), a="8"), "1", "0", "0",
    ),
    "nothing for those that the spec does not name": (
        with_parts(shared(a="1", c="1"), b="5"), "1", "0", "0",
    ),
    "nothing while it is recalled": (
        with_parts(Shared(QUOTA, with_recall(shared(a="1").grants, is_recalled=True)), a="5"),
        "1", "0", "0",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("found", "wanted", "most", "taken"), HEADROOM.values(), ids=HEADROOM)
def test_headroom_is_at_most_half_of_what_is_free(
    found: Shared, wanted: str, most: str, taken: str
) -> None:
    assert headroom_limit(found, "a", cpu(wanted)).get(CPU, ZERO) == Quantity.parse(most)
    assert headroom(found, "a", cpu(wanted)).get(CPU, ZERO) == Quantity.parse(taken)


@given(
    used=st.lists(st.integers(0, 5), min_size=2, max_size=5),
    least=st.lists(st.integers(0, 6), min_size=5, max_size=5),
    turns=st.lists(st.integers(0, 4), max_size=12),
)
def test_all_headroom_together_is_at_most_half_of_what_is_free(
    used: list[int], least: list[int], turns: list[int]
) -> None:
    names = "abcde"[: len(used)]
    limits = {name: str(least[index]) for index, name in enumerate(names)}
    found = with_parts(shared(**dict(zip(names, map(str, used), strict=True))), **limits)
    size = max(sum(used), 10)
    quota = replace(found.quota, quota=replace(QUOTA.quota, hard=cpu(str(size))))
    found = replace(found, quota=quota)
    for turn in turns:
        name, own = names[turn % len(names)], used[turn % len(names)]
        given_more = headroom(found, name, cpu(str(own)))
        grants = raised(found.grants, name, Raise(cpu(str(own)), given_more))
        found = replace(found, grants=grants)
        spare = sum(one.get(CPU, ZERO).nano for one in grants.headroom.values())
        assert 2 * spare <= (size - sum(used)) * 10**9
        assert grants.total[CPU] <= Quantity.parse(str(size))
        assert given_more.get(CPU, ZERO) <= Quantity.parse(str(max(0, int(limits[name]) - own)))


def test_a_raise_says_how_much_is_not_used() -> None:
    found = raised(shared(a="1", b="1").grants, "a", Raise(cpu("2"), cpu("3")))
    assert (found.namespaces["a"], found.headroom) == (cpu("5"), {"a": cpu("3")})
    again = raised(found, "a", Raise(cpu("4")))
    assert (again.namespaces["a"], again.headroom) == (cpu("5"), {"a": cpu("1")})
    assert raised(again, "a", Raise(cpu("6"))).headroom == {}
    assert raised(shared(a="5").grants, "a", Raise(cpu("2"))).headroom == {}


def test_headroom_of_others_is_left_out_but_for_what_is_kept_for_them() -> None:
    found = {NAME: with_spare(shared(a="1", b="6"), b="4")}
    rest = without_headroom(beside(a_ledger(), "a", found), "a", found)
    assert rest is not None
    assert rest.accounts[NAME].used_elsewhere == cpu("2")
    assert without_headroom(a_ledger(), "a", {NAME: shared(a="1", b="6")}) is None
    part = QuotaPart(frozenset({"b"}), cpu("5"))
    kept = {NAME: replace(found[NAME], quota=replace(QUOTA, kept=(part,)))}
    rest = without_headroom(beside(a_ledger(), "a", kept), "a", kept)
    assert rest is not None
    assert rest.accounts[NAME].used_elsewhere == add(cpu("2"), cpu("3"))
