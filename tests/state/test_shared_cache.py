"""Which quotas a namespace shares, by what was heard of the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.admission.handlers.harness import a_namespace, eventually, wait_until_seen
from tests.builders import a_quota
from tests.reactions import ReactiveClient, fail, unreachable
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    NAMESPACES,
    RESOURCE_QUOTAS,
    NotFoundError,
)
from webhook.kube.informer import InformerTimings
from webhook.kube.informer_types import STALE_SECONDS
from webhook.kube.joint_reads import JointReads
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.shared.grants import with_raised
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.namespace_labels import NamespaceLabels
from webhook.state.quota_cache import QuotaCache
from webhook.state.quota_lister import ElasticQuotaLister
from webhook.state.shared_cache import SharedQuotaCache, SharedQuotaView
from webhook.state.shared_quotas import SharedQuotaStore

NS = "team-a"


def shared_quota(name: str = "both", **spec: object) -> dict[str, object]:
    return {
        "apiVersion": CLUSTER_DEFERRED_QUOTAS.api_version,
        "kind": CLUSTER_DEFERRED_QUOTAS.kind,
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "hard": {"requests.cpu": "4"}, **spec},
    }


@dataclass
class Scenario:
    """A cluster that is followed, and a clock that a test moves."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.api = FakeClient(self.cluster)
        self.client = ReactiveClient(self.cluster)
        timing = InformerTimings(rand=lambda: 0.0, clock=lambda: self.now)
        self.namespaces = NamespaceCache(self.client, timing=timing)
        self.store = SharedQuotaStore(self.client)
        self.shared = SharedQuotaCache(self.client, self.store, timing=timing)
        self.quotas = QuotaCache(
            self.client,
            lambda: DEFERRED_KEYS,
            shared=self.shared,
            labels=self.namespaces.labels,
            timing=timing,
        )
        self.informers = (self.namespaces.informer, self.quotas.informer, self.shared.informer)

    def start(self) -> None:
        for informer in self.informers:
            informer.start()
            assert informer.wait_for_sync(30)
            eventually(lambda one=informer: one.is_following, "a watch stands")  # type: ignore[misc]

    def stop(self) -> None:
        for informer in self.informers:
            informer.stop()

    def names(self, namespace: str = NS) -> list[str]:
        seen = self.quotas.up_to_date(namespace)
        assert seen.errors == ()
        return [one.name for one in seen.deferred.quotas]

    def lists(self) -> int:
        """Return how often shared quotas were listed, for a watch or not."""
        return len(self.client.calls_of("list", CLUSTER_DEFERRED_QUOTAS))

    def catch_up(self) -> None:
        wait_until_seen(self.cluster, self.informers)


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    made = Scenario()
    made.api.create(NAMESPACES, a_namespace(NS))
    made.api.create(CLUSTER_DEFERRED_QUOTAS, shared_quota())
    made.api.create(RESOURCE_QUOTAS, a_quota("p1", uid=""))
    made.start()
    yield made
    made.stop()


def test_they_stand_beside_the_quotas_of_the_namespace(scenario: Scenario) -> None:
    assert scenario.names() == ["cdq/both", "p1"]
    assert [one.name for one in scenario.quotas.up_to_date(NS).all_quotas] == ["p1"]


def test_only_where_the_namespace_has_opted_in(scenario: Scenario) -> None:
    scenario.api.create(NAMESPACES, a_namespace("plain", mode=""))
    scenario.catch_up()
    assert [one.name for one in scenario.quotas.in_namespace("plain").deferred.quotas] == []


def test_its_labels_decide(scenario: Scenario) -> None:
    selector = {"matchLabels": {"team": "x"}}
    scenario.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"namespaceSelector": selector}})
    scenario.catch_up()
    assert scenario.names() == ["p1"]
    scenario.api.patch(NAMESPACES, NS, {"metadata": {"labels": {"team": "x"}}})
    scenario.catch_up()
    assert scenario.names() == ["cdq/both", "p1"]
    by_name = {"matchLabels": {"kubernetes.io/metadata.name": NS, "team": "x"}}
    scenario.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"namespaceSelector": by_name}})
    scenario.catch_up()
    assert scenario.names() == ["cdq/both", "p1"]


def test_edits_of_others_are_told_from_those_that_concern_it(scenario: Scenario) -> None:
    others = {"namespaceSelector": {"matchLabels": {"team": "other"}}}
    scenario.api.create(CLUSTER_DEFERRED_QUOTAS, shared_quota("others", **others))
    scenario.catch_up()
    before = scenario.quotas.in_namespace(NS)
    scenario.api.patch(CLUSTER_DEFERRED_QUOTAS, "others", {"spec": {"hard": {"pods": "9"}}})
    scenario.catch_up()
    assert scenario.quotas.in_namespace(NS) is before
    assert scenario.names() == ["cdq/both", "p1"]
    scenario.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "9"}}})
    scenario.catch_up()
    (shared, _) = scenario.quotas.in_namespace(NS).deferred.quotas
    assert shared.hard == {"requests.cpu": Quantity.parse("9")}
    scenario.api.patch(CLUSTER_DEFERRED_QUOTAS, "others", {"spec": {"namespaceSelector": None}})
    scenario.catch_up()
    assert len(scenario.quotas.in_namespace(NS).errors) == 1  # it may select any
    scenario.api.delete(CLUSTER_DEFERRED_QUOTAS, "others")
    scenario.api.delete(CLUSTER_DEFERRED_QUOTAS, "both")
    scenario.catch_up()
    assert scenario.names() == ["p1"]


