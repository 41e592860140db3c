"""The mask: deferred resources are hidden from the platform's own check, and nothing is refused."""

from __future__ import annotations

from typing import cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import NAMESPACE, AdmissionHarness, Reply, a_review
from tests.builders import a_quota
from tests.reactions import unreachable
from webhook.kube.api import NAMESPACES
from webhook.quota.objects.names import DEFERRED_KEYS

Object = dict[str, object]

EVERY = dict.fromkeys(sorted(DEFERRED_KEYS), "5")


def write_status(
    harness: AdmissionHarness, quota: Object, *, dry_run: bool = False, seconds: float = 10
) -> Reply:
    old = {**quota, "status": {}}
    review = a_review(
        "UPDATE",
        "resourcequotas",
        quota,
        old=old,
        subresource="status",
        dry_run=dry_run,
        name="p1",
        user="system:apiserver",
    )
    reply = harness.mutate(review, seconds=seconds)
    assert reply.allowed, "a status that is refused stands in the way of every pod"
    return reply


def a_status(hard: Object | None = None, used: Object | None = None, **metadata: object) -> Object:
    quota = a_quota("p1", hard={"pods": "3", **EVERY}, metadata=metadata)
    given = {"hard": hard, "used": used}
    return {**quota, "status": {name: part for name, part in given.items() if part is not None}}


def test_every_deferred_key_is_hidden_and_the_others_stay(harness: AdmissionHarness) -> None:
    quota = a_status({"pods": "3", **EVERY}, {"pods": "1", **EVERY})
    reply = write_status(harness, quota)
    assert reply.audit == {"decision": "masked"}
    assert reply.object["status"] == {"hard": {"pods": "3"}, "used": {"pods": "1"}}
    assert reply.object["spec"] == quota["spec"]


def test_the_patch_removes_and_does_nothing_else(harness: AdmissionHarness) -> None:
    reply = write_status(
        harness, a_status({"requests.cpu": "5", "pods": "3"}, {"requests.cpu": "0"})
    )
    assert reply.patch == [
        {"op": "remove", "path": "/status/hard/requests.cpu"},
        {"op": "remove", "path": "/status/used/requests.cpu"},
    ]


def test_masking_what_is_masked_changes_nothing(harness: AdmissionHarness) -> None:
    once = write_status(harness, a_status(dict(EVERY), dict(EVERY)))
    again = write_status(harness, once.object)
    assert (again.patch, again.audit) == ([], {"decision": "not-masked"})


PARTIAL = {
    "hard only": ({"cpu": "1"}, None, 1),
    "used only": (None, {"cpu": "1"}, 1),
    "neither": (None, None, 0),
    "both empty": ({}, {}, 0),
    "native only": ({"pods": "1", "requests.storage": "1Gi"}, {"pods": "1"}, 0),
    "a name that only begins alike": ({"requests.cpu-shares": "1"}, {"limits": "1"}, 0),
}


@pytest.mark.parametrize(("hard", "used", "removals"), PARTIAL.values(), ids=PARTIAL.keys())
def test_only_what_is_there_is_removed(
    harness: AdmissionHarness, hard: Object | None, used: Object | None, removals: int
) -> None:
    assert len(write_status(harness, a_status(hard, used)).patch) == removals


def test_deferred_extended_resources_are_hidden_too(open_harness: OpenHarness) -> None:
    harness = open_harness(settings={"deferredResources": ["requests.nvidia.com/gpu"]})
    reply = write_status(harness, a_status({"requests.nvidia.com/gpu": "1", "pods": "2"}))
    assert reply.patch == [{"op": "remove", "path": "/status/hard/requests.nvidia.com~1gpu"}]
    assert reply.object["status"] == {"hard": {"pods": "2"}}


def test_an_excluded_quota_is_not_masked(harness: AdmissionHarness) -> None:
    quota = a_status(dict(EVERY), annotations={"deferredquota.io/exclude": "true"})
    assert write_status(harness, quota).audit == {"decision": "not-masked"}
    unclear = a_status(dict(EVERY), annotations={"deferredquota.io/exclude": "yes"})
    assert write_status(harness, unclear).audit == {"decision": "masked"}


def test_a_dry_run_is_masked_alike(harness: AdmissionHarness) -> None:
    assert write_status(harness, a_status(dict(EVERY)), dry_run=True).decision == "masked"


def test_namespaces_that_are_not_ours_are_not_masked(open_harness: OpenHarness) -> None:
    for harness, decision in (
        (open_harness(mode=""), "not-opted-in"),
        (open_harness(mode="shadow"), "not-opted-in"),
        (open_harness(settings={"exemptNamespaces": [NAMESPACE]}), "exempt"),
    ):
        reply = write_status(harness, a_status(dict(EVERY)))
        assert (reply.patch, reply.decision) == ([], decision)


ODD: dict[str, Object] = {
    "no status": {"status": None},
    "a status that is text": {"status": "full"},
    "hard that is a list": {"status": {"hard": ["cpu"], "used": {"cpu": "1"}}},
    "hard that is null": {"status": {"hard": None, "used": None}},
    "used that is text": {"status": {"hard": {"cpu": "1"}, "used": "all"}},
    "metadata that is text": {"metadata": "p1"},
    "annotations that are a list": {"metadata": {"annotations": []}},
    "an amount that is none": {"status": {"hard": {"cpu": ["1"]}}},
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD.keys())
def test_what_cannot_be_read_is_never_refused(harness: AdmissionHarness, change: Object) -> None:
    write_status(harness, {**a_status(dict(EVERY)), **change})


def test_a_write_that_came_too_late_is_never_refused(harness: AdmissionHarness) -> None:
    reply = write_status(harness, a_status(dict(EVERY)), seconds=0)
    assert (reply.patch, reply.decision) == ([], "not-masked")


@pytest.mark.parametrize("absent", ["object", "oldObject"])
def test_a_review_without_one_of_its_objects_is_never_refused(
    harness: AdmissionHarness, absent: str
) -> None:
    review = a_review("UPDATE", "resourcequotas", a_status(), old=a_status(), subresource="status")
    cast("Object", review["request"])[absent] = None
    reply = harness.mutate(review)
    assert (reply.allowed, reply.patch) == (True, [])


def test_a_namespace_that_cannot_be_asked_for_is_never_refused(harness: AdmissionHarness) -> None:
    harness.client.on("get", NAMESPACES, unreachable)
    review = a_review(
        "UPDATE",
        "resourcequotas",
        a_status(dict(EVERY)),
        old=a_status(),
        subresource="status",
        namespace="elsewhere",
    )
    reply = harness.mutate(review)
    assert (reply.allowed, reply.patch) == (True, [])


def test_the_validating_webhook_has_no_say_in_a_status(harness: AdmissionHarness) -> None:
    review = a_review("UPDATE", "resourcequotas", a_status(), old=a_status(), subresource="status")
    reply = harness.validate(review)
    assert (reply.allowed, reply.audit) == (True, {"decision": "not-charged"})
