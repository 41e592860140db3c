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
        clock: Returns seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rests: dict[str, float] = {}
        self.had: Final[defaultdict[str, set[str]]] = defaultdict(set)
        """Pool → what had its turn since all of the pool had; the caller adds to it."""

    def of(self, pool: str, items: Iterable[_T]) -> Iterator[_T]:
        """Yield what there is to do for a pool, in order: nothing while it rests."""
        begun = self._clock()
        if begun < self._rests.get(pool, 0.0):
            return
        for item in items:
            number = len(self.had[pool])
            yield item
            now = self._clock()
            if now - begun > _LONG and len(self.had[pool]) > number:
                self._rests[pool] = now + min(_MOST, _FACTOR * (now - begun))
                return
        self.had.pop(pool, None)
        self._rests.pop(pool, None)
