"""QoS classes, OOM scores and cpu weights, beside Kubernetes' own functions.

`tests/vectors/kubelet.jsonl` has the answers of v1.36.3 (`ComputePodQOS`,
`GetContainerOOMScoreAdjust`, `ResourceConfigForPod`, `getCPUWeight`) and of opencontainers/cgroups
v0.0.6 (`ConvertCPUSharesToCgroupV2Value`) about 1,200 random pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tests.quota.oracle import VECTORS
from webhook.jsonfields.encoding import decode_json
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.nodes.kubelet import container_cpu_weights, oom_score_adj, pod_cpu_weight
from webhook.quota.objects.model import Pod
from webhook.quota.objects.qos import qos_class


@dataclass(frozen=True, slots=True)
class Answer:
    """What Kubernetes says of one pod."""

    pod: Pod
    memory_capacity: Quantity
    qos: str
    pod_weight: int
    containers: Mapping[str, tuple[int, int, int]]
    """By name: the OOM score, and the weights by both mappings."""


def answers() -> list[Answer]:
    lines = (VECTORS / "kubelet.jsonl").read_bytes().splitlines()
    return [_answer(decode_json(line)) for line in lines]


def _answer(row: object) -> Answer:
    match row:
        case {
            "pod": dict(pod),
            "memoryCapacity": str(capacity),
            "qosClass": str(qos),
            "podWeight": int(weight),
            "containers": list(containers),
        }:
            keys = ("oomScoreAdj", "linear", "quadratic")
            figures = {one["name"]: tuple(one[key] for key in keys) for one in containers}
            return Answer(Pod.from_object(pod), Quantity.parse(capacity), qos, weight, figures)
    raise AssertionError(f"not an answer: {row!r}")


ANSWERS = answers()


def test_there_are_answers_of_every_class() -> None:
    counts = Counter(answer.qos for answer in ANSWERS)
    assert counts.total() == 1200
    assert min(counts[name] for name in ("Guaranteed", "Burstable", "BestEffort")) > 50


def test_quality_of_service_is_as_kubernetes_says() -> None:
    assert [qos_class(answer.pod) for answer in ANSWERS] == [answer.qos for answer in ANSWERS]


def test_pods_have_the_cpu_weight_that_a_kubelet_sets() -> None:
    weights = [pod_cpu_weight(answer.pod) for answer in ANSWERS]
    assert weights == [answer.pod_weight for answer in ANSWERS]


def test_containers_have_the_figures_that_a_kubelet_and_runtimes_compute() -> None:
    for number, answer in enumerate(ANSWERS):
        pod = answer.pod
        for one in (*pod.containers, *pod.init_containers):
            weights = container_cpu_weights(pod, one)
            score = oom_score_adj(pod, one, answer.memory_capacity)
            found = (score, weights.linear, weights.quadratic)
            assert found == answer.containers[one.name], (number, one.name)
