"""Options and help of `elastic`.

Nothing is imported here that a body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

from typing import Any

import click

from webhook.cli.completion import complete_names
from webhook.cli.exit_codes import ExitCode
from webhook.cli.options import (
    FORMATS,
    Command,
    cluster_options,
    namespace_option,
    output_option,
    snapshot_option,
)

_ORDERS = ("CreationTime", "Priority")
_DEFAULT_GB = 32

_memory_option = click.option(
    "--gpu-memory-gb",
    "gb_per_gpu",
    type=click.IntRange(min=1),
    default=_DEFAULT_GB,
    show_default=True,
    help="Memory of one GPU in GB, for nos.nebuly.com/gpu-memory.",
)


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  deferred-quota elastic
  deferred-quota elastic --watch
  deferred-quota elastic --snapshot cluster.yaml -o json
  deferred-quota elastic plan train-0 -n team-a

\b
Exit status:
  0  success; notes list what you may not read
  2  invalid usage
  4  the cluster does not answer
""",
)
@click.option("--watch", "watches", is_flag=True, help="Print the table again when it changes.")
@cluster_options
@snapshot_option
@_memory_option
@output_option(*FORMATS)
@click.pass_context
def elastic(ctx: click.Context, /, **options: Any) -> ExitCode | None:
    """Show elastic quotas: min, max, used, borrowed, lent, guaranteed and headroom.

    Reads the ElasticQuotas and CompositeElasticQuotas of nos.nebuly.com/v1alpha1, and the pods with
    a node. Only binds in opted-in namespaces are charged to them. Changes nothing.
    """
    if ctx.invoked_subcommand is not None:
        return None
    from webhook.cli.elastic import show  # noqa: PLC0415 - help must not wait for it

    return show(**options)


@elastic.command(
    "plan",
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota elastic plan train-0 -n team-a
  deferred-quota elastic plan -f pod.yaml
  deferred-quota elastic plan train-0 -n team-a --snapshot cluster.yaml -o json

\b
Exit status:
  0  the plan is printed, or no eviction is needed
  1  no eviction helps, or the pod does not exist
  2  invalid usage, or unreadable input
  4  the cluster does not answer
""",
)
@click.argument("pod", metavar="[POD]", default="", shell_complete=complete_names("pod"))
@namespace_option("Namespace of the pod.")
@click.option(
    "-f",
    "--filename",
    "filename",
    metavar="FILE|-",
    help="Manifest of a pod or workload that does not exist yet.",
)
@cluster_options
@snapshot_option
@_memory_option
@click.option(
    "--label-order",
    type=click.Choice(_ORDERS),
    default=_ORDERS[0],
    show_default=True,
    help="What decides first which pods are within their quota: age or priority.",
)
@output_option(*FORMATS)
def plan(**options: Any) -> ExitCode:
    """Show which pods would have to be evicted so that a pod can be bound.

    A quota may reclaim its min from quotas that use more than their min. Beyond its min it may
    reclaim its guaranteed share of what others lend, from quotas above their own min and guaranteed
    share. Changes nothing.
    """
    from webhook.cli.elastic import plan as body  # noqa: PLC0415 - help must not wait for it

    return body(**options)
