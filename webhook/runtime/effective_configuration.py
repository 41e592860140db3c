"""Parts of a configuration that are in force beside the registrations.

Two fields stand in the registrations as well, which `scripts/install` writes and a change of the
file alone does not: `exemptNamespaces` as names that selectors leave out, `deferredResources` as
what the mask hides. The order between both must never leave a quota without enforcement:

1. A namespace is exempt only while the guard at the bind leaves it out. While the API server asks,
   pods of the namespace are charged. Nothing is hidden of its quotas any more, so that they are
   enforced by the API server before the guard goes (`install.exemption`).
2. A resource that is no longer deferred is charged for as long as an annotation of the guard's
   registration names it, and hidden no more. An installation takes it out of the annotation only
   when the mask has become narrower and the API server enforces it again (`install.exemption`).
   So it is for every process, also one that starts meanwhile: those that count otherwise do not
   decide by each other's ledgers. Where nothing is annotated, it is until the process is replaced.

3. A resource that is deferred from now on is charged at once, and hidden once that annotation names
   it, which an installation writes when all replicas charge it.

A namespace that is exempt no more needs no care: the API server enforces what it is not asked
about.

The registration itself is noted too: ledgers name the one under which they were counted (`Guard`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from webhook.config import Configuration
from webhook.controllers.mask.webhook_registration import (
    UNREAD_GUARD,
    Guard,
    RegistrationState,
    parse_registration,
    registered_resources,
)
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import (
    VALIDATING_WEBHOOKS,
    ApiError,
    ClusterApi,
    ForbiddenError,
    NotFoundError,
)
from webhook.kube.kinds import NAMESPACE_NAME_LABEL
from webhook.quota.ledger.ledger import NO_GUARD
from webhook.state.lazy_ledger import identity_of
from webhook.state.well_known import (
    DEFERRED_MODE,
    MODE_LABEL,
    REGISTRATION,
)

_log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 2.0
"""Between two looks at the registration."""
_NOT_REGISTERED = RegistrationState("it is not there", is_there=False)


class EffectiveConfiguration:
    """The configuration in force of one process. For use by one thread, but for its properties.

    Args:
        api: The API server whose registrations count.
        clock: A monotonic clock.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._next_refresh = clock()
        self._registration: RegistrationState | None = None
        self._registered: tuple[str, ...] | None = None
        self._guard: Guard | None = UNREAD_GUARD
        self._resources: tuple[str, ...] = ()
        self._pending_fields: tuple[str, ...] = ()

    @property
    def pending_fields(self) -> tuple[str, ...]:
        """The fields of the configuration that wait for the registrations, in words."""
        return self._pending_fields

    @property
    def guard(self) -> Guard | None:
        """The registration of the guard; None where this process may not read it."""
        return self._guard

    def refresh(self) -> bool:
        """Read the registration again, if it is time; return whether it changed.

        What cannot be read counts as unchanged.
        """
        if self._clock() < self._next_refresh:
            return False
        self._next_refresh = self._clock() + _PAUSE_SECONDS
        registered = None
        try:
            found = self._api.get(VALIDATING_WEBHOOKS, REGISTRATION)
            self._note_guard(Guard(*identity_of(found)))
            registration, registered = parse_registration(found), registered_resources(found)
        except NotFoundError:
            registration = _NOT_REGISTERED
            self._note_guard(Guard(NO_GUARD))
            self._next_refresh = self._clock()  # once it is back, binds wait for it to be seen
        except (ApiError, InvalidFieldError) as err:
            if isinstance(err, ForbiddenError):
                self._guard = None
            _log.warning("registration not read", extra={"error": str(err)})
            return False
        before = (self._registration, self._registered)
        self._registration, self._registered = registration, registered
        return (registration, registered) != before

    def apply(self, configuration: Configuration) -> Configuration:
        """Return what is in force of a configuration, and keep in mind what is held back."""
        exempt = frozenset(filter(self._is_left_out, configuration.exempt_namespaces))
        former = self._resources if self._registered is None else self._registered
        until = "a restart" if self._registered is None else "the mask does not hide it any more"
        dropped = [name for name in former if name not in configuration.deferred_resources]
        self._resources = (*configuration.deferred_resources, *dropped)
        waiting = sorted(configuration.exempt_namespaces - exempt) if self._registration else []
        wanted, registered = configuration.deferred_resources, self._registered
        added = [] if registered is None else [name for name in wanted if name not in registered]
        messages = (
            *(f"exemptNamespaces: {name}: the webhook is still asked about it" for name in waiting),
            *(f"deferredResources: {name}: is charged until {until}" for name in dropped),
            *(f"deferredResources: {name}: is still enforced at creation, too" for name in added),
        )
        if messages and messages != self._pending_fields:
            _log.warning(
                "configuration held back, run scripts/install --config FILE",
                extra={"fields": list(messages)},
            )
        self._pending_fields = messages
        return replace(configuration, exempt_namespaces=exempt, deferred_resources=self._resources)

    def hiding(self, configuration: Configuration) -> Configuration:
        """Return a configuration that defers no more than may be hidden.

        Replicas that have not read the file yet charge nothing else.
        """
        registered = self._registered
        if registered is None:
            return configuration
        wanted = configuration.deferred_resources
        known = tuple(name for name in wanted if name in registered)
        return replace(configuration, deferred_resources=known)

    def _note_guard(self, guard: Guard) -> None:
        if self._guard is None or self._guard.uid != guard.uid:
            self._guard = guard
            _log.info("registration of the guard read", extra={"uid": guard.uid})

    def _is_left_out(self, namespace: str) -> bool:
        """Return whether the guard is known not to be asked about an opted-in namespace."""
        labels = {NAMESPACE_NAME_LABEL: namespace, MODE_LABEL: DEFERRED_MODE}
        return self._registration is not None and not self._registration.may_ask(labels)
