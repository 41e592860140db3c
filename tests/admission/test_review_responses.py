"""Answers on the wire: what the API server reads, and what it must never see."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.reviews import a_request
from webhook.admission.patch_builder import PatchOperation, add
from webhook.admission.review import (
    MAX_CAUSES,
    MAX_MESSAGE_CHARACTERS,
    STATUS_CODES,
    AdmissionResponse,
    Allowed,
    AnswerError,
    Denied,
    Phase,
    clean_warnings,
    encode_review,
)
from webhook.quota.charging.denials import Cause

OVER_QUOTA = (
    "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=2, limited: requests.cpu=2"
)


def response_to(
    answer: AdmissionResponse, request: Mapping[str, object] | None = None
) -> dict[str, Any]:
    review = json.loads(encode_review(a_request(request), answer))
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: dict[str, Any] = review["response"]
    return response


def forbidden(**fields: Any) -> Denied:
    return Denied(**{"code": 403, "reason": "Forbidden", "message": OVER_QUOTA, **fields})


def test_an_allowed_request_has_uid_and_decision_and_nothing_else() -> None:
    assert response_to(Allowed(decision="reserved", audit={"ledger": "5121"})) == {
        "uid": "uid-1",
        "allowed": True,
        "auditAnnotations": {"decision": "reserved", "ledger": "5121"},
    }


def test_a_denial_carries_the_status_the_client_will_see() -> None:
    cause = Cause("QuotaExceeded", "p1/requests.cpu", "requested=1,used=2,limited=2")
    assert response_to(forbidden(causes=(cause,), audit={"quota": "p1"})) == {
        "uid": "uid-1",
        "allowed": False,
        "status": {
            "status": "Failure",
            "code": 403,
            "reason": "Forbidden",
            "message": OVER_QUOTA,
            "details": {
                "name": "web-1",
                "kind": "pods",
                "causes": [
                    {
                        "reason": "QuotaExceeded",
                        "field": "p1/requests.cpu",
                        "message": "requested=1,used=2,limited=2",
                    }
                ],
            },
        },
        "auditAnnotations": {"decision": "denied", "quota": "p1"},
    }


def test_a_request_to_try_again_says_when() -> None:
    answer = Denied(
        code=429, reason="TooManyRequests", message="quota ledger busy", retry_after_seconds=1
    )
    assert response_to(answer)["status"]["details"]["retryAfterSeconds"] == 1


def test_details_of_an_invalid_object_name_its_kind_and_group() -> None:
    request = {
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "subResource": ...,
        "name": "train",
    }
    answer = Denied(code=422, reason="Invalid", message="spec.suspend: must be true")
    details = response_to(answer, request)["status"]["details"]
    assert details == {"name": "train", "group": "batch", "kind": "Job"}


def test_a_patch_is_base64_of_a_json_patch() -> None:
    answer = Allowed(decision="stamped", patch=(add(("metadata", "annotations"), {"a/b": "1"}),))
    review = json.loads(encode_review(a_request(phase=Phase.MUTATING), answer))
    assert review["response"]["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(review["response"]["patch"], validate=True)) == [
        {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}}
    ]


def test_without_operations_there_is_neither_patch_nor_its_type() -> None:
    review = json.loads(encode_review(a_request(phase=Phase.MUTATING), Allowed(decision="none")))
    assert review["response"].keys() == {"uid", "allowed", "auditAnnotations"}


def test_a_patch_in_the_validating_phase_is_a_fault() -> None:
    answer = Allowed(decision="x", patch=(PatchOperation("remove", "/spec"),))
    with pytest.raises(AnswerError, match="validating"):
        encode_review(a_request(phase=Phase.VALIDATING), answer)


@pytest.mark.parametrize("code", [0, 200, 399, 402, 418, 503, 999, 1000])
def test_no_other_status_code_can_be_answered(code: int) -> None:
    with pytest.raises(AnswerError, match="code"):
        Denied(code=code, reason="Forbidden", message="no")


@pytest.mark.parametrize("code", sorted(STATUS_CODES))
def test_the_code_is_passed_on(code: int) -> None:
    answer = Denied(code=code, reason="R", message="m")
    assert response_to(answer)["status"]["code"] == code


def test_a_long_audit_value_is_cut() -> None:
    value = response_to(Allowed(decision="x", audit={"a": "y" * 5000}))["auditAnnotations"]["a"]
    assert (len(value), value[-4:]) == (1024, "y...")


@given(uid=st.text(min_size=1), message=st.text(), name=st.text(min_size=1))
def test_any_text_comes_back_as_it_was(uid: str, message: str, name: str) -> None:
    response = response_to(forbidden(message=message), {"uid": uid, "name": name})
    assert response["uid"] == uid
    assert response["status"]["message"] == message
    assert response["status"]["details"]["name"] == name


def test_control_characters_do_not_reach_the_wire_unescaped() -> None:
    wire = encode_review(a_request({"name": "a\r\nb\x1b[2J"}), forbidden(message="x\r\ny"))
    assert not any(byte < 0x20 for byte in wire)


@given(warnings=st.lists(st.text(max_size=300), max_size=40))
def test_warnings_fit_into_headers(warnings: list[str]) -> None:
    cleaned = clean_warnings(warnings)
    assert all(line.isascii() and line.isprintable() and line.strip() for line in cleaned)
    assert all(len(line) <= 120 for line in cleaned)
    assert len(cleaned) == len(set(cleaned)) <= 16


def test_warnings_keep_their_order_and_their_words() -> None:
    assert clean_warnings(["b", "a", "", "b", " \n "]) == ["b", "a", "?"]


def test_warnings_that_do_not_fit_are_counted() -> None:
    cleaned = clean_warnings(f"warning {number}" for number in range(20))
    assert (len(cleaned), cleaned[-1]) == (16, "5 more warnings are not shown")


def test_warnings_go_with_every_answer() -> None:
    assert response_to(Allowed(decision="x", warnings=("careful",)))["warnings"] == ["careful"]
    assert response_to(forbidden(warnings=("careful",)))["warnings"] == ["careful"]


def test_what_waits_for_a_client_is_small_whatever_it_named() -> None:
    """The word of a client comes back: a crowd that does not read it holds all of it."""
    huge = "n" * 1_000_000
    causes = (Cause("R", huge, huge),) * 10_000
    answer = forbidden(message=huge, causes=causes, audit={"reason": huge})
    assert len(encode_review(a_request({"name": huge}), answer)) < 512 * 1024
    status = response_to(answer, {"name": huge})["status"]
    assert len(status["message"]) == MAX_MESSAGE_CHARACTERS
    assert len(status["details"]["causes"]) == MAX_CAUSES
