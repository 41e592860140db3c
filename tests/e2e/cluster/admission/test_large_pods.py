"""What tenants may write without limit takes no memory of the product, and no time."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer, Object
from tests.e2e.cluster.product import Product, Server, a_team
from tests.e2e.cluster.tenant import Tenant, edited_by_alice
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.quota.objects.names import QUOTA_RESERVED

_LABELS: Final = {f"l{number:05}": "" for number in range(30_000)}
"""About a megabyte of a stored pod, and two and a half of memory where it is kept."""
_FIRST: Final = 4
"""Pods until the memory has grown that is needed to read any."""
_PODS: Final = 10
_MOST_BYTES: Final = 900_000
"""By how much a pod may let a process grow; the pod itself is larger."""
_TRIES: Final = 2
_MORE_SECONDS: Final = 3.0
"""How much more of a processor a change of such a pod may take where quota is deferred."""
_LIMITS: Final = 10_000
_NAMES: Final = 16
_AT_ONCE: Final = 4
"""On a busy machine a client is not answered in time beside many others."""
_NAME_BYTES: Final = 2_500_000
_SLOW_PODS: Final = 8
_LONGEST_TIMEOUT_SECONDS: Final = 30
"""That a registration may give a webhook."""


def test_labels_of_pods_are_not_kept(
    plane: ControlPlane, product: Product, tenant: Tenant, plain: Tenant
) -> None:
    tenant.quota(hard={"requests.cpu": "1"})
    for where in (plain, tenant):
        alice = edited_by_alice(plane, where)
        for number in range(_FIRST):
            make(alice, f"first-{number}")
        catch_up(product, where)
        grown: list[dict[str, int]] = []
        made = [f"first-{number}" for number in range(_FIRST)]
        # what is kept of pods grows with each ten of them; what a process once needed does not
        while len(grown) < _TRIES and not any(map(_is_little, grown)):
            before = {one.name: memory_of(one) for one in product.processes}
            for _ in range(_PODS):
                made.append(f"large-{len(made)}")
                make(alice, made[-1])
            catch_up(product, where)
            grown.append({one.name: memory_of(one) - before[one.name] for one in product.processes})
        assert any(map(_is_little, grown)), (where.namespace, grown)
        # one after the other: an API server takes long to answer with all of them
        for name in made:
            path = objects.pods(where.namespace, name)
            assert where.api.call("DELETE", path, {"gracePeriodSeconds": 0}).ok


def test_names_that_no_pod_may_have_are_not_kept(
    plane: ControlPlane, product: Product, tenant: Tenant
) -> None:
    """The API server refuses them, but only after the webhook that gates new pods."""
    tenant.quota(hard={"requests.cpu": "2"})
    labels = {"deferredquota.io/gating": "auto"}
    namespace = f"/api/v1/namespaces/{tenant.namespace}"
    assert tenant.api.patch(namespace, {"metadata": {"labels": labels}}).ok
    alice = edited_by_alice(plane, tenant)
    becomes(partial(is_judged, alice), True, "whether the webhook lets a pod through")
    long = "x" * _NAME_BYTES
    container = {"name": long, "resources": {"requests": {"cpu": "2"}}}
    grown: list[int] = []
    # what is no name is not kept: by it the memory grows that is needed to read any such pod
    for fields in ({"metadata": {"annotations": {"a": long}}}, {"containers": [container]}):
        before = sum(map(memory_of, product.webhooks))
        make_one = partial(named, alice, fields=fields, round_number=len(grown))
        with ThreadPoolExecutor(_AT_ONCE) as clients:
            assert [*clients.map(make_one, range(_NAMES))] == [422] * _NAMES
        grown.append(sum(map(memory_of, product.webhooks)) - before)
    assert grown[1] < _NAMES * _NAME_BYTES // 2, grown


def is_judged(alice: Tenant) -> bool:
    made = alice.create("may", "1", dry_run=True)
    return made.ok and "deferredquota.io/ungated" in made.body["metadata"].get("annotations", {})


def named(alice: Tenant, number: int, *, fields: Mapping[str, Any], round_number: int) -> int:
    return alice.create(f"named-{round_number}-{number}", "2", **fields).code


def _is_little(grown: Mapping[str, int]) -> bool:
    return max(grown.values()) < _PODS * _MOST_BYTES


def test_changes_of_a_pod_with_many_labels_take_no_more_processor_than_elsewhere(
    plane: ControlPlane, product: Product, tenant: Tenant, plain: Tenant
) -> None:
    assert product.webhooks
    seconds: dict[str, float] = {}
    for where in (plain, tenant):
        make(where, "large")
        groups = [plane.apiserver.pid, *(server.pid for server in product.webhooks)]
        begin = processor_seconds(groups)
        assert labelled(where, "example.com/any").ok
        seconds[where.namespace] = processor_seconds(groups) - begin
    assert seconds[tenant.namespace] < seconds[plain.namespace] + _MORE_SECONDS, seconds
    alice = edited_by_alice(plane, tenant)
    refused = labelled(alice, "deferredquota.io/any")
    assert (refused.code, "marks.deferredquota.io" in refused.message) == (403, True), refused


def test_limits_of_a_quota_take_the_api_server_time_by_their_number(
    plane: ControlPlane, product: Product, plain: Tenant
) -> None:
    """Not by its square, as a loop over a map does: that takes 14 times as long for four times."""
    assert product.webhooks
    seconds = {_LIMITS: 0.0, 4 * _LIMITS: 0.0}
    for number in 3 * (*seconds,):  # its collector of garbage runs in one and not in another
        hard = {f"count/{index:x}.a": "1" for index in range(number)}
        quota: Object = {"metadata": {"name": "large"}, "spec": {"hard": hard}}
        begin = processor_seconds([plane.apiserver.pid])
        answer = plain.api.create(objects.quotas(plain.namespace), quota, dry_run=True)
        seconds[number] += processor_seconds([plane.apiserver.pid]) - begin
        assert answer.ok, str(answer)
    assert seconds[4 * _LIMITS] < 10 * seconds[_LIMITS], seconds


@pytest.fixture
def neighbours(plane: ControlPlane, product: Product) -> Iterator[tuple[Tenant, Tenant]]:
    """Two namespaces whose pods wait behind our gate."""
    assert product.controllers
    with (
        a_team(plane, "e2e-slow", gating="always") as slow,
        a_team(plane, "e2e-neighbour", gating="always") as neighbour,
    ):
        for one in (slow, neighbour):
            one.quota(hard={"requests.cpu": "1"})
        yield slow, neighbour


def test_pods_that_are_slow_to_write_keep_no_condition_from_a_neighbour(
    product: Product, neighbours: tuple[Tenant, Tenant]
) -> None:
    slow, neighbour = neighbours
    with silent_webhook(slow, product.certificates) as calls:
        names = (f"slow-{number}" for number in itertools.count())
        eventually(lambda: slow.pod(next(names), "2").ok and is_called(calls), "a write waits")
        for name in itertools.islice(names, _SLOW_PODS):
            slow.pod(name, "2")
        eventually(lambda: unanswered_writes(product, slow), "a write has no answer", 60.0)
        neighbour.pod("waits", "2")
        becomes(lambda: neighbour.condition("waits", QUOTA_RESERVED)[1], "NeverFits", "its reason")


@contextlib.contextmanager
def silent_webhook(tenant: Tenant, certificates: Path) -> Iterator[SimpleQueue[ssl.SSLSocket]]:
    """Keep each write of the status of a pod of a namespace longer than any client waits for it.

    A pod with tens of thousands of entries does so too, on a machine that is slow enough. Without
    TLS the API server would give the webhook up after just as long as the client waits.
    """
    name = f"silent-{tenant.namespace}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    calls: SimpleQueue[ssl.SSLSocket] = SimpleQueue()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        Thread(target=keep_calls, args=(context, server, calls), daemon=True).start()
        registration = objects.a_registration(
            name,
            tenant.namespace,
            server.getsockname()[1],
            "pods/status",
            certificates=certificates,
            failurePolicy="Ignore",
            timeoutSeconds=_LONGEST_TIMEOUT_SECONDS,
        )
        assert tenant.api.create(objects.REGISTRATIONS, registration).ok
        try:
            yield calls
        finally:
            tenant.api.delete(f"{objects.REGISTRATIONS}/{name}")


def keep_calls(
    context: ssl.SSLContext, server: socket.socket, calls: SimpleQueue[ssl.SSLSocket]
) -> None:
    """Take connections of the API server, and answer none, until the server is closed."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with contextlib.suppress(OSError):  # one that the API server gives up
            calls.put(context.wrap_socket(connection, server_side=True))


