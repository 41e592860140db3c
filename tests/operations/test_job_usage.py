from __future__ import annotations

import pytest

from tests.builders import Object, a_job
from tests.operations.jobs import a_pod_of_the_job, a_sample
from tests.operations.scenes import NAMESPACE, a_cluster, a_namespace
from tests.reactions import ReactiveClient, fail
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import PODS, ForbiddenError, NotFoundError, UnavailableError
from webhook.operations.jobs.usage import (
    POD_METRICS,
    NoUsageError,
    percentile,
    usage_of_job,
    wanted_by_usage,
)
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import to_text


def measured(*samples: Object, pods: tuple[Object, ...] = ()) -> FakeCluster:
    cluster = a_cluster(a_namespace(), a_job(), *pods)
    cluster.load([(POD_METRICS, sample) for sample in samples])
    return cluster


def test_the_usage_of_each_container_is_read_pod_by_pod() -> None:
    pods = (a_pod_of_the_job("a"), a_pod_of_the_job("b"), a_pod_of_the_job("late"))
    others = (a_pod_of_the_job("done", "Succeeded"), a_pod_of_the_job("alien", owner="another"))
    cluster = measured(
        a_sample("a", main=("1500m", "1000Mi"), side=("1m", "1Mi")),
        a_sample("b", main=("500123456n", "2000Ki")),
        a_sample("done", main=("9", "9Gi")),
        a_sample("alien", main=("9", "9Gi")),
        pods=(*pods, *others),
    )
    usage = usage_of_job(FakeClient(cluster), NAMESPACE, "train")
    assert (usage.pods, usage.sampled) == (3, 2)
    found = {name: [dict(to_text(each)) for each in of] for name, of in usage.containers.items()}
    assert found == {
        "main": [
            {"cpu": "1500m", "memory": "1000Mi"},
            {"cpu": "500123456n", "memory": "2000Ki"},
        ],
        "side": [{"cpu": "1m", "memory": "1Mi"}],
    }


def test_requests_are_the_percentile_rounded_up() -> None:
    cluster = measured(
        a_sample("a", main=("0", "0")),
        a_sample("b", main=("500123456n", "2000Ki")),
        pods=(a_pod_of_the_job("a"), a_pod_of_the_job("b")),
    )
    usage = usage_of_job(FakeClient(cluster), NAMESPACE, "train")
    high, low = wanted_by_usage(usage, 95)["main"], wanted_by_usage(usage, 50)["main"]
    assert to_text(high.requests) == {"cpu": "501m", "memory": "2Mi"}
    assert to_text(low.requests) == {"cpu": "1m", "memory": "1Mi"}
    assert high.limits == {}


PERCENTILES = {
    "one sample is every percentile": (1, 1, 1),
    "the median of four": (4, 50, 2),
    "p95 of ten is the largest": (10, 95, 10),
    "p95 of twenty leaves one out": (20, 95, 19),
    "p95 of a hundred leaves five out": (100, 95, 95),
    "p100 is the largest": (100, 100, 100),
    "p1 is the smallest": (100, 1, 1),
}


@pytest.mark.parametrize(
    ("count", "percent", "expected"), PERCENTILES.values(), ids=PERCENTILES.keys()
)
def test_a_percentile_is_a_sample(count: int, percent: int, expected: int) -> None:
    samples = [Quantity.of_units(number) for number in range(count, 0, -1)]
    assert percentile(samples, percent) == Quantity.of_units(expected)


FAILURES = {
    "no metrics server": (
        NotFoundError("the server could not find the requested resource"),
        NoUsageError,
        "metrics.k8s.io is not there",
    ),
    "no sample yet": (
        NotFoundError.of(POD_METRICS, "a"),
        NoUsageError,
        "job team-a/train: metrics.k8s.io has no sample of its pods yet",
    ),
    "not allowed": (ForbiddenError("not you"), NoUsageError, "metrics.k8s.io: not you"),
    "does not answer": (
        UnavailableError("the server is currently unable to handle the request"),
        UnavailableError,
        "metrics.k8s.io: the server is currently unable to handle the request",
    ),
}


@pytest.mark.parametrize(("error", "expected", "words"), FAILURES.values(), ids=FAILURES.keys())
def test_what_is_missing_is_reported(
    error: Exception, expected: type[Exception], words: str
) -> None:
    api = ReactiveClient(measured(pods=(a_pod_of_the_job("a"),)))
    api.on("get", POD_METRICS, fail(error))
    with pytest.raises(expected) as found:
        usage_of_job(api, NAMESPACE, "train")
    assert str(found.value).startswith(words)


def test_a_job_without_pods_has_no_usage() -> None:
    api = FakeClient(measured(pods=(a_pod_of_the_job("done", "Failed"),)))
    assert len(api.list(PODS).items) == 1
    with pytest.raises(NoUsageError, match="has no pods that run"):
        usage_of_job(api, NAMESPACE, "train")
