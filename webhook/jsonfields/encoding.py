"""JSON text to plain values and back, without ever making a float.

A number with a fraction or an exponent keeps its source text as a `NumberText`, because
a quantity such as `0.1` or `1E3` has to be read from what was written.
"""

from __future__ import annotations

from typing import Final

import msgspec


class InvalidJsonError(ValueError):
    """Text that is not JSON, or a value that has no JSON form; or it nests too deep."""


class NumberText(str):
    """A JSON or YAML number that is not an integer, as its source text."""

    __slots__ = ()


def _as_written(value: object) -> msgspec.Raw:
    """Encode a number as its source text; the encoder asks for what it does not know itself."""
    if isinstance(value, NumberText):
        return msgspec.Raw(str.encode(value))
    raise TypeError(f"{type(value).__name__} has no JSON form")


_BYTES_OF: Final = ((b",", 136), (b":", 100), (b"{", 184), (b"[", 80))
"""What a value, a key, an object and a list take at most, as decoded and as read: measured."""
_BYTES_OF_TEXT: Final = 4
"""For each byte of the text: itself, its copies, or a character outside of the basic plane."""

_DECODER = msgspec.json.Decoder(float_hook=NumberText)
_ENCODER = msgspec.json.Encoder(enc_hook=_as_written)


def decode_json(data: bytes | str) -> object:
    """Decode one JSON value; objects become dicts, and of repeated keys the last one stands.

    Repeated keys are read as the API server's own decoder reads them.

    Raises:
        InvalidJsonError: The text is not JSON, is not UTF-8, or nests too deep.
    """
    try:
        value: object = _DECODER.decode(data)
    except RecursionError as err:
        raise InvalidJsonError("nests too deep") from err
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise InvalidJsonError(str(err)) from err
    return value


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
