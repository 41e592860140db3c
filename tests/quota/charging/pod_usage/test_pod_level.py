from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import Object, a_container, a_pod
from tests.quota.charging.pod_usage.charges import COUNTS, charge, limits, requests
from webhook.quota.charging.pod_usage import charged_to
from webhook.quota.objects.model import Pod

MAIN = a_container(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "2", "memory": "3Gi"})

CASES: dict[str, tuple[Object, Mapping[str, str]]] = {
    "an amount of the pod replaces that of the containers, the others stay": (
        a_pod(
            MAIN,
            resources={"requests": {"cpu": "5"}, "limits": {"cpu": "6", "memory": "8Gi"}},
        ),
        requests(cpu="5", memory="1Gi") | limits(cpu="6", memory="8Gi"),
    ),
    "limits of the pod are not requests before the API server has made them so": (
        a_pod(requests={"cpu": "1"}, resources={"limits": {"cpu": "6", "memory": "8Gi"}}),
        requests(cpu="1") | limits(cpu="6", memory="8Gi"),
    ),
    "it replaces even what an init container needs more": (
        a_pod(
            requests={"cpu": "1"},
            init=[a_container("a", requests={"cpu": "4"})],
            resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        ),
        requests(cpu="1") | limits(cpu="2"),
    ),
    "overhead is added to it": (
        a_pod(
            resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
            overhead={"cpu": "100m"},
        ),
        requests(cpu="1100m") | limits(cpu="2100m"),
    ),
    "overhead of another resource is added to the containers'": (
        a_pod(
            requests={"cpu": "1", "memory": "10Mi"},
            resources={"requests": {"cpu": "3"}},
            overhead={"memory": "10Mi"},
        ),
        requests(cpu="3", memory="20Mi"),
    ),
    "ephemeral storage cannot be given for the pod": (
        a_pod(resources={"requests": {"ephemeral-storage": "1Gi"}}),
        {},
    ),
    "nor extended resources, beside ones that can": (
        a_pod(
            requests={"example.com/foo": "1"},
            resources={"requests": {"cpu": "1", "example.com/foo": "7"}},
        ),
        requests(cpu="1") | {"requests.example.com/foo": "1"},
    ),
    "huge pages can": (
        a_pod(
            resources={
                "requests": {"memory": "64Mi", "hugepages-2Mi": "4Mi"},
                "limits": {"memory": "64Mi", "hugepages-2Mi": "4Mi"},
            }
        ),
        requests(memory="64Mi")
        | limits(memory="64Mi")
        | {"hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi"},
    ),
    "what the status says of the whole pod is not looked at": (
        a_pod(
            resources={"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
            status={
                "resources": {"requests": {"cpu": "7"}, "limits": {"cpu": "7"}},
                "allocatedResources": {"cpu": "8"},
            },
        ),
        requests(cpu="1") | limits(cpu="1"),
    ),
    "containers without amounts are covered": (
        a_pod(
            resources={
                "requests": {"cpu": "1", "memory": "1Gi"},
                "limits": {"cpu": "1", "memory": "1Gi"},
            }
        ),
        requests(cpu="1", memory="1Gi") | limits(cpu="1", memory="1Gi"),
    ),
    "an empty one replaces nothing": (
        a_pod(requests={"cpu": "1"}, resources={}),
        requests(cpu="1"),
    ),
    "its own text survives": (
        a_pod(MAIN, resources={"requests": {"cpu": "1.500"}}),
        requests(cpu="1.500", memory="1Gi") | limits(cpu="2", memory="3Gi"),
    ),
}


@pytest.mark.parametrize(("pod", "expected"), CASES.values(), ids=CASES.keys())
def test_pod_level_resources_are_charged(pod: Object, expected: Mapping[str, str]) -> None:
    assert charge(pod) == {**COUNTS, **expected}


RESIZED: dict[str, tuple[Object, Mapping[str, str]]] = {
    "a resize downwards that the node has not begun": (
        {"resources": {"requests": {"cpu": "7"}, "limits": {"cpu": "8"}}},
        requests(cpu="7") | limits(cpu="8"),
    ),
    "what is set aside counts too": (
        {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "3"}},
        requests(cpu="3") | limits(cpu="2"),
    ),
    "one that is carried out": (
        {
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
            "allocatedResources": {"cpu": "1"},
        },
        requests(cpu="1") | limits(cpu="2"),
    ),
    "a resource that the pod does not name": (
        {"resources": {"requests": {"memory": "1"}}, "allocatedResources": {"memory": "1"}},
        requests(cpu="1") | limits(cpu="2"),
    ),
    "nothing is reported": ({}, requests(cpu="1") | limits(cpu="2")),
}

