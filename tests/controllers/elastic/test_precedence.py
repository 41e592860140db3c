"""What the leader knows of owners that wait, and when it holds nothing back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.quota.elastic.pools import a_quota
from tests.quota.elastic.waiting import CPU, FULL, POOL, amounts, queued, status
from webhook.config import ElasticSettings
from webhook.controllers.elastic.precedence import OwnersFirst
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.ledger.ledger import Account, Ledger, QuotaRevision
from webhook.quota.queue.queued_pods import PendingReason
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
        self.precedence = OwnersFirst(
            lambda: self.quotas,
            SharedQuotaStore(FakeClient(FakeCluster())),
            ElasticSettings,
            lambda namespace, _seconds: self.requeued.append(namespace),
            lambda: self.epoch,
        )

    def hears(self, namespace: str, *, waits: bool = True) -> None:
        """Take the result of a queue in which one pod waits for the pool, or none."""
        pending = {"x": status(FULL, {POOL: 4})} if waits else {}
        self.precedence.on_queue(namespace, pending, ())

    def holds_back(self, namespace: str = BORROWER) -> bool:
        """Return whether a pod of a namespace without any min is held back."""
        account = Account(QuotaRevision(POOL, "u", "h"), amounts({CPU: 4}), {}, {}, {})
        queue = (queued("b", cpu=1),)
        (found,) = self.precedence.order(namespace, Ledger({POOL: account}, {}), queue)
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


def test_one_that_waits_beyond_its_min_holds_nobody_back(leader: Leader) -> None:
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
