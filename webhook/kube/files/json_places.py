"""Places in a JSON text, looked for only when something is wrong.

Values on the way are passed over by the decoder, so that a place deep in a large file is found in
the time of one more reading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_PLAIN: Final = json.JSONDecoder(parse_int=str, parse_float=str)
_DEEPEST_FAULT: Final = 128
_SPACE: Final = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of an object or a list."""

    key: str | int
    """Name, or index from 0."""
    place: int
    """Where its key begins; of an item of a list, its value."""
    value: int
    """Where its value begins."""


def json_spans(text: str) -> list[tuple[int, int]] | None:
    """Return where the values of a JSON text begin and end; None if it is none."""
    spans: list[tuple[int, int]] = []
    start = _after_space(text, 0)
    try:
        while start < len(text):
            _, end = _PLAIN.raw_decode(text, start)
            spans.append((start, end))
            start = _after_space(text, end)
    except (ValueError, RecursionError):
        return None
    return spans


def place_of(text: str, start: int, path: list[str | int]) -> int:
    """Return where the value at a path begins, or else what it would lie in.

    Args:
        text: JSON.
        start: Where the outermost value begins.
        path: Names and indexes; of a member the place is that of its key.
    """
    place = start
    for step in path:
        found = next((one for one in _members(text, start) if one.key == step), None)
        if found is None:
            break
        place, start = found.place, found.value
    return place


def place_of_fault(text: str, start: int, decode: Callable[[str, int], object]) -> int:
    """Return where a value begins that `decode` refuses although all in it is good.

    Where that is for a repeated key, it is the place of the second key. Of a fault that is very
    deep it is the place of what it lies in: all of that is decoded again at each step.

    Args:
        text: JSON.
        start: Where a value begins that is refused.
        decode: Reads the value at a place; raises ValueError.
    """
    for _ in range(_DEEPEST_FAULT):
        names: set[str | int] = set()
        for one in _members(text, start):
            if one.key in names:
                return one.place
            names.add(one.key)
            if _is_refused(decode, text, one.value):
                start = one.value
                break
        else:
            return start
    return start


def line_and_column(text: str, place: int) -> tuple[int, int]:
    """Return line and column of a place, from 1."""
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


def _is_refused(decode: Callable[[str, int], object], text: str, start: int) -> bool:
    try:
        decode(text, start)
    except ValueError:
        return True
    return False


def _members(text: str, start: int) -> Iterator[_Member]:
    """Yield the members of an object or a list; none of another value.

    They end where the text is not JSON any more.
    """
    is_object = text[start : start + 1] == "{"
    if not is_object and text[start : start + 1] != "[":
        return
    at, index = _after_space(text, start + 1), 0
    try:
        while text[at : at + 1] not in ("}", "]", ""):
            key, place = "", at
            if is_object:
                key, at = _PLAIN.raw_decode(text, at)
                at = _after_space(text, _after_space(text, at) + 1)
            yield _Member(key if is_object else index, place, at)
            _, at = _PLAIN.raw_decode(text, at)
            at = _after_space(text, at)
            if text[at : at + 1] == ",":
                at = _after_space(text, at + 1)
            index += 1
    except ValueError:
        return


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