def is_called(calls: SimpleQueue[ssl.SSLSocket]) -> bool:
    """Return whether a call has come within a second: a registration takes effect after a while."""
    ends = time.monotonic() + 1.0
    while calls.empty() and time.monotonic() < ends:
        time.sleep(0.05)
    return not calls.empty()


def unanswered_writes(product: Product, tenant: Tenant) -> list[dict[str, Any]]:
    """Return what controllers log of writes of conditions that were not answered."""
    lines = (line for server in product.controllers for line in server.log.read_text().splitlines())
    read = (json.loads(line) for line in lines if "writing a condition failed" in line)
    return [
        one
        for one in read
        if one.get("namespace") == tenant.namespace and "no answer within" in one.get("error", "")
    ]


def labelled(where: Tenant, label: str) -> Answer:
    """Ask for one more label of the large pod."""
    path = objects.pods(where.namespace, "large")
    return where.api.patch(path, {"metadata": {"labels": {label: ""}}})


def make(alice: Tenant, name: str) -> None:
    alice.pod(name, "2", metadata={"labels": _LABELS})


def catch_up(product: Product, where: Tenant) -> None:
    """Wait until the processes have seen all pods that there are."""
    pods = where.api.get("/api/v1/pods").body["items"]
    waiting = sum(not one["spec"].get("nodeName") for one in pods)
    for server in product.webhooks:
        becomes(partial(objects_of, server, "pods"), waiting, server.name)
    for server in product.controllers:
        becomes(partial(objects_of, server, "pods of the controller"), len(pods), server.name)


def objects_of(server: Server, kind: str) -> int:
    return int(server.metric("cache_objects", kind=kind))


def memory_of(server: Server) -> int:
    """Resident bytes of all of its processes."""
    pages = sum(int(text.split()[1]) for text in texts_of([server.pid], "statm"))
    assert pages
    return pages * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(groups: Sequence[int]) -> float:
    """Seconds that all processes of these groups have spent on a processor."""
    ticks = 0
    for text in texts_of(groups, "stat"):
        # the name, which may hold blanks, ends with the last parenthesis
        fields = text.rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    assert ticks
    return ticks / os.sysconf("SC_CLK_TCK")


def texts_of(groups: Sequence[int], name: str) -> Iterator[str]:
    """Contents of a file in /proc, of each process of these groups."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) not in groups:
                continue
            text = (process / name).read_text()
        except (ProcessLookupError, FileNotFoundError):
            continue
        yield text
