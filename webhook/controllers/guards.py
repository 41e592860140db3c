"""Whether the guard at the bind stands.

Where the API server does not ask before a pod is bound, nothing may be hidden from its own quota
check: nobody would look at those resources.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.cluster.api import VALIDATING_WEBHOOKS, ApiError, ClusterApi, NotFoundError, Object
from webhook.cluster.selectors import Term
from webhook.quota.fields import InvalidFieldError
from webhook.quota.reading import Node
from webhook.state.label_selectors import LabelSelector, UnknownOperatorError
from webhook.state.names import BIND_ENTRY, REGISTRATION

_log = logging.getLogger(__name__)

_REMEMBER_SECONDS: Final = 2.0
_SETTLE_SECONDS: Final = 3.0
_PLACE: Final = f"ValidatingWebhookConfiguration {REGISTRATION}"
_ENTRY: Final = f"{_PLACE}: entry {BIND_ENTRY}"


@dataclass(frozen=True, slots=True)
class Guard:
    """The guard as the API server knows it.

    Attributes:
        problem: Why it guards no namespace at all; empty when it does.
        terms: What the labels of a namespace have to be for it to be guarded.
    """

    problem: str = ""
    terms: tuple[Term, ...] = ()

    def gap(self, labels: Mapping[str, str]) -> str:
        """Say why a namespace with these labels is not guarded; nothing when it is."""
        if self.problem:
            return self.problem
        for term in self.terms:
            if not term.accepts(labels.get(term.key)):
                return f"{_ENTRY} does not select this namespace, by {term.key}"
        return ""


STANDING: Final = Guard()


def standing() -> Guard:
    """Say that every namespace is guarded: where reviews are not a matter of registrations."""
    return STANDING


class LiveGuard:
    """Reads the registration of the guard, and remembers it for a moment. For use by one thread.

    Args:
        api: The API server.
        remember_seconds: How old an answer may be, so that many quotas cost one call.
        settle_seconds: How long a guard that was seen to come is not counted on yet: every API
            server has to hear of it first.
        clock: The monotonic clock.
    """

    def __init__(
        self,
        api: ClusterApi,
        *,
        remember_seconds: float = _REMEMBER_SECONDS,
        settle_seconds: float = _SETTLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._seconds = remember_seconds
        self._settle_seconds = settle_seconds
        self._clock = clock
        self._read: Guard | None = None
        self._settled_at = -math.inf
        self._known: tuple[float, Guard] | None = None

    def __call__(self) -> Guard:
        """Return the guard.

        Raises:
            ApiError: The API server does not answer.
        """
        asked = self._clock()
        if self._known is not None and asked - self._known[0] < self._seconds:
            return self._known[1]
        try:
            guard = guard_of(self._api.get(VALIDATING_WEBHOOKS, REGISTRATION))
        except NotFoundError:
            guard = Guard(f"{_PLACE} is not there")
        if guard != self._read:
            if self._read is not None:
                self._settled_at = asked + self._settle_seconds
            self._read = guard
        if asked < self._settled_at and not guard.problem:
            guard = Guard(f"{_PLACE} has only just changed")
        self._known = (asked, guard)
        return guard


class GuardWatch:
    """The guard, and whether it became another. For use by one thread.

    No status of a quota is written when a registration is deleted: nothing else would tell. Every
    guard by which something was decided counts: one that was gone for a moment, and met by a
    decision between two looks, is noticed when it stands again.

    Args:
        guard: Tells what it is; the API server may be asked.
        seconds: Between two looks.
    """

    def __init__(self, guard: Callable[[], Guard], seconds: float) -> None:
        self._guard = guard
        self._seconds = seconds
        self._last: Guard | None = None
        self._is_other = False
        self._next = -math.inf

    def now(self) -> Guard:
        """Return the guard to decide by.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: Its registration cannot be read.
        """
        guard = self._guard()
        if guard != self._last:
            self._last = guard
            self._is_other = True
            if guard.problem:
                _log.error("nothing is masked: no guard at the bind", extra={"why": guard.problem})
            else:
                _log.info("the guard at the bind stands")
        return guard

    def has_changed(self) -> bool:
        """Look, if it is time to; a look that fails shows nothing."""
        moment = time.monotonic()
        if moment >= self._next:
            self._next = moment + self._seconds
            try:
                self.now()
            except (ApiError, InvalidFieldError) as err:
                _log.warning("guard at the bind not read", extra={"error": str(err)})
        is_other, self._is_other = self._is_other, False
        return is_other


def guard_of(configuration: Object) -> Guard:
    """Read the guard from its configuration.

    Raises:
        InvalidFieldError: It has a field of the wrong type.
    """
    for entry in Node(configuration).children("webhooks"):
        if entry.text("name") != BIND_ENTRY:
            continue
        if entry.text("failurePolicy") != "Fail":
            return Guard(f"{_ENTRY} is not failurePolicy Fail")
        try:
            selector = LabelSelector.read(entry.child("namespaceSelector"))
        except UnknownOperatorError as err:
            return Guard(f"{_ENTRY} selects by {err.operator!r}, which is not known")
        return Guard(terms=selector.terms)
    return Guard(f"{_PLACE} has no entry {BIND_ENTRY}")
