"""`deferred-quota serve` and `controller`: the admission webhook, and the controller beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from webhook.admission.serving.server import serve as run_server
from webhook.admission.serving.server_settings import (
    Build,
    ServerParts,
    ServerSettings,
)
from webhook.admission.serving.sockets import ListenAddress, StartError
from webhook.cli.cluster_options import read_access
from webhook.cli.exit_codes import ExitCode, InputError
from webhook.cli.files.configuration import read_configuration
from webhook.cli.server_options import (
    unique_identity,
)
from webhook.config import Configuration, ConfigurationFile
from webhook.kube.rest import RestConfig
from webhook.runtime.certificate_watch import CertificateSources
from webhook.runtime.processes import ElectionIdentity, live_server, run_controller
from webhook.telemetry import logs
from webhook.tls.bootstrap import CertificateDirectory, CertificateSpec, bootstrap
from webhook.tls.clients import TrustedClients
from webhook.tls.files import CertificateFiles

_API: Final = "api"


def run(  # noqa: PLR0913, PLR0917 - one for each option
    kubeconfig: Path | None,
    context: str | None,
    snapshots: tuple[Path, ...],
    listen: ListenAddress,
    ops: ListenAddress,
    embedded_api: ListenAddress | None,
    directory: Path | None,
    secret: str,
    names: tuple[str, ...],
    client_authorities: tuple[Path, ...],
    client_names: tuple[str, ...],
    with_controller: bool,
    system_namespace: str,
    identity: str,
    announce: Path | None,
    log_level: str,
    config: Path | None,
) -> ExitCode:
    """Run the admission webhook: answer AdmissionReviews over HTTPS."""
    logs.configure(log_level)
    configuration = read_configuration(config)
    clients = _clients(client_authorities, client_names, embedded_api)
    with ExitStack() as stack:
        if snapshots:
            _refuse_both(kubeconfig, context)
            if secret:
                raise InputError("--certs-secret cannot be used with --embedded")
            certificates = stack.enter_context(_certificates(directory))
            files = _files(certificates, names, clients)
            build = _embedded(
                snapshots, configuration, certificates, is_api=embedded_api is not None
            )
        else:
            certificates = _given(directory, embedded_api)
            candidate = unique_identity(system_namespace, identity) if with_controller else None
            files = _files(certificates, names, clients)
            build = _live(
                read_access(kubeconfig, context),
                configuration,
                candidate,
                system_namespace,
                CertificateSources(files=files, names=names, secret=secret),
            )
        settings = ServerSettings(
            tls=files,
            webhook=listen,
            ops=ops,
            extra_listeners={} if embedded_api is None else {_API: embedded_api},
            announce=announce,
            threads=_settings(configuration).limits.threads,
            body_bytes=_settings(configuration).limits.body_bytes,
            # the engine keeps the configuration up to date, in the worker, where this is asked
            serves_extender=lambda: _settings(configuration).extender.enabled,
        )
        return ExitCode(run_server(build, settings))


def run_as_controller(  # noqa: PLR0913, PLR0917 - one for each option
    kubeconfig: Path | None,
    context: str | None,
    ops: ListenAddress,
    system_namespace: str,
    identity: str,
    announce: Path | None,
    log_level: str,
    config: Path | None,
) -> ExitCode:
    """Run the controller of ledgers, queues and quota status."""
    logs.configure(log_level)
    try:
        run_controller(
            read_access(kubeconfig, context),
            read_configuration(config),
            unique_identity(system_namespace, identity),
            ops=ops,
            announce=announce,
        )
    except StartError as err:
        raise InputError(str(err)) from err
    return ExitCode.OK


def _refuse_both(kubeconfig: Path | None, context: str | None) -> None:
    if kubeconfig is not None or context is not None:
        raise InputError("--embedded cannot be used with --kubeconfig or --context")


def _given(directory: Path | None, embedded_api: ListenAddress | None) -> CertificateDirectory:
    if embedded_api is not None:
        raise InputError("--embedded-api needs --embedded")
    if directory is None:
        raise InputError(
            "--certs is required: a certificate of the CA in the webhook registration;"
            " `deferred-quota certs bootstrap` creates both"
        )
    return CertificateDirectory(directory)


def _embedded(
    snapshots: tuple[Path, ...],
    configuration: ConfigurationFile | None,
    certificates: CertificateDirectory,
    *,
    is_api: bool,
) -> Build:
    from webhook.cli.files.snapshots import read_cluster  # noqa: PLC0415 - slow to import
    from webhook.runtime.embedded_server import embedded_server  # noqa: PLC0415

    cluster = read_cluster(snapshots)
    ca = _read(certificates.ca_certificate) if is_api else ""

    def build(urls: Mapping[str, str]) -> ServerParts:
        own = urls["webhook"] if is_api else ""
        return embedded_server(cluster, configuration, webhook_url=own, ca_pem=ca)

    return build


def _live(
    access: RestConfig,
    configuration: ConfigurationFile | None,
    candidate: ElectionIdentity | None,
    system_namespace: str,
    certificates: CertificateSources,
) -> Build:
    return lambda urls: live_server(
        access,
        configuration,
        candidate,
        system_namespace=system_namespace,
        certificates=certificates,
        url=urls["webhook"],
    )


def _files(
    certificates: CertificateDirectory, names: Sequence[str], clients: TrustedClients | None
) -> CertificateFiles:
    return CertificateFiles(
        certificates.certificate, certificates.key, names=names, clients=clients
    )


def _clients(
    authorities: tuple[Path, ...], names: tuple[str, ...], embedded_api: ListenAddress | None
) -> TrustedClients | None:
    """Return which clients are accepted; None if all are.

    Raises:
        InputError: A CA without names or the reverse, or a file that cannot be used.
    """
    if not (authorities or names):
        return None
    if not names:
        raise InputError(
            "--client-ca needs --client-name: else every client with a certificate of that CA"
            " would be accepted as the API server"
        )
    if not authorities:
        raise InputError("--client-name needs --client-ca, the CA of that certificate")
    if not all(names):
        raise InputError("--client-name: must not be empty")
    if embedded_api is not None:
        raise InputError(
            "--client-ca cannot be used with --embedded-api, which calls the webhook without a"
            " client certificate"
        )
    clients = TrustedClients(authorities, names)
    if problems := clients.file_problems(datetime.now(UTC)):
        raise InputError([f"--client-ca: {problem}" for problem in problems])
    return clients


def _settings(configuration: ConfigurationFile | None) -> Configuration:
    return Configuration() if configuration is None else configuration.current


@contextmanager
def _certificates(directory: Path | None) -> Iterator[CertificateDirectory]:
    """Return the directory of certificates; without one, make one that goes when the block ends."""
    if directory is not None:
        yield CertificateDirectory(directory)
        return
    with tempfile.TemporaryDirectory(prefix="deferred-quota-certs-") as made:
        certificates = CertificateDirectory(Path(made))
        wanted = CertificateSpec(
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
