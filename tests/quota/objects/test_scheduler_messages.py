"""A pod that a scheduler refused says whether its quota was the reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import a_pod
from webhook.quota.charging.denials import InsufficientQuota, MustSpecify, UncoveredScopes
from webhook.quota.objects.model import ScopeExpression
from webhook.quota.objects.scheduler_messages import exceeded_text, is_denied_by_quota

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


SHARED = exceeded_text(quota="cdq/both", requested="pods=1", used="pods=4", limited="pods=4")
_MANY = exceeded_text(quota="p1", requested="example.com/a=1," * 99, used="", limited="")
CUT = f"{_MANY[:1021]}..."
UNNAMED = MustSpecify("p1", {"requests.cpu": ("main", "side")}).message
UNCOVERED = InsufficientQuota(("requests.cpu",)).message
UNSCOPED = UncoveredScopes((ScopeExpression("PriorityClass", "In", ("gold",)),)).message

OURS = {
    "numbers": f"0/3 nodes are available: 3 {WORDS}. {BEHIND}",
    "beside another reason": f"0/3 nodes are available: 1 Insufficient cpu, 2 {WORDS}.",
    "a shared quota": f"0/1 nodes are available: 1 {SHARED}",
    "cut in its amounts": f"0/1 nodes are available: 1 {CUT}",
    "a resource is not named": f"0/1 nodes are available: 1 {UNNAMED}.",
    "no quota covers it": f"0/1 nodes are available: 1 {UNCOVERED}.",
    "no quota covers its scope": f"0/1 nodes are available: 1 {UNSCOPED}.",
}


@pytest.mark.parametrize("message", OURS.values(), ids=OURS.keys())
def test_a_pod_that_was_refused_for_its_quota_is_known_by_its_message(message: str) -> None:
    assert is_denied_by_quota(unplaced(message))


def test_it_is_known_wherever_its_amounts_are_cut_off() -> None:
    words = exceeded_text(quota="p1", requested="pods=1,x=2", used="pods=4", limited="pods=4")
    begin = words.index("=1") + 1
    cuts = [f"{words[:length]}..." for length in range(begin, len(words))]
    messages = [f"0/1 nodes are available: 1 {cut}." for cut in cuts]
    assert [one for one in messages if not is_denied_by_quota(unplaced(one))] == []


OTHERS: dict[str, dict[str, Any]] = {
    "no room on nodes": unplaced("0/3 nodes are available: 3 Insufficient cpu."),
    "it has a node": unplaced(OURS["numbers"], status="True"),
    "refused at the bind": unplaced(f"exceeded quota: {WORDS}", reason="SchedulerError"),
    "gated": unplaced(OURS["numbers"], reason="SchedulingGated"),
    "named like a claim": unplaced(
        f'0/3 nodes are available: persistentvolumeclaim "x: 1 {WORDS}, 2 {WORDS}" not found.'
    ),
    "named like a claim that one node lacks": unplaced(
        f'0/3 nodes are available: 1 Insufficient cpu, 2 claim "x, 1 {WORDS}" not found.'
    ),
    "quoted behind": unplaced(f"0/3 nodes are available: 3 No. preemption said: 1 {WORDS}"),
    "told by another program": unplaced(f"pod waits: 0/3 nodes are available: 1 {WORDS}"),
    "no message": unplaced(None),
    "another plugin's quota": unplaced(
        "0/3 nodes are available: 3 insufficient quota to match these required resources."
    ),
    "another plugin's words": unplaced(
        "0/3 nodes are available: 3 quota exceeded: tree of team-a."
    ),
    "another plugin's elastic quota": unplaced("0/1 nodes are available: 1 failed quota: max."),
    "another plugin's consumption": unplaced(
        "0/1 nodes are available: 1 insufficient quota to run."
    ),
    "quoted by somebody": unplaced(f"0/3 nodes are available: 3 plugin said 2 {WORDS}."),
    "a node is named like it": unplaced(f"0/3 nodes are available: 3 node {WORDS}."),
    "another condition": unplaced(OURS["numbers"], type="Ready"),
    "no conditions": a_pod(),
    "conditions of another kind": a_pod(status={"conditions": "x"}),
    "a condition of another kind": a_pod(status={"conditions": ["x"]}),
    "no status": {"metadata": {}},
}


@pytest.mark.parametrize("pod", OTHERS.values(), ids=OTHERS.keys())
def test_any_other_pod_is_not(pod: dict[str, Any]) -> None:
    assert not is_denied_by_quota(pod)
