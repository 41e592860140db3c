"""Text of the condition of a queued pod, and the patch that writes it and nothing else."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_pod
from webhook.kube.api import InvalidError
from webhook.kube.patches import apply_patch
from webhook.quota.objects.names import QUOTA_RESERVED
from webhook.quota.queue.pod_conditions import (
    LONGEST_TEXT,
    RESERVED,
    ObservedCondition,
    QuotaCondition,
    condition_patch,
    observed_condition,
    pending_condition,
    untried_by,
    with_condition,
)
from webhook.quota.queue.queued_pods import PendingReason, PendingStatus

Object = dict[str, object]

BEFORE = "2026-05-04T11:00:00Z"
NOW = "2026-05-04T12:00:00Z"
TEXT = (
    "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=2, limited: requests.cpu=2"
)
SCHEDULED: Object = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
READY: Object = {"type": "Ready", "status": "False"}
WAITS = QuotaCondition("False", "QuotaExceeded", TEXT, 3, 17)
OURS: Object = {
    "type": QUOTA_RESERVED,
    "status": "False",
    "lastTransitionTime": BEFORE,
    "reason": "QuotaExceeded",
    "message": f"{TEXT}; place 3 of 17",
}


def a_version(*conditions: Object, version: str = "7", **status: object) -> Object:
    said = {"conditions": list(conditions)} if conditions else {}
    return a_pod(metadata={"resourceVersion": version}, status={**said, **status})


def patched(pod: Object, said: QuotaCondition | None) -> Object:
    return apply_patch(deepcopy(pod), condition_patch(observed_condition(pod), said, NOW))


def conditions(pod: Object) -> object:
    status = pod["status"]
    assert isinstance(status, dict)
    return status.get("conditions")


def test_the_words_are_the_reason_the_numbers_and_the_place() -> None:
    held = PendingStatus(PendingReason.QUOTA_EXCEEDED, 3, quota="p1", detail=TEXT)
    assert pending_condition(held, 17) == WAITS
    assert WAITS.message == f"{TEXT}; place 3 of 17"


def test_a_pod_that_waits_for_something_else_than_room_has_no_place() -> None:
    said = pending_condition(
        PendingStatus(PendingReason.NOT_COVERED, detail="insufficient quota to consume: cpu"), 17
    )
    assert said.message == "insufficient quota to consume: cpu"
    assert (said.status, said.reason) == ("False", "NotCovered")


def test_very_long_texts_are_cut_and_keep_their_place() -> None:
    said = pending_condition(PendingStatus(PendingReason.LEDGER_FULL, 1, detail="x" * 9999), 1)
    assert said.message == "x" * LONGEST_TEXT + "...; place 1 of 1"


@given(
    st.builds(
        QuotaCondition,
        st.sampled_from(["True", "False"]),
        st.sampled_from(list(PendingReason)).map(str),
        st.text(),
        st.just(3),
        st.integers(3, 99),
    )
)
def test_what_was_written_reads_back_as_itself(said: QuotaCondition) -> None:
    assert observed_condition(patched(a_version(SCHEDULED), said)).condition == said


NOWHERE = f"no node fits: 0/1 nodes are available: 1 Insufficient cpu, as of {NOW}"


@pytest.mark.parametrize("said", [WAITS, replace(WAITS, place=0, total=0), replace(WAITS, text="")])
def test_that_no_node_fits_stands_before_the_place_and_reads_back(said: QuotaCondition) -> None:
    wanted = replace(said, nodes=NOWHERE)
    found = observed_condition(patched(a_version(SCHEDULED), wanted)).condition
    assert found is not None
    assert (found.text, found.nodes, found.place) == (said.text, NOWHERE, said.place)
    assert found.message == wanted.message
    assert NOWHERE in wanted.message
    assert found == said  # no reason to write it again


def test_only_another_place_is_a_difference_in_place_only() -> None:
    assert WAITS.differs_in_place_only(QuotaCondition("False", "QuotaExceeded", TEXT, 2, 17))
    assert WAITS.differs_in_place_only(QuotaCondition("False", "QuotaExceeded", TEXT, 3, 18))
    assert not WAITS.differs_in_place_only(QuotaCondition("False", "Behind", TEXT, 2, 17))
    assert not WAITS.differs_in_place_only(QuotaCondition("False", "QuotaExceeded", "other", 2, 17))
    assert not WAITS.differs_in_place_only(WAITS)


WHERE = {
    "between others": ((SCHEDULED, OURS, READY), 1),
    "alone": ((OURS,), 0),
}


@pytest.mark.parametrize(("present", "index"), WHERE.values(), ids=WHERE)
def test_it_is_found_where_it_is(present: tuple[Object, ...], index: int) -> None:
    found = observed_condition(a_version(*present))
    assert found == ObservedCondition("pod-uid-1", "7", WAITS, BEFORE, index)


def test_a_place_of_very_many_digits_is_text() -> None:
    message = f"x; place {'9' * 5000} of 1"
    found = observed_condition(a_version({**OURS, "message": message})).condition
    assert found is not None
    assert (found.text, found.place) == (message, 0)


NONE_YET = {
    "beside others": a_version(SCHEDULED, READY),
    "no conditions": a_version(),
    "no status": {key: value for key, value in a_version().items() if key != "status"},
}


@pytest.mark.parametrize("pod", NONE_YET.values(), ids=NONE_YET)
def test_a_first_one_is_added_and_the_others_stay(pod: Object) -> None:
    outcome = patched(pod, WAITS)
    others = [] if "status" not in pod else conditions(pod) or []
    assert conditions(outcome) == [*others, {**OURS, "lastTransitionTime": NOW}]  # type: ignore[misc]


def test_a_first_one_is_for_the_version_that_was_read() -> None:
    patch = condition_patch(observed_condition(a_version(SCHEDULED)), WAITS, NOW)
    with pytest.raises(InvalidError):
        apply_patch(a_version(SCHEDULED, version="8"), patch)


def test_the_time_changes_with_the_status_only() -> None:
    other = QuotaCondition("False", "Behind", "waits behind", 4, 17)
    assert (
        observed_condition(patched(a_version(SCHEDULED, OURS), other)).last_transition_time
        == BEFORE
    )
    assert (
        observed_condition(patched(a_version(SCHEDULED, OURS), RESERVED)).last_transition_time
        == NOW
    )


def test_a_change_leaves_the_others_whatever_they_say_by_then() -> None:
    patch = condition_patch(observed_condition(a_version(SCHEDULED, OURS, READY)), RESERVED, NOW)
    later = {**READY, "status": "True"}
    outcome = apply_patch(a_version(SCHEDULED, OURS, later, version="9"), patch)
    assert conditions(outcome) == [
        SCHEDULED,
        {
            "type": QUOTA_RESERVED,
            "status": "True",
            "lastTransitionTime": NOW,
            "reason": "Reserved",
            "message": RESERVED.message,
        },
        later,
    ]


@pytest.mark.parametrize("said", [RESERVED, None], ids=["changed", "taken away"])
def test_a_condition_that_has_moved_is_not_touched(said: QuotaCondition | None) -> None:
    patch = condition_patch(observed_condition(a_version(SCHEDULED, OURS)), said, NOW)
    with pytest.raises(InvalidError):
        apply_patch(a_version(OURS, SCHEDULED), patch)


@pytest.mark.parametrize("said", [RESERVED, None], ids=["changed", "taken away"])
def test_another_pod_of_the_name_is_not_touched(said: QuotaCondition | None) -> None:
    patch = condition_patch(observed_condition(a_version(SCHEDULED, OURS)), said, NOW)
    other = a_pod(uid="another", status={"conditions": [SCHEDULED, OURS]})
    with pytest.raises(InvalidError):
        apply_patch(other, patch)


def test_it_can_be_taken_away_again() -> None:
    assert conditions(patched(a_version(SCHEDULED, OURS, READY), None)) == [SCHEDULED, READY]
    assert condition_patch(observed_condition(a_version(SCHEDULED)), None, NOW) == []


@pytest.mark.parametrize("pod", [a_version(SCHEDULED, OURS, READY), *NONE_YET.values()])
def test_what_is_there_afterwards_is_known_without_reading(pod: Object) -> None:
    found = with_condition(observed_condition(pod), RESERVED, NOW)
    read = observed_condition(patched(pod, RESERVED))
    assert (found.condition, found.last_transition_time, found.index) == (
        read.condition,
        read.last_transition_time,
        read.index,
    )


ODD: dict[str, Object] = {
    "no metadata": {},
    "a status that is none": {"status": 3},
    "conditions that are none": {"status": {"conditions": {"a": 1}}},
    "conditions of texts": {"status": {"conditions": ["x", None, {"type": 3}]}},
}


@pytest.mark.parametrize("pod", ODD.values(), ids=ODD)
def test_what_cannot_be_read_is_no_condition(pod: Object) -> None:
    assert observed_condition(pod).condition is None


def test_the_name_of_a_scheduler_is_cut_to_the_length_of_a_name() -> None:
    """The API server takes any text for it, which would be kept and written."""
    assert untried_by(a_pod(schedulerName="s" * 253)) == "s" * 253
    assert untried_by(a_pod(schedulerName="s" * 1_000_000)) == "s" * 253 + "..."


def test_the_name_of_a_scheduler_steers_no_terminal() -> None:
    assert untried_by(a_pod(schedulerName="mine\x1b]0;evil\x07")) == "not printable"
