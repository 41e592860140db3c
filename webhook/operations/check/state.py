"""The cluster that manifests meet: read once, as far as they ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeVar

from webhook.jsonfields.fields import FieldError, InvalidFieldError
from webhook.kube.api import (
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Kind,
    Object,
)
from webhook.kube.metadata import object_name
from webhook.operations.check.overlay import Overlay
from webhook.operations.check.owners import pods_by_owner
from webhook.operations.check.sharing import SharedQuotas
from webhook.operations.counting import taken_at_bind
from webhook.operations.explain.namespaces import Inside, read_namespace
from webhook.operations.explain.nodes import device_resources
from webhook.operations.explain.session import Session
from webhook.operations.names import CLAIMS, RUNTIME_CLASSES, STORAGE_CLASSES, VOLUMES
from webhook.policy import Policy, compile_policy, queue_policy
from webhook.quota.amounts.resources import ResourceList, add, mask
from webhook.quota.charging.deferral import (
    DeferredQuota,
    NamespaceQuotas,
    deferred_quotas,
    is_excluded,
)
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.charging.status_mask import native_count
from webhook.quota.checking.classes import ClassTable, PriorityClass, RuntimeClass
from webhook.quota.checking.limit_ranges import LimitRange
from webhook.quota.checking.object_usage import FIRST_OBJECTS, first_usage
from webhook.quota.checking.subjects import ManifestObject
from webhook.quota.checking.values import Balance, Subject, Terms
from webhook.quota.explaining.facts import NamespaceFacts
from webhook.quota.explaining.queue_position import run_queue
from webhook.quota.jobs.resize_plan import manifest_errors
from webhook.quota.nodes.model import NodeView
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.objects.quota_bounds import counted_quotas, undecided_by
from webhook.quota.queue.queued_pods import CycleResult, QueueingStrategy
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL, NEVER_GATING, gating_of

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace, and what stands there now."""

    terms: Terms
    is_fresh: bool = False
    """Whether it is not there yet, so that nothing is in it."""
    is_missing: bool = False
    """Whether there is no such namespace, in the cluster nor in the manifests."""
    held: Mapping[tuple[str, str], tuple[Pod, ...]] = field(default_factory=dict)
    """Kind and name of a workload → its pods that have not ended."""
    reserved: frozenset[str] = frozenset()
    """Uids of pods that have a reservation."""
    rescoped: frozenset[str] = frozenset()
    """Quotas that are there with other scopes than the manifests': the API server keeps them."""


