"""The handler of elastic quotas: what makes no sense, a second quota, and what is worth a word."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.admission.handlers.harness import (
    AdmissionHarness,
    Reply,
    a_namespace,
    a_review,
    admission_harness,
)
from tests.controllers.elastic.objects import an_elastic_quota
from tests.reactions import unavailable
from webhook.kube.api import COMPOSITE_ELASTIC_QUOTAS, ELASTIC_QUOTAS

Object = dict[str, Any]


@pytest.fixture(scope="module")
def harness() -> Iterator[AdmissionHarness]:
    """Team-a has opted in and so has team-b, which has a quota; team-c has not."""
    others = (a_namespace("team-b"), a_namespace("team-c", mode=""))
    with admission_harness(*others, an_elastic_quota("team-b", {"cpu": 2})) as made:
        made.catch_up()
        yield made


def decide(harness: AdmissionHarness, new: Object, old: Object | None = None) -> Reply:
    kind = ELASTIC_QUOTAS if new["kind"] == "ElasticQuota" else COMPOSITE_ELASTIC_QUOTAS
    operation = "CREATE" if old is None else "UPDATE"
    return harness.validate(
        a_review(
            operation,
            kind.plural,
            new,
            old=old,
            group=kind.group,
            namespace=new["metadata"]["namespace"],
        )
    )


def quota(least: Any = None, most: Any = None, **spec: Any) -> Object:
    made: Object = an_elastic_quota("team-a", least, most, **spec)
    return made


def test_a_sound_one_passes(harness: AdmissionHarness) -> None:
    reply = decide(harness, quota({"cpu": 2, "nos.nebuly.com/gpu-memory": 40}, {"cpu": 4}))
    assert (reply.allowed, reply.warnings) == (True, [])


def test_min_above_max_is_refused_at_its_field(harness: AdmissionHarness) -> None:
    wrong = quota({"cpu": 3}, {"cpu": 2})
    detail = "must be less than or equal to spec.max[cpu], which is 2"
    for old in (None, quota({"cpu": 1})):
        reply = decide(harness, wrong, old)
        assert reply.code == 422
        assert reply.causes == [("FieldValueInvalid", "spec.min[cpu]", detail)]


def test_a_second_quota_of_a_namespace_is_refused_with_the_first(harness: AdmissionHarness) -> None:
    remove = "change that one, or kubectl delete -n team-b elasticquota q first"
    reply = decide(harness, quota({"cpu": 1}, namespaces=["team-a", "team-b"]))
    assert reply.code == 422
    assert reply.causes == [
        (
            "FieldValueForbidden",
            "spec.namespaces[1]",
            f"namespace team-b has ElasticQuota team-b/q already: {remove}",
        )
    ]
    second: Object = an_elastic_quota("team-b", {"cpu": 1})
    second["metadata"]["name"] = "second"
    assert decide(harness, second).causes[0][:2] == ("FieldValueForbidden", "metadata.namespace")


def test_a_composite_does_not_take_the_namespace_of_another_by_a_change(
    harness: AdmissionHarness,
) -> None:
    """nos: an ElasticQuota of its namespaces is no error, and is deleted."""
    old = quota({"cpu": 1}, namespaces=["team-a"])
    reply = decide(harness, quota({"cpu": 1}, namespaces=["team-a", "team-b"]), old)
    assert reply.code == 422
    assert reply.causes[0][:2] == ("FieldValueForbidden", "spec.namespaces[1]")
    assert "kubectl delete -n team-b elasticquota q" in str(reply.causes[0][2])
    assert harness.stored(ELASTIC_QUOTAS, "q", "team-b")["spec"] == {"min": {"cpu": 2}}


def test_a_namespace_that_is_listed_twice_is_named(harness: AdmissionHarness) -> None:
    reply = decide(harness, quota({"cpu": 1}, namespaces=["team-a", "team-c", "team-a"]))
    assert reply.code == 422
    assert reply.causes == [("FieldValueDuplicate", "spec.namespaces", 'Duplicate value: "team-a"')]


def test_one_may_be_changed_beside_itself(harness: AdmissionHarness) -> None:
    old: Object = an_elastic_quota("team-b", {"cpu": 2})
    assert decide(harness, an_elastic_quota("team-b", {"cpu": 3}), old).allowed


def test_a_change_of_the_status_alone_is_not_looked_at(harness: AdmissionHarness) -> None:
    stored = {**quota({"cpu": 3}, {"cpu": 2}), "status": {"used": {"cpu": "1"}}}
    assert decide(harness, stored, quota({"cpu": 3}, {"cpu": 2})).allowed


def test_a_pool_of_no_name_is_refused_when_it_is_labelled(harness: AdmissionHarness) -> None:
    old, new = quota({"cpu": 1}), quota({"cpu": 1})
    new["metadata"] = {**new["metadata"], "labels": {"deferredquota.io/pool": "A.b"}}
    assert decide(harness, new, old).causes[0][1] == "metadata.labels[deferredquota.io/pool]"


def test_what_is_not_charged_is_worth_a_word(harness: AdmissionHarness) -> None:
    least = {"cpu": 1, "pods": 3, "nvidia.com/mig-foo": 1, "requests.cpu": 1}
    spec = {"lendable": {"cpu": 0}, "namespaces": ["team-a", "team-c", "team-x"]}
    reply = decide(harness, quota(least, **spec))
    assert reply.allowed
    assert reply.warnings == [
        "nvidia.com/mig-foo: no pod asks for a resource of this name",
        "requests.cpu: no pod asks for a resource of this name; write cpu",
        "pods: no bind is charged for it",
        "namespace team-c has not opted in: it is not charged",
        "namespace team-x does not exist: it is not charged",
    ]


def test_where_others_cannot_be_looked_up_it_passes(harness: AdmissionHarness) -> None:
    with harness.client.on("list", ELASTIC_QUOTAS, unavailable):
        assert decide(harness, quota({"cpu": 1}, namespaces=["team-b"])).allowed


def test_very_many_namespaces_take_little_time(harness: AdmissionHarness) -> None:
    """A definition keeps such objects from storage, and no client of the port from asking."""
    names = [f"n{number}" for number in range(15_000)]
    composite = an_elastic_quota("team-a", {"cpu": 2}, namespaces=[*names, names[0]])
    started = time.process_time()
    reply = decide(harness, composite)
    assert time.process_time() - started < 1.5
    assert reply.causes == [("FieldValueDuplicate", "spec.namespaces", 'Duplicate value: "n0"')]
