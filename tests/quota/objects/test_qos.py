from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import Object, a_container, a_pod, a_sidecar
from webhook.quota.objects.model import Pod
from webhook.quota.objects.qos import effective_qos_class, forged_qos_class, qos_class

ONE = {"cpu": "1", "memory": "1Gi"}
FULL = a_container(requests=ONE, limits=ONE)

CASES: dict[str, tuple[Object, str]] = {
    "no resources": (a_pod(), "BestEffort"),
    "requests and limits of both, equal": (a_pod(requests=ONE, limits=ONE), "Guaranteed"),
    "equal amounts written differently": (
        a_pod(requests={"cpu": "1000m", "memory": "1024Mi"}, limits=ONE),
        "Guaranteed",
    ),
    "requests only": (a_pod(requests=ONE), "Burstable"),
    "limits only": (a_pod(limits=ONE), "Burstable"),
    "memory only": (a_pod(requests={"memory": "1"}, limits={"memory": "1"}), "Burstable"),
    "requests below limits": (
        a_pod(requests={"cpu": "500m", "memory": "1Gi"}, limits=ONE),
        "Burstable",
    ),
    "zero is nothing": (a_pod(requests={"cpu": "0", "memory": "0"}), "BestEffort"),
    "zero limits are nothing": (a_pod(limits={"cpu": "0", "memory": "0"}), "BestEffort"),
    "less than zero is nothing": (a_pod(requests={"cpu": "-1"}), "BestEffort"),
    "an extended resource only": (a_pod(requests={"nvidia.com/gpu": "1"}), "BestEffort"),
    "ephemeral storage only": (a_pod(requests={"ephemeral-storage": "1Gi"}), "BestEffort"),
    "extended resources beside do not matter": (
        a_pod(requests={**ONE, "nvidia.com/gpu": "1"}, limits=ONE),
        "Guaranteed",
    ),
    "overhead only": (a_pod(overhead={"cpu": "1"}), "BestEffort"),
    "an init container only": (
        a_pod(a_container(), init=[a_container("init", requests={"cpu": "1"})]),
        "Burstable",
    ),
    "one of two containers without limits": (a_pod(FULL, a_container("b")), "Burstable"),
    "one of two containers with limits of zero": (
        a_pod(FULL, a_container("b", limits={"cpu": "0", "memory": "0"})),
        "Burstable",
    ),
    "totals equal, containers not": (
        a_pod(
            a_container("a", requests={"cpu": "1", "memory": "2Gi"}, limits=ONE),
            a_container("b", requests={"cpu": "1", "memory": "0"}, limits=ONE),
        ),
        "Guaranteed",
    ),
    "a sidecar without limits": (a_pod(FULL, init=[a_sidecar()]), "Burstable"),
    "a guaranteed sidecar": (
        a_pod(FULL, init=[a_sidecar(requests=ONE, limits=ONE)]),
        "Guaranteed",
    ),
    "the pod as a whole, equal": (
        a_pod(resources={"requests": ONE, "limits": ONE}),
        "Guaranteed",
    ),
    "the pod as a whole, memory only": (
        a_pod(FULL, resources={"requests": {"memory": "1"}, "limits": {"memory": "1"}}),
        "Burstable",
    ),
    "the pod as a whole without limits": (
        a_pod(FULL, resources={"requests": ONE}),
        "Burstable",
    ),
    "empty resources of the pod hide those of its containers": (
        a_pod(requests={"cpu": "1"}, resources={}),
        "BestEffort",
    ),
    "null resources of the pod do not": (
        a_pod(requests={"cpu": "1"}, resources=None),
        "Burstable",
    ),
    "no containers at all": (a_pod() | {"spec": {}}, "BestEffort"),
}


@pytest.mark.parametrize(("pod", "expected"), CASES.values(), ids=CASES.keys())
def test_the_spec_earns(pod: Object, expected: str) -> None:
    assert qos_class(Pod.from_object(pod)) == expected


def test_a_class_on_record_stands() -> None:
    pod = Pod.from_object(a_pod(status={"qosClass": "Guaranteed"}))

    assert effective_qos_class(pod) == "Guaranteed"
    assert qos_class(pod) == "BestEffort"


FORGED: dict[str, tuple[dict[str, Any], str, bool]] = {
    "empty resources of the pod, by 1.36": ({"resources": {}}, "BestEffort", False),
    "empty resources of the pod, by 1.37": ({"resources": {}}, "Burstable", False),
    "empty resources of the pod, by none": ({"resources": {}}, "Guaranteed", True),
    "resources of the pod": ({"resources": {"requests": ONE, "limits": ONE}}, "Burstable", True),
    "no resources of the pod": ({}, "BestEffort", True),
}


@pytest.mark.parametrize(("fields", "stored", "is_forged"), FORGED.values(), ids=FORGED.keys())
def test_a_class_that_no_api_server_works_out_is_forged(
    fields: dict[str, Any], stored: str, is_forged: bool
) -> None:
    made = a_pod(requests={"cpu": "1"}, **fields, status={"qosClass": stored})
    pod = Pod.from_object(made)
    assert bool(forged_qos_class(pod)) is is_forged


def test_without_a_record_the_spec_decides() -> None:
    assert effective_qos_class(Pod.from_object(a_pod(requests=ONE, limits=ONE))) == "Guaranteed"


def test_the_class_of_a_pod_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of very many quotas may ask for it, and containers may be thousands."""
    pod = Pod.from_object(a_pod(requests=ONE))
    assert qos_class(pod) == "Burstable"
    monkeypatch.setattr("webhook.quota.objects.qos._total", None)
    assert qos_class(pod) == "Burstable"
    assert effective_qos_class(replace(pod, qos_class="BestEffort")) == "BestEffort"
    monkeypatch.undo()
    (container,) = pod.containers
    assert qos_class(replace(pod, containers=(replace(container, requests={}),))) == "BestEffort"
