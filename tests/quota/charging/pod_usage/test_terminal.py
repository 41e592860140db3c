from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.builders import Object, a_pod
from tests.quota.charging.pod_usage.charges import COUNTS, ENDED, charge, requests
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.charging.pod_usage import (
    is_quota_eligible,
    is_stuck_terminating,
    is_terminal,
    pod_usage,
    stuck_terminating_at,
    usage_of,
)
from webhook.quota.objects.model import Pod

NOW = datetime(2026, 6, 1, 0, 10, 0, tzinfo=UTC)
CHARGED = {**COUNTS, **requests(cpu="1")}


def deleted_at(time: str, *, grace: int | None = 30) -> Object:
    metadata: Object = {"deletionTimestamp": time}
    if grace is not None:
        metadata["deletionGracePeriodSeconds"] = grace
    return a_pod(requests={"cpu": "1"}, metadata=metadata)


PHASES = {
    "Succeeded": ENDED,
    "Failed": ENDED,
    "Pending": CHARGED,
    "Running": CHARGED,
    "Unknown": CHARGED,
    "": CHARGED,
    "succeeded": CHARGED,
}


@pytest.mark.parametrize(("phase", "expected"), PHASES.items(), ids=lambda item: str(item)[:12])
def test_only_pods_that_have_ended_are_released(phase: str, expected: Mapping[str, str]) -> None:
    assert charge(a_pod(requests={"cpu": "1"}, status={"phase": phase})) == expected


DELETIONS: dict[str, tuple[Object, Mapping[str, str]]] = {
    "within the second grace period": (deleted_at("2026-06-01T00:09:45Z"), CHARGED),
    "at its very end": (deleted_at("2026-06-01T00:09:30Z"), CHARGED),
    "a second later": (deleted_at("2026-06-01T00:09:29Z"), ENDED),
    "a microsecond later": (deleted_at("2026-06-01T00:09:29.999999Z"), ENDED),
    "long ago without a grace period on record": (
        deleted_at("2025-06-01T00:00:00Z", grace=None),
        CHARGED,
    ),
    "without grace": (deleted_at("2026-06-01T00:09:59Z", grace=0), ENDED),
    "in another zone, over": (deleted_at("2026-06-01T02:09:29+02:00"), ENDED),
    "in another zone, not over": (deleted_at("2026-06-01T02:09:30+02:00"), CHARGED),
    "with a grace period beyond the calendar": (
        deleted_at("2026-06-01T00:00:00Z", grace=2**63 - 1),
        CHARGED,
    ),
    "with a grace period of less than nothing": (
        deleted_at("2026-06-01T00:10:10Z", grace=-30),
        ENDED,
    ),
}


@pytest.mark.parametrize(("pod", "expected"), DELETIONS.values(), ids=DELETIONS.keys())
def test_a_pod_deleted_is_charged_for_two_grace_periods(
    pod: Object, expected: Mapping[str, str]
) -> None:
    assert charge(pod, NOW) == expected


@pytest.mark.parametrize("now", ["2026-06-01T00:10:00Z", "2026-06-01T02:10:00.000+02:00"])
def test_the_present_time_can_be_text(now: str) -> None:
    assert charge(deleted_at("2026-06-01T00:09:29Z"), now) == ENDED
    assert charge(deleted_at("2026-06-01T00:09:30Z"), now) == CHARGED


def test_without_the_present_time_a_deleted_pod_stays_charged() -> None:
    assert charge(deleted_at("1999-01-01T00:00:00Z")) == CHARGED


@pytest.mark.parametrize("now", ["", "yesterday", "2026-06-01", NOW.replace(tzinfo=None)])
def test_a_present_time_without_a_zone_is_refused(now: datetime | str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        pod_usage(a_pod(), now)
    assert caught.value.field == "now"


def test_the_last_charged_moment_is_known_beforehand() -> None:
    pod = Pod.from_object(deleted_at("2026-06-01T00:09:30Z"))

    assert stuck_terminating_at(pod) == NOW
    assert stuck_terminating_at(Pod.from_object(a_pod())) is None


def test_time_alone_releases_a_pod() -> None:
    pod = Pod.from_object(deleted_at("2026-06-01T00:09:30Z"))
    later = (NOW + timedelta(microseconds=1)).astimezone(timezone(timedelta(hours=9)))

    before = usage_of(pod, now=NOW)
    after = usage_of(pod, now=later)

    assert "requests.cpu" in before
    assert dict(after).keys() == {"count/pods"}
    assert usage_of(pod, now=NOW) == before


def test_an_ended_pod_is_terminal_not_stuck() -> None:
    pod = Pod.from_object(a_pod(status={"phase": "Failed"}))

    assert is_terminal(pod)
    assert not is_stuck_terminating(pod, now=NOW)
    assert not is_quota_eligible(pod, now=NOW)


def test_usage_cannot_be_changed_by_its_reader() -> None:
    raw = a_pod(requests={"cpu": "1"})
    pod = Pod.from_object(raw)

    with pytest.raises(TypeError):
        usage_of(pod, now=None)["pods"] = usage_of(pod, now=None)["cpu"]  # type: ignore[index]
    pod_usage(raw).clear()

    assert charge(raw) == CHARGED
