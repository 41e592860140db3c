"""Quotas that namespaces share, on a real control plane."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer, Api, Object, ledger
from tests.e2e.cluster.product import SYSTEM, Product
from tests.e2e.cluster.shared.history import CPU, History, cluster_quotas
from tests.e2e.cluster.shared.sharing import Binders, Team
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.objects.names import QUOTA_RESERVED

RUNS: Final = int(os.environ.get("DEFERRED_QUOTA_RUNS", "3"))
"""How often the races are run."""

DENIED: Final = 'admission webhook "bind.deferredquota.io" denied the request: '
DEFINED: Final = 'admission webhook "quotas.deferredquota.io" denied the request: '
TWENTY: Final = Quantity.parse("20")


def exceeded(team: Team, used: str, limited: str, requested: str = "1") -> str:
    return (
        f"exceeded quota: {team.account}, requested: {CPU}={requested}, used: {CPU}={used},"
        f" limited: {CPU}={limited}"
    )


@pytest.fixture
def history(plane: ControlPlane, product: Product) -> Iterator[History]:
    assert product.webhooks
    with History(plane) as found:
        yield found


@pytest.fixture
def team(plane: ControlPlane, product: Product) -> Iterator[Team]:
    """Two namespaces without gates."""
    assert product.webhooks
    made = Team(plane, 2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def _ten(plane: ControlPlane) -> Iterator[Team]:
    made = Team(plane, 10)
    yield made
    made.close()


@pytest.fixture
def ten(product: Product, _ten: Team) -> Iterator[Team]:
    """Ten namespaces without gates; each test shares a new quota among them."""
    assert product.webhooks
    yield _ten
    _ten.clear()
    _ten.unshare()


@pytest.fixture(scope="module")
def _gated(plane: ControlPlane) -> Iterator[Team]:
    made = Team(plane, 2, gating="always")
    yield made
    made.close()


@pytest.fixture
def gated(product: Product, _gated: Team) -> Iterator[Team]:
    """Two namespaces whose pods are gated; each test shares a new quota among them."""
    assert product.webhooks
    yield _gated
    _gated.clear()
    _gated.unshare()


def crowd(tenant: Tenant, number: int, **fields: Any) -> None:
    with ThreadPoolExecutor(8) as pool:
        for answer in pool.map(lambda one: tenant.create(f"p-{one}", "1", **fields), range(number)):
            assert answer.ok, str(answer)


# -- races ---------------------------------------------------------------------------------


@pytest.mark.parametrize("run", range(RUNS))
def test_pods_of_two_namespaces_follow_each_other_and_never_take_more(
    gated: Team, history: History, run: int
) -> None:
    """The real scheduler, gates, and fifty pods in each namespace at once."""
    gated.share("20")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: crowd(one, 50, schedulerName=REAL), gated.tenants))
    becomes(lambda: len(gated.assigned()), 20, "pods that run", 60)
    ended = 0
    while running := gated.assigned():
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: one[0].finish(one[1]), running))
        ended += len(running)
        left = min(20, 100 - ended)
        becomes(lambda: len(gated.assigned()), left, f"pods that run after {ended} (run {run})", 60)
    assert ended == 100
    becomes(gated.held, "0", "what is held in the end")
    seen = history.replay(gated.name, "20")
    assert seen.problems == []
    assert (seen.most, seen.granted) == (TWENTY, TWENTY)


@pytest.mark.parametrize("run", range(RUNS))
def test_racing_binders_in_ten_namespaces_never_take_more(
    ten: Team, history: History, run: int
) -> None:
    ten.share("20")
    with Binders(ten.tenants, 16) as binders:
        eventually(lambda: len(binders.bound) >= 20, f"twenty are bound (run {run})", 60)
        refused = binders.refused
        eventually(lambda: binders.refused >= refused + 32, "the others are refused", 60)
    assert binders.problems == []
    assert len(binders.bound) == len(ten.assigned()) == 20
    seen = history.replay(ten.name, "20")
    assert seen.problems == []
    assert (seen.most, seen.granted) == (TWENTY, TWENTY)


def test_racing_binders_go_on_as_pods_end(ten: Team, history: History) -> None:
    ten.share("20")
    with Binders(ten.tenants, 24, ends_after=0.05) as binders:
        eventually(lambda: len(binders.bound) >= 150, "many are bound one after the other", 90)
    assert binders.problems == []
    assert {tenant.namespace for tenant, _ in binders.bound} == {
        tenant.namespace for tenant in ten.tenants
    }
    seen = history.replay(ten.name, "20")
    assert seen.problems == []
    assert Quantity.parse("2") < seen.most <= TWENTY
    becomes(ten.held, "0", "what is held in the end")


# -- what people read ----------------------------------------------------------------------


def test_a_refusal_says_what_all_namespaces_use(team: Team) -> None:
    first, second = team.tenants
    team.share("3")
    first.bound("a", "2")
    refused = second.bind("b", uid=second.pod("b", "2").uid)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == f"{DENIED}{exceeded(team, '2', '3', '2')}"
    assert refused.causes == [
        ("QuotaExceeded", f"{team.account}/{CPU}", "requested=2,used=2,limited=3")
    ]
    assert second.bind("c", uid=second.pod("c", "1").uid).ok


def test_a_waiting_pod_says_which_quota_it_waits_for(gated: Team) -> None:
    first, second = gated.tenants
    gated.share("2")
    first.pod("a", "2", schedulerName=REAL)
    eventually(lambda: first.node_of("a"), "the first one runs")
    second.pod("b", "1", schedulerName=REAL)
    becomes(
        lambda: second.condition("b", QUOTA_RESERVED),
        ("False", "QuotaExceeded", f"{exceeded(gated, '2', '2')}; place 1 of 1"),
        "what the second one says",
    )
    first.finish("a")
    eventually(lambda: second.node_of("b"), "the second one follows")


def test_a_pod_names_its_own_quota_beside_the_shared_one(gated: Team) -> None:
    tenant = gated.tenants[0]
    gated.share("2")
    tenant.quota("own", hard={CPU: "2"})
    tenant.pod("a", "2", schedulerName=REAL)
    eventually(lambda: tenant.node_of("a"), "the first one runs")
    tenant.pod("b", "1", schedulerName=REAL)
    own = exceeded(gated, "2", "2").replace(gated.account, "own")
    becomes(
        lambda: tenant.condition("b", QUOTA_RESERVED),
        ("False", "QuotaExceeded", f"{exceeded(gated, '2', '2')}; {own}; place 1 of 1"),
        "what the second one says",
    )


def test_what_kubectl_shows(team: Team, plane: ControlPlane) -> None:
    first, second = team.tenants
    team.share("20")
    first.bound("a", "2")
    second.bound("b", "500m")
    becomes(team.held, "2500m", "what is held")
    lines = plane.kubectl("get", team.account).splitlines()
    assert lines[0].split() == ["NAME", "USED/HARD", "NAMESPACES", "AGE"]
    assert lines[1].split()[:4] == [team.name, "requests.cpu", "2500m/20", "2"]
    ledger = plane.kubectl("get", "ql", "--namespace", first.namespace).splitlines()
    assert f"{team.account} requests.cpu 2/20" in ledger[1]


def test_pods_have_to_name_what_a_shared_quota_limits(team: Team) -> None:
    team.share("3")
    tenant = team.tenants[0]
    refused = eventually(
        lambda: [one for one in [tenant.create("a", dry_run=True)] if not one.ok], "it is known"
    )
    assert refused[0].message == (
        'admission webhook "ungated.deferredquota.io" denied the request: '
        f"failed quota: {team.account}: must specify {CPU} for: main"
    )
    assert tenant.pod("b", "4").warnings == (
        f"can never fit quota {team.account}: requested {CPU}=4, limited {CPU}=3",
    )


# -- objects -------------------------------------------------------------------------------


SELECTOR: Final = "spec.namespaceSelector"
SCHEMA_FAULTS: Final[dict[str, tuple[Object, str]]] = {
    "no selector": ({"namespaceSelector": None}, SELECTOR),
    "no limit": ({"hard": {}}, "spec.hard"),
    "an amount that is none": ({"hard": {CPU: "many"}}, "spec.hard.requests.cpu"),
    "an operator that is none": (
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}},
        f"{SELECTOR}.matchExpressions[0].operator",
    ),
    "values that are missing": (
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        f"{SELECTOR}.matchExpressions[0]",
    ),
    "a scope that does not fit": ({"scopes": ["BestEffort"]}, "spec.scopes[0]"),
    "a class with an operator that needs none": (
        {
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "NotTerminating", "operator": "DoesNotExist"}]
            }
        },
        "spec.scopeSelector.matchExpressions[0]",
    ),
}


def test_what_cannot_be_evaluated_is_refused_even_while_no_webhook_answers(
    team: Team, product: Product
) -> None:
    for webhook in product.webhooks:
        webhook.kill()
    for name, (change, where) in SCHEMA_FAULTS.items():
        wanted = team.wanted("1")
        spec = {**wanted["spec"], **change}
        wanted["spec"] = {key: value for key, value in spec.items() if value is not None}
        refused = team.api.create(cluster_quotas(), wanted)
        assert (refused.code, refused.reason) == (422, "Invalid"), name
        assert where in refused.message, name
    product.restore()


def test_the_webhook_refuses_what_belongs_in_a_resource_quota(team: Team) -> None:
    wanted = team.wanted("1")
    wanted["spec"]["hard"]["pods"] = "3"
    refused = team.api.create(cluster_quotas(), wanted)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.message == (
        f"{DEFINED}spec.hard[pods]: is not deferred: limit it by a ResourceQuota in each namespace"
    )


def test_pods_that_are_not_charged_are_reported(team: Team) -> None:
    assert team.share("5", waits=False).warnings == ()
    for tenant in (team.add(mode=""), team.add(mode="")):
        team.tenants.append(tenant)
    hard = {"spec": {"hard": {CPU: "2"}}}
    changed = team.api.patch(cluster_quotas(team.name), hard)
    outside = sorted(tenant.namespace for tenant in team.tenants[2:])
    assert changed.warnings == tuple(
        f"namespace {name} matches and has not opted in: it is not charged" for name in outside
    )
    nobody = team.wanted("1", namespaceSelector={"matchLabels": {"team": "nobody"}})
    nobody["metadata"] = {"name": f"{team.name}-nobody"}
    made = team.api.create(cluster_quotas(), nobody, dry_run=True)
    assert made.warnings == (f"{SELECTOR}: no namespace matches now",)


# -- membership ----------------------------------------------------------------------------


def test_a_namespace_that_joins_brings_its_pods(team: Team, history: History) -> None:
    team.share("4")
    first, _ = team.tenants
    first.bound("a", "2")
    joins = team.add(joins=False)
    before = joins.pod("b", "5")
    assert joins.bind("b", uid=before.uid).ok
    assert joins.bind("c", uid=joins.pod("c", "5").uid).ok
    team.label(joins)
    team.tenants.append(joins)
    team.is_counted(team.tenants)
    becomes(team.held, "12", "what is held")
    refused = first.bind("d", uid=first.pod("d", "1").uid)
    assert refused.message == f"{DENIED}{exceeded(team, '12', '4')}"
    joins.finish("b")
    joins.finish("c")
    becomes(team.held, "2", "what is held when they have ended")
    assert first.bind("d").code in (201, 404, 409) or first.node_of("d")
    assert history.replay(team.name).problems == []


def test_a_namespace_that_leaves_gives_back_what_it_held(team: Team, history: History) -> None:
    first, second = team.tenants
    team.share("3")
    first.bound("a", "3")
    waiting = second.pod("b", "2")
    assert second.bind("b", uid=waiting.uid).code == 403
    team.label(first, joins=False)
    team.is_counted([second])
    becomes(team.held, "0", "what is held")
    eventually(lambda: team.account not in first.accounts(), "the ledger forgets it")
    assert second.bind("b", uid=waiting.uid).ok
    assert first.bind("c", uid=first.pod("c", "9").uid).ok  # nothing limits it any more
    assert history.replay(team.name).problems == []


def test_a_namespace_that_opts_out_or_is_deleted_gives_back_what_it_held(team: Team) -> None:
    first, second = team.tenants
    third = team.add()
    team.tenants.append(third)
    team.share("6")
    for tenant in team.tenants:
        tenant.bound("a", "2")
    becomes(team.held, "6", "what is held")
    labels = {"metadata": {"labels": {"deferredquota.io/mode": None}}}
    assert team.api.patch(f"/api/v1/namespaces/{first.namespace}", labels).ok
    team.is_counted([second, third])
    becomes(team.held, "4", "what is held without the one that opted out")
    third.delete("a")
    team.api.delete(f"/api/v1/namespaces/{third.namespace}")
    team.is_counted([second])
    becomes(team.held, "2", "what is held without the one that is gone")


def test_a_namespace_that_stays_terminating_keeps_no_quota_from_the_others(team: Team) -> None:
    first, second = team.tenants
    team.share("4")
    finalizer = {"metadata": {"finalizers": ["example.com/stays"]}}
    second.bound("a", "2")
    path = objects.pods(second.namespace, "a")
    assert team.api.patch(path, finalizer).ok
    team.api.delete(f"/api/v1/namespaces/{second.namespace}")
    # up to 1.32 it goes with the pods; since then when they are gone, and other objects may stay
    eventually(lambda: second.seen("a").body["metadata"].get("deletionTimestamp"), "it ends")
    assert team.api.delete(objects.ledger(second.namespace)).ok
    try:
        team.edit("5", waits=False)
        shown = {first.namespace: "0", second.namespace: "2"}
        becomes(lambda: _counted(team), (shown, "True"), "what is held after the edit", 150)
        first.bound("b", "3")
        refused = first.bind("c", uid=first.pod("c", "1").uid)
        assert refused.message == f"{DENIED}{exceeded(team, '5', '5')}"
    finally:
        team.api.patch(path, {"metadata": {"finalizers": None}})
        second.delete("a")
    becomes(lambda: _counted(team), ({first.namespace: "3"}, "True"), "what is held then")


def _counted(team: Team) -> tuple[dict[str, str], str]:
    """What each namespace holds, and whether that counts for the quota as it is now."""
    status = team.status()
    held = {one["name"]: one["granted"].get(CPU, "0") for one in status.get("namespaces", [])}
    said = {one["type"]: one["status"] for one in status.get("conditions", [])}
    limit = status.get("hard", {}).get(CPU)
    return held, said.get("Counted", "") if limit == "5" and status.get("observed") else ""


@pytest.mark.parametrize("what", ["promise", "grant"])
def test_what_the_token_of_the_webhook_holds_there_for_nothing_ends(
    plane: ControlPlane, team: Team, what: str
) -> None:
    """A promise, which only pools have, and a grant of a namespace that takes no part."""
    team.share("4")
    stranger = team.add(joins=False)
    tenant = team.tenants[0]
    webhook = Api(plane.service_account_rest(SYSTEM, "deferred-quota-webhook"))
    held = {"uid": "gone", "namespace": stranger.namespace, "pod": "x", "amounts": {CPU: "4"}}
    grant = {"name": stranger.namespace, "granted": {CPU: "4"}}
    field, forged = ("promises", held) if what == "promise" else ("namespaces", grant)

    def is_forged() -> bool:
        read = team.api.get(cluster_quotas(team.name)).body
        read["status"][field] = [*read["status"].get(field, []), forged]
        return webhook.call("PUT", cluster_quotas(team.name, "status"), read).ok

    made = tenant.pod("large", "4")
    eventually(is_forged, "all of it is held")
    eventually(lambda: tenant.bind("large", uid=made.uid).ok, "a pod gets all of it", 30.0)
    assert forged not in team.status().get(field, [])


def test_texts_for_people_that_the_token_of_the_webhook_forged_do_not_stay(
    plane: ControlPlane, team: Team
) -> None:
    """They are not only written again with what a bind changes, which may be days away."""
    team.share("4")
    tenant = team.add()
    webhook = Api(plane.service_account_rest(SYSTEM, "deferred-quota-webhook"))
    made = tenant.pod("small", "1")
    eventually(lambda: tenant.bind("small", uid=made.uid).ok, "both are counted")
    becomes(lambda: len(tenant.promised()), 0, "what is reserved, not counted")
    forged = {
        "summary": "all is well",
        "conditions": [{"type": "Counted", "status": "False", "reason": "Forged"}],
    }
    for path in (cluster_quotas(team.name), ledger(tenant.namespace)):

        def said(path: str = path) -> tuple[str, list[tuple[str, str, str]]]:
            status = team.api.get(path).body["status"]
            conditions = [(c["type"], c["status"], c["reason"]) for c in status["conditions"]]
            return status["summary"], conditions

        becomes(lambda: said()[1][0], ("Counted", "True", "AllCounted"), "what it says")
        before = said()

        def is_forged(path: str = path) -> bool:
            read = team.api.get(path).body
            read["status"] |= forged
            return webhook.call("PUT", f"{path}/status", read).ok

        eventually(is_forged, "another says so")
        becomes(said, before, "what it says")


def test_a_format_that_no_program_here_reads_is_not_stored(plane: ControlPlane, team: Team) -> None:
    """Nothing would be decided by such an object until an administrator takes it away."""
    team.share("4")
    tenant = team.add()
    webhook = Api(plane.service_account_rest(SYSTEM, "deferred-quota-webhook"))
    made = tenant.pod("small", "1")
    eventually(lambda: tenant.bind("small", uid=made.uid).ok, "both are counted")

    def judged(path: str) -> Answer | None:
        read = team.api.get(path).body
        read["status"]["format"] = 99
        answer = webhook.call("PUT", f"{path}/status", read, dry_run=True)
        return None if answer.code == 409 else answer

    for path in (cluster_quotas(team.name), ledger(tenant.namespace)):
        answer = eventually(partial(judged, path), "the write meets no other")
        assert answer is not None
        assert (answer.code, "status.format" in answer.message) == (422, True), answer


# -- edits ---------------------------------------------------------------------------------


def test_a_raised_limit_lets_waiting_pods_go_at_once(gated: Team, history: History) -> None:
    gated.share("2")
    for tenant in gated.tenants:
        crowd(tenant, 4, schedulerName=REAL)
    becomes(lambda: len(gated.assigned()), 2, "pods that run")
    gated.edit("6")
    becomes(lambda: len(gated.assigned()), 6, "pods that run with the higher limit")
    assert history.replay(gated.name, "6").problems == []


def test_a_lowered_limit_evicts_and_admits_no_pod(team: Team, history: History) -> None:
    first, second = team.tenants
    team.share("6")
    for tenant in team.tenants:
        for name in "abc":
            tenant.bound(name, "1")
    team.edit("4")
    assert len(team.assigned()) == 6
    waiting = second.pod("d", "1")
    refused = second.bind("d", uid=waiting.uid)
    assert refused.message == f"{DENIED}{exceeded(team, '6', '4')}"
    for name in "ab":
        first.finish(name)
    becomes(team.held, "4", "what is held")
    assert second.bind("d", uid=waiting.uid).code == 403
    first.finish("c")
    becomes(team.held, "3", "what is held")
    assert second.bind("d", uid=waiting.uid).ok
    assert history.replay(team.name, "6").problems == []


def test_a_limit_that_changes_under_load_holds(ten: Team, history: History) -> None:
    """After each change it is never exceeded from when all that was admitted before is below it."""
    ten.share("8")
    with Binders(ten.tenants, 12, ends_after=0.05) as binders:
        for cpu in ("3", "9", "2", "5"):
            before = len(binders.bound)
            ten.edit(cpu)
            limit = Quantity.parse(cpu)
            below = eventually(lambda: below_limit(ten, limit), f"below {cpu}", 60)  # noqa: B023
            eventually(lambda: len(binders.bound) > before + 15, f"it goes on with {cpu}", 60)  # noqa: B023
            seen = history.replay(ten.name, cpu, since=below)
            assert seen.problems == []
            assert seen.most <= limit
    assert binders.problems == []


def below_limit(team: Team, limit: Quantity) -> int:
    """Return the revision of the quota if no more is held than the limit; else 0."""
    found = team.api.get(cluster_quotas(team.name))
    held = Quantity.parse(found.body["status"]["used"][CPU])
    return int(found.version) if held <= limit else 0


def test_a_quota_that_is_made_again_under_load_holds(ten: Team, history: History) -> None:
    """A quota in each namespace lets every bind be claimed for, as long as none is shared."""
    for tenant in ten.tenants:
        tenant.quota("own", hard={CPU: "100"})
    ten.share("5")
    with Binders(ten.tenants, 12, ends_after=0.05) as binders:
        for _ in range(3):
            before = len(binders.bound)
            assert ten.api.delete(cluster_quotas(ten.name)).ok
            time.sleep(0.2)  # some bind while there is none
            ten.share("5")
            below = eventually(lambda: below_limit(ten, Quantity.parse("5")), "below", 60)
            eventually(lambda: len(binders.bound) > before + 15, "it goes on", 60)  # noqa: B023
            assert history.replay(ten.name, "5", since=below).problems == []
    assert binders.problems == []
    for tenant in ten.tenants:
        tenant.api.delete(f"/api/v1/namespaces/{tenant.namespace}/resourcequotas/own")


# -- beside others -------------------------------------------------------------------------


def test_only_pods_of_a_class_are_charged(
    team: Team, plane: ControlPlane, history: History
) -> None:
    plane.kubectl("create", "priorityclass", team.name, "--value=1000")
    first, second = team.tenants
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": [team.name]}
    team.share("2", scopeSelector={"matchExpressions": [expression]})
    first.bound("a", "2", priorityClassName=team.name)
    refused = second.bind("b", uid=second.pod("b", "1", priorityClassName=team.name).uid)
    assert refused.message == f"{DENIED}{exceeded(team, '2', '2')}"
    assert second.bind("c", uid=second.pod("c", "9").uid).ok

    def is_of_the_class(pod: Object) -> bool:
        return bool(pod["spec"].get("priorityClassName") == team.name)

    seen = history.replay(team.name, "2", counts=is_of_the_class)
    assert (seen.problems, seen.most) == ([], Quantity.parse("2"))
    plane.kubectl("delete", "priorityclass", team.name)


def test_a_pod_has_to_fit_its_own_quota_and_the_shared_one(team: Team) -> None:
    first, second = team.tenants
    first.quota("own", hard={CPU: "2"})
    team.share("3")
    first.bound("a", "2")
    own = first.bind("b", uid=first.pod("b", "1").uid)
    assert own.message == (
        f"{DENIED}exceeded quota: own, requested: {CPU}=1, used: {CPU}=2, limited: {CPU}=2"
    )
    assert second.bind("c", uid=second.pod("c", "1").uid).ok
    second.settles()
    shared = second.bind("d", uid=second.pod("d", "1").uid)
    assert shared.message == f"{DENIED}{exceeded(team, '3', '3')}"
    becomes(lambda: first.used("own"), {CPU: "2"}, "what the quota of the namespace uses")


def test_an_edited_status_is_put_right(team: Team) -> None:
    first, second = team.tenants
    team.share("3")
    first.bound("a", "3")
    becomes(team.held, "3", "what is held")
    forged = {"status": {"namespaces": [{"name": second.namespace, "granted": {CPU: "0"}}]}}
    assert team.api.patch(cluster_quotas(team.name, "status"), forged).ok
    team.is_counted(team.tenants)
    becomes(team.held, "3", "what is held")
    assert second.bind("b", uid=second.pod("b", "1").uid).code == 403


def test_namespaces_that_are_not_there_are_dropped_together(
    team: Team, plane: ControlPlane
) -> None:
    """The webhook's token may write what a namespace holds, and so may its thief."""
    team.share("4")
    thief = Api(plane.service_account_rest(SYSTEM, "deferred-quota-webhook"))
    one, other = sorted(tenant.namespace for tenant in team.tenants)
    ghosts = [{"name": f"ghost-{number}", "granted": {CPU: "100m"}} for number in range(300)]

    def named() -> list[str]:
        return sorted(each["name"] for each in team.status()["namespaces"])

    def forge() -> int:
        quota = thief.get(cluster_quotas(team.name)).body
        serial = int(quota["status"]["serial"])
        quota["status"]["namespaces"] += ghosts
        path = f"{cluster_quotas(team.name)}/status"
        return serial if thief.call("PUT", path, quota).ok else 0

    serial = eventually(forge, "the status is written")
    becomes(named, [one, other], "which take part", 60)
    assert (
        team.status()["serial"] - serial < 30
    )  # what others wrote meanwhile, and not one for each
    team.tenants[0].bound("all", "4")
    assert team.held() == "4"


def test_rights_are_those_of_the_product(plane: ControlPlane, product: Product) -> None:
    assert product.webhooks
    api = Api(plane.rest)

    def may(who: str, verb: str, subresource: str = "") -> bool:
        attributes = {"verb": verb, "group": "deferredquota.io", "subresource": subresource}
        attributes["resource"] = "clusterdeferredquotas"
        user = f"system:serviceaccount:deferred-quota-system:deferred-quota-{who}"
        review = {"spec": {"user": user, "resourceAttributes": attributes}}
        answer = api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer.body["status"]["allowed"])

    for who in ("webhook", "controller"):
        assert may(who, "update", "status")
        assert not may(who, "update")
        # those that charge elastic quotas; the policy on cluster quotas spares all others
        assert may(who, "delete") is (who == "controller")
    shown = json.loads(plane.kubectl("get", "clusterrole", "view", "--output=json"))
    assert any("clusterdeferredquotas" in rule["resources"] for rule in shown["rules"])
