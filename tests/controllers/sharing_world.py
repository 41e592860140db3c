"""A world in which namespaces share quotas: the real classes, one call of the API server at a time.

Replicas with doors and two trackers, each with what it kept aside, work on one cluster in memory.
Everything that one of them does runs on a thread of its own that stops before each call; the world
decides who goes on, whose process ends there, and whose answer is lost. So every interleaving of
reads and writes can come about, and the same seed gives the same one.

What is true is summed here from the pods, by plain numbers: nothing is shared with the code that
is tried.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final, cast

from webhook.cluster.api import (
    CLUSTER_DEFERRED_QUOTAS,
    QUOTA_LEDGERS,
    ApiError,
    NotFoundError,
    Object,
    Revision,
    UnreachableError,
)
from webhook.cluster.kinds import Kind
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.controllers.arrivals import Arrivals
from webhook.controllers.counts import Counts, Following
from webhook.controllers.lines import Lines
from webhook.controllers.membership import Membership
from webhook.controllers.settling import Settler
from webhook.controllers.share_keeper import ShareKeeper
from webhook.controllers.shares import Shares
from webhook.controllers.terms import NotLeadingError
from webhook.controllers.tracked import Tracked, TrackerTiming
from webhook.controllers.voice import Voice
from webhook.quota.cluster_quotas import ClusterQuota, cluster_quota
from webhook.quota.deferral import NamespaceQuotas, deferred_quotas
from webhook.quota.ledger import NEWEST, Claim, Door, Ledger
from webhook.quota.ledger_codec import ledger_from_status
from webhook.quota.line import LineRules, Passed, Waiter
from webhook.quota.line_pass import pass_line
from webhook.quota.objects import Pod, ResourceQuota
from webhook.quota.quantity import ZERO, Quantity
from webhook.quota.settlement import Count, CountedQuota, Expiry, SeenPod, settle
from webhook.state.ledgers import LEDGER_NAME, LedgerStore
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.reserver import Reserved, Reserver
from webhook.state.shared_quotas import SharedQuotaStore

CPU: Final = "requests.cpu"
KEYS: Final = frozenset({CPU})
NAMESPACES: Final = ("a", "b", "c")
QUOTA: Final = "both"
NAME: Final = f"cdq/{QUOTA}"
_BASE: Final = ResourceQuota.from_object(
    {"metadata": {"name": "base", "uid": "base"}, "spec": {"hard": {CPU: "1000"}}}
)
_NO_TIME: Final = datetime(2026, 5, 4, tzinfo=UTC)


class Ended(BaseException):
    """The process of a task has ended."""


class Task(threading.Thread):
    """Something that an actor does; it stops before every call of the API server."""

    def __init__(self, body: Callable[[], None], *, is_door: bool) -> None:
        super().__init__(daemon=True)
        self._body = body
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._order = ""
        self.is_door = is_door
        self.is_done = False
        self.counts: list[PodState] = []
        """Pods that are counted once the ledger is written."""
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        self._go.acquire()
        try:
            self._body()
        except (Ended, ApiError, NotLeadingError):
            pass
        except BaseException as err:  # noqa: BLE001 - the world tells
            self.error = err
        self.is_done = True
        self._stopped.release()

    def step(self, order: str = "go") -> None:
        """Go on to the next call, and make it; or lose its answer; or end there."""
        self._order = order
        self._go.release()
        assert self._stopped.acquire(timeout=20), "a task hangs"
        if self.error is not None:
            raise self.error

    def pause(self) -> str:
        """Wait until the world lets the call be made; called on the task's own thread."""
        self._stopped.release()
        self._go.acquire()
        if self._order == "end":
            raise Ended
        return self._order


class SteppedClient(MemoryClient):
    """A connection of an actor: the world decides when each call is made."""

    def __init__(self, world: World, cluster: MemoryCluster) -> None:
        super().__init__(cluster)
        self._world = world

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        _pause()
        return super().get(kind, name, namespace=namespace)

    def update_status(
        self, kind: Kind, obj: Object, *, is_brief: bool = False, dry_run: bool = False
    ) -> Revision:
        order = _pause()
        before = self._world.books()
        written = super().update_status(kind, obj, is_brief=is_brief, dry_run=dry_run)
        self._world.check_write(kind, before)
        if order == "lose":
            raise UnreachableError("the answer is lost")
        return written


