"""The program with a clock that is wrong: `python -m tests...shifted_clock SECONDS ARGUMENTS`.

What modules take for the time of day is shifted; steady clocks, and what OpenSSL takes for the
time, stay.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, tzinfo
from typing import Final, Self

from webhook.cli import main as run
from webhook.controllers.runtime import election, timings
from webhook.kube import metadata
from webhook.kube.rest import credentials
from webhook.runtime import certificate_rotation
from webhook.tls import files

_LOOK_AT_THE_CLOCK: Final = (
    election,
    timings,
    metadata,
    credentials,
    certificate_rotation,
    files,
)


def main() -> None:
    """Shift the clock, and run the program."""
    _, seconds, *arguments = sys.argv
    shift = timedelta(seconds=float(seconds))

    class ShiftedDatetime(datetime):
        """The time of day as a wrong clock has it."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            """Return the wrong time."""
            return super().now(tz) + shift

    for module in _LOOK_AT_THE_CLOCK:
        assert module.datetime is datetime, module
        module.datetime = ShiftedDatetime  # type: ignore[attr-defined]
    sys.argv = ["deferred-quota", *arguments]
    run()


if __name__ == "__main__":
    main()
