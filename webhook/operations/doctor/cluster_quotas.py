"""Whether quotas that namespaces share limit any, and whether what is granted adds up.

Ledgers and grants change all the time. A quota is read before and after the ledgers of its
namespaces, and only if it stayed the same are they compared; what is found then has to be so, with
the same numbers, at a second look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    PODS,
    NotFoundError,
    Object,
)
from webhook.kube.kinds import DEVICE_CLASSES
from webhook.operations.cluster_quotas import SharedQuota, concerning, read_shared
from webhook.operations.counting import scope_fault
from webhook.operations.doctor.check_context import (
    CONTROLLER_LOG,
    CheckContext,
    Namespace,
    Settings,
)
from webhook.operations.doctor.errors import NotInSnapshotError
from webhook.operations.findings import Finding, Subject, error, subject_of, warning
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, add, exceeding, mask, render
from webhook.quota.charging.deferral import limits_of, observed_as
from webhook.quota.charging.gpu_memory import gpu_memory_keys, is_gpu_profile
from webhook.quota.elastic.elastic_status import CHARGED
from webhook.quota.ledger.ledger import Account
from webhook.quota.shared.cluster_quotas import ClusterQuota
from webhook.quota.shared.grants import Promise
from webhook.state.ledger_store import read_ledger

_ATTEMPTS: Final = 3
_NOT_BOUND: Final = "no pod that it concerns can be bound"

_Found: TypeAlias = dict[tuple[str, ...], Finding]
"""What is wrong, by what has to be the same at the next look."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A quota at one moment: the quota, and its account in the ledger of each namespace."""

    quota: SharedQuota
    accounts: dict[str, Account | None]
    idle: tuple[Promise, ...]
    """Promises to pods that do not wait."""


def cluster_quotas(scene: CheckContext) -> Iterator[Finding]:
    """Judge every quota that namespaces share."""
    suspects: list[tuple[str, _Found]] = []
    every = scene.every_namespace()
    for one, raw in scene.cluster_quotas():
        yield from _spec(scene, one, every)
        if not isinstance(one.spec, ClusterQuota) or scope_fault(one.spec.quota):
            continue
        found = _judged(scene.settings, every, _look(scene, one, raw))
        if found:
            suspects.append((one.spec.name, found))
    yield from _suspected(scene, every, suspects)
    yield from _elastic_quotas(scene)


def _suspected(
    scene: CheckContext, every: list[Namespace], suspects: list[tuple[str, _Found]]
) -> Iterator[Finding]:
    """Look a second time at what was found."""
    if not suspects:
        return
    scene.pause()
    again = {one.spec.name: (one, raw) for one, raw in scene.cluster_quotas(again=True)}
    for name, before in suspects:
        if name in again:
            after = _judged(scene.settings, every, _look(scene, *again[name]))
            yield from (finding for key, finding in after.items() if key in before)


# -- what the owner wrote ------------------------------------------------------------------


def _spec(scene: CheckContext, one: SharedQuota, every: list[Namespace]) -> Iterator[Finding]:
    selected = [each for each in every if concerning([one], each.name, each.labels)]
    inside = [each.name for each in selected if each.is_deferred]
    if not isinstance(one.spec, ClusterQuota):
        message = f"cannot be read: {one.spec.fault}: {_NOT_BOUND}"
        yield error("cdq.unreadable", one.subject, message, "Correct it.", tuple(inside))
        return
    fault = scope_fault(one.spec.quota)
    if fault:
        message = f"its scopes cannot be evaluated: {fault}: {_NOT_BOUND}"
        remedy = "Correct spec.scopes or spec.scopeSelector."
        yield error("cdq.scopes", one.subject, message, remedy, tuple(inside))
    quota = one.spec.quota
    idle = sorted(quota.hard.keys() - limits_of(quota, scene.settings.deferred_keys).keys())
    if idle:
        yield warning(
            "cdq.not-deferred",
            one.subject,
            f"limits {', '.join(idle)}, which the configuration does not defer: nothing charges it",
            "Name it in deferredResources, or limit it by ResourceQuotas.",
        )
    yield from _claimed(scene, one.subject, quota.hard)
    yield from _selection(one, selected)


