"""Pods that are being deleted are charged as the API server charges them: until they are stuck."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.builders import a_pod, a_quota
from tests.operations.clocks import telling_time
from tests.operations.scenes import (
    NAMESPACE,
    QUICK,
    Object,
    a_cluster,
    a_masked_quota,
    a_namespace,
    status_of,
)
from tests.reactions import ReactiveClient, forbid
from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.fakecluster.storage import FakeClient
from webhook.operations.counting import taken_at_bind
from webhook.operations.disable import opt_out, preview
from webhook.operations.doctor.check_context import Settings
from webhook.operations.enable import plan_for
from webhook.operations.server_time import server_time
from webhook.quota.amounts.resources import to_text
from webhook.quota.charging.deferral import NamespaceQuotas, deferred_quotas
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS

ENDED = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
"""When the grace period of the pod was over."""
LAST = ENDED + timedelta(seconds=30)
"""The last moment at which it is charged."""
LATER = LAST + timedelta(seconds=1)


def an_ending_pod(grace: int | None = 30, name: str = "ends") -> Object:
    """A pod of 2 cpu with a node that does not go."""
    metadata: Object = {"deletionTimestamp": f"{ENDED:%Y-%m-%dT%H:%M:%SZ}"}
    if grace is not None:
        metadata["deletionGracePeriodSeconds"] = grace
    return a_pod(name=name, uid=f"uid-{name}", node="n", requests={"cpu": "2"}, metadata=metadata)


MOMENTS = {
    "at the very last moment it is charged": (30, LAST, ("0", "2")),
    "afterwards it is not": (30, LATER, ("0", "0")),
    "without a grace period it is charged for ever": (None, LATER, ("0", "2")),
    "while the time is not known it is charged": (30, None, ("0", "2")),
}


@pytest.mark.parametrize(("grace", "now", "taken"), MOMENTS.values(), ids=MOMENTS)
def test_what_an_ending_pod_takes(
    grace: int | None, now: datetime | None, taken: tuple[str, str]
) -> None:
    (quota,) = deferred_quotas([ResourceQuota.from_object(a_quota())], DEFERRED_KEYS).quotas
    found = taken_at_bind(quota, [Pod.from_object(an_ending_pod(grace))], now=now)
    assert tuple(to_text(part)["requests.cpu"] for part in (found.least, found.most)) == taken


@pytest.mark.parametrize("now", [LAST, LATER, None])
def test_an_ending_pod_that_is_held_takes_all_of_it_for_certain(now: datetime | None) -> None:
    quotas = [ResourceQuota.from_object(a_quota())]
    (quota,) = deferred_quotas(quotas, DEFERRED_KEYS, holds_terminating=True).quotas
    found = taken_at_bind(quota, [Pod.from_object(an_ending_pod())], now=now)
    assert [to_text(part)["requests.cpu"] for part in (found.least, found.most)] == ["2", "2"]


@pytest.mark.parametrize("amounts", [["1e20000", "1"], ["1e100"], ["1e20000", "1e20000"]])
def test_amounts_that_are_too_large_add_up_to_what_the_ledger_says(amounts: list[str]) -> None:
    (quota,) = deferred_quotas([ResourceQuota.from_object(a_quota())], DEFERRED_KEYS).quotas
    pods = [
        Pod.from_stored(a_pod(name=f"p{number}", uid=f"u{number}", node="n", requests={"cpu": cpu}))
        for number, cpu in enumerate(amounts)
    ]
    count = NamespaceUsage()
    count.set_quotas(NamespaceQuotas((quota,), frozenset({quota.observed}), DEFERRED_KEYS))
    for pod in pods:
        count.put(pod)
    used = count.totals(0).quotas[quota.name].used["requests.cpu"]
    found = taken_at_bind(quota, pods)
    assert [part["requests.cpu"] for part in (found.least, found.most)] == [used, used]


HARD = {"requests.cpu": "1", "pods": "9", "count/pods": "9"}
COUNTED = {
    LAST: {"requests.cpu": "3", "pods": "2", "count/pods": "2"},
    LATER: {"requests.cpu": "1", "pods": "1", "count/pods": "2"},
}


@pytest.mark.parametrize(("now", "used"), COUNTED.items(), ids=["charged", "stuck"])
def test_a_status_is_completed_with_what_the_api_server_counts(
    now: datetime, used: dict[str, str]
) -> None:
    runs = a_pod(name="runs", uid="uid-runs", node="n", requests={"cpu": "1"})
    quota = a_masked_quota(hard=HARD)
    quota["status"] = {}
    cluster = a_cluster(a_namespace(), quota, runs, an_ending_pod())
    api = telling_time(cluster, now)
    assert len(preview(api, NAMESPACE).over) == (now == LAST)
    done = opt_out(api, NAMESPACE, patience=QUICK)
    assert (done.problems, len(done.over)) == ((), now == LAST)
    assert status_of(api) == {"hard": HARD, "used": used}


@pytest.mark.parametrize(("now", "then", "told"), [(LAST, "2", ["enable.exceeded"]),
                                                   (LATER, "0", [])])  # fmt: skip
def test_a_plan_counts_what_the_api_server_counts(
    now: datetime, then: str, told: list[str]
) -> None:
    quota = a_quota("p1", hard={"requests.cpu": "1"})
    cluster = a_cluster(a_namespace(mode=""), quota, an_ending_pod())
    plan = plan_for(telling_time(cluster, now), Settings(), NAMESPACE, must_specify=False)
    (key,) = plan.quotas[0].deferred
    assert (str(key.used_now), str(key.used_then)) == (then, then)
    assert [one.id for one in plan.findings] == told


def test_the_time_is_not_asked_for_while_no_pod_ends() -> None:
    api = ReactiveClient(a_cluster(a_namespace(), a_masked_quota(), a_pod(node="n")))
    assert preview(api, NAMESPACE).problems == ()
    assert api.calls_of("patch") == []


def test_the_time_is_that_of_the_api_server_and_nothing_is_written() -> None:
    cluster = a_cluster(a_namespace())
    before = cluster.resource_version
    assert server_time(telling_time(cluster, LATER), NAMESPACE) == LATER
    assert server_time(FakeClient(cluster), NAMESPACE) is None
    forbidding = ReactiveClient(cluster)
    forbidding.on("patch", "*", forbid)
    assert server_time(forbidding, NAMESPACE) is None
    assert server_time(telling_time(cluster, LATER), "nowhere") is None
    assert cluster.resource_version == before


@pytest.mark.parametrize(("holds", "then"), [(False, "0"), (True, "2")])
def test_opting_in_counts_a_pod_past_its_grace_period_if_such_pods_are_held(
    *, holds: bool, then: str
) -> None:
    cluster = a_cluster(a_namespace(), a_quota("p1", hard={"requests.cpu": "1"}), an_ending_pod())
    settings = Settings(holds_terminating=holds)
    plan = plan_for(telling_time(cluster, LATER), settings, NAMESPACE, must_specify=False)
    (key,) = plan.quotas[0].deferred
    assert str(key.used_then) == then
    assert ("enable.exceeded" in [one.id for one in plan.findings]) is holds
