"""Options and help of `simulate`. Nothing is imported here that its body needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from webhook.cli.options import Command, output_option


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota simulate -f scenario.yaml
  deferred-quota simulate -f scenario.yaml --mode native --mode gated -o csv
  deferred-quota simulate -f scenario.yaml --seed 7 --events events.csv --html report.html
""",
)
@click.option(
    "-f",
    "--filename",
    "file",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The scenario: nodes, quotas, workloads and traces, in YAML.",
)
@click.option(
    "--mode",
    "modes",
    type=click.Choice(("native", "deferred", "gated")),
    multiple=True,
    help="How quota is charged; all three unless given. Repeatable.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    help="Seed of what is random, instead of the one in the scenario.",
)
@click.option(
    "--events",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Write every event to a CSV file.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Write a page with the figures and charts, which needs nothing else.",
)
@output_option("text", "csv", "json")
def simulate(**options: Any) -> None:
    """Say what deferral would give a workload: pods arrive, wait, run and end, in simulated time.

    Under `native` quota is charged when a pod is created, and a refused pod is created again by its
    controller. Under `deferred` it is charged at the bind, and the scheduler tries again. Under
    `gated` every pod waits behind the scheduling gate until the queue has reserved for it.

    The rules of quotas, of the queue and of the scheduler are those that run in a cluster. No
    cluster is asked, and the same scenario with the same seed always gives the same result.
    """
    from webhook.cli.files.simulate import run  # noqa: PLC0415 - help must not wait for it

    run(**options)
