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
    help="Memory of a whole GPU, GB, for nos.nebuly.com/gpu-memory.",
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
Exit status: 0 shown, with notes of what may not be read, 2 wrong usage,
4 the cluster does not answer.
""",
)
@click.option("--watch", "watches", is_flag=True, help="Print the table whenever it changes.")
@cluster_options
@snapshot_option
@_memory_option
@output_option(*FORMATS)
@click.pass_context
def elastic(ctx: click.Context, /, **options: Any) -> ExitCode | None:
    """Show elastic quotas: min, max, used, borrowed, lent, guaranteed, headroom.

    Reads the ElasticQuotas and CompositeElasticQuotas of nos.nebuly.com/v1alpha1 and the pods that
    have a node. Changes nothing. Quotas count in namespaces that have opted in, whose binds are
    charged by them.
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
Exit status: 0 there is a plan, or nothing has to be evicted, 1 nothing helps, or there is no such
pod, 2 wrong usage or bad input, 4 the cluster does not answer.
""",
)
@click.argument("pod", metavar="[POD]", default="", shell_complete=complete_names("pod"))
@namespace_option("Namespace of the pod.")
@click.option(
    "-f",
    "--filename",
    "filename",
    metavar="FILE|-",
    help="Manifest of a pod, or of a workload, that is not there yet.",
)
@cluster_options
@snapshot_option
@_memory_option
@click.option(
    "--label-order",
    type=click.Choice(_ORDERS),
    default=_ORDERS[0],
    show_default=True,
    help="What decides first which pods are over their quota.",
)
@output_option(*FORMATS)
def plan(**options: Any) -> ExitCode:
    """Say which pods would have to be evicted so that a pod can be bound.

    A quota may take back its min from quotas above theirs, and beyond it the share of the spare
    that is guaranteed to it from those above min and guaranteed. Changes nothing.
    """
    from webhook.cli.elastic import plan as body  # noqa: PLC0415 - help must not wait for it

    return body(**options)
