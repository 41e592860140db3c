"""Options that say which cluster a command works on, and the way to it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from webhook import __version__
from webhook.cli.exit_codes import CommandError, ExitCode, InputError, UnreachableError, printable
from webhook.cli.options import keep
from webhook.kube.api import (
    ApiError,
    ClusterApi,
    RequestTimeoutError,
    UnauthorizedError,
    UnavailableError,
)
from webhook.operations.retry import PASSING, Report, silent

if TYPE_CHECKING:
    from webhook.fakecluster.manifests.snapshot_client import SnapshotClient
    from webhook.kube.rest import RestConfig

_T = TypeVar("_T")

_WATCH_SECONDS: Final = 2.0
"""Between two looks of a command that watches."""


class RefusedError(CommandError):
    """The cluster answers, and does not do what was asked."""

    exit_code = int(ExitCode.FINDINGS)


def read_access(kubeconfig: Path | None, context: str | None) -> RestConfig:
    """Find out how to reach the cluster.

    Raises:
        InputError: There is no usable kubeconfig.
    """
    from webhook.kube.rest import AccessError, load_config  # noqa: PLC0415 - slow to import

    try:
        return load_config(kubeconfig, context)
    except AccessError as err:
        raise InputError(str(err)) from err


def namespace_of(
    given: str | None, kubeconfig: Path | None, context: str | None, *, is_live: bool = True
) -> str:
    """Return the namespace that is given, else that of the way into the cluster, as kubectl does.

    Raises:
        InputError: There is no usable kubeconfig.
    """
    if given or not is_live:
        return given or "default"
    return read_access(kubeconfig, context).namespace


@contextmanager
def live_cluster(
    kubeconfig: Path | None, context: str | None, *, on_warning: Report = silent
) -> Iterator[ClusterApi]:
    """Yield a client of the cluster.

    Args:
        kubeconfig: How to reach the cluster, if that is said.
        context: The context of it, if one is named.
        on_warning: Receives warnings of the cluster.

    Raises:
        InputError: There is no usable kubeconfig.
        UnreachableError: The cluster does not answer, or does not know the caller.
        RefusedError: It refuses something that the block asked for and does not handle.
    """
    # imported late: help and offline work must not wait for it
    from webhook.kube.rest import RestClient  # noqa: PLC0415

    access = read_access(kubeconfig, context)
    agent = f"deferred-quota/{__version__}"
    client = RestClient(access, user_agent=agent, on_warning=on_warning)
    try:
        with cluster_errors():
            yield client
    finally:
        client.close()


@contextmanager
def snapshot_errors(paths: Sequence[Path]) -> Iterator[None]:
    """Turn what cannot be read of snapshot files into the way a command ends."""
    from webhook.fakecluster.manifests.snapshot import (  # noqa: PLC0415 - only where it is asked for
        SnapshotError,
        located_in,
    )

    try:
        yield
    except SnapshotError as err:
        raise InputError(str(located_in(err, paths))) from err


@contextmanager
def snapshot_cluster(paths: Sequence[Path]) -> Iterator[ClusterApi]:
    """Yield a fake cluster that holds what some files do.

    Raises:
        InputError: A file cannot be read; the text has file, document and field.
    """
    from webhook.fakecluster.manifests.snapshot import (  # noqa: PLC0415 - only where it is asked for
        parse_snapshot,
        read_files,
    )
    from webhook.fakecluster.storage import FakeClient, FakeCluster  # noqa: PLC0415
    from webhook.kube.files.snapshot_format import documents_of  # noqa: PLC0415

    with snapshot_errors(paths):
        found = parse_snapshot(documents_of(read_files(paths)))
    cluster = FakeCluster()
    cluster.load([(one.kind, one.object) for one in found])
    with cluster_errors():
        yield FakeClient(cluster)


def cluster_of(
    snapshots: Sequence[Path], kubeconfig: Path | None, context: str | None
) -> AbstractContextManager[ClusterApi]:
    """Return the way to a cluster: the snapshot where files are named, else the live one."""
    return snapshot_cluster(snapshots) if snapshots else live_cluster(kubeconfig, context)


@contextmanager
def snapshot_reader(paths: Sequence[Path]) -> Iterator[SnapshotClient]:
    """Give what some files hold, to be read only: quicker than `snapshot_cluster`.

    Raises:
        InputError: A file cannot be read; the text has file, document and field.
    """
    from webhook.fakecluster.manifests.large_snapshot import (  # noqa: PLC0415 - only where it is asked for
        read_for_looking,
    )
    from webhook.fakecluster.manifests.snapshot import read_files  # noqa: PLC0415
    from webhook.fakecluster.manifests.snapshot_client import SnapshotClient  # noqa: PLC0415

    with snapshot_errors(paths):
        read = read_for_looking(read_files(paths))
    client = SnapshotClient(read.objects, read.extent, read.pods)
    keep(read, client)
    with cluster_errors():
        yield client


@contextmanager
def cluster_errors() -> Iterator[None]:
    """Turn what a cluster answers into the way a command ends."""
    try:
        yield
    except (UnavailableError, RequestTimeoutError) as err:
        raise UnreachableError(f"the cluster does not answer: {err.message}") from err
    except UnauthorizedError as err:
        raise UnreachableError(
            f"the cluster does not accept the credentials: {err.message}"
        ) from err
    except ApiError as err:
        raise RefusedError(err.message) from err


def retried(text: str) -> None:
    """Print why a command still waits, in a pipe too: nothing else is printed until it ends."""
    click.echo(f"note: {printable(text)}", err=True)


def watched(look: Callable[[], _T], sleep: Callable[[float], None] = time.sleep) -> Iterator[_T]:
    """Yield what a look at a cluster shows, every two seconds and without an end.

    After the first look, a cluster that does not answer is asked again: watching goes on when it
    does.
    """
    yield look()
    is_answered = True
    while True:
        sleep(_WATCH_SECONDS)
        try:
            seen = look()
        except PASSING as err:
            if is_answered:
                retried(f"the cluster does not answer, retrying: {err.message}")
            is_answered = False
        else:
            is_answered = True
            yield seen


def progress(text: str) -> None:
    """Show progress on a terminal; in a pipe it is of no use."""
    stream: Any = sys.stderr
    if stream is not None and stream.isatty():
        click.echo(printable(text), err=True)
