"""People, and the controllers of others: they create and delete, and do what nobody should.

They remove gates, lose the ledger, edit it in ways that say too much, and change which resources
are deferred, which every actor learns at another moment. Edits that say too little are left out:
what handlers admit by them until the controller notices is nobody's fault.
"""

from __future__ import annotations

from dataclasses import replace

from tests.quota.ledger_world.objects import CPU, KEYS, QuotaState, pick, raised
from tests.quota.ledger_world.storage import Storage
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.ledger.ledger import Account, Ledger, Reservation, ReservationSource, reserved_by


class People:
    """Whoever writes into storage unasked; every public method is one step."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def create_pod(self, cpu: int, memory: int, *, gold: bool, is_gated: bool = False) -> None:
        """Create a pod that waits for a node, perhaps behind our gate."""
        pod = self._storage.new_pod(cpu, memory, gold=gold)
        self._storage.store(replace(pod, is_gated=is_gated))

    def strip(self, index: int) -> None:
        """Remove a gate, asked or not."""
        pod = pick([pod for pod in self._storage.pods.values() if pod.waits], index)
        if pod is not None:
            self._storage.store(replace(pod, is_gated=False))

    def finish(self, index: int) -> None:
        """Let an assigned pod end."""
        pod = pick([pod for pod in self._storage.pods.values() if pod.runs], index)
        if pod is not None:
            self._storage.store(replace(pod, is_finished=True))

    def stick(self, index: int) -> None:
        """Let an assigned pod be past its grace period, and not go."""
        pod = pick([pod for pod in self._storage.pods.values() if pod.runs], index)
        if pod is not None:
            self._storage.store(replace(pod, is_stuck=True))

    def delete(self, index: int) -> None:
        """Delete a pod, waiting or assigned."""
        pod = pick(list(self._storage.pods.values()), index)
        if pod is not None:
            self._storage.store(replace(pod, is_deleted=True))

    def put_quota(self, name: str, *, cpu: int, memory: int, scope: str) -> None:
        """Create a quota or change its limits or scope."""
        former = self._storage.quotas().get(name)
        uid = former.uid if former is not None else f"quota-{self._storage.next_number()}"
        self._storage.store_quota(QuotaState(uid, name, cpu, memory, scope))

    def delete_quota(self, name: str) -> None:
        """Delete a quota; `base` always stays."""
        former = self._storage.quotas().get(name)
        if former is not None and name != "base":
            self._storage.store_quota(replace(former, is_deleted=True))

    def lose_ledger(self) -> None:
        """Delete the ledger, or empty it."""
        self._storage.lose_ledger()

    def edit_ledger(self, index: int, more: int) -> None:
        """Write by hand into the ledger: more usage, a lower limit, a reservation of nobody."""
        version, known = self._storage.read_ledger()
        account = None if known is None else pick(list(known.accounts.values()), index)
        if known is None or account is None:
            return
        edited = self._edits(known, account, more)[(index + more) % 3]
        reserved = reserved_by(edited.reservations.values())
        accounts = {
            name: replace(one, reserved=reserved.get(name, {}))
            for name, one in edited.accounts.items()
        }
        self._storage.write_ledger(version, replace(edited, accounts=accounts))

    def configure(self, index: int) -> None:
        """Change which resources are deferred; nobody knows yet."""
        self._storage.keys = KEYS[index % len(KEYS)]

    def hold(self, index: int) -> None:
        """Change whether stuck pods are held; nobody knows yet."""
        self._storage.holds = bool(index % 2)

    def _edits(self, known: Ledger, account: Account, more: int) -> tuple[Ledger, Ledger, Ledger]:
        name = account.observed.name
        used = replace(account, used=raised(account.used, more))
        limited = replace(account, hard=dict.fromkeys(account.hard, ZERO))
        invented = self._invented(more, name)
        return (
            replace(known, accounts={**known.accounts, name: used}),
            replace(known, accounts={**known.accounts, name: limited}),
            replace(known, reservations={**known.reservations, invented.uid: invented}),
        )

    def _invented(self, amount: int, quota: str) -> Reservation:
        """A reservation that somebody wrote by hand, of a pod that never was."""
        usage = {CPU: Quantity.parse(str(amount))}
        uid = f"nobody-{self._storage.next_number()}"
        return Reservation(
            uid, uid, ReservationSource.BIND, usage, {quota: usage}, (quota,), serial=0
        )
