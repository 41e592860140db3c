"""YAML text to plain values, document by document, from the parser's events.

Built from events and not by a loader's constructors, so that outer values have their lines,
repeated keys are seen, depth is bounded, and aliases cannot multiply: an alias costs as much as
what it stands for, and the whole text may spend only so much. The paths of lines have a budget too,
as each repeats the keys around it.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import islice
from typing import Final

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from webhook.kube.files.yaml_scalars import TAGS, Scalar, key_text, plain_value

ALIAS_BUDGET: Final = 100_000
"""How many values all aliases of a text may stand for; texts count by their length, too."""
_CHARACTERS_OF_VALUE: Final = 64
"""Of texts that aliases stand for, every so many count as one more value,"""
_BITS_OF_VALUE: Final = 256
"""and as many of a whole number."""
LONGEST_PATH: Final = 1024
"""Characters of a path whose line is noted."""
_PATHS_PER_CHARACTER: Final = 16
"""How many characters all noted paths may have for each of the text,"""
_SHORT_TEXT: Final = 4096
"""which is taken to have so many at least."""
MAX_TAG_DIRECTIVES: Final = 100
"""How many a text may have: the parser compares each with all others of its document."""
_TAG_DIRECTIVE: Final = re.compile("(?:^|[\r\n\x85\u2028\u2029])%TAG")
_COLLECTION_TAGS: Final = frozenset({None, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
_LINES_DEPTH: Final = 3


class YamlValueError(ValueError):
    """YAML that parses and does not stand for JSON.

    Attributes:
        detail: What is wrong.
        line: Where, from 1.
        column: Where in the line, from 1.
        field: YAML path of the value.
    """

    def __init__(self, detail: str, *, line: int, field: str, column: int = 1) -> None:
        super().__init__(detail)
        self.detail = detail
        self.line = line
        self.column = column
        self.field = field


class _Anchored:
    """Value of an anchor."""

    def __init__(self, value: object) -> None:
        self.value = value

    @cached_property
    def extent(self) -> tuple[int, int]:
        """How many values it counts as, and how deep it nests."""
        return _extent(self.value)


class YamlReader:
    """Reads the documents of one text, one after the other."""

    def __init__(self, text: str, *, max_depth: int) -> None:
        self._parser = yaml.CSafeLoader(text)
        self._get_event = self._parser.get_event
        directives = islice(_TAG_DIRECTIVE.finditer(text), MAX_TAG_DIRECTIVES, None)
        self._has_many_directives = next(directives, None) is not None
        self._max_depth = max_depth
        self._budget = ALIAS_BUDGET
        self._paths_budget = _PATHS_PER_CHARACTER * max(len(text), _SHORT_TEXT)
        self._anchors: dict[str, _Anchored] = {}
        self._path: list[str | int] = []
        """Keys and indexes that lead to the value that is being read."""
        self._lines: dict[str, int] = {}

    def close(self) -> None:
        """Release the parser."""
        self._parser.dispose()

    def has_more(self) -> bool:
        """Return whether another document follows.

        Raises:
            yaml.YAMLError: The text is not YAML.
            YamlValueError: It is one that takes very long to read.
        """
        if self._has_many_directives:
            raise YamlValueError("more %TAG directives than can be read", line=1, field="")
        if self._parser.check_event(StreamStartEvent):
            self._parser.get_event()
        return not self._parser.check_event(StreamEndEvent)

    def read(self) -> tuple[object, dict[str, int]]:
        """Return the next document and the lines of its outermost values.

        Raises:
            yaml.YAMLError: The text is not YAML.
            YamlValueError: A value cannot be JSON.
        """
        self._expect(DocumentStartEvent)
        self._anchors, self._lines, self._path = {}, {}, []
        value = self._value(self._next())
        self._expect(DocumentEndEvent)
        return value, self._lines

    def _expect(self, kind: type[Event]) -> None:
        event = self._next()
        if not isinstance(event, kind):
            raise self._error("unexpected structure", event)

    def _next(self) -> Event:
        event = self._get_event()
        if event is None:
            raise YamlValueError("ends too early", line=0, field=self._field())
        return event

    def _error(self, detail: str, event: Event) -> YamlValueError:
        mark = event.start_mark
        column = 1 if mark is None else mark.column + 1
        return YamlValueError(detail, line=_line(event), field=self._field(), column=column)

    def _field(self) -> str:
        steps = (f"[{one}]" if isinstance(one, int) else f".{one}" for one in self._path)
        return "".join(steps).removeprefix(".")

    def _value(self, event: Event) -> object:
        if isinstance(event, AliasEvent):
            return self._alias(event)
        if len(self._path) <= _LINES_DEPTH:
            self._note_line(event)
        value = self._scalar(event) if isinstance(event, ScalarEvent) else self._collection(event)
        if isinstance(event, NodeEvent) and event.anchor:
            self._anchors[event.anchor] = _Anchored(value)
        return value

    def _note_line(self, event: Event) -> None:
        # a key may be as long as the text, and be in the path of any number of values
        if sum([len(step) for step in self._path if isinstance(step, str)]) > LONGEST_PATH:
            return
        path = self._field()
        if len(path) <= min(LONGEST_PATH, self._paths_budget):
            self._paths_budget -= len(path)
            self._lines.setdefault(path, _line(event))

    def _collection(self, event: Event) -> object:
        if len(self._path) >= self._max_depth:
            raise self._error(f"nests deeper than {self._max_depth}", event)
        if isinstance(event, SequenceStartEvent):
            self._check_tag(event)
            return self._sequence()
        if isinstance(event, MappingStartEvent):
            self._check_tag(event)
            return self._mapping()
        raise self._error("unexpected structure", event)

    def _check_tag(self, event: SequenceStartEvent | MappingStartEvent) -> None:
        if event.tag not in _COLLECTION_TAGS:
            raise self._error(f"the tag {event.tag} is not supported", event)

    def _scalar(self, event: ScalarEvent) -> Scalar:
        is_plain, is_quoted = event.implicit
        if is_quoted and not is_plain:
            return str(event.value)
        read = plain_value if is_plain else TAGS.get(event.tag or "")
        if read is None:
            raise self._error(f"the tag {event.tag} is not supported", event)
        try:
            return read(event.value)
        except ValueError as err:
            raise self._error(str(err), event) from err

    def _sequence(self) -> list[object]:
        values: list[object] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            self._path.append(len(values))
            values.append(self._value(event))
            self._path.pop()
        return values

    def _mapping(self) -> dict[str, object]:
        mapping: dict[str, object] = {}
        merged: list[dict[str, object]] = []
        while not isinstance(event := self._next(), MappingEndEvent):
            key = self._key(event)
            if key in mapping:
                raise self._error(f"the key {key!r} appears twice", event)
            self._path.append(key)
            if key == "<<" and _is_plain(event):
                merged += self._merged(event)
            else:
                mapping[key] = self._value(self._next())
            self._path.pop()
        if not merged:
            return mapping
        whole: dict[str, object] = {}
        for source in (*reversed(merged), mapping):  # what counts most comes last
            whole.update(source)
        return whole

    def _key(self, event: Event) -> str:
        if not isinstance(event, ScalarEvent):
            raise self._error("a key must be a scalar", event)
        value = self._scalar(event)
        if type(value) is str:
            return value
        try:
            return key_text(value)
        except ValueError as err:
            raise self._error(str(err), event) from err

    def _merged(self, event: Event) -> list[dict[str, object]]:
        """Return the mappings that a merge key names, the one that yields first."""
        value = self._value(self._next())
        sources = value if isinstance(value, list) else [value]
        mappings = [source for source in sources if isinstance(source, dict)]
        if len(mappings) < len(sources):
            raise self._error("only mappings can be merged", event)
        return mappings

    def _alias(self, event: AliasEvent) -> object:
        anchored = self._anchors.get(event.anchor or "")
        if anchored is None:
            raise self._error(f"the alias {event.anchor} stands for nothing", event)
        size, height = anchored.extent
        self._budget -= size
        if self._budget < 0:
            raise self._error("aliases multiply beyond measure", event)
        if len(self._path) + height > self._max_depth:
            raise self._error(f"nests deeper than {self._max_depth}", event)
        return _copied(anchored.value)


def _line(event: Event) -> int:
    mark = event.start_mark
    return 0 if mark is None else mark.line + 1


def _is_plain(event: Event) -> bool:
    return isinstance(event, ScalarEvent) and bool(event.implicit[0])


def _extent(value: object) -> tuple[int, int]:
    """Return how many values a value counts as, and how deep it nests."""
    if not isinstance(value, dict | list):
        return 1 + _further(value), 1
    inner = [_extent(one) for one in (value.values() if isinstance(value, dict) else value)]
    keys = sum(map(_further, value)) if isinstance(value, dict) else 0
    size = 1 + keys + sum(size for size, _ in inner)
    return size, 1 + max((height for _, height in inner), default=0)


def _further(value: object) -> int:
    """Return as how many more values a scalar or key counts for its length."""
    if isinstance(value, str):
        return len(value) // _CHARACTERS_OF_VALUE
    return value.bit_length() // _BITS_OF_VALUE if isinstance(value, int) else 0


def _copied(value: object) -> object:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
