from __future__ import annotations

from typing import Any

import pytest

from tests.builders import Object, a_pod, a_quota, an_expression, out_of_bounds
from tests.operations.healthy import (
    NOW,
    CreationGuard,
    Guard,
    Pulse,
    a_controller,
    count,
    edit,
    healthy,
    ids,
    remove,
    renewing,
)
from tests.operations.scenes import (
    NAMESPACE,
    QUICK,
    a_cluster,
    a_gated_pod,
    a_masked_quota,
    a_namespace,
    a_terminating_namespace,
    labels_of,
    load,
    status_of,
)
from webhook.cli.cluster_context import read_bundle
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import LEASES, NAMESPACES, QUOTA_LEDGERS, RESOURCE_QUOTAS, VALIDATING_WEBHOOKS
from webhook.operations.deployments import DEPLOYMENTS
from webhook.operations.disable import opt_out
from webhook.operations.doctor.check_context import Settings
from webhook.operations.enable import (
    installation_findings,
    obstacles,
    plan_for,
    set_label,
    still_missing,
    wait_until_complete,
)
from webhook.operations.enable_plan import Plan
from webhook.operations.findings import Finding
from webhook.operations.names import CUSTOM_RESOURCE_DEFINITIONS, LEDGER_CRD
from webhook.operations.retry import RetryPolicy
from webhook.operations.shadow_mode import watching_plan
from webhook.state.well_known import DEFAULT_NAMESPACE, LEADER_LEASE, MODE_LABEL, REGISTRATION

_AT_ONCE = RetryPolicy(seconds=0.0, pause_seconds=0.001, settle_seconds=0.001)


def settings(cluster: FakeCluster) -> Settings:
    pulse = Pulse(renewing(cluster))
    return Settings(read_bundle=read_bundle, now=lambda: NOW, clock=pulse.clock, sleep=pulse.sleep)


def planned(*objects: Any, mode: str = "", must_specify: bool = True) -> Plan:
    cluster = a_cluster(a_namespace(mode=mode), *objects)
    api = FakeClient(cluster)
    before = cluster.resource_version
    plan = plan_for(api, Settings(), NAMESPACE, must_specify=must_specify)
    assert cluster.resource_version == before
    return plan


def the(plan: Plan, name: str) -> Finding:
    (one,) = [one for one in plan.findings if one.id == name]
    return one


def test_the_plan_has_numbers() -> None:
    plan = planned(
        a_quota(
            "p1",
            hard={"requests.cpu": "10", "limits.memory": "1Gi", "pods": "9"},
            used={"requests.cpu": "7", "limits.memory": "0", "pods": "2"},
        ),
        a_pod(name="runs", uid="u1", node="n", requests={"cpu": "3"}, limits={"memory": "0"}),
        a_pod(name="waits", uid="u2", requests={"cpu": "4"}, limits={"memory": "0"}),
    )
    (quota,) = plan.quotas
    assert quota.stays == ("pods",)
    numbers = {
        key.key: tuple(map(str, (key.hard, key.used_now, key.used_then, key.freed)))
        for key in quota.deferred
    }
    assert numbers == {
        "limits.memory": ("1Gi", "0", "0", "0"),
        "requests.cpu": ("10", "7", "3", "4"),
    }
    assert plan.findings == ()
    assert not plan.is_opted_in


def test_what_a_masked_status_does_not_say_is_counted() -> None:
    plan = planned(
        a_masked_quota(hard={"requests.cpu": "9"}),
        a_pod(name="waits", requests={"cpu": "4"}),
        mode="deferred",
    )
    (key,) = plan.quotas[0].deferred
    assert (plan.is_opted_in, str(key.used_now), str(key.freed)) == (True, "4", "4")


def test_a_quota_above_its_limit_is_reported() -> None:
    found = the(planned(a_quota("p1"), a_pod(node="n", requests={"cpu": "3"})), "enable.exceeded")
    assert found.severity == "warn"
    assert "take requests.cpu=3, and its limit is requests.cpu=2" in found.message


