"""A quantity over time, in as many equal parts as a chart can show."""

from __future__ import annotations

from typing import Final

PARTS: Final = 256


class Timeline:
    """Sums of a whole number over time, by parts whose length doubles as time goes on."""

    def __init__(self) -> None:
        self._length = 1
        self._sums = [0]
        self._value = 0
        self._since = 0
        self.peak = 0
        """The largest value that lasted for any time."""

    def change(self, at: int, difference: int) -> None:
        """Let the value differ from `at` on; times never go back."""
        self._advance(at)
        self._value += difference

    def total(self, at: int) -> int:
        """Return the sum until `at`: value times milliseconds."""
        self._advance(at)
        return sum(self._sums)

    def means(self, at: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the length of a part, and of each part the sum and how long it lasted."""
        self._advance(at)
        lengths = [min(self._length, at - index * self._length) for index in range(len(self._sums))]
        return self._length, [
            (amount, length)
            for amount, length in zip(self._sums, lengths, strict=True)
            if length > 0
        ]

    def _advance(self, at: int) -> None:
        if at == self._since:
            return
        self.peak = max(self.peak, self._value)
        while at > PARTS * self._length:
            self._halve()
        while self._since < at:
            index = self._since // self._length
            end = min(at, (index + 1) * self._length)
            if index == len(self._sums):
                self._sums.append(0)
            self._sums[index] += self._value * (end - self._since)
            self._since = end

    def _halve(self) -> None:
        self._length *= 2
        pairs = zip(self._sums[::2], [*self._sums[1::2], 0], strict=False)
        self._sums = [left + right for left, right in pairs]
