"""Put namespaces into shadow mode, and report what it recorded.

The label is all that is written. `disable` ends shadow mode as it ends deferral; the record stays
in the ledger object until the namespace opts in, or the record is reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from webhook.jsonfields.fields import InvalidFieldError, mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    NAMESPACES,
    QUOTA_LEDGERS,
    ClusterApi,
    NotFoundError,
    Object,
    find_object,
)
from webhook.kube.metadata import object_name, object_namespace
from webhook.operations.cluster_quotas import Company, company_of
from webhook.operations.doctor.check_context import Settings
from webhook.operations.enable import NEVER, plan_for
from webhook.operations.enable_plan import Plan
from webhook.operations.findings import Finding, Severity, Subject, error
from webhook.operations.reading import read_quotas
from webhook.quota.objects.quota_bounds import counted_quotas
from webhook.quota.shadow.record import ShadowRecord
from webhook.quota.shadow.record_codec import SHADOW_FIELD, shadow_from_status
from webhook.state.ledger_store import LEDGER_NAME
from webhook.state.shadow_store import ENDED_SUMMARY
from webhook.state.well_known import MODE_LABEL, SHADOW_MODE

_THEN = frozenset({"enable.bounds", "enable.exceeded", "enable.must-specify", "enable.scopes"})
"""Findings about what happens at a bind, which is left alone in shadow mode."""
_IF = "if the namespace opted in: "


@dataclass(frozen=True, slots=True)
class Watched:
    """Record of a namespace from shadow mode."""

    namespace: str
    mode: str | None
    """The value of its label; None without it."""
    record: ShadowRecord | None
    """What was found; None where there is no record."""
    problem: str = ""
    """Why there is none, or it cannot be read."""
    has_ended: bool = False
    """Whether the record is of an earlier time in shadow mode, and nothing is added to it."""

    @property
    def is_watched(self) -> bool:
        """Whether it is in shadow mode now."""
        return self.mode == SHADOW_MODE


def watching_plan(
    api: ClusterApi,
    settings: Settings,
    namespace: str,
    *,
    must_specify: bool,
    company: Company | None = None,
) -> Plan:
    """Return what would change if the namespace deferred, and what speaks against it.

    Raises:
        ApiError: The API server does not answer, or the namespace may not be read.
    """
    known = company_of(api, (), is_shadow=True) if company is None else company
    plan = plan_for(api, settings, namespace, must_specify=must_specify, company=known)
    told = [one if one.id in NEVER else _if_it_deferred(one) for one in plan.findings]
    if plan.is_opted_in:
        told.append(
            error(
                "shadow.deferred",
                Subject("Namespace", namespace),
                "defers its quotas: watching it would take its pods' gates and guard away",
                f"Run: deferred-quota disable {namespace}, if that is what you want.",
            )
        )
    return replace(plan, findings=tuple(told))


def still_unwatched(api: ClusterApi, settings: Settings, namespace: str) -> tuple[str, ...]:
    """Return what keeps a namespace in shadow mode from being watched; nothing if it is.

    Raises:
        ApiError: The API server does not answer, or refuses.
    """
    quotas, odd = read_quotas(api, namespace)
    found = read_watched(api, namespace)
    if found.record is None:
        return (*odd, found.problem)
    if found.has_ended:
        return (*odd, "the record is of an earlier time in shadow mode")
    seen = {use.observed for use in found.record.quotas.values()}
    wanted = settings.deferred_of(counted_quotas(quotas)).observed
    missing = sorted(one.name for one in wanted - seen)
    return (*odd, *(f"quota {name}: is not watched yet" for name in missing))


def read_watched(api: ClusterApi, namespace: str) -> Watched:
    """Read what was found in one namespace.

    Raises:
        ApiError: The API server does not answer, or refuses.
    """
    found = find_object(api, NAMESPACES, namespace)
    if found is None:
        return Watched(namespace, None, None, "there is no such namespace")
    ledger = find_object(api, QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
    return _watched(namespace, _mode(found), ledger)


def all_watched(api: ClusterApi, namespaces: Sequence[str] = ()) -> tuple[Watched, ...]:
    """Read what was found in namespaces, by default in all that are or were watched.

    Raises:
        ApiError: The API server does not answer, or refuses.
    """
    if namespaces:
        return tuple(read_watched(api, name) for name in dict.fromkeys(namespaces))
    modes = {object_name(raw): _mode(raw) for raw in api.list(NAMESPACES).items}
    ledgers = {
        object_namespace(raw): raw for raw in _listed(api) if object_name(raw) == LEDGER_NAME
    }
    found = [_watched(name, mode, ledgers.get(name)) for name, mode in sorted(modes.items())]
    return tuple(one for one in found if one.is_watched or one.record is not None)


def begin_anew(api: ClusterApi, namespace: str) -> Watched:
    """Take the record of a namespace away; return it, or why there is none.

    Raises:
        ApiError: The API server does not do it.
    """
    found = read_watched(api, namespace)
    if found.record is not None:
        patch: dict[str, object] = {"status": {SHADOW_FIELD: None}}
        api.patch(QUOTA_LEDGERS, LEDGER_NAME, patch, namespace=namespace, subresource="status")
    return found


def _listed(api: ClusterApi) -> Iterable[Object]:
    try:
        return api.list(QUOTA_LEDGERS).items
    except NotFoundError:
        return ()  # their definition is not installed


def _watched(namespace: str, mode: str | None, ledger: Object | None) -> Watched:
    try:
        status = mapping((ledger or {}).get("status"), "status")
        record = shadow_from_status(status.get(SHADOW_FIELD))
    except InvalidFieldError as err:
        return Watched(namespace, mode, None, f"the record cannot be read: {err}")
    if record is None:
        return Watched(namespace, mode, None, "nothing is recorded")
    return Watched(namespace, mode, record, has_ended=status.get("summary") == ENDED_SUMMARY)


def _if_it_deferred(finding: Finding) -> Finding:
    """Put what speaks against opting in as what it is while that is not done."""
    severity = Severity.WARN if finding.severity is Severity.ERROR else finding.severity
    words = _IF if finding.id in _THEN else ""
    return replace(finding, severity=severity, message=words + finding.message)


def _mode(raw: Object) -> str | None:
    return FieldReader(raw).child("metadata").string_map("labels").get(MODE_LABEL)
