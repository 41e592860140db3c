"""Many people and controllers on one cluster, all of whose writes pass the handlers of engines.

An API server asks any replica, may lose what it was allowed to do, takes its time, and gives up a
request that lasts too long.
"""

from __future__ import annotations

import math
import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, cast

import jsonpatch

from tests.builders import a_binding, a_pod, a_quota, an_expression
from webhook.admission.deadline import Deadline
from webhook.admission.review import Denied, Phase, decode_review
from webhook.fakecluster.admission.webhook_reviews import UserInfo, write_review
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.fakecluster.storage.admission_hook import WriteRequest
from webhook.kube.api import (
    PODS,
    RESOURCE_QUOTAS,
    ApiError,
    ListOptions,
    Object,
    RequestTimeoutError,
    UnavailableError,
)
from webhook.runtime import Engine
from webhook.state.well_known import SCHEDULING_GATE

NAMESPACE: Final = "team-a"
REQUEST_SECONDS: Final = 0.4
"""How long a request may last; reservations must live longer."""
EXPIRE_SECONDS: Final = 2 * REQUEST_SECONDS + 0.1

MOST_PODS: Final = 50


class RequestClock:
    """A clock by which no request lasts longer than it may, however busy the machine is.

    It stands still while a request is overdue, as a thread that was not run between the decision
    and the write is; so no reservation expires, by this clock, before its request has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = time.monotonic()
        self._began: dict[int, float] = {}

    def __call__(self) -> float:
        """Return the time, in seconds."""
        with self._lock:
            return self._advanced()

    def begin(self) -> None:
        """Begin a request on this thread."""
        with self._lock:
            self._began[threading.get_ident()] = self._advanced()

    def end(self) -> None:
        """End the request of this thread: what it writes is stored, or never will be."""
        with self._lock:
            del self._began[threading.get_ident()]

    def _advanced(self) -> float:
        until = min(self._began.values(), default=math.inf) + REQUEST_SECONDS
        self._now = max(self._now, min(time.monotonic(), until))
        return self._now


@dataclass(frozen=True)
class RequestAdmission:
    """A request that was admitted, and stored its change."""

    ledger: int
    """The version of the ledger that it was admitted by."""
    stored_by: int
    """A version that is not older than its change."""


@dataclass
class ResponseLog:
    """What the handlers said.

    Attributes:
        clock: By which the controllers let reservations expire.
        admissions: Pod uid → its requests that took quota and were stored.
        outcomes: Decision or HTTP code → how often.
    """

    cluster: FakeCluster
    clock: RequestClock = field(default_factory=RequestClock)
    admissions: defaultdict[str, list[RequestAdmission]] = field(
        default_factory=lambda: defaultdict(list)
    )
    outcomes: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    @contextmanager
    def request(self) -> Iterator[dict[str, int]]:
        """Enter a request; yield where its pods and the ledgers that admit them are written down.

        A request that conflicts is decided again: the last ledger counts. One that fails has
        stored nothing.
        """
        admitted: dict[str, int] = {}
        self.clock.begin()
        try:
            yield admitted
            version = self.cluster.resource_version
            for uid, ledger in admitted.items():
                self.admissions[uid].append(RequestAdmission(ledger, version))
        finally:
            self.clock.end()


class Replicas:
    """Admission by several engines, as a service in front of them gives it."""

    def __init__(self, engines: Sequence[Engine], journal: ResponseLog, seed: int) -> None:
        self.engines = list(engines)
        self._journal = journal
        self._rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._present = threading.local()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Make one request on this thread."""
        self._present.began = time.monotonic()
        with self._journal.request() as self._present.admitted:
            yield

    def mutate(self, request: WriteRequest) -> Object | None:
        """Let a replica change the object."""
        if request.operation == "DELETE":
            return None
        operations = self._ask(request, Phase.MUTATING)
        changed: Object = jsonpatch.JsonPatch(operations).apply(request.new)
        return changed

    def validate(self, request: WriteRequest) -> None:
        """Let a replica decide; then the API server is slow, or fails for reasons of its own."""
        if request.operation == "DELETE":
            return
        self._ask(request, Phase.VALIDATING)
        chance = self._rng.random()
        if chance < (0.02 if request.operation == "CREATE" and request.kind == PODS else 0.06):
            raise UnavailableError("another webhook has failed")
        if chance < 0.5:
            time.sleep(self._rng.uniform(0, 0.25 if chance < 0.15 else 0.02))
        if time.monotonic() - self._present.began > REQUEST_SECONDS:
            raise RequestTimeoutError("the request has lasted too long")

    def _ask(self, request: WriteRequest, phase: Phase) -> list[dict[str, object]]:
        review = write_review(request, uid=str(uuid.uuid4()), user=UserInfo("somebody"))
        engine = self._rng.choice(self.engines)
        answer = engine.decide(decode_review(review, phase), Deadline(time.monotonic() + 5))
        outcome = str(answer.code) if isinstance(answer, Denied) else answer.decision
        self._journal.outcomes[outcome] += 1
        if isinstance(answer, Denied):
            raise ApiError(answer.message, code=answer.code, reason=answer.reason)
        if "ledger" in answer.audit:
            metadata = cast("Mapping[str, str]", (request.old or request.new or {})["metadata"])
            self._present.admitted[metadata["uid"]] = int(answer.audit["ledger"])
        return [
            {"op": one.op, "path": one.path, "value": one.value}
            if one.op != "remove"
            else {"op": one.op, "path": one.path}
            for one in answer.patch
        ]


