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
    help="Namespace of the installation; else the one that the webhook's registration names,"
    f" else {DEFAULT_NAMESPACE}.",
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
Exit status: 0 opted in and in force, 1 refused: something stands in the way,
3 opted in, but not in force: something stands in the way, or the time was up,
4 the cluster does not answer.
""",
)
@namespaces_argument(required=True)
@click.option("--dry-run", is_flag=True, help="Say what would change and change nothing.")
@click.option(
    "--shadow",
    "is_shadow",
    is_flag=True,
    help="Only watch: nothing is refused, gated or masked, and `deferred-quota shadow report` says"
    " what deferring would change.",
)
@wait_option(60.0, "Seconds to wait for each namespace until its quotas are deferred.")
@click.option(
    "--force",
    is_flag=True,
    help="Opt in although something stands in the way, such as a mask that is missing. Not"
    " overridden: a missing definition of ledgers, an exempt namespace.",
)
@cluster_options
@snapshot_option
@system_namespace_option
@installed_config_option
@output_option(*FORMATS)
def enable(**options: Any) -> ExitCode:
    """Opt namespaces in: their pods are charged when they get a node, not when they are created.

    Looks first whether everything needed is installed and alive, and what the namespaces hold;
    errors stand in the way, warnings are printed. Then sets the label and waits until every quota
    is masked and counted, in several namespaces at once. Run again, it verifies. No pod is touched.
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
Exit status: 0 done, 1 there is no such namespace, or not confirmed,
3 something is left to do: run it again, or a right is missing, 4 the cluster
does not answer, or knows no user by these credentials.
""",
)
@namespaces_argument(required=True)
@click.option("--dry-run", is_flag=True, help="Say what would be done and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask whether waiting pods may start.")
@wait_option(120.0, "Seconds to go on for in each namespace.")
@cluster_options
@output_option(*FORMATS)
def disable(**options: Any) -> ExitCode:
    """Opt namespaces out: the API server charges their pods when they are created, as before.

    Removes the label, takes the scheduling gate off every pod that waits, and completes the status
    of the quotas so that all of them are enforced at once. All pods that wait start at once, within
    quota or not: how many, and what they request, is printed before, and confirmed on a terminal.
    No pod is evicted; quotas that are over their limit now are named. Several namespaces are worked
    on at once. It may be run again at any time, and finishes what was interrupted.
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
Exit status: 0 no errors, 1 errors, 3 warnings with --fail-on warn,
4 the cluster does not answer.
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
    help="Seconds between two looks at what may be changing just now. More than twice the time"
    " that reservations are kept (45) also finds those that never end.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("warn", "error")),
    default="error",
    show_default=True,
    help="What makes the exit status other than 0.",
)
@output_option(*FORMATS)
def doctor(**options: Any) -> ExitCode:
    """Look whether everything is installed, enforced and counted as it should be.

    Looks at the definitions of what is kept, the webhooks, their CA, the mask, the status of
    quotas, the controller, the ledgers against a recount of the pods, what namespaces hold of
    quotas that they share, pods that wait, and who could go around all of it. Changes nothing: it
    reads, and tries the bind of a pod that does not exist, by a dry run. With NAMESPACE, only what
    concerns these and the installation.
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
    """Report what opting namespaces in would change: begin with enable --shadow.

    In shadow mode nothing is refused, gated or masked. End it with disable, or with enable.
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
Exit status: 0 reported, 1 a namespace that was named has no record,
4 the cluster does not answer.
""",
)
@namespaces_argument(required=False)
@cluster_options
@snapshot_option
@output_option(*FORMATS)
def report(**options: Any) -> ExitCode:
    """Show what was found, by default in all watched namespaces.

    For each: creations that quota refuses now and what would become of them, pods that would have
    waited or been refused at their bind, and how much of each quota is charged and how much is
    really assigned to nodes. Only reads.
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
Exit status: 0 done, 1 there was no record or no such namespace, 4 the cluster does not answer.
""",
)
@namespaces_argument(required=True)
@cluster_options
def reset(**options: Any) -> ExitCode:
    """Take the records away.

    Of namespaces in shadow mode new ones begin within a minute. Creations of the last ten seconds
    before may still be added to the new record.
    """
    from webhook.cli.shadow import run_reset  # noqa: PLC0415 - help must not wait for it

    return run_reset(**options)
