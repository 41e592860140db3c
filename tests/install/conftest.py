"""Manifests that are parsed once, however often they are installed."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from webhook.install import kustomizations


@pytest.fixture(scope="session", autouse=True)
def _parsed_once() -> Iterator[None]:
    """Most of the time of hundreds of installations went into reading the same texts."""
    read = kustomizations.read_documents  # type: ignore[attr-defined]

    @functools.cache
    def parsed(name: str, text: bytes) -> bytes:
        return pickle.dumps([*read(name, text)])

    def copied(name: str, text: bytes) -> Any:
        return pickle.loads(parsed(name, text))  # noqa: S301 - our own; callers change what they get

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kustomizations, "read_documents", copied)
        yield
