"""Rules for every request that charges a pod: what is not ours, and what cannot be decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import (
    NAMESPACE,
    AdmissionHarness,
    Object,
    a_bind_review,
    a_review,
    is_undecided,
    resized,
)
from tests.builders import a_pod, a_quota, an_expression
from webhook.kube.api import RESOURCE_QUOTAS

MakeReview = Callable[[AdmissionHarness], Object]
"""Stores what is there before, and returns the review of a request that takes 1 cpu or less."""


def bind(harness: AdmissionHarness, *, legacy: bool = False) -> Object:
    harness.pod(uid="uid-web-1", requests={"cpu": "1"})
    harness.catch_up()
    return a_bind_review("web-1", uid="uid-web-1", legacy=legacy)


def create(_harness: AdmissionHarness, *, node: str = "node-1", qos: str = "Burstable") -> Object:
    made = a_pod(node=node, requests={"cpu": "1"}, status={"qosClass": qos})
    return a_review("CREATE", "pods", made)


def resize(harness: AdmissionHarness, *, node: str = "node-1") -> Object:
    old = harness.pod(node=node, requests={"cpu": "500m"})
    new = resized(old, requests={"cpu": "1"})
    return a_review("UPDATE", "pods", new, old=old, subresource="resize")


def set_deadline(harness: AdmissionHarness, *, node: str = "node-1") -> Object:
    old = harness.pod(node=node, requests={"cpu": "1"})
    new = {**old, "spec": {**cast("Object", old["spec"]), "activeDeadlineSeconds": 60}}
    return a_review("UPDATE", "pods", new, old=old)


CHARGING: Mapping[str, tuple[MakeReview, Object]] = {
    "pods/binding": (bind, {}),
    "bindings": (partial(bind, legacy=True), {}),
    "created with a node": (create, {}),
    "resize": (resize, {}),
    "deadline": (set_deadline, {"scopes": ["Terminating"]}),
}
"""Each with fields of a quota that charges there."""
WAITING: Mapping[str, tuple[MakeReview, Object]] = {
    "created to wait": (partial(create, node=""), {})
}
FORGED: Mapping[str, tuple[MakeReview, Object]] = {
    "a forged state": (partial(create, qos="Odd"), {})
}


CHANGED: Mapping[str, tuple[MakeReview, Object]] = {
    "resize of a pod that waits": (partial(resize, node=""), {}),
    "deadline of a pod that waits": (partial(set_deadline, node=""), {"scopes": ["Terminating"]}),
}


def at(cases: Mapping[str, tuple[MakeReview, Object]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("make_review", "quota"), cases.values(), ids=cases.keys())


def full(quota: Object, **fields: object) -> Object:
    return a_quota("p1", hard={"requests.cpu": "0"}, **quota, **fields)  # type: ignore[arg-type]


@at(CHARGING)
def test_an_excluded_quota_is_left_to_the_api_server(
    open_harness: OpenHarness, make_review: MakeReview, quota: Object
) -> None:
    excluded = {"annotations": {"deferredquota.io/exclude": "true"}}
    harness = open_harness(full(quota, metadata=excluded))
    assert harness.validate(make_review(harness)).decision == "nothing-charged"


@at({**CHARGING, **FORGED})
@pytest.mark.parametrize("mode", ["", "shadow", "Deferred"])
def test_a_namespace_that_has_not_opted_in_is_not_touched(
    open_harness: OpenHarness, make_review: MakeReview, quota: Object, mode: str
) -> None:
    harness = open_harness(full(quota), mode=mode)
    reply = harness.validate(make_review(harness))
    assert (reply.allowed, reply.audit) == (True, {"decision": "not-opted-in"})
    assert harness.ledger() is None


@at(CHARGING)
def test_an_exempt_namespace_is_not_touched_whatever_its_label_says(
    open_harness: OpenHarness, make_review: MakeReview, quota: Object
) -> None:
    harness = open_harness(full(quota), settings={"exemptNamespaces": [NAMESPACE]})
    reply = harness.validate(make_review(harness))
    assert (reply.allowed, reply.audit) == (True, {"decision": "exempt"})


@at(CHARGING)
@pytest.mark.parametrize("dry_run", [False, True], ids=["in fact", "dry run"])
def test_without_a_ledger_nothing_is_decided(
    open_harness: OpenHarness, make_review: MakeReview, quota: Object, dry_run: bool
) -> None:
    harness = open_harness(a_quota("p1", **quota), with_controller=False)  # type: ignore[arg-type]
    review = make_review(harness)
    cast("Object", review["request"])["dryRun"] = dry_run
    reply = harness.validate(review)
    assert is_undecided(reply, "the quota ledger of this namespace is not there yet")


@at({**CHARGING, **WAITING})
@pytest.mark.parametrize(
    ("amount", "words"), [("many", "'many' is not a quantity"), (["2"], "")], ids=["text", "list"]
)
def test_a_quota_that_cannot_be_read_holds_up_and_is_named(
    open_harness: OpenHarness, make_review: MakeReview, quota: Object, amount: object, words: str
) -> None:
    harness = open_harness(a_quota("p1", **quota))  # type: ignore[arg-type]
    review = make_review(harness)
    harness.wait_until_settled()
    harness.create(a_quota("broken", hard={"requests.cpu": amount}))
    harness.catch_up()
    reply = harness.validate(review)
    assert reply.code == 429
    field = "spec.hard[requests.cpu]"
    assert str(reply.message).startswith(f"quota broken cannot be read: {field}: {words}")
    harness.api.delete(RESOURCE_QUOTAS, "broken", namespace=NAMESPACE)
    harness.catch_up()
    assert harness.validate(review).allowed


@at({**CHARGING, **WAITING})
def test_a_quota_whose_scopes_cannot_be_evaluated_holds_up_and_is_named(
    open_harness: OpenHarness, make_review: MakeReview, quota: Object
) -> None:
    bad = [an_expression("PriorityClass", "In", "bad value!")]
    harness = open_harness(a_quota("p1", **quota), a_quota("odd", uid="o", expressions=bad))  # type: ignore[arg-type]
    reply = harness.validate(make_review(harness))
    assert (reply.code, reply.reason) == (429, "TooManyRequests")
    assert str(reply.message).startswith(
        "error matching scopes of quota odd, err: error on matching scope"
        " {PriorityClass In [bad value!]}: failed to parse and convert selector: "
    )


@at({**CHARGING, **WAITING})
def test_a_request_that_is_out_of_time_is_undecided(
    open_harness: OpenHarness, make_review: MakeReview, quota: Object
) -> None:
    harness = open_harness(a_quota("p1", **quota))  # type: ignore[arg-type]
    reply = harness.validate(make_review(harness), seconds=0)
    assert is_undecided(reply, "the request's time ran out before it was decided")
    assert harness.reservations() == {}


@pytest.mark.parametrize("cpu", ["1", "0"], ids=["fits", "does not fit"])
@at({**CHARGING, **CHANGED})
def test_a_dry_run_tells_the_truth_and_writes_nothing(
    open_harness: OpenHarness, make_review: MakeReview, quota: Object, cpu: str
) -> None:
    given = a_quota("p1", hard={"requests.cpu": cpu}, **quota)  # type: ignore[arg-type]
    harness = open_harness(given, settings={"gating": "never"})
    review = make_review(harness)
    cast("Object", review["request"])["dryRun"] = True
    harness.wait_until_settled()
    before = harness.version_at_rest()
    reply = harness.validate(review)
    is_charged = (make_review, quota) in CHARGING.values()
    assert reply.allowed == (cpu == "1" or not is_charged)
    assert reply.decision == ("would-reserve" if reply.allowed else "denied")
    assert reply.allowed or str(reply.message).startswith("exceeded quota: p1, ")
    assert harness.cluster.resource_version == before
