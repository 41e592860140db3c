"""The reserver: group commits, conflicts, lost answers, deadlines; nothing is ever overgiven."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.admission.handlers.harness import eventually
from tests.reactions import (
    Hold,
    Reaction,
    ReactiveClient,
    conflict,
    lose_answer,
    unavailable,
)
from tests.state.reserving import (
    NS,
    OBSERVED,
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
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    QUOTA_LEDGERS,
    UnreachableError,
)
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import (
    GUARDED,
    JUST_OPTED_IN,
    JUST_REGISTERED,
    NO_LEDGER,
    Account,
    Condition,
    Ledger,
    QuotaRevision,
    Undecided,
)
from webhook.state.batch_decision import BatchDecider
from webhook.state.group_commit import CommitQueues, PendingClaim
from webhook.state.ledger_store import LedgerStore, LedgerVersion
from webhook.state.reserver import Outcome, Reserved, ReserverStats


@pytest.fixture
def cluster() -> FakeCluster:
    return a_namespace_cluster()


@pytest.fixture
def client(cluster: FakeCluster) -> ReactiveClient:
    return ReactiveClient(cluster)


def test_what_fits_is_in_the_stored_ledger_before_the_answer(client: ReactiveClient) -> None:
    store = counted(client, hard="2")
    outcome = ask(a_reserver(store), "a")
    assert isinstance(outcome, Reserved)
    stored = LedgerStore(client).fetch(NS)
    assert stored is not None
    assert stored.resource_version == outcome.ledger_version
    assert "a" in now(store).reservations


def test_what_does_not_fit_is_refused_with_numbers_and_nothing_is_written(
    client: ReactiveClient,
) -> None:
    store = counted(client, hard="2", used="2")
    outcome = ask(a_reserver(store), "a")
    assert isinstance(outcome, QuotaExceeded)
    assert outcome.message == (
        "exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=2,"
        " limited: requests.cpu=2"
    )
    assert not now(store).reservations


def test_many_threads_and_replicas_never_give_more_than_there_is(cluster: FakeCluster) -> None:
    store = counted(FakeClient(cluster), hard="50")
    replicas = [a_reserver(LedgerStore(FakeClient(cluster)), attempts=50) for _ in range(3)]

    def work(number: int) -> Outcome:
        return ask(replicas[number % 3], f"pod-{number}")

    with ThreadPoolExecutor(24) as pool:
        outcomes = list(pool.map(work, range(200)))
    reserved = sum(isinstance(one, Reserved) for one in outcomes)
    assert reserved == 50
    assert len(now(store).reservations) == 50
    assert all(isinstance(one, (Reserved, QuotaExceeded)) for one in outcomes)


def test_requests_that_arrive_together_are_written_together(client: ReactiveClient) -> None:
    store = counted(client, hard="100")
    batches: list[int] = []
    held = Hold()
    client.on("update", QUOTA_LEDGERS, held, times=1)
    stats, queues = ReserverStats(batch_written=batches.append), CommitQueues[PendingClaim]()
    reserver = a_reserver(store, stats=stats, queues=queues)
    with ThreadPoolExecutor(21) as pool:
        first = pool.submit(ask, reserver, "first")
        held.wait_for_call()
        rest = [pool.submit(ask, reserver, f"pod-{number}") for number in range(20)]
        eventually(lambda: len(queues.of(NS).pending) == 20, "the others wait")
        held.release()
        assert all(isinstance(one.result(), Reserved) for one in [first, *rest])
    assert batches == [1, 20]


def test_a_conflict_is_decided_again_on_what_is_stored_then(client: ReactiveClient) -> None:
    store = counted(client, hard="1")
    mine, other = a_reserver(store), a_reserver(LedgerStore(client))
    store.fetch(NS)
    assert isinstance(ask(other, "theirs"), Reserved)
    outcome = ask(mine, "mine")
    assert isinstance(outcome, QuotaExceeded)


def test_an_admission_on_a_known_ledger_reads_nothing(client: ReactiveClient) -> None:
    reserver = a_reserver(counted(client, hard="9"))
    ask(reserver, "a")
    client.calls.clear()
    assert isinstance(ask(reserver, "b"), Reserved)
    assert client.calls_of("get") == []


def test_a_refusal_rests_on_a_ledger_that_was_just_read(client: ReactiveClient) -> None:
    store = counted(client, hard="1")
    reserver = a_reserver(store)
    assert isinstance(ask(reserver, "a"), Reserved)
    elsewhere = LedgerStore(client)
    version = elsewhere.fetch(NS)
    assert version is not None
    elsewhere.write(NS, version, Ledger({"q": Account(OBSERVED, cpu("5"), cpu("0"))}, {}))
    assert isinstance(ask(reserver, "b"), Reserved)


@pytest.mark.parametrize("fault", [lose_answer, unavailable])
def test_a_write_of_unknown_fate_is_charged_once(client: ReactiveClient, fault: Reaction) -> None:
    store = counted(client, hard="1")
    client.on("update", QUOTA_LEDGERS, fault, times=1)
    assert isinstance(ask(a_reserver(store), "a"), Reserved)
    assert now(store).accounts["q"].reserved == cpu("1")


def test_endless_conflicts_end_undecided_and_reserve_nothing(client: ReactiveClient) -> None:
    store = counted(client, hard="1")
    client.on("update", QUOTA_LEDGERS, conflict)
    conflicts: list[None] = []
    stats = ReserverStats(conflicted=lambda: conflicts.append(None))
    reserver = a_reserver(store, attempts=4, stats=stats, sleep=lambda _seconds: None)
    assert ask(reserver, "a") == Undecided("the quota ledger is busy")
    assert len(conflicts) == 4
    assert not now(store).reservations


def test_the_wait_of_each_claim_is_measured_once(client: ReactiveClient) -> None:
    waits: list[float] = []
    reserver = a_reserver(counted(client, hard="9"), stats=ReserverStats(waited=waits.append))
    for uid in ("a", "b", "b"):
        assert isinstance(ask(reserver, uid), Reserved)
    assert len(waits) == 3
    assert all(seconds >= 0 for seconds in waits)


def test_time_that_runs_out_ends_undecided(client: ReactiveClient) -> None:
    reserver = a_reserver(counted(client, hard="1"))
    outcome = reserver.reserve(NS, claim("a"), SEEN, deadline=time.monotonic() - 1)
    assert isinstance(outcome, Undecided)
    assert "time ran out" in outcome.message


def test_a_request_that_waits_too_long_leaves_the_queue(client: ReactiveClient) -> None:
    store = counted(client, hard="9")
    held = Hold()
    client.on("update", QUOTA_LEDGERS, held, times=1)
    reserver = a_reserver(store)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, reserver, "first")
        held.wait_for_call()
        late = reserver.reserve(NS, claim("late"), SEEN, deadline=soon(0.05))
        held.release()
        assert isinstance(first.result(), Reserved)
    assert isinstance(late, Undecided)
    assert set(now(store).reservations) == {"first"}
    assert isinstance(ask(reserver, "next"), Reserved)


def test_without_a_ledger_nothing_is_decided(client: ReactiveClient) -> None:
    outcome = ask(a_reserver(LedgerStore(client)), "a")
    assert outcome == Undecided("the quota ledger of this namespace is not there yet")


def test_a_quota_in_another_state_than_counted_holds_decisions_up(
    client: ReactiveClient,
) -> None:
    reserver = a_reserver(counted(client, hard="1"))
    other = frozenset({QuotaRevision("q", "uid-q", "edited")})
    outcome = reserver.reserve(NS, claim("a"), other, deadline=soon())
    assert outcome == Undecided("usage is being counted for quota: q")


def test_a_full_ledger_takes_no_new_pod_and_still_knows_the_old(client: ReactiveClient) -> None:
    reserver = a_reserver(counted(client, hard="9"), decider=BatchDecider(capacity=lambda: 1))
    assert isinstance(ask(reserver, "a"), Reserved)
    assert isinstance(ask(reserver, "b"), Undecided)
    assert isinstance(ask(reserver, "a"), Reserved)


def test_a_ledger_that_cannot_be_read_holds_decisions_up_and_names_the_field(
    client: ReactiveClient, cluster: FakeCluster
) -> None:
    store = counted(client, hard="1")
    patch: Mapping[str, object] = {"status": {"podsResourceVersion": "soon"}}
    FakeClient(cluster).patch(QUOTA_LEDGERS, "ledger", patch, namespace=NS, subresource="status")
    outcome = ask(a_reserver(store), "a")
    assert isinstance(outcome, Undecided)
    assert "status.podsResourceVersion" in outcome.message


def test_an_api_server_that_does_not_answer_holds_decisions_up(client: ReactiveClient) -> None:
    class Deaf(LedgerStore):
        def fetch(self, namespace: str) -> LedgerVersion | None:
            raise UnreachableError(f"no route to the ledger of {namespace}")

    outcome = ask(a_reserver(Deaf(client)), "a")
    assert outcome == Undecided(
        "the quota ledger cannot be reached: no route to the ledger of team-a"
    )


def test_a_dry_run_decides_the_same_and_writes_nothing(client: ReactiveClient) -> None:
    store = counted(client, hard="1")
    reserver = a_reserver(store)
    before = store.fetch(NS)
    assert isinstance(reserver.dry_run(NS, claim("a"), SEEN), Reserved)
    assert isinstance(reserver.dry_run(NS, claim("a", "2"), SEEN), QuotaExceeded)
    assert store.fetch(NS) == before


def test_what_claims_nothing_is_contradicted_by_a_ledger_that_counts_other_quotas(
    client: ReactiveClient,
) -> None:
    store = counted(client, hard="1")
    other = frozenset({QuotaRevision("q", "uid-q", "another hash")})
    reserver = a_reserver(store)
    said = Undecided("usage is being counted for quota: q")
    client.calls.clear()
    assert reserver.verify_uncharged(NS, frozenset()) == said
    assert reserver.verify_uncharged(NS, other) == said
    assert reserver.verify_uncharged(NS, SEEN) is None
    assert len(client.calls_of("get")) == 3  # what was heard of the ledger may be old


def test_without_ledger_only_quotas_that_are_known_contradict(client: ReactiveClient) -> None:
    store = LedgerStore(client)
    for _ in range(2):  # no object, then one in which nothing is counted
        assert a_reserver(store).verify_uncharged(NS, frozenset()) is None
        assert a_reserver(store).verify_uncharged(NS, SEEN) == NO_LEDGER
        store.create(NS)


def test_a_ledger_without_quotas_contradicts_only_a_cache_that_knows_some(
    client: ReactiveClient,
) -> None:
    store = LedgerStore(client)
    version = store.create(NS)
    assert version is not None
    store.write(NS, version, Ledger({}, {}))
    assert a_reserver(store).verify_uncharged(NS, frozenset()) is None
    assert isinstance(a_reserver(store).verify_uncharged(NS, SEEN), Undecided)


def test_a_fault_of_the_store_reaches_its_own_request_and_releases_the_others(
    client: ReactiveClient,
) -> None:
    class Broken(LedgerStore):
        def fetch(self, namespace: str) -> LedgerVersion | None:
            raise RuntimeError(namespace)

    reserver = a_reserver(Broken(client))
    for _ in range(2):  # the second finds an idle lane, not one that is busy for ever
        with pytest.raises(RuntimeError):
            ask(reserver, "a")


class Looked(tuple[Condition, ...]):  # noqa: SLOT001 - it counts
    """Conditions that count how often they are looked through."""

    looks = 0

    def __iter__(self) -> Iterator[Condition]:
        self.looks += 1
        return super().__iter__()


def test_conditions_are_looked_through_once_for_all_claims_of_a_batch() -> None:
    account = Account(OBSERVED, cpu("9"), cpu("0"))
    decider = BatchDecider(guard_uid=lambda: "uid")
    looks = []
    for number in (1, 20):
        conditions = Looked([Condition(GUARDED, "True", "Registered", "former")])
        ledger = Ledger({"q": account}, {}, conditions=conditions)
        claims = [PendingClaim(claim(str(one)), SEEN, soon()) for one in range(number)]
        decision = decider.decide(NS, ledger, claims, {})
        assert decision.verdicts == [JUST_REGISTERED] * number
        looks.append(conditions.looks)
    assert looks == [1, 1]


@pytest.mark.parametrize(("opted_in_at", "is_decided"), [(0, True), (7, True), (8, False)])
def test_a_ledger_from_before_the_namespace_opted_in_decides_nothing(
    client: ReactiveClient, opted_in_at: int, is_decided: bool
) -> None:
    store = counted(client, hard="1")
    version = store.fetch(NS)
    assert version is not None
    assert version.ledger is not None
    store.write(NS, version, replace(version.ledger, pods_resource_version=7))
    reserver = a_reserver(store, decider=BatchDecider(opted_in_at=lambda _namespace: opted_in_at))
    fitting, other = ask(reserver, "a"), ask(reserver, "b", "2")
    tried = reserver.dry_run(NS, claim("c", "2"), SEEN)
    if is_decided:
        assert isinstance(fitting, Reserved)
        assert isinstance(other, QuotaExceeded)
        assert isinstance(tried, QuotaExceeded)
    else:
        assert {fitting, other, tried} == {JUST_OPTED_IN}
        assert not now(store).reservations
