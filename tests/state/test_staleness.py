"""A cache that hears nothing of the API server is not believed for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.builders import a_pod, a_quota
from tests.kube.builders import a_cluster
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.fakecluster.storage.watch import FakeWatch
from webhook.kube.api import PODS, RESOURCE_QUOTAS, Kind, Object, ObjectList, UnreachableError
from webhook.kube.informer import InformerTimings
from webhook.kube.informer_types import STALE_SECONDS
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.cluster_view import CachedView
from webhook.state.ledgers import LedgerStore
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.quota_lister import QuotaLister

list_of = list  # a client's method has the name
NS = "team-a"
SOON = 10.0


class RecordingClient(FakeClient):
    """A client that notes what is read, and can lose its way to the API server."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.asked: list[str] = []
        self.is_cut_off = False
        self.is_unwatchable = False
        self.watches: list_of[FakeWatch] = []

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        self._ask(f"get {kind.plural} {namespace}/{name}")
        return super().get(kind, name, namespace=namespace)

    def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        self._ask(f"list {kind.plural} {namespace}")
        return super().list(
            kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector
        )

    def watch(
        self,
        kind: Kind,
        *,
        resource_version: int,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float | None = None,
        bookmarks: bool = True,
    ) -> FakeWatch:
        if self.is_unwatchable:
            raise UnreachableError("no route")
        made = super().watch(
            kind,
            resource_version=resource_version,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_seconds=timeout_seconds,
            bookmarks=bookmarks,
        )
        self.watches.append(made)
        return made

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.is_cut_off:
            raise UnreachableError("no route")


@dataclass
class Scenario:
    """A cluster that is followed, and a clock that a test moves."""

    cluster: FakeCluster = field(default_factory=a_cluster)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.line = RecordingClient(self.cluster)
        timing = InformerTimings(rand=lambda: 0.0, clock=lambda: self.now)
        self.quotas = QuotaCache(self.line, lambda: DEFERRED_KEYS, timing=timing)
        self.view = CachedView(
            self.line,
            LedgerStore(self.line),
            self.quotas,
            NamespaceCache(self.line, timing=timing),
            timing=timing,
        )

    def start(self) -> None:
        for informer in (self.quotas.informer, self.view.pods):
            informer.start()
            assert informer.wait_for_sync(SOON)

    def stop(self) -> None:
        self.quotas.informer.stop()
        self.view.pods.stop()

    def lose_watches(self) -> None:
        """Let all watches end and no new one begin, while requests are answered."""
        self.line.is_unwatchable = True
        for watch in self.line.watches:
            watch.close()
        give_up = time.monotonic() + SOON
        while self.quotas.informer.is_following:
            assert time.monotonic() < give_up, "the watch never ended"
            time.sleep(0.001)

    def hear(self) -> None:
        """Let something happen elsewhere that both watches tell."""
        version = self.cluster.resource_version + 1
        self.line.create(PODS, a_pod(name=f"other-{version}", uid="", namespace="elsewhere"))
        self.line.create(RESOURCE_QUOTAS, a_quota(f"q-{version}", uid="", namespace="elsewhere"))
        for informer in (self.quotas.informer, self.view.pods):
            assert informer.wait_for_version(version, SOON)


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    made = Scenario()
    made.line.create(RESOURCE_QUOTAS, a_quota("p1", uid=""))
    made.line.create(PODS, a_pod(uid=""))
    made.start()
    made.line.asked.clear()
    yield made
    made.stop()


def test_before_the_first_list_nothing_can_be_decided() -> None:
    assert Scenario().view.quotas(NS).errors == ("the quotas have not been listed yet",)


def test_what_was_heard_of_lately_is_believed(scenario: Scenario) -> None:
    scenario.now += STALE_SECONDS
    seen = scenario.view.quotas(NS)
    assert [quota.name for quota in seen.deferred.quotas] == ["p1"]
    assert not scenario.view.pod(NS, "web-1").is_live
    assert scenario.line.asked == []


