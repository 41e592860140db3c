"""Rules of a cluster for a resize, asked before a Job is suspended for it.

The API server asks its webhooks about a change only when it would take it itself, and of a Job that
runs it takes none. So the rules are read from the configuration and judged here, as the webhook
judges them. What cannot be read is reported, and stops nothing: the webhook decides in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from webhook.jsonfields.fields import FieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    NAMESPACES,
    ApiError,
    ClusterApi,
    ForbiddenError,
    Kind,
    Object,
)
from webhook.kube.metadata import object_namespace
from webhook.operations.reading import read_quotas
from webhook.operations.retry import PASSING
from webhook.quota.amounts.resources import render
from webhook.quota.jobs import job_state
from webhook.quota.jobs.capacity import Share, Shortfall, never_fitting, shares_of, shortfalls
from webhook.quota.jobs.job_pods import pods_of_job
from webhook.quota.jobs.policy import (
    JobRule,
    Verdict,
    judged_replacement,
    judged_resizes,
    not_a_resizer,
    outgrown,
    rule_for,
)
from webhook.quota.jobs.resize_diff import Resize, resizes_of
from webhook.quota.jobs.resize_plan import ContainerChange, with_changes
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL

SELF_SUBJECT_REVIEWS: Final = Kind(
    "authentication.k8s.io",
    "v1",
    "SelfSubjectReview",
    "selfsubjectreviews",
    namespaced=False,
    has_status=False,
)


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """The rules of a cluster for Jobs."""

    jobs: tuple[JobRule, ...] = ()
    """They; the first that is about a Job decides."""
    exempt: frozenset[str] = frozenset()
    """Namespaces for which none holds."""
    unread: str = ""
    """Why they are not known; empty if they are."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict of rules and quotas about a resize."""

    problems: tuple[str, ...] = ()
    """Why it would be refused, each with its field."""
    unasked: tuple[str, ...] = ()
    """What could not be asked, and why."""
    drains: bool = False
    """The change is refused until the pods of the former run are gone."""


def judge(
    api: ClusterApi,
    rules: ClusterRules,
    job: Object,
    changes: Iterable[ContainerChange],
    *,
    resumes: bool,
) -> Judgement:
    """Judge the change of a Job that runs now, as it will be sent when it is suspended and idle.

    Args:
        rules: The rules of the cluster.
        job: The stored Job.
        changes: What changes of its template.
        resumes: Whether the same write resumes it.

    Raises:
        InvalidFieldError: The Job cannot be read.
        ApiError: The API server does not answer.
    """
    return _Judging(api, rules, job, with_changes(job, changes), resumes=resumes).judge()


class _Judging:
    def __init__(
        self, api: ClusterApi, rules: ClusterRules, old: Object, new: Object, *, resumes: bool
    ) -> None:
        self._api, self._rules, self._resumes = api, rules, resumes
        self._old, self._new = old, new
        self._namespace = object_namespace(old)
        self._resizes = resizes_of(old, new)
        self._unasked: list[str] = [rules.unread] if rules.unread else []

    def judge(self) -> Judgement:
        rule = self._rule()
        errors = [*self._refusals(rule), *self._misfits(rule)]
        return Judgement(
            problems=tuple(dict.fromkeys(map(str, errors))),
            unasked=tuple(self._unasked),
            drains=rule.terminating is Verdict.DENY,
        )

    def _rule(self) -> JobRule:
        """Return the rule for the Job; where it is not known, the one for all others."""
        if not self._rules.jobs or self._namespace in self._rules.exempt:
            return JobRule()
        try:
            found = FieldReader(self._api.get(NAMESPACES, self._namespace)).child("metadata")
        except ForbiddenError as err:
            self._unasked.append(f"rules of the cluster for Jobs: {err.message}")
            return JobRule()
        labels = found.string_map("labels")
        if labels.get(MODE_LABEL) != DEFERRED_MODE:
            return JobRule()
        own = FieldReader(self._old).child("metadata").string_map("labels")
        return rule_for(self._rules.jobs, own, labels)

    def _refusals(self, rule: JobRule) -> Iterator[FieldError]:
        """Yield what a rule has against the change as such."""
        if rule.resizers is not None:
            stranger = self._stranger(rule)
            if stranger is not None:
                yield stranger
        yield from judged_resizes(rule, self._resizes).errors
        # the pods of the run that is interrupted are gone by then, or are waited for
        state = replace(job_state(self._old), suspended=True, ran=True, terminating=0)
        yield from judged_replacement(rule, state, self._new).errors

    def _stranger(self, rule: JobRule) -> FieldError | None:
        kind = {"apiVersion": SELF_SUBJECT_REVIEWS.api_version, "kind": SELF_SUBJECT_REVIEWS.kind}
        try:
            answer = FieldReader(self._api.create(SELF_SUBJECT_REVIEWS, kind).object)
        except PASSING:
            raise
        except ApiError as err:
            self._unasked.append(f"whether you may resize it: {err.message}")
            return None
        user = answer.child("status").child("userInfo")
        return not_a_resizer(rule, self._resizes, user.text("username"), user.strings("groups"))

    def _misfits(self, rule: JobRule) -> Iterator[FieldError]:
        """Yield which quotas are too small: pods would be ended for none to follow."""
        try:
            quotas, _ = read_quotas(self._api, self._namespace)
        except ForbiddenError as err:
            self._unasked.append(f"whether its pods fit: {err.message}")
            return
        shares = [share for share in shares_of(pods_of_job(self._new)) if share.count]
        told = set()
        for share in shares:
            for over in never_fitting(share, quotas):
                told.add(over.quota)
                if self._resumes or self._is_refused(rule.never_fits, over.requested):
                    yield _never(share, over.quota, render(over.requested), render(over.limited))
        texts: dict[str, str] = {}
        for short in shortfalls(shares, quotas):
            text = _text(short)
            texts.update(dict.fromkeys(short.keys, text))
            if short.quota not in told and self._is_refused(rule.unsuspend, short.keys):
                yield FieldError("FieldValueInvalid", short.field, text)
        yield from outgrown(rule, self._resizes, texts)

    def _is_refused(self, verdict: Verdict, keys: Iterable[str]) -> bool:
        """Return whether too little of some keys denies: a suspended Job only when it grows.

        It may be on its way, step by step, to a size that fits.
        """
        return verdict is Verdict.DENY and (
            self._resumes or not _growing(self._resizes).isdisjoint(keys)
        )


def _growing(resizes: Iterable[Resize]) -> set[str]:
    return {key for each in resizes if each.is_growth for key in each.quota_keys}


def _never(share: Share, quota: str, requested: str, limited: str) -> FieldError:
    detail = (
        f"pods of this Job can never fit quota {quota}: requested {requested}, limited {limited}"
    )
    return FieldError("FieldValueInvalid", f"{share.field}.spec", detail)


def _text(short: Shortfall) -> str:
    pods = "1 pod asks" if short.count == 1 else f"{short.count} pods ask"
    limit = f"quota {short.quota} limits {short.key}={short.available}"
    at_most = "" if short.fitting is None else f"; at most {short.fitting} fit"
    return f"{pods} {short.key}={short.asked}, {limit}{at_most}"
