"""The program that believes the lease of another process no longer than some seconds.

`short_leases SECONDS ARGUMENTS`; all else of an election is as it is.
"""

from __future__ import annotations

import sys
from functools import partial

from webhook.cli import main as run
from webhook.controllers.runtime import election


def main() -> None:
    """Shorten what is believed, and run the program."""
    seconds = int(sys.argv[1])
    timings = partial(election.ElectionTimings, max_lease_seconds=seconds)
    election.ElectionTimings = timings  # type: ignore[misc,assignment]
    sys.argv = ["deferred-quota", *sys.argv[2:]]
    run()


if __name__ == "__main__":
    main()
