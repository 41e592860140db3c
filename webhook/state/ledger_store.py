"""Ledger objects in the API server: read, compare-and-swap, create, follow.

The last version that was read, written or watched of a namespace is cached, because the next write
most often replaces it. It can be outdated: writes find that out by their version, and a denial
reads first (`fetch`). If several processes write, `follow` keeps the cache as new as a watch can.

Versions are numbers of the whole API server. So of two states of one namespace the one with the
higher version is newer, be it an update, another object or a deletion; what a watch or a slow
answer delivers late never replaces it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.jsonfields.encoding import encoded_part
from webhook.jsonfields.fields import NewerFormatError
from webhook.kube.api import (
    QUOTA_LEDGERS,
    AlreadyExistsError,
    ClusterApi,
    InternalError,
    ListOptions,
    Object,
    TooLargeError,
    find_object,
    split_key,
)
from webhook.kube.informer import Change, Informer, InformerTimings
from webhook.kube.pager import list_pages
from webhook.quota.ledger.ledger import Ledger, Reservation
from webhook.quota.ledger.ledger_codec import EncodedStatus, encode_status, is_of_newer_release
from webhook.state.lazy_ledger import LazyLedger, LedgerVersion, identity_of, read_ledger

__all__ = ["LEDGER_NAME", "LedgerStore", "LedgerVersion", "empty_ledger", "read_ledger"]

LEDGER_NAME: Final = "ledger"
_TOO_LARGE_TEXTS: Final = ("request is too large", "message larger than max")
"""What etcd and its client say; the API server hands it on as a failure of its own.

