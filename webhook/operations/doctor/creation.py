"""Whether the policies that decide about new pods are those of this release and configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError, additions, differences, mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    MUTATING_WEBHOOKS,
    POD_GATINGS,
    VALIDATING_WEBHOOKS,
    NotFoundError,
    Object,
)
from webhook.kube.metadata import object_name
from webhook.operations.creation import (
    AUTO_GATE_POLICY,
    GATE_POLICY,
    MUST_SPECIFY_POLICIES,
    creation_objects,
    left_out,
    without_gating,
)
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.doctor.errors import NotInSnapshotError
from webhook.operations.doctor.namespace_selectors import APPLY, OPTED_IN, restore
from webhook.operations.doctor.shipped import FILLED_IN
from webhook.operations.emergency_state import is_nowhere, opened_object
from webhook.operations.findings import Finding, Subject, first_of, information, subject_of, warning
from webhook.operations.names import (
    GATE_ENTRY,
    SHAPE_ENTRY,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
)
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import ALWAYS_GATING, AUTO_GATING, GATING_LABEL

_Found: TypeAlias = Mapping[tuple[str, str], Object]
"""Kind and name → object."""

_WRITE: Final = "Run scripts/install --creation policy, or helm upgrade."
_MOST_PATHS: Final = 5
_WITHOUT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (GATE_POLICY, AUTO_GATE_POLICY),
        "pods do not wait for quota: the scheduler tries those that do not fit, again and again",
    ),
    **dict.fromkeys(MUST_SPECIFY_POLICIES, "pods that can never be bound are created"),
}
"""What is so where a policy is not there."""


def creation(scene: CheckContext) -> Iterator[Finding]:
    """Compare the policies for new pods with those that are wanted, if there are any.

    Raises:
        NotInSnapshotError: The webhook does not decide, and a snapshot has no policies.
    """
    found = _policies(scene)
    wanted = _wanted(scene)
    names = {name for _, name in found}.intersection(_WITHOUT)
    if not names:
        if not scene.has_mutating_entry(GATE_ENTRY):
            scene.check_policies_known()
        return  # the webhook decides; the check of its registration looks at that
    for each in wanted:
        yield from _compared(each, found)
    for subject in _superfluous(wanted, found):
        message = "decides about new pods, and the configuration does not ask for it"
        yield warning("creation.superfluous", subject, message, APPLY)
    for key, raw in found.items():
        yield from _type_faults(Subject(*key), raw)
    if any(name == AUTO_GATE_POLICY for _, name in found):
        yield from _ungated(scene)
    if decides(scene) and (entries := _entries_beside(scene)):
        yield information(
            "creation.twice",
            None,
            f"both policies and {', '.join(entries)} of the webhook decide about new pods; one is"
            " enough, and the webhook is called for nothing",
            "Run scripts/install: --creation policy takes the entries away, --creation webhook the"
            " policies.",
        )


def decides(scene: CheckContext) -> bool:
    """Return whether the policy that gates new pods is there and bound."""
    kinds = {kind for kind, name in _policies(scene) if name == GATE_POLICY}
    return kinds >= {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}


# -- inside --------------------------------------------------------------------------------


def _policies(scene: CheckContext) -> _Found:
    """Return policies and bindings by the names of ours; nothing where none are served."""
    found: dict[tuple[str, str], Object] = {}
    mutating = scene.policies()
    if mutating is not None:
        kind, policies, bindings = mutating
        found |= {(kind.kind, subject_of(kind, raw).name): raw for raw in policies}
        found |= {(f"{kind.kind}Binding", subject_of(kind, raw).name): raw for raw in bindings}
    for kind in (VALIDATING_POLICIES, VALIDATING_BINDINGS):
        try:
            found |= {(kind.kind, subject_of(kind, raw).name): raw for raw in scene.objects(kind)}
        except (NotFoundError, NotInSnapshotError):
            continue
    return {key: raw for key, raw in found.items() if key[1] in _WITHOUT}


def _wanted(scene: CheckContext) -> tuple[Object, ...]:
    settings = scene.settings
    names = left_out(settings.system_namespace, settings.exempt)
    return creation_objects(replace(settings.creation, left_out=names))


def _compared(wanted: Object, found: _Found) -> Iterator[Finding]:
    kind, name = _key(wanted)
    subject = Subject(kind, name)
    raw = found.get((kind, name))
    if raw is None:
        message = f"does not exist: {_WITHOUT[name]}"
        yield warning("creation.missing", subject, message, _WRITE)
        return
    spec = FieldReader(raw).child("spec")
    if spec.has("matchResources") and is_nowhere(
        mapping(mapping(raw.get("spec"), "spec").get("matchResources"), "spec.matchResources")
    ):
        wanted = opened_object(wanted)  # the check of the emergency names it
    specs = wanted.get("spec"), raw.get("spec")
    edited = chain(differences(*specs, "spec"), additions(*specs, FILLED_IN, "spec"))
    paths = list(islice(edited, _MOST_PATHS + 1))
    if paths:
        more = ", and more" if len(paths) > _MOST_PATHS else ""
        message = (
            "is not that of this release and configuration, or was changed:"
            f" {', '.join(paths[:_MOST_PATHS])}{more}"
        )
        hint = restore(subject, f"{_WRITE} Doctor reads the configuration with --config.")
        yield warning("creation.edited", subject, message, hint)


def _ungated(scene: CheckContext) -> Iterator[Finding]:
    """Name the namespaces whose pods a policy is to gate by need, and does not know how."""
    try:
        stored = {subject_of(POD_GATINGS, raw).namespace for raw in scene.objects(POD_GATINGS)}
    except NotInSnapshotError:
        return
    except NotFoundError:
        stored = set()
    namespaces = {one.name: one.labels for one in scene.deferred_namespaces()}
    missing = without_gating(namespaces, scene.settings.creation.gating, stored)
    if missing:
        yield warning(
            "creation.ungated",
            None,
            f"{len(missing)} opted-in namespaces whose gating is auto have no PodGating, so that no"
            f" pod is gated there: {first_of(missing, _MOST_PATHS)}",
            "The controller makes it: see that one of this release leads.",
        )


def _superfluous(wanted: tuple[Object, ...], found: _Found) -> Iterator[Subject]:
    for key in sorted(found.keys() - set(map(_key, wanted))):
        yield Subject(*key)


def _type_faults(subject: Subject, raw: Object) -> Iterator[Finding]:
    try:
        wrong = (
            FieldReader(raw).child("status").child("typeChecking").children("expressionWarnings")
        )
        faults = [(one.text("fieldRef"), one.text("warning")) for one in wrong]
    except InvalidFieldError:
        return
    for field, fault in faults:
        message = f"{field}: the API server finds a fault: {fault}"
        yield warning("creation.types", subject, message, APPLY)


def _entries_beside(scene: CheckContext) -> list[str]:
    """Return the entries of the webhook that are asked about what the policies decide."""
    beside: list[str] = []
    gates_by_need = any(name == AUTO_GATE_POLICY for _, name in map(_key, _wanted(scene)))
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        try:
            beside += [
                name
                for one in scene.entries(kind)
                if (name := one.text("name")) and _is_beside(one, gates_by_need=gates_by_need)
            ]
        except InvalidFieldError:
            continue  # the check of registrations says what cannot be read
    return beside


def _is_beside(entry: FieldReader, *, gates_by_need: bool) -> bool:
    if entry.text("name") != GATE_ENTRY:
        return entry.text("name") == SHAPE_ENTRY
    selector = WebhookSelector.read(entry.child("namespaceSelector"))
    gated = (ALWAYS_GATING, AUTO_GATING) if gates_by_need else (ALWAYS_GATING,)
    return any(selector.matches({**OPTED_IN, GATING_LABEL: gating}) for gating in gated)


def _key(raw: Object) -> tuple[str, str]:
    kind = str(raw.get("kind"))
    return kind, object_name(raw)
