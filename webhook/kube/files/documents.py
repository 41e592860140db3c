"""Files of YAML or JSON to plain values, strictly, with the place of whatever is wrong.

JSON is read one value after another (JSON lines or simply concatenated), YAML document by
document. Both refuse repeated keys, and neither makes a float: numbers are as kubectl sends them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeGuard

import msgspec
import yaml

from webhook.jsonfields.encoding import (
    InvalidJsonError,
    NumberText,
    encode_json,
)
from webhook.jsonfields.fields import json_type_of
from webhook.kube.files.json_places import line_and_column, place_of_fault
from webhook.kube.files.yaml_reader import LONGEST_PATH, YamlReader, YamlValueError
from webhook.kube.files.yaml_scalars import as_sent, check_length

MAX_DEPTH: Final = 128
"""How deep a document may nest."""

_DEEPEST_LIST: Final = 8
_CUT_OFF: Final = "; the text ends in the middle of a value"
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
"""An escape in JSON: a surrogate pair, half of one, or another."""
_TAB: Final = ": a tab; YAML is indented with spaces"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file, as exactly as it is known."""

    document: int = 0
    """The number of the document in the file, from 1; 0 is the whole file."""
    line: int | None = None
    """The line in the file, from 1."""
    column: int | None = None
    """The column in that line, from 1."""

    def __str__(self) -> str:
        """Return the place for a message; empty for the whole file."""
        parts = [f"document {self.document}"] if self.document else []
        if self.line is not None:
            parts.append(f"line {self.line}")
            parts += [f"column {self.column}"] if self.column is not None else []
        return ", ".join(parts)


class SnapshotError(ValueError):
    """A file that cannot be read as Kubernetes objects.

    Attributes:
        file: Its name.
        place: Where in the file.
        field: YAML path inside the document; may be empty.
        detail: What is wrong.
        start: The line at which the document begins, from 1; None if it is not known.
    """

    def __init__(
        self,
        file: str,
        detail: str,
        place: Place = Place(),
        *,
        field: str = "",
        start: int | None = None,
    ) -> None:
        parts = (file, str(place), field, detail)
        super().__init__(": ".join(part for part in parts if part))
        self.file = file
        self.place = place
        self.field = field
        self.detail = detail
        self.start = start


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file."""

    file: str
    number: int
    """Its place among the documents of the file, from 1; empty documents count."""
    value: object
    """Its content; None when it is empty."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """YAML path → line in the file, for the document itself ("") and its outer values; for paths
    that are missing the line of what they lie in is the nearest known."""

    def error(self, detail: str, *, field: str = "") -> SnapshotError:
        """Return an error about the value at a YAML path, with the nearest line that is known."""
        place = field[: LONGEST_PATH + 1]  # nothing longer is known, and each step copies it
        while place and place not in self.lines:
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        found = Place(self.number, self.lines.get(place))
        return SnapshotError(self.file, detail, found, field=field, start=self.lines.get(""))


def read_documents(file: str, data: bytes) -> tuple[Document, ...]:
    """Read all documents of a file.

    Raises:
        SnapshotError: One cannot be read; nothing is returned of the others.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        raise SnapshotError(file, "not UTF-8 text", Place(line=line)) from err
    if not text.lstrip().startswith(("{", "[")):
        return tuple(_yaml_documents(file, text))
    value = _read_at_once(data)
    if value is not None:
        return (Document(file, 1, value, {"": 1 + text.count("\n", 0, _skip_space(text, 0))}),)
    try:
        return tuple(_json_documents(file, text))
    except SnapshotError as json_error:
        if not isinstance(json_error.__cause__, json.JSONDecodeError):
            raise
        # what begins like JSON may be YAML in flow style
        try:
            return tuple(_yaml_documents(file, text))
        except SnapshotError:
            raise json_error from None


def _read_at_once(data: bytes) -> object:
    """Return the value of a file that is one JSON text, else None.

    A decoder that does not see repeated keys is several times as fast: what it has read has one
    key less then than the text.
    """
    try:
        value = decode_plain(data)
        is_whole = has_plain_keys(data) and count_keys(value) == data.count(b":")
    except InvalidJsonError:
        return None  # the other decoder says where
    return value if is_whole else None


def decode_plain(data: bytes) -> object:
    """Decode one JSON text; of repeated keys the last one stands.

    Raises:
        InvalidJsonError: It is none, nests too deep, or has a number that is too long.
    """
    try:
        value: object = _PLAIN.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as err:
        raise InvalidJsonError(str(err)) from err
    return value


def has_plain_keys(data: bytes) -> bool:
    """Return whether every colon of a JSON text stands as itself, so that keys can be counted."""
    return b"\\u003a" not in data and b"\\u003A" not in data


def count_keys(value: object) -> int:
    """Return how many colons a value has as JSON: its keys, and what strings have of them.

    A JSON text of the value has as many, unless a key is repeated in it, or a colon is escaped.

    Raises:
        InvalidJsonError: It has no JSON form.
    """
    return encode_json(value).count(b":")


