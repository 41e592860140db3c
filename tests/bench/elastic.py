"""What `scripts/bench --elastic` measures: what elastic quotas cost binds, and how fast they are.

Rates are of one run: namespaces with a ResourceQuota each, and others that have an elastic quota
beside it, load a real control plane by turns. There is no scheduler, see `cluster`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.bench.cluster import Bench, control_plane, pod_body, resident_mib, wait_until
from tests.bench.load_generator import Result, request_bytes, run_with
from tests.bench.scale import assigned_pod, ready_after, scale_of, wait
from tests.bench.watch import follow_pods
from tests.e2e.cluster.product import Product
from tests.operations.scenes import load
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import PODS, ListOptions, WatchEvent, object_key
from webhook.kube.rest import RestClient, load_config
from webhook.quota.elastic.balance import Queued
from webhook.quota.elastic.capacity import ElasticPod, in_label_order, over_quota
from webhook.quota.elastic.elastic_quotas import ElasticQuota, read_elastic_quota
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.elastic.reclaim_plan import plan_reclaim

NAMESPACES = 20
ROUNDS = 20
_START = datetime(2026, 1, 1, tzinfo=UTC)
_ACT = {"elastic": {"reclaim": {"mode": "Act", "afterSeconds": 0, "maxEvictionsPerMinute": 6000}}}


def bench_elastic(count: int, pods: int) -> None:
    """Print all figures.

    Args:
        count: Binds of each rate.
        pods: Assigned pods, of which the controller's memory is told.
    """
    bench_core()
    bench_rates(count)
    bench_reclaim()
    if pods:
        bench_memory(pods)


# -- the core ----------------------------------------------------------------------------------


def _quotas(number: int, least: int) -> list[ElasticQuota]:
    return [
        read_elastic_quota(
            {
                "kind": "ElasticQuota",
                "metadata": {"namespace": f"n{each}", "name": "q"},
                "spec": {"min": {"cpu": least}},
            }
        )
        for each in range(number)
    ]


def _pods(quota: ElasticQuota, number: int) -> list[ElasticPod]:
    return [
        ElasticPod(
            quota.namespace,
            f"p{each}",
            f"{quota.namespace}/p{each}",
            _START + timedelta(seconds=each),
            0,
            {"cpu": 10**9},
        )
        for each in range(number)
    ]


def _usage(pods: Mapping[str, Sequence[ElasticPod]]) -> dict[str, dict[str, int]]:
    return {key: {"cpu": sum(one.amounts["cpu"] for one in all_)} for key, all_ in pods.items()}


def bench_core() -> None:
    """Fair share, labels and one plan, of 500 quotas and 20,000 pods."""
    quotas = _quotas(500, 40)
    # every second quota borrows what the one beside it does not use, 1 to 39 cpu
    spare = [1 + n * 7 % 39 for n in range(250)]
    pods = {
        one.key: _pods(one, 40 + spare[n // 2] * (-1 if n % 2 else 1))
        for n, one in enumerate(quotas)
    }
    claim = Queued(quotas[1].key, replace(_pods(quotas[1], 1)[0], name="new", uid="new"))

    def all_of_it() -> None:
        pool = Pool("default", quotas)
        pool.guaranteed("cpu", _usage(pods))
        for one in quotas:
            over_quota(one, in_label_order(pods[one.key]))
        assert plan_reclaim(pool, pods, claim).is_possible

    pool = Pool("default", quotas)
    usage = _usage(pods)

    def after_a_change() -> None:
        key = quotas[0].key
        usage[key] = {"cpu": sum(one.amounts["cpu"] for one in pods[key])}
        pool.guaranteed("cpu", usage)
        over_quota(quotas[0], in_label_order(pods[key]))

    def plan() -> None:
        assert plan_reclaim(pool, pods, claim).is_possible

    print("Core: 500 elastic quotas, 20,000 pods, one processor (median of nine)")
    for name, work in (
        ("fair share, labels and plan, from nothing", all_of_it),
        ("fair share and labels, after one change", after_a_change),
        ("one plan", plan),
    ):
        print(f"  {name:<44}{_seconds(work) * 1000:>9.1f} ms")


def _seconds(work: Callable[[], None]) -> float:
    taken = []
    for _ in range(9):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


# -- rates of binds ----------------------------------------------------------------------------


def _elastic_quota(bench: Bench, namespace: str, pool: str, cpu: str, most: str = "") -> None:
    metadata = {"name": "q", "labels": {"deferredquota.io/pool": pool}}
    spec = {"min": {"cpu": cpu}} | ({"max": {"cpu": most}} if most else {})
    made = {"metadata": metadata, "spec": spec, "kind": "ElasticQuota"}
    path = f"/apis/nos.nebuly.com/v1alpha1/namespaces/{namespace}/elasticquotas"
    bench.plane.rest.create(path, {"apiVersion": "nos.nebuly.com/v1alpha1", **made})


def _pool(
    bench: Bench, name: str, least: Mapping[str, str], gating: str = "never", most: str = ""
) -> list[str]:
    """Make namespaces with elastic quotas of one pool, with `most` as max; wait for its count."""
    spaces = [
        bench.namespace(space, mode="deferred", with_quota=True, gating=gating) for space in least
    ]
    for space, cpu in least.items():
        _elastic_quota(bench, space, name, cpu, most)
    wait_until(lambda: _is_counted(bench, name, len(spaces)), f"pool {name} is counted")
    return spaces


def _status(bench: Bench, pool: str) -> Any:
    listed = bench.plane.rest.get("/apis/deferredquota.io/v1alpha1/clusterdeferredquotas")["items"]
    named = [one for one in listed if one["metadata"]["name"] == f"epool.{pool}"]
    return named[0].get("status", {}) if named else {}


def _is_counted(bench: Bench, pool: str, number: int) -> bool:
    status = _status(bench, pool)
    said = {one["type"]: one["status"] for one in status.get("conditions", [])}
    return len(status.get("namespaces", [])) == number and said.get("Counted") == "True"


def bench_rates(count: int) -> None:
    """Binds of namespaces with and without elastic quotas."""
    print(f"\nReal control plane: guarded binds over {NAMESPACES} namespaces")
    with (
        control_plane() as bench,
        Product.start(bench.plane, bench.plane.directory / "product", direct=True) as product,
    ):
        plain = [
            bench.namespace(f"plain-{n}", mode="deferred", with_quota=True)
            for n in range(NAMESPACES)
        ]
        cpu = str(max(1, count // NAMESPACES) * 2)  # pods take 100m: most of it stays free
        within = _pool(bench, "within", {f"within-{n}": cpu for n in range(NAMESPACES)})
        with_max = {f"max-{n}": cpu for n in range(NAMESPACES)}
        within_max = _pool(bench, "max", with_max, most=str(int(cpu) * 2))
        lending = {f"borrow-{n}": "0" for n in range(NAMESPACES)} | {"lender": str(count)}
        borrowing = _pool(bench, "borrowed", lending)[:-1]
        for clients in (16, 1):
            share = count if clients == 16 else max(100, count // 8)
            base = _rate(bench, plain, share, clients, "without elastic quotas", None)
            for spaces, pool, what in (
                (within, "within", "within min"),
                (within_max, "max", "within min, with max"),
                (borrowing, "borrowed", "all borrowed"),
            ):
                one = _rate(bench, spaces, share, clients, what, pool)
                print(
                    f"  {clients} clients, {what}: {one.per_second / base.per_second:.2f} of the"
                    f" rate, p50 {one.percentile(0.5) / base.percentile(0.5):.2f} x"
                )
        assert product.webhooks


def _rate(
    bench: Bench, spaces: Sequence[str], count: int, clients: int, what: str, pool: str | None
) -> Result:
    requests, names = bench.creates(spaces, count)
    bench.load(requests, 16, b" 201 ")
    requests = bench.binds(names)
    before = _status(bench, pool).get("serial", 0) if pool else 0
    result = run_with(bench.context, bench.plane.url, requests, clients, b" 201 ")
    writes = (_status(bench, pool).get("serial", 0) - before) / count if pool else 0
    p50, p99 = result.percentile(0.5) * 1000, result.percentile(0.99) * 1000
    print(
        f"  {what:<26}{clients:>4} clients{result.per_second:>8,.0f}/s  p50 {p50:.2f} ms, p99"
        f" {p99:.2f} ms, pool writes per bind {writes:.2f}, asked to come again {result.wrong}"
    )
    return result


# -- reclaim and labels ------------------------------------------------------------------------


class _Pods:
    """Pods of some namespaces."""

    def __init__(self, bench: Bench, spaces: Sequence[str]) -> None:
        client = RestClient(load_config(bench.plane.kubeconfig(), environ={}))
        self._pods: dict[str, Any] = {}
        for space in spaces:
            options = ListOptions(namespace=space)
            listed = client.list(PODS, options)
            for one in listed.items:
                name = FieldReader(one).child("metadata").text("name")
                self._pods[object_key(space, name)] = one
            follow_pods(client, options, listed.resource_version, self._take)

    def _take(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._pods.pop(event.key, None)
        else:
            self._pods[event.key] = event.object

    def of(self, space: str) -> list[Any]:
        return [pod for key, pod in [*self._pods.items()] if key.startswith(f"{space}/")]

    def over_quota(self, space: str) -> int:
        labels = [one["metadata"].get("labels", {}) for one in self.of(space)]
        return sum(one.get("nos.nebuly.com/capacity") == "over-quota" for one in labels)

    def ending(self, space: str) -> str:
        found = [one["metadata"] for one in self.of(space)]
        return next((str(one["name"]) for one in found if "deletionTimestamp" in one), "")

    def is_released(self, space: str, name: str) -> bool:
        pod = self._pods.get(object_key(space, name))
        return pod is not None and not pod["spec"].get("schedulingGates")


def bench_reclaim() -> None:
    """From an owner's pod to the eviction, and from the end of the victim to the gate."""
    print(f"\nReclaim and labels, {ROUNDS} rounds each")
    with (
        control_plane() as bench,
        Product.start(
            bench.plane, bench.plane.directory / "product", direct=True, configuration=_ACT
        ) as product,
    ):
        owner, borrower = _pool(bench, "reclaim", {"owner": "20", "borrower": "20"}, "always")
        names = [f"b{number}" for number in range(400)]  # 100m each: all of the pool
        requests = [_create(borrower, name, "node-0") for name in names]
        bench.load(requests, 16, b" 201 ")
        pods = _Pods(bench, (owner, borrower))
        wait_until(lambda: pods.over_quota(borrower) == 200, "half is over-quota")
        evicted, released = [], []
        for number in range(ROUNDS):
            began = time.monotonic()
            bench.load([_create(owner, f"a{number}")], 1, b" 201 ")
            _until(lambda: bool(pods.ending(borrower)))
            evicted.append(time.monotonic() - began)
            path = f"/api/v1/namespaces/{borrower}/pods/{pods.ending(borrower)}"
            bench.plane.rest.delete(path, grace_seconds=0)
            began = time.monotonic()
            _until(lambda name=f"a{number}": pods.is_released(owner, name))  # type: ignore[misc]
            released.append(time.monotonic() - began)
        _print("owner's pod created to eviction sent", evicted)
        _print("victim gone to gate off", released)
        _print("labels of 20 pods follow an edit of min", list(_flips(bench, borrower, pods)))
        assert product.controllers