def _pause() -> str:
    task = threading.current_thread()
    return task.pause() if isinstance(task, Task) else "go"


@dataclass(frozen=True)
class View:
    """What people have written, at one moment."""

    quota: ClusterQuota | None
    labelled: frozenset[str]
    opted_in: frozenset[str]

    def shares(self, namespace: str) -> bool:
        is_in = namespace in self.opted_in
        labels = {"team": "x"} if namespace in self.labelled else {}
        return is_in and self.quota is not None and self.quota.selects(labels)

    def quotas(self, namespace: str) -> NamespaceQuotas:
        if namespace not in self.opted_in:
            return deferred_quotas((), KEYS)
        found = [_BASE]
        if self.shares(namespace):
            assert self.quota is not None
            found.append(self.quota.quota)
        return deferred_quotas(found, KEYS)


@dataclass
class PodState:
    namespace: str
    uid: str
    cpu: int
    version: int = 1
    is_assigned: bool = False
    is_asked: bool = True
    """Whether it was bound through a door."""


@dataclass
class Request:
    """An admitted bind on its way to storage."""

    pod: PodState


@dataclass
class Books:
    """What is stored: of each namespace its ledger, and the quota's grants."""

    ledgers: Mapping[str, Ledger | None]
    uid: str
    hard: int
    granted: Mapping[str, int]
    is_complete: bool

    @property
    def total(self) -> int:
        return sum(self.granted.values())


@dataclass
class DoorActor:
    """A webhook replica."""

    reserver: Reserver
    view: int = 0
    task: Task | None = None


@dataclass
class TrackerActor:
    """A controller replica that leads, or did."""

    settler: Settler
    shares: Shares
    keeper: ShareKeeper
    tracked: dict[str, Any]
    view: int = 0
    task: Task | None = None


