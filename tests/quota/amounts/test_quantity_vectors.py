"""Random quantities, compared with the answers of Kubernetes 1.36.2's own code."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest

from tests.quota.oracle import VECTORS
from webhook.jsonfields.encoding import decode_json
from webhook.jsonfields.fields import mapping, text
from webhook.quota.amounts.quantity import InvalidQuantityError, Quantity

INT64 = range(-(2**63), 2**63)


def read_answers() -> list[Mapping[str, object]]:
    lines = (VECTORS / "quantity.jsonl").read_bytes().splitlines()
    return [mapping(decode_json(line), "answer") for line in lines]


ANSWERS = read_answers()
READ = [answer for answer in ANSWERS if answer["ok"]]
REFUSED = [text(answer["in"], "in") for answer in ANSWERS if not answer["ok"]]


def quantity(answer: Mapping[str, object], field: str) -> Quantity:
    return Quantity.parse(text(answer[field], field), field=field)


@pytest.mark.parametrize("answer", READ, ids=lambda answer: str(answer["in"]))
def test_agrees_with_the_platform(answer: Mapping[str, object]) -> None:
    ours, other = quantity(answer, "in"), quantity(answer, "other")

    assert ours.canonical == answer["canonical"]
    assert Fraction(ours.nano, 10**9) == Fraction(text(answer["decimal"], "decimal"))
    assert (ours > other) - (ours < other) == answer["cmp"]
    assert ours + other == quantity(answer, "sum")
    assert str(ours + other) == answer["sum"]


@pytest.mark.parametrize(
    "answer",
    # beyond 64 bits the platform's accessor overflows; ours stays exact
    [answer for answer in READ if quantity(answer, "in").value in INT64],
    ids=lambda answer: str(answer["in"]),
)
def test_rounds_to_whole_units_as_the_platform(answer: Mapping[str, object]) -> None:
    assert quantity(answer, "in").value == answer["value"]


@pytest.mark.parametrize("refused", REFUSED)
def test_refuses_what_the_platform_refuses(refused: str) -> None:
    with pytest.raises(InvalidQuantityError):
        Quantity.parse(refused)


def test_there_are_answers_of_both_kinds() -> None:
    assert len(READ) > 100
    assert len(REFUSED) > 50
