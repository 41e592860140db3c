"""Writes to the store of the fake API server: admission, rules, admission, compare-and-swap.

The store is not locked while admission is asked, so a write may lose a race. Then everything is
done again on the newer object, as in the API server: one request may ask admission several times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from webhook.fakecluster.storage import pod_strategy
from webhook.fakecluster.storage.admission_hook import Admission, Operation, WriteRequest
from webhook.fakecluster.storage.cluster import FakeCluster
from webhook.fakecluster.storage.deletion import DeletionStep, is_due, next_step
from webhook.fakecluster.storage.preconditions import (
    check_binding,
    check_place,
    check_preconditions,
    check_uid,
    node_name,
    without_system_metadata,
)
from webhook.fakecluster.storage.stored_object import StoredObject, read_object
from webhook.fakecluster.storage.strategies import (
    check_version_named,
    prepare_create,
    prepare_update,
)
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    BINDINGS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    InternalError,
    Kind,
    Preconditions,
    TooManyRequestsError,
)
from webhook.kube.codec import encode
from webhook.quota.elastic.capacity import PodHealth, health_of
from webhook.quota.elastic.disruption_budgets import DisruptionBudget, read_budget

_NAME_ATTEMPTS: Final = 8


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a write."""

    kind: Kind
    namespace: str
    name: str
    subresource: str = ""