def test_pods_that_name_nothing_are_reported() -> None:
    objects = (
        a_quota("p1"),
        a_pod(name="bare", uid="u1"),
        a_pod(name="runs", uid="u2", node="n"),
        a_pod(name="done", uid="u3", node="n", status={"phase": "Succeeded"}),
    )
    found = the(planned(*objects), "enable.must-specify")
    assert found.details == ("bare", "runs")
    assert "pods that do not name what it limits: 2; 1 of them wait" in found.message
    assert planned(*objects, must_specify=False).findings == ()


def test_an_excluded_quota_stays_as_it_is() -> None:
    excluded = {"annotations": {"deferredquota.io/exclude": "true"}}
    plan = planned(a_quota("p1", metadata=excluded))
    assert ids(plan.findings) == ["enable.excluded", "enable.nothing"]
    assert (plan.quotas[0].deferred, plan.quotas[0].is_excluded) == ((), True)


def test_scopes_that_cannot_be_evaluated_stand_in_the_way() -> None:
    plan = planned(a_quota("p1", expressions=[an_expression("PriorityClass", "In")]), a_pod())
    assert the(plan, "enable.scopes").severity == "error"
    assert obstacles(plan.findings, force=False)
    assert not obstacles(plan.findings, force=True)
    assert plan.quotas[0].deferred == ()


@pytest.mark.parametrize(("quotas", "reason"), out_of_bounds().values(), ids=out_of_bounds())
def test_quotas_for_which_nothing_is_bound_stand_in_the_way(
    quotas: list[Object], reason: str
) -> None:
    plan = planned(*quotas)
    found = the(plan, "enable.bounds")
    assert (found.severity, found.message) == ("error", f"every bind would be refused: {reason}")
    assert obstacles(plan.findings, force=False)
    api = FakeClient(a_cluster(a_namespace(mode=""), *quotas))
    missing = still_missing(api, Settings(), NAMESPACE)
    assert reason in missing
    assert not any("wide: is not counted" in one for one in missing)
    (then,) = [
        one.message
        for one in watching_plan(api, Settings(), NAMESPACE, must_specify=True).findings
        if one.id == "enable.bounds"
    ]
    assert then == f"if the namespace opted in: {found.message}"


def test_an_odd_pod_stands_in_the_way() -> None:
    odd = {**a_pod(name="odd"), "spec": {"containers": 3}}
    found = the(planned(a_quota("p1"), odd), "enable.unreadable")
    assert "Pod team-a/odd: spec.containers: must be a list" in found.message


@pytest.mark.parametrize(
    ("pod", "manager"),
    [
        (a_gated_pod("a", "kueue.x-k8s.io/admission"), "Kueue"),
        (a_pod(metadata={"labels": {"kueue.x-k8s.io/queue-name": "q"}}), "Kueue"),
        (a_gated_pod("a", "ApplicationAwareQuotaGate"), "Application Aware Quota"),
    ],
)
def test_others_that_hold_pods_back_are_reported(pod: Any, manager: str) -> None:
    found = the(planned(pod), "enable.other-manager")
    assert found.message.startswith(f"{manager} manages pods here")
    assert found.severity == "warn"


def test_others_that_manage_the_namespace_are_reported() -> None:
    cluster = a_cluster(a_namespace(mode=""))
    label = {"metadata": {"labels": {"application-aware-quota/enable-gating": ""}}}
    api = FakeClient(cluster)
    api.patch(NAMESPACES, NAMESPACE, label)
    plan = plan_for(api, Settings(), NAMESPACE, must_specify=True)
    assert the(plan, "enable.other-manager").message.startswith(
        "Application Aware Quota manages the namespace here"
    )


NEVER = {
    "missing": ("nowhere", "namespace.missing"),
    "exempt": ("kube-public", "namespace.exempt"),
    "ours": (DEFAULT_NAMESPACE, "namespace.own"),
    "being deleted": ("leaving", "namespace.terminating"),
}


