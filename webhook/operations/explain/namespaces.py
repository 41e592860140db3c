"""One namespace at one moment: its quotas, pods and ledger, and namespaces that share quotas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, timestamp
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    ForbiddenError,
    Object,
    find_object,
)
from webhook.kube.metadata import object_name
from webhook.operations.cluster_quotas import SharedQuota, concerning, quotas_of, shared_quotas
from webhook.operations.counting import counted_ledger, taken_at_bind
from webhook.operations.explain.parts import controller_part, webhook_part
from webhook.operations.explain.session import Session
from webhook.operations.reading import guard_uid_of, name_of
from webhook.operations.server_time import server_time
from webhook.operations.snapshot_usage import (
    COUNTED_FROM_PODS,
    NOT_COUNTED,
    ledgers_from_pods,
    namespaces_of,
    opted_in,
)
from webhook.policy import compile_policy, queue_policy
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.deferral import NamespaceQuotas, deferred_quotas
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.explaining.facts import Health, NamespaceFacts, Part, PodFacts, pod_facts
from webhook.quota.ledger.ledger import NO_LEDGER, OPTED_OUT, Ledger, check_observed, reserved_by
from webhook.quota.ledger.ledger_values import QuotaRevision
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.objects.quota_bounds import counted_quotas, undecided_by
from webhook.quota.queue.queued_pods import QueueCriteria
from webhook.quota.shared.cluster_quotas import ClusterQuota, ledger_name
from webhook.quota.shared.escrow import Shared, beside, open_to, without_headroom
from webhook.quota.shared.grants import Grants
from webhook.state.ledger_store import LEDGER_NAME, read_ledger
from webhook.state.well_known import (
    AUTO_GATING,
    DEFERRED_MODE,
    MODE_LABEL,
    REGISTRATION,
    SCHEDULING_GATE,
    gating_of,
)

_CLOCKS_DIFFER: Final = timedelta(minutes=1)
"""How far the clock of the command that took a snapshot may be behind those of the cluster."""
_LIMITS: Final = {
    NAMESPACES: "namespaces",
    RESOURCE_QUOTAS: "quotas",
    CLUSTER_DEFERRED_QUOTAS: "cluster quotas",
    QUOTA_LEDGERS: "quota ledgers",
}
"""Kinds by which a pod is held, which a file of kubectl need not have."""


@dataclass(frozen=True, slots=True)
class Inside:
    """A namespace as it was read."""

    facts: NamespaceFacts
    quotas: tuple[ResourceQuota, ...] = ()
    """As the API server's own check sees them."""
    pods: tuple[Object, ...] = ()
    nodes: tuple[Object, ...] | None = None
    """The nodes of the cluster; None where they are not known."""
    knows_pods: bool = True
    """Whether the pods could be read."""


@dataclass(frozen=True, slots=True)
class _Labels:
    values: Mapping[str, str]
    is_known: bool


def read_namespace(session: Session, namespace: str) -> Inside:
    """Read a namespace, the pods before the ledger.

    A pod that is released in between then has its reservation in the ledger.

    Raises:
        ApiError: The cluster does not answer.
    """
    labels = _labels(session, namespace)
    listed = session.pods(namespace)
    raws = listed or ()
    pods = tuple(_pod_facts(session, raws))
    quotas = session.quotas(namespace)
    shared = _shared(session, namespace, labels)
    version = session.read(lambda: _ledger(session, namespace), None, "the quota ledger")
    nodes = _nodes(session)
    moment = newest_moment(session, raws) if session.options.is_offline else session.options.now()
    facts = NamespaceFacts(
        namespace,
        gate=SCHEDULING_GATE,
        pods=pods,
        node_names=None if nodes is None else frozenset(map(object_name, nodes)),
        max_reservations=session.options.configuration.limits.reservations_per_namespace,
        now=moment,
    )
    is_deferred = _is_deferred(session, namespace, labels, version)
    left_out = _left_out(session) if is_deferred or not labels.is_known else ()
    if is_deferred:  # without a ledger the pods are counted
        left_out = tuple(name for name in left_out if name != _LIMITS[QUOTA_LEDGERS])
    session.unknown.extend(f"{name}: the snapshot has none" for name in left_out)
    facts = replace(facts, left_out=left_out)
    if is_deferred:
        limits = quotas, shared or ()
        facts = _deferred(session, replace(facts, is_deferred=True), labels, limits)
        facts = _decided_by(session, facts, version, shared)
    elif session.options.probes and any(
        SCHEDULING_GATE in one.pod.scheduling_gates for one in pods
    ):
        facts = replace(facts, controller=controller_part(session, moment))
    facts = replace(facts, unknown=tuple(session.unknown))
    return Inside(facts, quotas, raws, nodes, knows_pods=listed is not None)