def test_one_that_is_gone_by_the_time_it_was_selected_is_forgotten(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    selected = scenario.shared.selected

    def meanwhile(labels: Mapping[str, str]) -> SharedQuotaView:
        monkeypatch.undo()
        scenario.api.create(CLUSTER_DEFERRED_QUOTAS, shared_quota("brief"))
        scenario.catch_up()
        found = selected(labels)
        scenario.api.delete(CLUSTER_DEFERRED_QUOTAS, "brief")
        scenario.catch_up()
        return found

    monkeypatch.setattr(scenario.shared, "selected", meanwhile)
    assert "cdq/brief" in scenario.names()
    assert scenario.names() == ["cdq/both", "p1"]


def test_what_is_granted_changes_nothing_of_it(scenario: Scenario) -> None:
    before = scenario.quotas.in_namespace(NS)
    version = scenario.store.fetch("cdq/both")
    assert version is not None
    assert version.shared is not None
    grants = with_raised(version.shared.grants, NS, {"requests.cpu": Quantity.parse("1")})
    scenario.store.write(version, grants)
    scenario.catch_up()
    assert scenario.quotas.in_namespace(NS) is before


def test_before_the_first_list_nothing_can_be_decided() -> None:
    scenario = Scenario()
    scenario.quotas.informer.start()
    assert scenario.quotas.informer.wait_for_sync(30)
    said = scenario.quotas.up_to_date(NS).errors
    scenario.quotas.informer.stop()
    assert "the shared quotas have not been listed yet" in said


def test_where_the_kind_is_not_installed_there_are_none() -> None:
    scenario = Scenario()
    scenario.api.create(NAMESPACES, a_namespace(NS))
    missing = NotFoundError("the server could not find the resource")
    scenario.client.on("list", CLUSTER_DEFERRED_QUOTAS, fail(missing))
    scenario.shared.informer.start()
    eventually(lambda: scenario.shared.is_known, "the kind is not installed")
    assert scenario.shared.staleness_errors() == ()
    scenario.shared.informer.stop()


def test_labels_that_were_not_seen_leave_it_open(scenario: Scenario) -> None:
    said = scenario.quotas.up_to_date("unseen").errors
    assert said == ("the labels of the namespace have not been seen yet",)
    scenario.api.delete(CLUSTER_DEFERRED_QUOTAS, "both")
    scenario.catch_up()
    assert scenario.quotas.up_to_date("unseen").errors == ()


def test_what_all_namespaces_ask_for_is_read_on_behalf_of_one(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def read(_reads: object, key: str, call: Callable[[], Any], *, namespace: str = "") -> Any:
        asked.append(key or namespace)
        return call()

    monkeypatch.setattr(JointReads, "read", read)
    scenario.quotas.live(NS)
    ElasticQuotaLister(scenario.client).all(NS)
    NamespaceLabels(scenario.client, lambda: 0.0).all(NS)
    scenario.now += STALE_SECONDS + 1
    assert scenario.shared.staleness_errors(NS) == ()
    assert asked == [NS] * 5


def test_after_a_long_silence_the_api_server_is_asked(scenario: Scenario) -> None:
    lists = scenario.lists()
    assert scenario.names() == ["cdq/both", "p1"]
    assert scenario.lists() == lists
    scenario.now += STALE_SECONDS + 1
    assert scenario.names() == ["cdq/both", "p1"]
    assert scenario.names() == ["cdq/both", "p1"]
    assert scenario.lists() == lists + 1
    scenario.now += 10
    scenario.client.on("list", CLUSTER_DEFERRED_QUOTAS, unreachable)
    assert scenario.quotas.up_to_date(NS).errors == (
        "the shared quotas cannot be listed: no route to the clusterdeferredquotas",
    )


def test_one_that_was_not_heard_of_leaves_it_open(scenario: Scenario) -> None:
    scenario.shared.informer.stop()
    scenario.api.create(CLUSTER_DEFERRED_QUOTAS, shared_quota("more"))
    assert scenario.quotas.up_to_date(NS).errors == ("the shared quotas have changed",)


def test_one_that_cannot_be_read_leaves_it_open_for_namespaces_that_it_may_select(
    scenario: Scenario,
) -> None:
    broken = shared_quota("odd", hard=3, namespaceSelector={"matchLabels": {"team": "x"}})
    scenario.api.create(CLUSTER_DEFERRED_QUOTAS, broken)
    scenario.catch_up()
    assert scenario.names() == ["cdq/both", "p1"]
    scenario.api.patch(NAMESPACES, NS, {"metadata": {"labels": {"team": "x"}}})
    scenario.catch_up()
    assert scenario.quotas.up_to_date(NS).errors == (
        "ClusterDeferredQuota odd cannot be read: spec.hard: must be an object, not a number",
    )
