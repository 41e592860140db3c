"""A world in which namespaces share quotas: the real classes, one call of the API server at a time.

Here they share one quota; `elastic_simulation` has several.

Replicas with handlers and two controllers, each with what it kept aside, work on one fake cluster.
In some worlds a replica has threads, so claims meet in batches, and raises in one write.
Everything that one of them does runs on a thread of its own that stops before each call; the world
decides who goes on, whose process ends there, and whose answer is lost. So every interleaving of
reads and writes can come about, and a seed, with the same `PYTHONHASHSEED`, gives the same one.

What is true is summed here from the pods, by plain numbers: nothing is shared with the code that
is tried.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, ClassVar, Final, TypeVar, cast

from tests.reactions import Call, Proceed, ReactiveClient
from webhook.controllers.elastic.promises import HeldPromise, Promises
from webhook.controllers.ledger.context import LedgerContext
from webhook.controllers.ledger.drift import DriftDetector
from webhook.controllers.ledger.recent_binds import RecentBinds
from webhook.controllers.ledger.reconciler import LedgerReconciler
from webhook.controllers.ledger.recorder import LedgerRecorder
from webhook.controllers.ledger.usage_cache import LedgerUpdate, UsageCache
from webhook.controllers.mask.webhook_registration import assume_registered
from webhook.controllers.queue.controller import PodQueues
from webhook.controllers.runtime.leadership import Leadership, NotLeadingError
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.controllers.shared.controller import SharedQuotaController
from webhook.controllers.shared.leaving import Leaving
from webhook.controllers.shared.participation import Participation
from webhook.controllers.shared.shared_context import SharedQuotaContext
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.jsonfields.fields import NewerFormatError
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    QUOTA_LEDGERS,
    ApiError,
    ForbiddenError,
    JsonPatch,
    NotFoundError,
    UnreachableError,
)
from webhook.kube.joint_reads import JointReads
from webhook.kube.kinds import Kind
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.charging.deferral import NamespaceQuotas, deferred_quotas
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.apply_usage import (
    CountedQuota,
    Expiry,
    ObservedPod,
    UsageCount,
    apply_usage,
)
from webhook.quota.ledger.ledger import NEWEST, Account, Claim, Ledger, ReservationSource
from webhook.quota.ledger.ledger_codec import ledger_from_status, ledger_status
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.queue.queued_pods import QueuedPod, QueuePolicy
from webhook.quota.queue.release_order import run_cycle
from webhook.quota.shared.cluster_quotas import (
    ClusterQuota,
    cluster_quota,
    ledger_name,
    own_name,
)
from webhook.quota.shared.escrow import Shared
from webhook.state.grant_raising import GrantRaiser, PendingRaise, look_up
from webhook.state.group_commit import CommitQueue, CommitQueues, Pending, PendingClaim
from webhook.state.lazy_ledger import LedgerVersion
from webhook.state.ledger_store import LEDGER_NAME, LedgerStore
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.reserver import Reserved, Reserver
from webhook.state.shared_quotas import SharedQuotaStore, SharedQuotaVersion

CPU: Final = "requests.cpu"
KEYS: Final = frozenset({CPU})
QUOTA: Final = "both"
NAME: Final = f"cdq/{QUOTA}"
_BASE: Final = ResourceQuota.from_object(
    {"metadata": {"name": "base", "uid": "base"}, "spec": {"hard": {CPU: "1000"}}}
)
_HANG_SECONDS: Final = 600
"""Longer than a task with the lowest priority waits for a processor that others use."""
_ZERO: Final = Fraction()
_NO_TIME: Final = datetime(2026, 5, 4, tzinfo=UTC)


class TaskEndedError(BaseException):
    """The process of a task has ended."""


class Task(threading.Thread):
    """Something that an actor does; it stops before every call of the API server."""

    def __init__(self, body: Callable[[], None], *, is_webhook: bool) -> None:
        super().__init__(daemon=True)
        self._body = body
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._order = ""
        self.is_webhook = is_webhook
        self.is_done = False
        self.counts: list[PodState] = []
        """Pods that are counted once the ledger is written."""
        self.namespace = ""
        self.breaks_promise: set[str] = set()
        """Quotas whose last grant, if its ledger is written, takes what is promised to another."""
        self.may_promise = False
        """Whether it makes or withdraws promises."""
        self.promised: set[str] = set()
        """Uids of pods that it has promised something to."""
        self.withdrawn: set[str] = set()
        """Those whose promise it has withdrawn though they have no quota, and not told."""
        self.raises: Sequence[tuple[PendingRaise, Task]] = ()
        """What its next write of the quota raises, and whose decisions these are."""
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        self._go.acquire()
        try:
            self._body()
        except (TaskEndedError, ApiError, NotLeadingError, NewerFormatError):
            pass
        except BaseException as err:  # noqa: BLE001 - the world tells
            self.error = err
        self.is_done = True
        self._stopped.release()

    def step(self, order: str = "go") -> None:
        """Go on to the next call, and make it; or lose its answer; or end there."""
        self._order = order
        self._go.release()
        assert self._stopped.acquire(timeout=_HANG_SECONDS), "a task hangs"
        if self.error is not None:
            raise self.error

    def pause(self) -> str:
        """Wait until the world lets the call be made; called on the task's own thread."""
        self._stopped.release()
        self._go.acquire()
        if self._order == "end":
            raise TaskEndedError
        return self._order


def _stepped_client(world: SharingSimulation) -> ReactiveClient:
    """Return a connection of an actor: the world decides when each call is made."""

    def read(_call: Call, proceed: Proceed) -> Any:
        pause()
        return proceed()

    def write(call: Call, proceed: Proceed) -> Any:
        order = pause()
        before = world.read_stored()
        written = proceed()
        world.check_write(call.kind, before)
        if order == "lose":
            raise UnreachableError("the answer is lost")
        return written

    def create(call: Call, proceed: Proceed) -> Any:
        if call.namespace in world.deleted:
            raise NotFoundError(f'namespaces "{call.namespace}" not found')
        if call.namespace in world.terminating:
            causes = [{"reason": "NamespaceTerminating"}]
            raise ForbiddenError("it is being terminated", details={"causes": causes})
        return proceed()

    client = ReactiveClient(world.cluster)
    client.on("get", "*", read)
    client.on("list", QUOTA_LEDGERS, read)
    client.on("create", QUOTA_LEDGERS, create)
    client.on("update", "*", write, subresource="status")
    return client


def pause() -> str:
    """Wait until the world lets the next call be made; the order that comes with it."""
    task = threading.current_thread()
    return task.pause() if isinstance(task, Task) else "go"


_T = TypeVar("_T")
_Item = TypeVar("_Item", bound=Pending)


