"""The mark of bound pods: an option, looked for only where somebody chose it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import a_pod
from tests.operations.healthy import (
    MANIFESTS,
    POLICIES,
    POLICY_BINDINGS,
    Change,
    edit,
    examined,
    healthy,
    ids,
    refusing,
    remove,
    serious,
    the,
)
from tests.operations.scenes import load
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import ForbiddenError
from webhook.kube.files.documents import read_documents
from webhook.kube.kinds import Kind
from webhook.operations.names import STAMP_POLICY


def marking() -> FakeCluster:
    """A cluster without a fault, in which Bindings are marked."""
    cluster = healthy()
    path = "components/stamp-policy/policy.yaml"
    for document in read_documents(path, (MANIFESTS / path).read_bytes()):
        load(cluster, document.value)  # type: ignore[arg-type]
    return cluster


def with_unmarked_pods(cluster: FakeCluster) -> FakeCluster:
    load(
        cluster,
        a_pod(name="static", uid="uid-static", node="node-1"),
        a_pod(name="done", uid="uid-done", node="node-1", status={"phase": "Succeeded"}),
        a_pod(name="waits", uid="uid-waits"),
    )
    return cluster


@pytest.mark.parametrize("cluster", [healthy(), marking()], ids=["unmarked", "marked"])
def test_either_is_right(cluster: FakeCluster) -> None:
    assert serious(examined(cluster)) == []
    assert "stamp.unbound" not in ids(examined(cluster))


def test_assigned_pods_without_the_mark_are_counted() -> None:
    found = the(examined(with_unmarked_pods(marking())), "pods.unguarded")
    assert found.message.startswith("1 of 2 assigned pods have no annotation")
    assert (found.severity, found.details) == ("info", ("static",))


def test_a_mark_is_missed_only_where_bindings_are_marked() -> None:
    cluster = with_unmarked_pods(marking())
    assert "pods.unguarded" not in ids(examined(with_unmarked_pods(healthy())))
    remove(cluster, POLICY_BINDINGS, STAMP_POLICY)
    assert "pods.unguarded" not in ids(examined(cluster))


@pytest.mark.parametrize(
    ("gone", "subject", "words"),
    [
        (POLICY_BINDINGS, POLICIES, "has no binding, so it does nothing"),
        (POLICIES, POLICY_BINDINGS, "binds a policy that is not there: deferred-quota-stamp"),
    ],
)
def test_half_of_it_is_found(gone: Kind, subject: Kind, words: str) -> None:
    cluster = marking()
    remove(cluster, gone, STAMP_POLICY)
    found = the(examined(cluster), "stamp.unbound")
    assert (found.severity, str(found.subject)) == ("warn", f"{subject.kind} {STAMP_POLICY}")
    assert words in found.message


def marking_less(raw: Any) -> None:
    raw["spec"]["mutations"][0]["jsonPatch"]["expression"] = "[]"


def bound_to_some(raw: Any) -> None:
    raw["spec"]["matchResources"]["objectSelector"] = {"matchLabels": {"a": "b"}}


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (POLICIES, marking_less, "is not that of this release, or was changed"),
        (POLICY_BINDINGS, bound_to_some, "spec.matchResources.objectSelector: may leave Bindings"),
    ],
)
def test_a_mark_that_was_edited_is_found(kind: Kind, change: Change, words: str) -> None:
    cluster = marking()
    edit(cluster, kind, STAMP_POLICY, change)
    (found,) = serious(examined(cluster))
    assert (found.id, str(found.subject)) == ("stamp.edited", f"{kind.kind} {STAMP_POLICY}")
    assert words in found.message


def test_pods_are_looked_at_although_policies_may_not_be_listed() -> None:
    api = refusing(with_unmarked_pods(marking()), ForbiddenError("no"), POLICIES)
    found = examined(api)
    assert {"mask", "stamp"} <= found.skipped.keys()
    assert "guarded" in found.checked
    assert "pods.unguarded" not in ids(found)
