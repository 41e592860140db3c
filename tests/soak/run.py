"""`scripts/soak`: an even load for an hour, while connections, certificates and settings change.

Exits with 1 on any over-commit, on any difference between ledgers and pods in the end, and when
memory, descriptors or threads of a process grow; with 3 when the run itself went wrong. Before the
hour the product is warmed up: with as many binds as can be, so that caches and pools fill, and then
with the even load. A run that is shorter than an hour shows slopes, and does not fail by them: they
are noise then.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.soak.slopes import Limits, as_course, as_markdown, problems, row
from tests.soak.wear import Wear
from tests.torture.run import Driver, Options, torture
from tests.torture.world import World

_WHOLE_MINUTES: Final = 60.0
_WARM_UP_MINUTES: Final = 15.0
_UNPACED_SHARE: Final = 0.75
"""Of the warm-up. In the rest of it processes give back what only the high rate took."""
_TEMPLATES: Final = 3
"""Kinds of pods and sizes. Caches are kept by all that pods agree in: kind, size after a resize,
size in force, phase, deadline. Of twenty there are more than a cache of 2,048 holds, which was
still being filled after an hour; of three there are some hundreds."""

_THREADS: Final = 4
"""So few that the warm-up needs all of them: a pool of 64 grows whenever more requests than ever
arrive together, and that is no leak."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    given = _parser().parse_args(arguments)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:6.1f}] {line}", file=sys.stderr, flush=True)

    minutes = given.warm_up + given.minutes
    options = Options(
        minutes=minutes,
        binds=0,
        faults=0,
        churners=0,
        binders=given.binders,
        binds_per_second=given.rate,
        unpaced_minutes=given.warm_up * _UNPACED_SHARE,
        templates=_TEMPLATES,
        threads=_THREADS,
        seed=secrets.randbelow(10**6) if given.seed is None else given.seed,
        most_minutes=minutes + 1,
    )
    made: list[Wear] = []
    with tempfile.TemporaryDirectory(prefix="soak-") as kept:
        directory = given.keep or Path(kept)

        def driver(world: World, options: Options) -> Driver:
            made.append(Wear(world, directory / "product", options.minutes * 60))
            return made[0]

        report = torture(options, directory, say, driver=driver)
    warm_up = given.warm_up * 60
    found = [row(name, each, warm_up=warm_up) for name, each in sorted(made[0].samples.items())]
    tried = report.binds.get("tried", 0) / report.seconds
    wrong = problems(found, Limits()) if given.minutes >= _WHOLE_MINUTES else []
    parts = (
        report.text(),
        f"{tried:.1f} binds/s, {given.rate:.0f} wanted after the warm-up, {made[0].done} changes",
        as_markdown(found),
        as_course(made[0].samples),
        *wrong,
    )
    text = "\n\n".join(parts)
    print(text)
    if given.report:
        given.report.write_text(f"{text}\n")
    if report.over_commits or report.uncovered or report.misgated or report.differences or wrong:
        return 1
    return 3 if report.problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=_WHOLE_MINUTES)
    parser.add_argument(
        "--warm-up", type=float, default=_WARM_UP_MINUTES, help="minutes before the others"
    )
    parser.add_argument(
        "--rate", type=float, default=50.0, help="binds a second, tried ones, after the warm-up"
    )
    parser.add_argument("--binders", type=int, default=16, help="threads that bind")
    parser.add_argument("--seed", type=int, help="of all chance; default: a new one")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write what is printed here too"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and history here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
