"""Values as the API server writes them."""

from __future__ import annotations

import pytest

from tests.quota.parsed import expression_of
from webhook.quota.amounts.go_format import expression_text, quoted
from webhook.quota.objects.model import ScopeExpression


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (expression_of("PriorityClass", "In", "gold"), "{PriorityClass In [gold]}"),
        (expression_of("PriorityClass", "In", "gold", "s"), "{PriorityClass In [gold s]}"),
        (expression_of("PriorityClass", "Exists"), "{PriorityClass Exists []}"),
        (expression_of("PriorityClass", ""), "{PriorityClass  []}"),
    ],
)
def test_an_expression_is_written_as_go_prints_the_struct(
    expression: ScopeExpression, expected: str
) -> None:
    assert expression_text(expression) == expected


# Expected texts: Go's documentation of strconv.Quote and the rules of unicode.IsPrint.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bad value!", '"bad value!"'),
        ("", '""'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\x00\x7f", r'"\x00\x7f"'),
        ("schön ☺", '"schön ☺"'),
        ("\u00a0\u200b", r'"\u00a0\u200b"'),
        ("\U000e0001", r'"\U000e0001"'),
    ],
)
def test_a_string_is_quoted_as_go_quotes_it(text: str, expected: str) -> None:
    assert quoted(text) == expected
