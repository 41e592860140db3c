"""ClusterDeferredQuota objects: what may be stored, and what a change may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView
from typing import Final

import pytest

from tests.builders import an_expression
from tests.quota.cluster_quotas import GPU, SOUND, Object, a_cluster_quota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.objects.quota_validation import changed_fields
from webhook.quota.shared.cluster_quota_validation import (
    SELECTING_FIELDS,
    cluster_quota_errors,
    cluster_quota_update_errors,
    cluster_quota_warnings,
)

KEYS: Final = DEFERRED_KEYS | {GPU}
NOT_DEFERRED: Final = "is not deferred: limit it by a ResourceQuota in each namespace"
SELECTOR: Final = "spec.namespaceSelector"


def faults(raw: Object) -> list[tuple[str, str]]:
    return [(each.field, each.detail) for each in cluster_quota_errors(raw, KEYS)]


@pytest.mark.parametrize("raw", SOUND.values(), ids=SOUND)
def test_a_sound_one_has_no_errors(raw: Object) -> None:
    assert faults(raw) == []


def expression(**fields: object) -> Object:
    return a_cluster_quota(selector={"matchExpressions": [fields]})


class Walked(dict[str, str]):
    """A map that counts how often it is walked through."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        return KeysView(self)


def test_no_more_errors_are_made_than_answers_show() -> None:
    raw = a_cluster_quota()
    raw["spec"] = {**raw["spec"], "hard": {f"odd-{number}": "1" for number in range(10_000)}}
    assert len(faults(raw)) in range(100, 200)


def test_limits_are_not_walked_through_for_each_part() -> None:
    walks = []
    for parts in (1, 50):
        hard = Walked({"requests.cpu": "1"})
        raw = a_cluster_quota()
        part = {"namespaces": ["team-a"], "amounts": {"requests.cpu": "1"}}
        raw["spec"] = {**raw["spec"], "hard": hard, "kept": [part] * parts}
        assert faults(raw) == []
        walks.append(hard.walks)
    assert walks[0] == walks[1]


