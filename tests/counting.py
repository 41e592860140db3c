"""Calls of functions, for tests of how often something is done."""

from __future__ import annotations

from typing import Any

import pytest


def calls_of(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[tuple[Any, ...]]:
    """Return the arguments of each call of a function from now on; they come as it is called.

    Args:
        monkeypatch: Puts the function back.
        owner: The class of a method, or the module in which the function is looked up.
        name: The function.
    """
    calls: list[tuple[Any, ...]] = []
    function = getattr(owner, name)

    def called(*given: Any) -> object:
        calls.append(given)
        return function(*given)

    monkeypatch.setattr(owner, name, called)
    return calls
