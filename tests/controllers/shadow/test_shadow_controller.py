"""Namespaces in shadow mode are counted from their pods, and nothing there is touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.admission.handlers.harness import (
    NAMESPACE,
    a_namespace,
    new_cluster,
    wait_until_seen,
)
from tests.builders import a_binding, a_container, a_pod, a_quota
from tests.reactions import ReactiveClient, unreachable
from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.controllers.shadow.controller import ShadowController
from webhook.controllers.shadow.shadow_namespace import ShadowNamespace
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    ApiError,
    NotFoundError,
)
from webhook.kube.informer import Informer, InformerTimings
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.charging.deferral import NamespaceQuotas
from webhook.quota.ledger.ledger import Claim, Ledger, Verdict, admit
from webhook.quota.objects.compact import compact_pod
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.shadow.record import ShadowRecord, UsageSpan
from webhook.quota.shadow.record_codec import shadow_from_status
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_cache import SharedQuotaCache
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.telemetry.metrics import Metrics

Object = dict[str, Any]
QUICK = InformerTimings(first_pause=0.01, longest_pause=0.05)


class ShadowHarness:
    """A watch that takes its steps when a test says so, on a clock that a test moves."""

    def __init__(self, cluster: FakeCluster, name: str = "first") -> None:
        self.cluster = cluster
        self.api = FakeClient(cluster)
        self.line = ReactiveClient(cluster)
        self.clock = 1000.0
        self.term = 1
        self.exempt: frozenset[str] = frozenset()
        self.keys = frozenset(DEFERRED_KEYS)
        self.metrics = Metrics()
        shared = SharedQuotaCache(self.line, SharedQuotaStore(self.line), timing=QUICK)
        self.quotas = QuotaCache(self.line, lambda: self.keys, shared=shared, timing=QUICK)
        self.pods = Informer(self.line, PODS, transform=compact_pod, timings=QUICK)
        self.watch = ShadowController(
            ControllerContext(
                api=self.line,
                leader_epoch=lambda: self.term,
                timings=ControllerTimings(clock=lambda: self.clock, informer=QUICK),
                metrics=self.metrics,
            ),
            self.pods,
            self.quotas,
            name=name,
            exempt=lambda: self.exempt,
        )
        for informer in self.informers():
            informer.start()

    def informers(self) -> list[Informer[Any]]:
        return [self.quotas.informer, self.pods, self.watch.informer]

    def stop(self) -> None:
        for informer in self.informers():
            informer.stop()

    def catch_up(self) -> None:
        wait_until_seen(self.cluster, self.informers())

    def step(self, seconds: float = 5.0) -> ShadowRecord:
        """Let everything be seen, then let time pass, then let it be written."""
        self.catch_up()
        self.clock += seconds
        self.watch.reconcile()
        return self.record()

    def record(self, namespace: str = NAMESPACE) -> ShadowRecord:
        status = cast("Object", self.ledger(namespace))
        found = shadow_from_status(status.get("shadow"))
        assert found is not None
        return found

    def ledger(self, namespace: str = NAMESPACE) -> Object | None:
        try:
            found = self.api.get(QUOTA_LEDGERS, "ledger", namespace=namespace)
        except NotFoundError:
            return None
        return cast("Object", found.get("status", {}))

    def pod(self, name: str, cpu: str = "1", **fields: Any) -> None:
        made = a_pod(name=name, uid=f"uid-{name}", requests={"cpu": cpu}, **fields)
        self.cluster.load([(PODS, made)])

    def bind(self, name: str) -> None:
        self.api.bind(a_binding(name, namespace=NAMESPACE))

    def resize(self, name: str, cpu: str) -> None:
        patch = {"spec": {"containers": [a_container(requests={"cpu": cpu})]}}
        self.api.patch(PODS, name, patch, namespace=NAMESPACE, subresource="resize")

    def charge(self, cpu: str) -> None:
        """Let the API server charge so much."""
        status = {"hard": {"requests.cpu": "4"}, "used": {"requests.cpu": cpu}}
        self.api.patch(
            RESOURCE_QUOTAS, "q", {"status": status}, namespace=NAMESPACE, subresource="status"
        )

    def label(self, mode: str | None) -> None:
        patch = {"metadata": {"labels": {"deferredquota.io/mode": mode}}}
        self.api.patch(NAMESPACES, NAMESPACE, patch)


@pytest.fixture
def watching() -> Iterator[ShadowHarness]:
    cluster = new_cluster()
    client = FakeClient(cluster)
    client.create(NAMESPACES, a_namespace(mode="shadow"))
    found = a_quota("q", hard={"requests.cpu": "4"}, used={"requests.cpu": "0"})
    client.create(RESOURCE_QUOTAS, found)
    running = ShadowHarness(cluster)
    yield running
    running.stop()


def counts(record: ShadowRecord) -> dict[str, int]:
    return {name: number for name, number in record.counts.items() if number}


def test_a_record_begins_with_what_is_there_and_counts_nothing_of_it(
    watching: ShadowHarness,
) -> None:
    watching.pod("old", node="n")
    record = watching.step()
    assert counts(record) == {}
    span = record.quotas["q"].resources["requests.cpu"]
    assert (str(span.hard), str(span.assigned), record.quotas["q"].milliseconds) == ("4", "1", 0)
    ledger = watching.ledger()
    assert ledger is not None
    assert set(ledger) == {"shadow", "summary"}
    assert ledger["summary"] == "shadow: q requests.cpu 1/4 (charged 0)"


def test_what_is_charged_and_assigned_is_weighted_by_time(watching: ShadowHarness) -> None:
    watching.step()
    watching.pod("one")
    watching.charge("4")
    watching.step(10)
    watching.bind("one")
    watching.step(30)
    record = watching.step(60)
    use = record.quotas["q"]
    span = use.resources["requests.cpu"]
    # seen at once and told later: four cpu charged all the time, one assigned after ten seconds
    assert use.milliseconds == 100_000
    assert span.full_milliseconds == 100_000
    assert str(span.average_charged(use.milliseconds)) == "4"
    assert str(span.average_assigned(use.milliseconds)) == "900m"
    assert (str(span.charged_peak), str(span.assigned_peak)) == ("4", "1")


def test_pods_are_judged_beside_what_was_assigned_before_them(watching: ShadowHarness) -> None:
    watching.step()
    for name in ("a", "b"):
        watching.pod(name, "2")
        watching.bind(name)
    watching.pod("c", "1m")
    watching.bind("c")
    watching.pod("d", "3", node="n")
    watching.pod("free", "0")
    record = watching.step()
    assert counts(record) == {
        "created": 5, "createdOver": 1, "bound": 4, "boundOver": 2,
    }  # fmt: skip
    assert record.examples["boundOver"].startswith(
        "d: exceeded quota: q, requested: requests.cpu=3"
    )
    series = watching.metrics.exposition("")[0].decode()
    assert 'deferred_quota_shadow_pods_total{event="boundOver"} 2.0' in series


def test_growth_is_judged_and_shrinking_is_free(watching: ShadowHarness) -> None:
    watching.step()
    watching.pod("a", "1", node="n")
    watching.pod("waits", "1")
    watching.catch_up()
    watching.resize("a", "4")
    watching.catch_up()
    watching.resize("waits", "9")
    watching.resize("a", "2")
    watching.catch_up()
    watching.resize("a", "5")
    record = watching.step()
    assert (record.count("grown"), record.count("grownOver")) == (2, 1)


def test_pods_that_end_give_back(watching: ShadowHarness) -> None:
    watching.pod("a", "3", node="n")
    watching.pod("b", "1", node="n")
    watching.step()
    watching.api.delete(PODS, "a", namespace=NAMESPACE)
    patch = {"status": {"phase": "Succeeded"}}
    watching.api.patch(PODS, "b", patch, namespace=NAMESPACE, subresource="status")
    record = watching.step()
    span = record.quotas["q"].resources["requests.cpu"]
    assert (str(span.assigned), str(span.assigned_peak)) == ("0", "4")


def test_a_standby_says_nothing_and_begins_when_it_leads(watching: ShadowHarness) -> None:
    watching.term = 0
    watching.catch_up()
    watching.watch.reconcile()
    watching.pod("before", node="n")
    watching.catch_up()
    watching.clock += 60
    watching.watch.reconcile()
    assert watching.ledger() is None
    assert "shadow_pods_total{" not in watching.metrics.exposition("")[0].decode()
    watching.term = 2
    watching.step()
    watching.pod("after", node="n")
    record = watching.step()
    assert counts(record) == {"created": 1, "bound": 1}
    assert record.quotas["q"].milliseconds <= 10_000


def test_a_standby_does_nothing_while_nothing_happens(
    watching: ShadowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching.term = 0
    watching.catch_up()
    watching.watch.reconcile()
    advanced: list[int] = []
    monkeypatch.setattr(
        ShadowNamespace, "advance", lambda _self, until, _now: advanced.append(until)
    )
    for _ in range(9):
        watching.clock += 0.25
        watching.watch.reconcile()
    assert advanced == []


def test_a_second_leader_goes_on_where_the_first_stopped(watching: ShadowHarness) -> None:
    watching.step()
    watching.pod("a", node="n")
    watching.step()
    other = ShadowHarness(watching.cluster, "second")
    other.step()
    other.pod("b", node="n")
    assert counts(other.step()) == {"created": 2, "bound": 2}
    other.stop()


def test_the_less_happens_the_less_is_written(watching: ShadowHarness) -> None:
    watching.step()
    versions = [watching.cluster.resource_version]
    for _ in range(600):
        watching.clock += 1
        watching.watch.reconcile()
        if watching.cluster.resource_version != versions[-1]:
            versions.append(watching.cluster.resource_version)
    assert 10 <= len(versions) <= 15
    assert 540_000 <= watching.record().quotas["q"].milliseconds <= 600_000
    watching.pod("a")
    assert watching.step(2).count("created") == 1


def test_what_could_not_be_written_is_written_once(watching: ShadowHarness) -> None:
    watching.step()
    watching.pod("a", node="n")
    watching.line.on("update", QUOTA_LEDGERS, unreachable)
    watching.step()
    watching.pod("b", node="n")
    watching.step()
    watching.line.reset()
    assert counts(watching.step(30)) == {"created": 2, "bound": 2}


def test_a_write_whose_answer_was_lost_counts_once(watching: ShadowHarness) -> None:
    watching.step()
    watching.pod("a", node="n")
    watching.catch_up()
    update = watching.line.update_status

    def lost(*args: Any, **kwargs: Any) -> Any:
        update(*args, **kwargs)
        watching.line.update_status = update  # type: ignore[method-assign]
        raise ApiError("nobody knows", code=504)

    watching.line.update_status = lost  # type: ignore[method-assign]
    watching.step()
    assert counts(watching.step(30)) == {"created": 1, "bound": 1}


def test_a_quota_that_comes_or_changes_is_followed(watching: ShadowHarness) -> None:
    watching.step()
    watching.pod("a", "3", node="n")
    watching.step(10)
    patch = {"spec": {"hard": {"requests.cpu": "2"}}}
    watching.api.patch(RESOURCE_QUOTAS, "q", patch, namespace=NAMESPACE)
    record = watching.step()
    use = record.quotas["q"]
    assert str(use.resources["requests.cpu"].hard) == "2"
    assert use.milliseconds <= 5000
    watching.api.delete(RESOURCE_QUOTAS, "q", namespace=NAMESPACE)
    assert watching.step().quotas == {}


def test_what_is_deferred_by_a_new_configuration_is_watched(watching: ShadowHarness) -> None:
    gpu = "requests.nvidia.com/gpu"
    patch = {"spec": {"hard": {"requests.cpu": "4", gpu: "8"}}}
    watching.api.patch(RESOURCE_QUOTAS, "q", patch, namespace=NAMESPACE)
    assert set(watching.step().quotas["q"].resources) == {"requests.cpu"}
    watching.keys = frozenset({*DEFERRED_KEYS, gpu})
    assert set(watching.step(60).quotas["q"].resources) == {"requests.cpu", gpu}


@pytest.mark.parametrize("how", ["exempt", "deferred", "out"])
def test_a_namespace_that_is_left_is_left_alone(watching: ShadowHarness, how: str) -> None:
    watching.step()
    if how == "exempt":
        watching.exempt = frozenset({NAMESPACE})
    else:
        watching.label("deferred" if how == "deferred" else None)
    watching.step()
    version = watching.cluster.resource_version
    watching.pod("a", node="n")
    watching.catch_up()
    after = watching.cluster.resource_version
    watching.step(60)
    assert watching.cluster.resource_version == after > version
    ledger = watching.ledger()
    assert ledger is not None
    assert ledger["summary"] == "shadow: ended"


@pytest.mark.parametrize(
    "guarding",
    [
        {
            "podsResourceVersion": "7",
            "reservations": "",
            "quotas": [{"name": "q", "hard": {}, "used": {}}],
            "summary": "q requests.cpu 1/4",
        },
        {"format": 3, "summary": "of a newer release"},
    ],
)
def test_a_ledger_that_guards_is_never_touched(
    watching: ShadowHarness, guarding: dict[str, object]
) -> None:
    """The label says shadow here while the controller still counts, or counts again."""
    metadata = {"name": "ledger", "namespace": NAMESPACE}
    watching.api.create(QUOTA_LEDGERS, {"metadata": metadata})
    watching.api.patch(
        QUOTA_LEDGERS, "ledger", {"status": guarding}, namespace=NAMESPACE, subresource="status"
    )
    before = watching.cluster.resource_version
    watching.catch_up()
    watching.watch.reconcile()
    assert watching.cluster.resource_version == before
    assert watching.ledger() == guarding


def test_nor_when_shadow_mode_ends_there(watching: ShadowHarness) -> None:
    watching.step()
    guarding = {
        "podsResourceVersion": "7",
        "reservations": "",
        "quotas": [{"name": "shadow", "hard": {}, "used": {}}],
        "summary": "shadow requests.cpu 1/4",
    }
    watching.api.patch(
        QUOTA_LEDGERS, "ledger", {"status": guarding}, namespace=NAMESPACE, subresource="status"
    )
    watching.label("deferred")
    watching.catch_up()
    before = watching.cluster.resource_version
    watching.clock += 60
    watching.watch.reconcile()
    assert watching.cluster.resource_version == before


def test_of_a_ledger_that_was_left_all_but_the_record_stays(watching: ShadowHarness) -> None:
    left = {"podsResourceVersion": "7", "podsBarrier": "5", "reservations": "", "serial": 3}
    metadata = {"name": "ledger", "namespace": NAMESPACE}
    watching.api.create(QUOTA_LEDGERS, {"metadata": metadata})
    watching.api.patch(
        QUOTA_LEDGERS, "ledger", {"status": left}, namespace=NAMESPACE, subresource="status"
    )
    watching.step()
    ledger = watching.ledger()
    assert ledger is not None
    assert {name: ledger[name] for name in left} == left


def test_a_record_that_was_taken_away_begins_anew(watching: ShadowHarness) -> None:
    watching.step()
    watching.pod("a", node="n")
    watching.step()
    patch: Object = {"status": {"shadow": None}}
    watching.api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")
    record = watching.step(40)
    assert counts(record) == {}
    assert record.quotas["q"].milliseconds == 0


def test_nothing_but_the_record_is_written(watching: ShadowHarness) -> None:
    watching.pod("a")
    watching.pod("gated", schedulingGates=[{"name": "other.example/gate"}])
    watching.catch_up()
    before = [watching.api.list(kind).items for kind in (PODS, RESOURCE_QUOTAS, NAMESPACES)]
    watching.step()
    watching.step(60)
    after = [watching.api.list(kind).items for kind in (PODS, RESOURCE_QUOTAS, NAMESPACES)]
    assert after == before


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[UsageSpan]:
    """The spans of usage that are begun."""
    made: list[UsageSpan] = []

    def of(*amounts: Quantity) -> UsageSpan:
        made.append(begin(*amounts))
        return made[-1]

    begin = UsageSpan.of
    monkeypatch.setattr(UsageSpan, "of", of)
    return made


def with_quotas_of_terminating_pods(watching: ShadowHarness) -> None:
    watching.step()
    hard = {"requests.cpu": "4"}
    for number in range(10):
        other = a_quota(f"t{number}", uid=f"uid-{number}", hard=hard, scopes=["Terminating"])
        watching.api.create(RESOURCE_QUOTAS, other)
    watching.pod("runs", node="n")
    watching.step()


def test_a_pod_that_changes_costs_nothing_for_quotas_that_it_takes_no_more_of(
    watching: ShadowHarness, spans: list[UsageSpan]
) -> None:
    with_quotas_of_terminating_pods(watching)
    spans.clear()
    watching.api.patch(PODS, "runs", {"metadata": {"labels": {"a": "b"}}}, namespace=NAMESPACE)
    watching.pod("waits")
    watching.catch_up()
    assert len(spans) == 0
    watching.bind("waits")
    watching.catch_up()
    assert [str(span.assigned) for span in spans] == ["2"]
    watching.api.delete(PODS, "runs", namespace=NAMESPACE)
    watching.catch_up()
    assert [str(span.assigned) for span in spans] == ["2", "1"]


def test_a_charge_that_changes_costs_nothing_for_other_quotas(
    watching: ShadowHarness, spans: list[UsageSpan]
) -> None:
    with_quotas_of_terminating_pods(watching)
    spans.clear()
    watching.charge("3")
    watching.catch_up()
    assert [(str(span.charged), str(span.assigned)) for span in spans] == [("3", "1")]


def test_a_pod_is_judged_beside_the_quotas_that_apply_to_it(
    watching: ShadowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_quotas_of_terminating_pods(watching)
    judged: list[set[str]] = []

    def observed(ledger: Ledger, claim: Claim) -> tuple[Ledger, Verdict]:
        judged.append(set(ledger.accounts))
        return admit(ledger, claim)

    monkeypatch.setattr("webhook.controllers.shadow.shadow_namespace.admit", observed)
    watching.pod("waits")
    watching.catch_up()
    assert judged == [{"q"}]


def test_quotas_that_change_at_other_times_are_watched_as_long(watching: ShadowHarness) -> None:
    with_quotas_of_terminating_pods(watching)
    before = watching.record()
    watching.clock += 10
    watching.charge("4")
    watching.catch_up()
    watching.clock += 20
    watching.pod("b", node="n")
    watching.catch_up()
    record = watching.step(40)
    gone = {
        name: use.milliseconds - before.quotas[name].milliseconds
        for name, use in record.quotas.items()
    }
    assert set(gone.values()) == {70_000}
    span = record.quotas["q"].resources["requests.cpu"]
    former = before.quotas["q"].resources["requests.cpu"]
    assert span.full_milliseconds == 60_000
    assert span.assigned_area - former.assigned_area == (30 + 2 * 40) * 1000 * 10**9


@pytest.fixture
def counts_for_quotas(
    watching: ShadowHarness, monkeypatch: pytest.MonkeyPatch
) -> list[NamespaceQuotas]:
    """Quotas that pods are counted for, which takes half a second."""
    counted: list[NamespaceQuotas] = []
    original = NamespaceUsage.set_quotas

    def slow(usage: NamespaceUsage, quotas: NamespaceQuotas) -> None:
        if not usage.counts_for(quotas):
            counted.append(quotas)
            watching.clock += 0.5
        original(usage, quotas)

    monkeypatch.setattr(NamespaceUsage, "set_quotas", slow)
    return counted


def edit_and_poll(watching: ShadowHarness, seconds: float) -> None:
    """Edit the quota and look, again and again, for some seconds."""
    until = watching.clock + seconds
    while watching.clock < until:
        hard = str(int(watching.clock * 4))
        patch = {"spec": {"hard": {"requests.cpu": hard}}}
        watching.api.patch(RESOURCE_QUOTAS, "q", patch, namespace=NAMESPACE)
        watching.step(0.25)


def test_a_namespace_rests_after_a_long_count_for_other_quotas(
    watching: ShadowHarness, counts_for_quotas: list[NamespaceQuotas]
) -> None:
    """The events of all namespaces wait for it."""
    edit_and_poll(watching, 30)
    assert 4 <= len(counts_for_quotas) <= 7
    watching.step(5)
    hard = counts_for_quotas[-1].quotas[0].hard["requests.cpu"]
    assert hard == watching.record().quotas["q"].resources["requests.cpu"].hard
    stored = watching.api.get(RESOURCE_QUOTAS, "q", namespace=NAMESPACE)
    assert str(hard) == stored["spec"]["hard"]["requests.cpu"]  # type: ignore[index]


def test_and_where_it_leaves_shadow_mode_and_comes_again(
    watching: ShadowHarness, counts_for_quotas: list[NamespaceQuotas]
) -> None:
    until = watching.clock + 30
    while watching.clock < until:
        for mode in (None, "shadow"):
            watching.label(mode)
            watching.catch_up()
            watching.clock += 0.25
            watching.watch.reconcile()
    assert 4 <= len(counts_for_quotas) <= 7


def test_a_quota_of_another_namespace_waits_for_no_count(
    watching: ShadowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [
        a_quota(name, namespace="other", uid=f"uid-{name}", hard={"requests.cpu": "1"})
        for name in ("a", "b")
    ]
    original = NamespaceUsage.set_quotas

    def set_quotas(usage: NamespaceUsage, quotas: NamespaceQuotas) -> None:
        if others:
            watching.cluster.load([(RESOURCE_QUOTAS, others.pop())])
            watching.catch_up()
        original(usage, quotas)

    monkeypatch.setattr(NamespaceUsage, "set_quotas", set_quotas)
    watching.step()
    edit_and_poll(watching, 1)
    assert not others
