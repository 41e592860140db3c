"""Reading files of YAML and JSON."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from webhook.jsonfields.encoding import NumberText
from webhook.kube.files.documents import MAX_DEPTH, Document, SnapshotError, read_documents
from webhook.kube.files.json_places import place_of_fault
from webhook.kube.files.yaml_reader import ALIAS_BUDGET, LONGEST_PATH, MAX_TAG_DIRECTIVES


def values(text: str) -> list[object]:
    return [document.value for document in read_documents("some.yaml", text.encode())]


def value(text: str) -> object:
    (only,) = values(text)
    return only


def error(text: str | bytes) -> SnapshotError:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(SnapshotError) as refusal:
        read_documents("some.yaml", data)
    return refusal.value


SCALARS: dict[str, object] = {
    "5": 5,
    "-5": -5,
    "+5": 5,
    "0": 0,
    "1_000": 1000,
    "0x1F": 31,
    "0o17": 15,
    "017": 15,
    "089": 89,
    "0b101": 5,
    "123456789012345678901234567890": 123456789012345678901234567890,
    "0.10": NumberText("0.10"),
    "1e3": 1000,
    "1.5e+06": 1_500_000,
    "12345678901234567890.0": 12345678901234567000,
    "9007199254740993.0": 9007199254740992,
    "99999999999999990000.0": 99999999999999980000,
    "1e20": 10**20,
    "1e21": NumberText("1e21"),
    "-50.0": -50,
    "-0.0": 0,
    "1E-3": NumberText("1E-3"),
    "-1.5": NumberText("-1.5"),
    "1e999999999": NumberText("1e999999999"),
    ".5": NumberText("0.5"),
    "5.": 5,
    "+.5e1": 5,
    "007.5": NumberText("7.5"),
    "1_0.5": NumberText("10.5"),
    "true": True,
    "Yes": True,
    "on": True,
    "off": False,
    "n": False,
    "null": None,
    "~": None,
    "": None,
    "2026-01-05T08:00:00Z": "2026-01-05T08:00:00Z",
    "2026-01-05": "2026-01-05",
    "12:30": "12:30",
    "1.2.3": "1.2.3",
    "0x": "0x",
    "1e": "1e",
    "-": [None],
    "e5": "e5",
    "tRUE": "tRUE",
    "'5'": "5",
    '"true"': "true",
    "!!str 5": "5",
    "!!int '5'": 5,
    "!!float 5": 5,
    "!!float 1e3": 1000,
    "!!bool 'yes'": True,
    "!!null ''": None,
    "!!timestamp 2026-01-05": "2026-01-05",
}


@pytest.mark.parametrize(("text", "expected"), SCALARS.items())
def test_a_scalar_means_what_kubectl_takes_it_for(text: str, expected: object) -> None:
    found = value(f"- {text}\n")
    assert found == [expected]
    assert isinstance(found, list)
    assert type(found[0]) is type(expected)


JSON_NUMBERS: dict[str, object] = {
    "50.0": 50,
    "5e1": 50,
    "0.5E+2": 50,
    "-0.0": 0,
    "9007199254740993.0": 9007199254740992,
    "1e21": NumberText("1e21"),
    "50.5": NumberText("50.5"),
    "1e999999999": NumberText("1e999999999"),
}
"""kubectl 1.36 sends these to an API server, seen with --dry-run=server; one that gets them as they
are refuses those with a point or an exponent in fields of whole numbers."""


@pytest.mark.parametrize(("text", "expected"), JSON_NUMBERS.items())
@pytest.mark.parametrize("rest", ["", "\n{}"], ids=["alone", "of several"])
def test_a_json_number_is_what_kubectl_sends(text: str, expected: object, rest: str) -> None:
    document, *_ = read_documents("some.json", f'{{"a": {text}}}{rest}'.encode())
    assert document.value == {"a": expected}
    assert isinstance(document.value, dict)
    assert type(document.value["a"]) is type(expected)


NO_JSON = {
    ".inf": ".inf is not a number that JSON can hold",
    "-.INF": "-.INF is not a number that JSON can hold",
    ".NaN": ".NaN is not a number that JSON can hold",
    "!!int 1.5": "'1.5' is not a int",
    "!!int 1e3": "'1e3' is not a int",
    "!!int true": "'true' is not a int",
    "!!bool 5": "'5' is not a bool",
    "!!float x": "'x' is not a number",
    "!!null 5": "'5' is not null",
    "!!binary aGk=": "the tag tag:yaml.org,2002:binary is not supported",
    "!other 5": "the tag !other is not supported",
    "!!set {a}": "the tag tag:yaml.org,2002:set is not supported",
    "!!python/object/apply:os.system [x]": (
        "the tag tag:yaml.org,2002:python/object/apply:os.system is not supported"
    ),
    "9" * 5000: "a number of 5000 digits is too long",
    "1." + "9" * 5000: "a number of 5002 digits is too long",
}


@pytest.mark.parametrize(("text", "detail"), NO_JSON.items(), ids=lambda text: text[:30])
def test_what_has_no_json_form_is_refused_with_its_place(text: str, detail: str) -> None:
    refusal = error(f"a: 1\nb:\n- x\n- {text}\n")
    assert (refusal.detail, refusal.place.line, refusal.field) == (detail, 4, "b[1]")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_what_was_written_is_read_back(written: object) -> None:
    assert value(json.dumps({"value": written})) == {"value": written}
    assert value(yaml.safe_dump({"value": written}, default_style='"')) == {"value": written}


def attempt(data: bytes) -> tuple[Document, ...] | SnapshotError:
    """Read a file, whatever comes of it."""
    try:
        return read_documents("some.yaml", data)
    except SnapshotError as refusal:
        return refusal


@given(st.text(alphabet="ab:-[]{},&*!|>'\"#?% \n0.", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    outcome = attempt(text.encode())
    if isinstance(outcome, SnapshotError):
        assert outcome.file == "some.yaml"
        assert outcome.detail
    else:
        assert [one.number for one in outcome] == list(range(1, len(outcome) + 1))


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    outcome = attempt(data)
    assert isinstance(outcome, tuple) or outcome.detail


def test_every_document_has_its_number_and_empty_ones_count() -> None:
    documents = read_documents("some.yaml", b"# nothing\n---\na: 1\n---\n---\nb: 2\n")
    found = [(one.number, one.value) for one in documents]
    assert found == [(1, {"a": 1}), (2, None), (3, {"b": 2})]


def test_an_empty_file_has_no_documents() -> None:
    assert values("") == values("# only a comment\n") == values("  \n") == []


def test_json_documents_follow_each_other_on_lines_or_not() -> None:
    text = '{"a": 1}\n\n{"b":\n 0.50}{"c": 3}\n'
    documents = read_documents("some.json", text.encode())
    assert [one.value for one in documents] == [{"a": 1}, {"b": "0.50"}, {"c": 3}]
    assert [one.lines[""] for one in documents] == [1, 3, 4]
    assert isinstance(documents[1].value, dict)
    assert isinstance(documents[1].value["b"], NumberText)


def test_what_begins_like_json_may_be_yaml() -> None:
    assert value("{a: 1, b: [x]}") == {"a": 1, "b": ["x"]}
    assert values("{a: 1}\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


def test_a_byte_order_mark_is_no_text() -> None:
    assert read_documents("x", b"\xef\xbb\xbf{}")[0].value == {}
    assert read_documents("x", b"\xef\xbb\xbfa: 1")[0].value == {"a": 1}


BROKEN: dict[str, tuple[str | bytes, int, int | None, str, str]] = {
    "a repeated key": ("a:\n  b: 1\n  c: 2\n  b: 3\n", 1, 4, "a", "the key 'b' appears twice"),
    "keys that become the same": ("1: a\n'1': b\n", 1, 2, "", "the key '1' appears twice"),
    "a repeated key in JSON": (
        '{"a": 1}\n{"a": 1, "a": 2}',
        2,
        2,
        "",
        "the key 'a' appears twice in one object",
    ),
    "not YAML": ("a: 1\n---\nb: [\n", 2, 4, "", "did not find expected node content"),
    "a tab": (
        *("a:\n\tb: 1\n", 1, 2, ""),
        "found character that cannot start any token: a tab; YAML is indented with spaces",
    ),
    "not JSON": ('{"a": 1}\n{"a": }', 2, 2, "", "Expecting value"),
    "truncated JSON": (
        '{"a": [1, 2',
        1,
        1,
        "",
        "Expecting ',' delimiter; the text ends in the middle of a value",
    ),
    "NaN": ('{"a": NaN}', 1, 1, "", "NaN is not JSON"),
    "infinity": ('\n\n{"a": -Infinity}', 1, 3, "", "-Infinity is not JSON"),
    "half a surrogate pair": (
        '{"a": 1}\n{"a": "\\\\ud800 \\ud83d\\ude00",\n "b": ["\\\\\\uDFFF"]}',
        2,
        3,
        "",
        "\\uDFFF is half a surrogate pair",
    ),
    "another half in its place": (
        '{"\\ud83d\\ud83d": 1}',
        1,
        1,
        "",
        "\\ud83d is half a surrogate pair",
    ),
    "not UTF-8": (b"a: 1\nb: \xff\n", 0, 2, "", "not UTF-8 text"),
    "a control character": (
        "a: \x01\n",
        1,
        None,
        "",
        "unacceptable character #x0001: control characters are not allowed",
    ),
    "an alias of nothing": ("a: *b\n", 1, 1, "a", "the alias b stands for nothing"),
    "an alias of itself": ("a: &a [*a]\n", 1, 1, "a[0]", "the alias a stands for nothing"),
    "an alias of another document": (
        "a: &a 1\n---\nb: *a\n",
        2,
        3,
        "b",
        "the alias a stands for nothing",
    ),
    "a key that is null": ("~: 1\n", 1, 1, "", "a key may not be null"),
    "a key that is a list": ("? [a]\n: 1\n", 1, 1, "", "a key must be a scalar"),
    "keys in keys": ("{" * 5000, 1, 1, "", "Expecting property name enclosed in double quotes"),
    "merging a scalar": ("<<: 5\na: 1\n", 1, 1, "<<", "only mappings can be merged"),
    "deep JSON": ("[" * 100_000, 1, 1, "", "nests too deep"),
    "digits without end": (
        '{"a": ' + "9" * 5000 + "}",
        1,
        1,
        "",
        "a number of 5000 digits is too long",
    ),
}


@pytest.mark.parametrize(
    ("text", "document", "line", "field", "detail"), BROKEN.values(), ids=BROKEN.keys()
)
def test_what_is_broken_is_reported_with_its_place(
    text: str | bytes, document: int, line: int | None, field: str, detail: str
) -> None:
    refusal = error(text)
    assert (refusal.place.document, refusal.place.line, refusal.field) == (document, line, field)
    assert refusal.detail == detail


def test_an_error_reads_from_the_outside_in() -> None:
    text = str(error("a: 1\n---\nb:\n  c: .inf\n"))
    assert text == (
        "some.yaml: document 2, line 4, column 6: b.c: .inf is not a number that JSON can hold"
    )


def test_documents_may_nest_only_so_deep() -> None:
    fits = "a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert isinstance(value(fits), dict)
    too_deep = "a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert error(too_deep).detail == f"nests deeper than {MAX_DEPTH}"


def test_aliases_cannot_nest_deeper_either() -> None:
    levels = MAX_DEPTH // 2
    nested = "[" * levels + "{}" + "]" * levels
    chain = f"a: &a {nested}\nb: &b {'[' * levels}*a{']' * levels}\n"
    assert error(chain).detail == f"nests deeper than {MAX_DEPTH}"


def test_an_alias_is_a_copy() -> None:
    found = value("a: &x {b: [1]}\nc: *x\n")
    assert found == {"a": {"b": [1]}, "c": {"b": [1]}}
    assert isinstance(found, dict)
    assert found["a"] is not found["c"]
    assert found["a"]["b"] is not found["c"]["b"]


def test_a_merge_key_fills_in_what_is_not_there() -> None:
    found = value(
        "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\n"
        "one:\n  <<: *base\n  b: 9\nboth:\n  <<: [*base, *more]\ntext:\n  '<<': 5\n"
    )
    assert isinstance(found, dict)
    assert found["one"] == {"a": 1, "b": 9}
    assert found["both"] == {"a": 1, "b": 2, "c": 4}
    assert found["text"] == {"<<": 5}


def bomb(levels: int) -> str:
    """Lists of ten aliases of lists of ten aliases."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        inner = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{inner}]")
    return "\n".join(lines)


