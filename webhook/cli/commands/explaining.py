"""Options and help of `explain`.

Nothing is imported here that the body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from webhook.cli.completion import complete_names
from webhook.cli.exit_codes import ExitCode
from webhook.cli.options import (
    FORMATS,
    Command,
    cluster_options,
    installed_config_option,
    namespace_option,
    output_option,
    snapshot_option,
    system_namespace_option,
)

_SHORT = {
    "po": "pod",
    "deploy": "deployment",
    "sts": "statefulset",
    "rs": "replicaset",
    "ds": "daemonset",
    "cj": "cronjob",
}
_KINDS = ("pod", "job", "deployment", "statefulset", "replicaset", "daemonset", "cronjob")
_NAME = "deferredquota.io/name"
"""Where the name of KIND/NAME is kept."""


class _Kind(click.Choice[str]):
    """A kind as kubectl takes it: in the singular, the plural or short, or with a name."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the kind; the name of KIND/NAME goes to the context."""
        word, is_named, name = str(value).partition("/")
        if is_named and ctx is not None:
            ctx.meta[_NAME] = name
        return super().convert(_kind_of(word), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the kind, and behind it and a slash the name."""
        word, is_named, name = incomplete.partition("/")
        if not is_named:
            return super().shell_complete(ctx, param, incomplete)
        names = complete_names(_kind_of(word))(ctx, param, name)
        return [CompletionItem(f"{word}/{each}") for each in names]


def _kind_of(word: str) -> str:
    word = word.lower()
    singular = word.removesuffix("s")
    return _SHORT.get(word) or (singular if singular in _KINDS else word)


def _only_name(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Return the name, which stands beside the kind or behind it."""
    behind = ctx.meta.get(_NAME)
    if value and behind:
        raise click.BadParameter(f"{ctx.params.get('kind')}/{behind} names the object already")
    if not (value or behind) and not ctx.resilient_parsing:
        raise click.MissingParameter(ctx=ctx, param=param)
    return value or behind or ""


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota explain pod web-1 -n team-a
  deferred-quota explain job train -n team-a -o json
  deferred-quota explain deployment web -n team-a --watch
  kubectl get ns,quota,pods,nodes,leases,ql,cdq -A -o yaml > cluster.yaml
  deferred-quota explain pod web-1 -n team-a --snapshot cluster.yaml

\b
Exit status:
  0  success
  1  the object does not exist, or you may not read it
  4  the cluster does not answer
""",
)
@click.argument("kind", type=_Kind(_KINDS), metavar="KIND")
@click.argument(
    "name", required=False, metavar="NAME", callback=_only_name, shell_complete=complete_names()
)
@namespace_option("Namespace of the object.")
@click.option(
    "--watch",
    "watches",
    is_flag=True,
    help="Check every two seconds and print each change, until the object runs.",
)
@cluster_options
@snapshot_option
@system_namespace_option
@installed_config_option
@output_option(*FORMATS)
def explain(**options: Any) -> ExitCode:
    """Explain why a pod or workload is pending, and what would unblock it.

    KIND is pod, job, deployment, statefulset, replicaset, daemonset or cronjob. KIND/NAME, plurals
    and the short names of kubectl work, too.

    Lists all current causes, in the order in which to solve them: quotas with their amounts and
    largest pods, the place in the queue, rules, other scheduling gates, the controller, the webhook
    and the scheduler. Amounts come from the ledger and the pods, not from conditions. Changes
    nothing: it reads, and sends a dry-run bind of a pod that does not exist.
    """
    from webhook.cli.explain import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)
