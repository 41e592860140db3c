"""The churn: threads that share a few names, under which pods come and go, most of them too slowly.

Each thread creates, binds, resizes, sets deadlines and deletes whatever is under one of the names
just now, so that uids change between the look and the write. Pods are deleted with a grace period
of 0, 1 and 30 seconds, and no kubelet ends them: for some seconds in turn they are left past it,
and then removed. It has a namespace of its own, whose quotas are not edited: `strict` counts it.
"""

from __future__ import annotations

import random
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.torture.load.shapes import NOBODY, Space, binding
from tests.torture.load.tally import Tally
from tests.torture.load.wire import LostAnswerError, Reply, Wire

NAMES: Final = tuple(f"churn-{number}" for number in range(5))
_CORES: Final = ("250m", "0.5", "500m", "1", "1")
_PAUSE_SECONDS: Final = (0.05, 0.4)
_DOWN_SECONDS: Final = 0.3
_PATIENT_SECONDS, _HASTY_SECONDS = 8.0, 4.0
"""For how long pods are left past their grace period, and for how long they are then removed."""


class Churner:
    """One thread of the churn.

    Args:
        wire: Its connection.
        space: The namespace.
        nodes: Names of nodes.
        uids: Name → uid of the pod that was created last under it, shared by all threads.
        tally: Where answers are counted.
        rng: Its chance.
    """

    def __init__(
        self,
        wire: Wire,
        space: Space,
        nodes: Sequence[str],
        uids: dict[str, str],
        tally: Tally,
        rng: random.Random,
    ) -> None:
        self._wire, self._space, self._nodes = wire, space, nodes
        self._uids, self._tally, self._rng = uids, tally, rng
        self._acts: tuple[tuple[Callable[[str], None], int], ...] = (
            (self.create, 28),
            (self.bind, 42),
            (self.resize, 12),
            (self.set_deadline, 4),
            (self.delete, 14),
        )

    def step(self) -> None:
        """Do one thing to what is under one of the names."""
        acts, weights = zip(*self._acts, strict=True)
        act: Callable[[str], None] = self._rng.choices(acts, weights)[0]
        try:
            act(self._rng.choice(NAMES))
        except LostAnswerError:
            time.sleep(_DOWN_SECONDS)

    def create(self, name: str) -> None:
        """Create a pod, if there is none of that name.

        Never with a node: what is reserved for one whose name is taken stays until it expires,
        and after some of these nothing would be bound any more.
        """
        reply = self._call("create", "POST", self._pods, self._pod(name))
        if reply.status == 201:
            self._uids[name] = reply.json["metadata"]["uid"]

    def bind(self, name: str) -> None:
        """Bind what is there, by the uid that the name had last, or by the name alone."""
        uid = self._uids.get(name, "") if self._rng.random() < 0.6 else ""
        body = binding(name, self._rng.choice(self._nodes), uid=uid)
        self._call("bind", "POST", f"{self._pods}/{name}/binding", body)

    def resize(self, name: str) -> None:
        """Ask for other resources of what is there."""
        resources = {"requests": {"cpu": self._rng.choice(_CORES)}}
        patch = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        self._call("resize", "PATCH", f"{self._pods}/{name}/resize", patch, kind="strategic")

    def set_deadline(self, name: str) -> None:
        """Give what is there a deadline, which moves it between quotas."""
        patch = {"spec": {"activeDeadlineSeconds": 3600}}
        self._call("deadline", "PATCH", f"{self._pods}/{name}", patch, kind="merge")

    def delete(self, name: str) -> None:
        """Delete what is there, softly most of the time, and at once when it is time for that."""
        weights = (1, 80, 20) if self._is_patient else (70, 20, 10)
        grace = self._rng.choices((0, 1, 30), weights)[0]
        body = {"gracePeriodSeconds": grace}
        self._call(f"delete with grace {grace}", "DELETE", f"{self._pods}/{name}", body)

    @property
    def _is_patient(self) -> bool:
        return time.monotonic() % (_PATIENT_SECONDS + _HASTY_SECONDS) < _PATIENT_SECONDS

    @property
    def _pods(self) -> str:
        return f"{self._space.path}/pods"

    def _pod(self, name: str) -> dict[str, Any]:
        container = {
            "name": "c",
            "image": "none",
            "resources": {"requests": {"cpu": self._rng.choice(_CORES)}},
        }
        spec: dict[str, Any] = {
            "schedulerName": NOBODY,
            "containers": [container],
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **({"activeDeadlineSeconds": 7200} if self._rng.random() < 0.2 else {}),
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    def _call(
        self, what: str, method: str, path: str, body: dict[str, Any], *, kind: str = ""
    ) -> Reply:
        try:
            if kind:
                reply = self._wire.patch(path, body, kind)
            else:
                reply = self._wire.call(method, path, body)
        except LostAnswerError:
            self._tally.note(what, 0)
            raise
        is_expected = reply.status in {200, 201, 404, 409}
        self._tally.note(what, reply.status, "" if is_expected else reply.message)
        return reply


class Churn:
    """All threads of the churn, until `stop`.

    Args:
        url: The API server.
        context: How to speak to it, as one who may do everything.
        space: The namespace.
        nodes: Names of nodes.
        threads: How many.
        seed: Of all chance.
    """

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext,
        space: Space,
        nodes: Sequence[str],
        *,
        threads: int,
        seed: int,
    ) -> None:
        self.tally = Tally()
        self.errors: list[str] = []
        self._space, self._wire = space, Wire(url, context)
        self._stopping = threading.Event()
        uids: dict[str, str] = {}
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(
                    Churner(
                        Wire(url, context),
                        space,
                        nodes,
                        uids,
                        self.tally,
                        random.Random(f"{seed}/churn/{number}"),  # noqa: S311 - repeatable
                    ),
                    random.Random(number),  # noqa: S311 - pauses
                ),
                daemon=True,
            )
            for number in range(threads)
        ]

    def start(self) -> None:
        """Let all begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let all end what they are at."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive():
                self.errors.append("a thread of the churn hangs")
        if self._threads and not self.tally.outcomes().get("admitted"):
            self.errors.append("the churn never got a pod bound, so it proves nothing")

    def clear(self) -> None:
        """Remove all pods, so that none is waited for that is not past its grace period yet."""
        for name in NAMES:
            reply = self._wire.call(
                "DELETE", f"{self._space.path}/pods/{name}", {"gracePeriodSeconds": 0}
            )
            if reply.status not in {200, 404}:
                self.errors.append(f"churn: {name} cannot be removed: {reply.message}")

    def _run(self, churner: Churner, rng: random.Random) -> None:
        while not self._stopping.wait(rng.uniform(*_PAUSE_SECONDS)):
            try:
                churner.step()
            except Exception as err:  # noqa: BLE001 - outermost frame of a thread: the run tells
                self.errors.append(f"churn: {err!r}")
                time.sleep(1)
