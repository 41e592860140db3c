"""Policy of a cluster for updates of Jobs, beyond the rules of the API server.

A rule says for a Job how far its resources may grow and shrink, who may change them, and what may
not slip through although the API server lets it. Everything here is asked only of updates that the
API server takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Final, TypeAlias

from webhook.jsonfields.fields import FieldError, InvalidFieldError, mapping, sequence, text
from webhook.quota.jobs.equality import canonical, canonical_members
from webhook.quota.jobs.job_fields import METADATA_SHAPE
from webhook.quota.jobs.resize_diff import Resize
from webhook.quota.jobs.template_diff import differences, shown
from webhook.quota.jobs.templates import TEMPLATE
from webhook.quota.jobs.update_validation import JobState
from webhook.quota.objects.label_selectors import LabelSelector

_Members: TypeAlias = Mapping[str, object]

ANY: Final = "*"
"""In a map of words by resource: every resource that is not named."""
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_JOB_CONTROLLER: Final = f"{_SERVICE_ACCOUNT}kube-system:job-controller"
_FAILED: Final = "Failed"

REPLACED_BESIDE: Final = (
    f"podReplacementPolicy is not {_FAILED}: new pods may run beside terminating ones"
)
"""Warning of the webhook for a change of a Job that ran."""


@unique
class Growth(StrEnum):
    """Limit of the growth of a container's resource."""

    ALLOW = "Allow"
    WITHIN_QUOTA = "WithinQuota"
    """As long as all pods that the Job runs at a time, but at least one, fit the quotas."""
    DENY = "Deny"


@unique
class Verdict(StrEnum):
    """Verdict about an update that has a certain trait."""

    ALLOW = "Allow"
    WARN = "Warn"
    DENY = "Deny"


