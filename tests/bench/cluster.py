"""What `scripts/bench --cluster` measures: a real control plane with and without the product.

Everything compared is measured in the same run and on the same machine: etcd, the API server, the
product and the load generator share its processors. There is no scheduler; the load generator
creates pods and binds them itself, each request over a kept connection of its own.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.floor import allowing_webhook, ledger_writes
from tests.bench.load_generator import Result, request_bytes, run_with
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.product import Product

WAIT_SECONDS = 120.0
HARD = {"requests.cpu": "1M", "requests.memory": "1Pi", "limits.cpu": "1M"}


@dataclass
class Bench:
    """A control plane and what is needed to load it."""

    plane: ControlPlane
    context: ssl.SSLContext
    pods: int = 0

    def load(self, requests: Sequence[bytes], clients: int, expected: bytes) -> Result:
        result = run_with(self.context, self.plane.url, requests, clients, expected)
        refused = f"{result.wrong} of {len(requests)} requests were refused"
        assert result.wrong == 0, f"{refused}, the first with: {result.first_wrong}"
        return result

    def namespace(
        self, name: str, *, mode: str = "", with_quota: bool = False, gating: str = "never"
    ) -> str:
        labels = {"deferredquota.io/gating": gating}
        if mode:
            labels["deferredquota.io/mode"] = mode
        self.plane.rest.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        if with_quota:
            quota = {"metadata": {"name": "compute"}, "spec": {"hard": HARD}}
            self.plane.rest.create(f"/api/v1/namespaces/{name}/resourcequotas", quota)
        return name

    def creates(
        self, namespaces: Sequence[str], count: int, *, gate: str = ""
    ) -> tuple[list[bytes], list[tuple[str, str]]]:
        """Requests that create pods in namespaces by turns, and the names of the pods."""
        names = []
        for _ in range(count):
            self.pods += 1
            names.append((namespaces[self.pods % len(namespaces)], f"pod-{self.pods}"))
        return [
            request_bytes(f"/api/v1/namespaces/{space}/pods", pod_body(name, gate=gate))
            for space, name in names
        ], names

    def binds(self, names: Sequence[tuple[str, str]]) -> list[bytes]:
        """Requests that bind pods as a scheduler does, with their uid."""
        uids = {
            (space, item["metadata"]["name"]): item["metadata"]["uid"]
            for space in {space for space, _ in names}
            for item in self.plane.rest.get(f"/api/v1/namespaces/{space}/pods")["items"]
        }
        return [
            request_bytes(
                f"/api/v1/namespaces/{space}/pods/{name}/binding",
                binding_body(name, uids[space, name]),
            )
            for space, name in names
        ]


def pod_body(name: str, node: str = "", gate: str = "") -> bytes:
    resources = {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"cpu": "200m", "memory": "256Mi"},
    }
    containers = [{"name": "main", "image": "registry.example/app:1", "resources": resources}]
    spec: dict[str, Any] = {"containers": containers, "automountServiceAccountToken": False}
    if node:
        spec["nodeName"] = node
    if gate:
        spec["schedulingGates"] = [{"name": gate}]
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    ).encode()


def binding_body(name: str, uid: str, node: str = "node-0") -> bytes:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    metadata = {"name": name, "uid": uid}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    ).encode()


@contextmanager
def control_plane() -> Iterator[Bench]:
    memory = Path("/dev/shm")  # noqa: S108
    root = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="deferred-quota-bench-", dir=root) as scratch:
        directory = Path(scratch)
        with ControlPlane.start(directory, scheduler=False, say=print) as plane:
            plane.add_nodes(1)
            context = ssl.create_default_context(cafile=str(plane.ca_file))
            context.load_cert_chain(plane.kubeconfig().with_suffix(".pem"))
            yield Bench(plane, context)


# -- rates -----------------------------------------------------------------------------------


FLOOR_CALL = "bind, a call that does nothing"
FLOOR_WRITE = "status write of such a ledger"


@dataclass(frozen=True)
class Row:
    name: str
    clients: int
    result: Result
    processor: Mapping[str, float]


def _rows(bench: Bench, product: Product, asked: str, count: int) -> list[Row]:
    plain = bench.namespace("plain")
    native = bench.namespace("native", with_quota=True)
    one = bench.namespace("guarded", mode="deferred", with_quota=True)
    eight = [bench.namespace(f"guarded-{n}", mode="deferred", with_quota=True) for n in range(8)]
    for space in (one, *eight):
        wait_until_counted(bench, space)
    watched = {
        "API server": bench.plane.apiserver.pid,
        "webhook": product.webhooks[0].pid,
        "controller": product.controller.pid,
    }
    rows = []
    for clients in (1, 16):
        share = max(200, count // 8) if clients == 1 else count
        for name, spaces, is_bind in (
            ("create, no quota", [plain], False),
            ("create, native quota", [native], False),
            ("bind, not guarded", [plain], True),
            (FLOOR_CALL, [asked], True),
            ("bind, guarded, one namespace", [one], True),
            (FLOOR_WRITE, [one], False),
            ("bind, guarded, 8 namespaces", eight, True),
        ):
            if name == FLOOR_WRITE:
                own = [bench.namespace(f"written-{clients}-{n}") for n in range(clients)]
                requests, expected = ledger_writes(bench.plane, one, own, share), b" 200 "
            else:
                requests, expected = _pod_requests(bench, spaces, share, is_bind=is_bind), b" 201 "
            before = {what: processor_seconds(pid) for what, pid in watched.items()}
            result = bench.load(requests, clients, expected)
            spent = {
                what: (processor_seconds(pid) - before[what]) / len(requests)
                for what, pid in watched.items()
            }
            rows.append(Row(name, clients, result, spent))
    return rows


def _pod_requests(bench: Bench, spaces: Sequence[str], count: int, *, is_bind: bool) -> list[bytes]:
    """Requests that create pods, or that bind them, which are created now."""
    requests, names = bench.creates(spaces, count)
    if not is_bind:
        return requests
    bench.load(requests, 16, b" 201 ")
    return bench.binds(names)


def processor_seconds(pid: int) -> float:
    """Processor time of a process and its children so far."""
    ticks = 0
    for each in (pid, *child_pids(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def child_pids(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def _print_rows(rows: Sequence[Row]) -> None:
    print(f"  {'':<32}{'clients':>8}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}  processor ms each")
    for row in rows:
        p50, p99 = row.result.percentile(0.5) * 1000, row.result.percentile(0.99) * 1000
        spent = ", ".join(f"{what} {each * 1000:.2f}" for what, each in row.processor.items())
        print(
            f"  {row.name:<32}{row.clients:>8}{row.result.per_second:>9,.0f}"
            f"{p50:>9.2f}{p99:>9.2f}  {spent}"
        )


def _print_ratios(rows: Sequence[Row]) -> None:
    found = {(row.name, row.clients): row.result for row in rows}
    free, native = found["create, no quota", 1], found["create, native quota", 1]
    bare, ours = found["bind, not guarded", 1], found["bind, guarded, one namespace", 1]
    native_adds = (native.percentile(0.5) - free.percentile(0.5)) * 1000
    we_add = (ours.percentile(0.5) - bare.percentile(0.5)) * 1000
    print(
        f"  one client: the guard adds {we_add:.2f} ms to a bind (p50), the native quota"
        f" {native_adds:.2f} ms to a create; {we_add / native_adds:.2f} x"
    )
    print(
        "  one client: p99 of a guarded bind is"
        f" {ours.percentile(0.99) / ours.percentile(0.5):.1f} x its p50"
    )
    _print_floor(found)
    base = found["bind, not guarded", 16].per_second
    for name in ("bind, guarded, one namespace", "bind, guarded, 8 namespaces"):
        print(f"  16 clients: {name}: {found[name, 16].per_second / base:.2f} of binds not guarded")


def _print_floor(found: Mapping[tuple[str, int], Result]) -> None:
    """Print what a bind takes that is asked about and writes a ledger, whatever decides."""
    call, write = found[FLOOR_CALL, 1], found[FLOOR_WRITE, 1]
    floor = call.percentile(0.5) + write.percentile(0.5)
    ours = found["bind, guarded, one namespace", 1].percentile(0.5)
    added = floor - found["bind, not guarded", 1].percentile(0.5)
    print(
        f"  one client: a call and a write that decide nothing add {added * 1000:.2f} ms;"
        f" a guarded bind takes {ours / floor:.2f} of that floor"
    )
    call, write = found[FLOOR_CALL, 16], found[FLOOR_WRITE, 16]
    alone = 1 / (1 / call.per_second + 1 / write.per_second)
    base = found["bind, not guarded", 16].per_second
    print(
        f"  16 clients: with a call that does nothing {call.per_second / base:.2f} of binds not"
        f" guarded, with a write for each as well {alone / base:.2f}"
    )


def bench_rates(count: int) -> None:
    print("\nReal control plane: creates and binds")
    with (
        control_plane() as bench,
        Product.start(bench.plane, bench.plane.directory / "product", direct=True) as product,
        allowing_webhook(bench.plane, bench.plane.directory / "nothing") as asked,
    ):
        rows = _rows(bench, product, asked, count)
        _print_rows(rows)
        _print_ratios(rows)


# -- the controller --------------------------------------------------------------------------


def bench_controller(pods: int, namespaces: int) -> None:
    print(f"\nController: {pods:,} assigned pods in {namespaces} namespaces")
    with control_plane() as bench:
        names = [
            bench.namespace(f"team-{number}", mode="deferred", with_quota=True)
            for number in range(namespaces)
        ]
        requests = [
            request_bytes(
                f"/api/v1/namespaces/{names[number % namespaces]}/pods",
                pod_body(f"pod-{number}", "node-0"),
            )
            for number in range(pods)
        ]
        bench.load(requests, 16, b" 201 ")
        bench.pods = pods  # these names are taken
        with Product.start(bench.plane, bench.plane.directory / "product") as product:
            _measure_controller(bench, product, names, pods)


def _measure_controller(bench: Bench, product: Product, names: Sequence[str], pods: int) -> None:
    wanted = pods * 100
    wait_until(lambda: _counted(bench) == wanted, "every pod is counted")
    product.controller.kill()
    product.controller.start(waits=False)
    began = time.monotonic()
    product.controller.wait_until_ready()
    synced = time.monotonic() - began
    print(f"  pods listed and ready {synced:.1f} s after the start")
    pid = product.controller.pid
    print(f"  memory {resident_mib(pid):.0f} MiB, processor {processor_seconds(pid):.1f} s")
    lags = _lags(bench, names)
    p50, p99 = (lags[int(len(lags) * share)] for share in (0.5, 0.99))
    print(f"  a bound pod is in `used` after {p50:.2f} s (p50), {p99:.2f} s (p99)")


def _lags(bench: Bench, names: Sequence[str]) -> list[float]:
    """Bind a pod in each namespace, one after the other; how long until it is in `used`, sorted."""
    requests, pods = bench.creates(names, len(names))
    bench.load(requests, 16, b" 201 ")
    bound_at: dict[str, float] = {}
    counted_at: dict[str, float] = {}
    before = used_of(bench)
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set() and len(counted_at) < len(pods):
            now_used = used_of(bench)
            now = time.monotonic()
            for space, used in now_used.items():
                if space in bound_at and space not in counted_at and used > before[space]:
                    counted_at[space] = now

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for (space, _), request in zip(pods, bench.binds(pods), strict=True):
            bench.load([request], 1, b" 201 ")
            bound_at[space] = time.monotonic()
        wait_until(lambda: len(counted_at) == len(pods), "every bound pod is counted")
    finally:
        stop.set()
        looker.join()
    return sorted(max(0.0, counted_at[space] - at) for space, at in bound_at.items())


def used_of(bench: Bench) -> dict[str, int]:
    """Millis of `requests.cpu` that the ledger of each namespace calls used."""
    found = bench.plane.rest.get("/apis/deferredquota.io/v1alpha1/quotaledgers")
    return {
        item["metadata"]["namespace"]: sum(
            _millis(account["used"].get("requests.cpu", "0"))
            for account in item.get("status", {}).get("quotas", [])
        )
        for item in found["items"]
    }


def wait_until_counted(bench: Bench, namespace: str) -> None:
    """Wait for the ledger of a namespace to count its quota.

    Until then a bind, or a pod that names its node, is turned away with 429 ("try again"). A
    ledger that is there before the quota is seen counts nothing.
    """

    def is_counted() -> bool:
        found = bench.plane.rest.get("/apis/deferredquota.io/v1alpha1/quotaledgers")
        return any(
            item["metadata"]["namespace"] == namespace and item.get("status", {}).get("quotas")
            for item in found["items"]
        )

    wait_until(is_counted, f"{namespace} is counted")


def _counted(bench: Bench) -> int:
    return sum(used_of(bench).values())


def _millis(amount: str) -> int:
    return int(amount[:-1]) if amount.endswith("m") else int(amount) * 1000


def resident_mib(pid: int) -> float:
    """Resident memory of a process in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", text)
    return int(kib) / 1024


def wait_until(
    is_so: Callable[[], bool], what: str, *, pause: float = 0.1, seconds: float = WAIT_SECONDS
) -> None:
    give_up = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > give_up:
            raise SystemExit(f"bench: not within {seconds:.0f} s: {what}")
        time.sleep(pause)
