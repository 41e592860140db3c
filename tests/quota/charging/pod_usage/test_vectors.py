from __future__ import annotations

import pytest

from tests.quota.charging.pod_usage.charges import charge
from tests.quota.oracle import PodAnswer, pod_answers
from webhook.quota.objects.defaults import default_pod
from webhook.quota.objects.model import Pod
from webhook.quota.objects.qos import effective_qos_class, qos_class

ANSWERS = pod_answers()


def test_there_are_answers() -> None:
    assert len(ANSWERS) == 250


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_pods_are_charged_as_kubernetes_charges_them(answer: PodAnswer) -> None:
    assert charge(answer.pod, answer.now) == answer.usage


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_manifests_are_charged_like_the_pods_they_become(answer: PodAnswer) -> None:
    assert charge(default_pod(answer.raw), answer.now) == answer.usage


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_quality_of_service_is_as_kubernetes_says(answer: PodAnswer) -> None:
    pod = Pod.from_object(answer.pod)

    assert effective_qos_class(pod) == answer.qos
    assert qos_class(pod) == answer.qos
