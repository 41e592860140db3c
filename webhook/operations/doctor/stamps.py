"""Whether Bindings are pinned to their pods, and marked where an installation wants it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import MUTATING_WEBHOOKS, Object
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.doctor.errors import NoRightError
from webhook.operations.doctor.masks import policy_name
from webhook.operations.doctor.namespace_selectors import APPLY, restore
from webhook.operations.doctor.shipped import DIGESTS, added_to_binding, digest
from webhook.operations.findings import Finding, Subject, information, subject_of, warning
from webhook.operations.names import HAS_NO_UID, STAMP_ENTRY, STAMP_POLICY
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.objects.model import Pod
from webhook.state.well_known import GUARDED_ANNOTATION, REGISTRATION

_FIELD: Final = f"webhook {STAMP_ENTRY}: matchConditions"


def stamps(scene: CheckContext) -> Iterator[Finding]:
    """Look at the entry that pins, and at the policy that marks if there is one."""
    raw = scene.find(MUTATING_WEBHOOKS, REGISTRATION)
    yield from scene.judged(MUTATING_WEBHOOKS, [] if raw is None else [raw], _conditions)
    policies, bindings = _parts(scene)
    if policies and not bindings:
        message = "has no binding, so it does nothing: pods do not show that they were charged"
        yield warning("stamp.unbound", next(iter(policies)), message, APPLY)
    if bindings and not policies:
        message = f"binds a policy that is not there: {STAMP_POLICY}"
        yield warning("stamp.unbound", next(iter(bindings)), message, APPLY)
    for subject, raw in policies.items():
        if digest(FieldReader(raw).child("spec")) != DIGESTS[STAMP_POLICY]:
            message = "is not that of this release, or was changed"
            yield warning("stamp.edited", subject, message, restore(subject))
    for subject, raw in bindings.items():
        if paths := ", ".join(added_to_binding(raw)):
            message = f"{paths}: may leave Bindings out"
            yield warning("stamp.edited", subject, message, restore(subject))


def unmarked(scene: CheckContext) -> Iterator[Finding]:
    """Count assigned pods without the mark, where Bindings are marked."""
    try:
        is_marked = all(_parts(scene))
    except NoRightError:
        is_marked = False  # the check of the mark says so
    if not is_marked:
        return
    for namespace in scene.deferred_namespaces():
        assigned = [
            pod
            for pod in scene.pods(namespace.name)
            if isinstance(pod, Pod) and pod.is_assigned and not is_terminal(pod)
        ]
        without = sorted(pod.name for pod in assigned if GUARDED_ANNOTATION not in pod.annotations)
        if without:
            yield information(
                "pods.unguarded",
                namespace.subject,
                f"{len(without)} of {len(assigned)} assigned pods have no annotation"
                f" {GUARDED_ANNOTATION}: they were created with a node, or bound before the"
                f" namespace opted in or {STAMP_POLICY} was there, or while the webhook did not"
                " answer; they are counted",
                "",
                tuple(without),
            )


def _conditions(node: FieldReader, subject: Subject) -> Iterator[Finding]:
    for entry in node.children("webhooks"):
        if entry.text("name") != STAMP_ENTRY:
            continue
        found = [one.text("expression").split() for one in entry.children("matchConditions")]
        if not found:
            message = f"{_FIELD}: are missing: a call for each bind, where few need one"
            yield information("webhooks.stamp", subject, message, APPLY)
        elif found != [HAS_NO_UID.split()]:
            message = f"{_FIELD}: may leave out Bindings without uid, which are refused then"
            yield warning("webhooks.stamp", subject, message, restore(subject))


def _parts(scene: CheckContext) -> tuple[Mapping[Subject, Object], Mapping[Subject, Object]]:
    """Return the policy that marks, and what binds it."""
    kind, policies, bindings = scene.policies() or (None, (), ())
    if kind is None:
        return {}, {}
    named = {subject_of(kind, raw): raw for raw in policies}
    bound = {
        Subject(f"{kind.kind}Binding", subject_of(kind, raw).name): raw
        for raw in bindings
        if policy_name(raw) == STAMP_POLICY
    }
    return {one: raw for one, raw in named.items() if one.name == STAMP_POLICY}, bound
