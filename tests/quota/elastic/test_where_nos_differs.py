"""Defects of nos (12e0a72): each test fails with what nos does, which its docstring says.

Those of its labels are X4 and X5, of its GPU memory X1, of absent resources X19, of its sums X20:
see `test_examples`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import a_container
from tests.quota.elastic.pools import UNIT, Cluster, a_quota, namespaces
from webhook.quota import pod_usage
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import to_text
from webhook.quota.charging.gpu_memory import GPU_MEMORY, gpu_memory
from webhook.quota.elastic.balance import Claim
from webhook.quota.elastic.capacity import in_label_order, over_quota
from webhook.quota.elastic.elastic_quotas import charge, conflicts, elastic_quota_errors

CPU = {"cpu": "1"}


def a_pod(**spec: Any) -> dict[str, object]:
    return {"spec": {"containers": [a_container(requests=CPU)], **spec}}


SIDECAR = {**a_container("side", requests={"cpu": "2"}), "restartPolicy": "Always"}
RESIZED = {
    "spec": {"containers": [a_container("app", requests=CPU)], "nodeName": "n"},
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {"name": "app", "allocatedResources": {"cpu": "3"}, "resources": {"requests": CPU}}
        ],
    },
}
CHARGES: dict[str, tuple[Mapping[str, object], str, str]] = {
    "a sidecar runs beside the containers": (a_pod(initContainers=[SIDECAR]), "3", "2"),
    "the overhead of its runtime class": (a_pod(overhead={"cpu": "250m"}), "1250m", "1"),
    "what the pod as a whole asks for": (
        a_pod(resources={"requests": {"cpu": "4"}}),
        "4",
        "1",
    ),
    "what the kubelet has not given back yet": (RESIZED, "3", "1"),
}


@pytest.mark.parametrize(("pod", "cpu", "in_nos"), CHARGES.values(), ids=CHARGES)
def test_a_pod_is_charged_what_it_takes(pod: Mapping[str, object], cpu: str, in_nos: str) -> None:
    """nos: requests of containers, or of the largest init container, alone."""
    found = charge(pod_usage(pod), {"cpu"})
    assert to_text(found) == {"cpu": cpu}
    assert cpu != in_nos


@pytest.mark.parametrize(
    ("profile", "gb"),
    [
        ("mig-1c.3g.20gb", 20),  # nos: no match, so 0
        ("gpu-10gb", 10),  # nos: slices are 0
        ("mig-2g.20gb.me", 20),
        ("mig-1g.10gb.me.20gb", None),  # nos: two sizes are an error, which it swallows
    ],
)
def test_the_memory_of_profiles_is_counted_or_said_to_be_unknown(
    profile: str, gb: int | None
) -> None:
    """nos: what its expression does not match counts 0, and nothing says so."""
    name = f"nvidia.com/{profile}"
    found = gpu_memory(pod_usage(a_pod(containers=[a_container(requests={name: "1"})])))
    assert found is not None
    assert found.unknown == (() if gb else (name,))
    assert found.amount == Quantity.of_units(gb or 0)


def test_without_a_gpu_there_is_no_gpu_memory() -> None:
    """nos: the key is always set, 0 where no GPU is asked for: such pods are over-quota too."""
    assert GPU_MEMORY not in charge(pod_usage(a_pod()), {GPU_MEMORY, "cpu"})
    quota = a_quota("a", 10)
    cluster = Cluster(quota)
    pods = [*cluster.run("a", 10, 10), cluster.pod("a", {})]
    assert over_quota(quota, in_label_order(pods)) == {pods[1].uid}


@pytest.mark.parametrize("missing", ["min", "max"])
def test_what_a_quota_does_not_name_has_no_limit(missing: str) -> None:
    """nos: cpu and memory that min or max leave out are 0, and every pod is above."""
    cpus = {"cpu": 8}
    least, most = (None, cpus) if missing == "min" else (cpus, None)
    quota, other = a_quota("a", least, most), a_quota("b", {"cpu": 8})
    cluster = Cluster(quota, other, resource="cpu")
    plain = cluster.plan(cluster.queued("a", {"cpu": 8}))
    assert (plain.is_possible, plain.shortage.resources) == (True, ())
    usage = {"cpu": Quantity.of_units(8), "memory": Quantity.of_units(64)}
    assert charge(usage, quota.names).keys() == {"cpu"}


def test_a_pod_without_a_priority_is_compared_with_another_of_its_second() -> None:
    """nos: a priority that is not set ends the operator where creation times are equal."""
    quota = a_quota("a", 10)
    cluster = Cluster(quota)
    pods = [cluster.pod("a", 10, age=5, name=name) for name in ("y", "x")]
    assert over_quota(quota, in_label_order(pods)) == {pods[0].uid}


def test_a_composite_is_summed_once_in_what_is_shared() -> None:
    """nos: once for each of its namespaces: available 60 and guaranteed 40 for x and y."""
    cluster = Cluster(a_quota("c", 20, namespaces=["x", "y"]), a_quota("z", 10))
    assert cluster.pool.size(GPU_MEMORY) == 30 * UNIT
    assert cluster.pool.available(GPU_MEMORY, cluster.usage()) == 30 * UNIT
    assert cluster.guaranteed() == (20, 10)


def test_namespaces_of_a_composite_take_nothing_from_each_other() -> None:
    """nos: two namespaces of one composite are two quotas, and one evicts the other's pods."""
    cluster = Cluster(a_quota("c", 20, namespaces=["x", "y"]), a_quota("z", 10))
    cluster.run("z", 10)
    cluster.run("x", 10, 10)
    waiting = cluster.plan(cluster.queued("y", 10))
    assert (waiting.is_possible, waiting.victims) == (False, ())


