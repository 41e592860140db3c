"""Turns of pools on the one thread that plans for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

_LONG: Final = 1.0
"""Seconds after which a pool leaves the others their turn."""
_FACTOR: Final = 3.0
"""How many times as long as its turn took a pool rests."""
_MOST: Final = 5.0
"""Seconds of the longest rest: the thread forgets soon which pods could not be evicted."""

_T = TypeVar("_T")


class Turns:
    """Turns of pools: one that takes long is cut short, rests, and goes on where it was.

    So those who make plans of their pool slow do not keep other pools from theirs, nor what comes
    last in their own pool.

    Args:
        clock: Returns seconds that only go forward, for rests.
        planning_clock: Returns the same without what counts as no part of a turn.
    """

    def __init__(
        self, clock: Callable[[], float], planning_clock: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock
        self._planning_clock = planning_clock or clock
        self._rests: dict[str, float] = {}
        self.had: Final[defaultdict[str, set[str]]] = defaultdict(set)
        """Pool → what had its turn since all of the pool had; the caller adds to it."""

    def of(self, pool: str, items: Iterable[_T]) -> Iterator[_T]:
        """Yield what there is to do for a pool, in order: nothing while it rests."""
        if self._clock() < self._rests.get(pool, 0.0):
            return
        begun = self._planning_clock()
        for item in items:
            number = len(self.had[pool])
            yield item
            took = self._planning_clock() - begun
            if took > _LONG and len(self.had[pool]) > number:
                self._rests[pool] = self._clock() + min(_MOST, _FACTOR * took)
                return
        self.had.pop(pool, None)
        self._rests.pop(pool, None)
