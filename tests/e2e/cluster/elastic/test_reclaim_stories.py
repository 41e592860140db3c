"""Owners get their min back in the end, whatever borrowers leave reserved, or protect.

Each story waits for a reservation or a promise to end, so that all are played at once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.elastic.kubelets import Kubelets
from tests.e2e.cluster.elastic.teams import (
    Teams,
    a_pool,
    edited_by_mallory,
    repeated,
)
from tests.e2e.cluster.objects import Answer
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually

LONGEST_SECONDS: Final = 280.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Teams of a pool of their own, and a user who may edit the namespace of team b."""

    plane: ControlPlane
    teams: Teams
    editor: Tenant

    def node_comes(self) -> None:
        """Let pods of a late node have one."""
        self.plane.kubectl("label", "node", "node-0", f"{self.teams.pool.name}=here")

    def owner_runs(self, seconds: float, cpu: str = "1") -> None:
        """Create a pod of team a, and wait until it has its node."""
        (own,) = self.teams.create("a", cpu=cpu)
        taken = "it has taken what it is guaranteed"
        eventually(lambda: self.teams["a"].node_of(own), taken, seconds)


def without_reservation(teams: Teams, cpu: str = "1") -> str:
    """Create a pod of team a for a node that comes later, until its reservation is lost."""
    (late,) = teams.create("a", cpu=cpu, nodeSelector={teams.pool.name: "here"})
    eventually(lambda: late in teams.released("a"), "it is released")
    eventually(
        lambda: teams.says("a", late)[1] == "ReservationExpired", "its reservation is lost", 90.0
    )
    return late


def has_its_node_too_late(stage: Stage) -> None:
    teams = stage.teams
    late = without_reservation(teams)
    teams.run("b", 8)
    stage.node_comes()
    eventually(lambda: teams["a"].node_of(late), "it has taken what it is guaranteed", 60.0)
    becomes(lambda: teams.says("a", late)[1], "Reserved", "its condition says so")
    teams.become(a=1, b=7, c=0)


def is_denied_above_min(stage: Stage) -> None:
    """The bind of a large pod, which hides no pod within min."""
    teams = stage.teams
    large = without_reservation(teams, "4")
    teams.run("a", 3)
    teams.run("b", 5)
    stage.node_comes()
    eventually(lambda: "place 1 of 1" in teams.says("a", large)[2], "its bind is denied", 60.0)
    (small,) = teams.create("a")
    eventually(lambda: teams["a"].node_of(small), "it has taken what it is guaranteed")
    teams.become(a=4, b=4, c=0)


def keeps_its_gate(stage: Stage) -> None:
    """The API server compares each toleration with every other one: no patch of it ends in time."""
    many = [{"key": f"k{number}", "operator": "Exists"} for number in range(20_000)]
    assert stage.editor.create("hog", "8", schedulerName=REAL, tolerations=many).ok
    eventually(lambda: "hog" in stage.teams["b"].promised(), "quota is reserved for it", 30.0)
    stage.owner_runs(120.0)


def renews(stage: Stage, renewed_by: tuple[str, ...], gating: str = "always") -> None:
    """Binds that storage refuses, and resizes to and fro, have it written anew each time."""
    teams, editor, namespace = stage.teams, stage.editor, stage.editor.namespace
    labels = {"metadata": {"labels": {"deferredquota.io/gating": gating}}}
    assert teams.pool.api.patch(f"/api/v1/namespaces/{namespace}", labels).ok
    names = [f"b{number}" for number in range(8)]
    for name in names:
        assert editor.create(name, "1", schedulerName="none").ok
    eventually(lambda: sorted(teams.released("b")) == names, "all are released")
    uids = [editor.api.get(objects.pods(namespace, name)).body["metadata"]["uid"] for name in names]

    def bind() -> list[Answer]:
        return [
            objects.bind(editor.api, namespace, name, "node-1", uid=uid, version="1")
            for name, uid in zip(names, uids, strict=True)
        ]

    if gating == "never":
        assert [answer.code for answer in bind()] == [409] * 8

    def renew() -> None:
        if "bind" in renewed_by:
            bind()
        if "resize" in renewed_by:
            for name in names:
                editor.resize(name, "990m")
                editor.resize(name, "1")

    with repeated(renew, 4.0):
        stage.owner_runs(180.0)


