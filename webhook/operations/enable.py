"""Opt a namespace in: judge it, set the label, wait until its quotas are deferred.

Only the label is written. From then on pods of the namespace are bound only if they fit, and wait
until its ledger is counted. The installation's controller masks and counts, so it has to run
before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    NAMESPACES,
    QUOTA_LEDGERS,
    ClusterApi,
    NotFoundError,
)
from webhook.operations.cluster_quotas import (
    Company,
    company_of,
    concerning,
    joining,
    quotas_of,
    shared_quotas,
)
from webhook.operations.doctor.check_context import CheckContext, Settings
from webhook.operations.doctor.runner import CHECKS, examine
from webhook.operations.elastic.joining import elastic_findings
from webhook.operations.enable_plan import NOTHING, Plan, objections, quota_plans
from webhook.operations.findings import Finding, Severity, Subject, error
from webhook.operations.names import LEDGER_CRD
from webhook.operations.reading import inhabitants, read_quotas
from webhook.operations.retry import Report, RetryPolicy, silent
from webhook.quota.charging.deferral import is_excluded
from webhook.quota.charging.status_mask import visible_keys
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.names import DERIVED_PREFIXES
from webhook.quota.objects.quota_bounds import counted_quotas, undecided_by
from webhook.state.ledger_store import LEDGER_NAME, read_ledger
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL, SHADOW_MODE

_WATCHING: Final = frozenset({"installed", "crd", "webhooks", "answers", "workloads", "leader"})
"""The checks of the doctor that say whether it can watch a namespace in shadow mode."""
_INSTALLATION: Final = _WATCHING | {"emergency", "stamp", "mask"}
"""Those that say whether an installation can serve a namespace."""
NEVER: Final = frozenset(
    {"namespace.missing", "namespace.terminating", "namespace.exempt", "namespace.own"}
)
"""Findings that `force` does not override."""


def installation_findings(
    api: ClusterApi,
    settings: Settings,
    namespaces: Sequence[str],
    *,
    mode: str = DEFERRED_MODE,
    report: Report = silent,
) -> tuple[Finding, ...]:
    """Judge whether what is installed can serve namespaces, once they have opted in.

    Raises:
        ApiError: The API server does not answer.
    """
    wanted = replace(
        settings,
        namespaces=tuple(namespaces),
        assumed=frozenset(namespaces),
        assumed_mode=mode,
    )
    names = _INSTALLATION if mode == DEFERRED_MODE else _WATCHING
    checks = tuple(check for check in CHECKS if check.name in names)
    return tuple(examine(CheckContext(api, wanted), checks, report=report).findings)


def plan_for(
    api: ClusterApi,
    settings: Settings,
    namespace: str,
    *,
    must_specify: bool,
    company: Company | None = None,
) -> Plan:
    """Return what opting a namespace in changes; writes nothing.

    Args:
        settings: How to judge.
        must_specify: Whether a bind is refused when containers do not name what a quota limits.
        company: Namespaces with which it will share quotas; None if it opts in alone.

    Raises:
        ApiError: The API server does not answer, or the namespace may not be read.
    """
    subject = Subject("Namespace", namespace)
    try:
        raw = api.get(NAMESPACES, namespace)
    except NotFoundError:
        message = "there is no such namespace"
        finding = error("namespace.missing", subject, message, "Create it first.")
        return Plan(namespace, is_opted_in=False, findings=(finding,))
    metadata = FieldReader(raw).child("metadata")
    labels = metadata.string_map("labels")
    mode = labels.get(MODE_LABEL)
    plan = Plan(namespace, is_opted_in=mode == DEFERRED_MODE, is_shadow=mode == SHADOW_MODE)
    if metadata.has("deletionTimestamp"):
        message = "is being terminated: no pod can be created in it any more"
        remedy = "Create it again once it is gone, and run this then."
        finding = error("namespace.terminating", subject, message, remedy)
        return replace(plan, findings=(finding,))
    there = inhabitants(api, namespace)
    then = {**labels, MODE_LABEL: DEFERRED_MODE}
    known = company_of(api, ()) if company is None else company
    selecting = concerning(known.shared, namespace, then)
    shared = [one for one in selecting if not one.spec.name.startswith(DERIVED_PREFIXES)]
    elastic = tuple(elastic_findings(api, namespace, there.pods, is_shadow=known.is_shadow))
    against = objections(
        namespace, labels, there, settings.deferred_of(there.quotas), must_specify=must_specify
    )
    return replace(
        plan,
        quotas=quota_plans(there, settings.deferred_of(there.quotas)),
        findings=(
            *_never(subject, settings),
            *(one for one in against if not ((shared or elastic) and one.id == NOTHING)),
            *elastic,
            *joining(namespace, shared, known, there, settings.deferred_of),
        ),
    )


def _never(subject: Subject, settings: Settings) -> tuple[Finding, ...]:
    if subject.name == settings.system_namespace:
        message = "is the namespace of this product: its own pods would wait for themselves"
        return (error("namespace.own", subject, message, "Leave it as it is."),)
    if subject.name in settings.exempt:
        message = "the configuration exempts it: nothing in it is ever deferred"
        return (error("namespace.exempt", subject, message, "Take it out of exemptNamespaces."),)
    return ()


def obstacles(findings: Sequence[Finding], *, force: bool) -> tuple[Finding, ...]:
    """Return which findings stand in the way; `force` overrides all that can be overridden."""
    return tuple(
        one
        for one in findings
        if one.severity is Severity.ERROR and (not force or not _can_be_forced(one))
    )


def _can_be_forced(finding: Finding) -> bool:
    """Without a place for ledgers no pod of the namespace could ever be bound."""
    return finding.id not in NEVER and not finding.id.startswith("crd.")


def set_label(
    api: ClusterApi, namespace: str, *, mode: str = DEFERRED_MODE, dry_run: bool = False
) -> None:
    """Opt a namespace in; with `dry_run` the API server only says whether it would.

    Raises:
        ApiError: It refuses.
    """
    patch = {"metadata": {"labels": {MODE_LABEL: mode}}}
    api.patch(NAMESPACES, namespace, patch, dry_run=dry_run)


def wait_until_complete(
    namespace: str,
    look: Callable[[], tuple[str, ...]],
    *,
    patience: RetryPolicy,
    report: Report = silent,
) -> tuple[str, ...]:
    """Wait until `look` finds nothing missing; return what is when the time is up.

    Raises:
        ApiError: The API server does not answer until then, or refuses.
    """
    wait = patience.begin()
    told = ""
    while True:
        missing = wait.retry(look)
        if not missing:
            return ()
        if missing[0] != told:
            told = missing[0]
            report(f"{namespace}: waiting: {told}")
        if not wait.pause():
            return missing


def still_missing(api: ClusterApi, settings: Settings, namespace: str) -> tuple[str, ...]:
    """Return what keeps the quotas of an opted-in namespace from being deferred.

    Raises:
        ApiError: The API server does not answer, or refuses.
    """
    quotas, odd = read_quotas(api, namespace)
    masks = [
        f"quota {quota.name}: its status still shows {', '.join(keys)}"
        for quota in quotas
        if not is_excluded(quota) and (keys := visible_keys(quota, settings.deferred_keys))
    ]
    undecided = undecided_by(quotas).values()
    return (*odd, *undecided, *masks, *_uncounted(api, settings, namespace, quotas))


def _uncounted(
    api: ClusterApi, settings: Settings, namespace: str, quotas: Sequence[ResourceQuota]
) -> tuple[str, ...]:
    labels = FieldReader(api.get(NAMESPACES, namespace)).child("metadata").string_map("labels")
    shared = quotas_of(concerning(shared_quotas(api), namespace, labels))
    wanted = settings.deferred_of((*counted_quotas(quotas), *shared)).observed
    if not wanted:
        return ()
    try:
        found = read_ledger(api.get(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace))
    except NotFoundError:
        return (f"there is no ledger yet ({LEDGER_CRD})",)
    except InvalidFieldError as err:
        return (f"the ledger cannot be read: {err}",)
    counted = frozenset() if found.ledger is None else found.ledger.observed
    return tuple(
        f"quota {one.name}: is not counted in the ledger yet"
        for one in sorted(wanted - counted, key=lambda one: one.name)
    )
