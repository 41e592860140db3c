"""Plan of opting a namespace in: what changes, with numbers, and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.operations.counting import scope_fault, taken_at_bind
from webhook.operations.findings import Finding, Subject, error, information, warning
from webhook.operations.reading import Inhabitants
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import exceeding, mask, render
from webhook.quota.charging.constraints import missing_resources, obliging_keys
from webhook.quota.charging.deferral import DeferredQuota, NamespaceQuotas, is_excluded
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.charging.scopes import matches
from webhook.quota.charging.status_mask import native_count
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.quota_bounds import undecided_by

NOTHING: Final = "enable.nothing"
"""The finding that no quota of a namespace will change."""

_OTHER_GATES: Final = {
    "kueue.x-k8s.io/": "Kueue",
    "ApplicationAwareQuotaGate": "Application Aware Quota",
}
_OTHER_LABELS: Final = {
    "kueue.x-k8s.io/": "Kueue",
    "application-aware-quota/": "Application Aware Quota",
}
"""Beginnings of scheduling gates and labels → the other manager that decides there when a pod may
run."""


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """One deferred resource of a quota."""

    key: str
    hard: Quantity
    used_now: Quantity
    """What the API server charges now: all pods, waiting ones too."""
    used_then: Quantity
    """What is charged at the bind: pods that have a node."""

    @property
    def freed(self) -> Quantity:
        """What pods that wait hold now and will not hold then."""
        return max(self.used_now - self.used_then, ZERO)


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """One quota: what of it will be deferred, what stays with the API server."""

    name: str
    deferred: tuple[KeyPlan, ...]
    stays: tuple[str, ...]
    is_excluded: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes by opting a namespace in."""

    namespace: str
    is_opted_in: bool
    quotas: tuple[QuotaPlan, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What speaks against it."""
    is_shadow: bool = False


def quota_plans(there: Inhabitants, deferred: NamespaceQuotas) -> tuple[QuotaPlan, ...]:
    """Return what will be deferred of each quota; nothing of one that cannot be evaluated."""
    chosen = {each.name: each for each in deferred.quotas}
    return tuple(_quota_plan(quota, chosen.get(quota.name), there) for quota in there.quotas)


def _quota_plan(
    quota: ResourceQuota, deferred: DeferredQuota | None, there: Inhabitants
) -> QuotaPlan:
    excluded = is_excluded(quota)
    if deferred is None or scope_fault(quota):
        return QuotaPlan(quota.name, (), tuple(sorted(quota.hard)), excluded)
    now = native_count(quota, there.pods, now=there.now)
    then = taken_at_bind(deferred, there.pods, now=there.now).most
    plans = tuple(
        KeyPlan(key, deferred.hard[key], quota.status_used.get(key, now[key]), then[key])
        for key in sorted(deferred.hard)
    )
    stays = tuple(sorted(quota.hard.keys() - deferred.hard.keys()))
    return QuotaPlan(quota.name, plans, stays, excluded)


def objections(
    namespace: str,
    labels: Mapping[str, str],
    there: Inhabitants,
    deferred: NamespaceQuotas,
    *,
    must_specify: bool,
) -> Iterator[Finding]:
    """Return what speaks against opting in, in the namespace itself.

    Args:
        there: What it holds.
        deferred: Those of its quotas that will be deferred.
        must_specify: Whether a bind is refused when containers do not name what a quota limits.
    """
    subject = Subject("Namespace", namespace)
    for words in there.unreadable:
        message = f"{words}: its usage cannot be counted"
        yield error("enable.unreadable", subject, message, "Correct the field.")
    chosen = deferred.quotas
    for name, reason in undecided_by(there.quotas).items():
        yield error(
            "enable.bounds",
            Subject("ResourceQuota", name, namespace) if name else subject,
            f"every bind would be refused: {reason}",
            "Make the quota smaller." if name else "Delete some of them.",
        )
    for quota in there.quotas:
        about = Subject("ResourceQuota", quota.name, namespace)
        fault = scope_fault(quota)
        if is_excluded(quota):
            yield information("enable.excluded", about, "is excluded: all of it stays as it is")
        elif fault:
            message = f"its scopes cannot be evaluated, so every bind would be refused: {fault}"
            yield error("enable.scopes", about, message, "Correct spec.scopeSelector.")
    usable = [each for each in chosen if not scope_fault(each.quota)]
    if not chosen:
        message = "no quota of it limits a resource that is deferred: nothing changes"
        yield information(NOTHING, subject, message)
    yield from _exceeded(namespace, usable, there)
    if must_specify:
        yield from _unspecified(namespace, usable, there.pods)
    yield from _other_managers(subject, labels, there.pods)


def _exceeded(namespace: str, quotas: list[DeferredQuota], there: Inhabitants) -> Iterator[Finding]:
    for quota in quotas:
        taken = taken_at_bind(quota, there.pods, now=there.now).most
        above = exceeding(taken, quota.hard)
        if above:
            yield warning(
                "enable.exceeded",
                Subject("ResourceQuota", quota.name, namespace),
                f"pods that have a node take {render(mask(taken, above))}, and its limit is"
                f" {render(mask(quota.hard, above))}: no pod is evicted, and none is bound until"
                " enough of them have ended",
                "Raise the limit, or end some of them.",
            )


def _unspecified(
    namespace: str, quotas: list[DeferredQuota], pods: tuple[Pod, ...]
) -> Iterator[Finding]:
    for quota in quotas:
        found = [
            pod
            for pod in pods
            if not is_terminal(pod)
            and matches(quota.quota, pod)
            and missing_resources(pod, obliging_keys(quota.name, quota.hard))
        ]
        waiting = [pod for pod in found if not pod.is_assigned]
        if found:
            yield warning(
                "enable.must-specify",
                Subject("ResourceQuota", quota.name, namespace),
                f"pods that do not name what it limits: {len(found)}; {len(waiting)} of them wait"
                " and will be refused at their bind",
                "Let their containers name requests and limits, give the namespace a LimitRange,"
                " or set mustSpecify: off.",
                tuple(sorted(pod.name for pod in found)),
            )


def _other_managers(
    subject: Subject, labels: Mapping[str, str], pods: tuple[Pod, ...]
) -> Iterator[Finding]:
    """Name other managers that decide when the pods of a namespace may run."""
    found: dict[str, list[str]] = {}
    for manager in _named(labels, _OTHER_LABELS):
        found.setdefault(manager, [])
    for pod in pods:
        names = {
            *_named(pod.scheduling_gates, _OTHER_GATES),
            *_named(pod.labels, _OTHER_LABELS),
        }
        for manager in names:
            found.setdefault(manager, []).append(pod.name)
    for manager, names_of_pods in sorted(found.items()):
        where = "pods" if names_of_pods else "the namespace"
        yield warning(
            "enable.other-manager",
            subject,
            f"{manager} manages {where} here: a pod then has to fit both its quota and this one",
            "Let only one of them limit compute resources.",
            tuple(sorted(names_of_pods)),
        )


def manager_of_gate(name: str) -> str:
    """Return the manager of quota that puts a scheduling gate on pods; empty if none is known."""
    return next(iter(_named([name], _OTHER_GATES)), "")


def _named(names: Iterable[str], known: Mapping[str, str]) -> set[str]:
    return {
        manager
        for name in names
        for beginning, manager in known.items()
        if name.startswith(beginning)
    }
