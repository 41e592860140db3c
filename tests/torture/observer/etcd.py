"""etcd's history of some keys, in its own revisions, through its JSON gateway.

The API server's resource versions are etcd's revisions. Reading etcd itself, nothing is missed
when the API server is restarted, and nothing that stands between the product and the API server
stands between the observer and the truth. After a lost connection a watch goes on from the next
revision; one that has been compacted away is an error, because then something is missed.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

_SILENT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.1


class LostHistoryError(Exception):
    """Part of the history cannot be read any more."""


@dataclass(frozen=True, slots=True)
class Change:
    """One revision of one key.

    Attributes:
        value: What is stored, or was before a deletion.
    """

    key: str
    revision: int
    value: bytes
    is_deleted: bool


class EtcdHistory:
    """Follows keys from a revision on, for ever.

    Args:
        url: The client URL of etcd, plain HTTP.
        first: The first key.
        end: The first key that is not followed any more.
        revision: The first revision.
        is_stopping: Asked whenever there is nothing to read.
    """

    def __init__(
        self,
        url: str,
        first: str,
        end: str,
        *,
        revision: int,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._address = urlsplit(url).netloc
        self._range = (first, end)
        self._revision = revision
        self._is_stopping = is_stopping

    def __iter__(self) -> Iterator[Change]:
        """Yield all changes in their order.

        Raises:
            LostHistoryError: A revision that has not been read is compacted.
        """
        while not self._is_stopping():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                yield from self._follow()
            time.sleep(_PAUSE_SECONDS)

    def _follow(self) -> Iterator[Change]:
        connection = http.client.HTTPConnection(self._address, timeout=_SILENT_SECONDS)
        try:
            connection.request("POST", "/v3/watch", json.dumps(self._request()))
            response = connection.getresponse()
            while line := response.readline():
                result = msgspec.json.decode(line).get("result")
                if result is None:
                    return
                self._check(result)
                for event in result.get("events", ()):
                    change = _change(event)
                    yield change
                    self._revision = change.revision
                # what one revision changes comes in one message
                if result.get("events"):
                    self._revision += 1
                if self._is_stopping():
                    return
        finally:
            connection.close()

    def _request(self) -> dict[str, object]:
        first, end = self._range
        return {
            "create_request": {
                "key": _encoded(first),
                "range_end": _encoded(end),
                "start_revision": str(self._revision),
                "prev_kv": True,
                "progress_notify": True,
            }
        }

    def _check(self, result: Mapping[str, Any]) -> None:
        if result.get("compact_revision") or result.get("canceled"):
            raise LostHistoryError(
                f"etcd has ended the watch of {self._range[0]} from {self._revision}:"
                f" compacted at {result.get('compact_revision')} {result.get('cancel_reason', '')}"
            )


def current_revision(url: str) -> int:
    """Ask for etcd's revision."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("POST", "/v3/kv/range", json.dumps({"key": _encoded("/")}))
        return int(msgspec.json.decode(connection.getresponse().read())["header"]["revision"])
    finally:
        connection.close()


def _change(event: Mapping[str, Any]) -> Change:
    is_deleted = event.get("type") == "DELETE"
    stored = event.get("prev_kv", {}) if is_deleted else event["kv"]
    return Change(
        key=base64.b64decode(event["kv"]["key"]).decode(),
        revision=int(event["kv"]["mod_revision"]),
        value=base64.b64decode(stored.get("value", "")),
        is_deleted=is_deleted,
    )


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
