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
    """Print a shell completion script.

    It completes commands, options, and names of namespaces, pods and workloads. Names
    are read from the cluster, with a timeout of 0.3 seconds. kubectl completes `kubectl
    deferred-quota` if the program `kubectl_complete-deferred_quota` is in the PATH.
    """
    click.echo(script_of(shell, ctx.find_root().command))
