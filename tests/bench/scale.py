"""What `scripts/bench --scale` measures: a controller and a webhook beside very many pods.

Real processes of the product; the API server is the fake one, in this process, and gives lists in
parts as a real one does. Each namespace has two quotas. The rows differ in one number at a time, so
that what grows with pods, and what with namespaces, can be read off them.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from werkzeug.wrappers import Request, Response

from tests.bench.cluster import child_pids, processor_seconds, resident_mib, wait_until
from tests.cli.clusters import write_kubeconfig
from tests.controlplane.ports import free_ports
from tests.controlplane.process import Process
from tests.e2e.harness import make_certificates
from tests.kube.rest.served import served
from tests.operations.healthy import shipped_objects
from tests.operations.scenes import load
from webhook.fakecluster.rest.apiserver import ApiServer
from webhook.fakecluster.rest.routes import parse_path
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.fakecluster.storage.stored_object import StoredObject
from webhook.kube.api import PODS, QUOTA_LEDGERS, ListOptions

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

WAIT_SECONDS: Final = 900.0
BOOKMARK_SECONDS: Final = 20.0
SETTLES: Final = 100
POD_MILLIS: Final = 100


class Paged(ApiServer):
    """The fake API server, with `limit` and `continue` of lists."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self._stored = cluster
        self._lists: dict[str, tuple[list[StoredObject], int]] = {}

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        limit = request.args.get("limit", "")
        if request.method != "GET" or not limit or request.args.get("watch"):
            return super().__call__(environ, start_response)
        route = parse_path(request.path, self._stored.store.kinds())
        if route is None or route.name:
            return super().__call__(environ, start_response)
        options = ListOptions(
            route.namespace,
            request.args.get("labelSelector", ""),
            request.args.get("fieldSelector", ""),
        )
        token, _, begin = request.args.get("continue", "").rpartition(".")
        if token:
            chosen, version = self._lists[token]
        else:
            chosen, version = self._stored.select(route.kind, options)
            token = str(len(self._lists))
            self._lists[token] = chosen, version
        at, following = int(begin or 0), int(begin or 0) + int(limit)
        metadata = {"resourceVersion": str(version)}
        if following < len(chosen):
            metadata["continue"] = f"{token}.{following}"
        else:
            self._lists[token] = [], 0
        head = {
            "kind": f"{route.kind.kind}List",
            "apiVersion": route.kind.api_version,
            "metadata": metadata,
        }
        items = b",".join(stored.data() for stored in chosen[at:following])
        body = b'%s,"items":[%s]}' % (json.dumps(head).encode()[:-1], items)
        return Response(body, content_type="application/json")(environ, start_response)


def assigned_pod(namespace: str, name: str) -> dict[str, Any]:
    """A pod as clusters have it: with a token, an address, and what its node reports."""
    resources = {
        "requests": {"cpu": f"{POD_MILLIS}m", "memory": "128Mi"},
        "limits": {"cpu": "200m", "memory": "256Mi"},
    }
    own = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()
    token, image, started = f"kube-api-access-{own[:5]}", "registry.example/app:1", _time_of(own)
    projected = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    container = {
        "name": "main",
        "image": image,
        "resources": resources,
        "volumeMounts": [{"name": token, "mountPath": "/var/run/secrets", "readOnly": True}],
    }
    reported = {
        "name": "main",
        "image": image,
        "imageID": f"{image}@sha256:{own}",
        "containerID": f"containerd://{own}",
        "state": {"running": {"startedAt": started}},
        "allocatedResources": resources["requests"],
        "resources": resources,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "web"}},
        "spec": {
            "containers": [container],
            "nodeName": "node-0",
            "volumes": [{"name": token, "projected": {"sources": projected}}],
        },
        "status": {
            "phase": "Running",
            "podIP": ".".join(["10", *(str(int(own[at : at + 2], 16)) for at in (0, 2, 4))]),
            "startTime": started,
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": started}
            ],
            "containerStatuses": [reported],
        },
    }


def _time_of(own: str) -> str:
    second = int(own[:8], 16) % 86_400
    return f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def _quotas(namespace: str) -> Iterator[dict[str, Any]]:
    for name, hard in (
        ("cpu", {"requests.cpu": "1M", "limits.cpu": "1M"}),
        ("memory", {"requests.memory": "1Pi", "limits.memory": "1Pi"}),
    ):
        yield {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"hard": hard},
        }


def objects_of(pods: int, spaces: Sequence[str]) -> Iterator[dict[str, Any]]:
    for space in spaces:
        labels = {"deferredquota.io/mode": "deferred"}
        yield {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": space, "labels": labels},
        }
        yield from _quotas(space)
    for number in range(pods):
        yield assigned_pod(spaces[number % len(spaces)], f"pod-{number}")


