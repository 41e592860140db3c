"""The lead of a lane is handed over once, also to a request that runs out of time just then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

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
    Undecided,
)
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


class NotifyingLock:
    """A lock that calls `left` after each release, on the thread that released it."""

    def __init__(self, lock: threading.Lock, left: Callable[[], None]) -> None:
        self._lock = lock
        self._left = left

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()
        self._left()


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


def test_a_request_that_times_out_while_it_gets_the_lead_breaks_nothing(
    client: BlockingClient,
) -> None:
    store = LedgerStore(client)
    store.fetch(NS)
    reserver = Reserver(store)
    lane = reserver._queues.of(NS)
    late_is_done = threading.Event()
    first_thread = threading.Event()

    def left() -> None:
        is_handing_over = bool(lane.pending) and lane.pending[0].is_leader
        if is_handing_over and threading.current_thread().name.startswith("first"):
            # the one that waits is told that it leads, but not woken yet: its time runs out now
            first_thread.set()
            late_is_done.wait(0.3)

    lane.lock = NotifyingLock(threading.Lock(), left)  # type: ignore[assignment]

    def ask_late() -> Outcome:
        try:
            return ask(reserver, "late", 0.15)
        finally:
            late_is_done.set()

    with (
        ThreadPoolExecutor(1, "first") as first_pool,
        ThreadPoolExecutor(1, "late") as late_pool,
    ):
        first = first_pool.submit(ask, reserver, "first")
        assert client.writes.acquire(timeout=10)
        late = late_pool.submit(ask_late)
        while not lane.pending:
            time.sleep(0.001)
        client.may_write.set()
        assert isinstance(first.result(10), Reserved)
        assert isinstance(late.result(10), Undecided)
    assert first_thread.is_set()
    assert isinstance(ask(reserver, "next"), Reserved)


def test_many_requests_with_short_deadlines_leave_the_lane_idle(client: BlockingClient) -> None:
    client.may_write.set()
    reserver = Reserver(LedgerStore(client))
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(
            pool.map(
                lambda number: ask(reserver, f"pod-{number % 5}", number % 7 / 4000), range(400)
            )
        )
    assert all(isinstance(one, (Reserved, Undecided)) for one in outcomes)
    assert len(reserver._queues) == 0
    assert isinstance(ask(reserver, "last"), Reserved)