UNSOUND: Final[dict[str, tuple[Object, list[tuple[str, str]]]]] = {
    "no spec": (
        {},
        [
            ("spec.hard", "must limit a deferred resource"),
            (SELECTOR, "must say which namespaces share the quota; {} selects all"),
        ],
    ),
    "a spec that is none": ({"spec": []}, [("spec", "must be an object, not a list")]),
    "no limit": (a_cluster_quota(hard={}), [("spec.hard", "must limit a deferred resource")]),
    "limits that are none": (
        a_cluster_quota(hard=[]),  # type: ignore[arg-type]
        [("spec.hard", "must be an object, not a list")],
    ),
    "resources that are not deferred": (
        a_cluster_quota(hard={"pods": "1", "requests.cpu": "1", "count/jobs.batch": "many"}),
        [("spec.hard[count/jobs.batch]", NOT_DEFERRED), ("spec.hard[pods]", NOT_DEFERRED)],
    ),
    "an extended resource without its prefix": (
        a_cluster_quota(hard={"example.com/gpu": "1"}),
        [("spec.hard[example.com/gpu]", NOT_DEFERRED)],
    ),
    "GPU memory of GPUs that have none": (
        a_cluster_quota(hard={"nos.nebuly.com/gpu-memory.0gb": "1"}),
        [("spec.hard[nos.nebuly.com/gpu-memory.0gb]", NOT_DEFERRED)],
    ),
    "less than nothing": (
        a_cluster_quota(hard={"cpu": "-1"}),
        [("spec.hard[cpu]", "must be greater than or equal to 0")],
    ),
    "an amount that would be stored as another one": (
        a_cluster_quota(hard={"cpu": "1000E"}),
        [("spec.hard[cpu]", "cannot be stored exactly: the API server would keep 1")],
    ),
    "no selector": (
        {"spec": {"hard": {"cpu": "1"}}},
        [(SELECTOR, "must say which namespaces share the quota; {} selects all")],
    ),
    "a selector that is none": (
        a_cluster_quota(selector="team=blue"),
        [(SELECTOR, "must be an object, not a string")],
    ),
    "a label without values": (
        expression(key="team", operator="In"),
        [
            (
                f"{SELECTOR}.matchExpressions[0].values",
                "must be specified when `operator` is 'In' or 'NotIn'",
            )
        ],
    ),
    "values where none belong": (
        expression(key="team", operator="Exists", values=["blue"]),
        [
            (
                f"{SELECTOR}.matchExpressions[0].values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
        ],
    ),
    "an operator that is none": (
        expression(key="team", operator="Gt", values=["1"]),
        [(f"{SELECTOR}.matchExpressions[0].operator", "not a valid selector operator")],
    ),
    "values that are none": (
        expression(key="team", operator="In", values="blue"),
        [(f"{SELECTOR}.matchExpressions[0].values", "must be a list, not a string")],
    ),
    "scopes that rule each other out": (
        a_cluster_quota(scopes=["Terminating", "NotTerminating"]),
        [("spec.scopes", "conflicting scopes")],
    ),
    "a scope that does not go with its limits": (
        a_cluster_quota(scopes=["BestEffort"]),
        [("spec.scopes", "unsupported scope applied to resource")],
    ),
    "a class that no label can be": (
        a_cluster_quota(
            scopeSelector={"matchExpressions": [an_expression("PriorityClass", "In", "no class")]}
        ),
        [
            (
                "spec.scopeSelector.matchExpressions[0].values[0]",
                "must be a valid label value",
            )
        ],
    ),
}


@pytest.mark.parametrize(("raw", "wanted"), UNSOUND.values(), ids=UNSOUND)
def test_an_unsound_one_has_every_error_at_its_field(
    raw: Object, wanted: list[tuple[str, str]]
) -> None:
    assert faults(raw) == wanted


@pytest.mark.parametrize(
    ("selector", "field"),
    [
        ({"matchLabels": {"a b": "c"}}, f"{SELECTOR}.matchLabels[a b]"),
        ({"matchLabels": {"a": "b c"}}, f"{SELECTOR}.matchLabels[a]"),
        (
            {"matchExpressions": [{"key": "", "operator": "Exists"}]},
            f"{SELECTOR}.matchExpressions[0].key",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c d"]}]},
            f"{SELECTOR}.matchExpressions[0].values[1]",
        ),
    ],
)
def test_a_selector_names_labels_that_there_can_be(selector: Object, field: str) -> None:
    assert {found for found, _ in faults(a_cluster_quota(selector=selector))} == {field}


CHANGES: Final[dict[str, tuple[Object, tuple[str, ...]]]] = {
    "nothing": (a_cluster_quota(), ()),
    "the same in other words": (a_cluster_quota(hard={"requests.cpu": "20000m"}), ()),
    "a limit": (a_cluster_quota(hard={"requests.cpu": "21"}), ("hard",)),
    "the namespaces": (a_cluster_quota(selector={}), ("namespaceSelector",)),
    "the pods": (
        a_cluster_quota(scopeSelector={"matchExpressions": [an_expression("PriorityClass")]}),
        ("scopeSelector",),
    ),
}


@pytest.mark.parametrize(("new", "wanted"), CHANGES.values(), ids=CHANGES)
def test_what_changes_is_known_by_its_meaning(new: Object, wanted: tuple[str, ...]) -> None:
    assert changed_fields(new, a_cluster_quota()) == wanted


def changed(new: Object, frozen: Callable[[str], bool] = lambda _: False) -> list[str]:
    found = cluster_quota_update_errors(new, a_cluster_quota(), KEYS, frozen=frozen)
    return [each.field for each in found]


def test_scopes_stay_and_all_else_may_change() -> None:
    assert changed(a_cluster_quota(scopes=["Terminating"])) == ["spec.scopes"]
    assert changed(a_cluster_quota(hard={"limits.cpu": "1"}, selector={})) == []


def test_a_changed_one_has_to_be_sound() -> None:
    assert changed(a_cluster_quota(hard={"pods": "1"})) == ["spec.hard[pods]"]


def test_what_is_frozen_has_to_stay() -> None:
    def selects(name: str) -> bool:
        return name in SELECTING_FIELDS

    new = a_cluster_quota(hard={"limits.cpu": "1"}, selector={})
    assert changed(new, selects) == ["spec.namespaceSelector"]
    assert changed(new, lambda _: True) == ["spec.hard", "spec.namespaceSelector"]


def test_requests_above_limits_are_worth_a_word() -> None:
    raw = a_cluster_quota(hard={"requests.cpu": "2", "limits.cpu": "1", "pods": "1"})
    assert cluster_quota_warnings(raw, KEYS) == [
        "ClusterDeferredQuota requests.cpu (2) should be less than limits.cpu (1)"
    ]
