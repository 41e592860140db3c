"""A cache that hears nothing of the API server is not believed for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.builders import a_pod, a_quota
from tests.cluster.builders import a_cluster
from webhook.cluster.api import PODS, RESOURCE_QUOTAS, Kind, Object, ObjectList, UnreachableError
from webhook.cluster.informer import Timing
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.cluster.memory.watching import MemoryWatch
from webhook.quota.names import DEFERRED_KEYS
from webhook.state.ledgers import LedgerStore
from webhook.state.live_quotas import LiveQuotas
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.staleness import STALE_SECONDS
from webhook.state.view import CachedView

list_of = list  # a client's method has the name
NS = "team-a"
SOON = 10.0


class Asked(MemoryClient):
    """A client that notes what is read, and can lose its way to the API server."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster)
        self.asked: list[str] = []
        self.is_cut_off = False
        self.is_unwatchable = False
        self.watches: list_of[MemoryWatch] = []

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
    ) -> MemoryWatch:
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
class World:
    """A cluster that is followed, and a clock that a test moves."""

    cluster: MemoryCluster = field(default_factory=a_cluster)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.line = Asked(self.cluster)
        timing = Timing(rand=lambda: 0.0, clock=lambda: self.now)
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
def world() -> Iterator[World]:
    made = World()
    made.line.create(RESOURCE_QUOTAS, a_quota("p1", uid=""))
    made.line.create(PODS, a_pod(uid=""))
    made.start()
    made.line.asked.clear()
    yield made
    made.stop()


def test_before_the_first_list_nothing_can_be_decided() -> None:
    assert World().view.quotas(NS).unreadable == ("the quotas have not been listed yet",)


def test_what_was_heard_of_lately_is_believed(world: World) -> None:
    world.now += STALE_SECONDS
    seen = world.view.quotas(NS)
    assert [quota.name for quota in seen.deferred.quotas] == ["p1"]
    assert not world.view.pod(NS, "web-1").is_live
    assert world.line.asked == []


def test_after_a_long_silence_the_api_server_is_asked(world: World) -> None:
    world.now += STALE_SECONDS + 1
    seen = world.view.quotas(NS)
    assert [quota.name for quota in seen.every] == ["p1"]
    assert [quota.name for quota in seen.deferred.quotas] == ["p1"]
    assert seen.unreadable == ()
    assert world.view.pod(NS, "web-1").is_live
    assert world.line.asked == [f"list resourcequotas {NS}", f"get pods {NS}/web-1"]


def test_an_answer_is_believed_for_some_seconds(world: World) -> None:
    world.now += STALE_SECONDS + 1
    for _ in range(5):
        world.view.quotas(NS)
    world.now += 6
    world.view.quotas(NS)
    world.view.quotas("team-b")
    assert world.line.asked == [
        f"list resourcequotas {NS}",
        f"list resourcequotas {NS}",
        "list resourcequotas team-b",
    ]


def test_live_quotas_are_those_of_the_cache(world: World) -> None:
    cached = world.view.quotas(NS)
    world.now += STALE_SECONDS + 1
    live = world.view.quotas(NS)
    assert live is not cached
    assert live.deferred.observed == cached.deferred.observed
    assert live.every == cached.every


def test_a_word_of_the_api_server_makes_the_cache_believable_again(world: World) -> None:
    world.now += STALE_SECONDS + 1
    world.hear()
    assert [quota.name for quota in world.view.quotas(NS).every] == ["p1"]
    assert not world.view.pod(NS, "web-1").is_live
    assert world.line.asked == []


def test_while_nobody_can_be_asked_nothing_is_decided_and_it_is_said_since_when(
    world: World,
) -> None:
    world.line.is_cut_off = True
    world.now += 240
    seen = world.view.quotas(NS)
    assert seen.every == ()
    (reason,) = seen.unreadable
    assert reason == (
        "the API server was last heard of 240 seconds ago, and the quotas cannot be listed: "
        "no route"
    )
    with pytest.raises(UnreachableError):
        world.view.pod(NS, "web-1")


def test_a_live_quota_that_cannot_be_read_is_told(world: World) -> None:
    odd = a_quota("odd", uid="", hard={"requests.cpu": "much"})
    world.cluster.load([(RESOURCE_QUOTAS, odd)])
    world.now += STALE_SECONDS * 2
    quotas, unreadable = LiveQuotas(world.line, lambda: world.now).of(NS, is_believed=bool)
    assert [quota.name for quota in quotas] == ["p1"]
    (text,) = unreadable
    assert text.startswith("quota odd cannot be read: spec.hard[requests.cpu]: ")


def test_answers_are_not_kept_without_end(world: World) -> None:
    live = LiveQuotas(world.line, lambda: world.now)
    for number in range(2500):
        live.of(f"team-{number}", is_believed=bool)
    assert len(live._listed) <= 1000


def test_what_was_derived_for_a_namespace_goes_with_its_quotas(world: World) -> None:
    world.view.quotas(NS)
    assert set(world.quotas._derived) == {NS}
    gone = world.line.delete(RESOURCE_QUOTAS, "p1", namespace=NS)
    assert world.quotas.informer.wait_for_version(gone.resource_version, SOON)
    assert world.view.quotas(NS).every == ()
    assert world.view.quotas("nowhere").every == ()
    assert world.quotas._derived == {}


def test_without_a_watch_the_first_quota_of_a_namespace_is_known_at_once(world: World) -> None:
    assert world.quotas.informer.is_following
    world.lose_watches()
    assert world.view.quotas("team-b").deferred.quotas == ()
    native = a_quota("native", uid="", namespace="team-b", hard={"pods": "1"})
    world.line.create(RESOURCE_QUOTAS, native)
    assert world.view.quotas("team-b").deferred.quotas == ()
    world.line.create(RESOURCE_QUOTAS, a_quota("first", uid="", namespace="team-b"))
    seen = world.view.quotas("team-b")  # in the same second: that there was none is not believed
    assert [quota.name for quota in seen.deferred.quotas] == ["first"]
    assert [quota.name for quota in seen.every] == ["first", "native"]


def test_without_a_watch_and_without_an_answer_nothing_can_be_decided(world: World) -> None:
    world.lose_watches()
    world.line.is_cut_off = True
    (reason,) = world.view.quotas(NS).unreadable
    assert reason.endswith("the quotas cannot be listed: no route")
