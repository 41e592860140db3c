"""Rotation of the installation's certificates by the controller that leads (`tls.rotation`).

The registrations are looked at every few seconds, so that a `caBundle` that a GitOps tool or a
person takes away is back before many requests fail. Where nothing calls our Service there is
nothing to keep, and where certificates are another program's, nothing is touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from cryptography import x509

from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import ObjectReference
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.periodic import PeriodicThread
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import SECRETS, ApiError, ConflictError, ForbiddenError, InvalidError
from webhook.state.well_known import TLS_SECRET
from webhook.tls.bundles import trusted
from webhook.tls.pair import certificate_of
from webhook.tls.rotation import InstalledCertificates, Phase, phase_of
from webhook.tls.rotation_store import (
    CertificateStore,
    ForeignCertificatesError,
    RotationResult,
    WrongClockError,
    rotate,
    spec_for,
)

_LOOK_SECONDS: Final = 3.0
_CONFLICT_SECONDS: Final = 1.0
"""After a write that another client was faster with; twice as long after each further one."""
_CONFLICTS_LOGGED: Final = 3
"""Conflicts in a row that are logged, once: two controllers that meet have one."""
_FAILED_SECONDS: Final = 10.0
_REFUSED_SECONDS: Final = 60.0
"""After an answer that only a person can change."""

_log = logging.getLogger(__name__)


class CertificateRotation:
    """Keeps the certificates of an installation, while it leads.

    Args:
        namespace: Namespace of the installation.
        is_enabled: Whether the configuration wants it now.
        now: Returns the time of day.
    """

    def __init__(
        self,
        context: ControllerContext,
        namespace: str,
        *,
        is_enabled: Callable[[], bool] = lambda: True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = CertificateStore(context.api, namespace)
        self._spec = spec_for(namespace)
        self._secret = ObjectReference(SECRETS, TLS_SECRET, namespace)
        self._events = context.events
        self._metrics = context.metrics.rotation
        self._is_enabled = is_enabled
        self._now = now
        self._refusal = ""
        self._conflicts = 0
        self._leadership = Leadership(context.leader_epoch, self._on_started)
        self._thread = PeriodicThread(
            "certificates", self.reconcile, retry_seconds=_FAILED_SECONDS, pauses_first=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop writing."""
        self._leadership.stop()
        self._thread.stop(_LOOK_SECONDS)

    def reconcile(self) -> float:
        """Take the steps that are due; return after how many seconds to look again."""
        if not self._leadership.current_epoch() or not self._is_enabled():
            return _LOOK_SECONDS
        try:
            result = self._rotate()
        except ConflictError as err:
            return self._conflicted("conflict", err)  # another process is at the same step
        except InvalidError as err:
            return self._conflicted("changed", err)  # an entry is another one by now
        except (
            ForeignCertificatesError,
            WrongClockError,
            ForbiddenError,
            InvalidFieldError,
        ) as err:
            return self._refused(err)
        except ApiError as err:
            return self._failed(err)
        self._refusal, self._conflicts = "", 0
        if result is not None:
            self._report(result)
        return _LOOK_SECONDS

    def _on_started(self) -> None:
        self._refusal = ""  # what a former leadership said is said again

    def _rotate(self) -> RotationResult | None:
        """Take the steps that are due; None where there is nothing to keep.

        That is where nothing calls our Service, or this identity was given no right to look.
        """
        try:
            entries = self._store.entries()
        except ForbiddenError as err:
            _log.debug("registrations may not be read", extra={"error": str(err)})
            return None
        return rotate(self._store, self._spec, entries, clock=self._now) if entries else None

    def _report(self, result: RotationResult) -> None:
        for what, words in result.done:
            self._metrics.writes.labels(what).inc()
            self._events.normal(self._secret, "CertificatesChanged", words)
        if result.done and result.done[0][0] == "injected":
            self._metrics.drift.inc()  # nothing that was written in this round asked for it
        self._show(result.held)

    def _show(self, held: InstalledCertificates) -> None:
        present = phase_of(held, self._now())
        for phase in Phase:
            self._metrics.phase.labels(phase).set(phase is present)
        ends = {
            "ca": certificate_of(held.ca),
            "leaf": certificate_of(held.serving),
            "bundle": max(trusted(held.bundle), key=_end, default=None),
        }
        for role, certificate in ends.items():
            self._metrics.not_after.labels(role).set(_end(certificate))

    def _refused(self, err: Exception) -> float:
        """Report once what only a person can change, and look again after a while."""
        reasons: dict[type[Exception], str] = {
            ForeignCertificatesError: "foreign",
            WrongClockError: "clock",
        }
        reason = reasons.get(type(err), "refused")
        self._metrics.failures.labels(reason).inc()
        if str(err) != self._refusal:
            self._refusal = str(err)
            _log.warning("certificates are not kept", extra={"why": str(err)})
            self._events.warning(self._secret, "CertificatesNotKept", str(err))
        return _REFUSED_SECONDS

    def _conflicted(self, reason: str, err: ApiError) -> float:
        """Try again soon, and less often the longer other clients are first."""
        self._metrics.failures.labels(reason).inc()
        self._conflicts += 1
        if self._conflicts == _CONFLICTS_LOGGED:
            _log.warning(
                "certificates are not written: another client is first",
                extra={"code": err.code, "error": str(err)},
            )
        doubled = _CONFLICT_SECONDS * (1 << min(self._conflicts - 1, 8))
        return min(doubled, _FAILED_SECONDS)

    def _failed(self, err: ApiError) -> float:
        self._metrics.failures.labels("api").inc()
        _log.warning("rotating certificates failed", extra={"code": err.code, "error": str(err)})
        return _FAILED_SECONDS


def _end(certificate: x509.Certificate | None) -> float:
    return 0.0 if certificate is None else certificate.not_valid_after_utc.timestamp()