def test_victims_on_two_nodes_make_room_together() -> None:
    """nos: looks at one node at a time, and finds no plan."""
    cluster = Cluster(a_quota("a", 20), a_quota("b", 0))
    cluster.run("b", 10, node="n1")
    cluster.run("b", 10, node="n2")
    found = cluster.plan(cluster.queued("a", 20))
    assert (found.claim, sorted(pod.node for pod in found.victims)) == (Claim.OWN, ["n1", "n2"])


def test_no_victim_is_taken_twice() -> None:
    """nos: a pod that neither node nor max can spare is a victim two times."""
    cluster = Cluster(a_quota("a", 20, 20), a_quota("b", 0))
    cluster.run("b", 10, 10, node="n1")
    found = cluster.plan(cluster.queued("a", 20))
    assert len({pod.uid for pod in found.victims}) == len(found.victims) == 2


def test_the_quota_most_above_what_is_guaranteed_gives_not_the_newest_pod() -> None:
    """nos: pods in the order of priority and start: a's newest, which takes its place back."""
    cluster = Cluster(a_quota("a", 40), a_quota("b", 10), a_quota("c", 30))
    cluster.run("b", 10, 10, 10)
    cluster.run("a", 10, 10, 10, 10, 10)
    assert namespaces(cluster.plan(cluster.queued("c", 10)).victims) == ["b"]


WRONG: dict[str, tuple[dict[str, object], str, str]] = {
    "min above max": (
        {"min": {"cpu": 3}, "max": {"cpu": "2500m"}},
        "spec.min[cpu]",
        'Invalid value: "3": must be less than or equal to spec.max[cpu], which is 2500m',
    ),
    "negative min": (
        {"min": {"cpu": "-1"}},
        "spec.min[cpu]",
        'Invalid value: "-1": must be greater than or equal to 0',
    ),
    "negative max": (
        {"max": {"cpu": "-1"}},
        "spec.max[cpu]",
        'Invalid value: "-1": must be greater than or equal to 0',
    ),
    "negative lendable": (
        {"min": {"cpu": 1}, "lendable": {"cpu": "-1"}},
        "spec.lendable[cpu]",
        'Invalid value: "-1": must be greater than or equal to 0',
    ),
    "lendable above min": (
        {"min": {"cpu": 1}, "lendable": {"cpu": 2}},
        "spec.lendable[cpu]",
        'Invalid value: "2": must be less than or equal to spec.min[cpu], which is 1',
    ),
    "lendable of what min does not name": (
        {"max": {"cpu": 1}, "lendable": {"cpu": 1}},
        "spec.lendable[cpu]",
        'Invalid value: "1": must be less than or equal to spec.min[cpu], which is 0',
    ),
    "a composite that lists a namespace twice": (
        {"min": {"cpu": 1}, "namespaces": ["x", "y", "x"]},
        "spec.namespaces",
        'Duplicate value: "x"',
    ),
    "a composite of nothing": (
        {"min": {"cpu": 1}, "namespaces": []},
        "spec.namespaces",
        "Required value: must name at least one",
    ),
}


@pytest.mark.parametrize(("spec", "field", "message"), WRONG.values(), ids=WRONG)
def test_what_makes_no_sense_is_refused_at_its_field(
    spec: dict[str, object], field: str, message: str
) -> None:
    """nos: documents max ≥ min and checks nothing; its chart installs no validation at all."""
    kind = "CompositeElasticQuota" if "namespaces" in spec else "ElasticQuota"
    (error,) = elastic_quota_errors(
        {"kind": kind, "metadata": {"namespace": "team-a", "name": "q"}, "spec": spec}
    )
    assert (error.field, error.message) == (field, message)


def test_of_two_quotas_of_a_namespace_the_older_one_counts() -> None:
    """nos: deletes the ElasticQuotas under a new composite; of two quotas the last event wins."""
    old = a_quota("x", 10)
    new = a_quota("c", 20, namespaces=["x", "y"])
    first = replace(old, created="2026-01-01T00:00:00Z")
    second = replace(new, created="2026-01-02T00:00:00Z")
    assert conflicts([second, first]) == {
        second.key: (
            "namespace x has ElasticQuota x/x already, and a namespace has one elastic quota:"
            " delete one of them, this one with kubectl delete -n c compositeelasticquota c"
        )
    }


def test_no_more_errors_are_made_than_answers_show() -> None:
    least = {f"example.com/r{number}": "-1" for number in range(10_000)}
    quota = {"kind": "ElasticQuota", "metadata": {"namespace": "a"}, "spec": {"min": least}}
    assert len(elastic_quota_errors(quota)) in range(100, 200)
