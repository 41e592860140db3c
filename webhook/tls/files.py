"""Certificate files: serve a pair, and take up new files while the server runs.

Rule 1: the server never gets worse by new files. A pair with any problem is reported once and the
last good pair stays; the files are read again, as they may only begin later. One that lacks a name
by which the server is called is such a pair; only where nothing was served before it is taken up,
and the server is not ready.

The CAs of clients, where they are asked for certificates, are files of the same kind.

Rule 2: files are compared by what `stat` says of them through symbolic links, whenever a client
connects. File events are not used: a mounted Secret changes by swapping a link, and gives none.

Rule 3: a pair may also be offered, as it was read from the Secret that the files are a copy of. The
last good pair of the files and the last good one that was offered are kept beside each other, and
the one that was issued later is served: a copy that is late replaces nothing, and neither does a
Secret that is read late.
"""

from __future__ import annotations

import logging
import ssl
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509

from webhook.atomic_file import write_file
from webhook.telemetry.metrics import Metrics, TlsMetrics
from webhook.tls.bundles import read_certificates
from webhook.tls.clients import TrustedClients
from webhook.tls.issue import Issued
from webhook.tls.pair import (
    CertificateFileError,
    covers,
    issued_problems,
    pair_problems,
    read_chain,
)

KEY_MODE: Final = 0o600
CERTIFICATE_MODE: Final = 0o644
ATTEMPTS: Final = 3
"""How often a pair is read again when the files change while they are read."""
RETRY: Final = timedelta(seconds=10)
"""After which files that were refused are read again, though they are the same."""

Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
Clock: TypeAlias = Callable[[], datetime]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Usable:
    """A pair that clients accept."""

    place: str
    """Where it was read."""
    context: ssl.SSLContext
    leaf: x509.Certificate

    @property
    def not_after(self) -> datetime:
        return self.leaf.not_valid_after_utc


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
        self._offer: tuple[str, Issued] | None = None
        self._of_files: _Usable | None = None
        self._of_offer: _Usable | None = None
        self._in_use: _Usable | None = None
        self._refused_files: tuple[str, ...] = ()
        self._retry_at: datetime | None = None
        self._refused_offer: tuple[str, ...] = ()
        self._outside: tuple[str, ...] = ()
        self._metrics: TlsMetrics | None = None

    def require(self, names: Collection[str]) -> None:
        """Refuse from now on what does not cover these names."""
        with self._lock:
            if set(names) == set(self._names):
                return
            self._names = tuple(sorted(names))
            if self._refused_files:
                self._seen = ()  # what was refused may do now
            if self._refused_offer:
                self._take_up_offer()
            before = self._in_use
            self._choose()
            self._note(before, ())

    def offer(self, pair: Issued, place: str) -> None:
        """Take up a pair that was read elsewhere, unless it has problems; again, if it had some.

        Args:
            pair: Certificates and key.
            place: Where it is, for messages.
        """
        with self._lock:
            former = self._refused_offer
            if self._offer == (place, pair) and not former:
                return
            self._offer = place, pair
            before = self._in_use
            self._take_up_offer()
            self._choose()
            # what is not valid yet is offered again and again, until it is
            self._note(before, self._refused_offer if self._refused_offer != former else ())

    def file_problems(self) -> tuple[str, ...]:
        """Return why the files as they are now cannot be served; load them if they can."""
        with self._lock:
            return self._load(self._stamp())

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection: of the newest pair that could be used.

        Raises:
            CertificateFileError: No pair was ever usable.
        """
        stamp = self._stamp()
        if stamp != self._seen or self._is_over():
            with self._lock:
                self._reload(stamp)
        if self._in_use is None:
            raise CertificateFileError(self.certificate, "was never usable")
        return self._in_use.context

    def serving_problems(self) -> tuple[str, ...]:
        """Return why clients refuse the certificate that is in use now, if they do."""
        in_use = self._in_use
        if in_use is None:
            return (f"{self.certificate}: was never usable",)
        if self._clock() >= in_use.not_after:
            return (f"the serving certificate ended at {in_use.not_after.isoformat()}",)
        return tuple(
            f"{in_use.place}: the serving certificate does not cover {name}, by which the API"
            " server calls this webhook"
            for name in self._missing_names(in_use.leaf)
        )

    def client_refusal(self, certificate: Mapping[str, object] | None) -> tuple[str, str]:
        """Return why a client with a verified certificate, or none, is refused; empty if not."""
        return self._clients.refusal(certificate, self._clock()) if self._clients else ("", "")

    def refusals(self) -> tuple[str, ...]:
        """Return why the newest pairs are not served, if the last good pair is served instead."""
        return (*self._refused_files, *self._refused_offer) if self._in_use else ()

    def observe(self, metrics: Metrics) -> None:
        """Count reloads and show the end of the certificate in `metrics` from now on."""
        self._metrics = metrics.tls
        self._show_end(self._metrics)

    def _show_end(self, metrics: TlsMetrics) -> None:
        metrics.not_after.set(self._in_use.not_after.timestamp() if self._in_use else 0)

    def _is_over(self) -> bool:
        """Return whether something else may be served though no file has changed."""
        now, in_use, retry_at = self._clock(), self._in_use, self._retry_at
        has_ended = in_use is not None and now >= in_use.not_after
        return has_ended or (retry_at is not None and now >= retry_at)

    def _reload(self, stamp: Stamp) -> None:
        before, former, problems = self._in_use, self._refused_files, tuple[str, ...]()
        is_same = stamp == self._seen
        if is_same and (self._retry_at is None or self._clock() < self._retry_at):
            self._choose()  # another thread was first, or what is in use has ended
        else:
            problems = self._load(stamp)
        self._note(before, () if is_same and problems == former else problems)

    def _note(self, before: _Usable | None, problems: Sequence[str]) -> None:
        """Log and count what became of new files, or of a pair that was offered."""
        in_use = self._in_use
        if problems:
            log.error("certificate refused, the last good one stays", extra={"problems": problems})
        elif in_use is not None and in_use is not before:
            not_after = in_use.not_after.isoformat()
            log.info("certificate loaded", extra={"path": in_use.place, "not_after": not_after})
        if self._metrics:
            if problems or in_use is not before:
                self._metrics.reloads.labels("refused" if problems else "loaded").inc()
            self._show_end(self._metrics)

    def _load(self, stamp: Stamp) -> tuple[str, ...]:
        """Take the files up unless they have problems; remember the stamp in both cases."""
        authorities = self._seen[2:]
        problems: tuple[str, ...] = ()
        for _ in range(ATTEMPTS):
            self._seen = stamp
            problems = self._take_up_files()
            stamp = self._stamp()
            if stamp == self._seen:
                break
        self._refused_files = problems
        self._retry_at = self._clock() + RETRY if problems else None
        if self._seen[2:] != authorities:
            self._take_up_offer()
        self._choose()
        return problems

    def _take_up_files(self) -> tuple[str, ...]:
        now = self._clock()
        problems = pair_problems(self.certificate, self.key, now=now, names=self._checked_names())
        if problems := problems + self._client_problems(now):
            return problems
        try:
            context = server_context(self.certificate, self.key)
            if self._clients:
                self._clients.apply(context)
            leaf = read_chain(self.certificate)[0]
        except (OSError, ValueError) as err:  # changed since it was checked, or refused by OpenSSL
            return (f"{self.certificate}: {err}",)
        self._of_files = _Usable(str(self.certificate), context, leaf)
        return ()

    def _take_up_offer(self) -> None:
        if self._offer is None:
            return
        place, pair = self._offer
        now = self._clock()
        found = issued_problems(pair, now=now, names=self._checked_names())
        problems = (*(f"{place}, {each}" for each in found), *self._client_problems(now))
        if not problems:
            try:
                context = _context_of(pair)
                if self._clients:
                    self._clients.apply(context)
            except (OSError, ValueError) as err:
                problems = (f"{place}: {err}",)
            else:
                leaf = read_certificates(pair.certificate)[0]
                self._of_offer = _Usable(place, context, leaf)
        self._refused_offer = problems

    def _checked_names(self) -> tuple[str, ...]:
        """Return the names that a new pair has to cover.

        Of the very first one they are not checked: to serve nothing is no better.
        """
        return self._names if self._in_use else ()

    def _client_problems(self, now: datetime) -> tuple[str, ...]:
        """Return why the CAs of clients cannot be used; log once which are outside their time."""
        unusable, outside = self._clients.checked(now) if self._clients else ((), ())
        if outside and outside != self._outside:  # a refused pair is tried every few seconds
            log.warning("a CA of clients is outside its time", extra={"problems": outside})
        self._outside = outside
        return unusable

    def _choose(self) -> None:
        """Use the better one of the last good pairs: the newer one, if both do."""
        now = self._clock()
        usable = [each for each in (self._of_offer, self._of_files) if each is not None]
        if usable:
            self._in_use = max(
                usable,
                key=lambda each: (
                    now < each.not_after,
                    not self._missing_names(each.leaf),
                    each.leaf.not_valid_before_utc,
                ),
            )

    def _missing_names(self, leaf: x509.Certificate) -> list[str]:
        return [name for name in self._names if not covers(leaf, name)]

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


def _context_of(pair: Issued) -> ssl.SSLContext:
    """Make a context of a pair that is in no file, which OpenSSL does not take otherwise.

    Raises:
        OSError: It does not take them, or there is no place for files.
    """
    with tempfile.TemporaryDirectory(prefix="deferred-quota-") as made:
        certificate, key = Path(made, "tls.crt"), Path(made, "tls.key")
        write_file(certificate, pair.certificate, mode=KEY_MODE)
        write_file(key, pair.key, mode=KEY_MODE)
        return server_context(certificate, key)


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