Source: kubernetes v1.36, apiserver/pkg/endpoints/handlers/rest.go isTooLargeError.
"""
_MAX_DELETIONS: Final = 1024
"""Deletions that are remembered; what comes later than that many others is found out in use."""


@dataclass(frozen=True, slots=True)
class _Latest:
    """The newest that is known of one ledger object."""

    resource_version: int
    uid: str
    content: LedgerVersion | LazyLedger


@dataclass(slots=True, eq=False)
class _CacheEntry:
    """Ledger of one namespace, as it is known and as it was read before."""

    known: _Latest | None = None
    read_before: dict[str, Reservation] = field(default_factory=dict)

    def read(self) -> LedgerVersion | None:
        """Return what is known; None if nothing is, or it cannot be read."""
        known = self.known
        if known is None:
            return None
        if isinstance(known.content, LazyLedger):
            return known.content.version(self.read_before)
        return known.content


class LedgerStore:
    """Reads and writes the ledger of each namespace. Safe to use from several threads.

    Args:
        on_write: Receives the size in bytes of each ledger that was written.
    """

    def __init__(
        self, api: ClusterApi, *, on_write: Callable[[int], None] = lambda _size: None
    ) -> None:
        self._api = api
        self._on_write = on_write
        self._lock = threading.Lock()
        self._places: dict[str, _CacheEntry] = {}
        self._deleted_at: dict[str, int] = {}
        self._newer: dict[str, str] = {}
        """Namespace → why its ledger is left to a newer release."""

    def follow(self, timing: InformerTimings | None = None) -> Informer[LazyLedger]:
        """Return an informer that, once started, keeps aside what others write."""
        informer = Informer(
            self._api,
            QUOTA_LEDGERS,
            transform=_text_of,
            options=ListOptions(field_selector=f"metadata.name={LEDGER_NAME}"),
            timings=timing,
            decode=_undecoded,
        )
        informer.add_handler(self.observe)
        return informer

    def newer_formats(self) -> list[str]:
        """Return which ledgers of a newer release were met, and are still there."""
        return [
            f"the ledger of namespace {namespace} cannot be read: {error}"
            for namespace, error in sorted(self._newer.copy().items())
        ]

    def __len__(self) -> int:
        """Return of how many namespaces a ledger is known here."""
        return len(self._places)

    def known(self, namespace: str) -> LedgerVersion | None:
        """Return the newest version known here, without asking; None when none is.

        None too when it cannot be read: `fetch` says why.
        """
        place = self._places.get(namespace)
        return None if place is None else place.read()

    def fetch(self, namespace: str) -> LedgerVersion | None:
        """Read the ledger as it is now; None when there is none.

        Raises:
            ApiError: The API server does not answer.
            NewerFormatError: A newer release wrote it: it may not be replaced.
            InvalidFieldError: The object cannot be read.
        """
        place = self._places.get(namespace) or _CacheEntry()
        before = place.known
        obj = find_object(self._api, QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        if obj is None:
            self._drop(namespace, before)
            return None
        try:
            version = self._same(namespace, obj) or read_ledger(obj, place.read_before)
            return self._keep(namespace, version)
        except NewerFormatError as err:
            self._newer[namespace] = str(err)
            raise

    def fetch_blank(self, namespace: str) -> LedgerVersion | None:
        """Read only which object there is, to replace what it says; None when there is none.

        Raises:
            ApiError: The API server does not answer.
            NewerFormatError: A newer release has written it by now.
        """
        obj = find_object(self._api, QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        if obj is None:
            return None
        if is_of_newer_release(obj.get("status")):
            raise NewerFormatError("status.format", "is of a newer release by now")
        return read_ledger({**obj, "status": None})

    def uids(self, *, newest: int) -> Mapping[str, str]:
        """List the ledgers that there are now: namespace → uid.

        Args:
            newest: The newest version that was seen before: an older list shows nothing.

        Raises:
            ApiError: The API server does not answer, or not with a whole list.
        """
        # A list without a resourceVersion is as of now, as a get is, even from a watch cache. All
        # pages are of the moment of the first one, so a namespace that is in none of them had no
        # ledger after this call began.
        options = ListOptions(field_selector=f"metadata.name={LEDGER_NAME}")
        pages = list_pages(self._api, QUOTA_LEDGERS, options, newest=newest, is_brief=True)
        return {split_key(one.key)[0]: one.uid for page in pages for one in page.items}

    def forget(self, namespace: str) -> None:
        """Forget what is known of a namespace: it is gone, or its ledger is."""
        with self._lock:
            self._places.pop(namespace, None)
            self._newer.pop(namespace, None)

    def write(
        self,
        namespace: str,
        version: LedgerVersion,
        ledger: Ledger,
        *,
        status: EncodedStatus | None = None,
    ) -> LedgerVersion:
        """Write `ledger` in the place of `version`.

        Args:
            version: What is replaced.
            ledger: What is written.
            status: `ledger` as JSON, where it is encoded already.

        Raises:
            ConflictError: The object is at another version; nothing was written.
            TooLargeError: It would be larger than what is stored; nothing was written.
            ApiError: Unavailable and the like leave open whether it was written.
        """
        encoded = status or encode_status(ledger)
        obj = _ledger_object(namespace, version, encoded)
        try:
            written = self._api.update_status(QUOTA_LEDGERS, obj, is_brief=True)
        except InternalError as err:
            if any(text in err.message for text in _TOO_LARGE_TEXTS):
                raise TooLargeError(err.message) from err
            raise
        self._on_write(len(encoded))
        return self._keep(namespace, LedgerVersion(written.resource_version, written.uid, ledger))

    def create(self, namespace: str) -> LedgerVersion | None:
        """Create an empty ledger object, or read the one that another process created."""
        try:
            created = self._api.create(QUOTA_LEDGERS, empty_ledger(namespace))
        except AlreadyExistsError:
            return self.fetch(namespace)
        return self._keep(namespace, LedgerVersion(created.resource_version, created.uid, None))

    # -- what is kept aside ----------------------------------------------------------------

    def _known(self, namespace: str) -> _Latest | None:
        place = self._places.get(namespace)
        return None if place is None else place.known

    def _same(self, namespace: str, obj: Object) -> LedgerVersion | None:
        """Return what is known, if that is what was found: it need not be read again."""
        known = self._known(namespace)
        if known is None or identity_of(obj) != (known.uid, known.resource_version):
            return None
        return self.known(namespace)

    def _keep(self, namespace: str, version: LedgerVersion) -> LedgerVersion:
        self._put(namespace, _Latest(version.resource_version, version.uid, version))
        self._newer.pop(namespace, None)
        return version

    def _put(self, namespace: str, new: _Latest) -> None:
        with self._lock:
            if new.resource_version < self._deleted_at.get(namespace, 0):
                return
            place = self._places.setdefault(namespace, _CacheEntry())
            known = place.known
            # of two entries of the same version, the decoded one is kept
            is_read = isinstance(new.content, LedgerVersion)
            if known is None or known.resource_version < new.resource_version + is_read:
                place.known = new

    def _drop(self, namespace: str, gone: _Latest | None) -> None:
        """Forget what was known before the API server said that there is none."""
        with self._lock:
            place = self._places.get(namespace)
            if place is not None and place.known is gone:
                place.known = None
            self._newer.pop(namespace, None)

    def observe(self, change: Change[LazyLedger]) -> None:
        """Update the cache with a change of a ledger; the handler of `follow`'s informer."""
        namespace, _ = split_key(change.key)
        if change.type == "DELETED":
            self._note_deletion(namespace, change.uid, change.resource_version)
        elif change.new is not None:
            self._put(namespace, _Latest(change.resource_version, change.uid, change.new))
            if namespace in self._newer and self.known(namespace) is not None:
                self._newer.pop(namespace, None)

    def _note_deletion(self, namespace: str, uid: str, version: int) -> None:
        with self._lock:
            self._newer.pop(namespace, None)
            self._deleted_at.pop(namespace, None)
            self._deleted_at[namespace] = version
            if len(self._deleted_at) > _MAX_DELETIONS:
                del self._deleted_at[next(iter(self._deleted_at))]
            known = self._known(namespace)
            if known is not None and (known.uid == uid or known.resource_version < version):
                del self._places[namespace]


def empty_ledger(namespace: str) -> dict[str, object]:
    """Return the ledger object of a namespace, as it is created: nothing is counted in it."""
    return QUOTA_LEDGERS.make({"name": LEDGER_NAME, "namespace": namespace})


def _undecoded(data: bytes) -> Object:
    """Stand in for decoding: the text is what is kept."""
    return {"text": data}


def _text_of(raw: Object) -> LazyLedger:
    data = raw["text"]
    assert isinstance(data, bytes)  # noqa: S101 - see `_undecoded`
    return LazyLedger(data)


def _ledger_object(
    namespace: str, version: LedgerVersion, status: EncodedStatus
) -> dict[str, object]:
    metadata = {
        "name": LEDGER_NAME,
        "namespace": namespace,
        "uid": version.uid,
        "resourceVersion": str(version.resource_version),
    }
    return QUOTA_LEDGERS.make(metadata, status=encoded_part(status))
