"""ResourceQuota objects: what would break every pod creation is refused while it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import (
    NAMESPACE,
    AdmissionHarness,
    Reply,
    a_review,
    eventually,
)
from tests.builders import a_quota, an_expression
from webhook.kube.api import RESOURCE_QUOTAS

Object = dict[str, object]


def create(harness: AdmissionHarness, quota: Object, *, dry_run: bool = False) -> Reply:
    return harness.validate(a_review("CREATE", "resourcequotas", quota, dry_run=dry_run))


def change(harness: AdmissionHarness, old: Object, new: Object, *, dry_run: bool = False) -> Reply:
    return harness.validate(a_review("UPDATE", "resourcequotas", new, old=old, dry_run=dry_run))


def test_a_sound_quota_is_admitted(harness: AdmissionHarness) -> None:
    sound = a_quota("q", hard={"requests.cpu": "1", "pods": "5"}, scopes=["NotTerminating"])
    for reply in (create(harness, sound), change(harness, sound, sound)):
        assert (reply.allowed, reply.audit, reply.warnings) == (True, {"decision": "valid"}, [])


def test_a_quota_that_stops_its_namespace_is_warned_of(open_harness: OpenHarness) -> None:
    wide = a_quota("wide", hard={f"requests.example.com/g{number}": "1" for number in range(257)})
    scoped = a_quota(
        "scoped",
        scopes=["NotTerminating"] * 56,
        expressions=[an_expression("NotBestEffort", "Exists")] * 201,
    )
    stops = "nothing is bound in this namespace: "
    many = open_harness(*[a_quota(f"q{number:03}", uid=f"u{number}") for number in range(128)])
    for quota, warning in (
        (wide, "spec.hard: has more than 256 limits of pods"),
        (scoped, "spec.scopeSelector: has more than 256 expressions and scopes"),
        (a_quota("one-more"), "the namespace has more than 128 quotas"),
    ):
        reply = create(many, quota)
        assert (reply.allowed, reply.warnings) == (True, [stops + warning])


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
    harness: AdmissionHarness, quota: Object, causes: list[tuple[str, str, str]], operation: str
) -> None:
    spec = cast("Object", quota["spec"])
    old = {**quota, "spec": {**spec, "hard": {"requests.memory": "1"}}}
    reply = create(harness, quota) if operation == "create" else change(harness, old, quota)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.causes == causes
    assert reply.message == "; ".join(f"{field}: {detail}" for _, field, detail in causes)
    assert (reply.details["name"], reply.details["kind"]) == ("q", "ResourceQuota")
    assert "group" not in reply.details


def test_scopes_must_stay_and_the_rest_may_change(harness: AdmissionHarness) -> None:
    old = a_quota("q", scopes=["Terminating"])
    reply = change(harness, old, a_quota("q"))
    assert reply.message == "spec.scopes: field is immutable"
    selector = [an_expression("PriorityClass", "Exists")]
    new = a_quota("q", scopes=["Terminating"], hard={"limits.cpu": "1"}, expressions=selector)
    assert change(harness, old, new).allowed


def lowered(harness: AdmissionHarness, **hard: str) -> Reply:
    old = harness.stored(RESOURCE_QUOTAS, "p1")
    keys = {name.replace("_", "."): amount for name, amount in hard.items()}
    return change(harness, old, {**old, "spec": {"hard": keys}})


def test_a_limit_below_what_is_taken_is_legal_and_warned_of(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "4", "requests.memory": "4Gi"}))
    harness.pod(node="node-1", requests={"cpu": "1500m", "memory": "1Gi"})
    harness.wait_until_settled()
    harness.pod(name="web-2", uid="uid-2", requests={"cpu": "1", "memory": "1Gi"})
    harness.catch_up()
    assert harness.bind("web-2", uid="uid-2").allowed
    reply = lowered(harness, requests_cpu="2", requests_memory="1Gi")
    assert reply.allowed
    assert reply.warnings == [
        "requests.cpu: 2500m is taken, above the limit 2; no pod is evicted",
        "requests.memory: 2Gi is taken, above the limit 1Gi; no pod is evicted",
    ]
    assert lowered(harness, requests_cpu="2500m").warnings == []
    assert lowered(harness, pods="0").warnings == []


@pytest.mark.parametrize("part", ["hard", "used"])
def test_no_amount_in_the_status_keeps_a_quota_from_being_edited(
    open_harness: OpenHarness, part: str
) -> None:
    """The API server counts the claims of a tenant, as large as they are."""
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "4", "requests.storage": "1Ti"}))
    harness.pod(node="node-1", requests={"cpu": "2"})
    harness.wait_until_settled()
    old = harness.stored(RESOURCE_QUOTAS, "p1")
    old = {**old, "status": {part: {"requests.storage": "10e399"}}}
    hard = {"requests.cpu": "1", "requests.storage": "1Ti"}
    reply = change(harness, old, {**old, "spec": {"hard": hard}})
    assert (reply.allowed, reply.warnings) == (
        True,
        ["requests.cpu: 2 is taken, above the limit 1; no pod is evicted"],
    )


def test_without_a_ledger_there_is_nothing_to_warn_of(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1"), with_controller=False)
    reply = lowered(harness, requests_cpu="0")
    assert (reply.allowed, reply.warnings) == (True, [])


def test_a_quota_is_judged_before_it_is_known(harness: AdmissionHarness) -> None:
    old = a_quota("new")
    assert change(harness, old, a_quota("new", hard={"requests.cpu": "0"})).warnings == []


def test_nothing_is_written(harness: AdmissionHarness) -> None:
    harness.wait_until_settled()
    before = harness.version_at_rest()
    quota = a_quota("q")
    for dry_run in (False, True):
        assert create(harness, quota, dry_run=dry_run).allowed
        assert change(harness, quota, quota, dry_run=dry_run).allowed
    assert harness.cluster.resource_version == before


def test_excluded_quotas_are_judged_too(harness: AdmissionHarness) -> None:
    excluded = {"annotations": {"deferredquota.io/exclude": "true"}}
    bad = [an_expression("PriorityClass", "In", "bad value!")]
    assert create(harness, a_quota("q", expressions=bad, metadata=excluded)).code == 422


def test_namespaces_that_are_not_ours_are_not_touched(open_harness: OpenHarness) -> None:
    bad = a_quota("q", hard={"requests.cpu": "many"})
    assert create(open_harness(mode=""), bad).decision == "not-opted-in"
    harness = open_harness(settings={"exemptNamespaces": [NAMESPACE]})
    assert create(harness, bad).decision == "exempt"


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
    harness: AdmissionHarness, wrong: Object, field: str, detail: str, operation: str
) -> None:
    quota = {**a_quota("q"), **wrong}
    reply = (
        create(harness, quota) if operation == "create" else change(harness, a_quota("q"), quota)
    )
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert ("FieldValueInvalid", field, detail) in reply.causes


@pytest.mark.parametrize("part", ["metadata", "status"])
def test_a_wrong_type_beside_the_spec_is_refused_and_never_crashes(
    harness: AdmissionHarness, part: str
) -> None:
    harness.wait_until_settled()
    old = harness.stored(RESOURCE_QUOTAS, "p1")
    new = {**old, part: 7, "spec": {"hard": {"requests.cpu": "3"}}}
    reply = harness.validate(a_review("UPDATE", "resourcequotas", new, old=old, name="p1"))
    assert (reply.code, reply.message) == (422, f"{part}: must be an object, not a number")


@pytest.mark.parametrize(
    ("operation", "absent"), [("CREATE", "object"), ("UPDATE", "object"), ("UPDATE", "oldObject")]
)
def test_a_review_without_one_of_its_objects_is_a_bad_request(
    harness: AdmissionHarness, operation: str, absent: str
) -> None:
    quota = a_quota("q")
    old = quota if operation == "UPDATE" else None
    review = a_review(operation, "resourcequotas", quota, old=old)
    cast("Object", review["request"])[absent] = None
    reply = harness.validate(review)
    assert (reply.code, reply.message) == (
        400,
        f"request.{absent}: must be present for {operation} of resourcequotas",
    )


def test_a_request_that_is_out_of_time_is_undecided(harness: AdmissionHarness) -> None:
    review = a_review("CREATE", "resourcequotas", a_quota("q"))
    assert harness.validate(review, seconds=0).code == 429


# -- what priority classes ask of quota objects --------------------------------------------

ODD_VALUES = {
    "In": an_expression("PriorityClass", "In", "gold", "-gold"),
    "NotIn": an_expression("PriorityClass", "NotIn", "gold", "g" * 64),
    "of another scope": an_expression("VolumeAttributesClass", "In", "fast", "*"),
}


@pytest.mark.parametrize("expression", ODD_VALUES.values(), ids=ODD_VALUES.keys())
def test_a_class_name_that_no_label_can_have_is_refused_at_every_write(
    harness: AdmissionHarness, expression: Object
) -> None:
    hard = {"requests.nvidia.com/gpu": "1"}
    first = an_expression("PriorityClass", "Exists")
    quota = a_quota("q", hard=hard, expressions=[first, expression])
    for reply in (create(harness, quota), change(harness, a_quota("q", hard=hard), quota)):
        assert (reply.code, reply.reason) == (422, "Invalid")
        assert reply.causes == [
            ("FieldValueInvalid", f"{EXPRESSIONS}[1].values[1]", "must be a valid label value")
        ]


def test_unknown_classes_and_quotas_that_overlap_are_admitted(
    harness: AdmissionHarness,
) -> None:
    for name in ("gold", "no-such-class", ""):
        quota = a_quota(f"q-{name}", expressions=[an_expression("PriorityClass", "In", name)])
        assert create(harness, quota).decision == "valid"
    harness.create(a_quota("any", uid="any", expressions=[an_expression("PriorityClass")]))
    harness.catch_up()
    assert create(harness, a_quota("more", expressions=[an_expression("PriorityClass")])).allowed


@pytest.mark.parametrize("setting", ["allow", "scopes", "reject"])
def test_quotas_may_be_deleted_whatever_the_setting(
    open_harness: OpenHarness, setting: str
) -> None:
    quota = a_quota("gold", expressions=[an_expression("PriorityClass", "In", "gold")])
    harness = open_harness(quota, settings={"quotaUpdate": setting})
    harness.pod(node="node-1", requests={"cpu": "1"}, priorityClassName="gold")
    harness.wait_until_settled()
    assert harness.validate(a_review("DELETE", "resourcequotas", None, old=quota)).allowed


# -- quotaUpdate ---------------------------------------------------------------------------

ADVICE = "field is immutable: create a quota with another name, then delete this one"
STORED = a_quota(
    "q",
    hard={"requests.cpu": "2", "pods": "5"},
    scopes=["NotTerminating", "PriorityClass"],
    expressions=[an_expression("PriorityClass", "In", "gold")],
)


def with_spec(**fields: object) -> Object:
    return {**STORED, "spec": {**cast("Object", STORED["spec"]), **fields}}


def selecting(*made: Object) -> Object:
    return {"matchExpressions": list(made)}


# the changed quota; the refused fields by setting
CHANGES: dict[str, tuple[Object, dict[str, list[tuple[str, str]]]]] = {
    "an amount": (
        with_spec(hard={"requests.cpu": "3", "pods": "5"}),
        {"allow": [], "scopes": [], "reject": [("spec.hard", ADVICE)]},
    ),
    "a key more": (
        with_spec(hard={"requests.cpu": "2", "pods": "5", "limits.cpu": "1"}),
        {"allow": [], "scopes": [], "reject": [("spec.hard", ADVICE)]},
    ),
    "no amounts": (
        with_spec(hard=None),
        {"allow": [], "scopes": [], "reject": [("spec.hard", ADVICE)]},
    ),
    "a class more": (
        with_spec(scopeSelector=selecting(an_expression("PriorityClass", "In", "gold", "silver"))),
        {
            "allow": [],
            "scopes": [("spec.scopeSelector", ADVICE)],
            "reject": [("spec.scopeSelector", ADVICE)],
        },
    ),
    "no selector": (
        with_spec(scopeSelector=None),
        {
            "allow": [],
            "scopes": [("spec.scopeSelector", ADVICE)],
            "reject": [("spec.scopeSelector", ADVICE)],
        },
    ),
    "a scope less, which the API server never takes": (
        with_spec(scopes=["NotTerminating"]),
        {
            "allow": [("spec.scopes", "field is immutable")],
            "scopes": [("spec.scopes", ADVICE)],
            "reject": [("spec.scopes", ADVICE)],
        },
    ),
    "all at once": (
        {**STORED, "spec": {"hard": {"pods": "1"}}},
        {
            "allow": [("spec.scopes", "field is immutable")],
            "scopes": [("spec.scopeSelector", ADVICE), ("spec.scopes", ADVICE)],
            "reject": [
                ("spec.hard", ADVICE),
                ("spec.scopeSelector", ADVICE),
                ("spec.scopes", ADVICE),
            ],
        },
    ),
    "a field of a later version": (
        with_spec(borrowing="Never"),
        {"allow": [], "scopes": [], "reject": [("spec.borrowing", ADVICE)]},
    ),
    "no spec": (
        {**STORED, "spec": None},
        {
            "allow": [("spec.scopes", "field is immutable")],
            "scopes": [("spec.scopeSelector", ADVICE), ("spec.scopes", ADVICE)],
            "reject": [
                ("spec.hard", ADVICE),
                ("spec.scopeSelector", ADVICE),
                ("spec.scopes", ADVICE),
            ],
        },
    ),
}
SETTINGS = pytest.mark.parametrize("setting", ["allow", "scopes", "reject"])


@SETTINGS
@pytest.mark.parametrize(("new", "refused"), CHANGES.values(), ids=CHANGES.keys())
def test_the_setting_says_what_may_change(
    open_harness: OpenHarness, new: Object, refused: dict[str, list[tuple[str, str]]], setting: str
) -> None:
    harness = open_harness(settings={"quotaUpdate": setting})
    reply = change(harness, STORED, new)
    causes = [("FieldValueInvalid", field, detail) for field, detail in refused[setting]]
    assert (reply.allowed, reply.causes) == (not causes, causes)
    if causes:
        assert (reply.code, reply.reason) == (422, "Invalid")


UNCHANGED: dict[str, Object] = {
    "nothing": STORED,
    "metadata": {**STORED, "metadata": {"name": "q", "finalizers": [], "labels": {"a": "b"}}},
    "the status": {**STORED, "status": {"hard": {"pods": "5"}, "used": {"pods": "1"}}},
    "the text of an amount": with_spec(hard={"requests.cpu": "2000m", "pods": 5}),
    "the order of scopes": with_spec(scopes=["PriorityClass", "NotTerminating", "PriorityClass"]),
}


@SETTINGS
@pytest.mark.parametrize(
    "user",
    [
        "alice",
        *(
            "system:serviceaccount:kube-system:resourcequota-controller",
            "system:kube-controller-manager",
            "system:apiserver",
            "system:serviceaccount:deferred-quota-system:deferred-quota-controller",
        ),
    ],
)
@pytest.mark.parametrize("new", UNCHANGED.values(), ids=UNCHANGED.keys())
def test_an_update_that_leaves_the_spec_as_it_means_is_not_hindered(
    open_harness: OpenHarness, new: Object, setting: str, user: str
) -> None:
    harness = open_harness(settings={"quotaUpdate": setting})
    reply = harness.validate(a_review("UPDATE", "resourcequotas", new, old=STORED, user=user))
    assert (reply.allowed, reply.decision) == (True, "valid")


@SETTINGS
@pytest.mark.parametrize(("faulty", "_causes"), UNSOUND.values(), ids=UNSOUND.keys())
def test_metadata_of_a_quota_that_is_unsound_already_can_be_written(
    open_harness: OpenHarness, faulty: Object, _causes: object, setting: str
) -> None:
    harness = open_harness(settings={"quotaUpdate": setting})
    new = {**faulty, "metadata": {"name": "q", "finalizers": None}}
    assert change(harness, faulty, new).allowed


@SETTINGS
def test_writes_of_the_status_have_a_handler_of_their_own(
    open_harness: OpenHarness, setting: str
) -> None:
    harness = open_harness(settings={"quotaUpdate": setting})
    written = a_quota("q", hard={"pods": "1"}, used={"pods": "0"})
    review = a_review("UPDATE", "resourcequotas", written, old=STORED, subresource="status")
    assert harness.validate(review).allowed
    assert harness.mutate(review).allowed


def test_a_new_quota_may_say_what_it_likes_whatever_the_setting(open_harness: OpenHarness) -> None:
    harness = open_harness(settings={"quotaUpdate": "reject"})
    assert create(harness, STORED).decision == "valid"


def test_a_quota_that_is_unsound_and_changed_is_refused_for_both(open_harness: OpenHarness) -> None:
    harness = open_harness(settings={"quotaUpdate": "scopes"})
    bad = an_expression("PriorityClass", "In", "bad value!")
    reply = change(harness, STORED, with_spec(scopeSelector=selecting(bad)))
    assert [field for _, field, _ in reply.causes] == [
        f"{EXPRESSIONS}[0].values[0]",
        "spec.scopeSelector",
    ]
    assert change(harness, STORED, with_spec(hard=[])).message == (
        "spec.hard: must be an object, not a list"
    )


def errors_of(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [getattr(record, "error", None) for record in caplog.records]


def test_a_changed_setting_reaches_the_handler_and_a_wrong_one_does_not(
    open_harness: OpenHarness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness = open_harness(settings={"quotaUpdate": "allow"})
    larger = with_spec(hard={"requests.cpu": "3", "pods": "5"})
    assert change(harness, STORED, larger).allowed
    file = tmp_path / "configuration.yaml"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, "quotaUpdate": "reject"}))
    eventually(lambda: change(harness, STORED, larger).code == 422, "amounts may not change")
    odd = [{"scopeName": "PriorityClass", "operator": "in", "values": ["gold"]}]
    wrong = {**settings, "quotaUpdate": "allow", "requireQuotaForPriority": odd}
    file.write_text(json.dumps(wrong))
    error = f"{file}: requireQuotaForPriority[0].operator: not a valid selector operator"
    eventually(lambda: error in errors_of(caplog), "the file was read")
    assert change(harness, STORED, larger).code == 422
