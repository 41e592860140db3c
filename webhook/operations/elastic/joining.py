"""Consequences of opting in for the elastic quota of a namespace, which charges its pods then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import (
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    ClusterApi,
    ForbiddenError,
    ListOptions,
    NotFoundError,
)
from webhook.operations.findings import Finding, Subject, information, warning
from webhook.quota.amounts.resources import exceeding, mask, render, total_of
from webhook.quota.charging.gpu_memory import GPU_MEMORY
from webhook.quota.charging.pod_usage import charged_to, is_terminal
from webhook.quota.elastic.elastic_quotas import (
    ElasticQuota,
    charge,
    conflicts,
    read_stored_quota,
)
from webhook.quota.objects.model import Pod


def elastic_findings(
    api: ClusterApi, namespace: str, pods: Iterable[Pod], *, is_shadow: bool = False
) -> Iterator[Finding]:
    """Yield what is to be said of the elastic quotas that name a namespace.

    Nothing where they are not installed, and where they may not be read: they are no obstacle.

    Args:
        pods: The pods of the namespace.
        is_shadow: It only goes into shadow mode, in which they are not charged.

    Raises:
        ApiError: The API server does not answer.
    """
    quotas = [one for one in _quotas(api, namespace) if namespace in one.namespaces]
    faults = conflicts(quotas)
    for quota in quotas:
        subject = Subject(quota.kind, quota.name, quota.namespace)
        if quota.key in faults:
            message = f"does not count: {faults[quota.key]}"
            yield warning("enable.elastic", subject, message, "Do what the message says.")
        elif not is_shadow:
            yield _charging(quota, subject, pods)


def _quotas(api: ClusterApi, namespace: str) -> Iterator[ElasticQuota]:
    for kind, where in ((ELASTIC_QUOTAS, namespace), (COMPOSITE_ELASTIC_QUOTAS, None)):
        try:
            raws = api.list(kind, ListOptions(namespace=where)).items
        except (NotFoundError, ForbiddenError):
            continue
        for raw in raws:
            try:
                yield read_stored_quota({**raw, "kind": kind.kind})
            except InvalidFieldError:
                continue  # doctor and its condition say so


def _charging(quota: ElasticQuota, subject: Subject, pods: Iterable[Pod]) -> Finding:
    names = quota.names - {GPU_MEMORY}  # what a GPU has is said in the configuration
    taken = total_of(
        charge(charged_to(pod), names) for pod in pods if pod.is_assigned and not is_terminal(pod)
    )
    limits = [
        f"{name} {render(amounts)}"
        for name, amounts in (("min", quota.min), ("max", quota.max))
        if amounts
    ]
    message = (
        f"charges its pods from then on: {', '.join((*limits, f'pool {quota.pool}'))}; those that"
        f" have a node take {render(taken) or 'nothing'}"
    )
    above = exceeding(taken, quota.max)
    if not above:
        return information("enable.elastic", subject, message)
    return warning(
        "enable.elastic",
        subject,
        f"{message}, which is above max: no pod is evicted, and none is bound until"
        f" {render(mask(quota.max, above))} is enough for them",
        "Raise spec.max, or end some of them.",
    )
