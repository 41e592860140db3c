"""JSON text that nests as deep as tenants may have it stored, and deeper than can be decoded."""

from __future__ import annotations

import msgspec
import pytest

from webhook.jsonfields.encoding import (
    InvalidJsonError,
    decode_deep,
    decode_json,
    without_managed_fields,
)

LEVELS = 9_900
"""As many as the API server takes."""
DEEP = b'{"f:a":' * LEVELS + b"{}" + b"}" * LEVELS
DEEPER = b'{"f:a":' * 100_000 + b"{}" + b"}" * 100_000
"""More than can be decoded; how much that is depends on the interpreter."""
ODD = b'{"v:\\"}]},\\\\\\"spec\\":{[":{}}'
"""What looks like an end in a text is none."""


def a_pod(name: bytes, *fields: bytes) -> bytes:
    managed = b",".join(b'{"manager":"m","fieldsV1":%s}' % each for each in fields)
    metadata = b'{"name":"%s","labels":{"managedFields":"["},"managedFields":[%s]}' % (
        name,
        managed,
    )
    return b'{"metadata":%s,"spec":{"nodeName":"n"},"status":{}}' % metadata


def test_of_managed_fields_that_nest_deep_only_they_are_missing() -> None:
    found = decode_json(b'{"items":[%s,%s]}' % (a_pod(b"a", ODD, DEEPER, ODD), a_pod(b"b")))
    wanted = decode_json(
        b'{"items":[%s,%s]}'
        % tuple(a_pod(name).replace(b',"managedFields":[]', b"") for name in (b"a", b"b"))
    )
    assert isinstance(found, dict)
    assert isinstance(wanted, dict)
    assert found["items"][0] == wanted["items"][0]


@pytest.mark.parametrize("more", [b"", DEEP, DEEPER], ids=["flat", "deep", "deeper"])
def test_bytes_that_are_no_text_cost_nothing_else(more: bytes) -> None:
    fields = b'{"f:\xff":%s}' % (more or b"{}")
    found = decode_json(b"[%s,%s]" % (a_pod(b"a", fields, ODD), a_pod(b"b")))
    assert isinstance(found, list)
    assert [one["spec"] for one in found] == [{"nodeName": "n"}] * 2
    assert [one["metadata"]["name"] for one in found] == ["a", "b"]
    assert decode_json(a_pod(b"a\xffb")) == decode_json(a_pod("a\ufffdb".encode()))


def test_managed_fields_are_found_only_where_the_api_server_has_them() -> None:
    assert without_managed_fields(a_pod(b"a", ODD)).count(b"managedFields") == 1
    for text in (b'{"a":1}', b',"managedFields":[', b'{"x":1,"managedFields":[{}],"name":"a"}'):
        assert without_managed_fields(text) == text


@pytest.mark.parametrize("at", ["first", "last", "only"])
def test_other_values_are_empty_below_some_level(at: str) -> None:
    parts = {"first": b'{"d":%s,"x":[1]}', "last": b'{"x":[1],"d":%s}', "only": b'{"d":%s}'}
    found = decode_json(parts[at] % (b'["]\\"[",' * LEVELS + b"[]" + b"]" * LEVELS))
    assert isinstance(found, dict)
    assert found.get("x", [1]) == [1]
    assert found["d"][0] == ']"['
    assert found["d"][1][1][1][0] == ']"['


def test_a_part_that_is_kept_as_text_can_be_decoded_again() -> None:
    raw = decode_deep(msgspec.json.Decoder(list[msgspec.Raw]), b"[%s]" % a_pod(b"a", DEEP))
    assert decode_json(bytes(raw[0])) == decode_json(a_pod(b"a", DEEP))


@pytest.mark.parametrize("text", [b"[" * 100_000, DEEP[:-1], DEEP + b"}", b"[" + DEEP])
def test_what_is_no_json_stays_none(text: bytes) -> None:
    with pytest.raises(InvalidJsonError):
        decode_json(text)


FORGED = b'{"f:a":{"a":[{}]},"spec":%s}' % DEEP
"""In a template, of which the API server does not look at the managed fields."""
SWAPPED = (
    b'{"f:a":{"a":[{}]},"spec":{"a":"forged"},"b":{"metadata":{"managedFields":[{}]},"spec":{}}}'
)
"""Without the first list and the second one the forged value is at the place of the true one."""


def a_job(fields: bytes) -> bytes:
    return b'{"metadata":{"name":"job"},"spec":{"template":%s}}' % a_pod(b"a", fields)


def test_a_forged_end_of_managed_fields_spoils_no_list() -> None:
    found = decode_json(b'{"items":[%s,%s]}' % (a_job(FORGED), a_pod(b"b")))
    assert isinstance(found, dict)
    assert found["items"][0]["spec"]["template"]["spec"] == {"nodeName": "n"}
    assert found["items"][1] == decode_json(a_pod(b"b"))


@pytest.mark.parametrize("fields", [FORGED, SWAPPED])
def test_a_forged_end_of_managed_fields_is_none(fields: bytes) -> None:
    assert without_managed_fields(a_job(fields)) == a_job(fields)
    both = a_pod(b"a", ODD)[:-1] + b',"other":%s}' % a_job(fields)
    assert without_managed_fields(both) == without_managed_fields(a_pod(b"a", ODD))[
        :-1
    ] + b',"other":%s}' % a_job(fields)
