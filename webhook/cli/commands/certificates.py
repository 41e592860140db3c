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

`bootstrap` and `show` work on files, the other commands on the installation in a cluster.
"""
)
def certs() -> None:
    """Create, show and rotate certificates."""


_directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=_DEFAULT_DIRECTORY,
    show_default=True,
    help="Directory with ca.crt, ca.key, tls.crt and tls.key.",
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
Exit status:
  0  created, or already valid
  2  invalid usage, or a file that cannot be read or written
""",
)
@_directory_option
@click.option(
    "--dns-name",
    "dns_names",
    multiple=True,
    metavar="NAME",
    help="DNS name of the webhook. Repeatable.",
)
@click.option(
    "--ip",
    "ip_addresses",
    multiple=True,
    metavar="ADDRESS",
    help="IP address of the webhook. Repeatable.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="NAME.NAMESPACE",
    help="Service of the webhook: adds all its DNS names. Repeatable.",
)
@click.option(
    "--days",
    type=click.IntRange(1, _MAX_DAYS),
    default=_DEFAULT_DAYS,
    show_default=True,
    help="Days that a new certificate is valid.",
)
@click.option("--force", is_flag=True, help="Create all files again, including the CA.")
def make(**options: Any) -> None:
    """Create a CA and a serving certificate, unless valid ones exist.

    Without --dns-name, --ip or --service, it is valid for localhost, 127.0.0.1 and ::1.
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
Exit status:
  0  the certificates are usable
  1  they are not
  2  a file cannot be read
""",
)
@_directory_option
@output_option("text", "json")
def show(**options: Any) -> ExitCode:
    """Show the certificates in a directory, and whether they are usable."""
    from webhook.cli.certs import run_show  # noqa: PLC0415 - help must not wait for it

    return run_show(**options)


# -- those of an installation ----------------------------------------------------------------------


def _installation_options(command: _F) -> _F:
    namespace = click.option(
        "--system-namespace",
        type=NAMESPACE,
        metavar="NAMESPACE",
        help="Namespace of the installation. Default: found in the cluster.",
    )
    return cluster_options(namespace(command))


_dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print what would be written next; change nothing."
)


_EXIT_STATUS: Final = """\b
Exit status:
  0  no problems
  1  problems, or a permission is missing
  2  no usable kubeconfig
  4  the cluster does not answer
"""
_STATUS_OF_CHANGE: Final = """\b
Exit status:
  0  done, or nothing to do
  1  a permission is missing, or the certificates are not managed here: by another program, or
     outside of the cluster
  2  no usable kubeconfig, or no certificate
  4  the cluster does not answer
"""


@certs.command("status", cls=Command, epilog=_EXIT_STATUS)
@_installation_options
@output_option("text", "json")
def status(**options: Any) -> ExitCode:
    """Show the certificates of an installation.

    Prints the CA and the serving certificate, and which webhook registrations trust them. For a
    webhook outside of the cluster (scripts/install --url), use `certs show` on its files.
    """
    from webhook.cli.cluster_certs import run_status  # noqa: PLC0415 - help must not wait for it

    return run_status(**options)


@certs.command("check", cls=Command, epilog=_EXIT_STATUS)
@_installation_options
def check(**options: Any) -> ExitCode:
    """Check the certificates of an installation.

    Prints each problem; nothing if there is none.
    """
    from webhook.cli.cluster_certs import run_status  # noqa: PLC0415 - help must not wait for it

    return run_status(only_problems=True, **options)


@certs.command("init", cls=Command, epilog=_STATUS_OF_CHANGE)
@_installation_options
@_dry_run_option
def init(**options: Any) -> ExitCode:
    """Create, repair and renew the certificates of an installation.

    Writes only what is missing, broken or due. Continues a CA rotation that the controller or
    another command has begun.
    """
    from webhook.cli.cluster_certs import run_rotation  # noqa: PLC0415 - help must not wait for it

    return run_rotation(**options)


@certs.command("renew", cls=Command, epilog=_STATUS_OF_CHANGE)
@_installation_options
@_dry_run_option
def renew(**options: Any) -> ExitCode:
    """Renew the serving certificate now, with the same CA."""
    from webhook.cli.cluster_certs import run_rotation  # noqa: PLC0415 - help must not wait for it

    return run_rotation(forces="leaf", **options)


@certs.command("rotate-ca", cls=Command, epilog=_STATUS_OF_CHANGE)
@_installation_options
@_dry_run_option
def rotate_ca(**options: Any) -> ExitCode:
    """Start a rotation of the CA now.

    Adds a new CA to the trusted ones. The controller, or `certs init`, continues: after ten minutes
    it issues a serving certificate of the new CA. The old CA stays trusted until no certificate of
    it can be served.
    """
    from webhook.cli.cluster_certs import run_rotation  # noqa: PLC0415 - help must not wait for it

    return run_rotation(forces="ca", **options)


@certs.command("inject", cls=Command, epilog=_STATUS_OF_CHANGE)
@_installation_options
@_dry_run_option
def inject(**options: Any) -> ExitCode:
    """Write the CAs to the webhook registrations that lack them.

    Changes no Secret.
    """
    from webhook.cli.cluster_certs import run_injection  # noqa: PLC0415 - help must not wait for it

    return run_injection(**options)


@certs.command("export", cls=Command, epilog=_STATUS_OF_CHANGE)
@_installation_options
def export(**options: Any) -> ExitCode:
    """Print the CAs that clients of the webhook must trust, as PEM."""
    from webhook.cli.cluster_certs import run_export  # noqa: PLC0415 - help must not wait for it

    return run_export(**options)
