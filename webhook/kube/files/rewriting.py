"""Some documents of a file changed in its text, all else of it kept as it stands.

In a document that changes only the values that differ are written anew: comments, order, quotes,
indentation and line ends stay. What is made of a value that goes takes its place, with the comments
beside it; comments of what goes without that stay where they are, on lines of their own.

The text is read again. Where it does not mean what it should, or has lost a comment, which takes an
anchor or another thing that reaches beyond the value it stands at, the document is written anew
below its comments. A JSON document is written anew as JSON, which has no comments.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import yaml
from yaml.events import ScalarEvent

from webhook.jsonfields.encoding import encode_json
from webhook.jsonfields.fields import key
from webhook.kube.files.documents import MAX_DEPTH
from webhook.kube.files.json_places import json_spans
from webhook.kube.files.yaml_reader import YamlValueError
from webhook.kube.files.yaml_sources import Source, SourceEntry, SourceNode, SourceReader
from webhook.kube.files.yaml_writer import member_lines, scalar_text, yaml_lines

_BREAK: Final = re.compile("\r\n|\n|\r")
_LINE_BEGIN: Final = re.compile("(\r\n|\n|\r)( *)(?=[^ \r\n])")
_JSON_INDENT: Final = re.compile("[{[]\r?\n( +)")
_MERGE: Final = "<<"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A document as it is to be."""

    value: object
    moved: Mapping[str, str] = field(default_factory=dict)
    """YAML path of a value → path of the one that it is made of, where its key is another."""


def rewritten(text: str, rewrites: Mapping[int, Rewrite]) -> str:
    """Return the text of a file with some of its documents changed.

    Args:
        text: What `read_documents` has read.
        rewrites: Number of a document, from 1 → what it is to be.

    Raises:
        InvalidJsonError: A document of a JSON file has no JSON form.
    """
    if not rewrites:
        return text
    spans = json_spans(text)
    parts: list[str] = []
    position = 0
    for start, end, part in (
        _json_parts(text, spans, rewrites) if spans else _yaml_parts(text, rewrites)
    ):
        parts += [text[position:start], part]
        position = end
    return "".join((*parts, text[position:]))


def _json_parts(
    text: str, spans: Sequence[tuple[int, int]], rewrites: Mapping[int, Rewrite]
) -> Iterator[tuple[int, int, str]]:
    for number, rewrite in rewrites.items():
        start, end = spans[number - 1]
        found = _JSON_INDENT.match(text, start)
        indent = len(found[1]) if found else 0
        data = msgspec.json.format(encode_json(rewrite.value), indent=indent)
        yield start, end, data.decode().replace("\n", _line_end(text))


def _yaml_parts(text: str, rewrites: Mapping[int, Rewrite]) -> Iterator[tuple[int, int, str]]:
    reader = SourceReader(text, max_depth=MAX_DEPTH)
    number = 0
    try:
        while reader.has_more():
            number += 1
            source = reader.read_source()
            if number in rewrites:
                part = _changed(text, source, rewrites[number])
                yield source.root.start, source.root.end, part
    finally:
        reader.close()


def _changed(text: str, source: Source, rewrite: Rewrite) -> str:
    rewriter = _Rewriter(text, source, rewrite.moved)
    part = rewriter.render(source.root, rewrite.value, "")
    if part is not None and _is_kept(text, source, part, rewrite.value):
        return part
    return rewriter.anew(rewrite.value)


def _is_kept(text: str, source: Source, part: str, value: object) -> bool:
    """Return whether a text in place of a document means a value, with the document's comments."""
    root = source.root
    whole = text[source.start : root.start] + part + text[root.end : source.end]
    reader = SourceReader(whole, max_depth=MAX_DEPTH)
    try:
        if not reader.has_more():
            return False
        changed = reader.read_source()
        is_single = not reader.has_more()
    except (yaml.YAMLError, YamlValueError):
        return False
    finally:
        reader.close()
    before = [text[start:end] for start, end in source.comments if start >= source.start]
    after = [whole[start:end] for start, end in changed.comments]
    return is_single and before == after and is_same(changed.root.value, value)


