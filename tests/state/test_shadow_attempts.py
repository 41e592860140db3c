"""What became of a creation is found out, and counted once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.admission.handlers.harness import NAMESPACE, eventually, new_cluster, wait_until_seen
from tests.builders import Object, a_pod, a_quota, out_of_bounds
from tests.reactions import ReactiveClient, forbid, unreachable
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS, ListOptions, UnreachableError
from webhook.kube.informer import Informer, InformerTimings
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.shadow.record import Findings, QuotaUse, ShadowRecord, UsageSpan
from webhook.quota.shadow.record_codec import shadow_from_status
from webhook.state.quota_cache import QuotaCache
from webhook.state.shadow_attempts import Attempt, CreationTimings, CreationTracker
from webhook.state.shadow_store import ShadowRecordStore
from webhook.state.shared_cache import SharedQuotaCache
from webhook.state.shared_quotas import SharedQuotaStore

QUICK = InformerTimings(first_pause=0.01, longest_pause=0.05)
HARD = {"requests.cpu": "4"}


class Scenario:
    """A controller of creations that steps when a test says so, on a clock that a test moves."""

    def __init__(self, most: int = 100) -> None:
        self.cluster = new_cluster()
        self.api = FakeClient(self.cluster)
        self.client = ReactiveClient(self.cluster)
        self.clock = 100.0
        self.cluster.load([(RESOURCE_QUOTAS, a_quota("q", hard=HARD, used={"requests.cpu": "4"}))])
        shared = SharedQuotaCache(self.client, SharedQuotaStore(self.client), timing=QUICK)
        self.quotas = QuotaCache(self.client, lambda: DEFERRED_KEYS, shared=shared, timing=QUICK)
        self.pods = Informer(
            self.client,
            PODS,
            transform=Pod.from_object,
            options=ListOptions(field_selector="spec.nodeName="),
            timings=QUICK,
        )
        self.results: list[str] = []
        self.creations = CreationTracker(
            self.client,
            self.pods,
            self.quotas,
            name="w",
            timing=CreationTimings(most=most, clock=lambda: self.clock),
            counted=self.results.append,
        )
        self.quotas.informer.start()
        self.pods.start()
        assert self.quotas.informer.wait_for_sync(30)
        eventually(lambda: self.pods.is_following, "the pods are watched")
        self.assigned("1")

    def stop(self) -> None:
        self.client.resume()
        self.quotas.informer.stop()
        self.pods.stop()

    def assigned(self, cpu: str) -> None:
        """Let the controller begin a record in which so much is assigned."""
        found = ResourceQuota.from_object(self.api.get(RESOURCE_QUOTAS, "q", namespace=NAMESPACE))
        (one,) = deferred_quotas([found], DEFERRED_KEYS).quotas
        amount = Quantity.parse
        spans = {"requests.cpu": UsageSpan.of(amount("4"), amount("4"), amount(cpu))}
        use = QuotaUse(one.observed, "2026-01-01T00:00:00Z", 0, spans)
        ShadowRecordStore(self.api).add(
            NAMESPACE, Findings(quotas={"q": use}), writer="c", number=1, begins=True
        )

    def attempt(self, name: str, cpu: str = "1", *, rules: bool = False, **fields: Any) -> Pod:
        raw = a_pod(name=name, uid=f"uid-{name}", requests={"cpu": cpu}, **fields)
        pod = Pod.from_object(raw)
        self.creations.observe(Attempt(pod, f"Pod/{name}", lambda: rules))
        return pod

    def store(self, name: str, cpu: str = "1", **fields: Any) -> None:
        raw = a_pod(name=name, uid=f"uid-{name}", requests={"cpu": cpu}, **fields)
        self.cluster.load([(PODS, raw)])
        self.catch_up()

    def charge(self, cpu: str) -> None:
        status = {"status": {"used": {"requests.cpu": cpu}}}
        self.api.patch(RESOURCE_QUOTAS, "q", status, namespace=NAMESPACE, subresource="status")
        self.catch_up()

    def catch_up(self) -> None:
        wait_until_seen(self.cluster, (self.pods, self.quotas.informer))

    def after(self, seconds: float = 30.0) -> dict[str, int]:
        """Let time pass twice, once to judge and once to write; return what is counted."""
        for _ in range(2):
            self.clock += seconds
            self.creations.step()
        return {name: number for name, number in self.record().counts.items() if number}

    def record(self) -> ShadowRecord:
        found = cast("dict[str, Any]", self.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE))
        record = shadow_from_status(found["status"]["shadow"])
        assert record is not None
        return record


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    made = Scenario()
    yield made
    made.stop()


def test_a_pod_that_comes_was_not_refused_whatever_was_foretold(scenario: Scenario) -> None:
    scenario.attempt("web")  # the quota is full, by all that is known
    scenario.store("web")
    assert scenario.after() == {"attempts": 1, "stored": 1}
    assert scenario.results == ["stored"]


FATES = {
    "fits": ("1", "1", "wouldRun"),
    "does not fit": ("1", "4", "wouldWait"),
    "never fits": ("5", "0", "neverFits"),
}


@pytest.mark.parametrize(("cpu", "assigned", "fate"), FATES.values(), ids=FATES.keys())
def test_one_that_does_not_come_was_refused(cpu: str, assigned: str, fate: str) -> None:
    scenario = Scenario()
    scenario.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    scenario.assigned(assigned)
    scenario.attempt("web", cpu)
    assert scenario.after() == {"attempts": 1, "refused": 1, fate: 1}
    (workload,) = scenario.record().workloads
    assert (workload.name, workload.attempts, workload.fate) == ("Pod/web", 1, fate)
    assert "exceeded quota: q" in scenario.record().examples["refused"]
    scenario.stop()


def test_what_was_charged_a_moment_ago_refuses_too(scenario: Scenario) -> None:
    scenario.charge("0")
    scenario.attempt("web")
    scenario.charge("4")
    assert scenario.after() == {"attempts": 1, "refused": 1, "wouldRun": 1}


def test_what_another_refuses_is_not_explained(scenario: Scenario) -> None:
    scenario.charge("0")
    scenario.attempt("web")
    assert scenario.after() == {"attempts": 1, "unexplained": 1}
    assert scenario.record().workloads == ()


def test_it_is_judged_by_the_quotas_of_its_moment(scenario: Scenario) -> None:
    scenario.attempt("web")
    other = a_quota("none", uid="u2", hard={"pods": "0"}, used={"pods": "0"})
    scenario.cluster.load([(RESOURCE_QUOTAS, other)])
    scenario.catch_up()
    assert scenario.after() == {"attempts": 1, "refused": 1, "wouldRun": 1}


def test_a_pod_that_comes_late_is_counted_anew(scenario: Scenario) -> None:
    scenario.attempt("web")
    assert scenario.after(15)["refused"] == 1
    scenario.store("web")
    assert scenario.after() == {"attempts": 1, "stored": 1}
    assert scenario.record().workloads == ()


def test_a_pod_that_comes_while_it_is_judged_is_counted_anew(scenario: Scenario) -> None:
    def comes() -> bool:
        scenario.store("web")
        return False

    pod = Pod.from_object(a_pod(name="web", uid="uid-web", requests={"cpu": "1"}))
    scenario.creations.observe(Attempt(pod, "Pod/web", comes))
    assert scenario.after() == {"attempts": 1, "stored": 1}
    assert scenario.record().workloads == ()


def test_a_fault_in_one_stops_no_other(scenario: Scenario) -> None:
    def fails() -> bool:
        raise RuntimeError("a fault")

    raw = a_pod(name="odd", uid="uid-odd", requests={"cpu": "1"})
    scenario.creations.observe(Attempt(Pod.from_object(raw), "Pod/odd", fails))
    scenario.attempt("web")
    assert scenario.after() == {"attempts": 2, "refused": 1, "wouldRun": 1, "unexplained": 1}


def test_a_pod_with_a_node_is_asked_for(scenario: Scenario) -> None:
    scenario.attempt("there", node="n")
    scenario.store("there", node="n")
    scenario.attempt("not-there", node="n")
    assert scenario.after() == {"attempts": 2, "stored": 1, "refused": 1, "wouldRun": 1}


def test_one_of_the_same_name_is_another(scenario: Scenario) -> None:
    scenario.store("web", node="n")
    raw = a_pod(name="web", uid="another", node="n", requests={"cpu": "1"})
    scenario.creations.observe(Attempt(Pod.from_object(raw), "Pod/web"))
    assert scenario.after()["refused"] == 1


def test_while_no_watch_shows_pods_they_are_asked_for(scenario: Scenario) -> None:
    scenario.client.on("list", PODS, unreachable)
    scenario.client.on("watch", PODS, unreachable)
    scenario.cluster.cut_watches()
    eventually(lambda: not scenario.pods.is_following, "no watch stands")
    scenario.attempt("web")
    raw = a_pod(name="web", uid="uid-web", requests={"cpu": "1"})
    scenario.cluster.load([(PODS, raw)])
    assert scenario.after() == {"attempts": 1, "stored": 1}


def test_an_api_server_that_does_not_answer_is_asked_again_and_not_for_ever(
    scenario: Scenario,
) -> None:
    scenario.attempt("web", node="n")
    scenario.client.on("get", PODS, unreachable)
    scenario.clock += 30
    for _ in range(70):
        scenario.creations.step()
    assert scenario.after() == {"attempts": 1, "unexplained": 1}


def test_a_rule_decides_whatever_is_free(scenario: Scenario) -> None:
    scenario.attempt("refused", rules=True)
    scenario.charge("0")
    scenario.attempt("stored", rules=True)
    scenario.store("stored")
    assert scenario.after() == {
        "attempts": 2, "stored": 1, "refused": 1, "stillRefused": 1, "newlyRefused": 1,
    }  # fmt: skip


def test_an_amount_that_cannot_be_counted_lets_no_stored_pod_run(scenario: Scenario) -> None:
    scenario.charge("0")
    limits = {"memory": "1e37"}
    scenario.attempt("odd", limits=limits)
    scenario.store("odd", limits=limits)
    assert scenario.after() == {"attempts": 1, "stored": 1, "newlyRefused": 1}


def test_a_rule_that_cannot_be_asked_refuses_nothing(scenario: Scenario) -> None:
    def asks() -> bool:
        raise UnreachableError("no route")

    raw = a_pod(name="web", uid="uid-web", requests={"cpu": "1"})
    scenario.creations.observe(Attempt(Pod.from_object(raw), "Pod/web", asks))
    assert scenario.after() == {"attempts": 1, "refused": 1, "wouldRun": 1}


def test_while_nothing_can_be_written_it_is_kept_and_then_counted_once(
    scenario: Scenario,
) -> None:
    scenario.attempt("one")
    with scenario.client.on("update", QUOTA_LEDGERS, unreachable):
        scenario.after()
        scenario.attempt("two")
        scenario.after()
    assert scenario.after() == {"attempts": 2, "refused": 2, "wouldRun": 2}


def test_what_is_refused_for_good_is_not_tried_again_and_again(scenario: Scenario) -> None:
    scenario.attempt("one")
    with scenario.client.on("update", QUOTA_LEDGERS, forbid):
        for _ in range(5):
            scenario.clock += 30
            scenario.creations.step()
        assert len(scenario.client.calls_of("update", QUOTA_LEDGERS)) == 1
    assert scenario.after() == {}
    scenario.attempt("two")
    assert scenario.after() == {"attempts": 1, "refused": 1, "wouldRun": 1}


def test_where_nothing_is_recorded_nothing_is_begun(scenario: Scenario) -> None:
    scenario.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    scenario.attempt("web")
    for _ in range(4):
        scenario.clock += 30
        scenario.creations.step()
    assert scenario.api.list(QUOTA_LEDGERS).items == ()


def test_more_than_can_be_remembered_is_counted_all_the_same() -> None:
    scenario = Scenario(most=3)
    for number in range(5):
        scenario.attempt(f"web-{number}")
    assert scenario.after() == {"attempts": 5, "refused": 3, "wouldRun": 3, "unexplained": 2}
    scenario.stop()


def test_attempts_take_no_more_memory_than_they_may(scenario: Scenario) -> None:
    small, large = (CreationTimings().most_bytes // part for part in (4, 2))
    for time in (1, 2):
        for number, size in enumerate((large, small, large, small, small)):
            name = f"web-{time}-{number}"
            pod = Pod.from_object(a_pod(name=name, uid=f"uid-{name}", requests={"cpu": "1"}))
            scenario.creations.observe(Attempt(pod, f"Pod/{name}", size=size))
        found = scenario.after()
        assert (found["attempts"], found["unexplained"]) == (5 * time, 2 * time)


def test_attempts_that_are_repeated_or_judged_again_are_counted_once(scenario: Scenario) -> None:
    part = CreationTimings().most_bytes // 4
    pod = Pod.from_object(a_pod(name="web", uid="uid-web", requests={"cpu": "1"}))
    for _ in range(9):  # the same pod: asked about again
        scenario.creations.observe(Attempt(pod, "Pod/web", size=part))
    odd = Pod.from_object(a_pod(name="odd", uid="uid-odd", node="n", requests={"cpu": "1"}))
    scenario.creations.observe(Attempt(odd, "Pod/odd", size=part))
    with scenario.client.on("get", PODS, unreachable):
        for _ in range(9):  # judged again each time
            scenario.clock += 5
            scenario.creations.step()
    names = [f"more-{number}" for number in range(4)]
    for name in names:
        pod = Pod.from_object(a_pod(name=name, uid=f"uid-{name}", requests={"cpu": "1"}))
        scenario.creations.observe(Attempt(pod, f"Pod/{name}", size=part))
    found = scenario.after()
    assert (found["attempts"], found.get("unexplained", 0)) == (6, 1)  # one had no room


def test_when_it_ends_nothing_is_lost(scenario: Scenario) -> None:
    scenario.creations.start()
    scenario.attempt("web")
    scenario.store("stored")
    scenario.attempt("stored")
    scenario.creations.stop()
    counts = scenario.record().counts
    assert (counts["attempts"], counts["stored"], counts["refused"]) == (2, 1, 1)


@pytest.mark.parametrize(("quotas", "reason"), out_of_bounds().values(), ids=out_of_bounds())
def test_what_no_bind_decides_is_not_judged(
    scenario: Scenario, quotas: list[Object], reason: str
) -> None:
    scenario.cluster.load([(RESOURCE_QUOTAS, quota) for quota in quotas])
    scenario.catch_up()
    assert scenario.quotas.in_namespace(NAMESPACE).errors == (reason,)
    scenario.attempt("web-1")
    assert scenario.after() == {"attempts": 1, "refused": 1, "unjudged": 1}
