"""Whether the webhooks are registered as they have to be."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Kind
from webhook.operations.creation import narrowed_entries
from webhook.operations.deployments import WEBHOOK
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.doctor.creation import decides
from webhook.operations.doctor.errors import NoRightError
from webhook.operations.doctor.masks import key_findings
from webhook.operations.doctor.namespace_selectors import (
    ANY_NAMESPACE,
    APPLY,
    findings_for,
    gate_findings,
    own_namespace_findings,
    restore,
    selection_findings,
)
from webhook.operations.doctor.shipped import edited_conditions, not_shipped
from webhook.operations.emergency_state import without_emergency
from webhook.operations.findings import (
    Finding,
    Subject,
    error,
    information,
    warning,
)
from webhook.operations.names import (
    GATE_ENTRY,
    MASK_ENTRY,
    MUTATING,
    MUTATING_LAST,
    SHAPE_ENTRY,
    STAMP_ENTRY,
    UNGATED_ENTRY,
    VALIDATING,
    Entry,
)
from webhook.state.webhook_selectors import WebhookSelector, uncovered
from webhook.state.well_known import (
    AUTO_GATING,
    DEFERRED_MODE,
    LAST_REGISTRATION,
    MODE_LABEL,
    NEVER_GATING,
    REGISTRATION,
    SHADOW_ENTRY,
    SHADOW_MODE,
)

_Judge: TypeAlias = Callable[[str, Subject | None, str, str], Finding]

_BySelector: TypeAlias = Callable[..., Iterable[Finding]]

_BY_GATING: Final[Mapping[str, _BySelector]] = {
    GATE_ENTRY: gate_findings,
    UNGATED_ENTRY: findings_for(NEVER_GATING),
}
"""How the namespaces are judged that an entry selects, where that depends on their gating."""
_BESIDE_POLICIES: Final[Mapping[str, _BySelector]] = {
    GATE_ENTRY: findings_for(AUTO_GATING),
}
"""The same where policies decide about new pods."""
_BY_GATING_OF: Final[Mapping[bool | None, Mapping[str, _BySelector]]] = {
    False: _BY_GATING,
    True: _BESIDE_POLICIES,
    None: {**_BY_GATING, **_BESIDE_POLICIES},  # what asks for less
}
_SHIPPED: Final = (
    (MUTATING_WEBHOOKS, REGISTRATION, MUTATING),
    (MUTATING_WEBHOOKS, LAST_REGISTRATION, MUTATING_LAST),
    (VALIDATING_WEBHOOKS, REGISTRATION, VALIDATING),
)
_PORT: Final = 443
"""Port of the Service, and what an API server calls where none is named."""
_ENDS_SOON: Final = timedelta(days=7)
_MASK_SECONDS: Final = 2
_PATHS: Final = {SHADOW_ENTRY: "/shadow"}


def registrations(scene: CheckContext) -> Iterator[Finding]:
    """Compare the webhook configurations with what is shipped.

    Raises:
        NoRightError: Configurations may not be read; or policies, and all else was compared.
    """
    is_by_policy: bool | None = None
    unread: NoRightError | None = None
    try:
        is_by_policy = decides(scene)
    except NoRightError as err:
        unread = err
    for kind, name, entries in _SHIPPED:
        yield from _configuration(scene, kind, name, entries, is_by_policy)
    if unread is not None:
        raise NoRightError(unread.attributes, str(unread), is_partial=True) from unread


def _configuration(
    scene: CheckContext,
    kind: Kind,
    configuration: str,
    entries: Mapping[str, Entry],
    is_by_policy: bool | None,
) -> Iterator[Finding]:
    """Compare one; whether policies decide about new pods is not known where they are not read."""
    raw = scene.find(kind, configuration)
    if raw is None:
        yield _missing(Subject(kind.kind, configuration), entries)
        return
    by_mode = {mode: scene.labels_in(mode) for mode in (DEFERRED_MODE, SHADOW_MODE)}
    by_policies = _decided_by_policies(scene) if is_by_policy else frozenset()
    spared = {MASK_ENTRY, *by_policies}  # the mask may be a policy too
    if is_by_policy is None or scene.lacks_policies:
        spared |= {GATE_ENTRY, SHAPE_ENTRY, UNGATED_ENTRY}  # so may these

    def judge(node: FieldReader, subject: Subject) -> Iterator[Finding]:
        found = {one.text("name"): one for one in node.children("webhooks")}
        for name, entry in entries.items():
            if name in by_policies:
                continue  # the check of the policies names it where it is there all the same
            if name in found:
                concerned = by_mode[entry.mode]
                judged = _BY_GATING_OF[is_by_policy].get(name)
                yield from _entry(scene, found[name], subject, entry, concerned, judged)
            elif name not in spared:
                strict = error if entry.policy == "Fail" else warning
                message = f"has no webhook {name}: {entry.without}"
                yield strict("webhooks.incomplete", subject, message, APPLY)
        known = {name: found[name] for name in entries if name in found.keys() - by_policies}
        selectors = {name: (_selector(one), entries[name].mode) for name, one in known.items()}
        yield from own_namespace_findings(selectors, subject, scene.settings.system_namespace)
        if scene.is_manifest(node):
            known = dict(_written(scene, known))
        yield from _bundles(scene, known, subject)
        for name in sorted(found.keys() - entries.keys()):
            message = f"has a webhook that this release does not know: {name}"
            yield information("webhooks.unknown", subject, message)

    yield from scene.judged(kind, [raw], judge)


def _decided_by_policies(scene: CheckContext) -> frozenset[str]:
    """Return the entries that the webhook does not need where policies decide about new pods."""
    rules = scene.settings.creation
    gate = frozenset() if rules.gates_all else {GATE_ENTRY}
    ungated = frozenset() if rules.needs_quotas else {UNGATED_ENTRY}
    return frozenset({SHAPE_ENTRY, *gate, *ungated})


def _missing(subject: Subject, entries: Mapping[str, Entry]) -> Finding:
    if any(entry.policy == "Fail" for entry in entries.values()):
        return error(
            "webhooks.missing",
            subject,
            "does not exist: nothing is charged or refused",
            "Run scripts/install; opt namespaces out first if that is not wanted.",
        )
    lost = "; ".join(entry.without for entry in entries.values())
    return warning("webhooks.missing", subject, f"does not exist: {lost}", APPLY)


def _entry(
    scene: CheckContext,
    node: FieldReader,
    subject: Subject,
    entry: Entry,
    opted_in: list[dict[str, str]],
    by_gating: _BySelector | None,
) -> Iterator[Finding]:
    name, is_strict = node.text("name"), entry.policy == "Fail"
    yield from _policy(node, subject, name, entry)
    missing = uncovered(node.children("rules"), entry.covers)
    if missing:
        judge = error if is_strict else warning
        message = f"webhook {name}: rules do not cover {', '.join(missing)}: {entry.without}"
        yield judge("webhooks.rules", subject, message, APPLY)
    selector = _selector(node)
    field = f"webhook {name}: namespaceSelector"
    if by_gating is not None:
        gating = scene.settings.gating
        yield from by_gating(selector, subject, field, opted_in, gating=gating)
    else:
        sample = {**ANY_NAMESPACE, MODE_LABEL: entry.mode}
        yield from selection_findings(
            selector, subject, field, opted_in, is_strict=is_strict, sample=sample
        )
    yield from _narrowing(scene, node, subject, name, entry)
    yield from _call(scene, node, subject, name, entry)


def _selector(node: FieldReader) -> WebhookSelector:
    return without_emergency(WebhookSelector.read(node.child("namespaceSelector")))


def _written(
    scene: CheckContext, entries: Mapping[str, FieldReader]
) -> Iterator[tuple[str, FieldReader]]:
    """Yield the entries of a manifest but for those whose CA is written when it is applied."""
    for name, node in entries.items():
        client = node.child("clientConfig")
        if client.text("caBundle") or client.has("url"):
            yield name, node
        else:
            scene.lacks["caBundle of webhooks"] = None


def _bundles(
    scene: CheckContext, entries: Mapping[str, FieldReader], subject: Subject
) -> Iterator[Finding]:
    """Judge the CAs of a configuration; entries of which the same is said are named together."""
    named: dict[tuple[_Judge, str, str], list[str]] = {}
    for name, node in entries.items():
        remedy = _ca_remedy(scene, node.child("clientConfig"))
        for problem, grade in _bundle(scene, node):
            named.setdefault((grade, problem, remedy), []).append(name)
    for (grade, problem, remedy), names in named.items():
        webhooks = f"{'webhooks' if names[1:] else 'webhook'} {', '.join(names)}"
        yield grade("webhooks.ca", subject, f"{webhooks}: clientConfig.caBundle {problem}", remedy)


def _ca_remedy(scene: CheckContext, client: FieldReader) -> str:
    """Return what writes the CA: it comes with the certificate of a webhook in the cluster."""
    if not client.has("url") and scene.settings.rotates:
        return (
            "The controller that leads writes it within seconds. If none leads: kubectl get pods -n"
            f" {scene.settings.system_namespace} -l app.kubernetes.io/component=controller"
        )
    if not client.has("url"):
        return (
            "Run scripts/install, which writes the CA of the webhook's certificate there and"
            " renews both in time."
        )
    place = urlsplit(client.text("url"))
    return (
        f"Run scripts/install --url {place.scheme}://{place.netloc} --ca FILE, with the CA of the"
        " certificate that is served there."
    )


def _policy(node: FieldReader, subject: Subject, name: str, entry: Entry) -> Iterator[Finding]:
    policy = node.text("failurePolicy") or "Fail"
    if policy != entry.policy:
        # a mask that fails closed stops all pods; a handler that fails open lets pods pass
        # uncharged
        judge = error if entry.policy == "Fail" or name == MASK_ENTRY else warning
        consequence = (
            entry.without if entry.policy == "Fail" else "an outage of the webhook stops requests"
        )
        message = (
            f"webhook {name}: failurePolicy: is {policy}, must be {entry.policy}: {consequence}"
        )
        yield judge("webhooks.failure-policy", subject, message, APPLY)
    seconds = node.integer("timeoutSeconds")
    if name == MASK_ENTRY and (seconds is None or seconds > _MASK_SECONDS):
        message = f"webhook {name}: timeoutSeconds: must be at most {_MASK_SECONDS}"
        yield warning("webhooks.timeout", subject, message, APPLY)


def _narrowing(
    scene: CheckContext, node: FieldReader, subject: Subject, name: str, entry: Entry
) -> Iterator[Finding]:
    """Look at what lets requests pass by."""
    judge = error if entry.policy == "Fail" else warning
    if not set(WebhookSelector.read(node.child("objectSelector")).terms) <= set(entry.objects):
        message = f"webhook {name}: objectSelector: leaves requests out"
        yield judge("webhooks.narrowed", subject, message, restore(subject))
    if node.text("matchPolicy") == "Exact":
        message = f"webhook {name}: matchPolicy: is Exact, so other API versions pass by"
        yield judge("webhooks.narrowed", subject, message, APPLY)
    if name == MASK_ENTRY:
        yield from key_findings(scene, node, subject)
    place = scene.settings.system_namespace
    edited = edited_conditions(name, node, place, _configured(scene, name))
    if edited and name != STAMP_ENTRY:  # the check of the mark looks at that
        are_more = any(edited.values())
        consequence = f": {entry.without}" if are_more and name != MASK_ENTRY else ""
        message = f"webhook {name}: matchConditions: {not_shipped(edited)}{consequence}"
        find = judge if are_more else warning
        yield find("webhooks.narrowed", subject, message, restore(subject))


def _configured(scene: CheckContext, name: str) -> list[FieldReader]:
    """Return the conditions that an entry has where policies decide about new pods."""
    bare = {"name": name, "namespaceSelector": {"matchExpressions": []}}
    entries = narrowed_entries([bare], scene.settings.creation) if name == UNGATED_ENTRY else []
    return [one for entry in entries for one in FieldReader(entry).children("matchConditions")]


def _call(
    scene: CheckContext, node: FieldReader, subject: Subject, name: str, entry: Entry
) -> Iterator[Finding]:
    """Look at what is called, and how: what the webhook does goes by the path."""
    client, judge = node.child("clientConfig"), error if entry.policy == "Fail" else warning
    url, service = urlsplit(client.text("url")), client.child("service")
    if not url.netloc:
        port = service.integer("port") or _PORT
        called = f"{service.text('namespace')}/{service.text('name')}:{port}"
        ours = f"{scene.settings.system_namespace}/{WEBHOOK}:{_PORT}"
        if called != ours:
            message = f"webhook {name}: clientConfig: calls Service {called}, must call {ours}"
            yield judge("webhooks.service", subject, f"{message}: {entry.without}", APPLY)
    path = url.path if url.netloc else service.text("path")
    is_mutating = subject.kind == MUTATING_WEBHOOKS.kind
    wanted = _PATHS.get(name, "/mutate" if is_mutating else "/validate")
    if path != wanted:
        message = f"webhook {name}: clientConfig: calls {path or '/'}, must call {wanted}"
        yield judge("webhooks.path", subject, f"{message}: {entry.without}", APPLY)


def _bundle(scene: CheckContext, node: FieldReader) -> Iterator[tuple[str, _Judge]]:
    """Return what is wrong with the CA that the API server is to trust."""
    text = node.child("clientConfig").text("caBundle")
    if not text and node.child("clientConfig").has("url"):
        yield "is empty: only a CA that the API server's own machine trusts is accepted", warning
        return
    if not text:
        yield "is empty: the API server cannot trust the webhook", error
        return
    try:
        pem = base64.b64decode(text, validate=True)
        found = scene.settings.read_bundle(pem)
    except (binascii.Error, ValueError):
        yield "is not a certificate in PEM", error
        return
    if not found:
        yield "holds no certificate", error
        return
    now = scene.settings.now()
    ends = [end for begin, end in found if begin <= now < end]
    later = [begin for begin, _ in found if now < begin]
    if not ends and later:
        yield f"begins at {min(later):%Y-%m-%d %H:%M} UTC", error
    elif not ends:
        yield f"ended at {max(end for _, end in found):%Y-%m-%d %H:%M} UTC", error
    elif max(ends) - now < _ENDS_SOON:
        yield f"ends at {max(ends):%Y-%m-%d %H:%M} UTC", warning
