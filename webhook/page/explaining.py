"""`explain` of one pod, read with the token of the user that asks.

So the answer has what that user may read, and nothing else; what may not be read it names. The
controller's own rights have no part in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from webhook.config import Configuration
from webhook.kube.api import PODS, ClusterApi
from webhook.kube.rest import RestClient, RestConfig
from webhook.kube.rest.identity import Credentials, Identity
from webhook.operations.explain.entry import explanation_entry
from webhook.operations.explain.explaining import Target, explain
from webhook.operations.explain.session import ExplainOptions

MOST_PODS: Final = 2000
"""Pods of a cluster of which those with a node are read for each answer, in the memory of the
controller."""
MOST_BYTES: Final = 160 * 1024 * 1024
"""Of memory that objects may take which are kept for an answer, estimated from above; 2,000 usual
pods are estimated at 90 MiB. A page of a list and one object that is decoded come on top."""
_MOST_WEIGHT: Final = 2**22
"""Values times nodes and pods; that is some seconds, in which no other pod is explained."""
_AT_ONCE: Final = 1
_MOST_WAITING: Final = 3
"""Each has one of the page's few turns, which other requests need too."""
_WAIT_SECONDS: Final = 10.0
_TOO_LARGE: Final = (
    f"not looked at from here, as the cluster has more than {MOST_PODS} pods; the command line"
    " looks at them"
)


class BusyError(Exception):
    """Other answers are being made; this one may be asked for again."""


@dataclass(frozen=True, slots=True)
class ExplainSettings:
    """Sources of an answer."""

    configuration: Callable[[], Configuration]
    system_namespace: str
    """Namespace of the installation."""
    pod_count: Callable[[], int]
    """Returns how many pods the cluster has, as far as is known."""


class PodExplainer:
    """Answers about pods, one at a time, as each takes memory. Safe to use from several threads.

    Args:
        client_of: Opens the API server as the user of a token, see `user_clients`.
    """

    def __init__(
        self,
        client_of: Callable[[str], AbstractContextManager[ClusterApi]],
        settings: ExplainSettings,
    ) -> None:
        self._client_of = client_of
        self._settings = settings
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._places = threading.BoundedSemaphore(_AT_ONCE + _MOST_WAITING)

    def explain(self, token: str, namespace: str, name: str) -> dict[str, object]:
        """Return why a pod is pending, as plain values.

        Raises:
            BusyError: Other answers took too long, or several requests wait for them already.
            NotThereError: There is no such pod.
            ApiError: The user may not read it, or the API server does not answer.
            InvalidFieldError: It cannot be read.
        """
        with (
            _taken(self._places),
            _taken(self._turns, timeout=_WAIT_SECONDS),
            self._client_of(token) as api,
        ):
            options = ExplainOptions(
                self._settings.configuration(),
                self._settings.system_namespace,
                most_bytes=MOST_BYTES,
                most_weight=_MOST_WEIGHT,
                no_nodes=_TOO_LARGE if self._settings.pod_count() > MOST_PODS else "",
            )
            answer = explain(api, Target(PODS, namespace, name), options)
            return explanation_entry(answer)


@contextmanager
def _taken(turns: threading.Semaphore, *, timeout: float = 0.0) -> Iterator[None]:
    """Take a turn and give it back; raise BusyError where none is free in time."""
    if not turns.acquire(timeout=timeout):
        raise BusyError
    try:
        yield
    finally:
        turns.release()


def user_clients(access: RestConfig) -> Callable[[str], AbstractContextManager[ClusterApi]]:
    """Return what opens the API server of an access as the user of a token alone."""

    @contextmanager
    def client_of(token: str) -> Iterator[ClusterApi]:
        identity = Identity(f"Bearer {token}")
        theirs = replace(access, credentials=Credentials(lambda: identity), impersonation=())
        client = RestClient(theirs)
        try:
            yield client
        finally:
            client.close()

    return client_of
