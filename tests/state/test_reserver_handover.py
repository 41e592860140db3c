"""Requests that run out of time keep no other from its outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import NAMESPACES, Object, Revision
from webhook.kube.kinds import Kind
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.ledger.ledger import (
    Account,
    Claim,
    Ledger,
    QuotaRevision,
    ReservationSource,
)
from webhook.state.group_commit import DEADLINE_EXCEEDED
from webhook.state.ledgers import LedgerStore
from webhook.state.reserver import Outcome, Reserved, Reserver

NS = "team-a"
OBSERVED = QuotaRevision("q", "uid-q", "hash")
ONE_CPU = {"requests.cpu": Quantity.parse("1")}


class BlockingClient(FakeClient):
    """A client whose writes of a status wait for `may_write`."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.writes = threading.Semaphore(0)
        self.may_write = threading.Event()

    def update_status(
        self, kind: Kind, obj: Object, *, is_brief: bool = False, dry_run: bool = False
    ) -> Revision:
        self.writes.release()
        assert self.may_write.wait(10)
        return super().update_status(kind, obj, is_brief=is_brief, dry_run=dry_run)


@pytest.fixture
def client() -> Iterator[BlockingClient]:
    cluster = FakeCluster()
    plain = FakeClient(cluster)
    plain.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
    store = LedgerStore(plain)
    version = store.create(NS)
    assert version is not None
    store.write(NS, version, Ledger({"q": Account(OBSERVED, _cpu("9"), _cpu("0"))}, {}))
    slow = BlockingClient(cluster)
    yield slow
    slow.may_write.set()


def _cpu(text: str) -> dict[str, Quantity]:
    return {"requests.cpu": Quantity.parse(text)}


def ask(reserver: Reserver, uid: str, seconds: float = 10) -> Outcome:
    claim = Claim(uid, uid, ReservationSource.BIND, ONE_CPU, ("q",))
    deadline = time.monotonic() + seconds
    return reserver.reserve(NS, claim, frozenset({OBSERVED}), deadline=deadline)


def test_a_request_that_is_out_of_time_decides_for_those_that_wait_behind_it(
    client: BlockingClient,
) -> None:
    reserver = Reserver(LedgerStore(client))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, reserver, "first")
        assert client.writes.acquire(timeout=10)
        late = pool.submit(ask, reserver, "late", 0.15)
        assert late.result(10) == DEADLINE_EXCEEDED
        client.may_write.set()
        assert isinstance(first.result(10), Reserved)
    assert ask(reserver, "too late", seconds=-1) == DEADLINE_EXCEEDED
    assert isinstance(ask(reserver, "next"), Reserved)


def test_requests_with_short_deadlines_leave_nothing_pending(client: BlockingClient) -> None:
    client.may_write.set()
    reserver = Reserver(LedgerStore(client))
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(
            pool.map(
                lambda number: ask(reserver, f"pod-{number % 5}", number % 7 / 4000), range(400)
            )
        )
    reserved = [one for one in outcomes if isinstance(one, Reserved)]
    assert {*outcomes} - {*reserved} <= {DEADLINE_EXCEEDED}
    assert reserver.busy_namespaces == 0
    assert isinstance(ask(reserver, "last"), Reserved)