def _labels(session: Session, namespace: str) -> _Labels:
    unread = _Labels({}, is_known=False)

    def read() -> _Labels:
        raw = session.api.get(NAMESPACES, namespace)
        return _Labels(FieldReader(raw).child("metadata").string_map("labels"), is_known=True)

    return session.read(read, unread, f"the labels of namespace {namespace}")


def _is_deferred(session: Session, namespace: str, labels: _Labels, ledger: Ledger | None) -> bool:
    if namespace in session.options.exempt:
        return False
    if labels.is_known:
        return labels.values.get(MODE_LABEL) == DEFERRED_MODE
    if ledger is None:
        return False
    return not any(one.reason == OPTED_OUT for one in ledger.conditions)


def _pod_facts(session: Session, raws: Iterable[Object]) -> Iterator[PodFacts]:
    for raw in raws:
        try:
            yield pod_facts(raw)
        except InvalidFieldError as err:
            session.unknown.append(f"pod {name_of(raw)}: {err}")


def _shared(session: Session, namespace: str, labels: _Labels) -> tuple[SharedQuota, ...] | None:
    """Return the cluster quotas of a namespace; None where they cannot be read."""
    unread: tuple[SharedQuota, ...] | None = None
    every = session.read(lambda: shared_quotas(session.api), unread, "cluster quotas")
    return None if every is None else tuple(concerning(every, namespace, labels.values))


def _ledger(session: Session, namespace: str) -> Ledger | None:
    return read_ledger(session.api.get(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)).ledger


def _left_out(session: Session) -> tuple[str, ...]:
    """Return of what a file of kubectl has nothing; a snapshot of ours names what it lacks."""
    return tuple(name for kind, name in _LIMITS.items() if session.may_lack(kind))


def _nodes(session: Session) -> tuple[Object, ...] | None:
    """Return the nodes; None where they are not looked at or known, or a snapshot has none."""
    if session.options.no_nodes:
        session.unknown.append(f"nodes: {session.options.no_nodes}")
        return None
    found = session.readable(NODES)
    if session.options.is_offline and not found:
        session.unknown.append("nodes: the snapshot has none")
        return None
    return found


def _deferred(
    session: Session,
    facts: NamespaceFacts,
    labels: _Labels,
    limits: tuple[tuple[ResourceQuota, ...], tuple[SharedQuota, ...]],
) -> NamespaceFacts:
    """Add what pods of a namespace are judged by that defers its quotas."""
    configuration = session.options.configuration
    policy = compile_policy(configuration, system_namespace=session.options.system_namespace)
    quotas, shared = limits
    every = (*counted_quotas(quotas), *quotas_of(shared))
    deferred = deferred_quotas(
        every, policy.deferred_keys, holds_terminating=policy.holds_terminating
    )
    unreadable = tuple(
        f"{one.subject}: {one.spec.fault}"
        for one in shared
        if not isinstance(one.spec, ClusterQuota)
    )
    unreadable = (*undecided_by(quotas).values(), *unreadable)
    rules = queue_policy(configuration, policy)
    is_auto = gating_of(labels.values, configuration.gating) == AUTO_GATING
    room_seconds = configuration.timeouts.gate_release_seconds if is_auto else 0
    webhook = controller = Part()
    if session.options.probes:
        attempts = [one.attempt for one in facts.pods if one.attempt]
        webhook = webhook_part(session, facts.name, attempts)
        controller = controller_part(session, facts.now)
    session.unknown.extend(
        part.detail
        for part in (webhook, controller)
        if part.health is Health.UNKNOWN and part.detail
    )
    return replace(
        facts,
        room_seconds=room_seconds,
        criteria=QueueCriteria(deferred, every, unreadable, rules),
        webhook=webhook,
        controller=controller,
    )