@pytest.mark.parametrize(("name", "finding"), NEVER.values(), ids=NEVER)
def test_some_namespaces_are_never_opted_in(name: str, finding: str) -> None:
    cluster = a_cluster(
        a_namespace("kube-public", mode=""),
        a_namespace(DEFAULT_NAMESPACE, mode=""),
        a_terminating_namespace("leaving", mode=""),
    )
    plan = plan_for(FakeClient(cluster), Settings(), name, must_specify=True)
    assert ids(obstacles(plan.findings, force=True)) == [finding]


@pytest.mark.parametrize("mode", ["", "deferred", "shadow"])
def test_of_a_namespace_that_is_being_deleted_nothing_else_is_said(mode: str) -> None:
    cluster = a_cluster(a_terminating_namespace("leaving", mode))
    for planning in (plan_for, watching_plan):
        plan = planning(FakeClient(cluster), Settings(), "leaving", must_specify=True)
        assert (plan.is_opted_in, plan.is_shadow) == (mode == "deferred", mode == "shadow")
        (finding,) = obstacles(plan.findings, force=True)[:1]
        assert finding.message == "is being terminated: no pod can be created in it any more"


def obstacles_of(cluster: FakeCluster, *, force: bool) -> list[str]:
    api = FakeClient(cluster, admission=CreationGuard())
    found = installation_findings(api, settings(cluster), ["team-b"])
    return ids(obstacles(found, force=force))


def test_a_webhook_that_does_not_answer_is_an_obstacle() -> None:
    cluster = healthy()
    api = FakeClient(cluster, admission=Guard())  # a cluster quota passes, as nothing refuses it
    found = installation_findings(api, settings(cluster), ["team-b"])
    assert ids(obstacles(found, force=False)) == ["webhooks.silent"]
    assert obstacles(found, force=True) == ()


def test_a_good_installation_is_no_obstacle() -> None:
    cluster = healthy()
    load(cluster, a_namespace("team-b", mode=""))
    assert obstacles_of(cluster, force=False) == []


@pytest.mark.parametrize("mode", ["deferred", "shadow"])
def test_where_nothing_is_installed_the_first_thing_said_is_how_to_install(mode: str) -> None:
    cluster = a_cluster(a_namespace("team-b", mode=""))
    found = installation_findings(FakeClient(cluster), Settings(), ["team-b"], mode=mode)
    assert found[0].id == "installation.missing"
    assert found[0].remedy.startswith("Run scripts/install")


PARTS = {
    "the definition": (CUSTOM_RESOURCE_DEFINITIONS, LEDGER_CRD, "", "crd.missing", False),
    "the webhooks": (VALIDATING_WEBHOOKS, REGISTRATION, "", "webhooks.missing", True),
    "the controller": (LEASES, LEADER_LEASE, DEFAULT_NAMESPACE, "leader.missing", True),
}


@pytest.mark.parametrize(("kind", "name", "where", "finding", "forced"), PARTS.values(), ids=PARTS)
def test_a_missing_part_is_an_obstacle(
    kind: Any, name: str, where: str, finding: str, forced: bool
) -> None:
    cluster = healthy()
    load(cluster, a_namespace("team-b", mode=""))
    remove(cluster, kind, name, namespace=where)
    assert obstacles_of(cluster, force=False) == [finding]
    assert obstacles_of(cluster, force=True) == ([] if forced else [finding])


def test_a_webhook_without_a_replica_is_an_obstacle() -> None:
    cluster = healthy()
    load(cluster, a_namespace("team-b", mode=""))
    name = "deferred-quota-webhook"
    edit(cluster, DEPLOYMENTS, name, lambda raw: raw.pop("status"), namespace=DEFAULT_NAMESPACE)
    assert obstacles_of(cluster, force=False) == ["deployment.unavailable"]
    assert obstacles_of(cluster, force=True) == []


