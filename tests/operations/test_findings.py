"""How findings name many things."""

from __future__ import annotations

import pytest

from webhook.operations.findings import first_of

CASES = {
    "none": ((), ", ", ""),
    "as many as are named": (("a", "b"), ", ", "a, b"),
    "more": (("a", "b", "c", "d"), ", ", "a, b and 2 more"),
    "one more clause": (("a is x", "b is y", "c is z"), "; ", "a is x; b is y; and 1 more"),
}


@pytest.mark.parametrize(("names", "separator", "text"), CASES.values(), ids=CASES)
def test_the_first_are_named_and_the_others_counted(
    names: tuple[str, ...], separator: str, text: str
) -> None:
    assert first_of(names, 2, separator) == text
