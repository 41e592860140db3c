"""What released pods take that may preempt is kept as they come and go, and is what they take."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_pod, a_quota
from tests.quota.queue.queue_criteria import GATE, terms_of
from webhook.controllers.queue import gated_pods
from webhook.controllers.queue.gated_pods import GatedPods
from webhook.quota.objects.model import Pod
from webhook.quota.queue.preemptors import (
    PreemptorUsage,
    UnboundPreemptors,
    unbound_preemptors,
)
from webhook.quota.queue.queued_pods import (
    QueueCriteria,
    QueuedPod,
    is_in_flight,
    is_queued,
    to_queued_pod,
)

HIGH: Final = 1000
IN_FLIGHT: Final[dict[str, Any]] = {}
GATED: Final[dict[str, Any]] = {"schedulingGates": [{"name": GATE}]}
BOUND: Final[dict[str, Any]] = {"node": "node-1"}
OF_LOW: Final[dict[str, object]] = {
    "scopeName": "PriorityClass",
    "operator": "In",
    "values": ["low"],
}
CRITERIA: Final = (
    terms_of(a_quota("p1", hard={"requests.cpu": "3"})),
    terms_of(
        a_quota("p1", hard={"requests.cpu": "4", "requests.memory": "4"}),
        a_quota("low", uid="quota-2", hard={"requests.cpu": "2"}, expressions=[OF_LOW]),
    ),
    terms_of(),
)


def a_pod_of(number: int, place: dict[str, Any], **fields: Any) -> Pod:
    requests = {"cpu": fields.pop("cpu", "1"), "memory": fields.pop("memory", "1")}
    made = a_pod(name=f"w{number}", uid=f"uid-{number}", requests=requests, **place, **fields)
    return Pod.from_object(made)


def judged(pods: list[Pod], terms: QueueCriteria) -> list[QueuedPod]:
    return [to_queued_pod(pod, GATE, since=1, terms=terms) for pod in pods]


WAITING: Final = a_pod_of(9, GATED, priority=HIGH)
USUAL: Final = a_pod_of(8, GATED, priority=0)
_PODS: Final = st.builds(
    a_pod_of,
    st.integers(0, 3),
    st.sampled_from([IN_FLIGHT, IN_FLIGHT, GATED, BOUND]),
    cpu=st.sampled_from(["0", "1", "2", "4"]),
    memory=st.sampled_from(["0", "1", "5"]),
    priority=st.sampled_from([HIGH, HIGH, 0]),
    priorityClassName=st.sampled_from(["low", "high"]),
)
_CHANGES: Final = st.one_of(
    _PODS, _PODS, st.sampled_from([0, 1, 2, 9]), st.sampled_from([*CRITERIA, WAITING])
)


@settings(max_examples=300)
@given(st.lists(st.tuples(_CHANGES, st.booleans()), min_size=5, max_size=30))
def test_the_sum_that_is_kept_decides_as_one_that_is_made_anew(
    changes: list[tuple[Pod | int | QueueCriteria, bool]],
) -> None:
    kept, terms = GatedPods(), CRITERIA[1]
    pods = {pod.uid: pod for pod in (USUAL, WAITING)}
    for pod in pods.values():
        kept.put(pod)
    for change, is_followed_by_a_look in changes:
        match change:
            case Pod():
                kept.put(change)
                pods[change.uid] = change
            case int():
                kept.remove(f"uid-{change}")
                pods.pop(f"uid-{change}", None)
            case QueueCriteria():
                terms = change
        if is_followed_by_a_look:
            kept.with_in_flight(terms, pods.keys())  # judges them as well
            found = kept.preemptors(terms)
            flying = [pod for pod in pods.values() if is_in_flight(pod)]
            anew = unbound_preemptors(judged(flying, terms), terms)
            waiting = [pod for pod in pods.values() if is_queued(pod, GATE)]
            queue = judged(waiting, terms)
            assert [found.blocker(one) for one in queue] == [anew.blocker(one) for one in queue]
            if any(pod.may_preempt for pod in waiting):
                assert found == anew


def many(waiting: Pod) -> GatedPods:
    crowd = GatedPods()
    for number in range(200):
        crowd.put(a_pod_of(number, IN_FLIGHT, priority=HIGH))
    crowd.put(waiting)
    return crowd


def test_after_a_change_of_one_pod_no_other_is_summed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terms = terms_of(a_quota("p1", hard={"requests.cpu": "500"}))
    crowd = many(a_pod_of(200, GATED, priority=HIGH))
    before = crowd.preemptors(terms)
    assert str(before.usage["p1"]["requests.cpu"]) == "200"
    added: list[str] = []
    add = PreemptorUsage.add

    def noted(self: PreemptorUsage, queued: QueuedPod) -> None:
        added.append(queued.uid)
        add(self, queued)

    monkeypatch.setattr(PreemptorUsage, "add", noted)
    crowd.put(a_pod_of(5, IN_FLIGHT, priority=HIGH, cpu="3"))
    assert str(crowd.preemptors(terms).usage["p1"]["requests.cpu"]) == "202"
    assert added == ["uid-5"]
    assert str(before.usage["p1"]["requests.cpu"]) == "200"  # it is read without the lock


def test_none_is_judged_where_no_pod_waits_that_may_preempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd = many(a_pod_of(200, GATED, priority=0))
    monkeypatch.setattr(gated_pods, "to_queued_pod", lambda *_, **__: pytest.fail("judged"))
    assert crowd.preemptors(CRITERIA[0]) == UnboundPreemptors()
