"""Options of the commands that run until they are stopped: `serve` and `controller`."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from webhook.state.well_known import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from webhook.admission.serving.sockets import ListenAddress
    from webhook.runtime.processes import ElectionIdentity

_F = TypeVar("_F", bound=Callable[..., Any])


class Address(click.ParamType["ListenAddress"]):
    """An address to listen on."""

    name = "HOST:PORT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> ListenAddress:
        """Read `host:port`; a port of 0 is any free one."""
        # help must not wait for the server
        from webhook.admission.serving.sockets import ListenAddress  # noqa: PLC0415

        if isinstance(value, ListenAddress):
            return value
        try:
            return ListenAddress.parse(str(value))
        except ValueError as err:
            self.fail(str(err), param, ctx)


ops_option = click.option(
    "--ops",
    type=Address(),
    default="127.0.0.1:8080",
    show_default=True,
    help="Address for probes and metrics (HTTP). Port 0 picks a free port. Each process needs its"
    " own address.",
)

announce_option = click.option(
    "--announce",
    type=click.Path(path_type=Path),
    help="Write the listen addresses to this file, as JSON.",
)

log_level_option = click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    show_default=True,
    help="Log level. Logs are JSON lines on standard error.",
)


def candidate_options(command: _F) -> _F:
    """Add `--namespace` and `--identity`."""
    namespace = click.option(
        "--namespace",
        "--lease-namespace",
        "system_namespace",
        envvar="POD_NAMESPACE",
        default=DEFAULT_NAMESPACE,
        show_default=True,
        show_envvar=True,
        help="Namespace of the installation. Holds the Lease for leader election.",
    )
    identity = click.option(
        "--identity",
        envvar="POD_NAME",
        default=socket.gethostname,
        show_default="the host's name",
        show_envvar=True,
        help="Holder identity in the Lease. A random suffix is added.",
    )
    return namespace(identity(command))


def unique_identity(namespace: str, name: str) -> ElectionIdentity:
    """Return the identity of this process in elections, from the options."""
    from webhook.runtime.processes import ElectionIdentity  # noqa: PLC0415 - as above

    return ElectionIdentity(namespace, f"{name}-{os.getpid()}-{secrets.token_hex(4)}")
