"""Facts for explanations, made of API objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.builders import a_pod, a_quota
from webhook.quota.amounts.resources import parse_resource_list
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.explaining.facts import NamespaceFacts, pod_facts
from webhook.quota.explaining.pods import explain_pod
from webhook.quota.explaining.values import Explanation
from webhook.quota.ledger.ledger import Account, Ledger, Reservation, ReservationSource, reserved_by
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.queue.queued_pods import QueueCriteria, QueuePolicy

Object = dict[str, object]

GATE = "deferredquota.io/quota"
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
OTHER = "example.com/hold"


def time(seconds_before_noon: int) -> str:
    return (NOON - timedelta(seconds=seconds_before_noon)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    name: str,
    cpu: str = "1",
    *,
    gates: Sequence[str] = (GATE,),
    age: int = 5,
    conditions: Sequence[Mapping[str, object]] = (),
    metadata: Mapping[str, object] | None = None,
    **fields: Any,
) -> Object:
    """A pod behind our gate; with `gates=()` one without."""
    made = {"creationTimestamp": time(age), "resourceVersion": "7", **(metadata or {})}
    status = {**fields.pop("status", {}), "conditions": list(conditions)}
    asked = {"requests": {"cpu": cpu}} if cpu else {}
    spec = {**asked, "schedulingGates": [{"name": one} for one in gates], **fields}
    return a_pod(name=name, uid=f"uid-{name}", metadata=made, status=status, **spec)


def bound(name: str, cpu: str = "1", **fields: Any) -> Object:
    """A pod that runs on a node."""
    given = {"node": "node-0", "status": {"phase": "Running"}, **fields}
    return pod(name, cpu, gates=(), **given)


def condition(kind: str, status: str, reason: str, message: str = "", age: int = 5) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": time(age),
    }


def namespace(
    *objects: Object,
    used: Mapping[str, Mapping[str, str]] | None = None,
    reserved: Mapping[str, str] | None = None,
    rules: QueuePolicy | None = None,
    **facts: Any,
) -> NamespaceFacts:
    """A namespace of pods and quotas whose ledger is counted.

    Args:
        objects: Pods and quotas; without a quota it has `p1` of 2 cpu.
        used: Quota → what the ledger counts.
        reserved: Pod → cpu that is reserved for it in `p1`.
        rules: The policy of the queue.
        facts: Fields of the facts that differ.
    """
    raws = [one for one in objects if one["kind"] == "ResourceQuota"] or [a_quota("p1")]
    quotas = tuple(map(ResourceQuota.from_object, raws))
    deferred = deferred_quotas(quotas, DEFERRED_KEYS)
    criteria = QueueCriteria(deferred, quotas, rules=rules or QueuePolicy())
    reservations = {
        f"uid-{name}": _reservation(name, cpu) for name, cpu in (reserved or {}).items()
    }
    sums = reserved_by(reservations.values())
    accounts = {
        one.name: Account(
            one.observed,
            one.hard,
            parse_resource_list((used or {}).get(one.name, {}), field=""),
            sums.get(one.name, {}),
        )
        for one in deferred.quotas
    }
    made = NamespaceFacts(
        "team-a",
        is_deferred=True,
        gate=GATE,
        criteria=criteria,
        ledger=Ledger(accounts, reservations),
        pods=tuple(pod_facts(one) for one in objects if one["kind"] == "Pod"),
        node_names=frozenset({"node-0"}),
        now=NOON,
    )
    return replace(made, **facts)


def _reservation(name: str, cpu: str) -> Reservation:
    usage = parse_resource_list({"requests.cpu": cpu}, field="")
    source = ReservationSource.RELEASE
    return Reservation(f"uid-{name}", name, source, usage, {"p1": usage}, ("p1",), 1)


def why(there: NamespaceFacts, name: str) -> Explanation:
    """Explain one of the pods."""
    (subject,) = [one for one in there.pods if one.pod.name == name]
    return explain_pod(subject, there)


def kinds(explained: Explanation) -> list[str]:
    return [one.kind.value for one in explained.causes]


def actions(explained: Explanation) -> list[str]:
    return [one.action.value for one in explained.unblock]
