"""Policies decide about new pods as the engine does, and replace entries without a gap."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.builders import a_container, an_expression
from tests.controlplane.features import POLICIES
from tests.e2e.cluster import objects
from tests.e2e.cluster.admission.creation import (
    Case,
    Tally,
    compare,
    is_gated,
    open_namespaces,
    read_quotas,
)
from tests.e2e.cluster.admission.differential_objects import (
    CLUSTER_OBJECTS,
    EVEN,
    GOLD,
    random_pod,
    random_quotas,
)
from tests.e2e.cluster.command_line import findings
from tests.e2e.cluster.installed import Cluster, a_cluster, a_product, a_tenant, is_counted, quota
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.product import Product, apply
from tests.e2e.cluster.shared.history import cluster_quotas
from tests.e2e.cluster.tenant import Tenant, edited_by_alice
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.config import load_configuration
from webhook.install import render
from webhook.kube.api import POD_GATINGS
from webhook.operations.creation import CreationRules
from webhook.operations.names import policy_kinds
from webhook.policy import Policy, compile_policy
from webhook.quota.queue.ungated_limits import UngatedLimits, to_spec
from webhook.state.well_known import CAPACITY_LABEL, POD_GATING, SCHEDULING_GATE

pytestmark = pytest.mark.needs(POLICIES)

IS_SHORT: Final = os.environ.get("DEFERRED_QUOTA_E2E") == "short"
NAMESPACES: Final = 8 if IS_SHORT else 40
PODS: Final = 30 if IS_SHORT else 62
VECTORS: Final = Path(__file__).parents[3] / "vectors" / "decide.jsonl"
CLASS: Final = "PriorityClass"
CLASS_RULES: Final = {
    "requireQuotaForPriority": [an_expression(CLASS, "In", GOLD)],
    "limitedResources": [{"resource": "pods", "matchScopes": [an_expression("Terminating")]}],
}
GATE: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/deferred-quota-gate"
MUTATING: Final = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/deferred-quota"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with a_cluster(tmp_path_factory.mktemp("creation")) as made:
        for path, wanted in CLUSTER_OBJECTS.items():
            for obj in wanted:
                assert Api(made.plane.rest).create(path, obj).ok
        yield made


@pytest.fixture(scope="module")
def policies(cluster: Cluster) -> Api:
    """An API server with the policies, without webhooks, and what one has as parameter."""
    plane = cluster.emptied().plane
    parts = render(url="https://127.0.0.1:1", creation=CreationRules(policy=Policy()))
    apply(plane, parts.cluster)
    api = Api(plane.rest)
    shared = "/apis/deferredquota.io/v1alpha1/clusterdeferredquotas"
    becomes(lambda: api.get(shared).code, 200, "the API server serves cluster quotas")
    apply(plane, parts.creation)
    return api


def random_cases(prefix: str, seed: int) -> tuple[dict[str, Any], list[Case]]:
    chance = random.Random(seed)  # noqa: S311 - the same cases at every run
    wanted = {f"{prefix}-{number}": random_quotas(chance) for number in range(NAMESPACES)}
    cases = [
        Case(namespace, random_pod(chance, f"pod-{number}", EVEN), read_quotas(specs))
        for namespace, specs in wanted.items()
        for number in range(PODS)
    ]
    return wanted, cases


def told(tally: Tally) -> str:
    decided = f"{tally.cases} pods decided about, {tally.refused} of them refused"
    return f"{decided}, {tally.invalid} invalid"


def assert_agreed(tally: Tally, least: int, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\npolicies and engine: {told(tally)}, {len(tally.differences)} differences")
    assert not tally.differences, "\n\n".join(tally.differences[:3])
    assert tally.cases >= least
    assert tally.cases / 20 < tally.refused < tally.cases * 19 / 20, "one verdict hardly occurs"


@pytest.mark.timeout(600)
def test_policies_refuse_and_gate_what_the_engine_does(
    policies: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, cases = random_cases("agree", 18)
    open_namespaces(policies, wanted)
    tally = compare(policies, cases, Policy(), gates_all=False)
    assert_agreed(tally, 200 if IS_SHORT else 2000, capsys)


def oracle_cases() -> tuple[dict[str, Any], list[Case], set[str]]:
    """The cases of the API server's own check, of which each gets a namespace, and its classes."""
    wanted: dict[str, Any] = {}
    cases = []
    classes = set()
    for number, line in enumerate(VECTORS.read_text().splitlines()):
        case = json.loads(line)
        namespace = f"oracle-{number}"
        specs = {each["metadata"]["name"]: each["spec"] for each in case["quotas"] or []}
        wanted[namespace] = {
            name: {"hard": spec.get("hard", {}), **_selectors(spec)} for name, spec in specs.items()
        }
        spec = dict(case["pod"]["spec"])
        spec.pop("nodeName", "")
        spec.pop("overhead", "")  # without a RuntimeClass the API server refuses it
        classes.add(spec.get("priorityClassName", ""))
        pod = {"metadata": {"name": case["pod"]["metadata"]["name"]}, "spec": spec}
        cases.append(Case(namespace, pod, read_quotas(wanted[namespace])))
    return wanted, cases, classes


