"""The command group: finds commands without importing them, and ends every one the same way."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from pathlib import PurePath
from typing import IO, Any, NoReturn

import click

from webhook import __version__
from webhook.cli.exit_codes import CommandError, ExitCode, printable
from webhook.cli.options import SHARED, Session, version_option

COMMANDS: Mapping[str, tuple[str, str]] = {
    "serve": ("webhook.cli.commands.servers:serve", "Run the admission webhook."),
    "controller": (
        "webhook.cli.commands.servers:controller",
        "Run the controller of ledgers, queues and quota status.",
    ),
    "review": ("webhook.cli.commands.files:review", "Answer AdmissionReviews from a file."),
    "usage": ("webhook.cli.commands.files:usage", "Show the quota usage of pods in manifests."),
    "check": (
        "webhook.cli.commands.checking:check",
        "Check whether manifests fit quotas, rules and nodes.",
    ),
    "convert": (
        "webhook.cli.commands.files:convert",
        "Convert quotas of AAQ, OpenShift and scheduler-plugins.",
    ),
    "simulate": (
        "webhook.cli.commands.simulating:simulate",
        "Simulate a workload under native and deferred quota.",
    ),
    "replay": (
        "webhook.cli.commands.simulating:replay",
        "Replay audit logs under native and deferred quota.",
    ),
    "enable": ("webhook.cli.commands.namespaces:enable", "Opt namespaces in to deferred quota."),
    "disable": (
        "webhook.cli.commands.namespaces:disable",
        "Opt namespaces out of deferred quota.",
    ),
    "emergency": (
        "webhook.cli.commands.emergency:emergency",
        "Bypass the webhook in an outage, and restore it.",
    ),
    "shadow": ("webhook.cli.commands.namespaces:shadow", "Show what opting in would change."),
    "job": ("webhook.cli.commands.jobs:job", "Change the resources of Jobs."),
    "explain": (
        "webhook.cli.commands.explaining:explain",
        "Explain why a pod or workload is pending.",
    ),
    "snapshot": (
        "webhook.cli.commands.snapshot:snapshot",
        "Save the cluster objects that other commands read.",
    ),
    "top": ("webhook.cli.commands.top:top", "Show used, reserved and pending amounts of quotas."),
    "elastic": (
        "webhook.cli.commands.elastic:elastic",
        "Show elastic quotas, and plan evictions.",
    ),
    "doctor": (
        "webhook.cli.commands.namespaces:doctor",
        "Check the installation and report problems.",
    ),
    "certs": ("webhook.cli.commands.certificates:certs", "Create, show and rotate certificates."),
    "completion": (
        "webhook.cli.commands.completion:completion",
        "Print a shell completion script.",
    ),
    "version": ("webhook.cli.commands.version:version", "Show version information."),
}
"""Name → where the command is, and its line in the help."""


class CommandLine(click.Group):
    """A group that imports a command when it runs and turns every end into an `ExitCode`."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        """Take what a group takes, and `lazy`: name → "module:attribute", line of help."""
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands in the order of the help."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command; None if there is none of this name."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands from the table: help must not import them all."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._lazy.items()])

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with those that every command has."""
        return [*super().get_params(ctx), *SHARED]

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the arguments; `--help` into a closed pipe is no error."""
        with _quiet_pipe():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command and write its output out."""
        with _quiet_pipe():
            result: object = super().invoke(ctx)
            _flush()
            return result

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line and exit with its `ExitCode`; `click.Command.main` says the rest."""

        def run() -> object:
            return super(CommandLine, self).main(
                args, prog_name, complete_var, standalone_mode=False, **extra
            )

        if standalone_mode:
            _refuse_lost_output()
        session = _prepare(extra, os.environ)
        return _exit(_run(run, session), session) if standalone_mode else run()


def _prepare(extra: MutableMapping[str, Any], environment: Mapping[str, str]) -> Session:
    session: Session = extra.setdefault("obj", Session())
    session.debug = environment.get("DEFERRED_QUOTA_DEBUG", "") not in ("", "0", "false")
    extra.setdefault("color", False if environment.get("NO_COLOR") else None)
    return session


def _refuse_lost_output() -> None:
    """Let writes to a standard output that is closed fail, which Python drops in silence."""
    output: IO[str] | None = sys.stdout  # None in a process that was started without one
    if output is None:
        # the lowest number that is free, so no file that is opened later gets it by chance
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")


def _run(run: Callable[[], object], session: Session) -> int:
    """Run and return the exit status; the outermost frame of every command."""
    try:
        result = run()
        return result if isinstance(result, int) else ExitCode.OK
    except click.Abort:
        click.echo("Interrupted", err=True)
        return ExitCode.INTERRUPTED
    except click.ClickException as err:
        _show(err)
        return err.exit_code if isinstance(err, CommandError) else ExitCode.BAD_INPUT
    except OSError as err:
        return _report_system_error(err, session)
    except Exception as err:  # noqa: BLE001 - the outermost frame
        _report_fault(err, session)
        return ExitCode.INTERNAL
    finally:
        _flush_or_drop()


def _exit(code: int, session: Session) -> NoReturn:
    """End the process; without an end of the interpreter where that would free what is kept."""
    if session.kept:
        os._exit(code)  # all output is written out
    sys.exit(code)


def _show(err: click.ClickException) -> None:
    """Print an error; where messages cannot be written the exit status still says it."""
    with contextlib.suppress(OSError):
        err.show()


def _report_system_error(err: OSError, session: Session) -> ExitCode:
    """Report what the system refused, if it is about a file or the output; else it is a fault."""
    place = err.filename or ("standard output" if err.errno in _NOT_WRITTEN else "")
    if not place:
        _report_fault(err, session)
        return ExitCode.INTERNAL
    if session.debug:
        traceback.print_exc()
    _show(CommandError(f"{place}: {err.strerror or err}"))
    return ExitCode.BAD_INPUT


def _report_fault(err: Exception, session: Session) -> None:
    if session.debug:
        traceback.print_exc()
    fault = printable(": ".join(filter(None, (type(err).__name__, str(err)))))
    hint = "" if session.debug else " (use --debug for a traceback)"
    click.echo(f"Error: unexpected {fault}{hint}", err=True)


@contextlib.contextmanager
def _quiet_pipe() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as err:
        raise click.exceptions.Exit(ExitCode.BROKEN_PIPE) from err


def _flush() -> None:
    output: IO[str] | None = sys.stdout  # None in a process that was started without one
    if output is not None:
        output.flush()


def _flush_or_drop() -> None:
    """Write the rest of the output, or forget it: the interpreter must not fail on it at exit."""
    try:
        _flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""What a write of the output fails with; writes of files name the file."""

