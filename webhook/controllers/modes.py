"""Tell people of namespaces with a label for mode or gating whose value means nothing.

A namespace whose mode label means nothing is not opted in. Whoever wrote `deferrd` would otherwise
wait in vain for pods to be admitted. Where the gating label means nothing, what is configured
holds. The former name of that label is reported as well, because the next version ignores it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Final

from webhook.cluster.api import NAMESPACES, ClusterApi, Object
from webhook.cluster.informer import Change, Informer, Scope, Timing
from webhook.cluster.shapes import decode_namespace
from webhook.controllers.events import About, EventRecorder
from webhook.controllers.rounds import Rounds
from webhook.controllers.terms import Terms, always
from webhook.quota.fields import mapping, text
from webhook.state.names import (
    DEFERRED_MODE,
    FORMER_PACING_LABEL,
    KNOWN_MODES,
    MODE_LABEL,
    PACING_LABEL,
)
from webhook.state.pacing import PACINGS

_log = logging.getLogger(__name__)

_ROUND_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Label:
    """A label of which a namespace may have a value that means nothing.

    Attributes:
        key: The label.
        known: The values that mean something.
        reason: What an event about another value has for a reason.
        among: Of which namespaces it is told, as a selector; empty is all.
    """

    key: str
    known: tuple[str, ...]
    reason: str
    among: str = ""

    @property
    def scope(self) -> Scope:
        """Those that have it with another value."""
        odd = f"{self.key},{self.key} notin ({','.join(self.known)})" if self.known else self.key
        return Scope(label_selector=f"{self.among},{odd}" if self.among else odd)


_MODE: Final = _Label(MODE_LABEL, KNOWN_MODES, "UnknownMode")
_PACING: Final = _Label(PACING_LABEL, PACINGS, "UnknownGating", f"{MODE_LABEL}={DEFERRED_MODE}")


_FORMER: Final = _Label(FORMER_PACING_LABEL, (), "FormerLabel", f"{MODE_LABEL}={DEFERRED_MODE}")


@dataclass(frozen=True, slots=True)
class _Odd:
    """The value of a label, and the uid of the namespace."""

    value: str
    uid: str


class LabelWatch:
    """Reports namespaces with an unknown mode or pacing, while it leads.

    Args:
        api: The API server.
        events: Where it is reported.
        pacing: What is configured for namespaces that do not say it.
        exempt: Namespaces that are never touched, whatever pacing they ask for.
        is_leader: As for the tracker.
        timing: Clock and pauses of the informers, which only see such namespaces.
    """

    def __init__(
        self,
        api: ClusterApi,
        events: EventRecorder,
        *,
        pacing: Callable[[], str],
        exempt: Callable[[], Set[str]] = frozenset,
        is_leader: Callable[[], int] = always,
        timing: Timing = Timing(),
    ) -> None:
        self._events = events
        self._pacing = pacing
        self._exempt = exempt
        self._terms = Terms(is_leader, self._say_all)
        self.informers: Final = {
            each: self._informer(api, each, timing) for each in (_MODE, _PACING, _FORMER)
        }
        self._rounds = Rounds("labels", self._work, rest_seconds=_ROUND_SECONDS, rests_first=True)

    def _informer(self, api: ClusterApi, label: _Label, timing: Timing) -> Informer[_Odd]:
        informer = Informer(
            api,
            NAMESPACES,
            transform=lambda raw: _read(raw, label.key),
            scope=label.scope,
            timing=timing,
            decode=decode_namespace,
        )
        informer.add_handler(lambda change: self._on_change(label, change))
        return informer

    def start(self) -> None:
        """Begin to follow and report."""
        for informer in self.informers.values():
            informer.start()
        self._rounds.start()

    def stop(self) -> None:
        """Stop reporting."""
        self._rounds.stop(_ROUND_SECONDS * 2)
        for informer in self.informers.values():
            informer.stop()

    def _work(self) -> float:
        self._terms.notice()
        return _ROUND_SECONDS

    def _on_change(self, label: _Label, change: Change[_Odd]) -> None:
        if change.new is not None and change.new != change.old and self._terms.leads():
            self._say(label, change.key, change.new)

    def _say_all(self) -> None:
        for label, informer in self.informers.items():
            for namespace, odd in informer.items().items():
                self._say(label, namespace, odd)

    def _say(self, label: _Label, namespace: str, odd: _Odd) -> None:
        if label is not _MODE and namespace in self._exempt():
            return
        holds = "the namespace is not opted in"
        if label is _PACING:
            holds = f"its gating is {self._pacing()}, as configured"
        known = ", ".join(label.known)
        message = f'label {label.key} is "{odd.value}", which is none of {known}: {holds}'
        if label is _FORMER:
            message = f"label {label.key} is read by this version only: it is {PACING_LABEL} now"
        _log.warning(
            "unknown label value",
            extra={"namespace": namespace, "label": label.key, "value": odd.value},
        )
        self._events.warning(
            # in the namespace itself, where its people look
            About(NAMESPACES, namespace, namespace, odd.uid),
            label.reason,
            message,
        )


def _read(namespace: Object, key: str) -> _Odd:
    metadata = mapping(namespace.get("metadata"), "metadata")
    labels = mapping(metadata.get("labels"), "metadata.labels")
    value = labels.get(key)
    return _Odd(value if isinstance(value, str) else "", text(metadata.get("uid"), "metadata.uid"))
