"""What `scripts/bench --line` measures: a thousand pods, a scheduler, and a quota or none.

The same pods are created by 16 clients in one namespace after the other of a real control plane,
and its scheduler binds them: without a quota, under a native one, and, once the product is
installed, under ours, with gates for all (`always`) and with gates where they are needed (`auto`);
and with room for a fifth of them. All of that once where the webhook adds the gates and once where
policies do, each on a control plane of its own, as one grows slower with what it has done. Before
each figure the cluster is empty. What is compared was measured on the same control plane. Etcd, the
API server, the scheduler, the product and the load share the processors.
"""

from __future__ import annotations

import os
import ssl
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.cluster import (
    HARD,
    WAIT_SECONDS,
    Bench,
    processor_seconds,
    wait_until,
    wait_until_counted,
)
from tests.bench.floor import allowing_webhook, gates_removed
from tests.bench.watch import follow_pods
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import Process
from tests.e2e.cluster.product import Product
from webhook.install.policies import Form
from webhook.kube.api import PODS, ListOptions, WatchEvent
from webhook.kube.rest import RestClient, load_config

CLIENTS = 16
NODES = 4
POD_MILLIS = 100
"""What a pod of `Bench.creates` asks for."""
GATINGS = ("always", "auto")
FORMS: tuple[Form, ...] = ("webhook", "policy")
"""What adds gates to new pods."""
AMPLE = HARD["requests.cpu"]
ASKED = "no quota, a call for each bind that does nothing"
"""The floor of what a webhook decides."""
GATED = "the same, and a gate that is taken off at once"
"""The floor of a gate for every pod: it is in the manifest, and nothing is decided or written."""
WARMING_UP = "warming up"
REST_SECONDS = 3
"""How long the control plane and the product are left alone between two figures."""


class Binds:
    """Notes when pods got their nodes, and nothing else, so that it costs little."""

    def __init__(self, plane: ControlPlane) -> None:
        self.moments: dict[str, list[float]] = defaultdict(list)
        self._seen: set[str] = set()
        client = RestClient(load_config(plane.kubeconfig(), environ={}))
        assigned = ListOptions(field_selector="spec.nodeName!=")
        follow_pods(client, assigned, client.list(PODS).resource_version, self._take)

    def _take(self, event: WatchEvent) -> None:
        if event.type == "ADDED" and event.uid not in self._seen:
            self._seen.add(event.uid)
            self.moments[event.key.partition("/")[0]].append(time.perf_counter())

    def after(self, namespace: str, count: int, began: float) -> float:
        """Wait for so many binds; return how long after a moment the last of them was."""
        found = self.moments[namespace]
        wait_until(lambda: len(found) >= count, f"{count} pods are bound in {namespace}")
        return found[count - 1] - began


