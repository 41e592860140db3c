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
    """Bypass the webhook in an outage, and restore it.

    For an outage of the webhook or the controller that cannot be repaired soon. Needs only the API
    server and an administrator's kubeconfig.
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
Exit status:
  0  open
  1  cannot be opened, or not confirmed
  3  unfinished: run it again
  4  the cluster does not answer
""",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--release-gates",
    "releases",
    is_flag=True,
    help="Remove the scheduling gates of queued pods. They start at once, even above quota."
    " Default: they wait until a controller runs.",
)
@wait_option(120.0, "Seconds to keep trying in each namespace.")
@cluster_options
@output_option(*FORMATS)
def open_command(**options: Any) -> ExitCode:
    """Stop calling the webhook; the API server enforces quotas.

    Changes the webhook registrations and the mask so that they select no namespace, then counts the
    pods of opted-in namespaces and completes the status of their ResourceQuotas. Until that is
    done, for some seconds, nothing limits compute resources in a namespace. Quotas of several
    namespaces are not enforced while the emergency is open. Can be repeated: it continues an
    interrupted run.
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
Exit status:
  0  closed, counted and in force
  1  no controller leads, the webhook is not reached, or not confirmed
  3  unfinished, or not counted in time
  4  the cluster does not answer
""",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--force",
    is_flag=True,
    help="Close even if no controller leads or the API server does not reach the webhook. Until"
    " both work, nothing is bound in opted-in namespaces.",
)
@wait_option(180.0, "Seconds to wait for each namespace until it is counted and masked.")
@cluster_options
@system_namespace_option
@installed_config_option
@output_option(*FORMATS)
def close_command(**options: Any) -> ExitCode:
    """Call the webhook again, after a recount of all pods.

    Deletes the ledgers, restores the registrations and the mask, and waits until the controller has
    counted all pods again. Nothing is bound in opted-in namespaces for about a minute. Quotas above
    their hard limit are printed: their pods keep running, new ones are denied until usage falls.
    """
    from webhook.cli.emergency.running import run_close  # noqa: PLC0415 - as above

    return run_close(**options)