def _selectors(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: spec[key] for key in ("scopes", "scopeSelector") if spec.get(key)}


def test_a_pod_of_very_many_containers_is_gated_and_not_looked_through(policies: Api) -> None:
    open_namespaces(policies, {"many": {}})
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "many"}}
    made = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "ClusterDeferredQuota",
        "metadata": {"name": "many"},
        "spec": {"hard": {"requests.cpu": "1"}, "namespaceSelector": selector},
    }
    assert policies.create(cluster_quotas(), made).ok

    def created(count: int) -> Answer:
        containers = [a_container(f"c{number}") for number in range(count)]
        pod = {"metadata": {"name": f"p{count}"}, "spec": {"containers": containers}}
        return policies.create(objects.pods("many"), pod, dry_run=True)

    words = "failed quota: cdq/many: must specify requests.cpu for: c0,c1,"
    eventually(lambda: words in created(128).message, "the policy knows the quota")
    assert is_gated(created(129).body)


def test_a_pod_of_very_many_affinity_terms_is_gated_as_a_bind_may_refuse_it_for_good(
    policies: Api,
) -> None:
    """Which quotas of CrossNamespacePodAffinity oblige it is not looked at when it is created."""
    open_namespaces(policies, {"terms": {}})
    assert policies.create(
        "/api/v1/namespaces", objects.a_namespace("terms-auto", gating="auto")
    ).ok
    put_pod_gating(policies, "terms-auto", UngatedLimits())

    def gated(namespace: str, kind: str, terms: int, amounts: dict[str, str]) -> bool:
        affinity = {"podAntiAffinity": {kind: [_A_TERM[kind]] * terms}}
        containers = [a_container("c", requests=amounts)]
        pod = {"metadata": {"name": "p"}, "spec": {"containers": containers, "affinity": affinity}}
        answer = policies.create(objects.pods(namespace), pod, dry_run=True)
        assert answer.ok, str(answer)
        return is_gated(answer.body)

    takes = {"memory": "1Mi"}
    for kind in _A_TERM:
        assert [gated("terms-auto", kind, terms, takes) for terms in (256, 257)] == [False, True]
        assert [gated("terms", kind, terms, {}) for terms in (256, 257)] == [False, True]


def test_a_pod_that_may_evict_others_is_gated_also_if_it_takes_nothing(policies: Api) -> None:
    """Where quotas cannot be counted no pod is bound, and it would be tried again and again."""
    open_namespaces(policies, {"nothing": {}})
    for name, limits in (("shut", UngatedLimits(gates_all=True)), ("open", UngatedLimits())):
        assert policies.create("/api/v1/namespaces", objects.a_namespace(name, gating="auto")).ok
        put_pod_gating(policies, name, limits)
    for name, value in (("above", 5), ("below", -5)):
        made = {"metadata": {"name": name}, "value": value}
        assert policies.create("/apis/scheduling.k8s.io/v1/priorityclasses", made).ok

    def gated(namespace: str, **fields: object) -> bool:
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [a_container("c")], **fields}}
        answer = policies.create(objects.pods(namespace), pod, dry_run=True)
        assert answer.ok, str(answer)
        return is_gated(answer.body)

    eventually(lambda: gated("nothing", priorityClassName="above"), "the class is known")
    assert gated("shut", priorityClassName="above")
    assert not gated("open", priorityClassName="above")
    assert gated("nothing", schedulingGroup={"podGroupName": "train"})
    for harmless in ({}, {"priorityClassName": "below"}):
        assert not any(gated(namespace, **harmless) for namespace in ("nothing", "shut", "open"))


