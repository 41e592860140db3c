"""The command lines of scripts/install and scripts/uninstall.

Nothing is imported here that a body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from webhook import __version__
from webhook.cli.app import CommandLine
from webhook.cli.exit_codes import CommandError, ExitCode, InputError, confirm
from webhook.cli.options import Command, cluster_options
from webhook.state.well_known import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from webhook.install.clients import KnownClients
    from webhook.kube.rest import RestClient

DEFAULT_TIMEOUT = 300
"""Seconds to wait for one Deployment."""
_URL = re.compile(r"https://[^/?#@\s]+/?")


class _Script(click.Context):
    """Calls a command what people call it: by its file."""

    @property
    def command_path(self) -> str:
        return f"scripts/{self.info_name}"


class _ScriptCommand(Command):
    context_class = _Script


_AGAIN = "not finished: what is as it should be stays; with that right, run it again"


class _NotInstalledError(CommandError):
    """The cluster is not as it has to be."""

    exit_code = int(ExitCode.FINDINGS)


@contextmanager
def _client(kubeconfig: Path | None, context: str | None) -> Iterator[RestClient]:
    from webhook.cli.cluster_options import cluster_errors, read_access  # noqa: PLC0415
    from webhook.install.kustomizations import InstallError  # noqa: PLC0415
    from webhook.kube.rest import RestClient  # noqa: PLC0415

    access = read_access(kubeconfig, context)
    client = RestClient(access, user_agent=f"deferred-quota-install/{__version__}")
    try:
        with cluster_errors():
            click.echo(f"cluster: {access.server}")
            yield client
    except InstallError as err:
        raise _NotInstalledError(str(err)) from err
    finally:
        client.close()


@click.command(
    "install",
    cls=_ScriptCommand,
    epilog="""\b
Examples:
  scripts/install
  scripts/install --image registry.example/deferred-quota:0.1.0 --context staging
  scripts/install --namespace quota-system
  scripts/install --url https://192.0.2.7:9443 --ca certs/generated/ca.crt
  scripts/install --client-ca client-ca.crt --client-name kube-apiserver

\b
Exit status:
  0  installed, or unchanged
  1  not installed: the cluster does not allow it, or it is installed in another namespace
  2  invalid usage, or a file that cannot be used
  4  the cluster does not answer
