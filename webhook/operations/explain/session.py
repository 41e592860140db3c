"""Reading for one explanation: what may not be read is noted, and the rest goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

from webhook.config import Configuration
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ClusterApi, ForbiddenError, Kind, NotFoundError, Object
from webhook.kube.codec import decode_object
from webhook.operations.reading import read_all
from webhook.state.well_known import DEFAULT_NAMESPACE

_T = TypeVar("_T")

_NOT_FROM_HERE: Final = "too large to be looked at from here; the command line looks at them"


class TooLargeError(Exception):
    """More would have to be kept of objects than one explanation may."""


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """How to read and to judge."""

    configuration: Configuration = field(default_factory=Configuration)
    system_namespace: str = DEFAULT_NAMESPACE
    """Namespace of the installation."""
    is_offline: bool = False
    """The cluster is a snapshot: nothing moves, and what is missing may only not be in it."""
    probes: bool = True
    """Whether to find out if the controller and the webhook work; without it they are not known."""
    no_nodes: str = ""
    """Why nodes are not looked at, and the pods of the whole cluster for them; empty where they
    are."""
    most_bytes: int = 0
    """Bytes of objects that are kept at a time; 0 for any number. Tenants make objects large."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(slots=True)
class Session:
    """One explanation in the making."""

    api: ClusterApi
    options: ExplainOptions
    unknown: list[str] = field(default_factory=list)
    """Facts that could not be read, in words."""
    _kept_bytes: int = 0

    def read(self, call: Callable[[], _T], otherwise: _T, what: str) -> _T:
        """Return what a call reads; `otherwise` where the caller has no right to it.

        A kind that the cluster does not serve, and an object that is not there, are `otherwise`
        too, and nothing to note.

        Raises:
            ApiError: The cluster does not answer.
        """
        try:
            return call()
        except NotFoundError:
            return otherwise
        except ForbiddenError:
            self.unknown.append(f"{what}: no right to read")
        except TooLargeError:
            self.unknown.append(f"{what}: {_NOT_FROM_HERE}")
        except InvalidFieldError as err:
            self.unknown.append(f"{what}: {err}")
        return otherwise

    def objects(
        self, kind: Kind, *, namespace: str | None = None, field_selector: str = ""
    ) -> tuple[Object, ...]:
        """Return all objects of a kind.

        Raises:
            ApiError: They cannot be listed.
            TooLargeError: They are larger, with what was read before, than may be kept.
        """
        if self.options.is_offline:  # all is in memory: parts would only be copies
            listed = self.api.list(kind, namespace=namespace, field_selector=field_selector)
            return listed.items
        before = self._kept_bytes
        try:
            found = read_all(
                self.api,
                kind,
                _as_it_is,
                namespace=namespace,
                field_selector=field_selector,
                decode=self._decode,
            )
        except TooLargeError:
            self._kept_bytes = before  # nothing is kept of them, so there is room for others
            raise
        return tuple(found)

    def _decode(self, data: bytes) -> Object:
        self._kept_bytes += len(data)
        if 0 < self.options.most_bytes < self._kept_bytes:
            raise TooLargeError
        return decode_object(data)


def _as_it_is(raw: Object) -> Object:
    return raw
