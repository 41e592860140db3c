"""Figures of `scripts/bench`: decisions in the core, and binds over HTTPS.

Everything compared is measured in the same run. The server runs on one processor and the load
generator on another where there are two, as they would on two machines.
"""

from __future__ import annotations

import argparse
import os
import ssl
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

from tests.bench.check import bench_check
from tests.bench.embedded import a_pod, bench_https, quotas
from tests.bench.explain import bench_explain
from tests.bench.simulate import bench_simulate
from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.quota.charging.deferral import claim_for_bind, deferred_quotas
from webhook.quota.ledger.apply_usage import apply_usage
from webhook.quota.ledger.ledger import NEWEST, Admitted, Claim, Ledger, ReservationSource, admit
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS


def rate(work: Callable[[], None], seconds: float) -> float:
    """Calls per second: the median of five parts of the time."""
    rates = []
    for _ in range(5):
        calls, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds / 5:
            for _ in range(100):
                work()
            calls += 100
        rates.append(calls / elapsed)
    return statistics.median(rates)


def counted_ledger(pods: int) -> tuple[Ledger, Claim]:
    """A namespace with so many assigned pods, and the claim of one more."""
    seen = deferred_quotas([ResourceQuota.from_object(raw) for raw in quotas("ns")], DEFERRED_KEYS)
    count = NamespaceUsage()
    count.set_quotas(seen)
    for number in range(pods):
        raw = a_pod("ns", f"pod-{number}", is_assigned=True)
        raw["metadata"]["resourceVersion"] = str(number + 1)
        count.put(Pod.from_object(raw))
    ledger = apply_usage(None, count.totals(pods))
    claim = claim_for_bind(
        Pod.from_object(a_pod("ns", "new")),
        seen,
        source=ReservationSource.BIND,
        observed_version=NEWEST,
    )
    assert ledger is not None
    assert claim is not None
    return ledger, claim


def bench_core(seconds: float, largest: int) -> None:
    print("Core: a pod of three containers against three quotas, one processor")
    seen = deferred_quotas([ResourceQuota.from_object(raw) for raw in quotas("ns")], DEFERRED_KEYS)
    raw = a_pod("ns", "new")
    parsed = Pod.from_object(raw)

    def decide(ledger: Ledger, one: Pod) -> None:
        claim = claim_for_bind(one, seen, source=ReservationSource.BIND, observed_version=NEWEST)
        assert claim is not None
        assert isinstance(admit(ledger, claim)[1], Admitted)

    base = 0.0
    for pods in (1, 1_000, largest):
        ledger, _ = counted_ledger(pods)
        found = rate(partial(decide, ledger, parsed), seconds)
        base = base or found
        shown = f"{pods:,} pods in the namespace"
        print(f"  decisions/s, {shown:<30}{found:>12,.0f}{found / base:>8.2f} x")
    found = rate(lambda: decide(ledger, Pod.from_object(raw)), seconds)
    print(f"  decisions/s, {'the pod read from its object':<30}{found:>12,.0f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each figure of the core")
    parser.add_argument("--largest", type=int, default=100_000, help="pods of a namespace, core")
    parser.add_argument("--binds", type=int, default=16_000, help="over HTTPS, in all")
    parser.add_argument("--only", choices=("core", "https"), help="measure one part")
    parser.add_argument(
        "--pods", type=int, default=50_000, help="of the controller, --cluster, --elastic"
    )
    parser.add_argument(
        "--requests", type=int, default=3_000, help="of each rate, --cluster, --elastic"
    )
    parser.add_argument("--documents", type=int, default=10_000, help="of --check")
    parser.add_argument("--rounds", type=int, default=3, help="of --line and others with rounds")
    parser.add_argument("--rate", type=float, default=200.0, help="requests/s, --production")
    parser.add_argument("--lasting", type=float, default=20.0, help="s of a load, --production")
    parser.add_argument("--pending", type=int, default=5_000, help="pods, --production")
    parser.add_argument(
        "--crowd", type=int, default=1000, help="pods of each part, --line, --waiting"
    )
    parser.add_argument(
        "--sizes",
        default="37500/5000,150000/1250,150000/5000",
        help="pods/namespaces of each column, --scale",
    )
    parts = parser.add_mutually_exclusive_group()
    for name, part in PARTS.items():
        parts.add_argument(
            f"--{name}", dest="part", action="store_const", const=part, help=part.__doc__
        )
    return parser.parse_args()


def _check(options: argparse.Namespace) -> None:
    """Manifests judged by the command."""
    bench_check(options.documents, options.rounds)


def _explain(options: argparse.Namespace) -> None:
    """A pod of a large snapshot."""
    bench_explain(5_000, 50_000, options.rounds)


def _simulate(_: argparse.Namespace) -> None:
    """100,000 pods in simulated time."""
    bench_simulate(100_000)


# the others need a control plane, and are imported where they are asked for


def _cluster(options: argparse.Namespace) -> None:
    """Measure on a real control plane."""
    from tests.bench import cluster  # noqa: PLC0415

    cluster.bench_rates(options.requests)
    if options.pods:
        cluster.bench_controller(options.pods, namespaces=500)


def _line(options: argparse.Namespace) -> None:
    """Pods that wait, with a scheduler."""
    from tests.bench import line  # noqa: PLC0415

    line.bench_line(options.crowd, options.rounds)


def _waiting(options: argparse.Namespace) -> None:
    """From freed quota to the next pod, on a control plane."""
    from tests.bench import waiting  # noqa: PLC0415

    waiting.bench_waiting(options.crowd, options.rounds)


def _elastic(options: argparse.Namespace) -> None:
    """Elastic quotas, on a control plane."""
    from tests.bench import elastic  # noqa: PLC0415

    elastic.bench_elastic(options.requests, options.pods)


def _node_fit(options: argparse.Namespace) -> None:
    """Binds in each mode of nodeFit, on a control plane."""
    from tests.bench import node_fit  # noqa: PLC0415

    node_fit.bench_node_fit(min(100, options.requests), options.rounds)


def _commands(_: argparse.Namespace) -> None:
    """Answers of the command line, on a control plane."""
    from tests.bench import commands  # noqa: PLC0415

    commands.bench_commands()


def _production(options: argparse.Namespace) -> None:
    """Certificates, replicas and settings that change under load, on a control plane."""
    from tests.bench import production  # noqa: PLC0415

    production.bench_production(options.rate, options.lasting, options.pending)


def _scale(options: argparse.Namespace) -> None:
    """Very many pods, quotas and namespaces."""
    from tests.bench import scale  # noqa: PLC0415

    sizes = [size.split("/") for size in options.sizes.split(",")]
    scale.bench_scale([(int(pods), int(namespaces)) for pods, namespaces in sizes])


PARTS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "check": _check,
    "explain": _explain,
    "simulate": _simulate,
    "cluster": _cluster,
    "line": _line,
    "waiting": _waiting,
    "elastic": _elastic,
    "node-fit": _node_fit,
    "commands": _commands,
    "production": _production,
    "scale": _scale,
}


def main() -> None:
    options = _options()
    print(f"Python {sys.version.split()[0]}, {ssl.OPENSSL_VERSION}, {os.cpu_count()} processors\n")
    if options.part is not None:
        options.part(options)
        return
    if options.only != "https":
        bench_core(options.seconds, options.largest)
    if options.only != "core":
        bench_https(options.binds)


if __name__ == "__main__":
    main()
