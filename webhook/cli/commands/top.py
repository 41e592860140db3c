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
Exit status:
  0  success; notes list what you may not read
  1  a namespace does not exist
  2  invalid usage
  4  the cluster does not answer
""",
)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    type=NAMESPACE,
    multiple=True,
    help="Show only this namespace. Repeatable. Default: all.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(_ORDERS),
    default=_ORDERS[0],
    show_default=True,
    help="Order of rows. share: used and reserved, relative to hard. pending: pending, relative to"
    " hard. The highest is first.",
)
@click.option("--watch", "watches", is_flag=True, help="Refresh every two seconds.")
@cluster_options
@snapshot_option
@system_namespace_option
@output_option(*FORMATS)
def top(**options: Any) -> ExitCode:
    """Show used, reserved and pending amounts of quotas, with bars.

    Reads the ledgers. Used (#) is held by pods with a node, reserved (+) by pods about to be bound;
    pending (.) is requested by pods without a node. Quotas of several namespaces come last. They
    are summed over the namespaces shown; used also has the other namespaces, if you may read it.
    For a snapshot without ledgers, amounts are counted from its pods.
    """
    from webhook.cli.top import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)
