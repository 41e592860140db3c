"""The flaky client does what its plan says: other tests lean on it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.builders import a_binding, a_pod
from tests.kube.builders import a_cluster, a_config_map, mapping
from tests.kube.faults import Call, Fault, FaultyClient, always, at_random, in_turn
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import (
    CONFIG_MAPS,
    PODS,
    ApiError,
    ClusterApi,
    ConflictError,
    ExpiredError,
    TooManyRequestsError,
    UnavailableError,
    UnreachableError,
)

Write = Callable[[ClusterApi], object]

WRITES: dict[str, Write] = {
    "create": lambda api: api.create(CONFIG_MAPS, a_config_map("new")),
    "update": lambda api: api.update(CONFIG_MAPS, a_config_map(text="new")),
    "update_status": lambda api: api.update_status(PODS, {**a_pod(uid=""), "status": {"a": 1}}),
    "patch": lambda api: api.patch(CONFIG_MAPS, "notes", {"data": {"a": "b"}}, namespace="team-a"),
    "delete": lambda api: api.delete(CONFIG_MAPS, "notes", namespace="team-a"),
    "bind": lambda api: api.bind(a_binding()),
}
RAISED: dict[Fault, type[ApiError]] = {
    Fault.FAIL_BEFORE: UnavailableError,
    Fault.CONFLICT: ConflictError,
    Fault.THROTTLE: TooManyRequestsError,
    Fault.EXPIRE: ExpiredError,
}


@pytest.fixture
def api() -> FakeClient:
    client = FakeClient(a_cluster())
    client.create(CONFIG_MAPS, a_config_map(text="old"))
    client.create(PODS, a_pod())
    return client


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_lost_answer_is_lost_after_the_write(api: FakeClient, write: Write) -> None:
    before = api.cluster.resource_version
    with pytest.raises(UnreachableError):
        write(FaultyClient(api, always(Fault.LOSE_ANSWER)))
    assert api.cluster.resource_version > before


@pytest.mark.parametrize("fault", RAISED, ids=lambda fault: fault.name)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_other_faults_write_nothing(api: FakeClient, write: Write, fault: Fault) -> None:
    before = api.cluster.resource_version
    with pytest.raises(RAISED[fault]):
        write(FaultyClient(api, always(fault)))
    assert api.cluster.resource_version == before


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_without_faults_everything_gets_through(api: FakeClient, write: Write) -> None:
    before = api.cluster.resource_version
    write(FaultyClient(api))
    assert api.cluster.resource_version > before


def test_a_stale_read_shows_what_was_read_before(api: FakeClient) -> None:
    flaky = FaultyClient(api, in_turn([None, Fault.STALE, None], verb="get"))
    texts = []
    for _ in range(3):
        texts.append(mapping(flaky.get(CONFIG_MAPS, "notes", namespace="team-a"), "data")["text"])
        api.update(CONFIG_MAPS, a_config_map(text="new"))
    assert texts == ["old", "old", "new"]
    flaky.plan = always(Fault.STALE)
    assert len(flaky.list(CONFIG_MAPS).items) == 1
    api.delete(CONFIG_MAPS, "notes", namespace="team-a")
    assert len(flaky.list(CONFIG_MAPS).items) == 1


def test_a_plan_can_pick_calls(api: FakeClient) -> None:
    faults = in_turn([Fault.FAIL_BEFORE], verb="create", kind=PODS)
    flaky = FaultyClient(api, faults)
    flaky.create(CONFIG_MAPS, a_config_map("one"))
    with pytest.raises(UnavailableError):
        flaky.create(PODS, a_pod(name="web-2"))
    flaky.create(PODS, a_pod(name="web-2"))
    assert flaky.calls == 3


def test_chances_add_up() -> None:
    plan = at_random(random.Random(1), {Fault.CONFLICT: 0.3, Fault.STALE: 0.2})  # noqa: S311
    drawn = [plan(Call("get", PODS, "x", number)) for number in range(2000)]
    shares = [drawn.count(fault) / 2000 for fault in (Fault.CONFLICT, Fault.STALE, None)]
    assert shares == pytest.approx([0.3, 0.2, 0.5], abs=0.05)


def test_somebody_may_act_before_a_call(api: FakeClient) -> None:
    def interfere(call: Call) -> None:
        if call.verb == "update":
            api.update(CONFIG_MAPS, a_config_map(text="faster"))

    flaky = FaultyClient(api, before=interfere)
    found = flaky.get(CONFIG_MAPS, "notes", namespace="team-a")
    with pytest.raises(ConflictError):
        flaky.update(CONFIG_MAPS, {**found, "data": {"text": "slower"}})
