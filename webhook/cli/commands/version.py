"""`deferred-quota version`."""

from __future__ import annotations

import platform

import click

from webhook import __version__
from webhook.cli.options import Command, output_option

KUBERNETES_RULES = "1.36"
"""The Kubernetes release whose quota rules the engine follows."""


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota version
  deferred-quota version -o json
""",
)
@output_option("text", "json")
def version(output: str) -> None:
    """Show version information.

    Prints the versions of deferred-quota and Python, and the Kubernetes release whose quota rules
    are followed.
    """
    facts = {
        "version": __version__,
        "python": platform.python_version(),
        "kubernetesRules": KUBERNETES_RULES,
    }
    if output == "json":
        from webhook.cli.printing.output import print_json  # noqa: PLC0415 - help must not wait for it

        print_json({"schemaVersion": 1, **facts})
    else:
        click.echo(_text(facts))


def _text(facts: dict[str, str]) -> str:
    return (
        f"deferred-quota {facts['version']}\n"
        f"python {facts['python']}\n"
        f"kubernetes rules {facts['kubernetesRules']}"
    )
