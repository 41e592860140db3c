"""A small world in which the ledger has to keep its laws.

Storage holds pods, quotas and one ledger object, each change with a resource version. Doors and
trackers are separate actors that see storage late, at different times, and through writes that
can conflict or whose answers can get lost. Requests take up to `REQUEST_SECONDS` from the look at
the pod to the write of the pod. Nothing here shares code with the ledger's arithmetic: what is
really taken is summed from the pods in storage.

Pods may wait behind our gate: trackers reserve for them in the write with which they settle, and
remove the gate when they have read that it was written, or never, when another leads by then.

People take part: they remove gates, lose the ledger, edit it in ways that say too much, and change
which resources are deferred, which every actor learns at another moment. Edits that say too little
are left out: what doors admit by them until the tracker notices is nobody's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar, cast

from webhook.encoding import decode_json, encode_json
from webhook.quota import ledger as ledger_module
from webhook.quota import line as line_module
from webhook.quota import line_pass
from webhook.quota import settlement as settlement_module
from webhook.quota.ledger import (
    Admitted,
    Claim,
    Door,
    Ledger,
    Observed,
    Refused,
    Reservation,
    Verdict,
)
from webhook.quota.ledger_codec import ledger_from_status, ledger_status
from webhook.quota.line import Waiter
from webhook.quota.objects import Pod
from webhook.quota.quantity import Quantity
from webhook.quota.resources import ResourceList
from webhook.quota.settlement import Count, CountedQuota, Expiry, SeenPod, settle

REQUEST_SECONDS = 34
EXPIRE_SECONDS = 45
CPU = "requests.cpu"
MEMORY = "requests.memory"
KEYS = (frozenset({CPU, MEMORY}), frozenset({CPU}), frozenset({MEMORY}))
"""What the configuration may defer."""

_NO_TIME = datetime(2026, 5, 4, tzinfo=UTC)

T = TypeVar("T")


@dataclass(frozen=True)
class PodState:
    """One version of a pod in storage."""

    uid: str
    name: str
    version: int
    cpu: int
    memory: int
    gold: bool
    has_deadline: bool = False
    is_assigned: bool = False
    is_finished: bool = False
    is_deleted: bool = False
    is_gated: bool = False

    @property
    def is_live(self) -> bool:
        return not (self.is_finished or self.is_deleted)

    @property
    def waits(self) -> bool:
        return self.is_gated and self.is_live and not self.is_assigned

    @property
    def usage(self) -> ResourceList:
        return amounts(self.cpu, self.memory)


@dataclass(frozen=True)
class QuotaState:
    """One version of a quota in storage; `scope` is one of `SCOPES`."""

    uid: str
    name: str
    cpu: int
    memory: int
    scope: str
    is_deleted: bool = False

    def hard(self, keys: Set[str]) -> ResourceList:
        return part(amounts(self.cpu, self.memory), keys)

    def observed(self, keys: Set[str]) -> Observed:
        named = "+".join(sorted(keys))
        return Observed(self.name, self.uid, f"{self.cpu}/{self.memory}/{self.scope}/{named}")

    def applies_to(self, pod: PodState) -> bool:
        return {
            "all": True,
            "gold": pod.gold,
            "deadline": pod.has_deadline,
            "no-deadline": not pod.has_deadline,
        }[self.scope]


SCOPES = ("all", "gold", "deadline", "no-deadline")


@dataclass
class Request:
    """A request on its way from the webhook to storage."""

    kind: str
    pod: PodState  # as storage will have it if the request succeeds
    read_version: int  # the version the API server's write is conditional on; 0: none
    started: float
    claim: Claim
    observed: frozenset[Observed]
    ledger: tuple[int, Ledger | None]
    keys: frozenset[str]
    again: Callable[[PodState], None] | None = None
    """Asks again, of a newer pod, where storage has one; None for what then has failed."""
    is_admitted: bool = False
    admitted_at: int = 0
    was_refused: bool = False


@dataclass
class DoorActor:
    """A webhook replica: how far its caches have seen pods and quotas, and what it defers."""

    pods_seen: int = 0
    quotas_seen: int = 0
    keys: frozenset[str] = KEYS[0]


@dataclass
class TrackerActor:
    """A controller replica, leader or not: its caches and what it watches."""

    pods_seen: int = 0
    quotas_seen: int = 0
    watched: dict[str, tuple[int, float]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    ledger: tuple[int, Ledger | None] = (0, None)
    keys: frozenset[str] = KEYS[0]
    watched_uid: int = 0
    lost_since: float | None = None
    sent: tuple[int, Ledger] | None = None
    prefers_pace: bool = False


class World:
    """Storage, actors and a clock; every public method is one step."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.version = 0
        self.pods: dict[str, PodState] = {}
        self.pod_history: list[PodState] = []
        self.quota_history: list[tuple[int, QuotaState]] = []
        self.ledger: tuple[int, bytes | None] = (0, None)
        self.ledger_uid = 0
        self.keys = KEYS[0]
        self.leader = 0
        self.requests: list[Request] = []
        self.doors = [DoorActor(), DoorActor()]
        self.trackers = [TrackerActor(), TrackerActor(prefers_pace=True)]
        self.serial = 0
        self.counted: frozenset[str] = frozenset()
        self.recounted_at = 0
        """When the ledger last began to count other resources."""
        self.commits = 0
        self.releases = 0
        self._read: tuple[bytes | None, Ledger | None] = (None, None)
        self._pods_of: dict[int, dict[str, PodState]] = {}
        self._quotas_of: dict[int, dict[str, QuotaState]] = {}
        self._checked_at = 0
        self.put_quota("base", cpu=6, memory=8, scope="all")
        for tracker in self.trackers:
            self.catch_up(tracker)
        known = settlement_module.settle(None, self._count(self.trackers[0]), expired={})
        assert known is not None
        self._write(0, known)

    # -- people and controllers ------------------------------------------------------------

    def create_pod(self, cpu: int, memory: int, *, gold: bool, is_gated: bool = False) -> None:
        """Create a pod that waits for a node, perhaps behind our gate."""
        self._store(replace(self._new_pod(cpu, memory, gold=gold), is_gated=is_gated))

    def strip(self, index: int) -> None:
        """Let somebody remove a gate, asked or not."""
        pod = pick([pod for pod in self.pods.values() if pod.waits], index)
        if pod is not None:
            self._store(replace(pod, is_gated=False))

    def finish(self, index: int) -> None:
        """Let an assigned pod end."""
        pod = pick([pod for pod in self.pods.values() if pod.is_assigned and pod.is_live], index)
        if pod is not None:
            self._store(replace(pod, is_finished=True))

    def delete(self, index: int) -> None:
        """Delete a pod, waiting or assigned."""
        pod = pick(list(self.pods.values()), index)
        if pod is not None:
            self._store(replace(pod, is_deleted=True))

    def put_quota(self, name: str, *, cpu: int, memory: int, scope: str) -> None:
        """Create a quota or change its limits or scope."""
        former = self.quotas().get(name)
        uid = former.uid if former is not None else f"quota-{self._next()}"
        self.version += 1
        quota = QuotaState(uid, name, cpu, memory, scope)
        self.quota_history.append((self.version, quota))

    def delete_quota(self, name: str) -> None:
        """Delete a quota; `base` always stays."""
        former = self.quotas().get(name)
        if former is not None and name != "base":
            self.version += 1
            self.quota_history.append((self.version, replace(former, is_deleted=True)))

    def lose_ledger(self) -> None:
        """Delete the ledger, or empty it, and with it what is reserved."""
        if self.ledger[1] is not None:
            self.version += 1
            self.ledger = (self.version, None)
            self.ledger_uid += 1

    def edit_ledger(self, index: int, more: int) -> None:
        """Write by hand into the ledger: more usage, a lower limit, a reservation of nobody."""
        version, known = self.read_ledger()
        if known is None:
            return
        account = pick(list(known.accounts.values()), index)
        edits: list[Ledger] = []
        if account is not None:
            name = account.observed.name
            nothing = {key: Quantity.parse("0") for key in account.hard}
            edits = [
                replace(known, accounts={**known.accounts, name: edited})
                for edited in (
                    replace(account, used=raised(account.used, more)),
                    replace(account, hard=nothing),
                )
            ]
            invented = self._invented(more, name)
            following = {**known.reservations, invented.uid: invented}
            edits.append(replace(known, reservations=following))
        following_ledger = pick(edits, index + more)
        if following_ledger is not None:
            reserved = ledger_module.reserved_by(following_ledger.reservations.values())
            accounts = {
                name: replace(one, reserved=reserved.get(name, {}))
                for name, one in following_ledger.accounts.items()
            }
            self._write(version, replace(following_ledger, accounts=accounts))

    def configure(self, index: int) -> None:
        """Change which resources are deferred; nobody knows yet."""
        self.keys = KEYS[index % len(KEYS)]

    def reload(self, actor: DoorActor | TrackerActor) -> None:
        """Let an actor learn which resources are deferred."""
        actor.keys = self.keys

    def pass_time(self, seconds: float) -> None:
        """Let time pass; requests that last too long end without a write."""
        self.clock += seconds
        self.requests = [
            one for one in self.requests if self.clock - one.started <= REQUEST_SECONDS
        ]

    # -- requests --------------------------------------------------------------------------

    def bind(self, index: int, door: int) -> None:
        """Ask to bind a waiting pod, as the door's cache shows it."""
        actor = self.doors[door]
        candidates = [pod for pod in self.pods.values() if not pod.is_assigned and pod.is_live]
        now = pick(candidates, index)
        if now is None or now.is_gated:  # the door says what storage would say
            return
        quotas = self._quotas_at(actor.quotas_seen)
        claim = self._claim(self._pod_as_seen(actor, now), quotas, actor.keys)
        self._request("bind", replace(now, is_assigned=True), 0, claim, actor)

    def create_assigned(self, cpu: int, memory: int, door: int) -> None:
        """Ask to create a pod that has a node from the start."""
        pod = replace(self._new_pod(cpu, memory, gold=cpu % 2 == 0), is_assigned=True)
        actor = self.doors[door]
        claim = replace(
            self._claim(pod, self._quotas_at(actor.quotas_seen), actor.keys), door=Door.CREATE
        )
        self._request("create", pod, 0, claim, actor)

    def resize(self, index: int, cpu: int, door: int) -> None:
        """Ask to change the cpu of a pod, waiting or assigned."""
        pod = pick([pod for pod in self.pods.values() if pod.is_live], index)
        if pod is not None:
            self._change(pod, replace(pod, cpu=cpu), Door.RESIZE, door)

    def patch(self, index: int, cpu: int, age: int, door: int) -> None:
        """Patch the cpu of a pod, as it was some versions ago.

        An API server applies a patch to the pod in its cache, and asks about that. If storage has a
        newer one, it applies the patch to that, and asks again, whatever the first answer was.

        Source: kubernetes v1.36, staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go
        GuaranteedUpdate.
        """
        now = pick([pod for pod in self.pods.values() if pod.is_live], index)
        if now is not None:
            versions = [pod for pod in self.pod_history if pod.uid == now.uid]
            self._patch(versions[-1 - age % len(versions)], cpu, door, self.clock)

    def flip(self, index: int, door: int) -> None:
        """Ask to give a pod a deadline, or to take it away."""
        pod = pick([pod for pod in self.pods.values() if pod.is_live], index)
        if pod is not None:
            self._change(pod, replace(pod, has_deadline=not pod.has_deadline), Door.UPDATE, door)

    def decide(self, index: int, *, loses_answer: bool = False) -> None:
        """Let a door decide together all requests that have read the same ledger, and write."""
        first = pick([one for one in self.requests if not one.is_admitted], index)
        if first is None:
            return
        version, known = first.ledger
        batch = [one for one in self.requests if not one.is_admitted and one.ledger[0] == version]
        for one in [one for one in batch if ledger_module.not_counted(known, one.observed)]:
            batch.remove(one)
            self.requests.remove(one)
        if known is None or not batch:
            return
        following, verdicts = ledger_module.admit_all(known, [one.claim for one in batch])
        self._check_refused_untouched(known, following, batch, verdicts)
        is_admitting = any(isinstance(verdict, Admitted) for verdict in verdicts)
        is_written = is_admitting and self._write(version, following)
        is_known_written = is_written and not loses_answer
        final = ledger_module.final_verdicts(
            verdicts, is_written=is_known_written or not is_admitting
        )
        for request, verdict, stands in zip(batch, verdicts, final, strict=True):
            self._answer(request, verdict, stands)

    def _answer(self, request: Request, verdict: Verdict, stands: Verdict | None) -> None:
        if isinstance(verdict, Refused) and not verdict.provisional:
            request.was_refused = True
        if isinstance(stands, Admitted):
            assert not request.was_refused, "a refused request was admitted later"
            request.is_admitted, request.admitted_at = True, self.version
        elif stands is not None:
            self.requests.remove(request)
            self._ask_again(request)
        else:
            request.ledger = self.read_ledger()

    def _check_refused_untouched(
        self,
        known: Ledger,
        following: Ledger,
        batch: Sequence[Request],
        verdicts: Sequence[Verdict],
    ) -> None:
        """A refused pod holds after the decision what it held before it (law 7)."""
        admitted = {
            one.claim.uid
            for one, verdict in zip(batch, verdicts, strict=True)
            if isinstance(verdict, Admitted)
        }
        for one in batch:
            uid = one.claim.uid
            if uid not in admitted:
                assert following.reservations.get(uid) == known.reservations.get(uid), (
                    "a refused request left a charge"
                )

    def crash_door(self, index: int) -> None:
        """Lose a door's answer for good: the API server fails the request."""
        request = pick(self.requests, index)
        if request is not None:
            self.requests.remove(request)

    def commit(self, index: int) -> None:
        """Let storage carry out an admitted request, if it still can."""
        request = pick([one for one in self.requests if one.is_admitted], index)
        if request is None:
            return
        self.requests.remove(request)
        before = self.pods.get(request.pod.uid)
        if not self._can_commit(request, before):
            self._ask_again(request)
            return
        wanted = request.pod
        if request.kind == "bind":
            assert before is not None
            wanted = replace(before, is_assigned=True)
        self._store(wanted)
        self.commits += 1
        self._check_commit(request, before, wanted)

    # -- actors ----------------------------------------------------------------------------

    def see(self, actor: DoorActor | TrackerActor, events: int) -> None:
        """Deliver some more watch events to an actor's caches."""
        former = actor.pods_seen
        versions = [pod.version for pod in self.pod_history if pod.version > former]
        actor.pods_seen = versions[:events][-1] if versions and events else former
        quota_versions = [at for at, _ in self.quota_history if at > actor.quotas_seen]
        if quota_versions and events:
            actor.quotas_seen = quota_versions[:events][-1]
        if isinstance(actor, TrackerActor):
            actor.gone |= {
                pod.uid
                for pod in self.pod_history
                if former < pod.version <= actor.pods_seen and pod.is_deleted
            }

    def catch_up(self, actor: DoorActor | TrackerActor) -> None:
        """Deliver everything."""
        self.see(actor, len(self.pod_history) + len(self.quota_history))
        actor.pods_seen = actor.quotas_seen = self.version

    def restart(self, actor: DoorActor | TrackerActor, age: int) -> None:
        """Forget everything and list again, perhaps an older state than was seen before."""
        actor.pods_seen = max(0, self.version - age)
        actor.quotas_seen = max(1, self.version - age)
        if isinstance(actor, TrackerActor):
            actor.watched.clear()
            actor.gone.clear()
            actor.ledger = (0, None)
            actor.lost_since = actor.sent = None

    def begin_term(self, tracker: int) -> None:
        """Let a tracker lead anew: it has watched nothing, and what it sent may arrive still."""
        actor = self.trackers[tracker]
        actor.watched.clear()
        actor.ledger = (0, None)
        actor.lost_since = None

    def look(self, tracker: int) -> None:
        """Let a tracker read the ledger and note which reservations it sees."""
        actor = self.trackers[tracker]
        actor.ledger = self.read_ledger()
        known = actor.ledger[1]
        reservations = {} if known is None else known.reservations
        if actor.watched_uid != self.ledger_uid:
            actor.watched.clear()
            actor.watched_uid = self.ledger_uid
        if self.leader != tracker:  # what it saw of losses before another led is not current
            self.leader, actor.lost_since = tracker, None
        if known is None and actor.lost_since is None:
            actor.lost_since = self.clock
        actor.watched = {
            uid: actor.watched[uid]
            if uid in actor.watched and actor.watched[uid][0] == one.serial
            else (one.serial, self.clock)
            for uid, one in reservations.items()
        }

    def settle(self, tracker: int, *, looks: bool = True) -> None:
        """Let a tracker count its view of the pods and write the ledger."""
        if looks:
            self.look(tracker)
        actor = self.trackers[tracker]
        following = self._following(actor)
        if following is not None and self._write(actor.ledger[0], following):
            actor.lost_since = None

    def send(self, tracker: int) -> None:
        """Let a tracker decide what to write; it may lose its leadership before that arrives."""
        self.look(tracker)
        actor = self.trackers[tracker]
        following = self._following(actor)
        actor.sent = None if following is None else (actor.ledger[0], following)

    def arrive(self, tracker: int) -> None:
        """Let storage do what a tracker has sent, however long ago."""
        actor = self.trackers[tracker]
        sent, actor.sent = actor.sent, None
        if sent is not None and self._write(*sent):
            actor.lost_since = None

    def _following(self, actor: TrackerActor) -> Ledger | None:
        """What a tracker means to write in the place of the ledger that it has read."""
        known = actor.ledger[1]
        if known is None:
            wait = settlement_module.seconds_until_new(
                lost_since=actor.lost_since, now=self.clock, expire_seconds=EXPIRE_SECONDS
            )
            if self.ledger[0] != actor.ledger[0] or wait or not self._has_seen_all(actor):
                return None
        else:
            actor.lost_since = None
        following = settle(known, self._count(actor), expired=self._expired(actor))
        return None if following is None else self._with_releases(actor, following)

    def _with_releases(self, actor: TrackerActor, following: Ledger) -> Ledger:
        """Reserve for those who wait and fit, as the tracker sees them."""
        quotas = self._quotas_at(actor.quotas_seen)
        line = [
            Waiter(
                cast("Pod", pod),
                (0, _NO_TIME, int(pod.uid.removeprefix("uid-")), pod.uid),
                replace(
                    self._claim(pod, quotas, actor.keys),
                    door=Door.RELEASE,
                    seen=ledger_module.NEWEST,
                ),
            )
            for pod in self._pods_at(actor.pods_seen).values()
            if pod.waits
        ]
        order = line_module.Order.BEST_EFFORT if actor.prefers_pace else line_module.Order.STRICT
        rules = line_module.LineRules(order=order, most_overtakes=2)
        passed = line_pass.pass_line(
            following,
            sorted(line, key=lambda one: one.place),
            rules,
            room=5,
        )
        assert passed.ledger is not None
        self._check_released(passed)
        self.releases += len(passed.released)
        return passed.ledger

    def _check_released(self, passed: line_module.Passed) -> None:
        """What is reserved for those who wait fits beside all that is used and reserved (law 2)."""
        assert passed.ledger is not None
        sums = ledger_module.reserved_by(passed.ledger.reservations.values())
        for waiter in passed.released:
            claim = waiter.claim
            assert claim is not None
            for name in claim.quotas:
                account = passed.ledger.accounts[name]
                for resource, hard in account.hard.items():
                    held = number(account.used, resource) + number(sums[name], resource)
                    asks = number(claim.usage, resource)
                    assert not asks or held <= hard.value, f"{claim.pod} was released beyond {name}"

    def ungate(self, tracker: int, index: int) -> None:
        """Let a tracker remove a gate, by the ledger that it has read, however long ago."""
        _, known = self.trackers[tracker].ledger
        reservations = {} if known is None else known.reservations
        pod = pick([pod for pod in self.pods.values() if pod.waits], index)
        if pod is not None and pod.uid in reservations and not reservations[pod.uid].is_intent:
            self._store(replace(pod, is_gated=False))

    def _has_seen_all(self, actor: TrackerActor) -> bool:
        """Whether a fresh list shows nothing that the tracker's cache lacks."""
        seen = self._pods_at(actor.pods_seen)
        return all(seen.get(uid) == pod for uid, pod in self.pods.items())

    # -- what must hold --------------------------------------------------------------------

    def check_laws(self) -> None:
        """Check what holds at every moment, for every quota counted as it is now (law 1).

        Whatever is stored raises the version: what was checked at this one need not be again.
        """
        if self._checked_at == self.version:
            return
        _, known = self.read_ledger()
        if known is None:
            return
        quotas = self.quotas()
        sums = ledger_module.reserved_by(known.reservations.values())
        for one in known.reservations.values():
            for charge in one.charges.values():
                assert not ledger_module.excess(charge, one.usage), f"{one.pod} is charged twice"
        for name, account in known.accounts.items():
            for resource in account.hard:
                reserved = number(account.reserved, resource)
                assert reserved == number(sums.get(name, {}), resource), (
                    f"{name}: reserved is not the sum of the reservations"
                )
                if (
                    name in quotas
                    and quotas[name].observed(account.hard.keys()) == account.observed
                ):
                    held = number(account.used, resource) + reserved
                    taken = self.taken(quotas[name], resource)
                    assert held >= taken, f"{name}: {taken} {resource} taken, {held} in the ledger"
        self._checked_at = self.version

    def check_quiet(self) -> None:
        """Let every request end and all caches catch up; the ledger must then be exact."""
        for _ in list(self.pods):
            self.strip(0)
        self.pass_time(REQUEST_SECONDS + 1)
        self.reload(self.trackers[0])
        self.catch_up(self.trackers[0])
        self.settle(0)
        if not self._is_settled():  # it was lost, or waits for what is on its way
            self.pass_time(EXPIRE_SECONDS + 1)
            self.settle(0)
        _, known = self.read_ledger()
        assert known is not None
        for uid, one in known.reservations.items():
            pod = self.pods.get(uid)
            assert pod is None or not pod.is_assigned or pod.version <= one.after, (
                f"{one.pod} is both used and reserved"
            )
        self.pass_time(EXPIRE_SECONDS + 1)
        self.settle(0)
        _, known = self.read_ledger()
        assert known is not None
        assert known.observed == observed(self.quotas(), self.keys)
        for name, quota in self.quotas().items():
            account = known.accounts[name]
            for resource in self.keys:
                assert number(account.used, resource) == self.taken(quota, resource), name
                assert not number(account.reserved, resource), f"{name} still holds reservations"

    def _is_settled(self) -> bool:
        _, known = self.read_ledger()
        return known is not None and known.pods_resource_version >= self.trackers[0].pods_seen

    def taken(self, quota: QuotaState, resource: str) -> int:
        """What assigned, live pods really take of one quota."""
        pods = [pod for pod in self.pods.values() if pod.is_assigned and pod.is_live]
        return sum(
            pod.cpu if resource == CPU else pod.memory for pod in pods if quota.applies_to(pod)
        )

    def quotas(self) -> Mapping[str, QuotaState]:
        """The quotas in storage."""
        return self._quotas_at(self.version)

    def read_ledger(self) -> tuple[int, Ledger | None]:
        """Read the ledger object, through its written form."""
        version, status = self.ledger
        if self._read[0] is not status:  # read once: nobody changes what was read
            read = None if status is None else ledger_from_status(decode_json(status))
            self._read = (status, read)
        return version, self._read[1]

    # -- inside ----------------------------------------------------------------------------

    def _next(self) -> int:
        self.serial += 1
        return self.serial

    def _new_pod(self, cpu: int, memory: int, *, gold: bool) -> PodState:
        serial = self._next()
        return PodState(f"uid-{serial}", f"pod-{serial}", 0, cpu, memory, gold)

    def _store(self, pod: PodState) -> None:
        self.version += 1
        stored = replace(pod, version=self.version)
        self.pod_history.append(stored)
        if stored.is_deleted:
            self.pods.pop(stored.uid, None)
        else:
            self.pods[stored.uid] = stored

    def _quotas_at(self, version: int) -> Mapping[str, QuotaState]:
        if version not in self._quotas_of:  # what comes later has a higher version
            found = {quota.name: quota for at, quota in self.quota_history if at <= version}
            there = {name: quota for name, quota in found.items() if not quota.is_deleted}
            self._quotas_of[version] = there
        return self._quotas_of[version]

    def _pods_at(self, version: int) -> Mapping[str, PodState]:
        if version not in self._pods_of:
            found = {pod.uid: pod for pod in self.pod_history if pod.version <= version}
            there = {uid: pod for uid, pod in found.items() if not pod.is_deleted}
            self._pods_of[version] = there
        return self._pods_of[version]

    def _pod_as_seen(self, actor: DoorActor, now: PodState) -> PodState:
        """The pod in the door's cache, or live where the cache has none or is too old."""
        _, known = self.read_ledger()
        seen = self._pods_at(actor.pods_seen).get(now.uid)
        if seen is None or seen.is_gated or (known is not None and actor.pods_seen < known.barrier):
            return now
        return seen

    def _seen(self, actor: DoorActor) -> int:
        """How far a door has seen pods, or the barrier that a live look-up satisfies."""
        _, known = self.read_ledger()
        return actor.pods_seen if known is None else max(actor.pods_seen, known.barrier)

    def _claim(
        self, pod: PodState, quotas: Mapping[str, QuotaState], keys: frozenset[str]
    ) -> Claim:
        applying = tuple(name for name, quota in quotas.items() if quota.applies_to(pod))
        return Claim(pod.uid, pod.name, Door.BIND, part(pod.usage, keys), applying)

    def _invented(self, amount: int, quota: str) -> Reservation:
        """A reservation that somebody wrote by hand, of a pod that never was."""
        usage = {CPU: Quantity.parse(str(amount))}
        uid = f"nobody-{self._next()}"
        return Reservation(uid, uid, Door.BIND, usage, {quota: usage}, (quota,), serial=0)

    def _request(self, kind: str, pod: PodState, read: int, claim: Claim, actor: DoorActor) -> None:
        known_as = observed(self._quotas_at(actor.quotas_seen), actor.keys)
        claim = replace(claim, seen=self._seen(actor))
        request = Request(
            kind, pod, read, self.clock, claim, known_as, self.read_ledger(), actor.keys
        )
        self.requests.append(request)

    def _patch(self, seen: PodState, cpu: int, door: int, started: float) -> None:
        """Ask about a patch of a pod as it was seen, and again if it is not that any more."""
        self._change(seen, replace(seen, cpu=cpu), Door.RESIZE, door)
        request = self.requests[-1]
        request.started = started
        request.again = lambda now: self._patch(now, cpu, door, started)

    def _ask_again(self, request: Request) -> None:
        """Ask about a patch once more if it was applied to a pod that is older than the stored."""
        now = self.pods.get(request.pod.uid)
        is_old = now is not None and now.is_live and now.version != request.read_version
        if request.again is not None and now is not None and is_old:
            request.again(now)

    def _change(self, old: PodState, new: PodState, kind: Door, door: int) -> None:
        """Ask for an update of a pod; storage writes it only if the pod is still `old`."""
        actor = self.doors[door]
        quotas = self._quotas_at(actor.quotas_seen)
        counted = {
            name: part(old.usage, actor.keys)
            for name, quota in quotas.items()
            if old.is_assigned and quota.applies_to(old)
        }
        claim = replace(
            self._claim(new, quotas, actor.keys),
            door=kind,
            counted=counted,
            after=old.version,
            is_intent=not old.is_assigned,
        )
        self._request("change", new, old.version, claim, actor)

    def _can_commit(self, request: Request, before: PodState | None) -> bool:
        if request.kind == "create":
            return True
        if before is None or not before.is_live:
            return False
        if request.kind == "bind":
            return not (before.is_assigned or before.is_gated)
        return before.version == request.read_version

    def _check_commit(self, request: Request, before: PodState | None, after: PodState) -> None:
        """Nothing grows beyond a quota that is as it was when the request was admitted (law 2)."""
        if not after.is_assigned:
            return
        for quota in self.quotas().values():
            is_as_known = quota.observed(request.keys) in request.observed
            if not is_as_known or not quota.applies_to(after):
                continue
            if self.recounted_at > request.admitted_at:
                continue  # what was admitted since claimed for other resources
            counted = before is not None and before.is_assigned and quota.applies_to(before)
            for resource, limit in quota.hard(request.keys).items():
                hard = limit.value
                grown = number(after.usage, resource)
                if counted and before is not None:
                    grown -= number(before.usage, resource)
                taken = self.taken(quota, resource)
                assert grown <= 0 or taken <= hard, (
                    f"over-commit of {quota.name}: {taken} {resource} of {hard}"
                )

    def _write(self, version: int, following: Ledger) -> bool:
        if self.ledger[0] != version:
            return False
        self.version += 1
        counted = frozenset(key for one in following.accounts.values() for key in one.hard)
        if counted != self.counted:
            self.counted, self.recounted_at = counted, self.version
        self.ledger = (self.version, encode_json(ledger_status(following)))
        return True

    def _count(self, actor: TrackerActor) -> Count:
        quotas = self._quotas_at(actor.quotas_seen)
        pods = self._pods_at(actor.pods_seen)
        counted = {
            name: CountedQuota(
                quota.observed(actor.keys),
                quota.hard(actor.keys),
                part(_used(quota, pods.values()), actor.keys),
            )
            for name, quota in quotas.items()
        }
        seen = {
            uid: SeenPod(
                pod.version,
                pod.is_assigned,
                pod.is_live,
                part(pod.usage, actor.keys),
                frozenset(name for name, quota in quotas.items() if quota.applies_to(pod)),
            )
            for uid, pod in pods.items()
        }
        return Count(actor.pods_seen, counted, seen, frozenset(actor.gone))

    def _expired(self, actor: TrackerActor) -> dict[str, Expiry]:
        """Ask storage about reservations watched long enough; it and the cache must agree."""
        expired: dict[str, Expiry] = {}
        seen = self._pods_at(actor.pods_seen)
        for uid, (serial, since) in actor.watched.items():
            now = self.pods.get(uid)
            if self.clock - since <= EXPIRE_SECONDS or not self._agrees(now, seen.get(uid)):
                continue
            if now is not None and now.is_gated:
                continue
            expired[uid] = Expiry(serial, 0 if now is None else now.version)
        return expired

    def _agrees(self, stored: PodState | None, seen: PodState | None) -> bool:
        return stored == seen


