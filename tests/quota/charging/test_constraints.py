"""Which amounts containers have to state because a quota counts them."""

from __future__ import annotations

import pytest

from tests.builders import Object, a_container, a_pod, a_sidecar
from tests.quota.parsed import pod_of, quota_of
from webhook.quota.charging.constraints import (
    MUST_SPECIFY_KEYS,
    constraint_text,
    missing_resources,
    obliging_keys,
    states_pod_level,
    unstated,
)
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.objects.names import DEFERRED_KEYS

CPU = {"cpu": "1"}
ZERO = {"cpu": "0"}

CASES: dict[str, tuple[Object, list[str], str]] = {
    "zero is a statement": (
        a_pod(a_container("a", requests=ZERO)),
        ["requests.cpu", "requests.memory"],
        "must specify requests.memory for: a",
    ),
    "a limit is no request": (
        a_pod(a_container("a", limits=CPU)),
        ["cpu", "limits.cpu"],
        "must specify cpu for: a",
    ),
    "a request is no limit": (
        a_pod(a_container("a", requests=CPU)),
        ["requests.cpu", "limits.cpu"],
        "must specify limits.cpu for: a",
    ),
    "init and regular containers are mixed and sorted": (
        a_pod(
            a_container("web"),
            a_container("app", requests=CPU),
            init=[
                a_container("zinit"),
                a_container("binit", requests=CPU, limits={"memory": "1Gi"}),
            ],
        ),
        ["limits.memory", "requests.cpu", "cpu"],
        (
            "must specify cpu for: web,zinit; limits.memory for: app,web,zinit; "
            "requests.cpu for: web,zinit"
        ),
    ),
    "sidecars are asked": (
        a_pod(a_container("a", requests=CPU), init=[a_sidecar("side")]),
        ["requests.cpu"],
        "must specify requests.cpu for: side",
    ),
    "a name is said once": (
        a_pod(a_container("a"), init=[a_container("a")]),
        ["requests.cpu"],
        "must specify requests.cpu for: a",
    ),
    "a key is said once": (
        a_pod(a_container("a")),
        ["requests.cpu", "requests.cpu"],
        "must specify requests.cpu for: a",
    ),
    "other keys oblige nobody": (
        a_pod(a_container("a")),
        [
            "pods",
            "count/pods",
            "requests.ephemeral-storage",
            "limits.ephemeral-storage",
            "hugepages-2Mi",
            "requests.nvidia.com/gpu",
        ],
        "",
    ),
    "ephemeral containers are not asked": (
        a_pod(a_container("a", requests=CPU), ephemeralContainers=[a_container("debug")]),
        ["requests.cpu"],
        "",
    ),
    "overhead states nothing": (
        a_pod(a_container("a"), overhead=CPU),
        ["requests.cpu"],
        "must specify requests.cpu for: a",
    ),
    "a pod without containers states nothing and lacks nothing": (
        {**a_pod(), "spec": {}},
        ["requests.cpu"],
        "",
    ),
}


@pytest.mark.parametrize(("raw", "required", "expected"), CASES.values(), ids=CASES.keys())
def test_the_missing_amounts_are_said_in_the_platforms_words(
    raw: Object, required: list[str], expected: str
) -> None:
    assert constraint_text(missing_resources(pod_of(raw), required)) == expected


POD_LEVEL: dict[str, tuple[Object | None, bool]] = {
    "absent": (None, False),
    "empty": ({}, False),
    "a request": ({"requests": {"cpu": "1"}}, True),
    "a limit": ({"limits": {"memory": "1Gi"}}, True),
    "huge pages": ({"requests": {"hugepages-2Mi": "4Mi"}}, True),
    "a resource that pods cannot state": ({"requests": {"ephemeral-storage": "1Gi"}}, False),
}


@pytest.mark.parametrize(("resources", "excused"), POD_LEVEL.values(), ids=POD_LEVEL.keys())
def test_any_pod_level_amount_excuses_the_containers_from_all(
    resources: Object | None, excused: bool
) -> None:
    pod = pod_of(a_pod(a_container("a"), resources=resources))
    assert states_pod_level(pod) is excused
    assert bool(missing_resources(pod, ["requests.cpu"])) is not excused


def test_missing_amounts_come_sorted() -> None:
    pod = pod_of(a_pod(a_container("b"), a_container("a")))
    missing = missing_resources(pod, ["requests.memory", "limits.cpu", "cpu"])
    assert list(missing.items()) == [
        ("cpu", ("a", "b")),
        ("limits.cpu", ("a", "b")),
        ("requests.memory", ("a", "b")),
    ]


def test_the_keys_that_oblige_are_the_compute_keys_that_are_deferred() -> None:
    assert MUST_SPECIFY_KEYS == DEFERRED_KEYS


@pytest.mark.parametrize(
    ("quota", "obliges"),
    [
        ("compute", True),
        ("eq.a.b", True),
        ("cdq/both", True),
        ("cdq/epool.default", False),
        ("cdq/eq.team-a.q", False),
        ("cdq/ceq.team-a.q", False),
    ],
)
def test_a_quota_that_charges_elastic_quotas_obliges_no_container(
    quota: str, *, obliges: bool
) -> None:
    assert bool([*obliging_keys(quota, ["requests.cpu"])]) is obliges


def test_each_quota_names_what_it_limits_and_no_container_states() -> None:
    quotas = [
        quota_of("c", hard={"cpu": "1"}),
        quota_of("m", hard={"limits.memory": "1", "cpu": "1"}),
        quota_of("p", hard={"requests.memory": "1"}),
    ]
    found = deferred_quotas(quotas, DEFERRED_KEYS).quotas
    pod = pod_of(a_pod(a_container("a", requests={"memory": "1"}), a_container("b", limits=CPU)))
    said = [(quota.name, {**missing}) for quota, missing in unstated(pod, found)]
    assert said == [
        ("c", {"cpu": ("a", "b")}),
        ("m", {"cpu": ("a", "b"), "limits.memory": ("a", "b")}),
        ("p", {"requests.memory": ("b",)}),
    ]
