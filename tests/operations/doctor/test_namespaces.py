from __future__ import annotations

from typing import Any

import pytest

from tests.builders import Object, a_pod, a_quota, an_expression, out_of_bounds
from tests.operations.healthy import count, examined, healthy, ids, serious, the
from tests.operations.scenes import (
    NAMESPACE,
    a_gated_pod,
    a_masked_quota,
    a_namespace,
    load,
)
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import NAMESPACES, QUOTA_LEDGERS, RESOURCE_QUOTAS
from webhook.state.well_known import DEFAULT_NAMESPACE

MODES = {
    "a typo": ("team-b", "defered", "namespace.mode", "warn"),
    "shadow": ("team-b", "shadow", "namespace.mode", "info"),
    "exempt": ("kube-public", "deferred", "namespace.exempt", "error"),
    "exempt, and to be watched": ("kube-public", "shadow", "namespace.exempt", "warn"),
    "shadow, and not recorded": ("team-b", "shadow", "shadow.unrecorded", "warn"),
}


@pytest.mark.parametrize(("name", "mode", "finding", "severity"), MODES.values(), ids=MODES)
def test_labels_are_judged(name: str, mode: str, finding: str, severity: str) -> None:
    cluster = healthy()
    load(cluster, a_namespace(name, mode))
    found = the(examined(cluster), finding)
    assert (found.severity, str(found.subject)) == (severity, f"Namespace {name}")


def test_a_namespace_in_shadow_mode_is_fine_when_it_is_recorded() -> None:
    cluster = healthy()
    load(cluster, a_namespace("team-b", "shadow"))
    FakeClient(cluster).create(
        QUOTA_LEDGERS, {"metadata": {"name": "ledger", "namespace": "team-b"}}
    )
    status = {"status": {"shadow": {"since": "2026-01-01T00:00:00Z"}}}
    FakeClient(cluster).patch(
        QUOTA_LEDGERS, "ledger", status, namespace="team-b", subresource="status"
    )
    found = examined(cluster)
    assert serious(found) == []
    assert the(found, "namespace.mode").remedy == "See: deferred-quota shadow report team-b"


GATINGS = {
    "never": ("never", "always", False),
    "always": ("always", "never", False),
    "a typo": ("nope", "always", True),
    "a typo under the other default": ("gates", "never", True),
}


@pytest.mark.parametrize(("value", "default", "is_odd"), GATINGS.values(), ids=GATINGS)
def test_a_gating_that_means_nothing_is_reported(value: str, default: str, is_odd: bool) -> None:
    cluster = healthy()
    labels = {"metadata": {"labels": {"deferredquota.io/gating": value}}}
    FakeClient(cluster).patch(NAMESPACES, NAMESPACE, labels)
    found = examined(cluster, gating=default)
    assert ("namespace.gating" in ids(found)) is is_odd
    if is_odd:
        assert the(found, "namespace.gating").message == (
            f"deferredquota.io/gating is {value!r}, which means nothing: gating is {default}"
        )


STRANGERS: dict[str, tuple[str, str, str]] = {
    "a slip": ("labels", "mod", 'label {}: means nothing, did you mean "deferredquota.io/mode"?'),
    "another": (
        "labels",
        "Gatings",
        'label {}: means nothing, did you mean "deferredquota.io/gating"?',
    ),
    "a name that is like none": ("labels", "owner", "label {}: means nothing"),
    "an annotation instead of a label": (
        "annotations",
        "mode",
        "annotation {}: means nothing: it has to be a label",
    ),
    "a slip in an annotation": (
        "annotations",
        "modes",
        'annotation {}: means nothing, did you mean the label "deferredquota.io/mode"?',
    ),
    "what is for quotas": (
        "annotations",
        "exclude",
        "annotation {}: means nothing on a namespace: it is an annotation of a ResourceQuota",
    ),
}


