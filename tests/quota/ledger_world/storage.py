"""What is stored, every version of it, and a clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.quota.ledger_world.objects import HELD, KEYS, PodState, QuotaState
from webhook.jsonfields.encoding import decode_json, encode_json
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.ledger.ledger_codec import ledger_from_status, ledger_status


class Storage:
    """The API server's memory; whatever is written raises `version`.

    Attributes:
        clock: In seconds.
        version: Of the newest change.
        pods: Pod uid → its newest version, of those that are there.
        pod_history: All versions of all pods.
        quota_history: All versions of all quotas, with the version of each change.
        ledger: The ledger's version, and what is written in it; None where there is none.
        ledger_uid: Which ledger object it is.
        recounted_at: When the ledger last began to count other resources, or otherwise.
        keys: What the configuration defers.
        holds: Whether the configuration holds stuck pods until they are gone.
        leader: Which controller has the lease.
    """

    def __init__(self) -> None:
        self.clock = 0.0
        self.version = 0
        self.pods: dict[str, PodState] = {}
        self.pod_history: list[PodState] = []
        self.quota_history: list[tuple[int, QuotaState]] = []
        self.ledger: tuple[int, bytes | None] = (0, None)
        self.ledger_uid = 0
        self.recounted_at = 0
        self.keys = KEYS[0]
        self.holds = False
        self.leader = 0
        self._serial = 0
        self._counted: frozenset[str] = frozenset()
        self._read: tuple[bytes | None, Ledger | None] = (None, None)
        self._pods_of: dict[int, dict[str, PodState]] = {}
        self._quotas_of: dict[int, dict[str, QuotaState]] = {}

    def next_number(self) -> int:
        """Return a number that nothing has yet."""
        self._serial += 1
        return self._serial

    def new_pod(self, cpu: int, memory: int, *, gold: bool) -> PodState:
        """Return a pod that is not stored yet."""
        number = self.next_number()
        return PodState(f"uid-{number}", f"pod-{number}", 0, cpu, memory, gold)

    # -- pods and quotas -------------------------------------------------------------------

    def store(self, pod: PodState) -> None:
        """Write a pod."""
        self.version += 1
        stored = replace(pod, version=self.version)
        self.pod_history.append(stored)
        if stored.is_deleted:
            self.pods.pop(stored.uid, None)
        else:
            self.pods[stored.uid] = stored

    def store_quota(self, quota: QuotaState) -> None:
        """Write a quota."""
        self.version += 1
        self.quota_history.append((self.version, quota))

    def pods_at(self, version: int) -> Mapping[str, PodState]:
        """The pods that were there at a version, by uid."""
        if version not in self._pods_of:  # what comes later has a higher version
            found = {pod.uid: pod for pod in self.pod_history if pod.version <= version}
            there = {uid: pod for uid, pod in found.items() if not pod.is_deleted}
            self._pods_of[version] = there
        return self._pods_of[version]

    def quotas_at(self, version: int) -> Mapping[str, QuotaState]:
        """The quotas that were there at a version, by name."""
        if version not in self._quotas_of:
            found = {quota.name: quota for at, quota in self.quota_history if at <= version}
            there = {name: quota for name, quota in found.items() if not quota.is_deleted}
            self._quotas_of[version] = there
        return self._quotas_of[version]

    def quotas(self) -> Mapping[str, QuotaState]:
        """The quotas that are there now."""
        return self.quotas_at(self.version)

    # -- the ledger ------------------------------------------------------------------------

    def read_ledger(self) -> tuple[int, Ledger | None]:
        """Read the ledger object, through its written form."""
        version, status = self.ledger
        if self._read[0] is not status:  # read once: nobody changes what was read
            read = None if status is None else ledger_from_status(decode_json(status))
            self._read = (status, read)
        return version, self._read[1]

    def write_ledger(self, version: int, following: Ledger) -> bool:
        """Write by compare-and-swap; tell whether that was done."""
        if self.ledger[0] != version:
            return False
        self.version += 1
        accounts = following.accounts.values()
        counted = frozenset(key for one in accounts for key in one.hard)
        counted |= {HELD for one in accounts if one.observed.spec_hash.endswith(HELD)}
        if counted != self._counted:
            self._counted, self.recounted_at = counted, self.version
        self.ledger = (self.version, encode_json(ledger_status(following)))
        return True

    def lose_ledger(self) -> None:
        """Delete the ledger, or empty it, and with it what is reserved."""
        if self.ledger[1] is not None:
            self.version += 1
            self.ledger = (self.version, None)
            self.ledger_uid += 1
