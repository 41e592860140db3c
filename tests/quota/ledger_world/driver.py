"""Drive the ledger's world with arbitrary steps, from a random generator or from Hypothesis."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tests.quota.ledger_world.objects import HUGE, SCOPES
from tests.quota.ledger_world.replicas import Replica
from tests.quota.ledger_world.world import World


@dataclass(frozen=True)
class Step:
    """One step: its name and four numbers that choose among what there is."""

    name: str
    first: int
    second: int
    third: int
    fourth: int


def _replica(world: World, step: Step) -> Replica:
    return (*world.handlers, *world.controllers)[step.second % 4]


def _sync(world: World, _: Step) -> None:
    for handler in world.handlers:
        handler.catch_up()
    world.controllers[0].catch_up()
    world.controllers[0].settle()


def _heal(world: World, step: Step) -> None:
    """Let time pass until a lost ledger may be made, and make it."""
    controller = world.controllers[step.first % 2]
    controller.settle()
    world.pass_time(46)
    controller.catch_up()
    controller.settle()


def _put_quota(world: World, step: Step) -> None:
    name = ("base", "a", "b")[step.third % 3]
    world.people.put_quota(
        name, cpu=2 * step.first, memory=1 + 2 * step.second, scope=SCOPES[step.fourth % 4]
    )


def _create_pod(world: World, step: Step, *, is_gated: bool = False) -> None:
    cpu, memory = 1 + step.first % 3, 1 + step.second % 3
    world.people.create_pod(cpu, memory, gold=step.third % 2 == 0, is_gated=is_gated)


STEPS: Mapping[str, Callable[[World, Step], None]] = {
    "sync": _sync,
    "create pod": _create_pod,
    "create gated pod": partial(_create_pod, is_gated=True),
    "ungate": lambda world, step: world.controllers[step.second % 2].ungate(step.first),
    "strip": lambda world, step: world.people.strip(step.first),
    "bind": lambda world, step: world.handlers[step.second % 2].bind(step.first),
    "create assigned": lambda world, step: world.handlers[step.third % 2].create_assigned(
        1 + step.first % 3, 1 + step.second % 3
    ),
    "resize": lambda world, step: world.handlers[step.third % 2].resize(
        step.first, 1 + step.second % 5
    ),
    "patch": lambda world, step: world.handlers[step.third % 2].patch(
        step.first, 1 + step.second % 5, step.fourth % 4
    ),
    "flip": lambda world, step: world.handlers[step.second % 2].flip(step.first),
    "decide": lambda world, step: world.requests.decide(step.first),
    "decide, answer lost": lambda world, step: world.requests.decide(step.first, loses_answer=True),
    "commit": lambda world, step: world.requests.commit(step.first),
    "finish": lambda world, step: world.people.finish(step.first),
    "delete": lambda world, step: world.people.delete(step.first),
    "put quota": _put_quota,
    "delete quota": lambda world, step: world.people.delete_quota("ab"[step.third % 2]),
    "see": lambda world, step: _replica(world, step).see(1 + step.first % 3),
    "catch up": lambda world, step: _replica(world, step).catch_up(),
    "look": lambda world, step: world.controllers[step.first % 2].look(),
    "settle": lambda world, step: world.controllers[step.first % 2].settle(),
    "settle late": lambda world, step: world.controllers[step.first % 2].settle(looks=False),
    "pass time": lambda world, step: world.pass_time((1, 2, 5, 12, 20, 46)[step.first % 6]),
    "crash handler": lambda world, step: world.requests.crash_handler(step.first),
    "restart": lambda world, step: _replica(world, step).restart(step.first),
    "lose ledger": lambda world, _: world.people.lose_ledger(),
    "heal": _heal,
    "edit ledger": lambda world, step: world.people.edit_ledger(step.first, 1 + step.second % 3),
    "configure": lambda world, step: world.people.configure(step.first),
    "reload": lambda world, step: _replica(world, step).reload(),
    "begin term": lambda world, step: world.controllers[step.first % 2].begin_term(),
    "send": lambda world, step: world.controllers[step.first % 2].send(),
    "arrive": lambda world, step: world.controllers[step.first % 2].arrive(),
    "stick": lambda world, step: world.people.stick(step.first),
    "hold": lambda world, step: world.people.hold(step.first),
    "mirror": lambda world, step: world.handlers[step.third % 2].mirror(
        1 + step.first % 3, 1 + step.second % 3
    ),
    "forge": lambda world, step: world.handlers[step.third % 2].forge(
        1 + step.first, 1 + step.second, step.fourth
    ),
    "create huge pod": lambda world, step: world.people.create_pod(
        HUGE, 1 + step.second % 3, gold=step.third % 2 == 0, is_gated=step.fourth % 2 == 0
    ),
    "mirror huge": lambda world, step: world.handlers[step.third % 2].mirror(
        HUGE, 1 + step.second % 3
    ),
    "forge huge": lambda world, step: world.handlers[step.third % 2].forge(
        HUGE, 1 + step.second, step.fourth
    ),
    "list pods": lambda world, step: world.controllers[step.first % 2].list_pods(),
    "end list": lambda world, step: world.controllers[step.first % 2].end_list(),
}
_STUCK = {"stick": 0, "hold": 0}
"""Only in walks that are about them: those about everything are as they were without them."""
_LISTS = {"list pods": 0, "end list": 0}
"""The same."""
_RARE = {
    "put quota": 1,
    "delete quota": 1,
    "crash handler": 1,
    "restart": 1,
    "flip": 2,
    "delete": 2,
}
_OFTEN = {"sync": 10, "bind": 9, "decide": 10, "commit": 10, "create pod": 9, "settle": 6}
_UNUSUAL = {
    "lose ledger": 1, "heal": 2, "edit ledger": 1, "configure": 2, "reload": 6, "begin term": 1,
    "send": 4, "arrive": 4,
}  # fmt: skip
_GATES = {"create gated pod": 8, "ungate": 6, "strip": 1}
_HUGE = {"create huge pod": 0, "mirror huge": 0, "forge huge": 0}
_FORCED = {"mirror": 0, "forge": 0, **_HUGE}
"""Only in walks about them: what they take leaves little room for the rest."""


_USUAL = dict.fromkeys(STEPS, 3) | _RARE | _OFTEN | _STUCK | _FORCED | _LISTS
_ALL = _USUAL | _UNUSUAL | _GATES | _STUCK
THEMES: Mapping[str, Mapping[str, int]] = {
    "patches": {
        "create pod": 1, "create assigned": 2, "bind": 1, "resize": 6, "patch": 9, "decide": 14,
        "commit": 14, "see": 3, "sync": 2, "settle": 3, "catch up": 1,
    },
    "old views": {
        "create pod": 2, "resize": 5, "bind": 5, "decide": 10, "commit": 10, "see": 4, "settle": 6,
        "pass time": 5, "sync": 1, "catch up": 1,
    },
    "losses": {
        "create pod": 3, "create assigned": 4, "bind": 5, "decide": 8, "commit": 8, "see": 5,
        "lose ledger": 3, "look": 4, "pass time": 6, "settle": 6, "sync": 3, "heal": 1,
        "begin term": 1, "send": 2, "arrive": 2, "restart": 1,
    },
    "lists": {
        "create pod": 3, "create assigned": 2, "bind": 8, "decide": 12, "commit": 8, "see": 5,
        "look": 2, "pass time": 10, "settle": 2, "sync": 3, "list pods": 10, "end list": 8,
        "delete": 1, "finish": 2, "create gated pod": 1, "ungate": 1, "heal": 1, "begin term": 1,
    },
    "promises": {
        **_USUAL, **dict.fromkeys(_UNUSUAL, 0), **_GATES, "create gated pod": 6, "pass time": 9,
        "put quota": 3, "bind": 12, "resize": 1, "patch": 0, "flip": 0,
    },
    "mirrors": {
        **_USUAL, **dict.fromkeys([*_UNUSUAL, *_GATES], 0), "mirror": 6, "forge": 2, "patch": 0,
        "flip": 1, "finish": 8, "pass time": 6, "put quota": 2, "heal": 1,
    },
    "uncountable amounts": {
        **_USUAL, **dict.fromkeys(_UNUSUAL, 0), **_GATES, "create huge pod": 4, "mirror huge": 2,
        "forge huge": 1, "finish": 9, "delete": 5, "resize": 6, "patch": 0, "flip": 3,
        "put quota": 2, "heal": 1,
    },
    "lowered limits": {
        "create pod": 3, "create gated pod": 3, "ungate": 4, "create assigned": 5, "resize": 3,
        "bind": 9, "decide": 13, "commit": 6, "put quota": 4, "settle": 8, "sync": 4, "see": 2,
        "catch up": 1, "finish": 4, "pass time": 1,
    },
    "configurations": {
        **_USUAL, **dict.fromkeys([*_UNUSUAL, *_GATES], 0), "configure": 5, "reload": 12,
    },
    "stuck pods": {
        **_USUAL, **dict.fromkeys([*_UNUSUAL, *_GATES], 0), "stick": 9, "delete": 5,
        "lose ledger": 1, "heal": 1,
    },
    "stuck pods, held or not": {
        **_USUAL, **dict.fromkeys([*_UNUSUAL, *_GATES], 0), "stick": 9, "delete": 5,
        "hold": 4, "reload": 12,
    },
}  # fmt: skip
"""What a walk is about → how likely each step is. They come to rare things far sooner than walks
in which everything happens."""


def random_steps(
    seed: int, length: int, *, has_gates: bool | None = None, theme: str = ""
) -> list[Step]:
    """Return the same steps for the same seed: those of a theme, or of everything.

    With odd seeds nobody touches the ledger or the configuration, and leaders do not change; with
    most of them no pod waits behind a gate, unless `has_gates`: there is more room for the rest.
    """
    if has_gates is None:
        has_gates = seed % 8 in {4, 5}
    left_out = {*(_UNUSUAL if seed % 2 else ()), *(() if has_gates else _GATES)}
    everything = {name: 0 if name in left_out else weight for name, weight in _ALL.items()}
    likely = THEMES[theme] if theme else everything
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    names = chance.choices(list(STEPS), weights=[likely.get(name, 0) for name in STEPS], k=length)
    return [Step(name, *(chance.randrange(9) for _ in range(4))) for name in names]


def drive(world: World, steps: list[Step]) -> None:
    """Take the steps; the laws are checked after each, and healing at the end."""
    for step in steps:
        STEPS[step.name](world, step)
        world.check_laws()
    world.check_quiet()