def test_a_selector_that_leaves_the_namespace_out_is_an_obstacle() -> None:
    """It is judged with the label that it does not have yet."""
    cluster = healthy()
    load(cluster, a_namespace("team-b", mode=""))
    api = FakeClient(cluster)
    raw: Any = api.get(VALIDATING_WEBHOOKS, REGISTRATION)
    for entry in raw["webhooks"]:
        entry["namespaceSelector"]["matchExpressions"][1]["values"].append("team-b")
    api.update(VALIDATING_WEBHOOKS, raw)
    assert set(obstacles_of(cluster, force=False)) == {"registration.not-selecting"}


# -- with a controller that runs ---------------------------------------------------------------


def test_a_namespace_is_opted_in_until_masked_and_counted_and_out_again() -> None:
    quota = a_quota(
        "p1",
        hard={"requests.cpu": "4", "pods": "9"},
        used={"requests.cpu": "3", "pods": "2"},
    )
    cluster = a_cluster(
        a_namespace(mode=""),
        quota,
        a_pod(name="runs", uid="u1", node="n", requests={"cpu": "1"}),
        a_pod(name="waits", uid="u2", requests={"cpu": "2"}),
    )
    api = FakeClient(cluster)
    said: list[str] = []
    with a_controller(cluster):
        set_label(api, NAMESPACE)
        missing = wait_until_complete(
            NAMESPACE,
            lambda: still_missing(api, Settings(), NAMESPACE),
            patience=QUICK,
            report=said.append,
        )
        assert missing == ()
        assert status_of(api) == {"hard": {"pods": "9"}, "used": {"pods": "2"}}
        assert still_missing(api, Settings(), NAMESPACE) == ()
        assert opt_out(api, NAMESPACE, patience=QUICK).problems == ()
    assert status_of(api) == {
        "hard": {"requests.cpu": "4", "pods": "9"},
        "used": {"requests.cpu": "3", "pods": "2"},
    }
    assert all(line.startswith("team-a: waiting: ") for line in said)


def test_without_a_controller_it_says_what_is_missing() -> None:
    cluster = a_cluster(a_namespace(), a_quota("p1", used={"requests.cpu": "0"}))
    api = FakeClient(cluster)
    missing = wait_until_complete(
        NAMESPACE, lambda: still_missing(api, Settings(), NAMESPACE), patience=_AT_ONCE
    )
    assert missing == (
        "quota p1: its status still shows requests.cpu",
        "there is no ledger yet (quotaledgers.deferredquota.io)",
    )


def test_a_ledger_of_other_quotas_is_not_enough() -> None:
    cluster = healthy()
    api = FakeClient(cluster)
    assert still_missing(api, Settings(), NAMESPACE) == ()
    load(cluster, a_masked_quota("p2", hard={"cpu": "1"}))
    assert still_missing(api, Settings(), NAMESPACE) == (
        "quota p2: is not counted in the ledger yet",
    )
    count(cluster)
    assert still_missing(api, Settings(), NAMESPACE) == ()
    patch = {"status": {"quotas": "none"}}
    api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")
    (words,) = still_missing(api, Settings(), NAMESPACE)
    assert words.startswith("the ledger cannot be read: status.quotas: must be a list")


def test_a_namespace_without_quotas_is_deferred_at_once() -> None:
    api = FakeClient(a_cluster(a_namespace()))
    assert still_missing(api, Settings(), NAMESPACE) == ()


def test_a_dry_run_sets_no_label() -> None:
    cluster = a_cluster(a_namespace(mode=""))
    api = FakeClient(cluster)
    set_label(api, NAMESPACE, dry_run=True)
    assert MODE_LABEL not in labels_of(api)
    set_label(api, NAMESPACE)
    assert labels_of(api)[MODE_LABEL] == "deferred"


def test_an_odd_quota_is_missing() -> None:
    odd = {**a_quota("odd"), "spec": {"hard": {"cpu": "x"}}}
    api = FakeClient(a_cluster(a_namespace(), odd))
    (words,) = still_missing(api, Settings(), NAMESPACE)
    assert words.startswith("ResourceQuota team-a/odd: spec.hard.cpu")
    assert api.list(RESOURCE_QUOTAS).items
