"""Keep the ClusterDeferredQuotas by which elastic quotas are charged, and report what they hold.

What the objects have to be is in `quota.elastic.derived_quotas`; what makes the sharing exact, in
`quota.shared.escrow`. Here they are only written: all of them by one reconciliation, from the
elastic quotas and the opted-in namespaces as the caches show them. A new object comes before an old
one goes, which stays as long as the new one cannot be written, so that no bind is charged by none.
An object that a person changes is written again; one of the same name that a person made is left
alone.

While a kind of elastic quotas was never listed, nothing is written: it is not known what is left.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from webhook.config import ElasticSettings
from webhook.controllers.ledger.ledger_conditions import merge_conditions
from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.controller import (
    DONE,
    RATE_LIMITED,
    Controller,
    RequeueAfter,
    Result,
)
from webhook.controllers.runtime.events import ObjectReference
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.rate_limit import ExponentialBackoff
from webhook.controllers.runtime.workqueue import WorkQueue
from webhook.jsonfields.fields import InvalidFieldError, sequence
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    AlreadyExistsError,
    ApiError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    JsonPatch,
    Kind,
    ListOptions,
    NotFoundError,
    Object,
    Preconditions,
    TooLargeError,
)
from webhook.kube.informer import Change, Informer
from webhook.kube.metadata import object_name, time_text
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.elastic.derived_quotas import (
    DerivedQuota,
    derived_quotas,
    held_by,
    uncharged_resources,
)
from webhook.quota.elastic.elastic_quotas import (
    ElasticQuota,
    conflicts,
    elastic_quota_errors,
    read_stored_quota,
)
from webhook.quota.elastic.elastic_status import (
    CHARGED,
    DISABLED,
    PoolUsage,
    charged_condition,
    elastic_status,
)
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.ledger.ledger_codec import conditions_in, conditions_out
from webhook.quota.ledger.ledger_values import Condition
from webhook.quota.objects.names import DERIVED_PREFIXES, POOL_PREFIX
from webhook.quota.shared.cluster_quotas import ledger_name
from webhook.state.namespace_labels import namespace_metadata
from webhook.state.shared_quotas import SharedQuotaStore, SharedQuotaVersion
from webhook.state.well_known import ELASTIC_LABEL

_log = logging.getLogger(__name__)

_KEY: Final = "elastic quotas"
_BACKOFF: Final = ExponentialBackoff(0.2, 30.0)
_STATUS_SECONDS: Final = 1.0
"""Between two looks at what is held: it changes with every bind."""
_UNSYNCED_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 5.0
_REFUSALS: Final = (BadRequestError, ForbiddenError, InvalidError, TooLargeError)
"""What is answered again as long as the quotas are as they are."""


@dataclass(frozen=True, slots=True)
class ElasticQuotaObject:
    """An elastic quota as it is stored."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    quota: ElasticQuota | None
    """None if it cannot be read."""
    fault: str
    """Why it cannot, or what makes no sense in it."""
    status: Mapping[str, object]
    resource_version: str

    def is_same(self, other: ElasticQuotaObject) -> bool:
        """Return whether both are one object with one spec."""
        return (self.uid, self.quota, self.fault) == (other.uid, other.quota, other.fault)


@dataclass(frozen=True, slots=True)
class _Written:
    """Objects that a reconciliation has written."""

    quotas: Mapping[str, DerivedQuota]
    """The derived quotas, by name."""
    taken: frozenset[str] = frozenset()
    """Those of their names that objects of others have."""
    failure: ApiError | None = None
    """Why one of them could not be written."""


