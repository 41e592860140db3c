"""State of the webhook registration that guards binds.

Where the API server does not ask before a pod is bound, nothing may be hidden from its own quota
check: those resources would not be enforced at all.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    VALIDATING_WEBHOOKS,
    ApiError,
    ClusterApi,
    ForbiddenError,
    NotFoundError,
    Object,
)
from webhook.kube.selectors import Term
from webhook.quota.ledger.ledger import NO_GUARD
from webhook.quota.objects.names import is_deferrable
from webhook.state.webhook_selectors import BINDS, UnknownOperatorError, WebhookSelector, uncovered
from webhook.state.well_known import (
    BIND_ENTRY,
    DEFERRED_RESOURCES_ANNOTATION,
    EMERGENCY,
    EMERGENCY_SINCE,
    REGISTRATION,
)

_log = logging.getLogger(__name__)

_CACHE_SECONDS: Final = 2.0
_PROPAGATION_SECONDS: Final = 3.0
_CONFIGURATION: Final = f"ValidatingWebhookConfiguration {REGISTRATION}"
_ENTRY: Final = f"{_CONFIGURATION}: entry {BIND_ENTRY}"
_JUST_CHANGED: Final = f"{_CONFIGURATION} has only just changed"


@dataclass(frozen=True, slots=True)
class RegistrationState:
    """The guard as the API server knows it."""

    problem: str = ""
    """Why it guards no namespace at all; empty when it does."""
    selector_terms: tuple[Term, ...] = ()
    """What the labels of a namespace have to be for it to be guarded."""
    is_there: bool = True
    """Whether the entry of the guard exists."""
    is_settling: bool = False
    """It stands, and not every API server may know it yet."""
    former_terms: tuple[Term, ...] = ()
    """What the labels had to be until then, where it stood before as well."""
    uid: str = ""
    """Of the configuration: one that was made anew was gone for a while."""
    emergency_since: int = field(default=0, compare=False)
    """When the emergency was opened, in seconds since 1970; 0 where it was not, or is closed."""

    def gap(self, labels: Mapping[str, str]) -> str:
        """Return why a namespace with these labels is not guarded; nothing when it is."""
        return self.problem or self._left_out_by(labels) or self._left_out_before(labels)

    @property
    def is_opened(self) -> bool:
        """Whether the emergency lets it guard no namespace."""
        return any(term.key == EMERGENCY for term in self.selector_terms)

    def may_ask(self, labels: Mapping[str, str]) -> bool:
        """Return whether the guard may be asked about such a namespace, whatever it lets pass."""
        return self.is_there and not self._left_out_by(labels)

    def _left_out_by(self, labels: Mapping[str, str]) -> str:
        """Return by what the selector leaves a namespace out; empty where it does not."""
        for term in self.selector_terms:
            if not term.accepts(labels.get(term.key)):
                return f"{_ENTRY} does not select this namespace, by {term.key}"
        return ""

    def _left_out_before(self, labels: Mapping[str, str]) -> str:
        is_new = not all(term.accepts(labels.get(term.key)) for term in self.former_terms)
        return _JUST_CHANGED if is_new else ""


@dataclass(frozen=True, slots=True)
class Guard:
    """Registration of the guard, by which ledgers are marked that count what was bound before."""

    uid: str = ""
    """Of the configuration, `NO_GUARD` where it is not there, empty while it was not read."""
    since: int = 0
    """The version that this process saw first: the registration came no later."""

    def mark(self, former: str) -> str:
        """Return the mark of a ledger that is counted up to `since`, and had a mark before.

        While nothing is asked a ledger keeps its mark, and one without gets one: the registration
        that comes next is another.
        """
        return (former or NO_GUARD) if self.uid == NO_GUARD else (self.uid or former)

    def has_marked(self, mark: str) -> bool:
        """Return whether a ledger with this mark need not be counted anew."""
        return self.mark(mark) == mark

    def is_new_to(self, mark: str) -> bool:
        """Return whether a ledger says by its mark that it was counted before."""
        return mark != "" and not self.has_marked(mark)


UNREAD_GUARD: Final = Guard()
ASSUMED_REGISTERED: Final = RegistrationState()


def assume_registered() -> RegistrationState:
    """Return that every namespace is guarded, where reviews need no registration."""
    return ASSUMED_REGISTERED


class RegistrationReader:
    """Reads the registration of the guard, and remembers it for a moment. For use by one thread.

    Args:
        cache_seconds: How old an answer may be, so that many quotas cost one call.
        propagation_seconds: How long a guard that was seen to come is not counted on yet, but where
            the one before stood too: every API server has to see it first.
    """

    def __init__(
        self,
        api: ClusterApi,
        *,
        cache_seconds: float = _CACHE_SECONDS,
        propagation_seconds: float = _PROPAGATION_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._seconds = cache_seconds
        self._propagation_seconds = propagation_seconds
        self._clock = clock
        self._last_read: RegistrationState | None = None
        self._trusted_from = -math.inf
        self._former: list[RegistrationState] = []
        """Guards that an API server may still go by."""
        self._cached: tuple[float, RegistrationState] | None = None

    def __call__(self) -> RegistrationState:
        """Return the guard.

        Raises:
            ApiError: The API server does not answer.
        """
        asked = self._clock()
        if self._cached is not None and asked - self._cached[0] < self._seconds:
            return self._cached[1]
        try:
            registration = parse_registration(self._api.get(VALIDATING_WEBHOOKS, REGISTRATION))
        except NotFoundError:
            registration = RegistrationState(f"{_CONFIGURATION} is not there", is_there=False)
        if asked >= self._trusted_from:
            self._former.clear()
        if registration != self._last_read:
            if self._last_read is not None:
                self._trusted_from = asked + self._propagation_seconds
                self._former.append(self._last_read)
            self._last_read = registration
        if asked < self._trusted_from and not registration.problem:
            registration = self._settling(registration)
        self._cached = (asked, registration)
        return registration

    def _settling(self, registration: RegistrationState) -> RegistrationState:
        """Return a guard that stands as far as those before it did."""
        if any(one.problem or one.uid != registration.uid for one in self._former):
            return RegistrationState(
                _JUST_CHANGED, is_settling=True, emergency_since=registration.emergency_since
            )
        terms = (term for one in self._former for term in one.selector_terms)
        return replace(registration, is_settling=True, former_terms=tuple(terms))


class RegistrationWatch:
    """The guard, and whether it became another. For use by one thread.

    No status of a quota is written when a registration is deleted: nothing else shows it. Every
    guard by which something was decided counts: one that was gone for a moment, and met by a
    decision between two looks, is noticed when it stands again.

    Args:
        read_state: Returns the state; may ask the API server.
        seconds: Between two looks.
        on_look: Called at each look with what was seen.
    """

    def __init__(
        self,
        read_state: Callable[[], RegistrationState],
        seconds: float,
        on_look: Callable[[RegistrationState], None] = lambda _state: None,
    ) -> None:
        self._read_state = read_state
        self._seconds = seconds
        self._on_look = on_look
        self._last: RegistrationState | None = None
        self._is_changed = False
        self._next_check = -math.inf

    def current(self) -> RegistrationState:
        """Return the guard to decide by.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: Its registration cannot be read.
        """
        registration = self._read_state()
        self._on_look(registration)
        if registration != self._last:
            self._last = registration
            self._is_changed = True
            if registration.is_settling and registration.problem:
                _log.info("the guard at the bind is new; it is not counted on yet")
            elif registration.problem:
                _log.error(
                    "nothing is masked: no guard at the bind", extra={"why": registration.problem}
                )
            elif registration.is_opened:
                _log.info("nothing is masked: the emergency is open")
            else:
                _log.info("the guard at the bind stands")
        return registration

    @property
    def is_settling(self) -> bool:
        """Whether the guard that was last decided by is one that has only just come."""
        return self._last is not None and self._last.is_settling

    def has_changed(self) -> bool:
        """Look, if it is time to; a look that fails shows nothing."""
        moment = time.monotonic()
        if moment >= self._next_check:
            self._next_check = moment + self._seconds
            try:
                self.current()
            except (ApiError, InvalidFieldError) as err:
                _log.warning("guard at the bind not read", extra={"error": str(err)})
        is_other, self._is_changed = self._is_changed, False
        return is_other


def read_registration(api: ClusterApi) -> RegistrationState | None:
    """Return the guard as it is registered now; None while the API server does not answer.

    It is assumed to be there where it is not, or may not or cannot be read.
    """
    try:
        return parse_registration(api.get(VALIDATING_WEBHOOKS, REGISTRATION))
    except (ForbiddenError, NotFoundError, InvalidFieldError):
        return ASSUMED_REGISTERED
    except ApiError:
        return None


def registered_resources(configuration: Object) -> tuple[str, ...] | None:
    """Return the resources that a registration names as deferred; None where nothing is annotated.

    Raises:
        InvalidFieldError: It has a field of the wrong type.
    """
    annotations = FieldReader(configuration).child("metadata").string_map("annotations")
    names = annotations.get(DEFERRED_RESOURCES_ANNOTATION)
    return None if names is None else tuple(filter(is_deferrable, names.split(",")))


def parse_registration(configuration: Object) -> RegistrationState:
    """Read the guard from its configuration.

    Raises:
        InvalidFieldError: It has a field of the wrong type.
    """
    uid = FieldReader(configuration).child("metadata").text("uid")
    since = _emergency_since(configuration)
    return replace(_guard(configuration), uid=uid, emergency_since=since)


def _guard(configuration: Object) -> RegistrationState:
    for entry in FieldReader(configuration).children("webhooks"):
        if entry.text("name") != BIND_ENTRY:
            continue
        try:
            problem = _leak(entry)
            selector = WebhookSelector.read(entry.child("namespaceSelector"))
        except UnknownOperatorError as err:
            return RegistrationState(f"{_ENTRY} selects by {err.operator!r}, which is not known")
        return RegistrationState(problem and f"{_ENTRY} {problem}", selector.terms)
    return RegistrationState(f"{_CONFIGURATION} has no entry {BIND_ENTRY}", is_there=False)


def _leak(entry: FieldReader) -> str:
    """Return by what an entry lets binds pass in every namespace; empty if by nothing.

    Raises:
        UnknownOperatorError: Its `objectSelector` has an operator that is not known.
    """
    if entry.text("failurePolicy") != "Fail":
        return "is not failurePolicy Fail"
    missing = uncovered(entry.children("rules"), BINDS)
    if missing:
        return f"does not ask about {', '.join(missing)}"
    if not WebhookSelector.read(entry.child("objectSelector")).is_empty:
        return "has an objectSelector, which leaves binds out"
    if entry.children("matchConditions"):
        return "has matchConditions, which leave binds out"
    return ""


def _emergency_since(configuration: Object) -> int:
    annotations = FieldReader(configuration).child("metadata").string_map("annotations")
    since = annotations.get(EMERGENCY_SINCE)
    if since is None:
        return 0
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        return 1  # it is open, since a time that cannot be read: that must not hide it
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(1, int(moment.timestamp()))
