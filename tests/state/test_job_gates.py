"""Which feature gates of the API server decide what a suspended Job may change."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.quota.job_updates import at
from webhook.cluster.api import (
    JOBS,
    NAMESPACES,
    ForbiddenError,
    InvalidError,
    Kind,
    Object,
    Revision,
    UnreachableError,
)
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.quota.jobs import ALL_GATES, JobGate, job_update_errors
from webhook.state.job_gates import JobGates, version_of

RESOURCES, SCHEDULING = JobGate.MUTABLE_RESOURCES, JobGate.MUTABLE_SCHEDULING


class ApiServer(MemoryClient):
    """An API server of some version with some gates on, which checks updates of Jobs."""

    def __init__(self, minor: str, gates: frozenset[str] = ALL_GATES) -> None:
        super().__init__(MemoryCluster())
        super().create(NAMESPACES, {"metadata": {"name": "deferred-quota-system"}})
        self.minor, self.gates = minor, gates
        self.is_down = False
        self.may_create = True
        self.asked = 0
        self.made: list[str] = []

    def server_version(self) -> Object:
        self.asked += 1
        if self.is_down:
            raise UnreachableError("nobody answers")
        return {"major": "1", "minor": self.minor}

    def create(self, kind: Kind, obj: Object, *, dry_run: bool = False) -> Revision:
        if not self.may_create:
            raise ForbiddenError("jobs.batch is forbidden")
        made = super().create(kind, obj, dry_run=dry_run)
        self.made.append(made.key)
        return made

    def update(
        self, kind: Kind, obj: Object, *, subresource: str = "", dry_run: bool = False
    ) -> Revision:
        if subresource:
            return super().update(kind, obj, subresource=subresource, dry_run=dry_run)
        assert dry_run, "a Job's spec is changed for real"
        old = self.get(kind, str(at(obj, "metadata")["name"]), namespace="deferred-quota-system")
        if job_update_errors(old, obj, self.gates):
            raise InvalidError("field is immutable")
        return super().update(kind, obj, dry_run=True)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def gates_of(api: MemoryClient) -> JobGates:
    gates = JobGates(api, Clock())
    gates.look()
    return gates


@pytest.mark.parametrize("minor", ["36", "37+", "40"])
def test_both_are_on_since_1_36_and_nothing_is_tried(minor: str) -> None:
    api = ApiServer(minor, frozenset())
    assert gates_of(api).enabled == ALL_GATES
    assert api.made == []


@pytest.mark.parametrize("minor", ["34", "28+"])
def test_before_1_35_there_are_none(minor: str) -> None:
    api = ApiServer(minor)
    assert gates_of(api).enabled == frozenset()
    assert api.made == []


@pytest.mark.parametrize("on", [(), (RESOURCES,), (SCHEDULING,), (RESOURCES, SCHEDULING)])
def test_in_1_35_it_is_tried_and_nothing_is_left_behind(on: tuple[str, ...]) -> None:
    api = ApiServer("35", frozenset(on))
    assert gates_of(api).enabled == frozenset(on)
    assert len(api.made) == 1
    assert api.list(JOBS).items == ()


def test_where_it_cannot_be_tried_nothing_is_refused_that_may_be_legal() -> None:
    api = ApiServer("35", frozenset())
    api.may_create = False
    assert gates_of(api).enabled == ALL_GATES


def test_an_api_server_that_says_no_version_is_as_1_36() -> None:
    assert gates_of(MemoryClient(MemoryCluster())).enabled == ALL_GATES


def test_it_is_asked_again_after_a_while_and_tried_once_for_each_version() -> None:
    api, clock = ApiServer("35", frozenset()), Clock()
    gates = JobGates(api, clock, pause_seconds=600)
    assert gates.look()
    assert not gates.look()
    assert api.asked == 1
    clock.now = 601
    assert not gates.look()
    assert (api.asked, len(api.made)) == (2, 1)
    api.minor, clock.now = "36", 1300
    assert gates.look()
    assert gates.enabled == ALL_GATES


def test_an_outage_changes_nothing() -> None:
    api, clock = ApiServer("34"), Clock()
    gates = JobGates(api, clock, pause_seconds=600)
    gates.look()
    api.is_down, clock.now = True, 700
    assert not gates.look()
    assert gates.enabled == frozenset()


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"major": "1", "minor": "36"}, (1, 36)),
        ({"major": "1", "minor": "34+"}, (1, 34)),
        ({"major": "", "minor": ""}, None),
        ({}, None),
    ],
)
def test_reads_versions(answer: Mapping[str, object], version: tuple[int, int] | None) -> None:
    assert version_of(answer) == version
