"""ResourceQuota objects that are created or changed."""

from __future__ import annotations

from webhook.admission.deadline import Deadline
from webhook.admission.doors import answers
from webhook.admission.doors.context import DoorContext
from webhook.admission.review import AdmissionRequest, Allowed, Answer
from webhook.quota.ledger import Account
from webhook.quota.objects import ResourceQuota
from webhook.quota.quantity import ZERO
from webhook.quota.quota_rules import quota_errors, quota_update_errors


def create(_context: DoorContext, request: AdmissionRequest, _deadline: Deadline) -> Answer:
    """Refuse a quota that would break every pod creation, or be stored as another one."""
    errors = quota_errors(request.object or {})
    return answers.invalid(errors) if errors else Allowed(decision="valid")


def update(context: DoorContext, request: AdmissionRequest, _deadline: Deadline) -> Answer:
    """Apply the same rules to a change; a limit below what is taken is legal and worth a word."""
    new = request.object or {}
    errors = quota_update_errors(new, request.old_object or {})
    if errors:
        return answers.invalid(errors)
    known = context.view.ledger(request.namespace)
    if known is None or known.ledger is None:
        return Allowed(decision="valid")
    account = known.ledger.accounts.get(request.name)
    warnings = _below_usage(ResourceQuota.from_object(new), account) if account else ()
    return Allowed(decision="valid", warnings=warnings)


def _below_usage(quota: ResourceQuota, account: Account) -> tuple[str, ...]:
    taken = {
        name: account.used.get(name, ZERO) + account.reserved.get(name, ZERO)
        for name in quota.hard
        if name in account.used or name in account.reserved
    }
    return tuple(
        f"{name}: {amount} is taken, above the limit {quota.hard[name]}; no pod is evicted"
        for name, amount in sorted(taken.items())
        if amount > quota.hard[name]
    )
