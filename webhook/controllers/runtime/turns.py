"""Fair queue: namespaces take turns, so that none waits for thousands of items of another."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class Turns(Generic[Key, Item]):
    """Items by namespace and key, in the order in which their turn comes.

    Within a namespace that is the order in which they came, but for those that go first. Not safe
    to use from several threads.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[str, _Line[Key, Item]] = OrderedDict()
        """That whose turn is next comes first; none is empty."""

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def count(self, namespace: str) -> int:
        """Return how many of a namespace wait."""
        return len(self._lines.get(namespace, ()))

    def append(self, namespace: str, key: Key, item: Item, *, goes_first: bool = False) -> None:
        """Let an item wait behind the others of its namespace, or behind those that go first."""
        line = self._lines.setdefault(namespace, _Line())
        (line.first if goes_first else line.others)[key] = item

    def remove(self, namespace: str, key: Key) -> None:
        """Withdraw an item that waits."""
        line = self._lines[namespace]
        line.first.pop(key, None)
        line.others.pop(key, None)
        if not line:
            del self._lines[namespace]

    def pop(self) -> Item | None:
        """Return the item whose turn it is, which waits no longer; None where none does."""
        if not self._lines:
            return None
        namespace, line = self._lines.popitem(last=False)
        _, item = (line.first or line.others).popitem(last=False)
        if line:
            self._lines[namespace] = line  # behind the others
        return item

    def clear(self) -> None:
        """Withdraw all."""
        self._lines.clear()


class _Line(Generic[Key, Item]):
    """Items of one namespace."""

    def __init__(self) -> None:
        self.first: OrderedDict[Key, Item] = OrderedDict()
        self.others: OrderedDict[Key, Item] = OrderedDict()

    def __len__(self) -> int:
        return len(self.first) + len(self.others)
