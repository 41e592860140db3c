"""Whether the CustomResourceDefinitions are installed, and a controller leads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import LEASES, NAMESPACES, PODS, VALIDATING_WEBHOOKS, Object
from webhook.kube.kinds import NAMESPACE_NAME_LABEL
from webhook.kube.metadata import time_text
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.doctor.errors import NoRightError, NotInSnapshotError
from webhook.operations.findings import Finding, Subject, error, subject_of, warning
from webhook.operations.leader import Holding, changed, holding_of
from webhook.operations.names import CLUSTER_QUOTA_CRD, CUSTOM_RESOURCE_DEFINITIONS, LEDGER_CRD
from webhook.quota.objects.names import QUOTA_RESERVED
from webhook.quota.queue.pod_conditions import (
    observed_condition,
)
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import (
    BIND_ENTRY,
    CONFIG_MAP,
    CONFIGURATION_REPORTS,
    DEFERRED_MODE,
    LEADER_LEASE,
    MODE_LABEL,
    NOT_IN_FORCE,
    REGISTRATION,
)

_VERSION: Final = "v1alpha1"
_APPLY_CRD: Final = "Run scripts/install: it writes the CustomResourceDefinition of this release."

_START: Final = (
    "Start a controller: scripts/install does it in the cluster; outside of it, run"
    " deferred-quota controller, or serve --with-controller."
)

_CONDITIONS: Final = {
    f"status.conditions.{name}": "string"
    for name in ("type", "status", "reason", "message", "lastTransitionTime")
}
WRITTEN_FIELDS: Final[Mapping[str, str]] = {
    "status.quotas.name": "string",
    "status.quotas.observed.uid": "string",
    "status.quotas.observed.specHash": "string",
    "status.quotas.hard": "object",
    "status.quotas.used": "object",
    "status.quotas.reserved": "object",
    "status.quotas.pending": "object",
    "status.quotas.granted": "object",
    "status.reservations": "string",
    "status.format": "integer",
    "status.podsResourceVersion": "string",
    "status.podsBarrier": "string",
    "status.serial": "integer",
    "status.summary": "string",
    **_CONDITIONS,
}
"""What a ledger says (lists are looked into), and of which type it is. The API server drops what a
schema does not have without a word, and refuses what is of another type."""


CLUSTER_QUOTA_FIELDS: Final[Mapping[str, str]] = {
    "status.observed.uid": "string",
    "status.observed.specHash": "string",
    "status.hard": "object",
    "status.used": "object",
    "status.namespaces.name": "string",
    "status.namespaces.granted": "object",
    "status.namespaces.headroom": "object",
    "status.isRecalled": "boolean",
    "status.members": "integer",
    "status.serial": "integer",
    "status.summary": "string",
    **_CONDITIONS,
}
"""The same of the status of a cluster quota."""


@dataclass(frozen=True, slots=True)
class _Definition:
    """Requirements of a definition."""

    name: str
    scope: str
    """Where its objects are."""
    fields: Mapping[str, str]
    """What is written into them."""
    what: str
    """What they are called in messages."""

    @property
    def subject(self) -> Subject:
        """What findings say it is."""
        return Subject("CustomResourceDefinition", self.name)


_LEDGERS: Final = _Definition(LEDGER_CRD, "Namespaced", WRITTEN_FIELDS, "ledgers")
_CLUSTER_QUOTAS: Final = _Definition(
    CLUSTER_QUOTA_CRD, "Cluster", CLUSTER_QUOTA_FIELDS, "cluster quotas"
)


def installed(scene: CheckContext) -> Iterator[Finding]:
    """Look whether there is anything of an installation at all, under the names it has to have."""
    yield from _renamed(scene)
    if scene.settings.is_offline:
        return  # a snapshot may have left it out
    parts = (
        (CUSTOM_RESOURCE_DEFINITIONS, LEDGER_CRD),
        (VALIDATING_WEBHOOKS, REGISTRATION),
        (NAMESPACES, scene.settings.system_namespace),
    )
    if all(scene.find(kind, name) is None for kind, name in parts):
        yield error(
            "installation.missing",
            None,
            "deferred-quota is not installed in this cluster",
            "Run scripts/install, from a checkout; what else is found below follows from this.",
        )


def _renamed(scene: CheckContext) -> Iterator[Finding]:
    """Look for our entries in a registration of another name, where there is none of ours."""
    try:
        is_there = scene.find(VALIDATING_WEBHOOKS, REGISTRATION) is not None
        others = () if is_there else scene.objects(VALIDATING_WEBHOOKS)
    except (NoRightError, NotInSnapshotError):
        return  # the check of the registrations says so
    for raw in others:
        if BIND_ENTRY in [each.text("name") for each in FieldReader(raw).children("webhooks")]:
            yield error(
                "installation.renamed",
                subject_of(VALIDATING_WEBHOOKS, raw),
                f"has the entries of deferred-quota and is not called {REGISTRATION}: nothing of it"
                " finds what was renamed",
                "Leave namePrefix and nameSuffix out of the kustomization; a namespace may be"
                " chosen: manifests/overlays/another-namespace.",
            )


def definition(scene: CheckContext) -> Iterator[Finding]:
    """Compare the definitions with what is written."""
    yield from _compared(
        scene,
        _LEDGERS,
        error(
            "crd.missing",
            _LEDGERS.subject,
            "is not installed: no ledger can be kept",
            "Run scripts/install.",
        ),
    )
    yield from _compared(
        scene,
        _CLUSTER_QUOTAS,
        warning(
            "cdq.crd-missing",
            _CLUSTER_QUOTAS.subject,
            "is not installed: there can be no quota that namespaces share",
            _APPLY_CRD,
        ),
    )


def _compared(scene: CheckContext, wanted: _Definition, missing: Finding) -> Iterator[Finding]:
    raw = scene.find(CUSTOM_RESOURCE_DEFINITIONS, wanted.name)
    if raw is None:
        yield missing
        return

    def judge(node: FieldReader, subject: Subject) -> Iterator[Finding]:
        return _judge_definition(wanted, node, subject)

    yield from scene.judged(CUSTOM_RESOURCE_DEFINITIONS, [raw], judge)


def _judge_definition(
    wanted: _Definition, node: FieldReader, subject: Subject
) -> Iterator[Finding]:
    spec = node.child("spec")
    versions = {one.text("name"): one for one in spec.children("versions")}
    version = versions.get(_VERSION)
    if version is None or not version.boolean("served"):
        served = ", ".join(sorted(versions)) or "none"
        message = f"does not serve {_VERSION}; its versions are: {served}"
        yield error("crd.version", subject, message, _APPLY_CRD)
        return
    if spec.text("scope") != wanted.scope:
        message = f"spec.scope: is {spec.text('scope')!r}, must be {wanted.scope}"
        yield error("crd.schema", subject, message, "Delete it and apply that of this release.")
    if not version.child("subresources").has("status"):
        message = f"version {_VERSION} has no status subresource"
        yield error("crd.schema", subject, message, _APPLY_CRD)
    schema = version.child("schema").child("openAPIV3Schema")
    found = {path: _type_at(schema, path.split(".")) for path in wanted.fields}
    lost = [path for path, kind in found.items() if kind is None]
    if lost:
        yield error(
            "crd.schema",
            subject,
            f"its schema lacks fields that {wanted.what} have, and drops them: {', '.join(lost)}",
            _APPLY_CRD,
        )
    for path, kind in found.items():
        if kind and kind != wanted.fields[path]:
            message = f"its schema wants {path} to be of type {kind}, not {wanted.fields[path]}"
            yield error("crd.schema", subject, message, _APPLY_CRD)


def _type_at(schema: FieldReader, path: list[str]) -> str | None:
    """Return the type that a structural schema wants at `path`; empty if any, None if it drops it.

    Of a list, the type of its items.
    """
    kind = schema.text("type")
    if kind == "array" and path:
        return _type_at(schema.child("items"), path)
    if not path:
        return kind
    properties = schema.child("properties")
    if properties.has(path[0]):
        return _type_at(properties.child(path[0]), path[1:])
    is_kept = schema.boolean("x-kubernetes-preserve-unknown-fields") or schema.has(
        "additionalProperties"
    )
    return "" if is_kept else None


def emergency(scene: CheckContext) -> Iterator[Finding]:
    """Look whether the emergency is open, and whether all of it is."""
    state, subject = scene.emergency(), Subject(VALIDATING_WEBHOOKS.kind, REGISTRATION)
    since = f" since {state.since}" if state.since else ""
    if state.is_open:
        yield error(
            "emergency.open",
            subject,
            f"the emergency is open{since}: binds are not guarded, and the API server enforces"
            " quotas when pods are created; quotas of several namespaces are not enforced",
            "When the webhook and the controller run, run: deferred-quota emergency close",
        )
    elif state.is_begun:
        yield error(
            "emergency.partial",
            subject,
            f"the emergency was opened{since}, and is neither open nor closed: namespaces are"
            f" selected by {', '.join(state.asking) or 'nothing'}, and ledgers may lack pods that"
            " were bound unasked",
            "Run: deferred-quota emergency close, which counts anew; or emergency open.",
        )


def configuration(scene: CheckContext) -> Iterator[Finding]:
    """Look whether the installed configuration can be used, and agrees with the registration."""
    subject = Subject("ConfigMap", CONFIG_MAP, scene.settings.system_namespace)
    if scene.settings.rejected:
        yield error(
            "configuration.rejected",
            subject,
            f"cannot be used; running processes keep the one before: {scene.settings.rejected}",
            "Correct it: scripts/install --config FILE. Doctor has judged by the defaults.",
        )
    events = scene.events_about(subject)
    report = next((one for one in events if one.reason in CONFIGURATION_REPORTS), None)
    if report is not None and report.reason == NOT_IN_FORCE:
        yield warning(
            "configuration.not-in-force",
            subject,
            f"the controller that leads reported at {time_text(report.time)}: {report.message}",
            "Correct the file that it reads, or run: scripts/install --config FILE",
        )
    for entry in scene.entries(VALIDATING_WEBHOOKS):
        if entry.text("name") != BIND_ENTRY:
            continue
        selector = WebhookSelector.read(entry.child("namespaceSelector"))
        for name in sorted(scene.settings.exempt):
            if selector.matches({NAMESPACE_NAME_LABEL: name, MODE_LABEL: DEFERRED_MODE}):
                yield warning(
                    "configuration.held-back",
                    subject,
                    f"exempts {name}, which the registration does not leave out: if it opts in, it"
                    " is guarded all the same",
                    "Run: scripts/install --config FILE",
                )


def leader(scene: CheckContext) -> Iterator[Finding]:
    """Look whether a controller leads and renews its Lease.

    Clocks are not compared: the Lease has to change while it is looked at.
    """
    raw = scene.find(LEASES, LEADER_LEASE, namespace=scene.settings.system_namespace)
    if raw is None:
        yield error(
            "leader.missing",
            Subject("Lease", LEADER_LEASE, scene.settings.system_namespace),
            "does not exist: no controller has ever led, so no ledger is counted",
            f"{_START} If there is one: kubectl get pods -n {scene.settings.system_namespace}",
        )
        yield from _stale_conditions(scene, "")
        return
    yield from scene.judged(LEASES, [raw], lambda node, subject: _lead(scene, node, subject))


def _stale_conditions(scene: CheckContext, renewed: str) -> Iterator[Finding]:
    """Count the pods without a node whose condition is not renewed, as no controller leads.

    `renewed` is the time at which the Lease was renewed last, empty if never.
    """
    wanted = {namespace.name for namespace in scene.deferred_namespaces()}
    place = scene.settings.system_namespace

    def waiting_pod(raw: Object) -> str:
        subject = subject_of(PODS, raw)
        has_condition = (
            subject.namespace in wanted and observed_condition(raw).condition is not None
        )
        return f"{subject.namespace}/{subject.name}" if has_condition else ""

    pods = sorted(filter(None, scene.unassigned_pods(waiting_pod)))
    if pods:
        since = f"after {renewed}, when the leader last renewed its Lease" if renewed else "now"
        yield warning(
            "conditions.stale",
            Subject("Lease", LEADER_LEASE, place),
            f"the condition {QUOTA_RESERVED} of {len(pods)} pod{'s' * (len(pods) > 1)} is not"
            f" renewed {since}: numbers"
            " and places in it are old, and no pod is released",
            f"{_START} If there is one: kubectl get pods -n {place}",
            tuple(pods),
        )


def _lead(scene: CheckContext, node: FieldReader, subject: Subject) -> Iterator[Finding]:
    found, place = holding_of(node), scene.settings.system_namespace
    if not found.holder:
        yield error(
            "leader.none",
            subject,
            f"no process holds it{_since(found)}: ledgers are not counted and reservations do not"
            " expire",
            f"{_START} If there is one: kubectl get pods -n {place}",
        )
        yield from _stale_conditions(scene, found.renewed)
        return
    if not scene.settings.is_offline and not is_renewed(scene, found):
        seconds = _seconds(scene, found)
        yield error(
            "leader.silent",
            subject,
            f"its holder {found.holder} has not renewed it for {seconds:g} seconds{_since(found)}",
            f"Look at the pod's log: kubectl logs -n {place} {found.host}",
        )
        yield from _stale_conditions(scene, found.renewed)


def _since(found: Holding) -> str:
    """Return the time of the last renewal, by the clock of the former leader, as an addition."""
    return f" (renewed last at {found.renewed})" if found.renewed else ""


def _seconds(scene: CheckContext, found: Holding) -> float:
    """Return for how long a Lease is looked at."""
    return min(float(found.seconds), scene.settings.leader_seconds)


def is_renewed(scene: CheckContext, before: Holding) -> bool:
    """Return whether the Lease of the leader changes while it is looked at."""

    def look() -> Holding | None:
        raw = scene.find(LEASES, LEADER_LEASE, namespace=scene.settings.system_namespace)
        return None if raw is None else holding_of(FieldReader(raw))

    settings, seconds = scene.settings, _seconds(scene, before)
    found = changed(look, before, seconds, clock=settings.clock, sleep=settings.sleep)
    return found is not None
