"""YAML with template actions in it.

Objects are dicts, lists and scalars; in their place may stand an action, which the template engine
replaces. Other text is written so that neither YAML nor the engine takes it for more than text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
"""What YAML reads as text without quotes, but for the words of `_WORDS`."""
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_LITERAL: Final = re.compile(r"[!-~][ -~]*(?:\n+[ -~]+)+\n?")
"""Text of several lines that YAML needs no escapes for."""
_PRINTABLE: Final = re.compile(r"[ -~]+")
_ACTION: Final = re.compile(r"\{\{")


@dataclass(frozen=True, slots=True)
class Action:
    """A value on one line that a template computes."""

    expression: str
    """The expression, without braces."""


@dataclass(frozen=True, slots=True)
class Block:
    """A value of several lines that a template computes."""

    expression: str
    """The expression, without braces."""
    is_text: bool = False
    """Whether the value is the text itself, and not the object that it describes."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value of the chart, in whose place nothing stands where it is empty: its field goes too."""

    expression: str
    """The expression, without braces."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text with actions in it."""

    text: str
    """The text; what stands in braces is computed."""


@dataclass(frozen=True, slots=True)
class Each:
    """An item of a list that is there for each value of another list, which is `.` in it."""

    expression: str
    """The other list, as an expression."""
    item: object


@dataclass(frozen=True, slots=True)
class When:
    """An item of a list that is there under a condition."""

    condition: str
    """The condition, as an expression."""
    item: object


def emit_documents(objects: Sequence[object]) -> str:
    """Return objects as YAML documents."""
    return "---\n".join("\n".join((*_lines(each, 0), "")) for each in objects)


def emit_value(name: str, value: object, indent: int) -> list[str]:
    """Return the lines of one field of an object."""
    return list(_entry(f"{' ' * indent}{name}:", value, indent))


def escaped(text: str) -> str:
    """Return text in which the template engine finds no action."""
    return _ACTION.sub('{{ "{{" }}', text)


def _lines(value: object, indent: int) -> Iterator[str]:
    """Yield the lines of an object or list that begins on a line of its own."""
    space = " " * indent
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _entry(f"{space}{_word(key)}:", item, indent)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, When | Each):
                start = (
                    f"if {item.condition}" if isinstance(item, When) else f"range {item.expression}"
                )
                yield f"{space}{{{{- {start} }}}}"
                yield from _item(item.item, indent)
                yield f"{space}{{{{- end }}}}"
            else:
                yield from _item(item, indent)


def _entry(head: str, item: object, indent: int) -> Iterator[str]:
    """Yield a field and its value; lists of an object stand as deep as its fields."""
    if isinstance(item, Given):
        yield f"{' ' * indent}{{{{- with {item.expression} }}}}"
        yield from _entry(head, Block("toYaml ."), indent)
        yield f"{' ' * indent}{{{{- end }}}}"
    elif isinstance(item, Block):
        yield f"{head} |" if item.is_text else head
        yield f"{' ' * (indent + 2)}{{{{- {item.expression} | nindent {indent + 2} }}}}"
    elif isinstance(item, Mapping) and item:
        yield head
        yield from _lines(item, indent + 2)
    elif isinstance(item, list) and item:
        yield head
        yield from _lines(item, indent)
    else:
        yield f"{head} {_scalar(item, indent + 2)}"


def _item(item: object, indent: int) -> Iterator[str]:
    if isinstance(item, Mapping | list) and item:
        first, *rest = _lines(item, indent + 2)
        yield f"{' ' * indent}- {first.lstrip()}"
        yield from rest
    else:
        yield f"{' ' * indent}- {_scalar(item, indent + 2)}"


def _scalar(value: object, indent: int) -> str:
    """Return a value as it stands behind its field; more lines are indented."""
    match value:
        case Action(expression):
            return f"{{{{ {expression} }}}}"
        case Text(text):
            return _literal(text, indent)
        case str():
            return _string(value, indent)
        case _:
            return json.dumps(value)


def _string(value: str, indent: int) -> str:
    return _literal(escaped(value), indent) if _LITERAL.fullmatch(value) else _word(value)


def _word(value: str) -> str:
    """Return text on one line."""
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if '"' in value and _PRINTABLE.fullmatch(value):
        return escaped("'" + value.replace("'", "''") + "'")
    return escaped(json.dumps(value, ensure_ascii=False))


def _literal(text: str, indent: int) -> str:
    body = text.rstrip("\n")
    ends = {0: "-", 1: ""}[len(text) - len(body)]
    space = " " * indent
    lines = (f"{space}{line}" if line else "" for line in body.split("\n"))
    return "\n".join((f"|{ends}", *lines))
