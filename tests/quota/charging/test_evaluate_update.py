"""Changed pods: which changes are checked, and what they are charged.

Cases: answers of kubernetes v1.36.2's CheckRequest, and what its source says of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.builders import Object, a_pod, a_quota, an_expression
from tests.quota.parsed import pod_of
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.resources import to_text
from webhook.quota.charging.evaluation import evaluate_update, is_checked_update

START = 'pods "web-1" is forbidden: '


def _pod(requests: Mapping[str, object], **fields: object) -> Object:
    return a_pod(
        requests=requests,
        metadata={"resourceVersion": "7"},
        **fields,  # type: ignore[arg-type]
    )


def _rc(hard: str, used: str, **fields: object) -> Object:
    return a_quota(
        hard={"requests.cpu": hard},
        used={"requests.cpu": used},
        **fields,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Case:
    """A change, the quotas, and the answer: a message, or the sums after."""

    old: Object | None
    new: Object
    quotas: list[Object]
    message: str = ""
    used: Mapping[str, str] = field(default_factory=dict)
    limited: list[Object] = field(default_factory=list)


ONE, TWO = _pod({"cpu": "1"}), _pod({"cpu": "2"})

CASES = {
    "growth that does not fit": Case(
        ONE,
        TWO,
        [_rc("3", "3")],
        message=f"{START}exceeded quota: team-a, requested: requests.cpu=1, "
        "used: requests.cpu=3, limited: requests.cpu=3",
    ),
    "growth that fits exactly": Case(ONE, TWO, [_rc("3", "2")], used={"requests.cpu": "3"}),
    "shrinking gives nothing back": Case(TWO, ONE, [_rc("3", "5")], used={"requests.cpu": "5"}),
    "shrinking what is above its ceiling": Case(
        _pod({"cpu": "1", "memory": "2Gi"}),
        _pod({"cpu": "2", "memory": "1Gi"}),
        [
            a_quota(
                hard={"requests.cpu": "3", "requests.memory": "1Gi"},
                used={"requests.cpu": "1", "requests.memory": "5Gi"},
            )
        ],
        used={"requests.cpu": "2", "requests.memory": "5Gi"},
    ),
    "growth above the ceiling": Case(
        ONE,
        TWO,
        [_rc("3", "5")],
        message=f"{START}exceeded quota: team-a, requested: requests.cpu=1, "
        "used: requests.cpu=5, limited: requests.cpu=3",
    ),
    "moving into a scope is charged in full": Case(
        ONE,
        _pod({"cpu": "1"}, activeDeadlineSeconds=0),
        [_rc("1", "1", scopes=["Terminating"])],
        message=f"{START}exceeded quota: team-a, requested: requests.cpu=1, "
        "used: requests.cpu=1, limited: requests.cpu=1",
    ),
    "moving into a scope with room": Case(
        TWO,
        _pod({"cpu": "2"}, activeDeadlineSeconds=9),
        [_rc("3", "1", scopes=["Terminating"])],
        used={"requests.cpu": "3"},
    ),
    "moving into a scope without room": Case(
        TWO,
        _pod({"cpu": "2"}, activeDeadlineSeconds=9),
        [_rc("2", "1", scopes=["Terminating"])],
        message=f"{START}exceeded quota: team-a, requested: requests.cpu=2, "
        "used: requests.cpu=1, limited: requests.cpu=2",
    ),
    "a quota that matched before is charged nothing": Case(
        ONE,
        _pod({"cpu": "1"}, activeDeadlineSeconds=0),
        [_rc("1", "1")],
        used={"requests.cpu": "1"},
    ),
    "leaving a scope gives nothing back": Case(
        _pod({"cpu": "1"}, activeDeadlineSeconds=0),
        ONE,
        [_rc("1", "1", scopes=["Terminating"])],
        used={"requests.cpu": "1"},
    ),
    "no growth needs no covering quota": Case(
        _pod({"cpu": "1"}, priorityClassName="gold"),
        _pod({"cpu": "1"}, priorityClassName="gold"),
        [],
        limited=[
            {
                "resource": "pods",
                "matchContains": ["cpu"],
                "matchScopes": [an_expression("PriorityClass")],
            }
        ],
    ),
    "moving into a quota that limits nothing of pods is no growth": Case(
        ONE,
        _pod({"cpu": "1"}, activeDeadlineSeconds=0),
        [a_quota(hard={"configmaps": "1"}, used={"configmaps": "1"}, scopes=["Terminating"])],
        limited=[{"resource": "pods", "matchContains": ["cpu"]}],
        used={"configmaps": "1"},
    ),
    "growth needs a covering quota": Case(
        ONE,
        TWO,
        [],
        limited=[{"resource": "pods", "matchContains": ["cpu"]}],
        message=f"{START}insufficient quota to consume: cpu,requests.cpu",
    ),
    "covering goes by the whole usage, not by the growth": Case(
        _pod({"cpu": "1", "memory": "1Gi"}),
        _pod({"cpu": "2", "memory": "1Gi"}),
        [],
        limited=[{"resource": "pods", "matchContains": ["requests.memory"]}],
        message=f"{START}insufficient quota to consume: requests.memory",
    ),
    "an old pod that was never stored is not subtracted": Case(
        a_pod(requests={"cpu": "1"}),
        TWO,
        [_rc("3", "2")],
        message=f"{START}exceeded quota: team-a, requested: requests.cpu=2, "
        "used: requests.cpu=2, limited: requests.cpu=3",
    ),
    "no old pod": Case(
        None,
        TWO,
        [_rc("3", "2")],
        message=f"{START}unable to get previous usage since prior version of object was not found",
    ),
    "no old pod, but something that fails before": Case(
        None,
        _pod({"memory": "1"}),
        [_rc("3", "2")],
        message=f"{START}failed quota: team-a: must specify requests.cpu for: main",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_change_is_answered_as_the_platform_does(case: Case) -> None:
    found = evaluate_update(case.new, case.old, case.quotas, case.limited)
    assert found.message == case.message
    assert found.allowed is (not case.message)
    expected = {"team-a": dict(case.used)} if case.used else {}
    assert {name: to_text(used) for name, used in found.used_after.items()} == expected


WITH_DEADLINE = pod_of(activeDeadlineSeconds=0)

CHECKED = {
    "a resize": (ONE, ONE, "resize", True),
    "the status": (ONE, TWO, "status", False),
    "ephemeral containers": (ONE, TWO, "ephemeralcontainers", False),
    "the pod itself": (ONE, TWO, "", False),
    "a deadline is set": (ONE, a_pod(activeDeadlineSeconds=0), "", True),
    "a deadline is moved": (
        a_pod(activeDeadlineSeconds=9),
        a_pod(activeDeadlineSeconds=5),
        "",
        False,
    ),
}


@pytest.mark.parametrize(
    ("old", "new", "subresource", "expected"), CHECKED.values(), ids=CHECKED.keys()
)
def test_only_resizes_and_new_deadlines_are_checked(
    old: Object, new: Object, subresource: str, expected: bool
) -> None:
    assert is_checked_update(pod_of(new), pod_of(old), subresource=subresource) is expected


def test_a_fault_of_the_old_pod_is_named_as_such() -> None:
    with pytest.raises(InvalidFieldError) as caught:
        evaluate_update(ONE, {"spec": {"containers": {}}}, [])
    assert caught.value.field == "old.spec.containers"
