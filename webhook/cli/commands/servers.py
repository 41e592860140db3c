"""Options and help of the commands that run until they are stopped.

Nothing is imported here that a body needs: help and usage errors do not wait for it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from webhook.cli.exit_codes import ExitCode
from webhook.cli.options import Command, cluster_options, config_option, uncollected
from webhook.cli.server_options import (
    Address,
    announce_option,
    candidate_options,
    log_level_option,
    ops_option,
)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota serve --certs /etc/deferred-quota/tls          # inside a cluster
  deferred-quota serve --kubeconfig admin.conf --certs certs/made --with-controller
  deferred-quota serve --embedded cluster.yaml
  deferred-quota serve --embedded cluster.yaml --embedded-api 127.0.0.1:8001
  kubectl get ns,quota,pods -A -o yaml > cluster.yaml   # add cdq if its CRD is installed

\b
Endpoints:
  /mutate, /validate                      AdmissionReviews
  /shadow                                 AdmissionReviews of namespaces in shadow mode
  /scheduler/filter, /scheduler/preempt   scheduler extender, with extender.enabled
  /livez, /readyz, /metrics               at the address of --ops

\b
Exit status:
  0  stopped by a signal
  2  cannot start; the log has the reason
""",
)
@cluster_options
@click.option(
    "--embedded",
    "snapshots",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="SNAPSHOT",
    help="Serve an in-memory cluster, loaded from objects as kubectl prints them. Repeatable.",
)
@click.option(
    "--listen",
    type=Address(),
    default="127.0.0.1:9443",
    show_default=True,
    help="Address of the webhook (HTTPS). Port 0 picks a free port.",
)
@ops_option
@click.option(
    "--embedded-api",
    type=Address(),
    help="Serve the Kubernetes API of the in-memory cluster at this address (HTTP). Writes call"
    " the webhook, as with an API server. Needs --embedded.",
)
@click.option(
    "--certs",
    "directory",
    type=click.Path(path_type=Path),
    help="Directory with ca.crt, tls.crt and tls.key. Changed files are reloaded. Required without"
    " --embedded. Default with --embedded: temporary certificates for localhost.",
)
@click.option(
    "--certs-secret",
    "secret",
    default="",
    metavar="NAME",
    help="Secret with the same certificates, in the namespace of the installation. A new pair in it"
    " is served at once. The files of --certs are used at start and in outages.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Host name or IP address that the API server calls; the certificate must cover it."
    " Repeatable. Default: those in the webhook registrations.",
)
@click.option(
    "--client-ca",
    "client_authorities",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="PEM file with CAs of client certificates. Only clients with such a certificate are"
    " answered; configure the API server to send one (docs/client-auth.md). Needs --client-name."
    " Changed files are reloaded. Repeatable.",
)
@click.option(
    "--client-name",
    "client_names",
    multiple=True,
    metavar="NAME",
    help="Accepted common name of client certificates: of the API server, and of schedulers that"
    " call the extender. Needs --client-ca. Repeatable.",
)
@click.option(
    "--with-controller",
    is_flag=True,
    help="Also run the controller in this process. Implied by --embedded.",
)
@candidate_options
@announce_option
@log_level_option
@config_option
def serve(**options: Any) -> ExitCode:
    """Run the admission webhook: answer AdmissionReviews over HTTPS.

    Serves the cluster of the kubeconfig, or the cluster that it runs in. With --embedded, serves an
    in-memory cluster; a namespace without a Namespace object in the snapshot counts as opted in.
    """
    with _without_collection():
        from webhook.cli.serve import run  # noqa: PLC0415 - help must not wait for it

    return run(**options)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  deferred-quota controller                              # inside a cluster
  deferred-quota controller --kubeconfig admin.conf --ops 127.0.0.1:0

\b
Exit status:
  0  stopped by a signal
  2  cannot start
""",
)
@cluster_options
@ops_option
@candidate_options
@announce_option
@log_level_option
@config_option
def controller(**options: Any) -> ExitCode:
    """Run the controller of ledgers, queues and quota status.

    Counts pods in the ledger of each opted-in namespace, reserves quota for queued pods and removes
    their gates, and masks deferred resources in the status of ResourceQuotas. Of several replicas
    one leads; the others are on standby. --ops serves /livez, /readyz and /metrics.
    """
    with _without_collection():
        from webhook.cli.serve import run_as_controller  # noqa: PLC0415 - help must not wait for it

    return run_as_controller(**options)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Import what lives as long as the process, and let the collector never go through it.

    It would run 160 times meanwhile, in a tenth of the time. After that caches hold many objects
    that live on; its usual pace would go through the young ones every few requests, and takes a
    tenth of the processor.
    """
    with uncollected():
        yield
    gc.set_threshold(50_000, 50, 100)
