"""One thread of the load: creates pods, binds them, resizes them, lets them end and deletes them.

Each pod is in the hands of one thread at a time, except where two at once are the point.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.torture.load import shapes
from tests.torture.load.books import Books, Known
from tests.torture.load.shapes import NOBODY, TARGET_PODS
from tests.torture.load.tally import Tally
from tests.torture.load.wire import LostAnswerError, Reply, Wire

_FEW_WAITING: Final = 10
_MOST_PODS: Final = 70
_MOST_LEAVING: Final = 20
_LOW_PODS: Final = 3
_EBB_SECONDS, _FLOOD_SECONDS = 18.0, 9.0
"""For how long quotas are kept nearly empty, where room comes and goes, and then full."""
_DOWN_SECONDS: Final = 0.25
_ASIDE_SECONDS: Final = 6.0
"""How long a pod that is being deleted is left alone, so that it is released by time alone."""


class Binder:
    """One thread of the load.

    Args:
        wire: Its connection.
        books: The namespace that it works in.
        nodes: Names of nodes.
        tally: Where answers are counted.
        rng: Its chance.
        templates: How many kinds of pods and sizes there are; 0 for as many as there are pods.
    """

    def __init__(
        self,
        wire: Wire,
        books: Books,
        nodes: Sequence[str],
        tally: Tally,
        rng: random.Random,
        *,
        templates: int = 0,
    ) -> None:
        self._wire, self._books, self._nodes = wire, books, nodes
        self._tally, self._rng, self._templates = tally, rng, templates
        self._pods = f"{books.space.path}/pods"

    def step(self) -> None:
        """Do one thing, and wait a little when the API server is away."""
        try:
            self._act()
        except LostAnswerError:
            time.sleep(_DOWN_SECONDS * (1 + self._rng.random()))

    def _act(self) -> None:
        books, rng = self._books, self._rng
        if self._is_low:
            self._ebb()
        elif len(books.leaving) > _MOST_LEAVING:
            self.clear(waits=False)
        elif len(books.assigned) > TARGET_PODS or (books.size > _MOST_PODS and rng.random() < 0.5):
            self.free()
        elif len(books.waiting) < _FEW_WAITING and books.size < _MOST_PODS:
            self.create()
        else:
            self._do_something()

    @property
    def _is_low(self) -> bool:
        """Whether there is to be room now, so that new pods need no gate where that may be."""
        is_ebb = time.monotonic() % (_EBB_SECONDS + _FLOOD_SECONDS) < _EBB_SECONDS
        return self._books.space.lets_through and is_ebb

    def _ebb(self) -> None:
        """Let nearly all pods go, and then one come after the other."""
        books = self._books
        if books.leaving and (books.size > _LOW_PODS or self._rng.random() < 0.2):
            self.clear(waits=False)
        elif len(books.assigned) > _LOW_PODS:
            self.free()
        elif books.waiting:
            self.bind() if self._rng.random() < 0.6 else self.free(books.waiting)
        else:
            self.create()

    def _do_something(self) -> None:
        names, weights = zip(*self._weights(), strict=True)
        act: Callable[[], None] = self._rng.choices(names, weights)[0]
        act()

    def _weights(self) -> list[tuple[Callable[[], None], float]]:
        changes: list[tuple[Callable[[], None], float]] = [
            (self.resize_assigned, 5),
            (self.resize_waiting, 2),
            (self.set_deadline, 3),
            (self.report_resources, 2),
            (self.clear, 3),
            (self.free, 3),
        ]
        if self._books.space.is_scheduled:
            return [*changes, (self.free, 8), (self.adopt, 10), (self.create_assigned, 2)]
        if self._books.space.is_paced:  # refusals are rare, so that room is made here
            changes += [(self.free, 12), (self.adopt, 10)]
        return [
            *changes,
            (self.bind, 70),
            (self.bind_in_other_hands, 5),
            (self.bind_anew, 4),
            (self.create_assigned, 4),
        ]

    @property
    def _template(self) -> random.Random:
        """The chance that makes a pod, or what it asks for."""
        if not self._templates:
            return self._rng
        return random.Random(self._rng.randrange(self._templates))  # noqa: S311 - repeatable

    # -- pods come -----------------------------------------------------------------------------

    def create(self) -> None:
        """Create a pod that waits."""
        space = self._books.space
        is_scheduled = space.is_scheduled or (space.is_paced and self._rng.random() < 0.5)
        scheduler = "default-scheduler" if is_scheduled else NOBODY
        pod = shapes.a_pod(self._template, self._books.next_name(), scheduler=scheduler)
        known = self._create(pod, "create")
        if known is not None:
            self._books.put(self._books.waiting, known)

    def create_assigned(self) -> None:
        """Create a pod with a node, which is a bind as well."""
        name = self._books.next_name()
        pod = shapes.a_pod(
            self._template, name, scheduler=NOBODY, node=self._rng.choice(self._nodes)
        )
        known = self._create(pod, "bind by creation")
        if known is not None:
            self._books.put(self._books.assigned, known)

    def _create(self, pod: dict[str, Any], what: str) -> Known | None:
        began = time.monotonic()
        reply = self._call(what, "POST", self._pods, pod)
        if reply.status != 201:
            return None
        made = reply.json
        metadata, quality = made["metadata"], made["status"]["qosClass"]
        self._tally.begin(metadata["uid"], began)
        if what.startswith("bind"):
            self._tally.note_bound(
                self._books.space.name, time.monotonic(), time.monotonic() - began
            )
        return Known(metadata["name"], metadata["uid"], time.monotonic(), quality)

    # -- binds ---------------------------------------------------------------------------------

    def bind(self) -> None:
        """Bind a pod that waits, as schedulers do or as people do."""
        pod = self._books.take(self._books.waiting, self._rng)
        if pod is None:
            return
        chance = self._rng.random()
        try:
            if chance < 0.84:
                reply = self._bind("bind", pod, pod.uid)
            elif chance < 0.90:
                reply = self._bind("bind without uid", pod, "")
            elif chance < 0.95:
                reply = self._bind("bind through bindings", pod, pod.uid, is_older=True)
            else:
                self._bind("bind of a wrong uid", pod, "00000000-0000-4000-8000-000000000000")
                reply = self._bind("bind", pod, pod.uid)
        except LostAnswerError:
            self._sort(pod)
            raise
        self._conclude(pod, reply)

    def _conclude(self, pod: Known, reply: Reply) -> None:
        books = self._books
        if reply.status == 201:
            books.put(books.assigned, pod)
            if self._rng.random() < 0.03:
                self._bind("bind again", pod, pod.uid)
        elif reply.status in {403, 429}:
            books.put(books.waiting, pod)
            if reply.status == 429:
                time.sleep(self._rng.uniform(0.05, 0.4))
            elif self._rng.random() < 0.35:
                self.free()
        else:
            self._sort(pod)
            if reply.status >= 500:
                time.sleep(self._rng.uniform(0.05, _DOWN_SECONDS))

    def bind_in_other_hands(self) -> None:
        """Bind a pod that another thread may be binding, resizing or deleting."""
        pod = self._books.peek(self._books.waiting, self._rng)
        if pod is not None:
            self._bind("bind", pod, pod.uid if self._rng.random() < 0.7 else "")

    def bind_anew(self) -> None:
        """Make another pod of the same name between the look at it and the bind."""
        pod = self._books.take(self._books.waiting, self._rng)
        if pod is None:
            return
        self._call("delete", "DELETE", f"{self._pods}/{pod.name}", {"gracePeriodSeconds": 0})
        made = shapes.a_pod(self._template, pod.name, scheduler=NOBODY)
        known = self._create(made, "create")
        if known is None:  # a finalizer keeps the former one
            self._sort(pod)
            return
        try:
            is_older = self._rng.random() < 0.3
            uid = pod.uid if self._rng.random() < 0.5 else ""
            reply = self._bind("bind of one made anew", known, uid, is_older=is_older)
        except LostAnswerError:
            self._sort(known)
            raise
        self._conclude(known, reply)

    def _bind(self, what: str, pod: Known, uid: str, *, is_older: bool = False) -> Reply:
        body = shapes.binding(pod.name, self._rng.choice(self._nodes), uid=uid)
        path = f"{self._pods}/{pod.name}/binding"
        if is_older:
            path = f"{self._books.space.path}/bindings"
        began = time.monotonic()
        self._tally.begin(pod.uid, began)
        reply = self._call(what, "POST", path, body)
        if reply.status == 201:
            now = time.monotonic()
            self._tally.note_bound(self._books.space.name, now, now - began)
        return reply

    def adopt(self) -> None:
        """See whether the scheduler has bound a pod."""
        pod = self._books.take(self._books.waiting, self._rng)
        if pod is not None:
            self._sort(pod, is_adopted=True)

    def _sort(self, pod: Known, *, is_adopted: bool = False) -> None:
        """Put a pod where it belongs, by what the API server shows."""
        books = self._books
        try:
            reply = self._call("get", "GET", f"{self._pods}/{pod.name}")
        except LostAnswerError:
            books.put(books.waiting, pod)
            raise
        if reply.status != 200:
            if reply.status != 404:
                books.put(books.waiting, pod)
            return
        found = reply.json
        quality = found["status"].get("qosClass", "")
        known = Known(pod.name, found["metadata"]["uid"], pod.since, quality)
        if "deletionTimestamp" in found["metadata"]:
            books.put(books.leaving, known)
        elif found["spec"].get("nodeName"):
            books.put(books.assigned, known)
            if is_adopted:
                self._tally.note("scheduled", 201)
                self._tally.note_bound(books.space.name, time.monotonic(), 0.0)
        else:
            books.put(books.waiting, known)

    # -- pods change ---------------------------------------------------------------------------

    def resize_assigned(self) -> None:
        """Ask for other resources of a pod that has a node."""
        self._resize("resize", self._books.assigned)

    def resize_waiting(self) -> None:
        """Ask for other resources of a pod that waits, while others may bind it."""
        pod = self._books.peek(self._books.waiting, self._rng)
        if pod is not None:
            self._resize_one("resize of a waiting pod", pod)

    def _resize(self, what: str, pods: list[Known]) -> None:
        pod = self._books.take(pods, self._rng)
        if pod is not None:
            try:
                self._resize_one(what, pod)
            finally:
                self._books.put(pods, pod)

    def _resize_one(self, what: str, pod: Known) -> None:
        if pod.quality == "BestEffort":
            return
        resources = shapes.a_size(self._template, is_equal=pod.quality == "Guaranteed")
        patch = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        self._tally.begin(pod.uid, time.monotonic())
        self._call(what, "PATCH", f"{self._pods}/{pod.name}/resize", patch, kind="strategic")

    def set_deadline(self) -> None:
        """Give a pod that has a node a deadline, which moves it between quotas."""
        pod = self._books.take(self._books.assigned, self._rng)
        if pod is None:
            return
        self._tally.begin(pod.uid, time.monotonic())
        try:
            patch = {"spec": {"activeDeadlineSeconds": 3600}}
            self._call("deadline", "PATCH", f"{self._pods}/{pod.name}", patch, kind="merge")
        finally:
            self._books.put(self._books.assigned, pod)

    def report_resources(self) -> None:
        """Report, as a kubelet would, that the resources asked for are in force."""
        pod = self._books.take(self._books.assigned, self._rng)
        if pod is None:
            return
        try:
            found = self._call("get", "GET", f"{self._pods}/{pod.name}").json
            if found.get("metadata", {}).get("uid") == pod.uid:
                patch = {
                    "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
                    "status": {"containerStatuses": _in_force(found["spec"]["containers"])},
                }
                path = f"{self._pods}/{pod.name}/status"
                self._call("report", "PATCH", path, patch, kind="merge")
        finally:
            self._books.put(self._books.assigned, pod)

    # -- pods go -------------------------------------------------------------------------------

    def free(self, pods: list[Known] | None = None) -> None:
        """Let a pod, one with a node unless said otherwise, end: at once, soon, or by itself."""
        pods = self._books.assigned if pods is None else pods
        pod = self._books.take(pods, self._rng)
        if pod is None:
            return
        path, chance = f"{self._pods}/{pod.name}", self._rng.random()
        try:
            if chance < 0.6:
                reply = self._call("delete", "DELETE", path, {"gracePeriodSeconds": 0})
                if reply.status in _GONE and not shapes.is_held(pod.name):
                    return
            if chance < 0.8:
                self._call("delete softly", "DELETE", path, {"gracePeriodSeconds": 2})
            else:
                phase = self._rng.choice(("Succeeded", "Failed"))
                patch = {"status": {"phase": phase}}
                self._call("finish", "PATCH", f"{path}/status", patch, kind="merge")
        except LostAnswerError:
            self._books.put(pods, pod)
            raise
        pod.since = time.monotonic()
        self._books.put(self._books.leaving, pod)

    def clear(self, *, waits: bool = True) -> None:
        """Remove a pod that has ended or was asked to, mostly a while after that."""
        pod = self._books.take(self._books.leaving, self._rng)
        if pod is None:
            return
        is_recent = time.monotonic() - pod.since < _ASIDE_SECONDS
        if waits and is_recent and self._rng.random() < 0.7:
            self._books.put(self._books.leaving, pod)
            return
        try:
            path = f"{self._pods}/{pod.name}"
            if shapes.is_held(pod.name):
                self._call(
                    "let go", "PATCH", path, {"metadata": {"finalizers": None}}, kind="merge"
                )
            reply = self._call("delete", "DELETE", path, {"gracePeriodSeconds": 0})
        except LostAnswerError:
            self._books.put(self._books.leaving, pod)
            raise
        if reply.status not in _GONE:
            self._books.put(self._books.leaving, pod)

    def _call(
        self,
        what: str,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        kind: str = "",
    ) -> Reply:
        try:
            reply = (
                self._wire.patch(path, body or {}, kind)
                if kind
                else self._wire.call(method, path, body)
            )
        except LostAnswerError:
            self._tally.note(what, 0)
            raise
        self._tally.note(what, reply.status, _surprise(what, reply))
        return reply


_GONE: Final = frozenset({200, 404})
_EXPECTED: Final = frozenset({200, 201, 202, 403, 404, 409, 429})


def _surprise(what: str, reply: Reply) -> str:
    """Return the message of an answer that says that the load, or the product, does wrong."""
    if reply.status not in _EXPECTED:
        return reply.message
    if reply.status == 403 and "exceeded quota" not in reply.message:
        return reply.message
    if reply.status in {404, 409} and what in {"create", "finish", "report"}:
        return ""
    return reply.message if reply.status == 429 else ""


def _in_force(containers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "allocatedResources": each["resources"].get("requests", {}),
            "resources": each["resources"],
        }
        for each in containers
    ]
