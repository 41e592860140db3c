"""Leader that runs outside of the cluster, and would undo an uninstallation."""

from __future__ import annotations

from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    LEASES,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    ClusterApi,
    ForbiddenError,
    ListOptions,
    find_object,
)
from webhook.kube.metadata import object_name
from webhook.operations.leader import Holding, changed, holding_of
from webhook.operations.names import OPTED_IN
from webhook.operations.reading import parted, read_quota
from webhook.operations.retry import RetryPolicy, RetryTimer
from webhook.quota.charging.deferral import is_excluded
from webhook.quota.charging.status_mask import incomplete_keys
from webhook.quota.objects.model import ResourceQuota
from webhook.state.well_known import LEADER_LEASE

CONTROLLER_PODS: Final = (
    "app.kubernetes.io/name=deferred-quota,app.kubernetes.io/component=controller"
)
"""Which pods of the system namespace are controllers."""
_LONGEST_SECONDS: Final = 20.0
"""How long a Lease is looked at, whatever it says of itself."""


def leader_in_the_way(
    api: ClusterApi, namespace: str, patience: RetryPolicy
) -> tuple[str, tuple[str, ...]] | None:
    """Return the leader outside of the cluster, and where it would hide again what is completed.

    None where there is none, where that may not be looked at, and where nothing is hidden: what
    comes next finds out by itself.

    Raises:
        ApiError: The API server does not answer.
    """
    wait = patience.begin()
    try:
        hidden = _hidden(api, wait)
        leader = _outside(api, namespace, patience, wait) if hidden else ""
    except (ForbiddenError, InvalidFieldError):
        return None
    return (leader, hidden) if leader else None


def _hidden(api: ClusterApi, wait: RetryTimer) -> tuple[str, ...]:
    """Return the namespaces that are opted in and have quotas of which something is hidden."""
    found = wait.retry(lambda: api.list(NAMESPACES, OPTED_IN)).items
    opted_in = {object_name(raw) for raw in found}
    raws = wait.retry(lambda: api.list(RESOURCE_QUOTAS)).items if opted_in else ()
    quotas, _ = parted(map(read_quota, raws), ResourceQuota)
    masked = {each.namespace for each in quotas if incomplete_keys(each) and not is_excluded(each)}
    return tuple(sorted(opted_in & masked))


def _outside(api: ClusterApi, namespace: str, patience: RetryPolicy, wait: RetryTimer) -> str:
    """Return the holder that renews the Lease and is no pod of the cluster; else empty."""

    def look() -> Holding | None:
        lease = wait.retry(lambda: find_object(api, LEASES, LEADER_LEASE, namespace=namespace))
        return None if lease is None else holding_of(FieldReader(lease))

    found = look()
    if found is None or not found.holder or _is_pod(api, namespace, found, wait):
        return ""
    seconds = min(float(found.seconds), _LONGEST_SECONDS)
    later = changed(look, found, seconds, clock=patience.clock, sleep=patience.rest)
    if later is None or _is_pod(api, namespace, later, wait):
        return ""
    return later.holder


def _is_pod(api: ClusterApi, namespace: str, holding: Holding, wait: RetryTimer) -> bool:
    def pods() -> set[str]:
        found = api.list(
            PODS, ListOptions(namespace=namespace, label_selector=CONTROLLER_PODS)
        ).items
        return {object_name(raw) for raw in found}

    return holding.host in wait.retry(pods)
