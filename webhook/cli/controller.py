"""`deferred-quota controller`: count pods and keep ledgers, beside the webhook."""

from __future__ import annotations

from pathlib import Path

import click

from webhook.admission.serving.listening import StartError
from webhook.admission.serving.settings import ListenAddress
from webhook.cli.access import cluster_options, read_access
from webhook.cli.exits import ExitCode, InputError
from webhook.cli.options import Command
from webhook.cli.process import (
    announce_option,
    candidate_options,
    log_level_option,
    ops_option,
    unique_identity,
)
from webhook.cli.snapshots import config_option, read_configuration
from webhook.runtime.live import run_controller
from webhook.telemetry import logs


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota controller                              # inside a cluster
  deferred-quota controller --kubeconfig admin.conf --ops 127.0.0.1:0

Of several controllers one leads; the others are ready to follow it. /livez, /readyz and /metrics
are on the plain port.
""",
)
@cluster_options
@ops_option
@candidate_options
@announce_option
@log_level_option
@config_option
def controller(  # noqa: PLR0913, PLR0917 - one for each option
    kubeconfig: Path | None,
    context: str | None,
    ops: ListenAddress,
    system_namespace: str,
    identity: str,
    announce: Path | None,
    log_level: str,
    config: Path | None,
) -> ExitCode:
    """Keep the ledgers of all namespaces true to their pods, and the quotas' status masked."""
    logs.configure(log_level)
    try:
        run_controller(
            read_access(kubeconfig, context),
            read_configuration(config),
            unique_identity(system_namespace, identity),
            ops=ops,
            announce=announce,
        )
    except StartError as err:
        raise InputError(str(err)) from err
    return ExitCode.OK
