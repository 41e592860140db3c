"""The section `jobs`: what may be changed of which suspended Jobs, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from webhook.config.values import (
    InvalidSettingError,
    Reader,
    boolean,
    choice,
    list_of,
    name,
    section,
    text,
)

PlainObject: TypeAlias = Mapping[str, object]

_E = TypeVar("_E", bound=StrEnum)

AUTO: Final = "Auto"
_ANY: Final = "*"


class JobGrowth(StrEnum):
    """How far a resource of a suspended Job may grow."""

    ALLOW = "Allow"
    """As far as somebody likes."""

    WITHIN_QUOTA = "WithinQuota"
    """As long as all pods that the Job runs at a time, but at least one, fit the quotas."""

    DENY = "Deny"
    """Not at all."""


class JobVerdict(StrEnum):
    """What becomes of a request that has a certain trait."""

    ALLOW = "Allow"
    WARN = "Warn"
    """It passes, and the client is shown a warning."""

    DENY = "Deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResizers:
    """`jobs[].resizers`: who may change resources."""

    users: frozenset[str] = frozenset()
    """`users`: names of users."""

    groups: frozenset[str] = frozenset()
    """`groups`: names of groups."""

    service_accounts: frozenset[str] = frozenset()
    """`serviceAccounts`: as `namespace/name`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRuleSettings:
    """One entry of `jobs`. The first that is about a Job decides."""

    namespaces: PlainObject | None = None
    """`namespaces`: a label selector of namespaces; without it all. Left to the core."""

    selector: PlainObject | None = None
    """`selector`: a label selector of Jobs; without it all. Left to the core."""

    growth: Mapping[str, JobGrowth] = field(
        default_factory=lambda: MappingProxyType({_ANY: JobGrowth.ALLOW})
    )
    """`growth`: `Allow`, `WithinQuota` or `Deny`, or an object of such words by resource (`cpu`,
    `nvidia.com/gpu`), in which `*` is all others. `Allow` where nothing is said. To take a limit
    away is growth; to add one is not, but it is charged, and so has to be within the quota."""

    shrink: Mapping[str, JobVerdict] = field(
        default_factory=lambda: MappingProxyType({_ANY: JobVerdict.ALLOW})
    )
    """`shrink`: `Allow`, `Warn` or `Deny`, in the same way. To add a limit is no shrink."""

    claims: JobVerdict = JobVerdict.DENY
    """`claims`: changes of `resources.claims` of containers, which the API server lets through
    although only amounts are meant to change."""

    template_metadata: JobVerdict = JobVerdict.DENY
    """`templateMetadata`: changes of the template's metadata, which the API server does not
    compare while it lets resources change. Labels and annotations are not meant where it lets
    scheduling directives change."""

    resizers: JobResizers | None = None
    """`resizers`: who may change resources; without it everybody who may update the Job."""

    pod_replacement_policy: JobVerdict = JobVerdict.WARN
    """`podReplacementPolicy`: a Job that ran is changed or resumed, and its own
    `podReplacementPolicy` is not `Failed`: new pods may then run beside old ones."""

    terminating: JobVerdict = JobVerdict.WARN
    """`terminating`: the same while pods of the former run are terminating."""

    never_fits: JobVerdict = JobVerdict.DENY
    """`neverFits`: a single pod asks for more than a quota's limit. No more than a warning where a
    default PriorityClass could take the pod out of the quota."""

    unsuspend: JobVerdict = JobVerdict.WARN
    """`unsuspend`: a Job is resumed that cannot run all its pods at a time within a quota's limit,
    or one that is not suspended asks for more pods, or larger ones, than there is room for."""


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

    def read(value: object, field: str) -> Mapping[str, _E]:
        if not isinstance(value, dict):
            return MappingProxyType({_ANY: word(value, field)})
        for resource in value:
            name(resource, field)
        return MappingProxyType(
            {resource: word(each, f"{field}[{resource}]") for resource, each in value.items()}
        )

    return read


def _account(value: object, field: str) -> str:
    account = name(value, field)
    namespace, slash, own = account.partition("/")
    if not (namespace and slash and own) or "/" in own:
        raise InvalidSettingError(field, f"must be 'namespace/name', not {account!r}")
    return account


def _texts(value: object, field: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InvalidSettingError(field, "must be an object of strings")
    return {key: text(each, f"{field}[{key}]") for key, each in value.items()}


def _set_of(item: Reader[str]) -> Reader[frozenset[str]]:
    read = list_of(item)
    return lambda value, field: frozenset(read(value, field))


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


def _resizers(
    users: frozenset[str] = frozenset(),
    groups: frozenset[str] = frozenset(),
    serviceAccounts: frozenset[str] = frozenset(),  # noqa: N803 - the name in the file
) -> JobResizers:
    return JobResizers(users=users, groups=groups, service_accounts=serviceAccounts)


_VERDICT: Final = choice(JobVerdict)
_FIELDS: Final[Mapping[str, tuple[str, Reader[object]]]] = {
    "namespaces": ("namespaces", _SELECTOR),
    "selector": ("selector", _SELECTOR),
    "growth": ("growth", _by_resource(JobGrowth)),
    "shrink": ("shrink", _by_resource(JobVerdict)),
    "claims": ("claims", _VERDICT),
    "templateMetadata": ("template_metadata", _VERDICT),
    "resizers": (
        "resizers",
        section(
            _resizers,
            {"users": _set_of(name), "groups": _set_of(name), "serviceAccounts": _set_of(_account)},
        ),
    ),
    "podReplacementPolicy": ("pod_replacement_policy", _VERDICT),
    "terminating": ("terminating", _VERDICT),
    "neverFits": ("never_fits", _VERDICT),
    "unsuspend": ("unsuspend", _VERDICT),
}


def _rule(**given: object) -> JobRuleSettings:
    return JobRuleSettings(**{_FIELDS[key][0]: value for key, value in given.items()})  # type: ignore[arg-type]


job_rules: Final[Reader[tuple[JobRuleSettings, ...]]] = list_of(
    section(_rule, {key: reader for key, (_, reader) in _FIELDS.items()})
)
"""Reads the section."""
