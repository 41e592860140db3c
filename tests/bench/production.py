"""What `scripts/bench --production` measures: what an administrator fears of a webhook.

Clients that send half of what they should; certificates, configurations and replicas that change
under load, by the product's own rotation and through a real API server; how long a start takes,
and how much memory one replica has. Certificates live for minutes here instead of months.
"""

from __future__ import annotations

import http.client
import json
import os
import selectors
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from tests.bench import embedded, steady
from tests.bench.cluster import (
    Bench,
    binding_body,
    child_pids,
    pod_body,
    resident_mib,
    wait_until_counted,
)
from tests.bench.steady import Span, Steady, reachable
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.behind_service import behind_service
from tests.e2e.cluster.certificates.kept_certificates import KeptCertificates, kept_certificates
from tests.e2e.cluster.kubelet import LOOPBACK_SERVICES, mount
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.outages.changed import with_lives
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.waiting import eventually
from tests.soak.sampling import sample

HALVES: Final = 64
_CLIENT_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
_HALF_SENT: Final = (
    b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)
_LEAF_SECONDS: Final = 120
_CA_SECONDS: Final = 3600
_PUBLISH_SECONDS: Final = 5
_KEPT_SECONDS: Final = 1.0
"""How long connections still go to a replica that was told to end."""
_SPACE: Final = "guarded"
_RELOADED: Final = '"configuration reloaded"'
_ALLOWED: Final = b'"allowed":true'
_TURNS: Final = 3
_WIPES: Final = 5
_SHARE: Final = 2 / 3
"""What of the rate that the machine can do is used at most: above it, requests wait for others."""
_MIB: Final = 1 << 20


def bench_production(rate: float, seconds: float, pods: int) -> None:
    """Print all figures, and how busy the machine was.

    Args:
        rate: Requests a second of each load.
        seconds: How long each load is looked at where nothing says when it is over.
        pods: How many pods wait in the cluster of the replica whose memory is measured.
    """
    print("load of the machine, 1, 5 and 15 minutes: {:.1f} {:.1f} {:.1f}".format(*os.getloadavg()))
    bench_halves(rate, seconds)
    with tempfile.TemporaryDirectory(prefix="deferred-quota-bench-") as scratch:
        directory = Path(scratch)
        lives = partial(with_lives, leaf=_LEAF_SECONDS, ca=_CA_SECONDS, publish=_PUBLISH_SECONDS)
        with (
            ControlPlane.start(
                directory / "plane",
                scheduler=False,
                apiserver_flags=LOOPBACK_SERVICES,
                say=print,
            ) as plane,
            behind_service(
                plane, directory / "product", lives, webhooks=3, controllers=2
            ) as product,
        ):
            plane.add_nodes(1)
            context = ssl.create_default_context(cafile=str(plane.ca_file))
            context.load_cert_chain(plane.kubeconfig().with_suffix(".pem"))
            bench = Bench(plane, context)
            with kept_certificates(plane, product) as certificates:
                Changes(bench, product, certificates, rate, seconds).measure()
                measure_wiped_bundles(certificates)
            measure_replica(bench, product, pods)


# -- clients that send half ------------------------------------------------------------------------


def bench_halves(rate: float, seconds: float) -> None:
    """Print how much longer reviews take beside clients that send half of what they should."""
    print(f"Half-open handshakes and half-sent bodies, {HALVES} of each, kept up")
    print(f"  {'':<34}{'p50 ms':>9}{'p99 ms':>9}{'most ms':>9}{'failed':>8}")
    with tempfile.TemporaryDirectory(prefix="deferred-quota-bench-") as scratch:
        place = Path(scratch)
        certs = place / "certs"
        command = [sys.executable, "-m", "webhook"]
        bootstrap = [*command, "certs", "bootstrap", "--dir", str(certs)]
        subprocess.run(bootstrap, check=True, capture_output=True)
        reviews = embedded.snapshot(place / "cluster.json", 16_000)
        announce = place / "announce.json"
        listen = ["--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--certs", str(certs)]
        serve = [*command, "serve", "--embedded", str(place / "cluster.json"), *listen]
        with embedded.running(
            [*serve, "--announce", str(announce)], announce, place / "serve.log"
        ) as announced:
            port = int(announced["webhook"]["url"].rpartition(":")[2])
            _compare_halves(port, certs / "ca.crt", reviews, rate, seconds)