@dataclass
class Round:
    """What one round has measured.

    Attributes:
        seconds: What was waited for → how long it took.
        plane: The same → processor seconds of the control plane.
        product: The same → those of the product; nothing where it does not run.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    plane: dict[str, float] = field(default_factory=dict)
    product: dict[str, float] = field(default_factory=dict)


@dataclass
class Course:
    """One control plane on which everything of a round happens."""

    bench: Bench
    binds: Binds
    result: Round = field(default_factory=Round)

    @contextmanager
    def timed(self, what: str, product: Product | None) -> Iterator[None]:
        before = self._spent(product)
        yield
        after = self._spent(product)
        self.result.plane[what] = after[0] - before[0]
        self.result.product[what] = after[1] - before[1]

    def _spent(self, product: Product | None) -> tuple[float, float]:
        ours: Sequence[Process] = [] if product is None else product.processes
        return _sum(self.bench.plane.processes), _sum(ours)

    def fill(
        self, what: str, space: str, pods: int, wanted: int, product: Product | None, gate: str = ""
    ) -> None:
        """Create pods, and wait until as many as are wanted are bound."""
        requests, _ = self.bench.creates([space], pods, gate=gate)
        before = len(self.binds.moments[space])
        with self.timed(what, product):
            began = time.perf_counter()
            self.bench.load(requests, CLIENTS, b" 201 ")
            self.result.seconds[what] = self.binds.after(space, before + wanted, began)

    def refill(self, what: str, space: str, count: int, product: Product) -> None:
        """Let so many pods end, and wait until as many others are bound."""
        items = self.bench.plane.rest.get(f"/api/v1/namespaces/{space}/pods")["items"]
        ending = [one["metadata"]["name"] for one in items if one["spec"].get("nodeName")][:count]
        before = len(self.binds.moments[space])
        with self.timed(what, product):
            began = time.perf_counter()
            self.bench.load([_end(space, name) for name in ending], CLIENTS, b" 200 ")
            self.result.seconds[what] = self.binds.after(space, before + count, began)
        first = self.binds.after(space, before + 1, began)
        self.result.seconds[f"{what}: the first of them"] = first
        assert len(self.binds.moments[space]) == before + count, (
            "more were bound than there is room"
        )

    def whole(
        self, what: str, space: str, pods: int, product: Product | None, gate: str = ""
    ) -> None:
        """Create pods, wait until all are bound, and leave none of them."""
        self.fill(what, space, pods, pods, product, gate)
        self.empty(space)

    def empty(self, space: str) -> None:
        """Delete all pods of a namespace, and wait until that is over.

        The next figure is to find as many pods in the cluster as the one before, and no controller
        busy with those that wait.
        """
        pods = f"/api/v1/namespaces/{space}/pods"
        rest = self.bench.plane.rest
        rest.delete(pods, grace_seconds=0)
        wait_until(lambda: not rest.get(pods)["items"], f"{space} is empty")
        time.sleep(REST_SECONDS)


def _end(space: str, name: str) -> bytes:
    body = b'{"status":{"phase":"Succeeded"}}'
    head = (
        f"PATCH /api/v1/namespaces/{space}/pods/{name}/status HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/merge-patch+json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _sum(processes: Sequence[Process]) -> float:
    return sum(processor_seconds(one.pid) for one in processes)


@contextmanager
def _course() -> Iterator[Course]:
    memory = Path("/dev/shm")  # noqa: S108
    root = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="deferred-quota-line-", dir=root) as scratch,
        ControlPlane.start(Path(scratch), say=print) as plane,
    ):
        plane.add_nodes(NODES, cpu="512", memory="2Ti", pods=10_000)
        context = ssl.create_default_context(cafile=str(plane.ca_file))
        context.load_cert_chain(plane.kubeconfig().with_suffix(".pem"))
        yield Course(Bench(plane, context), Binds(plane))


def _round(pods: int, form: Form) -> Round:
    with _course() as course:
        bench = course.bench
        course.whole(WARMING_UP, bench.namespace("warm"), pods // 2, None)
        course.whole("no quota", bench.namespace("plain"), pods, None)
        with allowing_webhook(bench.plane, bench.plane.directory / "nothing") as asked:
            course.whole(ASKED, asked, pods, None)
            with gates_removed(bench.plane, asked):
                course.whole(GATED, asked, pods, None, gate="bench.example/gate")
        native = bench.namespace("native", with_quota=True)
        wait_until(lambda: _is_counted(bench, native), "the native quota is counted")
        course.whole("native quota, ample", native, pods, None)
        directory = bench.plane.directory / "product"
        with Product.start(bench.plane, directory, direct=True, creation=form) as product:
            course.whole(WARMING_UP, _deferred(bench, "warm", "always", AMPLE), pods // 2, product)
            for gating in GATINGS:
                space = _deferred(bench, f"ample-{gating}", gating, AMPLE)
                course.whole(_ample(gating), space, pods, product)
            for gating in GATINGS:
                _fill_scarce(course, product, gating, pods)
            gates = product.metric("gate_removals_total", result="removed")
            scarce = pods // 5 + pods // 10
            bound = pods // 2 + len(GATINGS) * (pods + scarce)
            print(f"  {bound} pods were bound by us; {gates:.0f} of them had been gated")
            writes = product.metric("ledger_writes_total", result="written")
            away = product.metric("turned_away_requests_total", reason="overload")
            print(f"  binds wrote ledgers {writes:.0f} times; {away:.0f} requests were turned away")
        return course.result


def _fill_scarce(course: Course, product: Product, gating: str, pods: int) -> None:
    bench, room, freed = course.bench, pods // 5, pods // 10
    space = _deferred(bench, f"scarce-{gating}", gating, f"{room * POD_MILLIS}m")
    course.fill(f"ours, {gating}, room for {room}", space, pods, room, product)
    time.sleep(2)  # a bind too many would come now
    assert len(course.binds.moments[space]) == room, "more were bound than there is room"
    course.refill(f"ours, {gating}, {freed} end, {freed} more", space, freed, product)
    course.empty(space)


def _deferred(bench: Bench, name: str, gating: str, cpu: str) -> str:
    """Make a namespace with so much quota, and wait until it is counted."""
    space = bench.namespace(f"{name}-ours", mode="deferred", gating=gating)
    quota = {"metadata": {"name": "compute"}, "spec": {"hard": {**HARD, "requests.cpu": cpu}}}
    bench.plane.rest.create(f"/api/v1/namespaces/{space}/resourcequotas", quota)
    wait_until_counted(bench, space)
    if gating == "auto":  # policies go by it, and gate nothing without
        gating_path = f"/apis/deferredquota.io/v1alpha1/namespaces/{space}/podgatings"
        wait_until(lambda: bench.plane.rest.get(gating_path)["items"], f"{space} has its PodGating")
    return space


def _ample(gating: str) -> str:
    return f"ours, {gating}, ample"


def _is_counted(bench: Bench, space: str) -> bool:
    found = bench.plane.rest.get(f"/api/v1/namespaces/{space}/resourcequotas/compute")
    return set(found.get("status", {}).get("used", {})) == set(HARD)


def bench_line(pods: int, rounds: int) -> None:
    """Measure so many rounds, and print the medians."""
    print(f"\nReal control plane and scheduler: {pods:,} pods, {CLIENTS} creators, {NODES} nodes")
    print(f"  up to {WAIT_SECONDS:.0f} s are waited for each figure; {rounds} rounds")
    results: dict[Form, list[Round]] = {form: [] for form in FORMS}
    for number in range(1, rounds + 1):
        for form in FORMS:
            print(f"  round {number}, gates by the {form}")
            results[form].append(_round(pods, form))
    for form, found in results.items():
        print(f"\n  {f'gates by the {form}':<50}{'s':>8}{'per s':>8}{'x none':>8}", end="")
        print("  processor s: plane, product")
        for what in found[0].seconds:
            if what != WARMING_UP:
                _print_line(what, found, pods)


def _print_line(what: str, results: Sequence[Round], pods: int) -> None:
    seconds = _median([one.seconds for one in results], what)
    is_whole = what in {"no quota", ASKED, GATED, "native quota, ample", *map(_ample, GATINGS)}
    ratio = statistics.median(one.seconds[what] / one.seconds["no quota"] for one in results)
    rate = f"{pods / seconds:>8.0f}{ratio:>8.2f}" if is_whole else f"{'':>16}"
    spent = ""
    if what in results[0].plane:
        plane, product = (
            _median([one.plane for one in results], what),
            _median([one.product for one in results], what),
        )
        spent = f"  {plane:.1f}, {product:.1f}"
    print(f"  {what:<50}{seconds:>8.2f}{rate}{spent}")


def _median(found: Sequence[Mapping[str, float]], what: str) -> float:
    return statistics.median(one[what] for one in found)


__all__ = ["bench_line"]
