"""Sums, differences, order and rounding of quantities."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from tests.strategies import quantities
from webhook.quota.amounts.quantity import ZERO, Format, Quantity

parse = Quantity.parse

SUMS = {
    "0+1Gi": ("0", "1Gi", "1Gi", Format.BIN),
    "1+1Gi": ("1", "1Gi", "1073741825", Format.SI),
    "1Gi+500M": ("1Gi", "500M", "1573741824", Format.BIN),
    "500M+1Gi": ("500M", "1Gi", "1573741824", Format.SI),
    "1Gi+500m": ("1Gi", "500m", "1073741824500m", Format.BIN),
    "512+512": ("512", "512", "1024", Format.SI),
    "7Ei+2Ei is not capped": ("7Ei", "2Ei", "9Ei", Format.BIN),
    "8Ei+8Ei": ("8Ei", "8Ei", "18446744073709551614", Format.BIN),
    "1.1Gi+0.9Gi": ("1.1Gi", "0.9Gi", "2Gi", Format.BIN),
    "200Mi+1Gi": ("200Mi", "1Gi", "1224Mi", Format.BIN),
    "1e3+1": ("1e3", "1", "1001", Format.EXP),
    "+1+0 forgets the text": ("+1", "0", "1", Format.SI),
    "0Ki+1 has the right one's format": ("0Ki", "1000", "1k", Format.SI),
}


@pytest.mark.parametrize(("left", "right", "printed", "style"), SUMS.values(), ids=SUMS.keys())
def test_a_sum_prints_in_the_format_of_its_left_side(
    left: str, right: str, printed: str, style: Format
) -> None:
    total = parse(left) + parse(right)

    assert str(total) == printed
    assert total.format is style


DIFFERENCES = {
    "2Gi-1Gi": ("2Gi", "1Gi", "1Gi", Format.BIN),
    "1-1Ki": ("1", "1Ki", "-1023", Format.SI),
    "0-1Ki takes the right one's format": ("0", "1Ki", "-1Ki", Format.BIN),
    "1e3-1": ("1e3", "1", "999", Format.EXP),
}


@pytest.mark.parametrize(
    ("left", "right", "printed", "style"), DIFFERENCES.values(), ids=DIFFERENCES.keys()
)
def test_a_difference_prints_in_the_format_of_its_left_side(
    left: str, right: str, printed: str, style: Format
) -> None:
    rest = parse(left) - parse(right)

    assert str(rest) == printed
    assert rest.format is style


def test_a_left_side_that_became_zero_has_no_say_in_the_format() -> None:
    assert str(parse("1Ki") - parse("1024") + parse("2000")) == "2k"


@given(left=quantities(), right=quantities())
def test_addition_is_commutative(left: Quantity, right: Quantity) -> None:
    assert left + right == right + left


@given(first=quantities(), second=quantities(), third=quantities())
def test_addition_is_associative(first: Quantity, second: Quantity, third: Quantity) -> None:
    assert (first + second) + third == first + (second + third)


@given(left=quantities(), right=quantities())
def test_subtraction_undoes_addition(left: Quantity, right: Quantity) -> None:
    assert left + right - right == left


@given(left=quantities(), right=quantities())
def test_the_format_of_a_sum_is_that_of_the_first_that_is_not_zero(
    left: Quantity, right: Quantity
) -> None:
    expected = left.format if left else right.format

    assert (left + right).format is expected
    assert (left - right).format is expected


@given(left=quantities(), right=quantities())
def test_subtracting_is_adding_the_opposite(left: Quantity, right: Quantity) -> None:
    assert left - right == left + -right
    assert (left - right).sign == -(right - left).sign


@given(left=quantities(), right=quantities())
def test_order_is_total_and_by_amount(left: Quantity, right: Quantity) -> None:
    assert [left < right, left == right, left > right].count(True) == 1
    assert (left <= right) == (left < right or left == right)
    assert (left >= right) == (not left < right)
    assert (left < right) == ((left - right).sign < 0)


def test_spellings_of_one_amount_are_one_key() -> None:
    spellings = ["1", "1000m", "1e0", "+1", "01", "1.000"]

    assert {parse(spelling) for spelling in spellings} == {parse("1")}
    assert parse("1") != parse("1001m")


@given(quantity=quantities())
def test_a_quantity_is_true_unless_zero(quantity: Quantity) -> None:
    assert bool(quantity) == (quantity != ZERO)
    assert (quantity.sign == 0) == (quantity == ZERO)


@given(quantity=quantities())
def test_rounding_goes_away_from_zero_by_less_than_one_step(quantity: Quantity) -> None:
    for rounded, step in (
        (quantity.rounded_to_milli().nano, 10**6),
        (quantity.value * 10**9, 10**9),
    ):
        assert rounded % step == 0
        assert 0 <= abs(rounded) - abs(quantity.nano) < step
        assert rounded * quantity.nano >= 0


@given(quantity=quantities())
def test_rounding_keeps_the_text_of_what_is_round(quantity: Quantity) -> None:
    rounded = quantity.rounded_to_milli()

    assert rounded.format is quantity.format
    assert rounded.rounded_to_milli() is rounded
    assert (str(rounded) == str(quantity)) or rounded != quantity


@given(quantity=quantities())
def test_a_whole_amount_is_its_value(quantity: Quantity) -> None:
    assert quantity.is_whole == (Quantity.of_units(quantity.value) == quantity)


OPERATORS: dict[str, Callable[[Quantity], object]] = {
    "+": lambda other: parse("1") + other,
    "-": lambda other: parse("1") - other,
    "<": lambda other: parse("1") < other,
    "<=": lambda other: parse("1") <= other,
    ">": lambda other: parse("1") > other,
    ">=": lambda other: parse("1") >= other,
}


@pytest.mark.parametrize("operate", OPERATORS.values(), ids=OPERATORS.keys())
@pytest.mark.parametrize("other", [1, 1.0, "1", None])
def test_quantities_do_not_mix_with_numbers(
    operate: Callable[[object], object], other: object
) -> None:
    with pytest.raises(TypeError):
        operate(other)
    assert parse("1") != other


def test_a_quantity_cannot_be_changed() -> None:
    quantity = parse("1")

    with pytest.raises(AttributeError):
        quantity.nano = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        quantity.other = 2  # type: ignore[attr-defined]


def test_quantities_sum_up_without_a_start() -> None:
    amounts = [parse("1.1Gi"), parse("0.9Gi")]

    total: object = sum(amounts)

    assert total == parse("2Gi") == sum(amounts, ZERO)
    assert str(total) == "2Gi"


@pytest.mark.parametrize("other", [1, 1.5, "1", None])
def test_only_zero_is_added_from_the_left(other: object) -> None:
    with pytest.raises(TypeError, match="Quantity"):
        _ = other + parse("1")  # type: ignore[operator]


@pytest.mark.parametrize("text", ["1", 1.5, None])
def test_text_is_read_by_parse_and_not_by_the_constructor(text: object) -> None:
    with pytest.raises(TypeError, match=r"Quantity\.parse\("):
        Quantity(text)  # type: ignore[arg-type]


def test_what_repr_shows_can_be_evaluated() -> None:
    assert eval(repr(parse("100m"))) == parse("100m")  # noqa: S307 - the text is our own
