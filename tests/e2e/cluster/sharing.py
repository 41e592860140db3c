"""Namespaces that share a quota, and the history of what they took of it.

The observer shares nothing with the product but the names of fields: it watches all pods and all
cluster quotas, puts what it saw in the order of etcd's revisions, and adds up after each of them.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer, Api, Object
from tests.e2e.cluster.product import apply_namespace
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.cluster.api import CLUSTER_DEFERRED_QUOTAS, PODS, Kind, WatchEvent
from webhook.cluster.live import LiveClient, load_access
from webhook.quota.quantity import Quantity

CPU: Final = "requests.cpu"
ZERO: Final = Quantity.parse("0")
_PATH: Final = "/apis/deferredquota.io/v1alpha1/clusterdeferredquotas"
_OVER: Final = ("Succeeded", "Failed")

_numbers = itertools.count()


def cluster_quotas(name: str = "", subresource: str = "") -> str:
    """Give the path of the cluster quotas, of one, or of a part of one."""
    return "/".join(part for part in (_PATH, name, subresource) if part)


def everything(_pod: Object) -> bool:
    """Say that a pod is charged, whichever it is."""
    return True


# -- history -------------------------------------------------------------------------------


@dataclass
class Replay:
    """What a history comes to.

    Attributes:
        most: The most cpu that assigned pods of the namespaces took together at any revision.
        granted: The most that was granted together.
        revisions: How many revisions were looked at.
        problems: What must not be, each with its revision.
    """

    most: Quantity = ZERO
    granted: Quantity = ZERO
    revisions: int = 0
    problems: list[str] = field(default_factory=list)


class History:
    """Follows all pods and cluster quotas from now on.

    Args:
        plane: The control plane.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._client = LiveClient(load_access(plane.kubeconfig(), environ={}))
        self._api = Api(plane.rest)
        self._events: list[tuple[int, str, WatchEvent]] = []
        self._lock = threading.Lock()
        self._begin: dict[str, tuple[Object, ...]] = {}
        self._streams: list[Any] = []
        self._threads: list[threading.Thread] = []
        self._faults: list[str] = []

    def __enter__(self) -> Self:
        for kind in (PODS, CLUSTER_DEFERRED_QUOTAS):
            found = self._client.list(kind)
            self._begin[kind.plural] = tuple(dict(one) for one in found.items)
            stream = self._client.watch(
                kind, resource_version=found.resource_version, timeout_seconds=3000
            )
            self._streams.append(stream)
            thread = threading.Thread(target=self._follow, args=(kind, stream), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stream in self._streams:
            stream.close()
        for thread in self._threads:
            thread.join(5)
        self._client.close()

    def replay(
        self,
        quota: str,
        hard: str = "",
        *,
        since: int = 0,
        counts: Callable[[Object], bool] = everything,
    ) -> Replay:
        """Add up, at every revision, what was assigned and what was granted.

        At every revision each namespace that the quota names took no more than it held; and with
        `hard`, all of them together no more than that, assigned or granted.

        Args:
            quota: Name of the cluster quota.
            hard: Its limit, if it was never exceeded by force; else empty.
            since: Look for problems from this revision on.
            counts: Says which pods the quota selects.
        """
        self._catch_up()
        assert not self._faults, self._faults
        sums = _Sums(quota, counts)
        found = Replay()
        for plural, items in self._begin.items():
            for item in items:
                sums.take(plural, "ADDED", item)
        with self._lock:
            events = sorted(self._events, key=lambda one: one[0])
        for version, plural, event in events:
            sums.take(plural, event.type, event.object)
            if version < since:
                continue
            found.revisions += 1
            found.most = max(found.most, sums.assigned)
            found.granted = max(found.granted, sums.granted)
            limit = Quantity.parse(hard) if hard else None
            found.problems += [f"{version}: {words}" for words in sums.problems(limit)]
        return found

    def _follow(self, kind: Kind, stream: Iterator[WatchEvent]) -> None:
        try:
            for event in stream:
                if event.type == "BOOKMARK":
                    continue
                if event.type == "ERROR":
                    self._faults.append(f"{kind.plural}: {event.object}")
                    return
                with self._lock:
                    self._events.append((event.resource_version, kind.plural, event))
        except Exception as err:  # noqa: BLE001 - told by the test
            self._faults.append(f"{kind.plural}: {err!r}")

    def _catch_up(self) -> None:
        """Wait until both watches have told of what is made now."""
        name = f"marker-{next(_numbers)}"
        gate = [{"name": "example.com/marker"}]
        container = {"name": "main", "image": "none"}
        pod = {
            "metadata": {"name": name},
            "spec": {"containers": [container], "schedulingGates": gate},
        }
        quota = {
            "apiVersion": CLUSTER_DEFERRED_QUOTAS.api_version,
            "kind": CLUSTER_DEFERRED_QUOTAS.kind,
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {"matchLabels": {"team": name}}, "hard": {CPU: "0"}},
        }
        made = {
            PODS.plural: self._api.create(objects.pods("default"), pod),
            CLUSTER_DEFERRED_QUOTAS.plural: self._api.create(cluster_quotas(), quota),
        }
        for plural, answer in made.items():
            assert answer.ok, str(answer)
            eventually(lambda: self._has_seen(plural, int(answer.version)), "the watches are here")  # noqa: B023
        self._api.delete(objects.pods("default", name), grace_seconds=0)
        self._api.delete(cluster_quotas(name))

    def _has_seen(self, plural: str, version: int) -> bool:
        with self._lock:
            return any(kind == plural and at >= version for at, kind, _ in self._events)