def test_after_a_long_silence_the_api_server_is_asked(scenario: Scenario) -> None:
    scenario.now += STALE_SECONDS + 1
    seen = scenario.view.quotas(NS)
    assert [quota.name for quota in seen.all_quotas] == ["p1"]
    assert [quota.name for quota in seen.deferred.quotas] == ["p1"]
    assert seen.errors == ()
    assert scenario.view.pod(NS, "web-1").is_live
    assert scenario.line.asked == [f"list resourcequotas {NS}", f"get pods {NS}/web-1"]


def test_an_answer_is_believed_for_some_seconds(scenario: Scenario) -> None:
    scenario.now += STALE_SECONDS + 1
    for _ in range(5):
        scenario.view.quotas(NS)
    scenario.now += 6
    scenario.view.quotas(NS)
    scenario.view.quotas("team-b")
    assert scenario.line.asked == [
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
    scenario.hear()
    assert [quota.name for quota in scenario.view.quotas(NS).all_quotas] == ["p1"]
    assert not scenario.view.pod(NS, "web-1").is_live
    assert scenario.line.asked == []


def test_while_nobody_can_be_asked_nothing_is_decided_and_it_is_said_since_when(
    scenario: Scenario,
) -> None:
    scenario.line.is_cut_off = True
    scenario.now += 240
    seen = scenario.view.quotas(NS)
    assert seen.all_quotas == ()
    (reason,) = seen.errors
    assert reason == (
        "the API server was last heard of 240 seconds ago, and the quotas cannot be listed: "
        "no route"
    )
    with pytest.raises(UnreachableError):
        scenario.view.pod(NS, "web-1")


def test_a_live_quota_that_cannot_be_read_is_told(scenario: Scenario) -> None:
    odd = a_quota("odd", uid="", hard={"requests.cpu": "much"})
    scenario.cluster.load([(RESOURCE_QUOTAS, odd)])
    scenario.now += STALE_SECONDS * 2
    quotas, unreadable = QuotaLister(scenario.line, lambda: scenario.now).of(NS, is_believed=bool)
    assert [quota.name for quota in quotas] == ["p1"]
    (text,) = unreadable
    assert text.startswith("quota odd cannot be read: spec.hard[requests.cpu]: ")


def test_answers_are_not_kept_without_end(scenario: Scenario) -> None:
    live = QuotaLister(scenario.line, lambda: scenario.now)
    for number in range(2500):
        live.of(f"team-{number}", is_believed=bool)
    assert len(live._listed) <= 1000


def test_what_was_derived_for_a_namespace_goes_with_its_quotas(scenario: Scenario) -> None:
    scenario.view.quotas(NS)
    assert set(scenario.quotas._derived) == {NS}
    gone = scenario.line.delete(RESOURCE_QUOTAS, "p1", namespace=NS)
    assert scenario.quotas.informer.wait_for_version(gone.resource_version, SOON)
    assert scenario.view.quotas(NS).all_quotas == ()
    assert scenario.view.quotas("nowhere").all_quotas == ()
    assert scenario.quotas._derived == {}


def test_without_a_watch_the_first_quota_of_a_namespace_is_known_at_once(
    scenario: Scenario,
) -> None:
    assert scenario.quotas.informer.is_following
    scenario.lose_watches()
    assert scenario.view.quotas("team-b").deferred.quotas == ()
    native = a_quota("native", uid="", namespace="team-b", hard={"pods": "1"})
    scenario.line.create(RESOURCE_QUOTAS, native)
    assert scenario.view.quotas("team-b").deferred.quotas == ()
    scenario.line.create(RESOURCE_QUOTAS, a_quota("first", uid="", namespace="team-b"))
    seen = scenario.view.quotas("team-b")  # in the same second: that there was none is not believed
    assert [quota.name for quota in seen.deferred.quotas] == ["first"]
    assert [quota.name for quota in seen.all_quotas] == ["first", "native"]


def test_without_a_watch_and_without_an_answer_nothing_can_be_decided(scenario: Scenario) -> None:
    scenario.lose_watches()
    scenario.line.is_cut_off = True
    (reason,) = scenario.view.quotas(NS).errors
    assert reason.endswith("the quotas cannot be listed: no route")
