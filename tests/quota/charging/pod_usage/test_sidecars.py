from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from tests.builders import Object, a_container, a_pod, a_sidecar
from tests.quota.charging.pod_usage.charges import COUNTS, charge, limits, requests
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.objects.model import Pod

CASES: dict[str, tuple[Object, Mapping[str, str]]] = {
    "init containers run one after another: the largest of each resource counts": (
        a_pod(
            requests={"cpu": "1", "memory": "1Gi"},
            limits={"cpu": "2", "memory": "2Gi"},
            init=[
                a_container("a", requests={"cpu": "4", "memory": "128Mi"}, limits={"cpu": "4"}),
                a_container("b", requests={"cpu": "1", "memory": "4Gi"}),
            ],
        ),
        requests(cpu="4", memory="4Gi") | limits(cpu="4", memory="2Gi"),
    ),
    "an init container runs beside the sidecars before it": (
        a_pod(
            requests={"cpu": "1", "memory": "1Gi"},
            limits={"cpu": "1"},
            init=[
                a_sidecar(requests={"cpu": "500m", "memory": "100Mi"}, limits={"cpu": "1"}),
                a_container("a", requests={"cpu": "3", "memory": "50Mi"}, limits={"cpu": "3"}),
            ],
        ),
        requests(cpu="3500m", memory="1124Mi") | limits(cpu="4"),
    ),
    "an init container does not wait for the sidecars after it": (
        a_pod(
            requests={"cpu": "1", "memory": "1Gi"},
            init=[
                a_container("a", requests={"cpu": "3", "memory": "50Mi"}),
                a_sidecar(requests={"cpu": "500m", "memory": "100Mi"}),
            ],
        ),
        requests(cpu="3", memory="1124Mi"),
    ),
    "sidecars pile up": (
        a_pod(
            requests={"cpu": "250m"},
            init=[
                a_sidecar("s1", requests={"cpu": "1"}),
                a_container("a", requests={"cpu": "2"}),
                a_sidecar("s2", requests={"cpu": "1"}),
                a_container("b", requests={"cpu": "1500m"}),
            ],
        ),
        requests(cpu="3500m"),
    ),
    "the containers run beside all sidecars": (
        a_pod(
            requests={"cpu": "1"},
            init=[a_sidecar("s1", requests={"cpu": "1"}), a_sidecar("s2", requests={"cpu": "2"})],
        ),
        requests(cpu="4"),
    ),
    "a container that asks for less than nothing takes nothing from a sidecar": (
        a_pod(requests={"cpu": "-1"}, init=[a_sidecar(requests={"cpu": "1"})]),
        requests(cpu="1"),
    ),
    "an init container that restarts only on failure is no sidecar": (
        a_pod(
            requests={"cpu": "1"},
            init=[a_container("a", requests={"cpu": "1"}, restartPolicy="OnFailure")],
        ),
        requests(cpu="1"),
    ),
    "a container that always restarts is no sidecar": (
        a_pod(
            a_container("a", requests={"cpu": "1"}, restartPolicy="Always"),
            init=[a_container("b", requests={"cpu": "1"})],
        ),
        requests(cpu="1"),
    ),
    "of equal amounts the container's text stays": (
        a_pod(requests={"memory": "+1Gi"}, init=[a_container("a", requests={"memory": "1Gi"})]),
        requests(memory="+1Gi"),
    ),
    "of equal amounts the container's format stays": (
        a_pod(requests={"memory": "1024"}, init=[a_container("a", requests={"memory": "1Ki"})]),
        requests(memory="1024"),
    ),
}


@pytest.mark.parametrize(("pod", "expected"), CASES.values(), ids=CASES.keys())
def test_the_moment_of_greatest_need_is_charged(pod: Object, expected: Mapping[str, str]) -> None:
    assert charge(pod) == {**COUNTS, **expected}


def test_the_order_of_init_containers_matters() -> None:
    sidecar = a_sidecar(requests={"cpu": "1"})
    init = a_container("a", requests={"cpu": "3"})

    first = charge(a_pod(requests={"cpu": "1"}, init=[sidecar, init]))
    last = charge(a_pod(requests={"cpu": "1"}, init=[init, sidecar]))

    assert (first["requests.cpu"], last["requests.cpu"]) == ("4", "3")


def test_each_init_container_takes_little_time_whatever_the_others_name() -> None:
    """A review may have tens of thousands of them, each with a resource of its own."""
    init = [
        (a_sidecar if number % 2 else a_container)(
            f"c{number}", requests={f"example.com/r{number}": "1", "cpu": "1m"}
        )
        for number in range(6_000)
    ]
    pod = Pod.from_object(a_pod(init=init))
    started = time.process_time()
    usage = usage_of(pod, now=None)
    assert time.process_time() - started < 1.0
    assert str(usage["requests.cpu"]) == "3"
    assert str(usage["requests.example.com/r5998"]) == "1"