def is_same(one: object, other: object) -> bool:
    """Return whether two plain values are the same, types of scalars included."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return one == other


@dataclass(frozen=True, slots=True)
class _Members:
    """A mapping some members of which are to be made."""

    path: str
    """Its YAML path before."""
    column: int | None
    """Where members begin; None in a flow."""
    absent: dict[str, object]
    """Members that are not there yet; fewer with each that is made."""
    made: list[str] = field(default_factory=list)
    """Those that were, in that order."""

    def make(self, name: str) -> object:
        """Return the value of an absent member, which is absent no more."""
        self.made.append(name)
        return self.absent.pop(name)


class _Rewriter:
    """Writes the values of one document that differ; offsets and paths are those of before."""

    def __init__(self, text: str, source: Source, moved: Mapping[str, str]) -> None:
        self._text = text
        self._source = source
        self._new_paths = {before: after for after, before in moved.items()}
        self._line_end = _line_end(text)

    def anew(self, value: object) -> str:
        """Return a document below its comments."""
        root = self._source.root
        lines = [*self._comments(root.start, root.end), *yaml_lines(value)]
        # a mapping cannot begin behind the marker of the document
        is_behind = bool(self._line_of(root.start).strip())
        return self._line_end * is_behind + self._line_end.join(lines)

    def render(self, node: SourceNode, value: object, path: str) -> str | None:
        """Return the text of a value in the place of another; None if it cannot be written there.

        Args:
            node: What is there.
            value: What is to be there.
            path: YAML path of what is there.
        """
        if is_same(node.value, value):
            return self._text[node.start : node.end]
        if isinstance(value, dict) and isinstance(node.value, dict):
            has_merge = any(entry.key == _MERGE for entry in node.entries)
            if not value or not node.entries or has_merge:
                return None
            return (self._flow if node.is_flow else self._block)(node, value, path)
        if isinstance(value, list) and isinstance(node.value, list):
            return self._sequence(node, value, path)
        return self._scalar(node, value)

    def _scalar(self, node: SourceNode, value: object) -> str | None:
        before = self._text[node.start : node.end]
        is_scalar = isinstance(node.event, ScalarEvent) and not isinstance(value, dict | list)
        if not is_scalar or before[:1] in ("", *"&!|>"):
            return None
        written = scalar_text(value)
        if type(value) is str and before.startswith('"'):
            return encode_json(value).decode()
        if type(value) is str and before.startswith("'") and written == value:
            return f"'{value}'"
        return written

    # -- sequences -------------------------------------------------------------------------

    def _sequence(self, node: SourceNode, value: list[object], path: str) -> str | None:
        """Return a sequence with changed items and more of them."""
        if not 0 < len(node.entries) <= len(value) or self._text[node.start] not in "-[":
            return None
        parts: list[str] = []
        position = node.start
        for index, entry in enumerate(node.entries):
            item = self.render(entry.node, value[index], f"{path}[{index}]")
            if item is None:
                return None
            parts += [self._text[position : entry.start], item]
            position = entry.node.end
        parts.append(self._text[position : node.entries[-1].end])
        column = self._column(node.start)
        for added in value[len(node.entries) :]:
            lines = [f", {_json(added)}"]
            if not node.is_flow:
                lines = ["", *(f"{' ' * column}{line}" for line in yaml_lines([added]))]
            parts.append(self._line_end.join(lines))
        return "".join((*parts, self._text[node.entries[-1].end : node.end]))

    # -- mappings --------------------------------------------------------------------------

    def _block(self, node: SourceNode, value: dict[str, object], path: str) -> str:
        first = node.entries[0].start
        column = self._column(first)
        parts = [self._text[node.start : first]]
        gap = ""
        is_gone = False
        position = first
        for entry, pieces in zip(
            node.entries, self._pieces(node, value, path, column), strict=True
        ):
            behind = self._text[position : entry.start]
            gap = _joined_gaps(gap, behind) if is_gone else behind
            is_gone = not pieces
            if pieces:
                parts += [gap, self._between(column).join(pieces)]
            position = entry.end
        if is_gone:
            parts.append(_without_last_line(gap))
        return "".join(parts)

    def _flow(self, node: SourceNode, value: dict[str, object], path: str) -> str | None:
        if self._text[node.start] != "{":
            return None
        pieces: list[str] = []
        parts: list[str] = []
        is_in_place = True
        position = node.start
        for entry, inner in zip(node.entries, self._pieces(node, value, path, None), strict=True):
            is_in_place = is_in_place and len(inner) == 1 and not inner[0].startswith("#")
            pieces += [*self._comments(position, entry.start), *inner]
            parts += [self._text[position : entry.start], *inner]
            position = entry.end
        if is_in_place:
            return "".join((*parts, self._text[position : node.end]))
        pieces += self._comments(position, node.end)
        return self._braces(node, pieces)

    def _braces(self, node: SourceNode, pieces: Sequence[str]) -> str:
        members = [piece for piece in pieces if not piece.startswith("#")]
        has_comments = len(members) < len(pieces)
        if not has_comments and not _BREAK.search(self._text, node.start, node.end):
            return f"{{{', '.join(members)}}}"
        line = self._line_of(node.start)
        indent = line[: len(line) - len(line.lstrip())]
        last = max(index for index, piece in enumerate(pieces) if not piece.startswith("#"))
        lines = [
            f"{indent}  {piece}{'' if piece.startswith('#') or index == last else ','}"
            for index, piece in enumerate(pieces)
        ]
        return self._line_end.join(("{", *lines, f"{indent}}}"))

    def _pieces(
        self, node: SourceNode, value: dict[str, object], path: str, column: int | None
    ) -> list[list[str]]:
        """Return members and comments in the place of each member that is there.

        Args:
            node: A mapping with members.
            value: What it is to be.
            path: Its YAML path before.
            column: Where members begin; None in a flow.
        """
        present = {entry.key for entry in node.entries}
        absent = {name: item for name, item in value.items() if name not in present}
        members = _Members(path, column, absent)
        places: dict[str, int] = {}
        pieces: list[list[str]] = []
        for index, entry in enumerate(node.entries):
            here = key(path, entry.key)
            if entry.key in value:
                places[entry.key] = index
                pieces.append(self._kept(entry, entry.key, value[entry.key], here, column))
                continue
            before = len(members.made)
            pieces.append(self._dissolved(entry, here, members))
            places |= dict.fromkeys(members.made[before:], index)
        first: list[str] = []
        added = first
        for name, item in value.items():
            if name in places:
                added = pieces[places[name]]
            else:
                added.append(self._written(name, item, column))
        pieces[0][:0] = first
        return pieces

    def _kept(
        self, entry: SourceEntry, name: str, value: object, path: str, column: int | None
    ) -> list[str]:
        """Return a member with another value, perhaps of another name."""
        node = entry.node
        new = self.render(node, value, path)
        if new is None:
            written = self._written(name, value, column)
            return [*self._comments(entry.start, entry.end), written]
        head = self._text[entry.start : entry.key_end]
        if name != entry.key:
            head = scalar_text(name)
        colon = self._text[entry.key_end : node.start]
        if column is not None and colon.endswith(":") and new:
            colon += " "  # which a quoted key does without in a flow
        return [head + colon + new + self._text[node.end : entry.end]]

    def _dissolved(self, entry: SourceEntry, here: str, members: _Members) -> list[str]:
        """Return what stays of a member that goes: its comments, and what is made of parts of it.

        Args:
            entry: The member, or one within it.
            here: Its YAML path.
            members: The mapping that it goes from; what is made is taken off its absent members.
        """
        new_path = self._new_paths.get(here, "")
        for name in members.absent if new_path else ():  # few are moved, where many may go
            path = key(members.path, name)
            if new_path == path:
                made = self._kept(entry, name, members.make(name), here, members.column)
                return [self._moved(piece, entry, members.column) for piece in made]
            if new_path.startswith(f"{path}."):
                return self._made(entry, name, new_path, members)
        pieces: list[str] = []
        position = entry.start
        for inner in entry.node.entries if isinstance(entry.node.value, dict) else ():
            pieces += self._comments(position, inner.start)
            pieces += self._dissolved(inner, key(here, inner.key), members)
            position = inner.end
        return [*pieces, *self._comments(position, entry.end)]

    def _made(self, entry: SourceEntry, name: str, new_path: str, members: _Members) -> list[str]:
        """Return a new member, with the value of an old one at a path within it."""
        value = members.make(name)
        if members.column is not None:
            within = new_path[len(members.path) :].removeprefix(".")
            with_part = self._with_part(entry, {name: value}, members.column, within)
            if with_part is not None:
                return [with_part]
        return [*self._comments(entry.start, entry.end), self._written(name, value, members.column)]

    def _with_part(self, entry: SourceEntry, value: object, column: int, path: str) -> str | None:
        """Return new members with the value of an old one in them as it stood; None if it differs.

        Args:
            entry: The old member.
            value: The new members.
            column: Where they begin.
            path: YAML path in them of what is made of the old one.
        """
        text = "\n".join(yaml_lines(value))
        reader = SourceReader(text, max_depth=MAX_DEPTH)
        try:
            reader.has_more()
            root = reader.read_source().root
        finally:
            reader.close()
        entries = dict(_entries(root, ""))
        part = entries.get(path)
        if part is None or not is_same(part.node.value, entry.node.value):
            return None
        before, after = (
            each.replace("\n", self._between(column))
            for each in (text[: part.key_end], text[part.end :])
        )
        place = column + part.start - (text.rfind("\n", 0, part.start) + 1)
        old = self._text[entry.key_end : entry.end]
        return before + _shifted(old, place - self._column(entry.start)) + after

    # -- text ------------------------------------------------------------------------------

    def _moved(self, piece: str, entry: SourceEntry, column: int | None) -> str:
        """Return the text of a member whose first line begins at another column."""
        return piece if column is None else _shifted(piece, column - self._column(entry.start))

    def _written(self, name: str, value: object, column: int | None) -> str:
        """Return a new member."""
        if column is None:
            return f"{_json(name)}: {_json(value)}"
        return self._between(column).join(member_lines(name, value))

    def _between(self, column: int) -> str:
        """Return what is between two members of a block."""
        return self._line_end + " " * column

    def _comments(self, start: int, end: int) -> list[str]:
        comments = self._source.comments
        first, last = bisect_left(comments, (start,)), bisect_left(comments, (end,))
        return [self._text[begin:after] for begin, after in comments[first:last]]

    def _line_of(self, place: int) -> str:
        """Return the line of a place up to it."""
        begin = self._text.rfind("\n", 0, place) + 1
        begin = max(begin, self._text.rfind("\r", begin, place) + 1)
        return self._text[begin:place]

    def _column(self, place: int) -> int:
        return len(self._line_of(place))


def _entries(node: SourceNode, path: str) -> Iterator[tuple[str, SourceEntry]]:
    """Yield all members and items of a value with their paths."""
    is_mapping = isinstance(node.value, dict)
    for index, entry in enumerate(node.entries):
        here = key(path, entry.key) if is_mapping else f"{path}[{index}]"
        yield here, entry
        yield from _entries(entry.node, here)


def _shifted(text: str, columns: int) -> str:
    """Return a text with its lines, but the first, further right, or left where it is negative."""
    return _LINE_BEGIN.sub(lambda at: at[1] + " " * max(0, len(at[2]) + columns), text)


def _joined_gaps(before: str, behind: str) -> str:
    """Return what separates two members of a block when one between them is gone."""
    if not before:
        return behind.lstrip()
    return before.rstrip(" \t") + _BREAK.sub("", behind.lstrip(" \t"), count=1)


def _without_last_line(gap: str) -> str:
    return re.sub("(\r\n|\n|\r)[ \t]*$", "", gap)


def _json(value: object) -> str:
    """Return a value as JSON on one line, which a flow may hold."""
    return msgspec.json.format(encode_json(value), indent=0).decode()


def _line_end(text: str) -> str:
    found = _BREAK.search(text)
    return found[0] if found else "\n"
