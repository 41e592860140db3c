"""Which pods a manifest stands for."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object, a_container, a_job, a_pod, a_quota
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.charging.workload_pods import PodSet, pods_of, times
from webhook.quota.objects.model import Pod

CONTAINERS: Object = {"containers": [a_container(requests={"cpu": "1"})]}


def a_workload(kind: str, api_version: str = "apps/v1", **spec: object) -> Object:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": CONTAINERS}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web", "namespace": "team-a"},
        "spec": {"template": template, **spec},
    }


def a_cron_job(**job_spec: object) -> Object:
    job = {"spec": {"template": {"spec": CONTAINERS}, **job_spec}}
    return a_workload("CronJob", "batch/v1", jobTemplate=job, template=None)


def a_pod_template() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "web", "namespace": "team-a"},
        "template": {"spec": CONTAINERS},
    }


def pods(raw: Object) -> PodSet:
    found = pods_of(raw)
    assert found is not None
    return found


COUNTS = {
    "a pod is one": (a_pod(), 1),
    "deployment without replicas": (a_workload("Deployment"), 1),
    "deployment": (a_workload("Deployment", replicas=3), 3),
    "deployment at zero": (a_workload("Deployment", replicas=0), 0),
    "deployment of an old version": (a_workload("Deployment", "apps/v1beta2", replicas=3), 3),
    "replica set": (a_workload("ReplicaSet", replicas=2), 2),
    "stateful set": (a_workload("StatefulSet", replicas=5), 5),
    "replication controller": (a_workload("ReplicationController", "v1", replicas=4), 4),
    "replication controller without replicas": (a_workload("ReplicationController", "v1"), 1),
    "daemon set is one on each node": (a_workload("DaemonSet"), 1),
    "daemon set has no replicas": (a_workload("DaemonSet", replicas=7), 1),
    "pod template": (a_pod_template(), 1),
    "job with nothing said": (a_job(suspend=False), 1),
    "job that runs some at once": (a_job(parallelism=4, completions=10), 4),
    "job that needs fewer than it may run": (a_job(parallelism=10, completions=3), 3),
    "job with completions only runs one at a time": (a_job(completions=8), 1),
    "job as a work queue": (a_job(parallelism=6), 6),
    "job at parallelism zero": (a_job(parallelism=0, completions=3), 0),
    "job with nothing to complete": (a_job(completions=0), 0),
    "suspended job counts as if it ran": (a_job(suspend=True, parallelism=2, completions=2), 2),
    "cron job is one run": (a_cron_job(parallelism=2, completions=5), 2),
    "cron job with nothing said": (a_cron_job(), 1),
}


@pytest.mark.parametrize(("raw", "count"), COUNTS.values(), ids=COUNTS.keys())
def test_counts_the_pods_of_a_kind(raw: Object, count: int) -> None:
    assert pods(raw).count == count


PATHS = {
    "pod": (a_pod(), ""),
    "deployment": (a_workload("Deployment"), "spec.template"),
    "job": (a_job(), "spec.template"),
    "cron job": (a_cron_job(), "spec.jobTemplate.spec.template"),
    "pod template": (a_pod_template(), "template"),
}


@pytest.mark.parametrize(("raw", "field"), PATHS.values(), ids=PATHS.keys())
def test_says_where_the_pod_stands_in_the_object(raw: Object, field: str) -> None:
    assert pods(raw).field == field


def test_a_path_in_front_of_the_object_is_kept() -> None:
    found = pods_of(a_cron_job(), field="items[3]")
    assert found is not None
    assert found.field == "items[3].spec.jobTemplate.spec.template"


def test_only_a_daemon_set_runs_per_node() -> None:
    kinds = {"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"}
    assert {kind for kind in kinds if pods(a_workload(kind)).per_node} == {"DaemonSet"}


def test_a_pod_is_handed_on_as_it_is() -> None:
    raw = a_pod()
    assert pods(raw) == PodSet(1, raw, "")


def test_a_pod_of_a_template_has_the_templates_spec_and_the_owners_namespace() -> None:
    pod = Pod.from_object(pods(a_workload("Deployment")).pod)
    assert (pod.namespace, pod.name, pod.generate_name) == ("team-a", "", "web-")
    assert pod.labels == {"app": "web"}
    assert [container.requests for container in pod.containers] == [{"cpu": Quantity.parse("1")}]


def test_a_name_or_namespace_in_a_template_means_nothing() -> None:
    raw = a_workload("Deployment")
    raw["spec"] = {
        "template": {"metadata": {"name": "x", "namespace": "other"}, "spec": CONTAINERS}
    }
    pod = Pod.from_object(pods(raw).pod)
    assert (pod.namespace, pod.name) == ("team-a", "")


WITHOUT_PODS = {
    "quota": a_quota(),
    "service": {"apiVersion": "v1", "kind": "Service", "spec": {"template": 1}},
    "deployment of another group": a_workload("Deployment", "example.com/v1"),
    "pod of another group": {**a_pod(), "apiVersion": "example.com/v1"},
    "job without group": {**a_job(), "apiVersion": "v1"},
    "nothing at all": {},
}


@pytest.mark.parametrize("raw", WITHOUT_PODS.values(), ids=WITHOUT_PODS.keys())
def test_another_kind_makes_no_pods(raw: Object) -> None:
    assert pods_of(raw) is None


WRONG = {
    "negative replicas": (
        a_workload("Deployment", replicas=-1),
        "spec.replicas",
        "must be from 0 to 2147483647, not -1",
    ),
    "too many replicas": (
        a_workload("Deployment", replicas=2**31),
        "spec.replicas",
        "must be from 0 to 2147483647, not 2147483648",
    ),
    "replicas as text": (
        a_workload("StatefulSet", replicas="3"),
        "spec.replicas",
        "must be an integer, not a string",
    ),
    "negative completions": (
        a_cron_job(completions=-2),
        "spec.jobTemplate.spec.completions",
        "must be from 0 to 2147483647, not -2",
    ),
    "spec is a list": (
        {**a_workload("Deployment"), "spec": []},
        "spec",
        "must be an object, not a list",
    ),
    "no spec": (
        {"apiVersion": "apps/v1", "kind": "Deployment"},
        "spec.template.spec.containers",
        "must have a container",
    ),
    "template is a text": (
        a_workload("Deployment", template="x"),
        "spec.template",
        "must be an object, not a string",
    ),
    "no containers": (
        a_workload("Deployment", template={"spec": {"container": []}}),
        "spec.template.spec.containers",
        "must have a container",
    ),
    "containers are an object": (
        a_pod() | {"spec": {"containers": {"name": "a"}}},
        "spec.containers",
        "must be a list, not an object",
    ),
    "pod without spec": (
        {"apiVersion": "v1", "kind": "Pod"},
        "spec.containers",
        "must have a container",
    ),
    "kind is a number": ({"apiVersion": "v1", "kind": 3}, "kind", "must be a string, not a number"),
    "metadata is a text": (
        {**a_workload("Deployment"), "metadata": "web"},
        "metadata",
        "must be an object, not a string",
    ),
    "template's metadata is a list": (
        a_workload("Deployment", template={"metadata": [], "spec": CONTAINERS}),
        "spec.template.metadata",
        "must be an object, not a list",
    ),
}


@pytest.mark.parametrize(("raw", "field", "detail"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_field_is_named_with_its_path(raw: Object, field: str, detail: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        pods_of(raw)
    assert (caught.value.field, caught.value.detail) == (field, detail)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
FIELDS = st.sampled_from(
    ["spec", "template", "jobTemplate", "metadata", "replicas", "parallelism", "containers"]
)
NESTED = st.recursive(
    ANYTHING, lambda inner: st.dictionaries(FIELDS, inner, max_size=3), max_leaves=6
)


@given(
    head=st.sampled_from(
        [("v1", "Pod"), ("apps/v1", "Deployment"), ("batch/v1", "CronJob"), ("v1", "PodTemplate")]
    ),
    body=st.dictionaries(FIELDS, NESTED, max_size=3),
)
def test_no_value_anywhere_is_more_than_a_field_error(
    head: tuple[str, str], body: dict[str, object]
) -> None:
    with contextlib.suppress(InvalidFieldError):
        assert 0 <= pods({"apiVersion": head[0], "kind": head[1], **body}).count < 2**31


TIMES = {
    "one keeps the text": ("1.500", 1, "1.500"),
    "three": ("500m", 3, "1500m"),
    "whole": ("500m", 4, "2"),
    "binary stays binary": ("1.5Gi", 2, "3Gi"),
    "none": ("1Gi", 0, "0"),
    "the smallest": ("1n", 3, "3n"),
}


@pytest.mark.parametrize(("amount", "count", "total"), TIMES.values(), ids=TIMES.keys())
def test_an_amount_is_multiplied_exactly(amount: str, count: int, total: str) -> None:
    assert str(times({"k": Quantity.parse(amount)}, count)["k"]) == total


@given(nano=st.integers(-(10**30), 10**30), count=st.integers(0, 40))
def test_n_pods_cost_what_adding_one_n_times_costs(nano: int, count: int) -> None:
    amount = Quantity.of_nano(nano)
    total = Quantity.of_nano(0)
    for _ in range(count):
        total += amount
    assert times({"k": amount}, count) == {"k": total}
