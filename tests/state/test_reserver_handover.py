"""Requests that run out of time keep no other from its outcome."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.reactions import Hold, ReactiveClient
from tests.state.reserving import (
    NS,
    SEEN,
    a_namespace_cluster,
    a_reserver,
    ask,
    claim,
    counted,
    soon,
)
from webhook.kube.api import QUOTA_LEDGERS
from webhook.state.group_commit import DEADLINE_EXCEEDED, CommitQueues, PendingClaim
from webhook.state.reserver import Outcome, Reserved, Reserver


def briefly(reserver: Reserver, uid: str, seconds: float) -> Outcome:
    """Claim one CPU with a short deadline."""
    return reserver.reserve(NS, claim(uid), SEEN, deadline=soon(seconds))


def test_a_request_that_is_out_of_time_decides_for_those_that_wait_behind_it() -> None:
    client, held = ReactiveClient(a_namespace_cluster()), Hold()
    reserver = a_reserver(counted(client, hard="9"))
    client.on("update", QUOTA_LEDGERS, held)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, reserver, "first")
        held.wait_for_call()
        late = pool.submit(briefly, reserver, "late", 0.15)
        assert late.result(10) == DEADLINE_EXCEEDED
        held.release()
        assert isinstance(first.result(10), Reserved)
    assert briefly(reserver, "too late", -1) == DEADLINE_EXCEEDED
    assert isinstance(ask(reserver, "next"), Reserved)


def test_requests_with_short_deadlines_leave_nothing_pending() -> None:
    queues: CommitQueues[PendingClaim] = CommitQueues()
    reserver = a_reserver(counted(ReactiveClient(a_namespace_cluster()), hard="9"), queues=queues)
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(
            pool.map(
                lambda number: briefly(reserver, f"pod-{number % 5}", number % 7 / 4000), range(400)
            )
        )
    reserved = [one for one in outcomes if isinstance(one, Reserved)]
    assert {*outcomes} - {*reserved} <= {DEADLINE_EXCEEDED}
    assert len(queues) == 0
    assert isinstance(ask(reserver, "last"), Reserved)