@pytest.mark.parametrize(("where", "name", "words"), STRANGERS.values(), ids=STRANGERS)
def test_what_looks_like_ours_and_means_nothing_is_reported(
    where: str, name: str, words: str
) -> None:
    cluster = healthy()
    key = f"deferredquota.io/{name}"
    load(cluster, a_namespace("team-b", mode=""))
    FakeClient(cluster).patch(NAMESPACES, "team-b", {"metadata": {where: {key: "deferred"}}})
    (found,) = serious(examined(cluster))
    assert (found.id, found.severity, found.message) == (
        "namespace.unknown",
        "warn",
        words.format(key),
    )
    assert str(found.subject) == "Namespace team-b"
    assert serious(examined(cluster, namespaces=(NAMESPACE,))) == []


def test_what_means_nothing_is_one_finding_however_much_there_is() -> None:
    cluster = healthy()
    labels = {f"deferredquota.io/a{index:03}": "" for index in range(200)}
    annotations = {f"deferredquota.io/{name}": "deferred" for name in ("mode", "owner")}
    load(cluster, a_namespace("team-b", mode="", **labels))
    FakeClient(cluster).patch(NAMESPACES, "team-b", {"metadata": {"annotations": annotations}})
    (found,) = serious(examined(cluster))
    assert found.message == (
        "annotation deferredquota.io/mode: means nothing: it has to be a label;"
        " label deferredquota.io/a000: means nothing;"
        " label deferredquota.io/a001: means nothing; and 199 more"
    )
    assert found.remedy == "Correct or remove each."


def test_the_product_does_not_opt_itself_in() -> None:
    cluster = healthy()
    patch = {"metadata": {"labels": {"deferredquota.io/mode": "deferred"}}}
    FakeClient(cluster).patch(NAMESPACES, DEFAULT_NAMESPACE, patch)
    assert ids(serious(examined(cluster))) == ["namespace.own"]


def test_a_namespace_that_was_asked_for_has_to_be_there() -> None:
    found = examined(healthy(), namespaces=(NAMESPACE, "nowhere"))
    assert str(the(found, "namespace.missing").subject) == "Namespace nowhere"


def test_only_the_namespaces_that_were_asked_for_are_looked_at() -> None:
    cluster = healthy()
    load(cluster, a_namespace("team-b"), a_masked_quota(namespace="team-b", hard={"cpu": "1"}))
    assert ids(serious(examined(cluster, namespaces=(NAMESPACE,)))) == []
    assert ids(serious(examined(cluster, namespaces=("team-b",)))) == ["ledger.missing"]


def test_gates_that_no_controller_removes_are_found() -> None:
    cluster = healthy()
    load(
        cluster,
        a_namespace("team-b", mode=""),
        a_gated_pod("b-1", namespace="team-b"),
        a_gated_pod("b-2", "example.com/other", namespace="team-b"),
        a_gated_pod("a-1"),
    )
    found = the(examined(cluster), "gates.stuck")
    assert (str(found.subject), found.details) == ("Namespace team-b", ("b-1",))
    assert found.message.startswith("1 pod waits behind the scheduling gate deferredquota.io/quota")
    assert found.remedy == "Run: deferred-quota disable team-b"


def test_a_status_that_shows_what_is_deferred_is_found() -> None:
    cluster = healthy()
    load(cluster, a_quota("p2", uid="uid-p2", hard={"cpu": "1", "pods": "2"}, used={"cpu": "0"}))
    count(cluster)
    found = the(examined(cluster), "mask.status")
    assert str(found.subject) == "ResourceQuota team-a/p2"
    assert "shows cpu:" in found.message


def test_a_status_that_is_put_right_meanwhile_is_no_finding() -> None:
    cluster = healthy()
    load(cluster, a_quota("p2", uid="uid-p2", hard={"cpu": "1"}, used={"cpu": "0"}))
    count(cluster)
    api = FakeClient(cluster)

    def repair() -> None:
        patch = {"status": {"hard": {"cpu": None}, "used": {"cpu": None}}}
        api.patch(RESOURCE_QUOTAS, "p2", patch, namespace=NAMESPACE, subresource="status")

    found = examined(cluster, repair)
    assert "mask.status" not in ids(found)


