"""`deferred-quota serve`: run the admission webhook."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click

from webhook.admission.serving.server import serve as run_server
from webhook.admission.serving.settings import ListenAddress, ServerParts, ServerSettings
from webhook.cli.exits import ExitCode, InputError
from webhook.cli.options import Command
from webhook.cli.snapshots import config_option, read_cluster, read_configuration
from webhook.config import Configuration, ConfigurationFile
from webhook.runtime import embedded_server
from webhook.telemetry import logs
from webhook.tls.bootstrap import CertificateDirectory, Wanted, bootstrap
from webhook.tls.files import CertificateFiles

_API: Final = "api"


class _Address(click.ParamType[ListenAddress]):
    """An address to listen on."""

    name = "HOST:PORT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> ListenAddress:
        """Read `host:port`; a port of 0 is any free one."""
        if isinstance(value, ListenAddress):
            return value
        try:
            return ListenAddress.parse(str(value))
        except ValueError as err:
            self.fail(str(err), param, ctx)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota serve --embedded cluster.yaml
  deferred-quota serve --embedded cluster.yaml --embedded-api 127.0.0.1:8001
  kubectl get ns,quota,pods -A -o yaml > cluster.yaml

Reviews are posted to /mutate and /validate. /livez, /readyz and /metrics are on the plain port.
""",
)
@click.option(
    "--embedded",
    "snapshots",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    metavar="SNAPSHOT",
    help="Serve a cluster in memory, loaded from objects as kubectl prints them. Repeatable.",
)
@click.option(
    "--listen",
    type=_Address(),
    default="127.0.0.1:9443",
    show_default=True,
    help="Where reviews are answered, over TLS; port 0 is any free one.",
)
@click.option(
    "--ops",
    type=_Address(),
    default="127.0.0.1:8080",
    show_default=True,
    help="Where probes and metrics are, plain HTTP.",
)
@click.option(
    "--embedded-api",
    type=_Address(),
    help="Also serve the cluster in memory through Kubernetes' REST paths, plain HTTP. Its writes"
    " are asked of the webhook as an API server asks.",
)
@click.option(
    "--certs",
    "directory",
    type=click.Path(path_type=Path),
    help="Directory with ca.crt, tls.crt and tls.key, read again when they change. Without it,"
    " certificates for this machine are made for this run.",
)
@click.option("--announce", type=click.Path(path_type=Path), help="Write the addresses here, JSON.")
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    show_default=True,
    help="How much is logged, as JSON lines on standard error.",
)
@config_option
def serve(  # noqa: PLR0913, PLR0917 - one for each option
    snapshots: tuple[Path, ...],
    listen: ListenAddress,
    ops: ListenAddress,
    embedded_api: ListenAddress | None,
    directory: Path | None,
    announce: Path | None,
    log_level: str,
    config: Path | None,
) -> ExitCode:
    """Answer AdmissionReviews over HTTPS, deciding on a cluster in memory.

    A namespace that the snapshot mentions without holding its Namespace object counts as one
    that has opted in.
    """
    logs.configure(log_level)
    configuration = read_configuration(config)
    cluster = read_cluster(snapshots)
    with _certificates(directory) as certificates:
        ca = _read(certificates.ca_certificate) if embedded_api is not None else ""

        def build(urls: Mapping[str, str]) -> ServerParts:
            own = urls["webhook"] if embedded_api is not None else ""
            return embedded_server(cluster, configuration, webhook_url=own, ca_pem=ca)

        settings = ServerSettings(
            tls=CertificateFiles(certificates.certificate, certificates.key),
            webhook=listen,
            ops=ops,
            extra_listeners={} if embedded_api is None else {_API: embedded_api},
            announce=announce,
            threads=_settings(configuration).limits.threads,
            body_bytes=_settings(configuration).limits.body_bytes,
        )
        return ExitCode(run_server(build, settings))


def _settings(configuration: ConfigurationFile | None) -> Configuration:
    return Configuration() if configuration is None else configuration.current


@contextmanager
def _certificates(directory: Path | None) -> Iterator[CertificateDirectory]:
    """Give the directory of certificates; without one, make one that goes when the block ends."""
    if directory is not None:
        yield CertificateDirectory(directory)
        return
    with tempfile.TemporaryDirectory(prefix="deferred-quota-certs-") as made:
        certificates = CertificateDirectory(Path(made))
        wanted = Wanted(
            dns_names=("localhost",),
            ip_addresses=("127.0.0.1", "::1"),
            lifetime=timedelta(days=1),
        )
        bootstrap(certificates, wanted, now=datetime.now(UTC))
        yield certificates


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(f"{path}: cannot be read: {err}") from err
