"""Doors and the quotas that namespaces share: what is written, in which order, what is asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from webhook.cluster.api import CLUSTER_DEFERRED_QUOTAS, Object, Revision, UnreachableError
from webhook.cluster.kinds import Kind
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.quota.deferral import deferred_quotas
from webhook.quota.grants import Grants, completed, raised
from webhook.quota.ledger import Account, Claim, Door, Ledger, Undecided
from webhook.quota.quantity import Quantity
from webhook.quota.refusals import QuotaExceeded
from webhook.quota.resources import ResourceList, to_text
from webhook.state.ledgers import LedgerStore
from webhook.state.reserver import Outcome, Reserved, Reserver
from webhook.state.shared_quotas import SharedQuotaStore

NS = "team-a"
NAME = "cdq/both"
CPU = "requests.cpu"


def cpu(amount: str) -> ResourceList:
    return {CPU: Quantity.parse(amount)}


class Told(MemoryClient):
    """A client that takes down its calls, and may lose the answer of the next status write."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster)
        self.calls: list[str] = []
        self.loses: str = ""
        self.before: Callable[[str], None] = lambda _call: None

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        self.calls.append(f"get {kind.plural}")
        return super().get(kind, name, namespace=namespace)

    def update_status(
        self, kind: Kind, obj: Object, *, is_brief: bool = False, dry_run: bool = False
    ) -> Revision:
        call = f"write {kind.plural}"
        self.calls.append(call)
        self.before(call)
        written = super().update_status(kind, obj, is_brief=is_brief, dry_run=dry_run)
        if self.loses == kind.plural:
            self.loses = ""
            raise UnreachableError("the answer is lost")
        return written


class Scene:
    """A namespace whose ledger has counted a shared quota of 4 cpu, and a door."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.api = MemoryClient(self.cluster)
        self.line = Told(self.cluster)
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
        grants = completed(raised(Grants(), NS, cpu("0")), quota.observed)
        self.quotas.write(version, raised(grants, "team-b", cpu("1")))
        ledgers = LedgerStore(self.api)
        made = ledgers.create(NS)
        assert made is not None
        account = Account(quota.observed, cpu("4"), cpu("0"), granted=cpu("0"))
        ledgers.write(NS, made, Ledger({NAME: account}, {}))
        self.store = SharedQuotaStore(self.line)
        self.door = Reserver(LedgerStore(self.line), shared=self.store)

    def ask(self, uid: str, amount: str, door: Reserver | None = None) -> Outcome:
        claim = Claim(uid, f"pod-{uid}", Door.BIND, cpu(amount), (NAME,))
        until = time.monotonic() + 5
        return (door or self.door).reserve(NS, claim, self.observed, deadline=until)

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
        self.quotas.write(version, raised(version.shared.grants, "team-b", cpu(amount)))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_quota_is_written_before_the_ledger(scene: Scene) -> None:
    assert isinstance(scene.ask("a", "2"), Reserved)
    assert [call for call in scene.line.calls if call.startswith("write")] == [
        "write clusterdeferredquotas",
        "write quotaledgers",
    ]
    assert scene.granted() == {NS: {CPU: "2"}, "team-b": {CPU: "1"}}
    assert to_text(scene.ledger().accounts[NAME].granted) == {CPU: "2"}


def test_what_was_read_and_written_before_is_not_read_again(scene: Scene) -> None:
    scene.ask("a", "1")
    scene.line.calls.clear()
    assert isinstance(scene.ask("b", "1"), Reserved)
    assert scene.line.calls == ["write clusterdeferredquotas", "write quotaledgers"]


def test_a_repeated_request_takes_nothing_more_of_the_quota(scene: Scene) -> None:
    scene.ask("a", "1")
    scene.line.calls.clear()
    assert isinstance(scene.ask("a", "1"), Reserved)
    assert scene.line.calls == ["write quotaledgers"]


def test_a_refusal_rests_on_both_as_they_are_now(scene: Scene) -> None:
    scene.ask("a", "1")
    scene.elsewhere("3")
    scene.line.calls.clear()
    refusal = scene.ask("b", "1")
    assert isinstance(refusal, QuotaExceeded)
    assert (to_text(refusal.used), to_text(refusal.limited)) == ({CPU: "4"}, {CPU: "4"})
    assert scene.granted()[NS] == {CPU: "1"}
    assert set(scene.ledger().reservations) == {"a"}


def test_what_another_namespace_takes_meanwhile_is_not_given_again(scene: Scene) -> None:
    def take(call: str) -> None:
        scene.line.before = lambda _call: None
        assert call == "write clusterdeferredquotas"
        scene.elsewhere("3")

    scene.line.before = take
    assert isinstance(scene.ask("a", "2"), QuotaExceeded)
    assert scene.granted() == {NS: {CPU: "0"}, "team-b": {CPU: "3"}}


def test_a_lost_answer_is_found_out(scene: Scene) -> None:
    scene.line.loses = "clusterdeferredquotas"
    assert isinstance(scene.ask("a", "2"), Reserved)
    assert scene.granted()[NS] == {CPU: "2"}


def test_a_try_writes_nothing(scene: Scene) -> None:
    for amount, kind in (("3", Reserved), ("4", QuotaExceeded)):
        claim = Claim("a", "a", Door.BIND, cpu(amount), (NAME,))
        assert isinstance(scene.door.try_out(NS, claim, scene.observed), kind)
    assert not [call for call in scene.line.calls if call.startswith("write")]


def test_before_all_are_counted_nothing_is_decided(scene: Scene) -> None:
    version = scene.quotas.fetch(NAME)
    assert version is not None
    assert version.shared is not None
    scene.quotas.write(version, replace(version.shared.grants, observed=None, serial=99))
    said = Undecided("usage is being counted for quota: cdq/both")
    assert scene.ask("a", "1") == said
    claim = Claim("a", "a", Door.BIND, cpu("1"), (NAME,))
    assert scene.door.try_out(NS, claim, scene.observed) == said


def test_a_pod_that_the_quota_is_not_about_does_not_wait_for_it(scene: Scene) -> None:
    scene.api.delete(CLUSTER_DEFERRED_QUOTAS, "both")
    claim = Claim("a", "a", Door.BIND, cpu("1"), ())
    outcome = scene.door.reserve(NS, claim, scene.observed, deadline=time.monotonic() + 5)
    assert isinstance(outcome, Reserved)


def test_without_a_way_to_it_nothing_is_decided(scene: Scene) -> None:
    door = Reserver(LedgerStore(scene.line))
    assert isinstance(scene.ask("a", "1", door), Undecided)


def test_what_cannot_be_read_is_said(scene: Scene) -> None:
    scene.api.patch(
        CLUSTER_DEFERRED_QUOTAS, "both", {"status": {"namespaces": 3}}, subresource="status"
    )
    said = scene.ask("a", "1")
    assert said == Undecided(
        "quota cdq/both cannot be read: status.namespaces: must be a list, not a number"
    )
