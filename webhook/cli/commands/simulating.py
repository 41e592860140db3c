"""Options and help of `simulate` and `replay`. Nothing is imported here that a body needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from webhook.cli.options import Command, config_option, output_option

_mode_option = click.option(
    "--mode",
    "modes",
    type=click.Choice(("native", "deferred", "gated")),
    multiple=True,
    help="Mode to run. Repeatable. Default: all three. `gated` is `gating: always`. The default of"
    " an installation, auto, is not simulated: its pods start no later than with `gated`, but maybe"
    " in another order.",
)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota simulate -f scenario.yaml
  deferred-quota simulate -f scenario.yaml --mode native --mode gated -o csv
  deferred-quota simulate -f scenario.yaml --seed 7 --events events.csv --html report.html

\b
Exit status:
  0  success
  2  unreadable input, or output that cannot be written
""",
)
@click.option(
    "-f",
    "--filename",
    "file",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Scenario (YAML): nodes, quotas, workloads and traces.",
)
@_mode_option
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    help="Random seed. Default: the seed in the scenario.",
)
@click.option(
    "--events",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Write all events to this file, as CSV.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Write a self-contained report with charts to this file.",
)
@click.option(
    "--png",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the charts to this file, as PNG. Needs the extra `plots`.",
)
@output_option("text", "csv", "json")
def simulate(**options: Any) -> None:
    """Simulate a workload under native and deferred quota.

    Reads a scenario, runs its pods in simulated time, and prints figures for each mode:

    \b
      native    quota is charged at creation; controllers create denied pods again
      deferred  quota is charged at the bind; the scheduler retries denied binds
      gated     every pod is gated until the queue has reserved quota for it

    Quota, queue and scheduler follow the rules of a real cluster. No cluster is contacted. The same
    scenario and seed always give the same result.
    """  # noqa: D301 - click reads the backspace
    from webhook.cli.files.simulate import run  # noqa: PLC0415 - help must not wait for it

    run(**options)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota replay audit.log --snapshot cluster.json.gz
  deferred-quota replay audit-*.log.gz --snapshot cluster.json.gz --mode gated -o json
  deferred-quota snapshot cluster.json.gz   # writes the file for --snapshot

\b
Exit status:
  0  success
  2  unreadable input
""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--snapshot",
    "snapshots",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    metavar="FILE",
    help="File with nodes, quotas and earlier pods, from `deferred-quota snapshot`. Repeatable.",
)
@_mode_option
@config_option
@output_option("text", "json")
def replay(**options: Any) -> None:
    """Replay audit logs under native and deferred quota.

    FILES are audit logs of the API server (audit.k8s.io/v1, JSON lines, plain or gzip) with level
    RequestResponse for pods. Each pod arrives when its creation was first tried, and runs as long
    as it did, on the nodes and quotas of the snapshot. Prints for each workload the recorded result
    and that of each mode of `simulate`.

    FILES may also be AdmissionReviews, as `review --jsonl` reads them. Both webhooks answer them in
    order; the answers are summed for each workload.
    """
    from webhook.cli.files.replay import run  # noqa: PLC0415 - help must not wait for it

    run(**options)
