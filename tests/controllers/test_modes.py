"""A mode label that means nothing is told of, by the process that leads."""

from __future__ import annotations

import pytest

from tests.admission.doors.desk import a_namespace, eventually
from webhook.cluster.api import EVENTS, NAMESPACES
from webhook.cluster.informer import Timing
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.controllers.events import EventRecorder
from webhook.controllers.modes import ModeWatch

_QUICK = Timing(first_pause=0.01, longest_pause=0.05)


def told(cluster: MemoryCluster) -> dict[str, str]:
    found = MemoryClient(cluster).list(EVENTS).items
    return {str(one["involvedObject"]["name"]): str(one["message"]) for one in found}  # type: ignore[index]


@pytest.mark.parametrize("is_there_before", [True, False])
def test_unknown_modes_are_told_of_and_known_ones_not(is_there_before: bool) -> None:
    cluster, term = MemoryCluster(), [0 if is_there_before else 1]
    modes = {"team-a": "deferrd", "team-b": "deferred", "team-c": "shadow", "team-d": ""}

    def create() -> None:
        for name, mode in modes.items():
            MemoryClient(cluster).create(NAMESPACES, a_namespace(name, mode=mode))

    events = EventRecorder(MemoryClient(cluster))
    watch = ModeWatch(MemoryClient(cluster), events, is_leader=lambda: term[0], timing=_QUICK)
    events.start()
    if is_there_before:
        create()
    watch.start()
    try:
        assert watch.informer.wait_for_sync(30)
        if is_there_before:
            assert told(cluster) == {}
            term[0] = 1
        else:
            eventually(watch._terms.leads, "it leads")
            create()
        eventually(lambda: bool(told(cluster)), "it is told")
        assert set(told(cluster)) == {"team-a"}
        assert '"deferrd", which is none of deferred, shadow' in told(cluster)["team-a"]
    finally:
        watch.stop()
        events.stop()
