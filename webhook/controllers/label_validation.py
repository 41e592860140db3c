"""Report namespaces with a label for mode or gating whose value is unknown.

A namespace with an unknown mode is not opted in. A user who wrote `deferrd` would otherwise
wait in vain for pods to be admitted. Where the gating label means nothing, what is configured
holds. The former name of that label is reported as well, because the next version ignores it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Final

from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import ObjectReference
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.periodic import PeriodicThread
from webhook.jsonfields.fields import mapping, text
from webhook.kube.api import NAMESPACES, ListOptions, Object
from webhook.kube.informer import Change, Informer
from webhook.state.object_decoders import decode_namespace
from webhook.state.well_known import (
    DEFERRED_MODE,
    FORMER_GATING_LABEL,
    GATING_LABEL,
    GATING_MODES,
    KNOWN_MODES,
    MODE_LABEL,
)

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _ValidatedLabel:
    """A label of which a namespace may have a value that means nothing."""

    key: str
    """The label."""
    valid_values: tuple[str, ...]
    """The values that mean something."""
    reason: str
    """What an event about another value has for a reason."""
    namespace_selector: str = ""
    """Selector of the namespaces in which it is reported; empty is all."""

    @property
    def scope(self) -> ListOptions:
        """Namespaces that have it with another value."""
        invalid = (
            f"{self.key},{self.key} notin ({','.join(self.valid_values)})"
            if self.valid_values
            else self.key
        )
        return ListOptions(
            label_selector=f"{self.namespace_selector},{invalid}"
            if self.namespace_selector
            else invalid
        )


_MODE: Final = _ValidatedLabel(MODE_LABEL, KNOWN_MODES, "UnknownMode")
_GATING: Final = _ValidatedLabel(
    GATING_LABEL, GATING_MODES, "UnknownGating", f"{MODE_LABEL}={DEFERRED_MODE}"
)


_FORMER: Final = _ValidatedLabel(
    FORMER_GATING_LABEL, (), "FormerLabel", f"{MODE_LABEL}={DEFERRED_MODE}"
)


@dataclass(frozen=True, slots=True)
class _InvalidLabel:
    """The value of a label, and the uid of the namespace."""

    value: str
    uid: str


class LabelValidator:
    """Reports namespaces with an unknown mode or gating, while it leads.

    Args:
        gating: Returns the gating that is configured for namespaces without the label.
        exempt: Returns the namespaces that are never touched, whatever gating they ask for.
    """

    def __init__(
        self,
        context: ControllerContext,
        *,
        gating: Callable[[], str],
        exempt: Callable[[], Set[str]] = frozenset,
    ) -> None:
        self._events = context.events
        self._gating = gating
        self._exempt = exempt
        self._leadership = Leadership(context.leader_epoch, self._report_all)
        self.informers: Final = {
            label: self._informer(context, label) for label in (_MODE, _GATING, _FORMER)
        }
        self._thread = PeriodicThread(
            "labels", self._work, retry_seconds=_POLL_SECONDS, pauses_first=True
        )

    def _informer(
        self, context: ControllerContext, label: _ValidatedLabel
    ) -> Informer[_InvalidLabel]:
        informer = Informer(
            context.api,
            NAMESPACES,
            transform=lambda raw: _read(raw, label.key),
            options=label.scope,
            timings=context.timings.informer,
            decode=decode_namespace,
        )
        informer.add_handler(lambda change: self._on_change(label, change))
        return informer

    def is_leader(self) -> bool:
        """Return whether this process reports now."""
        return self._leadership.is_leader()

    def start(self) -> None:
        """Start to follow and report."""
        for informer in self.informers.values():
            informer.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop reporting."""
        self._thread.stop(_POLL_SECONDS * 2)
        for informer in self.informers.values():
            informer.stop()

    def _work(self) -> float:
        self._leadership.current_epoch()
        return _POLL_SECONDS

    def _on_change(self, label: _ValidatedLabel, change: Change[_InvalidLabel]) -> None:
        if change.new is not None and change.new != change.old and self._leadership.is_leader():
            self._report(label, change.key, change.new)

    def _report_all(self) -> None:
        for label, informer in self.informers.items():
            for namespace, invalid in informer.items().items():
                self._report(label, namespace, invalid)

    def _report(self, label: _ValidatedLabel, namespace: str, invalid: _InvalidLabel) -> None:
        if label is not _MODE and namespace in self._exempt():
            return
        holds = "the namespace is not opted in"
        if label is _GATING:
            holds = f"its gating is {self._gating()}, as configured"
        known = ", ".join(label.valid_values)
        message = f'label {label.key} is "{invalid.value}", which is none of {known}: {holds}'
        if label is _FORMER:
            message = f"label {label.key} is read by this version only: it is {GATING_LABEL} now"
        _log.warning(
            "unknown label value",
            extra={"namespace": namespace, "label": label.key, "value": invalid.value},
        )
        self._events.warning(
            # in the namespace itself, where its people look
            ObjectReference(NAMESPACES, namespace, namespace, invalid.uid),
            label.reason,
            message,
        )


def _read(namespace: Object, key: str) -> _InvalidLabel:
    metadata = mapping(namespace.get("metadata"), "metadata")
    labels = mapping(metadata.get("labels"), "metadata.labels")
    value = labels.get(key)
    return _InvalidLabel(
        value if isinstance(value, str) else "", text(metadata.get("uid"), "metadata.uid")
    )
