"""Credentials of the client, and how they are kept fresh."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

__all__ = ["AccessError", "Credentials", "Identity", "Pem"]

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 10.0
"""How soon what could not be renewed is tried again; until then the old identity stands."""


class AccessError(Exception):
    """There is no way into the cluster: the message names file, context and field."""


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates or a key in PEM: a file that may change, or data that does not."""

    path: Path | None = None
    data: bytes = field(default=b"", repr=False)

    def read(self) -> bytes:
        """Return the PEM text.

        Raises:
            AccessError: The file cannot be read.
        """
        if self.path is None:
            return self.data
        try:
            return self.path.read_bytes()
        except OSError as err:
            raise AccessError(f"{self.path}: {err.strerror}") from err

    def stamp(self) -> object:
        """Return what is another value once the text is another."""
        if self.path is None:
            return self.data
        try:
            found = self.path.stat()
        except OSError as err:
            raise AccessError(f"{self.path}: {err.strerror}") from err
        return (found.st_mtime_ns, found.st_ino, found.st_size)


@dataclass(frozen=True, slots=True)
class Identity:
    """Credentials for the API server; both empty for none."""

    authorization: str = field(default="", repr=False)
    """Value of the Authorization header."""
    certificate: tuple[Pem, Pem] | None = None
    """Certificate chain and key of the TLS client."""
    fresh_until: float = field(default=math.inf, compare=False)
    """The monotonic time at which it has to be read again."""


class Credentials:
    """An identity that is renewed when its time is up or the API server has refused it."""

    def __init__(
        self, load: Callable[[], Identity], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Load the identity.

        Args:
            load: Reads the file or asks the program; raises `AccessError`.
            clock: The clock of `Identity.fresh_until`.

        Raises:
            AccessError: It cannot be loaded.
        """
        self._load = load
        self._clock = clock
        self._lock = threading.Lock()
        self._identity = load()

    def identity(self) -> Identity:
        """Return the identity to use now."""
        found = self._identity
        return found if self._clock() < found.fresh_until else self._renewed(found)

    def renew(self, refused: Identity) -> bool:
        """Load again what the API server has refused; return whether another one came of it."""
        return self._renewed(refused) != refused

    def _renewed(self, old: Identity) -> Identity:
        with self._lock:
            if self._identity is old:
                self._identity = self._loaded_instead_of(old)
            return self._identity

    def _loaded_instead_of(self, old: Identity) -> Identity:
        try:
            return self._load()
        except AccessError as err:
            log.warning("credentials not renewed", extra={"error": str(err)})
            return replace(old, fresh_until=self._clock() + RETRY_SECONDS)
