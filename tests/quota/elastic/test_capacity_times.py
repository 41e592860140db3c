"""Times by which pods count as ending, or as bound just now, in plans to reclaim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from tests.builders import a_pod
from webhook.quota.elastic.capacity import ends_within, was_bound_within
from webhook.quota.objects.model import Pod

NOW: Final = datetime(2026, 11, 26, tzinfo=UTC)
MOST: Final = 2**63 - 1

ENDING: Final = {
    "not deleted": (None, None, False),
    "in time": (5, 5, True),
    "long over": (-3600, 30, True),
    "just over": (-20, 700, True),
    "over, and charged for longer than the limit": (-60, 700, False),
    "over, and charged until the limit": (-100, 700, True),
    "beyond the limit": (700, 700, False),
    "deleted long ago, with a long grace period": (60, 10**8, True),
    "a deadline that wrapped around into the past": (-(10**9), 10**10, False),
    "a deadline that wrapped around to a moment ago": (-1, MOST, False),
}


@pytest.mark.parametrize(("left", "grace", "expected"), ENDING.values(), ids=ENDING)
def test_a_pod_ends_within_the_limit(left: int | None, grace: int | None, expected: bool) -> None:
    deleted: dict[str, object] = {}
    if left is not None:
        until = NOW + timedelta(seconds=left)
        deleted = {
            "deletionTimestamp": f"{until:%Y-%m-%dT%H:%M:%SZ}",
            "deletionGracePeriodSeconds": grace,
        }
    pod = Pod.from_stored(a_pod(node="node-1", metadata=deleted))
    assert ends_within(pod, 600, NOW) is expected


BOUND: Final = {
    "nothing is protected": (10, 0, False),
    "just now": (10, 60, True),
    "at that very moment it is over": (60, 60, False),
    "a time ahead counts as now": (-3600, 60, True),
    "a time that is not known counts as now": (None, 60, True),
    "longer than the calendar": (10**9, MOST, True),
}


@pytest.mark.parametrize(("ago", "seconds", "expected"), BOUND.values(), ids=BOUND)
def test_a_pod_was_bound_just_now(ago: int | None, seconds: int, expected: bool) -> None:
    bound = None if ago is None else NOW - timedelta(seconds=ago)
    assert was_bound_within(bound, seconds, NOW) is expected
