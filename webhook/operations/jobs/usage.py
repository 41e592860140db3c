"""Usage of the pods of a Job by metrics.k8s.io: one sample for each container of each pod.

The API keeps no history: its sample is the usage of some seconds. A percentile of it is one over
the pods of the Job as they are now, and not one over time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.kube.api import (
    JOBS,
    PODS,
    ApiError,
    ClusterApi,
    Kind,
    ListOptions,
    NotFoundError,
    Object,
    UnavailableError,
)
from webhook.operations.parallel_calls import in_parallel
from webhook.operations.reading import read_all
from webhook.quota.amounts.quantity import Format, Quantity
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.jobs.resize_plan import DesiredResources

POD_METRICS: Final = Kind("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", has_status=False)
_WORKERS: Final = 8
_NANO_PER_MILLI: Final = 10**6
_BYTES_PER_MI: Final = 2**20
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class NoUsageError(Exception):
    """There is nothing to go by; the text says why."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of the pods of a Job now."""

    pods: int
    """How many pods the Job has that have not ended."""
    sampled: int
    """Of how many of them there is a sample."""
    containers: Mapping[str, Sequence[ResourceList]]
    """Name of a container → its usage of cpu and memory, one for each pod."""


def usage_of_job(api: ClusterApi, namespace: str, name: str) -> Usage:
    """Read what the pods of a Job use.

    Raises:
        NoUsageError: There is no metrics.k8s.io, or it has no sample of a pod of the Job.
        InvalidFieldError: An object cannot be read.
        ApiError: The API server, or what serves metrics.k8s.io, does not answer.
    """
    title = f"job {namespace}/{name}"
    uid = ResourceReader(api.get(JOBS, name, namespace=namespace)).child("metadata").text("uid")
    found = read_all(api, PODS, lambda raw: _name_if_of(raw, uid), ListOptions(namespace))
    pods = [each for each in found if each]
    if not pods:
        raise NoUsageError(f"{title}: has no pods that run, so nothing is known of their usage")
    samples = in_parallel(
        lambda pod: _sample(api, namespace, pod), pods, workers=_WORKERS, name="usage"
    )
    containers: dict[str, list[ResourceList]] = {}
    for sample in samples:
        for container, usage in (sample or {}).items():
            containers.setdefault(container, []).append(usage)
    if not containers:
        raise NoUsageError(f"{title}: metrics.k8s.io has no sample of its pods yet")
    return Usage(len(pods), sum(sample is not None for sample in samples), containers)


def wanted_by_usage(usage: Usage, percent: int) -> dict[str, DesiredResources]:
    """Return the requests that a percentile of the usage stands for, by container.

    Cpu is rounded up to 1m, memory to 1Mi; nothing is rounded to zero.
    """
    return {
        container: DesiredResources(
            {
                "cpu": _whole(_of(samples, "cpu", percent), _NANO_PER_MILLI, Format.SI),
                "memory": _whole(
                    _of(samples, "memory", percent), _BYTES_PER_MI * 10**9, Format.BIN
                ),
            },
            {},
        )
        for container, samples in usage.containers.items()
    }


def percentile(samples: Sequence[Quantity], percent: int) -> Quantity:
    """Return the smallest sample that at least `percent` of 100 samples do not exceed.

    Args:
        samples: At least one.
        percent: 1 to 100; 100 is the largest sample.
    """
    rank = -(-len(samples) * percent // 100)
    return sorted(samples)[max(rank, 1) - 1]


def _of(samples: Sequence[ResourceList], name: str, percent: int) -> Quantity:
    return percentile([sample.get(name, Quantity(0)) for sample in samples], percent)


def _whole(amount: Quantity, nano_per_unit: int, style: Format) -> Quantity:
    units = max(-(-amount.nano // nano_per_unit), 1)
    return Quantity.of_nano(units * nano_per_unit, style)


def _name_if_of(raw: Object, uid: str) -> str:
    """Return the name of a pod of this Job that has not ended; else nothing."""
    pod = ResourceReader(raw)
    meta = pod.child("metadata")
    owners = [one.text("uid") for one in meta.children("ownerReferences")]
    has_ended = pod.child("status").text("phase") in _ENDED
    is_of_it = uid in owners and not has_ended and not meta.has("deletionTimestamp")
    return meta.text("name") if is_of_it else ""


def _sample(api: ClusterApi, namespace: str, pod: str) -> dict[str, ResourceList] | None:
    try:
        raw = api.get(POD_METRICS, pod, namespace=namespace)
    except NotFoundError as err:
        if err.details.get("name"):
            return None  # what serves it is there, and has not seen this pod yet
        raise NoUsageError(
            "metrics.k8s.io is not there: the cluster has no metrics server, so there is no usage"
            " to go by; give the amounts by --requests"
        ) from err
    except UnavailableError as err:
        raise UnavailableError(f"metrics.k8s.io: {err.message}") from err
    except ApiError as err:
        raise NoUsageError(f"metrics.k8s.io: {err.message}") from err
    containers = ResourceReader(raw).children("containers")
    return {one.text("name"): one.resource_list("usage") for one in containers}
