"""Options and help of `deferred-quota emergency`.

Nothing is imported here that a body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

from typing import Any

import click

from webhook.cli.commands.namespaces import system_namespace_option
from webhook.cli.exit_codes import ExitCode
from webhook.cli.options import (
    FORMATS,
    Command,
    cluster_options,
    installed_config_option,
    output_option,
    wait_option,
)


@click.group(
    epilog="""\b
Examples:
  deferred-quota emergency open --dry-run
  deferred-quota emergency open
  deferred-quota emergency close
"""
)
def emergency() -> None:
    """Let all binds pass without the webhook, quotas being native; and end that with a recount.

    For when the webhook or the controller stands in the way and is not mended at once. Needs an API
    server that answers and an administrator's kubeconfig, nothing else.
    """


@emergency.command(
    "open",
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota emergency open --dry-run
  deferred-quota emergency open --yes
  deferred-quota emergency open --release-gates

\b
Exit status: 0 open, 1 refused, or not confirmed, 3 something is left to do:
run it again, 4 the cluster does not answer.
""",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--release-gates",
    "releases",
    is_flag=True,
    help="Take the scheduling gate off every pod that waits for quota. They start at once, within"
    " quota or not. Without, they wait for a controller that runs.",
)
@wait_option(120.0, "Seconds to go on for in each namespace.")
@cluster_options
@output_option(*FORMATS)
def open_command(**options: Any) -> ExitCode:
    """Stop asking the webhook; quotas become native.

    The API server then enforces them when pods are created. The registrations and the mask stay and
    select no namespace; then the status of every quota of opted-in namespaces is completed by a
    count of its pods. Until that is done for a namespace, some seconds, nothing limits compute
    resources there. Quotas of several namespaces are not enforced meanwhile. May be run again at
    any time, and finishes what was interrupted.
    """
    from webhook.cli.emergency.running import run_open  # noqa: PLC0415 - help must not wait for it

    return run_open(**options)


@emergency.command(
    "close",
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota emergency close --dry-run
  deferred-quota emergency close --yes

\b
Exit status: 0 closed, counted and in force, 1 refused: no controller leads, or
the API server does not reach the webhook, or not confirmed, 3 something is left
to do, or not counted in time, 4 the cluster does not answer.
""",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--force",
    is_flag=True,
    help="Close although no controller leads or the webhook is not reached: in opted-in namespaces"
    " nothing is bound then until they are.",
)
@wait_option(180.0, "Seconds to wait for each namespace until it is counted and masked.")
@cluster_options
@system_namespace_option
@installed_config_option
@output_option(*FORMATS)
def close_command(**options: Any) -> ExitCode:
    """Guard binds again, by a new count of all pods.

    The ledgers are deleted before the guards are back, and the controller counts them anew when
    every bind that passed is stored: in opted-in namespaces nothing is bound for about a minute.
    What is used above hard is named, and stays; such a quota admits nothing until there is room.
    """
    from webhook.cli.emergency.running import run_close  # noqa: PLC0415 - as above

    return run_close(**options)
