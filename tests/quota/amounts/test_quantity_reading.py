"""Every kind of spelling that the platform reads, as its own code reads and prints it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from webhook.jsonfields.encoding import NumberText
from webhook.quota.amounts.quantity import Format, InvalidQuantityError, Quantity
from webhook.quota.amounts.quantity_text import FORMAT_FAULT, NUMERIC_FAULT, SUFFIX_FAULT

SI, BIN, EXP = Format.SI, Format.BIN, Format.EXP

# text: (format, printed, printed after arithmetic, exact amount, printed after API defaulting)
READINGS = {
    "0": (SI, "0", "0", "0", "0"),
    "0.0": (SI, "0", "0", "0", "0"),
    "-0": (SI, "0", "0", "0", "0"),
    "0Ki": (BIN, "0", "0", "0", "0"),
    ".": (SI, "0", "0", "0", "0"),
    "Gi": (BIN, "0", "0", "0", "0"),
    "E": (SI, "0", "0", "0", "0"),
    "1": (SI, "1", "1", "1", "1"),
    "+1": (SI, "+1", "1", "1", "+1"),
    "01": (SI, "01", "1", "1", "01"),
    "1.": (SI, "1.", "1", "1", "1."),
    ".5": (SI, "500m", "500m", "0.5", "500m"),
    "-.5": (SI, "-500m", "-500m", "-0.5", "-500m"),
    "1.5": (SI, "1500m", "1500m", "1.5", "1500m"),
    "1.50": (SI, "1500m", "1500m", "1.5", "1500m"),
    "1.500": (SI, "1.500", "1500m", "1.5", "1.500"),
    "1.255": (SI, "1.255", "1255m", "1.255", "1.255"),
    "1.500k": (SI, "1.500k", "1500", "1500", "1.500k"),
    "1.5k": (SI, "1500", "1500", "1500", "1500"),
    "100m": (SI, "100m", "100m", "0.1", "100m"),
    "+100m": (SI, "+100m", "100m", "0.1", "+100m"),
    "1000m": (SI, "1", "1", "1", "1"),
    "0.001": (SI, "1m", "1m", "0.001", "1m"),
    "0.1m": (SI, "100u", "100u", "0.0001", "1m"),
    "1u": (SI, "1u", "1u", "0.000001", "1m"),
    "1n": (SI, "1n", "1n", "0.000000001", "1m"),
    "0.1n": (SI, "1n", "1n", "0.000000001", "1m"),
    "1.5n": (SI, "2n", "2n", "0.000000002", "1m"),
    "-0.1n": (SI, "-1n", "-1n", "-0.000000001", "-1m"),
    "0.1234567891": (SI, "123456790n", "123456790n", "0.12345679", "124m"),
    "1000": (SI, "1k", "1k", "1000", "1k"),
    "1k": (SI, "1k", "1k", "1000", "1k"),
    "1000k": (SI, "1M", "1M", "1000000", "1M"),
    "10000": (SI, "10k", "10k", "10000", "10k"),
    "1024": (SI, "1024", "1024", "1024", "1024"),
    "1M": (SI, "1M", "1M", "1000000", "1M"),
    "1G": (SI, "1G", "1G", "1000000000", "1G"),
    "1E": (SI, "1E", "1E", "1000000000000000000", "1E"),
    "9.3E": (SI, "9300P", "9300P", "9300000000000000000", "9300P"),
    "10E": (SI, "10E", "10E", "10000000000000000000", "10E"),
    "1000E": (SI, "1", "1", "1000000000000000000000", "1"),
    "1500E": (SI, "1500E", "1500E", "1500000000000000000000", "1500E"),
    "1e3": (EXP, "1e3", "1e3", "1000", "1e3"),
    "1E3": (EXP, "1E3", "1e3", "1000", "1E3"),
    "1e+3": (EXP, "1e+3", "1e3", "1000", "1e+3"),
    "1e03": (EXP, "1e03", "1e3", "1000", "1e03"),
    "1e0": (EXP, "1e0", "1", "1", "1e0"),
    "1e1": (EXP, "10", "10", "10", "10"),
    "1e-1": (EXP, "100e-3", "100e-3", "0.1", "100e-3"),
    "5e-4": (EXP, "500e-6", "500e-6", "0.0005", "1e-3"),
    "1.5e-3": (EXP, "1500e-6", "1500e-6", "0.0015", "2e-3"),
    "1.5e3": (EXP, "1500", "1500", "1500", "1500"),
    "12e6": (EXP, "12e6", "12e6", "12000000", "12e6"),
    "1000e3": (EXP, "1e6", "1e6", "1000000", "1e6"),
    "1e17": (EXP, "100e15", "100e15", "100000000000000000", "100e15"),
    "1e19": (EXP, "10e18", "10e18", "10000000000000000000", "10e18"),
    "1e-10": (EXP, "1e-9", "1e-9", "0.000000001", "1e-3"),
    "1e4294967297": (EXP, "10", "10", "10", "10"),
    "1Ki": (BIN, "1Ki", "1Ki", "1024", "1Ki"),
    "1024Ki": (BIN, "1Mi", "1Mi", "1048576", "1Mi"),
    "1000Ki": (BIN, "1000Ki", "1000Ki", "1024000", "1000Ki"),
    "8Ki": (BIN, "8Ki", "8Ki", "8192", "8Ki"),
    "+1Gi": (BIN, "+1Gi", "1Gi", "1073741824", "+1Gi"),
    "01Gi": (BIN, "01Gi", "1Gi", "1073741824", "01Gi"),
    "1.Gi": (BIN, "1.Gi", "1Gi", "1073741824", "1.Gi"),
    "0.5Gi": (BIN, "512Mi", "512Mi", "536870912", "512Mi"),
    "1.5Gi": (BIN, "1536Mi", "1536Mi", "1610612736", "1536Mi"),
    "1.1Gi": (BIN, "1181116006400m", "1181116006400m", "1181116006.4", "1181116006400m"),
    "0.5Ki": (BIN, "512", "512", "512", "512"),
    "0.1Ki": (BIN, "102400m", "102400m", "102.4", "102400m"),
    "0.0001Ki": (SI, "102400u", "102400u", "0.1024", "103m"),
    "2.5Ki": (BIN, "2560", "2560", "2560", "2560"),
    "-0.5Ki": (BIN, "-512", "-512", "-512", "-512"),
    "1Ei": (BIN, "1Ei", "1Ei", "1152921504606846976", "1Ei"),
    "1024Pi": (BIN, "1Ei", "1Ei", "1152921504606846976", "1Ei"),
    "8Ei": (
        BIN,
        "9223372036854775807",
        "9223372036854775807",
        "9223372036854775807",
        "9223372036854775807",
    ),
    "-9Ei": (
        BIN,
        "-9223372036854775807",
        "-9223372036854775807",
        "-9223372036854775807",
        "-9223372036854775807",
    ),
    "9223372036854775808": (
        SI,
        "9223372036854775808",
        "9223372036854775808",
        "9223372036854775808",
        "9223372036854775808",
    ),
    "-1": (SI, "-1", "-1", "-1", "-1"),
    "-1500m": (SI, "-1500m", "-1500m", "-1.5", "-1500m"),
    "-1.1Gi": (BIN, "-1181116006400m", "-1181116006400m", "-1181116006.4", "-1181116006400m"),
}


@pytest.mark.parametrize(("text", "row"), READINGS.items(), ids=READINGS.keys())
def test_reads_and_prints_as_the_platform(
    text: str, row: tuple[Format, str, str, str, str]
) -> None:
    style, printed, canonical, amount, defaulted = row
    quantity = Quantity.parse(text)

    assert quantity.format is style
    assert str(quantity) == printed
    assert quantity.canonical == canonical
    assert Fraction(quantity.nano, 10**9) == Fraction(amount)
    assert str(quantity.rounded_to_milli()) == defaulted


# The platform remembers a text only where its short cut takes it: the longest such text, and
# one digit more.
REMEMBERED_DIGITS = {"": 18, "k": 18, "Ki": 11, "Mi": 8, "Gi": 5, "Ti": 2, "Pi": 0, "Ei": 0}


@pytest.mark.parametrize(("suffix", "most"), REMEMBERED_DIGITS.items())
def test_remembers_only_short_texts(suffix: str, most: int) -> None:
    longest = f"+{'1' * most}{suffix}"
    longer = f"+1{'1' * most}{suffix}"

    assert most == 0 or str(Quantity.parse(longest)) == longest
    assert str(Quantity.parse(longer)) == longer.removeprefix("+")


def test_zeros_in_front_do_not_count_as_digits() -> None:
    assert str(Quantity.parse("+00011Ti")) == "+00011Ti"


def test_one_byte_is_still_binary_and_less_is_not() -> None:
    assert Quantity.parse("0.0009765625Ki").format is Format.BIN
    assert Quantity.parse("0.0009765624Ki").format is Format.SI


@pytest.mark.parametrize("text", READINGS)
def test_adding_nothing_forgets_the_text_and_keeps_the_format(text: str) -> None:
    quantity = Quantity.parse(text)

    assert str(quantity + Quantity.of_nano(0)) == quantity.canonical


REJECTED = {
    FORMAT_FAULT: (
        "",
        "1kI",
        "1MI",
        "1GB",
        "1GiB",
        "1B",
        "1..5",
        "1.2.3",
        "..",
        " 1",
        "1 ",
        "1\n",
        "\t1",
        "1_000",
        "1,000",
        "0x10",
        "1e3.5",
        "1e3e3",
        "1e-3Gi",
        "NaN",
        "inf",
        "\uff11",
        "\u0661",
        "1\u00b2",
        "1\x00",
        "\ud800",
    ),
    SUFFIX_FAULT: (
        "K",
        "1K",
        "1ki",
        "--1",
        "+-1",
        "1e",
        "1e+",
        "1E-",
        "1m3",
        "1n1",
        "1Gi1",
        "1i",
        "1Gim",
        "1mGi",
        "1Eii",
        "1e99999999999999999999",
        "1e9223372036854775808",
        "1e-9223372036854775809",
        "1Ee3",
        "1-",
        "1+5",
    ),
    NUMERIC_FAULT: ("e-12", "-Ei", "Pi", "+Pi", ".e-10"),
}


@pytest.mark.parametrize(
    ("text", "reason"),
    [(text, reason) for reason, texts in REJECTED.items() for text in texts],
)
def test_rejects_in_the_platforms_words(text: str, reason: str) -> None:
    with pytest.raises(InvalidQuantityError) as caught:
        Quantity.parse(text, field="spec.hard.pods")

    assert caught.value.reason == reason
    assert caught.value.text == text
    assert str(caught.value) == f"spec.hard.pods: {text!r} is not a quantity: {reason}"


def test_the_message_of_an_endless_text_is_short() -> None:
    with pytest.raises(InvalidQuantityError) as caught:
        Quantity.parse("9" * 5000 + "x")

    assert len(str(caught.value)) < 300


DIGITLESS = (".", "+", "-", "m", "k", "Gi", "Ti", "E", "-m", ".Ki", "e-9", "E5", "+.e3")


@pytest.mark.parametrize("text", DIGITLESS)
def test_a_text_without_digits_is_zero_where_the_platform_says_so(text: str) -> None:
    assert Quantity.parse(text) == Quantity.of_nano(0)


FROM_JSON: dict[str, tuple[object, str]] = {
    "null is zero": (None, "0"),
    "an integer": (2, "2"),
    "a negative integer": (-3, "-3"),
    "an integer beyond 64 bits": (10**30 + 1, f"1{'0' * 29}1"),
    "a number keeps its spelling": (NumberText("1E3"), "1E3"),
    "a fraction": (NumberText("0.1"), "100m"),
    "a text": ("1.5Gi", "1536Mi"),
    "a text with spaces around it": (" \u00a01Gi\u2003 ", "1Gi"),
}


@pytest.mark.parametrize(("value", "printed"), FROM_JSON.values(), ids=FROM_JSON.keys())
def test_json_is_read_as_the_api_server_reads_it(value: object, printed: str) -> None:
    assert str(Quantity.from_json(value)) == printed


NOT_FROM_JSON: dict[str, tuple[object, str]] = {
    "a boolean": (True, "a boolean is not a quantity"),
    "an object": ({}, "an object is not a quantity"),
    "a list": ([1], "a list is not a quantity"),
    "a float has lost its text": (0.5, "a Python float is not a quantity"),
    "only spaces": ("  ", "'' is not a quantity"),
    "an escaped tab is not trimmed": ("\t1", "'\\t1' is not a quantity"),
    "spaces within": ("1 Gi", "'1 Gi' is not a quantity"),
    "a number that is none": (NumberText(".inf"), "'.inf' is not a quantity"),
}


@pytest.mark.parametrize(("value", "words"), NOT_FROM_JSON.values(), ids=NOT_FROM_JSON.keys())
def test_json_that_is_no_quantity_is_refused_with_its_path(value: object, words: str) -> None:
    with pytest.raises(InvalidQuantityError) as caught:
        Quantity.from_json(value, field="spec.hard.cpu")

    assert caught.value.field == "spec.hard.cpu"
    assert str(caught.value).startswith(f"spec.hard.cpu: {words}: ")


def test_only_json_trims_spaces() -> None:
    assert Quantity.from_json(" 1 ") == Quantity.parse("1")
    with pytest.raises(InvalidQuantityError):
        Quantity.parse(" 1 ")


def test_the_printed_text_of_a_number_is_a_plain_string() -> None:
    assert type(str(Quantity.from_json(NumberText("1.500")))) is str


def test_parsing_something_else_than_text_is_refused() -> None:
    with pytest.raises(InvalidQuantityError, match="a number is not a quantity"):
        Quantity.parse(5)  # type: ignore[arg-type]
