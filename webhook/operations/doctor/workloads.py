"""Whether the Deployments of the webhook and of the controller do their work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import LEASES, PODS, ApiError, Object
from webhook.operations.deployments import (
    COMPONENT_LABEL,
    DEPLOYMENTS,
    NAME_LABEL,
    conditions_of,
    pods_of,
    troubles_of,
)
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.doctor.errors import NoRightError, NotInSnapshotError
from webhook.operations.doctor.installation import is_renewed
from webhook.operations.findings import (
    Finding,
    Subject,
    error,
    information,
    subject_of,
    warning,
)
from webhook.operations.leader import holding_of
from webhook.state.well_known import LEADER_LEASE, own_users

_READYZ: Final = "/api/v1/namespaces/{}/pods/{}:8080/proxy/readyz"
_PRODUCT: Final = "deferred-quota"
_WEBHOOK: Final = "webhook"
_CONTROLLER: Final = "controller"


@dataclass(frozen=True, slots=True)
class _Part:
    """Purpose of a component: what does not happen while none of it runs."""

    component: str
    without: str


_PARTS: Final[Mapping[str, _Part]] = {
    part.component: part
    for part in (
        _Part(_WEBHOOK, "in namespaces that have opted in no pod gets a node"),
        _Part(
            _CONTROLLER,
            "ledgers are not counted, reservations do not expire, and no gate is removed",
        ),
    )
}


def workloads(scene: CheckContext) -> Iterator[Finding]:
    """Look at the Deployments in the product's namespace; there may be none.

    A webhook or a controller may also run elsewhere: the registration names the webhook, and the
    Lease the leader.
    """
    place = _place(scene)
    for raw in scene.objects(DEPLOYMENTS, namespace=scene.settings.system_namespace):
        labels = _labels_of(raw)
        part = _PARTS.get(labels.get(COMPONENT_LABEL, ""))
        if labels.get(NAME_LABEL) == _PRODUCT and part is not None:
            yield from scene.judged(
                DEPLOYMENTS,
                [raw],
                lambda node, subject, raw=raw, part=part: _judge(  # type: ignore[misc]
                    scene, node, subject, raw, part, place
                ),
            )
            try:
                yield from _replica_notes(scene, raw, subject_of(DEPLOYMENTS, raw), part)
            except (ApiError, InvalidFieldError):
                continue  # which pods there are may not be seen


def _place(scene: CheckContext) -> str:
    """Return which webhook outside of the cluster the API server asks; empty if it asks none."""
    try:
        return scene.asked_at() or ""
    except (InvalidFieldError, NoRightError, NotInSnapshotError):
        return ""  # the check of the webhooks says so


def _labels_of(raw: Object) -> Mapping[str, str]:
    try:
        return FieldReader(raw).child("metadata").string_map("labels")
    except InvalidFieldError:
        return {}  # none of ours


def _judge(
    scene: CheckContext, node: FieldReader, subject: Subject, raw: Object, part: _Part, place: str
) -> Iterator[Finding]:
    if part.component == _CONTROLLER and not place:  # whom another webhook trusts is not to be seen
        yield from _user(scene, node, subject)
    if place and part.component == _WEBHOOK:
        yield information(
            "deployment.unasked",
            subject,
            f"is not called: the API server calls {place}",
            "Delete it, or run scripts/install without --url.",
        )
        return
    if scene.is_manifest(node) and not node.has("status"):
        scene.lacks["status of Deployments"] = None
        return
    spec, status = node.child("spec"), node.child("status")
    replicas = spec.integer("replicas")
    wanted = 1 if replicas is None else replicas
    available = status.integer("availableReplicas") or 0
    if not wanted and place and (holder := _leader_outside(scene, raw, subject)):
        message = f"is scaled to 0, and {holder} leads, which is none of its pods"
        yield information("deployment.unneeded", subject, message, "It may stay so.")
        return
    if not available:
        # a controller may lead from elsewhere: the Lease shows it
        judge = error if part.component == _WEBHOOK else warning
        what = "is scaled to 0" if not wanted else f"0 of {wanted} replicas are available"
        yield judge(
            "deployment.unavailable",
            subject,
            f"{what}{_troubles(scene, raw)}: {part.without}",
            _look(subject, part),
        )
        return
    updated = status.integer("updatedReplicas") or 0
    if available < wanted:
        message = f"{available} of {wanted} replicas are available{_troubles(scene, raw)}"
        yield warning("deployment.incomplete", subject, message, _look(subject, part))
    elif updated < wanted or _is_unseen(node):
        message = f"is being replaced: {updated} of {wanted} replicas are as it says"
        yield warning("deployment.incomplete", subject, message, "Wait for it, and look again.")


def _leader_outside(scene: CheckContext, raw: Object, subject: Subject) -> str:
    """Return which process leads that is no pod of a Deployment; empty where that is not seen."""
    place = scene.settings.system_namespace
    if scene.settings.is_offline:
        return ""  # nothing shows whether the Lease is renewed
    try:
        lease = scene.find(LEASES, LEADER_LEASE, namespace=place)
        found = holding_of(FieldReader(lease or {}))
        names = {subject_of(PODS, pod).name for pod in pods_of(scene.api, raw)}
        is_pod = found.host in names or found.host.startswith(f"{subject.name}-")
        return "" if not found.holder or is_pod or not is_renewed(scene, found) else found.holder
    except (ApiError, InvalidFieldError, NoRightError):
        return ""  # the check of the leader says so


def _replica_notes(
    scene: CheckContext, raw: Object, subject: Subject, part: _Part
) -> Iterator[Finding]:
    """Ask the replicas that are ready what else should be seen to, through the API server.

    They write no events. Where they may not be asked, or do not answer there, nothing is said.
    """
    told: dict[str, list[str]] = {}
    pods = [] if scene.settings.is_offline else pods_of(scene.api, raw)
    ready = [pod for pod in pods if conditions_of(pod).get("Ready", ("", ""))[0] == "True"]
    for name in (subject_of(PODS, pod).name for pod in ready):
        try:
            answer = scene.settings.get_path(_READYZ.format(subject.namespace, name))
            for note in FieldReader(answer).strings("notes"):
                told.setdefault(note, []).append(name)
        except (ApiError, InvalidFieldError):
            continue
    for note, names in told.items():
        said = "1 replica says" if len(names) == 1 else f"{len(names)} replicas say"
        message = f"{said} at /readyz: {note}"
        yield warning("deployment.note", subject, message, _look(subject, part), tuple(names))


def _look(subject: Subject, part: _Part) -> str:
    pods = f"-n {subject.namespace} -l {COMPONENT_LABEL}={part.component}"
    return f"Look at its pods: kubectl describe pods {pods}"


def _is_unseen(node: FieldReader) -> bool:
    """Return whether the status is of an earlier spec."""
    generation = node.child("metadata").integer("generation")
    return node.child("status").integer("observedGeneration") != generation


def _user(scene: CheckContext, node: FieldReader, subject: Subject) -> Iterator[Finding]:
    """Look whether the webhook knows the controller by the user that it runs as."""
    template = node.child("spec").child("template").child("spec")
    if scene.settings.is_offline and not template.has("serviceAccountName"):
        return  # a snapshot leaves it out
    account = template.text("serviceAccountName") or "default"
    user = f"system:serviceaccount:{subject.namespace}:{account}"
    groups = {"system:serviceaccounts", f"system:serviceaccounts:{subject.namespace}"}
    settings = scene.settings
    is_trusted = user in own_users(settings.system_namespace) or user in settings.trusted_users
    if not is_trusted and groups.isdisjoint(settings.glass_breakers):
        yield error(
            "deployment.untrusted",
            subject,
            f"runs as {user}, which the webhook does not take for the controller: it refuses that"
            " scheduling gates are taken off, and pods wait for ever",
            f"Add {user} to trustedUsers of the configuration, or run it as the shipped one.",
        )


def _troubles(scene: CheckContext, raw: Object) -> str:
    """Return what keeps its pods, where that may be seen."""
    try:
        found = troubles_of(scene.api, raw)
    except (ApiError, InvalidFieldError):
        return ""
    return f" ({'; '.join(found)})" if found else ""
