"""Validation of ClusterDeferredQuota objects.

Amounts and scopes are judged as those of a ResourceQuota (`quota_validation`). Besides:

1. It limits deferred resources only, every extended resource and GPU memory among them: all else
   is charged by the API server, in one namespace.
2. Its selector of namespaces is there, and can be evaluated.
3. What it keeps for some namespaces is of what it limits.

Errors have the API server's field paths and words.

Source: kubernetes v1.36, apimachinery/pkg/apis/meta/v1/validation/validation.go
ValidateLabelSelector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from itertools import islice
from typing import Final

from webhook.jsonfields.fields import MOST_ERRORS, FieldError, InvalidFieldError, mapping
from webhook.jsonfields.reader import FieldReader
from webhook.quota.charging.deferral import shared_keys
from webhook.quota.jobs.operators import label_selector_errors
from webhook.quota.objects.names import label_value_error, qualified_name_errors
from webhook.quota.objects.quota_validation import (
    SCOPE_FIELDS,
    quota_errors,
    quota_update_errors,
    quota_warnings,
)
from webhook.quota.shared.cluster_quotas import read_parts

SELECTING_FIELDS: Final = SCOPE_FIELDS | {"namespaceSelector"}
"""The fields of the spec that say which pods it is about."""

_HARD: Final = "spec.hard"
_SELECTOR: Final = "spec.namespaceSelector"
_NOT_DEFERRED: Final = "is not deferred: limit it by a ResourceQuota in each namespace"


def _none(_name: str) -> bool:
    return False


def cluster_quota_errors(raw: Mapping[str, object], keys: Set[str]) -> list[FieldError]:
    """List what is wrong with a ClusterDeferredQuota that is to be stored.

    Args:
        raw: The object. Only its spec is looked at; a field of the wrong type is an error.
        keys: The deferred resources.
    """
    own = islice(_own_errors(raw, keys), MOST_ERRORS)
    return _once(*own, *quota_errors(_as_quota(raw, keys)))


def cluster_quota_update_errors(
    new: Mapping[str, object],
    old: Mapping[str, object],
    keys: Set[str],
    *,
    frozen: Callable[[str], bool] = _none,
) -> list[FieldError]:
    """List what is wrong with a changed ClusterDeferredQuota, its change included.

    As in a ResourceQuota `spec.scopes` must stay, and everything else may change.

    Args:
        new: The object as it is to be stored.
        old: The object as it is stored.
        keys: The deferred resources.
        frozen: Says which fields of the spec, such as `hard`, must stay too.
    """
    # what is not deferred has an error of its own, and is no change
    quotas = (_as_quota(new, keys), _as_quota(old, keys))
    own = islice(_own_errors(new, keys), MOST_ERRORS)
    return _once(*own, *quota_update_errors(*quotas, frozen=frozen))


def cluster_quota_warnings(raw: Mapping[str, object], keys: Set[str]) -> list[str]:
    """List what the API server would warn about in a ResourceQuota: requests above limits."""
    warnings = quota_warnings(_as_quota(raw, keys))
    return [each.replace("ResourceQuota", "ClusterDeferredQuota", 1) for each in warnings]


def _own_errors(raw: Mapping[str, object], keys: Set[str]) -> Iterator[FieldError]:
    try:
        spec = mapping(raw.get("spec"), "spec")
    except InvalidFieldError:
        return  # the rules of quotas say so
    yield from _hard_errors(spec, keys)
    try:
        yield from _selector_errors(spec.get("namespaceSelector"))
        yield from _part_errors(raw, spec)
    except InvalidFieldError as err:
        yield FieldError("FieldValueInvalid", err.field, err.detail)


def _hard_errors(spec: Mapping[str, object], keys: Set[str]) -> Iterator[FieldError]:
    try:
        hard = mapping(spec.get("hard"), _HARD)
    except InvalidFieldError:
        return  # the rules of quotas say so
    if not hard:
        yield FieldError("FieldValueRequired", _HARD, "must limit a deferred resource")
    for key in sorted(hard.keys() - keys - shared_keys(map(str, hard))):
        yield FieldError("FieldValueInvalid", f"{_HARD}[{key}]", _NOT_DEFERRED)


def _part_errors(raw: Mapping[str, object], spec: Mapping[str, object]) -> Iterator[FieldError]:
    hard = spec.get("hard")
    limited = hard.keys() if isinstance(hard, Mapping) else set()
    for name in ("kept", "headroom"):
        for index, part in enumerate(read_parts(raw, name)):
            # the difference of two sets of keys would walk all limits for each part
            for key in sorted(key for key in part.amounts if key not in limited):
                field = f"spec.{name}[{index}].amounts[{key}]"
                yield FieldError("FieldValueInvalid", field, "must be limited by spec.hard")


def _selector_errors(raw: object) -> Iterator[FieldError]:
    if raw is None:
        detail = "must say which namespaces share the quota; {} selects all"
        yield FieldError("FieldValueRequired", _SELECTOR, detail)
        return
    selector = FieldReader(raw, _SELECTOR)
    for key, value in sorted(selector.string_map("matchLabels").items()):
        for fault in (*qualified_name_errors(key), *_value_faults(value)):
            yield FieldError("FieldValueInvalid", f"{_SELECTOR}.matchLabels[{key}]", fault)
    yield from label_selector_errors(raw, _SELECTOR)
    for expression in selector.children("matchExpressions"):
        yield from _expression_errors(expression)


def _expression_errors(expression: FieldReader) -> Iterator[FieldError]:
    for fault in qualified_name_errors(expression.text("key")):
        yield FieldError("FieldValueInvalid", expression.path("key"), fault)
    for index, value in enumerate(expression.strings("values")):
        for fault in _value_faults(value):
            field = f"{expression.path('values')}[{index}]"
            yield FieldError("FieldValueInvalid", field, fault)


def _value_faults(value: str) -> tuple[str, ...]:
    fault = label_value_error(value)
    return () if fault is None else (fault,)


def _as_quota(raw: Mapping[str, object], keys: Set[str]) -> Mapping[str, object]:
    """Return the object without what its own rules refuse, as the rules of quotas read one."""
    try:
        spec = mapping(raw.get("spec"), "spec")
        hard = mapping(spec.get("hard"), _HARD)
    except InvalidFieldError:
        return raw
    known = keys | shared_keys(map(str, hard))
    return {**raw, "spec": {**spec, "hard": {key: hard[key] for key in hard if key in known}}}


def _once(*errors: FieldError) -> list[FieldError]:
    return list(dict.fromkeys(errors))
