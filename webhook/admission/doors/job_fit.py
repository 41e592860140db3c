"""Whether the pods of a Job fit the quotas of their namespace, as findings of a rule.

Limits are compared as the cache has them; before anything is refused the API server is asked. What
is free now comes from the ledger as it is known here, and is only told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from webhook.admission.doors.context import DoorContext
from webhook.admission.review import MAX_WARNING_CHARACTERS, AdmissionRequest
from webhook.quota.fields import FieldError
from webhook.quota.jobs.fitting import Share, Shortfall, never_fitting, shares_of, shortfalls
from webhook.quota.jobs.policy import Findings, Growth, JobRule, Verdict, by_verdict, outgrown
from webhook.quota.jobs.resizes import Resize
from webhook.quota.objects import ResourceQuota
from webhook.quota.refusals import QuotaExceeded
from webhook.quota.resources import ResourceList, render, subtract
from webhook.quota.workloads import PodSet
from webhook.state.view import QuotasSeen

_SHORTEST_NAME: Final = 8


class Occasion(Enum):
    """When the question is asked."""

    CREATED = auto()
    """Something is created that runs. A pod that never fits is no more than worth a warning, as
    when the pod itself is created: the quota may change before it runs."""

    RESIZED = auto()
    """A Job is resized and stays suspended. It is not refused for what does not grow: it may be
    on its way, step by step, to a size that fits."""

    RESUMED = auto()
    """It is let run, resized in the same request or not."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and by which rule.

    Attributes:
        rule: The rule.
        occasion: When.
        resizes: The amounts that an update changes.
    """

    rule: JobRule
    occasion: Occasion
    resizes: tuple[Resize, ...] = ()

    def never_fits(self, keys: Iterable[str]) -> Verdict:
        """Return what becomes of pods of which one is too large in these quota keys."""
        if self.occasion is Occasion.CREATED:
            return _at_most_warned(self.rule.never_fits)
        return self._unless_it_shrinks(self.rule.never_fits, keys)

    def too_many(self, keys: Iterable[str]) -> Verdict:
        """Return what becomes of pods that do not all fit at a time in these quota keys."""
        return self._unless_it_shrinks(self.rule.unsuspend, keys)

    @property
    def needs_an_answer(self) -> bool:
        """Whether the rule refuses what cannot be compared with quotas."""
        within_quota = (
            each.is_growth and self.rule.growth_of(each.resource) is Growth.WITHIN_QUOTA
            for each in self.resizes
        )
        return self.rule.unsuspend is Verdict.DENY or any(within_quota)

    def _unless_it_shrinks(self, verdict: Verdict, keys: Iterable[str]) -> Verdict:
        growing = {key for each in self.resizes if each.is_growth for key in each.quota_keys}
        if self.occasion is Occasion.RESIZED and growing.isdisjoint(keys):
            return _at_most_warned(verdict)
        return verdict


def doubt(context: DoorContext, request: AdmissionRequest, question: Question) -> str:
    """Say why a question that needs an answer has none now; empty when it has one."""
    unreadable = context.view.quotas(request.namespace).unreadable
    return unreadable[0] if unreadable and question.needs_an_answer else ""


def findings(
    context: DoorContext, request: AdmissionRequest, question: Question, pods: Iterable[PodSet]
) -> Findings:
    """Judge whether pods fit.

    Raises:
        ApiError: The API server had to be asked for quotas and does not answer.
        InvalidFieldError: A pod template cannot be read.
    """
    shares = tuple(share for share in shares_of(pods) if share.count)
    seen = context.view.quotas(request.namespace)
    if seen.unreadable:
        return Findings(warnings=(f"not compared with quotas: {seen.unreadable[0]}",))
    found = _within(shares, seen.every, question)
    if found.errors:
        seen = context.view.live_quotas(request.namespace)
        found = _within(shares, seen.every, question)
    if not found.errors and question.occasion is Occasion.RESUMED:
        found += Findings(warnings=_waiting(context, request, shares, seen))
    return found


def _within(
    shares: Iterable[Share], quotas: tuple[ResourceQuota, ...], question: Question
) -> Findings:
    """Compare pods with what the quotas have when nothing else runs."""
    found, told = Findings(), set()
    for share in shares:
        for exceeded in never_fitting(share, quotas):
            told.add(exceeded.quota)
            found += _never(share, exceeded, question.never_fits(exceeded.requested))
    over: dict[str, str] = {}
    for short in shortfalls(shares, quotas):
        text = f"{_asked(short)}, quota {short.quota} limits {short.key}={short.available}"
        over.update(dict.fromkeys(short.keys, text))
        if short.quota not in told:
            found += _too_many(short, text, question.too_many(short.keys))
    grown = tuple(outgrown(question.rule, question.resizes, over))
    return found + Findings(errors=grown)


def _never(share: Share, exceeded: QuotaExceeded, verdict: Verdict) -> Findings:
    requested, limited = render(exceeded.requested), render(exceeded.limited)
    detail = (
        f"pods of this Job can never fit quota {exceeded.quota}: requested {requested},"
        f" limited {limited}"
    )
    error = FieldError("FieldValueInvalid", f"{share.field}.spec", detail)
    key = min(exceeded.requested)
    amounts = f"requested {key}={exceeded.requested[key]}, limited {exceeded.limited[key]}"
    warning = _about("pods can never fit quota ", exceeded.quota, f": {amounts}")
    return by_verdict(verdict, error, warning)


def _too_many(short: Shortfall, text: str, verdict: Verdict) -> Findings:
    advice = f"; at most {short.fitting} fit" if short.fitting is not None else ""
    if short.fitting:
        advice += f": set it to {short.fitting}"
    error = FieldError("FieldValueInvalid", short.field, f"{text}{advice}")
    at_most = f"; at most {short.fitting} at a time" if short.fitting is not None else ""
    warning = _about("quota ", short.quota, f": {_asked(short)}, limit {short.available}{at_most}")
    return by_verdict(verdict, error, warning)


def _waiting(
    context: DoorContext, request: AdmissionRequest, shares: Iterable[Share], seen: QuotasSeen
) -> tuple[str, ...]:
    """Say which pods have to wait, because others use the quotas now."""
    known = context.view.ledger(request.namespace)
    if known is None or known.ledger is None:
        return ()
    free: dict[str, ResourceList] = {}
    quotas = []
    for quota in seen.every:
        account = known.ledger.accounts.get(quota.name)
        if account is None:
            continue
        left = subtract(subtract(quota.hard, account.used), account.reserved)
        free[quota.name] = {key: left[key] for key in quota.hard if key in account.used}
        quotas.append(quota)
    most = {short.quota: short.fitting for short in shortfalls(shares, quotas)}
    return tuple(
        _about("quota ", short.quota, f": {_asked(short)}, {short.available} free; {_now(short)}")
        for short in shortfalls(shares, quotas, free)
        if short.quota not in most or short.fitting != most[short.quota]
    )


def _asked(short: Shortfall) -> str:
    pods = "1 pod asks" if short.count == 1 else f"{short.count} pods ask"
    return f"{pods} {short.key}={short.asked}"


def _now(short: Shortfall) -> str:
    return "some will wait" if short.fitting is None else f"{short.fitting} can start now"


def _about(before: str, quota: str, after: str) -> str:
    """Write a warning; the name of the quota is what is cut where it gets too long."""
    room = max(_SHORTEST_NAME, MAX_WARNING_CHARACTERS - len(before) - len(after))
    return f"{before}{quota:.{room}}{after}"


def _at_most_warned(verdict: Verdict) -> Verdict:
    return Verdict.WARN if verdict is Verdict.DENY else verdict
