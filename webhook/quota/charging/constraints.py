"""Compute amounts that every container has to state because a quota counts them.

A quota over cpu or memory makes those amounts obligatory in each container, init
containers and sidecars included; zero is a statement, absence is not. Other keys never
oblige, nor do ephemeral containers or overhead. A pod that states any amount at pod level
is excused from all of it, even from the resources it does not name there.

Source: kubernetes v1.36, pkg/quota/v1/evaluator/core/pods.go Constraints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.quota.charging.pod_requests import is_pod_level_resource
from webhook.quota.objects.names import DERIVED_PREFIXES, SHARED_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from webhook.quota.charging.deferral import DeferredQuota
    from webhook.quota.objects.model import Pod

KEYS_OF_REQUESTS: Final[Mapping[str, str]] = {
    "cpu": "cpu",
    "memory": "memory",
    "requests.cpu": "cpu",
    "requests.memory": "memory",
}
"""Quota key → the resource that every container then has to request."""
KEYS_OF_LIMITS: Final[Mapping[str, str]] = {"limits.cpu": "cpu", "limits.memory": "memory"}
"""Quota key → the resource that every container then has to limit."""
_NAMES: Final = {**KEYS_OF_REQUESTS, **KEYS_OF_LIMITS}

MUST_SPECIFY_KEYS: Final = frozenset(_NAMES)
"""The only quota keys that oblige a container to state an amount."""

_ELASTIC: Final = tuple(f"{SHARED_PREFIX}{one}" for one in DERIVED_PREFIXES)
_NOTHING: Final[Mapping[str, tuple[str, ...]]] = {}


def missing_resources(pod: Pod, required: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Name the required keys that some container does not state.

    Args:
        pod: The pod as the API server would check it, with limits already copied to requests.
        required: Quota keys, as in `spec.hard`; keys that oblige no container are passed over.

    Returns:
        Key → names of the containers without it, keys and names sorted, each name once.
        Empty when nothing is missing.
    """
    obliged = MUST_SPECIFY_KEYS.intersection(required)
    if not obliged or states_pod_level(pod):
        return _NOTHING
    missing: dict[str, set[str]] = {}
    for container in (*pod.containers, *pod.init_containers):
        for key in obliged:
            stated = container.limits if key in KEYS_OF_LIMITS else container.requests
            if _NAMES[key] not in stated:
                missing.setdefault(key, set()).add(container.name)
    return {key: tuple(sorted(missing[key])) for key in sorted(missing)}


def unstated(
    pod: Pod, quotas: Sequence[DeferredQuota]
) -> Iterator[tuple[DeferredQuota, Mapping[str, tuple[str, ...]]]]:
    """Yield the quotas that limit what some container does not state, and that, by key.

    The containers are gone through once, not for each quota: a pod may have thousands.
    """
    keys = [frozenset(obliging_keys(quota.name, quota.hard)) for quota in quotas]
    missing = missing_resources(pod, frozenset().union(*keys))
    for quota, limited in zip(quotas, keys, strict=True):
        found = {key: names for key, names in missing.items() if key in limited}
        if found:
            yield quota, found


def states_pod_level(pod: Pod) -> bool:
    """Return whether the pod itself, and not only its containers, states cpu, memory or huge pages.

    Source: kubernetes v1.36, component-helpers/resource/helpers.go IsPodLevelResourcesSet.
    """
    if pod.resources is None:
        return False
    stated = (*pod.resources.requests, *pod.resources.limits)
    return any(is_pod_level_resource(name) for name in stated)


def obliging_keys(quota: str, hard: Iterable[str]) -> Iterable[str]:
    """Return the keys of a quota that oblige a container to state an amount, at most.

    One by which elastic quotas are charged obliges none: what a container does not request takes
    nothing of them, as in nos and in the scheduler's plugins.

    Args:
        quota: Its name, as ledgers have it.
        hard: What it limits.
    """
    return () if quota.startswith(_ELASTIC) else hard


def constraint_text(missing: Mapping[str, tuple[str, ...]]) -> str:
    """Return in the API server's words what is missing; empty when nothing is."""
    if not missing:
        return ""
    return "must specify " + "; ".join(
        f"{key} for: {','.join(missing[key])}" for key in sorted(missing)
    )
