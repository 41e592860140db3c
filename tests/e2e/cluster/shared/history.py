"""The history of what namespaces took of a quota that they share.

The observer shares nothing with the product but the names of fields: it watches all pods and all
cluster quotas, puts what it saw in the order of etcd's revisions, and adds up after each of them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api, Object
from tests.e2e.cluster.waiting import eventually
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, PODS, Kind, WatchEvent
from webhook.kube.rest import RestClient, load_config
from webhook.kube.rest.watch import RestWatch
from webhook.quota.amounts.quantity import Quantity

CPU: Final = "requests.cpu"
OVER: Final = ("Succeeded", "Failed")
"""Phases of pods that take nothing."""

_ZERO: Final = Quantity.parse("0")
_PATH: Final = "/apis/deferredquota.io/v1alpha1/clusterdeferredquotas"

_numbers = itertools.count()


def cluster_quotas(name: str = "", subresource: str = "") -> str:
    """Give the path of the cluster quotas, of one, or of a part of one."""
    return "/".join(part for part in (_PATH, name, subresource) if part)


def everything(_pod: Object) -> bool:
    """Say that a pod is charged, whichever it is."""
    return True


@dataclass
class Replay:
    """What a history comes to.

    Attributes:
        most: The most cpu that assigned pods of the namespaces took together at any revision.
        granted: The most that was granted together.
        revisions: How many revisions were looked at.
        problems: What must not be, each with its revision.
    """

    most: Quantity = _ZERO
    granted: Quantity = _ZERO
    revisions: int = 0
    problems: list[str] = field(default_factory=list)


class History:
    """Follows all pods and cluster quotas from now on.

    Args:
        plane: The control plane.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._client = RestClient(load_config(plane.kubeconfig(), environ={}))
        self._api = Api(plane.rest)
        self._events: list[tuple[int, str, WatchEvent]] = []
        self._lock = threading.Lock()
        self._begin: dict[str, tuple[Object, ...]] = {}
        self._streams: dict[str, RestWatch] = {}
        self._is_over = False
        self._threads: list[threading.Thread] = []
        self._faults: list[str] = []

    def __enter__(self) -> Self:
        for kind in (PODS, CLUSTER_DEFERRED_QUOTAS):
            found = self._client.list(kind)
            self._begin[kind.plural] = tuple(dict(one) for one in found.items)
            args = (kind, found.resource_version)
            thread = threading.Thread(target=self._follow, args=args, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
            for stream in self._streams.values():
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

    def raises(self, quota: str, namespace: str) -> int:
        """Count how often a namespace was granted more of a cluster quota."""
        self._catch_up()
        sums, found = _Sums(quota, everything), 0
        with self._lock:
            events = sorted(self._events, key=lambda one: one[0])
        for _, plural, event in events:
            before = sums.held(namespace)
            sums.take(plural, event.type, event.object)
            found += sums.held(namespace) > before
        return found

    def _follow(self, kind: Kind, version: int) -> None:
        """Watch until the end; an API server that is busy may end a watch, and it goes on then."""
        try:
            while (stream := self._watch(kind, version)) is not None:
                for event in stream:
                    if event.type == "ERROR":
                        self._faults.append(f"{kind.plural}: {event.object}")
                        return
                    version = event.resource_version
                    if event.type != "BOOKMARK":
                        with self._lock:
                            self._events.append((version, kind.plural, event))
        except Exception as err:  # noqa: BLE001 - told by the test
            self._faults.append(f"{kind.plural}: {err!r}")

    def _watch(self, kind: Kind, version: int) -> RestWatch | None:
        stream = self._client.watch(kind, resource_version=version, timeout_seconds=3000)
        with self._lock:
            self._streams[kind.plural] = stream
            if self._is_over:
                stream.close()
                return None
        return stream

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
        try:
            for plural, answer in made.items():
                assert answer.ok, str(answer)
                is_here = partial(self._has_seen, plural, int(answer.version))
                eventually(lambda: self._faults or is_here(), "the watches are here")  # noqa: B023
        finally:
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
        is_over = change == "DELETED" or pod.get("status", {}).get("phase") in OVER
        if is_over or not spec.get("nodeName") or not self._counts(dict(pod)):
            return
        taken = _ZERO
        for container in spec["containers"]:
            taken += Quantity.parse(
                str(container.get("resources", {}).get("requests", {}).get("cpu", "0"))
            )
        self._pods[uid] = pod["metadata"]["namespace"], taken

    def _taken(self) -> dict[str, Quantity]:
        found = dict.fromkeys(self._held, _ZERO)
        for namespace, taken in self._pods.values():
            if namespace in found:
                found[namespace] += taken
        return found

    def held(self, namespace: str) -> Quantity:
        """Return what a namespace holds."""
        return self._held.get(namespace, _ZERO)

    @property
    def assigned(self) -> Quantity:
        return sum(self._taken().values(), _ZERO)

    @property
    def granted(self) -> Quantity:
        return sum(self._held.values(), _ZERO)

    def problems(self, hard: Quantity | None) -> Iterator[str]:
        for namespace, taken in self._taken().items():
            if taken > self._held[namespace]:
                yield f"{namespace} takes {taken} and holds {self._held[namespace]}"
        for what, total in (("assigned", self.assigned), ("granted", self.granted)):
            if hard is not None and total > hard:
                yield f"{total} {what}, limited to {hard}"
