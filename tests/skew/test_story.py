"""The story of two versions: what it has, and in which order parts move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.skew.story import (
    STORY,
    Controllers,
    Definitions,
    Phase,
    Registrations,
    Side,
    Webhook,
    moves,
)

OLD, NEW = Side.OLD, Side.NEW
ALL_OLD = STORY[0]
ALL_NEW = replace(
    ALL_OLD,
    cluster=NEW,
    controllers=(NEW, NEW),
    webhooks=(NEW, NEW, NEW),
    registrations=NEW,
)

MIXTURES = {
    "new controllers with old webhooks": ({NEW}, {OLD}),
    "old controllers with new webhooks": ({OLD}, {NEW}),
    "webhooks of both": ({NEW}, {OLD, NEW}),
    "controllers of both": ({OLD, NEW}, {OLD}),
}


def test_parts_move_in_the_order_of_an_installation() -> None:
    assert list(moves(ALL_OLD, ALL_NEW)) == [
        Definitions(NEW),
        Controllers(((0, NEW), (1, NEW))),
        Webhook(0, NEW),
        Webhook(1, NEW),
        Webhook(2, NEW),
        Registrations(NEW),
    ]


def test_the_way_back_has_the_same_order() -> None:
    back = [type(move) for move in moves(ALL_NEW, ALL_OLD)]
    assert back == [type(move) for move in moves(ALL_OLD, ALL_NEW)]


def test_what_stays_is_not_touched() -> None:
    assert list(moves(ALL_NEW, ALL_NEW)) == []
    one = replace(ALL_OLD, webhooks=(OLD, NEW, OLD), controllers=(OLD, NEW))
    assert list(moves(ALL_OLD, one)) == [Controllers(((1, NEW),)), Webhook(1, NEW)]


@pytest.mark.parametrize(("controllers", "webhooks"), MIXTURES.values(), ids=MIXTURES.keys())
def test_the_story_has_each_mixture(controllers: set[Side], webhooks: set[Side]) -> None:
    assert any(
        (set(phase.controllers), set(phase.webhooks)) == (controllers, webhooks) for phase in STORY
    )


def test_the_story_goes_there_and_back_and_there_again() -> None:
    whole = [_only(phase) for phase in STORY]
    assert [side for side in whole if side is not None] == [OLD, NEW, OLD, NEW]


def test_controllers_lead_by_turns_only_where_they_differ() -> None:
    for phase in STORY:
        assert (phase.turns > 0) == (len(set(phase.controllers)) > 1)


def _only(phase: Phase) -> Side | None:
    sides = {phase.cluster, phase.registrations, *phase.controllers, *phase.webhooks}
    return sides.pop() if len(sides) == 1 else None