def _create(space: str, name: str, node: str = "") -> bytes:
    return request_bytes(f"/api/v1/namespaces/{space}/pods", pod_body(name, node))


def _until(is_so: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60.0
    while not is_so():
        if time.monotonic() > give_up:
            raise SystemExit("bench: not within 60 s")
        time.sleep(0.005)


def _flips(bench: Bench, space: str, pods: _Pods) -> Iterator[float]:
    path = f"/apis/nos.nebuly.com/v1alpha1/namespaces/{space}/elasticquotas/q"
    for number in range(ROUNDS):
        cpu = 18 if number % 2 == 0 else 20
        left = len(pods.of(space)) - cpu * 10
        began = time.monotonic()
        bench.plane.rest.patch(path, {"spec": {"min": {"cpu": cpu}}})
        _until(lambda over=left: pods.over_quota(space) == over)  # type: ignore[misc]
        yield time.monotonic() - began


def _print(what: str, seconds: Sequence[float]) -> None:
    ordered = sorted(seconds)
    middle, most = statistics.median(ordered), ordered[-1]
    print(f"  {what:<44}{middle:>7.2f} s (p50){most:>7.2f} s (most)")


# -- memory ------------------------------------------------------------------------------------


def bench_memory(pods: int) -> None:
    """Memory of a leader that follows so many assigned pods of 500 elastic quotas.

    The API server is the fake one, see `scale`; all pods but one have their label.
    """
    print(f"\nController: {pods:,} assigned pods in 500 namespaces, fake API server")
    print(f"  {'without':<24}{_memory(pods, is_elastic=False):>6.0f} MiB")
    print(f"  {'with elastic quotas':<24}{_memory(pods, is_elastic=True):>6.0f} MiB")


def _memory(pods: int, *, is_elastic: bool) -> float:
    with scale_of(0, 500) as scale:
        load(scale.cluster, *_followed(pods, scale.spaces, is_elastic=is_elastic))
        leader = scale.controller(0)
        try:
            ready_after(leader)
            wait(lambda: scale.counted() == 500, "every ledger counts")
            if is_elastic:
                wait(lambda: _is_labelled(scale.cluster), "the last has its label")
            return resident_mib(leader.pid)
        finally:
            leader.kill()


def _followed(pods: int, spaces: Sequence[str], *, is_elastic: bool) -> Iterator[Any]:
    labels = {"nos.nebuly.com/capacity": "in-quota"} if is_elastic else {}
    for number in range(pods):
        pod = assigned_pod(spaces[number % len(spaces)], f"pod-{number}")
        pod["metadata"]["labels"] = labels if number else {}
        yield pod
    least = {"cpu": str(pods // len(spaces) + 1)}
    for space in spaces if is_elastic else ():
        made = {"metadata": {"namespace": space, "name": "q"}, "spec": {"min": least}}
        yield {"apiVersion": "nos.nebuly.com/v1alpha1", "kind": "ElasticQuota", **made}


def _is_labelled(cluster: FakeCluster) -> bool:
    found = FakeClient(cluster).get(PODS, "pod-0", namespace="team-0")
    return bool(FieldReader(found).child("metadata").string_map("labels"))