class ElasticQuotaController:
    """Keeps what elastic quotas are charged by, while it leads.

    Args:
        managed: The opted-in namespaces, and the shared quotas.
        shared: What is held of shared quotas.
        settings: Returns what the configuration says of elastic quotas.
        on_change: Called when `quotas` may return something else; it must not block.
    """

    def __init__(
        self,
        context: ControllerContext,
        managed: ManagedNamespaces,
        shared: SharedQuotaStore,
        settings: Callable[[], ElasticSettings],
        on_change: Callable[[], None],
    ) -> None:
        self._api = context.api
        self._managed = managed
        self._shared = shared
        self._settings = settings
        self._on_change = on_change
        self._by_namespace: dict[str, ElasticQuota] | None = None
        self._change = object()
        """Another one after each change: what was worked out before is not kept after it."""
        self._specs: dict[str, dict[str, object]] = {}
        """Name of a derived quota → the spec that was written last."""
        self._refused: dict[str, str] = {}
        """Name of a derived quota → why the API server does not take it as it has to be."""
        self._drops_headroom = False
        self._statuses: dict[str, _WrittenStatus] = {}
        """Uid of an elastic quota → its status."""
        self._events = context.events
        self._now = context.timings.now
        self._metrics = context.metrics.elastic
        self._leadership = Leadership(
            context.leader_epoch, self.requeue, lambda _epoch: self._metrics.show({})
        )
        self._queue: WorkQueue[str] = WorkQueue(_BACKOFF, clock=context.timings.clock)
        self.informers: Final = {
            kind: Informer(
                context.api,
                kind,
                transform=lambda raw, kind=kind: _read(kind, raw),  # type: ignore[misc]
                timings=context.timings.informer,
            )
            for kind in (ELASTIC_QUOTAS, COMPOSITE_ELASTIC_QUOTAS)
        }
        self.workers: Final = Controller(
            "elastic", self._queue, self.reconcile, poll=self._poll, poll_seconds=_POLL_SECONDS
        )
        for informer in self.informers.values():
            informer.add_handler(self._on_elastic_quota)
        managed.namespaces.informer.add_handler(self._on_namespace)
        managed.quotas.shared.informer.add_handler(self._on_shared_quota)

    def start(self) -> None:
        """Start the worker."""
        for informer in self.informers.values():
            informer.start()
        self.workers.start()

    def stop(self) -> None:
        """Stop writing."""
        self._leadership.stop()
        self.workers.stop(_STOP_SECONDS)
        for informer in self.informers.values():
            informer.stop()

    def requeue(self) -> None:
        """Requeue everything."""
        self._change = object()
        self._by_namespace = None
        self._on_change()
        self._queue.add(_KEY)

    def quotas(self) -> Mapping[str, ElasticQuota]:
        """Return the quotas that count, with their opted-in namespaces, by each of these."""
        change, known = self._change, self._by_namespace
        if known is None:
            known = {}
            for one in self._counting():
                opted_in = tuple(filter(self._managed.is_managed, one.namespaces))
                known.update(dict.fromkeys(opted_in, replace(one, namespaces=opted_in)))
            if change is self._change:
                self._by_namespace = known
        return known

    @property
    def has_synced(self) -> bool:
        """Whether it is known which elastic quotas there are."""
        return all(one.has_synced for one in self.informers.values())

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_elastic_quota(self, change: Change[ElasticQuotaObject]) -> None:
        if change.old is None or change.new is None or not change.old.is_same(change.new):
            self.requeue()

    def _on_namespace(self, change: Change[bool]) -> None:
        if change.old is not change.new:
            self.requeue()

    def _on_shared_quota(self, change: Change[SharedQuotaVersion]) -> None:
        if change.key.startswith(DERIVED_PREFIXES):
            old, new = change.old, change.new
            if old is None or new is None or not old.quota.is_same(new.quota):
                self.requeue()
            else:
                self._queue.add_after(_KEY, _STATUS_SECONDS)

    # -- on the thread -------------------------------------------------------------------------

    def _poll(self) -> bool:
        return bool(self._leadership.current_epoch())

    def reconcile(self, _key: str) -> Result:
        """Write what has to be written, while this process leads."""
        if not self._leadership.current_epoch():
            return DONE
        if not (self.has_synced and self._managed.are_synced):
            return RequeueAfter(_UNSYNCED_SECONDS)
        try:
            written = self._write_quotas()
            self._write_statuses(written.quotas, written.taken)
            if written.failure is not None:
                raise written.failure
        except NotFoundError:
            return DONE  # the kind is not installed, or an object went: both are seen
        except (ConflictError, ApiError, InvalidFieldError) as err:
            _log.info("elastic quotas not written", extra={"error": str(err)})
            return RATE_LIMITED
        return DONE

    def _objects(self) -> list[ElasticQuotaObject]:
        return [one for informer in self.informers.values() for one in informer.items().values()]

    def _counting(self) -> list[ElasticQuota]:
        return self._counting_of(self._objects())

    def _counting_of(self, objects: Iterable[ElasticQuotaObject]) -> list[ElasticQuota]:
        if not self._settings().enabled:
            return []
        every = [one.quota for one in objects if one.quota is not None]
        faults = conflicts(every)
        return [one for one in every if one.key not in faults]

    def _wanted(self) -> dict[str, DerivedQuota]:
        return self._derived(self._counting(), self._managed.is_managed)

    def _wanted_now(self) -> dict[str, DerivedQuota]:
        """Return what is wanted by what the API server has now.

        The caches of a new leader may be behind those of the one before: by an old min others
        would be given what is not lent any more.
        """
        stored = [_read(kind, raw) for kind in self.informers for raw in self._api.list(kind).items]
        opted_in = {object_name(one) for one in namespace_metadata(self._api, opted_in=True)}
        opted_in -= self._managed.exempt()
        return self._derived(self._counting_of(stored), opted_in.__contains__)

    def _derived(
        self, quotas: Iterable[ElasticQuota], is_opted_in: Callable[[str], bool]
    ) -> dict[str, DerivedQuota]:
        settings = self._settings()
        return derived_quotas(
            quotas, is_opted_in, settings.gpu_memory_gb, has_headroom=settings.headroom
        )

    def _write_quotas(self) -> _Written:
        """Write the derived quotas, as far as they differ.

        Raises:
            ApiError: The API server does not show what there is.
        """
        wanted, stored = self._wanted(), self._stored()
        if stored.keys() == wanted.keys() and all(
            self._is_stored(one, stored[name]) for name, one in wanted.items()
        ):
            self._refused = {}
            return _Written(wanted)
        wanted = self._wanted_now()
        taken: set[str] = set()
        failure: ApiError | None = None
        former, self._refused = self._refused, {}
        outside = _Outside(wanted, stored)
        for name, step in self._steps(wanted, stored, taken):
            if not self._leadership.is_leader():
                break
            if outside.is_left_by(name):  # the former amounts stay in force
                outside.note(name)
                continue
            try:
                step()
            except _REFUSALS as err:  # a pool that is too large stops no other
                failure, self._refused[name] = err, err.message
                outside.note(name)
            except ApiError as err:
                failure = err
                if name in former:
                    self._refused[name] = former[name]
                outside.note(name)
            if name in taken:
                outside.note(name)
        return _Written(wanted, frozenset(taken), failure)

    def _is_stored(self, quota: DerivedQuota, stored: Object) -> bool:
        spec = quota.spec
        if self._drops_headroom:
            spec.pop("headroom", None)
        return stored.get("spec") == spec

    def _note_dropped(self, quota: DerivedQuota, answered: Object) -> None:
        """Note whether an older definition drops a field: another write changes nothing."""
        if quota.headroom:
            self._drops_headroom = not FieldReader(answered).child("spec").has("headroom")

    def _stored(self) -> dict[str, Object]:
        listed = self._api.list(
            CLUSTER_DEFERRED_QUOTAS, ListOptions(label_selector=ELASTIC_LABEL)
        ).items
        return {object_name(raw): raw for raw in listed}

    def _steps(
        self, wanted: Mapping[str, DerivedQuota], stored: dict[str, Object], taken: set[str]
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the writes that are due, with the names of what they write.

        A namespace joins a quota before it leaves one: a quota that others join and leave is
        written twice.
        """
        changed = [
            one
            for name, one in wanted.items()
            if name in stored and not self._is_stored(one, stored[name])
        ]
        changed.sort(key=lambda one: _selected(stored[one.name]).issuperset(one.namespaces))
        for name, one in wanted.items():
            if name not in stored:
                yield name, partial(self._create, one, taken)
        for one in changed:
            both = _selected(stored[one.name]).union(one.namespaces)
            if len(both) > len(one.namespaces) and both != _selected(stored[one.name]):
                joined = replace(one, namespaces=tuple(sorted(both)))
                yield one.name, partial(self._replace_spec, stored, joined)
        for one in changed:
            yield one.name, partial(self._replace_spec, stored, one)
        for name in sorted(stored.keys() - wanted.keys()):
            yield name, partial(self._delete, name)

    def _delete(self, name: str) -> None:
        # what was listed is old where namespaces go on to bind: each grant is a version
        stored = FieldReader(self._api.get(CLUSTER_DEFERRED_QUOTAS, name)).child("metadata")
        self._specs.pop(name, None)
        if ELASTIC_LABEL not in stored.string_map("labels"):
            return
        known = Preconditions(stored.text("uid"), int(stored.text("resourceVersion")))
        self._api.delete(CLUSTER_DEFERRED_QUOTAS, name, preconditions=known)
        _log.info("elastic quota no longer charged", extra={"quota": name})

    def _create(self, quota: DerivedQuota, taken: set[str]) -> None:
        metadata = {"name": quota.name, "labels": {ELASTIC_LABEL: "true"}}
        obj = CLUSTER_DEFERRED_QUOTAS.make(metadata, spec=quota.spec)
        try:
            made = self._api.create(CLUSTER_DEFERRED_QUOTAS, obj).object
        except AlreadyExistsError:
            taken.add(quota.name)
            return
        self._note_dropped(quota, made)
        self._note_written(quota, made, "deleted")
        _log.info("elastic quota charged", extra={"quota": quota.name})

    def _replace_spec(self, stored: dict[str, Object], quota: DerivedQuota) -> None:
        # every bind writes the status; of the spec the generation tells whether it is the same
        former = stored[quota.name]
        generation = FieldReader(former).child("metadata").integer("generation")
        patch: JsonPatch = [
            {"op": "test", "path": "/metadata/generation", "value": generation},
            {"op": "add", "path": "/spec", "value": quota.spec},
        ]
        answered = self._api.patch(CLUSTER_DEFERRED_QUOTAS, quota.name, patch)
        stored[quota.name] = answered.object
        self._note_dropped(quota, answered.object)
        self._note_written(quota, former, "changed")
        _log.info("elastic quota charged by its new amounts", extra={"quota": quota.name})

    def _note_written(self, quota: DerivedQuota, stored: Object, done: str) -> None:
        """Remember what was written; an event says so where another client had undone it."""
        former, self._specs[quota.name] = self._specs.get(quota.name), quota.spec
        if former == quota.spec:
            uid = FieldReader(stored).child("metadata").text("uid")
            self._events.warning(
                ObjectReference(CLUSTER_DEFERRED_QUOTAS, quota.name, "", uid),
                "WrittenAgain",
                f"it was {done} by another client; elastic quotas are charged by it: edit these",
            )

    # -- status --------------------------------------------------------------------------------

    def _write_statuses(self, derived: Mapping[str, DerivedQuota], taken: frozenset[str]) -> None:
        """Write the status of each quota, as far as it differs.

        Raises:
            ApiError: The API server does not do it, or not for one of them.
        """
        failure: ApiError | None = None
        for obj, figures, condition in self._wanted_statuses(derived, taken):
            try:
                self._write_status(obj, figures, condition)
            except _REFUSALS as err:  # by another webhook, for instance: it stops no other
                failure = err
        if failure is not None:
            raise failure

    def _wanted_statuses(
        self, derived: Mapping[str, DerivedQuota], taken: frozenset[str]
    ) -> Iterator[tuple[ElasticQuotaObject, Mapping[str, object], Condition]]:
        """Yield the elastic quotas with the figures and the condition of their status."""
        settings, counting = self._settings(), {one.key: one for one in self._counting()}
        if not settings.enabled:
            self._metrics.show({})
            yield from ((obj, {}, DISABLED) for obj in self._objects() if _says_charged(obj))
            return
        grants = {name: self._grants(name) for name in derived if name not in taken}
        holding = _by_namespace(grants)
        held = {
            key: held_by(
                one,
                {name: grants[name] for name in _names_about(one, holding)},
                settings.gpu_memory_gb,
            )
            for key, one in counting.items()
        }
        pools: dict[str, PoolUsage] = {}
        for one in counting.values():
            if one.pool not in pools:
                members = [each for each in counting.values() if each.pool == one.pool]
                pools[one.pool] = PoolUsage(Pool(one.pool, members), held)
        self._show(counting.values(), held)
        objects = self._objects()
        self._statuses = {
            one.uid: self._statuses[one.uid] for one in objects if one.uid in self._statuses
        }
        faults = conflicts([one.quota for one in objects if one.quota is not None])
        charging = _by_namespace({name: one.namespaces for name, one in derived.items()})
        for obj in objects:
            quota = None if obj.quota is None else counting.get(obj.quota.key)
            if quota is None:
                fault = obj.fault or faults.get(_key_of(obj), "")
                reason = "Invalid" if obj.fault else "Conflict"
                yield obj, {}, Condition(CHARGED, "False", reason, fault)
            else:
                own = _names_about(quota, charging)
                condition = charged_condition(
                    quota,
                    outside=tuple(
                        name for name in quota.namespaces if not self._managed.is_managed(name)
                    ),
                    uncharged=uncharged_resources(quota),
                    taken=tuple(one for one in own if one in taken),
                    refused=tuple(self._refused[one] for one in own if one in self._refused),
                    fault=obj.fault,
                )
                yield obj, elastic_status(quota, pools[quota.pool]), condition

    def _show(self, quotas: Iterable[ElasticQuota], held: Mapping[str, ResourceList]) -> None:
        figures = {}
        for quota in quotas:
            for resource, amount in held[quota.key].items():
                least = quota.min.get(resource, ZERO)
                amounts = (amount, least, max(ZERO, amount - least))
                used, guaranteed, borrowed = map(_figure, amounts)
                figures[quota.key, resource] = used, guaranteed, borrowed
        self._metrics.show(figures)

    def _grants(self, name: str) -> Mapping[str, ResourceList]:
        known = self._shared.known(ledger_name(name))
        return {} if known is None else known.grants.in_use

    def _write_status(
        self, obj: ElasticQuotaObject, figures: Mapping[str, object], condition: Condition
    ) -> None:
        # it is an object of its users, in which conditions of other controllers stay as they are
        ours, others = _parted(obj.status.get("conditions"), condition.type)
        former = conditions_in(ours)
        merged = conditions_out(merge_conditions(former, [condition], time_text(self._now())))
        conditions = [*others, *sequence(merged["conditions"], "conditions")]
        status = {**figures, "conditions": conditions}
        written = self._statuses.get(obj.uid)
        if status == obj.status or written == _WrittenStatus(figures, condition, obj.status):
            return
        # a condition that another controller has written since would be lost; where there was none,
        # there may be one in any other version
        known: Object = {"path": "/metadata/resourceVersion", "value": obj.resource_version}
        if ours or others:
            known = {"path": "/status/conditions", "value": obj.status["conditions"]}
        patch: JsonPatch = [
            {"op": "test", "path": "/metadata/uid", "value": obj.uid},
            {"op": "test", **known},
            {"op": "add", "path": "/status", "value": status},
        ]
        stored = self._api.patch(
            obj.kind, obj.name, patch, namespace=obj.namespace, subresource="status"
        )
        self._statuses[obj.uid] = _WrittenStatus(figures, condition, _status_of(stored.object))
        said = former if written is None else (*former, written.condition)
        if condition.status == "False" and condition not in said:
            regarding = ObjectReference(obj.kind, obj.name, obj.namespace, obj.uid)
            self._events.warning(regarding, condition.reason, condition.message)


@dataclass(frozen=True, slots=True)
class _WrittenStatus:
    """Status that was written, and what the API server has stored of it.

    A definition that another program brought may not have our fields: they are dropped, and to
    write them again would change nothing.
    """

    figures: Mapping[str, object]
    condition: Condition
    stored: Mapping[str, object]


def _says_charged(obj: ElasticQuotaObject) -> bool:
    """Return whether a status says that binds are charged."""
    ours, _ = _parted(obj.status.get("conditions"), CHARGED)
    return any(one.status == "True" for one in conditions_in(ours))


def _figure(amount: Quantity) -> float:
    """Return an amount as metrics show it; some quantities are larger than any number of theirs."""
    try:
        return amount.nano / 10**9
    except OverflowError:
        return math.inf


def _parted(conditions: object, name: str) -> tuple[list[object], list[object]]:
    """Return the conditions of a type, and all others."""
    every = conditions if isinstance(conditions, list | tuple) else ()
    ours: list[object] = [
        one for one in every if isinstance(one, Mapping) and one.get("type") == name
    ]
    return ours, [one for one in every if one not in ours]


def _status_of(raw: Object) -> Mapping[str, object]:
    status = raw.get("status")
    return status if isinstance(status, Mapping) else {}


def _read(kind: Kind, raw: Object) -> ElasticQuotaObject:
    """Read an elastic quota; what is wrong with its spec is kept in it.

    Raises:
        InvalidFieldError: Not even its identity can be read.
    """
    metadata = FieldReader(raw).child("metadata")
    quota, fault = None, ""
    whole = {**raw, "kind": kind.kind}
    for error in elastic_quota_errors(whole)[:1]:
        fault = str(error)
    with suppress(InvalidFieldError):
        quota = read_stored_quota(whole)
    return ElasticQuotaObject(
        kind,
        metadata.text("namespace"),
        metadata.text("name"),
        metadata.text("uid"),
        quota,
        fault,
        _status_of(raw),
        metadata.text("resourceVersion"),
    )


def _key_of(obj: ElasticQuotaObject) -> str:
    return "" if obj.quota is None else obj.quota.key


def _by_namespace(derived: Mapping[str, Iterable[str]]) -> Mapping[str, list[str]]:
    """Return the names of derived quotas by the namespaces that they are about."""
    found: dict[str, list[str]] = {}
    for name, namespaces in derived.items():
        for namespace in namespaces:
            found.setdefault(namespace, []).append(name)
    return found


def _names_about(quota: ElasticQuota, derived: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the derived quotas, by namespace, that are about one of a quota's, sorted."""
    return sorted({name for one in quota.namespaces for name in derived.get(one, ())})


def _selected(stored: Object | None) -> frozenset[str]:
    """Return the namespaces that a stored quota lists."""
    if stored is None:
        return frozenset()
    selector = FieldReader(stored).child("spec").child("namespaceSelector")
    return frozenset(
        name for one in selector.children("matchExpressions") for name in one.strings("values")
    )


class _Outside:
    """Namespaces that could not join a quota yet: they leave no other one of the same sort."""

    def __init__(self, wanted: Mapping[str, DerivedQuota], stored: Mapping[str, Object]) -> None:
        self._wanted = wanted
        self._stored = stored
        self._found: dict[bool, set[str]] = {True: set(), False: set()}
        """Whether it is a pool's quota → namespaces."""

    def note(self, name: str) -> None:
        """Note that a quota is as it was."""
        present, following = self._namespaces(name)
        self._found[name.startswith(POOL_PREFIX)].update(following - present)

    def is_left_by(self, name: str) -> bool:
        """Return whether the write of a quota is one by which such a namespace leaves it."""
        present, following = self._namespaces(name)
        return not self._found[name.startswith(POOL_PREFIX)].isdisjoint(present - following)

    def _namespaces(self, name: str) -> tuple[frozenset[str], frozenset[str]]:
        quota = self._wanted.get(name)
        following = frozenset(() if quota is None else quota.namespaces)
        return _selected(self._stored.get(name)), following
