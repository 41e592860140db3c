"""YAML documents with the places of their values and comments in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from webhook.kube.files.yaml_reader import YamlReader

_COMMENT: Final = re.compile("#[^\r\n\x85\u2028\u2029]*")
_HEADER: Final = re.compile("[|>][^\r\n]*")
"""What a block of text begins with."""
_COMMENT_BEHIND: Final = re.compile(f"[ \t]+({_COMMENT.pattern})")


@dataclass(slots=True)
class SourceNode:
    """A value and its place in the text; offsets are in characters."""

    value: object
    start: int
    end: int
    """Behind its last character; of a block, behind its last entry."""
    event: Event
    """What it begins with."""
    entries: list[SourceEntry] = field(default_factory=list)
    """Members or items; none behind an alias."""

    @property
    def is_flow(self) -> bool:
        """Whether it is a collection in braces or brackets."""
        event = self.event
        return isinstance(event, MappingStartEvent | SequenceStartEvent) and bool(event.flow_style)

    @property
    def is_block(self) -> bool:
        """Whether it is a collection whose members begin lines."""
        return bool(self.entries) and not self.is_flow


@dataclass(slots=True)
class SourceEntry:
    """A member of a mapping or an item of a sequence."""

    key: str
    """Name of a member; empty for an item."""
    start: int
    """Where the key begins, or the item."""
    key_end: int
    node: SourceNode
    end: int
    """Behind the value; in a block also behind a comment on its last line."""


@dataclass(frozen=True, slots=True)
class Source:
    """One document."""

    root: SourceNode
    start: int
    """Where its first directive or marker begins, or else its value."""
    end: int
    comments: tuple[tuple[int, int], ...]
    """Start and end of each comment from the end of the document before."""


class SourceReader(YamlReader):
    """Reads documents with the places of what is in them."""

    def __init__(self, text: str, *, max_depth: int) -> None:
        super().__init__(text, max_depth=max_depth)
        self._text = text
        self._start = 0
        self._end = 0
        self._last = Event()
        self._key_span: tuple[str, int, int] | None = None
        self._entries: list[SourceEntry] = []
        self._scalars: list[ScalarEvent | AliasEvent] = []

    def read_source(self) -> Source:
        """Return the next document with its places.

        Raises:
            yaml.YAMLError: The text is not YAML.
            YamlValueError: A value cannot be JSON.
        """
        self._entries, self._scalars = [], []
        self.read()
        before, self._end = self._end, _span(self._last)[1]
        comments = tuple(self._comments(before))
        root = self._entries[0].node
        self._set_ends(root)
        return Source(root, self._start, self._end, comments)

    def _next(self) -> Event:
        event = self._last = super()._next()
        if isinstance(event, DocumentStartEvent):
            self._start = _span(event)[0]
        elif isinstance(event, ScalarEvent | AliasEvent):
            self._scalars.append(event)
        return event

    def _key(self, event: Event) -> str:
        key = super()._key(event)
        self._key_span = (key, *_span(event))
        return key

    def _value(self, event: Event) -> object:
        start = _span(event)[0]
        key, key_start, key_end = self._key_span or ("", start, start)
        self._key_span = None
        around, self._entries = self._entries, []
        value = super()._value(event)
        node = SourceNode(value, start, _span(self._last)[1], event, self._entries)
        around.append(SourceEntry(key, key_start, key_end, node, node.end))
        self._entries = around
        return value

    def _set_ends(self, node: SourceNode) -> None:
        """Correct the ends of blocks: the parser sees one only where the next value begins."""
        for entry in node.entries:
            inner = entry.node
            self._set_ends(inner)
            entry.end = inner.end
            if node.is_block and not inner.is_block:
                behind = _COMMENT_BEHIND.match(self._text, inner.end)
                entry.end = behind.end() if behind else inner.end
        if node.is_block:
            node.end = node.entries[-1].end
        elif _is_block_scalar(node.event):
            node.end = node.start + len(self._text[node.start : node.end].rstrip())

    def _comments(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield the comments; a number sign in no scalar begins one, behind a block's mark too."""
        for scalar in self._scalars:
            start, after = _span(scalar)
            if _is_block_scalar(scalar):
                header = _HEADER.search(self._text, start)
                start = header.end() if header else start
            yield from self._comments_between(position, start)
            position = after
        yield from self._comments_between(position, self._end)

    def _comments_between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        yield from (each.span() for each in _COMMENT.finditer(self._text, start, end))


def _is_block_scalar(event: Event) -> bool:
    return isinstance(event, ScalarEvent) and event.style in ("|", ">")


def _span(event: Event) -> tuple[int, int]:
    start, end = event.start_mark, event.end_mark
    return (0 if start is None else start.index), (0 if end is None else end.index)
