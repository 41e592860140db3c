from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import Object, a_container, a_pod
from tests.quota.charging.pod_usage.charges import COUNTS, charge, limits, requests

CASES: dict[str, tuple[Object, Mapping[str, str]]] = {
    "extended resources and device classes only as requests": (
        a_pod(
            requests={
                "nvidia.com/gpu": "2",
                "deviceclass.resource.kubernetes.io/foo": "1",
                "ephemeral-storage": "1Gi",
            },
            limits={"nvidia.com/gpu": "2", "ephemeral-storage": "2Gi"},
        ),
        {
            "requests.nvidia.com/gpu": "2",
            "requests.deviceclass.resource.kubernetes.io/foo": "1",
        }
        | requests(storage="1Gi")
        | limits(storage="2Gi"),
    ),
    "limits of extended resources never": (a_pod(limits={"nvidia.com/gpu": "1"}), {}),
    "other resources of Kubernetes never": (
        a_pod(
            requests={
                "example.kubernetes.io/foo": "1",
                "attachable-volumes-aws": "1",
                "storage": "1Gi",
            }
        ),
        {},
    ),
    "a resource that is named like a quota key never": (
        a_pod(requests={"requests.foo.com/bar": "5", "foo.com/bar": "1", "requests.cpu": "3"}),
        {"requests.foo.com/bar": "1"},
    ),
    "huge pages of each size under both keys, without limits": (
        a_pod(
            a_container(
                "a",
                requests={"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "100Mi"},
                limits={"memory": "1Gi", "hugepages-2Mi": "100Mi"},
            ),
            a_container("b", requests={"hugepages-1Gi": "2Gi"}, limits={"hugepages-1Gi": "2Gi"}),
        ),
        requests(cpu="1", memory="1Gi")
        | limits(memory="1Gi")
        | {
            "hugepages-1Gi": "2Gi",
            "requests.hugepages-1Gi": "2Gi",
            "hugepages-2Mi": "100Mi",
            "requests.hugepages-2Mi": "100Mi",
        },
    ),
    "names that would not be legal quota keys never": (
        a_pod(requests={"NVIDIA.com/gpu": "1", "a/b/c": "1", "/x": "1", "x/": "1"}),
        {},
    ),
    "a fraction of a device counts": (
        a_pod(requests={"example.com/gpu": "1500m"}),
        {"requests.example.com/gpu": "1500m"},
    ),
}


@pytest.mark.parametrize(("pod", "expected"), CASES.values(), ids=CASES.keys())
def test_resources_are_charged_under(pod: Object, expected: Mapping[str, str]) -> None:
    assert charge(pod) == {**COUNTS, **expected}