def _compare_halves(port: int, ca: Path, reviews: list[bytes], rate: float, seconds: float) -> None:
    context = ssl.create_default_context(cafile=str(ca))
    bodies = [each.partition(b"\r\n\r\n")[2] for each in reviews]

    def request(number: int) -> tuple[str, str, bytes]:
        return "POST", "/validate?timeout=5s", bodies[number % len(bodies)]

    def connect() -> http.client.HTTPConnection:
        return http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)

    def spent(keeps: bool, rate: float) -> Span:
        with Steady(connect, request, _ALLOWED, rate, keeps=keeps) as load:
            time.sleep(1.0)  # connections are made first
            began = time.monotonic()
            return load.span(began, began + seconds / _TURNS)

    for keeps in (True, False):
        most = reachable(connect, request, _ALLOWED, keeps=keeps)
        even = min(rate, most * _SHARE)
        alone, beside, renewed = Span(()), Span(()), 0
        for _ in range(_TURNS):  # the machine may be busier at one time than at another
            alone += spent(keeps, even)
            with Halves(port, context) as halves:
                beside += spent(keeps, even)
            renewed += halves.renewed
        kind = "kept connections" if keeps else "a new connection each"
        print(f"  {kind}: {even:.0f} reviews/s, of {most:.0f} that are reached")
        _print_span("  alone", alone)
        _print_span("  beside them", beside)
        added = (beside.percentile(0.99) - alone.percentile(0.99)) * 1000
        print(f"  {'':<4}added to p99: {added:.0f} ms; {renewed} halves were closed and came again")


