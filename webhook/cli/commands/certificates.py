"""Options and help of `certs`: files, and the certificates of an installation.

Nothing is imported here that a body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from webhook.cli.exit_codes import ExitCode
from webhook.cli.options import NAMESPACE, Command, cluster_options, output_option

_F = TypeVar("_F", bound=Callable[..., Any])
_DEFAULT_DIRECTORY: Final = Path("certs/generated")
_DEFAULT_DAYS: Final = 365
_MAX_DAYS: Final = 3650


@click.group(
    epilog="""\b
Examples:
  deferred-quota certs bootstrap
  deferred-quota certs bootstrap --service deferred-quota-webhook.deferred-quota-system
  deferred-quota certs show -o json
  deferred-quota certs status
  deferred-quota certs rotate-ca --dry-run

`bootstrap` and `show` work on files; the others on the installation of a cluster.
"""
)
def certs() -> None:
    """Make, show and rotate certificates."""


_directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=_DEFAULT_DIRECTORY,
    show_default=True,
    help="Where ca.crt, ca.key, tls.crt and tls.key are.",
)


@certs.command(
    "bootstrap",
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota certs bootstrap
  deferred-quota certs bootstrap --dns-name webhook.example --ip 192.0.2.7 --days 90
  deferred-quota certs bootstrap --service deferred-quota-webhook.deferred-quota-system --dir certs

\b
Exit status: 0 made, or kept, 2 wrong usage, or a file that cannot be read or written.
""",
)
@_directory_option
@click.option(
    "--dns-name",
    "dns_names",
    multiple=True,
    metavar="NAME",
    help="Name under which the webhook is called. Repeatable.",
)
@click.option(
    "--ip",
    "ip_addresses",
    multiple=True,
    metavar="ADDRESS",
    help="IP address under which the webhook is called. Repeatable.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="NAME.NAMESPACE",
    help="Service in front of the webhook; stands for all its names. Repeatable.",
)
@click.option(
    "--days",
    type=click.IntRange(1, _MAX_DAYS),
    default=_DEFAULT_DAYS,
    show_default=True,
    help="How long a certificate that has to be made is valid.",
)
@click.option("--force", is_flag=True, help="Make everything anew, the CA too.")
def make(**options: Any) -> None:
    """Make a CA and a serving certificate, if no good ones exist.

    Without a name it is for this machine: localhost, 127.0.0.1 and ::1.
    """
    from webhook.cli.certs import run_bootstrap  # noqa: PLC0415 - help must not wait for it

    run_bootstrap(**options)


@certs.command(
    "show",
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota certs show
  deferred-quota certs show --dir /etc/deferred-quota/tls -o json

\b
Exit status: 0 they can be used, 1 they cannot, 2 a file cannot be read.
""",
)
@_directory_option
@output_option("text", "json")
def show(**options: Any) -> ExitCode:
    """Show what certificates say, and whether they can be used."""
    from webhook.cli.certs import run_show  # noqa: PLC0415 - help must not wait for it

    return run_show(**options)


# -- those of an installation ----------------------------------------------------------------------


def _installation_options(command: _F) -> _F:
    namespace = click.option(
        "--system-namespace",
        type=NAMESPACE,
        metavar="NAMESPACE",
        help="Namespace of the installation; else where it is found.",
    )
    return cluster_options(namespace(command))


_dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only say what would be written next."
)


_EXIT_STATUS: Final = """\b
Exit status: 0 all as it should be, 1 something is not, or may not be read,
2 there is no way into a cluster, 4 the cluster does not answer.
"""
_STATUS_OF_CHANGE: Final = """\b
Exit status: 0 done, or nothing is due, 1 refused: a right is missing, or the certificates are
another program's or outside of the cluster, 2 there is no way into a cluster, or no certificate,
4 the cluster does not answer.
"""


@certs.command("status", cls=Command, epilog=_EXIT_STATUS)
@_installation_options
@output_option("text", "json")
def status(**options: Any) -> ExitCode:
    """Show the certificates of an installation.

    Each registration is listed, with whether it trusts them. Those of a webhook outside of the
    cluster (`--url`) are files of yours, for `certs show`.
    """
    from webhook.cli.cluster_certs import run_status  # noqa: PLC0415 - help must not wait for it

    return run_status(**options)


@certs.command("check", cls=Command, epilog=_EXIT_STATUS)
@_installation_options
def check(**options: Any) -> ExitCode:
    """Print what is wrong with an installation's certificates.

    Nothing is printed where all is well.
    """
    from webhook.cli.cluster_certs import run_status  # noqa: PLC0415 - help must not wait for it

    return run_status(only_problems=True, **options)


@certs.command("init", cls=Command, epilog=_STATUS_OF_CHANGE)
@_installation_options
@_dry_run_option
def init(**options: Any) -> ExitCode:
    """Make what is missing, mend what is broken, do what is due.

    A change of the CA that a controller or another command has begun goes on.
    """
    from webhook.cli.cluster_certs import run_rotation  # noqa: PLC0415 - help must not wait for it

    return run_rotation(**options)


@certs.command("renew", cls=Command, epilog=_STATUS_OF_CHANGE)
@_installation_options
@_dry_run_option
def renew(**options: Any) -> ExitCode:
    """Replace the serving certificate now; trust stays as it is."""
    from webhook.cli.cluster_certs import run_rotation  # noqa: PLC0415 - help must not wait for it

    return run_rotation(forces="leaf", **options)


@certs.command("rotate-ca", cls=Command, epilog=_STATUS_OF_CHANGE)
@_installation_options
@_dry_run_option
def rotate_ca(**options: Any) -> ExitCode:
    """Begin to change the CA now.

    A new one is published beside the former. The controller goes on with it, or `certs init` does:
    after ten minutes the serving certificate is one of the new CA, and the former is trusted until
    no certificate of it can be served.
    """
    from webhook.cli.cluster_certs import run_rotation  # noqa: PLC0415 - help must not wait for it

    return run_rotation(forces="ca", **options)


@certs.command("inject", cls=Command, epilog=_STATUS_OF_CHANGE)
@_installation_options
@_dry_run_option
def inject(**options: Any) -> ExitCode:
    """Write the CAs into the registrations that lack them.

    No Secret is changed.
    """
    from webhook.cli.cluster_certs import run_injection  # noqa: PLC0415 - help must not wait for it

    return run_injection(**options)


@certs.command("export", cls=Command, epilog=_STATUS_OF_CHANGE)
@_installation_options
def export(**options: Any) -> ExitCode:
    """Print the CAs that clients of the webhook are to trust, as PEM."""
    from webhook.cli.cluster_certs import run_export  # noqa: PLC0415 - help must not wait for it

    return run_export(**options)