""",
)
@cluster_options
@click.option(
    "--namespace",
    default="",
    metavar="NAME",
    help="Namespace to install into, with nothing else in it. Default: where it is installed, else"
    f" {DEFAULT_NAMESPACE}.",
)
@click.option(
    "--mask",
    type=click.Choice(("auto", "policy", "webhook")),
    default="auto",
    show_default=True,
    help="What masks deferred resources in the status of quotas: a policy of the API server (1.36"
    " and later), or the webhook. auto: a policy where possible.",
)
@click.option(
    "--creation",
    type=click.Choice(("auto", "policy", "webhook")),
    default=None,
    show_default="as it is installed, else auto",
    help="What gates new pods, and denies those that do not specify what a quota limits: policies"
    " of the API server (1.36 and later), or the webhook. auto: policies where possible.",
)
@click.option(
    "--stamps",
    is_flag=True,
    help="Mark bound pods, so that `deferred-quota doctor` can list those that bypassed the"
    " webhook. Needs 1.36, slows down binds, and is not for tenants who do not trust each other"
    " (docs/threat-model.md). Without it, an existing policy is deleted.",
)
@click.option(
    "--image",
    default=f"deferred-quota:{__version__}",
    show_default=True,
    help="Image of the Deployments.",
)
@click.option(
    "--url", default="", help="URL of a webhook outside of the cluster: https://HOST:PORT."
)
@click.option(
    "--ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="PEM file with the CA of the webhook at --url. Default: the one given for this URL before,"
    " else the CAs that the API server's machine trusts.",
)
@click.option(
    "--client-ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="PEM file with CAs of client certificates. The webhook in the cluster then answers only"
    " API servers that send one; configure them first (docs/client-auth.md). Needs --client-name."
    " Default: as installed.",
)
@click.option(
    "--client-name",
    "client_names",
    multiple=True,
    metavar="NAME",
    help="Accepted common name of client certificates. Repeatable.",
)
@click.option("--all-clients", is_flag=True, help="Answer clients without a certificate again.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file to install. Default: as installed.",
)
@click.option(
    "--dry-run", is_flag=True, help="Let the API server check all objects; change nothing."
)
@click.option(
    "--wait/--no-wait",
    "waits",
    default=True,
    show_default=True,
    help="Wait until the webhook is ready before registering it. With --no-wait, nothing is bound"
    " in opted-in namespaces until it is ready.",
)
@click.option(
    "--timeout",
    type=click.IntRange(1),
    default=DEFAULT_TIMEOUT,
    show_default=True,
    help="Seconds to wait for each Deployment, and for a controller to lead.",
)
def install(  # noqa: PLR0917 - one for each option
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    mask: Literal["auto", "policy", "webhook"],
    creation: Literal["auto", "policy", "webhook"] | None,
    stamps: bool,
    image: str,
    url: str,
    ca: Path | None,
    client_ca: Path | None,
    client_names: tuple[str, ...],
    all_clients: bool,
    config: Path | None,
    dry_run: bool,
    waits: bool,
    timeout: int,
) -> ExitCode:
    """Install deferred-quota, or update an installation.

    Can be repeated: objects that need no change are left alone. If the webhook moves or its CA
    changes, the API server calls the old one until it has reached the new one. Opt namespaces in
    afterwards, with `deferred-quota enable`.
    """
    if ca is not None and not url:
        raise InputError("--ca goes with --url; in the cluster, the CA is made and kept there")
    if url and not _URL.fullmatch(url):
        raise InputError(f"--url: {url!r} is not https://HOST:PORT")
    from webhook.install.installation import PATIENCE, InstallOptions  # noqa: PLC0415
    from webhook.install.installation import install as run_install  # noqa: PLC0415
    from webhook.kube.api import ForbiddenError  # noqa: PLC0415
    from webhook.operations.retry import RetryPolicy  # noqa: PLC0415

    wish = InstallOptions(
        namespace=namespace,
        mask=mask,
        creation=creation,
        stamps=stamps,
        image=image,
        url=url,
        ca_pem=None if ca is None else _certificates(ca),
        clients=_clients(client_ca, client_names, all_clients=all_clients, url=url),
        answers_all=all_clients,
        configuration=None if config is None else _configuration(config),
        dry_run=dry_run,
        waits=waits,
        patience=RetryPolicy(seconds=timeout, pause_seconds=PATIENCE.pause_seconds),
    )
    with _client(kubeconfig, context) as client:
        try:
            changes = run_install(client, wish, click.echo)
        except ForbiddenError as err:
            raise _NotInstalledError([err.message, _AGAIN]) from err
    if dry_run:
        click.echo(f"dry run: {changes} objects would change")
    elif changes:
        click.echo("installed; opt namespaces in with: deferred-quota enable NAMESPACE")
    else:
        click.echo("unchanged")
    return ExitCode.OK


@click.command(
    "uninstall",
    cls=_ScriptCommand,
    epilog="""\b
Examples:
  scripts/uninstall --dry-run
  scripts/uninstall --yes --remove-labels
