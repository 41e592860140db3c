"""AdmissionReviews for tests: recorded ones, and one that is valid by default."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from webhook.admission.review import AdmissionRequest, Phase, decode_review

RECORDED = Path(__file__).parent.parent / "vectors" / "admission-reviews"
"""What a kube-apiserver 1.36.2 sent to a webhook, one review in a file."""

Object = dict[str, object]


def recorded_names() -> tuple[str, ...]:
    """Names of all recorded reviews, without the ending."""
    return tuple(sorted(path.stem for path in RECORDED.glob("*.json")))


def recorded(name: str) -> bytes:
    """A recorded review as it was sent."""
    return (RECORDED / f"{name}.json").read_bytes()


def phase_of(name: str) -> Phase:
    """The phase that a recorded review was sent in."""
    return {"mutate": Phase.MUTATING, "validate": Phase.VALIDATING}[name.partition(".")[0]]


def a_review(request: Mapping[str, object] | None = None, /, **fields: object) -> Object:
    """A review of a bind. `request` changes fields of the request, `fields` those around it.

    A value of `...` takes the field away.
    """
    asked: Object = {
        "uid": "uid-1",
        "kind": {"group": "", "version": "v1", "kind": "Binding"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": "binding",
        "name": "web-1",
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {"username": "system:kube-scheduler", "groups": ["system:authenticated"]},
        "object": {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "web-1", "namespace": "team-a", "uid": "pod-uid-1"},
            "target": {"kind": "Node", "name": "node-1"},
        },
        "oldObject": None,
        "dryRun": False,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
    }
    review: Object = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return _changed({**review, "request": _changed(asked, request or {})}, fields)


def encoded(review: object) -> bytes:
    """A review as JSON, without blanks, as the API server writes it."""
    return json.dumps(review, separators=(",", ":")).encode()


def a_request(
    request: Mapping[str, object] | None = None, *, phase: Phase = Phase.VALIDATING
) -> AdmissionRequest:
    """The request of `a_review`, decoded."""
    return decode_review(encoded(a_review(request)), phase)


def _changed(original: Object, changes: Mapping[str, object]) -> Object:
    return {key: value for key, value in {**original, **changes}.items() if value is not ...}