@dataclass
class World:
    """The cluster, its actors, and a clock; every public method is one step."""

    seed: int
    is_calm: bool = False
    """Nobody changes quotas or namespaces, and nothing is bound unasked."""
    clock: list[float] = field(default_factory=lambda: [100.0])

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)  # noqa: S311 - repeatable, not secret
        self.cluster = MemoryCluster()
        self.api = MemoryClient(self.cluster)
        self.pods: dict[str, PodState] = {}
        self.requests: list[Request] = []
        self.asked: set[str] = set()
        """Uids that a request is on its way for."""
        self.views: list[View] = [View(None, frozenset(), frozenset(NAMESPACES[:3]))]
        self.number = 0
        self.admitted = 0
        self._read: tuple[int, Books] | None = None
        self.term = 1
        for namespace in NAMESPACES:
            LedgerStore(self.api).create(namespace)
        self.put_quota(6, {})
        self.doors = [self._door() for _ in range(3)]
        self.trackers = [self._tracker(1), self._tracker(2)]
        self.run_all()

    # -- people ----------------------------------------------------------------------------

    def put_quota(self, hard: int, selector: Mapping[str, object]) -> None:
        """Create the shared quota, or edit it."""
        spec = {"namespaceSelector": selector, "hard": {CPU: str(hard)}}
        obj = {
            "apiVersion": CLUSTER_DEFERRED_QUOTAS.api_version,
            "kind": CLUSTER_DEFERRED_QUOTAS.kind,
            "metadata": {"name": QUOTA},
        }
        if self.views[-1].quota is None:
            stored = self.api.create(CLUSTER_DEFERRED_QUOTAS, {**obj, "spec": spec}).object
        else:
            stored = self.api.patch(CLUSTER_DEFERRED_QUOTAS, QUOTA, {"spec": spec}).object
            stored = self.api.get(CLUSTER_DEFERRED_QUOTAS, QUOTA)
        self._see(quota=cluster_quota(stored))

    def delete_quota(self) -> None:
        """Delete the shared quota."""
        if self.views[-1].quota is not None:
            self.api.delete(CLUSTER_DEFERRED_QUOTAS, QUOTA)
            self._see(quota=None)

    def label(self, namespace: str) -> None:
        """Give a namespace the label that some selectors ask for, or take it away."""
        self._see(labelled=self.views[-1].labelled ^ {namespace})

    def opt(self, namespace: str) -> None:
        """Let a namespace opt out or in again."""
        self._see(opted_in=self.views[-1].opted_in ^ {namespace})

    def create(self, namespace: str, cpu: int) -> None:
        """Create a pod that waits."""
        self.number += 1
        uid = f"p{self.number}"
        self.pods[uid] = PodState(namespace, uid, cpu)

    def end(self, pod: PodState) -> None:
        """Let a pod end."""
        if pod.uid not in self.asked:
            del self.pods[pod.uid]

    def assign(self, pod: PodState) -> None:
        """Let a pod run that nobody was asked about."""
        pod.is_assigned, pod.is_asked = True, False
        pod.version += 1

    # -- actors ----------------------------------------------------------------------------

    def bind(self, door: DoorActor, pod: PodState) -> None:
        """Let a door be asked about the bind of a pod, as it knows the quotas."""
        if door.task is not None or pod.is_assigned or pod.uid in self.asked:
            return
        view = self.views[door.view]
        if pod.namespace not in view.opted_in:
            return
        quotas = view.quotas(pod.namespace)
        names = tuple(one.name for one in quotas.quotas)
        claim = Claim(pod.uid, pod.uid, Door.BIND, cpus(pod.cpu), names, seen=NEWEST)
        self.asked.add(pod.uid)

        def ask() -> None:
            is_admitted = False
            try:
                until = time.monotonic() + 1000
                outcome = door.reserver.reserve(
                    pod.namespace, claim, quotas.observed, deadline=until
                )
                is_admitted = isinstance(outcome, Reserved)
            finally:
                if is_admitted:
                    self.admitted += 1
                    self.requests.append(Request(pod))
                else:
                    self.asked.discard(pod.uid)

        door.task = Task(ask, is_door=True)
        self.step(door)  # to its first call

    def commit(self, request: Request, *, fails: bool) -> None:
        """Let storage carry out a bind that was admitted, or not."""
        self.requests.remove(request)
        self.asked.discard(request.pod.uid)
        if not fails and request.pod.uid in self.pods:
            request.pod.is_assigned = True
            request.pod.version += 1

    def settle(self, actor: TrackerActor, namespace: str) -> None:
        """Let a tracker settle a namespace, by what it has seen."""
        if actor.task is None:
            tracked = actor.tracked[namespace]
            self._prepare(actor, namespace)
            actor.task = Task(
                lambda: cast("None", actor.settler.settle(namespace, tracked, self.term)),
                is_door=False,
            )
            self.step(actor)

    def drop(self, actor: TrackerActor, namespace: str) -> None:
        """Let a tracker drop a namespace that it does not track from the quota."""
        if actor.task is None and namespace not in self.views[actor.view].opted_in:
            actor.task = Task(lambda: actor.keeper._drop(namespace, NAME, self.term), is_door=False)
            self.step(actor)

    def actors(self) -> list[DoorActor | TrackerActor]:
        """Return all of them."""
        return [*self.doors, *self.trackers]

    def step(self, actor: DoorActor | TrackerActor, order: str = "go") -> None:
        """Let an actor make its next call."""
        if actor.task is None:
            return
        actor.task.step(order)
        if actor.task.is_done:
            actor.task = None

    def run_all(self) -> None:
        """Let everybody see everything, and settle until nothing changes."""
        for actor in self.actors():
            while actor.task is not None:
                self.step(actor)
            actor.view = len(self.views) - 1
        for _ in range(4):
            for namespace in NAMESPACES:
                self.clock[0] += 1.5
                self.settle(self.trackers[0], namespace)
                while self.trackers[0].task is not None:
                    self.step(self.trackers[0])
                if namespace not in self.views[-1].opted_in and self.views[-1].quota is not None:
                    self.drop(self.trackers[0], namespace)
                    while self.trackers[0].task is not None:
                        self.step(self.trackers[0])

    def close(self) -> None:
        """End every task."""
        for actor in self.actors():
            if actor.task is not None and not actor.task.is_done:
                actor.task.step("end")

    # -- what must hold --------------------------------------------------------------------

    def books(self) -> Books:
        """Read what is stored."""
        version = self.cluster.resource_version
        if self._read is None or self._read[0] != version:
            self._read = (version, self._books())
        return self._read[1]

    def _books(self) -> Books:
        ledgers: dict[str, Ledger | None] = {}
        for namespace in NAMESPACES:
            found = self.api.get(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
            ledgers[namespace] = ledger_from_status(found.get("status"))
        try:
            raw = cast("Any", self.api.get(CLUSTER_DEFERRED_QUOTAS, QUOTA))
        except NotFoundError:
            return Books(ledgers, "", 0, {}, is_complete=False)
        status = raw.get("status") or {}
        granted = {
            one["name"]: number(Quantity.parse(one["granted"].get(CPU, "0")))
            for one in status.get("namespaces", ())
        }
        hard = int(raw["spec"]["hard"][CPU])
        wanted = deferred_quotas([cluster_quota(raw).quota], KEYS).quotas[0].observed
        observed = status.get("observed") or {}
        is_complete = (observed.get("uid"), observed.get("specHash")) == (
            wanted.uid,
            wanted.spec_hash,
        )
        return Books(ledgers, raw["metadata"]["uid"], hard, granted, is_complete=is_complete)

    def check_write(self, kind: Kind, before: Books) -> None:
        """Check what a write has changed, and all that has to be true at every moment."""
        now = self.books()
        task = threading.current_thread()
        is_door = isinstance(task, Task) and task.is_door
        if kind == CLUSTER_DEFERRED_QUOTAS and is_door:
            assert now.total <= max(now.hard, before.total), "C: an admission exceeds the quota"
        if kind == QUOTA_LEDGERS and is_door:
            for namespace, ledger in now.ledgers.items():
                _check_own(before.ledgers[namespace], ledger)
        if kind == CLUSTER_DEFERRED_QUOTAS and not is_door:
            self._check_joined(before, now)
        elif kind == QUOTA_LEDGERS and isinstance(task, Task):
            for pod in task.counts:
                pod.is_asked = True
        self.check(now)

    def _check_joined(self, before: Books, now: Books) -> None:
        """Who takes part is counted by its ledger, and all take part before it is complete."""
        views = [view for view in self.views if view.quota and view.quota.uid == now.uid]
        steady = [one for one in NAMESPACES if all(view.shares(one) for view in views)]
        for namespace in steady:
            ledger = now.ledgers[namespace]
            account = None if ledger is None else ledger.accounts.get(NAME)
            is_counted = account is not None and account.observed.uid == now.uid
            if namespace in now.granted:  # with several leaders, one may have seen other quotas
                assert is_counted or not self.is_calm, f"{namespace} does not count and takes part"
            elif now.is_complete and not before.is_complete:
                raise AssertionError(f"complete without {namespace}")

    def check(self, now: Books | None = None) -> None:
        """Check what has to be true at every moment."""
        now = now or self.books()
        for namespace, ledger in now.ledgers.items():
            account = None if ledger is None else ledger.accounts.get(NAME)
            if account is None or account.observed.uid != now.uid:
                continue
            own = number(account.granted.get(CPU, ZERO))
            named = now.granted.get(namespace, 0)
            assert own <= named, f"B: {namespace} holds {own}, the quota says {named}"
            is_unasked = any(
                not pod.is_asked for pod in self.pods.values() if pod.namespace == namespace
            )
            if now.is_complete and namespace in now.granted and not is_unasked:
                taken = self.taken(namespace)
                assert taken <= named, f"{namespace} takes {taken}, the quota says {named}"
        if self.is_calm:
            taken = sum(map(self.taken, NAMESPACES))
            assert taken <= now.hard, f"{taken} are taken of {now.hard}"
            assert now.total <= now.hard, f"{now.total} are granted of {now.hard}"

    def check_quiet(self) -> None:
        """Let all requests end and everything be settled; the quota must then be exact."""
        self.run_all()
        for request in list(self.requests):
            self.commit(request, fails=False)
        self.pods = {uid: pod for uid, pod in self.pods.items() if pod.is_assigned}
        self.run_all()
        self.check()
        now = self.books()
        view = self.views[-1]
        if view.quota is None:
            return
        sharing = {one for one in NAMESPACES if view.shares(one)}
        assert now.is_complete or not sharing, "the quota is never complete"
        expected = {one: self.taken(one) for one in sharing}
        assert now.granted == expected, f"{now.granted} is granted, {expected} taken"

    def taken(self, namespace: str) -> int:
        """What assigned pods really take."""
        return sum(
            pod.cpu for pod in self.pods.values() if pod.namespace == namespace and pod.is_assigned
        )

    # -- inside ----------------------------------------------------------------------------

    def _see(self, **changed: Any) -> None:
        self.views.append(replace(self.views[-1], **changed))

    def _door(self) -> DoorActor:
        client = SteppedClient(self, self.cluster)
        reserver = Reserver(
            LedgerStore(client),
            attempts=4,
            shared=SharedQuotaStore(client),
            sleep=lambda _seconds: None,
        )
        return DoorActor(reserver)

    def _tracker(self, number: int) -> TrackerActor:
        client = SteppedClient(self, self.cluster)
        store, ledgers = SharedQuotaStore(client), LedgerStore(client)
        timing = TrackerTiming(clock=lambda: self.clock[0], settle_seconds=0.0)
        counts = _CountsOfWorld(self, number)
        lines = SimpleNamespace(
            pass_line=lambda _tracked, ledger, line: pass_line(ledger, line, LineRules(), room=2),
            note=self._note_line,
            note_given_up=lambda *_given: None,
        )
        membership = SimpleNamespace(
            has_left=lambda namespace, _quota: not self.views[-1].shares(namespace),
            counted=lambda quota: quota if isinstance(quota, ClusterQuota) else None,
        )
        shares = Shares(
            store,
            cast("Counts", counts),
            timing,
            leads=lambda term: term == self.term,
            membership=cast("Membership", membership),
        )
        settler = Settler(
            ledgers,
            cast("Counts", counts),
            cast("Lines", lines),
            shares,
            timing,
            leads=lambda term: term == self.term,
            confirms=lambda _namespace, _tracked: True,
            are_followed=lambda: False,
            voice=Voice(),
        )
        informers = SimpleNamespace(
            shared=None, deferred_of=lambda quotas: deferred_quotas(quotas, KEYS)
        )
        keeper = ShareKeeper(
            shares,
            ledgers,
            cast("QuotaCache", informers),
            cast("NamespaceCache", informers),
            Voice(),
        )
        tracked = {namespace: _tracked(is_hasty=number == 2) for namespace in NAMESPACES}
        actor = TrackerActor(settler, shares, keeper, tracked)
        counts.actor = actor
        return actor

    def _note_line(
        self, _namespace: str, _tracked: Tracked, _passed: Passed, **_rest: object
    ) -> None:
        """Pods of the line go when they are asked about, as all others."""

    def _prepare(self, actor: TrackerActor, namespace: str) -> None:
        view = self.views[actor.view]
        tracked = actor.tracked[namespace]
        tracked.count.quotas = view.quotas(namespace)
        tracked.is_leaving = namespace not in view.opted_in


class _CountsOfWorld:
    """What a tracker knows of the pods: all that is true now, for the quotas that it has seen."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number
        self.actor: TrackerActor | None = None
        self.lock = threading.Lock()
        self.had_ledger: set[str] = set()
        self.opted = SimpleNamespace(
            shared_specs=self._shared_specs,
            wanted_version=lambda _namespace: 0,
            quotas_of=lambda _namespace: SimpleNamespace(unreadable=()),
        )

    @property
    def tracked(self) -> dict[str, object]:
        assert self.actor is not None
        opted_in = self._world.views[self.actor.view].opted_in
        return {name: one for name, one in self.actor.tracked.items() if name in opted_in}

    def _shared_specs(self) -> tuple[ClusterQuota, ...]:
        assert self.actor is not None
        quota = self._world.views[self.actor.view].quota
        return () if quota is None else (quota,)

    def sharing(self, _name: str) -> list[str]:
        assert self.actor is not None
        view = self._world.views[self.actor.view]
        return [namespace for namespace in NAMESPACES if view.shares(namespace)]

    def look_again(self, _namespace: str, _seconds: float) -> None:
        """The world looks when it likes."""

    def leave_again(self, _namespace: str) -> None:
        """The world does that too."""

    def is_from_before(self, _namespace: str, _tracked: object, _ledger: Ledger) -> bool:
        return False

    def complete_version(self, _tracked: object) -> int:
        return self._world.cluster.resource_version

    def line(self, _namespace: str, _tracked: object) -> tuple[Waiter, ...]:
        return ()

    def following(
        self, namespace: str, tracked: Any, ledger: Ledger | None, _expired: object
    ) -> Following | None:
        world = self._world
        quotas: NamespaceQuotas = tracked.count.quotas
        pods = [pod for pod in world.pods.values() if pod.namespace == namespace]
        used = {CPU: Quantity.parse(str(world.taken(namespace)))}
        count = Count(
            world.cluster.resource_version,
            {one.name: CountedQuota(one.observed, one.hard, used) for one in quotas.quotas},
            {
                pod.uid: SeenPod(
                    pod.version,
                    pod.is_assigned,
                    is_live=True,
                    usage=cpus(pod.cpu),
                    quotas=frozenset(one.name for one in quotas.quotas),
                )
                for pod in pods
            },
        )
        # nobody is on the way for these, and whoever comes writes them again
        expired = {
            uid: Expiry(one.serial, 0)
            for uid, one in ({} if ledger is None else ledger.reservations).items()
            if uid not in world.asked and not (uid in world.pods and world.pods[uid].is_assigned)
        }
        following = settle(ledger, count, expired=expired)
        if following is None:
            return None
        task = threading.current_thread()
        assert isinstance(task, Task)
        task.counts = [pod for pod in pods if pod.is_assigned]
        return Following(following, tuple(self._line(pods, quotas)))

    def _line(self, pods: list[PodState], quotas: NamespaceQuotas) -> list[Waiter]:
        names = tuple(one.name for one in quotas.quotas)
        return [
            Waiter(
                cast("Pod", SimpleNamespace(uid=pod.uid, name=pod.uid)),
                (0, _NO_TIME, int(pod.uid[1:]), pod.uid),
                Claim(pod.uid, pod.uid, Door.RELEASE, cpus(pod.cpu), names, seen=NEWEST),
                names,
            )
            for pod in pods
            if not pod.is_assigned and pod.uid not in self._world.asked and names
        ][:1]


class _Hasty(dict[str, tuple[float, object]]):
    """What a namespace holds too much is lowered at the first look."""

    def get(self, _name: str, default: Any = None, /) -> tuple[float, object]:
        return -math.inf, default[1]


def _tracked(*, is_hasty: bool) -> Any:
    """A namespace as far as a settler looks at it."""
    watch = SimpleNamespace(
        look=lambda *_: None,
        forget=lambda: None,
        expired=lambda *_: {},
        next_due=lambda: None,
    )
    count = SimpleNamespace(
        quotas=deferred_quotas((), KEYS),
        seen=lambda _uid: None,
        forget_gone=lambda _kept: None,
        unmatchable={},
        uncountable={},
        waiting=(),
    )
    return SimpleNamespace(
        count=count,
        watch=watch,
        excess=_Hasty() if is_hasty else {},
        arrivals=Arrivals(),
        unreadable_pods={},
        taken_since=None,
        written=None,
        lost_since=None,
        is_leaving=False,
        is_back=False,
        is_settled=False,
    )


def _check_own(before: Ledger | None, now: Ledger | None) -> None:
    """What a door adds to a shared quota is granted."""
    account = None if now is None else now.accounts.get(NAME)
    former = None if before is None else before.accounts.get(NAME)
    if account is None:
        return
    held = number(account.used.get(CPU, ZERO)) + number(account.reserved.get(CPU, ZERO))
    had = 0
    if former is not None:
        had = number(former.used.get(CPU, ZERO)) + number(former.reserved.get(CPU, ZERO))
    granted = number(account.granted.get(CPU, ZERO))
    assert held <= max(had, granted), f"A: {held} are given away of {granted}"


def cpus(amount: int) -> dict[str, Quantity]:
    """A resource list of whole cpus."""
    return {CPU: Quantity.parse(str(amount))}


def number(amount: Quantity) -> int:
    """An amount as a whole number."""
    return amount.value


def drive(seed: int, length: int) -> int:
    """Let arbitrary things happen; return how many binds were admitted."""
    world = World(seed, is_calm=seed % 3 == 0)
    try:
        for _ in range(length):
            _happen(world)
            world.check()
        world.check_quiet()
    finally:
        world.close()
    return world.admitted


def _happen(world: World) -> None:
    rng = world.rng
    busy = [actor for actor in world.actors() if actor.task is not None]
    if busy and rng.random() < 0.65:
        order = rng.choices(("go", "lose", "end"), (30, 1, 1))[0]
        world.step(rng.choice(busy), order)
        return
    names = list(_ACTS)
    act = rng.choices(names, [_ACTS[name][0] for name in names])[0]
    _ACTS[act][1](world, rng.choice(NAMESPACES))


def _waiting(world: World) -> list[PodState]:
    return [pod for pod in world.pods.values() if not pod.is_assigned]


def _create(world: World, namespace: str) -> None:
    if len(world.pods) < 14:
        world.create(namespace, world.rng.choice((1, 1, 2)))


def _bind(world: World, _namespace: str) -> None:
    waiting = _waiting(world)
    if waiting:
        world.bind(world.rng.choice(world.doors), world.rng.choice(waiting))


def _commit(world: World, _namespace: str) -> None:
    if world.requests:
        world.commit(world.rng.choice(world.requests), fails=world.rng.random() < 0.2)


def _end(world: World, _namespace: str) -> None:
    running = [pod for pod in world.pods.values() if pod.is_assigned]
    if running:
        world.end(world.rng.choice(running))


def _pass_time(world: World, _namespace: str) -> None:
    world.clock[0] += world.rng.choice((0.1, 1.0, 2.0))


def _see(world: World, _namespace: str) -> None:
    actor = world.rng.choice(world.actors())
    if actor.task is None:
        actor.view = world.rng.randint(actor.view, len(world.views) - 1)


def _disturb(world: World, namespace: str) -> None:
    if world.is_calm:
        return
    rng, roll = world.rng, world.rng.random()
    if roll < 0.3:
        selector = rng.choice(({}, {}, {"matchLabels": {"team": "x"}}))
        world.put_quota(rng.choice((2, 4, 6)), selector)
    elif roll < 0.4:
        world.delete_quota()
    elif roll < 0.6:
        world.label(namespace)
    elif roll < 0.85:
        world.opt(namespace)
        actor = rng.choice(world.trackers)
        if actor.task is None and rng.random() < 0.5:  # nobody has settled it meanwhile
            actor.view = len(world.views) - 1
            world.drop(actor, namespace)
    else:
        idle = [pod for pod in _waiting(world) if pod.uid not in world.asked]
        if idle:
            world.assign(rng.choice(idle))


def _drop(world: World, _namespace: str) -> None:
    actor = world.rng.choice(world.trackers)
    left = sorted({*NAMESPACES} - world.views[actor.view].opted_in)
    if left:
        world.drop(actor, world.rng.choice(left))


_ACTS: Final[Mapping[str, tuple[float, Callable[[World, str], None]]]] = {
    "create": (18, _create),
    "bind": (27, _bind),
    "settle": (20, lambda world, name: world.settle(world.rng.choice(world.trackers), name)),
    "commit": (10, _commit),
    "end": (7, _end),
    "pass time": (6, _pass_time),
    "see": (5, _see),
    "run all": (1.5, lambda world, _name: world.run_all()),
    "disturb": (4, _disturb),
    "drop": (2, _drop),
}
