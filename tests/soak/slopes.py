"""What grows: slopes of samples by least squares, as a table, and what must not be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
_HOUR: Final = 3600.0
_PARTS: Final = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """One process, with those that it started, at a moment of the monotonic clock."""

    at: float
    memory: int
    """Bytes that are its own, shared ones by their share."""
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one process after the warm-up; growth is that of an hour."""

    name: str
    first: Sample
    last: Sample
    memory: float
    descriptors: float
    threads: float

    @property
    def hours(self) -> float:
        """How long it was looked at."""
        return (self.last.at - self.first.at) / _HOUR


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may grow in an hour."""

    memory: float = MIB
    descriptors: float = 2.0
    threads: float = 1.0


def row(name: str, samples: Sequence[Sample], *, warm_up: float) -> Row:
    """Return what became of a process.

    Args:
        name: Of the process.
        samples: In the order of time; at least two after the warm-up.
        warm_up: Seconds from the first sample on that do not count.

    Raises:
        ValueError: There are fewer.
    """
    kept = [sample for sample in samples if sample.at - samples[0].at >= warm_up]
    if len(kept) < 2:
        raise ValueError(f"{name}: too few samples after {warm_up:.0f} s")
    return Row(
        name,
        kept[0],
        kept[-1],
        memory=_HOUR * slope([(one.at, one.memory) for one in kept]),
        descriptors=_HOUR * slope([(one.at, one.descriptors) for one in kept]),
        threads=_HOUR * slope([(one.at, one.threads) for one in kept]),
    )


def slope(points: Iterable[tuple[float, float]]) -> float:
    """Return by how much the second value rises with the first, by least squares."""
    every = list(points)
    middle_x = sum(x for x, _ in every) / len(every)
    middle_y = sum(y for _, y in every) / len(every)
    spread = sum((x - middle_x) ** 2 for x, _ in every)
    return sum((x - middle_x) * (y - middle_y) for x, y in every) / spread if spread else 0.0


def problems(rows: Iterable[Row], limits: Limits) -> list[str]:
    """Return what grows faster than it may."""
    return [
        f"{one.name}: {what} grow by {growth / unit:.1f} an hour, not {limit / unit:.1f}"
        for one in rows
        for what, growth, limit, unit in (
            ("MiB of memory", one.memory, limits.memory, MIB),
            ("descriptors", one.descriptors, limits.descriptors, 1),
            ("threads", one.threads, limits.threads, 1),
        )
        if growth > limit
    ]


def as_markdown(rows: Iterable[Row]) -> str:
    """Return the table."""
    return "\n".join([*_HEAD, *map(_line, rows)])


_HEAD: Final = (
    "| process | memory | growth an hour | descriptors | growth | threads | growth |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def as_course(samples: Mapping[str, Sequence[Sample]]) -> str:
    """Return a table of the memory of each process in each tenth of the run, MiB."""
    tenths = range(1, _PARTS + 1)
    head = ("| MiB in each tenth of the run |" + " |" * _PARTS, "| --- |" + " --- |" * _PARTS)
    return "\n".join(
        [
            *head,
            *(
                f"| {name} | " + " | ".join(f"{_part(each, one):.1f}" for one in tenths) + " |"
                for name, each in sorted(samples.items())
            ),
        ]
    )


def _part(samples: Sequence[Sample], number: int) -> float:
    """Return the mean memory of one of the parts of a run, MiB."""
    first, last = (len(samples) * each // _PARTS for each in (number - 1, number))
    part = samples[first : max(last, first + 1)]
    return sum(one.memory for one in part) / len(part) / MIB


def _line(one: Row) -> str:
    first, last = one.first, one.last
    return (
        f"| {one.name} | {first.memory / MIB:.1f} → {last.memory / MIB:.1f} MiB"
        f" | {one.memory / MIB:+.1f} MiB"
        f" | {first.descriptors} → {last.descriptors} | {one.descriptors:+.1f}"
        f" | {first.threads} → {last.threads} | {one.threads:+.1f} |"
    )
