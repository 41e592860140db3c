"""Many namespaces at once: each is settled soon, by one thread at a time, whatever others do."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.admission.handlers.harness import a_namespace, eventually, new_cluster
from tests.builders import a_binding, a_pod, a_quota
from tests.reactions import Call, ReactiveClient, preceded_by
from webhook.controllers.ledger.controller import LedgerController
from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import NAMESPACES, PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS, UnavailableError
from webhook.quota.amounts.resources import to_text
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.ledger_store import LedgerStore
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_cache import SharedQuotaCache
from webhook.state.shared_quotas import SharedQuotaStore


@dataclass
class ControllerFleet:
    """A running controller over many namespaces, each with a quota and a pod that waits."""

    names: list[str]
    cluster: FakeCluster = field(default_factory=new_cluster)
    slow: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    at_work: Counter[str] = field(default_factory=Counter)
    at_once: int = 0
    hold: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        for name in self.names:
            pod = a_pod(name="web", namespace=name, uid=f"uid-{name}", requests={"cpu": "1"})
            self.cluster.load(
                [
                    (NAMESPACES, a_namespace(name)),
                    (RESOURCE_QUOTAS, a_quota("p1", namespace=name)),
                    (PODS, pod),
                ]
            )
        self.api = FakeClient(self.cluster)
        self.client = ReactiveClient(self.cluster)
        self.client.on("*", QUOTA_LEDGERS, preceded_by(self._before))
        store = SharedQuotaStore(self.client)
        shared = SharedQuotaCache(self.client, store)
        self.quotas = QuotaCache(self.client, lambda: DEFERRED_KEYS, shared=shared)
        self.namespaces = NamespaceCache(self.client)
        self.informers = (self.namespaces.informer, self.quotas.informer, shared.informer)
        self.controller = LedgerController(
            ControllerContext(
                api=self.client, timings=ControllerTimings(write_interval_seconds=0.02)
            ),
            LedgerStore(self.client),
            ManagedNamespaces(quotas=self.quotas, namespaces=self.namespaces),
            shared=store,
        )

    def _before(self, call: Call) -> None:
        namespace = call.namespace
        self.at_work[namespace] += 1
        self.at_once = max(self.at_once, self.at_work[namespace])
        try:
            if namespace in self.slow:
                self.hold.wait(30)
            if namespace in self.failing:
                raise UnavailableError("not now")
        finally:
            self.at_work[namespace] -= 1

    def used(self, name: str) -> str:
        version = LedgerStore(self.api).fetch(name)
        if version is None or version.ledger is None:
            return "nothing"
        return to_text(version.ledger.accounts["p1"].used).get("requests.cpu", "nothing")


@contextmanager
def controller_fleet(count: int) -> Iterator[ControllerFleet]:
    crowd = ControllerFleet([f"team-{number}" for number in range(count)])
    for informer in crowd.informers:
        informer.start()
    crowd.controller.start()
    try:
        eventually(lambda: all(crowd.used(name) == "0" for name in crowd.names), "all are counted")
        yield crowd
    finally:
        crowd.hold.set()
        crowd.controller.stop()
        for informer in crowd.informers:
            informer.stop()


def test_namespaces_are_settled_at_the_same_time_but_never_one_of_them_twice() -> None:
    with controller_fleet(6) as crowd:
        for _ in range(20):
            for name in crowd.names:
                labels = {"metadata": {"labels": {"at": str(time.monotonic())}}}
                crowd.api.patch(PODS, "web", labels, namespace=name)
        for name in crowd.names:
            crowd.api.bind(a_binding("web", namespace=name), namespace=name)
        eventually(lambda: all(crowd.used(name) == "1" for name in crowd.names), "all are settled")
        assert crowd.at_once == 1


def test_slow_and_failing_namespaces_do_not_hold_up_the_others() -> None:
    with controller_fleet(12) as crowd:
        crowd.slow.update(crowd.names[:3])  # one worker of four is left
        crowd.failing.update(crowd.names[3:8])
        for name in crowd.names:
            crowd.api.bind(a_binding("web", namespace=name), namespace=name)
        others = crowd.names[8:]
        eventually(lambda: all(crowd.used(name) == "1" for name in others), "others are settled")
        assert all(crowd.used(name) == "0" for name in crowd.names[:8])
        crowd.failing.clear()
        crowd.slow.clear()
        crowd.hold.set()
        eventually(lambda: all(crowd.used(name) == "1" for name in crowd.names), "all are settled")


def test_a_namespace_where_much_happens_does_not_keep_the_others_waiting() -> None:
    with controller_fleet(8) as crowd:
        stop = threading.Event()

        def be_busy() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                labels = {"metadata": {"labels": {"n": str(number)}}}
                crowd.api.patch(PODS, "web", labels, namespace=crowd.names[0])

        thread = threading.Thread(target=be_busy)
        thread.start()
        try:
            for name in crowd.names[1:]:
                crowd.api.bind(a_binding("web", namespace=name), namespace=name)
            eventually(
                lambda: all(crowd.used(name) == "1" for name in crowd.names[1:]), "all are settled"
            )
        finally:
            stop.set()
            thread.join(10)


def test_what_is_looked_at_does_not_grow_with_the_number_of_namespaces() -> None:
    with controller_fleet(100) as crowd:
        eventually(lambda: crowd.controller.workers.queue.ready_count() == 0, "nothing is due")
        calls = len(crowd.client.calls)
        crowd.api.bind(a_binding("web", namespace="team-7"), namespace="team-7")
        eventually(lambda: crowd.used("team-7") == "1", "it is settled")
        assert len(crowd.client.calls) - calls <= 4
