"""`deferred-quota controller`: count pods and keep ledgers, beside the webhook."""

from __future__ import annotations

from pathlib import Path

from webhook.admission.serving.server_settings import ListenAddress
from webhook.admission.serving.sockets import StartError
from webhook.cli.cluster_options import read_access
from webhook.cli.exit_codes import ExitCode, InputError
from webhook.cli.files.configuration import read_configuration
from webhook.cli.server_options import (
    unique_identity,
)
from webhook.runtime.processes import run_controller
from webhook.telemetry import logs


def run(  # noqa: PLR0913, PLR0917 - one for each option
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
