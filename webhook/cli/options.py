"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

FORMATS = ("text", "json", "yaml")
"""How commands about a cluster print their results."""

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(slots=True)
class Session:
    """Values of the shared options; the root of the context's objects."""

    debug: bool = False
    """Whether a fault of this program shows its traceback."""
    kept: list[object] | None = None
    """What stays until the process ends; None where other things run in it afterwards."""


def keep(*values: object) -> None:
    """Keep large values until the process ends, where it ends with the command.

    To take millions of small objects apart takes as long as some commands need for their answer.
    """
    context = click.get_current_context(silent=True)
    session = None if context is None else context.find_object(Session)
    if session is not None and session.kept is not None:
        session.kept.extend(values)


@contextmanager
def uncollected() -> Iterator[None]:
    """Do without the cyclic collector: it would walk over millions of objects that all stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()  # else the next allocation would walk over them after all
            gc.enable()


def _set_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Session).debug = True


def _set_no_color(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.color = False


SHARED: tuple[click.Option, ...] = (
    click.Option(
        ["--debug"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_set_debug,
        help="Print tracebacks of internal errors; also DEFERRED_QUOTA_DEBUG=1.",
    ),
    click.Option(
        ["--no-color"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_set_no_color,
        help="Disable colors; also NO_COLOR=1.",
    ),
)
"""The options of every command."""


class Command(click.Command):
    """A command that also has the `SHARED` options: use `@click.command(cls=Command)`."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with those that every command has."""
        return [*super().get_params(ctx), *SHARED]


def version_option(text: str) -> Callable[[_F], _F]:
    """Return a decorator for `--version`, which prints the text and ends."""

    def show(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(text)
            ctx.exit()

    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show the version and exit.",
    )


class NamespaceName(click.ParamType[str]):
    """Name that a namespace can have; others would only be found nowhere."""

    name = "text"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the name; refuse, in the API server's words, what is none."""
        # help must not wait for it
        from webhook.quota.objects.names import dns_label_errors  # noqa: PLC0415

        text = str(value)
        for error in dns_label_errors(text):
            self.fail(f"{text!r}: {error}", param, ctx)
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names in the cluster that begin like it."""
        from webhook.cli.completion import complete_names  # noqa: PLC0415

        names = complete_names("namespace")(ctx, param, incomplete)
        return [CompletionItem(name) for name in names]


NAMESPACE: Final = NamespaceName()


def filename_option(command: _F) -> _F:
    """Add `-f/--filename`, as `filenames`, and `-R/--recursive`."""
    recursive = click.option(
        "-R", "--recursive", is_flag=True, help="Read directories recursively."
    )
    filename = click.option(
        "-f",
        "--filename",
        "filenames",
        multiple=True,
        type=click.Path(allow_dash=True),
        metavar="FILE|DIR|-",
        help="Manifests: a file, a directory (.yaml, .yml, .json) or - for stdin. Repeatable.",
    )
    return filename(recursive(command))


def namespace_option(text: str, default: str = "") -> Callable[[_F], _F]:
    """Return a decorator for `-n/--namespace` of one namespace, with its help.

    Without a default it may be None, for `cluster_options.namespace_of`.
    """
    shown = True if default else "the kubeconfig context's, else default"
    return click.option(
        "-n", "--namespace", type=NAMESPACE, default=default or None, show_default=shown, help=text
    )


def namespaces_argument(*, required: bool) -> Callable[[_F], _F]:
    """Return a decorator for names of namespaces, as `namespaces`."""
    metavar = "NAMESPACE..." if required else "[NAMESPACE]..."
    return click.argument(
        "namespaces", type=NAMESPACE, nargs=-1, required=required, metavar=metavar
    )


def output_option(*formats: str) -> Callable[[_F], _F]:
    """Return a decorator for `-o/--output`; the first format is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Output format.",
    )


class _Seconds(click.FloatRange):
    """Time that is not negative; `nan`, which no wait would ever reach, is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


SECONDS: Final = _Seconds(min=0)
"""Type of options that take a time."""


def wait_option(seconds: float, text: str) -> Callable[[_F], _F]:
    """Return a decorator for `--wait`, with its default and its help."""
    return click.option(
        "--wait",
        "seconds",
        type=SECONDS,
        default=seconds,
        show_default=True,
        help=text,
    )


def cluster_options(command: _F) -> _F:
    """Add `--kubeconfig` and `--context`."""
    context = click.option("--context", help="Kubeconfig context. Default: its current context.")
    kubeconfig = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Kubeconfig file. Default: $KUBECONFIG, else ~/.kube/config, else the pod's service"
        " account.",
    )
    return kubeconfig(context(command))


snapshot_option = click.option(
    "--snapshot",
    "snapshots",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Read objects from a file, as kubectl prints them, instead of from a cluster. Repeatable.",
)
"""`--snapshot`, as `snapshots`."""

system_namespace_option = click.option(
    "--system-namespace",
    type=NAMESPACE,
    metavar="NAME",
    help="Namespace of the installation. Default: found through the webhook registration.",
)
"""`--system-namespace`, by default as it is found in the cluster."""

installed_config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file. Default: the one installed in the cluster, else built-in defaults.",
)
"""`--config`, by default what is installed in the cluster."""

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration file. Default: built-in defaults.",
)
