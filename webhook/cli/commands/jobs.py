"""Options and help of `job`.

Nothing is imported here that a body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from webhook.cli.completion import complete_names
from webhook.cli.exit_codes import ExitCode
from webhook.cli.options import (
    FORMATS,
    SECONDS,
    Command,
    cluster_options,
    installed_config_option,
    namespace_option,
    output_option,
)

if TYPE_CHECKING:
    from webhook.quota.amounts.quantity import Quantity
    from webhook.quota.amounts.resources import ResourceList

_PERCENTILE = re.compile(r"p([1-9]\d?|100)", flags=re.ASCII)


class Amounts(click.ParamType["ResourceList"]):
    """Amounts such as `cpu=2,memory=4Gi`."""

    name = "amounts"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> ResourceList:
        """Read them as exact quantities, by the name of the resource."""
        if not isinstance(value, str):
            self.fail(f"{value!r} is not NAME=QUANTITY[,...]", param, ctx)
        # help must not wait for it
        from webhook.quota.amounts.quantity import InvalidQuantityError, Quantity  # noqa: PLC0415

        amounts: dict[str, Quantity] = {}
        for part in value.split(","):
            name, equals, text = part.partition("=")
            if not (name and equals):
                self.fail(f"{part!r} is not NAME=QUANTITY", param, ctx)
            if name in amounts:
                self.fail(f"{name}: is given twice", param, ctx)
            try:
                amounts[name] = Quantity.parse(text, field=name)
            except InvalidQuantityError as err:
                self.fail(str(err), param, ctx)
        return amounts


class Percentile(click.ParamType[int]):
    """A percentile such as `p95`."""

    name = "percentile"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Read its number."""
        found = _PERCENTILE.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is not p1 to p100", param, ctx)
        return int(found[1])


@click.group(
    epilog="""\b
Examples:
  deferred-quota job resize train -n team-a --requests cpu=2,memory=4Gi
  deferred-quota job resize --help
"""
)
def job() -> None:
    """Change the resources of Jobs."""


@job.command(
    "resize",
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota job resize train -n team-a --requests cpu=2,memory=4Gi
  deferred-quota job resize train -n team-a --requests cpu=2 --limits cpu=2 --dry-run
  deferred-quota job resize train -n team-a --container main --from-usage p95
  deferred-quota job resize train -n team-a --requests cpu=1 --stay-suspended --timeout 600

\b
Exit status:
  0  resized, or nothing to do
  1  denied, timed out, or prevented by another client
  2  invalid usage, or no such container
  4  the cluster does not answer
""",
)
@click.argument("name", metavar="NAME", shell_complete=complete_names("job"))
@namespace_option("Namespace of the Job.")
@click.option(
    "--requests",
    type=Amounts(),
    metavar="NAME=QUANTITY,...",
    help="New requests. Others stay unchanged.",
)
@click.option(
    "--limits",
    type=Amounts(),
    metavar="NAME=QUANTITY,...",
    help="New limits. Others stay unchanged.",
)
@click.option(
    "--container",
    help="Container or init container to change. Required with --requests or --limits if the"
    " template has several. Default with --from-usage alone: all.",
)
@click.option(
    "--from-usage",
    "percent",
    type=Percentile(),
    metavar="pN",
    help="Set the cpu and memory requests of each container to the N-th percentile (p1 to p100) of"
    " its current usage over the pods of the Job. metrics.k8s.io has one sample per pod, of some"
    " seconds, and no history. Rounded up to 1m and 1Mi. --requests takes precedence.",
)
@click.option("--stay-suspended", is_flag=True, help="Leave the Job suspended after the change.")
@click.option(
    "--timeout",
    "seconds",
    type=SECONDS,
    default=120.0,
    show_default=True,
    help="Seconds to wait until no pod is active. Then the Job is resumed unchanged.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the plan; change nothing. The API server checks it, but checks resources only if"
    " the Job is suspended and has no active pods.",
)
@cluster_options
@installed_config_option
@output_option(*FORMATS)
def resize_command(**options: Any) -> ExitCode:
    """Change the resources of a Job.

    Suspends the Job, waits until no pod is active, changes its template and resumes it, the last
    two in one write. The pods of a running Job are deleted, and work that they have not saved is
    lost. New pods start with the new resources. If a step fails or is interrupted before the
    change, the Job is resumed unchanged. A Job that was suspended stays suspended.
    """
    from webhook.cli.job import run_resize  # noqa: PLC0415 - help must not wait for it

    return run_resize(**options)
