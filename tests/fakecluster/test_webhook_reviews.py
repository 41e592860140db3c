"""AdmissionReviews as an API server writes and reads them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.fakecluster.admission.webhook_reviews import (
    InvalidAnswerError,
    Phase,
    UserInfo,
    read_response,
    write_review,
)
from webhook.fakecluster.storage.admission_hook import Operation, WriteRequest
from webhook.kube.api import KNOWN_KINDS, Kind, Object, kind_of

RECORDED = Path(__file__).parent.parent / "vectors" / "admission-reviews"
"""What a kube-apiserver 1.36.2 sent to a webhook, one review in a file."""

REVIEWS = {path.stem: json.loads(path.read_text()) for path in sorted(RECORDED.glob("*.json"))}


@pytest.mark.parametrize("recorded", REVIEWS.values(), ids=REVIEWS.keys())
def test_a_review_is_written_as_the_api_server_writes_it(recorded: dict[str, object]) -> None:
    request = cast("dict[str, object]", recorded["request"])
    user = cast("dict[str, object]", request["userInfo"])
    written = write_review(
        request_of(request),
        uid=str(request["uid"]),
        user=UserInfo(
            username=str(user["username"]),
            uid=str(user.get("uid", "")),
            groups=tuple(cast("list[str]", user.get("groups", []))),
            extra=cast("dict[str, list[str]]", user.get("extra", {})),
        ),
    )
    assert json.loads(written) == recorded


def request_of(request: Mapping[str, object]) -> WriteRequest:
    """The write that a recorded review is about."""
    return WriteRequest(
        operation=cast("Operation", request["operation"]),
        kind=kind(cast("dict[str, str]", request["kind"])),
        resource=resource(cast("dict[str, str]", request["resource"])),
        subresource=str(request.get("subResource", "")),
        namespace=str(request.get("namespace", "")),
        name=str(request.get("name", "")),
        new=cast("Object | None", request["object"]),
        old=cast("Object | None", request["oldObject"]),
        dry_run=bool(request["dryRun"]),
        options=cast("dict[str, object]", request["options"]),
    )


def kind(said: Mapping[str, str]) -> Kind:
    api_version = f"{said['group']}/{said['version']}".lstrip("/")
    return kind_of(api_version, said["kind"], namespaced=True)


def resource(said: Mapping[str, str]) -> Kind:
    path = (said["group"], said["version"], said["resource"])
    found = (one for one in KNOWN_KINDS if (one.group, one.version, one.plural) == path)
    return next(found, None) or kind({**said, "kind": "Binding"})


def test_a_user_may_have_more_to_say() -> None:
    user = UserInfo("alice", extra={"scopes": ["a"]})
    assert user.to_json() == {"username": "alice", "extra": {"scopes": ["a"]}}


def review(response: object, **fields: object) -> bytes:
    envelope = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**envelope, "response": response, **fields}).encode()


def encoded(patch: object) -> str:
    return b64encode(json.dumps(patch).encode()).decode()


OK = {"uid": "u1", "allowed": True}
WRONG = "received invalid webhook response: "
REFUSED: dict[str, tuple[bytes, Phase, str]] = {
    "not JSON": (b"<html>", "mutating", "couldn't get version/kind; json parse error: "),
    "truncated": (b'{"response": {', "mutating", "couldn't get version/kind; json parse error: "),
    "deep": (b"[" * 100_000, "mutating", "couldn't get version/kind; json parse error: "),
    "a list": (b"[]", "mutating", "couldn't get version/kind; json parse error: "),
    "no response": (review(None), "mutating", f"{WRONG}webhook response was absent"),
    "another uid": (
        review({**OK, "uid": "u2"}),
        "mutating",
        f'{WRONG}expected response.uid="u1", got "u2"',
    ),
    "no envelope": (
        json.dumps({"response": OK}).encode(),
        "mutating",
        f"{WRONG}expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got ",
    ),
    "an older version": (
        review(OK, apiVersion="admission.k8s.io/v1beta1"),
        "mutating",
        "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
    ),
    "another group": (
        review(OK, apiVersion="v1"),
        "mutating",
        'no kind "AdmissionReview" is registered for "v1"',
    ),
    "another kind": (review(OK, kind="Pod"), "mutating", f"{WRONG}expected webhook response of "),
    "allowed in words": (
        review({**OK, "allowed": "yes"}),
        "mutating",
        "couldn't get version/kind; json parse error: ",
    ),
    "a patch from a validating webhook": (
        review({**OK, "patch": encoded([])}),
        "validating",
        f"{WRONG}validating webhook may not return response.patch",
    ),
    "a patch type from a validating webhook": (
        review({**OK, "patchType": "JSONPatch"}),
        "validating",
        f"{WRONG}validating webhook may not return response.patchType",
    ),
    "a patch without type": (
        review({**OK, "patch": encoded([])}),
        "mutating",
        f"{WRONG}webhook returned response.patch but not response.patchType",
    ),
    "a type without patch": (
        review({**OK, "patchType": "JSONPatch"}),
        "mutating",
        f"{WRONG}webhook returned response.patchType but not response.patch",
    ),
    "an empty type": (
        review({**OK, "patch": encoded([]), "patchType": ""}),
        "mutating",
        f'{WRONG}webhook returned invalid response.patchType of ""',
    ),
    "another type": (
        review({**OK, "patch": encoded([]), "patchType": "MergePatch"}),
        "mutating",
        f'{WRONG}unsupported patch type "MergePatch"',
    ),
    "a patch that is not base64": (
        review({**OK, "patch": "[{}]", "patchType": "JSONPatch"}),
        "mutating",
        f"{WRONG}response.patch cannot be read: ",
    ),
    "a patch that is not JSON": (
        review({**OK, "patch": b64encode(b"[").decode(), "patchType": "JSONPatch"}),
        "mutating",
        f"{WRONG}response.patch cannot be read: ",
    ),
    "a patch that is no list": (
        review({**OK, "patch": encoded({}), "patchType": "JSONPatch"}),
        "mutating",
        f"{WRONG}response.patch is not a list of operations",
    ),
}


@pytest.mark.parametrize(("data", "phase", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_an_answer_that_is_none_is_refused_in_the_api_servers_words(
    data: bytes, phase: Phase, text: str
) -> None:
    with pytest.raises(InvalidAnswerError) as refusal:
        read_response(data, uid="u1", phase=phase)
    assert str(refusal.value).startswith(text)


def test_an_answer_says_what_it_says() -> None:
    patch = [{"op": "remove", "path": "/a"}]
    said = {
        **OK,
        "allowed": False,
        "status": {"code": 403},
        "patchType": "JSONPatch",
        "patch": encoded(patch),
        "warnings": ["careful"],
        "auditAnnotations": {"decision": "denied"},
    }
    answer = read_response(review(said), uid="u1", phase="mutating")
    assert (answer.allowed, answer.status) == (False, {"code": 403})
    assert (answer.patch, answer.warnings) == (tuple(patch), ("careful",))
    assert answer.audit == {"decision": "denied"}


def test_an_answer_may_be_short() -> None:
    answer = read_response(review({"uid": "u1"}), uid="u1", phase="validating")
    assert (answer.allowed, answer.status, answer.patch) == (False, {}, ())


RESPONSES = st.dictionaries(
    st.sampled_from(
        ["uid", "allowed", "status", "patch", "patchType", "warnings", "auditAnnotations"]
    ),
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["u1", "JSONPatch", encoded([]), encoded([1]), "x"])
    | st.lists(st.text(max_size=3), max_size=2)
    | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


@given(response=RESPONSES, phase=st.sampled_from(["mutating", "validating"]))
def test_any_answer_is_read_or_refused(response: dict[str, object], phase: Phase) -> None:
    try:
        answer = read_response(review(response), uid="u1", phase=phase)
    except InvalidAnswerError:
        return
    assert response["uid"] == "u1"
    assert answer.allowed is response.get("allowed", False)
