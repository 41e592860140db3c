"""Completion of the command line: scripts for shells, and names out of the cluster.

A name is asked of the cluster only when the Tab key is pressed behind an argument that takes one,
in what is left of `LIMIT_SECONDS`; whatever goes wrong, nothing is offered and nothing is printed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click
from click.shell_completion import ShellComplete, get_completion_class

from webhook import STARTED

PROGRAM: Final = "deferred-quota"
SHELLS: Final = ("bash", "zsh", "fish")
_VARIABLE: Final = "_DEFERRED_QUOTA_COMPLETE"
LIMIT_SECONDS = 0.28
"""From the start of the program to an answer of the cluster: with Python's own, 300 ms."""
_MOST: Final = 500
"""Names that are asked for; a list of more is of no use on a terminal."""
_NO_FILES: Final = ":4"
"""Cobra's ShellCompDirectiveNoFileComp: kubectl offers no files instead."""

_FILES: Final = ":0"
"""Its ShellCompDirectiveDefault: files are offered, as there is nothing else."""

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def script_of(shell: str, group: click.Command) -> str:
    """Return what a shell has to read to complete this program."""
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    return found(group, {}, PROGRAM, _VARIABLE).source()


def complete_names(word: str = "") -> Complete:
    """Return a function that completes names of a kind of objects.

    Args:
        word: The kind as `explain` calls it, or `namespace`; empty: that of the argument KIND.
    """

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        given = dict(ctx.params)
        chosen = word or str(given.get("kind") or "")
        found: list[str] = []
        names = _reader_of(chosen, given)

        def read() -> None:
            with contextlib.suppress(Exception):
                found.extend(names())

        # a helper of the kubeconfig may take minutes: the thread is left behind
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(_seconds_left())
        return sorted(name for name in list(found) if name.startswith(incomplete))

    return complete


def _seconds_left() -> float:
    return max(0.0, STARTED + LIMIT_SECONDS - time.monotonic())


def _reader_of(word: str, given: Mapping[str, Any]) -> Callable[[], Sequence[str]]:
    """Return what reads the names of a kind; what it needs is imported by then."""
    # imported late: completing the name of a command needs none of it
    from webhook.kube.kinds import KNOWN_KINDS  # noqa: PLC0415
    from webhook.kube.rest import RestClient, load_config  # noqa: PLC0415

    kind = next((one for one in KNOWN_KINDS if one.kind.lower() == word), None)

    def names() -> Sequence[str]:
        if kind is None:
            return ()
        config = load_config(given.get("kubeconfig"), given.get("context"))
        client = RestClient(config, user_agent=PROGRAM, timeout_seconds=LIMIT_SECONDS)
        namespace = str(given.get("namespace") or config.namespace) if kind.namespaced else None
        return client.names(kind, namespace=namespace, limit=_MOST)

    return names


def kubectl_main() -> None:
    """Complete `kubectl deferred-quota`: what kubectl runs as `kubectl_complete-deferred_quota`.

    Its arguments are the words behind the plugin's name, the last one unfinished; one completion
    goes to each line, and a directive to the last.
    """
    from webhook.cli.app import cli  # noqa: PLC0415 - that module imports this one

    *words, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(cli, {}, PROGRAM, _VARIABLE).get_completions(words, incomplete)
    if any(one.type != "plain" for one in found):
        click.echo(_FILES)
        return
    for one in found:
        click.echo(one.value)
    click.echo(_NO_FILES)