class Load:
    """Actors on threads, until `stop`; `gated` is the share of new pods behind our gate."""

    def __init__(
        self, cluster: FakeCluster, replicas: Replicas, seed: int, *, gated: float = 0.0
    ) -> None:
        self._gated = gated
        self._api = FakeClient(cluster, admission=replicas)
        self._plain = FakeClient(cluster)
        self._replicas = replicas
        self._seed = seed
        self._names: set[str] = set()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.faults: list[str] = []

    def start(self) -> None:
        """Let everybody begin."""
        acts: list[Callable[[random.Random], None]] = [
            *(self.bind,) * 5,
            *(self.create, self.create_assigned, self.resize, self.flip),
            *(self.finish, self.delete, self.edit_quota),
        ]
        for number, act in enumerate(acts):
            thread = threading.Thread(target=self._run, args=(number, act), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Let everybody end what they are at."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "an actor hangs"

    def delete_waiting(self) -> None:
        """Delete the pods that have no node: nobody would ever tell that none takes them."""
        waiting = self._plain.list(
            PODS, ListOptions(namespace=NAMESPACE, field_selector="spec.nodeName=")
        )
        for pod in waiting.items:
            name = cast("Mapping[str, str]", pod["metadata"])["name"]
            self._plain.delete(PODS, name, namespace=NAMESPACE, grace_period_seconds=0)

    def _run(self, number: int, act: Callable[[random.Random], None]) -> None:
        rng = random.Random(self._seed * 1000 + number)  # noqa: S311 - repeatable, not secret
        while not self._stopping.is_set():
            try:
                with self._replicas.request():
                    act(rng)
            except ApiError as err:
                if err.code == 500:
                    self.faults.append(err.message)
            except Exception as err:  # noqa: BLE001 - outermost frame of the actor: the test tells
                self.faults.append(repr(err))
                return
            time.sleep(rng.uniform(0, 0.006))

    # -- what they do ----------------------------------------------------------------------

    def create(self, rng: random.Random) -> None:
        """Create a pod that waits, sometimes under a name that was used before."""
        if len(self._names) < MOST_PODS:
            name = f"pod-{rng.randrange(2 * MOST_PODS)}"
            pod = _a_pod(rng, name)
            if self._gated and rng.random() < self._gated:
                cast("dict[str, object]", pod["spec"])["schedulingGates"] = [
                    {"name": SCHEDULING_GATE}
                ]
            self._plain.create(PODS, pod)
            self._names.add(name)

    def create_assigned(self, rng: random.Random) -> None:
        """Create a pod with a node."""
        if len(self._names) < MOST_PODS:
            name = f"pinned-{rng.randrange(2 * MOST_PODS)}"
            self._api.create(PODS, _a_pod(rng, name, node="node-1"))
            self._names.add(name)
        time.sleep(rng.uniform(0, 0.03))

    def bind(self, rng: random.Random) -> None:
        """Bind a pod, with its uid as schedulers do or without as people do."""
        name = self._pick(rng)
        pod = self._plain.get(PODS, name, namespace=NAMESPACE)
        if cast("Mapping[str, object]", pod["spec"]).get("nodeName"):
            return
        uid = cast("Mapping[str, str]", pod["metadata"])["uid"] if rng.random() < 0.8 else ""
        binding = a_binding(name, namespace=NAMESPACE, uid=uid)
        self._api.bind(binding, legacy=rng.random() < 0.1)

    def resize(self, rng: random.Random) -> None:
        """Change the cpu of a pod."""
        time.sleep(rng.uniform(0, 0.01))
        container = _a_pod(rng, "")["spec"]
        containers = cast("Mapping[str, object]", container)["containers"]
        patch = {"spec": {"containers": containers}}
        self._api.patch(PODS, self._pick(rng), patch, namespace=NAMESPACE, subresource="resize")

    def flip(self, rng: random.Random) -> None:
        """Give a pod a deadline, or take it away."""
        patch = {"spec": {"activeDeadlineSeconds": rng.choice([None, 60])}}
        self._api.patch(PODS, self._pick(rng), patch, namespace=NAMESPACE)

    def finish(self, rng: random.Random) -> None:
        """Let a pod that runs end."""
        time.sleep(rng.uniform(0, 0.02))
        name = self._pick(rng)
        pod = self._plain.get(PODS, name, namespace=NAMESPACE)
        if cast("Mapping[str, object]", pod["spec"]).get("nodeName"):
            patch = {"status": {"phase": "Succeeded"}}
            self._plain.patch(PODS, name, patch, namespace=NAMESPACE, subresource="status")

    def delete(self, rng: random.Random) -> None:
        """Delete a pod."""
        time.sleep(rng.uniform(0, 0.04))
        name = self._pick(rng)
        self._plain.delete(PODS, name, namespace=NAMESPACE, grace_period_seconds=0)
        self._names.discard(name)

    def edit_quota(self, rng: random.Random) -> None:
        """Change limits, leave a quota to the API server and take it back, delete one."""
        act = rng.random()
        if act < 0.5:
            hard = {"requests.cpu": str(rng.randrange(4, 12))}
            patch: Mapping[str, object] = {"spec": {"hard": hard}}
            name = rng.choice(["base", "gold", "short"])
        elif act < 0.7:
            value = rng.choice(["true", None])
            patch = {"metadata": {"annotations": {"deferredquota.io/exclude": value}}}
            name = rng.choice(["gold", "short"])
        else:
            self._delete_or_create_gold()
            return
        time.sleep(rng.uniform(0, 0.25))
        self._plain.patch(RESOURCE_QUOTAS, name, patch, namespace=NAMESPACE)

    def _delete_or_create_gold(self) -> None:
        try:
            self._plain.create(RESOURCE_QUOTAS, gold_quota())
        except ApiError:
            self._plain.delete(RESOURCE_QUOTAS, "gold", namespace=NAMESPACE)

    def _pick(self, rng: random.Random) -> str:
        names = sorted(self._names)
        if not names:
            raise UnavailableError("there is no pod")
        return rng.choice(names)


def gold_quota() -> dict[str, object]:
    """A quota for pods of the class gold."""
    gold = [an_expression("PriorityClass", "In", "gold")]
    return a_quota("gold", uid="g", hard={"requests.cpu": "5"}, expressions=gold)


def quotas() -> list[dict[str, object]]:
    """The quotas that a crowd begins with."""
    short = a_quota("short", uid="s", hard={"requests.cpu": "5"}, scopes=["Terminating"])
    return [a_quota("base", uid="b", hard={"requests.cpu": "8"}), gold_quota(), short]


def _a_pod(rng: random.Random, name: str, node: str = "") -> dict[str, object]:
    spec: dict[str, object] = {}
    if rng.random() < 0.4:
        spec["priorityClassName"] = "gold"
    if rng.random() < 0.3:
        spec["activeDeadlineSeconds"] = 60
    amount = rng.choice(["250m", "500m", "750m", "1", "1500m"])
    return a_pod(name=name, node=node, requests={"cpu": amount}, uid="", **spec)  # type: ignore[arg-type]
