"""Certificate files: serve a pair, and take up new files while the server runs.

Rule 1: the server never gets worse by new files. A pair with any problem is reported once and the
last good pair stays. One that lacks a name by which the server is called is such a pair; only where
nothing was served before it is taken up, and the server is not ready.

The CAs of clients, where they are asked for certificates, are files of the same kind.

Rule 2: files are compared by what `stat` says of them through symbolic links, whenever a client
connects. File events are not used: a mounted Secret changes by swapping a link, and gives none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509

from webhook.telemetry.metrics import Metrics, TlsMetrics
from webhook.tls.clients import TrustedClients
from webhook.tls.pair import CertificateFileError, covers, pair_problems, read_chain

KEY_MODE: Final = 0o600
CERTIFICATE_MODE: Final = 0o644
ATTEMPTS: Final = 3
"""How often a pair is read again when the files change while they are read."""

Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
Clock: TypeAlias = Callable[[], datetime]

log = logging.getLogger(__name__)


class CertificateFiles:
    """A pair of files as the source of TLS contexts for a server; safe for threads."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        names: Sequence[str] = (),
        clients: TrustedClients | None = None,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self.certificate = certificate
        self.key = key
        self._names = tuple(names)
        self._clients = clients
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: Stamp = ()
        self._context: ssl.SSLContext | None = None
        self._leaf: x509.Certificate | None = None
        self._not_after = datetime.min.replace(tzinfo=UTC)
        self._refused: tuple[str, ...] = ()
        self._metrics: TlsMetrics | None = None

    def require(self, names: Collection[str]) -> None:
        """Refuse from now on what does not cover these names."""
        with self._lock:
            if set(names) != set(self._names) and self._refused:
                self._seen = ()  # what was refused may do now
            self._names = tuple(sorted(names))

    def file_problems(self) -> tuple[str, ...]:
        """Return why the files as they are now cannot be served; load them if they can."""
        with self._lock:
            return self._load(self._stamp())

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection: of the newest files that could be used.

        Raises:
            CertificateFileError: No pair was ever usable.
        """
        stamp = self._stamp()
        if stamp != self._seen:
            with self._lock:
                self._reload(stamp)
        if self._context is None:
            raise CertificateFileError(self.certificate, "was never usable")
        return self._context

    def serving_problems(self) -> tuple[str, ...]:
        """Return why clients refuse the certificate that is in use now, if they do."""
        if self._context is None:
            return (f"{self.certificate}: was never usable",)
        if self._clock() >= self._not_after:
            return (f"the serving certificate ended at {self._not_after.isoformat()}",)
        return tuple(
            f"{self.certificate}: the serving certificate does not cover {name}, by which the API"
            " server calls this webhook"
            for name in self._missing_names(self._leaf)
        )

    def client_refusal(self, certificate: Mapping[str, object] | None) -> str:
        """Return why a client with a verified certificate, or none, is refused; empty if not."""
        return self._clients.refusal(certificate) if self._clients else ""

    def refusals(self) -> tuple[str, ...]:
        """Return why the newest files are not served, if the last good pair is served instead."""
        return self._refused

    def observe(self, metrics: Metrics) -> None:
        """Count reloads and show the end of the certificate in `metrics` from now on."""
        self._metrics = metrics.tls
        self._metrics.not_after.set(self._not_after.timestamp() if self._context else 0)

    def _reload(self, stamp: Stamp) -> None:
        if stamp == self._seen:  # another thread was first
            return
        problems = self._load(stamp)
        if problems:
            log.error("certificate refused, the last good one stays", extra={"problems": problems})
        else:
            not_after = self._not_after.isoformat()
            log.info(
                "certificate loaded", extra={"path": str(self.certificate), "not_after": not_after}
            )
        if self._metrics:
            self._metrics.reloads.labels("refused" if problems else "loaded").inc()
            self._metrics.not_after.set(self._not_after.timestamp())

    def _load(self, stamp: Stamp) -> tuple[str, ...]:
        """Take the files up unless they have problems; remember the stamp in both cases."""
        problems: tuple[str, ...] = ()
        for _ in range(ATTEMPTS):
            self._seen = stamp
            problems = self._take_up()
            stamp = self._stamp()
            if stamp == self._seen:
                break
        self._refused = problems if self._context else ()
        return problems

    def _take_up(self) -> tuple[str, ...]:
        now = self._clock()
        # of the very first pair names are not checked: to serve nothing is no better
        names = self._names if self._context else ()
        problems = pair_problems(self.certificate, self.key, now=now, names=names)
        unusable, outside = self._clients.checked(now) if self._clients else ((), ())
        if problems := problems + unusable:
            return problems
        try:
            context = server_context(self.certificate, self.key)
            if self._clients:
                self._clients.apply(context)
            leaf = read_chain(self.certificate)[0]
        except (OSError, ValueError) as err:  # changed since it was checked, or refused by OpenSSL
            return (f"{self.certificate}: {err}",)
        self._context, self._leaf, self._not_after = context, leaf, leaf.not_valid_after_utc
        if outside:
            log.warning("a CA of clients is outside its time", extra={"problems": outside})
        return ()

    def _missing_names(self, leaf: x509.Certificate | None) -> list[str]:
        return [name for name in self._names if leaf is not None and not covers(leaf, name)]

    def _stamp(self) -> Stamp:
        authorities = self._clients.authorities if self._clients else ()
        return tuple(_stamp_of(path) for path in (self.certificate, self.key, *authorities))


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Make a context as an admission webhook needs it: TLS 1.2 or newer, HTTP/1.1.

    Raises:
        OSError: OpenSSL does not take the files.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    return context


def write_file(path: Path, data: bytes, *, mode: int) -> None:
    """Write a file with these permissions so that a reader sees all of it or the old one.

    Raises:
        OSError: The directory is missing or cannot be written; its `filename` is `path`.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # whatever the umask left of it
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        part.replace(path)
    except OSError as err:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        # a write does not say to which file, and the name of the part is not known
        raise OSError(err.errno, err.strerror or str(err), str(path)) from err


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
