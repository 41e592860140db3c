"""Is an answer one that an API server takes? The checks are its own, written again from outside.

Nothing here uses the code that writes the answers.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import cast

import jsonpatch

from webhook.admission.review import Phase

Object = dict[str, object]

CODES = {400, 403, 404, 409, 422, 429, 500}
WARNINGS_BUDGET = 4096
LONGEST_WARNING = 120
_PRINTABLE = re.compile(r"[\x20-\x7e]+")
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def response_of(body: bytes, review: Mapping[str, object], phase: Phase) -> Object:
    """Return the response in an answer, once it is sure that the API server would take it."""
    answer = json.loads(body)
    assert answer["apiVersion"] == "admission.k8s.io/v1"
    assert answer["kind"] == "AdmissionReview"
    response = _object(answer["response"])
    request = _object(review["request"])
    assert response["uid"] == request["uid"], "expected response.uid"
    assert isinstance(response["allowed"], bool)
    _check_patch(response, request, phase)
    _check_warnings(response)
    _check_audit(response)
    if response["allowed"]:
        assert "status" not in response
    else:
        _check_status(_object(response["status"]))
    return response


def patched(response: Mapping[str, object], before: object) -> Object:
    """Apply the patch of a response as strictly as the API server does."""
    text = response.get("patch")
    operations = [] if text is None else json.loads(b64decode(str(text), validate=True))
    after: Object = jsonpatch.JsonPatch(operations).apply(before)
    return after


def operations_of(response: Mapping[str, object]) -> list[Object]:
    """Return the operations of the patch; none without one."""
    text = response.get("patch")
    found: list[Object] = [] if text is None else json.loads(b64decode(str(text), validate=True))
    return found


def _check_patch(response: Object, request: Object, phase: Phase) -> None:
    assert ("patch" in response) == ("patchType" in response)
    if "patch" not in response:
        return
    assert phase is Phase.MUTATING, "validating webhook may not return response.patch"
    assert response["allowed"]
    assert response["patchType"] == "JSONPatch"
    for operation in operations_of(response):
        assert operation["op"] in {"add", "remove", "replace", "test", "move", "copy"}
        assert str(operation["path"]).startswith("/")
    patched(response, request["object"])


def _check_warnings(response: Object) -> None:
    warnings = cast("list[str]", response.get("warnings", []))
    assert len(set(warnings)) == len(warnings)
    for warning in warnings:
        assert _PRINTABLE.fullmatch(warning), warning
        assert len(warning) <= LONGEST_WARNING, warning
    assert sum(map(len, warnings)) <= WARNINGS_BUDGET


def _check_audit(response: Object) -> None:
    audit = _object(response.get("auditAnnotations", {}))
    for key, value in audit.items():
        assert _NAME_PART.fullmatch(key), key
        assert isinstance(value, str)
    assert audit["decision"]


def _check_status(status: Object) -> None:
    assert status["status"] == "Failure"
    assert status["code"] in CODES
    assert status["reason"]
    assert status["message"]
    details = _object(status.get("details", {}))
    assert (status["code"] == 429) == ("retryAfterSeconds" in details)
    for cause in cast("list[Object]", details.get("causes", [])):
        assert set(cause) <= {"reason", "field", "message"}
        assert all(isinstance(value, str) for value in cause.values())


def _object(value: object) -> Object:
    assert isinstance(value, dict)
    return value
