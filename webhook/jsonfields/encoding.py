"""JSON text to plain values and back, without ever making a float.

A number with a fraction or an exponent keeps its source text as a `NumberText`, because
a quantity such as `0.1` or `1E3` has to be read from what was written.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

_T = TypeVar("_T")


class InvalidJsonError(ValueError):
    """Text that is not JSON, or a value that has no JSON form; or it nests too deep."""


class NumberText(str):
    """A JSON or YAML number that is not an integer, as its source text."""

    __slots__ = ()


def _as_written(value: object) -> msgspec.Raw | str:
    """Encode a number as its source text; the encoder asks for what it does not know itself."""
    if isinstance(value, NumberText):
        return msgspec.Raw(str.encode(value))
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


_BYTES_OF: Final = ((b",", 136), (b":", 100), (b"{", 184), (b"[", 80))
"""What a value, a key, an object and a list take at most, as decoded and as read: measured."""
_BYTES_OF_TEXT: Final = 4
"""For each byte of the text: itself, its copies, or a character outside of the basic plane."""

_DEEPEST: Final = 128
"""Levels of what nests too deep to be decoded that are kept; no kind of Kubernetes has as many."""
_NESTING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]', re.DOTALL)
"""A text, in which brackets mean nothing, or a bracket."""
_MANAGED_FIELDS: Final = b',"managedFields":['
_AFTER_MANAGED_FIELDS: Final = b'}]},"spec":'
"""What follows in an object of a kind that is built in, of which they end the metadata. Nothing in
them looks like it: they hold no lists, and a quotation mark within a text is escaped."""
_MEMBER_LIST: Final = b'":['
"""How a list begins that an object holds. The API server looks only at the managed fields of an
object itself: those in the template of a Job may hold anything, also what looks like their end."""

_DECODER = msgspec.json.Decoder(float_hook=NumberText)
_ENCODER = msgspec.json.Encoder(enc_hook=_as_written)


def decode_json(data: bytes | str) -> object:
    """Decode one JSON value; objects become dicts, and of repeated keys the last one stands.

    Repeated keys are read as the API server's own decoder reads them, and so are bytes that are no
    UTF-8. Of what nests too deep the inner values are missing (see `decode_deep`).

    Raises:
        InvalidJsonError: The text is not JSON.
    """
    try:
        value: object = decode_deep(_DECODER, data)
    except msgspec.DecodeError as err:
        raise InvalidJsonError(str(err)) from err
    return value


def decode_deep(decoder: msgspec.json.Decoder[_T], data: bytes | str) -> _T:
    """Decode JSON text, without what nests too deep to be read, and whatever its bytes are.

    Both may be in any object: the API server stores managed fields of 10,000 levels, or with bytes
    that are no UTF-8, which the creator of a pod makes up. No code here reads them, and the rest of
    the object must not be lost, nor the list that it is in.

    Raises:
        msgspec.DecodeError: As the decoder does.
    """
    try:
        return decode_tolerant(decoder, data)
    except RecursionError:
        return decoder.decode(_without_depths(_as_utf8(data)))


def decode_tolerant(decoder: msgspec.json.Decoder[_T], data: bytes | str | msgspec.Raw) -> _T:
    """Decode JSON text, whatever clients make up in managed fields.

    They may nest too deep, and the API server passes on bytes in them that are no UTF-8.

    Raises:
        RecursionError: Something else nests too deep.
        msgspec.DecodeError: As the decoder does.
    """
    try:
        return decoder.decode(data)
    except UnicodeDecodeError:
        return decode_tolerant(decoder, _as_utf8(data))
    except RecursionError as err:
        try:
            return decoder.decode(without_managed_fields(_as_utf8(data)))
        except msgspec.DecodeError:  # what nests is the reason
            raise err from None


def _as_utf8(data: bytes | str | msgspec.Raw) -> bytes:
    """Return text in which U+FFFD stands for bytes that are no UTF-8; Go has one for each byte."""
    text = data if isinstance(data, str) else bytes(data).decode(errors="replace")
    return text.encode()


def without_managed_fields(data: bytes) -> bytes:
    """Return JSON text of the API server without the managed fields of kinds that are built in."""
    parts, rest, at, end = [], 0, 0, -1
    while (start := data.find(_MANAGED_FIELDS, at)) >= 0:
        at = start + len(_MANAGED_FIELDS)
        if end < start:  # else it is known: a byte costs one look
            end = data.find(_AFTER_MANAGED_FIELDS, start)
            if end < 0:
                break
        if data.find(_MEMBER_LIST, at, end) < 0:  # else the end may be that of the list
            parts.append(data[rest:start])
            rest = at = end + len(b"}]")
    return b"".join((*parts, data[rest:]))


def _without_depths(data: bytes) -> bytes:
    """Return JSON text whose lists and objects are empty below the deepest level.

    A text of megabytes takes a second: managed fields, which tenants write, are found quicker.
    """
    parts, depth, rest = [], 0, 0
    for found in _NESTING.finditer(data):
        sign = data[found.start()]
        if sign in b"[{":
            depth += 1
            if depth == _DEEPEST + 1:
                parts.append(data[rest : found.end()])
        elif sign in b"]}":
            if depth == _DEEPEST + 1:
                rest = found.start()
            depth -= 1
    if depth <= _DEEPEST:  # else it is cut off, and no JSON
        parts.append(data[rest:])
    return b"".join(parts)


def encode_json(value: object) -> bytes:
    """Encode plain values as compact JSON; a number keeps its source text.

    Raises:
        InvalidJsonError: Something in it has no JSON form, or it nests too deep.
    """
    try:
        return _ENCODER.encode(value)
    except RecursionError as err:
        raise InvalidJsonError("nests too deep") from err
    except (TypeError, UnicodeEncodeError, msgspec.MsgspecError) as err:
        raise InvalidJsonError(str(err)) from err


def encoded_part(data: bytes) -> object:
    """Return JSON text as a part of a larger value; `encode_json` copies it as it is."""
    return msgspec.Raw(data)


def decoded_bytes(data: bytes) -> int:
    """Return what JSON text takes at most when it is decoded and read.

    That is up to forty times its size, if it is made of many small values. Signs inside of texts
    count as well, which makes it more: a millisecond for a megabyte.
    """
    return _BYTES_OF_TEXT * len(data) + sum(data.count(sign) * size for sign, size in _BYTES_OF)
