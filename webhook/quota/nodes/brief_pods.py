"""Pods of which little is known until more is asked for.

Of very many pods on nodes only their node and their requests matter for most pods that wait. Such a
pod is an object like any other; its fields are read when one of them is looked at.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping


class BriefPod(Mapping[str, object]):
    """A pod that is not read in full yet."""

    __slots__ = ("_value",)

    running_on: str
    """The node of a pod that has one and has not ended; otherwise empty."""
    has_pod_affinity: bool
    """Whether it may require or avoid other pods; true is a doubt."""
    template: bytes | None
    """What decides its requests, as JSON of a pod; None if all of it has to be read for that."""
    _value: Mapping[str, object] | None

    @abstractmethod
    def read(self) -> Mapping[str, object]:
        """Return all of it."""

    @property
    def value(self) -> Mapping[str, object]:
        """All of it, read once."""
        if self._value is None:
            self._value = self.read()
        return self._value

    def __getitem__(self, key: str) -> object:
        return self.value[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.value)

    def __len__(self) -> int:
        return len(self.value)
