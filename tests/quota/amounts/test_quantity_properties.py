"""Laws of reading and printing quantities, for any text."""

from __future__ import annotations

import copy
import pickle
import re
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import (
    BINARY_SUFFIXES,
    DECIMAL_SUFFIXES,
    near_quantity_texts,
    quantities,
    quantity_texts,
)
from webhook.quota.amounts.quantity import Format, InvalidQuantityError, Quantity

EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
SPELLED = re.compile(r"([+-]?)([0-9.]+)(.*)")
CAP = Fraction(2**63 - 1)


def power_of(suffix: str) -> Fraction:
    if suffix in BINARY_SUFFIXES:
        return Fraction(2) ** (10 + 10 * BINARY_SUFFIXES.index(suffix))
    if suffix in DECIMAL_SUFFIXES:
        return Fraction(10) ** (3 * DECIMAL_SUFFIXES.index(suffix) - 9)
    found = EXPONENT.fullmatch(suffix)
    assert found is not None
    return Fraction(10) ** int(found[1])


def exact_amount(text: str) -> Fraction:
    """The amount that a text says, worked out with fractions and nothing of the product."""
    found = SPELLED.fullmatch(text)
    assert found is not None
    sign, number, suffix = found.groups()
    whole, _, part = number.partition(".")
    amount = Fraction(int(f"0{whole}{part}"), 10 ** len(part)) * power_of(suffix)
    nano = -(-amount.numerator * 10**9 // amount.denominator)
    amount = Fraction(nano, 10**9)
    if suffix in BINARY_SUFFIXES:
        amount = min(amount, CAP)
    return -amount if sign == "-" else amount


@given(text=quantity_texts())
@example(text="0.0001Ki")
@example(text="-9Ei")
@example(text="00.50e-9")
def test_the_amount_is_what_the_text_says(text: str) -> None:
    assert Fraction(Quantity.parse(text).nano, 10**9) == exact_amount(text)


@given(text=quantity_texts())
def test_the_suffix_decides_the_format(text: str) -> None:
    quantity = Quantity.parse(text)
    suffix = text.lstrip("+-.0123456789")

    if suffix in DECIMAL_SUFFIXES:
        assert quantity.format is Format.SI
    elif suffix in BINARY_SUFFIXES:
        is_below_one = 0 < abs(quantity.nano) < 10**9
        assert quantity.format is (Format.SI if is_below_one else Format.BIN)
    else:
        assert quantity.format is Format.EXP


@given(quantity=quantities())
def test_printed_text_reads_back_as_the_same_amount(quantity: Quantity) -> None:
    if quantity.is_storable:
        assert Quantity.parse(str(quantity)) == quantity
        assert Quantity.parse(quantity.canonical) == quantity
    else:
        assert Quantity.parse(str(quantity)) != quantity


@given(quantity=quantities())
def test_canonical_text_says_the_amount_with_a_shortest_mantissa(quantity: Quantity) -> None:
    text = quantity.canonical
    mantissa, suffix = re.fullmatch(r"(-?[0-9]+)(.*)", text, flags=re.ASCII).groups()  # type: ignore[union-attr]

    if quantity.is_storable:
        assert exact_amount(text) == Fraction(quantity.nano, 10**9)
    if suffix in BINARY_SUFFIXES:
        assert abs(quantity.nano) >= 1024 * 10**9
        assert int(mantissa) % 1024 != 0
    elif quantity.format is not Format.BIN:
        assert text == "0" or not mantissa.endswith("000")


@given(quantity=quantities())
def test_canonical_text_is_a_fixed_point(quantity: Quantity) -> None:
    again = Quantity.parse(quantity.canonical)

    assert str(again) == quantity.canonical
    assert again.canonical == quantity.canonical


@given(quantity=quantities(), other=quantities())
def test_canonical_text_is_what_arithmetic_leaves(quantity: Quantity, other: Quantity) -> None:
    total = quantity + other

    assert str(total) == total.canonical
    assert str(-quantity) == (-quantity).canonical


@given(quantity=quantities())
def test_printing_twice_is_printing_once(quantity: Quantity) -> None:
    first = str(quantity)

    assert str(quantity) == first
    assert repr(quantity) == f"Quantity.parse({str(quantity)!r})"


@given(text=st.one_of(near_quantity_texts(), st.text(max_size=20)))
def test_any_text_is_a_quantity_or_refused_with_its_path(text: str) -> None:
    match read(text):
        case Quantity() as quantity:
            assert type(quantity.nano) is int
            assert type(quantity.value) is int
            assert type(str(quantity)) is str
        case InvalidQuantityError() as err:
            assert (err.field, err.text) == ("spec.hard.cpu", text)


def read(text: str) -> Quantity | InvalidQuantityError:
    try:
        return Quantity.parse(text, field="spec.hard.cpu")
    except InvalidQuantityError as err:
        return err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(value=JSON)
def test_any_json_is_a_quantity_or_refused(value: object) -> None:
    try:
        quantity = Quantity.from_json(value)
    except InvalidQuantityError:
        assert value is not None
        assert type(value) is not int
    else:
        assert value is None or type(value) in {int, str}
        assert type(quantity.nano) is int


@given(units=st.integers())
def test_integers_are_read_exactly(units: int) -> None:
    assert Quantity.from_json(units) == Quantity.of_units(units) == Quantity.parse(str(units))


@given(quantity=quantities())
def test_copies_are_equal_and_print_the_same(quantity: Quantity) -> None:
    for twin in (
        copy.copy(quantity),
        copy.deepcopy(quantity),
        pickle.loads(pickle.dumps(quantity)),  # noqa: S301 - our own bytes
    ):
        assert twin == quantity
        assert str(twin) == str(quantity)
        assert twin.format is quantity.format