def test_aliases_cannot_multiply_beyond_measure() -> None:
    assert isinstance(value(bomb(3)), dict)
    assert error(bomb(10)).detail == "aliases multiply beyond measure"


def test_many_small_aliases_are_no_bomb_until_their_sum_is() -> None:
    few = "a: &a [1]\n" + "".join(f"k{n}: *a\n" for n in range(1000))
    assert isinstance(value(few), dict)
    many = "a: &a [" + ", ".join(["1"] * 1000) + "]\n"
    many += "".join(f"k{n}: *a\n" for n in range(ALIAS_BUDGET // 1000 + 1))
    assert error(many).detail == "aliases multiply beyond measure"


LONG: dict[str, str] = {
    "text": f'"{"x" * 64_000}"',
    "key": "{? " + "x" * 64_000 + " : 1}",
    "whole number": "[" + ", ".join(["9" * 3999] * 16) + "]",
    "number": "[" + ", ".join([f"1.{'1' * 3990}"] * 16) + "]",
}


@pytest.mark.parametrize("long", LONG.values(), ids=LONG.keys())
def test_aliases_of_what_is_long_count_by_its_length(long: str) -> None:
    few = f"a: &a {long}\nb: [{', '.join(['*a'] * 9)}]\n"
    assert isinstance(value(few), dict)
    many = f"a: &a {long}\nb: [{', '.join(['*a'] * 200)}]\n"
    assert error(many).detail == "aliases multiply beyond measure"


def test_merge_keys_that_are_repeated_fill_in_one_after_the_other() -> None:
    found = value("a: 1\n<<: {a: 2, b: 2}\n<<: [{b: 3, c: 3}, {c: 4, d: 4}]\n<<: {}\n")
    assert isinstance(found, dict)
    assert list(found.items()) == [("c", 3), ("d", 4), ("b", 2), ("a", 1)]


def test_the_lines_of_values_take_no_more_than_the_text_warrants() -> None:
    for length in (1, 900, LONGEST_PATH + 1, 200_000):
        text = f"? {'k' * length}\n: [{'1, ' * 5000}]\nlast: [1]\n"
        (document,) = read_documents("x.yaml", text.encode())
        assert max(map(len, document.lines)) <= LONGEST_PATH
        assert sum(map(len, document.lines)) <= 16 * len(text)
        assert document.error("wrong", field="last").place.line == 3
        assert document.error("wrong", field=f"{'k' * length}[3]").place.line in (1, 2)


def test_a_long_field_is_looked_for_by_its_beginning() -> None:
    class Lines(dict[str, int]):
        asked: ClassVar[list[int]] = []

        def __contains__(self, place: object) -> bool:
            self.asked.append(len(str(place)))
            return super().__contains__(place)

    document = Document("x", 1, None, Lines({"": 7}))
    assert document.error("wrong", field="a." * 100_000).place.line == 7
    assert max(Lines.asked) <= LONGEST_PATH + 1


def test_tags_can_be_declared_only_so_often() -> None:
    def text(count: int) -> str:
        return "".join(f"%TAG !t{number}! x\n" for number in range(count)) + "---\na: 1\n"

    assert value(text(MAX_TAG_DIRECTIVES)) == {"a": 1}
    assert error(text(MAX_TAG_DIRECTIVES + 1)).detail == "more %TAG directives than can be read"


def test_a_fault_that_is_deep_is_looked_for_only_so_long() -> None:
    starts: list[int] = []

    def decode(text: str, start: int) -> object:
        starts.append(start)
        raise ValueError(text)

    place = place_of_fault("[" * 900 + "]" * 900, 0, decode)
    assert 100 < place < 200
    assert len(starts) < 200


def test_a_field_that_is_wrong_is_found_by_the_nearest_known_line() -> None:
    (document,) = read_documents("x.yaml", b"\nkind: A\nitems:\n- a: 1\n- b:\n    c:\n      d: 1\n")
    lines = {
        field: document.error("wrong", field=field).place.line
        for field in ("", "kind", "items[0].a", "items[1]", "items[1].b.c.d", "nothing", "items[9]")
    }
    assert lines == {
        "": 2,
        "kind": 2,
        "items[0].a": 4,
        "items[1]": 5,
        "items[1].b.c.d": 6,
        "nothing": 2,
        "items[9]": 4,
    }


OWN = (
    b'{"apiVersion":"deferredquota.io/v1alpha1","kind":"SnapshotList","format":1,"items":[\n'
    b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"n":1.50,"s":"\xc3\xa9"}}\n]}\n'
)


def test_a_file_as_we_write_it_is_read_as_by_the_other_decoder() -> None:
    (quick,) = read_documents("own.json", OWN)
    (careful,) = read_documents("own.json", OWN.replace(b'"items"', b' "items"'))
    assert quick == careful


@pytest.mark.parametrize("place", ["top", "deep"])
def test_repeated_keys_are_found_in_a_file_that_begins_as_ours(place: str) -> None:
    old, new = {
        "top": (b'"format":1,', b'"format":1,"format":1,'),
        "deep": (b'{"name":"a"}', b'{"name":"a","name":"a"}'),
    }[place]
    with pytest.raises(SnapshotError, match="appears twice"):
        read_documents("own.json", OWN.replace(old, new))
