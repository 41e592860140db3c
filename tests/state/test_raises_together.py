"""Namespaces that want more of a shared quota at once: one write of it, the same sums."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.admission.handlers.harness import eventually
from tests.reactions import Call, Hold, Proceed, ReactiveClient, fail
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, QUOTA_LEDGERS, ConflictError, UnavailableError
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, to_text
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import Account, Claim, Ledger, ReservationSource
from webhook.quota.shared.escrow import Raise
from webhook.quota.shared.grants import Grants, Promise, mark_complete, with_promise, with_raised
from webhook.state.grant_raising import GrantRaiser, PendingRaise
from webhook.state.group_commit import CommitQueues
from webhook.state.ledger_store import LedgerStore
from webhook.state.reserver import Outcome, Reserved, Reserver
from webhook.state.shared_quotas import SharedQuotaStore, SharedQuotaVersion

NAME = "cdq/both"
CPU = "requests.cpu"
TEAMS = ("team-a", "team-b", "team-c")
_GROUP_SECONDS = 20.0


def cpu(amount: int) -> ResourceList:
    return {CPU: Quantity.parse(str(amount))}


class Scenario:
    """Three namespaces share 4 cpu, and one handler is asked in all of them."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.api = FakeClient(self.cluster)
        self.client = ReactiveClient(self.cluster)
        made = {
            "apiVersion": CLUSTER_DEFERRED_QUOTAS.api_version,
            "kind": CLUSTER_DEFERRED_QUOTAS.kind,
            "metadata": {"name": "both"},
            "spec": {"namespaceSelector": {}, "hard": {CPU: "4"}},
        }
        self.api.create(CLUSTER_DEFERRED_QUOTAS, made)
        self.quotas = SharedQuotaStore(self.api)
        version = self.version()
        assert version.shared is not None
        (quota,) = deferred_quotas([version.shared.quota.quota], {CPU}).quotas
        self.observed = frozenset({quota.observed})
        grants, ledgers = Grants(), LedgerStore(self.api)
        for team in TEAMS:
            grants = with_raised(grants, team, cpu(0))
            account = Account(quota.observed, cpu(4), cpu(0), granted=cpu(0))
            created = ledgers.create(team)
            assert created is not None
            ledgers.write(team, created, Ledger({NAME: account}, {}))
        self.quotas.write(version, mark_complete(grants, quota.observed))
        self.waiting: CommitQueues[PendingRaise] = CommitQueues()
        self.raiser = GrantRaiser(SharedQuotaStore(self.client), self.waiting)
        self.reserver = Reserver(LedgerStore(self.client), self.raiser)
        for team in TEAMS:  # what is known admits without a read
            assert isinstance(self.ask(team, f"first-{team}", 0), Reserved)
        self.client.calls.clear()

    def version(self) -> SharedQuotaVersion:
        version = self.quotas.fetch(NAME)
        assert version is not None
        return version

    def ask(self, team: str, uid: str, amount: int) -> Outcome:
        claim = Claim(uid, f"pod-{uid}", ReservationSource.BIND, cpu(amount), (NAME,))
        until = time.monotonic() + _GROUP_SECONDS
        return self.reserver.reserve(team, claim, self.observed, deadline=until)

    @contextmanager
    def together(self, asked: Sequence[tuple[str, str, int]]) -> Iterator[list[Future[Outcome]]]:
        """Let these wait for the write of `team-a`, which is on its way; then let it go on."""
        held = Hold()
        self.client.on("update", CLUSTER_DEFERRED_QUOTAS, held, times=1)
        with ThreadPoolExecutor(4) as pool:
            first = pool.submit(self.ask, "team-a", "a", 1)
            held.wait_for_call()
            queue, found = self.waiting.of(NAME), list[Future[Outcome]]()
            for number, one in enumerate(asked, start=1):
                found.append(pool.submit(self.ask, *one))
                eventually(lambda n=number: len(queue.pending) == n, "it waits")  # type: ignore[misc]
            yield found
            held.release()
            assert isinstance(first.result(), Reserved)

    def writes(self) -> list[str]:
        return [call.kind.plural for call in self.client.calls if call.verb == "update"]

    def granted(self) -> dict[str, str]:
        held = self.version().grants.namespaces
        return {name: to_text(amounts)[CPU] for name, amounts in held.items()}

    def elsewhere(self, team: str, amount: int) -> None:
        version = self.version()
        self.quotas.write(version, with_raised(version.grants, team, cpu(amount)))


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def test_threads_that_wait_for_a_quota_share_its_next_write(scenario: Scenario) -> None:
    before = scenario.version().grants.serial
    with scenario.together([("team-b", "b", 1), ("team-c", "c", 1)]) as found:
        pass
    assert all(isinstance(one.result(), Reserved) for one in found)
    assert scenario.writes().count("clusterdeferredquotas") == 2
    assert scenario.writes().count("quotaledgers") == 3
    assert scenario.granted() == dict.fromkeys(TEAMS, "1")
    assert scenario.version().grants.serial == before + 2


def test_each_is_decided_beside_what_those_before_it_were_given(scenario: Scenario) -> None:
    with scenario.together([("team-b", "b", 2), ("team-c", "c", 2)]) as found:
        pass
    taken, refused = (one.result() for one in found)
    assert isinstance(taken, Reserved)
    assert isinstance(refused, QuotaExceeded)
    assert to_text(refused.used) == {CPU: "3"}
    assert scenario.granted() == {"team-a": "1", "team-b": "2", "team-c": "0"}