def test_an_excluded_quota_is_left_to_the_api_server() -> None:
    cluster = healthy()
    excluded = {"annotations": {"deferredquota.io/exclude": "true"}}
    load(
        cluster,
        a_quota("p2", uid="uid-p2", hard={"cpu": "1"}, used={"cpu": "0"}, metadata=excluded),
    )
    assert serious(examined(cluster)) == []


@pytest.mark.parametrize("mode", ["", "shadow"])
def test_a_mask_that_was_left_behind_is_found(mode: str) -> None:
    cluster = healthy()
    load(
        cluster,
        a_namespace("team-b", mode),
        a_masked_quota(hard={"cpu": "1", "pods": "3"}, namespace="team-b"),
    )
    found = the(examined(cluster), "mask.leftover")
    assert found.message.startswith("its status lacks cpu, and they are not deferred")
    assert found.remedy.endswith("deferred-quota disable team-b")


def test_an_excluded_quota_that_is_still_masked_is_found() -> None:
    cluster = healthy()
    masked = a_masked_quota("p2", hard={"cpu": "1"})
    metadata: Any = masked["metadata"]
    metadata["annotations"] = {"deferredquota.io/exclude": "true"}
    load(cluster, masked)
    found = the(examined(cluster), "mask.leftover")
    assert found.remedy == "The API server's quota controller completes it within five minutes."


def test_scopes_that_cannot_be_evaluated_are_found() -> None:
    cluster = healthy()
    odd = a_quota("p2", uid="uid-p2", expressions=[an_expression("PriorityClass", "In")])
    load(cluster, odd)
    found = the(examined(cluster), "quota.scopes")
    assert "so every bind is refused" in found.message


@pytest.mark.parametrize("namespace", ["team-a", "elsewhere"])
def test_quotas_that_keep_us_from_writing_our_objects_are_found(namespace: str) -> None:
    """A namespace may opt in later."""
    cluster = healthy()
    load(cluster, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "elsewhere"}})
    keys = {"count/quotaledgers.deferredquota.io": "0", "count/jobs.batch": "0"}
    load(cluster, a_quota("counts", hard=keys, namespace=namespace, uid="uid-counts"))
    found = the(examined(cluster), "quota.counts-ours")
    assert found.message.startswith("limits count/quotaledgers.deferredquota.io: ")


@pytest.mark.parametrize(("quotas", "reason"), out_of_bounds().values(), ids=out_of_bounds())
def test_quotas_for_which_nothing_is_bound_are_found(quotas: list[Object], reason: str) -> None:
    cluster = healthy()
    load(cluster, *quotas)
    found = the(examined(cluster), "quota.bounds")
    assert found.message == f"every bind is refused: {reason}"
    named = "ResourceQuota team-a/wide" if "wide" in reason else "Namespace team-a"
    assert (found.severity, str(found.subject)) == ("error", named)


def test_the_ledger_of_very_many_quotas_is_compared_with_those_that_are_counted() -> None:
    (many, _), _ = out_of_bounds().values()
    cluster = healthy()
    load(cluster, *many)
    count(cluster)
    assert "ledger.outdated" not in ids(examined(cluster))


ODD: dict[str, tuple[Any, str]] = {
    "a quota": (
        {**a_quota("odd", uid="uid-odd"), "spec": {"hard": {"cpu": "many"}}},
        "spec.hard.cpu",
    ),
    "a quota's scopes": (
        {**a_quota("odd", uid="uid-odd"), "spec": {"hard": {}, "scopes": 5}},
        "spec.scopes",
    ),
    "a pod": (
        {**a_pod(name="odd", uid="uid-odd"), "spec": {"containers": "none"}},
        "spec.containers",
    ),
}


@pytest.mark.parametrize(("odd", "field"), ODD.values(), ids=ODD)
def test_an_odd_object_is_named_and_stops_no_check(odd: Any, field: str) -> None:
    cluster = healthy()
    load(cluster, odd)
    found = examined(cluster)
    named = [one for one in found.findings if one.id == "object.unreadable"]
    assert named
    assert field in named[0].message
    assert not found.skipped
