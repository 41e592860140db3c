"""Owners of elastic pools elsewhere, whose pods come before those that would borrow.

The queues of other namespaces of the pool are run as that of the pod's own: only of namespaces in
which a pod waits behind our gate, or because its bind was denied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import PODS, Object
from webhook.kube.metadata import object_namespace
from webhook.operations.elastic.reading import read_elastic_quotas
from webhook.operations.explain.namespaces import Inside, read_namespace
from webhook.operations.explain.session import Session
from webhook.quota.amounts.resources import ResourceList, total_of
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.owners_first import Lacking, PoolView, pools_of
from webhook.quota.explaining.facts import NamespaceFacts
from webhook.quota.explaining.queue_position import waits_for_pools
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import may_have_place
from webhook.state.well_known import SCHEDULING_GATE

_UNASSIGNED: Final = "spec.nodeName="
_WHAT: Final = "whether pods of other elastic quotas come first"


def with_owners(session: Session, inside: Inside) -> Inside:
    """Add what the elastic quota of a namespace has of pools, and which owners wait for them.

    Raises:
        ApiError: The cluster does not answer.
    """
    there = inside.facts
    is_waiting = any(may_have_place(one.pod, there.gate) for one in there.pods)
    if there.ledger is None or not is_waiting or not pools_of(there.ledger):
        return inside
    gb_per_gpu = session.options.configuration.elastic.gpu_memory_gb
    quotas = {
        name: quota
        for quota in read_elastic_quotas(session, gb_per_gpu)
        for name in quota.namespaces
    }
    waiting = _waiting(session, there.name, quotas)
    view = PoolView(quotas, lambda pool, names: _held(there, pool, names), gb_per_gpu)
    shares = view.shares(there.name, there.ledger, waiting)
    facts = replace(there, shares=shares, unknown=tuple(session.unknown))
    return replace(inside, facts=facts)


def _waiting(
    session: Session, own: str, quotas: Mapping[str, ElasticQuota]
) -> dict[str, tuple[Lacking, ...]]:
    """Return what pods of other namespaces lack, by namespace."""
    quota = quotas.get(own)
    if quota is None:
        return {}
    others = {
        name for name, one in quotas.items() if one.pool == quota.pool and one.key != quota.key
    }
    raws = session.readable(PODS, _WHAT, field_selector=_UNASSIGNED) or ()
    found = {}
    for name in sorted(others & {object_namespace(raw) for raw in raws if _is_in_queue(raw)}):
        elsewhere = read_namespace(session.apart(), name).facts
        lacking = () if elsewhere.ledger is None else waits_for_pools(elsewhere)
        if lacking:
            found[name] = lacking
    return found


def _held(there: NamespaceFacts, pool: str, namespaces: Collection[str]) -> ResourceList:
    holdings = there.holdings.get(pool, {})
    return total_of(holdings.get(name, {}) for name in namespaces)


def _is_in_queue(raw: Object) -> bool:
    try:
        return may_have_place(Pod.from_stored(raw), SCHEDULING_GATE)
    except InvalidFieldError:
        return False
