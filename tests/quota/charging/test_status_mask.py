from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_device_claim, a_pod, a_quota, an_expression
from webhook.quota.amounts.resources import parse_resource_list, to_text
from webhook.quota.charging.device_claims import DeviceClaim
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.charging.status_mask import (
    carried_over,
    claimed_keys,
    incomplete_keys,
    masking_patch,
    native_count,
    restoring_patch,
    visible_keys,
)
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS

VERSION = {"resourceVersion": "7"}


def quota(
    spec: dict[str, str],
    hard: dict[str, str] | None = None,
    used: dict[str, str] | None = None,
    **fields: Any,
) -> ResourceQuota:
    raw = a_quota("p1", hard=spec, metadata=VERSION, **fields)
    raw["status"] = {"hard": hard or {}, "used": used or {}}
    return ResourceQuota.from_object(raw)


def counted(**amounts: str) -> Any:
    names = {"cpu": "requests.cpu", "pods": "pods"}
    return parse_resource_list({names[key]: value for key, value in amounts.items()}, field="")


def test_the_mask_takes_out_what_is_deferred_and_nothing_else() -> None:
    status = {"requests.cpu": "1", "pods": "3"}
    shown = quota({"requests.cpu": "1", "pods": "3"}, status, {**status, "limits.cpu": "0"})
    assert visible_keys(shown, DEFERRED_KEYS) == ("limits.cpu", "requests.cpu")
    assert masking_patch(shown, DEFERRED_KEYS) == {
        "metadata": {"uid": "quota-uid-1", "resourceVersion": "7"},
        "status": {
            "hard": {"requests.cpu": None},
            "used": {"limits.cpu": None, "requests.cpu": None},
        },
    }


def test_a_masked_status_needs_no_patch() -> None:
    assert masking_patch(quota({"cpu": "1", "pods": "3"}, {"pods": "3"}), DEFERRED_KEYS) is None


def test_a_status_is_completed_with_limit_and_usage_at_once() -> None:
    masked = quota({"requests.cpu": "2", "pods": "9"}, {"pods": "9"}, {"pods": "3"})
    assert incomplete_keys(masked) == ("requests.cpu",)
    assert restoring_patch(masked, counted(cpu="1500m", pods="3")) == {
        "metadata": {"uid": "quota-uid-1", "resourceVersion": "7"},
        "status": {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "1500m"}},
    }


def test_keys_that_no_pod_is_charged_for_are_left_to_their_controllers() -> None:
    assert incomplete_keys(quota({"services": "2", "requests.storage": "1Gi"})) == ()
    assert restoring_patch(quota({"services": "2"}), {}) is None


def test_usage_is_raised_and_never_lowered() -> None:
    for used, raised in (("1", True), ("2", False), ("3", False)):
        full = quota({"requests.cpu": "9"}, {"requests.cpu": "9"}, {"requests.cpu": used})
        patch: Any = restoring_patch(full, counted(cpu="2"))
        expected = {"used": {"requests.cpu": "2"}} if raised else None
        assert (patch and patch["status"]) == expected, used


def test_all_pods_count_with_a_node_or_without() -> None:
    pods = [
        Pod.from_object(a_pod(name="runs", node="n", requests={"cpu": "1"})),
        Pod.from_object(a_pod(name="waits", requests={"cpu": "2"})),
        Pod.from_object(a_pod(name="done", requests={"cpu": "4"}, status={"phase": "Failed"})),
    ]
    found = native_count(quota({"requests.cpu": "9", "pods": "9", "count/pods": "9"}), pods)
    assert to_text(found) == {"count/pods": "3", "pods": "2", "requests.cpu": "3"}


def test_a_pod_that_should_be_gone_only_exists() -> None:
    ended = {"deletionTimestamp": "2026-06-01T12:00:00Z", "deletionGracePeriodSeconds": 30}
    pods = [Pod.from_object(a_pod(node="n", requests={"cpu": "1"}, metadata=ended))]
    limited = quota({"requests.cpu": "9", "pods": "9", "count/pods": "9"})
    last = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)
    for now, charged in ((None, "1"), (last, "1"), (last + timedelta(milliseconds=1), "0")):
        found = to_text(native_count(limited, pods, now=now))
        assert found == {"count/pods": "1", "pods": charged, "requests.cpu": charged}


def test_only_pods_in_the_scopes_count() -> None:
    gold = Pod.from_object(a_pod(requests={"cpu": "1"}, priorityClassName="gold"))
    other = Pod.from_object(a_pod(requests={"cpu": "1"}))
    scoped = quota({"cpu": "9"}, expressions=[an_expression("PriorityClass", "In", "gold")])
    assert to_text(native_count(scoped, [gold, other])) == {"cpu": "1"}
    broken = quota({"cpu": "9"}, expressions=[an_expression("PriorityClass", "In")])
    with pytest.raises(ScopeError):
        native_count(broken, [gold])


GPU, NIC = "requests.example.com/gpu", "requests.example.com/nic"
GPUS = {"requests.cpu": "9", GPU: "9", "pods": "9"}


def with_claims(
    limited: ResourceQuota, claims: list[dict[str, Any]] | None, *pods: dict[str, Any]
) -> dict[str, str]:
    """Count pods and claims of a quota in which all was hidden."""
    return to_text(
        native_count(
            limited,
            map(Pod.from_object, pods),
            claims=None if claims is None else list(map(DeviceClaim.from_object, claims)),
            claimed=claimed_keys(limited, limited.hard.keys() - {"pods"}),
        )
    )