@dataclass
class Scale:
    """A fake API server with very many objects, and where it is reached."""

    cluster: FakeCluster
    kubeconfig: Path
    directory: Path
    spaces: Sequence[str]

    def server(self, name: str, *arguments: str | Path) -> Process:
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "webhook", *arguments, "--kubeconfig", self.kubeconfig]
        command += ["--ops", f"127.0.0.1:{port}", "--log-level", "warning"]
        environment = {"POD_NAME": name}
        log = self.directory / f"{name}.log"
        return Process(name, command, log, lambda: _missing(port), environment)

    def controller(self, number: int) -> Process:
        return self.server(f"controller-{number}", "controller")

    def counted(self) -> int:
        """How many ledgers count their quotas."""
        ledgers, _ = self.cluster.select(QUOTA_LEDGERS, ListOptions())
        return sum(b'"quotas":[{' in one.parts.get("status", b"") for one in ledgers)

    def used(self, space: str) -> int:
        """Millis of `requests.cpu` that a namespace's ledger calls used."""
        ledgers, _ = self.cluster.select(QUOTA_LEDGERS, ListOptions(space))
        status = json.loads(ledgers[0].parts["status"])
        amounts = (one["used"].get("requests.cpu") for one in status["quotas"])
        text = next(amount for amount in amounts if amount is not None)
        return int(text[:-1]) if text.endswith("m") else int(text) * 1000

    def settle(self, space: str, name: str) -> float:
        """Store a pod with a node; return after how long the ledger calls it used."""
        before = self.used(space)
        began = time.monotonic()
        FakeClient(self.cluster).create(PODS, assigned_pod(space, name))
        wait(lambda: self.used(space) > before, f"{name} is counted", pause=0.01)
        return time.monotonic() - began


def _missing(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return "" if answer.status == 200 else answer.read().decode()
    finally:
        connection.close()


def wait(is_so: Callable[[], bool], what: str, *, pause: float = 0.5) -> None:
    wait_until(is_so, what, pause=pause, seconds=WAIT_SECONDS)


@contextmanager
def scale_of(pods: int, namespaces: int) -> Iterator[Scale]:
    spaces = [f"team-{number}" for number in range(namespaces)]
    cluster = FakeCluster(history_limit=1_000_000)
    load(cluster, *shipped_objects())
    load(cluster, *objects_of(pods, spaces))
    over = threading.Event()

    def remind() -> None:
        while not over.wait(BOOKMARK_SECONDS):
            cluster.send_bookmarks()

    with (
        tempfile.TemporaryDirectory(prefix="deferred-quota-scale-") as scratch,
        served(cluster, Paged) as client,
    ):
        directory = Path(scratch)
        kubeconfig = write_kubeconfig(directory, client.config.server)
        threading.Thread(target=remind, daemon=True).start()
        try:
            yield Scale(cluster, kubeconfig, directory, spaces)
        finally:
            over.set()


def ready_after(process: Process) -> float:
    """Start a process; return after how long it is ready."""
    began = time.monotonic()
    process.start(waits=False)
    wait(lambda: _is_ready(process), f"{process.name} is ready", pause=0.05)
    return time.monotonic() - began


def _is_ready(process: Process) -> bool:
    if not process.is_running:
        raise SystemExit(f"bench: {process.name} ended:\n{process.log.read_text()[-3000:]}")
    try:
        return not process.ready()
    except OSError:
        return False


def _row(pods: int, namespaces: int) -> dict[str, str]:
    with scale_of(pods, namespaces) as scale:
        first, standby = scale.controller(0), scale.controller(1)
        webhook_files = make_certificates(scale.directory / "certs")
        webhook = scale.server(
            "webhook", "serve", "--certs", webhook_files, "--listen", "127.0.0.1:0"
        )
        started = [first, standby, webhook]
        try:
            figures = {}
            for name, figure in _figures(scale, first, standby, webhook):
                print(f"    {name:<44}{figure:>10}", file=sys.stderr, flush=True)
                figures[name] = figure
            return figures
        finally:
            for process in started:
                process.kill()


def _figures(
    scale: Scale, first: Process, standby: Process, webhook: Process
) -> Iterator[tuple[str, str]]:
    began = time.monotonic()
    ready_after(first)
    wait(lambda: scale.counted() == len(scale.spaces), "every ledger counts")
    yield "first start: every ledger written, s", f"{time.monotonic() - began:.1f}"
    first.kill()
    yield "controller ready, s", f"{ready_after(first):.1f}"
    yield "processor of that, s", f"{processor_seconds(first.pid):.1f}"
    scale.settle(scale.spaces[0], "leads-again")
    yield "standby ready, s", f"{ready_after(standby):.1f}"
    step = max(1, len(scale.spaces) // SETTLES)
    lags = sorted(
        scale.settle(space, f"bound-{number}")
        for number, space in enumerate(scale.spaces[::step][:SETTLES])
    )
    yield "a bound pod is in used, p50 s", f"{lags[len(lags) // 2]:.2f}"
    yield "the same, p99 s", f"{lags[int(len(lags) * 0.99)]:.2f}"
    yield "controller memory, MiB", f"{resident_mib(first.pid):.0f}"
    yield "standby memory, MiB", f"{resident_mib(standby.pid):.0f}"
    yield "webhook ready, s", f"{ready_after(webhook):.1f}"
    yield "webhook memory, MiB", f"{_tree(webhook.pid):.0f}"
    first.kill()
    yield (
        "killed; standby has counted a pod after, s",
        (f"{scale.settle(scale.spaces[-1], 'taken-over'):.1f}"),
    )


def _tree(pid: int) -> float:
    """Resident memory of a process or of its only worker, whichever is more."""
    return max(resident_mib(each) for each in (pid, *child_pids(pid)))


def bench_scale(sizes: Sequence[tuple[int, int]]) -> None:
    """Measure each size, and print one column for each."""
    print("\nFake API server, two quotas in each namespace; all on the same processors")
    rows = []
    for pods, namespaces in sizes:
        print(f"  {pods:,} pods in {namespaces:,} namespaces ...", file=sys.stderr)
        rows.append(_row(pods, namespaces))
    print(f"  {'pods':<44}" + "".join(f"{pods:>10,}" for pods, _ in sizes))
    print(f"  {'namespaces':<44}" + "".join(f"{spaces:>10,}" for _, spaces in sizes))
    for name in rows[0]:
        print(f"  {name:<44}" + "".join(f"{row[name]:>10}" for row in rows))
