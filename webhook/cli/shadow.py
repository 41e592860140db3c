"""`deferred-quota shadow`: what opting namespaces in would change, as it was seen there."""

from __future__ import annotations

from pathlib import Path

import click

from webhook.cli.access import cluster_options, live_cluster, snapshot_cluster, snapshot_option
from webhook.cli.exits import ExitCode, printable
from webhook.cli.options import Command, output_option
from webhook.cli.reports import FORMATS, print_structured
from webhook.cli.shadow_reports import entry_of, print_text
from webhook.cluster.api import ClusterApi
from webhook.operations.shadowing import all_watched, begin_anew


@click.group(
    epilog="""\b
Examples:
  deferred-quota enable --shadow team-a
  deferred-quota shadow report team-a
  deferred-quota enable team-a
"""
)
def shadow() -> None:
    """Say what opting namespaces in would change, from watching them: begin with enable --shadow.

    In shadow mode nothing is refused, gated or masked. End it with disable, or with enable.
    """


@shadow.command(
    "report",
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota shadow report
  deferred-quota shadow report team-a team-b
  deferred-quota shadow report -o json | jq '.namespaces[] | {namespace, creations}'
  deferred-quota shadow report --snapshot cluster.yaml

\b
Exit status: 0 reported, 1 a namespace that was named has no record,
4 the cluster does not answer.
""",
)
@click.argument("namespaces", nargs=-1, metavar="[NAMESPACE]...")
@cluster_options
@snapshot_option
@output_option(*FORMATS)
def report(
    namespaces: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    output: str,
) -> ExitCode:
    """Show what was found: by default of all namespaces that are or were watched.

    For each: creations that quota refuses now and what would become of them, pods that would have
    waited or been refused at their bind, and how much of each quota is charged and how much is
    really assigned to nodes. Only reads.
    """
    if snapshots:
        with snapshot_cluster(snapshots) as api:
            return report_on(api, namespaces, output=output)
    with live_cluster(kubeconfig, context) as api:
        return report_on(api, namespaces, output=output)


def report_on(api: ClusterApi, namespaces: tuple[str, ...], *, output: str) -> ExitCode:
    """Print the report of a cluster."""
    found = all_watched(api, namespaces)
    if output == "text":
        print_text(found)
    else:
        entries = [entry_of(one) for one in found]
        print_structured({"schemaVersion": 1, "namespaces": entries}, output)
    is_missing = bool(namespaces) and any(one.record is None for one in found)
    return ExitCode.FINDINGS if is_missing else ExitCode.OK


@shadow.command(
    "reset",
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota shadow reset team-a
  deferred-quota shadow report team-a -o yaml > before.yaml && deferred-quota shadow reset team-a

\b
Exit status: 0 done, 1 there was no record or no such namespace, 4 the cluster does not answer.
""",
)
@click.argument("namespaces", nargs=-1, required=True, metavar="NAMESPACE...")
@cluster_options
def reset(namespaces: tuple[str, ...], kubeconfig: Path | None, context: str | None) -> ExitCode:
    """Take the records away; of namespaces in shadow mode new ones begin within a minute.

    Creations of the last ten seconds before may still be added to the new record.
    """
    with live_cluster(kubeconfig, context) as api:
        return reset_on(api, namespaces)


def reset_on(api: ClusterApi, namespaces: tuple[str, ...]) -> ExitCode:
    """Take records of a cluster away, and say so."""
    code = ExitCode.OK
    for name in dict.fromkeys(namespaces):
        found = begin_anew(api, name)
        if found.record is None:
            code = ExitCode.FINDINGS
        click.echo(printable(f"{name}: {found.problem or 'the record is taken away'}"))
    return code
