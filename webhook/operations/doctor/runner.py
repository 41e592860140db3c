"""Runner of the checks: one after the other, and a failure of one does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import NAMESPACES, ApiError, ForbiddenError, NotFoundError
from webhook.operations.doctor import (
    certificates,
    cluster_quotas,
    creation,
    identities,
    installation,
    ledgers,
    masks,
    namespaces,
    nodes,
    other_managers,
    registrations,
    rights,
    stamps,
    webhook_probe,
    workloads,
)
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.doctor.errors import NoRightError, NotInSnapshotError
from webhook.operations.findings import Finding, Severity, error, information
from webhook.operations.retry import Report, silent


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, what it looks at, and how."""

    name: str
    title: str
    run: Callable[[CheckContext], Iterator[Finding]]


def _limited_resources(scene: CheckContext) -> Iterator[Finding]:
    if scene.deferred_namespaces():
        yield information(
            "control-plane.limited-resources",
            None,
            "not to be seen through the API: an admission configuration of the API server with"
            " limitedResources.matchContains on compute resources refuses every pod of a namespace"
            " that defers them",
            "If there is one, move it to limitedResources of this product's configuration.",
        )


def _pods_with_a_node(scene: CheckContext) -> Iterator[Finding]:
    yield from namespaces.unreadable_pods(scene)
    yield from stamps.unmarked(scene)


CHECKS: Final = (
    Check("installed", "whether it is installed", installation.installed),
    Check("emergency", "whether the emergency is open", installation.emergency),
    Check("crd", "the definitions of ledgers and of cluster quotas", installation.definition),
    Check("configuration", "the configuration", installation.configuration),
    Check("webhooks", "the webhook configurations", registrations.registrations),
    Check("creation", "the policies for new pods", creation.creation),
    Check("answers", "whether the webhook answers", webhook_probe.answers),
    Check("certificates", "the webhook's certificate", certificates.certificates),
    Check("stamp", "the mark of bound pods", stamps.stamps),
    Check("mask", "the mask", masks.masks),
    Check("namespaces", "the labels of namespaces", namespaces.modes),
    Check("shadows", "the namespaces in shadow mode", namespaces.shadows),
    Check("quotas", "the quotas", namespaces.quotas),
    Check("statuses", "the status of the quotas", masks.statuses),
    Check("workloads", "the Deployments", workloads.workloads),
    Check("leader", "the controller that leads", installation.leader),
    Check("cluster-quotas", "the quotas that namespaces share", cluster_quotas.cluster_quotas),
    Check("ledgers", "the ledgers", ledgers.ledgers),
    Check("guarded", "the pods that have a node", _pods_with_a_node),
    Check("gates", "the pods that wait", namespaces.gates),
    Check("other-gates", "the gates of others", other_managers.other_gates),
    Check("managers", "other quota managers", other_managers.other_managers),
    Check("nodes", "what pods request of nodes", nodes.overcommitted),
    Check("rights", "who could go around it", rights.rights),
    Check("identities", "what our own identities may write", identities.identities),
    Check("port", "who may ask the webhook", webhook_probe.port),
    Check("control-plane", "the API server's own configuration", _limited_resources),
)


@dataclass(slots=True)
class Examination:
    """Results of all checks."""

    findings: list[Finding] = field(default_factory=list)
    """The worst first; of the same severity in the order of the checks."""
    checked: list[str] = field(default_factory=list)
    """Names of the checks that were made to the end."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Names of the checks that could not be, and why."""
    _known: set[Finding] = field(default_factory=set)

    def add(self, finding: Finding) -> None:
        """Add a finding, unless it was made before. There may be very many."""
        if finding not in self._known:
            self._known.add(finding)
            self.findings.append(finding)

    def has(self, severity: Severity) -> bool:
        """Return whether something this bad was found."""
        return any(one.severity is severity for one in self.findings)


def examine(
    scene: CheckContext, checks: tuple[Check, ...] = CHECKS, *, report: Report = silent
) -> Examination:
    """Run checks.

    Raises:
        ApiError: The API server does not answer at all, or does not know the caller.
    """
    _knock(scene)
    found = Examination()
    for check in checks:
        report(f"looking at {check.title}")
        _run(check, scene, found)
    order = list(Severity)
    found.findings.sort(key=lambda one: order.index(one.severity))
    return found


def _knock(scene: CheckContext) -> None:
    """Ask for something that every user may read, to see whether the API server answers."""
    try:
        scene.api.get(NAMESPACES, "default")
    except (ForbiddenError, NotFoundError):
        return


def _run(check: Check, scene: CheckContext, found: Examination) -> None:
    """Run one check: the outermost frame of it. What it found before it failed stays."""
    scene.lacks.clear()
    try:
        for finding in check.run(scene):
            found.add(scene.explained(finding))
    except NotInSnapshotError as err:
        found.skipped[check.name] = f"the snapshot has no {err.resource}"
    except NoRightError as err:
        found.skipped[check.name] = str(err)
        found.add(_no_right(check, err))
    except (ApiError, InvalidFieldError) as err:
        found.skipped[check.name] = str(err)
        message = f"{check.title}: cannot be looked at: {err}"
        found.add(error("check.failed", None, message, "Try again."))
    except Exception as err:  # noqa: BLE001 - one check must not keep the others from running
        found.skipped[check.name] = f"{type(err).__name__}: {err}"
        message = f"{check.title}: unexpected {type(err).__name__}: {err}"
        remedy = "This is a fault of deferred-quota doctor; please report it."
        found.add(error("check.failed", None, message, remedy))
    else:
        if scene.lacks:
            lacks = " and no ".join(scene.lacks)
            found.skipped[check.name] = f"in part, as the snapshot has no {lacks}"
        else:
            found.checked.append(check.name)


def _no_right(check: Check, err: NoRightError) -> Finding:
    denied = err.attributes
    group = denied.kind.group
    right = f"{denied.verb} {denied.resource}{f' of {group}' if group else ''}"
    where = f" in namespace {denied.namespace}" if denied.namespace else ""
    extent = "not all looked at" if err.is_partial else "not looked at"
    api_group = group or '""'
    return Finding(
        "check.forbidden",
        err.severity,
        None,
        f"{check.title}: {extent}: you may not {right}{where}",
        err.remedy or f"Grant the verb {denied.verb} on {denied.resource}, apiGroup {api_group}.",
    )
