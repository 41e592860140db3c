"""Controllers with threads and an election of their own: one writes, and another takes over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.admission.handlers.harness import a_namespace, eventually, new_cluster
from tests.builders import a_binding, a_pod, a_quota
from tests.reactions import Call, ReactiveClient, Reactor, preceded_by, unavailable
from webhook.controllers.ledger.controller import LedgerController
from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.election import Election, ElectionTimings
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import LEASES, NAMESPACES, PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS
from webhook.kube.informer import InformerTimings
from webhook.quota.amounts.resources import to_text
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.ledger_store import LedgerStore
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_cache import SharedQuotaCache
from webhook.state.shared_quotas import SharedQuotaStore

NAMES = [f"team-{number}" for number in range(10)]
_QUICK = InformerTimings(first_pause=0.01, longest_pause=0.05)
_LONG = ElectionTimings(lease_seconds=60, renew_seconds=50.0, retry_seconds=0.05)
"""For hand-overs by a word: nothing ends by itself, however busy the machine is."""
_SHORT = ElectionTimings(
    lease_seconds=2, renew_seconds=1.5, retry_seconds=0.05, max_pause_seconds=0.1
)


@dataclass
class Controller:
    """One process: a controller and its election, over a client that can be cut off."""

    name: str
    client: ReactiveClient
    election: Election
    controller: LedgerController
    writes: list[str]

    def cut_off(self) -> Reactor:
        """Let no call to the API server through until the reaction is removed."""
        return self.client.on("*", "*", unavailable)


@contextmanager
def a_controller(cluster: FakeCluster, name: str, lease: ElectionTimings) -> Iterator[Controller]:
    writes: list[str] = []

    def note(call: Call) -> None:
        if call.kind == QUOTA_LEDGERS and call.verb in {"create", "update"}:
            writes.append(call.key)

    client = ReactiveClient(cluster)
    client.on("*", "*", preceded_by(note))
    store = SharedQuotaStore(client)
    shared = SharedQuotaCache(client, store, timing=_QUICK)
    quotas = QuotaCache(client, lambda: DEFERRED_KEYS, shared=shared, timing=_QUICK)
    namespaces = NamespaceCache(client, timing=_QUICK)
    ledgers = LedgerStore(client)
    followed = ledgers.follow(_QUICK)
    election = Election(client, namespace="default", name="lease", identity=name, timings=lease)
    controller = LedgerController(
        ControllerContext(
            api=client,
            leader_epoch=election.epoch,
            timings=ControllerTimings(
                write_interval_seconds=0.01,
                waits_at_start=True,
                expire_seconds=0.5,
                informer=_QUICK,
            ),
        ),
        ledgers,
        ManagedNamespaces(quotas=quotas, namespaces=namespaces),
        shared=store,
        ledger_informer=followed,
    )
    informers = (quotas.informer, namespaces.informer, shared.informer, followed)
    for informer in informers:
        informer.start()
    controller.start()
    election.start()
    try:
        yield Controller(name, client, election, controller, writes)
    finally:
        controller.stop()
        election.stop()
        for informer in informers:
            informer.stop()


def used(cluster: FakeCluster, namespace: str) -> str:
    version = LedgerStore(FakeClient(cluster)).fetch(namespace)
    if version is None or version.ledger is None:
        return "nothing"
    return to_text(version.ledger.accounts["p1"].used)["requests.cpu"]


@contextmanager
def controllers(
    count: int, lease: ElectionTimings
) -> Iterator[tuple[FakeCluster, list[Controller]]]:
    cluster = new_cluster()
    for name in NAMES:
        pods = [
            (
                PODS,
                a_pod(
                    name=f"web-{number}",
                    namespace=name,
                    uid=f"{name}-{number}",
                    requests={"cpu": "1"},
                ),
            )
            for number in range(3)
        ]
        quota = a_quota("p1", namespace=name, hard={"requests.cpu": "100"})
        cluster.load([(NAMESPACES, a_namespace(name)), (RESOURCE_QUOTAS, quota), *pods])
    with ExitStack() as stack:
        made = [
            stack.enter_context(a_controller(cluster, f"c{one}", lease)) for one in range(count)
        ]
        eventually(lambda: all(used(cluster, name) == "0" for name in NAMES), "all are counted")
        yield cluster, made


def bind(cluster: FakeCluster, number: int) -> None:
    for name in NAMES:
        FakeClient(cluster).bind(a_binding(f"web-{number}", namespace=name))


def leader_of(made: list[Controller]) -> Controller:
    return next(one for one in made if one.election.is_leader())


def test_only_the_leader_writes() -> None:
    with controllers(3, _LONG) as (cluster, made):
        bind(cluster, 0)
        eventually(lambda: all(used(cluster, name) == "1" for name in NAMES), "all are settled")
        leader = leader_of(made)
        assert leader.writes
        assert all(not one.writes for one in made if one is not leader)


def test_a_leader_that_stops_hands_over_without_a_gap() -> None:
    with controllers(2, _LONG) as (cluster, made):
        first = leader_of(made)
        first.controller.stop()
        first.election.stop()  # the lease would last for a minute
        bind(cluster, 0)
        eventually(lambda: all(used(cluster, name) == "1" for name in NAMES), "all are settled")
        assert leader_of(made) is not first
        spec = FakeClient(cluster).get(LEASES, "lease", namespace="default")["spec"]
        assert isinstance(spec, dict)
        assert spec["leaseTransitions"] == 1


def test_a_leader_that_is_cut_off_is_replaced_and_comes_back_as_a_standby() -> None:
    with controllers(2, _SHORT) as (cluster, made):
        first = leader_of(made)
        cut = first.cut_off()
        bind(cluster, 0)
        eventually(
            lambda: any(one.election.is_leader() for one in made if one is not first),
            "the other one leads",
        )
        assert not first.election.is_leader()
        eventually(lambda: all(used(cluster, name) == "1" for name in NAMES), "all are settled")
        cut.remove()
        first.writes.clear()
        bind(cluster, 1)
        eventually(lambda: all(used(cluster, name) == "2" for name in NAMES), "all are settled")
        assert first.writes == []


def test_a_ledger_that_is_lost_with_its_leader_is_made_again_by_the_next() -> None:
    with controllers(2, _SHORT) as (cluster, made):
        bind(cluster, 0)
        eventually(lambda: all(used(cluster, name) == "1" for name in NAMES), "all are settled")
        first = leader_of(made)
        first.cut_off()
        for name in NAMES:
            FakeClient(cluster).delete(QUOTA_LEDGERS, "ledger", namespace=name)
        eventually(lambda: all(used(cluster, name) == "1" for name in NAMES), "all are made again")
