"""Served certificate, kept up with its Secret and with the registrations that call it.

One thread looks whenever one of both changes, and every few seconds. It loads what is new, and then
calls its own port as the API server would, by every entry of the registrations: what that refuses
makes the replica not ready. Without an API server what was known last stays, and where nothing ever
was known the files are served.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from webhook.controllers.runtime.periodic import PeriodicThread
from webhook.kube.api import SECRETS, ClusterApi, ListOptions
from webhook.kube.informer import Change, Informer
from webhook.telemetry.metrics import Metrics
from webhook.tls.called_names import (
    REGISTRATIONS,
    RegisteredCall,
    own_calls,
    registered_calls,
)
from webhook.tls.files import CertificateFiles
from webhook.tls.issue import Issued
from webhook.tls.rotation_store import served_pair
from webhook.tls.verification import Verification, handshake_with, verify

_LOOK_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 1.0
"""Between looks while one did not come to an end."""
_START_SECONDS: Final = 0.1
"""Between looks until the registrations were read once."""
_STOP_SECONDS: Final = 0.1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSources:
    """Sources of a server's certificate."""

    files: CertificateFiles
    names: Sequence[str] = ()
    """The names by which it is called; none are those that the registrations call."""
    secret: str = ""
    """Name of the Secret, in the installation's namespace, of which the files are a copy."""


class CertificateWatch:
    """Follows the Secret and the registrations while the server runs.

    Args:
        metrics: Where it shows what it finds.
        url: Where the server listens.
        namespace: Namespace of the installation.
        is_in_pod: Whether this process is in a pod of the cluster.
    """

    def __init__(
        self,
        api: ClusterApi,
        sources: CertificateSources,
        metrics: Metrics,
        *,
        url: str,
        namespace: str,
        is_in_pod: bool,
    ) -> None:
        self._sources = sources
        self._is_in_pod = is_in_pod
        self._metrics = metrics.tls
        place = urlsplit(url)
        self._handshake = handshake_with((place.hostname or "localhost", place.port or 443))
        self._registrations: list[Informer[tuple[RegisteredCall, ...]]] = [
            Informer(
                api,
                kind,
                transform=partial(registered_calls, kind),
                options=ListOptions(field_selector=f"metadata.name={name}"),
            )
            for kind, name in REGISTRATIONS
        ]
        for informer in self._registrations:
            informer.add_handler(self._on_change)
        self._place = f"Secret {namespace}/{sources.secret}"
        self._key = f"{namespace}/{sources.secret}"
        self._secret: Informer[Issued] | None = None
        if sources.secret:
            options = ListOptions(namespace, field_selector=f"metadata.name={sources.secret}")
            self._secret = Informer(api, SECRETS, transform=served_pair, options=options)
            self._secret.add_handler(self._on_change)
        self._names: frozenset[str] = frozenset()
        self._found: Verification | None = None
        self._obstacle = "registrations: not read yet"
        self._thread = PeriodicThread("certificates", self._look, retry_seconds=_AGAIN_SECONDS)

    def start(self) -> None:
        """Start to follow; returns at once."""
        for informer in self._informers:
            informer.start()
        self._thread.start()

    def stop(self) -> None:
        """End following; a look that hangs is nothing to wait for."""
        self._thread.request_stop()
        for informer in self._informers:
            informer.stop(timeout_seconds=_STOP_SECONDS)

    def readiness_problems(self) -> Sequence[str]:
        """Return why calls of the API server fail at this replica, if they do."""
        return [self._obstacle] if self._found is None else self._found.problems

    def warnings(self) -> Sequence[str]:
        """Return what people should see to although another certificate would not mend it."""
        errors = [str(each.last_error) for each in self._informers if each.last_error is not None]
        unread = dict.fromkeys(errors)
        return [
            *(f"what is served is not compared with the cluster: {each}" for each in unread),
            *(() if self._found is None else self._found.notes),
        ]

    @property
    def _informers(self) -> tuple[Informer[tuple[RegisteredCall, ...]] | Informer[Issued], ...]:
        return (*self._registrations, *(() if self._secret is None else (self._secret,)))

    def _on_change(self, _change: Change[tuple[RegisteredCall, ...]] | Change[Issued]) -> None:
        self._thread.wake()

    def _look(self) -> float:
        """Load a new pair, and verify it; return the seconds until the next look."""
        files = self._sources.files
        pair = None if self._secret is None else self._secret.get(self._key)
        if pair is not None:
            files.offer(pair, self._place)
        if not all(each.has_synced or each.last_error for each in self._registrations):
            return _START_SECONDS
        calls = self._calls()
        if all(each.has_synced for each in self._registrations):
            self._follow(calls)
        files.context()  # which loads files that are new
        try:
            found = verify(calls, self._handshake)
        except OSError as err:  # a server that is slow has no other certificate for that
            self._obstacle = f"the certificate is not verified yet: {err}"
            return _AGAIN_SECONDS
        if any(each.last_error for each in self._registrations):
            # what is known of them may be of the past: no reason to take this replica out
            found = replace(found, problems=(), notes=(*found.problems, *found.notes))
        if found.problems and (self._found is None or found.problems != self._found.problems):
            _log.warning("certificate not verified", extra={"problems": found.problems})
        self._found = found
        self._metrics.refusing.set(found.refusing)
        return _LOOK_SECONDS

    def _calls(self) -> tuple[RegisteredCall, ...]:
        calls = (
            call for each in self._registrations for one in each.items().values() for call in one
        )
        return own_calls(calls, names=self._sources.names, is_in_pod=self._is_in_pod)

    def _follow(self, calls: Sequence[RegisteredCall]) -> None:
        """Let the certificate go by the names that are called."""
        names = frozenset(each.name for each in calls)
        if names != self._names:
            _log.info("called by the API server", extra={"names": sorted(names)})
            self._names = names
        if not self._sources.names:
            self._sources.files.require(names)