class ClusterState:
    """A cluster, or none, and the manifests' own quotas, limits and classes over it."""

    def __init__(self, session: Session, overlay: Overlay, *, is_known: bool) -> None:
        """Take where to read.

        Args:
            session: The cluster; an empty one where there is none.
            overlay: What the manifests bring.
            is_known: Whether the session is a cluster, live or in a snapshot.
        """
        self._session = session
        self._overlay = overlay
        self._is_known = is_known
        self._places: dict[str, Place] = {}
        self._statuses: dict[tuple[Kind, str], Mapping[str, Object]] = {}

    @property
    def unknown(self) -> tuple[str, ...]:
        """Facts that could not be read, in words."""
        return tuple(dict.fromkeys(self._session.unknown))

    @property
    def are_namespaces_apart(self) -> bool:
        """Return whether nothing is read for a namespace, and none shares a quota with others."""
        return not (self._is_known or self._overlay.shares_quotas)

    def refusals_of_elastic(self, one: ManifestObject) -> Sequence[FieldError]:
        """Return why the webhook refuses an elastic quota beside others; none of other kinds.

        Raises:
            ApiError: The cluster does not answer.
        """
        if not self._overlay.elastic_quotas:
            return ()
        return self._shared.refusals(one.kind, one.namespace, one.name)

    def refusals_of_job(self, one: ManifestObject) -> Sequence[FieldError]:
        """Return what the API server has against changes of a Job that is there already.

        Raises:
            ApiError: The cluster does not answer.
        """
        unread: Object | None = None
        get = partial(self._session.api.get, JOBS, one.name, namespace=one.namespace)
        stored = self._session.read(get, unread, f"Job {one.namespace}/{one.name}")
        try:
            return () if stored is None else manifest_errors(stored, one.raw)
        except InvalidFieldError:
            return ()  # what is wrong with the manifest is found elsewhere

    def place(self, namespace: str) -> Place:
        """Return a namespace.

        Raises:
            ApiError: The cluster does not answer.
        """
        if namespace not in self._places:
            self._places[namespace] = self._read_place(namespace)
        return self._places[namespace]

    def status_of(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the status of the object of a name; None if there is no such object yet."""
        if (kind.resource, name) in FIRST_OBJECTS:
            return {}
        return self.statuses(kind, namespace).get(name) if name else None

    def statuses(self, kind: Kind, namespace: str) -> Mapping[str, Object]:
        """Return the status of each object of a kind, by name."""
        if not self._is_known:
            return {}
        key = kind, namespace
        if key not in self._statuses:
            raws = self._session.readable(kind, namespace=namespace or None) or ()
            self._statuses[key] = {object_name(raw): _status(raw) for raw in raws}
        return self._statuses[key]

    def note_uncounted(self, namespace: str, keys: Set[str]) -> None:
        """Note for which of the keys that objects are charged for the cluster counts nothing yet.

        It counts the objects of a namespace that a stored quota names: not those of a new one.
        """
        place = self.place(namespace)
        for balance in () if place.is_fresh else place.terms.balances:
            uncounted = sorted(keys & (balance.hard.keys() - balance.used.keys()))
            if uncounted:
                self._session.unknown.append(
                    f"what namespace {namespace} has of {', '.join(uncounted)}: the cluster does"
                    f" not count it for quota {balance.name} yet"
                )

    @property
    def brought_claims(self) -> Mapping[str, Set[str]]:
        """Return the PersistentVolumeClaims of the manifests: namespace → names."""
        return self._overlay.claims

    @cached_property
    def view(self) -> NodeView | None:
        """The nodes with their pods; None where they are not known."""
        if not self._is_known:
            return None
        read = self._session.readable
        nodes = read(NODES)
        if not nodes:
            return None
        claims, volumes, classes, namespaces = map(
            read, (CLAIMS, VOLUMES, STORAGE_CLASSES, NAMESPACES)
        )
        pods = read(PODS) or ()
        devices = device_resources(self._session)
        return NodeView(nodes, pods, claims, volumes, classes, namespaces, devices)

    @cached_property
    def _policy(self) -> Policy:
        options = self._session.options
        return compile_policy(options.configuration, system_namespace=options.system_namespace)

    @cached_property
    def _shared(self) -> SharedQuotas:
        return SharedQuotas(self._session, self._overlay, self._policy, is_known=self._is_known)

    @cached_property
    def _classes(self) -> ClassTable:
        raw_priorities = self._session.readable(PRIORITY_CLASSES) if self._is_known else None
        raw_runtimes = self._session.readable(RUNTIME_CLASSES) if self._is_known else None
        priorities = self._read(raw_priorities or (), PriorityClass.from_object)
        runtimes = self._read(raw_runtimes or (), RuntimeClass.from_object)
        is_offline = self._session.options.is_offline
        return ClassTable(
            {**{one.name: one for one in priorities}, **self._overlay.priorities},
            {**{one.name: one for one in runtimes}, **self._overlay.runtimes},
            # a snapshot without any may only lack them: every cluster has the system's own
            has_all_priorities=bool(raw_priorities),
            has_all_runtimes=bool(raw_runtimes) or (raw_runtimes is not None and not is_offline),
        )

    def _read(self, raws: Iterable[Object], read: Callable[[Object], _T]) -> Iterator[_T]:
        for raw in raws:
            try:
                yield read(raw)
            except InvalidFieldError as err:
                self._session.unknown.append(f"{object_name(raw)}: {err}")

    @cached_property
    def _has_namespaces(self) -> bool:
        return self._is_known and bool(self._session.readable(NAMESPACES))

    def _read_place(self, namespace: str) -> Place:
        # what is outside of namespaces has no quota of one
        is_there = self._is_known and bool(namespace)
        inside = read_namespace(self._session, namespace) if is_there else None
        stored = self._stored_namespace(namespace) if is_there else None
        labels = self._overlay.labels_of(namespace, stored)
        is_fresh = not self._is_known or (self._has_namespaces and stored is None)
        known = () if inside is None else inside.facts.pods
        ledger = None if inside is None else inside.facts.ledger
        held = pods_by_owner(
            () if inside is None else inside.pods, {one.pod.uid: one.pod for one in known}
        )
        own = self._overlay.objects.get(namespace, set())
        judged = {pod.uid for owner in own for pod in held.get(owner, ())}
        terms = self._terms(namespace, inside, labels or {}, judged, is_fresh=is_fresh)
        brought = self._overlay.quotas_of(namespace, is_guarded=terms.is_deferred)
        return Place(
            terms,
            is_fresh=is_fresh,
            is_missing=self._has_namespaces and labels is None,
            held=held,
            reserved=frozenset() if ledger is None else ledger.reserved_uids,
            rescoped=_rescoped(brought, _by_name(inside)),
        )

    def _stored_namespace(self, namespace: str) -> Object | None:
        """Return a namespace as it is stored; None where it is not known."""
        unread: Object | None = None
        get = partial(self._session.api.get, NAMESPACES, namespace)
        return self._session.read(get, unread, f"the labels of namespace {namespace}")

    def _terms(
        self,
        namespace: str,
        inside: Inside | None,
        labels: Mapping[str, str],
        judged: Set[str],
        *,
        is_fresh: bool,
    ) -> Terms:
        configuration, policy = self._session.options.configuration, self._policy
        is_deferred = labels.get(MODE_LABEL) == DEFERRED_MODE
        if inside is not None and namespace not in self._overlay.namespaces:
            is_deferred = inside.facts.is_deferred
        is_deferred = is_deferred and namespace not in policy.exempt_namespaces
        quotas = self._quotas(namespace, inside, is_deferred=is_deferred)
        rules = queue_policy(configuration, policy)
        is_gated = gating_of(labels, configuration.gating) != NEVER_GATING
        balances = list(self._native(inside, quotas, is_deferred=is_deferred, is_fresh=is_fresh))
        if is_deferred:
            deferred = self._deferred_quotas(namespace, quotas, labels)
            queue = None if inside is None else _run_queue(inside.facts, deferred, judged)
            balances += [
                self._deferred_balance(one, namespace, inside, queue, is_gated=is_gated)
                for one in deferred.quotas
            ]
        return Terms(
            tuple(balances),
            self._limit_ranges(namespace),
            self._classes,
            coverage=rules.coverage if is_deferred else Terms().coverage,
            must_specify=rules.must_specify,
            is_deferred=is_deferred,
            undecided=next(iter(undecided_by(quotas).values()), "") if is_deferred else "",
            deferred_keys=policy.deferred_keys,
            is_strict=is_gated and rules.order is QueueingStrategy.STRICT,
            quotas=quotas,
            labels=labels,
            jobs=policy.jobs if is_deferred else (),
        )

    def _quotas(
        self, namespace: str, inside: Inside | None, *, is_deferred: bool
    ) -> tuple[ResourceQuota, ...]:
        """Return the quotas of a namespace: the manifests' limits, the cluster's usage."""
        there = _by_name(inside)
        brought = self._overlay.quotas_of(namespace, is_guarded=is_deferred)
        rescoped = _rescoped(brought, there)
        for name, quota in brought.items():
            if name in rescoped:
                continue
            stored = there.get(name)
            there[name] = quota
            if stored is not None:
                there[name] = replace(
                    quota,
                    uid=stored.uid,
                    status_hard=stored.status_hard,
                    status_used=stored.status_used,
                )
        return tuple(sorted(there.values(), key=lambda one: one.name))

    def _limit_ranges(self, namespace: str) -> tuple[LimitRange, ...]:
        what = f"the LimitRanges of namespace {namespace}"
        is_known = self._is_known
        raws = self._session.readable(LIMIT_RANGES, what, namespace=namespace) if is_known else ()
        found = {one.name: one for one in self._read(raws or (), LimitRange.from_object)}
        found.update(self._overlay.limit_ranges.get(namespace, {}))
        return tuple(found[name] for name in sorted(found))

    def _native(
        self,
        inside: Inside | None,
        quotas: Iterable[ResourceQuota],
        *,
        is_deferred: bool,
        is_fresh: bool,
    ) -> Iterator[Balance]:
        """Yield what the API server charges when an object is created."""
        pods = _pods(inside)
        for quota in quotas:
            hidden = frozenset[str]()
            if is_deferred and not is_excluded(quota):
                hidden = self._policy.deferred_keys
            hard = {key: amount for key, amount in quota.hard.items() if key not in hidden}
            if hard:
                yield Balance(quota, hard, _native_used(quota, pods, is_fresh=is_fresh))

    def _deferred_quotas(
        self, namespace: str, quotas: Iterable[ResourceQuota], labels: Mapping[str, str]
    ) -> NamespaceQuotas:
        """Return what is charged when a pod is given its node."""
        return deferred_quotas(
            (*counted_quotas(quotas), *self._shared.of_namespace(namespace, labels)),
            self._policy.deferred_keys,
            holds_terminating=self._policy.holds_terminating,
        )

    def _deferred_balance(
        self,
        one: DeferredQuota,
        namespace: str,
        inside: Inside | None,
        queue: CycleResult | None,
        *,
        is_gated: bool,
    ) -> Balance:
        ledger = None if queue is None else queue.ledger
        account = None if ledger is None else ledger.accounts.get(one.name)
        if inside is not None and queue is not None and account is not None:
            held = add(add(account.used, account.reserved), account.used_elsewhere)
            used = mask(held, one.hard)
            holder = _holder(one.name, inside, queue) if is_gated else None
            return Balance(one.quota, one.hard, used, account.reserved, at_bind=True, holder=holder)
        if inside is not None and inside.facts.uncounted:
            self._session.unknown.append(
                f"what is reserved of quota {one.name}: {inside.facts.uncounted}"
            )
        try:
            used = taken_at_bind(one, _pods(inside)).most
            if one.name.startswith(SHARED_PREFIX):
                used = add(used, self._shared.held_elsewhere(one, namespace))
        except ScopeError:
            used = {}
        return Balance(one.quota, one.hard, used, at_bind=True)


def _run_queue(
    facts: NamespaceFacts, deferred: NamespaceQuotas, judged: Set[str]
) -> CycleResult | None:
    """Run the queue of a namespace, without pods that are assigned or of objects that are judged.

    A workload does not wait behind itself. Pods wait for quotas as the manifests have them; for
    those that the ledger does not know yet, none does.
    """
    if facts.ledger is None or facts.criteria is None:
        return None
    accounts = dict(facts.ledger.accounts)
    quotas = tuple(one for one in deferred.quotas if one.name in accounts)
    for one in quotas:
        accounts[one.name] = replace(accounts[one.name], hard=one.hard)
    waiting = [one for one in facts.pods if not (one.pod.is_assigned or one.pod.uid in judged)]
    return run_queue(
        replace(
            facts,
            pods=tuple(waiting),
            ledger=replace(facts.ledger, accounts=accounts),
            criteria=replace(facts.criteria, quotas=replace(deferred, quotas=quotas)),
        )
    )


def _holder(quota: str, inside: Inside, queue: CycleResult) -> tuple[int, str] | None:
    """Return priority and name of the pod that holds those behind it in a quota."""
    if quota not in queue.blocking:
        return None
    place = queue.blocking[quota]
    name = next(one.pod.name for one in inside.facts.pods if one.pod.uid == place[-1])
    return -place[0], f"Pod {name}"


def with_former(subject: Subject, place: Place) -> Subject:
    """Return a subject with the pods of its former state."""
    held = place.held.get((subject.kind, subject.name), ())
    return replace(subject, held=held, reserved=place.reserved) if held else subject


def _status(raw: Object) -> Object:
    status = raw.get("status")
    return status if isinstance(status, Mapping) else {}


def _by_name(inside: Inside | None) -> dict[str, ResourceQuota]:
    return {one.name: one for one in (() if inside is None else inside.quotas)}


def _rescoped(
    brought: Mapping[str, ResourceQuota], there: Mapping[str, ResourceQuota]
) -> frozenset[str]:
    return frozenset(
        name
        for name in brought.keys() & there.keys()
        if set(brought[name].scopes) != set(there[name].scopes)
    )


def _pods(inside: Inside | None) -> tuple[Pod, ...]:
    return () if inside is None else tuple(one.pod for one in inside.facts.pods)


def _native_used(quota: ResourceQuota, pods: Sequence[Pod], *, is_fresh: bool) -> ResourceList:
    """Return what the API server has counted, or else what it will."""
    try:
        counted = native_count(quota, pods)
    except ScopeError:
        counted = {}
    first = mask(first_usage(), quota.hard) if is_fresh and not quota.scopes else {}
    return {**counted, **first, **mask(quota.status_used, quota.hard)}
