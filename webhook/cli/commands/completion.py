"""Options and help of `completion`."""

from __future__ import annotations

import click

from webhook.cli.completion import SHELLS, script_of
from webhook.cli.options import Command


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  eval "$(deferred-quota completion bash)"             # in ~/.bashrc
  eval "$(deferred-quota completion zsh)"              # in ~/.zshrc
  deferred-quota completion fish > ~/.config/fish/completions/deferred-quota.fish
""",
)
@click.argument("shell", type=click.Choice(SHELLS), metavar="bash|zsh|fish")
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Print what a shell reads to complete commands, options and names.

    Names of namespaces, pods and workloads are asked of the cluster, for 0.3 s at
    most. `kubectl deferred-quota` is completed by kubectl itself where the program
    `kubectl_complete-deferred_quota` is in the PATH.
    """
    click.echo(script_of(shell, ctx.find_root().command))