class _Sums:
    def __init__(self, quota: str, counts: Callable[[Object], bool]) -> None:
        self._quota = quota
        self._counts = counts
        self._pods: dict[str, tuple[str, Quantity]] = {}
        self._held: dict[str, Quantity] = {}

    def take(self, plural: str, change: str, obj: Mapping[str, Any]) -> None:
        if plural == PODS.plural:
            self._take_pod(change, obj)
        elif obj["metadata"]["name"] == self._quota:
            named = (obj.get("status") or {}).get("namespaces") or []
            self._held = {
                one["name"]: Quantity.parse(str(one.get("granted", {}).get(CPU, "0")))
                for one in (named if change != "DELETED" else [])
            }

    def _take_pod(self, change: str, pod: Mapping[str, Any]) -> None:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        self._pods.pop(uid, None)
        is_over = change == "DELETED" or pod.get("status", {}).get("phase") in _OVER
        if is_over or not spec.get("nodeName") or not self._counts(dict(pod)):
            return
        taken = ZERO
        for container in spec["containers"]:
            taken += Quantity.parse(
                str(container.get("resources", {}).get("requests", {}).get("cpu", "0"))
            )
        self._pods[uid] = pod["metadata"]["namespace"], taken

    def _taken(self) -> dict[str, Quantity]:
        found = dict.fromkeys(self._held, ZERO)
        for namespace, taken in self._pods.values():
            if namespace in found:
                found[namespace] += taken
        return found

    @property
    def assigned(self) -> Quantity:
        return sum(self._taken().values(), ZERO)

    @property
    def granted(self) -> Quantity:
        return sum(self._held.values(), ZERO)

    def problems(self, hard: Quantity | None) -> Iterator[str]:
        for namespace, taken in self._taken().items():
            if taken > self._held[namespace]:
                yield f"{namespace} takes {taken} and holds {self._held[namespace]}"
        for what, total in (("assigned", self.assigned), ("granted", self.granted)):
            if hard is not None and total > hard:
                yield f"{total} {what}, limited to {hard}"


# -- namespaces ----------------------------------------------------------------------------


