"""What the handlers know of waiting pods: the cache first, the API server where it cannot tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.handlers.harness import (
    WAITING,
    AdmissionHarness,
    a_namespace,
    admission_harness,
    eventually,
)
from tests.builders import a_pod, a_quota
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import PODS
from webhook.kube.informer import Informer
from webhook.state.cluster_view import CachedView

NS = "team-a"


@pytest.fixture
def harness() -> Iterator[AdmissionHarness]:
    with admission_harness(a_quota("p1")) as opened:
        opened.catch_up()
        yield opened


def view_of(harness: AdmissionHarness) -> CachedView:
    view = harness.engine.view
    assert view is not None
    return view


def test_a_waiting_pod_is_known_with_how_far_pods_were_seen(harness: AdmissionHarness) -> None:
    harness.pod(uid="u", requests={"cpu": "1"})
    harness.catch_up()
    harness.client.calls.clear()
    found = view_of(harness).pod(NS, "web-1")
    assert found.pod is not None
    assert (found.pod.uid, found.is_live) == ("u", False)
    assert found.observed_version >= int(found.pod.resource_version)
    assert harness.client.calls_of("get") == []


@pytest.mark.parametrize("node", ["", "node-1"], ids=["not seen yet", "assigned"])
def test_a_pod_that_the_cache_does_not_hold_is_looked_up(
    harness: AdmissionHarness, node: str
) -> None:
    harness.client.pause(PODS, WAITING)
    harness.pod(uid="u", node=node)
    found = view_of(harness).pod(NS, "web-1")
    assert found.pod is not None
    assert (found.pod.uid, found.is_live) == ("u", True)


def test_a_pod_that_is_nowhere_is_none(harness: AdmissionHarness) -> None:
    found = view_of(harness).pod(NS, "gone")
    assert (found.pod, found.is_live) == (None, True)


def test_a_pod_that_gets_a_node_leaves_the_cache(harness: AdmissionHarness) -> None:
    harness.pod(uid="u", requests={"cpu": "1"})
    harness.catch_up()
    assert len(view_of(harness).pods) == 1
    assert harness.bind_in_fact("web-1").allowed
    eventually(lambda: len(view_of(harness).pods) == 0, "the pod waits no longer")


def test_a_stored_pod_that_cannot_be_read_names_the_field(harness: AdmissionHarness) -> None:
    harness.cluster.load([(PODS, a_pod(name="odd", requests={"cpu": "two"}))])
    with pytest.raises(InvalidFieldError, match=r"requests\.cpu"):
        view_of(harness).live_pod(NS, "odd")


LARGE = {f"l{number}": "x" * 40 for number in range(3000)}
"""Labels, or annotations, of about 150 KiB."""


@pytest.mark.parametrize("namespace", [NS, "team-plain"], ids=["opted in", "not opted in"])
@pytest.mark.parametrize("node", ["", "node-1"], ids=["waiting", "assigned"])
def test_no_cache_keeps_what_a_tenant_writes_on_pods(
    harness: AdmissionHarness, namespace: str, node: str
) -> None:
    if namespace != NS:
        harness.create(a_namespace(namespace, mode=""))
    large = {"labels": LARGE, "annotations": LARGE}
    harness.pod(name="large", namespace=namespace, node=node, metadata=large, requests={"cpu": "1"})
    harness.catch_up()
    kept = [repr(one.get(f"{namespace}/large")) for one in harness.informers()]
    assert kept
    assert max(map(len, kept)) < 2000


def test_a_live_pod_is_read_without_what_a_tenant_writes_on_it(harness: AdmissionHarness) -> None:
    """As many are read at a time as there are threads."""
    ours = {"deferredquota.io/x": "y"}
    large = {"labels": {**LARGE, **ours}, "annotations": LARGE}
    harness.pod(name="large", metadata=large, requests={"cpu": "1"})
    found = view_of(harness).live_pod(NS, "large").pod
    assert found is not None
    assert (found.labels, found.annotations) == (ours, {})


def test_no_cache_keeps_what_is_written_on_quotas(harness: AdmissionHarness) -> None:
    quota = a_quota("large")
    quota["metadata"] |= {"annotations": LARGE}  # type: ignore[operator]
    harness.create(quota)
    harness.catch_up()
    kept = harness.engine.informers["resourcequotas"]
    assert isinstance(kept, Informer)
    assert len(repr(kept.get(f"{NS}/large"))) < 2000


def test_a_pod_that_names_very_many_resources_is_kept_small_and_looked_up(
    harness: AdmissionHarness,
) -> None:
    named = {f"example.com/r{number}": "1" for number in range(3000)}
    harness.pod(name="large", uid="u", requests={"cpu": "1", **named})
    harness.catch_up()
    kept = [repr(one.get(f"{NS}/large")) for one in harness.informers()]
    assert max(map(len, kept)) < 2000
    found = view_of(harness).pod(NS, "large")
    assert found.pod is not None
    assert found.is_live
    assert "example.com/r2999" in found.pod.containers[0].requests
