"""Bounds of the quotas of a namespace, beyond which nothing is bound in it.

Tenants decide how many quotas there are, and of how many limits: what had to be kept and counted of
them must not take more memory, or a larger ledger, than all others leave room for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS, is_pod_quota_key

MOST_QUOTAS: Final = 128
"""Quotas of a namespace that are counted, so that its ledger can be stored."""
_LIMITS: Final = 256
"""Limits that are kept of a quota: with a slash, their names may be anything."""
MOST_TERMS: Final = 256
"""Scopes and expressions of a quota that is kept: no policy for new pods looks through more."""
_CLASSES: Final = 1000
"""Names of classes in the expressions of a quota that is kept."""
_CLASS_CHARACTERS: Final = 2**16
_name: Final = attrgetter("name")


def within_bounds(quota: ResourceQuota) -> ResourceQuota:
    """Return the same revision of a quota, of very many limits with those of pods alone.

    Raises:
        InvalidFieldError: More would have to be kept than any quota needs: the API server sets no
            bound.
    """
    classes = [name for one in quota.expressions for name in one.values]
    if len(quota.scopes) + len(quota.expressions) > MOST_TERMS:
        detail = f"has more than {MOST_TERMS} expressions and scopes"
        raise InvalidFieldError("spec.scopeSelector", detail)
    if len(classes) > _CLASSES:
        raise InvalidFieldError("spec.scopeSelector", f"has more than {_CLASSES} values")
    if sum(map(len, classes)) > _CLASS_CHARACTERS:
        detail = f"has values of more than {_CLASS_CHARACTERS} characters"
        raise InvalidFieldError("spec.scopeSelector", detail)
    lists = (quota.hard, quota.status_hard, quota.status_used)
    if max(map(len, lists)) <= _LIMITS:
        return quota
    hard, status_hard, status_used = map(_of_pods, lists)
    for field, limits in (
        ("spec.hard", hard),
        ("status.hard", status_hard),
        ("status.used", status_used),
    ):
        if len(limits) > _LIMITS:
            raise InvalidFieldError(field, f"has more than {_LIMITS} limits of pods")
    return quota.with_limits(
        hard, status_hard=status_hard, status_used=status_used, annotations=quota.annotations
    )


def counted_quotas(quotas: Iterable[ResourceQuota]) -> tuple[ResourceQuota, ...]:
    """Return those quotas of one namespace that are counted, by name where there are very many.

    For a ledger that cannot be stored, all that share a quota with the namespace would wait.
    """
    return first_quotas(tuple(one for one in quotas if not _excess(one)))


def first_quotas(quotas: tuple[ResourceQuota, ...]) -> tuple[ResourceQuota, ...]:
    """Return no more quotas of a namespace than are counted: where there are more, by name."""
    return quotas if len(quotas) <= MOST_QUOTAS else tuple(sorted(quotas, key=_name)[:MOST_QUOTAS])


def undecided_by(quotas: Iterable[ResourceQuota]) -> Mapping[str, str]:
    """Return why nothing is bound in a namespace with these quotas, in the words of a refused bind.

    Returns:
        Name of a quota → the reason; of the empty name, that there are too many.
    """
    excess = {one.name: _excess(one) for one in quotas}
    reasons = {name: text for name, text in excess.items() if text}
    if len(excess) - len(reasons) > MOST_QUOTAS:
        reasons[""] = too_many_text()
    return reasons


def _excess(quota: ResourceQuota) -> str:
    try:
        within_bounds(quota)
    except InvalidFieldError as err:
        return unreadable_quota(quota.name, err)
    return ""


def unreadable_quota(name: str, err: Exception) -> str:
    """Return why nothing can be decided in a namespace with this quota."""
    return f"quota {name} cannot be read: {err}"


def too_many_text() -> str:
    """Return why nothing is bound in a namespace with too many quotas."""
    return f"the namespace has more than {MOST_QUOTAS} quotas"


def _of_pods(limits: ResourceList) -> ResourceList:
    return {
        key: amount
        for key, amount in limits.items()
        if key in DEFERRED_KEYS or is_pod_quota_key(key)
    }