_TERM: Final = {"topologyKey": "kubernetes.io/hostname", "namespaces": ["default"]}
_A_TERM: Final[dict[str, dict[str, Any]]] = {
    "requiredDuringSchedulingIgnoredDuringExecution": _TERM,
    "preferredDuringSchedulingIgnoredDuringExecution": {"weight": 1, "podAffinityTerm": _TERM},
}
"""Field of an affinity → a term in it that names another namespace."""


def put_pod_gating(api: Api, namespace: str, limits: UngatedLimits) -> None:
    """Say up to which size pods of a namespace go ungated, and wait until the policy knows it."""
    made = {
        "apiVersion": POD_GATINGS.api_version,
        "kind": POD_GATINGS.kind,
        "metadata": {"name": POD_GATING},
        "spec": to_spec(limits),
    }
    path = f"/apis/{POD_GATINGS.api_version}/namespaces/{namespace}/{POD_GATINGS.plural}"
    assert api.create(path, made).ok
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    eventually(lambda: api.get(account).ok, account)
    large = [a_container(f"c{number}", requests={"cpu": "1"}) for number in range(9)]
    pod = {"metadata": {"name": "large"}, "spec": {"containers": large}}
    eventually(
        lambda: is_gated(api.create(objects.pods(namespace), pod, dry_run=True).body),
        "the policy knows the PodGating",
    )


def test_many_scopes_of_a_quota_are_not_looked_through(policies: Api) -> None:
    """The API server stores one expression thousands of times."""
    scope = {"scopeName": "NotTerminating", "operator": "Exists"}
    wanted: dict[str, Any] = {
        f"scopes-{count}": {
            "scoped": {
                "hard": {"requests.cpu": "1"},
                "scopeSelector": {"matchExpressions": [scope] * count},
            }
        }
        for count in (256, 257)
    }
    open_namespaces(policies, wanted)

    def refusal(count: int) -> str:
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [a_container("c")]}}
        return policies.create(objects.pods(f"scopes-{count}"), pod, dry_run=True).message

    policy, words = "deferred-quota-must-specify", "scoped: must specify requests.cpu for: c"
    eventually(lambda: policy in refusal(256), "the policy knows the quota")
    assert words in refusal(256)
    # the API server's own check, which nothing hides here
    assert policy not in refusal(257)
    assert words in refusal(257)


