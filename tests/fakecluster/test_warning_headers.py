"""Warnings of webhooks on their way to the client."""

from __future__ import annotations

import pytest

from webhook.fakecluster.rest.apiserver import warning_headers

CASES: dict[str, tuple[list[str], list[str]]] = {
    "in order": (["one", "two"], ['299 - "one"', '299 - "two"']),
    "once": (["one", "two", "one"], ['299 - "one"', '299 - "two"']),
    "empty ones are dropped": (["", "one"], ['299 - "one"']),
    "those with control characters are dropped": (["a\nb", "a\x7fb", "one"], ['299 - "one"']),
    "quotes are escaped": (['say "no" \\ yes'], ['299 - "say \\"no\\" \\\\ yes"']),
    "other letters pass": (["größer"], ['299 - "größer"']),
}


@pytest.mark.parametrize(("warnings", "headers"), CASES.values(), ids=CASES.keys())
def test_a_warning_becomes_a_header(warnings: list[str], headers: list[str]) -> None:
    assert warning_headers(warnings) == headers


def test_only_so_much_is_delivered() -> None:
    assert len(warning_headers(f"{number:03}{'x' * 97}" for number in range(60))) == 41


def test_beyond_the_bound_each_is_cut() -> None:
    headers = warning_headers([f"{number}{'x' * 999}" for number in range(5)])
    assert [len(header) for header in headers] == [256 + len('299 - ""')] * 5
    assert len(warning_headers(["x" * 4096])[0]) == 4096 + len('299 - ""')