class Halves:
    """Clients that send half of a handshake or of a body, and come again when they are closed."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.renewed = 0
        self._port, self._context = port, context
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for number in range(2 * HALVES):
                self._open(selector, is_body=bool(number % 2))
            while not self._stopping.is_set():
                for key, _ in selector.select(0.1):
                    sock: Any = key.fileobj
                    if _is_closed(sock):
                        selector.unregister(sock)
                        sock.close()
                        self.renewed += 1
                        self._open(selector, is_body=key.data)
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]

    def _open(self, selector: selectors.BaseSelector, *, is_body: bool) -> None:
        sock = socket.create_connection(("127.0.0.1", self._port))
        if is_body:
            sock = self._context.wrap_socket(sock, server_hostname="127.0.0.1")
        sock.sendall(_HALF_SENT if is_body else _CLIENT_HELLO)
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, is_body)


def _is_closed(sock: socket.socket) -> bool:
    """Read what is there, and return whether the server closed it."""
    try:
        return not sock.recv(65536)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


# -- changes under load ----------------------------------------------------------------------------


@dataclass
class Changes:
    """Changes of the product while requests go through the API server at an even rate.

    A request is a bind by dry run, which the API server asks a webhook about and does not store.
    """

    bench: Bench
    product: Product
    certificates: KeptCertificates
    rate: float
    seconds: float

    def measure(self) -> None:
        """Print what becomes of the requests meanwhile."""
        self.bench.namespace(_SPACE, mode="deferred", with_quota=True)
        wait_until_counted(self.bench, _SPACE)
        pods = f"/api/v1/namespaces/{_SPACE}/pods"
        made = self.bench.plane.rest.create(pods, json.loads(pod_body("waits")))
        body = binding_body("waits", made["metadata"]["uid"])
        path = f"{pods}/waits/binding?dryRun=All"

        def request(_: int) -> tuple[str, str, bytes]:
            return "POST", path, body

        most = reachable(self._connect, request, b"201 ")
        self.rate = min(self.rate, most * _SHARE)
        with Steady(self._connect, request, b"201 ", self.rate) as load:
            self.load = load
            print("\nThree replicas, two controllers; binds by dry run through the API server,")
            print(f"{self.rate:.0f} a second of {most:.0f} that are reached")
            print(f"  {'':<34}{'p50 ms':>9}{'p99 ms':>9}{'most ms':>9}{'failed':>8}")
            time.sleep(2.0)
            self._during("nothing changes", lambda: "")
            self._during("leaf renewal", self.renew)
            self._during("change of the CA, leaders killed", self.change_ca)
            self._during("rolling update of three replicas", self.roll)
            self._during("three configuration reloads", self.reload)

    def _connect(self) -> http.client.HTTPConnection:
        place = self.bench.plane.ports.apiserver
        return http.client.HTTPSConnection(
            "127.0.0.1", place, context=self.bench.context, timeout=30
        )

    def _during(self, what: str, change: Callable[[], str]) -> None:
        began = time.monotonic()
        said = change()
        time.sleep(max(1.0, self.seconds - (time.monotonic() - began)))
        span = self.load.span(began, time.monotonic())
        _print_span(what, span)
        if said:
            print(f"  {'':<4}{said}")
        for problem in span.failed[:3]:
            print(f"  {'':<4}{problem[:300]}")

    # -- what changes

    def renew(self) -> str:
        """Wait for the controller to replace the serving certificate."""
        self.certificates.wait_for_renewal(2 * _LEAF_SECONDS)
        began = time.monotonic()
        self.certificates.wait_until_served()
        return f"served by all {time.monotonic() - began:.1f} s after the Secret was written"

    def change_ca(self) -> str:
        """Change the CA; kill the controller that leads as soon as each phase has begun."""
        began = time.monotonic()
        self.certificates.begin_ca_change()
        return ", ".join(
            f"{phase} after {time.monotonic() - began:.0f} s"
            for phase in self.certificates.kill_leaders()
        )

    def roll(self) -> str:
        """Replace the replicas one by one, with one more in between, as the Deployment does."""
        front, api = self.product.front, Api(self.bench.plane.rest_as("admin"))
        mount(api, self.product.certificates)
        with self.product.another_webhook() as extra:
            for replica in list(self.product.webhooks[:3]):
                others = [one.port for one in self.product.webhooks if one is not replica]
                ending = threading.Thread(target=replica.terminate)
                ending.start()
                time.sleep(_KEPT_SECONDS)
                front.ports = tuple(others)
                ending.join()
                mount(api, self.product.certificates)  # as a kubelet does for each new pod
                replica.start()
                front.ports = (*others, replica.port)
            assert extra.is_running
            front.ports = tuple(one.port for one in self.product.webhooks if one is not extra)
            extra.terminate()
        return ""

    def reload(self) -> str:
        """Change a setting that all processes read again."""
        file, processes = self.product.configuration_file, self.product.processes
        for number in range(3):
            before = {one.name: one.log.read_text().count(_RELOADED) for one in processes}
            given = json.loads(file.read_text())
            part = file.with_suffix(".part")
            part.write_text(json.dumps({**given, "limits": {"logAllowedEvery": 1000 + number}}))
            part.replace(file)
            eventually(
                lambda: all(
                    one.log.read_text().count(_RELOADED) > before[one.name]  # noqa: B023
                    for one in processes
                ),
                "all have read it",
            )
        return ""


def measure_wiped_bundles(certificates: KeptCertificates) -> None:
    """Print how long it takes until a `caBundle` is back in all entries."""
    lasted = []
    for _ in range(_WIPES):
        before, began = certificates.bundles(), time.monotonic()
        certificates.wipe_bundles()
        eventually(lambda: certificates.bundles() == before, "it is back", growth=1)  # noqa: B023
        lasted.append(time.monotonic() - began)
    shown = ", ".join(f"{each:.1f}" for each in sorted(lasted))
    print(f"\ncaBundle wiped from all entries, back after {shown} s")


def measure_replica(bench: Bench, product: Product, pods: int) -> None:
    """Print how long a replica takes to be ready, and what memory it has then."""
    bench.namespace("waiting", mode="deferred", with_quota=True)
    wait_until_counted(bench, "waiting")
    requests, _ = bench.creates(["waiting"], pods)
    bench.load(requests, steady.CLIENTS, b" 201 ")
    print(f"\nOne replica with the token of its service account, {pods:,} pending pods")
    began = time.monotonic()
    with product.another_webhook() as replica:
        print(f"  ready {time.monotonic() - began:.1f} s after its start")
        time.sleep(10.0)
        most = sum(map(resident_mib, (replica.pid, *child_pids(replica.pid))))
        print(f"  memory of its processes {sample(replica.pid).memory / _MIB:.0f} MiB;", end=" ")
        print(f"{most:.0f} MiB where what they share counts for each")


def _print_span(what: str, span: Span) -> None:
    p50, p99, most = (span.percentile(share) * 1000 for share in (0.5, 0.99, 1.0))
    print(f"  {what:<34}{p50:>9.1f}{p99:>9.1f}{most:>9.1f}{len(span.failed):>8}", flush=True)
