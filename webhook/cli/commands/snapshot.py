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
Exit status: 0 written, 2 wrong usage, or the file cannot be written,
4 the cluster does not answer.
""",
)
@click.argument("file", default="-", metavar="[FILE]")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    type=NAMESPACE,
    multiple=True,
    help="Only objects of this namespace, and those outside of namespaces; can be repeated. What"
    " needs other namespaces, such as the room on nodes, is then not known.",
)
@cluster_options
@system_namespace_option
def snapshot(**options: Any) -> ExitCode:
    """Write what `explain`, `check`, `top`, `doctor`, `elastic` and `review` read of a cluster.

    FILE is standard output where it is left out, and compressed where its name ends in .gz. Left
    out of it are environments, commands, mounts, Secrets and ConfigMaps of others, and annotations
    that this product does not read; names, labels, images and amounts stay. Kinds that may not be
    read are named in the file, and answers from it say so.
    """
    from webhook.cli.files.snapshot import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)
