"""Warnings of webhooks as HTTP headers, within the API server's bounds.

Source: kubernetes v1.36, apiserver/pkg/endpoints/filters/warning.go,
apimachinery/pkg/util/net/http.go NewWarningHeader.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

_TOTAL_LETTERS: Final = 4096
_LETTERS_WHEN_CUT: Final = 256


def warning_headers(warnings: Iterable[str]) -> list[str]:
    """Return the values of the Warning headers for what webhooks said, in order.

    Repeated and empty warnings are left out, and so are those with control characters. When all
    together pass 4096 letters, each is cut to 256 and no more are added once they pass it again.
    """
    told: list[str] = []
    budget_spent, cutting = 0, False
    for text in dict.fromkeys(warning for warning in warnings if warning):
        if cutting and budget_spent >= _TOTAL_LETTERS:
            break
        told.append(text)
        budget_spent += len(text[:_LETTERS_WHEN_CUT] if cutting else text)
        if not cutting and budget_spent > _TOTAL_LETTERS:
            cutting = True
            budget_spent = sum(len(earlier[:_LETTERS_WHEN_CUT]) for earlier in told)
    shown = [text[:_LETTERS_WHEN_CUT] if cutting else text for text in told]
    return [_header(text) for text in shown if not _has_control(text)]


def _has_control(text: str) -> bool:
    return any(unicodedata.category(letter) == "Cc" for letter in text)


def _header(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'
