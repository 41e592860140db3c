"""Ways to write a value as YAML, with comments wherever there may be some."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from webhook.kube.files.yaml_writer import scalar_text

Collection: TypeAlias = dict[str, object] | list[object]


@dataclass(frozen=True, slots=True)
class Layout:
    """A document as text."""

    text: str
    comments: list[str]
    """In their order."""

    @staticmethod
    def comments_in(text: str) -> list[str]:
        """The comments of layouts that a text has."""
        return re.findall(r"# <\d+>", text)


def layout_of(value: dict[str, object], random: Random) -> Layout:
    """A mapping with something in it, written in one of many ways."""
    writer = _Writer(random)
    head = random.choice(["", "---\n", "%YAML 1.1\n---\n"])
    top = writer.own_lines("")
    lines = writer.block(value, "") if random.randrange(6) else [writer.flow(value, "")]
    tail = writer.own_lines(random.choice(["", " "]))
    text = head + "\n".join([*top, *lines, *tail])
    # a text in a block has the end of its last line
    text += random.choice(["\n" if "|" in text else "", "\n", "\n\n"])
    return Layout(text.replace("\n", random.choice(["\n", "\n", "\r\n"])), writer.comments)


class _Writer:
    def __init__(self, random: Random) -> None:
        self._random = random
        self.comments: list[str] = []

    def _is_one_of(self, count: int) -> bool:
        return self._random.randrange(count) == 0

    def _comment(self) -> str:
        self.comments.append(f"# <{len(self.comments)}>")
        return self.comments[-1]

    def _behind(self) -> str:
        return self._random.choice([" ", "   "]) + self._comment() if self._is_one_of(3) else ""

    def own_lines(self, indent: str) -> list[str]:
        """Comments on lines of their own, and empty lines."""
        lines = [""] if self._is_one_of(5) else []
        return [*lines, indent + self._comment()] if self._is_one_of(4) else lines

    def block(self, value: Collection, indent: str) -> list[str]:
        """A collection with something in it, its first line without indent."""
        lines: list[str] = []
        is_mapping = isinstance(value, dict)
        items = value.items() if isinstance(value, dict) else [("", item) for item in value]
        for name, item in items:
            lines += self.own_lines(indent) if lines else []
            head = f"{self._key(name)}:" if is_mapping else "-"
            lines += self._member(head, item, indent, is_item=not is_mapping)
        return [lines[0].removeprefix(indent), *lines[1:]]

    def _member(self, head: str, value: object, indent: str, *, is_item: bool) -> list[str]:
        if isinstance(value, dict | list):
            if not value or self._is_one_of(4):
                return [f"{indent}{head} {self.flow(value, indent)}{self._behind()}"]
            if is_item:
                gap = " " * self._random.randint(1, 4)
                first, *others = self.block(value, f"{indent} {gap}")
                return [f"{indent}-{gap}{first}", *others]
            least = 0 if isinstance(value, list) else 1
            inner = indent + " " * self._random.randint(least, 4)
            lines = [f"{indent}{head}{self._behind()}", *self.own_lines(inner)]
            first, *others = self.block(value, inner)
            return [*lines, f"{inner}{first}", *others]
        if isinstance(value, str) and value.endswith("\n") and self._is_one_of(2):
            text = [f"{indent}  {line}" for line in value.splitlines()]
            return [f"{indent}{head} |{self._behind()}", *text]
        return [f"{indent}{head} {self._scalar(value)}{self._behind()}"]

    def flow(self, value: object, indent: str) -> str:
        """A value in a flow, perhaps on several lines."""
        if not isinstance(value, dict | list):
            text = self._scalar(value)
            is_plain = type(value) is not str or text.isalnum()
            return text if is_plain else json.dumps(value)
        is_wide = self._is_one_of(3)
        between = f"\n{indent}   " if is_wide else ""
        parts: list[str] = []
        items = value.items() if isinstance(value, dict) else [("", item) for item in value]
        for index, (name, item) in enumerate(items):
            head = f"{json.dumps(name)}: " if isinstance(value, dict) else ""
            own = f"{self._comment()}{between}" if is_wide and self._is_one_of(3) else ""
            part = between + own + head + self.flow(item, f"{indent}   ")
            comma = "" if index == len(value) - 1 else "," if is_wide else ", "
            parts.append(part + comma + (self._behind() if is_wide else ""))
        text = "".join(parts) + (f"\n{indent} " if is_wide else "")
        return f"{{{text}}}" if isinstance(value, dict) else f"[{text}]"

    def _key(self, name: str) -> str:
        return self._random.choice([scalar_text(name), json.dumps(name)])

    def _scalar(self, value: object) -> str:
        forms = [scalar_text(value), *([json.dumps(value)] if type(value) is str else [])]
        return self._random.choice(forms)
