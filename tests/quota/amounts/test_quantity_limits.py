"""Texts that would cost a naive reader minutes or memory, and amounts that cannot be stored."""

from __future__ import annotations

import contextlib
import sys
import time

import pytest

from webhook.quota.amounts.quantity import Format, InvalidQuantityError, Quantity
from webhook.quota.amounts.quantity_text import SIZE_FAULT

TOO_LARGE = {
    "an exponent of ten digits": "1e2147483647",
    "a negative one": "1e-2147483648",
    "an exponent above the limit": "1e301",
    "an exponent below it": "1e-301",
    "zero with such an exponent": "0e999999",
    "an exponent that is too large even in 32 bits": "1e4294968297",
    "a canonical exponent above the limit": "10000e299",
    "a thousand and one digits": "1" * 1_001,
    "the same behind the point": f"0.{'1' * 1_001}",
    "a million digits": "7" * 1_000_000,
    "a million zeros": f"1{'0' * 1_000_000}",
    "a million digits and a suffix": f"{'7' * 1_000_000}Gi",
}


@pytest.mark.parametrize("text", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_huge_quantities_are_refused_at_once(text: str) -> None:
    started = time.thread_time()
    with pytest.raises(InvalidQuantityError) as caught:
        Quantity.parse(text, field="spec.hard.cpu")

    assert time.thread_time() - started < 2
    assert caught.value.reason == SIZE_FAULT
    assert caught.value.field == "spec.hard.cpu"


NOT_A_QUANTITY = {
    "an exponent beyond 64 bits": "1e999999999999999999999",
    "a million zeros and a letter": f"{'0' * 1_000_000}x",
    "a million suffix letters": f"1{'e' * 1_000_000}",
    "a million signs": "-" * 1_000_000,
    "a million points": "." * 1_000_000,
}


@pytest.mark.parametrize("text", NOT_A_QUANTITY.values(), ids=NOT_A_QUANTITY.keys())
def test_long_texts_are_read_in_one_pass(text: str) -> None:
    started = time.thread_time()
    with pytest.raises(InvalidQuantityError):
        Quantity.parse(text)

    assert time.thread_time() - started < 2


def test_an_endless_integer_of_json_is_refused() -> None:
    with pytest.raises(InvalidQuantityError, match="not supported"):
        Quantity.from_json(1 << 1_000_000)


LARGE = {
    "the largest exponent": "10e299",
    "its negative": "-10e299",
    "a thousand digits": "9" * 1_000,
    "a thousand digits of bytes": f"{'9' * 1_000}Ki",
    "a thousand digits and an exponent": f"{'9' * 1_000}e299",
    "a thousand digits behind the point": f"0.{'9' * 1_000}",
    "zeros that do not count": f"{'0' * 100_000}1.{'0' * 100_000}",
    "a million zeros behind the point": f"0.{'0' * 1_000_000}1",
    "the least exponent": "1e-300",
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE.keys())
def test_what_is_within_the_limits_prints_and_reads_back(text: str) -> None:
    quantity = Quantity.parse(text)

    assert Quantity.parse(quantity.canonical) == quantity
    assert 0 <= abs(quantity.value) * 10**9 - abs(quantity.nano) < 10**9


@pytest.mark.parametrize("length", [300, 9999])
def test_short_texts_make_no_large_amounts(length: int) -> None:
    """A body has room for half a million of them, and is weighed by its text."""
    started, size = time.thread_time(), 0
    for number in range(10_000):
        with contextlib.suppress(InvalidQuantityError):
            size += sys.getsizeof(Quantity.parse(f"{number}.9e{length - 1}").nano)
    assert size < 200 * 10_000
    assert time.thread_time() - started < 0.5


def test_digits_cost_little_for_their_length() -> None:
    started = time.thread_time()
    for number in range(200):
        with contextlib.suppress(InvalidQuantityError):
            Quantity.parse(f"{number}" + "9" * 9990)
    assert time.thread_time() - started < 0.2


def test_sums_beyond_the_limits_print() -> None:
    quantity = Quantity.parse("9" * 1_000)

    assert str(quantity + quantity) == f"1{'9' * 999}8"


def test_a_small_remainder_is_never_lost() -> None:
    assert str(Quantity.parse("1e-300")) == "1e-9"
    assert str(Quantity.parse(f"0.{'0' * 900}1")) == "1n"


@pytest.mark.parametrize("text", ["1e4294967297", "1e-4294967295", "1e18446744073709551"])
def test_exponents_are_cut_to_32_bits(text: str) -> None:
    low = int(text[2:]) % 2**32
    exponent = low - 2**32 if low >= 2**31 else low
    if abs(exponent) > 300:
        with pytest.raises(InvalidQuantityError):
            Quantity.parse(text)
    else:
        assert Quantity.parse(text) == Quantity.parse(f"1e{exponent}")


NOT_STORABLE = {
    "a thousand exa": ("1000E", "1"),
    "ten thousand exa": ("10000E", "10"),
    "negative": ("-1000E", "-1"),
    "the same as digits": (f"1{'0' * 21}", "1"),
}


@pytest.mark.parametrize(("text", "printed"), NOT_STORABLE.values(), ids=NOT_STORABLE.keys())
def test_round_amounts_beyond_the_last_letter_print_without_one(text: str, printed: str) -> None:
    quantity = Quantity.parse(text)

    assert not quantity.is_storable
    assert str(quantity) == printed


def test_so_do_bytes_beyond_exbibytes() -> None:
    quantity = Quantity.of_units(2**70, Format.BIN)

    assert not quantity.is_storable
    assert str(quantity) == "1"


@pytest.mark.parametrize(
    "text", ["0", "0E", "1500E", "999E", "1E", "1n", "1e30", "8Ei", "1001E", "1.5", f"1{'0' * 20}"]
)
def test_other_amounts_are_stored_as_they_are(text: str) -> None:
    quantity = Quantity.parse(text)

    assert quantity.is_storable
    assert Quantity.parse(str(quantity)) == quantity