def _decided_by(
    session: Session,
    facts: NamespaceFacts,
    ledger: Ledger | None,
    readable: tuple[SharedQuota, ...] | None,
) -> NamespaceFacts:
    """Add the ledger that decides, if it has counted the quotas as they are."""
    criteria = facts.criteria
    quotas = NamespaceQuotas((), frozenset()) if criteria is None else criteria.quotas
    shared = readable or ()
    if ledger is None and session.has_no_ledgers:
        return _counted_here(session, facts, quotas, shared)
    hidden = frozenset[QuotaRevision]()
    if ledger is not None and readable is None:
        hidden = frozenset(one for one in ledger.observed if one.name.startswith(SHARED_PREFIX))
    guard_uid = _guard_uid(session, ledger)
    undecided = check_observed(ledger, quotas.observed | hidden, guard_uid=guard_uid)
    if undecided is None and hidden:
        names = ", ".join(sorted(one.name for one in hidden))
        return replace(facts, uncounted=f"cluster quotas cannot be read: {names}")
    if undecided is not None or ledger is None:
        return replace(facts, uncounted="" if undecided is None else undecided.message)
    known = {
        ledger_name(one.spec.name): Shared(one.spec, one.grants)
        for one in shared
        if isinstance(one.spec, ClusterQuota)
    }
    closed = [
        name
        for name, one in known.items()
        if name in ledger.accounts and not open_to(facts.name, ledger.accounts[name], one)
    ]
    if closed:
        text = f"the namespaces that share a quota are being counted: {', '.join(closed)}"
        return replace(facts, uncounted=text)
    stored = beside(ledger, facts.name, known)
    stored = without_headroom(stored, facts.name, known) or stored
    holdings = {
        name: {place: held for place, held in one.grants.in_use.items() if place != facts.name}
        for name, one in known.items()
        if name in ledger.accounts
    }
    facts = replace(facts, ledger=stored, holdings=holdings)
    if facts.controller.health is not Health.DOWN:
        return facts
    return replace(facts, ledger=_recounted(session, facts, stored, quotas), stored=stored)


def _guard_uid(session: Session, ledger: Ledger | None) -> str | None:
    """Return the uid of the guard's registration for `check_observed`, if the ledger names one."""
    if ledger is None or not ledger.guard_uid or session.may_lack(VALIDATING_WEBHOOKS):
        return None
    try:
        return guard_uid_of(find_object(session.api, VALIDATING_WEBHOOKS, REGISTRATION))
    except ForbiddenError:
        return None  # as most users: what a ledger says is taken as it is then


def _counted_here(
    session: Session,
    facts: NamespaceFacts,
    quotas: NamespaceQuotas,
    shared: Iterable[SharedQuota],
) -> NamespaceFacts:
    """Add a ledger that is counted from the pods of a snapshot which has none.

    A snapshot of ours would have it: there it is what the namespace waits for all the same.
    """
    if session.may_lack(PODS):
        return replace(facts, uncounted=NOT_COUNTED)
    session.unknown.append(COUNTED_FROM_PODS)
    uncounted = "" if session.options.taken is None else NO_LEDGER.message
    ledger = counted_ledger(quotas, [one.pod for one in facts.pods], facts.now)
    specs = {ledger_name(one.spec.name): one.spec for one in shared}
    held = _held_elsewhere(session, facts, specs.keys() & ledger.accounts.keys())
    known = {
        name: Shared(spec, Grants(held[name]))
        for name, spec in specs.items()
        if name in held and isinstance(spec, ClusterQuota)
    }
    return replace(
        facts,
        uncounted=uncounted,
        ledger=beside(ledger, facts.name, known),
        holdings=held,
    )


