"""The configuration in a file, read again when the file changes."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from webhook.config.schema import Check, accept, load_configuration
from webhook.config.settings import Configuration, ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A changed file that cannot be used."""

    error: str
    """The file, the path in it, and what is wrong there."""

    since: float
    """Unix time at which that was noticed first; kept while the file stays unusable."""


class ConfigurationFile:
    """The configuration in a file, kept up to date.

    A changed file that cannot be used leaves the configuration before it in force; that is logged,
    once for each change. A file that went away is such a change. `current` may be read from any
    thread; `poll` belongs to one thread.
    """

    def __init__(self, path: Path, *, check: Check = accept) -> None:
        """Read the file for the first time.

        Args:
            path: The file; links are followed, as in a mounted ConfigMap.
            check: As for `load_configuration`.

        Raises:
            ConfigurationError: The file cannot be read or used, and there is nothing before it.
        """
        self._path = path
        self._check = check
        self._digest = 0
        self._seen = _signature(path)
        self._current = self._read()
        self._loaded_at = time.time()
        self._rejection: Rejection | None = None

    @property
    def current(self) -> Configuration:
        """The configuration in force."""
        return self._current

    @property
    def loaded_at(self) -> float:
        """Unix time at which the configuration in force was read."""
        return self._loaded_at

    @property
    def rejection(self) -> Rejection | None:
        """Why the file as it is now is not in force; None when it is."""
        return self._rejection

    @property
    def digest(self) -> int:
        """The first 48 bits of the SHA-256 of the text of the configuration in force."""
        return self._digest

    def poll(self) -> bool:
        """Read the file again if it changed; return whether a new configuration took effect."""
        signature = _signature(self._path)
        if signature == self._seen:
            return False
        self._seen = signature  # taken before reading: a write after it is seen the next time
        try:
            self._current = self._read()
        except ConfigurationError as err:
            since = time.time() if self._rejection is None else self._rejection.since
            self._rejection = Rejection(str(err), since)
            log.error(  # noqa: TRY400 - no traceback helps
                "configuration rejected, the one before stays", extra={"error": str(err)}
            )
            return False
        self._rejection, self._loaded_at = None, time.time()
        log.info("configuration reloaded", extra={"path": str(self._path)})
        return True

    def _read(self) -> Configuration:
        source = str(self._path)
        try:
            text = self._path.read_text(encoding="utf-8")
        except OSError as err:
            raise ConfigurationError(source, "", err.strerror or str(err)) from err
        except UnicodeDecodeError as err:
            raise ConfigurationError(source, "", "is not UTF-8 text") from err
        configuration = load_configuration(text, source, check=self._check)
        self._digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
        return configuration


def _signature(path: Path) -> Hashable:
    """Return a value that differs after every change of the file; None if it cannot be seen."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
