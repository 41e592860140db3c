"""Criteria of a queue, and a ledger that counts their quotas."""

from __future__ import annotations

from collections.abc import Mapping

from webhook.quota.amounts.resources import parse_resource_list
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.ledger.ledger import Account, Ledger
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.queue.queued_pods import QueueCriteria, QueuePolicy

Object = dict[str, object]
GATE = "deferredquota.io/quota"
STRICT = QueuePolicy()


def terms_of(*quotas: Object, rules: QueuePolicy = STRICT, **fields: object) -> QueueCriteria:
    read = tuple(map(ResourceQuota.from_object, quotas))
    return QueueCriteria(deferred_quotas(read, DEFERRED_KEYS), read, rules=rules, **fields)  # type: ignore[arg-type]


def ledger_of(terms: QueueCriteria, **used: Mapping[str, str]) -> Ledger:
    """A ledger that counts the quotas, with what is used of each."""
    read = {name: parse_resource_list(amounts, field="") for name, amounts in used.items()}
    accounts = {
        one.name: Account(one.observed, one.hard, read.get(one.name, {}))
        for one in terms.quotas.quotas
    }
    return Ledger(accounts, {}, pods_resource_version=5)