""",
)
@cluster_options
@click.option(
    "--namespace",
    default="",
    metavar="NAME",
    help=f"Namespace to uninstall from. Default: where it is installed, else {DEFAULT_NAMESPACE}.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
@click.option(
    "--remove-labels", is_flag=True, help="Also remove the label from opted-in namespaces."
)
@click.option(
    "--keep-crds",
    is_flag=True,
    help="Keep the CRDs, and with them ledgers, cluster quotas and elastic quotas.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Remove the webhook registrations despite errors. Quotas are possibly not enforced then,"
    " until the quota controller of the API server has completed them.",
)
def uninstall(  # noqa: PLR0917 - one for each option
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    yes: bool,
    dry_run: bool,
    remove_labels: bool,
    keep_crds: bool,
    force: bool,
) -> ExitCode:
    """Uninstall deferred-quota: the API server enforces ResourceQuotas again.

    Removes the scheduling gates of queued pods: they start at once. If the status of a quota cannot
    be completed, stops before the webhook registrations are removed. Can be repeated, and works if
    parts are missing or the webhook does not answer.

    Cluster and elastic quotas are not enforced afterwards, and are deleted without --keep-crds:
    save them first, with kubectl get cdq,eq,ceq -A -o yaml.
    """
    from webhook.install.uninstall import Removal  # noqa: PLC0415
    from webhook.install.uninstall import uninstall as run_uninstall  # noqa: PLC0415
    from webhook.operations.disable import opted_in_namespaces  # noqa: PLC0415

    removal = Removal(
        namespace=namespace,
        removes_labels=remove_labels,
        keeps_ledgers=keep_crds,
        is_forced=force,
        dry_run=dry_run,
    )
    with _client(kubeconfig, context) as client:
        namespaces = opted_in_namespaces(client)
        click.echo(f"opted-in namespaces: {', '.join(namespaces) or 'none'}")
        if not (yes or dry_run):
            confirm("Take deferred-quota out of this cluster?")
        problems = run_uninstall(client, removal, click.echo)
    if problems:
        raise _NotInstalledError([*problems, "not finished: run it again"])
    click.echo("dry run: nothing was changed" if dry_run else "uninstalled")
    return ExitCode.OK


def _clients(
    authority: Path | None, names: tuple[str, ...], *, all_clients: bool, url: str
) -> KnownClients | None:
    from webhook.install.clients import CLIENT_NAME, KnownClients  # noqa: PLC0415
    from webhook.tls.bundles import certificates_only  # noqa: PLC0415
    from webhook.tls.clients import TrustedClients  # noqa: PLC0415

    if authority is None and not names:
        return None
    if all_clients or url:
        other = "--all-clients" if all_clients else "--url, where you start the webhook with both"
        raise InputError(f"--client-ca and --client-name do not go with {other}")
    if authority is None or not names:
        raise InputError("--client-ca and --client-name go together")
    for name in names:
        if not re.fullmatch(CLIENT_NAME, name):
            raise InputError(f"--client-name: {name!r} has to be printable text without $")
    if problems := TrustedClients((authority,), names).file_problems(datetime.now(UTC)):
        raise InputError([f"--client-ca: {problem}" for problem in problems])
    return KnownClients(certificates_only(_read(authority)).decode("ascii"), names)


def _certificates(path: Path) -> bytes:
    from webhook.tls.bundles import certificates_only  # noqa: PLC0415

    try:
        return certificates_only(_read(path))
    except ValueError as err:
        raise InputError(f"--ca: {path} has no certificate in PEM form") from err


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise InputError(f"{path}: {err.strerror or err}") from err


def _configuration(path: Path) -> str:
    """Return the text of a configuration, judged before the cluster is asked for anything."""
    from webhook.config import ConfigurationError, load_configuration  # noqa: PLC0415
    from webhook.policy import check_configuration  # noqa: PLC0415

    try:
        text = _read(path).decode("utf-8")
        load_configuration(text, str(path), check=check_configuration)
    except UnicodeDecodeError as err:
        raise InputError(f"{path}: is not UTF-8 text") from err
    except ConfigurationError as err:
        raise InputError(str(err)) from err
    return text


_COMMANDS = {
    "install": ("__main__:install", "Install or update deferred-quota."),
    "uninstall": ("__main__:uninstall", "Uninstall deferred-quota."),
}
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=CommandLine, lazy=_COMMANDS, context_settings=_SETTINGS)
def main() -> None:
    """Install or uninstall deferred-quota."""


if __name__ == "__main__":
    main(prog_name="scripts")
