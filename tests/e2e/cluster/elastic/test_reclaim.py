"""Quotas get back what others have borrowed, on a real control plane with the real scheduler.

Pods of one cpu stand for the ten gigabytes of GPU memory in nos' documents.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pytest

from tests.controlplane.features import Gate
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.elastic.kubelets import Kubelets
from tests.e2e.cluster.elastic.pools import Pool, elastic_quotas
from tests.e2e.cluster.elastic.teams import NONE, Teams, a_pool, are_running, live, run
from tests.e2e.cluster.objects import Api, Object
from tests.e2e.cluster.over_and_over import OverAndOver
from tests.e2e.cluster.product import SYSTEM, Product, apply_namespace
from tests.e2e.cluster.shared.history import CPU, History, cluster_quotas
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually

RUNS: Final = 2 if os.environ.get("DEFERRED_QUOTA_E2E") == "short" else 100


def test_the_example_of_nos_documents(own_plane: ControlPlane, teams: Teams) -> None:
    with Kubelets(own_plane.rest, teams.namespaces), History(own_plane) as history:
        teams.run("a", 4)
        teams.run("b", 4)  # three of them borrowed of c
        (fair,) = teams.create("a")
        teams.become(a=5, b=3, c=0)
        assert teams["a"].node_of(fair)
        (beyond,) = teams.create("a")
        eventually(
            lambda: "above min and guaranteed of cpu" in teams.says("a", beyond)[2],
            "the next one has no claim",
        )
        assert teams.taken() == {"a": "5", "b": "3", "c": "0"}
        for number, (a, b) in enumerate(((5, 2), (5, 1), (4, 1)), start=1):
            teams.create("c")
            teams.become(a=a, b=b, c=number)
        found = history.replay(teams.pool.charged_by, str(teams.size))
    assert found.problems == []
    victims = [*teams.events("b", "Reclaimed"), *teams.events("a", "Reclaimed")]
    assert len(victims) == 4
    assert any(
        "which stays within what is guaranteed to its quota beyond min" in v for v in victims
    )


def test_a_pod_that_is_made_again_does_not_get_the_room(
    own_plane: ControlPlane, teams: Teams
) -> None:
    replicas: Object = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 8,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "example.com/i",
                            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
                        }
                    ]
                },
            },
        },
    }
    path = f"/apis/apps/v1/namespaces/{teams['b'].namespace}/replicasets"
    with Kubelets(own_plane.rest, teams.namespaces), History(own_plane) as history:
        assert teams.pool.api.create(path, replicas).ok
        teams.become(a=0, b=8, c=0)
        teams.create("a", 4)
        teams.create("c", 3)
        teams.become(a=4, b=1, c=3)
        found = history.replay(teams.pool.charged_by, str(teams.size))
        # its controller has made seven again: none of them runs, none is evicted for another
        assert len(teams.events("b", "Reclaimed")) == 7
    assert found.problems == []


def test_an_owner_of_many_pods_waits_for_one_grace_period(
    own_plane: ControlPlane, teams: Teams
) -> None:
    with Kubelets(own_plane.rest, teams.namespaces) as kubelets, History(own_plane) as history:
        kubelets.ends.clear()
        teams.run("b", 8)
        names = teams.create("a", 4)
        becomes(lambda: sorted(teams.promised()), names, "all are promised")
        becomes(teams.taken, {"a": "0", "b": "4", "c": "0"}, "all victims are ending")
        said = ["Reclaiming"] * 4
        becomes(lambda: [teams.says("a", name)[1] for name in names], said, "it is said")
        assert teams.released("a") == []
        kubelets.ends.set()
        teams.become(a=4, b=4, c=0)
        found = history.replay(teams.pool.charged_by, str(teams.size))
    assert found.problems == []
    assert len(teams.events("b", "Reclaimed")) == 4


def test_victims_on_two_nodes_make_room_for_a_large_pod(
    own_plane: ControlPlane, teams: Teams
) -> None:
    with Kubelets(own_plane.rest, teams.namespaces):
        teams.run("b", 8)
        (large,) = teams.create("a", cpu="4")
        teams.become(a=4, b=4, c=0)
        assert teams["a"].node_of(large)


@pytest.mark.needs(Gate("DRAExtendedResource"))
def test_devices_that_no_node_names_as_a_resource_are_reclaimed(
    own_plane: ControlPlane, acting: Product
) -> None:
    assert acting.webhooks
    api, group, gpu = Api(own_plane.rest), "/apis/resource.k8s.io/v1", {"example.com/gpu": "1"}
    offer: Object = {
        "driver": "gpu.example.com",
        "nodeName": "node-0",
        "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d0"}],
    }
    made = {
        "deviceclasses": {"extendedResourceName": "example.com/gpu"},
        "resourceslices": offer,
    }
    for kind, spec in made.items():
        answer = api.create(f"{group}/{kind}", {"metadata": {"name": "gpu"}, "spec": spec})
        assert answer.ok, str(answer)
    quotas = {"a": {"min": {"example.com/gpu": 1}}, "b": {"min": {"example.com/gpu": 0}}}
    pool = Pool(own_plane, quotas, resource="example.com/gpu", gating="always")
    a, b = pool.teams.values()
    try:
        with Kubelets(own_plane.rest, [a.namespace, b.namespace]):
            for tenant, name in ((b, "borrows"), (a, "owns")):
                tenant.pod(name, "1", requests=gpu, limits=gpu, schedulerName=REAL)
                eventually(lambda: tenant.node_of(name) == "node-0", f"{name} runs", 60.0)  # noqa: B023
        assert b.seen("borrows").code == 404
    finally:
        pool.close()
        for kind in made:
            api.delete(f"{group}/{kind}/gpu")


def test_a_disruption_budget_in_the_way(own_plane: ControlPlane, teams: Teams) -> None:
    labels = {"metadata": {"labels": {"app": "web"}}}
    budget = {
        "metadata": {"name": "web"},
        "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"app": "web"}}},
    }
    budgets = f"/apis/policy/v1/namespaces/{teams['b'].namespace}/poddisruptionbudgets"
    with Kubelets(own_plane.rest, teams.namespaces):
        assert teams.pool.api.create(budgets, budget).ok
        teams.run("b", 8, **labels)
        eventually(lambda: are_running(teams["b"]), "none is pending, of which no budget is asked")
        (waiting,) = teams.create("a")
        eventually(
            lambda: "a PodDisruptionBudget" in teams.says("a", waiting)[2], "the budget is named"
        )
        assert teams.taken() == {"a": "0", "b": "8", "c": "0"}
        assert teams.promised() == []
        assert teams.pool.api.delete(f"{budgets}/web").ok
        teams.become(a=1, b=7, c=0)


def test_a_budget_behind_very_many_others_is_obeyed(own_plane: ControlPlane, teams: Teams) -> None:
    """A tenant that may write budgets writes so many that this one is not read for the plan."""
    plain = {"metadata": {"labels": {"app": "web"}}}
    names = (*(f"k{number}" for number in range(120)), "app")
    without = [{"key": name, "operator": "DoesNotExist"} for name in names]
    selectors: dict[str, Object] = {
        **{f"long-{number:02}": {"matchExpressions": without} for number in range(20)},
        "web": {"matchLabels": {"app": "web"}},
    }
    budgets = f"/apis/policy/v1/namespaces/{teams['b'].namespace}/poddisruptionbudgets"
    with Kubelets(own_plane.rest, teams.namespaces):
        for name, selector in selectors.items():
            spec = {"minAvailable": "100%", "selector": selector}
            assert teams.pool.api.create(budgets, {"metadata": {"name": name}, "spec": spec}).ok
        teams.run("b", 8, **plain)
        eventually(lambda: are_running(teams["b"]), "none is pending, of which no budget is asked")
        (waiting,) = teams.create("a")
        eventually(
            lambda: "a PodDisruptionBudget" in teams.says("a", waiting)[2], "no plan is begun"
        )
        assert teams.taken() == {"a": "0", "b": "8", "c": "0"}
        assert teams.promised() == []
        assert teams.pool.api.delete(f"{budgets}/web").ok
        for number in range(4):  # the others protect nothing, and all of them are looked at
            assert teams.pool.api.delete(f"{budgets}/long-{number:02}").ok
        teams.become(a=1, b=7, c=0)


def test_a_promise_without_a_pod_ends_although_no_pod_waits(
    own_plane: ControlPlane, acting: Product
) -> None:
    """As a backup has it that was restored, or the token of the webhook writes it."""
    assert acting.webhooks
    pool = Pool(own_plane, {"a": {"min": {"cpu": 4}}})
    webhook = Api(own_plane.service_account_rest(SYSTEM, "deferred-quota-webhook"))
    path = cluster_quotas(pool.charged_by)
    nobody = {"namespace": "kube-system", "pod": "x", "uid": "gone"}
    try:

        def is_forged() -> bool:
            forged = pool.api.get(path).body
            forged["status"]["promises"] = [{**nobody, "amounts": {CPU: "1000"}}]
            return webhook.call("PUT", f"{path}/status", forged).ok

        eventually(is_forged, "all of the pool is promised")
        made = pool.teams["a"].pod("runs", "1")
        eventually(
            lambda: pool.teams["a"].bind("runs", uid=made.uid).ok, "it binds without a gate", 30.0
        )
        assert "promises" not in pool.api.get(path).body["status"]
    finally:
        pool.close()


def test_a_plan_that_comes_to_nothing_is_withdrawn(own_plane: ControlPlane, teams: Teams) -> None:
    with Kubelets(own_plane.rest, teams.namespaces) as kubelets:
        kubelets.ends.clear()
        teams.run("b", 8)
        (gone,) = teams.create("a")
        becomes(teams.promised, [gone], "it is promised")
        (again,) = teams.create("b")
        teams["a"].delete(gone)
        becomes(teams.promised, NONE, "nothing is promised to a pod that is gone")
        eventually(lambda: teams.events("a", "ReclaimWithdrawn"), "an event says so")
        kubelets.ends.set()
        eventually(lambda: teams["b"].node_of(again), "what became free is for others")
        teams.become(a=0, b=8, c=0)


def test_a_composite_gives_and_takes_as_one_quota(own_plane: ControlPlane, acting: Product) -> None:
    assert acting.webhooks
    pool = Pool(own_plane, {"x": None, "y": None, "z": {"min": {"cpu": 4}}}, gating="always")
    try:
        together = [pool.teams[name].namespace for name in ("x", "y")]
        spec = {"namespaces": together, "min": {"cpu": 4}}
        path = elastic_quotas(together[0], kind="compositeelasticquotas")
        whole = pool.quota(spec, kind="CompositeElasticQuota")
        assert pool.api.create(path, whole).ok
        pool.is_counted(8)
        mine = Teams(pool, 8)
        with Kubelets(own_plane.rest, mine.namespaces), History(own_plane) as history:
            mine.run("x", 3)
            mine.run("y", 4)
            time.sleep(1.1)  # times of pods have whole seconds
            mine.run("x", 1)  # the newest of the composite, and over its min
            mine.create("z")
            mine.become(x=3, y=4, z=1)
            over = lambda: sum(live(mine[team], "over-quota") for team in "xy")  # noqa: E731
            becomes(over, 3, "what is over the min of both")
            (newest,) = mine.events("x", "Reclaimed")
            assert "within the min of its quota" in newest
            mine.create("z", 3)
            mine.become(x=3, y=1, z=4)
            (waiting,) = mine.create("y")
            eventually(lambda: mine.says("y", waiting)[0] == "False", "a composite has one min")
            found = history.replay(pool.charged_by, "8")
        assert found.problems == []
        assert mine.taken() == {"x": "3", "y": "1", "z": "4"}
    finally:
        pool.close()


@pytest.mark.parametrize("moment", ["promised", "evicted", "released"])
def test_another_leader_goes_on(
    own_plane: ControlPlane, acting: Product, teams: Teams, moment: str
) -> None:
    with Kubelets(own_plane.rest, teams.namespaces) as kubelets, History(own_plane) as history:
        if moment != "released":  # a pod is released once its victim has ended
            kubelets.ends.clear()
        teams.run("b", 8)
        killed = threading.Thread(target=kill_at, args=(acting, teams, moment))
        killed.start()
        teams.create("a", 3)
        killed.join(60)
        kubelets.ends.set()
        becomes(teams.taken, {"a": "3", "b": "5", "c": "0"}, "the plan is carried out", 90.0)
        becomes(teams.promised, NONE, "no promise is left", 60.0)
        found = history.replay(teams.pool.charged_by, str(teams.size))
    assert found.problems == []
    assert live(teams["b"]) == 5


def kill_at(product: Product, teams: Teams, moment: str) -> None:
    """Kill the leader, and what would be the next but for the other one, at a moment of a plan."""
    moments: dict[str, Callable[[], object]] = {
        "promised": teams.promised,
        "evicted": lambda: live(teams["b"]) < 8,
        "released": lambda: teams.released("a"),
    }
    eventually(moments[moment], moment, growth=1.0)
    leading = [one for one in product.controllers if one.metric("leader") == 1]
    for process in leading or product.controllers[:1]:
        process.kill()


def a_daemon_set(version: str) -> Object:
    """Return it as the owner of a pod; there is none."""
    owner = {"apiVersion": version, "kind": "DaemonSet", "name": "d", "uid": "u"}
    return {**owner, "controller": True}


WAYS_TO_KEEP: Final = {
    # its oldest pod, within the min of the quota, stays; the others go together
    "one group": ({"labels": {"elastic.deferredquota.io/group": "all"}}, 1),
    "a DaemonSet of another group": ({"ownerReferences": [a_daemon_set("example.com/v1")]}, 4),
    # the garbage collector can look up no such owner, and leaves its pods
    "a DaemonSet of another version": ({"ownerReferences": [a_daemon_set("apps/v2")]}, 4),
}


@pytest.mark.parametrize(("metadata", "left"), WAYS_TO_KEEP.values(), ids=WAYS_TO_KEEP)
def test_a_borrower_does_not_keep_what_others_are_guaranteed(
    own_plane: ControlPlane, teams: Teams, editor: Tenant, metadata: Object, left: int
) -> None:
    with Kubelets(own_plane.rest, teams.namespaces):
        run(teams, editor, [f"b{number}" for number in range(8)], metadata)
        teams.create("a", 4)
        teams.become(a=4, b=left, c=0)


def test_a_user_does_not_make_a_mirror_pod(teams: Teams, editor: Tenant) -> None:
    """A kubelet keeps a mirror pod alive, so reclaim takes none."""
    mirror = {"annotations": {"kubernetes.io/config.mirror": "abc"}}
    refused = editor.create("b0", "1", metadata=mirror, nodeName="node-1")
    assert (refused.code, refused.reason) == (403, "Forbidden")
    field = "metadata.annotations[kubernetes.io/config.mirror]"
    assert f"{field}: may only be written by the group system:nodes" in refused.message
    assert teams.taken() == {"a": "0", "b": "0", "c": "0"}
    waits = editor.create("b1", "1", metadata=mirror)
    assert "must set spec.nodeName if mirror pod annotation is set" in waits.message
    assert editor.create("b2", "1", schedulerName=REAL).ok
    eventually(lambda: teams["b"].node_of("b2"), "b2 runs")
    late = editor.api.patch(objects.pods(editor.namespace, "b2"), {"metadata": mirror})
    assert "may not add mirror pod annotation" in late.message


@pytest.mark.parametrize("years", [10**8, 10**10, 10**18], ids=["3", "300", "ages"])
def test_a_borrower_cannot_take_its_time_to_end(
    own_plane: ControlPlane, teams: Teams, editor: Tenant, years: int
) -> None:
    """Its pods may take years to end, and it has deleted most of them itself.

    Of three hundred the API server's durations are too short: by `deletionTimestamp` such a pod
    should have ended in the eighteenth century.
    """
    with Kubelets(own_plane.rest, teams.namespaces, longest_grace=600):
        names = [f"b{number}" for number in range(8)]
        run(teams, editor, names, {}, terminationGracePeriodSeconds=years)
        for name in names[4:]:
            assert editor.api.delete(objects.pods(editor.namespace, name)).ok
        teams.create("a", 4)
        teams.create("c", 3)
        teams.become(a=4, b=1, c=3)


def test_a_quota_that_protects_its_pods_for_ever_stops_no_other_plan(
    own_plane: ControlPlane, teams: Teams
) -> None:
    assert teams.pool.edit("c", {"reclaim": {"protectSeconds": 2**63 - 1}}).ok
    with Kubelets(own_plane.rest, teams.namespaces):
        teams.run("c", 1)
        teams.run("b", 7)
        teams.create("a", 4)
        teams.become(a=4, b=3, c=1)


def test_pods_with_two_budgets_stop_no_other_eviction(
    own_plane: ControlPlane, teams: Teams, editor: Tenant
) -> None:
    """No eviction of them is carried out: the API server answers 500."""
    path = f"/apis/policy/v1/namespaces/{editor.namespace}/poddisruptionbudgets"

    def allow() -> list[int]:
        listed = editor.api.get(path).body["items"]
        return [one.get("status", {}).get("disruptionsAllowed") for one in listed]

    def ready() -> int:
        listed = editor.api.get(objects.pods(editor.namespace)).body["items"]
        kept = [one for one in listed if one["metadata"].get("labels", {}).get("app") == "kept"]
        conditions = [each for one in kept for each in one["status"].get("conditions", ())]
        return sum((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

    with Kubelets(own_plane.rest, teams.namespaces):
        teams.run("b", 6)
        run(teams, editor, ["kept0", "kept1"], {"labels": {"app": "kept"}})
        # of a pod with two budgets the disruption controller tells one only what becomes of it
        becomes(ready, 2, "both are ready")
        for name in ("one", "two"):
            spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "kept"}}}
            assert editor.api.create(path, {"metadata": {"name": name}, "spec": spec}).ok
        becomes(lambda: all(one and one >= 1 for one in allow()), True, "no budget is an obstacle")
        teams.create("a", 4)
        teams.become(a=4, b=4, c=0)
        assert all(teams["b"].node_of(name) for name in ("kept0", "kept1"))


def test_a_budget_that_is_written_without_a_pause_stops_no_plan_of_others(
    own_plane: ControlPlane, teams: Teams, editor: Tenant
) -> None:
    """The API server tries for ten seconds to count an eviction in it, one after the other."""
    path = f"/apis/policy/v1/namespaces/{editor.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    counts = itertools.count()

    def write(key: str) -> None:
        annotations = {key: str(next(counts))}
        editor.api.patch(f"{path}/kept", {"metadata": {"annotations": annotations}})

    with (
        a_pool(own_plane, d=2, e=1) as neighbours,
        Kubelets(own_plane.rest, [*teams.namespaces, *neighbours.namespaces]),
    ):
        assert editor.api.create(path, {"metadata": {"name": "kept"}, "spec": spec}).ok
        names = [f"kept{number}" for number in range(8)]
        run(teams, editor, names, {"labels": {"app": "kept"}})
        neighbours.run("e", 3)
        with OverAndOver([partial(write, f"w{number}") for number in range(6)]):
            teams.create("a", 4)
            becomes(teams.promised, ["a0"], "its plan has begun")
            (name,) = neighbours.create("d")
            eventually(lambda: neighbours["d"].node_of(name), "the neighbour gets its own", 20.0)


EVICTIONS: Final = {
    "without uid": ("a", {}, "each by its uid"),
    "at once": ("a", {"preconditions": {"uid": "UID"}, "gracePeriodSeconds": 0}, "each by its uid"),
    "after all time": (
        "a",
        {"preconditions": {"uid": "UID"}, "gracePeriodSeconds": 86_401},
        "each by its uid",
    ),
    "orphaning": (
        "a",
        {"preconditions": {"uid": "UID"}, "propagationPolicy": "Orphan"},
        "each by its uid",
    ),
    "orphaning, as before": (
        "a",
        {"preconditions": {"uid": "UID"}, "orphanDependents": True},
        "each by its uid",
    ),
    "in a minute": ("a", {"preconditions": {"uid": "UID"}, "gracePeriodSeconds": 60}, ""),
    "of another namespace": ("plain", {"preconditions": {"uid": "UID"}}, "opted-in namespaces"),
    "as it is allowed": ("a", {"preconditions": {"uid": "UID"}}, ""),
}


@pytest.mark.parametrize(("where", "options", "refusal"), EVICTIONS.values(), ids=EVICTIONS)
def test_our_token_evicts_pods_of_opted_in_namespaces_only(
    own_plane: ControlPlane, teams: Teams, where: str, options: Object, refusal: str
) -> None:
    tenant = Tenant(own_plane.rest, "reclaim-plain") if where == "plain" else teams[where]
    if where == "plain":
        apply_namespace(tenant.api, tenant.namespace, mode="")
    made = tenant.pod("web", "1")
    given = json.loads(json.dumps(options).replace("UID", made.uid))
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "web", "namespace": tenant.namespace},
        "deleteOptions": given,
    }
    ours = Api(own_plane.service_account_rest(SYSTEM, "deferred-quota-controller"))
    answer = ours.create(objects.pods(tenant.namespace, "web", "eviction"), eviction)
    assert answer.ok is (refusal == ""), str(answer)
    assert refusal in answer.message
    if not answer.ok:
        assert answer.code == 403
        tenant.delete("web")


@pytest.mark.parametrize("number", range(RUNS))
def test_three_that_claim_at_once_end_in_the_same_sums(
    own_plane: ControlPlane, acting: Product, number: int
) -> None:
    assert acting.webhooks
    with a_pool(own_plane, a=2, b=2, c=2, d=0) as teams:
        with Kubelets(own_plane.rest, teams.namespaces), History(own_plane) as history:
            teams.run("d", 6)
            with ThreadPoolExecutor() as threads:
                list(threads.map(lambda team: teams.create(team, 3), "abc"))
            teams.become(a=2, b=2, c=2, d=0)
            found = history.replay(teams.pool.charged_by, "6")
            evicted = lambda: sum(len(teams.events(team, "Reclaimed")) for team in "abcd")  # noqa: E731
            becomes(evicted, 6, "an event tells of each eviction")
        assert found.problems == [], number
        withdrawn = [one for team in "abc" for one in teams.events(team, "ReclaimWithdrawn")]
        assert withdrawn == []
        failed = [one for team in "abc" for one in teams.events(team, "FailedScheduling")]
        assert [one for one in failed if "elastic pool" in one] == [], "binds of released pods"
