"""What reclaim takes for used, and what for about to leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import pytest

from tests.builders import a_pod as built_pod
from tests.controllers.elastic.objects import an_elastic_quota
from webhook.config import ElasticSettings
from webhook.controllers.elastic import reclaim_view
from webhook.controllers.elastic.assigned_pods import AssignedPod, read_assigned_pod
from webhook.controllers.elastic.promises import HeldPromise
from webhook.controllers.elastic.reclaim_view import (
    OverdueReleases,
    ReclaimSources,
    ReclaimView,
    read_view,
)
from webhook.kube.cache import Entry, NamespacedCache
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.charging.deferral import deferred_part
from webhook.quota.charging.gpu_memory import GPU_MEMORY
from webhook.quota.charging.pod_usage import pod_usage
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.elastic_quotas import ElasticQuota, read_elastic_quota
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.ledger.ledger import Ledger, Reservation, ReservationSource
from webhook.quota.objects.compact import compact_pod
from webhook.quota.objects.model import Pod
from webhook.state.ledger_store import LedgerStore

T = TypeVar("T")
CPU = 10**9
NOW = datetime(2026, 11, 29, tzinfo=UTC)


def a_pod(namespace: str, name: str) -> ElasticPod:
    return ElasticPod(namespace, name, f"{namespace}-{name}", None, 0, {"cpu": CPU})


def a_view() -> tuple[ReclaimView, dict[str, ElasticQuota]]:
    """Two quotas; each has a pod, one that is ending, and one that was reserved for only."""
    quotas = {
        name: read_elastic_quota(cast("Any", an_elastic_quota(name, {"cpu": "4"})))
        for name in ("team-a", "team-b")
    }
    by_key = {one.key: one for one in quotas.values()}
    pods = {one.key: [a_pod(name, "runs")] for name, one in quotas.items()}
    leaving = {
        one.key: [a_pod(name, "ends"), a_pod(name, "unstored")] for name, one in quotas.items()
    }
    unstored = frozenset(f"{name}-unstored" for name in quotas)
    pool = Pool("default", by_key.values())
    view = ReclaimView(quotas, {"default": pool}, pods, leaving, unstored, cast("Any", None))
    return view, quotas


def names(found: dict[str, list[ElasticPod]], quota: ElasticQuota) -> list[str]:
    return [one.name for one in found[quota.key]]


def test_what_was_reserved_for_pods_that_are_not_stored_leaves_others_and_not_the_claimant() -> (
    None
):
    view, quotas = a_view()
    claimant, other = quotas["team-a"], quotas["team-b"]
    found = view.without(claimant, "waits")
    assert names(found, claimant) == ["runs", "unstored"]
    assert names(found, other) == ["runs"]
    everything = view.with_leaving(claimant, "waits")
    assert sorted(names(everything, claimant)) == ["ends", "runs", "unstored"]
    assert sorted(names(everything, other)) == ["ends", "runs", "unstored"]
    assert names(view.without(claimant, "team-a-runs"), claimant) == ["unstored"]


class Shown(NamespacedCache[T]):
    """Cache of some pods that has come as far as a version."""

    resource_version = 0


def shown(version: int, *pods: T, **unreadable: int) -> Shown[T]:
    """Return a cache of some pods, and, by name with the version of each, of some without value."""
    cache: Shown[T] = Shown()
    cache.resource_version = version
    for one in pods:
        pod = one.pod if isinstance(one, AssignedPod) else one
        assert isinstance(pod, Pod)
        cache.put(pod.key, Entry(pod.uid, int(pod.resource_version or 0), one))
    for name, seen in unreadable.items():
        cache.put(f"team-a/{name}", Entry(name, seen, error=ValueError("no pod")))
    return cache


class Ledgers:
    """One ledger, of a namespace; and the informer of its pods."""

    def __init__(self, *assigned: AssignedPod) -> None:
        self.ledger = Ledger({}, {})
        self.assigned = assigned
        self.resource_version = 0

    def in_namespace(self, namespace: str) -> tuple[AssignedPod, ...]:
        return self.assigned if namespace == "team-a" else ()

    def known(self, namespace: str) -> Any:
        return self if namespace == "team-a" else None

    def reserve(self, uid: str, source: ReservationSource, serial: int = 1, cpu: str = "1") -> None:
        usage = {"requests.cpu": Quantity.parse(cpu)}
        one = Reservation(uid, uid, source, usage, {}, (), serial)
        self.ledger = Ledger({}, {**self.ledger.reservations, uid: one})


def test_what_is_reserved_since_a_release_is_overdue_however_often_it_is_written() -> None:
    clock, ledgers = [100.0], Ledgers()
    overdue = OverdueReleases(lambda: clock[0], lambda: 50.0)
    for serial in range(4):
        ledgers.reserve("released", ReservationSource.RELEASE, serial)
        ledgers.reserve("bound", ReservationSource.BIND, serial)
        overdue.look(["team-a", "team-b"], cast("LedgerStore", ledgers))
        assert overdue.uids() == frozenset()
        clock[0] += 16.0
    assert overdue.uids() == {"released"}
    ledgers.ledger = Ledger({}, {})
    overdue.look(["team-a"], cast("LedgerStore", ledgers))
    ledgers.reserve("released", ReservationSource.RELEASE, 9)
    overdue.look(["team-a"], cast("LedgerStore", ledgers))
    assert overdue.uids() == frozenset()


BOUND, RELEASED, LATE, RESIZED = "bound", "released", "late", "resized"


def view_of(
    least: dict[str, object] | None, promises: Sequence[HeldPromise] = (), *, resized: str
) -> ReclaimView:
    """Return the view of a pod of 1 cpu that is resized, and of three that have no node."""
    raw = cast("Any", built_pod(uid=RESIZED, node="node-1", requests={"cpu": "1"}))
    ledgers = Ledgers(read_assigned_pod(raw))
    ledgers.reserve(RESIZED, ReservationSource.RESIZE, cpu=resized)
    ledgers.reserve(BOUND, ReservationSource.BIND)
    ledgers.reserve(RELEASED, ReservationSource.RELEASE)
    ledgers.reserve(LATE, ReservationSource.RELEASE)
    quota = read_elastic_quota(cast("Any", an_elastic_quota("team-a", least, {"cpu": "9"})))
    return read_view({"team-a": quota}, sources_of(ledgers), promises)


def sources_of(ledgers: Ledgers) -> ReclaimSources:
    """Return the view's sources, with one release that was too long ago."""
    return ReclaimSources(
        cast("Any", ledgers),
        cast("Any", shown(0, *[one.pod for one in ledgers.assigned])),
        cast("Any", ledgers),
        ElasticSettings(),
        False,
        frozenset(),
        {LATE},
        NOW,
    )


