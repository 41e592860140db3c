"""A ledger is one object: what would make it larger than that is held back, with the reason."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.admission.handlers.harness import eventually
from tests.reactions import Hold, ReactiveClient, fail, in_turn
from tests.state.reserving import (
    NS,
    SEEN,
    a_namespace_cluster,
    a_reserver,
    ask,
    claim,
    counted,
    cpu,
    now,
    soon,
)
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import (
    QUOTA_LEDGERS,
    InternalError,
    TooLargeError,
    UnavailableError,
)
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import Claim, ReservationSource, Undecided
from webhook.quota.ledger.ledger_codec import encode_status, written_bytes_of
from webhook.state.batch_decision import LEDGER_FULL, BatchDecider
from webhook.state.group_commit import CommitQueues, PendingClaim
from webhook.state.ledger_store import LedgerStore
from webhook.state.reserver import Outcome, Reserved, Reserver

FULL = Undecided("the quota ledger of namespace team-a holds as much as one object can")


@pytest.fixture
def client() -> ReactiveClient:
    return ReactiveClient(a_namespace_cluster())


def with_room_for(store: LedgerStore, claims: int) -> int:
    """How large the ledger is when it holds some claims, of which the first is made here."""
    assert isinstance(ask(a_reserver(store), "a"), Reserved)
    ledger = now(store)
    one = written_bytes_of(ledger.reservations["a"])
    return len(encode_status(ledger)) + (claims - 1) * one + one // 2


def free(store: LedgerStore, *uids: str) -> None:
    """Take reservations away, as the controller does."""
    version = store.fetch(NS)
    assert version is not None
    assert version.ledger is not None
    ledger = version.ledger
    kept = {uid: one for uid, one in ledger.reservations.items() if uid not in uids}
    store.write(NS, version, type(ledger)(ledger.accounts, kept, serial=ledger.serial))


def test_its_size_is_that_of_what_is_stored(client: ReactiveClient) -> None:
    store = counted(client, hard="99")
    reserver = a_reserver(store)
    for number in range(20):
        before = len(encode_status(now(store)))
        assert isinstance(ask(reserver, f"pod-{number}", "250m"), Reserved)
        ledger = now(store)
        stored = client.get(QUOTA_LEDGERS, "ledger", namespace=NS)["status"]
        assert len(encode_status(ledger)) == len(encode_json(stored))
        grown = written_bytes_of(ledger.reservations[f"pod-{number}"])
        assert abs(len(encode_status(ledger)) - before - grown) < 30  # sums get longer too


def test_the_newest_claims_wait_until_there_is_room_again(client: ReactiveClient) -> None:
    store = counted(client, hard="99")
    reserver = a_reserver(store, decider=BatchDecider(max_bytes=with_room_for(store, 3)))
    assert isinstance(ask(reserver, "b"), Reserved)
    assert isinstance(ask(reserver, "c"), Reserved)
    assert ask(reserver, "d") == FULL
    assert set(now(store).reservations) == {"a", "b", "c"}
    free(store, "a")
    assert isinstance(ask(reserver, "d"), Reserved)


def test_a_pod_that_is_in_the_ledger_needs_no_room(client: ReactiveClient) -> None:
    store = counted(client, hard="99")
    reserver = a_reserver(store, decider=BatchDecider(max_bytes=with_room_for(store, 1)))
    assert ask(reserver, "b") == FULL
    before = now(store).reservations["a"].serial
    assert isinstance(ask(reserver, "a"), Reserved)
    assert now(store).reservations["a"].serial > before


def test_what_does_not_fit_its_quota_is_refused_all_the_same(client: ReactiveClient) -> None:
    store = counted(client, hard="3")
    reserver = a_reserver(store, decider=BatchDecider(max_bytes=with_room_for(store, 1)))
    assert isinstance(ask(reserver, "large", "7"), QuotaExceeded)
    assert ask(reserver, "small", "1") == FULL


def test_of_a_batch_those_are_written_that_fit(client: ReactiveClient) -> None:
    store = counted(client, hard="99")
    queues, held = CommitQueues[PendingClaim](), Hold()
    reserver = a_reserver(
        store, decider=BatchDecider(max_bytes=with_room_for(store, 4)), queues=queues
    )
    client.on("update", QUOTA_LEDGERS, held, times=1)
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(ask, reserver, "f")
        held.wait_for_call()
        rest = [pool.submit(ask, reserver, letter) for letter in "ghijk"]
        queue = queues.of(NS)
        eventually(lambda: len(queue.pending) == 5, "the others wait")
        order = [pending.claim.uid for pending in queue.pending]
        held.release()
        outcomes = [one.result() for one in rest]
        assert isinstance(first.result(), Reserved)
    by_uid = dict(zip("ghijk", outcomes, strict=True))
    assert [isinstance(by_uid[uid], Reserved) for uid in order] == [True, True, False, False, False]
    assert all(by_uid[uid] == FULL for uid in order[2:])
    assert set(now(store).reservations) == {"a", "f", *order[:2]}


def test_reservations_with_many_charges_count_by_their_size(client: ReactiveClient) -> None:
    store = counted(client, hard="99")
    reserver = a_reserver(store, decider=BatchDecider(max_bytes=with_room_for(store, 4)))
    many = {f"requests.example.com/{number}": amount for number in range(20) for amount in [ONE]}
    wide = Claim("wide", "wide", ReservationSource.BIND, {**cpu("1"), **many}, ("q",))
    assert reserver.reserve(NS, wide, SEEN, deadline=soon()) == FULL
    assert isinstance(ask(reserver, "narrow"), Reserved)


(ONE,) = cpu("1").values()
REFUSALS: dict[str, Exception] = {
    "by the API server": TooLargeError("Request entity too large: limit is 3145728"),
    "by etcd": InternalError("etcdserver: request is too large"),
    "by the client of etcd": InternalError(
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max"
    ),
}


@pytest.mark.parametrize("error", REFUSALS.values(), ids=REFUSALS.keys())
def test_an_object_that_is_refused_as_too_large_is_not_sent_again(
    client: ReactiveClient, error: Exception
) -> None:
    store = counted(client, hard="9")
    client.calls.clear()
    with client.on("update", QUOTA_LEDGERS, fail(error)):
        assert ask(a_reserver(store), "a") == FULL
    assert len(client.calls_of("update")) == 1
    assert not now(store).reservations


def test_another_failure_of_the_api_server_is_tried_again(client: ReactiveClient) -> None:
    store = counted(client, hard="9")
    failures = [
        fail(InternalError("Internal error occurred: out of cheese")),
        fail(UnavailableError("etcdserver: request timed out, request is too large")),
    ]
    client.on("update", QUOTA_LEDGERS, in_turn(failures))
    assert isinstance(ask(a_reserver(store), "a"), Reserved)


def test_how_many_reservations_there_may_be_is_asked_at_each_decision(
    client: ReactiveClient,
) -> None:
    capacity = [1]
    reserver = a_reserver(
        counted(client, hard="9"), decider=BatchDecider(capacity=lambda: capacity[0])
    )
    assert isinstance(ask(reserver, "a"), Reserved)
    assert isinstance(ask(reserver, "b"), Undecided)
    capacity[0] = 2
    assert isinstance(ask(reserver, "b"), Reserved)


@pytest.mark.parametrize("source", sorted(set(ReservationSource) - {ReservationSource.BIND}))
def test_the_last_quarter_is_for_binds(client: ReactiveClient, source: ReservationSource) -> None:
    reserver = a_reserver(counted(client, hard="9"), decider=BatchDecider(capacity=lambda: 4))
    for uid in "abc":
        assert isinstance(claim_of(reserver, uid, source), Reserved)
    assert claim_of(reserver, "d", source) == LEDGER_FULL
    assert isinstance(claim_of(reserver, "c", source), Reserved), "which has its place"
    assert isinstance(claim_of(reserver, "d", ReservationSource.BIND), Reserved)
    assert claim_of(reserver, "e", ReservationSource.BIND) == LEDGER_FULL


def test_the_last_quarter_of_an_object_is_for_binds(client: ReactiveClient) -> None:
    store = counted(client, hard="99")
    reserver = a_reserver(store, decider=BatchDecider(max_bytes=with_room_for(store, 12)))
    outcomes = [claim_of(reserver, uid, ReservationSource.RESIZE) for uid in "bcdefghijkl"]
    assert LEDGER_FULL in outcomes
    assert 7 <= len(now(store).reservations) <= 10
    assert isinstance(claim_of(reserver, "z", ReservationSource.BIND), Reserved)


def claim_of(reserver: Reserver, uid: str, source: ReservationSource) -> Outcome:
    return reserver.reserve(NS, replace(claim(uid), source=source), SEEN, deadline=soon())


def test_a_dry_run_says_the_same(client: ReactiveClient) -> None:
    store = counted(client, hard="9")
    reserver = a_reserver(store, decider=BatchDecider(max_bytes=with_room_for(store, 1)))
    assert reserver.dry_run(NS, claim("b"), SEEN) == FULL
