"""What the product decides, by its own functions: ledgers as numbers in, ledgers as numbers out.

Every ledger goes through its written form. The same question is asked once: the functions know
nothing but what they are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.quota.ledger_model.state import (
    History,
    Leader,
    Name,
    Phase,
    phases,
)
from webhook.jsonfields.encoding import decode_json, encode_json
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, add
from webhook.quota.ledger import apply_usage
from webhook.quota.ledger import ledger as ledger_module
from webhook.quota.ledger.apply_usage import CountedQuota, Expiry, ObservedPod, UsageCount
from webhook.quota.ledger.ledger import (
    NEWEST,
    Claim,
    Ledger,
    QuotaRevision,
    Reservation,
    ReservationSource,
    Verdict,
)
from webhook.quota.ledger.ledger_codec import ledger_from_status, ledger_status
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import QueuedPod, QueuePolicy
from webhook.quota.queue.release_order import run_cycle

CPU = "requests.cpu"
QUOTA = "compute"
REVISION = QuotaRevision(QUOTA, "uid-compute", "1")
HARD = 1
USAGE: ResourceList = {CPU: Quantity.parse("1")}
"""Of each pod: only one of them fits."""

_NO_TIME = datetime(2026, 5, 4, tzinfo=UTC)


def uid(pod: int) -> str:
    """Return the uid of a pod."""
    return f"uid-{pod}"


@dataclass(frozen=True)
class Charged:
    """What one ledger charges."""

    amount: int
    """Used and reserved together."""
    seen: int
    """How many changes of pods were counted."""
    reserved: Mapping[int, Reservation]
    """The pods that something is reserved for."""


class Decisions:
    """The ledgers that there were, and what was decided by them."""

    def __init__(self) -> None:
        self._ledgers: list[Ledger | None] = [None]
        self._objects: list[int] = [0]
        self._numbers: dict[tuple[int, bytes], int] = {}
        self._charged: list[Charged | None] = [None]
        self._binds: dict[tuple[int, tuple[Name, ...]], tuple[int, list[Verdict]]] = {}
        self._counts: dict[tuple[object, ...], int | None] = {}

    def number(self, ledger: Ledger, of_object: int) -> int:
        """Return the number of what an object says."""
        written = (of_object, encode_json(ledger_status(ledger)))
        if written not in self._numbers:
            self._numbers[written] = len(self._ledgers)
            self._objects.append(of_object)
            read = ledger_from_status(decode_json(written[1]))
            assert read is not None
            self._ledgers.append(read)
            self._charged.append(_charged(read))
        return self._numbers[written]

    def charged(self, number: int) -> Charged | None:
        """Return what a ledger charges; None where there is none."""
        return self._charged[number]

    def object_of(self, number: int) -> int:
        """Return which object it is that says this."""
        return self._objects[number]

    def bind(self, number: int, names: tuple[Name, ...]) -> tuple[int, list[Verdict]]:
        """Decide a handler's binds by one ledger; return the one to write, and the verdicts."""
        key = (number, names)
        if key not in self._binds:
            self._binds[key] = self._bind(number, names)
        return self._binds[key]

    def first(self, history: History, leader: Leader) -> int:
        """Return the ledger that counts the pods as they are in the beginning."""
        counted = apply_usage.apply_usage(None, _count(history, leader.gone))
        assert counted is not None
        return self.number(counted, 0)

    def following(self, number: int, history: History, leader: Leader) -> int | None:
        """Return the ledger that a leader writes by what it has seen; None for none now."""
        proofs = tuple(
            None if watch is None or watch.proof < 0 else (watch.serial, watch.proof)
            for watch in leader.watches
        )
        seen = history[: leader.seen]
        key = (number, seen, leader.gone, proofs)
        if key not in self._counts:
            self._counts[key] = self._following(number, seen, leader.gone, proofs)
        return self._counts[key]

    def _bind(self, number: int, names: tuple[Name, ...]) -> tuple[int, list[Verdict]]:
        known = self._ledgers[number]
        unusable = ledger_module.check_observed(known, frozenset({REVISION}))
        if known is None or unusable:
            return number, [unusable or ledger_module.NO_LEDGER] * len(names)
        claims = [_claim(pod, ReservationSource.BIND) for pod, _ in names]
        following, verdicts = ledger_module.admit_all(known, claims)
        return self.number(following, self._objects[number]), verdicts

    def _following(
        self,
        number: int,
        seen: History,
        gone: frozenset[int],
        proofs: tuple[tuple[int, int] | None, ...],
    ) -> int | None:
        expired = {
            uid(pod): Expiry(*proof) for pod, proof in enumerate(proofs) if proof is not None
        }
        counted = apply_usage.apply_usage(
            self._ledgers[number], _count(seen, gone), expired=expired
        )
        if counted is None:
            return None
        queue = [_queued(pod) for pod, (phase, _) in phases(seen).items() if phase is Phase.GATED]
        cycle = run_cycle(counted, queue, QueuePolicy(), room=5)
        assert cycle.ledger is not None
        of_object = self._objects[number] if number else 1
        return self.number(cycle.ledger, of_object)


def _claim(pod: int, source: ReservationSource) -> Claim:
    return Claim(uid(pod), f"pod-{pod}", source, USAGE, (QUOTA,), observed_version=NEWEST)


def _charged(ledger: Ledger) -> Charged:
    account = ledger.accounts[QUOTA]
    taken = add(account.used, account.reserved)
    pods = {int(uid.removeprefix("uid-")): one for uid, one in ledger.reservations.items()}
    return Charged(taken[CPU].value if CPU in taken else 0, ledger.pods_resource_version, pods)


def _queued(pod: int) -> QueuedPod:
    claim = _claim(pod, ReservationSource.RELEASE)
    stored = Pod.from_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{pod}", "namespace": "team", "uid": uid(pod)},
            "spec": {"containers": [{"name": "main", "image": "app"}]},
        }
    )
    return QueuedPod(stored, (0, _NO_TIME, pod, uid(pod)), claim, claim.quotas)


def _count(seen: History, gone: frozenset[int]) -> UsageCount:
    now = phases(seen)
    bound = sum(phase is Phase.BOUND for phase, _ in now.values())
    pods = {
        uid(pod): ObservedPod(
            version, phase is Phase.BOUND, is_live=True, usage=USAGE, quotas=frozenset({QUOTA})
        )
        for pod, (phase, version) in now.items()
        if phase is not Phase.GONE
    }
    quota = CountedQuota(REVISION, _cpu(HARD), _cpu(bound))
    return UsageCount(len(seen), {QUOTA: quota}, pods, {uid(pod) for pod in gone})


def _cpu(amount: int) -> ResourceList:
    return {CPU: Quantity.parse(str(amount))}
