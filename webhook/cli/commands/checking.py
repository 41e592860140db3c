"""Options and help of `check`.

Nothing is imported here that the body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from webhook.cli.exit_codes import ExitCode
from webhook.cli.options import (
    Command,
    cluster_options,
    filename_option,
    installed_config_option,
    namespace_option,
    snapshot_option,
)

FORMATS = ("text", "json", "junit", "sarif", "github", "tap", "table")

_DEFAULTS_FILE = Path(".deferred-quota-check.yaml")


def _read_defaults(ctx: click.Context, _param: click.Parameter, value: Path | None) -> Path | None:
    """Take the values of options that the command line does not give from a file."""
    path = value if value is not None else _DEFAULTS_FILE
    if value is None and not path.is_file():
        return value
    from webhook.cli.files.option_files import read_option_file  # noqa: PLC0415 - as the body

    ctx.default_map = read_option_file(path, ctx.command)
    return value


def _check_outputs(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    for text in value:
        name, equals, file = text.partition("=")
        if name not in FORMATS or (equals and not file):
            forms = ", ".join(FORMATS)
            raise click.BadParameter(f"{text!r}: must be FORMAT or FORMAT=FILE, of {forms}")
    files = [file for _, _, file in (text.partition("=") for text in value) if file]
    for file in files:
        if files.count(file) > 1:
            raise click.BadParameter(f"{file}: two outputs cannot go to one file")
    return value


@click.command(
    cls=Command,
    context_settings={"auto_envvar_prefix": "DEFERRED_QUOTA_CHECK"},
    epilog="""\b
Examples:
  deferred-quota check -f deploy/ -R
  kustomize build . | deferred-quota check -f - --snapshot cluster.yaml
  helm template web chart/ | deferred-quota check -f - --live -n team-a
  deferred-quota check -f deploy/ -o text -o sarif=check.sarif -o junit=check.xml
  deferred-quota check -f ray.yaml --template-path \\
    'RayCluster.ray.io=spec.workerGroupSpecs[*].template:replicas'

\b
Exit status:
  0  no findings at or above --fail-on
  1  an object is refused, or waits
  2  unreadable input
  3  only warnings, with --fail-on warn
  4  the cluster does not answer
""",
)
@filename_option
@namespace_option("Namespace of objects without metadata.namespace. Without --live: default.")
@click.option(
    "--live",
    is_flag=True,
    help="Read quotas, usage and nodes from the cluster of the kubeconfig. Changes nothing.",
)
@cluster_options
@snapshot_option
@installed_config_option
@click.option(
    "--rollout",
    type=click.Choice(("steady", "surge", "recreate")),
    default="surge",
    show_default=True,
    help="State to check: steady is after a rollout, surge is its peak by each object's strategy,"
    " recreate deletes old pods first.",
)
@click.option(
    "--max-simultaneous-rollouts",
    type=click.IntRange(min=1),
    metavar="N",
    help="Objects per namespace that roll out at the same time. Default: all.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of nodes that each DaemonSet runs on. Default: the known nodes, else 1.",
)
@click.option(
    "--template-path",
    "template_paths",
    multiple=True,
    metavar="KIND[.GROUP]=PATH[:COUNT]",
    help="Path of the pod templates of a custom kind, and of their replica count next to it."
    " Repeatable.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="RULE[:OBJECT]",
    help="Ignore findings of a rule, for all objects or those that match a glob on"
    " NAMESPACE/KIND/NAME, KIND/NAME or NAME. Repeatable.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("refuse", "wait", "warn", "never")),
    default="wait",
    show_default=True,
    help="Lowest level of a finding that makes the command fail.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="FORMAT[=FILE]",
    callback=_check_outputs,
    help=f"Output format: {', '.join(FORMATS)}. Default: text. Repeatable: all but one to a FILE.",
)
@click.option(
    "--options-file",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_read_defaults,
    metavar="FILE",
    help=f"YAML file with values of these options, by long name. Default: {_DEFAULTS_FILE}, if it"
    " exists.",
)
def check(**options: Any) -> ExitCode:
    """Check whether manifests fit quotas, rules and nodes.

    Prints whether each object is admitted, waits or is refused, and by which rule. Objects are
    checked in order, each on top of those before it. Applies the defaults of LimitRanges,
    PriorityClasses and RuntimeClasses, quotas for pods and for objects, and node sizes if known.

    Reads quotas from the manifests, and with their usage from a cluster: --snapshot or --live.

    Each option has an environment variable, such as DEFERRED_QUOTA_CHECK_FAIL_ON for --fail-on.
    """
    from webhook.cli.files.check import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)
