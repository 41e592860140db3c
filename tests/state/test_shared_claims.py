"""Handlers and the quotas that namespaces share: what is written, in which order, what is asked."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.reactions import Call, Proceed, ReactiveClient, lose_answer, preceded_by
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, ConflictError
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, to_text
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import Account, Claim, Ledger, ReservationSource, Undecided
from webhook.quota.shared.grants import Grants, mark_complete, with_headroom, with_raised
from webhook.state.grant_raising import GrantRaiser, look_up_shared
from webhook.state.ledger_store import LedgerStore
from webhook.state.reserver import Outcome, Reserved, Reserver
from webhook.state.shared_quotas import SharedQuotaStore

NS = "team-a"
NAME = "cdq/both"
CPU = "requests.cpu"
_SECONDS = 10.0


def cpu(amount: str) -> ResourceList:
    return {CPU: Quantity.parse(amount)}


class Scenario:
    """A namespace whose ledger has counted a shared quota of 4 cpu, and a handler."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.api = FakeClient(self.cluster)
        self.client = ReactiveClient(self.cluster)
        self.api.create(
            CLUSTER_DEFERRED_QUOTAS,
            {
                "apiVersion": CLUSTER_DEFERRED_QUOTAS.api_version,
                "kind": CLUSTER_DEFERRED_QUOTAS.kind,
                "metadata": {"name": "both"},
                "spec": {"namespaceSelector": {}, "hard": {CPU: "4"}},
            },
        )
        self.quotas = SharedQuotaStore(self.api)
        version = self.quotas.fetch(NAME)
        assert version is not None
        assert version.shared is not None
        (quota,) = deferred_quotas([version.shared.quota.quota], {CPU}).quotas
        self.observed = frozenset({quota.observed})
        grants = mark_complete(with_raised(Grants(), NS, cpu("0")), quota.observed)
        self.quotas.write(version, with_raised(grants, "team-b", cpu("1")))
        ledgers = LedgerStore(self.api)
        made = ledgers.create(NS)
        assert made is not None
        account = Account(quota.observed, cpu("4"), cpu("0"), granted=cpu("0"))
        ledgers.write(NS, made, Ledger({NAME: account}, {}))
        self.store = SharedQuotaStore(self.client)
        self.reserver = Reserver(LedgerStore(self.client), GrantRaiser(self.store))

    def ask(self, uid: str, amount: str) -> Outcome:
        claim = Claim(uid, f"pod-{uid}", ReservationSource.BIND, cpu(amount), (NAME,))
        until = time.monotonic() + 5
        return self.reserver.reserve(NS, claim, self.observed, deadline=until)

    def calls(self) -> list[str]:
        """Return the reads and writes of the handler so far."""
        return [f"{call.verb} {call.kind.plural}" for call in self.client.calls]

    def writes(self) -> list[str]:
        return [call for call in self.calls() if not call.startswith("get")]

    def granted(self) -> dict[str, dict[str, str]]:
        version = self.quotas.fetch(NAME)
        assert version is not None
        assert version.shared is not None
        held = version.shared.grants.namespaces.items()
        return {name: to_text(amounts) for name, amounts in held}

    def ledger(self) -> Ledger:
        version = LedgerStore(self.api).fetch(NS)
        assert version is not None
        assert version.ledger is not None
        return version.ledger

    def elsewhere(self, amount: str) -> None:
        """Let another namespace hold so much."""
        version = self.quotas.fetch(NAME)
        assert version is not None
        assert version.shared is not None
        self.quotas.write(version, with_raised(version.shared.grants, "team-b", cpu(amount)))


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def test_the_quota_is_written_before_the_ledger(scenario: Scenario) -> None:
    assert isinstance(scenario.ask("a", "2"), Reserved)
    assert scenario.writes() == [
        "update clusterdeferredquotas",
        "update quotaledgers",
    ]
    assert scenario.granted() == {NS: {CPU: "2"}, "team-b": {CPU: "1"}}
    assert to_text(scenario.ledger().accounts[NAME].granted) == {CPU: "2"}


def test_what_was_read_and_written_before_is_not_read_again(scenario: Scenario) -> None:
    scenario.ask("a", "1")
    scenario.client.calls.clear()
    assert isinstance(scenario.ask("b", "1"), Reserved)
    assert scenario.calls() == ["update clusterdeferredquotas", "update quotaledgers"]


def test_a_repeated_request_takes_nothing_more_of_the_quota(scenario: Scenario) -> None:
    scenario.ask("a", "1")
    scenario.client.calls.clear()
    assert isinstance(scenario.ask("a", "1"), Reserved)
    assert scenario.calls() == ["get clusterdeferredquotas", "update quotaledgers"]


def test_what_is_granted_already_is_compared_with_what_others_hold_by_now(
    scenario: Scenario,
) -> None:
    """What runs unasked is counted beyond the limit, and the handler has not heard of it."""
    scenario.ask("a", "2")
    account = replace(scenario.ledger().accounts[NAME], reserved={})
    ledgers = LedgerStore(scenario.api)
    version = ledgers.fetch(NS)
    assert version is not None
    ledgers.write(NS, version, Ledger({NAME: account}, {}, serial=9))
    scenario.elsewhere("4")
    assert isinstance(scenario.ask("b", "2"), QuotaExceeded)


