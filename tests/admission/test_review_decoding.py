"""Bytes that an API server sends, and bytes that nobody should send."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.reviews import a_review, encoded, phase_of, recorded, recorded_names
from webhook.admission.review import (
    MALFORMED_REASONS,
    AdmissionRequest,
    GroupVersionKind,
    MalformedReviewError,
    Phase,
    decode_review,
)
from webhook.jsonfields.encoding import NumberText, decode_json


def decode(data: bytes) -> AdmissionRequest:
    return decode_review(data, Phase.VALIDATING)


@pytest.mark.parametrize("name", recorded_names())
def test_recorded_reviews_are_read_as_they_were_sent(name: str) -> None:
    request = decode_review(recorded(name), phase_of(name))
    sent = json.loads(recorded(name))["request"]
    plain = decode_json(recorded(name))
    assert isinstance(plain, dict)
    assert request == AdmissionRequest(
        uid=sent["uid"],
        phase=phase_of(name),
        operation=sent["operation"],
        group=sent["resource"]["group"],
        version=sent["resource"]["version"],
        resource=sent["resource"]["resource"],
        subresource=sent.get("subResource", ""),
        kind=GroupVersionKind(**sent["kind"]),
        name=sent.get("name", ""),
        namespace=sent.get("namespace", ""),
        username=sent["userInfo"]["username"],
        groups=tuple(sent["userInfo"]["groups"]),
        dry_run=sent["dryRun"],
        object=plain["request"]["object"],
        old_object=plain["request"]["oldObject"],
        options=plain["request"].get("options"),
    )


@pytest.mark.parametrize("deep", [b"{}", b'{"a":' * 100_000 + b"{}" + b"}" * 100_000])
def test_of_managed_fields_the_api_server_passes_on_what_is_no_text(deep: bytes) -> None:
    managed = b'{"metadata":{"name":"web-1","managedFields":[{"f:\xff":%s}]},"spec":{"a":1}}' % deep
    text = encoded(a_review({"object": "here"})).replace(b'"here"', managed)
    found = decode(text).object
    assert found is not None
    assert (found["spec"], found["metadata"]["name"]) == ({"a": 1}, "web-1")  # type: ignore[index]


def test_key_and_path_are_those_of_the_log() -> None:
    request = decode(encoded(a_review()))
    assert (request.key, request.path) == ("team-a/web-1", "pods/binding")
    assert decode(encoded(a_review({"subResource": ...}))).path == "pods"


def test_a_create_with_generate_name_has_no_name_yet() -> None:
    assert decode(encoded(a_review({"name": ...}))).name == ""


def test_null_is_the_same_as_absent() -> None:
    nulls = dict.fromkeys(
        ("subResource", "name", "namespace", "userInfo", "object", "dryRun", "options", "kind")
    )
    assert decode(encoded(a_review(nulls))) == decode(encoded(a_review(dict.fromkeys(nulls, ...))))


def test_unknown_fields_are_ignored() -> None:
    review = a_review({"future": {"deep": [1, 2.5]}}, response={"uid": "x"}, more=1)
    assert decode(encoded(review)) == decode(encoded(a_review()))


def test_of_repeated_keys_the_last_one_stands() -> None:
    text = encoded(a_review()).replace(b'"uid":"uid-1"', b'"uid":"first","uid":"last"')
    assert decode(text).uid == "last"
    text = text.replace(b'"kind":"Node"', b'"kind":"Pod","kind":"Node"')
    target = {"kind": "Node", "name": "node-1"}
    assert (decode(text).object or {})["target"] == target


def test_numbers_in_objects_keep_their_text() -> None:
    text = encoded(a_review()).replace(b'"node-1"', b"[0.1, 1E3, 7, 100000000000000000000]")
    target = (decode(text).object or {})["target"]
    assert target == {"kind": "Node", "name": ["0.1", "1E3", 7, 100000000000000000000]}
    assert isinstance(target, dict)
    assert [type(number) for number in target["name"]] == [NumberText, NumberText, int, int]


@given(uid=st.text(min_size=1), name=st.text(), namespace=st.text())
def test_any_text_may_be_a_name(uid: str, name: str, namespace: str) -> None:
    request = decode(encoded(a_review({"uid": uid, "name": name, "namespace": namespace})))
    assert (request.uid, request.key) == (uid, f"{namespace}/{name}")


NESTED = 3 * 1024 * 1024

MALFORMED: dict[str, tuple[bytes, str, str]] = {
    "nothing": (b"", "json", "not JSON"),
    "text": (b"hello", "json", "not JSON"),
    "a byte order mark": (b"\xef\xbb\xbf" + encoded(a_review()), "json", "not JSON"),
    "truncated": (encoded(a_review())[:-40], "json", "not JSON"),
    "two values": (encoded(a_review()) * 2, "json", "trailing characters"),
    "half a surrogate pair": (
        encoded(a_review()).replace(b"web-1", b"\\ud800"),
        "json",
        "not JSON",
    ),
    "NaN": (encoded(a_review()).replace(b'"node-1"', b"NaN"), "json", "not JSON"),
    "Infinity": (encoded(a_review()).replace(b'"node-1"', b"-Infinity"), "json", "not JSON"),
    "a list": (b"[]", "type", "not an AdmissionReview"),
    "null": (b"null", "type", "not an AdmissionReview"),
    "another kind": (encoded(a_review(kind="Pod")), "kind", "not 'Pod'"),
    "no kind": (encoded(a_review(kind=...)), "kind", "not absent"),
    "v1beta1": (
        encoded(a_review(apiVersion="admission.k8s.io/v1beta1")),
        "version",
        "apiVersion: must be admission.k8s.io/v1, not 'admission.k8s.io/v1beta1'",
    ),
    "no version": (encoded(a_review(apiVersion=...)), "version", "not absent"),
    "no request": (encoded(a_review(request=...)), "request", "request: must be present"),
    "null as the request": (encoded(a_review(request=None)), "request", "must be present"),
    "a response": (
        encoded(a_review(request=..., response={"uid": "x", "allowed": True})),
        "request",
        "must be present",
    ),
    "no uid": (encoded(a_review({"uid": ...})), "uid", "request.uid: must not be empty"),
    "an empty uid": (encoded(a_review({"uid": ""})), "uid", "must not be empty"),
    "a uid of a megabyte": (
        encoded(a_review({"uid": "u" * 1_000_000})),
        "request",
        "request.uid: must be no more than 253 characters",
    ),
    "a namespace of a megabyte": (
        encoded(a_review({"namespace": "n" * 1_000_000})),
        "request",
        "request.namespace: must be no more than 253 characters",
    ),
    "an operation of a megabyte": (
        encoded(a_review({"operation": "o" * 1_000_000})),
        "request",
        "request.operation: must be no more than 253 characters",
    ),
    "null as the uid": (encoded(a_review({"uid": None})), "uid", "must not be empty"),
    "no operation": (encoded(a_review({"operation": ...})), "request", "request.operation"),
    "no resource": (encoded(a_review({"resource": ...})), "request", "request.resource.resource"),
    "nested lists in the object": (
        encoded(a_review()).replace(b'"node-1"', b"[" * NESTED + b"]" * NESTED),
        "nesting",
        "nests too deep",
    ),
    "nested lists before an end of managed fields that is forged": (
        encoded(a_review()).replace(
            b'"node-1"',
            b'{"a":1,"managedFields":[{"f":{"d":%s%s,"a":[{}]},"spec":{}}}]},"spec":{}'
            % (b"[" * NESTED, b"]" * NESTED),
        ),
        "nesting",
        "nests too deep",
    ),
    "managed fields that nest deep, and are not in front of a spec": (
        encoded(a_review()).replace(
            b'"node-1"',
            b'{"a":1,"managedFields":[{"f":%s1%s}],"b":{"c":[{"d":{"e":1}}]},"spec":{}}'
            % (b'{"a":' * NESTED, b"}" * NESTED),
        ),
        "nesting",
        "nests too deep",
    ),
    "nested maps in a field that is not read": (
        encoded(a_review()).replace(b'"node-1"}', b'"x"}, "a":' + b'{"a":' * (NESTED // 5)),
        "nesting",
        "nests too deep",
    ),
    "an endless integer": (
        encoded(a_review()).replace(b'"node-1"', b"9" * 100_000),
        "type",
        "request.object",
    ),
}


@pytest.mark.parametrize(("data", "reason", "detail"), MALFORMED.values(), ids=MALFORMED.keys())
def test_what_cannot_be_answered_is_refused_with_the_reason(
    data: bytes, reason: str, detail: str
) -> None:
    with pytest.raises(MalformedReviewError) as caught:
        decode(data)
    assert caught.value.reason == reason
    assert reason in MALFORMED_REASONS
    assert detail in str(caught.value)


WRONG_TYPES: dict[str, tuple[object, str]] = {
    "uid": (7, "request.uid: expected str, got int"),
    "kind": ("Pod", "request.kind: expected object"),
    "kind.kind": ({"kind": 1}, "request.kind.kind: expected str"),
    "resource": ([], "request.resource: expected object"),
    "resource.resource": ({"resource": None, "group": 1}, "request.resource.group: expected str"),
    "resource.version": ({"resource": "pods", "version": {}}, "request.resource.version"),
    "subResource": (True, "request.subResource: expected str"),
    "name": (["web-1"], "request.name: expected str"),
    "namespace": (3.5, "request.namespace: expected str"),
    "operation": ({}, "request.operation: expected str"),
    "userInfo": ("alice", "request.userInfo: expected object"),
    "userInfo.username": ({"username": 1}, "request.userInfo.username: expected str"),
    "userInfo.groups": ({"groups": "devs"}, "request.userInfo.groups: expected array"),
    "userInfo.groups[1]": ({"groups": ["a", 1]}, "request.userInfo.groups[1]: expected str"),
    "object": ([], "request.object: expected object"),
    "oldObject": ("x", "request.oldObject: expected object"),
    "dryRun": ("false", "request.dryRun: expected bool"),
    "options": (1, "request.options: expected object"),
}


@pytest.mark.parametrize(
    ("field", "value", "detail"),
    [(field.partition(".")[0], *case) for field, case in WRONG_TYPES.items()],
    ids=WRONG_TYPES.keys(),
)
def test_a_wrong_type_is_refused_with_its_path(field: str, value: object, detail: str) -> None:
    with pytest.raises(MalformedReviewError) as caught:
        decode(encoded(a_review({field: value})))
    assert caught.value.reason == "type"
    assert detail in caught.value.detail


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


def reason_of(data: bytes) -> str:
    """The reason why the data is refused; empty when it is not. Other errors come through."""
    try:
        return "" if decode(data).uid else "no uid came out"
    except MalformedReviewError as err:
        return err.reason


@given(field=st.sampled_from(sorted(WRONG_TYPES)), value=JSON)
def test_whatever_is_in_a_field_only_one_error_comes_out(field: str, value: object) -> None:
    outer, _, inner = field.partition(".")
    review = a_review({outer: {inner: value} if inner else value})
    assert reason_of(encoded(review)) in {"", *MALFORMED_REASONS}


@given(data=st.binary(max_size=200))
def test_whatever_the_bytes_are_only_one_error_comes_out(data: bytes) -> None:
    with pytest.raises(MalformedReviewError):
        decode(data)


@given(position=st.integers(min_value=0, max_value=10_000), byte=st.binary(min_size=1, max_size=1))
def test_one_changed_byte_gives_a_request_or_that_error(position: int, byte: bytes) -> None:
    data = bytearray(encoded(a_review()))
    data[position % len(data)] = byte[0]
    assert reason_of(bytes(data)) in {"", *MALFORMED_REASONS}