CLAIMS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "none": ([], "0"),
    "one": ([a_device_claim()], "1"),
    "two": ([a_device_claim(), a_device_claim()], "2"),
    "several requests": ([a_device_claim({"exactly": {}}, {"exactly": {"count": 4}})], "5"),
    "all": ([a_device_claim({"exactly": {"allocationMode": "All"}})], "32"),
    "a choice": ([a_device_claim({"firstAvailable": [{"count": 2}, {"count": 5}, {}]})], "5"),
    "a choice with all": ([a_device_claim({"firstAvailable": [{"allocationMode": "All"}]})], "32"),
    "without requests": ([{"metadata": {}, "spec": {}}], "0"),
}


@pytest.mark.parametrize(("claims", "devices"), CLAIMS.values(), ids=CLAIMS.keys())
def test_devices_of_claims_count_for_extended_resources(
    claims: list[dict[str, Any]], devices: str
) -> None:
    found = with_claims(quota(GPUS), claims, a_pod(requests={"cpu": "1"}))
    assert found == {"pods": "1", "requests.cpu": "1", GPU: devices}


def of_pod(uid: str, devices: int) -> dict[str, Any]:
    return a_device_claim({"exactly": {"count": devices}}, pod_uid=uid)


OF_PODS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "as many as it requests": ([of_pod("pod-uid-1", 2)], "2"),
    "fewer": ([of_pod("pod-uid-1", 1)], "2"),
    "more": ([of_pod("pod-uid-1", 5)], "5"),
    "a second one, of which neither is known to be the pod's": (
        [of_pod("pod-uid-1", 2), of_pod("pod-uid-1", 1)],
        "4",
    ),
    "of a pod that is not there": ([of_pod("another", 2)], "4"),
    "a tenant's": ([a_device_claim({"exactly": {"count": 2}})], "4"),
}


@pytest.mark.parametrize(("claims", "charged"), OF_PODS.values(), ids=OF_PODS.keys())
def test_what_a_scheduler_claimed_for_a_pod_counts_once(
    claims: list[dict[str, Any]], charged: str
) -> None:
    pod = a_pod(requests={"cpu": "1", "example.com/gpu": "2"}, limits={"example.com/gpu": "2"})
    found = with_claims(quota(GPUS), claims, pod)
    assert found == {"pods": "1", "requests.cpu": "1", GPU: charged}


def test_a_claim_outlasts_its_pod() -> None:
    ended = a_pod(requests={"example.com/gpu": "2"}, status={"phase": "Succeeded"})
    assert with_claims(quota(GPUS), [of_pod("pod-uid-1", 2)], ended)[GPU] == "2"


def test_only_one_resource_of_a_pod_is_what_its_claim_is_for() -> None:
    """Which one is not known: the other is not taken off."""
    pod = a_pod(requests={"example.com/gpu": "2", "example.com/nic": "3"})
    found = with_claims(quota({GPU: "9", NIC: "9"}), [of_pod("pod-uid-1", 4)], pod)
    assert found == {GPU: "4", NIC: "4"}


def test_only_the_controller_of_a_claim_is_its_pod() -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"annotations": {}},
        {"ownerReferences": [{"uid": "pod-uid-1", "apiVersion": "v1", "kind": "Pod"}]},
        {"ownerReferences": [{"uid": "pod-uid-1", "kind": "Job", "controller": True}]},
    )
    for change in changes:
        claim = of_pod("pod-uid-1", 2)
        claim["metadata"] |= change
        assert DeviceClaim.from_object(claim) == DeviceClaim(2)


def test_claims_that_are_not_known_use_up_what_they_may_be_charged_to() -> None:
    for requested, used in (("1", "9"), ("11", "11")):
        found = with_claims(quota(GPUS), None, a_pod(requests={"example.com/gpu": requested}))
        assert found == {"pods": "1", "requests.cpu": "0", GPU: used}


def test_claims_are_charged_to_no_quota_with_scopes() -> None:
    for scoped in (
        quota(GPUS, scopes=["NotTerminating"]),
        quota(GPUS, expressions=[an_expression("PriorityClass", "Exists")]),
    ):
        for claims in ([a_device_claim()], None):
            assert with_claims(scoped, claims)[GPU] == "0"


milli = st.integers(0, 50).map(lambda amount: f"{amount}m")


@given(before=milli, list_=milli, now=milli)
def test_a_count_that_is_carried_over_misses_no_pod(before: str, list_: str, now: str) -> None:
    """What the status lacked before the list is still added to what it says now."""
    spec = {"requests.cpu": "9"}
    old = quota(spec, spec, {"requests.cpu": before})
    new = quota(spec, spec, {"requests.cpu": now})
    listed = counted(cpu=list_)
    key = "requests.cpu"
    carried = carried_over(listed, old, new)[key]
    lacked = max(listed[key].nano - old.status_used[key].nano, 0)
    assert carried.nano == new.status_used[key].nano + lacked


def test_a_count_of_what_was_hidden_is_carried_over_as_it_is() -> None:
    spec = {"requests.cpu": "9"}
    masked, full = quota(spec), quota(spec, spec, {"requests.cpu": "4"})
    assert to_text(carried_over(counted(cpu="3"), masked, masked)) == {"requests.cpu": "3"}
    assert to_text(carried_over(counted(cpu="3"), masked, full)) == {"requests.cpu": "3"}
