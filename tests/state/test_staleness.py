"""A cache that hears nothing of the API server is not believed for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.builders import a_pod, a_quota
from tests.kube.builders import a_cluster
from tests.reactions import Call, Proceed, ReactiveClient, unreachable
from webhook.fakecluster.storage import FakeCluster
from webhook.fakecluster.storage.watch import FakeWatch
from webhook.kube.api import PODS, RESOURCE_QUOTAS, UnreachableError
from webhook.kube.informer import InformerTimings
from webhook.kube.informer_types import STALE_SECONDS
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.cluster_view import CachedView
from webhook.state.ledger_store import LedgerStore
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.quota_lister import QuotaLister
from webhook.state.shared_cache import SharedQuotaCache
from webhook.state.shared_quotas import SharedQuotaStore

NS = "team-a"
SOON = 10.0


@dataclass
class Scenario:
    """A cluster that is followed, and a clock that a test moves."""

    cluster: FakeCluster = field(default_factory=a_cluster)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.client = ReactiveClient(self.cluster)
        self.watches: list[FakeWatch] = []
        self.client.on("watch", "*", self._watch)
        timing = InformerTimings(rand=lambda: 0.0, clock=lambda: self.now)
        shared = SharedQuotaCache(self.client, SharedQuotaStore(self.client), timing=timing)
        self.quotas = QuotaCache(self.client, lambda: DEFERRED_KEYS, shared=shared, timing=timing)
        self.view = CachedView(
            self.client,
            LedgerStore(self.client),
            self.quotas,
            NamespaceCache(self.client, timing=timing),
            timing=timing,
        )
        self.informers = (self.quotas.informer, self.view.pods, shared.informer)

    def start(self) -> None:
        for informer in self.informers:
            informer.start()
            assert informer.wait_for_sync(SOON)

    def stop(self) -> None:
        for informer in self.informers:
            informer.stop()

    def lose_watches(self) -> None:
        """Let all watches end and no new one begin, while requests are answered."""
        self.client.on("watch", "*", unreachable)
        for watch in self.watches:
            watch.close()
        give_up = time.monotonic() + SOON
        while self.quotas.informer.is_following:
            assert time.monotonic() < give_up, "the watch never ended"
            time.sleep(0.001)

    def show_news(self) -> None:
        """Let something happen elsewhere that both watches show."""
        version = self.cluster.resource_version + 1
        self.client.create(PODS, a_pod(name=f"other-{version}", uid="", namespace="elsewhere"))
        self.client.create(RESOURCE_QUOTAS, a_quota(f"q-{version}", uid="", namespace="elsewhere"))
        for informer in (self.quotas.informer, self.view.pods):
            assert informer.wait_for_version(version, SOON)

    def reads(self) -> list[str]:
        """Return the reads of the API server so far, without watches and their lists."""
        reads = ("get", "list")
        return [str(call) for call in self.client.calls if call.verb in reads and call.namespace]

    def _watch(self, _call: Call, proceed: Proceed) -> FakeWatch:
        watch: FakeWatch = proceed()
        self.watches.append(watch)
        return watch


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    made = Scenario()
    made.client.create(RESOURCE_QUOTAS, a_quota("p1", uid=""))
    made.client.create(PODS, a_pod(uid=""))
    made.start()
    made.client.calls.clear()
    yield made
    made.stop()


def test_before_the_first_list_nothing_can_be_decided() -> None:
    assert Scenario().view.quotas(NS).errors == (
        "the quotas have not been listed yet",
        "the shared quotas have not been listed yet",
    )


def test_what_was_heard_of_lately_is_believed(scenario: Scenario) -> None:
    scenario.now += STALE_SECONDS
    seen = scenario.view.quotas(NS)
    assert [quota.name for quota in seen.deferred.quotas] == ["p1"]
    assert not scenario.view.pod(NS, "web-1").is_live
    assert scenario.reads() == []


def test_after_a_long_silence_the_api_server_is_asked(scenario: Scenario) -> None:
    scenario.now += STALE_SECONDS + 1
    seen = scenario.view.quotas(NS)
    assert [quota.name for quota in seen.all_quotas] == ["p1"]
    assert [quota.name for quota in seen.deferred.quotas] == ["p1"]
    assert seen.errors == ()
    assert scenario.view.pod(NS, "web-1").is_live
    assert scenario.reads() == [f"list resourcequotas {NS}", f"get pods {NS}/web-1"]


def test_an_answer_is_believed_for_some_seconds(scenario: Scenario) -> None:
    scenario.now += STALE_SECONDS + 1
    for _ in range(5):
        scenario.view.quotas(NS)
    scenario.now += 6
    scenario.view.quotas(NS)
    scenario.view.quotas("team-b")
    assert scenario.reads() == [
        f"list resourcequotas {NS}",
        f"list resourcequotas {NS}",
        "list resourcequotas team-b",
    ]


def test_live_quotas_are_those_of_the_cache(scenario: Scenario) -> None:
    cached = scenario.view.quotas(NS)
    scenario.now += STALE_SECONDS + 1
    live = scenario.view.quotas(NS)
    assert live is not cached
    assert live.deferred.observed == cached.deferred.observed
    assert live.all_quotas == cached.all_quotas


def test_a_word_of_the_api_server_makes_the_cache_believable_again(scenario: Scenario) -> None:
    scenario.now += STALE_SECONDS + 1
    scenario.show_news()
    assert [quota.name for quota in scenario.view.quotas(NS).all_quotas] == ["p1"]
    assert not scenario.view.pod(NS, "web-1").is_live
    assert scenario.reads() == []


def test_while_no_server_answers_nothing_is_decided_and_it_is_said_since_when(
    scenario: Scenario,
) -> None:
    scenario.client.on("*", "*", unreachable)
    scenario.now += 240
    seen = scenario.view.quotas(NS)
    assert seen.all_quotas == ()
    reason = seen.errors[0]
    assert reason == (
        "the API server was last heard of 240 seconds ago, and the quotas cannot be listed: "
        "no route to the resourcequotas"
    )
    with pytest.raises(UnreachableError):
        scenario.view.pod(NS, "web-1")


def test_a_live_quota_that_cannot_be_read_is_reported(scenario: Scenario) -> None:
    odd = a_quota("odd", uid="", hard={"requests.cpu": "much"})
    scenario.cluster.load([(RESOURCE_QUOTAS, odd)])
    scenario.now += STALE_SECONDS * 2
    quotas, unreadable = QuotaLister(scenario.client, lambda: scenario.now).of(NS, is_believed=bool)
    assert [quota.name for quota in quotas] == ["p1"]
    (text,) = unreadable
    assert text.startswith("quota odd cannot be read: spec.hard[requests.cpu]: ")


def test_quotas_are_read_in_parts_as_tenants_make_them_large(scenario: Scenario) -> None:
    scenario.now += STALE_SECONDS + 1
    scenario.view.quotas(NS)
    assert [call.is_paged for call in scenario.client.calls_of("list") if call.namespace] == [True]


def test_answers_are_not_kept_without_end(scenario: Scenario) -> None:
    live = QuotaLister(scenario.client, lambda: scenario.now)
    namespaces = [f"team-{number}" for number in range(1001)]
    for namespace in (*namespaces, *namespaces[-1:], *namespaces[:1]):
        live.of(namespace, is_believed=lambda _quotas: True)
    listed = [call.namespace for call in scenario.client.calls_of("list") if call.namespace]
    assert listed == [*namespaces, "team-0"]


def test_what_was_derived_for_a_namespace_goes_with_its_quotas(scenario: Scenario) -> None:
    scenario.view.quotas(NS)
    assert len(scenario.quotas) == 1
    gone = scenario.client.delete(RESOURCE_QUOTAS, "p1", namespace=NS)
    assert scenario.quotas.informer.wait_for_version(gone.resource_version, SOON)
    assert scenario.view.quotas(NS).all_quotas == ()
    assert scenario.view.quotas("nowhere").all_quotas == ()
    assert len(scenario.quotas) == 0


def test_without_a_watch_the_first_quota_of_a_namespace_is_known_at_once(
    scenario: Scenario,
) -> None:
    assert scenario.quotas.informer.is_following
    scenario.lose_watches()
    assert scenario.view.quotas("team-b").deferred.quotas == ()
    native = a_quota("native", uid="", namespace="team-b", hard={"pods": "1"})
    scenario.client.create(RESOURCE_QUOTAS, native)
    assert scenario.view.quotas("team-b").deferred.quotas == ()
    scenario.client.create(RESOURCE_QUOTAS, a_quota("first", uid="", namespace="team-b"))
    seen = scenario.view.quotas("team-b")  # in the same second: that there was none is not believed
    assert [quota.name for quota in seen.deferred.quotas] == ["first"]
    assert [quota.name for quota in seen.all_quotas] == ["first", "native"]


def test_without_a_watch_and_without_an_answer_nothing_can_be_decided(scenario: Scenario) -> None:
    scenario.lose_watches()
    scenario.client.on("*", "*", unreachable)
    reason = scenario.view.quotas(NS).errors[0]
    assert reason.endswith("the quotas cannot be listed: no route to the resourcequotas")
