"""Pods that wait behind others of their queue for elastic quotas, and for nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from tests.quota.elastic.waiting import CPU, MEMORY, NOON, POOL, amounts, claim
from webhook.quota.amounts.resources import ResourceList, add
from webhook.quota.elastic.owners_first import waiting_for_elastic
from webhook.quota.ledger.ledger import Account, Ledger, QuotaRevision
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import (
    CycleResult,
    PendingReason,
    QueuedPod,
    QueueingStrategy,
    QueuePolicy,
)
from webhook.quota.queue.release_order import run_cycle

OTHER_POOL, OWN = "cdq/epool.default.gpu", "compute"
HARD = 8


def a_pod(
    uid: str, cpu: int = 1, *quotas: str, memory: int = 0, is_retried: bool = False
) -> QueuedPod:
    pod = Pod.from_object({"metadata": {"name": uid, "uid": uid}})
    names = quotas or (POOL,)
    usage = {CPU: cpu, MEMORY: memory}
    asked = claim(uid, {name: amount for name, amount in usage.items() if amount}, *names)
    return QueuedPod(pod, (0, NOON, 0, uid), asked, names, is_retried=is_retried)


def cycle(
    queue: Collection[QueuedPod],
    promised: Collection[str] = (),
    used: Mapping[str, int] | None = None,
    room: int = 9,
    order: QueueingStrategy = QueueingStrategy.STRICT,
) -> CycleResult:
    """Run a queue; what is used besides the promises is all that there is unless given."""
    claims = {one.uid: one.claim for one in queue}
    accounts = {}
    for name in (POOL, OTHER_POOL, OWN):
        cpu = (used or {}).get(name, HARD)
        promises = {
            uid: asked.usage
            for uid in promised
            if (asked := claims[uid]) and name in asked.quotas and name != OWN
        }
        total: ResourceList = {}
        for usage in promises.values():
            total = add(total, usage)
        accounts[name] = Account(
            QuotaRevision(name, "u", "h"),
            amounts({CPU: HARD, MEMORY: HARD}),
            amounts({CPU: cpu, MEMORY: HARD}),
            used_elsewhere=total,
            promised=promises,
            unheld=total,
        )
    return run_cycle(Ledger(accounts, {}), queue, QueuePolicy(order=order), room=room)


def waiting(*queue: QueuedPod, promised: Collection[str] = ()) -> dict[str, str]:
    """Return which pods are planned for, and behind which of them each waits."""
    found = waiting_for_elastic(cycle(queue, promised).pending)
    return {uid: " ".join(sorted(behind)) for uid, behind in found.items()}


def test_those_behind_the_first_are_planned_for_after_it() -> None:
    assert waiting(*[a_pod(f"a{number}") for number in range(3)]) == {
        "a0": "",
        "a1": "a0",
        "a2": "a0 a1",
    }
    assert [*waiting(*[a_pod(f"a{number}") for number in range(9)])] == [
        f"a{number}" for number in range(8)
    ]


def test_none_is_behind_a_pod_that_waits_for_a_quota_of_its_own_too() -> None:
    full = a_pod("x", 1, POOL, OWN)
    assert waiting(a_pod("a0"), full, a_pod("a1")) == {"a0": ""}
    assert waiting(a_pod("a0"), a_pod("x", 1, OWN), a_pod("a1")) == {"a0": "", "a1": "a0"}
    assert waiting(full, a_pod("a0")) == {}


def test_one_that_lacks_elastic_quota_once_the_first_has_its_own_is_behind_it() -> None:
    queue = [a_pod("a0", 2), a_pod("a1", 1), a_pod("a2", 2)]
    pending = cycle(queue, used={POOL: HARD - 1}).pending
    assert pending["a1"].denials == ()
    assert [*waiting_for_elastic(pending)] == ["a0", "a1", "a2"]


def test_none_is_behind_a_pod_that_lacks_nothing() -> None:
    """It needs no promise, and may lack something, and have no plan, once others have theirs."""
    queue = [a_pod("a0", 1, memory=1), a_pod("a1"), a_pod("a2", 2)]
    pending = cycle(queue, used={POOL: HARD - 2}).pending
    assert pending["a1"].reason is PendingReason.BEHIND
    assert waiting_for_elastic(pending) == {"a0": frozenset()}


def test_one_that_does_not_fit_a_quota_of_its_own_beside_the_first_is_not_behind_it() -> None:
    queue = [a_pod(f"a{number}", 1, POOL, OWN) for number in range(4)]
    pending = cycle(queue, used={POOL: HARD, OWN: HARD - 2}).pending
    assert [*waiting_for_elastic(pending)] == ["a0", "a1"]


def test_one_that_has_its_room_by_now_is_still_behind_the_first() -> None:
    queue = [a_pod("a0", 1, memory=1), a_pod("a1"), a_pod("a2")]
    pending = cycle(queue, ["a0", "a1"], {POOL: HARD - 2}).pending
    assert pending["a1"].reason is PendingReason.BEHIND
    assert pending["a1"].denials == ()
    assert [*waiting_for_elastic(pending)] == ["a0", "a1", "a2"]


def test_one_behind_another_is_behind_those_before_that() -> None:
    queue = [a_pod("a0"), a_pod("a1", 1, POOL, OTHER_POOL), a_pod("a2", 1, OTHER_POOL)]
    assert waiting(*queue)["a2"] == "a0 a1"


def test_those_whose_bind_was_refused_hold_none_and_are_behind_none() -> None:
    retried = a_pod("r", is_retried=True)
    assert waiting(retried, a_pod("a0"), a_pod("a1")) == {"r": "", "a0": "", "a1": "a0"}
    assert waiting(a_pod("a0"), retried, a_pod("a1")) == {"a0": "", "a1": "a0"}


def test_none_is_behind_a_pod_for_which_the_ledger_has_no_room() -> None:
    queue = [a_pod("a0", 1, OTHER_POOL), a_pod("x"), a_pod("a1", 1, POOL, OTHER_POOL)]
    pending = cycle(queue, used={POOL: 0}, room=0).pending
    assert waiting_for_elastic(pending) == {"a0": frozenset()}


def test_none_is_planned_for_that_does_not_fit_its_own_quota_beside_one_with_a_promise() -> None:
    """With `BestEffortFIFO` none of them is behind another, and each fits alone."""
    queue = [a_pod("a0", 1, POOL, OWN), a_pod("a1", 1, POOL, OWN), a_pod("a2")]
    for own, promised, planned in (
        (HARD - 1, [], ["a0", "a1", "a2"]),
        (HARD - 1, ["a0"], ["a0", "a2"]),
        (HARD - 1, ["a1"], ["a1", "a2"]),
        (HARD - 2, ["a0"], ["a0", "a1", "a2"]),
    ):
        result = cycle(queue, promised, {POOL: HARD, OWN: own}, order=QueueingStrategy.BEST_EFFORT)
        assert [*waiting_for_elastic(result.pending)] == planned


def test_one_with_a_promise_counts_whether_its_bind_was_refused_or_it_is_far_behind() -> None:
    late = [*[a_pod(f"x{number}") for number in range(8)], a_pod("late", 1, POOL, OWN)]
    for promised, first in (("r", a_pod("r", 1, POOL, OWN, is_retried=True)), ("late", a_pod("b"))):
        queue = [first, a_pod("a0", 1, POOL, OWN), *late]
        used = {POOL: HARD, OWN: HARD - 1}
        result = cycle(queue, [promised], used, order=QueueingStrategy.BEST_EFFORT)
        assert "a0" not in waiting_for_elastic(result.pending)
        without = cycle(queue, [], used, order=QueueingStrategy.BEST_EFFORT)
        assert "a0" in waiting_for_elastic(without.pending)


def names(result: CycleResult) -> list[str]:
    return [one.uid for one in result.released]


def test_what_is_promised_is_not_held_by_a_pod_that_fails_only_by_that() -> None:
    """The first waited for a quota of its own when the second was promised its part of the pool."""
    queue = [a_pod("a0", 1, POOL, OWN), a_pod("a1"), a_pod("a2")]
    free = {POOL: HARD - 1, OWN: 0}
    found = cycle(queue, ["a1"], free)
    assert names(found) == ["a1"]
    assert {uid: (one.reason, one.blocked_by) for uid, one in found.pending.items()} == {
        "a0": (PendingReason.QUOTA_EXCEEDED, ""),
        "a2": (PendingReason.BEHIND, "a0"),
    }
    assert names(cycle(queue, [], free)) == ["a0"]


def test_what_is_promised_is_not_held_by_a_larger_pod_that_came_after() -> None:
    queue = [a_pod("large", HARD), a_pod("a1"), a_pod("a2")]
    assert names(cycle(queue, ["a1"], {POOL: 1})) == ["a1"]
    assert names(cycle(queue, ["a1"], {POOL: HARD})) == []


def test_a_promised_pod_is_held_in_each_other_quota() -> None:
    queue = [a_pod("a0", HARD, OWN), a_pod("a1", 1, POOL, OWN)]
    found = cycle(queue, ["a1"], {POOL: HARD - 1, OWN: 1})
    assert names(found) == []
    assert (found.pending["a1"].reason, found.pending["a1"].quota) == (PendingReason.BEHIND, OWN)


def test_promised_pods_of_a_queue_hold_those_that_were_promised_something_after_them() -> None:
    """The victims of the second have ended, of the first those that hold memory have not."""
    queue = [a_pod("x", HARD), a_pod("a0", 2, memory=1), a_pod("a1")]
    free = {POOL: HARD - 3}
    assert names(cycle(queue, ["a0", "a1"], free)) == []
    assert names(cycle(queue, ["a1", "a0"], free)) == ["a1"]


QUOTAS = st.sets(st.sampled_from([OTHER_POOL, OWN]))


@given(
    st.lists(st.tuples(st.integers(1, 3), QUOTAS), max_size=6),
    st.fixed_dictionaries({name: st.integers(3, HARD) for name in (OTHER_POOL, OWN)}),
    st.data(),
)
def test_each_is_released_once_it_and_those_before_it_have_their_room(
    drawn: list[tuple[int, set[str]]], others: dict[str, int], data: st.DataObject
) -> None:
    used = {POOL: HARD, **others}
    queue = [
        a_pod(f"a{number}", cpu, *sorted({POOL, *quotas}))
        for number, (cpu, quotas) in enumerate(drawn)
    ]
    promised: list[str] = []
    while found := waiting_for_elastic(cycle(queue, promised, used).pending):
        due = [uid for uid in found if found[uid] <= {*promised} and uid not in promised]
        if not due:
            break
        promised.append(data.draw(st.sampled_from(due)))
    takes = {one.uid: drawn[number] for number, one in enumerate(queue)}
    free = {
        name: min(
            used[name],
            HARD - sum(takes[uid][0] for uid in promised if name in takes[uid][1] | {POOL}),
        )
        for name in (POOL, OTHER_POOL)
    }
    released = cycle(queue, promised, {**used, **free}).released
    assert {*promised} <= {one.uid for one in released}
