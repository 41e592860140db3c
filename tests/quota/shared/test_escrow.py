"""What a namespace may give away of a shared quota."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.quantity import Quantity
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
from webhook.quota.shared.cluster_quotas import KeptPart, cluster_quota
from webhook.quota.shared.escrow import (
    Shared,
    beside,
    exceeds_beside_headroom,
    granted_in_use,
    granting,
    growth,
    headroom_limit,
    most_headroom,
    open_to,
    shared_names,
    within_granted,
    without_headroom,
)
from webhook.quota.shared.grants import Grants, Promise, with_headroom, with_lowered, with_promise

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


def with_spare(found: Shared, **headroom: str) -> Shared:
    grants = found.grants
    for name, amount in headroom.items():
        grants = with_headroom(grants, name, cpu(amount))
    return replace(found, grants=grants)


def a_ledger(used: str = "1", granted: str = "1") -> Ledger:
    account = Account(DEFERRED.observed, cpu("10"), cpu(used), granted=cpu(granted))
    return Ledger({NAME: account}, {})


def shared(**namespaces: str) -> Shared:
    held = {name: cpu(amount) for name, amount in namespaces.items()}
    return Shared(QUOTA, Grants(held, DEFERRED.observed))


def claim(amount: str, uid: str = "uid") -> Claim:
    return Claim(uid, "web", ReservationSource.BIND, cpu(amount), (NAME,))


def promising(found: Shared, uid: str, amount: str) -> Shared:
    return Shared(QUOTA, with_promise(found.grants, Promise(uid, "a", "web", cpu(amount))))


def with_room(found: Shared, *, kept: str = "", **least: str) -> Shared:
    parts = tuple(KeptPart(frozenset({name}), cpu(amount)) for name, amount in least.items())
    part = (KeptPart(frozenset({"a"}), cpu(kept)),) if kept else ()
    return replace(found, quota=replace(found.quota, headroom=parts, kept=part))


HEADROOM: dict[str, tuple[Shared, str, str]] = {
    "half of what the spec allows": (with_room(shared(a="1", b="0"), a="5"), "1", "2"),
    "no more than half of what is free": (with_room(shared(a="1", b="5"), a="9"), "1", "2"),
    "what others have unused is half of it already": (
        with_room(with_spare(shared(a="1", b="5"), b="3"), a="9"),
        "1",
        "500m",
    ),
    "nothing where it needs all that the spec allows": (with_room(shared(a="5"), a="5"), "5", "0"),
    "nothing where nothing is free": (with_room(shared(a="5", b="5"), a="8"), "5", "0"),
    "nothing for those that the spec does not name": (with_room(shared(a="1"), b="5"), "1", "0"),
    "all that is kept for it": (with_room(shared(a="1", b="1"), kept="6", a="6"), "1", "5"),
}


@pytest.mark.parametrize(("found", "wanted", "most"), HEADROOM.values(), ids=HEADROOM)
def test_headroom_is_at_most_half_of_what_is_free(found: Shared, wanted: str, most: str) -> None:
    given = most_headroom(found, "a", cpu(wanted), is_needed_elsewhere=False)
    assert given.get(CPU, Quantity.parse("0")) == Quantity.parse(most)


def test_headroom_that_others_need_is_only_what_is_kept() -> None:
    found = with_room(shared(a="1", b="1"), kept="3", a="8")
    assert most_headroom(found, "a", cpu("1"), is_needed_elsewhere=True) == cpu("2")
    assert headroom_limit(found, "a", cpu("1"), is_needed_elsewhere=True) == cpu("2")
    assert headroom_limit(found, "a", cpu("1"), is_needed_elsewhere=False) == cpu("7")


def test_headroom_stays_only_while_it_is_free() -> None:
    found = with_room(shared(a="4", b="4"), a="9")
    limit = headroom_limit(found, "a", cpu("1"), is_needed_elsewhere=False)
    assert limit == cpu("5")
    taken = with_room(shared(a="4", b="9"), a="9")  # counted by force
    assert headroom_limit(taken, "a", cpu("1"), is_needed_elsewhere=False) == cpu("0")
    promise = Promise("waiting", "b", "web", cpu("4"))
    promised = replace(found, grants=with_promise(found.grants, promise))
    assert headroom_limit(promised, "a", cpu("1"), is_needed_elsewhere=False) == cpu("1")


FORCED: dict[str, tuple[Shared, str, bool]] = {
    "beyond the limit beside headroom": (with_spare(shared(a="1", b="8"), b="3"), "3", True),
    "within the limit": (with_spare(shared(a="1", b="8"), b="3"), "2", False),
    "no more than it holds": (with_spare(shared(a="3", b="8"), b="3"), "3", False),
    "others have no headroom": (shared(a="1", b="8"), "3", False),
    "only its own": (with_spare(shared(a="2", b="8"), a="1"), "3", False),
}


@pytest.mark.parametrize(("found", "floor", "is_over"), FORCED.values(), ids=FORCED)
def test_nothing_is_held_beyond_the_limit_beside_headroom(
    found: Shared, floor: str, *, is_over: bool
) -> None:
    assert exceeds_beside_headroom(found, "a", cpu(floor)) is is_over


def test_of_what_was_granted_for_another_spec_only_what_is_needed_stays() -> None:
    account = a_ledger(used="1", granted="3").accounts[NAME]
    assert granted_in_use(account) == cpu("1")
    assert granted_in_use(replace(account, granted={})) == {}


def test_what_is_held_is_admitted_by_the_ledger_alone() -> None:
    alone = within_granted(a_ledger(used="1", granted="3"), [NAME])
    assert isinstance(admit(alone, claim("2"))[1], Admitted)
    assert isinstance(admit(alone, claim("3"))[1], Denied)


def test_headroom_of_others_is_taken_out_of_account_but_for_what_is_kept_for_them() -> None:
    found = {NAME: with_spare(shared(a="1", b="6"), b="4")}
    rest = without_headroom(beside(a_ledger(), "a", found), "a", found)
    assert rest is not None
    assert rest.accounts[NAME].used_elsewhere == cpu("2")
    assert without_headroom(a_ledger(), "a", {NAME: shared(a="1", b="6")}) is None
    part = KeptPart(frozenset({"b"}), cpu("5"))
    kept = {NAME: replace(found[NAME], quota=replace(QUOTA, kept=(part,)))}
    rest = without_headroom(beside(a_ledger(), "a", kept), "a", kept)
    assert rest is not None
    assert rest.accounts[NAME].used_elsewhere == cpu("5")


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
    found = with_room(shared(**dict(zip(names, map(str, used), strict=True))), **limits)
    size = max(sum(used), 10)
    found = replace(
        found, quota=replace(found.quota, quota=replace(QUOTA.quota, hard=cpu(str(size))))
    )
    for turn in turns:
        name = names[turn % len(names)]
        wanted = cpu(str(used[turn % len(names)]))
        given = most_headroom(found, name, wanted, is_needed_elsewhere=False)
        held = with_lowered(found.grants, name, add(wanted, given))
        found = replace(found, grants=with_headroom(held, name, given))
        spare = sum(
            one.get(CPU, Quantity.parse("0")).nano for one in found.grants.headroom.values()
        )
        assert 2 * spare <= (size - sum(used)) * 10**9
        assert found.grants.total[CPU] <= Quantity.parse(str(size))
        room = max(0, int(limits[name]) - used[turn % len(names)])
        assert given.get(CPU, Quantity.parse("0")) <= Quantity.parse(str(room))


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


def test_what_was_too_much_before_is_not_granted_for_who_adds_nothing() -> None:
    known = a_ledger(used="5", granted="1")
    following = replace(known, sequence=9)
    assert growth(known, following, [NAME]) == {}


def test_a_quota_is_open_to_those_who_take_part_once_all_are_counted() -> None:
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


def test_a_quota_is_open_only_to_those_who_count_terminating_pods_as_all_others() -> None:
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


def test_promises_beyond_the_limit_let_nothing_in_but_their_pods_once_there_is_room() -> None:
    full = promising(shared(a="1", b="9"), "owner", "5")
    ledger = beside(a_ledger(), "a", {NAME: full})
    assert isinstance(admit(ledger, claim("1"))[1], Denied)
    assert isinstance(admit(ledger, claim("5", uid="owner"))[1], Denied)
    freed = promising(shared(a="1", b="4"), "owner", "5")
    ledger = beside(a_ledger(), "a", {NAME: freed})
    assert isinstance(admit(ledger, claim("1"))[1], Denied)
    assert isinstance(admit(ledger, claim("5", uid="owner"))[1], Admitted)


def keeping(found: Shared, amount: str, *namespaces: str) -> Shared:
    part = KeptPart(frozenset(namespaces), cpu(amount))
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
    assert read.kept == (KeptPart(frozenset({"b"}), cpu("4")),)
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