def flatten_lists(
    document: Document, problems: list[SnapshotError] | None = None
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Return the objects of a document with their YAML paths, lists taken apart.

    An item of a typed list, such as a PodList, gets the kind that the list implies.

    Args:
        document: The document.
        problems: Receives what is wrong with items of lists, which are left out; without it the
            first such item ends the reading.

    Raises:
        SnapshotError: Something is not an object, or does not say what it is.
    """
    if document.value is not None:
        yield from _without_lists(document, document.value, "", 0, problems)


def _without_lists(
    document: Document, value: object, path: str, depth: int, problems: list[SnapshotError] | None
) -> Iterator[tuple[str, Mapping[str, object]]]:
    if not isinstance(value, Mapping):
        raise document.error(f"must be an object, not {json_type_of(value)}", field=path)
    api_version, kind = (_text(document, value, name, path) for name in ("apiVersion", "kind"))
    if not (kind.endswith("List") and "items" in value):
        yield path, value
        return
    if depth >= _DEEPEST_LIST:
        raise document.error("lists in lists nest too deep", field=path)
    items = value["items"] if value["items"] is not None else []
    inner = f"{path}.items" if path else "items"
    if not isinstance(items, list):
        raise document.error(f"must be a list, not {json_type_of(items)}", field=inner)
    implied = {} if kind == "List" else {"apiVersion": api_version, "kind": kind[: -len("List")]}
    for index, item in enumerate(items):
        if _is_single(item):
            yield f"{inner}[{index}]", item
            continue
        full = {**implied, **item} if isinstance(item, Mapping) else item
        try:
            yield from _without_lists(document, full, f"{inner}[{index}]", depth + 1, problems)
        except SnapshotError as err:
            if problems is None:
                raise
            problems.append(err)


def _is_single(item: object) -> TypeGuard[dict[str, object]]:
    """Return whether a value is an object that says what it is, and no list; false is a doubt."""
    if type(item) is not dict:
        return False
    version, kind = item.get("apiVersion"), item.get("kind")
    if type(version) is not str or type(kind) is not str:
        return False
    return bool(version and kind) and not kind.endswith("List")


def _text(document: Document, value: Mapping[str, object], name: str, path: str) -> str:
    found = value.get(name)
    if isinstance(found, str) and found:
        return found
    wrong = "required" if found in (None, "") else f"must be a string, not {json_type_of(found)}"
    raise document.error(wrong, field=f"{path}.{name}" if path else name)


def _yaml_documents(file: str, text: str) -> Iterator[Document]:
    reader = YamlReader(text, max_depth=MAX_DEPTH)
    number = 0
    try:
        while reader.has_more():
            number += 1
            value, lines = reader.read()
            yield Document(file, number, value, lines)
    except YamlValueError as err:
        place = Place(number, err.line, err.column)
        raise SnapshotError(file, err.detail, place, field=err.field) from err
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark
        number = max(number, 1)
        place = Place(number) if mark is None else Place(number, mark.line + 1, mark.column + 1)
        hint = "" if mark is None else _hint_of_tab(text, mark)
        raise SnapshotError(file, f"{err.problem or 'not YAML'}{hint}", place) from err
    except yaml.YAMLError as err:
        detail = str(err).partition("\n")[0]
        raise SnapshotError(file, detail, Place(max(number, 1))) from err
    finally:
        reader.close()


def _hint_of_tab(text: str, mark: yaml.Mark) -> str:
    """Return what the parser means, which does not name the character."""
    line = "".join(text.split("\n")[mark.line : mark.line + 1])  # none behind the last one
    return _TAB if line[mark.column : mark.column + 1] == "\t" else ""


def _json_documents(file: str, text: str) -> Iterator[Document]:
    position, number, line = _skip_space(text, 0), 0, 1
    line += text.count("\n", 0, position)
    while position < len(text):
        number += 1
        try:
            value, end = _JSON.raw_decode(text, position)
        except json.JSONDecodeError as err:
            detail = f"{err.msg}{_CUT_OFF if _is_cut_off(err) else ''}"
            raise SnapshotError(file, detail, Place(number, err.lineno, err.colno)) from err
        except RecursionError as err:
            raise SnapshotError(file, "nests too deep", Place(number, line)) from err
        except ValueError as err:
            fault = place_of_fault(text, position, _JSON.raw_decode)
            place = Place(number, *line_and_column(text, fault))
            raise SnapshotError(file, str(err), place) from err
        _check_pairs(file, number, text, (position, end))
        yield Document(file, number, value, {"": line})
        after = _skip_space(text, end)
        line += text.count("\n", position, after)
        position = after


def _check_pairs(file: str, number: int, text: str, span: tuple[int, int]) -> None:
    """Refuse text that UTF-8 has no form for, so that nothing could write it again."""
    for escape in _ESCAPE.finditer(text, *span):
        if escape["half"]:
            place = Place(number, *line_and_column(text, escape.start()))
            raise SnapshotError(file, f"{escape[0]} is half a surrogate pair", place)


def _is_cut_off(err: json.JSONDecodeError) -> bool:
    return err.msg.startswith("Unterminated") or err.pos >= len(err.doc.rstrip())


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"the key {repeated!r} appears twice in one object")
    return mapping


def _integer(digits: str) -> int:
    check_length(digits)
    return int(digits)


def _number(text: str) -> NumberText | int:
    check_length(text)
    return as_sent(NumberText(text))


_PLAIN: Final = msgspec.json.Decoder(float_hook=_number)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_without_repeats,
    parse_float=_number,
    parse_int=_integer,
    parse_constant=_refuse_constant,
)
