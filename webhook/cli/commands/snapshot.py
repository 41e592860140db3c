"""Options and help of `snapshot`.

Nothing is imported here that the body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

from typing import Any

import click

from webhook.cli.exit_codes import ExitCode
from webhook.cli.options import NAMESPACE, Command, cluster_options, system_namespace_option


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota snapshot cluster.json.gz
  deferred-quota snapshot -n team-a -n team-b teams.json
  deferred-quota explain pod web-1 -n team-a --snapshot cluster.json.gz

\b
Exit status:
  0  success
  2  invalid usage, or the file cannot be written
  4  the cluster does not answer
""",
)
@click.argument("file", default="-", metavar="[FILE]")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    type=NAMESPACE,
    multiple=True,
    help="Save only objects of this namespace and cluster-scoped objects. Repeatable. Default: all"
    " namespaces. What depends on other namespaces, such as free room on nodes, is then unknown.",
)
@cluster_options
@system_namespace_option
def snapshot(**options: Any) -> ExitCode:
    """Save the cluster objects that other commands read with --snapshot.

    Writes to FILE (default: standard output), compressed if its name ends in .gz. For `explain`,
    `check`, `top`, `doctor`, `elastic`, `review` and `replay`.

    Includes names, labels, images and amounts. Omits environment variables, commands, mounts,
    Secrets, ConfigMaps of others, and annotations that deferred-quota does not read. Kinds that you
    may not read are listed in the file, and in answers from it.
    """
    from webhook.cli.files.snapshot import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)
