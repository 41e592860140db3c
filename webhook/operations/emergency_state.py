"""Whether the emergency is open: the API server asks none of our webhooks and hides nothing.

`deferred-quota emergency open` requires a label of namespaces and forbids it, in the selector of
every entry and of every binding of a policy that changes requests. No namespace meets that. All
else stays as it is, so that certificates are kept and what was installed is not forgotten, and the
controller finds by the same selectors that nothing is guarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, mapping, sequence
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    ClusterApi,
    ForbiddenError,
    Kind,
    NotFoundError,
    Object,
)
from webhook.operations.creation import AUTO_GATE_POLICY, GATE_POLICY
from webhook.operations.names import MASK_POLICY, STAMP_POLICY
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import EMERGENCY, EMERGENCY_SINCE, LAST_REGISTRATION, REGISTRATION

GUARDS: Final[tuple[Kind, str]] = (VALIDATING_WEBHOOKS, REGISTRATION)
OTHERS: Final[tuple[tuple[Kind, str], ...]] = (
    (MUTATING_WEBHOOKS, REGISTRATION),
    (MUTATING_WEBHOOKS, LAST_REGISTRATION),
)

POLICY_BINDINGS: Final = (MASK_POLICY, STAMP_POLICY, GATE_POLICY, AUTO_GATE_POLICY)
"""Names of the bindings of the mask, the mark and the gate, which are those of their policies."""

_NOWHERE: Final = (
    {"key": EMERGENCY, "operator": "Exists"},
    {"key": EMERGENCY, "operator": "DoesNotExist"},
)
_SELECTOR: Final = "namespaceSelector"
_EXPRESSIONS: Final = "matchExpressions"


@dataclass(frozen=True, slots=True)
class EmergencyState:
    """The state of the emergency, as the registrations and bindings have it."""

    since: str = ""
    """When it was opened; empty where it was not, and after the last write of `close`."""
    opened: tuple[str, ...] = ()
    """Entries and bindings that select no namespace."""
    asking: tuple[str, ...] = ()
    """The others."""

    @property
    def is_begun(self) -> bool:
        """Whether it was opened, and is not closed to the last write."""
        return bool(self.since or self.opened)

    @property
    def is_open(self) -> bool:
        """Whether nothing is asked and nothing hidden."""
        return bool(self.opened) and not self.asking


def state_of(objects: Iterable[Object]) -> EmergencyState:
    """Return the state by our registrations and the bindings of our policies.

    Raises:
        InvalidFieldError: One has a field of the wrong type.
    """
    opened: list[str] = []
    asking: list[str] = []
    since = ""
    for obj in objects:
        annotations = FieldReader(obj).child("metadata").string_map("annotations")
        since = since or annotations.get(EMERGENCY_SINCE, "")
        for name, _, holder in selectors_of(obj):
            (opened if is_nowhere(holder) else asking).append(name)
    return EmergencyState(since, tuple(opened), tuple(asking))


def emergency_notes(api: ClusterApi) -> Iterator[str]:
    """Yield that the emergency was opened; a user without the right to read that sees none."""
    kind, name = GUARDS
    try:
        state = state_of([api.get(kind, name)])
    except (ForbiddenError, NotFoundError, InvalidFieldError):
        return
    if state.is_begun:
        since = f" since {state.since}" if state.since else ""
        yield (
            f"the emergency is open{since}: the API server enforces quotas when pods are created,"
            " and no bind is held to them; doctor says more"
        )


def selectors_of(obj: Object) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Return each place of a registration or a binding that has a selector of namespaces.

    Returns:
        A name for a person, the JSON pointer of the place, and what stands there.
    """
    if "webhooks" not in obj:
        name = mapping(obj.get("metadata"), "metadata").get("name")
        spec = mapping(obj.get("spec"), "spec")
        place = mapping(spec.get("matchResources"), "spec.matchResources")
        yield f"{obj.get('kind')} {name}", "/spec/matchResources", place
        return
    for index, each in enumerate(sequence(obj.get("webhooks"), "webhooks")):
        entry = mapping(each, "webhooks")
        yield str(entry.get("name")), f"/webhooks/{index}", entry


def is_nowhere(holder: Mapping[str, object]) -> bool:
    """Return whether a place selects no namespace because of the emergency."""
    expressions = _expressions(holder)
    return all(term in expressions for term in _NOWHERE)


def opened_selector(holder: Mapping[str, object]) -> Mapping[str, object]:
    """Return the selector of a place, so that it selects no namespace."""
    closed = closed_selector(holder)
    kept = sequence(closed.get(_EXPRESSIONS), _EXPRESSIONS)
    return {**closed, _EXPRESSIONS: [*kept, *_NOWHERE]}


def closed_selector(holder: Mapping[str, object]) -> Mapping[str, object]:
    """Return the selector of a place without what the emergency has added."""
    selector = mapping(holder.get(_SELECTOR), _SELECTOR)
    kept = [term for term in _expressions(holder) if term not in _NOWHERE]
    return {**selector, _EXPRESSIONS: kept}


def opened_object(obj: Object) -> Object:
    """Return a registration or a binding whose selectors select no namespace.

    What has no selector, such as a policy, stays as it is.
    """
    if "webhooks" in obj:
        entries = [mapping(each, "webhooks") for each in sequence(obj["webhooks"], "webhooks")]
        opened = [{**entry, _SELECTOR: opened_selector(entry)} for entry in entries]
        return {**obj, "webhooks": opened}
    spec = mapping(obj.get("spec"), "spec")
    if "policyName" not in spec:
        return obj
    place = mapping(spec.get("matchResources"), "spec.matchResources")
    return {
        **obj,
        "spec": {**spec, "matchResources": {**place, _SELECTOR: opened_selector(place)}},
    }


def without_emergency(selector: WebhookSelector) -> WebhookSelector:
    """Return a selector as it is while the emergency is not open."""
    return WebhookSelector(tuple(term for term in selector.terms if term.key != EMERGENCY))


def _expressions(holder: Mapping[str, object]) -> list[Mapping[str, object]]:
    selector = mapping(holder.get(_SELECTOR), _SELECTOR)
    every = sequence(selector.get(_EXPRESSIONS), _EXPRESSIONS)
    return [mapping(each, _EXPRESSIONS) for each in every]
