"""`deferred-quota snapshot`: what the commands read of a cluster, as a file."""

from __future__ import annotations

import errno
import gzip
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile

import click

from webhook import __version__
from webhook.atomic_file import write_file
from webhook.cli.cluster_options import live_cluster
from webhook.cli.exit_codes import ExitCode, InputError, printable
from webhook.jsonfields.encoding import encode_json
from webhook.kube.files.snapshot_format import API_VERSION, FORMAT, SNAPSHOT_KIND
from webhook.operations.deployments import system_namespace_of
from webhook.operations.explain.session import ExplainOptions, Session
from webhook.operations.snapshots.taking import TakenSnapshot, take_snapshot


def run(
    file: str,
    namespaces: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    system_namespace: str | None,
) -> ExitCode:
    """Take a snapshot and write it."""
    with live_cluster(kubeconfig, context) as api:
        place = system_namespace or system_namespace_of(api)
        write_snapshot(Session(api, ExplainOptions(system_namespace=place)), file, namespaces)
    return ExitCode.OK


def write_snapshot(session: Session, file: str, namespaces: tuple[str, ...] = ()) -> None:
    """Write what the commands read of a cluster; `-` is standard output.

    A file is replaced as a whole once all is read; until then it stays as it was.

    Raises:
        InputError: The file cannot be written.
        ApiError: The cluster does not answer.
    """
    path = None if file == "-" else Path(file)
    if path is not None:
        _check_writable(path)
    data = _encoded(take_snapshot(session, namespaces))
    if path is None:
        click.echo(data, nl=False)
    else:
        _write(path, data)
    for one in session.unknown:
        click.echo(f"note: {printable(one)}; it is not in the snapshot", err=True)


def _encoded(taken: TakenSnapshot) -> bytes:
    """Return the file: one object to a line, so that an error has a line of its own."""
    head = {
        "apiVersion": API_VERSION,
        "kind": SNAPSHOT_KIND,
        "format": FORMAT,
        "taken": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "program": f"deferred-quota {__version__}",
        "namespaces": list(taken.namespaces),
        "unread": list(taken.unread),
    }
    items = b",\n".join(map(encode_json, taken.items))
    return b'%s,"items":[\n%s\n]}\n' % (encode_json(head)[:-1], items)


def _check_writable(path: Path) -> None:
    """Raise where a file cannot be written, before a whole cluster is read for it."""
    try:
        if not path.exists():
            TemporaryFile(dir=path.resolve().parent).close()
        elif path.is_file() or path.is_dir():  # opening others may block, or have an effect
            path.open("ab").close()
    except OSError as err:
        raise InputError(f"{path}: {err.strerror}") from err


def _write(path: Path, data: bytes) -> None:
    packed = gzip.compress(data, mtime=0) if path.suffix == ".gz" else data
    try:
        if not (_is_replaceable(path) and _replace(path.resolve(), packed)):
            path.write_bytes(packed)
    except OSError as err:
        raise InputError(f"{path}: {err.strerror}") from err


def _is_replaceable(path: Path) -> bool:
    """Return whether another file may stand in its place; that of another user would be ours."""
    if not path.exists():
        return True
    is_ours = path.is_file() and path.stat().st_uid == os.geteuid()
    return is_ours and os.access(path.resolve().parent, os.W_OK)


def _replace(path: Path, data: bytes) -> bool:
    """Put a file in the place of another; False where it is a mount, which has no other."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    try:
        write_file(path, data, mode=mode)
    except OSError as err:
        if err.errno != errno.EBUSY:
            raise
        return False
    return True
