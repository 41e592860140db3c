"""Amounts that are too large to be counted are refused where they are asked for, by their field."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.gating import OURS, asked, gates_of
from tests.admission.handlers.harness import NAMESPACE, AdmissionHarness, eventually, resized
from webhook.kube.api import PODS
from webhook.quota.objects.names import QUOTA_RESERVED

Object = dict[str, object]
FIELD = "spec.containers[0].resources.limits.memory"
HUGE = "1e20000"


def stored(harness: AdmissionHarness, name: str, *, node: str = "") -> Object:
    """Store a pod as the API server does while nobody is asked, and let the engine see it."""
    limits = {"memory": HUGE}
    pod = harness.pod(name=name, uid=f"uid-{name}", node=node, requests={"cpu": "1"}, limits=limits)
    harness.catch_up()
    return pod


@pytest.mark.parametrize("node", ["", "node-1"], ids=["waiting", "with a node"])
@pytest.mark.parametrize("amount", [HUGE, "1e40"])
def test_no_pod_is_created_with_one(harness: AdmissionHarness, node: str, amount: str) -> None:
    limits = {"memory": amount}
    reply = harness.create_pod(name="odd", uid="u", node=node, requests={"cpu": "1"}, limits=limits)
    assert reply.code == 422
    assert FIELD in str(reply.message)


def test_no_pod_is_bound_with_one(harness: AdmissionHarness) -> None:
    stored(harness, "odd")
    reply = harness.bind("odd", uid="uid-odd")
    assert reply.code == 422
    assert FIELD in str(reply.message)


@pytest.mark.parametrize("gating", ["auto", "always"])
def test_it_waits_behind_the_gate_where_no_quota_is_deferred(
    open_harness: OpenHarness, gating: str
) -> None:
    """A scheduler that may try it evicts others for it again and again."""
    harness = open_harness(settings={"gating": gating})
    fields: dict[str, Any] = {"requests": {"cpu": "1"}, "limits": {"memory": "1e37"}}
    assert gates_of(asked(harness, **fields)) == [OURS]
    harness.pod(name="odd", uid="uid-odd", schedulingGates=[OURS], **fields)
    harness.pod(name="web", uid="uid-web", requests={"cpu": "1"}, schedulingGates=[OURS])
    eventually(lambda: not gates_in(harness, "web"), "the other is let go")
    eventually(lambda: said(harness, "odd") != "", "it says why it waits")
    assert gates_in(harness, "odd") == [OURS]
    assert said(harness, "odd") == f"the pod can never fit; {FIELD} is too large to be counted"


def gates_in(harness: AdmissionHarness, name: str) -> object:
    return cast("Object", harness.stored(PODS, name)["spec"]).get("schedulingGates")


def said(harness: AdmissionHarness, name: str) -> str:
    status = cast("dict[str, Any]", harness.stored(PODS, name)["status"])
    found = {one["type"]: one["message"] for one in status.get("conditions", [])}
    return str(found.get(QUOTA_RESERVED, ""))


def test_other_pods_are_bound_beside_one_that_runs(harness: AdmissionHarness) -> None:
    stored(harness, "odd", node="node-1")
    harness.pod(name="web", uid="uid-web", requests={"cpu": "500m"})
    harness.catch_up()
    eventually(lambda: harness.bind("web", uid="uid-web").allowed, "the bind is admitted")


def test_a_resize_heals_one_that_runs(harness: AdmissionHarness) -> None:
    old = stored(harness, "odd", node="node-1")
    new = resized(old, requests={"cpu": "1"}, limits={"memory": "1Gi"})
    eventually(lambda: harness.change_pod(old, new, subresource="resize").allowed, "it is admitted")
    worse = resized(new, requests={"cpu": "1"}, limits={"memory": HUGE})
    refused = harness.change_pod(new, worse, subresource="resize")
    assert refused.code == 422
    assert FIELD in str(refused.message)


def test_what_does_not_touch_the_amount_is_let_through(harness: AdmissionHarness) -> None:
    old = stored(harness, "odd", node="node-1")
    metadata = cast("Object", old["metadata"])
    new = {**old, "metadata": {**metadata, "finalizers": []}}
    assert harness.change_pod(old, new).allowed
    assert harness.api.get(PODS, "odd", namespace=NAMESPACE)