class _SteppedQueues(CommitQueues[_Item]):
    """Queues in which threads of one replica meet; one that waits there is stepped as others."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: dict[int, Task] = {}

    def join(self, name: str, item: _Item) -> CommitQueue[_Item]:
        self._tasks[id(item)] = cast("Task", threading.current_thread())
        return super().join(name, item)

    def wait(self, queue: CommitQueue[_Item], item: _Item) -> bool:  # type: ignore[override]
        task = cast("Task", threading.current_thread())
        try:
            while not item.signal.done():
                task.pause()
        except TaskEndedError:  # its time is over, the process goes on
            if item in queue.pending and not item.signal.done():
                queue.pending.remove(item)
        return item.signal.done()

    def take_batch(self, queue: CommitQueue[_Item]) -> list[_Item]:  # type: ignore[override]
        batch = super().take_batch(queue)
        raises = [(one, self._tasks[id(one)]) for one in batch if isinstance(one, PendingRaise)]
        cast("Task", threading.current_thread()).raises = raises
        return batch


class _SteppedCondition(threading.Condition):
    """A condition that a thread waits for in steps."""

    def wait_for(
        self,
        predicate: Callable[[], _T],
        timeout: float | None = None,  # noqa: ARG002
    ) -> _T:
        while not (found := predicate()):
            self.release()
            try:
                pause()
            finally:
                self.acquire()
        return found


class _SteppedStore(SharedQuotaStore):
    """A store whose locks are waited for as all else: a thread that waits is stepped."""

    def __init__(self, client: ReactiveClient) -> None:
        super().__init__(client)
        self._reads = JointReads(at_once=None, condition=_SteppedCondition)
        self._taken: set[str] = set()

    @contextmanager
    def locked(self, names: Iterable[str], *, until: float) -> Iterator[bool]:  # noqa: ARG002
        taken: set[str] = set()
        try:
            for name in sorted(names):
                while name in self._taken:
                    pause()
                self._taken.add(name)
                taken.add(name)
            yield True
        finally:
            self._taken -= taken


class _FormerStore(_SteppedStore):
    """The store of a release before headroom: it reads none, and drops what is said of it."""

    def _keep(self, version: SharedQuotaVersion) -> SharedQuotaVersion:
        shared = version.shared
        if shared is None:
            return super()._keep(version)
        quota = replace(shared.quota, headroom=())
        grants = replace(shared.grants, headroom={})
        former = SharedQuotaVersion(
            quota, version.uid, version.resource_version, Shared(quota, grants)
        )
        return super()._keep(former)


class _FormerLedgers(LedgerStore):
    """The ledgers for a release before headroom, which reads their first format alone."""

    def known(self, namespace: str) -> LedgerVersion | None:
        version = super().known(namespace)
        return None if version is None or is_of_later_format(version) else version

    def fetch(self, namespace: str) -> LedgerVersion | None:
        version = super().fetch(namespace)
        if version is not None and is_of_later_format(version):
            raise NewerFormatError("status.format", "is 2")
        return version


def is_of_later_format(version: LedgerVersion) -> bool:
    """Return whether a release before headroom does not read a ledger."""
    return version.ledger is not None and ledger_status(version.ledger)["format"] != 1


class _FormerReserver(Reserver):
    """The decisions of a release before headroom: it admits by what it last heard of a quota."""

    def _decides_alone(self, one: Any, names: Sequence[str]) -> bool:
        wanted = one.decide(look_up(self._raiser.store, names, is_fresh=False))
        return not names or (not wanted and one.decision.is_admission_only)


@dataclass(frozen=True)
class UserState:
    """What people have written, at one moment."""

    opted_in: frozenset[str]
    quotas: Mapping[str, ClusterQuota] = field(default_factory=dict)
    """The shared quotas, as ledgers name them."""
    labelled: frozenset[str] = frozenset()

    def shared_by(self, namespace: str) -> list[ClusterQuota]:
        """Return the quotas that a namespace shares."""
        labels = {"kubernetes.io/metadata.name": namespace}
        labels |= {"team": "x"} if namespace in self.labelled else {}
        is_in = namespace in self.opted_in
        return [one for one in self.quotas.values() if is_in and one.selects(labels)]

    def shares(self, namespace: str, name: str) -> bool:
        """Return whether a namespace shares a quota."""
        return any(one.quota.name == name for one in self.shared_by(namespace))

    def quotas_of(self, namespace: str) -> NamespaceQuotas:
        """Return all quotas of a namespace."""
        if namespace not in self.opted_in:
            return deferred_quotas((), KEYS)
        return deferred_quotas([_BASE, *(one.quota for one in self.shared_by(namespace))], KEYS)


@dataclass
class PodState:
    namespace: str
    uid: str
    cpu: int
    version: int = 1
    is_assigned: bool = False
    is_asked: bool = True
    """Whether it was bound through a handler."""


@dataclass
class Request:
    """An admitted bind on its way to storage."""

    pod: PodState


@dataclass
class StoredQuota:
    """What is stored of a shared quota."""

    uid: str
    hard: int
    granted: Mapping[str, Fraction]
    is_complete: bool
    promises: Mapping[str, Fraction] = field(default_factory=dict)
    """Uid → what is promised to a pod."""
    promised: Mapping[str, Fraction] = field(default_factory=dict)
    """Uid → what is promised to a pod for which nothing is reserved."""
    kept: Sequence[tuple[frozenset[str], Fraction]] = ()
    """What is kept for some namespaces."""
    headroom: Sequence[tuple[frozenset[str], Fraction]] = ()
    """Up to what some namespaces may hold without using it."""
    unused: Mapping[str, Fraction] = field(default_factory=dict)
    """What the status says that is."""
    is_of_one: bool = False
    """Whether its spec is about one namespace alone."""

    @property
    def total(self) -> Fraction:
        return sum(self.granted.values(), _ZERO)

    def held_for_others(self, but: Collection[str], namespaces: Collection[str]) -> Fraction:
        """What is granted, promised to other pods than some, and kept for other namespaces.

        Of what is kept, the grants and the promises to pods of its namespaces are a part; all
        promises are subtracted here, which leaves no more than there is. What is promised after
        something to one of the pods leaves that its room.
        """
        held, order = self.total, [*self.promises]
        order = order[: next((at for at, uid in enumerate(order) if uid in but), len(order))]
        held += sum((self.promised.get(uid, _ZERO) for uid in order if uid not in but), _ZERO)
        for names, amount in self.kept:
            if {*namespaces} - names:
                own = sum((self.granted.get(one, _ZERO) for one in names), _ZERO)
                held += max(_ZERO, amount - own - sum(self.promised.values(), _ZERO))
        return held

    def without_headroom(self) -> StoredQuota:
        """The same without what namespaces do not use."""
        in_use = {one: held - self.unused.get(one, _ZERO) for one, held in self.granted.items()}
        return replace(self, granted=in_use, unused={})

    def room_of(self, namespace: str, own: Collection[str]) -> Fraction:
        """What a namespace may use at most, with all that is promised to its own pods."""
        held = self.held_for_others(own, {namespace})
        return self.hard - held + self.granted.get(namespace, _ZERO)

    def most_headroom(self, namespace: str, needed: Fraction) -> Fraction:
        """How much more than it needs a namespace may be given."""
        if self.granted.keys() <= {namespace}:
            room = self.hard - needed
        else:
            unused = sum((amount for one, amount in self.unused.items() if one != namespace), _ZERO)
            room = (self.room_of(namespace, ()) - needed - unused) / 2
        most = _ZERO
        for names, amount in self.headroom:
            if namespace in names:
                others = sum((self.granted.get(one, _ZERO) for one in names - {namespace}), _ZERO)
                most = max(most, amount - others - needed)
        return max(_ZERO, min(room, most))

    def least_room_of(self, pod: PodState) -> Fraction:
        """What its namespace may use at least once others have given their headroom back.

        What is kept for others is subtracted beside all that is promised: more than it takes.
        """
        quota = self.without_headroom()
        held = quota.total - quota.granted.get(pod.namespace, _ZERO)
        held += sum((cpu for uid, cpu in quota.promises.items() if uid != pod.uid), _ZERO)
        for names, amount in quota.kept:
            if pod.namespace not in names:
                own = sum((quota.granted.get(one, _ZERO) for one in names), _ZERO)
                held += max(_ZERO, amount - own)
        return quota.hard - held


_NO_QUOTA: Final = StoredQuota("", 0, {}, is_complete=False)


@dataclass
class Shortage:
    """What may have been too little for a pod, while a handler was asked about it.

    Its namespace's ledger and the quota are read at two moments, so each counts as it was worst.
    """

    room: Fraction = Fraction(10**6)
    """The least that its namespace could use, without the headroom of others."""
    held: Fraction = _ZERO
    """The most that its namespace used."""
    has_headroom: bool = True
    """Whether other namespaces had headroom at every moment."""

    def note(self, quota: StoredQuota, account: Account | None, pod: PodState) -> None:
        """Take what is stored at one moment."""
        self.room = min(self.room, quota.least_room_of(pod))
        self.held = max(self.held, held_in(account))
        self.has_headroom &= any(name != pod.namespace for name in quota.unused)


@dataclass
class StoredState:
    """What is stored: of each namespace its ledger, and the grants of each shared quota."""

    ledgers: Mapping[str, Ledger | None]
    quotas: Mapping[str, StoredQuota]
    """By name in ledgers."""

    def quota(self, name: str) -> StoredQuota:
        """Return what is stored of a quota; without one, nothing."""
        return self.quotas.get(name, _NO_QUOTA)


@dataclass
class WebhookActor:
    """A thread of a webhook replica."""

    reserver: Reserver
    ledgers: LedgerStore
    is_former: bool = False
    """Whether it is of the release before headroom."""
    view: int = 0
    task: Task | None = None

    def hear_of(self, namespace: str) -> None:
        """Let it hear of a ledger as it is, as by its watch."""
        with suppress(NewerFormatError):
            self.ledgers.fetch(namespace)


@dataclass
class ControllerActor:
    """A controller replica that leads, or did."""

    reconciler: LedgerReconciler
    shared: SharedQuotaContext
    shared_controller: SharedQuotaController
    states: dict[str, Any]
    promises: Promises
    view: int = 0
    task: Task | None = None


@dataclass
class SharingSimulation:
    """The cluster, its actors, and a clock; every public method is one step."""

    seed: int
    is_calm: bool = False
    """No quota or namespace changes, and nothing is bound unasked."""
    clock: list[float] = field(default_factory=lambda: [100.0])

    namespaces: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    sizes: ClassVar[tuple[int, ...]] = (1, 1, 2)
    """Cpus of new pods."""

    @property
    def holds_back(self) -> bool:
        """Whether something is promised to pods, and kept for a namespace."""
        return self.seed % 5 == 4

    @property
    def has_headroom(self) -> bool:
        """Whether namespaces may hold more than they use."""
        return self.seed % 7 > 2

    @property
    def has_former(self) -> bool:
        """Whether one webhook and one controller are of the release before headroom."""
        return self.seed % 11 == 5

    @property
    def has_threads(self) -> bool:
        """Whether one replica decides on several threads."""
        return self.seed % 4 == 3

    @property
    def has_deletions(self) -> bool:
        """Whether namespaces are deleted with their ledgers, and made again."""
        return self.seed % 13 == 7 and not self.is_calm

    @property
    def has_terminations(self) -> bool:
        """Whether namespaces lose their ledgers because they are deleted, and stay with pods."""
        return self.seed % 13 == 3 and not self.is_calm

    @property
    def takes_back(self) -> bool:
        """Whether selectors are edited, and that is taken back."""
        return self.seed % 13 in (3, 9) and not self.is_calm

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)  # noqa: S311 - repeatable, not secret
        self.cluster = FakeCluster()
        self.api = FakeClient(self.cluster)
        self.pods: dict[str, PodState] = {}
        self.requests: list[Request] = []
        self.asked: set[str] = set()
        """Uids that a request is on its way for."""
        self.rooms: dict[str, dict[str, Fraction]] = {}
        """Uid of a pod that a handler is asked about → quota → the most that there was for its
        namespace at one moment since."""
        self.shortages: dict[str, dict[str, Shortage]] = {}
        """The same → quota → what may have been too little for it since."""
        self.denied: Counter[bool] = Counter()
        """How many denials there were, by whether others had headroom all the time."""
        self.views: list[UserState] = [UserState(frozenset(self.namespaces))]
        self.spec: dict[str, object] = {}
        """What was written last of the quota that all share."""
        self.number = 0
        self.admitted = 0
        self.deleted: set[str] = set()
        """Namespaces that are not there."""
        self.terminating: set[str] = set()
        """Namespaces that are being deleted, without a ledger."""
        self._read: tuple[int, StoredState] | None = None
        self.epoch = 1
        for namespace in self.namespaces:
            LedgerStore(self.api).create(namespace)
        self.begin()
        self.webhooks = [
            self._new_webhook(is_former=number == 2 and self.has_former) for number in range(3)
        ]
        busy = self.webhooks[0].reserver
        self.threads = [
            WebhookActor(busy, self.webhooks[0].ledgers)
            for _ in range(4 if self.has_threads else 0)
        ]
        """Of the first replica, beside its first."""
        self.webhooks += self.threads
        self.controllers = [self._new_controller(1), self._new_controller(2)]
        self.run_all()

    # -- people ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Create the shared quotas."""
        self._put_quota(6, {}, kept=self.seed % 4 if self.holds_back else 0)

    def edit(self) -> None:
        """Edit a shared quota, or create it again."""
        selector = self.rng.choice(({}, {}, {"matchLabels": {"team": "x"}}))
        hard = self.rng.choice((2, 4, 6))
        self._put_quota(hard, selector, self.rng.choice((0, 2)) if self.holds_back else 0)

    def _put_quota(self, hard: int, selector: Mapping[str, object], kept: int) -> None:
        part = {"namespaces": ["a"], "amounts": {CPU: str(kept)}}
        spec: dict[str, object] = {"namespaceSelector": selector, "hard": {CPU: str(hard)}}
        headroom = [
            {"namespaces": [name], "amounts": {CPU: str(self.rng.choice((1, 2, 4)))}}
            for name in self.namespaces
            if self.has_headroom
        ]
        parts = {"kept": [part] if kept else [], "headroom": headroom}
        self.spec = {**spec, **parts}
        self.write_quota(QUOTA, self.spec)

    def turn(self) -> None:
        """Let the quota select only namespaces with a label, or take that back."""
        if NAME in self.views[-1].quotas:
            selector = {} if self.spec["namespaceSelector"] else {"matchLabels": {"team": "x"}}
            self.spec = {**self.spec, "namespaceSelector": selector}
            self.write_quota(QUOTA, self.spec)

    def write_quota(self, own: str, spec: Mapping[str, object]) -> None:
        """Create a shared quota with this spec, or edit it."""
        kind = CLUSTER_DEFERRED_QUOTAS
        head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": own}}
        if ledger_name(own) not in self.views[-1].quotas:
            stored = self.api.create(kind, {**head, "spec": spec}).object
        else:
            patch: JsonPatch = [{"op": "add", "path": "/spec", "value": spec}]
            stored = self.api.patch(kind, own, patch).object
        quotas = {**self.views[-1].quotas, ledger_name(own): cluster_quota(stored)}
        self._see(quotas=quotas)
        self._note_rooms()

    def delete_quota(self, name: str = NAME) -> None:
        """Delete a shared quota."""
        left = dict(self.views[-1].quotas)
        if left.pop(name, None) is not None:
            self.api.delete(CLUSTER_DEFERRED_QUOTAS, own_name(name))
            self._see(quotas=left)

    def label(self, namespace: str) -> None:
        """Give a namespace the label that some selectors ask for, or take it away."""
        self._see(labelled=self.views[-1].labelled ^ {namespace})

    def opt(self, namespace: str) -> None:
        """Let a namespace opt out or in again."""
        self.deleted.discard(namespace)
        self._see(opted_in=self.views[-1].opted_in ^ {namespace})

    def delete_namespace(self, namespace: str) -> None:
        """Delete a namespace that has opted out, with its pods and its ledger."""
        pods = {pod.uid for pod in self.pods.values() if pod.namespace == namespace}
        if namespace in self.deleted | self.views[-1].opted_in or pods & self.asked:
            return
        self.pods = {uid: pod for uid, pod in self.pods.items() if uid not in pods}
        with suppress(NotFoundError):
            self.api.delete(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        self.deleted.add(namespace)
        self._forget(namespace)

    def terminate(self, namespace: str) -> None:
        """Delete the ledger of a namespace that is being deleted; its pods stay."""
        pods = {pod.uid for pod in self.pods.values() if pod.namespace == namespace}
        if namespace in self.terminating or pods & self.asked:
            return
        with suppress(NotFoundError):
            self.api.delete(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        self.terminating.add(namespace)
        self._forget(namespace)

    def make_anew(self, namespace: str) -> None:
        """Let a namespace be gone with its pods, and made with the same name."""
        pods = {pod.uid for pod in self.pods.values() if pod.namespace == namespace}
        if not pods & self.asked:
            self.pods = {uid: pod for uid, pod in self.pods.items() if uid not in pods}
            self.terminating.discard(namespace)
            self._forget(namespace)

    def _forget(self, namespace: str) -> None:
        """Let controllers begin anew; nothing is on its way that a former ledger admitted."""
        for number, actor in enumerate(self.controllers, 1):
            actor.states[namespace] = _namespace_state(is_hasty=number == 2)
            actor.shared.usage_cache.had_ledger.discard(namespace)

    def create(self, namespace: str, cpu: int) -> None:
        """Create a pod that waits."""
        self.number += 1
        uid = f"p{self.number}"
        self.pods[uid] = PodState(namespace, uid, cpu)

    def waiting(self) -> list[PodState]:
        """Return the pods without a node."""
        return [pod for pod in self.pods.values() if not pod.is_assigned]

    def end(self, pod: PodState) -> None:
        """Let a pod end."""
        if pod.uid not in self.asked:
            del self.pods[pod.uid]

    def assign(self, pod: PodState) -> None:
        """Let a pod run that no handler was asked about."""
        pod.is_assigned, pod.is_asked = True, False
        pod.version += 1

    # -- actors ----------------------------------------------------------------------------

    def bind(self, actor: WebhookActor, pod: PodState) -> None:
        """Let a handler be asked about the bind of a pod, as it knows the quotas."""
        if actor.task is not None or pod.is_assigned or pod.uid in self.asked:
            return
        view = self.views[actor.view]
        if pod.namespace not in view.opted_in:
            return
        quotas = view.quotas_of(pod.namespace)
        names = tuple(one.name for one in quotas.quotas)
        claim = Claim(
            pod.uid, pod.uid, ReservationSource.BIND, cpus(pod.cpu), names, observed_version=NEWEST
        )
        self.asked.add(pod.uid)
        self.rooms[pod.uid] = {}
        self.shortages[pod.uid] = {name: Shortage() for name in names if name in view.quotas}
        self._note_rooms()

        def ask() -> None:
            is_admitted = False
            try:
                until = time.monotonic() + 1000
                outcome = actor.reserver.reserve(
                    pod.namespace, claim, quotas.observed, deadline=until
                )
                is_admitted = isinstance(outcome, Reserved)
                if isinstance(outcome, QuotaExceeded) and not actor.is_former:
                    self._check_denied(pod)
            finally:
                del self.rooms[pod.uid], self.shortages[pod.uid]
                if is_admitted:
                    self.admitted += 1
                    self.requests.append(Request(pod))
                else:
                    self.asked.discard(pod.uid)

        actor.task = Task(ask, is_webhook=True)
        actor.task.namespace = pod.namespace
        self.step(actor)  # to its first call

    def commit(self, request: Request, *, fails: bool) -> None:
        """Let storage carry out a bind that was admitted, or not."""
        self.requests.remove(request)
        self.asked.discard(request.pod.uid)
        if not fails and request.pod.uid in self.pods:
            request.pod.is_assigned = True
            request.pod.version += 1

    def reconcile(self, actor: ControllerActor, namespace: str) -> None:
        """Let a controller settle a namespace, by what it has seen."""
        if actor.task is None and namespace not in self.deleted:
            state = actor.states[namespace]
            self._prepare(actor, namespace)
            actor.task = Task(
                lambda: cast("None", actor.reconciler.reconcile(namespace, state, self.epoch)),
                is_webhook=False,
            )
            self.step(actor)

    def promise(self, actor: ControllerActor, pod: PodState) -> None:
        """Let a controller promise something to a pod that waits, whatever there is."""
        if actor.task is None:
            names = sorted(one.quota.name for one in self.views[-1].shared_by(pod.namespace))
            amounts = {name: cpus(pod.cpu) for name in names}
            held = HeldPromise(pod.uid, pod.namespace, pod.uid, amounts)
            self._promising(actor, lambda: cast("None", actor.promises.make(held, self.epoch)))

    def withdraw(self, actor: ControllerActor, uid: str) -> None:
        """Let a controller withdraw a promise."""
        if actor.task is None:
            self._promising(actor, lambda: cast("None", actor.promises.withdraw([uid], self.epoch)))

    def _promising(self, actor: ControllerActor, body: Callable[[], None]) -> None:
        actor.task = Task(body, is_webhook=False)
        actor.task.may_promise = True
        self.step(actor)

    def look(self, actor: ControllerActor) -> None:
        """Let a controller note how much of what is granted is used, and end recalls."""
        if actor.task is None:
            actor.task = Task(
                lambda: actor.shared_controller.reconcile(self.epoch), is_webhook=False
            )
            self.step(actor)

    def drop(self, actor: ControllerActor, namespace: str, name: str) -> None:
        """Let a controller drop a namespace that it does not track from a quota."""
        opted_in = self.views[actor.view].opted_in - self.terminating
        if actor.task is None and namespace not in opted_in:
            controller = actor.shared_controller

            def drop() -> None:
                controller.leaving.reset()  # lists need no pause here
                if not controller.leaving.drop([namespace], name, self.epoch):
                    controller.requeue()

            actor.task = Task(drop, is_webhook=False)
            self.step(actor)

    def actors(self) -> list[WebhookActor | ControllerActor]:
        """Return all of them."""
        return [*self.webhooks, *self.controllers]

    def step(self, actor: WebhookActor | ControllerActor, order: str = "go") -> None:
        """Let an actor make its next call."""
        if actor.task is None:
            return
        actor.task.step(order)
        if actor.task.is_done:
            actor.task = None

    def run_all(self) -> None:
        """Let everybody see everything, and settle until nothing changes."""
        while any(actor.task is not None for actor in self.actors()):
            for actor in self.actors():  # by turns: one may wait for another
                self.step(actor)
        for actor in self.actors():
            actor.view = len(self.views) - 1
        for _ in range(4):
            for namespace in self.namespaces:
                self.clock[0] += 1.5
                self.reconcile(self.controllers[0], namespace)
                self.finish(self.controllers[0])
                if namespace not in self.views[-1].opted_in - self.terminating:
                    for name in self.views[-1].quotas:
                        self.drop(self.controllers[0], namespace, name)
                        self.finish(self.controllers[0])
            for name in self.views[-1].quotas:  # as an informer hears of it
                self.controllers[0].shared.store.fetch(name)
            self.look(self.controllers[0])
            self.finish(self.controllers[0])

    def finish(self, actor: ControllerActor) -> None:
        """Let a controller end what it does."""
        while actor.task is not None:
            self.step(actor)

    def close(self) -> None:
        """End every task."""
        for actor in self.actors():
            if actor.task is not None and not actor.task.is_done:
                actor.task.step("end")

    @property
    def acts(self) -> Acts:
        """What may happen."""
        return _ACTS

    # -- what must hold --------------------------------------------------------------------

    def read_stored(self) -> StoredState:
        """Read what is stored."""
        version = self.cluster.resource_version
        if self._read is None or self._read[0] != version:
            self._read = (version, self._stored_state())
        return self._read[1]

    def _stored_state(self) -> StoredState:
        ledgers: dict[str, Ledger | None] = {}
        for namespace in self.namespaces:
            try:
                found = self.api.get(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
            except NotFoundError:
                found = {}
            ledgers[namespace] = ledger_from_status(found.get("status"))
        reserved = {uid for one in ledgers.values() if one is not None for uid in one.reservations}
        stored = [cast("Any", one) for one in self.api.list(CLUSTER_DEFERRED_QUOTAS).items]
        quotas = {ledger_name(one["metadata"]["name"]): one for one in stored}
        return StoredState(
            ledgers, {name: self._stored_quota(raw, reserved) for name, raw in quotas.items()}
        )

    def _stored_quota(self, raw: Any, reserved: Collection[str]) -> StoredQuota:
        status = raw.get("status") or {}
        granted = {
            one["name"]: number(Quantity.parse(one["granted"].get(CPU, "0")))
            for one in status.get("namespaces", ())
        }
        wanted = deferred_quotas([cluster_quota(raw).quota], KEYS).quotas[0].observed
        observed = status.get("observed") or {}
        is_complete = (observed.get("uid"), observed.get("specHash")) == (
            wanted.uid,
            wanted.spec_hash,
        )
        promises = {
            one["uid"]: number(Quantity.parse(one["amounts"].get(CPU, "0")))
            for one in status.get("promises", ())
        }
        promised = {
            uid: cpu
            for uid, cpu in promises.items()
            if uid not in reserved and not self._is_running(uid)
        }
        kept, headroom = (
            [
                (frozenset(one["namespaces"]), number(Quantity.parse(one["amounts"][CPU])))
                for one in raw["spec"].get(part, ())
            ]
            for part in ("kept", "headroom")
        )
        unused = {
            one["name"]: number(Quantity.parse(one["headroom"].get(CPU, "0")))
            for one in status.get("namespaces", ())
            if "headroom" in one
        }
        return StoredQuota(
            raw["metadata"]["uid"],
            int(raw["spec"]["hard"][CPU]),
            granted,
            is_complete=is_complete,
            promises=promises,
            promised=promised,
            kept=kept,
            headroom=headroom,
            unused=unused,
            is_of_one=any(
                len(one["values"]) == 1
                for one in raw["spec"]["namespaceSelector"].get("matchExpressions", ())
            ),
        )

    def _is_running(self, uid: str) -> bool:
        return uid in self.pods and self.pods[uid].is_assigned

    def check_write(self, kind: Kind, before: StoredState) -> None:
        """Check what a write has changed, and all that has to be true at every moment."""
        now = self.read_stored()
        task = threading.current_thread()
        is_webhook = isinstance(task, Task) and task.is_webhook
        names = {*before.quotas, *now.quotas} if kind == CLUSTER_DEFERRED_QUOTAS else ()
        for name in sorted(names):
            former, present = before.quota(name), now.quota(name)
            if is_webhook:
                assert present.total <= max(Fraction(present.hard), former.total), (
                    f"C: an admission exceeds {name}"
                )
                self.note_raise(cast("Task", task), name, former, present)
            else:
                self._check_joined(name, former, now)
        self._note_rooms()
        if kind == QUOTA_LEDGERS and is_webhook:
            for namespace, ledger in now.ledgers.items():
                _check_own(before.ledgers[namespace], ledger)
                self._check_current(before.ledgers[namespace], ledger)
            is_broken = cast("Task", task).breaks_promise
            assert not is_broken, "E, F: what is promised or kept is given to others"
        if kind == QUOTA_LEDGERS and not is_webhook and isinstance(task, Task):
            for pod in task.counts:
                pod.is_asked = True
        self.check(now)

    def _note_rooms(self) -> None:
        now = self.read_stored()
        for uid, rooms in self.rooms.items():
            namespace = self.pods[uid].namespace
            own = [one.uid for one in self.pods.values() if one.namespace == namespace]
            for name, quota in now.quotas.items():
                room = quota.room_of(namespace, own)
                rooms[name] = max(room, rooms.get(name, room))
        for uid, shortages in self.shortages.items():
            ledger = now.ledgers[self.pods[uid].namespace]
            for name, one in shortages.items():
                account = None if ledger is None else ledger.accounts.get(name)
                one.note(now.quota(name), account, self.pods[uid])

    def _check_denied(self, pod: PodState) -> None:
        """A denial stands though others give all back that they do not use."""
        shortages = self.shortages[pod.uid].values()
        assert any(one.room < one.held + pod.cpu for one in shortages), (
            f"E4: {pod.uid} is denied what others hold without using it"
        )
        self.denied[all(one.has_headroom for one in shortages)] += 1

    def _check_current(self, before: Ledger | None, now: Ledger | None) -> None:
        """What is admitted fits at one moment since its request came."""
        if before is None or now is None or before.reservations.keys() == now.reservations.keys():
            return
        for uid in now.reservations.keys() - before.reservations.keys():
            for name in now.reservations[uid].charges.keys() & self.rooms.get(uid, {}).keys():
                if self.read_stored().quota(name).is_of_one:
                    continue
                held, room = held_in(now.accounts[name]), self.rooms[uid][name]
                assert held <= room, f"G: {uid} makes {held} of {name}, there were {room}"

    @staticmethod
    def note_raise(task: Task, name: str, before: StoredQuota, now: StoredQuota) -> None:
        """Note whether a raise takes what is promised or kept; its ledgers are not written yet.

        What was decided by an old ledger is held too much for a while, and gives nothing away.
        """
        pods = {uid for one, _ in task.raises for uid in _admitted_by(one)}
        raised = [one for one in now.granted if now.granted[one] > before.granted.get(one, 0)]
        is_broken = now.total > before.total and now.held_for_others(pods, raised) > now.hard
        for one, asking in task.raises:
            if is_broken and one.namespace in raised:
                asking.breaks_promise.add(name)
            else:
                asking.breaks_promise.discard(name)

    def _check_joined(self, name: str, before: StoredQuota, now: StoredState) -> None:
        """Who takes part is counted by its ledger, and all take part before it is complete."""
        present = now.quota(name)
        views = [
            view
            for view in self.views
            if name in view.quotas and view.quotas[name].uid == present.uid
        ]
        steady = [one for one in self.namespaces if all(view.shares(one, name) for view in views)]
        for namespace in steady if views else ():
            ledger = now.ledgers[namespace]
            account = None if ledger is None else ledger.accounts.get(name)
            is_counted = account is not None and account.observed.uid == present.uid
            if namespace in present.granted:  # of several leaders one may have seen other quotas
                assert is_counted or not self.is_calm, f"{namespace} does not count and takes part"
            elif present.is_complete and not before.is_complete:
                raise AssertionError(f"complete without {namespace}")

    def check(self, now: StoredState | None = None) -> None:
        """Check what has to be true at every moment."""
        now = now or self.read_stored()
        for name in now.quotas:
            self._check_quota(name, now)

    def _check_quota(self, name: str, now: StoredState) -> None:
        quota = now.quota(name)
        if quota.is_complete:
            self._check_complete(name, quota.uid, quota.granted)
        for namespace, ledger in now.ledgers.items():
            account = None if ledger is None else ledger.accounts.get(name)
            is_counted = account is not None and account.observed.uid == quota.uid
            if not (is_counted or namespace in self.terminating):
                continue
            own = number(account.granted.get(CPU, ZERO)) if account and is_counted else _ZERO
            named = quota.granted.get(namespace, 0)
            assert own <= named, f"B: {namespace} holds {own}, {name} says {named}"
            is_unasked = any(
                not pod.is_asked for pod in self.pods.values() if pod.namespace == namespace
            )
            if quota.is_complete and namespace in quota.granted and not is_unasked:
                taken = self.taken(namespace)
                assert taken <= named, f"{namespace} takes {taken}, {name} says {named}"
        if self.is_calm:
            view = self.views[-1]
            taken = sum(self.taken(one) for one in self.namespaces if view.shares(one, name))
            assert taken <= quota.hard, f"{taken} are taken of {name}: {quota.hard}"
            assert quota.total <= quota.hard, f"{quota.total} are granted of {name}: {quota.hard}"

    def _check_complete(self, name: str, uid: str, granted: Mapping[str, Fraction]) -> None:
        """All take part that the present spec has selected since the quota was created."""
        spec = self.views[-1].quotas[name]
        views = [
            replace(one, quotas={name: spec})
            for one in self.views
            if name in one.quotas and one.quotas[name].uid == uid
        ]
        for namespace in self.namespaces:
            is_selected = all(one.shares(namespace, name) for one in views)
            assert namespace in granted or not is_selected, (
                f"D: {name} is complete without {namespace}"
            )

    def check_quiet(self) -> None:
        """Let all requests end and everything be settled; the quota must then be exact."""
        self._check_terminating()
        self.run_all()
        for request in list(self.requests):
            self.commit(request, fails=False)
        self.run_all()
        self._check_recalled()
        self.pods = {uid: pod for uid, pod in self.pods.items() if pod.is_assigned}
        self.run_all()
        self.check()
        now = self.read_stored()
        view = self.views[-1]
        for name in view.quotas:
            quota = now.quota(name)
            sharing = {one for one in self.namespaces if view.shares(one, name)}
            assert quota.is_complete or not sharing, f"{name} is never complete"
            expected = {one: self.taken(one) for one in sharing}
            in_use = quota.without_headroom().granted
            assert in_use == expected, f"{in_use} of {name}, {expected} taken"
            assert quota.total <= max(quota.hard, sum(expected.values())), "headroom beyond it"

    def _check_terminating(self) -> None:
        """No quota waits for a namespace without a ledger, and what is taken there is held."""
        if not self.terminating:
            return
        self.run_all()
        now, view = self.read_stored(), self.views[-1]
        for name in view.quotas:
            quota = now.quota(name)
            sharing = [one for one in self.namespaces if view.shares(one, name)]
            assert quota.is_complete or not sharing, f"{name} waits for {self.terminating}"
            for one in self.terminating.intersection(sharing):
                held, taken = quota.granted[one], self.taken(one)
                assert held == taken, f"{one} takes {taken} of {name}, which says {held}"
        self.terminating.clear()

    def _check_recalled(self) -> None:
        """No first pod of a queue waits for what others hold unused."""
        now, view = self.read_stored(), self.views[-1]
        for namespace, ledger in now.ledgers.items():
            pod = next((one for one in self.waiting() if one.namespace == namespace), None)
            if ledger is None or pod is None or pod.uid in ledger.reservations:
                continue
            own = [one.uid for one in self.pods.values() if one.namespace == namespace]
            left, left_in_use = _ZERO, _ZERO
            for one in view.shared_by(namespace):
                name, quota = one.quota.name, now.quota(one.quota.name)
                needed = held_in(ledger.accounts[name]) + pod.cpu
                left = min(left, quota.room_of(namespace, own) - needed)
                in_use = quota.without_headroom().room_of(namespace, own)
                left_in_use = min(left_in_use, in_use - needed)
            assert left == 0 or left_in_use < 0, f"H: {pod.uid} waits for what others do not use"

    def taken(self, namespace: str) -> int:
        """What assigned pods really take."""
        return sum(
            pod.cpu for pod in self.pods.values() if pod.namespace == namespace and pod.is_assigned
        )

    # -- inside ----------------------------------------------------------------------------

    def _see(self, **changed: Any) -> None:
        self.views.append(replace(self.views[-1], **changed))

    def _new_webhook(self, *, is_former: bool) -> WebhookActor:
        client = _stepped_client(self)
        queues: _SteppedQueues[PendingClaim] = _SteppedQueues()
        ledgers = (_FormerLedgers if is_former else LedgerStore)(client)
        made = (_FormerReserver if is_former else Reserver)(
            ledgers,
            GrantRaiser((_FormerStore if is_former else _SteppedStore)(client), _SteppedQueues()),
            attempts=4,
            sleep=lambda _seconds: None,
            queues=queues,
        )
        return WebhookActor(made, ledgers, is_former)

    def _new_controller(self, number: int) -> ControllerActor:
        client = _stepped_client(self)
        is_former = number == 2 and self.has_former
        store = _FormerStore(client) if is_former else SharedQuotaStore(client)
        ledgers = (_FormerLedgers if is_former else LedgerStore)(client)
        timing = ControllerTimings(
            clock=lambda: self.clock[0], thread_time=lambda: 0.0, write_interval_seconds=0.0
        )
        usage_cache = _SimulatedUsageCache(self, number)
        leadership = Leadership(lambda: self.epoch, lambda: None)
        lines = self.pod_queues(store, ledgers)
        membership = SimpleNamespace(
            has_left=lambda namespace, quota: (
                not self.views[-1].shares(namespace, quota.quota.name)
            ),
            managed_namespaces=lambda: self.views[-1].opted_in,
            deferred_quota=lambda quota: quota if isinstance(quota, ClusterQuota) else None,
        )
        shares = SharedQuotaContext(
            store,
            ledgers,
            cast("UsageCache", usage_cache),
            timing,
            leadership=leadership,
            participation=cast("Participation", membership),
        )
        context = LedgerContext(
            ledgers=ledgers,
            usage_cache=cast("UsageCache", usage_cache),
            leadership=leadership,
            timings=timing,
            recorder=LedgerRecorder(),
            registration=assume_registered,
            guard=lambda: None,
        )
        reconciler = LedgerReconciler(
            context,
            cast("PodQueues", lines),
            shares,
            cast("DriftDetector", SimpleNamespace(verify=lambda *_, **__: True)),
        )
        unheard = SimpleNamespace(add_handler=lambda _handler: None)
        informers = SimpleNamespace(
            informer=unheard,
            shared=SimpleNamespace(informer=unheard),
            deferred_of=lambda quotas: deferred_quotas(quotas, KEYS),
        )
        keeper = SharedQuotaController(
            shares,
            cast("QuotaCache", informers),
            cast("NamespaceCache", informers),
            LedgerRecorder(),
        )
        if self.has_deletions:
            keeper.leaving = Leaving(shares, few=0)
        promises = Promises(store, lambda: sorted(self.views[-1].quotas), leadership)
        state = {namespace: _namespace_state(is_hasty=number == 2) for namespace in self.namespaces}
        actor = ControllerActor(reconciler, shares, keeper, state, promises)
        usage_cache.actor = actor
        return actor

    def pod_queues(self, _store: SharedQuotaStore, _ledgers: LedgerStore) -> object:
        """Return the queues of a leader; their pods go when they are asked about, as all others."""
        return SimpleNamespace(
            run_cycle=lambda _name, _state, ledger, queue: run_cycle(
                ledger, queue, QueuePolicy(), room=2
            ),
            commit=lambda *_given, **_rest: None,
            report_lost_reservations=lambda *_given: None,
        )

    def _prepare(self, actor: ControllerActor, namespace: str) -> None:
        view = self.views[actor.view]
        state = actor.states[namespace]
        state.usage.quotas = view.quotas_of(namespace)
        state.is_opted_out = namespace not in view.opted_in


class _SimulatedUsageCache:
    """What a controller knows of the pods: all that is true now, for the quotas it has seen."""

    def __init__(self, world: SharingSimulation, number: int) -> None:
        self._world = world
        self._number = number
        self.actor: ControllerActor | None = None
        self.lock = threading.Lock()
        self.had_ledger: set[str] = set()
        self.managed = SimpleNamespace(
            guard=lambda: None,
            shared_specs=self._shared_specs,
            required_version=lambda _namespace: 0,
            quotas_of=lambda _namespace: SimpleNamespace(errors=()),
        )

    @property
    def namespaces(self) -> dict[str, object]:
        assert self.actor is not None
        opted_in = self._world.views[self.actor.view].opted_in
        return {name: one for name, one in self.actor.states.items() if name in opted_in}

    def _shared_specs(self) -> tuple[ClusterQuota, ...]:
        assert self.actor is not None
        return tuple(self._world.views[self.actor.view].quotas.values())

    def sharing_namespaces(
        self, name: str, *, except_for: Collection[str] = frozenset()
    ) -> list[str]:
        assert self.actor is not None
        view = self._world.views[self.actor.view]
        sharing = [one for one in self._world.namespaces if view.shares(one, name)]
        return [one for one in sharing if one not in except_for]

    def shares(self, namespace: str, name: str) -> bool:
        return namespace in self.sharing_namespaces(name)

    def all_sharing(self) -> dict[str, set[str]]:
        names = [one.quota.name for one in self._shared_specs()]
        return {name: set(self.sharing_namespaces(name)) for name in names}

    def note_ledger(self, namespace: str) -> None:
        self.had_ledger.add(namespace)

    def requeue_after(self, _namespace: str, _seconds: float) -> None:
        """The world looks when it likes."""

    def any_failing(self, _namespaces: Collection[str]) -> bool:
        return False

    def is_stuck(self, _namespace: str) -> bool:
        return False

    def clear_abandoned(self, _namespace: str) -> None:
        """The world does that too."""

    def may_predate_opt_in(self, _namespace: str, _tracked: object, _ledger: Ledger) -> bool:
        return False

    def complete_version(self, _tracked: object) -> int:
        return self._world.cluster.resource_version

    def queue(self, _namespace: str, _tracked: object) -> tuple[QueuedPod, ...]:
        return ()

    def next_ledger(
        self,
        namespace: str,
        state: Any,
        ledger: Ledger | None,
        _expired: object,
        **_options: bool,
    ) -> LedgerUpdate | None:
        world = self._world
        quotas: NamespaceQuotas = state.usage.quotas
        pods = [pod for pod in world.pods.values() if pod.namespace == namespace]
        used = {CPU: Quantity.parse(str(world.taken(namespace)))}
        count = UsageCount(
            world.cluster.resource_version,
            {one.name: CountedQuota(one.observed, one.hard, used) for one in quotas.quotas},
            {
                pod.uid: ObservedPod(
                    pod.version,
                    pod.is_assigned,
                    is_live=True,
                    usage=cpus(pod.cpu),
                    quotas=frozenset(one.name for one in quotas.quotas),
                )
                for pod in pods
            },
        )
        # no request is on the way for these, and one that comes writes them again
        expired = {
            uid: Expiry(one.serial, 0)
            for uid, one in ({} if ledger is None else ledger.reservations).items()
            if uid not in world.asked and not (uid in world.pods and world.pods[uid].is_assigned)
        }
        following = apply_usage(ledger, count, expired=expired)
        if following is None:
            return None
        task = threading.current_thread()
        assert isinstance(task, Task)
        task.counts = [pod for pod in pods if pod.is_assigned]
        return LedgerUpdate(following, tuple(self._queue(pods, quotas)))

    def _queue(self, pods: list[PodState], quotas: NamespaceQuotas) -> list[QueuedPod]:
        names = tuple(one.name for one in quotas.quotas)
        return [
            QueuedPod(
                cast("Pod", SimpleNamespace(uid=pod.uid, name=pod.uid)),
                (0, _NO_TIME, int(pod.uid[1:]), pod.uid),
                Claim(
                    pod.uid,
                    pod.uid,
                    ReservationSource.RELEASE,
                    cpus(pod.cpu),
                    names,
                    observed_version=NEWEST,
                ),
                names,
            )
            for pod in pods
            if not pod.is_assigned and pod.uid not in self._world.asked and names
        ][:1]


class _NoDelay(dict[str, tuple[float, object]]):
    """What a namespace holds too much is lowered at the first look."""

    def get(self, _name: str, default: Any = None, /) -> tuple[float, object]:
        return -math.inf, default[1]


def _namespace_state(*, is_hasty: bool) -> Any:
    """A namespace as far as a settler looks at it."""
    expiry = SimpleNamespace(
        observe=lambda *_: None,
        reset=lambda: None,
        expired=lambda *_: {},
        next_due=lambda: None,
    )
    usage = SimpleNamespace(
        quotas=deferred_quotas((), KEYS),
        observed=lambda _uid: None,
        forget_deleted=lambda _kept: None,
        unmatchable={},
        uncountable={},
        gated_pods=(),
    )
    return SimpleNamespace(
        usage=usage,
        expiry=expiry,
        excess=_NoDelay() if is_hasty else {},
        recent_binds=RecentBinds(),
        unreadable_pods={},
        reconciling_since=None,
        last_write=None,
        lost_since=None,
        is_opted_out=False,
        is_rejoining=False,
        has_reconciled=False,
        deferrals=0,
    )


def _check_own(before: Ledger | None, now: Ledger | None) -> None:
    """What a handler adds to a shared quota is granted."""
    for name, account in ({} if now is None else now.accounts).items():
        if not name.startswith(SHARED_PREFIX):
            continue
        former = None if before is None else before.accounts.get(name)
        held, had = held_in(account), held_in(former)
        granted = number(account.granted.get(CPU, ZERO))
        assert held <= max(had, granted), f"A: {held} of {name} are given away of {granted}"


def held_in(account: Account | None) -> Fraction:
    """What an account says is used and reserved."""
    if account is None:
        return _ZERO
    return number(account.used.get(CPU, ZERO)) + number(account.reserved.get(CPU, ZERO))


def _admitted_by(one: PendingRaise) -> Iterable[str]:
    """Return the pods that are reserved for where a decision stands."""
    made = cast("Any", one.decide).__self__
    is_written = made.is_final and made.decision.status is not None
    return made.decision.following.reservations if is_written else ()


Acts = Mapping[str, tuple[float, Callable[[Any, str], None]]]
"""Name → how often it happens, and what is done with a world and one of its namespaces."""


def cpus(amount: int) -> dict[str, Quantity]:
    """A resource list of whole cpus."""
    return {CPU: Quantity.parse(str(amount))}


def number(amount: Quantity) -> Fraction:
    """An amount as a plain number."""
    return Fraction(amount.nano, 10**9)


def drive(seed: int, length: int) -> int:
    """Let arbitrary things happen; return how many binds were admitted."""
    world = SharingSimulation(seed, is_calm=seed % 3 == 0)
    run(world, length)
    return world.admitted


def run(world: SharingSimulation, length: int) -> None:
    """Let arbitrary things happen in a world."""
    try:
        for _ in range(length):
            _happen(world)
            world.check()
        world.check_quiet()
    finally:
        world.close()


def _happen(world: SharingSimulation) -> None:
    rng = world.rng
    busy = [actor for actor in world.actors() if actor.task is not None]
    if busy and rng.random() < 0.65:
        order = rng.choices(("go", "lose", "end"), (30, 1, 1))[0]
        world.step(rng.choice(busy), order)
        return
    unwanted = {
        "promise": not world.holds_back,
        "bind many": not world.has_threads,
        "delete": not world.has_deletions,
        "terminate": not world.has_terminations,
        "take back": not world.takes_back,
    }
    acts = world.acts
    names = [name for name in acts if not unwanted.get(name)]
    act = rng.choices(names, [acts[name][0] for name in names])[0]
    acts[act][1](world, rng.choice(world.namespaces))


def _create(world: SharingSimulation, namespace: str) -> None:
    if len(world.pods) < 14 and namespace not in world.deleted | world.terminating:
        world.create(namespace, world.rng.choice(world.sizes))


def _bind(world: SharingSimulation, _namespace: str) -> None:
    waiting = world.waiting()
    if waiting:
        world.bind(world.rng.choice(world.webhooks), world.rng.choice(waiting))


def _bind_many(world: SharingSimulation, _namespace: str) -> None:
    waiting = world.waiting()
    world.rng.shuffle(waiting)
    for actor, pod in zip(world.threads, waiting, strict=False):
        world.bind(actor, pod)


def _commit(world: SharingSimulation, _namespace: str) -> None:
    if world.requests:
        world.commit(world.rng.choice(world.requests), fails=world.rng.random() < 0.2)


def _end(world: SharingSimulation, _namespace: str) -> None:
    running = [pod for pod in world.pods.values() if pod.is_assigned]
    if running:
        world.end(world.rng.choice(running))


def _pass_time(world: SharingSimulation, _namespace: str) -> None:
    world.clock[0] += world.rng.choice((0.1, 1.0, 2.0))


def _see(world: SharingSimulation, _namespace: str) -> None:
    actor = world.rng.choice(world.actors())
    if actor.task is None:
        actor.view = world.rng.randint(actor.view, len(world.views) - 1)


def _disturb(world: SharingSimulation, namespace: str) -> None:
    if world.is_calm:
        return
    rng, roll = world.rng, world.rng.random()
    if roll < 0.3:
        world.edit()
    elif roll < 0.4:
        world.delete_quota(rng.choice(sorted(world.views[-1].quotas) or [NAME]))
    elif roll < 0.6:
        world.label(namespace)
    elif roll < 0.85:
        world.opt(namespace)
        actor = rng.choice(world.controllers)
        if actor.task is None and rng.random() < 0.5:  # no actor has settled it meanwhile
            actor.view = len(world.views) - 1
            _drop_from_any(world, actor, namespace)
    else:
        idle = [pod for pod in world.waiting() if pod.uid not in world.asked]
        if idle:
            world.assign(rng.choice(idle))


def _drop(world: SharingSimulation, _namespace: str) -> None:
    actor = world.rng.choice(world.controllers)
    left = sorted({*world.namespaces} - world.views[actor.view].opted_in)
    if left:
        _drop_from_any(world, actor, world.rng.choice(left))


def _drop_from_any(world: SharingSimulation, actor: ControllerActor, namespace: str) -> None:
    names = sorted(world.views[-1].quotas)
    if names:
        world.drop(actor, namespace, world.rng.choice(names))


def _delete(world: SharingSimulation, namespace: str) -> None:
    """Delete a namespace, or let it come again, with a pod that runs and is counted at once."""
    actor = world.rng.choice(world.controllers)
    if namespace in world.deleted:
        world.opt(namespace)
        world.create(namespace, 1)
        world.assign(world.pods[f"p{world.number}"])
        for _ in range(3 if actor.task is None else 0):
            actor.view = len(world.views) - 1
            world.reconcile(actor, namespace)
            world.finish(actor)
        return
    if namespace in world.views[-1].opted_in:
        world.opt(namespace)
    world.delete_namespace(namespace)
    if actor.task is None:
        actor.view = len(world.views) - 1
        _drop_from_any(world, actor, namespace)


def _terminate(world: SharingSimulation, namespace: str) -> None:
    if namespace in world.terminating:
        world.make_anew(namespace)
    else:
        world.terminate(namespace)


def _take_back(world: SharingSimulation, namespace: str) -> None:
    """Edit the selector, or take that back; a controller follows, and may be on its way then."""
    world.turn()
    actor = world.rng.choice(world.controllers)
    if actor.task is None:
        actor.view = len(world.views) - 1
        world.reconcile(actor, namespace)
        for _ in range(world.rng.randrange(10)):
            world.step(actor)


def _promise(world: SharingSimulation, _namespace: str) -> None:
    stored = world.read_stored().quotas.values()
    waiting, promised = world.waiting(), sorted({uid for one in stored for uid in one.promised})
    actor = world.rng.choice(world.controllers)
    if promised and world.rng.random() < 0.5:
        world.withdraw(actor, world.rng.choice(promised))
    elif waiting:
        world.promise(actor, world.rng.choice(waiting))


_ACTS: Final[Acts] = {
    "create": (18, _create),
    "bind": (27, _bind),
    "bind many": (25, _bind_many),
    "settle": (20, lambda world, name: world.reconcile(world.rng.choice(world.controllers), name)),
    "commit": (10, _commit),
    "end": (7, _end),
    "pass time": (6, _pass_time),
    "see": (5, _see),
    "run all": (1.5, lambda world, _name: world.run_all()),
    "disturb": (4, _disturb),
    "drop": (2, _drop),
    "promise": (6, _promise),
    "delete": (12, _delete),
    "terminate": (4, _terminate),
    "take back": (5, _take_back),
    "look": (3, lambda world, _name: world.look(world.rng.choice(world.controllers))),
}
