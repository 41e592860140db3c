"""What the API server and its webhooks warn of: the texts of an answer's Warning headers.

Source: kubernetes v1.36, apimachinery/pkg/util/net/http.go ParseWarningHeaders;
client-go/rest/warnings.go, which tells nothing but code 299 either.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from webhook.kube.rest.http1 import Head

WarningHandler: TypeAlias = Callable[[str], None]
"""Receives one warning, in the words of its source. Called in the thread of the call."""

_QUOTED: Final = r'"((?:[^"\\]|\\.)*)"'
_WARNING: Final = re.compile(rf"(\d{{3}}) +[^ ,]+ +{_QUOTED}(?: +{_QUOTED})? *(?:,|$)")
_ESCAPED: Final = re.compile(r"\\(.)")
_MEANT_FOR_PEOPLE: Final = "299"


def ignore(_: str) -> None:
    """Tell nobody."""


def warnings_of(head: Head) -> list[str]:
    """Return the texts in the order in which they were sent; what cannot be read is left out."""
    found = _WARNING.finditer(head.headers.get("warning", ""))
    return [_text(each[2]) for each in found if each[1] == _MEANT_FOR_PEOPLE and each[2]]


def _text(quoted: str) -> str:
    # headers are read as latin-1, and the API server writes UTF-8
    raw = _ESCAPED.sub(r"\1", quoted).encode("latin-1")
    return raw.decode("utf-8", "replace")
