"""How new tolerations, gates, node selectors and node affinity of a template are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.builders import Object
from tests.quota.jobs.job_updates import SPEC, a_stored_job, invalid, put, twice, updated
from webhook.jsonfields.fields import FieldError
from webhook.quota.jobs import job_update_errors
from webhook.quota.objects.names import label_value_error, qualified_name_errors

JOB = a_stored_job()
NODES = f"{SPEC}.affinity.nodeAffinity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERMS = f"{NODES}.{REQUIRED}.nodeSelectorTerms"
NO_KEY = qualified_name_errors("a b")[0]
NO_VALUE = str(label_value_error("a b"))
TOO_LONG = "must be no more than 63 bytes"
ANY_KEY = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'


def unsupported(field: str, *values: str) -> FieldError:
    listed = ", ".join(f'"{value}"' for value in values)
    return FieldError("FieldValueNotSupported", field, f"supported values: {listed}")


TOLERATION = f"{SPEC}.tolerations[0]"
TOLERATIONS: Mapping[str, tuple[Object, Sequence[FieldError]]] = {
    "everything": ({"operator": "Exists"}, []),
    "an effect of a key": ({"key": "a/b", "value": "x", "effect": "NoSchedule"}, []),
    "for a while": (
        {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
        [],
    ),
    "an operator that there is not": (
        {"key": "a", "operator": "In"},
        [unsupported(f"{TOLERATION}.operator", "Equal", "Exists")],
    ),
    "an operator behind a feature gate": (
        {"key": "a", "operator": "Lt", "value": "5"},
        [unsupported(f"{TOLERATION}.operator", "Equal", "Exists", "Lt", "Gt")],
    ),
    "no key": ({"operator": "Equal"}, [invalid(f"{TOLERATION}.operator", ANY_KEY)]),
    "an illegal key": (
        {"key": "a b", "operator": "Exists"},
        [invalid(f"{TOLERATION}.key", NO_KEY)],
    ),
    "an illegal value, of two faults": (
        {"key": "a", "value": "a " * 32},
        [invalid(f"{TOLERATION}.operator", f"{TOO_LONG};{NO_VALUE}")],
    ),
    "a value that is not compared": (
        {"key": "a", "operator": "Exists", "value": "x"},
        [invalid(f"{TOLERATION}.operator", "value must be empty when `operator` is 'Exists'")],
    ),
    "seconds and an effect that there is not": (
        {"operator": "Exists", "effect": "Evict", "tolerationSeconds": 5},
        [
            invalid(
                f"{TOLERATION}.effect", "effect must be 'NoExecute' when `tolerationSeconds` is set"
            ),
            unsupported(f"{TOLERATION}.effect", "NoSchedule", "PreferNoSchedule", "NoExecute"),
        ],
    ),
}


@pytest.mark.parametrize(("toleration", "errors"), TOLERATIONS.values(), ids=TOLERATIONS.keys())
def test_tolerations(toleration: Object, errors: Sequence[FieldError]) -> None:
    new = updated(JOB, put(f"{SPEC}.tolerations", [toleration]))

    assert job_update_errors(JOB, new) == twice(errors)


def test_a_job_whose_tolerations_compare_numbers_may_go_on_to() -> None:
    old, new = (
        updated(JOB, put(f"{SPEC}.tolerations", [{"key": "a", "operator": "Gt", "value": value}]))
        for value in ("5", "6")
    )

    assert job_update_errors(old, new) == []


def test_scheduling_gates() -> None:
    names = ["a", "example.com/b", "", "a", "a b"]
    new = updated(JOB, put(f"{SPEC}.schedulingGates", [{"name": name} for name in names]))
    field = f"{SPEC}.schedulingGates"

    assert job_update_errors(JOB, new) == twice(
        [
            *(invalid(f"{field}[2]", fault) for fault in qualified_name_errors("")),
            FieldError("FieldValueDuplicate", f"{field}[3]", ""),
            invalid(f"{field}[4]", NO_KEY),
        ]
    )


def test_a_node_selector() -> None:
    new = updated(JOB, put(f"{SPEC}.nodeSelector", {"a b": "a " * 32, "zone": "a"}))
    faults = (NO_KEY, TOO_LONG, NO_VALUE)

    assert job_update_errors(JOB, new) == twice(
        [invalid(f"{SPEC}.nodeSelector", fault) for fault in faults]
    )


def required(**term: object) -> Object:
    return {REQUIRED: {"nodeSelectorTerms": [term]}}


def expression(*values: str, key: str = "zone", operator: str = "In") -> list[Object]:
    return [{"key": key, "operator": operator, "values": list(values)}]


AFFINITIES: Mapping[str, tuple[Object, Sequence[FieldError]]] = {
    "no term": (
        {REQUIRED: {}},
        [FieldError("FieldValueRequired", TERMS, "must have at least one node selector term")],
    ),
    "weights that there are": ({PREFERRED: [{"weight": 1}, {"weight": 100}]}, []),
    "weights that there are not": (
        {PREFERRED: [{"weight": 0}, {"weight": 101}]},
        [
            invalid(f"{NODES}.{PREFERRED}[{index}].weight", "must be in the range 1-100")
            for index in (0, 1)
        ],
    ),
    "a label that no node can have": (
        required(matchExpressions=expression("x", "a b", key="a b")),
        [
            invalid(f"{TERMS}[0].matchExpressions[0].key", NO_KEY),
            invalid(f"{TERMS}[0].matchExpressions[0].values[1]", NO_VALUE),
        ],
    ),
    "a value that no node can have, where it is a wish": (
        {
            PREFERRED: [
                {"weight": 1, "preference": {"matchExpressions": expression("a b", key="a b")}}
            ]
        },
        [invalid(f"{NODES}.{PREFERRED}[0].preference.matchExpressions[0].key", NO_KEY)],
    ),
    "a field that is not the name": (
        required(matchFields=expression("A", key="metadata.uid")),
        [invalid(f"{TERMS}[0].matchFields[0].key", "not a valid field selector key")],
    ),
    "a name that no node can have": (
        required(matchFields=expression("n" * 254, key="metadata.name")),
        [invalid(f"{TERMS}[0].matchFields[0].values[0]", "must be no more than 253 characters")],
    ),
}


@pytest.mark.parametrize(("affinity", "errors"), AFFINITIES.values(), ids=AFFINITIES.keys())
def test_node_affinity(affinity: Object, errors: Sequence[FieldError]) -> None:
    new = updated(JOB, put(f"{SPEC}.affinity", {"nodeAffinity": affinity}))

    assert job_update_errors(JOB, new) == twice(errors)


def test_a_job_that_requires_what_no_node_can_have_may_go_on_to() -> None:
    old, new = (
        updated(
            JOB,
            put(
                f"{SPEC}.affinity",
                {"nodeAffinity": required(matchExpressions=expression(value))},
            ),
        )
        for value in ("a b", "b c")
    )

    assert job_update_errors(old, new) == []
