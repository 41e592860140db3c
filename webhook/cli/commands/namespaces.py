"""Options and help of the commands about namespaces: `enable`, `disable`, `shadow`, `doctor`.

Nothing is imported here that a body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

from typing import Any

import click

from webhook.cli.exit_codes import ExitCode
from webhook.cli.options import (
    FORMATS,
    NAMESPACE,
    SECONDS,
    Command,
    cluster_options,
    installed_config_option,
    namespaces_argument,
    output_option,
    snapshot_option,
    wait_option,
)
from webhook.state.well_known import DEFAULT_NAMESPACE

system_namespace_option = click.option(
    "--namespace",
    "system_namespace",
    type=NAMESPACE,
    metavar="NAME",
    help="Namespace of the installation. Default: found through the webhook registration, else"
    f" {DEFAULT_NAMESPACE}.",
)
"""`--namespace`, by default where the registration of the webhook says."""


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota enable team-a --dry-run
  deferred-quota enable team-a team-b
  deferred-quota enable team-a --wait 300 -o json
  deferred-quota enable team-a --dry-run --snapshot cluster.yaml
  deferred-quota enable --shadow team-a && deferred-quota shadow report team-a

\b
Exit status:
  0  opted in and in force
  1  not opted in, because of errors
  3  opted in, but not in force, because of errors or a timeout
  4  the cluster does not answer
""",
)
@namespaces_argument(required=True)
@click.option("--dry-run", is_flag=True, help="Print what would change; change nothing.")
@click.option(
    "--shadow",
    "is_shadow",
    is_flag=True,
    help="Opt in to shadow mode: decisions are recorded, but nothing is denied, gated or masked."
    " See `deferred-quota shadow report`.",
)
@wait_option(60.0, "Seconds to wait for each namespace until it is in force.")
@click.option(
    "--force",
    is_flag=True,
    help="Opt in despite errors, such as a missing mask. Does not override a missing QuotaLedger"
    " CRD or an exempt namespace.",
)
@cluster_options
@snapshot_option
@system_namespace_option
@installed_config_option
@output_option(*FORMATS)
def enable(**options: Any) -> ExitCode:
    """Opt namespaces in to deferred quota: pods are charged at the bind, not at creation.

    Checks the installation and the namespaces, and stops at errors. Then sets the label
    deferredquota.io/mode and waits until every quota is masked and counted. Changes no pod. Can be
    repeated: it then verifies. Prints for each quota the usage now and at the bind.
    """
    from webhook.cli.enable import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota disable team-a
  deferred-quota disable team-a team-b --dry-run
  deferred-quota disable team-a -o json
  kubectl get ns -l deferredquota.io/mode -o name | cut -d/ -f2 | xargs -r deferred-quota disable

\b
Exit status:
  0  opted out
  1  the namespace does not exist, or not confirmed
  3  unfinished: run it again, or a permission is missing
  4  the cluster does not answer, or does not accept the credentials
""",
)
@namespaces_argument(required=True)
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@wait_option(120.0, "Seconds to keep trying in each namespace.")
@cluster_options
@output_option(*FORMATS)
def disable(**options: Any) -> ExitCode:
    """Opt namespaces out of deferred quota: the API server charges pods at creation again.

    Removes the label and the scheduling gates of queued pods, and completes the status of the
    quotas. All queued pods start at once, even above quota: their number and requests are printed
    first, and a terminal asks for confirmation. No pod is evicted. Quotas above their hard limit
    are printed. Can be repeated: it continues an interrupted run.
    """
    from webhook.cli.disable import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota doctor
  deferred-quota doctor team-a team-b --fail-on warn
  deferred-quota doctor -o json | jq '.findings[] | select(.severity == "error")'
  deferred-quota doctor --snapshot cluster.yaml
  kubectl kustomize manifests/overlays/default | deferred-quota doctor --snapshot /dev/stdin
  deferred-quota doctor --pause 120

\b
Exit status:
  0  no errors
  1  errors
  3  warnings, with --fail-on warn
  4  the cluster does not answer
""",
)
@namespaces_argument(required=False)
@cluster_options
@snapshot_option
@system_namespace_option
@installed_config_option
@click.option(
    "--pause",
    "pause_seconds",
    type=SECONDS,
    default=3.0,
    show_default=True,
    help="Seconds between two reads of values that may be changing. Above 90, twice the default"
    " lifetime of a reservation, also finds reservations that never expire.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("warn", "error")),
    default="error",
    show_default=True,
    help="Lowest severity that makes the command fail.",
)
@output_option(*FORMATS)
def doctor(**options: Any) -> ExitCode:
    """Check the installation and report problems.

    Checks the CRDs, the webhook registrations and their CA, the mask, the controller, the status of
    quotas, the ledgers against a recount of pods, the shares of cluster quotas, waiting pods, and
    permissions to bypass quotas. With NAMESPACE, checks only these and the installation. Changes
    nothing: it reads, and sends a dry-run bind of a pod that does not exist. Prints each problem
    with its remedy.
    """
    from webhook.cli.doctor import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)


@click.group(
    epilog="""\b
Examples:
  deferred-quota enable --shadow team-a
  deferred-quota shadow report team-a
  deferred-quota enable team-a
"""
)
def shadow() -> None:
    """Show what opting in would change.

    In shadow mode decisions are recorded, but nothing is denied, gated or masked. Start it with
    `deferred-quota enable --shadow`. End it with `enable` or `disable`.
    """


@shadow.command(
    "report",
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota shadow report
  deferred-quota shadow report team-a team-b
  deferred-quota shadow report -o json | jq '.namespaces[] | {namespace, creations}'
  deferred-quota shadow report --snapshot cluster.yaml

\b
Exit status:
  0  success
  1  a given namespace has no record
  4  the cluster does not answer
""",
)
@namespaces_argument(required=False)
@cluster_options
@snapshot_option
@output_option(*FORMATS)
def report(**options: Any) -> ExitCode:
    """Show the records of shadow mode, by default of all namespaces.

    Prints for each namespace: creations that quota denies now and their outcome if deferred, pods
    that would have been queued or denied at the bind, and for each quota the amounts charged and
    assigned to nodes. Changes nothing.
    """
    from webhook.cli.shadow import run_report  # noqa: PLC0415 - help must not wait for it

    return run_report(**options)


@shadow.command(
    "reset",
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota shadow reset team-a
  deferred-quota shadow report team-a -o yaml > before.yaml && deferred-quota shadow reset team-a

\b
Exit status:
  0  success
  1  no record, or no such namespace
  4  the cluster does not answer
""",
)
@namespaces_argument(required=True)
@cluster_options
def reset(**options: Any) -> ExitCode:
    """Delete the records of shadow mode.

    A namespace in shadow mode starts a new record within a minute. Creations of the last ten
    seconds may still be added to it.
    """
    from webhook.cli.shadow import run_reset  # noqa: PLC0415 - help must not wait for it

    return run_reset(**options)
