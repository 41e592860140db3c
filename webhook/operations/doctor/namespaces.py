"""Checks of namespaces that have opted in, their quotas, and what is left behind in others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NAMESPACES, PODS, RESOURCE_QUOTAS, Object
from webhook.operations.counting import scope_fault
from webhook.operations.doctor.check_context import (
    CONTROLLER_LOG,
    CheckContext,
    Namespace,
    unreadable,
    waiting,
)
from webhook.operations.findings import (
    Finding,
    Subject,
    error,
    first_of,
    information,
    subject_of,
    warning,
)
from webhook.operations.gates import gate_of
from webhook.quota.charging.deferral import EXCLUDE_ANNOTATION
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.quota_bounds import undecided_by
from webhook.quota.shadow.record_codec import SHADOW_FIELD
from webhook.state.well_known import (
    DEFERRED_MODE,
    FORMER_GATING_LABEL,
    FORMER_GATING_MODES,
    GATING_LABEL,
    GATING_MODES,
    MANAGED_PREFIX,
    MODE_LABEL,
    SCHEDULING_GATE,
    SHADOW_MODE,
)

_LABELS: Final = (MODE_LABEL, GATING_LABEL, FORMER_GATING_LABEL)
"""What people write on namespaces; there are no annotations."""
_MOST_NAMED: Final = 3
"""Labels and annotations that are named of one namespace, which may have thousands."""
_COUNTS_OURS: Final = re.compile(r"count/(podgatings|quotaledgers)\.deferredquota\.io")
"""Keys of quotas that limit the number of our objects."""


def modes(scene: CheckContext) -> Iterator[Finding]:
    """Judge the labels of every namespace."""
    names = {one.name for one in scene.namespaces()}
    for raw in scene.objects(NAMESPACES):
        try:
            FieldReader(raw).child("metadata").string_map("labels")
        except InvalidFieldError as err:
            subject = subject_of(NAMESPACES, raw)
            yield unreadable(subject, err)
            names.add(subject.name)
    for name in scene.settings.namespaces:
        if name not in names:
            message = "there is no such namespace"
            yield error("namespace.missing", Subject("Namespace", name), message, "Correct it.")
    yield from scene.judged(NAMESPACES, scene.wanted(), _strangers)
    for namespace in scene.namespaces():
        yield from _mode(namespace, scene.settings.system_namespace)
        yield from _gating(namespace, scene.settings.gating)


def _strangers(node: FieldReader, subject: Subject) -> Iterator[Finding]:
    """Name the labels and annotations that look like ours and mean nothing on a namespace."""
    metadata = node.child("metadata")
    labels, annotations = (
        [key for key in sorted(metadata.string_map(part)) if key.startswith(MANAGED_PREFIX)]
        for part in ("labels", "annotations")
    )
    strangers = [
        *(("annotation", key) for key in annotations if key in _LABELS),
        *(("label", key) for key in labels if key not in _LABELS),
        *(("annotation", key) for key in annotations if key not in _LABELS),
    ]
    if strangers:
        texts = [f"{what} {key}: means nothing{_meant(what, key)}" for what, key in strangers]
        message = first_of(texts, _MOST_NAMED, "; ")
        remedy = "Correct it, or remove it." if len(strangers) == 1 else "Correct or remove each."
        yield warning("namespace.unknown", subject, message, remedy)


def _meant(what: str, key: str) -> str:
    if key in _LABELS:
        return ": it has to be a label"
    if key == EXCLUDE_ANNOTATION:
        return " on a namespace: it is an annotation of a ResourceQuota"
    # the names without the beginning that they have in common
    names = {name.removeprefix(MANAGED_PREFIX): name for name in _LABELS}
    close = get_close_matches(key.removeprefix(MANAGED_PREFIX).lower(), names, n=1)
    kind = "" if what == "label" else "the label "
    return f', did you mean {kind}"{names[close[0]]}"?' if close else ""


def _gating(namespace: Namespace, default: str) -> Iterator[Finding]:
    value = namespace.labels.get(GATING_LABEL, default)
    if namespace.is_deferred and value not in GATING_MODES:
        yield warning(
            "namespace.gating",
            namespace.subject,
            f"{GATING_LABEL} is {value!r}, which means nothing: gating is {default}",
            f"Set it to {', '.join(GATING_MODES[:-1])} or {GATING_MODES[-1]}, or remove it.",
        )
    former = namespace.labels.get(FORMER_GATING_LABEL)
    if former is not None:
        label = f"{GATING_LABEL}={FORMER_GATING_MODES.get(former, default)}"
        yield warning(
            "namespace.former-label",
            namespace.subject,
            f"{FORMER_GATING_LABEL} is read by this version only; it is {GATING_LABEL} now",
            f"Run: kubectl label namespace {namespace.name} {label} {FORMER_GATING_LABEL}-",
        )


def _mode(namespace: Namespace, system_namespace: str) -> Iterator[Finding]:
    mode, subject = namespace.mode, namespace.subject
    if mode is None:
        return
    if namespace.name == system_namespace:
        yield error(
            "namespace.own",
            subject,
            f"has {MODE_LABEL}={mode}: the webhook's own pods would wait for the webhook",
            f"Run: deferred-quota disable {namespace.name}",
        )
    elif mode == SHADOW_MODE and namespace.is_exempt:
        yield warning(
            "namespace.exempt",
            subject,
            f"has {MODE_LABEL}={mode}, and the configuration exempts it: it is not watched",
            f"Run: deferred-quota disable {namespace.name}, or take it out of exemptNamespaces.",
        )
    elif mode == SHADOW_MODE:
        message = "is in shadow mode: watched, and left to the API server"
        remedy = f"See: deferred-quota shadow report {namespace.name}"
        yield information("namespace.mode", subject, message, remedy)
    elif mode != DEFERRED_MODE:
        yield warning(
            "namespace.mode",
            subject,
            f"{MODE_LABEL} is {mode!r}, which means nothing: it is not opted in",
            f"Run: deferred-quota enable {namespace.name} (or disable).",
        )
    elif namespace.is_exempt:
        yield error(
            "namespace.exempt",
            subject,
            f"has {MODE_LABEL}={mode}, and the configuration exempts it: its pods are not charged,"
            " and a mask that does not leave it out hides its quotas from the API server",
            f"Run: deferred-quota disable {namespace.name}, or take it out of exemptNamespaces.",
        )


def quotas(scene: CheckContext) -> Iterator[Finding]:
    """Name quotas that cannot be read, are too large, count our objects, or have unclear scopes."""
    deferred = {one.name: one.is_deferred for one in scene.namespaces()}
    for raw in scene.objects(RESOURCE_QUOTAS):
        subject = subject_of(RESOURCE_QUOTAS, raw)
        if subject.namespace not in deferred:
            continue
        try:
            quota = ResourceQuota.from_stored(raw)
        except InvalidFieldError as err:
            yield unreadable(subject, err)
            continue
        ours = sorted(filter(_COUNTS_OURS.fullmatch, quota.hard))
        if ours:
            message = f"limits {', '.join(ours)}: what is kept of this namespace may be refused"
            yield error("quota.counts-ours", subject, message, "Take them out of spec.hard.")
        fault = scope_fault(quota) if deferred[subject.namespace] else ""
        if fault:
            message = f"its scopes cannot be evaluated, so every bind is refused: {fault}"
            yield error("quota.scopes", subject, message, "Correct spec.scopeSelector.")
    for namespace in scene.deferred_namespaces():
        for name, reason in undecided_by(scene.quotas(namespace.name)).items():
            yield error(
                "quota.bounds",
                Subject(RESOURCE_QUOTAS.kind, name, namespace.name)
                if name
                else Subject(NAMESPACES.kind, namespace.name),
                f"every bind is refused: {reason}",
                "Make the quota smaller." if name else "Delete some of them.",
            )


def shadows(scene: CheckContext) -> Iterator[Finding]:
    """Look whether namespaces in shadow mode are watched."""
    names = [one.name for one in scene.shadow_namespaces()]
    for name, is_recorded in scene.ledgers(names, _has_shadow):
        if not is_recorded:
            yield warning(
                "shadow.unrecorded",
                Subject("Namespace", name),
                "is in shadow mode, and nothing is recorded of it",
                "Is the definition of ledgers the one of this release (scripts/install writes it)? "
                + CONTROLLER_LOG,
            )


def _has_shadow(ledger: Object) -> bool:
    return FieldReader(ledger).child("status").has(SHADOW_FIELD)


def gates(scene: CheckContext) -> Iterator[Finding]:
    """Look for pods behind our gate that nothing will remove."""
    released = {one.name for one in scene.deferred_namespaces()}
    wanted = {one.name for one in scene.namespaces()}
    stuck: dict[str, list[str]] = {}

    def look(raw: Object) -> Finding | None:
        subject = subject_of(PODS, raw)
        if subject.namespace in released or subject.namespace not in wanted:
            return None
        try:
            if gate_of(raw) is not None:
                stuck.setdefault(subject.namespace, []).append(subject.name)
        except InvalidFieldError as err:
            return unreadable(subject, err)
        return None

    for finding in scene.unassigned_pods(look):
        if finding is not None:
            yield finding
    for namespace, names in sorted(stuck.items()):
        yield error(
            "gates.stuck",
            Subject("Namespace", namespace),
            f"{waiting(len(names))} behind the scheduling gate {SCHEDULING_GATE}, and the"
            " namespace has not opted in: no controller has removed it",
            f"Run: deferred-quota disable {namespace}",
            tuple(sorted(names)),
        )


def unreadable_pods(scene: CheckContext) -> Iterator[Finding]:
    """Name pods whose usage cannot be read, of namespaces that have opted in."""
    for namespace in scene.deferred_namespaces():
        for words in scene.pods(namespace.name):
            if isinstance(words, str):
                yield error(
                    "object.unreadable",
                    namespace.subject,
                    f"{words}: the usage of the namespace cannot be counted",
                    "Correct the field.",
                )
