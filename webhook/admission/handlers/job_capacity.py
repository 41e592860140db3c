"""Capacity check of Jobs: whether their pods fit the quotas of the namespace.

Limits are compared as the cache has them; before anything is refused the API server is asked. What
is free now comes from the ledger as it is known here, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from webhook.admission.handlers.context import HandlerContext
from webhook.admission.review import MAX_WARNING_CHARACTERS, AdmissionRequest
from webhook.jsonfields.fields import FieldError
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, render, subtract
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.jobs.capacity import (
    Share,
    Shortfall,
    limited,
    missing_default,
    never_fitting,
    perhaps_never_fitting,
    requested_by,
    shortfalls,
)
from webhook.quota.jobs.job_pods import REPLICATED_JOBS
from webhook.quota.jobs.policy import (
    Findings,
    Growth,
    JobRule,
    Verdict,
    by_verdict,
    joined,
    outgrown,
)
from webhook.quota.jobs.resize_diff import Resize
from webhook.quota.objects.model import ResourceQuota
from webhook.state.quota_cache import NamespaceQuotaView

_MIN_NAME_CHARACTERS: Final = 8
_MOST_COMPARED: Final = 16_000
"""Templates times quotas, and what their scopes name."""
_FEW_QUOTAS: Final = 16


class JobEvent(Enum):
    """Event at which capacity is checked."""

    CREATED = auto()
    """Something is created that runs. A pod that never fits is no more than worth a warning, as
    when the pod itself is created: the quota may change before it runs."""

    RESIZED = auto()
    """A Job is resized and stays suspended. It is not refused for what does not grow: it may be
    on its way, step by step, to a size that fits."""

    RESUMED = auto()
    """It is let run, resized in the same request or not."""

    CHANGED = auto()
    """Something that runs asks for other pods, or for another number of them. It is not refused
    for what it asks no more of than before, and for pods that never fit it is only warned."""


@dataclass(frozen=True, slots=True)
class CapacityCheck:
    """Question of capacity, and the rule that asks it."""

    rule: JobRule
    event: JobEvent
    resizes: tuple[Resize, ...] = ()
    """The amounts that an update changes."""
    previous: tuple[Share, ...] = ()
    """The pods as they were, where something is changed."""

    def never_fits(self, share: Share, quota: ResourceQuota, keys: Iterable[str]) -> Verdict:
        """Return what becomes of pods of which one is too large in these keys of a quota."""
        if self.event in {JobEvent.CREATED, JobEvent.CHANGED}:
            return _at_most_warn(self.rule.never_fits)
        return self._if_increased(self.rule.never_fits, (share,), quota, keys, each=True)

    def too_many(
        self, shares: Iterable[Share], quota: ResourceQuota, keys: Iterable[str]
    ) -> Verdict:
        """Return what becomes of pods that do not all fit at a time in these keys of a quota."""
        return self._if_increased(self.rule.unsuspend, shares, quota, keys, each=False)

    @property
    def requires_quotas(self) -> bool:
        """Whether the rule refuses what cannot be compared with quotas."""
        within_quota = (
            each.asks_more and self.rule.growth_of(each.resource) is Growth.WITHIN_QUOTA
            for each in self.resizes
        )
        return self.rule.unsuspend is Verdict.DENY or any(within_quota)

    def _if_increased(
        self,
        verdict: Verdict,
        shares: Iterable[Share],
        quota: ResourceQuota,
        keys: Iterable[str],
        *,
        each: bool,
    ) -> Verdict:
        """Return the verdict; no refusal where a change asks no more of any key than before."""
        if self.event not in {JobEvent.RESIZED, JobEvent.CHANGED}:
            return verdict
        old, new = (requested_by(quota, some, each=each) for some in (self.previous, shares))
        is_more = any(new.get(key, ZERO) > old.get(key, ZERO) for key in keys)
        return verdict if is_more else _at_most_warn(verdict)


def unreadable_quota(
    context: HandlerContext, request: AdmissionRequest, check: CapacityCheck
) -> str:
    """Return why a question that needs an answer has none now; empty when it has one."""
    unreadable = context.view.quotas(request.namespace).errors
    return unreadable[0] if unreadable and check.requires_quotas else ""


def findings(
    context: HandlerContext,
    request: AdmissionRequest,
    check: CapacityCheck,
    shares: tuple[Share, ...],
) -> Findings:
    """Judge whether pods fit.

    Raises:
        ApiError: The API server had to be asked for quotas and does not answer.
    """
    view = context.view.quotas(request.namespace)
    if view.errors:
        return Findings(warnings=(f"not compared with quotas: {view.errors[0]}",))
    scopes = sum(len(one.values) + 1 for quota in view.all_quotas for one in quota.expressions)
    most = max(_MOST_COMPARED // max(len(view.all_quotas) + scopes, _FEW_QUOTAS), 1)
    if len(shares) > most:
        return _too_many_templates(check, most)
    if len(check.previous) > most:
        check = replace(check, previous=())
    result = _compare_limits(shares, view.all_quotas, check)
    if result.errors:
        view = context.view.live_quotas(request.namespace)
        result = _compare_limits(shares, view.all_quotas, check)
    if not result.errors and check.event is JobEvent.RESUMED:
        result += Findings(warnings=_queueing_warnings(context, request, shares, view))
    return result


def _too_many_templates(check: CapacityCheck, most: int) -> Findings:
    """Templates x quotas are compared, and a body has room for tens of thousands."""
    detail = f"must have at most {most} items to be compared with quotas"
    error = FieldError("FieldValueInvalid", REPLICATED_JOBS, detail)
    may_refuse = check.event is JobEvent.RESUMED and check.rule.never_fits is Verdict.DENY
    verdict = Verdict.DENY if may_refuse or check.requires_quotas else Verdict.WARN
    return by_verdict(verdict, error, f"{REPLICATED_JOBS}: {detail}")


def _compare_limits(
    shares: tuple[Share, ...], quotas: tuple[ResourceQuota, ...], check: CapacityCheck
) -> Findings:
    """Compare pods with what the quotas have when nothing else runs."""
    shares = limited(shares, quotas)
    check = replace(check, previous=limited(check.previous, quotas))
    found, reported = [], dict[str, Verdict]()
    for share in shares:
        for quota in quotas:
            for exceeded in never_fitting(share, (quota,)):
                verdict = check.never_fits(share, quota, exceeded.requested)
                reported[quota.name] = verdict
                found.append(_never_fits(share, exceeded, verdict))
            for exceeded in perhaps_never_fitting(share, (quota,)):
                verdict = _at_most_warn(check.never_fits(share, quota, exceeded.requested))
                reported[quota.name] = verdict
                lacking = missing_default(quota, share.pod)
                found.append(_may_never_fit(share, lacking, exceeded, verdict))
    by_name = {quota.name: quota for quota in quotas}
    for short in shortfalls(shares, quotas):
        verdict = check.too_many(shares, by_name[short.quota], short.keys)
        # a quota is reported once, unless only this finding denies the Job
        if short.quota not in reported or verdict is Verdict.DENY is not reported[short.quota]:
            found.append(_too_many(short, verdict))
    grown = outgrown(check.rule, check.resizes, _exceeded_keys(shares, quotas))
    return joined([*found, Findings(errors=tuple(grown))])


def _exceeded_keys(shares: Iterable[Share], quotas: tuple[ResourceQuota, ...]) -> dict[str, str]:
    """Return each key of which there is too little, with the amounts: for one pod at least."""
    result: dict[str, str] = {}
    one_at_least = [replace(share, count=max(share.count, 1)) for share in shares]
    for short in shortfalls(one_at_least, quotas):
        result.update(dict.fromkeys(short.keys, short.limited_text))
    return result


def _may_never_fit(
    share: Share, lacking: str, exceeded: QuotaExceeded, verdict: Verdict
) -> Findings:
    """Also for pods that a default may take out of the quota."""
    warning = _warning(
        f"pods without {lacking} can never fit quota ", exceeded.quota, _too_large(exceeded)
    )
    return by_verdict(verdict, FieldError("FieldValueInvalid", f"{share.field}.spec", ""), warning)


def _never_fits(share: Share, exceeded: QuotaExceeded, verdict: Verdict) -> Findings:
    requested, limited = render(exceeded.requested), render(exceeded.limited)
    detail = (
        f"pods of this Job can never fit quota {exceeded.quota}: requested {requested},"
        f" limited {limited}"
    )
    error = FieldError("FieldValueInvalid", f"{share.field}.spec", detail)
    warning = _warning("pods can never fit quota ", exceeded.quota, _too_large(exceeded))
    return by_verdict(verdict, error, warning)


def _too_large(exceeded: QuotaExceeded) -> str:
    key = min(exceeded.requested)
    return f": requested {key}={exceeded.requested[key]}, limited {exceeded.limited[key]}"


def _too_many(short: Shortfall, verdict: Verdict) -> Findings:
    at_most = f"; at most {short.fitting} at a time" if short.fitting is not None else ""
    warning = _warning(
        "quota ", short.quota, f": {short.asked_text}, limit {short.available}{at_most}"
    )
    return by_verdict(verdict, short.error, warning)


def _queueing_warnings(
    context: HandlerContext,
    request: AdmissionRequest,
    shares: Iterable[Share],
    view: NamespaceQuotaView,
) -> tuple[str, ...]:
    """Return which pods have to wait, because others use the quotas now."""
    known = context.view.ledger(request.namespace)
    if known is None or known.ledger is None:
        return ()
    free: dict[str, ResourceList] = {}
    quotas = []
    for quota in view.all_quotas:
        account = known.ledger.accounts.get(quota.name)
        if account is None:
            continue
        left = subtract(subtract(quota.hard, account.used), account.reserved)
        free[quota.name] = {key: left[key] for key in quota.hard if key in account.used}
        quotas.append(quota)
    most = {short.quota: short.fitting for short in shortfalls(shares, quotas)}
    return tuple(
        _warning(
            "quota ", short.quota, f": {short.asked_text}, {short.available} free; {_now(short)}"
        )
        for short in shortfalls(shares, quotas, free)
        if short.quota not in most or short.fitting != most[short.quota]
    )


def _now(short: Shortfall) -> str:
    return "some will wait" if short.fitting is None else f"{short.fitting} can start now"


def _warning(before: str, quota: str, after: str) -> str:
    """Write a warning; the name of the quota is what is cut where it gets too long."""
    room = max(_MIN_NAME_CHARACTERS, MAX_WARNING_CHARACTERS - len(before) - len(after))
    return f"{before}{quota:.{room}}{after}"


def _at_most_warn(verdict: Verdict) -> Verdict:
    return Verdict.WARN if verdict is Verdict.DENY else verdict
