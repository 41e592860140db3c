"""What the doors know of waiting pods: the cache first, the API server where it cannot tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.doors.desk import WAITING, Desk, a_desk, a_namespace, eventually
from tests.builders import a_pod, a_quota
from webhook.cluster.api import PODS
from webhook.cluster.informer import Informer
from webhook.quota.fields import InvalidFieldError
from webhook.state.view import CachedView

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


LARGE = {f"l{number}": "x" * 40 for number in range(3000)}
"""Labels, or annotations, of about 150 KiB."""


@pytest.mark.parametrize("namespace", [NS, "team-plain"], ids=["opted in", "not opted in"])
@pytest.mark.parametrize("node", ["", "node-1"], ids=["waiting", "assigned"])
def test_no_cache_keeps_what_a_tenant_writes_on_pods(desk: Desk, namespace: str, node: str) -> None:
    if namespace != NS:
        desk.create(a_namespace(namespace, mode=""))
    large = {"labels": LARGE, "annotations": LARGE}
    desk.pod(name="large", namespace=namespace, node=node, metadata=large, requests={"cpu": "1"})
    desk.catch_up()
    kept = [repr(one.get(f"{namespace}/large")) for one in desk.informers()]
    assert kept
    assert max(map(len, kept)) < 2000


def test_no_cache_keeps_what_is_written_on_quotas(desk: Desk) -> None:
    quota = a_quota("large")
    quota["metadata"] |= {"annotations": LARGE}  # type: ignore[operator]
    desk.create(quota)
    desk.catch_up()
    kept = desk.engine.informers["resourcequotas"]
    assert isinstance(kept, Informer)
    assert len(repr(kept.get(f"{NS}/large"))) < 2000


def test_a_pod_that_names_very_many_resources_is_kept_small_and_looked_up(desk: Desk) -> None:
    named = {f"example.com/r{number}": "1" for number in range(3000)}
    desk.pod(name="large", uid="u", requests={"cpu": "1", **named})
    desk.catch_up()
    kept = [repr(one.get(f"{NS}/large")) for one in desk.informers()]
    assert max(map(len, kept)) < 2000
    found = view_of(desk).pod(NS, "large")
    assert found.pod is not None
    assert found.is_live
    assert "example.com/r2999" in found.pod.containers[0].requests
