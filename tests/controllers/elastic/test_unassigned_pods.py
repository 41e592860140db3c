"""Placements of pods without a node: read once for each, and a few in one look."""

from __future__ import annotations

from tests.builders import a_pod
from tests.reactions import ReactiveClient
from webhook.controllers.elastic.unassigned_pods import UnassignedPods
from webhook.kube.api import PODS
from webhook.quota.elastic.capacity import ElasticPod

FAST = {"zone": "fast"}


class Placements:
    """Pods that wait for a node, half of them for one of a zone."""

    def __init__(self, number: int) -> None:
        self.client = ReactiveClient()
        self.unassigned = UnassignedPods(self.client)
        self.raws = [
            self.client.create(
                PODS, a_pod(name=f"p{one}", nodeSelector=FAST if one % 2 else {}, uid="")
            )
            for one in range(number)
        ]
        self.pods = [
            ElasticPod("team-a", f"p{one}", raw.uid, None, 0, {})
            for one, raw in enumerate(self.raws)
        ]

    def look(self) -> tuple[list[int], int]:
        """Return how many pods of each placement there are, and how many were read for that."""
        before = len(self.client.calls_of("get", PODS))
        self.unassigned.begin()
        found = self.unassigned.placements(self.pods)
        return sorted(found.values()), len(self.client.calls_of("get", PODS)) - before


def test_each_is_read_once_and_some_in_each_look() -> None:
    here = Placements(100)
    assert here.look() == ([32, 32], 64)
    assert here.look() == ([50, 50], 36)
    assert here.look() == ([50, 50], 0)


def test_one_that_was_read_already_is_not_read_again_until_it_is_forgotten() -> None:
    here = Placements(3)
    here.unassigned.note(here.raws[1].object)
    assert here.look() == ([1, 2], 2)
    here.unassigned.keep({here.pods[0].uid})
    assert here.look() == ([1, 2], 2)


def test_one_that_is_gone_or_another_one_by_now_has_no_placement() -> None:
    here = Placements(2)
    here.client.delete(PODS, "p0", namespace="team-a")
    here.client.delete(PODS, "p1", namespace="team-a")
    here.client.create(PODS, a_pod(name="p1", uid=""))
    assert here.look() == ([], 2)
