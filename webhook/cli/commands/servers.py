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
  kubectl get ns,quota,pods -A -o yaml > cluster.yaml   # and cdq, once it is installed

Reviews are posted to /mutate and /validate, of namespaces in shadow mode to /shadow; with
extender.enabled in the configuration, schedulers ask at /scheduler/filter and /scheduler/preempt.
/livez, /readyz and /metrics are at --ops.

\b
Exit status: 0 stopped by a signal, 2 it cannot start: the reason is in the log.
""",
)
@cluster_options
@click.option(
    "--embedded",
    "snapshots",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="SNAPSHOT",
    help="Serve a cluster in memory, loaded from objects as kubectl prints them. Repeatable.",
)
@click.option(
    "--listen",
    type=Address(),
    default="127.0.0.1:9443",
    show_default=True,
    help="Where reviews are answered, over TLS; port 0 is any free one.",
)
@ops_option
@click.option(
    "--embedded-api",
    type=Address(),
    help="Also serve the cluster in memory through Kubernetes' REST paths, plain HTTP. Its writes"
    " are asked of the webhook as an API server asks.",
)
@click.option(
    "--certs",
    "directory",
    type=click.Path(path_type=Path),
    help="Directory with ca.crt, tls.crt and tls.key, read again when they change. With"
    " --embedded it may be left out: certificates for this machine are made for this run.",
)
@click.option(
    "--certs-secret",
    "secret",
    default="",
    metavar="NAME",
    help="Secret in the installation's namespace of which the files are a copy: a pair that is"
    " written there is served at once, and the files are for the start and for outages.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Name or address under which the API server calls this webhook, which its certificate has"
    " to cover. Repeatable. Without, what the registrations in the cluster say.",
)
@click.option(
    "--client-ca",
    "client_authorities",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Answer only clients with a certificate of a CA in this PEM file, which the API server has"
    " to be configured to show (docs/client-auth.md); goes with --client-name. Repeatable; read"
    " again when it changes.",
)
@click.option(
    "--client-name",
    "client_names",
    multiple=True,
    metavar="NAME",
    help="Common name of the client certificate: of the API server, and of schedulers where they"
    " call the extender. Repeatable.",
)
@click.option(
    "--with-controller",
    is_flag=True,
    help="Be the controller too. With --embedded that is always so.",
)
@candidate_options
@announce_option
@log_level_option
@config_option
def serve(**options: Any) -> ExitCode:
    """Answer AdmissionReviews over HTTPS, for the cluster of the kubeconfig or the one around.

    With --embedded, decide on a fake cluster. A namespace that the snapshot mentions without
    holding its Namespace object then counts as one that has opted in.
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

Of several controllers one leads; the others are ready to follow it. /livez, /readyz and /metrics
are at --ops.

\b
Exit status: 0 stopped by a signal, 2 it cannot start.
""",
)
@cluster_options
@ops_option
@candidate_options
@announce_option
@log_level_option
@config_option
def controller(**options: Any) -> ExitCode:
    """Keep the ledgers of all namespaces true to their pods, and the quotas' status masked."""
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
