"""A pod that a scheduler refused says whether its quota was the reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import a_pod
from webhook.quota.scheduler_words import exceeded_text, is_refused_by_quota

WORDS = exceeded_text(quota="p1", requested="cpu=1", used="cpu=2", limited="cpu=2")
BEHIND = "no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not"


def unplaced(message: object, **fields: object) -> dict[str, Any]:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        **fields,
    }
    return a_pod(status={"conditions": [{"type": "Other"}, condition]})


def test_the_words_are_those_of_a_plugin() -> None:
    assert WORDS == "quota exceeded: p1, requested: cpu=1, used: cpu=2, limited: cpu=2"


OURS = {
    "numbers": f"0/3 nodes are available: 3 {WORDS}. {BEHIND}",
    "beside another reason": f"0/3 nodes are available: 1 Insufficient cpu, 2 {WORDS}.",
    "a resource is not named": "0/1 nodes are available: 1 failed quota: p1: must specify cpu.",
    "no quota covers it": "0/1 nodes are available: 1 insufficient quota to consume: cpu.",
}


@pytest.mark.parametrize("message", OURS.values(), ids=OURS.keys())
def test_a_pod_that_was_refused_for_its_quota_is_known_by_its_message(message: str) -> None:
    assert is_refused_by_quota(unplaced(message))


OTHERS: dict[str, dict[str, Any]] = {
    "no room on nodes": unplaced("0/3 nodes are available: 3 Insufficient cpu."),
    "it has a node": unplaced(OURS["numbers"], status="True"),
    "refused at the bind": unplaced(f"exceeded quota: {WORDS}", reason="SchedulerError"),
    "gated": unplaced(OURS["numbers"], reason="SchedulingGated"),
    "no message": unplaced(None),
    "a node is named like it": unplaced(f"0/3 nodes are available: 3 node {WORDS}."),
    "another condition": unplaced(OURS["numbers"], type="Ready"),
    "no conditions": a_pod(),
    "conditions of another kind": a_pod(status={"conditions": "x"}),
    "a condition of another kind": a_pod(status={"conditions": ["x"]}),
    "no status": {"metadata": {}},
}


@pytest.mark.parametrize("pod", OTHERS.values(), ids=OTHERS.keys())
def test_any_other_pod_is_not(pod: dict[str, Any]) -> None:
    assert not is_refused_by_quota(pod)
