from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import Object, a_container, a_pod
from tests.quota.charging.pod_usage.charges import COUNTS, charge, limits, requests

CASES: dict[str, tuple[Object, Mapping[str, str]]] = {
    "it is added to requests, and to limits that exist": (
        a_pod(
            requests={"cpu": "1", "memory": "1Gi"},
            limits={"cpu": "2"},
            overhead={"cpu": "250m", "memory": "120Mi"},
        ),
        requests(cpu="1250m", memory="1144Mi") | limits(cpu="2250m"),
    ),
    "it is charged to a pod that asks for nothing": (
        a_pod(overhead={"cpu": "250m", "memory": "120Mi"}),
        requests(cpu="250m", memory="120Mi"),
    ),
    "a limit of zero stays zero": (
        a_pod(requests={"cpu": "0"}, limits={"cpu": "0"}, overhead={"cpu": "250m"}),
        requests(cpu="250m") | limits(cpu="0"),
    ),
    "it is added once, after the largest init container": (
        a_pod(
            requests={"cpu": "1"},
            init=[a_container("a", requests={"cpu": "3"})],
            overhead={"cpu": "500m"},
        ),
        requests(cpu="3500m"),
    ),
    "its own text survives where nothing else is asked for": (
        a_pod(overhead={"cpu": "1.500"}),
        requests(cpu="1.500"),
    ),
    "extended resources can be overhead": (
        a_pod(overhead={"example.com/foo": "1"}),
        {"requests.example.com/foo": "1"},
    ),
}


@pytest.mark.parametrize(("pod", "expected"), CASES.values(), ids=CASES.keys())
def test_overhead_is_charged(pod: Object, expected: Mapping[str, str]) -> None:
    assert charge(pod) == {**COUNTS, **expected}
