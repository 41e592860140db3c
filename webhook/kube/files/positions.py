"""Line and column of a value in a file, found when something has to be said about it.

Reading keeps no more than the lines of outer values; here one document is read again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import yaml

from webhook.kube.files.documents import Document, Place, SnapshotError
from webhook.kube.files.json_places import line_and_column, place_of

_LARGEST_YAML: Final = 1 << 24
"""Bytes of a YAML file that is read again for the place of an error."""
_STEP: Final = re.compile(r"\[(?P<index>\d+)\]|\[(?P<key>[^\]]+)\]|\.?(?P<name>[^.\[\]]+)")
_BREAKS: Final = ("---", "...")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file."""

    line: int
    """From 1."""
    column: int
    """From 1."""


@dataclass(slots=True)
class Positions:
    """Finds places in the files that were read."""

    files: dict[str, bytes] = field(default_factory=dict)
    """Name → content."""
    _lines: dict[str, list[str]] = field(default_factory=dict)
    _nodes: dict[tuple[str, int], yaml.Node | None] = field(default_factory=dict)

    def of(self, document: Document, path: str) -> Position:
        """Return where the value at a YAML path begins, or else what it would lie in."""
        start = document.lines.get("", 1)
        key = document.file, document.number
        if key not in self._nodes:
            self._nodes[key] = self._composed(document.file, start)
        node = self._nodes[key]
        if node is None:
            return Position(document.error("", field=path).place.line or start, 1)
        return _walked(node, path, start)

    def _composed(self, file: str, start: int) -> yaml.Node | None:
        if file not in self._lines:
            text = self.files.get(file, b"").decode("utf-8-sig", errors="replace")
            self._lines[file] = text.split("\n")
        lines = self._lines[file]
        end = start
        while end < len(lines) and not lines[end].startswith(_BREAKS):
            end += 1
        loader = yaml.CSafeLoader("\n".join(lines[start - 1 : end]))
        try:
            node: yaml.Node | None = loader.get_node() if loader.check_node() else None
        except yaml.YAMLError:
            return None
        finally:
            loader.dispose()
        return node


def located(err: SnapshotError, data: bytes) -> SnapshotError:
    """Return an error with line and column of its field, where they can be found.

    Args:
        err: What is wrong with a file.
        data: Its content.
    """
    if err.place.column is not None or err.start is None:
        return err
    position = _position(err, data, err.start)
    if position is None:
        return err
    place = Place(err.place.document, position.line, position.column)
    return SnapshotError(err.file, err.detail, place, field=err.field)


def _position(err: SnapshotError, data: bytes, start: int) -> Position | None:
    text = data.decode("utf-8-sig", errors="replace")
    if not text.lstrip().startswith(("{", "[")):
        if len(data) > _LARGEST_YAML:
            return None
        document = Document(err.file, err.place.document, None, {"": start})
        return Positions({err.file: data}).of(document, err.field)
    begin = 0
    for _ in range(start - 1):
        begin = text.find("\n", begin) + 1
    begin += len(text[begin:]) - len(text[begin:].lstrip())
    return Position(*line_and_column(text, place_of(text, begin, _steps(err.field))))


def _steps(path: str) -> list[str | int]:
    return [
        int(step["index"]) if step["index"] is not None else step["name"] or step["key"]
        for step in _STEP.finditer(path)
    ]


def _walked(node: yaml.Node, path: str, start: int) -> Position:
    mark = node.start_mark
    for step in _STEP.finditer(path):
        inner = _inner(node, step)
        if inner is None:
            break
        mark, node = inner
    return Position(start + mark.line, mark.column + 1)


def _inner(node: yaml.Node, step: re.Match[str]) -> tuple[yaml.Mark, yaml.Node] | None:
    if step["index"] is not None and isinstance(node, yaml.SequenceNode):
        index = int(step["index"])
        items = node.value
        return (items[index].start_mark, items[index]) if index < len(items) else None
    if not isinstance(node, yaml.MappingNode):
        return None
    name = step["name"] or step["key"] or step["index"]
    for key, value in node.value:
        if key.value == name:
            return key.start_mark, value
    return None
