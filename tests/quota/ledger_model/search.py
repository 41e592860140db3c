"""A walk through every state of the model, the nearest first."""

from __future__ import annotations

from collections import deque

from tests.quota.ledger_model.state import State
from tests.quota.ledger_model.steps import Rules, Scene, Steps


class BrokenError(AssertionError):
    """A state in which something does not hold, and the steps that lead there."""


def explore(scene: Scene, rules: Rules | None = None, *, at_most: int = 10**9) -> int:
    """Visit every state that can be reached; return how many there are.

    Handlers are alike, and so are leaders: of states that differ in which is which, one is visited.

    Raises:
        BrokenError: Something does not hold; the message has the shortest way there.
    """
    steps = Steps(scene, rules or Rules())
    came_from: dict[State, tuple[State | None, str]] = {steps.first: (None, "")}
    pending = deque([steps.first])
    while pending:
        state = pending.popleft()
        for what, following in steps.after(state):
            reached = steps.settled(following)
            if reached in came_from:
                continue
            came_from[reached] = (state, what)
            assert len(came_from) <= at_most, "there are more states than were expected"
            try:
                steps.check(reached)
            except AssertionError as err:
                way = "\n  ".join(_way(came_from, reached))
                raise BrokenError(f"{err}\n  {way}") from err
            pending.append(reached)
    return len(came_from)


def _way(came_from: dict[State, tuple[State | None, str]], state: State) -> list[str]:
    steps: list[str] = []
    at: State | None = state
    while at is not None:
        at, what = came_from[at]
        steps.append(what)
    return [what for what in reversed(steps) if what]
