"""Options and help of `top`.

Nothing is imported here that the body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

from typing import Any

import click

from webhook.cli.exit_codes import ExitCode
from webhook.cli.options import (
    FORMATS,
    NAMESPACE,
    Command,
    cluster_options,
    output_option,
    snapshot_option,
    system_namespace_option,
)

_ORDERS = ("name", "share", "pending")


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota top
  deferred-quota top -n team-a -n team-b --watch
  deferred-quota top --sort share
  deferred-quota top --snapshot cluster.yaml -o json

\b
Exit status: 0 shown, with notes of what may not be read, 1 a namespace does
not exist, 2 wrong usage, 4 the cluster does not answer.
""",
)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    type=NAMESPACE,
    multiple=True,
    help="Only this namespace; can be repeated. Else all.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(_ORDERS),
    default=_ORDERS[0],
    show_default=True,
    help="By name, or first the fullest, or those for which most is pending.",
)
@click.option("--watch", "watches", is_flag=True, help="Look every two seconds, and show it anew.")
@cluster_options
@snapshot_option
@system_namespace_option
@output_option(*FORMATS)
def top(**options: Any) -> ExitCode:
    """Show what every deferred quota has used, reserved and pending, with bars.

    Figures are those of the ledgers: used by pods with a node (#), reserved for pods that are on
    their way (+), pending for pods that wait (., up to hard). Quotas of several namespaces come
    last, summed over the namespaces that are shown; used has what the others hold, where it may
    be read. Of a snapshot without ledgers they are counted from its pods.
    """
    from webhook.cli.top import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)