@pytest.mark.timeout(600)
def test_policies_decide_the_cases_of_the_oracle(
    policies: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, cases, classes = oracle_cases()
    for name in sorted(classes - {"", "system-node-critical"}):
        made = {"metadata": {"name": name}, "value": 5}
        answer = policies.create("/apis/scheduling.k8s.io/v1/priorityclasses", made)
        assert answer.code in (201, 409)
    open_namespaces(policies, wanted)
    tally = compare(policies, cases, Policy(), gates_all=False)
    assert_agreed(tally, 200, capsys)


@pytest.mark.timeout(600)
def test_rules_that_want_some_quota_are_the_webhooks_as_before(
    clean: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "Configuration", **CLASS_RULES}
    policy = compile_policy(load_configuration(json.dumps(given), "given"))
    api = Api(clean.plane.rest)
    with Product.start(
        clean.plane, tmp_path, configuration=CLASS_RULES, creation="policy"
    ) as product:
        wanted, cases = random_cases("classes", 19)
        open_namespaces(api, wanted)
        tally = compare(api, cases, policy, gates_all=True)
        assert_agreed(tally, 150 if IS_SHORT else 1500, capsys)
        asked = product.metric("admission_requests_total", phase="validating")
        concerned = [one for one in cases if _is_concerned(one.pod)]
        # a part of those is refused by policies, or is not valid, before the webhook is asked
        assert 0 < asked <= len(concerned) + 20


def _is_concerned(pod: dict[str, Any]) -> bool:
    spec = pod["spec"]
    return spec.get("priorityClassName") == GOLD or "activeDeadlineSeconds" in spec


@pytest.mark.timeout(300)
def test_uninstalling_leaves_no_policy(clean: Cluster) -> None:
    clean.install("--creation", "auto")
    kinds = [kind.plural for kind in policy_kinds("v1")]
    clean.uninstall()
    for plural in kinds:
        path = f"/apis/admissionregistration.k8s.io/v1/{plural}"
        assert Api(clean.plane.rest).get(path).body["items"] == []


# -- from one to the other -----------------------------------------------------------------


class Creator(threading.Thread):
    """Creates pods all the time, and keeps those that were neither gated nor refused."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__(daemon=True)
        self.made = 0
        self.missed: list[str] = []
        self._tenant = tenant
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.is_set():
            name = f"load-{self.made}"
            good = self._tenant.create(name, "10m")
            silent = self._tenant.create(f"{name}-silent", "", a_container("c"))
            if not (good.ok and is_gated(good.body)):
                self.missed.append(f"{name}: {good}")
            if silent.code != 403 or "must specify" not in silent.message:
                self.missed.append(f"{name}-silent: {silent}")
            self.made += 1

    def finish(self) -> None:
        self._is_over.set()
        self.join(timeout=30)


@contextmanager
def creating(tenant: Tenant) -> Iterator[Creator]:
    creator = Creator(tenant)
    creator.start()
    try:
        yield creator
    finally:
        creator.finish()


def entries(api: Api) -> set[str]:
    found = api.get(MUTATING).body["webhooks"]
    every = {each["name"].partition(".")[0]: each for each in found}
    return set(every)


@pytest.fixture(scope="module")
def gating(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Product, Tenant]]:
    """The product beside an installation of policies, and a namespace whose pods it gates.

    Each test leaves them as they are; what begins with an empty cluster comes before.
    """
    cluster.emptied()
    directory = tmp_path_factory.mktemp("gating")
    with a_product(cluster, directory) as product, a_tenant(cluster) as tenant:
        cluster.install("--creation", "policy", url=product.url)
        label = {"metadata": {"labels": {objects.GATING_LABEL: "always"}}}
        assert tenant.api.patch(f"/api/v1/namespaces/{tenant.namespace}", label).ok
        quota(tenant, "q", {"requests.cpu": "20m"})
        is_counted(tenant)
        eventually(lambda: _is_decided(tenant), "new pods are decided about")
        yield product, tenant


def _is_decided(tenant: Tenant) -> bool:
    good = tenant.create("probe", "10m", dry_run=True)
    silent = tenant.create("probe", "", a_container("c"), dry_run=True)
    return good.ok and is_gated(good.body) and silent.code == 403


@pytest.mark.timeout(300)
def test_what_decides_moves_under_load_without_a_gap(
    cluster: Cluster, gating: tuple[Product, Tenant]
) -> None:
    product, tenant = gating
    api = tenant.api
    assert api.get(GATE).ok
    with creating(tenant) as creator:
        cluster.install("--creation", "webhook", url=product.url)
        assert api.get(GATE).code == 404
        before = creator.made
        eventually(lambda: creator.made > before + 5, "pods are created beside the webhook")
        cluster.install("--creation", "policy", url=product.url)
        before = creator.made
        eventually(lambda: creator.made > before + 5, "pods are created beside policies")
    assert creator.missed == []
    assert api.get(GATE).ok
    assert creator.made > 20


@pytest.mark.timeout(300)
def test_policies_and_entries_together_act_once(
    cluster: Cluster, gating: tuple[Product, Tenant]
) -> None:
    product, tenant = gating
    ca = (product.certificates / "ca.crt").read_bytes()
    apply(cluster.plane, render(url=product.url, ca_pem=ca).registrations)

    def answered() -> float:
        return product.metric("admission_requests_total", handler="pods")

    before = answered()
    eventually(
        lambda: tenant.create("both", "10m", dry_run=True).ok and answered() > before,
        "the webhook is asked too",
    )
    made = tenant.create("both", "10m")
    assert made.ok, str(made)
    assert is_gated(made.body)
    assert "creation.twice" in str(findings(cluster.plane))
    assert cluster.install("--creation", "policy", url=product.url).splitlines()[-1] != "unchanged"
    assert "creation.twice" not in str(findings(cluster.plane))


@pytest.mark.timeout(300)
def test_long_lists_of_a_pod_are_not_looked_through(
    cluster: Cluster, gating: tuple[Product, Tenant]
) -> None:
    """The API server takes time by the square of their length for that."""
    _, tenant = gating
    gates = [{"name": f"example.com/g{number}"} for number in range(300)]
    made = tenant.create("gates", "10m", dry_run=True, schedulingGates=gates)
    assert made.ok, str(made)
    assert made.body["spec"]["schedulingGates"] == [*gates, {"name": SCHEDULING_GATE}]
    ours_last = [*gates, {"name": SCHEDULING_GATE}]
    again = tenant.create("gates", "10m", dry_run=True, schedulingGates=ours_last)
    assert again.body["spec"]["schedulingGates"] == ours_last
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": f"u{number}"}
        for number in range(300)
    ]
    owners[0]["controller"] = True  # type: ignore[assignment]
    alice = edited_by_alice(cluster.plane, tenant)
    for many, labels in ((owners[:1], {CAPACITY_LABEL: "in-quota"}), (owners, None)):
        metadata = {"labels": {CAPACITY_LABEL: "in-quota"}, "ownerReferences": many}
        made = alice.create("owners", "10m", dry_run=True, metadata=metadata)
        assert made.ok, str(made)
        assert made.body["metadata"].get("labels") == labels


@pytest.mark.usefixtures("gating")
def test_many_terms_of_affinity_are_not_looked_through(cluster: Cluster) -> None:
    """Of more, a pod is not refused but gated; the bind asks what it names."""
    tenant = Tenant(cluster.plane.rest, "affinity")
    spec = {"hard": {"requests.cpu": "1"}, "scopes": ["CrossNamespacePodAffinity"]}
    open_namespaces(tenant.api, {tenant.namespace: {"scoped": spec}})
    term = {"topologyKey": "zone", "namespaces": ["other"], "labelSelector": {}}

    def created(count: int, how: str) -> Answer:
        terms = [{**term, "topologyKey": f"zone{number}"} for number in range(count)]
        weighed = [{"weight": 1, "podAffinityTerm": one} for one in terms]
        rule = {
            "required": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
            "preferred": {"preferredDuringSchedulingIgnoredDuringExecution": weighed},
        }[how]
        silent = a_container("c", requests={"memory": "1Mi"})
        return tenant.create("p", "", silent, dry_run=True, affinity={"podAntiAffinity": rule})

    def is_refused(count: int, how: str) -> bool:
        return "quota: scoped: must specify requests.cpu for: c" in created(count, how).message

    for how in ("required", "preferred"):
        eventually(partial(is_refused, 256, how), "the policy knows the quota")
        answer = created(257, how)
        assert answer.ok, str(answer)
        assert is_gated(answer.body)


@pytest.mark.timeout(300)
def test_an_edited_policy_is_named_and_mended(
    cluster: Cluster, gating: tuple[Product, Tenant]
) -> None:
    product, tenant = gating
    spec = tenant.api.get(GATE).body["spec"]
    spec["variables"][8]["expression"] = "false"  # nothing takes anything
    assert tenant.api.patch(GATE, {"spec": spec}).ok
    eventually(lambda: not _is_decided(tenant), "pods are not gated")
    assert "spec.variables[8].expression" in str(findings(cluster.plane))
    cluster.install("--creation", "policy", url=product.url)
    eventually(lambda: _is_decided(tenant), "pods are gated again")
    assert "creation.edited" not in str(findings(cluster.plane))