def test_what_is_promised_to_one_of_them_is_not_given_to_the_others(scenario: Scenario) -> None:
    version = scenario.version()
    promise = Promise("c", "team-c", "pod-c", cpu(2))
    scenario.quotas.write(version, with_promise(version.grants, promise))
    scenario.raiser.store.fetch(NAME)
    with scenario.together([("team-b", "b", 2), ("team-c", "c", 2)]) as found:
        pass
    assert isinstance(found[0].result(), QuotaExceeded)
    assert isinstance(found[1].result(), Reserved)
    assert scenario.granted() == {"team-a": "1", "team-b": "0", "team-c": "2"}


@pytest.mark.parametrize("error", [ConflictError("changed"), UnavailableError("down")])
def test_no_refusal_rests_on_what_was_not_written(scenario: Scenario, error: Exception) -> None:
    with scenario.together([("team-b", "b", 2), ("team-c", "c", 2)]) as found:

        def react(_call: Call, _proceed: Proceed) -> None:
            """Instead of the write for both, what `team-a` held is given back."""
            version = scenario.version()
            held = {**version.grants.namespaces, "team-a": cpu(0)}
            scenario.quotas.write(version, replace(version.grants, namespaces=held, serial=99))
            raise error

        scenario.client.on("update", CLUSTER_DEFERRED_QUOTAS, react, times=1)
    assert [type(one.result()) for one in found] == [Reserved, Reserved]


def test_a_quota_is_not_locked_while_a_ledger_is_written(scenario: Scenario) -> None:
    held = Hold()
    scenario.client.on("update", QUOTA_LEDGERS, held, times=1)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(scenario.ask, "team-a", "a", 1)
        held.wait_for_call()
        assert isinstance(scenario.ask("team-b", "b", 1), Reserved)
        assert not first.done()
        held.release()
        assert isinstance(first.result(), Reserved)


def test_others_go_on_where_the_thread_that_decides_for_them_fails(scenario: Scenario) -> None:
    with scenario.together([("team-b", "b", 1), ("team-c", "c", 1)]) as found:
        scenario.client.on("update", CLUSTER_DEFERRED_QUOTAS, fail(RuntimeError("a bug")), times=1)
    with pytest.raises(RuntimeError, match="a bug"):
        found[0].result()
    assert isinstance(found[1].result(), Reserved)


def test_a_request_that_waits_too_long_is_decided_no_more(scenario: Scenario) -> None:
    raiser, busy = scenario.raiser, threading.Event()

    def decide(_lookups: object) -> dict[str, Raise]:
        assert busy.wait(_GROUP_SECONDS)
        return {}

    def pending(seconds: float, name: str) -> PendingRaise:
        until = time.monotonic() + seconds
        return PendingRaise(name, [NAME], decide, is_fresh=False, deadline=until)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(raiser.carry_out, pending(_GROUP_SECONDS, "team-a"))
        eventually(lambda: len(scenario.waiting) == 1, "it is being decided")
        assert not raiser.carry_out(pending(0.0, "team-b"))
        busy.set()
        assert first.result()
    assert len(scenario.waiting) == 0


def as_one_batch(scenario: Scenario, *wanted: PendingRaise, meanwhile: float = 0.0) -> list[bool]:
    """Carry raises out together; the quota is locked by others for some seconds before."""
    queue, found = scenario.waiting.of(NAME), list[Future[bool]]()
    queue.has_leader = True
    with ThreadPoolExecutor(len(wanted)) as pool:
        with scenario.raiser.store.locked([NAME], until=wanted[-1].deadline) as is_held:
            assert is_held
            for number, one in enumerate(wanted, start=1):
                found.append(pool.submit(scenario.raiser.carry_out, one))
                eventually(lambda n=number: len(queue.pending) == n, "it waits")  # type: ignore[misc]
            scenario.waiting.pass_leadership(queue)
            time.sleep(meanwhile)
        return [one.result() for one in found]


def a_raise(team: str, *names: str, amount: int, seconds: float = _GROUP_SECONDS) -> PendingRaise:
    wanted = {name: Raise(cpu(amount)) for name in names}
    until = time.monotonic() + seconds
    return PendingRaise(team, names, lambda _lookups: wanted, is_fresh=True, deadline=until)


def test_what_waited_past_its_time_is_given_nothing(scenario: Scenario) -> None:
    late = a_raise("team-b", NAME, amount=3, seconds=1.0)
    other = a_raise("team-c", NAME, amount=1)
    assert as_one_batch(scenario, late, other, meanwhile=1.1) == [False, True]
    assert scenario.granted() == {"team-a": "0", "team-b": "0", "team-c": "1"}


def test_a_quota_that_cannot_be_written_stops_those_alone_that_share_it(scenario: Scenario) -> None:
    raw = scenario.api.get(CLUSTER_DEFERRED_QUOTAS, "both")
    scenario.api.create(
        CLUSTER_DEFERRED_QUOTAS,
        {**raw, "metadata": {"name": "another"}},
    )
    another = "cdq/another"
    version = scenario.quotas.fetch(another)
    assert version is not None
    scenario.quotas.write(version, scenario.version().grants)

    def refuse(call: Call, proceed: Proceed) -> object:
        if call.name == "another":
            raise UnavailableError("down")
        return proceed()

    scenario.client.on("update", CLUSTER_DEFERRED_QUOTAS, refuse)
    both = a_raise("team-b", NAME, another, amount=1)
    one = a_raise("team-c", NAME, amount=1)
    assert as_one_batch(scenario, both, one) == [False, True]
    assert scenario.granted()["team-c"] == "1"
