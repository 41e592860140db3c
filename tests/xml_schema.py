"""The part of XML Schema that the schema of JUnit reports uses: elements and attributes by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

_XS: Final = "{http://www.w3.org/2001/XMLSchema}"


@dataclass(frozen=True, slots=True)
class _Element:
    children: frozenset[str]
    attributes: frozenset[str]
    required: frozenset[str]
    has_text: bool


def xml_errors(text: str, schema: Path) -> Iterator[str]:
    """Yield everything that is wrong with a document: elements, attributes, text out of place."""
    declared = {
        str(one.get("name")): _element(one)
        for one in ET.parse(schema).getroot().findall(f"{_XS}element")  # noqa: S314 - our own file
    }
    root = ET.fromstring(text)  # noqa: S314 - our own report
    for node in root.iter():
        yield from _errors(node, declared[node.tag])
    if root.tag not in declared:
        yield f"{root.tag} is not declared"


def _element(node: ET.Element) -> _Element:
    inner = node.find(f"{_XS}complexType")
    if inner is None:  # a simple type, such as text
        return _Element(frozenset(), frozenset(), frozenset(), has_text=True)
    attributes = list(inner.iter(f"{_XS}attribute"))
    return _Element(
        frozenset(str(one.get("ref")) for one in inner.iter(f"{_XS}element")),
        frozenset(str(one.get("name")) for one in attributes),
        frozenset(str(one.get("name")) for one in attributes if one.get("use") == "required"),
        has_text=inner.get("mixed") == "true",
    )


def _errors(node: ET.Element, element: _Element) -> Iterator[str]:
    yield from (f"{node.tag} has {name}" for name in set(node.keys()) - element.attributes)
    yield from (f"{node.tag} lacks {name}" for name in element.required - set(node.keys()))
    yield from (f"{node.tag} has a {one.tag}" for one in node if one.tag not in element.children)
    if (node.text or "").strip() and not element.has_text:
        yield f"{node.tag} has text: {node.text}"
