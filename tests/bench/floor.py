"""The floor under what the product does: a call that does nothing, a write of a ledger, a gate.

The webhook is the yardstick of `flask_routes`: it reads a review and allows it. It is registered
for binds in namespaces with the label `bench: nothing`. As a program this module takes gates off
the pods of a namespace as soon as it sees them. Arguments: a kubeconfig, the namespace, and a file
to leave when it has begun.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.bench.watch import pod_changes
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import Process
from tests.e2e.cluster.objects import Api, bind
from tests.e2e.cluster.waiting import eventually
from tests.e2e.harness import make_certificates
from webhook.kube.api import PODS, ListOptions, WatchEvent, split_key
from webhook.kube.rest import RestClient, load_config

NAME = "bench-nothing"
LABELS = {"bench": "nothing"}
RESERVATIONS = 50
REMOVERS = 8
_NO_GATES = [{"op": "remove", "path": "/spec/schedulingGates"}]
LEDGERS = "/apis/deferredquota.io/v1alpha1"


@contextmanager
def allowing_webhook(plane: ControlPlane, directory: Path) -> Iterator[str]:
    """Let the API server ask a webhook that does nothing about binds in a namespace; yield it."""
    directory.mkdir(exist_ok=True)
    certificates = make_certificates(directory / "certs")
    announce = directory / "announce.json"
    server = Process(
        NAME,
        [sys.executable, "-m", "tests.bench.flask_routes", certificates, announce],
        directory / "flask.log",
        lambda: "" if announce.exists() else "it has not announced its address",
    )
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    server.start()
    try:
        url = json.loads(announce.read_bytes())["webhook"]["url"]
        ca = base64.b64encode((certificates / "ca.crt").read_bytes()).decode()
        plane.rest.create("/api/v1/namespaces", {"metadata": {"name": "asked", "labels": LABELS}})
        plane.rest.create(path, _registration(f"{url}/validate", ca))
        try:
            eventually(lambda: _is_asked(plane, directory / "asked"), "the webhook is asked")
            yield "asked"
        finally:
            plane.rest.delete(f"{path}/{NAME}")
    finally:
        server.kill()


def _is_asked(plane: ControlPlane, note: Path) -> bool:
    bind(Api(plane.rest), "asked", "no-pod", "nowhere", uid="of-no-pod", dry_run=True)
    return note.exists()


def _registration(url: str, ca: str) -> dict[str, object]:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
    }
    entry = {
        "name": "nothing.bench.example",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url, "caBundle": ca},
        "namespaceSelector": {"matchLabels": LABELS},
        "rules": [rule],
        "sideEffects": "None",
    }
    return {"metadata": {"name": NAME}, "webhooks": [entry]}


def ledger_writes(
    plane: ControlPlane, like: str, namespaces: Sequence[str], count: int
) -> list[bytes]:
    """Write a ledger like that of a namespace into others; return more such writes.

    It has at most `RESERVATIONS`: just after a burst it may have thousands for a moment.
    Of two patches of one object that come together the API server applies one again: each client
    gets an object of its own.
    """
    ledger = plane.rest.get(f"{LEDGERS}/namespaces/{like}/quotaledgers")["items"][0]
    name, status = ledger["metadata"]["name"], ledger["status"]
    lines = status.get("reservations", "").splitlines()[:RESERVATIONS]
    status = {**status, "reservations": "\n".join(lines)}
    made = {**{key: ledger[key] for key in ("apiVersion", "kind")}, "metadata": {"name": name}}
    paths = [f"{LEDGERS}/namespaces/{namespace}/quotaledgers" for namespace in namespaces]
    for path in paths:
        plane.rest.create(path, made)
    writes = []
    for number in range(count):
        body = json.dumps({"status": {**status, "serial": number}}).encode()
        head = (
            f"PATCH {paths[number % len(paths)]}/{name}/status HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/merge-patch+json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writes.append(head.encode() + body)
    return writes


@contextmanager
def gates_removed(plane: ControlPlane, namespace: str) -> Iterator[None]:
    """Have another process take the gates off all pods of a namespace."""
    announce = plane.directory / "removes-gates"
    process = Process(
        "bench-gates",
        [sys.executable, "-m", "tests.bench.floor", plane.kubeconfig(), namespace, announce],
        plane.directory / "gates.log",
        lambda: "" if announce.exists() else "it has not begun",
    )
    process.start()
    try:
        yield
    finally:
        process.kill()


def remove_gates(kubeconfig: Path, namespace: str, announce: Path) -> None:
    """Take gates off, one request for each pod, for ever."""
    client = RestClient(load_config(kubeconfig, environ={}))
    options = ListOptions(namespace)

    def remove(event: WatchEvent) -> None:
        client.patch(PODS, split_key(event.key)[1], _NO_GATES, namespace=namespace)

    version = client.list(PODS, options).resource_version
    announce.touch()
    with ThreadPoolExecutor(REMOVERS) as removers:
        for event in pod_changes(client, options, version):
            if event.type == "ADDED":
                removers.submit(remove, event)


if __name__ == "__main__":
    remove_gates(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
