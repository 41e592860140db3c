"""Reading for one explanation: what may not be read is noted, and the rest goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from webhook.config import Configuration
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ClusterApi, ForbiddenError, Kind, NotFoundError, Object
from webhook.operations.reading import read_all
from webhook.state.well_known import DEFAULT_NAMESPACE

_T = TypeVar("_T")


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
        except InvalidFieldError as err:
            self.unknown.append(f"{what}: {err}")
        return otherwise

    def objects(
        self, kind: Kind, *, namespace: str | None = None, field_selector: str = ""
    ) -> tuple[Object, ...]:
        """Return all objects of a kind.

        Raises:
            ApiError: They cannot be listed.
        """
        if self.options.is_offline:  # all is in memory: parts would only be copies
            listed = self.api.list(kind, namespace=namespace, field_selector=field_selector)
            return listed.items
        found = read_all(
            self.api, kind, _as_it_is, namespace=namespace, field_selector=field_selector
        )
        return tuple(found)


def _as_it_is(raw: Object) -> Object:
    return raw
