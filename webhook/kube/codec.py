"""JSON of objects: plain values in, bytes out, and never a float on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from webhook.jsonfields.encoding import InvalidJsonError, decode_json, encode_json
from webhook.kube.errors import BadRequestError, FieldCause
from webhook.kube.kinds import Kind


def encode(value: object) -> bytes:
    """Encode plain values as compact JSON; a `NumberText` becomes the number it was read from.

    Raises:
        BadRequestError: The value cannot be written as JSON, or nests too deep.
    """
    try:
        return encode_json(value)
    except InvalidJsonError as err:
        raise BadRequestError(f"the object cannot be written as JSON: {err}") from err


def decode_object(data: bytes) -> dict[str, object]:
    """Decode one JSON object.

    Raises:
        BadRequestError: The text is not JSON, or not an object.
    """
    try:
        value = decode_json(data)
    except InvalidJsonError as err:
        raise BadRequestError(f"the body is not JSON: {err}") from err
    if not isinstance(value, dict):
        raise BadRequestError("the body is not a JSON object")
    return value


_PLACE: Final = re.compile(r" - at `\$(?P<path>[^`]*)`")
_TYPES: Final = re.compile(r"Expected `(?P<wanted>\w+)(?: \| null)?`, got `(?P<given>\w+)`")
_NAMES: Final[Mapping[str, str]] = {
    "array": "a list",
    "bool": "a boolean",
    "float": "a number",
    "int": "a number",
    "null": "null",
    "object": "an object",
    "str": "a string",
}
"""Type as the typed decoder names it → its name in messages."""


def _wrong_type(match: re.Match[str]) -> str:
    wanted, given = match["wanted"], match["given"]
    name = "an integer" if wanted == "int" else _NAMES.get(wanted, wanted)
    return f"must be {name}, not {_NAMES.get(given, given)}"


def unreadable(kind: Kind, part: str, error: msgspec.ValidationError | str) -> BadRequestError:
    """Return the error of a field with the wrong type; `details.causes` names the field.

    Args:
        kind: The kind of the object.
        part: YAML path of what was read.
        error: What the typed decoder found inside, or a text about the whole part.
    """
    place = _PLACE.search(str(error))
    field = part + (place["path"] if place else "")
    detail = _TYPES.sub(_wrong_type, _PLACE.sub("", str(error)))
    cause = FieldCause("FieldValueTypeInvalid", field, detail)
    return BadRequestError(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
        f"{field}: {detail}",
        details={"causes": [cause.to_json()]},
    )