def is_refused(stage: Stage, renew: Callable[[Tenant], Answer]) -> None:
    """Another webhook of the platform refuses changes, after quota was reserved for a resize."""
    teams, editor, namespace = stage.teams, stage.editor, stage.editor.namespace
    # nothing answers there
    refuses = objects.a_registration(namespace, namespace, 1, "pods", "pods/resize")
    assert teams.run("b", 1) == ["b0"]
    teams.become(a=0, b=1, c=0)
    eventually(lambda: teams.pool.labels("b")["b0"], "it is labelled")
    # a write of the pod would prove that the resize is over: until there are none any more
    time.sleep(2.0)
    assert teams.pool.api.create(objects.REGISTRATIONS, refuses).ok
    try:
        label = partial(editor.api.patch, objects.pods(namespace, "b0"), dry_run=True)
        eventually(lambda: not label({"metadata": {"labels": {"a": "b"}}}).ok, "it is asked")
        refused = editor.resize("b0", "8")
        assert refused.code == 500, str(refused)
        charged = f"cdq/{teams.pool.charged_by}"
        becomes(lambda: teams["b"].charged(charged), "8", "quota is reserved for it")
        with repeated(partial(renew, editor), 4.0):
            stage.owner_runs(150.0)
    finally:
        teams.pool.api.delete(f"{objects.REGISTRATIONS}/{namespace}")


def is_never_stored(stage: Stage) -> None:
    """Pods are refused after the webhook has reserved for them, which stays for half a minute."""
    editor = stage.editor
    count = {"metadata": {"name": "count"}, "spec": {"hard": {"pods": "0"}}}
    assert stage.teams.pool.api.create(objects.quotas(editor.namespace), count).ok
    numbers = itertools.count(1)

    def create(number: int = 0) -> Answer:
        return editor.create(f"x{number}", "1", nodeName="node-0")

    eventually(lambda: "exceeded quota: count" in create().message, "one is refused", growth=1)
    for number in itertools.islice(numbers, 7):
        create(number)
    with repeated(lambda: create(next(numbers)), 0.2):
        stage.owner_runs(120.0, cpu="4")


STORIES: Final[Mapping[str, Callable[[Stage], None]]] = {
    "an owner has its node too late": has_its_node_too_late,
    "an owner is denied above min": is_denied_above_min,
    "a borrower keeps its gate": keeps_its_gate,
    "binds that storage refuses": partial(renews, renewed_by=("bind",)),
    "resizes of pods that wait": partial(renews, renewed_by=("resize",)),
    "both": partial(renews, renewed_by=("bind", "resize")),
    "resizes where nothing is gated": partial(renews, renewed_by=("resize",), gating="never"),
    "resizes that others refuse": partial(is_refused, renew=lambda one: one.resize("b0", "8")),
    "deadlines that others refuse": partial(
        is_refused, renew=lambda one: one.set_deadline("b0", 9999)
    ),
    "pods that are never stored": is_never_stored,
}


@pytest.fixture(scope="module")
def played(own_plane: ControlPlane, acting: Product) -> Iterator[Mapping[str, Future[None]]]:
    """All stories, begun."""
    assert acting.webhooks
    rest = own_plane.rest_as("mallory")

    def play(story: Callable[[Stage], None]) -> None:
        with a_pool(own_plane) as teams, Kubelets(own_plane.rest, teams.namespaces, pause=0.25):
            editor = edited_by_mallory(own_plane, teams, rest)
            may_bind_and_resize(own_plane, editor.namespace)
            story(Stage(own_plane, teams, editor))

    with ThreadPoolExecutor(len(STORIES)) as threads:
        yield {name: threads.submit(play, story) for name, story in STORIES.items()}


def may_bind_and_resize(plane: ControlPlane, namespace: str) -> None:
    rules = ("--verb=create,patch", "--resource=pods/binding,pods/resize")
    plane.kubectl("create", "role", "more", "-n", namespace, *rules)
    subject = ("--role=more", "--user=mallory", "-n", namespace)
    plane.kubectl("create", "rolebinding", "more", *subject)


@pytest.mark.parametrize("name", STORIES)
def test_an_owner_gets_its_min_back(played: Mapping[str, Future[None]], name: str) -> None:
    played[name].result(LONGEST_SECONDS)
