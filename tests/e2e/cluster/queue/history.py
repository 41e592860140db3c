"""An observer of pods: who got a node and who ended, in the order of the API server's revisions."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final, Self

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.waiting import eventually
from webhook.kube.api import PODS, ApiError
from webhook.kube.rest import RestClient, load_config
from webhook.kube.rest.watch import RestWatch
from webhook.quota.amounts.quantity import Quantity

_ZERO: Final = Quantity.parse("0")
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Moment:
    """A pod that was seen with a node, or ended, for the first time.

    Attributes:
        name: Its name.
        at: When that was seen, monotonic seconds.
        revision: The version that brought it.
    """

    name: str
    at: float
    revision: int


class History:
    """Follows all pods of a cluster from now on, until the block is left.

    Attributes:
        created: Namespace → the name of a pod → the version that brought it.
        binds: Namespace → the binds in it, in their order.
        ends: Namespace → the ends of pods with a node in it, in their order.
        most: Namespace → the most cpu that its assigned, live pods asked for at any revision.
        errors: What went wrong; nothing is missed while it is empty.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.created: dict[str, dict[str, int]] = defaultdict(dict)
        self.binds: dict[str, list[Moment]] = defaultdict(list)
        self.ends: dict[str, list[Moment]] = defaultdict(list)
        self.most: dict[str, Quantity] = defaultdict(lambda: _ZERO)
        self.errors: list[str] = []
        self._taken: dict[str, dict[str, Quantity]] = defaultdict(dict)
        self._sums: dict[str, Quantity] = defaultdict(lambda: _ZERO)
        self._assigned: set[str] = set()
        self._client = RestClient(load_config(plane.kubeconfig(), environ={}))
        self._revision = self._client.list(PODS).resource_version
        self._is_over = threading.Event()
        self._watch = self._watched()
        self._thread = threading.Thread(target=self._follow, name="history", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watch.close()
        self._thread.join(10)
        self._client.close()

    def bound(self, namespace: str) -> list[str]:
        """Return the names of all pods that were bound in a namespace, in that order."""
        return [one.name for one in self.binds[namespace]]

    def waits_for(self, namespace: str, count: int, seconds: float = 60.0) -> list[str]:
        """Wait until so many pods were bound in a namespace; return their names."""
        eventually(
            lambda: len(self.binds[namespace]) >= count or self.errors,
            f"{count} pods are bound in {namespace}",
            seconds,
        )
        assert self.errors == []
        return self.bound(namespace)

    def catches_up(self, revision: str) -> None:
        """Wait until everything up to a version of a pod has been seen."""
        eventually(lambda: self._revision >= int(revision) or self.errors, "all has been seen")
        assert self.errors == []

    def _watched(self) -> RestWatch:
        return self._client.watch(PODS, resource_version=self._revision)

    def _follow(self) -> None:
        """Take everything in; an API server ends watches of those who read too slowly."""
        try:
            while not self.errors:
                with contextlib.suppress(ApiError):
                    self._read()
                self._watch.close()
                if self._is_over.wait(0.01):
                    return
                with contextlib.suppress(ApiError):
                    self._watch = self._watched()
        except Exception as err:
            self.errors.append(repr(err))
            raise

    def _read(self) -> None:
        for event in self._watch:
            if event.type == "ERROR":
                self.errors.append(event.data.decode())  # what has been is not to be had any more
                return
            if event.type != "BOOKMARK":
                self._take(json.loads(event.data), event.resource_version, event.type)
            self._revision = event.resource_version

    def _take(self, pod: dict[str, Any], revision: int, what: str) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        namespace, uid = metadata["namespace"], metadata["uid"]
        moment = Moment(metadata["name"], time.monotonic(), revision)
        self.created[namespace].setdefault(metadata["name"], revision)
        if spec.get("nodeName") and uid not in self._assigned:
            self._assigned.add(uid)
            self.binds[namespace].append(moment)
        is_over = what == "DELETED" or pod.get("status", {}).get("phase") in _ENDED
        if is_over and uid in self._taken[namespace]:
            self.ends[namespace].append(moment)
        taken, before = self._taken[namespace], self._taken[namespace].pop(uid, _ZERO)
        now = _cpu(spec) if spec.get("nodeName") and not is_over else _ZERO
        if now > _ZERO:
            taken[uid] = now
        self._sums[namespace] = self._sums[namespace] - before + now
        self.most[namespace] = max(self.most[namespace], self._sums[namespace])


def _cpu(spec: dict[str, Any]) -> Quantity:
    amounts = (
        Quantity.parse(one.get("resources", {}).get("requests", {}).get("cpu", "0"))
        for one in spec["containers"]
    )
    return sum(amounts, _ZERO)
