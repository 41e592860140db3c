"""No bind is refused for good, but for used quota, of a pod that a scheduler may try.

A scheduler evicts others for such a pod before each of its tries. So whatever a bind refuses by a
rule has to wait behind the gate: new pods by the gating handler, and those that policies gate by
the queue. Random pods meet random quotas and rules here, in both ways.
"""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any, Final, cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.gating import FOREIGN, OURS, asked, gates_of
from tests.admission.handlers.harness import AdmissionHarness, Reply
from tests.builders import a_container, a_quota, an_expression
from tests.quota.cluster_quotas import a_cluster_quota
from webhook.kube import api as kind

Object = dict[str, Any]

PODS: Final = 60
GPU: Final = "example.com/gpu"
AMOUNTS: Final = ("0", "1m", "100m", "1", "3")
HUGE: Final = ("1e18", "1e36", "1e37", "1e20000")
NAMES: Final = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", GPU)
MANY: Final = {f"example.com/r{number}": "0" for number in range(33)}
GOLD: Final = an_expression("PriorityClass", "In", "gold")
QUOTAS: Final[tuple[Object, ...]] = (
    a_quota("counts", uid="u-counts", hard={"pods": "99", "count/pods": "99"}),
    a_quota("cpu", uid="u-cpu", hard={"requests.cpu": "1e9"}),
    a_quota("limits", uid="u-limits", hard={"limits.memory": "1e36", "requests.cpu": "1e36"}),
    a_quota("gpu", uid="u-gpu", hard={f"requests.{GPU}": "1e9"}),
    a_quota("best-effort", uid="u-best-effort", hard={"requests.cpu": "4"}, scopes=["BestEffort"]),
    a_quota(
        "burstable", uid="u-burstable", hard={"requests.memory": "1e36"}, scopes=["NotBestEffort"]
    ),
    a_quota("ending", uid="u-ending", hard={"limits.cpu": "9"}, scopes=["Terminating"]),
    a_quota("gold", uid="u-gold", hard={"requests.cpu": "9"}, expressions=[GOLD]),
    a_quota(
        "excluded",
        uid="u-excluded",
        hard={"requests.cpu": "0"},
        metadata={"annotations": {"deferredquota.io/exclude": "true"}},
    ),
    a_cluster_quota(hard={f"requests.{GPU}": "9"}, selector={}),
    a_cluster_quota(hard={f"requests.{GPU}": "9"}, selector={}, scopes=["Terminating"]),
)
SETTINGS: Final[tuple[Object, ...]] = (
    {},
    {"gating": "auto"},
    {"deferredResources": [f"requests.{GPU}"]},
    {"mustSpecify": "bind"},
    {"mustSpecify": "off"},
    {"requireQuotaForPriority": [GOLD]},
    {"coverage": "platform"},
    {"limitedResources": [{"resource": "pods", "matchContains": ["limits.cpu"]}]},
    {"limitedResources": [{"resource": "pods", "matchContains": ["example.com"]}]},
    {"limitedResources": [{"resource": "pods", "matchScopes": [GOLD]}]},
    {"nodeFit": "Deny"},
)
NODE: Final[Object] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1"},
    "spec": {},
    "status": {
        "allocatable": {**dict.fromkeys(NAMES[:4], "8Gi"), "pods": "999"},
        "nodeInfo": {"operatingSystem": "linux"},
    },
}
_FILTERED: Final = re.compile("would not admit the pod.*[:;] (OutOf|NodeAffinity|NodePorts)")
"""What a scheduler finds itself before it binds a pod."""


def some(chance: random.Random, items: tuple[Any, ...], most: int) -> list[Any]:
    return chance.sample(items, chance.randint(0, most))


def amounts(chance: random.Random) -> Object:
    if chance.random() < 0.03:
        return dict(MANY)
    return {
        name: chance.choice(HUGE if chance.random() < 0.05 else AMOUNTS)
        for name in some(chance, NAMES, 3)
    }


def containers(chance: random.Random, most: int, **fields: object) -> list[Object]:
    return [
        a_container(f"c{number}", requests=amounts(chance), limits=amounts(chance), **fields)
        for number in range(chance.randint(1, most))
    ]


def fields_of(chance: random.Random) -> Object:
    """Return fields of a pod as its creator may write them."""
    choices: tuple[Object, ...] = (
        {"priorityClassName": "gold", "priority": 1000},
        {"activeDeadlineSeconds": 60},
        {"overhead": amounts(chance)},
        {"resources": {"requests": amounts(chance)}},
        {"init": containers(chance, 2, restartPolicy="Always")},
        {"os": {"name": "windows"}},
        {"schedulingGates": [FOREIGN]},
        {"status": {"qosClass": chance.choice(["BestEffort", "Guaranteed", "Odd"])}},
    )
    found: Object = {"containers": containers(chance, 3)}
    for one in some(chance, choices, 2):
        found.update(one)
    return found


def may_be_tried(harness: AdmissionHarness, name: str) -> bool:
    return not cast("Object", harness.stored(kind.PODS, name)["spec"]).get("schedulingGates")


def decided(harness: AdmissionHarness, name: str) -> Reply:
    """Ask to bind a pod until that is decided: what never is has others evicted as well."""
    give_up = time.monotonic() + 5
    while True:
        reply = harness.bind(name, uid=f"uid-{name}", dry_run=True)
        if reply.code != 429 or time.monotonic() > give_up:
            return reply


def is_right(reply: Reply) -> bool:
    message = str(reply.message)
    return reply.allowed or "exceeded quota: " in message or bool(_FILTERED.search(message))


@pytest.mark.parametrize("seed", range(len(SETTINGS)))
def test_what_a_scheduler_may_try_is_refused_for_used_quota_only(
    open_harness: OpenHarness, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    quotas, settings = some(chance, QUOTAS, 3), {}
    for one in (*some(chance, SETTINGS, 2), SETTINGS[seed % len(SETTINGS)]):
        settings.update(one)
    harness = open_harness(NODE, *quotas, settings=settings)
    harness.version_at_rest()
    made: dict[str, Object] = {}
    for number in range(PODS):
        fields = fields_of(chance)
        if OURS not in (gates_of(asked(harness, **fields)) or []):
            made[f"new-{number}"] = fields
        gates = [*fields.get("schedulingGates", []), OURS]
        made[f"gated-{number}"] = {**fields, "schedulingGates": gates}
    for name, fields in made.items():
        harness.pod(name=name, uid=f"uid-{name}", **fields)
    harness.catch_up()
    harness.version_at_rest()
    harness.catch_up()
    refused = {
        name: f"{reply.code} {reply.message}"
        for name in made
        if may_be_tried(harness, name) and not is_right(reply := decided(harness, name))
    }
    shown = "\n".join(f"{refused[name]}: {json.dumps(made[name])}" for name in [*refused][:4])
    assert not refused, f"{settings}\n{[one['metadata']['name'] for one in quotas]}\n{shown}"
