"""Tell people of namespaces whose mode label says something that means nothing.

A namespace with such a label is not opted in. Whoever wrote `deferrd` would otherwise wait in vain
for pods to be admitted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from webhook.cluster.api import NAMESPACES, ClusterApi, Object
from webhook.cluster.informer import Change, Informer, Scope, Timing
from webhook.cluster.shapes import decode_namespace
from webhook.controllers.events import About, EventRecorder
from webhook.controllers.rounds import Rounds
from webhook.controllers.terms import Terms, always
from webhook.quota.fields import mapping, text
from webhook.state.names import KNOWN_MODES, MODE_LABEL

_log = logging.getLogger(__name__)

_OTHERS: Final = Scope(label_selector=f"{MODE_LABEL},{MODE_LABEL} notin ({','.join(KNOWN_MODES)})")
_ROUND_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Mode:
    """The mode that a namespace asks for, and the uid of the namespace."""

    value: str
    uid: str


class ModeWatch:
    """Reports namespaces with an unknown mode, while it leads.

    Args:
        api: The API server.
        events: Where it is reported.
        is_leader: As for the tracker.
        timing: Clock and pauses of the informer, which only sees such namespaces.
    """

    def __init__(
        self,
        api: ClusterApi,
        events: EventRecorder,
        *,
        is_leader: Callable[[], int] = always,
        timing: Timing = Timing(),
    ) -> None:
        self._events = events
        self._terms = Terms(is_leader, self._say_all)
        self.informer: Final = Informer(
            api,
            NAMESPACES,
            transform=_read,
            scope=_OTHERS,
            timing=timing,
            decode=decode_namespace,
        )
        self.informer.add_handler(self._on_change)
        self._rounds = Rounds("modes", self._work, rest_seconds=_ROUND_SECONDS, rests_first=True)

    def start(self) -> None:
        """Begin to follow and report."""
        self.informer.start()
        self._rounds.start()

    def stop(self) -> None:
        """Stop reporting."""
        self._rounds.stop(_ROUND_SECONDS * 2)
        self.informer.stop()

    def _work(self) -> float:
        self._terms.notice()
        return _ROUND_SECONDS

    def _on_change(self, change: Change[_Mode]) -> None:
        if change.new is not None and change.new != change.old and self._terms.leads():
            self._say(change.key, change.new)

    def _say_all(self) -> None:
        for namespace, mode in self.informer.items().items():
            self._say(namespace, mode)

    def _say(self, namespace: str, mode: _Mode) -> None:
        _log.warning("unknown mode", extra={"namespace": namespace, "mode": mode.value})
        self._events.warning(
            # in the namespace itself, where its people look
            About(NAMESPACES, namespace, namespace, mode.uid),
            "UnknownMode",
            f'label {MODE_LABEL} is "{mode.value}", which is none of {", ".join(KNOWN_MODES)}: '
            "the namespace is not opted in",
        )


def _read(namespace: Object) -> _Mode:
    metadata = mapping(namespace.get("metadata"), "metadata")
    labels = mapping(metadata.get("labels"), "metadata.labels")
    value = labels.get(MODE_LABEL)
    return _Mode(value if isinstance(value, str) else "", text(metadata.get("uid"), "metadata.uid"))
