"""What opting in and out means for quotas that namespaces share."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.builders import a_pod, an_expression
from tests.controllers.elastic.objects import an_elastic_quota
from tests.operations.healthy import healthy
from tests.operations.scenes import NAMESPACE, QUICK, a_cluster, a_namespace, load
from tests.quota.cluster_quotas import a_cluster_quota
from tests.reactions import ReactiveClient, fail, forbid
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, NotFoundError
from webhook.operations.cluster_quotas import company_of
from webhook.operations.disable import opt_out, preview
from webhook.operations.doctor.check_context import Settings
from webhook.operations.enable import plan_for, still_missing
from webhook.operations.findings import Finding
from webhook.operations.shadow_mode import watching_plan

Object = dict[str, Any]

HERE: Final = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
EARLIER: Final = "2026-10-01T00:00:00Z"
LATER: Final = "2026-11-01T00:00:00Z"
OTHERS: Final = {"namespaces": [{"name": "team-b", "granted": {"requests.cpu": "18"}}]}


def with_status(raw: Object, **status: Any) -> Object:
    return {**raw, "status": status}


def planned(*objects: Object) -> tuple[Finding, ...]:
    cluster = a_cluster(a_namespace(mode=""), *objects)
    return plan_for(FakeClient(cluster), Settings(), NAMESPACE, must_specify=False).findings


def told(*objects: Object) -> list[Finding]:
    return [one for one in planned(*objects) if one.id == "enable.cluster-quota"]


def test_the_namespaces_that_one_will_share_with_are_named() -> None:
    (finding,) = told(with_status(a_cluster_quota(selector=HERE), **OTHERS))
    assert (finding.severity, str(finding.subject)) == ("info", "ClusterDeferredQuota team-total")
    assert finding.message == (
        "selects team-a: its pods will share requests.cpu=20 with one other namespace, which holds"
        " requests.cpu=18"
    )


def test_headroom_of_others_is_not_held_against_a_namespace() -> None:
    spare = [
        {"name": "team-b", "granted": {"requests.cpu": "20"}, "headroom": {"requests.cpu": "19"}}
    ]
    quota = with_status(a_cluster_quota(selector=HERE), namespaces=spare)
    (finding,) = told(quota, a_pod(node="node-1", requests={"cpu": "3"}))
    assert finding.severity == "info"
    assert finding.message.endswith("one other namespace, which holds requests.cpu=1")


def test_a_namespace_that_will_share_a_quota_changes() -> None:
    assert [one.id for one in planned(a_cluster_quota(selector={}))] == ["enable.cluster-quota"]
    assert [one.id for one in planned(a_cluster_quota())] == ["enable.nothing"]


def test_a_quota_without_namespaces_is_reported() -> None:
    (finding,) = told(a_cluster_quota(selector={}))
    assert finding.message.endswith("share requests.cpu=20 with no other namespace yet")


def together(names: list[str], *objects: Object, is_shadow: bool = False) -> list[str]:
    """Plan for several namespaces at once; return whom each will share with."""
    cluster = a_cluster(*(a_namespace(name, mode="") for name in names[:6]), *objects)
    api = FakeClient(cluster)
    company = company_of(api, names, is_shadow=is_shadow)
    said: list[str] = []
    for name in names[:6]:
        plan = plan_for(api, Settings(), name, must_specify=False, company=company)
        said += [one.message for one in plan.findings if one.id == "enable.cluster-quota"]
    return [message.partition("requests.cpu=20 with ")[2] for message in said]


def test_namespaces_that_opt_in_together_are_named_to_each_other() -> None:
    both = together(["web", "batch"], a_cluster_quota(selector={}))
    assert both == ["batch, opted in together with it", "web, opted in together with it"]


def test_of_many_some_are_named() -> None:
    names = ["e", "d", "c", "b", "a", "z", "missing"]
    assert together(names, a_cluster_quota(selector={}))[0] == (
        "a, b, c and 2 more, opted in together with it"
    )


def test_namespaces_that_share_already_are_named_beside_those_that_opt_in_too() -> None:
    shared = with_status(a_cluster_quota(selector={}), **OTHERS)
    assert together(["team-b", "web", "batch"], shared) == [
        "batch, web, opted in together with it",
        "one other namespace, which holds requests.cpu=18, and batch, opted in together with it",
        "one other namespace, which holds requests.cpu=18, and web, opted in together with it",
    ]


def test_a_namespace_that_is_not_selected_shares_nothing() -> None:
    only = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In",
                                  "values": ["web"]}]}  # fmt: skip
    assert together(["web", "batch"], a_cluster_quota(selector=only)) == ["no other namespace yet"]


def test_in_shadow_mode_nothing_is_shared() -> None:
    cluster = a_cluster(
        a_namespace(mode=""),
        with_status(a_cluster_quota(selector=HERE), **OTHERS),
        a_pod(node="node-1", requests={"cpu": "3"}),
    )
    plan = watching_plan(FakeClient(cluster), Settings(), NAMESPACE, must_specify=False)
    (finding,) = plan.findings
    assert finding.message == (
        "selects team-a: its pods would share requests.cpu=20 with one other namespace, which"
        " holds requests.cpu=18, if it opted in: with the pods that have a node here that is"
        " requests.cpu=21; no pod would be evicted, and none bound in any of them until enough"
        " have ended"
    )
    two = together(["web", "batch"], a_cluster_quota(selector={}), is_shadow=True)
    assert two == ["no other namespace yet, if it opted in"] * 2


def test_pods_that_do_not_fit_are_worth_a_warning() -> None:
    pod = a_pod(node="node-1", requests={"cpu": "3"})
    (finding,) = told(with_status(a_cluster_quota(selector=HERE), **OTHERS), pod)
    assert finding.severity == "warn"
    assert "with the pods that have a node here that is requests.cpu=21; no pod" in finding.message


def test_one_that_selects_by_the_mode_selects_a_namespace_that_opts_in() -> None:
    assert told(a_cluster_quota(selector={"matchLabels": {"deferredquota.io/mode": "deferred"}}))
    assert not told(a_cluster_quota())


UNREADABLE: Final = {
    "an amount": a_cluster_quota(hard={"requests.cpu": "many"}, selector=HERE),
    "the namespaces": a_cluster_quota(selector="odd"),
    "the pods": a_cluster_quota(
        selector=HERE,
        scopeSelector={"matchExpressions": [an_expression("PriorityClass", "In", "no class")]},
    ),
}


@pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE)
def test_one_that_cannot_be_evaluated_stands_in_the_way(raw: Object) -> None:
    (finding,) = told(raw)
    assert finding.severity == "error"


def test_a_namespace_is_opted_in_when_shared_quotas_are_counted_too() -> None:
    cluster = healthy()
    load(cluster, a_cluster_quota(selector=HERE))
    assert still_missing(FakeClient(cluster), Settings(), NAMESPACE) == (
        "quota cdq/team-total: is not counted in the ledger yet",
    )


def test_where_they_are_not_installed_there_are_none() -> None:
    older = ReactiveClient(healthy())
    missing = NotFoundError("the server could not find the requested resource")
    older.on("list", CLUSTER_DEFERRED_QUOTAS, fail(missing))
    assert still_missing(older, Settings(), NAMESPACE) == ()
    assert opt_out(older, NAMESPACE, patience=QUICK).left == ()


def shared_cluster() -> FakeCluster:
    held = [{"name": name, "granted": {"requests.cpu": "1"}} for name in (NAMESPACE, "team-b")]
    cluster = healthy()
    load(cluster, with_status(a_cluster_quota(selector={}), namespaces=held))
    return cluster


def test_what_a_namespace_held_is_named_when_it_opts_out() -> None:
    cluster = shared_cluster()
    api = FakeClient(cluster)
    assert preview(api, NAMESPACE).left == ("team-total",)
    assert opt_out(api, NAMESPACE, patience=QUICK).left == ("team-total",)
    assert preview(api, NAMESPACE).left == ()


def test_a_pool_that_several_quotas_are_derived_from_is_named_once() -> None:
    cluster = shared_cluster()
    held = [{"name": NAMESPACE, "granted": {"requests.cpu": "1"}}]
    for name in ("epool.default", "epool.default.7d32b26f"):
        raw = {**a_cluster_quota(selector={}), "metadata": {"name": name}}
        load(cluster, with_status(raw, namespaces=held))
    assert preview(FakeClient(cluster), NAMESPACE).left == ("elastic pool default", "team-total")


def test_a_user_that_may_not_read_them_may_opt_out() -> None:
    narrow = ReactiveClient(shared_cluster())
    narrow.on("list", CLUSTER_DEFERRED_QUOTAS, forbid)
    done = opt_out(narrow, NAMESPACE, patience=QUICK)
    assert (done.had_label, done.left) == (True, ())


def elastic_plan(*objects: Object) -> list[tuple[str, str]]:
    """Return severity and message of what is said of elastic quotas."""
    found = [one for one in planned(*objects) if one.id == "enable.elastic"]
    return [(one.severity, one.message) for one in found]


RUNS: Final = a_pod(node="node-1", requests={"cpu": "3", "nvidia.com/gpu": "1"})


def test_the_elastic_quota_that_will_charge_a_namespace_is_named() -> None:
    quota = an_elastic_quota(NAMESPACE, {"cpu": "2"}, {"cpu": "4"})
    ((severity, message),) = elastic_plan(quota, RUNS)
    assert severity == "info"
    assert message == (
        "charges its pods from then on: min cpu=2, max cpu=4, pool default; those that have a node"
        " take cpu=3"
    )
    assert "enable.nothing" not in [one.id for one in planned(quota)]


def test_pods_above_the_max_of_an_elastic_quota_are_worth_a_warning() -> None:
    ((severity, message),) = elastic_plan(an_elastic_quota(NAMESPACE, None, {"cpu": "2"}), RUNS)
    assert severity == "warn"
    assert message.endswith(
        "those that have a node take cpu=3, which is above max: no pod is evicted, and none is"
        " bound until cpu=2 is enough for them"
    )


def test_a_composite_names_its_namespaces_and_the_older_of_two_counts() -> None:
    mine = an_elastic_quota(NAMESPACE, {"cpu": "2"})
    mine["metadata"] = {"name": "q", "namespace": NAMESPACE, "creationTimestamp": EARLIER}
    elsewhere = an_elastic_quota("team-b", {"cpu": "1"}, namespaces=["team-b", "x"])
    assert len(elastic_plan(mine, elsewhere)) == 1
    both = an_elastic_quota("team-b", {"cpu": "1"}, namespaces=["team-b", NAMESPACE])
    both["metadata"] = {"name": "q", "namespace": "team-b", "creationTimestamp": LATER}
    first, second = elastic_plan(mine, both)
    assert (first[0], second[0]) == ("info", "warn")
    assert second[1].startswith(
        "does not count: namespace team-a has ElasticQuota team-a/q already"
    )


def test_what_charges_elastic_quotas_is_not_named_beside_them() -> None:
    pool = a_cluster_quota(selector=HERE)
    pool["metadata"]["name"] = "epool.default"
    found = planned(pool, an_elastic_quota(NAMESPACE, {"cpu": "2"}))
    assert [one.id for one in found] == ["enable.elastic"]


def test_elastic_quotas_that_are_left_are_named_as_messages_do() -> None:
    cluster = healthy()
    held = [{"name": NAMESPACE, "granted": {"requests.cpu": "1"}}]
    for name in ("epool.default", f"eq.{NAMESPACE}.q"):
        made = a_cluster_quota(selector=HERE)
        made["metadata"]["name"] = name
        load(cluster, with_status(made, namespaces=held))
    left = ("elastic pool default", "elastic quota eq/q")
    assert preview(FakeClient(cluster), NAMESPACE).left == left
