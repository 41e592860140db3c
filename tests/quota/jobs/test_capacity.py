"""Whether the pods of a Job fit quotas: one of them, and all at a time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object, a_container, a_job, a_quota
from tests.counting import calls_of
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import parse_resource_list
from webhook.quota.jobs.capacity import (
    Share,
    never_fitting,
    perhaps_never_fitting,
    requested_by,
    requests_same,
    shares_of,
    shortfalls,
)
from webhook.quota.jobs.job_pods import pods_of_job
from webhook.quota.objects.model import ResourceQuota

FAILED = {"type": "Failed", "status": "True"}


def quota(name: str = "p1", **hard: str) -> ResourceQuota:
    return ResourceQuota.from_object(a_quota(name, hard={_key(k): v for k, v in hard.items()}))


def _key(name: str) -> str:
    return name.replace("requests_", "requests.").replace("limits_", "limits.")


def shares(requests: Object, count: int = 1, **fields: object) -> tuple[Share, ...]:
    container = a_container(resources={"requests": requests})
    return shares_of(pods_of_job(a_job(container, parallelism=count, **fields)))  # type: ignore[arg-type]


def test_a_pod_that_is_as_large_as_the_quota_fits() -> None:
    (share,) = shares({"cpu": "2"})
    assert never_fitting(share, [quota(requests_cpu="2")]) == ()
    (exceeded,) = never_fitting(share, [quota(requests_cpu="1999m"), quota("p2", cpu="9")])
    assert (exceeded.quota, list(exceeded.requested)) == ("p1", ["requests.cpu"])


def test_limits_stand_in_for_requests() -> None:
    container = a_container(limits={"cpu": "3"})
    (share,) = shares_of(pods_of_job(a_job(container)))
    assert [e.quota for e in never_fitting(share, [quota(requests_cpu="2")])] == ["p1"]


def test_the_scarcest_resource_is_named_with_how_many_fit() -> None:
    (short,) = shortfalls(
        shares({"cpu": "1", "memory": "1Gi"}, 4), [quota(requests_cpu="3", requests_memory="1Gi")]
    )
    assert (short.key, str(short.asked), str(short.available)) == ("requests.memory", "4Gi", "1Gi")
    assert (short.fitting, short.count) == (1, 4)
    assert short.keys == {"requests.memory", "requests.cpu"}
    assert short.field == "spec.parallelism"


def test_every_matching_quota_has_a_say() -> None:
    best_effort = a_quota("p0", hard={"pods": "1"}, scopes=["BestEffort"])
    quotas = [ResourceQuota.from_object(best_effort), quota("p1", pods="3"), quota("p2", pods="2")]
    found = shortfalls(shares({"cpu": "1"}, 4), quotas)
    assert [(short.quota, short.fitting) for short in found] == [("p1", 3), ("p2", 2)]


def test_what_is_free_may_be_nothing_or_less() -> None:
    free = {"p1": parse_resource_list({"requests.cpu": "-1"}, field="")}
    (short,) = shortfalls(shares({"cpu": "1"}, 2), [quota(requests_cpu="9", pods="1")], free)
    assert (short.fitting, str(short.available), set(short.keys)) == (0, "0", {"requests.cpu"})


def test_a_job_that_is_scaled_to_zero_asks_for_nothing_but_its_pods_can_still_be_too_large() -> (
    None
):
    (share,) = shares({"cpu": "9"}, 0)
    assert share.count == 0
    assert shortfalls([share], [quota(requests_cpu="1")]) == ()
    assert [each.quota for each in never_fitting(share, [quota(requests_cpu="1")])] == ["p1"]


def test_a_job_without_pods_to_come_has_none() -> None:
    assert shares({"cpu": "9"}, 2, completions=2, status={"succeeded": 2}) == ()
    assert shares({"cpu": "9"}, 0, completions=2, status={"succeeded": 2}) == ()
    assert shares({"cpu": "9"}, 2, status={"conditions": [FAILED]}) == ()


def scoped(operator: str, *values: str, cpu: str = "1") -> ResourceQuota:
    expression = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    made = a_quota("classes", hard={"requests.cpu": cpu})
    made["spec"]["scopeSelector"] = {"matchExpressions": [expression]}  # type: ignore[index]
    return ResourceQuota.from_object(made)


CLASSES: dict[str, tuple[ResourceQuota, str, bool, bool]] = {
    "no class, and the quota is for pods without": (scoped("DoesNotExist"), "", False, True),
    "no class, and the quota is for all but some": (scoped("NotIn", "high"), "", False, True),
    "no class, and the quota is for some": (scoped("In", "high"), "", False, False),
    "a class, and the quota is for it": (scoped("In", "high"), "high", True, False),
    "a class, and the quota is for all but some": (scoped("NotIn", "high"), "low", True, False),
    "a class, and the quota is for all with one": (scoped("Exists"), "low", True, False),
    "no class, and the quota is for all pods": (quota(requests_cpu="1"), "", True, False),
}


@pytest.mark.parametrize(
    ("limits", "name", "is_sure", "is_possible"), CLASSES.values(), ids=CLASSES.keys()
)
def test_a_default_class_may_take_pods_out_of_a_quota(
    limits: ResourceQuota, name: str, is_sure: bool, is_possible: bool
) -> None:
    classed = {"priorityClassName": name} if name else {}
    (share,) = shares({"cpu": "2"}, template_spec=classed)
    assert bool(never_fitting(share, [limits])) is is_sure
    assert bool(perhaps_never_fitting(share, [limits])) is is_possible


REQUESTS: dict[str, tuple[Object, str, bool]] = {
    "no requests": ({}, "BestEffort", True),
    "requests of what does not count for it": ({"ephemeral-storage": "1Gi"}, "BestEffort", True),
    "requests": ({"cpu": "1"}, "BestEffort", False),
    "requests, and the quota is for pods with some": ({"cpu": "1"}, "NotBestEffort", False),
}


@pytest.mark.parametrize("is_expression", [False, True])
@pytest.mark.parametrize(("requests", "scope", "is_possible"), REQUESTS.values(), ids=REQUESTS)
def test_a_default_of_a_limit_range_may_take_pods_out_of_a_quota(
    requests: Object, scope: str, is_possible: bool, is_expression: bool
) -> None:
    made = a_quota("p1", hard={"pods": "0"}, scopes=[] if is_expression else [scope])
    if is_expression:
        selector = {"matchExpressions": [{"scopeName": scope, "operator": "Exists"}]}
        made["spec"]["scopeSelector"] = selector  # type: ignore[index]
    (share,) = shares(requests)
    limits = ResourceQuota.from_object(made)
    assert bool(never_fitting(share, [limits])) is (scope == "NotBestEffort")
    assert bool(perhaps_never_fitting(share, [limits])) is is_possible


def test_what_pods_ask_of_a_quota_is_their_sum_or_the_largest() -> None:
    some = (*shares({"cpu": "1", "memory": "2Gi"}, 3), *shares({"cpu": "2"}, 2))
    limits = quota(requests_cpu="1", requests_memory="1Gi", pods="1")
    total, largest = requested_by(limits, some), requested_by(limits, some, each=True)
    assert (str(total["requests.cpu"]), str(largest["requests.cpu"])) == ("7", "2")
    assert (str(total["requests.memory"]), str(largest["requests.memory"])) == ("6Gi", "2Gi")
    assert requested_by(scoped("In", "high"), some) == {}


SAME = {
    "the same": ({}, True),
    "an image": ({"image": "registry.example/app:2"}, True),
    "less": ({"requests": {"cpu": "500m"}}, False),
    "a number": ({"count": 2}, False),
    "a deadline": ({"template_spec": {"activeDeadlineSeconds": 5}}, False),
    "a class": ({"template_spec": {"priorityClassName": "high"}}, False),
}


@pytest.mark.parametrize(("change", "is_same"), SAME.values(), ids=SAME.keys())
def test_only_what_quotas_look_at_is_another_pod(change: Object, is_same: bool) -> None:
    fields: Object = {"image": "registry.example/app:1", "requests": {"cpu": "1"}, **change}
    container = a_container(requests=fields.pop("requests"), image=fields.pop("image"))  # type: ignore[arg-type]
    job = a_job(container, parallelism=fields.pop("count", 1), **fields)  # type: ignore[arg-type]
    old = a_job(a_container(requests={"cpu": "1"}, image="registry.example/app:1"), parallelism=1)
    assert requests_same(shares_of(pods_of_job(old)), shares_of(pods_of_job(job))) is is_same


@given(
    count=st.integers(1, 500),
    milli=st.integers(1, 5000),
    hard=st.integers(0, 100_000),
    pods=st.integers(0, 500),
)
def test_as_many_pods_fit_as_are_said_to_and_not_one_more(
    count: int, milli: int, hard: int, pods: int
) -> None:
    limits = quota(requests_cpu=f"{hard}m", pods=str(pods))
    found = shortfalls(shares({"cpu": f"{milli}m"}, count), [limits])
    most = min(hard // milli, pods)
    assert bool(found) == (count > most)
    for short in found:
        assert short.fitting == most
        assert short.asked > short.available
        assert short.asked in (Quantity.parse(f"{count * milli}m"), Quantity.parse(str(count)))


def test_resources_that_no_quota_limits_are_added_up_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    templates = [
        share
        for template in range(20)
        for share in shares({"cpu": "1", **{f"a/{template}-{name}": "1" for name in range(30)}})
    ]
    limits = [quota(requests_cpu="1"), quota("p2", **{"requests.a/0-0": "0"})]
    added = calls_of(monkeypatch, Quantity, "__add__")
    found = shortfalls(templates, limits)
    assert [(short.quota, str(short.asked)) for short in found] == [("p1", "20"), ("p2", "1")]
    assert len(added) <= len(limits) * len(templates)


def test_a_sum_over_many_templates_is_not_copied_for_each() -> None:
    def seconds(count: int) -> float:
        names = [f"a/{number}" for number in range(count)]
        templates = [share for name in names for share in shares({name: "1"})]
        limits = [quota(**{f"requests.{name}": "1" for name in names})]
        began = time.process_time()
        assert shortfalls(templates, limits) == ()
        assert len(requested_by(limits[0], templates)) > count
        return time.process_time() - began

    few, many = (min(seconds(count) for _ in range(3)) for count in (200, 1600))
    assert many / few < 4 * 1600 / 200
