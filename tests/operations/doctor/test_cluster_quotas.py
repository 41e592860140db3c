"""Quotas that namespaces share: whom they limit, and whether what is granted adds up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.builders import a_pod, a_quota, an_expression
from tests.controllers.elastic.objects import an_elastic_quota
from tests.operations.healthy import (
    count,
    edit,
    examined,
    healthy,
    ids,
    refusing,
    renewing,
    serious,
    the,
)
from tests.operations.scenes import NAMESPACE, a_namespace, load
from tests.quota.cluster_quotas import a_cluster_quota
from tests.reactions import ReactiveClient
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    QUOTA_LEDGERS,
    ForbiddenError,
    NotFoundError,
)
from webhook.kube.kinds import DEVICE_CLASSES
from webhook.operations.doctor.check_context import CheckContext, Settings
from webhook.operations.doctor.cluster_quotas import cluster_quotas
from webhook.operations.findings import Finding
from webhook.quota.amounts.resources import ResourceList, parse_resource_list
from webhook.quota.charging.deferral import deferred_part, observed_as
from webhook.quota.ledger.ledger import Account, Ledger
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.shared.cluster_quotas import cluster_quota
from webhook.quota.shared.grants import Grants, Promise, grants_status, with_headroom

Object = dict[str, Any]

HERE: Final = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
ID: Final = "cdq."


def cpu(amount: str) -> ResourceList:
    return parse_resource_list({"requests.cpu": amount}, field="")


def shared(
    cluster: FakeCluster,
    raw: Object | None = None,
    *,
    granted: Mapping[str, str] | None = None,
    ledger: str = "1",
    used: str = "1",
    is_counted: bool = True,
    promises: Mapping[str, Promise] | None = None,
    unused: str = "0",
) -> None:
    """Put a cluster quota in, as it is when `team-a` holds 1 of it: its pod that runs.

    `granted` is what the quota says of each namespace, `ledger` what the ledger of `team-a` says of
    itself, `used` what is counted there.
    """
    wanted = {
        **(raw or a_cluster_quota(selector=HERE)),
        "metadata": {"name": "team-total", "uid": "uid-total"},
    }
    read = cluster_quota(wanted)
    hard = deferred_part(read.quota.hard, DEFERRED_KEYS)
    observed = observed_as(read.quota, hard)
    held = {name: cpu(each) for name, each in (granted or {NAMESPACE: "1"}).items()}
    grants = Grants(held, observed if is_counted else None, serial=1, promises=promises or {})
    grants = with_headroom(grants, NAMESPACE, cpu(unused))
    load(cluster, {**wanted, "status": grants_status(grants, hard)})
    account = Account(observed, hard, cpu(used), granted=cpu(ledger))
    count(cluster, lambda one: with_account(one, account))


def with_account(ledger: Ledger, account: Account) -> Ledger:
    return replace(ledger, accounts={**ledger.accounts, account.observed.name: account})


def found(cluster: FakeCluster, *events: Callable[[], None]) -> list[Finding]:
    return serious(examined(cluster, renewing(cluster), *events))


def test_one_that_is_as_it_should_be_is_no_finding() -> None:
    cluster = healthy()
    shared(cluster)
    assert found(cluster) == []


def test_one_that_matches_nothing_limits_no_namespace() -> None:
    cluster = healthy()
    load(cluster, a_cluster_quota())
    (finding,) = found(cluster)
    assert (finding.id, finding.severity) == ("cdq.selects-nothing", "warn")
    assert str(finding.subject) == "ClusterDeferredQuota team-total"


def test_namespaces_that_have_not_opted_in_are_named() -> None:
    cluster = healthy()
    load(cluster, a_namespace("other", mode=""), a_namespace("kube-system", mode=""))
    shared(cluster, a_cluster_quota(selector={}))
    finding = the(examined(cluster), "cdq.not-opted-in")
    assert finding.details == ("default", "other")
    assert finding.message.startswith("2 of 5 namespaces that match have not opted in")


UNREADABLE: Final[dict[str, tuple[Object, str, str]]] = {
    "an amount": (
        a_cluster_quota(hard={"requests.cpu": "many"}, selector={}),
        "cdq.unreadable",
        "cannot be read: spec.hard",
    ),
    "the namespaces": (
        a_cluster_quota(selector={"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
        "cdq.unreadable",
        "cannot be read: spec.namespaceSelector.matchExpressions[0]",
    ),
    "the pods": (
        a_cluster_quota(
            selector={},
            scopeSelector={"matchExpressions": [an_expression("PriorityClass", "In", "no class")]},
        ),
        "cdq.scopes",
        "its scopes cannot be evaluated: ",
    ),
}


@pytest.mark.parametrize(("raw", "name", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_evaluated_stops_pods(raw: Object, name: str, message: str) -> None:
    cluster = healthy()
    load(cluster, raw)
    finding = the(examined(cluster), name)
    assert finding.severity == "error"
    assert finding.message.startswith(message)
    assert finding.message.endswith("no pod that it concerns can be bound")
    assert finding.details == (NAMESPACE,)


def test_a_resource_that_is_not_deferred_is_not_charged() -> None:
    cluster = healthy()
    shared(cluster, a_cluster_quota(hard={"requests.cpu": "20", "pods": "1"}, selector=HERE))
    (finding,) = found(cluster)
    assert finding.id == "cdq.not-deferred"
    assert "limits pods" in finding.message


def a_device_class(resource: str) -> Object:
    return {
        "apiVersion": DEVICE_CLASSES.api_version,
        "kind": DEVICE_CLASSES.kind,
        "metadata": {"name": "devices.example.com", "uid": "uid-devices"},
        "spec": {"extendedResourceName": resource} if resource else {},
    }


@pytest.mark.parametrize(
    ("hard", "resource"),
    [
        ("requests.example.com/gpu", "example.com/gpu"),
        ("nos.nebuly.com/gpu-memory", "nvidia.com/gpu"),
        ("nos.nebuly.com/gpu-memory.40gb", "nvidia.com/mig-1g.10gb"),
    ],
)
def test_devices_that_are_limited_and_to_be_had_by_claims_are_named(
    hard: str, resource: str
) -> None:
    cluster = healthy()
    shared(cluster, a_cluster_quota(hard={"requests.cpu": "20", hard: "1"}, selector=HERE))
    load(cluster, a_device_class(resource))
    finding = the(examined(cluster), "cdq.claims")
    assert finding.severity == "warn"
    assert finding.message.startswith(
        f"limits devices of the DeviceClass devices.example.com as {resource}, and ResourceClaims"
    )
    assert f"Name requests.{resource} in deferredResources" in finding.remedy
    refused = DEFERRED_KEYS | {f"requests.{resource}"}
    assert "cdq.claims" not in ids(examined(cluster, deferred_keys=refused))


@pytest.mark.parametrize("resource", ["", "example.com/nic"])
def test_devices_of_other_classes_are_no_finding(resource: str) -> None:
    cluster = healthy()
    limited = {"requests.cpu": "20", "requests.example.com/gpu": "1"}
    shared(cluster, a_cluster_quota(hard=limited, selector=HERE))
    load(cluster, a_device_class(resource))
    assert "cdq.claims" not in ids(examined(cluster))


def test_more_than_the_limit_is_reported_with_what_each_namespace_holds() -> None:
    cluster = healthy()
    shared(
        cluster,
        a_cluster_quota(hard={"requests.cpu": "2"}, selector=HERE),
        granted={NAMESPACE: "3"},
        ledger="3",
        used="3",
    )
    finding = the(examined(cluster), "cdq.exceeded")
    assert finding.severity == "warn"
    assert finding.message.startswith(
        "its namespaces hold requests.cpu=3, and its limit is requests.cpu=2: it was lowered, or"
    )
    assert finding.details == ("team-a: requests.cpu=3",)


def test_without_a_right_to_device_classes_all_else_is_examined() -> None:
    cluster = healthy()
    hard = a_cluster_quota(hard={"requests.cpu": "2"}, selector=HERE)
    shared(cluster, hard, granted={NAMESPACE: "3"}, ledger="3", used="3")
    forbidden = ForbiddenError("deviceclasses is forbidden")
    assert "cdq.exceeded" in ids(examined(refusing(cluster, forbidden, DEVICE_CLASSES)))


def test_an_api_server_without_device_classes_is_asked_once_for_them() -> None:
    cluster = healthy()
    quota = a_cluster_quota(hard={"requests.cpu": "2"}, selector=HERE)
    load(cluster, *({**quota, "metadata": {"name": name}} for name in ("research", "training")))
    client = refusing(cluster, NotFoundError("no such resource"), DEVICE_CLASSES)
    examined(client)
    assert len(client.calls_of("list", DEVICE_CLASSES)) == 1


def test_headroom_above_the_limit_is_no_finding() -> None:
    cluster = healthy()
    hard = a_cluster_quota(hard={"requests.cpu": "2"}, selector=HERE)
    shared(cluster, hard, granted={NAMESPACE: "3"}, ledger="3", unused="2")
    assert "cdq.exceeded" not in ids(examined(cluster))


GRANTS: Final[dict[str, tuple[dict[str, Any], str, str, str]]] = {
    "less than the ledger says": (
        {"granted": {NAMESPACE: "0"}},
        "cdq.under-granted",
        "error",
        "team-a holds requests.cpu=0, its ledger says that requests.cpu=1 is held",
    ),
    "less than is taken": (
        {"ledger": "0"},
        "cdq.under-granted",
        "error",
        "team-a holds requests.cpu=1, its ledger says that requests.cpu=0 is held",
    ),
    "more than is taken": (
        {"granted": {NAMESPACE: "5"}, "ledger": "5"},
        "cdq.over-granted",
        "warn",
        "team-a holds requests.cpu=5, its ledger says that requests.cpu=1 is taken",
    ),
    "for nobody": (
        {"granted": {NAMESPACE: "1", "gone": "4"}},
        "cdq.left",
        "warn",
        "counts gone, which does not share it (any more): requests.cpu=4 is held",
    ),
    "for another spec": (
        {"is_counted": False},
        "cdq.uncounted",
        "error",
        "usage is not counted for its present spec: no pod that it concerns can be bound",
    ),
    "not for all": (
        {"granted": {"gone": "0"}},
        "cdq.uncounted",
        "error",
        "does not count team-a yet: no pod that it concerns can be bound there",
    ),
}


@pytest.mark.parametrize(("change", "name", "severity", "message"), GRANTS.values(), ids=GRANTS)
def test_what_is_granted_has_to_add_up(
    change: dict[str, Any], name: str, severity: str, message: str
) -> None:
    cluster = healthy()
    shared(cluster, **change)
    finding = the(examined(cluster), name)
    assert finding.severity == severity
    assert finding.message.startswith(message)


@pytest.mark.parametrize("change", [each[0] for each in GRANTS.values()], ids=GRANTS)
def test_what_is_put_right_meanwhile_is_no_finding(change: dict[str, Any]) -> None:
    cluster = healthy()
    shared(cluster, **change)

    def repair() -> None:
        FakeClient(cluster).delete(CLUSTER_DEFERRED_QUOTAS, "team-total")
        shared(cluster)

    assert found(cluster, repair) == []


def test_a_quota_that_goes_meanwhile_is_no_finding() -> None:
    cluster = healthy()
    shared(cluster, is_counted=False)

    def go() -> None:
        if FakeClient(cluster).list(CLUSTER_DEFERRED_QUOTAS).items:
            FakeClient(cluster).delete(CLUSTER_DEFERRED_QUOTAS, "team-total")
            count(cluster)

    assert found(cluster, go) == []


def test_many_are_listed_as_often_as_one() -> None:
    def lists(number: int) -> int:
        cluster = healthy()
        for index in range(number):
            load(cluster, {**a_cluster_quota(), "metadata": {"name": f"quota-{index}"}})
        api = ReactiveClient(cluster)
        list(cluster_quotas(CheckContext(api, Settings())))
        return len(api.calls_of("list", CLUSTER_DEFERRED_QUOTAS))

    assert lists(9) == lists(1)


def test_calls_do_not_grow_with_the_namespaces_that_share_one() -> None:
    def calls(number: int) -> int:
        cluster = healthy()
        granted = {f"many-{index}": "1" for index in range(number)}
        shared(
            cluster, a_cluster_quota(hard={"requests.cpu": "400"}, selector=HERE), granted=granted
        )
        api = ReactiveClient(cluster)
        scene = CheckContext(api, Settings(sleep=lambda _: None))
        assert {one.id for one in cluster_quotas(scene)} == {"cdq.uncounted", "cdq.left"}
        return len(api.calls)

    assert calls(160) == calls(40)


def test_a_status_that_cannot_be_read_stops_pods() -> None:
    cluster = healthy()
    shared(cluster)
    edit(
        cluster,
        CLUSTER_DEFERRED_QUOTAS,
        "team-total",
        lambda raw: raw["status"].update(namespaces="team-a"),
    )
    finding = the(examined(cluster), "cdq.unreadable")
    assert finding.message.startswith(
        "its status cannot be read: status.namespaces: must be a list"
    )


def test_a_ledger_without_the_account_is_outdated() -> None:
    cluster = healthy()
    shared(cluster)
    count(cluster)
    names = ids(examined(cluster))
    assert "ledger.outdated" in names
    assert "cdq.over-granted" in names


def test_usage_that_no_ledger_counts_is_found_for_shared_quotas_too() -> None:
    cluster = healthy()
    shared(cluster, used="0")
    finding = the(examined(cluster), "ledger.under-counted")
    assert finding.message.startswith("quota cdq/team-total: assigned pods take requests.cpu=1")


def test_without_ledgers_and_definitions_nothing_is_looked_at() -> None:
    cluster = healthy()
    FakeClient(cluster).delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    load(cluster, a_quota("other", namespace="default"))
    assert not [one for one in found(cluster) if one.id.startswith(ID)]


@pytest.mark.parametrize(
    ("uid", "node", "is_named"),
    [("w", "", False), ("another", "", True), ("w", "node-1", True), (None, "", True)],
    ids=["waits", "made anew", "has a node", "gone"],
)
def test_a_promise_to_a_pod_that_does_not_wait_is_named(
    uid: str | None, node: str, *, is_named: bool
) -> None:
    cluster = healthy()
    shared(cluster, promises={"w": Promise("w", NAMESPACE, "waits", cpu("2"))})
    if uid is not None:
        load(cluster, a_pod(name="waits", namespace=NAMESPACE, uid=uid, node=node))
    wanted = "requests.cpu=2 is held for pod team-a/waits, which does not wait for it"
    said = [one.message for one in found(cluster) if one.id == "cdq.idle-promise"]
    assert said == ([wanted] if is_named else [])


def elastic(**status: object) -> dict[str, object]:
    made = an_elastic_quota(NAMESPACE, {"cpu": "1"})
    return {**made, "status": status} if status else made


NOT_CHARGED = {
    "no controller has looked at it yet: binds are not charged by it": elastic(),
    "binds are not charged by it: namespace x has two": elastic(
        conditions=[
            {
                "type": "Charged",
                "status": "False",
                "reason": "Conflict",
                "message": "namespace x has two",
            }
        ]
    ),
}


@pytest.mark.parametrize(("message", "made"), NOT_CHARGED.items())
def test_an_elastic_quota_that_is_not_charged_is_named(
    message: str, made: dict[str, object]
) -> None:
    cluster = healthy()
    load(cluster, made)
    finding = the(examined(cluster), "elastic.not-charged")
    assert (finding.message, str(finding.subject)) == (message, f"ElasticQuota {NAMESPACE}/q")


def test_one_that_is_charged_is_none() -> None:
    cluster = healthy()
    load(
        cluster, elastic(conditions=[{"type": "Charged", "status": "True", "reason": "AllCharged"}])
    )
    assert "elastic" not in str(ids(examined(cluster)))


def test_what_a_namespace_may_hold_unused_is_no_finding() -> None:
    cluster = healthy()
    shared(cluster, granted={NAMESPACE: "3"}, ledger="3", unused="2")
    assert found(cluster) == []
