"""What a pool lacks goes first to pods that stay within their quota's min."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.quota.elastic.pools import a_quota
from tests.quota.elastic.waiting import CPU, FULL, MAX, MEMORY, POOL, amounts, queued, status
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.elastic.owners_first import (
    PoolShare,
    PoolView,
    WaitingPod,
    owners_first,
    waiting_for_pools,
)
from webhook.quota.ledger.ledger import Account, Ledger, QuotaRevision
from webhook.quota.queue.queued_pods import Blocker, PendingReason, QueuedPod


def share(held: int, least: int, *lacking: str) -> PoolShare:
    owners = [WaitingPod("eq/q", "team-a", amounts({key: 1})) for key in lacking]
    return PoolShare(amounts({CPU: held}), amounts({CPU: least}), owners)


def passing(pool: PoolShare, *queue: QueuedPod, reserved: tuple[str, ...] = ()) -> list[str]:
    ordered = owners_first(queue, {POOL: pool}, reserved)
    assert [one.uid for one in ordered] == [one.uid for one in queue]
    return [one.uid for one in ordered if one.blocker is None]


def test_a_borrower_waits_while_an_owner_lacks_what_it_takes() -> None:
    (blocked,) = owners_first([queued("b", cpu=1)], {POOL: share(2, 2, CPU)}, ())
    assert blocked.blocker == Blocker(
        PendingReason.OWNERS_FIRST,
        "pods of eq/q in namespace team-a, which stay within its min, come first",
        POOL,
    )


def test_one_within_its_own_min_does_not() -> None:
    assert passing(share(1, 2, CPU), queued("b", cpu=1)) == ["b"]


def test_what_a_pod_takes_is_counted_for_the_next() -> None:
    queue = [queued(name, cpu=1) for name in ("b1", "b2", "b3")]
    assert passing(share(0, 2, CPU), *queue) == ["b1", "b2"]


def test_one_that_asks_for_what_no_owner_lacks_does_not() -> None:
    assert passing(share(2, 2, MEMORY), queued("b", cpu=1)) == ["b"]
    assert passing(share(2, 2), queued("b", cpu=1)) == ["b"]
    assert passing(share(2, 2, CPU), queued("b", cpu=0)) == ["b"]


def test_one_that_has_its_reservation_keeps_it() -> None:
    assert passing(share(2, 2, CPU), queued("b", cpu=1), reserved=("b",)) == ["b"]


def test_what_is_promised_to_a_pod_it_takes_whoever_waits() -> None:
    pool = replace(share(2, 2, CPU), promised={"b": amounts({CPU: 1})})
    assert passing(pool, queued("b", cpu=1)) == ["b"]
    assert passing(pool, queued("c", cpu=1)) == []
    assert passing(pool, queued("b", cpu=2)) == []  # it has grown since


def test_what_is_promised_within_min_is_counted_for_the_next() -> None:
    pool = replace(share(1, 2, CPU), promised={"b": amounts({CPU: 1})})
    assert passing(pool, queued("b", cpu=1), queued("c", cpu=1)) == ["b"]


def test_what_keeps_a_pod_anyway_is_not_hidden() -> None:
    other = Blocker(PendingReason.OTHER_GATES, "a gate")
    (kept,) = owners_first([queued("b", other, cpu=1)], {POOL: share(2, 2, CPU)}, ())
    assert kept.blocker is other


@given(
    st.integers(0, 4),
    st.integers(0, 4),
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=6),
)
def test_what_passes_stays_within_min_or_takes_nothing_that_is_lacking(
    held: int, least: int, drawn: list[tuple[int, bool]]
) -> None:
    queue = [
        queued(str(number), None, **{"cpu" if is_cpu else "memory": size})
        for number, (size, is_cpu) in enumerate(drawn)
    ]
    passed = {*passing(share(held, least, CPU), *queue)}
    taken = ZERO
    for one in queue:
        asked = ZERO if one.claim is None else one.claim.usage.get(CPU, ZERO)
        fits = Quantity.of_units(held) + taken + asked <= Quantity.of_units(least)
        assert (one.uid in passed) == (fits or asked == ZERO)
        taken += asked if one.uid in passed else ZERO


def test_the_first_pods_that_wait_for_the_pool_alone_are_the_ones() -> None:
    lacking = ({POOL: amounts({CPU: 2})},)
    both, pool = status(FULL, {POOL: 4, MAX: 4}), status(FULL, {POOL: 4, MAX: 0}, 2)
    assert waiting_for_pools([both, pool]) == lacking
    assert waiting_for_pools([*[pool] * 9]) == lacking * 8
    of_both = replace(both, failing=frozenset({POOL, MAX}))
    assert waiting_for_pools([*[of_both] * 9, pool]) == lacking
    assert waiting_for_pools([status(PendingReason.BEHIND, {POOL: 4}), pool]) == lacking
    assert waiting_for_pools([both, status(FULL, {POOL: 0})]) == ()
    assert waiting_for_pools([]) == ()


def test_those_whose_bind_was_refused_hide_none_behind_the_gate() -> None:
    gated = status(FULL, {POOL: 4, MAX: 0}, 2)
    retried = replace(status(FULL, {POOL: 4, MAX: 0}, 3), is_retried=True)
    both = replace(status(FULL, {POOL: 4, MAX: 4}), is_retried=True)
    found = waiting_for_pools([*[both] * 7, retried, gated, retried])
    assert found == ({POOL: amounts({CPU: 3})}, {POOL: amounts({CPU: 2})})


def test_what_a_quota_holds_is_summed_once_however_many_of_its_pods_wait() -> None:
    names = [f"c-{number}" for number in range(3)]
    composite, borrower = a_quota("c", {"cpu": 8}, namespaces=names), a_quota("b", {"cpu": 0})
    summed: list[tuple[str, ...]] = []

    def held(_pool: str, namespaces: Collection[str]) -> ResourceList:
        summed.append(tuple(namespaces))
        return amounts({CPU: 2 * len(namespaces)})

    view = PoolView({**dict.fromkeys(names, composite), "b": borrower}, held, 8)
    account = Account(QuotaRevision(POOL, "u", "h"), amounts({CPU: 8}), {}, {}, {})
    lacking = [{POOL: amounts({CPU: size})} for size in (1, 2, 3)]
    shares = view.shares("b", Ledger({POOL: account}, {}), dict.fromkeys(names, lacking))
    owners = [(one.namespace, one.lacks[CPU]) for one in shares[POOL].owners]
    assert owners == [(name, Quantity.of_units(size)) for name in names for size in (1, 2)]
    assert sorted(summed) == [(), (*names,)]
