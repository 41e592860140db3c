"""Very many namespaces: what they have is listed over the cluster, not asked for one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.builders import a_pod
from tests.operations.healthy import Guard, a_pod_gating, count, examined, healthy, ids
from tests.operations.scenes import a_masked_quota, a_namespace, load
from tests.reactions import Call, Proceed, ReactiveClient
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    EVENTS,
    PODS,
    QUOTA_LEDGERS,
    ForbiddenError,
    NotFoundError,
)
from webhook.kube.kinds import Kind
from webhook.operations.doctor.check_context import CheckContext, Settings
from webhook.operations.doctor.ledgers import ledgers
from webhook.operations.findings import Finding
from webhook.state.well_known import GUARDED_ANNOTATION

MANY: Final = 40


def names(number: int) -> list[str]:
    return [f"many-{index:03}" for index in range(number)]


def opted_in(cluster: FakeCluster, number: int) -> None:
    """Namespaces with a quota, a pod that has a node, and a ledger that counts it."""
    for name in names(number):
        load(
            cluster,
            a_namespace(name),
            a_masked_quota(hard={"requests.cpu": "4"}, namespace=name),
            a_pod(
                namespace=name,
                node="node-1",
                requests={"cpu": "1m"},
                metadata={"annotations": {GUARDED_ANNOTATION: "7"}},
            ),
            a_pod_gating(name),
        )
        count(cluster, namespace=name)


def without_ledgers(cluster: FakeCluster, number: int) -> None:
    opted_in(cluster, number)
    for name in names(number):
        FakeClient(cluster).delete(QUOTA_LEDGERS, "ledger", namespace=name)


def watched(cluster: FakeCluster, number: int) -> None:
    for name in names(number):
        load(cluster, a_namespace(name, mode="shadow"))


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        (opted_in, "ledger.missing"),
        (without_ledgers, "ledger.missing"),
        (watched, "shadow.unrecorded"),
    ],
)
def test_calls_do_not_grow_with_namespaces(
    fill: Callable[[FakeCluster, int], None], expected: str
) -> None:
    def calls(number: int) -> list[tuple[str, str]]:
        cluster = healthy()
        fill(cluster, number)
        api = ReactiveClient(cluster, admission=Guard())
        found = examined(api)
        assert ids(found).count(expected) == (number if fill is not opted_in else 0)
        return sorted((call.verb, call.kind.plural) for call in api.calls)

    assert calls(4 * MANY) == calls(MANY)


def judged(api: FakeClient) -> list[Finding]:
    settings = Settings(sleep=lambda _: None)
    return list(ledgers(CheckContext(api, settings)))


def faulty() -> FakeCluster:
    """Namespaces one of which has no ledger, one an unreadable one, and one counts too little."""
    cluster = healthy()
    opted_in(cluster, MANY)
    api = FakeClient(cluster)
    api.delete(QUOTA_LEDGERS, "ledger", namespace="many-001")
    for name, status in (
        ("many-002", {"quotas": 7}),
        ("many-003", {"quotas": [{**account(api, "many-003"), "used": {"requests.cpu": "0"}}]}),
    ):
        patch = {"status": status}
        api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=name, subresource="status")
    return cluster


def account(api: FakeClient, namespace: str) -> dict[str, object]:
    raw: Any = api.get(QUOTA_LEDGERS, "ledger", namespace=namespace)
    (one,) = raw["status"]["quotas"]
    return dict(one)


FAULTS: Final = [
    ("ledger.missing", "many-001"),
    ("ledger.under-counted", "many-003"),
    ("ledger.unreadable", "many-002"),
]


def told(found: list[Finding]) -> Iterator[tuple[str, str]]:
    for one in found:
        assert one.subject is not None
        yield one.id, one.subject.namespace


@pytest.mark.parametrize("kind", [QUOTA_LEDGERS, PODS])
def test_the_same_is_found_where_lists_over_the_cluster_are_forbidden(kind: Kind) -> None:
    def only_namespaces(call: Call, proceed: Proceed) -> object:
        if not call.namespace:
            raise ForbiddenError("no")
        return proceed()

    cluster = faulty()
    found = judged(FakeClient(cluster))
    assert sorted(told(found)) == FAULTS
    api = ReactiveClient(cluster)
    api.on("list", kind, only_namespaces)
    assert judged(api) == sorted(found, key=found.index)
    assert len(api.calls_of("get", QUOTA_LEDGERS)) >= 2 * MANY


def test_where_ledgers_are_not_served_each_is_missing() -> None:
    def not_served(_call: Call, _proceed: Proceed) -> object:
        raise NotFoundError("the server could not find the requested resource")

    cluster = healthy()
    opted_in(cluster, MANY)
    api = ReactiveClient(cluster)
    api.on("list", QUOTA_LEDGERS, not_served)
    api.on("get", QUOTA_LEDGERS, not_served)
    found = judged(api)
    assert {one.id for one in found} == {"ledger.missing"}
    assert len(found) == MANY + 1
    assert api.calls_of("get", QUOTA_LEDGERS) == []


def test_a_namespace_whose_ledger_changes_meanwhile_is_looked_at_alone() -> None:
    cluster = faulty()
    api = ReactiveClient(cluster)

    def bind_one(_call: Call, proceed: Proceed) -> object:
        """Let a pod of one namespace end and be counted so, after it was listed."""
        pods = list(proceed())
        FakeClient(cluster).delete(PODS, "web-1", namespace="many-007", grace_period_seconds=0)
        count(cluster, namespace="many-007")
        return iter(pods)

    api.on("list", PODS, bind_one, times=1)
    assert sorted(told(judged(api))) == FAULTS
    assert {call.namespace for call in api.calls_of("get", QUOTA_LEDGERS)} == {
        "many-001",
        "many-003",
        "many-007",
    }


def test_a_small_part_of_a_large_cluster_is_asked_about_one_by_one() -> None:
    cluster = healthy()
    opted_in(cluster, MANY)
    load(cluster, *(a_namespace(f"other-{index}", mode="") for index in range(51 * MANY)))
    api = ReactiveClient(cluster)
    judged(api)
    assert api.calls_of("list", QUOTA_LEDGERS) == []


def test_events_of_others_are_not_shown() -> None:
    cluster = healthy()
    without_ledgers(cluster, MANY)
    event = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "involvedObject": {"kind": "QuotaLedger", "name": "ledger"},
        "type": "Warning",
        "reason": "LedgerLost",
        "lastTimestamp": "2026-06-01T00:00:00Z",
        "reportingComponent": "deferred-quota-controller",
    }
    for name in names(MANY):
        load(cluster, {**event, "metadata": {"name": "x", "namespace": name}, "message": name})
    found = [one for one in examined(cluster).findings if one.id == "ledger.missing"]
    assert len(found) == MANY
    for one in found:
        assert one.subject is not None
        assert one.remedy.endswith(f"LedgerLost: {one.subject.namespace}")
