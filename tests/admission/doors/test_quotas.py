"""ResourceQuota objects: what would break every pod creation is refused while it is written."""

from __future__ import annotations

from typing import cast

import pytest

from tests.admission.doors.conftest import OpenDesk
from tests.admission.doors.desk import NAMESPACE, Desk, Reply, a_review
from tests.builders import a_quota, an_expression
from webhook.cluster.api import RESOURCE_QUOTAS

Object = dict[str, object]


def create(desk: Desk, quota: Object, *, dry_run: bool = False) -> Reply:
    return desk.validate(a_review("CREATE", "resourcequotas", quota, dry_run=dry_run))


def change(desk: Desk, old: Object, new: Object, *, dry_run: bool = False) -> Reply:
    return desk.validate(a_review("UPDATE", "resourcequotas", new, old=old, dry_run=dry_run))


def test_a_sound_quota_is_admitted(desk: Desk) -> None:
    sound = a_quota("q", hard={"requests.cpu": "1", "pods": "5"}, scopes=["NotTerminating"])
    for reply in (create(desk, sound), change(desk, sound, sound)):
        assert (reply.allowed, reply.audit, reply.warnings) == (True, {"decision": "valid"}, [])


EXPRESSIONS = "spec.scopeSelector.matchExpressions"
UNSOUND: dict[str, tuple[Object, list[tuple[str, str, str]]]] = {
    "a value that no label can have": (
        a_quota("q", expressions=[an_expression("PriorityClass", "In", "gold", "bad value!")]),
        [("FieldValueInvalid", f"{EXPRESSIONS}[0].values[1]", "must be a valid label value")],
    ),
    "an amount that would be stored as another one": (
        a_quota("q", hard={"requests.cpu": "1000E"}),
        [
            (
                "FieldValueInvalid",
                "spec.hard[requests.cpu]",
                "cannot be stored exactly: the API server would keep 1",
            )
        ],
    ),
    "an amount that is none": (
        a_quota("q", hard={"requests.cpu": "many"}),
        [
            (
                "FieldValueInvalid",
                "spec.hard[requests.cpu]",
                (
                    "'many' is not a quantity: quantities must match the regular expression"
                    " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                ),
            )
        ],
    ),
    "scopes that rule each other out": (
        a_quota("q", hard={"pods": "1"}, scopes=["BestEffort", "NotBestEffort"]),
        [("FieldValueInvalid", "spec.scopes", "conflicting scopes")],
    ),
    "several faults": (
        a_quota("q", hard={"cpu": "-1", "foo": "1"}),
        [
            (
                "FieldValueInvalid",
                "spec.hard[cpu]",
                "must be greater than or equal to 0",
            ),
            (
                "FieldValueInvalid",
                "spec.hard[foo]",
                "must be a standard resource type or fully qualified",
            ),
            ("FieldValueInvalid", "spec.hard[foo]", "must be a standard resource for quota"),
        ],
    ),
}


@pytest.mark.parametrize("operation", ["create", "update"])
@pytest.mark.parametrize(("quota", "causes"), UNSOUND.values(), ids=UNSOUND.keys())
def test_an_unsound_quota_is_refused_with_every_field(
    desk: Desk, quota: Object, causes: list[tuple[str, str, str]], operation: str
) -> None:
    reply = create(desk, quota) if operation == "create" else change(desk, quota, quota)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.causes == causes
    assert reply.message == "; ".join(f"{field}: {detail}" for _, field, detail in causes)
    assert (reply.details["name"], reply.details["kind"]) == ("q", "ResourceQuota")
    assert "group" not in reply.details


def test_scopes_must_stay_and_the_rest_may_change(desk: Desk) -> None:
    old = a_quota("q", scopes=["Terminating"])
    reply = change(desk, old, a_quota("q"))
    assert reply.message == "spec.scopes: field is immutable"
    selector = [an_expression("PriorityClass", "Exists")]
    new = a_quota("q", scopes=["Terminating"], hard={"limits.cpu": "1"}, expressions=selector)
    assert change(desk, old, new).allowed


def lowered(desk: Desk, **hard: str) -> Reply:
    old = desk.stored(RESOURCE_QUOTAS, "p1")
    keys = {name.replace("_", "."): amount for name, amount in hard.items()}
    return change(desk, old, {**old, "spec": {"hard": keys}})


def test_a_limit_below_what_is_taken_is_legal_and_warned_of(open_desk: OpenDesk) -> None:
    desk = open_desk(a_quota("p1", hard={"requests.cpu": "4", "requests.memory": "4Gi"}))
    desk.pod(node="node-1", requests={"cpu": "1500m", "memory": "1Gi"})
    desk.settle()
    desk.pod(name="web-2", uid="uid-2", requests={"cpu": "1", "memory": "1Gi"})
    desk.catch_up()
    assert desk.bind("web-2", uid="uid-2").allowed
    reply = lowered(desk, requests_cpu="2", requests_memory="1Gi")
    assert reply.allowed
    assert reply.warnings == [
        "requests.cpu: 2500m is taken, above the limit 2; no pod is evicted",
        "requests.memory: 2Gi is taken, above the limit 1Gi; no pod is evicted",
    ]
    assert lowered(desk, requests_cpu="2500m").warnings == []
    assert lowered(desk, pods="0").warnings == []


def test_without_a_ledger_there_is_nothing_to_warn_of(open_desk: OpenDesk) -> None:
    desk = open_desk(a_quota("p1"), with_tracker=False)
    reply = lowered(desk, requests_cpu="0")
    assert (reply.allowed, reply.warnings) == (True, [])


def test_a_quota_is_judged_before_it_is_known(desk: Desk) -> None:
    old = a_quota("new")
    assert change(desk, old, a_quota("new", hard={"requests.cpu": "0"})).warnings == []


def test_nothing_is_written(desk: Desk) -> None:
    desk.settle()
    before = desk.cluster.resource_version
    quota = a_quota("q")
    for dry_run in (False, True):
        assert create(desk, quota, dry_run=dry_run).allowed
        assert change(desk, quota, quota, dry_run=dry_run).allowed
    assert desk.cluster.resource_version == before


def test_excluded_quotas_are_judged_too(desk: Desk) -> None:
    excluded = {"annotations": {"deferredquota.io/exclude": "true"}}
    bad = [an_expression("PriorityClass", "In", "bad value!")]
    assert create(desk, a_quota("q", expressions=bad, metadata=excluded)).code == 422


def test_namespaces_that_are_not_ours_are_not_touched(open_desk: OpenDesk) -> None:
    bad = a_quota("q", hard={"requests.cpu": "many"})
    assert create(open_desk(mode=""), bad).decision == "not-opted-in"
    desk = open_desk(settings={"exemptNamespaces": [NAMESPACE]})
    assert create(desk, bad).decision == "exempt"


WRONG: dict[str, tuple[Object, str, str]] = {
    "spec": ({"spec": []}, "spec", "must be an object, not a list"),
    "hard": ({"spec": {"hard": []}}, "spec.hard", "must be an object, not a list"),
    "scopes": ({"spec": {"scopes": {}}}, "spec.scopes", "must be a list, not an object"),
    "a scope": ({"spec": {"scopes": [7]}}, "spec.scopes[0]", "must be a string, not a number"),
    "selector": (
        {"spec": {"scopeSelector": 7}},
        "spec.scopeSelector",
        "must be an object, not a number",
    ),
    "expressions": (
        {"spec": {"scopeSelector": {"matchExpressions": {}}}},
        EXPRESSIONS,
        "must be a list, not an object",
    ),
    "an expression": (
        {"spec": {"scopeSelector": {"matchExpressions": ["PriorityClass"]}}},
        f"{EXPRESSIONS}[0]",
        "must be an object, not a string",
    ),
    "values": (
        {"spec": {"scopeSelector": {"matchExpressions": [{"values": "gold"}]}}},
        f"{EXPRESSIONS}[0].values",
        "must be a list, not a string",
    ),
}


@pytest.mark.parametrize("operation", ["create", "update"])
@pytest.mark.parametrize(("wrong", "field", "detail"), WRONG.values(), ids=WRONG.keys())
def test_a_field_of_the_wrong_type_is_refused_with_its_path(
    desk: Desk, wrong: Object, field: str, detail: str, operation: str
) -> None:
    quota = {**a_quota("q"), **wrong}
    reply = create(desk, quota) if operation == "create" else change(desk, a_quota("q"), quota)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert ("FieldValueInvalid", field, detail) in reply.causes


@pytest.mark.parametrize("part", ["metadata", "status"])
def test_a_wrong_type_beside_the_spec_is_refused_and_never_crashes(desk: Desk, part: str) -> None:
    desk.settle()
    old = desk.stored(RESOURCE_QUOTAS, "p1")
    review = a_review("UPDATE", "resourcequotas", {**old, part: 7}, old=old, name="p1")
    reply = desk.validate(review)
    assert (reply.code, reply.message) == (422, f"{part}: must be an object, not a number")


@pytest.mark.parametrize(
    ("operation", "absent"), [("CREATE", "object"), ("UPDATE", "object"), ("UPDATE", "oldObject")]
)
def test_a_review_without_one_of_its_objects_is_a_bad_request(
    desk: Desk, operation: str, absent: str
) -> None:
    quota = a_quota("q")
    old = quota if operation == "UPDATE" else None
    review = a_review(operation, "resourcequotas", quota, old=old)
    cast("Object", review["request"])[absent] = None
    reply = desk.validate(review)
    assert (reply.code, reply.message) == (
        400,
        f"request.{absent}: must be present for {operation} of resourcequotas",
    )


def test_a_request_that_is_out_of_time_is_undecided(desk: Desk) -> None:
    review = a_review("CREATE", "resourcequotas", a_quota("q"))
    assert desk.validate(review, seconds=0).code == 429
