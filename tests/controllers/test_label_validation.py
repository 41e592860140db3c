"""A label for mode or gating that means nothing is told of, by the process that leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.admission.handlers.harness import a_namespace, eventually
from webhook.controllers.label_validation import LabelValidator
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import EventRecorder
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import EVENTS, NAMESPACES
from webhook.kube.informer import InformerTimings
from webhook.state.well_known import FORMER_GATING_LABEL, GATING_LABEL, MODE_LABEL

_QUICK = InformerTimings(first_pause=0.01, longest_pause=0.05)


def told(cluster: FakeCluster) -> dict[str, str]:
    found = FakeClient(cluster).list(EVENTS).items
    return {
        str(one["involvedObject"]["name"]): f"{one['reason']}: {one['message']}"  # type: ignore[index]
        for one in found
    }


def labelled(cluster: FakeCluster, name: str, labels: Mapping[str, str | None]) -> None:
    patch = {"metadata": {"labels": dict(labels)}}
    FakeClient(cluster).patch(NAMESPACES, name, patch)


@contextmanager
def watched(
    cluster: FakeCluster, is_leader: Callable[[], int] = lambda: 1
) -> Iterator[LabelValidator]:
    """Tell of the labels of a cluster; what is configured is `auto`, and `team-x` is exempt."""
    client = FakeClient(cluster)
    events = EventRecorder(client)
    watch = LabelValidator(
        ControllerContext(
            api=client,
            leader_epoch=is_leader,
            events=events,
            timings=ControllerTimings(informer=_QUICK),
        ),
        gating=lambda: "auto",
        exempt=lambda: frozenset({"team-x"}),
    )
    events.start()
    watch.start()
    try:
        for informer in watch.informers.values():
            assert informer.wait_for_sync(30)
        yield watch
    finally:
        watch.stop()
        events.stop()


@pytest.mark.parametrize("is_there_before", [True, False])
def test_unknown_modes_are_reported_and_known_ones_not(is_there_before: bool) -> None:
    cluster, epoch = FakeCluster(), [0 if is_there_before else 1]
    modes = {"team-a": "deferrd", "team-b": "deferred", "team-c": "shadow", "team-d": ""}

    def create() -> None:
        for name, mode in modes.items():
            FakeClient(cluster).create(NAMESPACES, a_namespace(name, mode=mode))

    if is_there_before:
        create()
    with watched(cluster, lambda: epoch[0]) as watch:
        if is_there_before:
            assert told(cluster) == {}
            epoch[0] = 1
        else:
            eventually(watch.is_leader, "it leads")
            create()
        eventually(lambda: bool(told(cluster)), "it is told")
        assert told(cluster) == {
            "team-a": 'UnknownMode: label deferredquota.io/mode is "deferrd", which is none of'
            " deferred, shadow: the namespace is not opted in"
        }


@pytest.mark.parametrize("is_there_before", [True, False])
def test_unknown_gatings_are_reported_where_pods_are_gated(is_there_before: bool) -> None:
    cluster = FakeCluster()
    gating_modes = {"team-a": "always", "team-b": "auto", "team-c": "never", "team-x": "nono"}

    def create(name: str, gating: str, mode: str = "deferred") -> None:
        FakeClient(cluster).create(NAMESPACES, a_namespace(name, mode=mode))
        labelled(cluster, name, {GATING_LABEL: gating})

    def create_all() -> None:
        for name, gating in gating_modes.items():
            create(name, gating)
        create("watched", "nono", mode="shadow")
        create("free", "nono", mode="")
        create("team-d", "nono")  # the last: when it is told of, the others would have been

    if is_there_before:
        create_all()
    with watched(cluster) as watch:
        eventually(watch.is_leader, "it leads")
        if not is_there_before:
            create_all()
        eventually(lambda: bool(told(cluster)), "it is told")
        assert told(cluster) == {
            "team-d": 'UnknownGating: label deferredquota.io/gating is "nono", which is none of'
            " always, auto, never: its gating is auto, as configured"
        }


def test_the_former_label_is_reported() -> None:
    cluster = FakeCluster()
    FakeClient(cluster).create(NAMESPACES, a_namespace("team-a", mode="deferred"))
    labelled(cluster, "team-a", {FORMER_GATING_LABEL: "none"})
    with watched(cluster):
        eventually(lambda: bool(told(cluster)), "it is told")
        assert told(cluster) == {
            "team-a": "FormerLabel: label deferredquota.io/pacing is read by this version only:"
            " it is deferredquota.io/gating now"
        }


def test_a_gating_that_means_nothing_is_reported_when_the_namespace_opts_in() -> None:
    cluster = FakeCluster()
    with watched(cluster) as watch:
        eventually(watch.is_leader, "it leads")
        FakeClient(cluster).create(NAMESPACES, a_namespace("team-a", mode=""))
        labelled(cluster, "team-a", {GATING_LABEL: "nono"})
        assert told(cluster) == {}
        labelled(cluster, "team-a", {MODE_LABEL: "deferred"})
        eventually(lambda: "team-a" in told(cluster), "it is told")


def test_other_labels_of_the_namespace_repeat_nothing() -> None:
    cluster = FakeCluster()
    with watched(cluster) as watch:
        eventually(watch.is_leader, "it leads")
        FakeClient(cluster).create(NAMESPACES, a_namespace("team-a"))
        labelled(cluster, "team-a", {GATING_LABEL: "nono"})
        eventually(lambda: "team-a" in told(cluster), "it is told")
        labelled(cluster, "team-a", {"owner": "somebody"})
        labelled(cluster, "team-a", {GATING_LABEL: "gaet"})
        eventually(lambda: len(FakeClient(cluster).list(EVENTS).items) == 2, "both are told")
        assert [one["count"] for one in FakeClient(cluster).list(EVENTS).items] == [1, 1]