def _claimed(scene: CheckContext, quota: Subject, hard: ResourceList) -> Iterator[Finding]:
    """Name devices that a quota limits and that are to be had by ResourceClaims, uncharged.

    The policy about DeviceClasses knows what the configuration defers, and no cluster quota.
    """
    limited = hard.keys() - scene.settings.deferred_keys
    has_gpu_memory = bool(gpu_memory_keys(limited))
    for subject, resource in _device_resources(scene):
        key = f"requests.{resource}"
        if key in scene.settings.deferred_keys or not (
            key in limited or (has_gpu_memory and is_gpu_profile(resource))
        ):
            continue
        yield warning(
            "cdq.claims",
            quota,
            f"limits devices of the {subject} as {resource}, and ResourceClaims of that class,"
            " which its tenants may make, are charged to no cluster quota",
            f"Name {key} in deferredResources, and run scripts/install: a policy then refuses such"
            " claims.",
        )


def _device_resources(scene: CheckContext) -> Iterator[tuple[Subject, str]]:
    """Yield the DeviceClasses whose devices are an extended resource, and that."""
    for raw in scene.device_classes.objects:
        resource = FieldReader(raw).child("spec").text("extendedResourceName")
        if resource:
            yield subject_of(DEVICE_CLASSES, raw), resource


def _selection(one: SharedQuota, selected: list[Namespace]) -> Iterator[Finding]:
    outside = [each for each in selected if not (each.is_deferred or each.is_exempt)]
    if not selected:
        yield warning(
            "cdq.selects-nothing",
            one.subject,
            "spec.namespaceSelector: no namespace matches, so it limits nothing",
            "Correct it, or label the namespaces.",
        )
    elif outside:
        names = tuple(sorted(each.name for each in outside))
        yield warning(
            "cdq.not-opted-in",
            one.subject,
            f"{len(outside)} of {len(selected)} namespaces that match have not opted in: their pods"
            " are not charged",
            "Run: deferred-quota enable NAMESPACE, or let spec.namespaceSelector leave them out.",
            names,
        )


# -- what is granted -----------------------------------------------------------------------


def _look(scene: CheckContext, one: SharedQuota, raw: Object) -> _Look | None:
    """Read the ledgers while the quota stays the same; None if it does not."""
    for _ in range(_ATTEMPTS):
        accounts = dict(scene.ledgers(one.grants.namespaces, partial(_account, one)))
        after = scene.find(CLUSTER_DEFERRED_QUOTAS, one.spec.name)
        if after is None:
            return None  # it is gone
        if _version(after) == _version(raw):
            return _Look(one, accounts, tuple(_idle_promises(scene, one)))
        one, raw = read_shared(after), after
    return None


def _idle_promises(scene: CheckContext, one: SharedQuota) -> Iterator[Promise]:
    for promise in one.grants.promises.values():
        try:
            raw = scene.find(PODS, promise.pod, namespace=promise.namespace)
        except NotInSnapshotError:
            return
        pod = FieldReader(raw or {})
        is_same = pod.child("metadata").text("uid") == promise.uid
        if not is_same or pod.child("spec").text("nodeName"):
            yield promise


def _account(one: SharedQuota, raw: Object) -> Account | None:
    if not isinstance(one.spec, ClusterQuota):
        return None
    try:
        ledger = read_ledger(raw).ledger
    except InvalidFieldError:
        return None  # the check of ledgers says so
    return None if ledger is None else ledger.accounts.get(one.spec.quota.name)


def _version(raw: Object) -> str:
    return FieldReader(raw).child("metadata").text("resourceVersion")


def _judged(settings: Settings, every: list[Namespace], look: _Look | None) -> _Found:
    if look is None or not isinstance(look.quota.spec, ClusterQuota):
        return {}
    one, spec = look.quota, look.quota.spec
    if one.fault:
        message = f"its status cannot be read: {one.fault}: {_NOT_BOUND}"
        return {("status",): error("cdq.unreadable", one.subject, message, CONTROLLER_LOG)}
    hard = limits_of(spec.quota, settings.deferred_keys)
    if not hard:
        return {}
    sharing = {
        each.name
        for each in every
        if each.is_deferred and concerning([one], each.name, each.labels)
    }
    wanted = observed_as(spec.quota, hard, holds_terminating=settings.holds_terminating)
    is_counted = one.grants.observed == wanted
    found = {**_members(one, sharing, is_counted=is_counted), **_sum(one, hard)}
    for promise in look.idle:
        message = (
            f"{render(promise.amounts)} is held for pod {promise.namespace}/{promise.pod}, which"
            " does not wait for it"
        )
        found["promise", promise.uid] = warning(
            "cdq.idle-promise", one.subject, message, CONTROLLER_LOG
        )
    for name, account in look.accounts.items():
        if name in sharing:
            found.update(_against_ledger(one, name, hard, account))
    return found