def test_pods_go_to_nodes_as_long_as_quota_is_promised_or_reserved_for_them() -> None:
    """Neither one that is bound now, nor one whose release was too long ago."""
    held = [HeldPromise(uid, "team-a", uid, {}) for uid in ("first", "second")]
    view = view_of({"cpu": "5"}, held, resized="1")

    def before(uid: str, pool: str = "default") -> list[str]:
        quota = replace(view.quotas["team-a"], pool=pool)
        return sorted(one.uid for one in view.unassigned_before(quota, uid))

    assert before("waits") == ["first", RELEASED, "second"]
    assert before(RELEASED) == ["first", "second"]
    assert before("first") == [RELEASED]  # else neither of two with a promise had a plan
    assert before("waits", "another") == []


@pytest.mark.parametrize(
    ("least", "resized", "leaving"),
    [
        ({"cpu": "5"}, "3", [f"{RESIZED}/resize", BOUND, LATE]),
        ({"cpu": "3"}, "1", [BOUND, LATE]),
        ({"cpu": "6"}, "3", []),
        ({"cpu": "4"}, "1", []),
        (None, "1", [BOUND, LATE]),
        ({"memory": "9"}, "1", [BOUND, LATE]),
    ],
)
def test_what_is_reserved_beyond_min_counts_as_leaving_but_for_pods_released_just_now(
    least: dict[str, object] | None, resized: str, leaving: list[str]
) -> None:
    view = view_of(least, resized=resized)
    (key,) = view.leaving
    assert sorted(one.uid for one in view.leaving[key]) == sorted(leaving)
    assert view.unstored == {*leaving}
    everything = [*view.pods[key], *view.leaving[key]]
    assert sum(one.amounts["cpu"] for one in everything) == (3 + int(resized)) * CPU


