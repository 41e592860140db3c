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
Exit status: 0 nothing found, 1 something is refused or waits, 2 input that cannot be read,
3 only warnings, with --fail-on warn, 4 the cluster does not answer.
""",
)
@filename_option
@namespace_option("Namespace of objects that do not name one; without --live, default.")
@click.option(
    "--live",
    is_flag=True,
    help="Judge by the cluster of the kubeconfig as it is now; it is only read.",
)
@cluster_options
@snapshot_option
@installed_config_option
@click.option(
    "--rollout",
    type=click.Choice(("steady", "surge", "recreate")),
    default="surge",
    show_default=True,
    help="Count the finished state, or the peak of a rollout: by each object's strategy, or with"
    " old pods gone first.",
)
@click.option(
    "--max-simultaneous-rollouts",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many objects of a namespace roll out at the same time; else all of them.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=0),
    metavar="N",
    help="How many nodes run the pod of a DaemonSet; else those that are known, or one.",
)
@click.option(
    "--template-path",
    "template_paths",
    multiple=True,
    metavar="KIND[.GROUP]=PATH[:COUNT]",
    help="Where a kind has pod templates, and beside them their number. Repeatable.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="RULE[:OBJECT]",
    help="Leave findings out: of a rule, or of objects by a glob on NAMESPACE/KIND/NAME,"
    " KIND/NAME or NAME. Repeatable.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("refuse", "wait", "warn", "never")),
    default="wait",
    show_default=True,
    help="The least that makes the exit status 1.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="FORMAT[=FILE]",
    callback=_check_outputs,
    help=f"{', '.join(FORMATS)}; text by default. Repeatable, all but one to files.",
)
@click.option(
    "--options-file",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_read_defaults,
    metavar="FILE",
    help=f"Values of these options, by their long names; else {_DEFAULTS_FILE}, if it is there.",
)
def check(**options: Any) -> ExitCode:
    """Say what a cluster would make of manifests: admitted, waits, refused, and by which rule.

    Objects are judged in their order, each beside what the ones before it take: with the defaults
    of LimitRanges, PriorityClasses and RuntimeClasses, the quotas for pods and for objects, and the
    nodes where they are known. The quotas are those of the manifests themselves, and those of a
    cluster with what is used of them: --snapshot, or --live.

    Every option has an environment variable: DEFERRED_QUOTA_CHECK_FAIL_ON for --fail-on.
    """
    from webhook.cli.files.check import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)
