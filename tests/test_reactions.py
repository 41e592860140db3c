"""The reactive client does what its reactions say: other tests lean on it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.builders import a_binding, a_pod
from tests.kube.builders import a_cluster, a_config_map, mapping
from tests.reactions import (
    Call,
    Proceed,
    Reaction,
    ReactiveClient,
    StaleReads,
    at_random,
    conflict,
    expire,
    fail,
    in_turn,
    lose_answer,
    preceded_by,
    throttle,
    unavailable,
    unreachable,
)
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import (
    BINDINGS,
    CONFIG_MAPS,
    PODS,
    ApiError,
    ClusterApi,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    ListOptions,
    ObjectList,
    TooManyRequestsError,
    UnavailableError,
    UnreachableError,
)

CALLS: dict[str, Callable[[ClusterApi], object]] = {
    "get configmaps team-a/notes": lambda api: api.get(CONFIG_MAPS, "notes", namespace="team-a"),
    "list configmaps": lambda api: api.list(CONFIG_MAPS),
    "list configmaps team-a": lambda api: list(
        api.pages(CONFIG_MAPS, ListOptions(namespace="team-a"))
    ),
    "watch configmaps": lambda api: api.watch(CONFIG_MAPS, resource_version=1).close(),
    "create configmaps team-a/new": lambda api: api.create(CONFIG_MAPS, a_config_map("new")),
    "update configmaps team-a/notes": lambda api: api.update(CONFIG_MAPS, a_config_map(text="new")),
    "update pods/status team-a/web-1": lambda api: api.update_status(
        PODS, {**a_pod(uid=""), "status": {"a": 1}}, is_brief=True
    ),
    "patch configmaps team-a/notes": lambda api: api.patch(
        CONFIG_MAPS, "notes", {"data": {"a": "b"}}, namespace="team-a"
    ),
    "delete configmaps team-a/notes": lambda api: api.delete(
        CONFIG_MAPS, "notes", namespace="team-a"
    ),
    f"create {BINDINGS.plural} team-a/web-1": lambda api: api.bind(a_binding()),
}
WRITES = {text: call for text, call in CALLS.items() if text[:4] not in ("get ", "list", "watc")}
RAISED: dict[Reaction, type[ApiError]] = {
    unreachable: UnreachableError,
    unavailable: UnavailableError,
    conflict: ConflictError,
    throttle: TooManyRequestsError,
    expire: ExpiredError,
    fail(ForbiddenError("not you")): ForbiddenError,
    fail(lambda: ForbiddenError("not you")): ForbiddenError,
}


@pytest.fixture
def api() -> ReactiveClient:
    client = ReactiveClient(a_cluster())
    client.create(CONFIG_MAPS, a_config_map(text="old"))
    client.create(PODS, a_pod())
    client.calls.clear()
    return client


@pytest.mark.parametrize(("text", "call"), CALLS.items(), ids=CALLS.keys())
def test_a_call_is_recorded_and_gets_through_without_reactions(
    api: ReactiveClient, text: str, call: Callable[[ClusterApi], object]
) -> None:
    before = api.cluster.resource_version
    call(api)
    assert [str(one) for one in api.calls] == [text]
    assert (api.cluster.resource_version > before) == (text in WRITES)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_lost_answer_is_lost_after_the_write(
    api: ReactiveClient, write: Callable[[ClusterApi], object]
) -> None:
    before = api.cluster.resource_version
    api.on("*", "*", lose_answer)
    with pytest.raises(UnreachableError):
        write(api)
    assert api.cluster.resource_version > before


@pytest.mark.parametrize(("reaction", "error"), RAISED.items(), ids=lambda one: one.__name__)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_other_faults_write_nothing(
    api: ReactiveClient,
    call: Callable[[ClusterApi], object],
    reaction: Reaction,
    error: type[ApiError],
) -> None:
    before = api.cluster.resource_version
    api.on("*", "*", reaction)
    with pytest.raises(error):
        call(api)
    assert api.cluster.resource_version == before


READS: dict[str, Callable[[ClusterApi], object]] = {
    "get": lambda api: api.get(CONFIG_MAPS, "notes", namespace="team-a"),
    "list": lambda api: api.list(CONFIG_MAPS).items[0],
    "pages": lambda api: list(api.pages(CONFIG_MAPS)).pop().items[0].object,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_stale_read_shows_what_was_read_before(
    api: ReactiveClient, read: Callable[[ClusterApi], object]
) -> None:
    stale = StaleReads()
    api.on("*", "*", stale.remember)
    api.on("*", "*", in_turn([stale.repeat, stale.repeat, None]))
    texts = []
    for _ in range(3):
        texts.append(mapping(read(api), "data")["text"])
        FakeClient(api.cluster).update(CONFIG_MAPS, a_config_map(text="new"))
    assert texts == ["old", "old", "new"]


def test_reactions_meet_the_calls_of_their_verb_kind_and_subresource(api: ReactiveClient) -> None:
    api.on("update", PODS, unavailable, subresource="status")
    api.update(CONFIG_MAPS, a_config_map(text="new"))
    api.update(PODS, a_pod(uid=""))
    with pytest.raises(UnavailableError):
        api.update_status(PODS, a_pod(uid=""))
    assert [call.subresource for call in api.calls_of("update", PODS)] == ["", "status"]
    assert len(api.calls_of("update", PODS, subresource="status")) == 1


def test_a_reaction_ends_after_its_times_or_when_it_is_removed(api: ReactiveClient) -> None:
    api.on("list", "*", unavailable, times=2)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            api.list(PODS)
    assert len(api.list(PODS).items) == 1
    with api.on("list", "*", unavailable), pytest.raises(UnavailableError):
        api.list(PODS)
    assert len(api.list(PODS).items) == 1
    assert [call.number for call in api.calls] == [3, 4, 5, 6, 7]


def test_the_last_reaction_comes_first_and_proceeds_to_the_others(api: ReactiveClient) -> None:
    def rename(call: Call, proceed: Proceed) -> object:
        return proceed(replace(call, body=a_config_map("other")))

    created: list[str] = []
    api.on(
        "create",
        CONFIG_MAPS,
        preceded_by(lambda call: created.append(call.body["metadata"]["name"])),
    )
    api.on("create", CONFIG_MAPS, rename, times=1)
    assert api.create(CONFIG_MAPS, a_config_map("one")).key == "team-a/other"
    assert api.create(CONFIG_MAPS, a_config_map("one")).key == "team-a/one"
    assert created == ["other", "one"]


def test_a_reaction_may_answer(api: ReactiveClient) -> None:
    nothing = ObjectList((), 7)
    api.on("list", PODS, lambda _call, _proceed: nothing)
    assert api.list(PODS) is nothing


def test_further_pages_are_calls_of_their_own(api: ReactiveClient) -> None:
    api.create(CONFIG_MAPS, a_config_map("second"))
    api.on("continue", "*", expire)
    pages = api.pages(CONFIG_MAPS, limit=1)
    assert len(next(pages).items) == 1
    with pytest.raises(ExpiredError):
        next(pages)
    assert len(api.calls_of("continue", CONFIG_MAPS)) == 1


def test_another_writer_may_come_first(api: ReactiveClient) -> None:
    other = FakeClient(api.cluster)
    interfere = preceded_by(lambda _: other.update(CONFIG_MAPS, a_config_map(text="faster")))
    api.on("update", CONFIG_MAPS, interfere)
    found = api.get(CONFIG_MAPS, "notes", namespace="team-a")
    with pytest.raises(ConflictError):
        api.update(CONFIG_MAPS, {**found, "data": {"text": "slower"}})


def test_chances_add_up() -> None:
    def nothing(_call: Call, _proceed: Proceed) -> str:
        return "nothing"

    def other(_call: Call, _proceed: Proceed) -> str:
        return "other"

    react = at_random(random.Random(1), {nothing: 0.3, other: 0.2})  # noqa: S311
    call = Call(verb="get", kind=PODS)
    drawn = [react(call, lambda: "proceed") for _ in range(2000)]
    shares = [drawn.count(answer) / 2000 for answer in ("nothing", "other", "proceed")]
    assert shares == pytest.approx([0.3, 0.2, 0.5], abs=0.05)