def test_what_is_reserved_of_memory_of_gpus_is_taken() -> None:
    """Reservations have it by the key of the quota, and need not name the GPUs."""
    names: dict[str, object] = {GPU_MEMORY: "40", "nvidia.com/gpu": "4"}
    raw = built_pod(uid="waits", requests={"nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb": "2"})
    usage = pod_usage(raw)
    keys = frozenset({GPU_MEMORY, "requests.nvidia.com/gpu"})
    for part, amounts in {
        keys: {GPU_MEMORY: 42 * CPU, "nvidia.com/gpu": CPU},
        frozenset({GPU_MEMORY}): {GPU_MEMORY: 42 * CPU},
    }.items():
        ledgers = Ledgers()
        one = Reservation(
            "waits", "waits", ReservationSource.RELEASE, deferred_part(usage, part), {}, (), 1
        )
        ledgers.ledger = Ledger({}, {"waits": one})
        quota = read_elastic_quota(cast("Any", an_elastic_quota("team-a", names)))
        (taken,) = read_view({"team-a": quota}, sources_of(ledgers), ()).pods.values()
        assert [pod.amounts for pod in taken] == [amounts]


class Binding(Ledgers):
    """A pod that is seen with its node after the first look at either, and reserved for no more."""

    looks = 0

    def look(self) -> bool:
        """Return whether this is the first."""
        self.looks += 1
        return self.looks == 1

    def in_namespace(self, namespace: str) -> tuple[AssignedPod, ...]:
        return () if self.look() else super().in_namespace(namespace)

    def known(self, namespace: str) -> Any:
        if not self.look():
            self.ledger = Ledger({}, {})
        return super().known(namespace)


def test_a_pod_whose_reservation_goes_meanwhile_is_taken() -> None:
    raw = cast("Any", built_pod(uid=BOUND, node="node-1", requests={"cpu": "1"}))
    ledgers = Binding(read_assigned_pod(raw))
    ledgers.reserve(BOUND, ReservationSource.BIND)
    sources = replace(sources_of(ledgers), counted=cast("Any", shown(0)))
    quota = read_elastic_quota(cast("Any", an_elastic_quota("team-a", {"cpu": "1"})))
    view = read_view({"team-a": quota}, sources, ())
    (taken,) = view.pods.values()
    assert [one.uid for one in taken] == [BOUND]


def view_of_ending(ended: float, *, holds_terminating: bool, is_evicted: bool) -> ReclaimView:
    """Return the view of a pod whose grace period of 60 s was over some seconds ago."""
    deleted = {
        "deletionTimestamp": f"{NOW - timedelta(seconds=ended):%Y-%m-%dT%H:%M:%SZ}",
        "deletionGracePeriodSeconds": 60,
    }
    raw = built_pod(uid="ends", node="node-1", requests={"cpu": "1"}, metadata=deleted)
    ledgers = Ledgers(read_assigned_pod(cast("Any", raw)))
    quota = read_elastic_quota(cast("Any", an_elastic_quota("team-a", {"cpu": "1"})))
    sources = ReclaimSources(
        cast("Any", ledgers),
        cast("Any", shown(0, *[one.pod for one in ledgers.assigned])),
        cast("Any", ledgers),
        ElasticSettings(),
        holds_terminating,
        {"ends"} if is_evicted else frozenset(),
        frozenset(),
        NOW,
    )
    return read_view({"team-a": quota}, sources, ())


