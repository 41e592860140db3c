"""Whether the tokens of our service accounts are held to what they need, and ledgers to us."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from webhook.config import Configuration
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NotFoundError, Object
from webhook.kube.kinds import DEVICE_CLASSES, NAMESPACE_NAME_LABEL
from webhook.kube.selectors import Term
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.doctor.errors import NotInSnapshotError
from webhook.operations.doctor.masks import policy_name
from webhook.operations.doctor.namespace_selectors import APPLY, restore
from webhook.operations.doctor.shipped import DIGESTS, added_to_binding, digest
from webhook.operations.findings import Finding, Subject, error, subject_of, warning
from webhook.operations.names import (
    CLUSTER_QUOTAS_POLICY,
    DEVICE_CLAIMS_POLICY,
    EXEMPT,
    GLASS_BREAKERS,
    IS_NOT_OURS,
    IS_OURS,
    KEYS,
    LEDGERS_POLICY,
    OWN_NAMESPACE_POLICY,
    SERVICE_ACCOUNTS_POLICY,
    TRUSTED,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
)
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL, own_users

_CONSEQUENCES: Final[Mapping[str, str]] = {
    SERVICE_ACCOUNTS_POLICY: "a client with the controller's token may change image, gates and"
    " status of any pod, and the status of any quota",
    OWN_NAMESPACE_POLICY: "a client with one of our tokens may write Leases of any name in our"
    " namespace, keep it from ending, and change the Job that never runs",
    CLUSTER_QUOTAS_POLICY: "a client with the controller's token may write any cluster quota",
    LEDGERS_POLICY: "a client with the right by RBAC may write ledgers and the status of cluster"
    " quotas, and so what counts as used",
    DEVICE_CLAIMS_POLICY: "a client with the right to create pods or ResourceClaims gets devices"
    " of a deferred extended resource that no quota is charged for",
}
"""What is so where a policy is not there."""

_APPLY_DEVICE_CLAIMS: Final = (
    "Run scripts/install, or add manifests/components/device-claims, which no overlay has."
)
_QUOTED: Final = re.compile(r"'((?:[^'\\]|\\.)*)'")
_ESCAPED: Final = re.compile(r"\\(.)")
_EVERYWHERE: Final = WebhookSelector()
_OPTED_IN: Final = WebhookSelector((Term(MODE_LABEL, frozenset({DEFERRED_MODE})),))


def identities(scene: CheckContext) -> Iterator[Finding]:
    """Compare the policies with those of this release."""
    try:
        policies = scene.objects(VALIDATING_POLICIES)
        bindings = scene.objects(VALIDATING_BINDINGS)
    except NotInSnapshotError:
        return
    except NotFoundError:
        yield warning(
            "identities.unserved",
            None,
            "this API server has no ValidatingAdmissionPolicy in admissionregistration.k8s.io/v1:"
            f" {'; '.join(_CONSEQUENCES.values())}",
            "Serve admissionregistration.k8s.io/v1, and run scripts/install again.",
        )
        return
    found = {subject_of(VALIDATING_POLICIES, raw).name: raw for raw in policies}
    are_served = scene.device_classes.are_served
    if are_served is False:
        yield from _refuses_pods(found, bindings)
    for name, consequence in _CONSEQUENCES.items():
        if name == DEVICE_CLAIMS_POLICY and (
            are_served is False or (are_served is None and name not in found)
        ):
            continue
        if name not in found:
            subject = Subject(VALIDATING_POLICIES.kind, name)
            remedy = _APPLY_DEVICE_CLAIMS if name == DEVICE_CLAIMS_POLICY else APPLY
            yield warning("identities.missing", subject, f"does not exist: {consequence}", remedy)
            continue
        bound = [raw for raw in bindings if policy_name(raw) == name]

        def judge(
            node: FieldReader, subject: Subject, bound: Sequence[Object] = bound
        ) -> Iterator[Finding]:
            return _judged(scene, node, subject, bound)

        yield from scene.judged(VALIDATING_POLICIES, [found[name]], judge)


def _refuses_pods(policies: Mapping[str, Object], bindings: Sequence[Object]) -> Iterator[Finding]:
    """Name the policy about DeviceClasses where the API server has none and it is bound."""
    name = DEVICE_CLAIMS_POLICY
    if name in policies and any(policy_name(raw) == name for raw in bindings):
        yield error(
            "identities.refuses-pods",
            Subject(VALIDATING_POLICIES.kind, name),
            f"this API server has no DeviceClass in {DEVICE_CLASSES.api_version}, and so refuses"
            " every new pod of opted-in namespaces",
            f"Run scripts/install, or kubectl delete validatingadmissionpolicybinding {name} and"
            f" kubectl delete validatingadmissionpolicy {name}.",
        )


def _judged(
    scene: CheckContext, node: FieldReader, subject: Subject, bound: Sequence[Object]
) -> Iterator[Finding]:
    consequence = _CONSEQUENCES[subject.name]
    spec = node.child("spec")
    has_parameters = spec.has("paramKind")
    if not any(_denies_everywhere(one, has_parameters=has_parameters) for one in bound):
        message = f"has no binding that denies in every namespace: {consequence}"
        binding = Subject(VALIDATING_BINDINGS.kind, subject.name)
        remedy = restore(binding) if bound else APPLY
        yield warning("identities.unbound", subject, message, remedy)
    if digest(spec) != DIGESTS[subject.name] or not _selects(scene, subject.name, spec):
        message = f"is not that of this release, or was changed: {consequence}"
        yield warning("identities.edited", subject, message, restore(subject))
    wanted = _wanted(scene)
    for item in (*spec.children("matchConditions"), *spec.children("variables")):
        name = item.text("name")
        if name in wanted and _listed(item.text("expression")) != wanted[name]:
            yield warning(
                "identities.lists",
                subject,
                f"{name}: names {_some(_listed(item.text('expression')))}, must name"
                f" {_some(wanted[name])}",
                "Run scripts/install with the present configuration; doctor reads it with"
                " --config.",
            )
    wrong = node.child("status").child("typeChecking").children("expressionWarnings")
    for one in wrong:
        message = f"{one.text('fieldRef')}: the API server finds a fault: {one.text('warning')}"
        yield warning("identities.types", subject, message, APPLY)


def _selects(scene: CheckContext, name: str, spec: FieldReader) -> bool:
    """Return whether a policy is about the namespaces that it has to be about."""
    selector = WebhookSelector.read(spec.child("matchConstraints").child("namespaceSelector"))
    if name == OWN_NAMESPACE_POLICY:
        return selector.matches({NAMESPACE_NAME_LABEL: scene.settings.system_namespace})
    if name == DEVICE_CLAIMS_POLICY:
        return selector == _OPTED_IN
    return selector == _EVERYWHERE


def _denies_everywhere(binding: Object, *, has_parameters: bool) -> bool:
    spec = FieldReader(binding).child("spec")
    parameters = spec.child("paramRef")
    added = added_to_binding(binding, "validationActions", "paramRef")
    return (
        "Deny" in spec.strings("validationActions")
        and (not has_parameters or parameters.has("selector"))
        and WebhookSelector.read(parameters.child("selector")).is_empty
        and WebhookSelector.read(spec.child("matchResources").child("namespaceSelector")).is_empty
        and not any(added)
    )


def _wanted(scene: CheckContext) -> Mapping[str, frozenset[str]]:
    settings = scene.settings
    ours = own_users(settings.system_namespace)
    exempt = {*Configuration().exempt_namespaces, settings.system_namespace, *settings.exempt}
    return {
        IS_OURS: ours,
        IS_NOT_OURS: ours,
        KEYS: frozenset(settings.deferred_keys),
        EXEMPT: frozenset(exempt),
        TRUSTED: frozenset(settings.trusted_users),
        GLASS_BREAKERS: frozenset(settings.glass_breakers),
    }


def _listed(expression: str) -> frozenset[str]:
    """Return the names that a list of an installation has; what cannot be read as it stands."""
    return frozenset(map(_unescaped, _QUOTED.findall(expression)))


def _unescaped(inside: str) -> str:
    plain = _ESCAPED.sub(lambda pair: "'" if pair[1] == "'" else pair[0], inside)
    quoted = plain.replace('"', '\\"')
    try:
        return str(json.loads(f'"{quoted}"'))
    except ValueError:
        return inside


def _some(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "no user"
