"""What really happened in a cluster, replayed version by version and judged from outside.

Nothing here shares code with the engine: amounts are counted in thousandths of a cpu, from the
objects as they were stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from tests.state.load import RequestAdmission
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS, ApiError, WatchEvent
from webhook.kube.kinds import Kind

Object = dict[str, object]
CPU = "requests.cpu"


def millis(text: object) -> int:
    """Read an amount of cpu: `2`, `1500m`."""
    written = str(text)
    return int(written[:-1]) if written.endswith("m") else 1000 * int(written)


@dataclass(frozen=True)
class PodState:
    """A pod at one version."""

    uid: str
    cpu: int
    is_charged: bool
    gold: bool
    has_deadline: bool


@dataclass(frozen=True)
class QuotaState:
    """A quota at one version."""

    uid: str
    hard: int
    scope: str
    is_excluded: bool

    def applies_to(self, pod: PodState) -> bool:
        return {"": True, "gold": pod.gold, "deadline": pod.has_deadline}[self.scope]


@dataclass(frozen=True)
class AccountState:
    """A quota in a ledger at one version."""

    uid: str
    hard: int
    used: int
    reserved: int


LedgerState = Mapping[str, AccountState]


@dataclass(frozen=True)
class ObservedEvent:
    """One event of a watch; the state is None after a deletion."""

    version: int
    key: str
    state: PodState | QuotaState | LedgerState | None


class Recorder:
    """Follows a cluster from the start and keeps all that happens. To be stopped."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._api = FakeClient(cluster)
        self._start = cluster.resource_version
        self._seen: list[list[ObservedEvent]] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(kind,), daemon=True)
            for kind in (PODS, RESOURCE_QUOTAS, QUOTA_LEDGERS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[ObservedEvent]:
        """Return everything that has happened so far, in order."""
        self._stopping.set()
        self._api.cluster.cut_watches()
        for thread in self._threads:
            thread.join(10)
        return sorted((one for seen in self._seen for one in seen), key=lambda one: one.version)

    def _follow(self, kind: Kind) -> None:
        version, seen = self._start, list[ObservedEvent]()
        self._seen.append(seen)
        while True:
            is_last = self._stopping.is_set()
            try:
                # after the end is asked for, what is left is read without waiting for more
                stream = self._api.watch(
                    kind, resource_version=version, timeout_seconds=0 if is_last else None
                )
                for event in stream:
                    if event.type != "BOOKMARK":
                        seen.append(_read(kind, event))
                        version = event.resource_version
            except ApiError:
                continue
            if is_last:
                return


def _read(kind: Kind, event: WatchEvent) -> ObservedEvent:
    if event.type == "DELETED":
        return ObservedEvent(event.resource_version, event.key, None)
    obj = cast("Object", event.object)
    readers: Mapping[Kind, Callable[[Object], PodState | QuotaState | LedgerState | None]] = {
        PODS: _pod,
        RESOURCE_QUOTAS: _quota,
        QUOTA_LEDGERS: _ledger,
    }
    return ObservedEvent(event.resource_version, event.key, readers[kind](obj))


def _pod(obj: Object) -> PodState:
    spec, status = cast("Object", obj["spec"]), cast("Object", obj["status"])
    (container,) = cast("list[Object]", spec["containers"])
    requests = cast("dict[str, dict[str, str]]", container["resources"])["requests"]
    return PodState(
        uid=str(cast("Object", obj["metadata"])["uid"]),
        cpu=millis(requests["cpu"]),
        is_charged=bool(spec.get("nodeName")) and status["phase"] not in {"Succeeded", "Failed"},
        gold=spec.get("priorityClassName") == "gold",
        has_deadline=spec.get("activeDeadlineSeconds") is not None,
    )


def _quota(obj: Object) -> QuotaState:
    metadata, spec = cast("Object", obj["metadata"]), cast("Object", obj["spec"])
    annotations = cast("Mapping[str, str]", metadata.get("annotations", {}))
    return QuotaState(
        uid=str(metadata["uid"]),
        hard=millis(cast("dict[str, str]", spec["hard"])[CPU]),
        scope=_scope(spec),
        is_excluded=annotations.get("deferredquota.io/exclude") == "true",
    )


def _scope(spec: Object) -> str:
    if "scopeSelector" in spec:
        return "gold"
    return "deadline" if spec.get("scopes") == ["Terminating"] else ""


def _ledger(obj: Object) -> LedgerState | None:
    status = cast("Object", obj.get("status") or {})
    if "podsResourceVersion" not in status:
        return None
    return {
        str(one["name"]): AccountState(
            uid=cast("dict[str, str]", one["observed"])["uid"],
            hard=millis(cast("dict[str, str]", one["hard"])[CPU]),
            used=millis(cast("dict[str, str]", one["used"]).get(CPU, "0")),
            reserved=millis(cast("dict[str, str]", one["reserved"]).get(CPU, "0")),
        )
        for one in cast("Sequence[Object]", status["quotas"])
    }


@dataclass
class Replay:
    """Goes through what happened and checks the laws after every version.

    Attributes:
        admissions: Pod uid → its requests that took quota and were stored.
        commits: How many changes took quota.
        judged: How many times such a change was compared with a limit.
    """

    admissions: Mapping[str, Sequence[RequestAdmission]]
    commits: int = 0
    judged: int = 0
    pods: dict[str, PodState] = field(default_factory=dict)
    quotas: dict[str, QuotaState] = field(default_factory=dict)
    ledgers: list[tuple[int, LedgerState | None]] = field(default_factory=list)

    def run(self, happened: Iterable[ObservedEvent]) -> None:
        """Replay everything; the first law that is broken fails."""
        for one in happened:
            if isinstance(one.state, PodState) or one.key in self.pods:
                self._pod(one.version, one.key, one.state)
            elif isinstance(one.state, QuotaState):
                self.quotas[one.key] = one.state
            elif one.key in self.quotas:
                del self.quotas[one.key]
            else:
                self.ledgers.append((one.version, one.state))
            self._check_safety(one.version)

    def _pod(self, version: int, key: str, now: object) -> None:
        before = self.pods.pop(key, None)
        if not isinstance(now, PodState):
            return
        self.pods[key] = now
        for place, quota in self.quotas.items() if now.is_charged else ():
            former = 0
            if before is not None and before.uid == now.uid and before.is_charged:
                former = before.cpu if quota.applies_to(before) else 0
            if quota.applies_to(now) and now.cpu > former:
                self._check_commit(version, place, quota, now)

    def _check_commit(self, version: int, key: str, quota: QuotaState, pod: PodState) -> None:
        """Nothing grows beyond a limit that it was, or that anybody was since, admitted by."""
        self.commits += 1
        admitted = [
            one.ledger
            for one in self.admissions.get(pod.uid, ())
            if one.ledger < version <= one.stored_by
        ]
        assert admitted, f"version {version}: a pod took quota and no handler had admitted it"
        if quota.is_excluded:
            return
        name = key.partition("/")[2]
        accounts = [
            None if ledger is None else ledger.get(name)
            for at, ledger in self.ledgers
            if min(admitted) <= at
        ]
        if any(one is None or one.uid != quota.uid for one in accounts):
            return  # the quota came, or came back, while the request was on its way
        limit = max(one.hard for one in accounts if one is not None)
        taken = self._taken(quota)
        self.judged += 1
        assert taken <= limit, f"version {version}: over-commit of {name}: {taken}m of {limit}m"

    def _check_safety(self, version: int) -> None:
        """At every moment the ledger holds at least what the pods take."""
        present = self.ledgers[-1][1] if self.ledgers else None
        for name, account in (present or {}).items():
            quota = self.quotas.get(f"team-a/{name}")
            if quota is None or quota.uid != account.uid or quota.is_excluded:
                continue
            taken, held = self._taken(quota), account.used + account.reserved
            # or all of the limit, which may have been lowered meanwhile: nothing more is admitted
            assert held >= min(taken, account.hard), (
                f"version {version}: {name}: {taken}m taken, {held}m in the ledger"
            )

    def _taken(self, quota: QuotaState) -> int:
        return sum(
            pod.cpu for pod in self.pods.values() if pod.is_charged and quota.applies_to(pod)
        )
