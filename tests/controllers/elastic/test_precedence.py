"""What the leader knows of owners that wait, and when it holds nothing back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quota.elastic.pools import a_quota
from tests.quota.elastic.waiting import CPU, FULL, POOL, amounts, queued, status
from webhook.config import ElasticSettings
from webhook.controllers.elastic.precedence import OwnersFirst
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.ledger.ledger import (
    Account,
    Ledger,
    QuotaRevision,
    Reservation,
    ReservationSource,
)
from webhook.quota.queue.queued_pods import Blocker, PendingReason, QueuedPod
from webhook.state.shared_quotas import SharedQuotaStore

OWNER, BORROWER = "team-a", "team-b"


@dataclass
class Leader:
    """A leader with an owner's and a borrower's namespace; nothing is held of the pool."""

    quotas: dict[str, ElasticQuota] = field(default_factory=dict)
    epoch: int = 1
    requeued: list[str] = field(default_factory=list)
    precedence: OwnersFirst = field(init=False)

    def __post_init__(self) -> None:
        self.api = FakeClient(FakeCluster())
        self.shared = SharedQuotaStore(self.api)
        self.precedence = OwnersFirst(
            lambda: self.quotas,
            self.shared,
            ElasticSettings,
            lambda namespace, _seconds: self.requeued.append(namespace),
            lambda: self.epoch,
        )

    def hears(self, namespace: str, *, waits: bool = True) -> None:
        """Take the result of a queue in which one pod waits for the pool, or none."""
        pending = {"x": status(FULL, {POOL: 4})} if waits else {}
        self.precedence.on_queue(namespace, pending, ())

    def holds_back(
        self, namespace: str = BORROWER, *reservations: Reservation, promised: str = ""
    ) -> bool:
        """Return whether pod b of a namespace without any min is held back.

        Args:
            promised: Uid of a pod to which what b asks for is promised.
        """
        account = Account(QuotaRevision(POOL, "u", "h"), amounts({CPU: 4}), {}, {}, {})
        account = replace(account, promised={promised: amounts({CPU: 1})})
        queue = (queued("b", cpu=1),)
        ledger = Ledger({POOL: account}, {one.uid: one for one in reservations})
        (found,) = self.precedence.order(namespace, ledger, queue)
        return found.blocker is not None


@pytest.fixture
def leader() -> Leader:
    made = Leader()
    made.quotas = {OWNER: a_quota(OWNER, {"cpu": 2}), BORROWER: a_quota(BORROWER, {"cpu": 0})}
    return made


def test_a_borrower_is_held_back_while_an_owner_waits(leader: Leader) -> None:
    assert not leader.holds_back()
    leader.hears(OWNER)
    assert leader.holds_back()
    leader.hears(OWNER, waits=False)
    assert not leader.holds_back()


def test_one_that_is_reserved_for_is_not_held_back_and_one_with_an_intent_is(
    leader: Leader,
) -> None:
    leader.hears(OWNER)
    usage = amounts({CPU: 1})
    made = Reservation("b", "b", ReservationSource.RELEASE, usage, {POOL: usage}, (POOL,), 1)
    assert not leader.holds_back(BORROWER, made)
    intent = replace(made, source=ReservationSource.RESIZE, charges={}, is_intent=True)
    assert leader.holds_back(BORROWER, intent)


def test_one_that_is_promised_what_it_asks_for_is_not_held_back(leader: Leader) -> None:
    leader.hears(OWNER)
    assert leader.holds_back(promised="other")
    assert not leader.holds_back(promised="b")


def test_one_that_waits_beyond_its_min_holds_no_other_back(leader: Leader) -> None:
    leader.quotas[OWNER] = a_quota(OWNER, {"cpu": 0})
    leader.hears(OWNER)
    assert not leader.holds_back()


def test_namespaces_of_one_composite_do_not_hold_each_other_back(leader: Leader) -> None:
    whole = a_quota("c", {"cpu": 2}, namespaces=[OWNER, BORROWER])
    leader.quotas = {OWNER: whole, BORROWER: whole}
    leader.hears(OWNER)
    assert not leader.holds_back()


def test_what_an_earlier_leadership_saw_holds_nothing_back(leader: Leader) -> None:
    leader.hears(OWNER)
    leader.epoch = 2
    assert not leader.holds_back()
    leader.hears(OWNER)
    assert leader.holds_back()


def test_where_there_is_no_elastic_quota_nothing_is_looked_at(leader: Leader) -> None:
    leader.hears("other")
    assert not leader.holds_back()
    leader.hears(OWNER)
    assert not leader.holds_back("other")


def test_a_queue_that_holds_back_is_looked_at_again(leader: Leader) -> None:
    leader.hears(BORROWER)
    assert leader.requeued == []
    held = {"b": status(PendingReason.OWNERS_FIRST, {POOL: 0})}
    leader.precedence.on_queue(BORROWER, held, ())
    assert leader.requeued == [BORROWER]


def _hold(leader: Leader, **held: int) -> None:
    """Let namespaces hold some of the pool."""
    name = POOL.partition("/")[2]
    stored = {
        "apiVersion": CLUSTER_DEFERRED_QUOTAS.api_version,
        "kind": CLUSTER_DEFERRED_QUOTAS.kind,
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "hard": {CPU: "99"}},
    }
    leader.api.create(CLUSTER_DEFERRED_QUOTAS, stored)
    named = [{"name": f"team-{key}", "granted": {CPU: str(cpu)}} for key, cpu in held.items()]
    status = {"status": {"namespaces": named}}
    leader.api.patch(CLUSTER_DEFERRED_QUOTAS, name, status, subresource="status")
    assert leader.shared.fetch(POOL) is not None


def _released(queue: Sequence[QueuedPod]) -> Iterator[int]:
    for one in queue:
        if one.blocker is None:
            assert one.claim is not None
            yield one.claim.usage[CPU].value


@st.composite
def _pools(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, int], list[int]]:
    numbers = st.integers(0, 6)
    least = {name: draw(numbers) for name in "ab"}
    held = {name: draw(numbers) for name in "ab"}
    return least, held, draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))


def _e5_holds(least: Mapping[str, int], held: Mapping[str, int], waiting: Sequence[int]) -> bool:
    """Return whether an owner was entitled; what the borrower's queue may get is asserted."""
    leader = Leader()
    leader.quotas = {f"team-{name}": a_quota(f"team-{name}", {"cpu": least[name]}) for name in "ab"}
    _hold(leader, **held)
    leader.hears(OWNER)  # a pod of 1 cpu waits for the pool alone
    own = amounts({CPU: held["b"]})
    account = Account(QuotaRevision(POOL, "u", "h"), amounts({CPU: 99}), own, {}, own)
    queue = tuple(queued(f"b{number}", cpu=cpu) for number, cpu in enumerate(waiting))
    ordered = leader.precedence.order(BORROWER, Ledger({POOL: account}, {}), queue)
    assert [one.pod.uid for one in ordered] == [one.pod.uid for one in queue]
    is_entitled = held["a"] + 1 <= least["a"]
    given = sum(_released(ordered))
    if is_entitled:
        assert not given or held["b"] + given <= least["b"], "E5: it borrows before the owner"
    else:
        assert given == sum(waiting), "E5: an owner above its min holds others back"
    return is_entitled


@given(_pools())
def test_e5_no_other_quota_borrows_what_a_pod_within_its_min_lacks(
    pools: tuple[dict[str, int], dict[str, int], list[int]],
) -> None:
    _e5_holds(*pools)


BREACHES = {
    "no owner comes first": lambda queue, _shares, _reserved: queue,
    "all others are held back": lambda queue, _shares, _reserved: tuple(
        replace(one, blocker=Blocker(PendingReason.OWNERS_FIRST, "", POOL)) for one in queue
    ),
}


@pytest.mark.parametrize("breach", BREACHES.values(), ids=BREACHES)
def test_a_broken_e5_is_noticed(
    breach: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.controllers.elastic.precedence.owners_first", breach)
    with pytest.raises(AssertionError, match=r"^E5"):
        _try_some()


def _try_some() -> None:
    for a, b in product(range(4), repeat=2):
        _e5_holds({"a": 2, "b": 1}, {"a": a, "b": b}, [1, 1])