class Team:
    """Namespaces with one label, and the cluster quota that selects them.

    Attributes:
        name: The value of the label `team`, and the name of the quota.
        tenants: The namespaces.
    """

    def __init__(self, plane: ControlPlane, size: int, *, pacing: str = "none") -> None:
        self.plane = plane
        self.api = Api(plane.rest)
        self.name = f"team-{next(_numbers)}"
        self._pacing = pacing
        self._quotas: set[str] = set()
        with ThreadPoolExecutor(8) as pool:
            self.tenants = list(pool.map(lambda _: self.add(), range(size)))

    def add(self, *, joins: bool = True, mode: str = "deferred") -> Tenant:
        """Make another namespace; one that does not join lacks the label."""
        name = f"e2e-{self.name}-{next(_numbers)}"
        apply_namespace(self.api, name, mode=mode, pacing=self._pacing)
        tenant = Tenant(self.plane.rest, name)
        if joins:
            self.label(tenant)
        return tenant

    def label(self, tenant: Tenant, *, joins: bool = True) -> None:
        """Let a namespace join, or leave."""
        labels = {"team": self.name if joins else None}
        path = f"/api/v1/namespaces/{tenant.namespace}"
        answer = self.api.patch(path, {"metadata": {"labels": labels}})
        assert answer.ok, str(answer)

    def wanted(self, cpu: str, **spec: Any) -> Object:
        """Write a cluster quota for the team."""
        selector = {"matchLabels": {"team": self.name}}
        return {
            "apiVersion": CLUSTER_DEFERRED_QUOTAS.api_version,
            "kind": CLUSTER_DEFERRED_QUOTAS.kind,
            "metadata": {"name": self.name},
            "spec": {"namespaceSelector": selector, "hard": {CPU: cpu}, **spec},
        }

    def share(self, cpu: str, *, waits: bool = True, **spec: Any) -> Answer:
        """Make the quota, and wait until it is enforced in all namespaces of the team."""
        answer = self.api.create(cluster_quotas(), self.wanted(cpu, **spec))
        assert answer.ok, str(answer)
        if waits:
            self.is_counted(self.tenants)
        return answer

    def edit(self, cpu: str, *, waits: bool = True) -> None:
        """Set another limit."""
        before = self.status().get("observed")
        answer = self.api.patch(cluster_quotas(self.name), {"spec": {"hard": {CPU: cpu}}})
        assert answer.ok, str(answer)
        if waits:
            eventually(lambda: self.status().get("observed") != before, "the edit is known")
            self.is_counted(self.tenants)

    def unshare(self) -> None:
        """Delete the quota, and wait until no ledger knows it."""
        self.api.delete(cluster_quotas(self.name))
        for tenant in self.tenants:
            eventually(lambda: self.account not in tenant.accounts(), "the ledger forgets it")  # noqa: B023

    @property
    def account(self) -> str:
        """What ledgers and refusals call the quota."""
        return f"cdq/{self.name}"

    def status(self) -> Object:
        """Read the quota's status."""
        found = self.api.get(cluster_quotas(self.name))
        status: Object = found.body.get("status", {}) if found.ok else {}
        return status

    def is_counted(self, tenants: Sequence[Tenant], seconds: float = 60.0) -> None:
        """Wait until the quota says that it counts just these namespaces."""
        wanted = sorted(one.namespace for one in tenants)

        def counted() -> tuple[list[str], bool, str]:
            found = self.api.get(cluster_quotas(self.name)).body
            status = found.get("status", {})
            names = sorted(one["name"] for one in status.get("namespaces", []))
            is_so = status.get("observed", {}).get("uid") == found.get("metadata", {}).get("uid")
            said = {one["type"]: one["status"] for one in status.get("conditions", [])}
            return names, is_so, said.get("Counted", "")

        becomes(counted, (wanted, True, "True"), "namespaces that are counted", seconds)
        for tenant in tenants:
            eventually(lambda: self.account in tenant.accounts(), "the ledger has the account")  # noqa: B023

    def held(self) -> str:
        """Read what all namespaces hold together."""
        found = self.status().get("used", {}).get(CPU, "0")
        return str(found)

    def assigned(self) -> list[tuple[Tenant, str]]:
        """List the pods that run."""
        found: list[tuple[Tenant, str]] = []
        for tenant in self.tenants:
            for pod in self.api.get(objects.pods(tenant.namespace)).body["items"]:
                is_over = pod["status"].get("phase") in _OVER
                if pod["spec"].get("nodeName") and not is_over:
                    found.append((tenant, pod["metadata"]["name"]))
        return found

    def clear(self) -> None:
        """Delete all pods, at once."""
        for tenant in self.tenants:
            self.api.call("DELETE", objects.pods(tenant.namespace), {"gracePeriodSeconds": 0})

    def close(self) -> None:
        """Delete everything."""
        self.clear()
        self.api.delete(cluster_quotas(self.name))
        for tenant in self.tenants:
            self.api.delete(f"/api/v1/namespaces/{tenant.namespace}")


def is_late(answer: Answer) -> bool:
    """Say whether the API server gave up before it was answered, on a busy machine."""
    return answer.code == 500 and "context deadline exceeded" in answer.message


class Binders:
    """Threads that create pods of one cpu and bind them, over and over, in several namespaces.

    A pod that is refused, or not decided, is tried again until the block is left.

    Attributes:
        bound: The pods that were bound.
        refused: How many binds were refused because a quota is full.
        undecided: How many got no decision.
        problems: Answers that nobody should get.
    """

    def __init__(
        self, tenants: Sequence[Tenant], threads: int, *, ends_after: float | None = None
    ) -> None:
        self.bound: list[tuple[Tenant, str]] = []
        self.refused = self.undecided = 0
        self.problems: list[str] = []
        self._tenants = tenants
        self._ends_after = ends_after
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(threads)
        ]
        self._names = itertools.count()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        try:
            while not self._stopping.is_set():
                self._bind_one(self._tenants[number % len(self._tenants)])
                number += 1
        except Exception as err:
            self.problems.append(repr(err))
            raise

    def _bind_one(self, tenant: Tenant) -> None:
        name = f"b-{next(self._names)}"
        made = tenant.create(name, "1")
        if not made.ok:
            self.problems.append(f"create: {made}")
            return
        while not self._stopping.is_set():
            answer = tenant.bind(name, uid=made.uid)
            with self._lock:
                self.refused += answer.code == 403
                self.undecided += answer.code == 429 or is_late(answer)
                if answer.code == 201:
                    self.bound.append((tenant, name))
                elif answer.code not in (403, 429) and not is_late(answer):
                    self.problems.append(f"bind: {answer}")
            if answer.code == 201:
                self._end(tenant, name)
                return
            self._stopping.wait(0.02)
        tenant.delete(name)

    def _end(self, tenant: Tenant, name: str) -> None:
        if self._ends_after is not None:
            time.sleep(self._ends_after)
            tenant.finish(name)
