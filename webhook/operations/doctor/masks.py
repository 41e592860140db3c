"""Whether what is deferred is hidden from the API server's own quota check, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import RESOURCE_QUOTAS, Object
from webhook.kube.metadata import object_name
from webhook.operations.doctor.check_context import (
    CONTROLLER_LOG,
    CheckContext,
    quota_subject,
)
from webhook.operations.doctor.namespace_selectors import APPLY, restore, selection_findings
from webhook.operations.doctor.shipped import (
    DIGESTS,
    LISTS_KEYS,
    added,
    added_to_binding,
    digest,
    edited_conditions,
    not_shipped,
)
from webhook.operations.emergency_state import without_emergency
from webhook.operations.findings import (
    Finding,
    Subject,
    error,
    information,
    subject_of,
    warning,
)
from webhook.operations.names import KEYS, MASK_ENTRY, MASK_POLICY, MUTATING
from webhook.quota.charging.deferral import is_excluded
from webhook.quota.charging.status_mask import incomplete_keys, visible_keys
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.names import is_pod_quota_key
from webhook.state.webhook_selectors import WebhookSelector, uncovered
from webhook.state.well_known import DEFERRED_MODE

_QUOTED: Final = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")


def masks(scene: CheckContext) -> Iterator[Finding]:
    """Look whether something masks: the policy, or the webhook.

    Raises:
        NotInSnapshotError: The webhook does not, and a snapshot has no policies.
    """
    found = scene.policies()
    is_policy = False
    if found is not None:
        kind, policies, bindings = found
        named = [raw for raw in policies if subject_of(kind, raw).name == MASK_POLICY]
        bound = [raw for raw in bindings if policy_name(raw) == MASK_POLICY]
        is_policy = bool(named and bound)
        if named and not bound:
            message = "has no binding, so it does nothing"
            yield error("mask.unbound", Subject(kind.kind, MASK_POLICY), message, APPLY)
        for raw in named if bound else ():
            yield from scene.judged(kind, [raw], _judge_policy(scene, raw, bound))
    is_webhook = scene.has_mutating_entry(MASK_ENTRY)
    if not is_policy and not is_webhook:
        scene.check_policies_known()
    yield from _number(is_policy=is_policy, is_webhook=is_webhook)


def _number(*, is_policy: bool, is_webhook: bool) -> Iterator[Finding]:
    """There should be one mask."""
    if not is_policy and not is_webhook:
        yield error(
            "mask.missing",
            None,
            f"nothing masks: there is neither a policy {MASK_POLICY} nor a webhook {MASK_ENTRY}:"
            " the API server goes on to charge pods when they are created",
            APPLY,
        )
    if is_policy and is_webhook:
        yield information(
            "mask.twice",
            None,
            f"both the policy {MASK_POLICY} and the webhook {MASK_ENTRY} mask; one is enough",
            "Remove the webhook: the policy needs no call.",
        )


def policy_name(raw: Object) -> str:
    """Return which policy a binding binds; empty if it cannot be read."""
    try:
        return FieldReader(raw).child("spec").text("policyName")
    except InvalidFieldError:
        return ""


def _judge_policy(
    scene: CheckContext, raw: Object, bindings: list[Object]
) -> Callable[[FieldReader, Subject], Iterator[Finding]]:
    def judge(node: FieldReader, subject: Subject) -> Iterator[Finding]:
        spec = node.child("spec")
        faults = list(_policy_faults(scene, raw, spec, subject))
        if not faults and digest(spec) != DIGESTS[MASK_POLICY]:
            faults = [_edited(subject, "is not that of this release, or was changed")]
        yield from faults
        for binding in bindings:
            bound = Subject(f"{subject.kind}Binding", object_name(binding))
            for path in added_to_binding(binding):
                yield _edited(bound, f"{path}: may leave quotas out")
        conditions = [one.text("expression") for one in spec.children("matchConditions")]
        if not any("namespaceObject" in expression for expression in conditions):
            yield from _selection(scene, spec.child("matchConstraints"), subject, bindings)

    return judge


def _policy_faults(
    scene: CheckContext, raw: Object, spec: FieldReader, subject: Subject
) -> Iterator[Finding]:
    if (spec.text("failurePolicy") or "Fail") != "Ignore":
        message = "spec.failurePolicy: must be Ignore: a mask that fails stops all pods"
        yield error("mask.failure-policy", subject, message, APPLY)
    constraints = spec.child("matchConstraints")
    missing = uncovered(constraints.children("resourceRules"), MUTATING[MASK_ENTRY].covers)
    if missing:
        message = f"spec.matchConstraints.resourceRules: do not cover {', '.join(missing)}"
        yield error("mask.rules", subject, message, APPLY)
    yield from key_findings(scene, spec, subject)
    edited = edited_conditions(MASK_ENTRY, spec, scene.settings.system_namespace)
    if edited:
        yield _edited(subject, f"spec.matchConditions: {not_shipped(edited)}")
    known = ("resourceRules", "namespaceSelector")
    for path in added(raw, "spec", "matchConstraints", known=known):
        yield _edited(subject, f"{path}: may leave quotas out")


def _edited(subject: Subject, message: str) -> Finding:
    return warning("mask.edited", subject, message, restore(subject))


def _selection(
    scene: CheckContext, constraints: FieldReader, subject: Subject, bindings: list[Object]
) -> Iterable[Finding]:
    """Compare which namespaces are masked with those that have opted in."""
    selectors = [
        WebhookSelector.read(place.child("namespaceSelector"))
        for place in (constraints, *_resources_of(bindings))
    ]
    terms = tuple(term for one in selectors for term in one.terms)
    joined = without_emergency(WebhookSelector(terms))
    opted_in = scene.labels_in(DEFERRED_MODE)
    return selection_findings(joined, subject, "its namespaceSelector", opted_in, is_strict=True)


def _resources_of(bindings: Iterable[Object]) -> list[FieldReader]:
    return [FieldReader(raw).child("spec").child("matchResources") for raw in bindings]


def key_findings(scene: CheckContext, node: FieldReader, subject: Subject) -> Iterator[Finding]:
    """Compare the keys that expressions of a mask list with those that are deferred."""
    deferred = set(scene.settings.deferred_keys)
    hint = "Make it list what the configuration defers; doctor reads that with --config."
    for item in (*node.children("matchConditions"), *node.children("variables")):
        quoted = {single or double for single, double in _QUOTED.findall(item.text("expression"))}
        named = set(filter(is_pod_quota_key, quoted))
        if not named and item.text("name") not in {KEYS, LISTS_KEYS}:
            continue
        unmasked, uncharged = sorted(deferred - named), sorted(named - deferred)
        if unmasked:
            message = f"does not mask {', '.join(unmasked)}: charged at creation and at the bind"
            yield error("mask.keys", subject, message, hint)
        if uncharged:
            message = (
                f"masks {', '.join(uncharged)}, which the configuration does not defer: not charged"
            )
            yield error("mask.keys", subject, message, hint)


def statuses(scene: CheckContext) -> Iterator[Finding]:
    """Look for statuses that show what is deferred, or hide what is not.

    A status may just have been written, so what is found has to be so at a second look.
    """
    first = dict(_status_findings(scene, again=False))
    if first:
        scene.pause()
        second = dict(_status_findings(scene, again=True))
        yield from (found for key, found in second.items() if key in first)


def _status_findings(
    scene: CheckContext, *, again: bool
) -> Iterator[tuple[tuple[str, str], Finding]]:
    if again:
        scene.objects(RESOURCE_QUOTAS, again=True)
    is_open = scene.emergency().is_open
    for namespace in scene.namespaces():
        if namespace.is_ending:
            continue
        judge = _shown if namespace.is_deferred and not is_open else _hidden
        for quota in scene.quotas(namespace.name):
            found = judge(scene, quota)
            if found is not None:
                yield (f"{quota.key}", found.id), found


def _shown(scene: CheckContext, quota: ResourceQuota) -> Finding | None:
    if is_excluded(quota):
        return _hidden(scene, quota)
    keys = visible_keys(quota, scene.settings.deferred_keys)
    if not keys:
        return None
    return error(
        "mask.status",
        quota_subject(quota),
        f"its status shows {', '.join(keys)}: the API server charges pods when they are created",
        "The controller repairs this at once: see that it runs and may patch"
        f" resourcequotas/status. {CONTROLLER_LOG}",
    )


def _hidden(scene: CheckContext, quota: ResourceQuota) -> Finding | None:
    keys = [key for key in incomplete_keys(quota) if key in scene.settings.deferred_keys]
    if not keys:
        return None
    return error(
        "mask.leftover",
        quota_subject(quota),
        f"its status lacks {', '.join(keys)}, and they are not deferred: nothing enforces them",
        "The API server's quota controller completes it within five minutes"
        + ("." if is_excluded(quota) else f"; at once: deferred-quota disable {quota.namespace}"),
    )