SMALLER_MEMORY: dict[str, tuple[Object, Mapping[str, str]]] = {
    "a node of 1.36 reports the request that the pod was started with as long as it runs": (
        {
            "resources": {"requests": {"memory": "4Gi"}, "limits": {"memory": "2Gi"}},
            "allocatedResources": {"memory": "1Gi"},
        },
        requests(memory="1Gi") | limits(memory="2Gi"),
    ),
    "what is set aside, and the limit in force, count": (
        {
            "resources": {"requests": {"memory": "3Gi"}, "limits": {"memory": "5Gi"}},
            "allocatedResources": {"memory": "4Gi"},
        },
        requests(memory="4Gi") | limits(memory="5Gi"),
    ),
    "so does the request of a report that does not say what is set aside": (
        {"resources": {"requests": {"memory": "4Gi"}}, "allocatedResources": {"cpu": "1"}},
        requests(memory="4Gi") | limits(memory="2Gi"),
    ),
}


@pytest.mark.parametrize(("status", "expected"), RESIZED.values(), ids=RESIZED.keys())
def test_a_ledger_charges_what_the_node_has_not_given_back(
    status: Object, expected: Mapping[str, str]
) -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    charged = charged_to(Pod.from_object(a_pod(resources=resources, status=status)))
    assert {name: str(amount) for name, amount in charged.items()} == {**COUNTS, **expected}


@pytest.mark.parametrize(("status", "expected"), SMALLER_MEMORY.values(), ids=SMALLER_MEMORY.keys())
def test_memory_is_given_back_when_the_node_sets_less_aside(
    status: Object, expected: Mapping[str, str]
) -> None:
    resources = {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    charged = charged_to(Pod.from_object(a_pod(resources=resources, status=status)))
    assert {name: str(amount) for name, amount in charged.items()} == {**COUNTS, **expected}


OVERHEAD = {"cpu": "250m", "memory": "128Mi"}
AS_STARTED: Object = {
    "resources": {
        "requests": {"cpu": "1250m", "memory": "1Gi"},
        "limits": {"cpu": "2250m", "memory": "2176Mi"},
    },
    "allocatedResources": {"cpu": "1250m", "memory": "1152Mi"},
}
CPU_IN_FORCE = {"requests": {"cpu": "3250m"}, "limits": {"cpu": "4250m"}}

WITH_OVERHEAD: dict[str, tuple[Object, Mapping[str, str]]] = {
    "the size that it was started with": (
        AS_STARTED,
        requests(cpu="1250m", memory="1152Mi") | limits(cpu="2250m", memory="2176Mi"),
    ),
    "before it runs all are reported with the overhead": (
        AS_STARTED | {"resources": {"requests": {"cpu": "1250m", "memory": "1152Mi"}}},
        requests(cpu="1250m", memory="1152Mi") | limits(cpu="2250m", memory="2176Mi"),
    ),
    "a resize downwards that the node has not begun": (
        {"resources": CPU_IN_FORCE, "allocatedResources": {"cpu": "3250m", "memory": "4224Mi"}},
        requests(cpu="3250m", memory="4224Mi") | limits(cpu="4250m", memory="2176Mi"),
    ),
    "a report without what is set aside is of no kubelet, and all of it counts": (
        {"resources": CPU_IN_FORCE},
        requests(cpu="3500m", memory="1152Mi") | limits(cpu="4500m", memory="2176Mi"),
    ),
    "less than the overhead": (
        {"resources": {"requests": {"cpu": "2m"}}, "allocatedResources": {"cpu": "2m"}},
        requests(cpu="1250m", memory="1152Mi") | limits(cpu="2250m", memory="2176Mi"),
    ),
}


@pytest.mark.parametrize(("status", "expected"), WITH_OVERHEAD.values(), ids=WITH_OVERHEAD.keys())
def test_the_overhead_in_what_the_node_reports_is_charged_once(
    status: Object, expected: Mapping[str, str]
) -> None:
    """As of kubernetes v1.36.3, pkg/kubelet/kubelet_pods.go convertToAPIPodLevelResourcesStatus."""
    resources = {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "2Gi"},
    }
    pod = a_pod(resources=resources, overhead=OVERHEAD, status=status)
    charged = charged_to(Pod.from_object(pod))
    assert {name: str(amount) for name, amount in charged.items()} == {**COUNTS, **expected}
