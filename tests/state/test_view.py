"""What the doors know of the cluster: caches first, the API server where they cannot tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.doors.desk import WAITING, Desk, a_desk, a_namespace, eventually, opt_out
from tests.builders import a_pod, a_quota
from webhook.cluster.api import NAMESPACES, PODS, RESOURCE_QUOTAS, ApiError
from webhook.quota.fields import InvalidFieldError
from webhook.state.view import CachedView, is_deferred

NS = "team-a"


@pytest.fixture
def desk() -> Iterator[Desk]:
    with a_desk(a_quota("p1")) as opened:
        opened.catch_up()
        yield opened


def view_of(desk: Desk) -> CachedView:
    view = desk.engine.view
    assert view is not None
    return view


def test_quotas_are_derived_once_until_they_change(desk: Desk) -> None:
    view = view_of(desk)
    before = view.quotas(NS)
    assert view.quotas(NS) is before
    desk.create(a_quota("p2", hard={"pods": "1"}))
    desk.catch_up()
    after = view.quotas(NS)
    assert [quota.name for quota in after.every] == ["p1", "p2"]
    assert [quota.name for quota in after.deferred.quotas] == ["p1"]


def test_a_quota_that_cannot_be_read_is_told_until_it_can_or_is_gone(desk: Desk) -> None:
    view = view_of(desk)
    for name in ("b", "c"):
        desk.create(a_quota(name, hard={"requests.cpu": "much"}))
    desk.catch_up()
    assert [text.partition(":")[0] for text in view.quotas(NS).unreadable] == [
        "quota b cannot be read",
        "quota c cannot be read",
    ]
    patch = {"spec": {"hard": {"requests.cpu": "1"}}}
    desk.api.patch(RESOURCE_QUOTAS, "b", patch, namespace=NS)
    desk.api.delete(RESOURCE_QUOTAS, "c", namespace=NS)
    desk.catch_up()
    seen = view.quotas(NS)
    assert seen.unreadable == ()
    assert [quota.name for quota in seen.deferred.quotas] == ["b", "p1"]


def test_a_namespace_without_quotas_has_none(desk: Desk) -> None:
    seen = view_of(desk).quotas("elsewhere")
    assert (seen.every, seen.unreadable, seen.deferred.quotas) == ((), (), ())


def test_live_quotas_are_those_that_the_api_server_has(desk: Desk) -> None:
    view = view_of(desk)
    desk.line.hold(RESOURCE_QUOTAS)
    desk.create(a_quota("late"))
    desk.create(a_quota("odd", hard={"requests.cpu": "much"}))
    assert [quota.name for quota in view.quotas(NS).deferred.quotas] == ["p1"]
    seen = view.live_quotas(NS)
    assert [quota.name for quota in seen.deferred.quotas] == ["late", "p1"]
    assert [text.partition(":")[0] for text in seen.unreadable] == ["quota odd cannot be read"]


def test_a_live_look_that_showed_no_deferred_quota_is_not_believed_twice(desk: Desk) -> None:
    view = view_of(desk)
    desk.create(a_namespace("fresh"))
    assert view.live_quotas("fresh").deferred.quotas == ()
    desk.create(a_quota("first", namespace="fresh"))
    assert [quota.name for quota in view.live_quotas("fresh").deferred.quotas] == ["first"]


def test_a_waiting_pod_is_known_with_how_far_pods_were_seen(desk: Desk) -> None:
    desk.pod(uid="u", requests={"cpu": "1"})
    desk.catch_up()
    desk.line.calls.clear()
    found = view_of(desk).pod(NS, "web-1")
    assert found.pod is not None
    assert (found.pod.uid, found.is_live) == ("u", False)
    assert found.seen >= int(found.pod.resource_version)
    assert desk.line.calls == []


@pytest.mark.parametrize("node", ["", "node-1"], ids=["not seen yet", "assigned"])
def test_a_pod_that_the_cache_does_not_hold_is_looked_up(desk: Desk, node: str) -> None:
    desk.line.hold(PODS, WAITING)
    desk.pod(uid="u", node=node)
    found = view_of(desk).pod(NS, "web-1")
    assert found.pod is not None
    assert (found.pod.uid, found.is_live) == ("u", True)


def test_a_pod_that_is_nowhere_is_none(desk: Desk) -> None:
    found = view_of(desk).pod(NS, "gone")
    assert (found.pod, found.is_live) == (None, True)


def test_a_pod_that_gets_a_node_leaves_the_cache(desk: Desk) -> None:
    desk.pod(uid="u", requests={"cpu": "1"})
    desk.catch_up()
    assert len(view_of(desk).pods) == 1
    assert desk.bind_in_fact("web-1").allowed
    eventually(lambda: len(view_of(desk).pods) == 0, "the pod waits no longer")


def test_a_stored_pod_that_cannot_be_read_names_the_field(desk: Desk) -> None:
    desk.cluster.load([(PODS, a_pod(name="odd", requests={"cpu": "two"}))])
    with pytest.raises(InvalidFieldError, match=r"requests\.cpu"):
        view_of(desk).live_pod(NS, "odd")


def test_a_namespace_that_is_not_in_the_cache_is_looked_up(desk: Desk) -> None:
    view = view_of(desk)
    assert view.is_opted_in(NS)
    assert not view.is_opted_in("nowhere")
    desk.line.hold(NAMESPACES)
    desk.create(a_namespace("fresh"))
    assert view.is_opted_in("fresh")
    desk.line.broken.add(("get", "namespaces"))
    with pytest.raises(ApiError):
        view.is_opted_in("unheard-of")


def test_opting_out_is_seen(desk: Desk) -> None:
    opt_out(desk.api, NS)
    desk.catch_up()
    assert not view_of(desk).is_opted_in(NS)


LABELS: dict[str, tuple[object, bool]] = {
    "deferred": ({"deferredquota.io/mode": "deferred"}, True),
    "shadow": ({"deferredquota.io/mode": "shadow"}, False),
    "another word": ({"deferredquota.io/mode": "Deferred"}, False),
    "none": ({}, False),
    "null": (None, False),
}


@pytest.mark.parametrize(("labels", "expected"), LABELS.values(), ids=LABELS.keys())
def test_one_label_opts_in(labels: object, expected: bool) -> None:
    assert is_deferred({"metadata": {"labels": labels}}) == expected


def test_labels_that_cannot_be_read_name_the_field() -> None:
    with pytest.raises(InvalidFieldError, match=r"metadata\.labels"):
        is_deferred({"metadata": {"labels": []}})