def amounts(cpu: int, memory: int) -> ResourceList:
    """A resource list of whole numbers."""
    return {CPU: Quantity.parse(str(cpu)), MEMORY: Quantity.parse(str(memory))}


def part(resources: ResourceList, keys: Set[str]) -> ResourceList:
    """The deferred part of a resource list."""
    return {name: amount for name, amount in resources.items() if name in keys}


def raised(resources: ResourceList, more: int) -> ResourceList:
    """A resource list in which everything is more."""
    return {name: amount + Quantity.parse(str(more)) for name, amount in resources.items()}


def observed(quotas: Mapping[str, QuotaState], keys: Set[str]) -> frozenset[Observed]:
    """What quotas are counted as by whoever defers `keys`."""
    return frozenset(quota.observed(keys) for quota in quotas.values())


def number(resources: ResourceList, name: str) -> int:
    """One amount as a whole number; absent is 0."""
    return resources[name].value if name in resources else 0


def pick(items: Sequence[T], index: int) -> T | None:
    """Choose by an arbitrary number; None where there is nothing to choose from."""
    return items[index % len(items)] if items else None


def _used(quota: QuotaState, pods: Iterable[PodState]) -> ResourceList:
    chosen = [pod for pod in pods if pod.is_assigned and pod.is_live and quota.applies_to(pod)]
    return amounts(sum(pod.cpu for pod in chosen), sum(pod.memory for pod in chosen))
