"""Functions replaced by others that may call them, for rules that are broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def wrap(patch: pytest.MonkeyPatch, owner: object, name: str, wrapper: Callable[..., Any]) -> None:
    """Have `wrapper` called in the place of a function, with that function before its arguments."""
    genuine = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **more: wrapper(genuine, *args, **more))
