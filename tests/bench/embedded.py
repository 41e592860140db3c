"""A server on an embedded cluster, reviews of its binds, and how fast they are answered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.load_generator import Result, request_bytes, run
from tests.controlplane.process import GUARD

CONTAINERS = 3
NAMESPACES = 128
WAIT_SECONDS = 60.0


def a_pod(namespace: str, name: str, *, is_assigned: bool = False) -> dict[str, Any]:
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
    return request_bytes("/validate?timeout=5s", json.dumps(body).encode())


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
    items += [a_pod(*place) for place in places]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return [review(*place) for place in places]


def processors() -> tuple[list[int], list[int]]:
    """Which processors the server and the load generator get."""
    usable = sorted(os.sched_getaffinity(0))
    return (usable[:1], usable[1:2]) if len(usable) > 1 else (usable, usable)


@contextmanager
def running(command: Sequence[str], announce: Path, log: Path) -> Iterator[Mapping[str, Any]]:
    """Run a server on its processor until the block is left; give what it announced.

    This process has the other one meanwhile, and then all that it had: what is started later, a
    whole control plane perhaps, would share the one with the load.
    """
    server_on, load_on = processors()
    usable = os.sched_getaffinity(0)

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
        os.sched_setaffinity(0, usable)
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
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:  # noqa: S310
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
) -> tuple[Result, Result, Result]:
    """Binds, the bare route, and the same reviews allowed, one after the other in one run."""
    ca = str(certs / "ca.crt")
    listen = ["--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--certs", str(certs)]
    announce = place / f"announce-{clients}.json"
    serve = [python, "-m", "webhook", "serve", "--embedded", str(place / "cluster.json")]
    with running(
        [*serve, *listen, "--announce", str(announce)], announce, place / "serve.log"
    ) as told:
        ours = run(told["webhook"]["url"], ca, requests, clients, b'"allowed":true')
    assert ours.wrong == 0, f"{ours.wrong} binds were not allowed"
    announce = place / f"flask-{clients}.json"
    with running(
        [python, "-m", "tests.bench.flask_routes", str(certs), str(announce)],
        announce,
        place / "flask.log",
    ) as told:
        nothing = [request_bytes("/nothing", b"{}")] * len(requests)
        route = run(told["webhook"]["url"], ca, nothing, clients, b"{}")
        allowed = run(told["webhook"]["url"], ca, requests, clients, b'"allowed":true')
    return ours, route, allowed