def _held_elsewhere(
    session: Session, facts: NamespaceFacts, names: Set[str]
) -> Mapping[str, Mapping[str, ResourceList]]:
    """Return what the pods of other namespaces take of shared quotas: quota → namespace → that."""
    held: dict[str, dict[str, ResourceList]] = {name: {} for name in names}
    there = opted_in(namespaces_of(session)) if names else {}
    there.pop(facts.name, None)
    for namespace, ledger in ledgers_from_pods(session, there, facts.now):
        for name in names & ledger.accounts.keys():
            held[name][namespace] = ledger.accounts[name].used
    return held


def _recounted(
    session: Session, facts: NamespaceFacts, ledger: Ledger, quotas: NamespaceQuotas
) -> Ledger:
    """Return the ledger with `used` counted from the pods as they are, as a leader would."""
    pods = [one.pod for one in facts.pods]
    is_deleting = any(pod.is_deleting for pod in pods)
    now = facts.now if session.options.is_offline else None
    if is_deleting and not session.options.is_offline:
        now = server_time(session.api, facts.name)
    waiting = {pod.uid for pod in pods if not pod.is_assigned}
    reservations = {uid: one for uid, one in ledger.reservations.items() if uid in waiting}
    reserved = reserved_by(reservations.values())
    accounts = dict(ledger.accounts)
    for quota in quotas.quotas:
        try:
            used = taken_at_bind(quota, pods, now=now).most
        except ScopeError:
            continue
        account = accounts[quota.name]
        accounts[quota.name] = replace(account, used=used, reserved=reserved.get(quota.name, {}))
    return replace(ledger, accounts=accounts, reservations=reservations)


def newest_moment(session: Session, raws: Iterable[Object]) -> datetime | None:
    """Return the newest moment in a snapshot: the time at which it was taken, or a little before.

    Leases of nodes and of the control plane are renewed every few seconds. Where there are none,
    the clock of the command that took it is the better one. What is later than by that clock is
    not believed: users write times into their objects.
    """
    taken = session.options.taken
    latest = None if taken is None else taken + _CLOCKS_DIFFER
    leases: list[Object] = []
    with suppress(ForbiddenError):  # a snapshot of a user without the right to list them
        for namespace in session.options.lease_namespaces:
            leases.extend(session.objects(LEASES, namespace=namespace))
    renewed = _newest(leases, latest)
    return max(filter(None, (renewed or taken, _newest(raws, latest))), default=None)


def _newest(raws: Iterable[Object], latest: datetime | None) -> datetime | None:
    moments = _moments({text for raw in raws for text in _times(raw)})
    return max((one for one in moments if latest is None or one <= latest), default=None)


def _times(raw: Object) -> Iterator[str]:
    metadata, spec, status = (_mapping(raw.get(part)) for part in ("metadata", "spec", "status"))
    texts = [metadata.get("creationTimestamp"), spec.get("renewTime")]
    for holder, part, name in (
        (metadata, "managedFields", "time"),
        (status, "conditions", "lastTransitionTime"),
    ):
        items = holder.get(part)
        listed = items if isinstance(items, list) else ()
        texts += [_mapping(item).get(name) for item in listed]
    return (text for text in texts if isinstance(text, str))


def _moments(texts: Iterable[str]) -> Iterator[datetime]:
    for text in texts:
        try:
            moment = timestamp(text, "")
        except InvalidFieldError:
            continue
        if moment is not None:
            yield moment


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
