"""The section `jobs`: what may be changed of which suspended Jobs, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from webhook.config.field_readers import (
    InvalidSettingError,
    Reader,
    Table,
    boolean,
    choice,
    list_of,
    name,
    reads,
    renaming_section,
    schema_of,
    section,
    set_of,
    text,
)

PlainObject: TypeAlias = Mapping[str, object]

_E = TypeVar("_E", bound=StrEnum)

AUTO: Final = "Auto"
_ANY: Final = "*"


class JobGrowth(StrEnum):
    """How far a resource of a suspended Job may grow."""

    ALLOW = "Allow"
    """Without a limit."""

    WITHIN_QUOTA = "WithinQuota"
    """While all pods that the Job runs at a time, but at least one, fit the quotas."""

    DENY = "Deny"
    """Not at all."""


class JobVerdict(StrEnum):
    """Verdict on a request."""

    ALLOW = "Allow"
    WARN = "Warn"
    """It is admitted with a warning to the client."""

    DENY = "Deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResizers:
    """`jobs[].resizers`: users, groups and service accounts that may change resources."""

    users: frozenset[str] = frozenset()
    """`users`: names of users."""

    groups: frozenset[str] = frozenset()
    """`groups`: names of groups."""

    service_accounts: frozenset[str] = frozenset()
    """`serviceAccounts`: as `namespace/name`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRuleSettings:
    """One entry of `jobs`. The first that selects a Job decides."""

    namespaces: PlainObject | None = None
    """`namespaces`: a label selector of namespaces; all if absent."""

    selector: PlainObject | None = None
    """`selector`: a label selector of Jobs; all if absent."""

    growth: Mapping[str, JobGrowth] = field(
        default_factory=lambda: MappingProxyType({_ANY: JobGrowth.ALLOW})
    )
    """`growth`: how far resources may grow: one word, or an object of words by resource (`cpu`,
    `nvidia.com/gpu`), in which `*` is all others. Removing a limit is growth; adding one is not,
    but it is charged, and so has to be within the quota."""

    shrink: Mapping[str, JobVerdict] = field(
        default_factory=lambda: MappingProxyType({_ANY: JobVerdict.ALLOW})
    )
    """`shrink`: whether resources may shrink, in the same form. Adding a limit is no shrink."""

    claims: JobVerdict = JobVerdict.DENY
    """`claims`: changes of `resources.claims` of containers, which the API server admits although
    only amounts should change."""

    template_metadata: JobVerdict = JobVerdict.DENY
    """`templateMetadata`: changes of the template's metadata, which the API server does not
    compare where it admits changed resources. Labels and annotations are always free where it
    admits changed scheduling directives."""

    resizers: JobResizers | None = None
    """`resizers`: users, groups and service accounts that may change resources; if absent, all with
    the right to update the Job."""

    pod_replacement_policy: JobVerdict = JobVerdict.WARN
    """`podReplacementPolicy`: a Job that has run is changed or resumed, and its own
    `podReplacementPolicy` is not `Failed`, so new pods may run beside old ones."""

    terminating: JobVerdict = JobVerdict.WARN
    """`terminating`: a Job is changed or resumed while pods of its former run are terminating."""

    never_fits: JobVerdict = JobVerdict.DENY
    """`neverFits`: a single pod requests more than a quota's limit. At most a warning where a
    default PriorityClass could move the pod out of the quota."""

    unsuspend: JobVerdict = JobVerdict.WARN
    """`unsuspend`: a Job is resumed that cannot run all its pods at a time within a quota's limit,
    or a running Job asks for more pods, or larger ones, than fit."""


@reads({"enum": [True, False, AUTO]})
def gate(value: object, field: str) -> bool | None:
    """Read a feature gate: true, false, or None for `Auto`."""
    if value == AUTO:
        return None
    try:
        return boolean(value, field)
    except InvalidSettingError as err:
        detail = err.detail.replace("true or false", f"true, false or {AUTO}")
        raise InvalidSettingError(field, detail) from err


def _by_resource(words: type[_E]) -> Reader[Mapping[str, _E]]:
    """Return a reader of a word, or of an object of words by resource."""
    word = choice(words)
    by_resource = {
        "type": "object",
        "propertyNames": schema_of(name),
        "additionalProperties": schema_of(word),
    }

    @reads({"oneOf": [schema_of(word), by_resource]})
    def read(value: object, field: str) -> Mapping[str, _E]:
        if not isinstance(value, dict):
            return MappingProxyType({_ANY: word(value, field)})
        for resource in value:
            name(resource, field)
        return MappingProxyType(
            {resource: word(each, f"{field}[{resource}]") for resource, each in value.items()}
        )

    return read


@reads({"type": "string", "pattern": "^[^/]+/[^/]+$"})
def _account(value: object, field: str) -> str:
    account = name(value, field)
    namespace, slash, own = account.partition("/")
    if not (namespace and slash and own) or "/" in own:
        raise InvalidSettingError(field, f"must be 'namespace/name', not {account!r}")
    return account


@reads({"type": "object", "additionalProperties": schema_of(text)})
def _texts(value: object, field: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InvalidSettingError(field, "must be an object of strings")
    return {key: text(each, f"{field}[{key}]") for key, each in value.items()}


_SELECTOR: Reader[dict[str, object]] = section(
    dict,
    {
        "matchLabels": _texts,
        "matchExpressions": list_of(
            section(
                dict,
                {"key": name, "operator": name, "values": list_of(text)},
                required=("key", "operator"),
            )
        ),
    },
)


_RESIZERS: Final[Table] = {
    "users": ("users", set_of(name)),
    "groups": ("groups", set_of(name)),
    "serviceAccounts": ("service_accounts", set_of(_account)),
}
_VERDICT: Final = choice(JobVerdict)
_FIELDS: Final[Table] = {
    "namespaces": ("namespaces", _SELECTOR),
    "selector": ("selector", _SELECTOR),
    "growth": ("growth", _by_resource(JobGrowth)),
    "shrink": ("shrink", _by_resource(JobVerdict)),
    "claims": ("claims", _VERDICT),
    "templateMetadata": ("template_metadata", _VERDICT),
    "resizers": ("resizers", renaming_section(JobResizers, _RESIZERS)),
    "podReplacementPolicy": ("pod_replacement_policy", _VERDICT),
    "terminating": ("terminating", _VERDICT),
    "neverFits": ("never_fits", _VERDICT),
    "unsuspend": ("unsuspend", _VERDICT),
}

job_rules: Final[Reader[tuple[JobRuleSettings, ...]]] = list_of(
    renaming_section(JobRuleSettings, _FIELDS)
)
"""Reads the section."""
