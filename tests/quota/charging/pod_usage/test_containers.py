from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import Object, a_container, a_pod
from tests.quota.charging.pod_usage.charges import COUNTS, charge, limits, requests
from webhook.jsonfields.encoding import NumberText

CASES: dict[str, tuple[Object, Mapping[str, str]]] = {
    "requests and limits of one container": (
        a_pod(requests={"cpu": "500m", "memory": "256Mi"}, limits={"cpu": "1", "memory": "512Mi"}),
        requests(cpu="500m", memory="256Mi") | limits(cpu="1", memory="512Mi"),
    ),
    "a pod without resources is only counted": (a_pod(), {}),
    "limits are not requests before the API server has made them so": (
        a_pod(limits={"cpu": "2", "memory": "1Gi"}),
        limits(cpu="2", memory="1Gi"),
    ),
    "containers add up key by key, a key of one container only counts alone": (
        a_pod(
            a_container("a", requests={"cpu": "100m", "memory": "1Gi"}, limits={"cpu": "200m"}),
            a_container("b", requests={"cpu": "900m", "memory": "512Mi"}),
        ),
        requests(cpu="1", memory="1536Mi") | limits(cpu="200m"),
    ),
    "binary and decimal amounts add exactly": (
        a_pod(
            a_container("a", requests={"memory": "1Gi"}),
            a_container("b", requests={"memory": "1G"}),
        ),
        requests(memory="2073741824"),
    ),
    "one container's own text survives": (
        a_pod(requests={"cpu": "1.500", "memory": "+1Gi"}),
        requests(cpu="1.500", memory="+1Gi"),
    ),
    "a sum is written anew": (
        a_pod(
            a_container("a", requests={"cpu": "1.500"}),
            a_container("b", requests={"cpu": "0.500"}),
        ),
        requests(cpu="2"),
    ),
    "thirds add up to a whole": (
        a_pod(
            a_container("a", requests={"cpu": "333m"}),
            a_container("b", requests={"cpu": "333m"}),
            a_container("c", requests={"cpu": "334m"}),
        ),
        requests(cpu="1"),
    ),
    "zero is charged as zero": (
        a_pod(requests={"cpu": "0", "memory": "0"}),
        requests(cpu="0", memory="0"),
    ),
    "a negative request stays negative": (a_pod(requests={"cpu": "-1"}), requests(cpu="-1")),
    "an init container alone can ask for cpu": (
        a_pod(a_container(), init=[a_container("init", requests={"cpu": "1"})]),
        requests(cpu="1"),
    ),
    "ephemeral containers are not charged": (
        a_pod(
            requests={"cpu": "1"},
            ephemeralContainers=[a_container("debug", requests={"cpu": "5"})],
        ),
        requests(cpu="1"),
    ),
    "ephemeral storage has requests and limits": (
        a_pod(requests={"ephemeral-storage": "1Gi"}, limits={"ephemeral-storage": "2Gi"}),
        requests(storage="1Gi") | limits(storage="2Gi"),
    ),
    "numbers are read from their digits": (
        a_pod(requests={"cpu": NumberText("0.1"), "memory": 1024}),
        requests(cpu="100m", memory="1024"),
    ),
    "null amounts are zero": (a_pod(requests={"cpu": None}), requests(cpu="0")),
    "a pod without containers is only counted": (a_pod() | {"spec": {}}, {}),
    "a null container asks for nothing": (a_pod() | {"spec": {"containers": [None]}}, {}),
}


@pytest.mark.parametrize(("pod", "expected"), CASES.values(), ids=CASES.keys())
def test_containers_are_charged_for(pod: Object, expected: Mapping[str, str]) -> None:
    assert charge(pod) == {**COUNTS, **expected}
