"""`deferred-quota shadow`: what opting namespaces in would change, as it was seen there."""

from __future__ import annotations

from pathlib import Path

import click

from webhook.cli.cluster_options import cluster_of, live_cluster
from webhook.cli.exit_codes import ExitCode, printable
from webhook.cli.printing.output import print_structured
from webhook.cli.printing.shadow_report import entry_of, print_text
from webhook.kube.api import ClusterApi
from webhook.operations.shadow_mode import all_watched, begin_anew


def run_report(
    namespaces: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    output: str,
) -> ExitCode:
    """Show what was found: by default of all namespaces that are or were watched."""
    with cluster_of(snapshots, kubeconfig, context) as api:
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


def run_reset(
    namespaces: tuple[str, ...], kubeconfig: Path | None, context: str | None
) -> ExitCode:
    """Take the records away; of namespaces in shadow mode new ones begin within a minute."""
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
