from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import Object, a_container, a_container_status, a_pod, a_sidecar
from tests.quota.charging.pod_usage.charges import COUNTS, charge, limits, requests
from webhook.quota.charging.pod_usage import charged_to
from webhook.quota.objects.model import Pod


def resized(
    *, spec: str, actual: str, allocated: str = "", actual_limit: str = "", reason: str = ""
) -> Object:
    """A pod whose container asks for `spec` cpu, runs with `actual`, was allotted `allocated`."""
    reported = a_container_status(
        requests={"cpu": actual},
        limits={"cpu": actual_limit or actual},
        allocated={"cpu": allocated or actual},
    )
    condition = {"type": "PodResizePending", "status": "True", "reason": reason}
    return a_pod(
        requests={"cpu": spec},
        limits={"cpu": spec},
        status={"containerStatuses": [reported], "conditions": [condition] if reason else []},
    )


CASES: dict[str, tuple[Object, Mapping[str, str]]] = {
    "a shrink counts once it is in force": (
        resized(spec="1", actual="2"),
        requests(cpu="2") | limits(cpu="2"),
    ),
    "a growth counts when it is asked for": (
        resized(spec="4", actual="2"),
        requests(cpu="4") | limits(cpu="4"),
    ),
    "an allocation that is not in force yet counts": (
        resized(spec="1", actual="2", allocated="3"),
        requests(cpu="3") | limits(cpu="2"),
    ),
    "a growth that the node can never grant does not count": (
        resized(spec="400", actual="2", reason="Infeasible"),
        requests(cpu="2") | limits(cpu="2"),
    ),
    "limits in force count when the growth is infeasible": (
        resized(spec="400", actual="2", actual_limit="3", reason="Infeasible"),
        requests(cpu="2") | limits(cpu="3"),
    ),
    "a growth that has to wait counts": (
        resized(spec="400", actual="2", reason="Deferred"),
        requests(cpu="400") | limits(cpu="400"),
    ),
    "an allocation without resources in force is ignored": (
        a_pod(
            requests={"cpu": "1"},
            status={
                "containerStatuses": [a_container_status(allocated={"cpu": "9"}, resources=None)]
            },
        ),
        requests(cpu="1"),
    ),
    "of init containers that end the API server does not read what is in force": (
        a_pod(
            requests={"cpu": "1"},
            init=[
                a_container("init", requests={"cpu": "1"}),
                a_sidecar(requests={"cpu": "1"}),
            ],
            status={
                "initContainerStatuses": [
                    a_container_status("init", requests={"cpu": "50"}),
                    a_container_status("sidecar", requests={"cpu": "3"}),
                ]
            },
        ),
        requests(cpu="4"),
    ),
    "of two statuses of a name that of the init containers stands": (
        a_pod(
            requests={"cpu": "1"},
            status={
                "containerStatuses": [a_container_status(requests={"cpu": "2"})],
                "initContainerStatuses": [a_container_status(requests={"cpu": "3"})],
            },
        ),
        requests(cpu="3"),
    ),
    "even where it has no resources": (
        a_pod(
            requests={"cpu": "1"},
            status={
                "containerStatuses": [a_container_status(requests={"cpu": "2"})],
                "initContainerStatuses": [a_container_status(resources=None)],
            },
        ),
        requests(cpu="1"),
    ),
    "a resource that only the node reports counts": (
        a_pod(status={"containerStatuses": [a_container_status(requests={"memory": "1Gi"})]}),
        requests(memory="1Gi"),
    ),
    "the status of another container does not matter": (
        a_pod(
            requests={"cpu": "1"},
            status={"containerStatuses": [a_container_status("old", requests={"cpu": "9"})]},
        ),
        requests(cpu="1"),
    ),
    "of equal amounts the text of the spec stays": (
        resized(spec="1.500", actual="1500m"),
        requests(cpu="1.500") | limits(cpu="1.500"),
    ),
}


@pytest.mark.parametrize(("pod", "expected"), CASES.values(), ids=CASES.keys())
def test_a_resize_under_way_is_charged(pod: Object, expected: Mapping[str, str]) -> None:
    assert charge(pod) == {**COUNTS, **expected}


@pytest.mark.parametrize("status", ["True", "False", "Unknown", ""])
def test_the_status_of_the_condition_does_not_matter(status: str) -> None:
    pod = resized(spec="400", actual="2", reason="Infeasible")
    pod["status"] = {
        **(pod["status"] if isinstance(pod["status"], dict) else {}),
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Deferred"},
            {"type": "PodResizePending", "status": status, "reason": "Infeasible"},
        ],
    }

    assert charge(pod)["requests.cpu"] == "2"


def initializing(*, reason: str = "", phase: str = "Pending", **reported: Object) -> Object:
    """A pod whose init container of 2 cpu runs to its end beside a sidecar of 1."""
    condition = {"type": "PodResizePending", "status": "True", "reason": reason}
    sidecar = a_sidecar(requests={"cpu": "1"}, limits={"cpu": "1"})
    init = a_container("init", requests={"cpu": "2"}, limits={"cpu": "2"})
    return a_pod(
        requests={"cpu": "1"},
        limits={"cpu": "1"},
        init=[sidecar, init],
        status={
            "phase": phase,
            "initContainerStatuses": [a_container_status("init", **reported)],
            "conditions": [condition] if reason else [],
        },
    )


INITIALIZING: dict[str, tuple[Object, Mapping[str, str]]] = {
    "a shrink counts once it is in force": (
        initializing(requests={"cpu": "4"}, limits={"cpu": "6"}),
        requests(cpu="5") | limits(cpu="7"),
    ),
    "an allocation counts": (
        initializing(requests={"cpu": "2"}, limits={"cpu": "2"}, allocated={"cpu": "3"}),
        requests(cpu="4") | limits(cpu="3"),
    ),
    "a resource that only the node reports counts": (
        initializing(requests={"cpu": "2", "memory": "1Gi"}),
        requests(cpu="3", memory="1Gi") | limits(cpu="3"),
    ),
    "a growth counts when it is asked for": (
        initializing(requests={"cpu": "1"}, limits={"cpu": "1"}),
        requests(cpu="3") | limits(cpu="3"),
    ),
    "one that the node cannot grant counts, as the API server counts it": (
        initializing(requests={"cpu": "1"}, limits={"cpu": "1"}, reason="Infeasible"),
        requests(cpu="3") | limits(cpu="3"),
    ),
    "nothing is reported": (initializing(), requests(cpu="3") | limits(cpu="3")),
}


@pytest.mark.parametrize(("pod", "expected"), INITIALIZING.values(), ids=INITIALIZING.keys())
def test_a_ledger_charges_what_is_in_force_of_an_init_container(
    pod: Object, expected: Mapping[str, str]
) -> None:
    charged = charged_to(Pod.from_object(pod))
    assert {name: str(amount) for name, amount in charged.items()} == {**COUNTS, **expected}
    assert charge(pod) == {**COUNTS, **requests(cpu="3"), **limits(cpu="3")}


def test_of_a_pod_that_has_ended_no_init_container_is_in_force() -> None:
    pod = initializing(requests={"cpu": "4"}, phase="Failed")
    assert {name: str(one) for name, one in charged_to(Pod.from_object(pod)).items()} == {
        "count/pods": "1"
    }
