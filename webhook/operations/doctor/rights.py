"""Rights of users and workloads by which they could bypass the product."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import VALIDATING_WEBHOOKS, Kind, Object
from webhook.operations.doctor.check_context import CheckContext, unreadable
from webhook.operations.doctor.namespace_selectors import APPLY
from webhook.operations.findings import Finding, Severity, Subject, error, first_of, subject_of
from webhook.operations.names import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from webhook.state.well_known import REGISTRATION

_PLATFORM_NAMESPACE: Final = "kube-system"
_LEDGERS: Final = "deferredquota.io"
_WRITE: Final = ("update", "patch")


@dataclass(frozen=True, slots=True)
class _Power:
    """Power that few should have."""

    id: str
    severity: Severity
    verbs: tuple[str, ...]
    resources: tuple[tuple[str, str], ...]
    """(API group, resource)."""
    meaning: str
    remedy: str


_EVERYTHING: Final = _Power(
    "rights.everything",
    Severity.INFO,
    ("*",),
    (("*", "*"),),
    "may do everything, and so go around quota in many ways",
    "",
)
_POWERS: Final = (
    _Power(
        "rights.bind",
        Severity.WARN,
        ("create",),
        (("", "pods/binding"), ("", "bindings")),
        "may bind pods themselves; the guard charges these binds too, but no queue orders them",
        "Leave pods/binding and bindings to schedulers.",
    ),
    _Power(
        "rights.create-pods",
        Severity.INFO,
        ("create",),
        (("", "pods"),),
        "may create pods, and so pods that name their node; these are charged when created",
        "",
    ),
    _Power(
        "rights.quota-status",
        Severity.WARN,
        _WRITE,
        (("", "resourcequotas/status"),),
        "may write the status of quotas, and so what the API server enforces",
        "Leave resourcequotas/status to the quota controller and to this product.",
    ),
    _Power(
        "rights.ledgers",
        Severity.WARN,
        ("create", "delete", *_WRITE),
        (
            (_LEDGERS, "quotaledgers"),
            (_LEDGERS, "quotaledgers/status"),
            (_LEDGERS, "clusterdeferredquotas/status"),
        ),
        "may write ledgers or the status of cluster quotas, and so what counts as used",
        "Leave quotaledgers and clusterdeferredquotas/status to this product; people only need to"
        " read them.",
    ),
    _Power(
        "rights.opt-out",
        Severity.INFO,
        _WRITE,
        (("", "namespaces"),),
        "may change labels of namespaces, and so opt them out",
        "Leave namespaces to administrators.",
    ),
    _Power(
        "rights.registrations",
        Severity.INFO,
        ("delete", *_WRITE),
        (
            ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
            ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ),
        "may change webhook configurations, and so switch the guard off",
        "",
    ),
)


@dataclass(frozen=True, slots=True)
class _Rule:
    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]

    @property
    def is_everything(self) -> bool:
        return "*" in self.verbs and "*" in self.groups and "*" in self.resources

    def gives(self, power: _Power) -> bool:
        return any(
            not self.verbs.isdisjoint((*power.verbs, "*"))
            and not self.groups.isdisjoint((group, "*"))
            and self._names(resource)
            for group, resource in power.resources
        )

    def _names(self, resource: str) -> bool:
        _, _, subresource = resource.partition("/")
        return not self.resources.isdisjoint(
            (resource, "*", *([f"*/{subresource}"] if subresource else []))
        )


_WITHOUT_RIGHTS: Final[Mapping[str, str]] = {
    "deferred-quota-webhook": "the webhook may not read what it decides by, and admits no bind",
    "deferred-quota-controller": "the controller may not count, and no pod leaves the queue",
}
"""Name of the roles and bindings of a service account → what follows where one is missing."""

_Roles = Mapping[tuple[str, str, str], tuple[_Rule, ...]]
"""(kind, namespace, name) → its rules."""


def rights(scene: CheckContext) -> Iterator[Finding]:
    """Look through all roles and bindings for powers in the hands of people and workloads.

    The platform's own subjects (`system:...`, kube-system) and this product's are left out, but for
    service accounts of other namespaces. So is what counts only in a namespace that is not looked
    at.
    """
    yield from _own_rights(scene)
    odd: list[Finding] = []
    roles = {**_roles(scene, CLUSTER_ROLES, odd), **_roles(scene, ROLES, odd)}
    holders: dict[str, dict[str, None]] = {power.id: {} for power in (*_POWERS, _EVERYTHING)}
    trusted = {_PLATFORM_NAMESPACE, scene.settings.system_namespace}
    for kind in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
        for raw in scene.objects(kind):
            if not _counts(scene, subject_of(kind, raw).namespace):
                continue
            try:
                _note(raw, roles, holders, trusted)
            except InvalidFieldError as err:
                odd.append(unreadable(subject_of(kind, raw), err))
    yield from odd
    for power in (*_POWERS, _EVERYTHING):
        found = tuple(sorted(holders[power.id]))
        if found:
            yield Finding(power.id, power.severity, None, _sum(found, power), power.remedy, found)


def _own_rights(scene: CheckContext) -> Iterator[Finding]:
    """Find roles and bindings of our own service accounts that are not there."""
    system = scene.settings.system_namespace
    if scene.settings.is_offline or scene.find(VALIDATING_WEBHOOKS, REGISTRATION) is None:
        return  # a snapshot may have left them out; that nothing is installed is said already
    for kind in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS):
        namespace = system if kind.namespaced else ""
        there = {
            (one.namespace, one.name) for one in map(partial(subject_of, kind), scene.objects(kind))
        }
        for name, loss in _WITHOUT_RIGHTS.items():
            if (namespace, name) not in there:
                subject = Subject(kind.kind, name, namespace)
                yield error("rights.missing", subject, f"does not exist: {loss}", APPLY)


def _counts(scene: CheckContext, namespace: str) -> bool:
    """Return whether a binding in a namespace, or in none, says something of what is looked at."""
    return namespace in {"", scene.settings.system_namespace} or scene.looks_at(namespace)


def _sum(found: tuple[str, ...], power: _Power, most: int = 3) -> str:
    return f"{first_of(found, most)} {power.meaning}"


def _roles(
    scene: CheckContext, kind: Kind, odd: list[Finding]
) -> dict[tuple[str, str, str], tuple[_Rule, ...]]:
    found: dict[tuple[str, str, str], tuple[_Rule, ...]] = {}
    for raw in scene.objects(kind):
        subject = subject_of(kind, raw)
        try:
            rules = tuple(
                _Rule(
                    frozenset(rule.strings("verbs")),
                    frozenset(rule.strings("apiGroups")),
                    frozenset(rule.strings("resources")),
                )
                for rule in FieldReader(raw).children("rules")
            )
        except InvalidFieldError as err:
            odd.append(unreadable(subject, err))
            continue
        found[kind.kind, subject.namespace, subject.name] = rules
    return found


def _note(
    raw: Object,
    roles: _Roles,
    holders: dict[str, dict[str, None]],
    trusted: Set[str],
) -> None:
    """Note what a binding gives to its subjects."""
    node = FieldReader(raw)
    namespace = node.child("metadata").text("namespace")
    reference = node.child("roleRef")
    kind, name = reference.text("kind"), reference.text("name")
    rules = roles.get((kind, namespace if kind == "Role" else "", name), ())
    given = [power for power in _POWERS if any(rule.gives(power) for rule in rules)]
    if any(rule.is_everything for rule in rules):
        given = [_EVERYTHING]  # administrators; what that comprises goes without saying
    if not given:
        return
    for one in node.children("subjects"):
        holder = _holder(one, namespace, trusted)
        if holder:
            words = f"{holder} ({name}{f' in {namespace}' if namespace else ''})"
            for power in given:
                holders[power.id][words] = None


def _holder(subject: FieldReader, namespace: str, trusted: Set[str]) -> str:
    """Name a subject; empty if it belongs to the platform or to this product."""
    kind, name = subject.text("kind"), subject.text("name")
    home = subject.text("namespace") or namespace
    if kind == "ServiceAccount":
        return "" if home in trusted else f"ServiceAccount {home}/{name}"
    accounts = _ACCOUNTS.match(name)
    if accounts is not None:
        return "" if accounts["namespace"] in trusted else f"{kind} {name}"
    return "" if name.startswith("system:") and name not in _ALL_USERS else f"{kind} {name}"


_ALL_USERS: Final = frozenset(
    {"system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:anonymous"}
)
"""Names of the platform that mean every user."""
_ACCOUNTS: Final = re.compile(r"system:serviceaccounts?:(?P<namespace>[^:]+)")
"""A service account as a user, and the group of all those of a namespace."""
