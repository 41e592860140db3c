"""Claims on shared quotas: look the quotas up, and raise the grants of namespaces.

Namespaces that want more of a quota at the same time are decided one after the other, each beside
what those before it were given, and the quota is written once for all of them (`GrantRaiser`).
The order of reads and writes, and why nothing can be given twice, is in
`webhook.quota.shared.escrow`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError, ConflictError, NotFoundError
from webhook.quota.ledger.ledger import Claim, Ledger, Undecided
from webhook.quota.shared.escrow import Raise, Shared, beside, open_to, raised
from webhook.quota.shared.grants import with_recall
from webhook.state.group_commit import CommitQueue, CommitQueues, Lead
from webhook.state.shared_quotas import SharedQuotaLookup, SharedQuotaStore

_log = logging.getLogger(__name__)

SharedLookups: TypeAlias = Mapping[str, SharedQuotaLookup]
"""Name in ledgers → the quota as it was looked up."""

_RECALL_SECONDS: Final = 0.5

NO_SHARED_QUOTAS: Final[SharedLookups] = {}


def look_up(store: SharedQuotaStore, names: Iterable[str], *, is_fresh: bool) -> SharedLookups:
    """Return shared quotas, as they are now or as they were last known."""
    return {name: _look_up(store, name, is_fresh=is_fresh) for name in names}


def _look_up(store: SharedQuotaStore, name: str, *, is_fresh: bool) -> SharedQuotaLookup:
    known = None if is_fresh or store.is_contended(name) else store.known(name)
    try:
        version = known or store.fetch_together(name)
    except ApiError as err:
        return SharedQuotaLookup(None, f"quota {name} cannot be reached: {err.message}")
    except InvalidFieldError as err:
        return SharedQuotaLookup(None, f"quota {name} cannot be read: {err}")
    if version is not None and version.shared is None:
        return SharedQuotaLookup(version, f"quota {name} cannot be read: {version.error}")
    return SharedQuotaLookup(version)


def look_up_shared(store: SharedQuotaStore, names: Iterable[str]) -> SharedLookups:
    """Return shared quotas as they are now; those of one namespace alone as last known."""
    return {name: _look_up_once(store, name) for name in names}


def _look_up_once(store: SharedQuotaStore, name: str) -> SharedQuotaLookup:
    known = SharedQuotaLookup(store.known(name))
    is_fresh = _is_read(known) or store.is_contended(name)
    return _look_up(store, name, is_fresh=True) if is_fresh else known


def _is_read(known: SharedQuotaLookup) -> bool:
    """Return whether nothing may be granted of a quota without a read or a write of it."""
    return known.shared is None or not known.shared.quota.is_of_one


def shared_of(lookups: SharedLookups) -> dict[str, Shared | None]:
    """Return what the quotas say."""
    return {name: one.shared for name, one in lookups.items()}


def with_other_namespaces(ledger: Ledger, namespace: str, lookups: SharedLookups) -> Ledger:
    """Return a ledger with what other namespaces hold, to be decided by."""
    return beside(ledger, namespace, shared_of(lookups)) if lookups else ledger


def unavailable(namespace: str, ledger: Ledger, lookups: SharedLookups) -> dict[str, Undecided]:
    """Return the shared quotas of which nothing more may be granted now, and why."""
    found: dict[str, Undecided] = {}
    for name, one in lookups.items():
        if not open_to(namespace, ledger.accounts[name], one.shared):
            found[name] = Undecided(one.error or f"usage is being counted for quota: {name}")
    return found


def blocking_reason(
    claim: Claim, ledger: Ledger, unavailable_quotas: Mapping[str, Undecided]
) -> Undecided | None:
    """Return why a claim cannot be decided because of a shared quota that it concerns."""
    before = ledger.reservations.get(claim.uid)
    names = (*claim.quotas, *(() if before is None else before.quotas))
    return next((unavailable_quotas[name] for name in names if name in unavailable_quotas), None)


def recall_headroom(store: SharedQuotaStore, namespace: str, lookups: SharedLookups) -> None:
    """Recall headroom of other namespaces; a write that fails is left to the next request.

    Only headroom was in the way of a pod; its request comes again.
    """
    for name, one in lookups.items():
        grants = None if one.shared is None else one.shared.grants
        if grants is None or grants.is_recalled or not grants.headroom_elsewhere(namespace):
            continue
        try:
            _recall(store, name)
        except (ApiError, InvalidFieldError) as err:
            _log.info("headroom not recalled", extra={"quota": name, "error": str(err)})


def _recall(store: SharedQuotaStore, name: str) -> None:
    with store.locked([name], until=time.monotonic() + _RECALL_SECONDS) as is_held:
        version = store.fetch(name) if is_held else None
        if version is not None and version.shared and not version.grants.is_recalled:
            store.write(version, with_recall(version.grants, is_recalled=True))


@dataclass(frozen=True, slots=True, eq=False)
class PendingRaise:
    """A namespace whose claims are to be decided, and what they need granted."""

    namespace: str
    names: Sequence[str]
    """The shared quotas that its ledger counts."""
    decide: Callable[[SharedLookups], Mapping[str, Raise]]
    """Decides by the quotas; returns what the namespace is to hold of them, by quota name.
    The ledger that it decides on was read before."""
    is_fresh: bool
    """It may deny: the quotas are read after it came."""
    deadline: float
    """When to give up, on the monotonic clock."""
    signal: Future[bool | Lead] = field(default_factory=Future)
    """Set once by the leader: whether the decision stands, or the lead."""


class GrantRaiser:
    """Raises of shared quotas, those that come together with one write. Safe to use from threads.

    Args:
        store: Where the quotas are read and written.
        queues: The raises that wait, by the quota that most namespaces share.
    """

    def __init__(
        self, store: SharedQuotaStore, queues: CommitQueues[PendingRaise] | None = None
    ) -> None:
        self.store: Final = store
        self._queues: CommitQueues[PendingRaise] = CommitQueues() if queues is None else queues

    def carry_out(self, wanted: PendingRaise) -> bool:
        """Have claims decided, and what they need granted; return whether all of that stands.

        Where it does not, the quotas have changed, or cannot be written now, and nothing of the
        decision may be told: it may rest on what another namespace of the same write was to get.
        What was written of some of the quotas stays granted: too much, until the leader lowers it.
        """
        queue = self._queues.join(self._most_shared(wanted.names), wanted)
        if not self._queues.wait(queue, wanted):
            return False
        match wanted.signal.result():
            case Lead():
                return self._commit_batch(queue, wanted)
            case stands:
                return stands

    def _most_shared(self, names: Sequence[str]) -> str:
        """Return the quota in whose queue to wait; any would do, most meet in this one."""

        def members(name: str) -> int:
            version = self.store.known(name)
            return 0 if version is None else len(version.grants.namespaces)

        return max(names, key=members)

    def _commit_batch(self, queue: CommitQueue[PendingRaise], own: PendingRaise) -> bool:
        """Carry out all pending raises as their leader, then hand the lead over."""
        batch = self._queues.take_batch(queue)
        standing: set[PendingRaise] = set()
        try:
            standing = self._raise(batch)
        finally:
            # the lead first: its next holder reads and decides while this thread wakes the others
            self._queues.pass_leadership(queue)
            for one in batch:
                if one is not own:
                    one.signal.set_result(one in standing)
        return own in standing

    def _raise(self, batch: Sequence[PendingRaise]) -> set[PendingRaise]:
        """Decide and write; return those of which everything is written that they rest on."""
        until = max(one.deadline for one in batch)
        with self.store.locked(_names_of(batch), until=until) as is_held:
            if not is_held:
                return set()
            # a grant for a request whose time is over would only keep quota from others
            now = time.monotonic()
            batch = [one for one in batch if one.deadline > now]
            names = _names_of(batch)
            is_fresh = any(one.is_fresh for one in batch)
            lookups = look_up(self.store, names, is_fresh=is_fresh)
            changed = _decided(batch, lookups)
            if changed is None:
                return set()
            failed = self._write(lookups, changed)
            if not is_fresh:
                failed |= self._outdated(lookups, names - changed.keys())
            return {one for one in batch if failed.isdisjoint(one.names)}

    def _outdated(self, lookups: SharedLookups, names: Iterable[str]) -> set[str]:
        """Return the quotas of which nothing is written and that are not as they were last known.

        What a write would have found out, a read has to.
        """
        return {
            name
            for name in names
            if _is_read(lookups[name])
            and _resource_version(_look_up(self.store, name, is_fresh=True))
            != _resource_version(lookups[name])
        }

    def _write(self, lookups: SharedLookups, changed: Mapping[str, Shared]) -> set[str]:
        """Write each quota in the place of the version that was decided by, in order of names.

        Returns:
            The quotas that could not be written: nothing stands that was decided by one of them.
        """
        failed: set[str] = set()
        for name, shared in sorted(changed.items()):
            version = lookups[name].version
            assert version is not None  # noqa: S101 - it was raised
            try:
                self.store.write(version, shared.grants)
            except (ConflictError, NotFoundError):
                failed.add(name)
            except ApiError as err:
                _log.warning(
                    "writing a shared quota failed",
                    extra={"quota": name, "code": err.code, "error": err.message},
                )
                failed.add(name)
        return failed


def _names_of(batch: Iterable[PendingRaise]) -> set[str]:
    return {name for one in batch for name in one.names}


def _resource_version(lookup: SharedQuotaLookup) -> int | None:
    return None if lookup.version is None else lookup.version.resource_version


def _decided(batch: Iterable[PendingRaise], lookups: SharedLookups) -> dict[str, Shared] | None:
    """Decide one after the other, each beside what those before it are to be given.

    Returns:
        The quotas of which more is to be granted, as they are to be written; None where that
        cannot be had.
    """
    running = dict(lookups)
    changed: dict[str, Shared] = {}
    for one in batch:
        wanted = one.decide({name: running[name] for name in one.names})
        for name, amounts in wanted.items():
            version, shared = running[name].version, running[name].shared
            former = lookups[name].shared
            if version is None or shared is None or former is None:
                return None
            grants = raised(shared.grants, one.namespace, amounts)
            # one write for all namespaces, so one step of the serial number
            grants = replace(grants, serial=former.grants.serial + 1)
            changed[name] = replace(shared, grants=grants)
            running[name] = SharedQuotaLookup(version.saying(changed[name]))
    return changed
