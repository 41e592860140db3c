"""Ledger objects from a watch, kept as text and parsed on first use.

Most versions that a replica receives are replaced by the next one before a claim is decided by
them. A parsed version shares the reservations whose text is the same in the version before, which
are nearly all.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any, Final, TypedDict

import msgspec

from webhook.jsonfields.encoding import NumberText, decode_deep
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import Object
from webhook.kube.codec import decode_object
from webhook.kube.errors import BadRequestError
from webhook.quota.ledger.ledger import Ledger, Reservation
from webhook.quota.ledger.ledger_codec import ledger_from_status
from webhook.quota.ledger.reservation_codec import reservation_of


@dataclass(frozen=True, slots=True)
class LedgerVersion:
    """A ledger and the version of the object that held it; None while nothing is counted."""

    resource_version: int
    uid: str
    ledger: Ledger | None

    @property
    def pods_barrier(self) -> int:
        """The ledger's barrier; 0 while nothing is counted."""
        return 0 if self.ledger is None else self.ledger.pods_barrier


class LazyLedger:
    """One version of a ledger object, read at most once. Safe to use from several threads."""

    __slots__ = ("_data", "_lock", "_read")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._read: LedgerVersion | None = None

    def version(self, before: dict[str, Reservation]) -> LedgerVersion | None:
        """Return what it says; None if it cannot be read.

        Args:
            before: What was read of the same ledger before; afterwards what this version holds.
        """
        with self._lock:
            if self._data:
                self._read = _parse(self._data, before)
                self._data = b""
            return self._read


def read_ledger(raw: Object, before: dict[str, Reservation] | None = None) -> LedgerVersion:
    """Read a QuotaLedger object.

    Args:
        raw: The object.
        before: As `LazyLedger.version` takes it; left as it is where the object cannot be read.

    Raises:
        InvalidFieldError: It cannot be read; the error has the path.
    """
    uid, number = identity_of(raw)
    return _version(uid, number, _ledger_of(raw.get("status"), {} if before is None else before))


def identity_of(raw: Object) -> tuple[str, int]:
    """Return uid and version of a stored object.

    Raises:
        InvalidFieldError: They cannot be read; the error has the path.
    """
    metadata = FieldReader(raw).child("metadata")
    version, uid = metadata.text("resourceVersion"), metadata.text("uid")
    if not (version.isascii() and version.isdecimal()):
        raise InvalidFieldError("metadata.resourceVersion", "must be a resource version")
    return uid, int(version)


class _Parts(TypedDict, total=False):
    metadata: Any
    status: Any


_PARTS: Final = msgspec.json.Decoder(_Parts, float_hook=NumberText)


def _parse(data: bytes, before: dict[str, Reservation]) -> LedgerVersion | None:
    try:
        try:
            parts = decode_deep(_PARTS, data)
        except msgspec.MsgspecError:
            return read_ledger(decode_object(data))  # which says what is wrong with it
        uid, number = identity_of(parts)
        return _version(uid, number, _ledger_of(parts.get("status"), before))
    except (InvalidFieldError, BadRequestError):
        return None


def _ledger_of(status: object, before: dict[str, Reservation]) -> Ledger | None:
    read: dict[str, Reservation] = {}

    def reservation(line: str, field: str) -> Reservation:
        found = before.get(line)
        if found is None:
            found = reservation_of(line, field)
        read[line] = found
        return found

    ledger = ledger_from_status(status, reader=reservation)
    before.clear()
    before.update(read)
    return ledger


def _version(uid: str, number: int, ledger: Ledger | None) -> LedgerVersion:
    return LedgerVersion(number, uid, None if ledger is None else _believable(ledger, number))


def _believable(ledger: Ledger, version: int) -> Ledger:
    """Bring what was written by hand back to what can be: nothing is newer than the object."""
    if max(ledger.pods_resource_version, ledger.pods_barrier) <= version:
        return ledger
    return replace(
        ledger,
        pods_resource_version=min(ledger.pods_resource_version, version),
        pods_barrier=min(ledger.pods_barrier, version),
    )
