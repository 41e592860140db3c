"""Elastic quotas on a real control plane: binds, labels, status, and what nobody may do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest
from click.testing import CliRunner

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.elastic.pools import Pool, elastic_quotas
from tests.e2e.cluster.objects import Object
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.shared.history import History
from tests.e2e.cluster.shared.sharing import Binders
from tests.e2e.cluster.tenant import REAL
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.cli import cli
from webhook.quota.objects.names import QUOTA_RESERVED

DENIED: Final = 'admission webhook "bind.deferredquota.io" denied the request: '
MEMORY: Final = "nos.nebuly.com/gpu-memory"

MakePool = Callable[..., Pool]


@pytest.fixture
def pool_of(plane: ControlPlane, product: Product) -> Iterator[MakePool]:
    """A function that makes a pool of elastic quotas."""
    assert product.webhooks
    with ExitStack() as stack:

        def make(resource: str = "cpu", **quotas: Object | None) -> Pool:
            made = Pool(plane, quotas, resource=resource)
            stack.callback(made.close)
            return made

        yield make


def amounts(least: Any = None, most: Any = None) -> Object:
    given = {"min": least, "max": most}
    return {name: {"cpu": cpu} for name, cpu in given.items() if cpu is not None}


def test_a_team_borrows_what_others_leave_and_no_more(pool_of: MakePool) -> None:
    pool = pool_of(a=amounts(2), b=amounts(2, 3))
    assert [pool.bind("b", f"b{number}").code for number in range(3)] == [201] * 3
    refused = pool.bind("b", "b3")
    assert refused.code == 403
    assert refused.message == (
        f"{DENIED}exceeded elastic quota: eq/q, requested: cpu=1, used: cpu=3, max: cpu=3"
    )
    assert pool.bind("a", "a0").code == 201
    refused = pool.bind("a", "a1")
    assert refused.code == 403
    assert refused.message == (
        f"{DENIED}elastic pool {pool.name} is used up, requested: cpu=1, used: cpu=4, size: cpu=4;"
        f" borrowed: {pool.teams['b'].namespace} cpu=1"
    )
    pool.teams["b"].delete("b0")
    eventually(lambda: pool.teams["a"].bind("a1").code == 201, "the owner takes what is free again")


def test_headroom_spares_writes_of_the_pool_and_is_given_back(
    pool_of: MakePool, plane: ControlPlane
) -> None:
    with History(plane) as history:
        pool = pool_of(a=amounts(12), b=amounts(12), c=amounts(8, 10))
        for team, number in (("a", 8), ("c", 2)):
            codes = [pool.bind(team, f"{team}{one}").code for one in range(number)]
            assert codes == [201] * number
        namespaces = {team: tenant.namespace for team, tenant in pool.teams.items()}
        raises = history.raises(pool.charged_by, namespaces["a"])
        assert raises <= 3, f"the pool was raised {raises} times for 8 binds"
        formats = {team: tenant.ledger()["format"] for team, tenant in pool.teams.items()}
        assert formats == {"a": 2, "b": 1, "c": 2}
        answers = pool.answers("b", "all-the-rest", "22")
        assert {one.code for one in answers} == {201, 429}
        assert any("it is being recalled" in one.message for one in answers)
        assert pool.bind("a", "a8").code == 403
        for hard, quota in (("32", pool.charged_by), ("10", f"eq.{namespaces['c']}.q")):
            assert history.replay(quota, hard).problems == []


def test_what_is_not_lent_is_kept(pool_of: MakePool) -> None:
    pool = pool_of(a={**amounts(4), "lendable": {"cpu": 1}}, b=amounts(1))
    assert [pool.bind("b", f"b{number}").code for number in range(3)] == [201, 201, 403]
    assert [pool.bind("a", f"a{number}").code for number in range(4)] == [201, 201, 201, 403]


def test_labels_and_status_say_what_is_borrowed(pool_of: MakePool, plane: ControlPlane) -> None:
    pool = pool_of(a=amounts(2), b=amounts(1))
    for number in range(3):
        assert pool.bind("b", f"b{number}").code == 201
    becomes(
        lambda: sorted(pool.labels("b").values()),
        ["in-quota", "over-quota", "over-quota"],
        "labels by what is guaranteed",
    )
    becomes(lambda: pool.figure("b", "borrowed"), {"cpu": "2"}, "what is borrowed")
    becomes(lambda: pool.figure("a", "lent"), {"cpu": "2"}, "what is lent")
    (condition,) = pool.status("b")["conditions"]
    assert (condition["type"], condition["reason"]) == ("Charged", "AllCharged")
    namespace = pool.teams["b"].namespace
    shown = plane.kubectl("get", "eq", "-n", namespace).splitlines()
    assert [line.split()[:4] for line in shown] == [
        ["NAME", "USED/MIN", "CHARGED", "AGE"],
        ["q", "cpu", "3/1", "AllCharged"],
    ]


def test_a_pool_that_the_api_server_refuses_is_not_said_to_be_charged(pool_of: MakePool) -> None:
    pool = pool_of(a=None, b=None)
    names = [f"example.com/r{number}" for number in range(128)]
    first, rest = (dict.fromkeys(part, 1) for part in (names[:64], names[64:]))
    for team, least, most in (("a", first, rest), ("b", rest, first)):
        quota = pool.quota({"min": least, "max": most})
        answer = pool.api.create(elastic_quotas(pool.teams[team].namespace), quota)
        assert answer.ok, str(answer)
    written = f'ClusterDeferredQuota.deferredquota.io "{pool.charged_by}" is invalid: '
    for team in ("a", "b"):

        def said() -> tuple[str, str]:
            (one,) = pool.status(team).get("conditions") or [{}]  # noqa: B023
            return str(one.get("status")), str(one.get("reason"))

        becomes(said, ("False", "Refused"), "what the quota says")
        (condition,) = pool.status(team)["conditions"]
        assert condition["message"].startswith(f"no bind is charged by these amounts: {written}")
        assert "spec.hard: Too many: 128: must have at most 64 items" in condition["message"]


def test_of_five_pods_at_min_40_the_newest_is_over_quota_until_another_ends(
    pool_of: MakePool,
) -> None:
    pool = pool_of(MEMORY, a={"min": {MEMORY: 40}}, b={"min": {MEMORY: 10}})
    slice_ = {"nvidia.com/gpu-10gb": "1"}
    for number in range(5):
        assert pool.bind("a", f"a{number}", requests=slice_, limits=slice_).code == 201
    four = dict.fromkeys(("a0", "a1", "a2", "a3"), "in-quota")
    becomes(lambda: pool.labels("a"), {**four, "a4": "over-quota"}, "the labels of five")
    pool.teams["a"].delete("a1")
    becomes(
        lambda: pool.labels("a"),
        dict.fromkeys(("a0", "a2", "a3", "a4"), "in-quota"),
        "the labels of four",
    )


def test_a_label_is_compared_and_never_believed(pool_of: MakePool) -> None:
    pool = pool_of(a=amounts(2))
    assert pool.bind("a", "a0").code == 201
    becomes(lambda: pool.labels("a"), {"a0": "in-quota"}, "the label")
    path = f"/api/v1/namespaces/{pool.teams['a'].namespace}/pods/a0"
    for value in ("over-quota", None):  # by a user that may break the glass
        forged = {"metadata": {"labels": {"nos.nebuly.com/capacity": value}}}
        assert pool.api.patch(path, forged).ok
        becomes(lambda: pool.labels("a"), {"a0": "in-quota"}, "the label, written again")


def test_a_composite_is_one_quota(pool_of: MakePool) -> None:
    pool = pool_of(a=amounts(1), b=None, c=None)
    tenants = pool.teams
    names = [tenants[team].namespace for team in ("b", "c")]
    whole = pool.quota({"namespaces": names, **amounts(1, 2)}, kind="CompositeElasticQuota")
    path = elastic_quotas(tenants["a"].namespace, kind="compositeelasticquotas")
    assert pool.api.create(path, whole).ok
    pool.is_counted(2)
    account = f"cdq/ceq.{tenants['a'].namespace}.q"
    eventually(lambda: account in tenants["c"].accounts(), "the composite is counted")
    assert pool.bind("b", "b0").code == 201
    assert pool.bind("c", "c0").code == 201
    refused = pool.bind("c", "c1")
    assert refused.message == (
        f"{DENIED}exceeded elastic quota: ceq/{tenants['a'].namespace}/q, requested: cpu=1,"
        " used: cpu=2, max: cpu=2"
    )


def test_gpu_memory_is_shared(pool_of: MakePool) -> None:
    pool = pool_of(MEMORY, a={"min": {MEMORY: 42}}, b={"min": {MEMORY: 32}})
    gpus = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"}
    assert pool.bind("a", "a0", requests=gpus, limits=gpus).code == 201
    assert pool.bind("b", "b0", "64").code == 201
    refused = pool.bind("b", "b1", requests=gpus, limits=gpus)
    assert refused.code == 403
    assert f"elastic pool {pool.name} is used up, requested: {MEMORY}=42" in refused.message


WRONG: Final = {
    "min above max": (amounts(3, 2), "must be less than or equal to spec.max[cpu], which is 2"),
    "min above max in other units": (
        amounts("2001m", 2),
        "must be less than or equal to spec.max[cpu], which is 2",
    ),
    "less than nothing": (amounts("-1"), "spec.min.cpu"),
    "more lent than there is": (
        {**amounts(2), "lendable": {"cpu": 3}},
        "must be less than or equal to spec.min[cpu], which is 2",
    ),
    "lent and not there": (
        {"lendable": {"cpu": 1}},
        "must be less than or equal to spec.min[cpu], which is 0",
    ),
    "no amount": (amounts("two"), "spec.min.cpu"),
}


@pytest.mark.parametrize(("spec", "words"), WRONG.values(), ids=WRONG)
def test_what_makes_no_sense_is_refused(
    pool_of: MakePool, namespace: str, spec: Object, words: str
) -> None:
    pool = pool_of()
    answer = pool.api.create(elastic_quotas(namespace), pool.quota(spec), dry_run=True)
    assert answer.code == 422, str(answer)
    assert words in answer.message


def test_nos_manifests_are_taken_as_they_are(pool_of: MakePool, namespace: str) -> None:
    pool = pool_of()
    both = {"cpu": 2, "memory": "6Gi", MEMORY: 10, "nvidia.com/gpu": "1"}
    spec = {"min": both, "max": {**both, "memory": "7.5Gi"}}
    assert pool.api.create(elastic_quotas(namespace), pool.quota(spec), dry_run=True).ok
    composite = pool.quota(
        {**spec, "namespaces": [namespace, "other"]}, kind="CompositeElasticQuota"
    )
    path = elastic_quotas(namespace, kind="compositeelasticquotas")
    assert pool.api.create(path, composite, dry_run=True).ok
    twice = pool.quota({"namespaces": ["x", "x"]}, kind="CompositeElasticQuota")
    assert pool.api.create(path, twice, dry_run=True).code == 422


PLUGINS: Final = "scheduling.x-k8s.io"


@pytest.fixture
def plugins_kind(plane: ControlPlane) -> Iterator[None]:
    """The kind of the scheduler's plugins, which has the names of ours."""
    names = {"plural": "elasticquotas", "singular": "elasticquota", "shortNames": ["eq"]}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True}
    kind = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"elasticquotas.{PLUGINS}"},
        "spec": {
            "group": PLUGINS,
            "names": {**names, "kind": "ElasticQuota"},
            "scope": "Namespaced",
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    # a group of Kubernetes' own names must say that it is not approved
    kind["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved"}  # type: ignore[index]
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    plane.rest.create(path, kind)
    yield
    plane.rest.delete(f"{path}/elasticquotas.{PLUGINS}")


@pytest.mark.usefixtures("plugins_kind")
def test_quotas_of_the_schedulers_plugins_are_taken_over(pool_of: MakePool) -> None:
    pool = pool_of(a=None)
    namespace = pool.teams["a"].namespace
    theirs = f"/apis/{PLUGINS}/v1alpha1/namespaces/{namespace}/elasticquotas"
    spec = {"min": {"cpu": 1, "memory": "1Gi"}, "max": {"cpu": 2, "memory": "2Gi"}}
    written = {
        "apiVersion": f"{PLUGINS}/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "labels": {"deferredquota.io/pool": pool.name}},
        "spec": spec,
    }
    eventually(lambda: pool.api.create(theirs, written).ok, "the kind is served")
    stored = json.dumps(pool.api.get(f"{theirs}/q").body)
    done = CliRunner().invoke(cli, ["convert", "-f", "-", "-o", "json"], input=stored)
    assert done.exit_code == 0, done.output
    made = pool.api.create(elastic_quotas(namespace), json.loads(done.stdout))
    assert made.ok, str(made)
    pool.is_counted(1, "a")
    assert pool.bind("a", "a0").code == 201
    assert "is used up" in pool.bind("a", "a1").message
    assert pool.api.get(f"{theirs}/q").body["spec"] == spec


def test_at_no_revision_more_than_the_pool_while_min_is_edited(
    plane: ControlPlane, pool_of: MakePool
) -> None:
    pool = pool_of(a=amounts(3), b=amounts(2, 4), c=amounts(1))
    with History(plane) as history:
        with Binders([*pool.teams.values()], 6, ends_after=0.3) as binders:
            for cpu in (4, 3, 5, 3):
                assert pool.edit("a", {"min": {"cpu": cpu}}).ok
                pool.is_counted(cpu + 3)
                bound = len(binders.bound)
                eventually(lambda: len(binders.bound) > bound + 10, "binds go on")  # noqa: B023
        found = history.replay(pool.charged_by, "8")
        limit = history.replay(f"eq.{pool.teams['b'].namespace}.q", "4")
    assert binders.problems == []
    assert (found.problems, limit.problems) == ([], [])
    assert found.most >= limit.most
    assert binders.refused > 0


def test_a_second_quota_of_a_namespace_is_refused(pool_of: MakePool) -> None:
    pool = pool_of(a=amounts(1))
    namespace = pool.teams["a"].namespace
    answer = pool.api.create(elastic_quotas(namespace), pool.quota(amounts(1), name="second"))
    assert answer.code == 422
    assert 'admission webhook "quotas.deferredquota.io" denied the request' in answer.message
    assert (
        f"has ElasticQuota {namespace}/q already: change that one, or kubectl delete"
        in answer.message
    )


def test_an_owner_goes_before_a_borrower(plane: ControlPlane, product: Product) -> None:
    assert product.webhooks
    pool = Pool(plane, {"a": amounts(2), "b": amounts(1)}, gating="always")
    try:
        a, b = pool.teams["a"], pool.teams["b"]
        for number in range(3):  # which the real scheduler binds once they are released
            b.pod(f"b{number}", "1", schedulerName=REAL)
            eventually(lambda name=f"b{number}": b.node_of(name), "the pool is borrowed")  # type: ignore[misc]
        b.pod("b3", "1", schedulerName=REAL)
        a.pod("a0", "1", schedulerName=REAL)
        for tenant, name in ((b, "b3"), (a, "a0")):
            eventually(
                lambda of=(tenant, name): of[0].condition(of[1], QUOTA_RESERVED)[0] == "False",  # type: ignore[misc]
                f"{name} waits",
            )
        b.delete("b0")
        eventually(lambda: a.node_of("a0"), "the owner is bound")
        assert not b.node_of("b3")
        b.delete("b1")
        eventually(lambda: b.node_of("b3"), "then the borrower")
    finally:
        pool.close()
