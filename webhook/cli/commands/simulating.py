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
    help="How quota is charged; all three unless given. `gated` is gating: always. The default of"
    " an installation, auto, is not simulated: pods that it leaves without a gate start no later,"
    " in another order perhaps. Repeatable.",
)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota simulate -f scenario.yaml
  deferred-quota simulate -f scenario.yaml --mode native --mode gated -o csv
  deferred-quota simulate -f scenario.yaml --seed 7 --events events.csv --html report.html

\b
Exit status: 0 simulated, 2 something could not be read or written.
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
@_mode_option
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
@click.option(
    "--png",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the charts as an image; needs the extra `plots`.",
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


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota replay audit.log --snapshot cluster.json.gz
  deferred-quota replay audit-*.log.gz --snapshot cluster.json.gz --mode gated -o json
  deferred-quota snapshot cluster.json.gz   # nodes and quotas, and what ran

Exit status: 0 replayed, 2 something could not be read.
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
    help="Nodes, quotas and what ran before: `deferred-quota snapshot`. Repeatable.",
)
@_mode_option
@config_option
@output_option("text", "json")
def replay(**options: Any) -> None:
    """Say what would have become of the pods in audit logs, for each workload.

    FILES are logs of the API server (audit.k8s.io/v1, JSON lines, perhaps compressed) with the
    level RequestResponse for pods. Pods arrive as they were created, or as their controller first
    tried to create them, and run as long as they did, on the nodes and quotas of the snapshot: as
    `simulate` does, natively, deferred and gated, beside what was recorded.

    FILES of AdmissionReviews, as `review --jsonl` reads them, are answered in their order by both
    webhooks, and the answers are summed for each workload.
    """
    from webhook.cli.files.replay import run  # noqa: PLC0415 - help must not wait for it

    run(**options)
