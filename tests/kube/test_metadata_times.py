from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from webhook.kube.metadata import time_text

MOMENTS = {
    "utc": (datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC), "2026-03-04T05:06:07Z"),
    "another zone": (
        datetime(2026, 3, 4, 1, 6, 7, tzinfo=timezone(timedelta(hours=2))),
        "2026-03-03T23:06:07Z",
    ),
    "a part of a second is dropped": (
        datetime(2026, 3, 4, 5, 6, 7, 999_999, tzinfo=UTC),
        "2026-03-04T05:06:07Z",
    ),
}


@pytest.mark.parametrize(("moment", "text"), MOMENTS.values(), ids=MOMENTS)
def test_moments_are_written_in_utc_and_whole_seconds(moment: datetime, text: str) -> None:
    assert time_text(moment) == text
