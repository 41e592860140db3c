"""What scripts/bench measures: decisions in the core, and binds over HTTPS.

Everything compared is measured in the same run. The server runs on one processor and the load
generator on another where there are two, as they would on two machines.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import bench_check
import bench_explain
import bench_load
import bench_simulate

from tests.controlplane.process import GUARD
from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.quota.charging.deferral import claim_for_bind, deferred_quotas
from webhook.quota.ledger.apply_usage import apply_usage
from webhook.quota.ledger.ledger import NEWEST, Admitted, Claim, Ledger, ReservationSource, admit
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS

CONTAINERS = 3
NAMESPACES = 128
WAIT_SECONDS = 60.0


def pod(namespace: str, name: str, *, is_assigned: bool = False) -> dict[str, Any]:
    resources = {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"cpu": "200m", "memory": "256Mi"},
    }
    containers = [
        {"name": f"c{number}", "image": "registry.example/app:1", "resources": resources}
        for number in range(CONTAINERS)
    ]
    spec: dict[str, Any] = {"containers": containers, "priorityClassName": "gold"}
    if is_assigned:
        spec["nodeName"] = "node-1"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}"},
        "spec": spec,
    }


def quotas(namespace: str) -> list[dict[str, Any]]:
    """Three quotas that all apply: one for all pods, two by priority class."""
    hard = {"requests.cpu": "1M", "requests.memory": "1Pi", "limits.cpu": "1M"}
    gold = {"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}
    other = {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["silver"]}
    selectors: dict[str, list[dict[str, Any]]] = {"all": [], "gold": [gold], "not-silver": [other]}
    return [
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"},
            "spec": {"hard": hard, "scopeSelector": {"matchExpressions": selector}},
        }
        for name, selector in selectors.items()
    ]


# -- the core --------------------------------------------------------------------------------


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
        raw = pod("ns", f"pod-{number}", is_assigned=True)
        raw["metadata"]["resourceVersion"] = str(number + 1)
        count.put(Pod.from_object(raw))
    ledger = apply_usage(None, count.totals(pods))
    claim = claim_for_bind(
        Pod.from_object(pod("ns", "new")),
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
    raw = pod("ns", "new")
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


# -- over HTTPS ------------------------------------------------------------------------------


def review(namespace: str, name: str) -> bytes:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}"},
        "target": {"kind": "Node", "name": "node-1"},
    }
    kind = {"group": "", "version": "v1", "kind": "Binding"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": resource,
        "subResource": "binding",
        "requestKind": kind,
        "requestResource": resource,
        "requestSubResource": "binding",
        "name": name,
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "system:kube-scheduler", "groups": ["system:authenticated"]},
        "object": binding,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return bench_load.request_bytes("/validate?timeout=5s", json.dumps(body).encode())


def snapshot(path: Path, pods: int) -> list[bytes]:
    """Write a cluster of waiting pods; return the reviews of their binds, namespaces in turn."""
    items: list[Mapping[str, Any]] = []
    names = [f"ns-{number}" for number in range(NAMESPACES)]
    for namespace in names:
        labels = {"deferredquota.io/mode": "deferred", "deferredquota.io/gating": "never"}
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": namespace, "labels": labels},
            }
        )
        items += quotas(namespace)[:1]
    places = [(names[number % NAMESPACES], f"pod-{number}") for number in range(pods)]
    items += [pod(*place) for place in places]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return [review(*place) for place in places]


def processors() -> tuple[list[int], list[int]]:
    """Which processors the server and the load generator get."""
    usable = sorted(os.sched_getaffinity(0))
    return (usable[:1], usable[1:2]) if len(usable) > 1 else (usable, usable)


@contextmanager
def running(command: Sequence[str], announce: Path, log: Path) -> Iterator[Mapping[str, Any]]:
    """Run a server on its processor until the block is left; give what it announced."""
    server_on, load_on = processors()

    def pin() -> None:
        os.sched_setaffinity(0, server_on)

    # a benchmark that is killed leaves no server behind
    guarded = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), *command]
    with log.open("wb") as output:
        server = subprocess.Popen(guarded, stderr=output, preexec_fn=pin)  # noqa: PLW1509
    os.sched_setaffinity(0, load_on)
    try:
        yield _announced(server, announce, log)
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:  # what was measured is measured
            server.kill()
            server.wait()


def _announced(server: subprocess.Popen[bytes], announce: Path, log: Path) -> Mapping[str, Any]:
    give_up = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < give_up and server.poll() is None:
        if announce.exists():
            told: Mapping[str, Any] = json.loads(announce.read_bytes())
            if not told["ops"]["url"] or _is_ready(told["ops"]["url"]):
                return told
        time.sleep(0.05)
    raise SystemExit(f"bench: the server did not become ready:\n{log.read_text()}")


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def bench_https(binds: int) -> None:
    server_on, load_on = processors()
    print(f"\nHTTPS, kept connections; server on processor {server_on}, load on {load_on}")
    with tempfile.TemporaryDirectory(prefix="deferred-quota-bench-") as scratch:
        place = Path(scratch)
        python = sys.executable
        certs = place / "certs"
        subprocess.run(
            [python, "-m", "webhook", "certs", "bootstrap", "--dir", certs],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        requests = snapshot(place / "cluster.json", binds)
        rows = []
        for clients in (1, 16):
            half = requests[: binds // 4] if clients == 1 else requests[binds // 4 :]
            rows.append((clients, *_measure(place, python, certs, half, clients)))
        print(f"  {'':<34}{'clients':>8}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}")
        for clients, ours, route, allowed in rows:
            for name, one in (
                ("bind, decided and reserved", ours),
                ("do-nothing Flask route", route),
                ("Flask allows the same, undecided", allowed),
            ):
                p50, p99 = one.percentile(0.5) * 1000, one.percentile(0.99) * 1000
                print(f"  {name:<34}{clients:>8}{one.per_second:>9,.0f}{p50:>9.2f}{p99:>9.2f}")
            for name, one in (("ratio of the rates", ours), ("ratio of the floor", allowed)):
                ratio = one.per_second / route.per_second
                print(f"  {name:<34}{clients:>8}{ratio:>9.2f}")


def _measure(
    place: Path, python: str, certs: Path, requests: list[bytes], clients: int
) -> tuple[bench_load.Result, bench_load.Result, bench_load.Result]:
    """Binds, the bare route, and the same reviews allowed, one after the other in one run."""
    ca = str(certs / "ca.crt")
    listen = ["--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--certs", str(certs)]
    announce = place / f"announce-{clients}.json"
    serve = [python, "-m", "webhook", "serve", "--embedded", str(place / "cluster.json")]
    with running(
        [*serve, *listen, "--announce", str(announce)], announce, place / "serve.log"
    ) as told:
        ours = bench_load.run(told["webhook"]["url"], ca, requests, clients, b'"allowed":true')
    assert ours.wrong == 0, f"{ours.wrong} binds were not allowed"
    announce = place / f"flask-{clients}.json"
    script = str(Path(__file__).with_name("bench_flask.py"))
    with running(
        [python, script, str(certs), str(announce)], announce, place / "flask.log"
    ) as told:
        nothing = [bench_load.request_bytes("/nothing", b"{}")] * len(requests)
        route = bench_load.run(told["webhook"]["url"], ca, nothing, clients, b"{}")
        allowed = bench_load.run(told["webhook"]["url"], ca, requests, clients, b'"allowed":true')
    return ours, route, allowed


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
    bench_check.bench_check(options.documents, options.rounds)


def _explain(options: argparse.Namespace) -> None:
    """A pod of a large snapshot."""
    bench_explain.bench_explain(5_000, 50_000, options.rounds)


def _simulate(_: argparse.Namespace) -> None:
    """100,000 pods in simulated time."""
    bench_simulate.bench_simulate(100_000)


# the others need a control plane, and are imported where they are asked for


def _cluster(options: argparse.Namespace) -> None:
    """Measure on a real control plane."""
    import bench_cluster  # noqa: PLC0415

    bench_cluster.bench_rates(options.requests)
    if options.pods:
        bench_cluster.bench_controller(options.pods, namespaces=500)


def _line(options: argparse.Namespace) -> None:
    """Pods that wait, with a scheduler."""
    import bench_line  # noqa: PLC0415

    bench_line.bench_line(options.crowd, options.rounds)


def _waiting(options: argparse.Namespace) -> None:
    """From freed quota to the next pod, on a control plane."""
    import bench_waiting  # noqa: PLC0415

    bench_waiting.bench_waiting(options.crowd, options.rounds)


def _elastic(options: argparse.Namespace) -> None:
    """Elastic quotas, on a control plane."""
    import bench_elastic  # noqa: PLC0415

    bench_elastic.bench_elastic(options.requests, options.pods)


def _node_fit(options: argparse.Namespace) -> None:
    """Binds in each mode of nodeFit, on a control plane."""
    import bench_node_fit  # noqa: PLC0415

    bench_node_fit.bench_node_fit(min(100, options.requests), options.rounds)


def _commands(_: argparse.Namespace) -> None:
    """Answers of the command line, on a control plane."""
    import bench_commands  # noqa: PLC0415

    bench_commands.bench_commands()


def _production(options: argparse.Namespace) -> None:
    """Certificates, replicas and settings that change under load, on a control plane."""
    import bench_production  # noqa: PLC0415

    bench_production.bench_production(options.rate, options.lasting, options.pending)


def _scale(options: argparse.Namespace) -> None:
    """Very many pods, quotas and namespaces."""
    import bench_scale  # noqa: PLC0415

    sizes = [size.split("/") for size in options.sizes.split(",")]
    bench_scale.bench_scale([(int(pods), int(namespaces)) for pods, namespaces in sizes])


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
