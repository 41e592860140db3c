"""Plain values to YAML text that every reader takes for what they are.

What a plain scalar means depends on the reader: a string is quoted where any of them could take it
for something else, and whatever is no string is plain text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from webhook.jsonfields.encoding import NumberText
from webhook.kube.files.yaml_scalars import plain_value

_STRING: Final = "tag:yaml.org,2002:str"
_WIDE: Final = 2**31
"""A line is never folded."""
_KEY: Final = "k: "
_RESOLVER: Final[Any] = yaml.resolver.Resolver()
"""How readers of YAML 1.1 take plain scalars, sexagesimal numbers and dates included."""


def yaml_lines(value: object) -> list[str]:
    """Return a value in block style, line by line."""
    if isinstance(value, dict) and value:
        return [line for name, item in value.items() for line in member_lines(name, item)]
    if isinstance(value, list) and value:
        return [line for item in value for line in _item_lines(item)]
    return [scalar_text(value)]


def member_lines(name: str, value: object) -> list[str]:
    """Return a member of a mapping in block style, line by line."""
    lines = yaml_lines(value)
    if not isinstance(value, dict | list) or not value:
        return [f"{scalar_text(name)}: {lines[0]}"]
    indent = "  " if isinstance(value, dict) else ""
    return [f"{scalar_text(name)}:", *(f"{indent}{line}" for line in lines)]


def _item_lines(value: object) -> Iterator[str]:
    first, *others = yaml_lines(value)
    yield f"- {first}"
    yield from (f"  {line}" for line in others)


def scalar_text(value: object) -> str:
    """Return a scalar, or a collection without anything in it, on one line."""
    # as the value of a key: alone it would be followed by the end of a document
    written: str = yaml.dump({"k": value}, Dumper=_Dumper, allow_unicode=True, width=_WIDE)
    return written.removeprefix(_KEY).removesuffix("\n")


class _Dumper(yaml.SafeDumper):
    """Writes scalars by the rules of this module."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar(_STRING, text, style=_style(text))


def _represent_plain(dumper: yaml.SafeDumper, value: object) -> yaml.Node:
    words: Mapping[object, str] = {None: "null", True: "true", False: "false"}
    is_word = value is None or isinstance(value, bool)
    return dumper.represent_scalar(_STRING, words[value] if is_word else str(value))


def _prepare(dumper: Any) -> None:  # PyYAML does not type the tables of a class
    dumper.yaml_implicit_resolvers = {}
    dumper.add_representer(str, _represent_text)
    for kind in (NumberText, int, bool, type(None)):
        dumper.add_representer(kind, _represent_plain)


_prepare(_Dumper)


def _style(text: str) -> str | None:
    if "\n" in text:
        return '"'
    return "'" if _is_ambiguous(text) else None


def _is_ambiguous(text: str) -> bool:
    """Return whether a plain scalar could be read as anything but this string."""
    try:
        meant = plain_value(text)
    except ValueError:
        return True
    tag: object = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    return type(meant) is not str or tag != _STRING
