"""`deferred-quota review`: AdmissionReviews in, AdmissionReviews out, without a server."""

from __future__ import annotations

from pathlib import Path

import click

from webhook.cli.exits import ExitCode
from webhook.cli.options import Command
from webhook.cli.reviews import PHASES, print_replies
from webhook.cli.snapshots import config_option, read_cluster, read_configuration, running_engine


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota review --snapshot cluster.yaml < review.json
  deferred-quota review --snapshot cluster.yaml --phase mutate review.json
  deferred-quota review --snapshot cluster.yaml --jsonl reviews.jsonl > answers.jsonl
  kubectl get ns,quota,cdq,pods -A -o yaml > cluster.yaml

Exit status: 0 all allowed, 1 something was refused, 2 something could not be read.
""",
)
@click.argument("file", default="-")
@click.option(
    "--snapshot",
    "snapshots",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="The cluster to decide on: objects as kubectl prints them. Repeatable.",
)
@click.option("--jsonl", is_flag=True, help="FILE has one review in each line.")
@click.option(
    "--phase",
    type=click.Choice(tuple(PHASES)),
    default="validate",
    show_default=True,
    help="Which of the two webhooks is asked.",
)
@config_option
def review(
    file: str, snapshots: tuple[Path, ...], jsonl: bool, phase: str, config: Path | None
) -> ExitCode:
    """Answer the AdmissionReview in FILE (default: standard input) on a snapshot of a cluster.

    Reviews are answered in their order on one ledger, as a server would: what one reserves the
    next one finds taken.

    A namespace that the snapshot mentions without holding its Namespace object counts as one
    that has opted in.
    """
    configuration = read_configuration(config)
    with running_engine(read_cluster(snapshots), configuration) as engine:
        return print_replies(file, jsonl=jsonl, phase=PHASES[phase], decide=engine.decide)
