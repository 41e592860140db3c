"""Quotas that come, change and go."""

from __future__ import annotations

from tests.builders import an_expression
from tests.e2e.cluster import objects
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes, eventually

CLASSES = ("e2e-gold", "e2e-silver")


def with_classes(tenant: Tenant) -> None:
    for value, name in enumerate(CLASSES):
        made = {"metadata": {"name": name}, "value": value}
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        assert tenant.api.create(path, made).code in (201, 409)


def test_a_higher_limit_is_used_at_once(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    tenant.pod("next", "1")
    assert tenant.bind("next").code == 403
    tenant.edit_quota("p1", {"hard": {"requests.cpu": "3"}})
    becomes(lambda: tenant.bind("next").code, 201, "the answer to a bind")
    assert tenant.charged() == "3"


def test_a_limit_below_what_is_used_evicts_and_admits_nothing(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    eventually(
        lambda: tenant.edit_quota("p1", {"hard": {"requests.cpu": "1"}}, dry_run=True).warnings,
        "whoever lowers the limit is warned",
    )
    lowered = tenant.edit_quota("p1", {"hard": {"requests.cpu": "1"}})
    assert lowered.warnings == ("requests.cpu: 2 is taken, above the limit 1; no pod is evicted",)
    eventually(
        lambda: "limited: requests.cpu=1" in tenant.create("more", "1m", nodeName=NODE).message,
        "the lower limit is enforced",
    )
    assert tenant.used() == {"requests.cpu": "2"}
    assert tenant.node_of("web") == NODE
    tenant.finish("web")
    becomes(tenant.used, {"requests.cpu": "0"}, "what is used")
    assert tenant.create("more", "1", nodeName=NODE).code == 201
    assert tenant.create("much", "1m", nodeName=NODE).code == 403


def test_another_selector_is_counted_at_once(tenant: Tenant) -> None:
    with_classes(tenant)
    gold, silver = CLASSES
    tenant.quota(
        hard={"requests.cpu": "4"}, expressions=[an_expression("PriorityClass", "In", gold)]
    )
    tenant.bound("shiny", "3", priorityClassName=gold)
    tenant.bound("pale", "1", priorityClassName=silver)
    assert tenant.used() == {"requests.cpu": "3"}
    selector = {"matchExpressions": [an_expression("PriorityClass", "In", silver)]}
    tenant.edit_quota("p1", {"scopeSelector": selector})
    becomes(tenant.used, {"requests.cpu": "1"}, "what pods of the other class use")
    assert tenant.create("more", "3", priorityClassName=silver, nodeName=NODE).code == 201
    assert tenant.create("much", "1", priorityClassName=silver, nodeName=NODE).code == 403
    assert tenant.create("free", "9", priorityClassName=gold, nodeName=NODE).code == 201


def test_a_quota_that_is_made_anew_with_other_scopes_counts_by_them(tenant: Tenant) -> None:
    tenant.quota(scopes=["Terminating"])
    tenant.bound("timed", "1", activeDeadlineSeconds=600)
    tenant.bound("web", "1500m")
    assert tenant.used() == {"requests.cpu": "1"}
    assert tenant.api.delete(objects.quotas(tenant.namespace, "p1")).ok
    eventually(lambda: "p1" not in tenant.accounts(), "the quota has left the ledger")
    tenant.quota(scopes=["NotTerminating"])
    becomes(tenant.used, {"requests.cpu": "1500m"}, "what pods without deadline use")
    assert tenant.create("more", "501m", nodeName=NODE).code == 403


def test_a_second_quota_counts_what_is_there_and_what_is_promised(tenant: Tenant) -> None:
    tenant.quota("wide", hard={"requests.cpu": "8"})
    tenant.bound("web", "1")
    pod = tenant.pod("lost", "1")
    assert tenant.bind("lost", uid=pod.uid, version="1").code == 409  # promised, not stored
    tenant.quota("narrow", hard={"requests.cpu": "2"})
    assert (tenant.used("narrow"), tenant.charged("narrow")) == ({"requests.cpu": "1"}, "2")
    assert tenant.create("more", "1m", nodeName=NODE).code == 403
    assert tenant.bind("lost", uid=pod.uid).code == 201


def test_a_quota_that_goes_sets_its_pods_free(tenant: Tenant) -> None:
    tenant.quota("narrow", hard={"requests.cpu": "1"})
    tenant.quota("wide", hard={"requests.cpu": "4"})
    tenant.bound("web", "1")
    assert tenant.create("more", "1", nodeName=NODE).code == 403
    assert tenant.api.delete(objects.quotas(tenant.namespace, "narrow")).ok
    becomes(lambda: tenant.create("more", "1", nodeName=NODE).code, 201, "the answer to a creation")
    assert tenant.charged("wide") == "2"


def test_an_excluded_quota_is_the_api_servers(tenant: Tenant) -> None:
    excluded = {"annotations": {"deferredquota.io/exclude": "true"}}
    tenant.quota(is_deferred=False, metadata=excluded)
    assert tenant.native() == ({"requests.cpu": "2"}, {"requests.cpu": "0"})
    tenant.pod("web", "2")
    refused = tenant.create("more", "1")
    assert refused.message == (
        'pods "more" is forbidden: exceeded quota: p1, requested: requests.cpu=1,'
        " used: requests.cpu=2, limited: requests.cpu=2"
    )
    assert tenant.bind("web").code == 201


def test_a_selector_that_no_pod_could_be_matched_with_is_refused(tenant: Tenant) -> None:
    expression = an_expression("PriorityClass", "In", "bad value!")
    quota = {
        "metadata": {"name": "p1"},
        "spec": {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [expression]}},
    }
    refused = tenant.api.create(objects.quotas(tenant.namespace), quota)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert "spec.scopeSelector.matchExpressions[0].values[0]" in refused.message
