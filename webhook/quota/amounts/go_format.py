"""Values as the API server writes them into its messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from webhook.quota.objects.model import ScopeExpression

_ESCAPES: Final = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    '"': r"\"",
    "\\": r"\\",
}
_JSON_ESCAPES: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def expression_text(expression: ScopeExpression) -> str:
    """Write a scope expression: `{PriorityClass In [gold silver]}`."""
    values = " ".join(expression.values)
    return f"{{{expression.scope_name} {expression.operator} [{values}]}}"


def quoted(text: str) -> str:
    """Write a string between double quotes, what cannot be printed escaped.

    Source: Go's strconv.Quote, which `%q` uses.
    """
    return '"' + "".join(map(_escaped, text)) + '"'


def json_text(value: object) -> str:
    """Write a value as JSON in which nothing can be taken for HTML.

    Source: Go's encoding/json, Marshal.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.translate(_JSON_ESCAPES)


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