_EPILOG = """\b
Examples:
  deferred-quota usage -f deployment.yaml
  kubectl get pods -n team-a -o yaml | deferred-quota usage -f -
  deferred-quota COMMAND --help

\b
Exit status:
  0  success
  1  findings: a request was denied, or something does not fit
  2  invalid usage, unreadable input, or output that cannot be written
  3  drift, unfinished work, or warnings with --fail-on warn
  4  the cluster does not answer
  5  internal error
  130  interrupted (SIGINT)
  141  the output was closed by its reader (SIGPIPE)
"""


@click.group(
    cls=CommandLine,
    lazy=COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@version_option(f"deferred-quota {__version__}")
def cli() -> None:
    """Charge Kubernetes ResourceQuota when pods are bound to nodes.

    Results go to standard output, messages to standard error.
    """


_STACK_BYTES = 16 * 2**20
"""Stack of each thread: address space, of which what is used is taken.

CPython 3.13 decodes 10,000 levels of JSON in C, as many as tenants may have stored. That takes up
to 4 MiB, and beyond the stack the process dies. The default may be 2 MiB: glibc's where `ulimit -s`
is unlimited, and less elsewhere.
"""


def main() -> None:
    """Run the command line of this process: the entry point of the installed commands."""
    threading.stack_size(_STACK_BYTES)
    cli(prog_name=_program_name(sys.argv[0]), obj=Session(kept=[]))


def _program_name(path: str) -> str | None:
    """Return the name that help shows; None leaves it to click (`python -m webhook`)."""
    name = PurePath(path).name
    if name.startswith("kubectl-"):  # kubectl runs a plug-in's file under its own name
        return name.replace("-", " ", 1).replace("_", "-")
    return None
