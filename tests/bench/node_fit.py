"""What `scripts/bench --node-fit` measures: binds that `nodeFit` judges, in pairs with others.

One client binds pods of one guarded namespace on a real control plane, without a scheduler: blocks
with `nodeFit: Off`, `Warn` and `Deny` by turns, in the same run. A block is bound to a node with
room, or to one that is full; its pods are deleted before the next one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.cluster import (
    Bench,
    binding_body,
    control_plane,
    pod_body,
    processor_seconds,
    used_of,
    wait_until,
    wait_until_counted,
)
from tests.bench.load_generator import Result, request_bytes
from tests.controlplane.nodes import node
from tests.e2e.cluster.configured import configured
from tests.e2e.cluster.product import Product

MODES: Final = ("Off", "Warn", "Deny")
TARGETS: Final = {"roomy": "room on the node", "full": "no room on the node"}
_SPACE: Final = "guarded"
_ON_NODE: Final = 110
"""Pods on the node that is full: a kubelet's default."""
_SETTLE_SECONDS: Final = 1.0


def bench_node_fit(count: int, rounds: int) -> None:
    """Print what a bind takes in each mode.

    Args:
        count: Binds of each block.
        rounds: Blocks of each mode and node.
    """
    print(f"Real control plane: guarded binds, one client, {rounds} rounds of {count}")
    with (
        control_plane() as bench,
        Product.start(
            bench.plane,
            bench.plane.directory / "product",
            direct=True,
            configuration={"nodeFit": "Deny"},
        ) as product,
    ):
        _prepare(bench)
        found = list(_rounds(bench, product, count, rounds))
    for target, what in TARGETS.items():
        print(
            f"  {what:<24}{'p50 ms':>8}{'p99 ms':>8}{'most':>8}{'x Off':>8}"
            "   cpu ms: webhook     all   x Off"
        )
        _print_pairs([{mode: one[mode, target] for mode in MODES} for one in found])


def _prepare(bench: Bench) -> None:
    bench.namespace(_SPACE, mode="deferred", with_quota=True)
    bench.namespace("others")
    for name, cpu in (("roomy", "100k"), ("full", "11")):
        bench.plane.rest.create("/api/v1/nodes", node(name, cpu=cpu, memory="1Pi", pods=100_000))
        untaint = [{"op": "remove", "path": "/spec/taints"}]
        bench.plane.rest.patch(f"/api/v1/nodes/{name}", untaint, "json")
    for name in TARGETS:
        requests = [
            request_bytes("/api/v1/namespaces/others/pods", pod_body(f"{name}-{one}", name))
            for one in range(_ON_NODE)
        ]
        bench.load(requests, 16, b" 201 ")
    wait_until_counted(bench, _SPACE)


@dataclass(frozen=True)
class _Block:
    """What one block of binds took."""

    result: Result
    webhook: float
    """Processor seconds of the webhook, for each bind."""
    every: float
    """The same of the control plane and the product together: what waits for a processor on a
    machine that is busy with other work is not in it."""


def _rounds(
    bench: Bench, product: Product, count: int, rounds: int
) -> Iterator[dict[tuple[str, str], _Block]]:
    for number in range(-1, rounds):
        found = {}
        # neither is always the first
        for mode in MODES if number % 2 else MODES[::-1]:
            with configured(product, nodeFit=mode):
                for target in TARGETS:
                    found[mode, target] = _block(bench, product, target, count, mode)
        if number >= 0:  # the first one warms connections and caches
            yield found


def _block(bench: Bench, product: Product, target: str, count: int, mode: str) -> _Block:
    requests, names = bench.creates([_SPACE], count)
    bench.load(requests, 16, b" 201 ")
    uids = {
        one["metadata"]["name"]: one["metadata"]["uid"]
        for one in bench.plane.rest.get(f"/api/v1/namespaces/{_SPACE}/pods")["items"]
    }
    requests = [
        request_bytes(
            f"/api/v1/namespaces/{_SPACE}/pods/{name}/binding",
            binding_body(name, uids[name], target),
        )
        for _, name in names
    ]
    time.sleep(_SETTLE_SECONDS)  # caches have the nodes and the pods
    expected = b" 403 " if (mode, target) == ("Deny", "full") else b" 201 "
    webhook = product.webhooks[0].pid
    others = (bench.plane.apiserver.pid, bench.plane.etcd.pid, product.controller.pid)
    before = [processor_seconds(pid) for pid in (webhook, *others)]
    result = bench.load(requests, 1, expected)
    after = [processor_seconds(pid) for pid in (webhook, *others)]
    spent = [(end - start) / count for start, end in zip(before, after, strict=True)]
    bench.plane.rest.delete(f"/api/v1/namespaces/{_SPACE}/pods", grace_seconds=0)
    wait_until(lambda: used_of(bench)[_SPACE] == 0, "the pods are gone")
    return _Block(result, spent[0], sum(spent))


def _print_pairs(pairs: Sequence[dict[str, _Block]]) -> None:
    for mode in MODES:
        blocks = [one[mode] for one in pairs]
        latencies = sorted(each for one in blocks for each in one.result.latencies)
        p50, p99 = (latencies[int(len(latencies) * share)] * 1000 for share in (0.5, 0.99))
        ratio = statistics.median(
            one[mode].result.percentile(0.5) / one["Off"].result.percentile(0.5) for one in pairs
        )
        of_processor = statistics.median(one[mode].every / one["Off"].every for one in pairs)
        webhook = statistics.median(one.webhook for one in blocks) * 1000
        every = statistics.median(one.every for one in blocks) * 1000
        print(
            f"    nodeFit: {mode:<13}{p50:>8.2f}{p99:>8.2f}{latencies[-1] * 1000:>8.1f}"
            f"{ratio:>8.3f}{webhook:>18.2f}{every:>8.2f}{of_processor:>8.3f}"
        )
