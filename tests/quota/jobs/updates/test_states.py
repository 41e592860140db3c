"""Which states of a stored Job let which changes of its template pass, by feature gate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.builders import Object
from tests.quota.jobs.job_updates import (
    SPEC,
    STARTED,
    TEMPLATE,
    Change,
    a_stored_job,
    drop,
    every,
    immutable,
    put,
    updated,
)
from webhook.quota.jobs import ALL_GATES, JobGate, job_state, job_update_errors

BOTH = ALL_GATES
ONLY_RESOURCES = frozenset({JobGate.MUTABLE_RESOURCES})
ONLY_SCHEDULING = frozenset({JobGate.MUTABLE_SCHEDULING})
NEITHER: frozenset[str] = frozenset()
GATES = {
    "both": BOTH,
    "resources": ONLY_RESOURCES,
    "scheduling": ONLY_SCHEDULING,
    "neither": NEITHER,
}

CHANGES: Mapping[str, Change] = {
    "R": put(f"{SPEC}.containers.0.resources.requests.cpu", "750m"),
    "N": put(f"{SPEC}.nodeSelector.zone", "b"),
    "L": put("spec.template.metadata.labels.team", "x"),
    "I": put(f"{SPEC}.containers.0.image", "registry.example/app:2"),
}
OUTCOMES = {"ok": [], "T": [immutable(TEMPLATE)], "TS": [immutable(SPEC)]}


def suspended_condition(status: str) -> list[Object]:
    return [{"type": "Suspended", "status": status}]


def a_job_in(*, suspend: bool | None = True, **status: object) -> Object:
    return updated(a_stored_job(**status), put("spec.suspend", suspend))


COND_TRUE = suspended_condition("True")
STATES: Mapping[str, Object] = {
    "never started": a_job_in(),
    "never started, marked": a_job_in(conditions=COND_TRUE),
    "started, marked, idle": a_job_in(startTime=STARTED, conditions=COND_TRUE),
    "started, not marked": a_job_in(startTime=STARTED),
    "started, mark False": a_job_in(startTime=STARTED, conditions=suspended_condition("False")),
    "started, marked, active": a_job_in(startTime=STARTED, conditions=COND_TRUE, active=1),
    "never started, active": a_job_in(active=1),
    "terminating pods": a_job_in(conditions=COND_TRUE, terminating=3),
    "resumed, still marked": a_job_in(suspend=False, conditions=COND_TRUE),
    "running": a_job_in(suspend=None, startTime=STARTED, active=2),
    "started, mark Unknown": a_job_in(startTime=STARTED, conditions=suspended_condition("Unknown")),
    "complete": a_job_in(startTime=STARTED, conditions=[{"type": "Complete", "status": "True"}]),
}

OPEN = {
    "both": "R ok N ok L ok I TS",
    "resources": "R ok N ok L ok I TS",
    "scheduling": "R T N ok L ok I T",
    "neither": "R T N ok L ok I T",
}
CLOSED = dict.fromkeys(GATES, "R T N T L T I T")
TABLE: Mapping[str, Mapping[str, str]] = {
    "never started": OPEN,
    "never started, marked": OPEN,
    "started, marked, idle": {
        "both": "R ok N ok L ok I TS",
        "resources": "R ok N TS L ok I TS",
        "scheduling": "R T N ok L ok I T",
        "neither": "R T N T L T I T",
    },
    "started, not marked": CLOSED,
    "started, mark False": CLOSED,
    "started, marked, active": CLOSED,
    "never started, active": {
        "both": "R T N T L T I T",
        "resources": "R T N ok L ok I T",
        "scheduling": "R T N T L T I T",
        "neither": "R T N ok L ok I T",
    },
    "terminating pods": OPEN,
    "resumed, still marked": CLOSED,
    "running": CLOSED,
    "started, mark Unknown": CLOSED,
    "complete": CLOSED,
}


def cells() -> Iterator[tuple[str, str, str, str]]:
    """Every cell of the table: state, gates, change, outcome."""
    for state, row in TABLE.items():
        for gates, outcomes in row.items():
            words = outcomes.split()
            for change, outcome in zip(words[::2], words[1::2], strict=True):
                yield state, gates, change, outcome


@pytest.mark.parametrize(("state", "gates", "change", "outcome"), list(cells()))
def test_the_state_decides_what_may_change(
    state: str, gates: str, change: str, outcome: str
) -> None:
    old = STATES[state]
    errors = job_update_errors(old, updated(old, CHANGES[change]), GATES[gates])

    assert errors == OUTCOMES[outcome]


@pytest.mark.parametrize(("state", "gates"), [(state, gates) for state in TABLE for gates in GATES])
def test_resources_and_directives_together_need_both(state: str, gates: str) -> None:
    words = TABLE[state][gates].split()
    resources, directives = words[1], words[3]
    expected = resources if resources != "ok" else directives
    old = STATES[state]
    both = updated(old, CHANGES["R"], CHANGES["N"])

    assert job_update_errors(old, both, GATES[gates]) == OUTCOMES[expected]


@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize("suspend", [False, None])
def test_resuming_in_the_same_update_changes_nothing(state: str, suspend: bool | None) -> None:
    old = STATES[state]
    alone = updated(old, CHANGES["R"])
    resumed = updated(alone, put("spec.suspend", suspend))

    assert job_update_errors(old, resumed) == job_update_errors(old, alone)


@pytest.mark.parametrize("state", ["resumed, still marked", "running"])
def test_suspending_in_the_same_update_does_not_open_the_template(state: str) -> None:
    old = STATES[state]
    new = updated(old, CHANGES["R"], put("spec.suspend", True))

    assert job_update_errors(old, new) == [immutable(TEMPLATE)]


def test_the_status_of_the_update_has_no_say() -> None:
    old = STATES["running"]
    new = updated(
        old,
        CHANGES["R"],
        every(put("spec.suspend", True), put("status", {}), put("status.conditions", COND_TRUE)),
    )

    assert job_update_errors(old, new) == [immutable(TEMPLATE)]


@pytest.mark.parametrize("state", TABLE)
def test_suspending_and_resuming_always_pass(state: str) -> None:
    old = STATES[state]

    for suspend in (True, False):
        assert job_update_errors(old, updated(old, put("spec.suspend", suspend))) == []


def test_a_job_without_a_status_has_not_started() -> None:
    old = updated(STATES["never started"], drop("status"))

    assert job_update_errors(old, updated(old, CHANGES["R"])) == []


def test_one_true_condition_of_several_marks_the_job() -> None:
    conditions = suspended_condition("False") + COND_TRUE

    assert job_state(a_job_in(startTime=STARTED, conditions=conditions)).is_open


def test_gates_can_be_given_as_a_mapping_of_overrides() -> None:
    old = STATES["never started"]
    new = updated(old, CHANGES["R"])

    assert job_update_errors(old, new, {}) == []
    assert job_update_errors(old, new, {JobGate.MUTABLE_RESOURCES: True}) == []
    assert job_update_errors(old, new, {JobGate.MUTABLE_RESOURCES: False}) == [immutable(TEMPLATE)]
