"""`deferred-quota top`: what quotas have used, reserved and pending."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click

from webhook.cli.cluster_options import RefusedError, live_cluster, snapshot_reader, watched
from webhook.cli.exit_codes import ExitCode, printable
from webhook.cli.files.configuration import configuration_of
from webhook.cli.printing.output import print_structured, print_table
from webhook.fakecluster.manifests.snapshot_client import SnapshotClient
from webhook.operations.deployments import system_namespace_of
from webhook.operations.explain.session import ExplainOptions, Session
from webhook.operations.quota_usage import (
    QuotaOrder,
    QuotaUsage,
    UsageReport,
    bar_cells,
    in_order,
    read_usage,
)
from webhook.quota.amounts.quantity import ZERO

_FIGURES: Final = ("used", "reserved", "pending", "hard")
_HEAD: Final = ("NAMESPACE", "QUOTA", "RESOURCE", *map(str.upper, _FIGURES), "")
_WIDEST_BAR: Final = 30
_NARROWEST_BAR: Final = 10
_TABLE_WIDTH: Final = 90
"""What the columns before the bar usually take."""


def run(  # noqa: PLR0913, PLR0917 - one for each option
    namespaces: tuple[str, ...],
    order: str,
    watches: bool,
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    system_namespace: str | None,
    output: str,
) -> ExitCode:
    """Show the usage of quotas."""
    if snapshots and watches:
        raise click.UsageError("--watch cannot be used with --snapshot")
    sort = QuotaOrder(order)
    if snapshots:
        with snapshot_reader(snapshots) as api:
            session = Session(api, _snapshot_options(api, system_namespace))
            _print(read_usage(session, namespaces), sort, output)
        return ExitCode.OK
    with live_cluster(kubeconfig, context) as api:
        place = system_namespace or system_namespace_of(api)
        session = Session(api, ExplainOptions(system_namespace=place))
        if not watches:
            _print(read_usage(session, namespaces), sort, output)
            return ExitCode.OK
        for number, report in enumerate(watched(partial(_look, session, namespaces))):
            if number:
                click.clear()  # does nothing where standard output is no terminal
            _print(report, sort, output)
    return ExitCode.OK


def _look(session: Session, namespaces: tuple[str, ...]) -> UsageReport:
    session.unknown.clear()
    return read_usage(session, namespaces)


def _snapshot_options(api: SnapshotClient, system_namespace: str | None) -> ExplainOptions:
    place = system_namespace or system_namespace_of(api)
    configuration = configuration_of(api, None, place)
    return ExplainOptions(configuration, place, is_offline=True, taken=api.extent.taken)


def _print(report: UsageReport, order: QuotaOrder, output: str) -> None:
    for note in report.notes:
        click.echo(f"note: {printable(note)}", err=True)
    rows = in_order(report.rows, order)
    if output != "text":
        print_structured([_entry(row) for row in rows], output)
    elif rows:
        width = shutil.get_terminal_size().columns - _TABLE_WIDTH
        bar = max(_NARROWEST_BAR, min(_WIDEST_BAR, width))
        print_table(_HEAD, list(_lines(rows, bar)), right=range(3, 3 + len(_FIGURES)))
    elif not report.absent:
        click.echo(f"no deferred quotas{report.lack}")
    if report.absent:
        raise RefusedError(report.absent)


def _lines(rows: Sequence[QuotaUsage], width: int) -> Iterator[tuple[str, ...]]:
    for row in rows:
        amounts = tuple(str(getattr(row, name)) for name in _FIGURES)
        yield (row.namespace or "(several)", row.quota, row.resource, *amounts, _bar(row, width))


def _bar(row: QuotaUsage, width: int) -> str:
    # what is pending has the pods in it that quota is reserved for already
    waiting = max(ZERO, row.pending - row.reserved)
    used, reserved, pending = bar_cells((row.used, row.reserved, waiting), row.hard, width)
    filled = "#" * used + "+" * reserved + "." * pending
    over = "!" if row.taken > row.hard else ""
    return f"[{filled:<{width}}]{over}"


def _entry(row: QuotaUsage) -> dict[str, object]:
    return {
        "namespace": row.namespace,
        "quota": row.quota,
        "resource": row.resource,
        **{name: str(getattr(row, name)) for name in _FIGURES},
    }