def test_a_quota_that_others_write_all_the_time_is_read_once(scenario: Scenario) -> None:
    scenario.ask("a", "2")
    stale = scenario.store.known(NAME)
    assert stale is not None
    scenario.elsewhere("1500m")
    with pytest.raises(ConflictError):
        scenario.store.write(stale, stale.grants)
    assert scenario.store.is_contended(NAME)
    scenario.client.calls.clear()
    look_up_shared(scenario.store, [NAME])
    assert scenario.calls() == ["get clusterdeferredquotas"]


def test_threads_share_a_read_that_began_after_they_came(scenario: Scenario) -> None:
    has_read, may_answer = threading.Event(), threading.Event()

    def answer_late(_call: Call, proceed: Proceed) -> object:
        found = proceed()
        has_read.set()
        assert may_answer.wait(_SECONDS)
        return found

    scenario.client.on("get", CLUSTER_DEFERRED_QUOTAS, answer_late, times=1)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(scenario.store.fetch_together, NAME)
        assert has_read.wait(_SECONDS)
        scenario.elsewhere("3")
        others = [pool.submit(scenario.store.fetch_together, NAME) for _ in range(2)]
        time.sleep(0.1)  # for both to come
        may_answer.set()
        found = [one.result() for one in (first, *others)]
    held = [to_text(one.grants.namespaces["team-b"])[CPU] for one in found if one is not None]
    assert held == ["1", "3", "3"]
    assert len(scenario.calls()) == 2


def test_a_refusal_rests_on_both_as_they_are_now(scenario: Scenario) -> None:
    scenario.ask("a", "1")
    scenario.elsewhere("3")
    scenario.client.calls.clear()
    refusal = scenario.ask("b", "1")
    assert isinstance(refusal, QuotaExceeded)
    assert (to_text(refusal.used), to_text(refusal.limited)) == ({CPU: "4"}, {CPU: "4"})
    assert scenario.granted()[NS] == {CPU: "1"}
    assert set(scenario.ledger().reservations) == {"a"}


def test_what_another_namespace_takes_meanwhile_is_not_given_again(scenario: Scenario) -> None:
    def take(call: Call) -> None:
        assert call.kind == CLUSTER_DEFERRED_QUOTAS
        scenario.elsewhere("3")

    scenario.client.on("update", "*", preceded_by(take), times=1)
    assert isinstance(scenario.ask("a", "2"), QuotaExceeded)
    assert scenario.granted() == {NS: {CPU: "0"}, "team-b": {CPU: "3"}}


def test_a_lost_answer_is_found_out(scenario: Scenario) -> None:
    scenario.client.on("update", CLUSTER_DEFERRED_QUOTAS, lose_answer, times=1)
    assert isinstance(scenario.ask("a", "2"), Reserved)
    assert scenario.granted()[NS] == {CPU: "2"}


def test_a_try_writes_nothing(scenario: Scenario) -> None:
    for amount, kind in (("3", Reserved), ("4", QuotaExceeded)):
        claim = Claim("a", "a", ReservationSource.BIND, cpu(amount), (NAME,))
        assert isinstance(scenario.reserver.dry_run(NS, claim, scenario.observed), kind)
    assert not scenario.writes()


def test_a_try_recalls_nothing_and_says_so(scenario: Scenario) -> None:
    version = scenario.quotas.fetch(NAME)
    assert version is not None
    scenario.quotas.write(version, with_headroom(version.grants, "team-b", cpu("1")))
    claim = Claim("a", "a", ReservationSource.BIND, cpu("4"), (NAME,))
    tried = scenario.reserver.dry_run(NS, claim, scenario.observed)
    assert isinstance(tried, Undecided)
    assert tried.message.endswith("a bind has it recalled")
    assert not scenario.writes()


def test_what_is_denied_all_the_same_is_denied_with_what_is_used(scenario: Scenario) -> None:
    version = scenario.quotas.fetch(NAME)
    assert version is not None
    scenario.quotas.write(version, with_headroom(version.grants, "team-b", cpu("1")))
    refused = scenario.ask("a", "5")
    assert isinstance(refused, QuotaExceeded)
    assert (refused.used, refused.requested) == (cpu("0"), cpu("5"))


def test_before_all_are_counted_nothing_is_decided(scenario: Scenario) -> None:
    version = scenario.quotas.fetch(NAME)
    assert version is not None
    assert version.shared is not None
    scenario.quotas.write(version, replace(version.shared.grants, observed=None, serial=99))
    said = Undecided("usage is being counted for quota: cdq/both")
    assert scenario.ask("a", "1") == said
    claim = Claim("a", "a", ReservationSource.BIND, cpu("1"), (NAME,))
    assert scenario.reserver.dry_run(NS, claim, scenario.observed) == said


def test_a_pod_that_the_quota_is_not_about_does_not_wait_for_it(scenario: Scenario) -> None:
    scenario.api.delete(CLUSTER_DEFERRED_QUOTAS, "both")
    claim = Claim("a", "a", ReservationSource.BIND, cpu("1"), ())
    outcome = scenario.reserver.reserve(NS, claim, scenario.observed, deadline=time.monotonic() + 5)
    assert isinstance(outcome, Reserved)


def test_what_cannot_be_read_is_said(scenario: Scenario) -> None:
    scenario.api.patch(
        CLUSTER_DEFERRED_QUOTAS, "both", {"status": {"namespaces": 3}}, subresource="status"
    )
    said = scenario.ask("a", "1")
    assert said == Undecided(
        "quota cdq/both cannot be read: status.namespaces: must be a list, not a number"
    )