@dataclass(frozen=True, slots=True)
class Users:
    """Some users: by name, by group, or service accounts as `namespace/name`."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    service_accounts: frozenset[str] = frozenset()

    def include(self, username: str, groups: Iterable[str]) -> bool:
        """Return whether a user is one of them."""
        account = username.removeprefix(_SERVICE_ACCOUNT).replace(":", "/", 1)
        is_account = username.startswith(_SERVICE_ACCOUNT) and account in self.service_accounts
        return is_account or username in self.users or not self.groups.isdisjoint(groups)


_EVERYTHING: Final = LabelSelector({})
_GROWTH: Final = MappingProxyType({ANY: Growth.ALLOW})
_SHRINK: Final = MappingProxyType({ANY: Verdict.ALLOW})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRule:
    """Rule for some Jobs; `JobRule()` is that where nothing is configured."""

    namespaces: LabelSelector = _EVERYTHING
    """Which namespaces it is about, by their labels."""
    jobs: LabelSelector = _EVERYTHING
    """Which Jobs, by theirs."""
    growth: Mapping[str, Growth] = field(default_factory=lambda: _GROWTH)
    """Resource, or `*`, → how far it may grow."""
    shrink: Mapping[str, Verdict] = field(default_factory=lambda: _SHRINK)
    """Resource, or `*`, → whether it may shrink."""
    claims: Verdict = Verdict.DENY
    """Whether `resources.claims` of containers may change."""
    template_metadata: Verdict = Verdict.DENY
    """Whether metadata of the template may change that the API server does not compare: while it
    lets resources change it compares nothing but the spec."""
    resizers: Users | None = None
    """The users that may change resources; None is every user."""
    replacement: Verdict = Verdict.WARN
    """What becomes of a Job that ran and does not wait for its old pods to end before it makes new
    ones."""
    terminating: Verdict = Verdict.WARN
    """What becomes of a change while pods of the former run are terminating."""
    never_fits: Verdict = Verdict.DENY
    """What becomes of a Job of which no pod can ever fit a quota."""
    unsuspend: Verdict = Verdict.WARN
    """What becomes of a Job that cannot run all its pods at a time."""

    def growth_of(self, resource: str) -> Growth:
        """Return how far a resource may grow."""
        return self.growth.get(resource, self.growth.get(ANY, Growth.ALLOW))

    def shrink_of(self, resource: str) -> Verdict:
        """Return whether a resource may shrink."""
        return self.shrink.get(resource, self.shrink.get(ANY, Verdict.ALLOW))


@dataclass(frozen=True, slots=True)
class Findings:
    """Faults of an update by a rule, which refuse it, and warnings."""

    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()

    def __add__(self, other: Findings) -> Findings:
        return Findings(self.errors + other.errors, self.warnings + other.warnings)


def joined(findings: Iterable[Findings]) -> Findings:
    """Return all of some findings; there may be one for each of thousands of containers."""
    every = [*findings]
    return Findings(
        tuple([error for one in every for error in one.errors]),
        tuple([warning for one in every for warning in one.warnings]),
    )


def rule_for(
    rules: Iterable[JobRule], job_labels: Mapping[str, str], namespace_labels: Mapping[str, str]
) -> JobRule:
    """Return the first rule that is about a Job, or the one for all others."""
    for rule in rules:
        if rule.jobs.matches(job_labels) and rule.namespaces.matches(namespace_labels):
            return rule
    return JobRule()


def is_job_controller(username: str) -> bool:
    """Return whether a user is the Job controller, which nothing here is meant for."""
    return username == _JOB_CONTROLLER


def by_verdict(verdict: Verdict, error: FieldError, warning: str) -> Findings:
    """Return what a verdict makes of a trait: an error, a warning, or nothing."""
    match verdict:
        case Verdict.DENY:
            return Findings(errors=(error,))
        case Verdict.WARN:
            return Findings(warnings=(warning,))
        case Verdict.ALLOW:
            return Findings()


def hidden_changes(rule: JobRule, old: _Members, new: _Members, *, scheduling: bool) -> Findings:
    """Judge what the API server lets slip through while it lets resources change.

    Args:
        old: The stored Job.
        new: The Job of the update, which the API server takes.
        scheduling: Whether it lets scheduling directives change, which labels and annotations of
            the template are part of.

    Raises:
        InvalidFieldError: A container, or what it claims, cannot be read.
    """
    legal = {"labels", "annotations"} if scheduling else set()
    path = f"{TEMPLATE}.metadata"
    before, after = _template(old), _template(new)
    changes = differences(_metadata(before, legal), _metadata(after, legal), path)
    told = [f"{change.field.removeprefix(f'{path}.')} {change.text}" for change in changes]
    found = []
    if told:
        detail = f"field is immutable: {', '.join(told[:4])}"
        error = FieldError("FieldValueInvalid", path, detail)
        found.append(by_verdict(rule.template_metadata, error, f"{path} changes: {told[0]}"))
    for field_name, one, other in _claims(before, after):
        detail = f"field is immutable: from {shown(one)} to {shown(other)}"
        error = FieldError("FieldValueInvalid", field_name, detail)
        found.append(by_verdict(rule.claims, error, f"{field_name} changes"))
    return joined(found)


def judged_resizes(rule: JobRule, resizes: Iterable[Resize]) -> Findings:
    """Judge what grows and shrinks, except for growth within the quota: see `outgrown`."""
    return joined(_judged(rule, one) for one in resizes)


def _judged(rule: JobRule, resize: Resize) -> Findings:
    if resize.is_growth and rule.growth_of(resize.resource) is Growth.DENY:
        verdict, word = Verdict.DENY, "grow"
    elif resize.is_shrink:
        verdict, word = rule.shrink_of(resize.resource), "shrink"
    else:
        return Findings()
    detail = f"{resize.text}: {resize.resource} of this Job may not {word}"
    error = FieldError("FieldValueForbidden", resize.field, detail)
    return by_verdict(verdict, error, f"{resize.resource} of this Job should not {word}")


def outgrown(
    rule: JobRule, resizes: Iterable[Resize], over: Mapping[str, str]
) -> Iterator[FieldError]:
    """Yield an error for each amount that may ask for more within the quota, and does beyond.

    Args:
        resizes: What grows and shrinks.
        over: Quota key of which there is too little for all pods at a time → the amounts.
    """
    for resize in resizes:
        if not resize.asks_more or rule.growth_of(resize.resource) is not Growth.WITHIN_QUOTA:
            continue
        for key in resize.quota_keys:
            if key in over:
                detail = f"{resize.text}: may grow within the quota only: {over[key]}"
                yield FieldError("FieldValueForbidden", resize.field, detail)


def judged_replacement(rule: JobRule, old: JobState, new: _Members) -> Findings:
    """Judge whether new pods of a Job may run beside those of its former run."""
    found = Findings()
    policy = text(_spec(new).get("podReplacementPolicy"), "spec.podReplacementPolicy")
    if old.ran and policy != _FAILED:
        detail = (
            f"must be {_FAILED} for a Job that ran, so that new pods wait for the old ones to end;"
            " both are charged otherwise"
        )
        error = FieldError("FieldValueInvalid", "spec.podReplacementPolicy", detail)
        found += by_verdict(rule.replacement, error, REPLACED_BESIDE)
    if old.terminating:
        pods, have = (
            ("1 pod", "it has")
            if old.terminating == 1
            else (f"{old.terminating} pods", "they have")
        )
        detail = f"{pods} of the previous run still terminating; wait until they are gone"
        error = FieldError("FieldValueForbidden", TEMPLATE, detail)
        found += by_verdict(
            rule.terminating,
            error,
            # the status of a Job does not say which of them had nodes, and only those are charged
            f"{pods} of the previous run still terminating: charged until gone, if {have} a node",
        )
    return found


def not_a_resizer(
    rule: JobRule, resizes: Iterable[Resize], username: str, groups: Iterable[str]
) -> FieldError | None:
    """Return the error of a user who may not change resources."""
    first = next(iter(resizes), None)
    if first is None or rule.resizers is None or rule.resizers.include(username, groups):
        return None
    detail = f"{first.text}: user {username!r} may not change the resources of this Job"
    return FieldError("FieldValueForbidden", first.field, detail)


def _metadata(template: _Members, legal: set[str]) -> _Members:
    """Return what the metadata of a template means, without what may change.

    Tenants have things stored that cannot be read, such as a time in the year 0. They are compared
    as they are written, and hide no change beside them. Managed fields may nest without
    limit, and mean nothing in a template.
    """
    metadata = mapping(template.get("metadata"), f"{TEMPLATE}.metadata")
    found: dict[str, object] = {}
    for name in metadata.keys() - legal - {"managedFields"}:
        try:
            found |= canonical_members({name: metadata[name]}, "", METADATA_SHAPE)
        except InvalidFieldError:
            found[name] = metadata[name]
    return found


def _claims(old: _Members, new: _Members) -> Iterator[tuple[str, object, object]]:
    """Yield the claims that change; nothing else of a pod has to be readable for that."""
    pods = [mapping(each.get("spec"), f"{TEMPLATE}.spec") for each in (old, new)]
    for name in ("containers", "initContainers"):
        before, after = (_claims_in(pod, name) for pod in pods)
        for (field_name, one), (_, other) in zip(before, after, strict=False):
            if one != other:
                yield field_name, one, other


def _claims_in(pod: _Members, name: str) -> Iterator[tuple[str, object]]:
    path = f"{TEMPLATE}.spec.{name}"
    for index, container in enumerate(sequence(pod.get(name), path)):
        field_name = f"{path}[{index}].resources"
        resources = mapping(mapping(container, f"{path}[{index}]").get("resources"), field_name)
        field_name += ".claims"
        yield field_name, canonical(resources.get("claims"), field_name)


def _template(job: _Members) -> _Members:
    return mapping(_spec(job).get("template"), TEMPLATE)


def _spec(job: _Members) -> _Members:
    return mapping(job.get("spec"), "spec")
