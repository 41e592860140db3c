"""Labels are written several at a time, and a quota is walked once for a change."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, cast

import pytest

from tests.admission.handlers.harness import eventually
from tests.builders import a_container
from tests.controllers.elastic.objects import an_elastic_quota
from tests.reactions import Call, Proceed, ReactiveClient, fail
from webhook.config import Configuration
from webhook.controllers.elastic.capacity_labels import CapacityLabels
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import PODS, ForbiddenError, RequestTimeoutError, UnavailableError
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.elastic.elastic_quotas import read_elastic_quota

ASSIGNED: Final = "spec.nodeName!="


class Labelling:
    """Pods of one cpu in namespaces of one elastic quota, which are labelled while its time stands.

    Attributes:
        client: The calls of what labels them.
        now: The time.
    """

    def __init__(self, namespaces: Sequence[str], pods: int) -> None:
        self.now = 1000.0
        cluster = FakeCluster()
        api = FakeClient(cluster)
        self.client = ReactiveClient(cluster)
        for namespace in namespaces:
            for number in range(pods):
                spec = {"nodeName": "n", "containers": [a_container(requests={"cpu": "1"})]}
                metadata = {"name": f"p{number}", "namespace": namespace}
                api.create(
                    PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
                )
        more: Any = {"namespaces": list(namespaces)} if len(namespaces) > 1 else {}
        quota = an_elastic_quota(namespaces[0], {"cpu": str(pods * len(namespaces))}, **more)
        read = read_elastic_quota(cast("Any", quota))
        self._quotas = dict.fromkeys(namespaces, read)
        self.labels = CapacityLabels(
            ControllerContext(api=self.client, timings=ControllerTimings(clock=lambda: self.now)),
            lambda: self._quotas,
            Configuration,
            lambda _key: None,
        )

    def is_labelled(self) -> bool:
        """Return whether the cache shows every pod with a label."""
        return all(one.capacity for one in self.labels.pods.items().values())

    def guarantee_nothing(self) -> None:
        """Lower min, so that all pods are over-quota; no watch says that they are labelled so."""
        self.client.pause(PODS, ASSIGNED)
        self.client.calls.clear()
        for namespace, quota in self._quotas.items():
            self._quotas[namespace] = replace(quota, min={"cpu": ZERO})
        self.labels.requeue_all()

    def end(self) -> None:
        """Take the quota away, so that all labels go; no watch says that they are gone."""
        self.client.pause(PODS, ASSIGNED)
        self.client.calls.clear()
        self._quotas.clear()
        self.labels.requeue_all()

    def written(self) -> list[str]:
        """Return the pods that were labelled, once nothing is left to do now."""
        eventually(lambda: bool(self.client.calls_of("patch", PODS)), "it is walked")
        queue = self.labels.workers.queue
        eventually(lambda: queue.ready_count() == queue.processing_count() == 0, "all is done")
        return sorted(f"{one.namespace}/{one.name}" for one in self.client.calls_of("patch", PODS))


@contextmanager
def labelling(*namespaces: str, pods: int) -> Iterator[Labelling]:
    here = Labelling(namespaces, pods)
    here.labels.start()
    try:
        eventually(lambda: here.labels.pods.has_synced, "its pods are followed")
        here.labels.requeue_all()
        eventually(here.is_labelled, "all have a label")
        here.written()
        yield here
    finally:
        here.client.resume()
        here.labels.stop()


def test_a_label_does_not_wait_for_the_answer_to_another() -> None:
    meeting = threading.Barrier(2)

    def meet(_call: Call, proceed: Proceed) -> object:
        meeting.wait(10)
        return proceed()

    with labelling("team-a", pods=2) as here:
        here.client.on("patch", PODS, meet)
        here.guarantee_nothing()
        eventually(lambda: len(here.client.calls_of("patch", PODS)) == 2, "both are asked for")
        assert here.written() == ["team-a/p0", "team-a/p1"]
        assert not meeting.broken


def test_a_composite_is_walked_once_for_all_its_namespaces() -> None:
    with labelling("team-a", "team-b", "team-c", pods=2) as here:
        here.guarantee_nothing()
        assert here.written() == [
            f"{team}/p{number}" for team in ("team-a", "team-b", "team-c") for number in (0, 1)
        ]


def test_a_quota_rests_in_proportion_to_how_long_its_pods_are_walked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with labelling("team-a", pods=1) as here:
        walked: list[object] = []

        def slowly(pod: object) -> bool:
            walked.append(pod)
            here.now += 0.4
            return False

        monkeypatch.setattr("webhook.controllers.elastic.capacity_labels.is_terminal", slowly)
        queue = here.labels.workers.queue
        for _ in range(2):
            here.labels.requeue_all()
            eventually(lambda: bool(walked), "it is walked")
            eventually(lambda: queue.ready_count() == queue.processing_count() == 0, "it rests")
        assert len(walked) == 1
        here.now += 3.6
        eventually(lambda: len(walked) == 2, "it is walked again")


def test_beyond_the_limit_a_walk_is_for_several_labels() -> None:
    """Each walk looks at all pods of the quota: one for every label would take a processor."""
    with labelling("team-a", pods=30) as here:
        here.guarantee_nothing()
        assert len(here.written()) == 20  # of the 50 of a second
        assert here.labels.workers.queue.seconds_to_next() >= 0.2


@pytest.mark.parametrize(
    ("error", "others"),
    [(ForbiddenError("another webhook says no"), 8), (UnavailableError("no"), 0)],
)
def test_what_is_refused_of_one_pod_does_not_keep_others_from_their_labels(
    error: Exception, others: int
) -> None:
    refused = threading.Event()

    def refuse(call: Call, proceed: Proceed) -> object:
        if call.name == "p0":
            refused.set()
            raise error
        refused.wait(10)
        return proceed()

    with labelling("team-a", pods=9) as here:
        here.client.on("patch", PODS, refuse)
        here.guarantee_nothing()
        eventually(refused.is_set, "one is refused")
        eventually(lambda: here.labels.workers.queue.seconds_to_next() < math.inf, "it is retried")
        names = {one.name for one in here.client.calls_of("patch", PODS)} - {"p0"}
        assert len(names) >= others
        assert others or len(names) < 8  # at least the last is not asked for


def test_a_namespace_whose_pods_are_slow_to_label_rests_alone() -> None:
    """Each timeout takes seconds of the thread that labels the pods of all quotas."""

    def time_out(call: Call, proceed: Proceed) -> object:
        if call.namespace == "team-a":
            return proceed()
        here.now += 10.0
        raise RequestTimeoutError("no answer within 10 s")

    def timeouts() -> int:
        return sum(call.namespace == "team-b" for call in here.client.calls_of("patch", PODS))

    with labelling("team-a", "team-b", pods=1) as here:
        slow = here.client.on("patch", PODS, time_out)
        here.guarantee_nothing()
        eventually(lambda: timeouts() == 1, "one is not answered")
        for _ in range(18):
            here.now += 1.0
            here.labels.requeue_all()
            here.written()
        assert timeouts() == 1
        assert "team-a/p0" in here.written()
        here.now += 3.0
        eventually(lambda: timeouts() == 2, "it is tried again")
        here.written()
        here.now += 39.0
        here.labels.requeue_all()
        here.written()
        assert timeouts() == 2
        slow.remove()
        here.now += 2.0
        eventually(lambda: timeouts() == 3, "it is labelled")


def test_labels_that_are_refused_take_no_turns_of_others() -> None:
    """As many as may be written in a second are refused, all the time."""
    with labelling("team-a", pods=30) as here:
        here.client.on("patch", PODS, fail(ForbiddenError("another webhook says no")))
        here.guarantee_nothing()
        first = here.written()
        assert len(first) == 20  # of the 50 of a second
        here.client.calls.clear()
        here.now += 0.25
        assert len({*here.written(), *first}) == 30


def test_a_removal_that_is_refused_is_tried_again_ever_later() -> None:
    both = ["team-a/p0", "team-a/p1"]
    with labelling("team-a", pods=2) as here:
        refusal = here.client.on("patch", PODS, fail(ForbiddenError("another webhook says no")))
        here.end()
        for pause in (0.2, 0.4, 0.8, 1.6):
            assert here.written() == both
            assert here.labels.workers.queue.seconds_to_next() == pytest.approx(pause)
            here.client.calls.clear()
            here.now += pause
        assert here.written() == both
        refusal.remove()
        here.client.calls.clear()
        here.now += 3.2
        assert here.written() == both
        assert here.labels.workers.queue.failures("team-a") == 0


def test_a_second_removal_that_is_refused_is_not_repeated_once_the_first_is_seen() -> None:
    """The policy about our accounts refuses a removal where nothing of ours is taken off."""
    with labelling("team-a", pods=2) as here:
        here.end()
        assert here.written() == ["team-a/p0", "team-a/p1"]
        here.client.on("patch", PODS, fail(ForbiddenError("takes nothing off")))
        here.labels.requeue_all()
        queue = here.labels.workers.queue
        eventually(lambda: queue.failures("team-a") == 1, "they are refused")
        here.client.resume()
        pods = here.labels.pods
        eventually(
            lambda: not any(one.capacity for one in pods.items().values()), "the labels are gone"
        )
        here.now += 60.0
        eventually(lambda: queue.failures("team-a") == 0, "nothing is left to do")


def test_changes_of_very_many_namespaces_have_all_pods_walked_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with labelling("team-a", pods=1) as here:
        walks: list[str] = []
        items = here.labels.pods.items

        def slowly() -> Any:
            walks.append(threading.current_thread().name)
            here.now += 0.1
            return items()

        monkeypatch.setattr(here.labels.pods, "items", slowly)
        for _ in range(100):
            here.labels.requeue_all()
        queue = here.labels.workers.queue
        eventually(lambda: bool(walks), "they are walked")
        eventually(lambda: queue.ready_count() == queue.processing_count() == 0, "they rest")
        assert walks == ["capacity-labels-0"]  # no informer waits for that
        here.now += 1.0
        here.labels.requeue_all()
        eventually(lambda: len(walks) == 2, "they are walked again")