class Writer:
    """Writes to one cluster, through one admission chain if there is one."""

    def __init__(self, cluster: FakeCluster, admission: Admission | None) -> None:
        self._cluster = cluster
        self._admission = admission

    def create(self, sent: StoredObject, *, dry_run: bool) -> StoredObject:
        """Store a new object; see `ClusterApi.create`."""
        check_place(sent)
        if sent.meta.resource_version:
            raise BadRequestError("resourceVersion should not be set on objects to be created")
        self._cluster.check_namespace(sent.meta.namespace)
        target = Target(sent.kind, sent.meta.namespace, sent.meta.name)
        request = _request("CREATE", target, dry_run=dry_run)
        asked = self._mutate(request, without_system_metadata(sent))
        for _ in range(_NAME_ATTEMPTS if asked.meta.generate_name else 1):
            written = self._try_create(request, asked)
            if written is not None:
                return written
            if asked.meta.name:
                break
        raise AlreadyExistsError.of(sent.kind, asked.meta.name or asked.meta.generate_name)

    def _try_create(self, request: WriteRequest, asked: StoredObject) -> StoredObject | None:
        cluster = self._cluster
        prepared = prepare_create(self._filled(asked), cluster.store_context())
        self._validate(request, prepared)
        if not request.dry_run:
            return cluster.store.commit(prepared, over=None)
        meta = prepared.meta
        taken = cluster.store.get(prepared.kind, meta.namespace, meta.name) is not None
        return None if taken else prepared

    def _filled(self, asked: StoredObject) -> StoredObject:
        meta, name = asked.meta, asked.meta.name
        if not name and meta.generate_name:
            name = self._cluster.generate_name(meta.generate_name)
        return asked.with_meta(
            name=name,
            uid=self._cluster.new_uid(),
            creation_timestamp=self._cluster.now(),
            generation=0,
        )

    def rewrite(
        self, target: Target, change: Callable[[StoredObject], StoredObject], *, dry_run: bool
    ) -> StoredObject:
        """Store what `change` makes of an object; see `ClusterApi.update` and `patch`."""
        while True:
            old = self._cluster.get(target.kind, target.namespace, target.name)
            new = self._changed(target, old, change(old), dry_run=dry_run)
            if new.is_same(old):
                return old
            if dry_run:
                return StoredObject(new.kind, new.meta, new.parts, old.version)
            written = self._store(old, new)
            if written is not None:
                return written

    def _changed(
        self, target: Target, old: StoredObject, sent: StoredObject, *, dry_run: bool
    ) -> StoredObject:
        if (sent.meta.namespace, sent.meta.name) != (target.namespace, target.name):
            raise BadRequestError(
                f"the name of the object ({sent.meta.key}) does not match the name on the URL "
                f"({old.key})"
            )
        check_uid(old, sent.meta.uid)
        request = _request("UPDATE", target, dry_run=dry_run)
        asked = self._mutate(request, sent, old)
        check_version_named(target.kind, asked)
        if asked.meta.version not in (0, old.version):
            raise ConflictError.stale(target.kind, target.name)
        new = prepare_update(old, asked, target.subresource)
        self._validate(request, new, old)
        return new

    def _store(self, old: StoredObject, new: StoredObject) -> StoredObject | None:
        store = self._cluster.store
        return store.remove(new, over=old) if is_due(new) else store.commit(new, over=old)

    def delete(
        self, target: Target, only: Preconditions, grace: int | None, *, dry_run: bool
    ) -> StoredObject:
        """Remove an object, or mark it as being deleted; see `ClusterApi.delete`."""
        request = _request("DELETE", target, dry_run=dry_run, options=_delete_options(only, grace))
        while True:
            old = self._cluster.get(target.kind, target.namespace, target.name)
            check_preconditions(old, only)
            self._admit_deletion(request, old)
            step = next_step(old, grace, self._cluster.now())
            if dry_run or step.does_nothing:
                return step.write or old
            done = self._take(step, old)
            if done is not None:
                return self._finish(request, done) if step.goes_on else done

    def _take(self, step: DeletionStep, old: StoredObject) -> StoredObject | None:
        """Mark or remove an object; None if another write came first."""
        if step.write is None:
            return self._remove(old)
        return self._cluster.store.commit(step.write, over=old)

    def _finish(self, request: WriteRequest, marked: StoredObject) -> StoredObject:
        """Remove an object that was marked to go at once, unless another write is faster."""
        meta = marked.meta
        while True:
            old = self._cluster.store.get(marked.kind, meta.namespace, meta.name)
            if old is None or old.meta.uid != meta.uid:
                return marked
            self._admit_deletion(request, old)
            removed = self._remove(old)
            if removed is not None:
                return removed

    def _remove(self, old: StoredObject) -> StoredObject | None:
        removed = self._cluster.store.remove(old, over=old)
        if removed is not None and old.kind == NAMESPACES:
            self._empty_namespace(old.meta.name)
        return removed

    def _empty_namespace(self, namespace: str) -> None:
        """Do what the namespace controller of a real cluster does: remove what was inside."""
        store = self._cluster.store
        for kind in store.kinds():
            for stored in store.select(kind, namespace)[0] if kind.namespaced else ():
                store.remove(stored, over=stored)

    def evict(self, target: Target, uid: str, grace: int | None, *, dry_run: bool) -> None:
        """Delete a pod as far as PodDisruptionBudgets allow it; see `ClusterApi.evict`."""
        pod = self._cluster.get(PODS, target.namespace, target.name)
        check_preconditions(pod, Preconditions(uid))
        budgets = [*self._budgets_of(pod)]
        if len(budgets) > 1:
            raise InternalError(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource"
                " does not support."
            )
        is_ready = health_of(FieldReader(pod.decode())) is PodHealth.READY
        for stored, budget in budgets:
            if budget.spares_unready and not is_ready:
                continue
            if not budget.allowed:
                raise TooManyRequestsError(
                    "Cannot evict pod as it would violate the pod's disruption budget."
                )
            if not dry_run:
                self._use_disruption(stored, budget.allowed)
        self.delete(target, Preconditions(uid), grace, dry_run=dry_run)

    def _budgets_of(self, pod: StoredObject) -> Iterator[tuple[StoredObject, DisruptionBudget]]:
        raw = FieldReader(pod.decode())
        # only of pods that run something is lost
        if pod.meta.deletion_timestamp or raw.child("status").text("phase") != "Running":
            return
        labels = raw.child("metadata").string_map("labels")
        for stored in self._cluster.store.select(POD_DISRUPTION_BUDGETS, pod.meta.namespace)[0]:
            budget = read_budget(stored.decode())
            if budget is not None and budget.selector.matches(labels):
                yield stored, budget

    def _use_disruption(self, budget: StoredObject, allowed: int) -> None:
        status = budget.decode().get("status")
        assert isinstance(status, dict)  # noqa: S101 - it says how many are allowed
        left = encode({**status, "disruptionsAllowed": allowed - 1})
        self._cluster.store.commit(budget.with_parts(status=left), over=budget)

    def bind(self, sent: StoredObject, *, legacy: bool, dry_run: bool) -> None:
        """Assign a pod to a node; see `ClusterApi.bind`. `legacy`: by way of `bindings`."""
        check_place(sent)
        target = Target(PODS, sent.meta.namespace, sent.meta.name, "binding")
        if legacy:
            sent = without_system_metadata(sent)
            target = Target(BINDINGS, sent.meta.namespace, sent.meta.name)
        request = _request("CREATE", target, kind=BINDINGS, dry_run=dry_run)
        binding = self._mutate(request, sent)
        node = node_name(binding)
        self._validate(request, binding)
        while True:
            pod = self._cluster.get(PODS, binding.meta.namespace, binding.meta.name)
            check_binding(pod, binding)
            bound = pod_strategy.assign(pod, binding, node, self._cluster.now())
            if dry_run or self._cluster.store.commit(bound, over=pod) is not None:
                return

    def _mutate(
        self, request: WriteRequest, sent: StoredObject, old: StoredObject | None = None
    ) -> StoredObject:
        if self._admission is None:
            return sent
        carried = _carrying(request, sent, old)
        changed = self._admission.mutate(carried)
        if changed is None:
            raise BadRequestError("admission took the object away")
        asked = read_object(sent.kind, changed)
        if asked.meta.namespace != sent.meta.namespace:
            raise BadRequestError(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        return asked

    def _validate(
        self, request: WriteRequest, new: StoredObject, old: StoredObject | None = None
    ) -> None:
        if self._admission is not None:
            self._admission.validate(_carrying(request, new, old))

    def _admit_deletion(self, request: WriteRequest, old: StoredObject) -> None:
        if self._admission is not None:
            self._admission.mutate(_carrying(request, None, old))
            self._admission.validate(_carrying(request, None, old))


def _request(
    operation: Operation,
    target: Target,
    *,
    dry_run: bool,
    kind: Kind | None = None,
    options: Mapping[str, object] | None = None,
) -> WriteRequest:
    all_options: dict[str, object] = {
        "kind": f"{operation.capitalize()}Options",
        "apiVersion": "meta.k8s.io/v1",
        **(options or {}),
    }
    if dry_run:
        all_options["dryRun"] = ["All"]
    return WriteRequest(
        operation=operation,
        kind=kind or target.kind,
        resource=target.kind,
        subresource=target.subresource,
        namespace=target.namespace,
        name=target.name,
        new=None,
        old=None,
        dry_run=dry_run,
        options=all_options,
    )


def _carrying(
    request: WriteRequest, new: StoredObject | None, old: StoredObject | None
) -> WriteRequest:
    return replace(
        request,
        name=new.meta.name if new is not None else request.name,
        new=None if new is None else new.decode(),
        old=None if old is None else old.decode(),
    )


def _delete_options(only: Preconditions, grace: int | None) -> dict[str, object]:
    options: dict[str, object] = {} if grace is None else {"gracePeriodSeconds": grace}
    preconditions: dict[str, object] = {"uid": only.uid} if only.uid else {}
    if only.resource_version is not None:
        preconditions["resourceVersion"] = str(only.resource_version)
    return {**options, **({"preconditions": preconditions} if preconditions else {})}
