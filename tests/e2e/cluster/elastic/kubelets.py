"""What kubelets do with the pods of some namespaces: run those with a node, end those that must."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, Self

from tests.controlplane.rest import Rest
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api, Object

_READY: Final = {"type": "Ready", "status": "True"}


class Kubelets:
    """Kubelets of some namespaces, on one thread, until the end of a `with`.

    Args:
        rest: The API server, as an administrator.
        namespaces: Whose pods they run.
        longest_grace: Pods with a longer grace period use it up; None: all end at once.
        pause: Seconds between two looks.

    Attributes:
        ends: Whether pods that are being deleted end; else they stay.
    """

    def __init__(
        self,
        rest: Rest,
        namespaces: Iterable[str],
        *,
        longest_grace: int | None = None,
        pause: float = 0.05,
    ) -> None:
        self._api = Api(rest)
        self._namespaces = tuple(namespaces)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._longest_grace, self._pause = longest_grace, pause
        self.ends = threading.Event()
        self.ends.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._over.wait(self._pause):
            for namespace in self._namespaces:
                for pod in self._api.get(objects.pods(namespace)).body.get("items", []):
                    self._look(namespace, pod)

    def _look(self, namespace: str, pod: Object) -> None:
        name, metadata = pod["metadata"]["name"], pod["metadata"]
        if not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in metadata:
            grace, longest = metadata["deletionGracePeriodSeconds"], self._longest_grace
            if self.ends.is_set() and (longest is None or grace <= longest):
                self._api.delete(objects.pods(namespace, name), grace_seconds=0)
        elif pod["status"].get("phase") == "Pending":
            others = [one for one in pod["status"]["conditions"] if one["type"] != "Ready"]
            status = {"phase": "Running", "conditions": [*others, _READY]}
            self._api.patch(objects.pods(namespace, name, "status"), {"status": status})
