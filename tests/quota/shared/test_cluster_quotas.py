"""ClusterDeferredQuota objects, as read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.resources import to_text
from webhook.quota.shared.cluster_quotas import (
    UnreadableClusterQuota,
    cluster_quota,
    cluster_quota_or_fault,
)

Object = dict[str, object]


def an_object(**spec: object) -> Object:
    return {
        "metadata": {
            "name": "both",
            "uid": "u-1",
            "annotations": {"deferredquota.io/exclude": "true"},
        },
        "spec": {"namespaceSelector": {}, "hard": {"requests.cpu": "2"}, **spec},
        "status": {"hard": 7},
    }


def test_in_ledgers_it_is_a_quota_of_another_name() -> None:
    found = cluster_quota(an_object(scopes=["NotTerminating"]))
    assert (found.name, found.uid) == ("both", "u-1")
    assert (found.quota.name, found.quota.uid, found.quota.namespace) == ("cdq/both", "u-1", "")
    assert to_text(found.quota.hard) == {"requests.cpu": "2"}
    assert found.quota.scopes == ("NotTerminating",)
    assert found.quota.annotations == {}


SELECTED = {
    "an empty selector selects all": ({}, {}, True),
    "a label that is there": ({"matchLabels": {"team": "x"}}, {"team": "x"}, True),
    "a label that is not": ({"matchLabels": {"team": "x"}}, {"team": "y"}, False),
    "an expression": (
        {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["x"]}]},
        {},
        True,
    ),
}


@pytest.mark.parametrize(("selector", "labels", "expected"), SELECTED.values(), ids=SELECTED)
def test_it_selects_namespaces_by_their_labels(
    selector: Object, labels: Mapping[str, str], *, expected: bool
) -> None:
    assert cluster_quota(an_object(namespaceSelector=selector)).selects(labels) is expected


CHANGES: Mapping[str, tuple[Object, bool]] = {
    "the same in other words": ({"hard": {"requests.cpu": "2000m"}}, True),
    "another ceiling": ({"hard": {"requests.cpu": "3"}}, False),
    "another selector": ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, False),
    "another scope": ({"scopes": ["NotTerminating"]}, False),
}


@pytest.mark.parametrize(("spec", "expected"), CHANGES.values(), ids=CHANGES)
def test_its_hash_is_that_of_its_meaning(spec: Object, *, expected: bool) -> None:
    assert cluster_quota(an_object()).is_same(cluster_quota(an_object(**spec))) is expected


UNREADABLE: Mapping[str, tuple[Object, str, bool]] = {
    "no selector": (
        {"namespaceSelector": None},
        "spec.namespaceSelector: must be given; {} selects every namespace",
        False,
    ),
    "a selector of the wrong type": (
        {"namespaceSelector": "x"},
        "spec.namespaceSelector: must be an object, not a string",
        False,
    ),
    "an operator that nobody knows": (
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
        "spec.namespaceSelector.matchExpressions[0]: is no valid label selector requirement",
        False,
    ),
    "a ceiling that is no amount": (
        {"hard": 5, "namespaceSelector": {"matchLabels": {"team": "x"}}},
        "spec.hard: must be an object, not a number",
        True,
    ),
}


@pytest.mark.parametrize(("spec", "fault", "knows_whom"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_says_where_and_concerns_every_namespace_it_may(
    spec: Object, fault: str, *, knows_whom: bool
) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        cluster_quota(an_object(**spec))
    assert str(caught.value) == fault
    found = cluster_quota_or_fault(an_object(**spec))
    assert isinstance(found, UnreadableClusterQuota)
    assert (found.name, found.uid, found.fault) == ("both", "u-1", fault)
    assert found.selects({"team": "x"})
    assert found.selects({}) is not knows_whom
