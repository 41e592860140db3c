"""Ledger objects in the API server: read, compare-and-swap, create.

What was last read or written of a namespace is kept aside, because the next write most often
follows the last one. It can be out of date: writes find out by their version, and whoever means
to refuse something reads first (`fetch`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from webhook.cluster.api import (
    QUOTA_LEDGERS,
    AlreadyExistsError,
    ClusterApi,
    NotFoundError,
    Object,
    Revision,
)
from webhook.quota.fields import InvalidFieldError, mapping, text
from webhook.quota.ledger import Ledger
from webhook.quota.ledger_codec import ledger_from_status, ledger_status

LEDGER_NAME: Final = "ledger"


@dataclass(frozen=True, slots=True)
class LedgerVersion:
    """A ledger and the version of the object that held it; None while nothing is counted."""

    resource_version: int
    uid: str
    ledger: Ledger | None

    @property
    def barrier(self) -> int:
        """The ledger's barrier; 0 while nothing is counted."""
        return 0 if self.ledger is None else self.ledger.barrier


class LedgerStore:
    """Reads and writes the ledger of each namespace. Safe to use from several threads."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._known: dict[str, LedgerVersion] = {}

    def known(self, namespace: str) -> LedgerVersion | None:
        """Return the newest version known here, without asking; None when none is."""
        return self._known.get(namespace)

    def fetch(self, namespace: str) -> LedgerVersion | None:
        """Read the ledger as it is now; None when there is none.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: The object cannot be read.
        """
        try:
            found = self._api.get(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        except NotFoundError:
            with self._lock:
                self._known.pop(namespace, None)
            return None
        return self._keep(namespace, read_ledger(found))

    def fetch_blank(self, namespace: str) -> LedgerVersion | None:
        """Read only which object there is, to replace what it says; None when there is none.

        Raises:
            ApiError: The API server does not answer.
        """
        try:
            found = self._api.get(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        except NotFoundError:
            return None
        return read_ledger({**found, "status": None})

    def forget(self, namespace: str) -> None:
        """Forget a namespace that is gone."""
        with self._lock:
            self._known.pop(namespace, None)

    def write(self, namespace: str, version: LedgerVersion, ledger: Ledger) -> LedgerVersion:
        """Write `ledger` in the place of `version`.

        Raises:
            ConflictError: The object is at another version; nothing was written.
            ApiError: Unavailable and the like leave open whether it was written.
        """
        written = self._api.update_status(
            QUOTA_LEDGERS, _ledger_object(namespace, version, ledger_status(ledger))
        )
        return self._keep(namespace, _version_of(written, ledger))

    def create(self, namespace: str) -> LedgerVersion | None:
        """Create an empty ledger object, or read the one that somebody else created."""
        metadata = {"name": LEDGER_NAME, "namespace": namespace}
        try:
            created = self._api.create(
                QUOTA_LEDGERS,
                {
                    "apiVersion": QUOTA_LEDGERS.api_version,
                    "kind": QUOTA_LEDGERS.kind,
                    "metadata": metadata,
                },
            )
        except AlreadyExistsError:
            return self.fetch(namespace)
        return self._keep(namespace, _version_of(created, None))

    def _keep(self, namespace: str, version: LedgerVersion) -> LedgerVersion:
        with self._lock:
            known = self._known.get(namespace)
            # of one object the highest version is the newest; another uid is a new object
            if (
                known is None
                or known.uid != version.uid
                or (known.resource_version < version.resource_version)
            ):
                self._known[namespace] = version
        return version


def read_ledger(raw: Object) -> LedgerVersion:
    """Read a QuotaLedger object.

    Raises:
        InvalidFieldError: It cannot be read; the error has the path.
    """
    metadata = mapping(raw.get("metadata"), "metadata")
    version = text(metadata.get("resourceVersion"), "metadata.resourceVersion")
    uid = text(metadata.get("uid"), "metadata.uid")
    if not (version.isascii() and version.isdecimal()):
        raise InvalidFieldError("metadata.resourceVersion", "must be a resource version")
    number = int(version)
    ledger = ledger_from_status(raw.get("status"))
    return LedgerVersion(number, uid, None if ledger is None else _believable(ledger, number))


def _believable(ledger: Ledger, version: int) -> Ledger:
    """Bring what somebody wrote by hand back to what can be: nothing is newer than the object."""
    if max(ledger.pods_resource_version, ledger.barrier) <= version:
        return ledger
    return replace(
        ledger,
        pods_resource_version=min(ledger.pods_resource_version, version),
        barrier=min(ledger.barrier, version),
    )


def _version_of(revision: Revision, ledger: Ledger | None) -> LedgerVersion:
    return LedgerVersion(revision.resource_version, revision.uid, ledger)


def _ledger_object(
    namespace: str, version: LedgerVersion, status: Mapping[str, object]
) -> dict[str, object]:
    return {
        "apiVersion": QUOTA_LEDGERS.api_version,
        "kind": QUOTA_LEDGERS.kind,
        "metadata": {
            "name": LEDGER_NAME,
            "namespace": namespace,
            "uid": version.uid,
            "resourceVersion": str(version.resource_version),
        },
        "status": status,
    }
