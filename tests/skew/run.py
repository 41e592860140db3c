"""`scripts/skew REF`: this version and another side by side, on a real control plane under load.

Exits with 1 on any over-commit, on a lost ledger and on any difference between ledgers and pods in
the end, with 3 when the run itself went wrong so that it proves nothing.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.skew.chart import chart_story
from tests.skew.checkout import CheckoutError, provide
from tests.skew.story import STORY, Side
from tests.skew.table import Row, as_markdown, problems, rows
from tests.skew.upgrades import Upgrades
from tests.torture.observer.recorder import read_lines
from tests.torture.report import Report
from tests.torture.run import Driver, Options, torture
from tests.torture.version import Version, this_version
from tests.torture.world import World

_MOVES_MINUTES: Final = 15.0
"""What all moves together may take at most, on a machine that is slow."""


def skew(
    other: Version, directory: Path, options: Options, seconds: float, say: Callable[[str], None]
) -> tuple[Report, list[Row]]:
    """Carry the story out with another version as the old one.

    Args:
        other: The other version.
        directory: For everything that is written.
        options: The load.
        seconds: How long pods are bound in each phase.
        say: Called with what is done.

    Returns:
        What the judges of the torture found, and the facts of each phase.
    """
    versions = {Side.OLD: other, Side.NEW: this_version(directory)}
    made: list[Upgrades] = []

    def driver(world: World, _options: Options) -> Driver:
        made.append(Upgrades(world, versions, STORY, seconds, say))
        return made[0]

    report = torture(options, directory, say, driver=driver, version=other)
    facts = sorted(read_lines(directory / "history.jsonl"), key=lambda fact: fact.revision)
    return report, rows(made[0].spans, facts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    given = _parser().parse_args(arguments)
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:6.1f}] {line}", file=sys.stderr, flush=True)

    options = Options(
        minutes=0.0,
        binds=0,
        faults=0,
        binders=given.binders,
        churners=given.churners,
        terminating_pods=("Release", "Hold")[seed % 2],
        seed=seed,
        most_minutes=len(STORY) * given.seconds / 60 + _MOVES_MINUTES,
    )
    other = provide(given.ref, say)
    if given.chart:
        with tempfile.TemporaryDirectory(prefix="skew-") as directory:
            where = given.keep or Path(directory)
            print(chart_story(other, this_version(where), where, say))
        print(f"\nold: {other.name}, new: this checkout")
        return 0
    with tempfile.TemporaryDirectory(prefix="skew-") as directory:
        report, found = skew(other, given.keep or Path(directory), options, given.seconds, say)
    print(report.text())
    print(f"\nold: {other.name}, new: this checkout, seed {seed}\n\n{as_markdown(found)}")
    wrong = problems(found)
    print("\n".join(wrong) or "no ledger was lost")
    if report.over_commits or report.uncovered or report.misgated or report.differences or wrong:
        return 1
    return 3 if report.problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/skew", description=__doc__)
    parser.add_argument("ref", help="commit, tag or branch of the other version")
    parser.add_argument("--seconds", type=float, default=15.0, help="of load in each phase")
    parser.add_argument("--binders", type=int, default=16, help="threads that bind")
    parser.add_argument("--churners", type=int, default=4, help="threads of the churn")
    parser.add_argument("--seed", type=int, help="of all chance; default: a new one")
    parser.add_argument(
        "--chart", action="store_true", help="upgrade the chart by helm, instead of the load"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and history here")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CheckoutError as err:
        sys.exit(f"skew: {err}")