@pytest.mark.parametrize(
    ("holds_terminating", "is_evicted", "ended", "is_taken"),
    [
        (True, False, 61, True),
        (True, True, 61, True),
        (True, False, 60, False),
        (False, False, 61, False),
    ],
)
def test_a_pod_that_may_be_charged_for_ever_is_taken_and_no_victim(
    ended: float, *, holds_terminating: bool, is_evicted: bool, is_taken: bool
) -> None:
    view = view_of_ending(ended, holds_terminating=holds_terminating, is_evicted=is_evicted)
    (taken,) = view.pods.values()
    assert [one.is_exempt for one in taken] == ([True] if is_taken else [])
    assert view.ending == (frozenset() if is_taken else {"ends"})


class Uids(set[str]):
    """Uids, and how many of them were copied."""

    copied = 0

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        if not isinstance(other, set | frozenset):
            Uids.copied += 1  # all there are: another set takes the place of this one
        return super().__ior__(other)


def test_pods_of_other_namespaces_are_not_walked_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim_view, "set", Uids, raising=False)
    view_of(None, resized="1")
    assert Uids.copied == 0


def stored(version: int, uid: str = "one", phase: str = "Running", cpu: str = "1") -> Pod:
    """Return a pod with a node as it is stored at a version, by the name `one`."""
    raw = built_pod(
        uid=uid,
        name="one",
        namespace="team-a",
        node="node-1",
        requests={"cpu": cpu},
        metadata={"resourceVersion": str(version)},
        status={"phase": phase},
    )
    return compact_pod(cast("Any", raw))


def assigned(pod: Pod) -> AssignedPod:
    raw = built_pod(node="node-1")
    return replace(read_assigned_pod(cast("Any", raw)), pod=pod)


TAKEN, HELD, GONE = ("1", True), ("1", False), None
BEHIND: dict[str, tuple[Shown[AssignedPod], Shown[Pod], tuple[str, bool] | None]] = {
    "both show it": (shown(5, assigned(stored(5))), shown(5, stored(5)), TAKEN),
    "ledgers have seen it go": (shown(5, assigned(stored(5))), shown(6), GONE),
    "ledgers have not seen it": (shown(5, assigned(stored(5))), shown(4), TAKEN),
    "ledgers have seen it end": (
        shown(5, assigned(stored(5))),
        shown(4, stored(6, phase="Succeeded")),
        GONE,
    ),
    "ledgers count less of it": (
        shown(5, assigned(stored(5, cpu="2"))),
        shown(6, stored(6)),
        TAKEN,
    ),
    "ledgers count what it was": (
        shown(6, assigned(stored(6))),
        shown(5, stored(5, cpu="2")),
        TAKEN,
    ),
    "ledgers cannot read it": (shown(5, assigned(stored(5))), shown(6, one=6), TAKEN),
    "a list for ledgers shows another one": (
        shown(5, assigned(stored(5))),
        shown(4, stored(6, uid="another", phase="Failed")),
        GONE,
    ),
    "ledgers count it alone": (shown(4), shown(5, stored(5)), HELD),
    "ledgers have not seen it go": (shown(6), shown(5, stored(5)), GONE),
    "ledgers have not seen it end": (
        shown(6, assigned(stored(6, phase="Failed"))),
        shown(5, stored(5)),
        GONE,
    ),
    "ledgers alone can read it": (shown(6, one=6), shown(6, stored(6)), HELD),
}


@pytest.mark.parametrize(("pods", "counted", "expected"), BEHIND.values(), ids=BEHIND)
def test_a_pod_is_taken_until_a_cache_has_seen_it_go_and_evicted_where_it_was_seen(
    pods: Shown[AssignedPod], counted: Shown[Pod], expected: tuple[str, bool] | None
) -> None:
    quota = read_elastic_quota(cast("Any", an_elastic_quota("team-a", {"cpu": "1"})))
    sources = replace(sources_of(Ledgers()), pods=cast("Any", pods), counted=cast("Any", counted))
    (taken,) = read_view({"team-a": quota}, sources, ()).pods.values()
    found = [(str(one.amounts["cpu"] // CPU), not one.is_exempt) for one in taken]
    assert found == ([] if expected is None else [expected])