def _members(one: SharedQuota, sharing: set[str], *, is_counted: bool) -> _Found:
    found: _Found = {}
    if not is_counted and sharing:
        message = f"usage is not counted for its present spec: {_NOT_BOUND}"
        found["uncounted",] = error("cdq.uncounted", one.subject, message, CONTROLLER_LOG)
    missing = tuple(sorted(sharing - one.grants.namespaces.keys()))
    if is_counted and missing:
        message = f"does not count {', '.join(missing)} yet: {_NOT_BOUND} there"
        found["missing", *missing] = error("cdq.uncounted", one.subject, message, CONTROLLER_LOG)
    for name in sorted(one.grants.namespaces.keys() - sharing):
        message = f"counts {name}, which does not share it (any more): {_held(one, name)} is held"
        found["left", name] = warning("cdq.left", one.subject, message, CONTROLLER_LOG)
    return found


def _held(one: SharedQuota, name: str) -> str:
    return render(one.grants.namespaces[name]) or "nothing"


def _sum(one: SharedQuota, hard: ResourceList) -> _Found:
    grants = one.grants.without_headroom  # a bind that lacks it has it recalled
    above = exceeding(grants.total, hard)
    if not above:
        return {}
    shares = [
        f"{name}: {render(mask(held, above))}" for name, held in sorted(grants.namespaces.items())
    ]
    finding = warning(
        "cdq.exceeded",
        one.subject,
        f"its namespaces hold {render(mask(grants.total, above))}, and its limit is"
        f" {render(mask(hard, above))}: it was lowered, or a namespace brought pods that ran"
        " already; no pod is evicted, and none is bound until enough of them have ended",
        "Raise the limit, or end some of them.",
        tuple(shares),
    )
    return {("exceeded",): finding}


def _against_ledger(
    one: SharedQuota, name: str, hard: ResourceList, account: Account | None
) -> _Found:
    """Compare what a namespace holds with what its ledger says."""
    held = _of(one.grants.namespaces[name], hard)
    granted = _of({} if account is None else account.granted, hard)
    taken = _of({} if account is None else add(account.used, account.reserved), hard)
    found: _Found = {}
    lacking = exceeding(granted, held) or exceeding(taken, granted)
    if lacking:
        key = "under", name, render(held), render(granted), render(taken)
        found[key] = error(
            "cdq.under-granted",
            one.subject,
            f"{name} holds {render(mask(held, lacking))}, its ledger says that"
            f" {render(mask(granted, lacking))} is held and {render(mask(taken, lacking))} is"
            " taken: the others can be granted too much",
            "Was the status edited? " + CONTROLLER_LOG,
        )
    idle = exceeding(_of(one.grants.in_use[name], hard), taken)
    if idle:
        key = "over", name, render(held), render(granted), render(taken)
        found[key] = warning(
            "cdq.over-granted",
            one.subject,
            f"{name} holds {render(mask(held, idle))}, its ledger says that"
            f" {render(mask(taken, idle))} is taken: the rest is kept from the others",
            CONTROLLER_LOG,
        )
    return found


def _of(amounts: ResourceList, hard: ResourceList) -> ResourceList:
    """Return the amount of every resource that is limited."""
    return {key: amounts.get(key, ZERO) for key in hard}


# -- elastic quotas ------------------------------------------------------------------------


def _elastic_quotas(scene: CheckContext) -> Iterator[Finding]:
    """Name the elastic quotas that binds are not charged by, as their condition says it."""
    for kind in (ELASTIC_QUOTAS, COMPOSITE_ELASTIC_QUOTAS):
        try:
            raws = scene.objects(kind)
        except (NotFoundError, NotInSnapshotError):
            continue  # the kind is not installed
        yield from scene.judged(kind, raws, _charged)


def _charged(node: FieldReader, subject: Subject) -> Iterator[Finding]:
    conditions = node.child("status").children("conditions")
    said = next((one for one in conditions if one.text("type") == CHARGED), None)
    if said is None:
        message = "no controller has looked at it yet: binds are not charged by it"
        yield warning("elastic.not-charged", subject, message, CONTROLLER_LOG)
    elif said.text("status") != "True":
        message = f"binds are not charged by it: {said.text('message') or said.text('reason')}"
        yield warning("elastic.not-charged", subject, message, "Do what the message says.")
