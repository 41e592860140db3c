"""Small random scenarios: two priorities, one or two quotas, nodes that are sometimes full."""

from __future__ import annotations

from random import Random

from tests.builders import Object, a_container
from webhook.quota.objects.defaults import default_pod
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.queue.queued_pods import QueuePolicy
from webhook.quota.simulation.values import (
    JOB_BACK_OFF,
    REPLICA_SET_BACK_OFF,
    Arrival,
    PodTemplate,
    Scenario,
)
from webhook.state.well_known import SCHEDULING_GATE

PRIORITIES = {"gold": 1000, "": 0}


def a_template(
    namespace: str = "team-a",
    *,
    requests: dict[str, object] | None = None,
    priority_class: str = "",
    replica_set: bool = False,
    **spec: object,
) -> PodTemplate:
    """Pods of one container."""
    if priority_class:
        spec["priorityClassName"] = priority_class
    raw = default_pod(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod", "namespace": namespace},
            "spec": {
                "containers": [a_container(requests=requests or {"cpu": "1", "memory": "1Gi"})],
                "priority": PRIORITIES[priority_class],
                **spec,
            },
        }
    )
    back_off = REPLICA_SET_BACK_OFF if replica_set else JOB_BACK_OFF
    return PodTemplate(raw, Pod.from_object(raw), back_off)


def a_node(name: str, *, cpu: int = 4, memory: int = 8, **spec: object) -> Object:
    """A node with so many cores and GiB."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {"allocatable": {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "110"}},
    }


def a_quota_object(namespace: str, name: str, spec: Object) -> Object:
    """A ResourceQuota."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"},
        "spec": spec,
    }


def quota_objects(random: Random, namespace: str) -> list[Object]:
    """One quota over all pods, and sometimes one over those of class gold."""
    hard = {"requests.cpu": str(random.randint(3, 8))}
    if random.random() < 0.4:
        hard["requests.memory"] = f"{random.randint(4, 12)}Gi"
    quotas = [a_quota_object(namespace, "all", {"hard": hard})]
    if random.random() < 0.5:
        expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}
        selector = {"matchExpressions": [expression]}
        spec: Object = {"hard": {"requests.cpu": "3"}, "scopeSelector": selector}
        quotas.append(a_quota_object(namespace, "gold", spec))
    return quotas


def random_scenario(
    seed: int, namespace: str, *, pods: int = 14, policy: QueuePolicy | None = None
) -> tuple[Scenario, list[Object]]:
    """A scenario, and its quotas as API objects."""
    random = Random(seed)  # noqa: S311
    quotas = quota_objects(random, namespace)
    nodes = tuple(
        a_node(f"{namespace}-{index}", cpu=random.randint(2, 6), memory=random.randint(4, 16))
        for index in range(random.randint(1, 3))
    )
    templates = [
        a_template(
            namespace,
            requests={
                "cpu": random.choice(("500m", "1", "2", "3")),
                "memory": random.choice(("512Mi", "1Gi", "3Gi")),
            },
            priority_class=random.choice(("gold", "", "")),
            replica_set=random.random() < 0.5,
        )
        for _ in range(5)
    ]
    arrivals, time = [], 0
    for number in range(pods):
        time += random.choice((0, 700, 2_000, 9_000))
        runs = random.choice((1_000, 5_300, 20_000, 41_000))
        arrivals.append(Arrival(time, f"pod-{number}", random.choice(templates), runs))
    scenario = Scenario(
        nodes=nodes,
        quotas=tuple(map(ResourceQuota.from_object, quotas)),
        arrivals=tuple(arrivals),
        gate=SCHEDULING_GATE,
        policy=policy or QueuePolicy(),
        gate_release=86_400_000,
    )
    return scenario, quotas
