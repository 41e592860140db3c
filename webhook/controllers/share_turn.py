"""What a namespace holds of shared quotas, kept true to its ledger while that is settled.

Who settles a namespace raises what it holds before the ledger is written, by force where pods run
already, and lowers it afterwards. The order of reads and writes, and why nothing can be given
twice, is in `webhook.quota.escrow`.

A quota is new to a ledger once: that write only counts. What is counted is granted with the next
one, which lets the namespace take part; when all have done so the quota is complete
(`completeness`). Nobody is dropped, and nothing lowered, on the word of a cache: a leader that has
just begun may be behind the one before it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.cluster.api import ApiError, ConflictError, NotFoundError
from webhook.controllers.completeness import AGAIN_SECONDS
from webhook.controllers.counts import Following
from webhook.controllers.shares import EXCESS_SECONDS, Shares
from webhook.controllers.tracked import Tracked
from webhook.quota.cluster_quotas import PREFIX, ClusterQuota
from webhook.quota.escrow import (
    Shared,
    holding_only,
    is_counted_as,
    is_within,
    need,
    rewritten,
    shared_names,
)
from webhook.quota.grants import dropped, lowered, raised
from webhook.quota.ledger import Account, Ledger
from webhook.quota.line import Hindrance, Waiter, Waits
from webhook.quota.resources import ResourceList, max_of
from webhook.state.shared_quotas import SharedVersion
from webhook.state.sharing import closed, look_up, with_others

_log = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 5.0


@contextmanager
def turn_of(
    shares: Shares, namespace: str, tracked: Tracked, ledger: Ledger | None, term: int
) -> Iterator[Turn | None]:
    """Let a namespace be settled; None while others are at its shared quotas.

    Args:
        shares: The shared quotas of all.
        namespace: The namespace.
        tracked: The same.
        ledger: What its ledger says; it was read already.
        term: The leadership to write under.
    """
    counted = [one.name for one in tracked.count.quotas.quotas if one.name.startswith(PREFIX)]
    names = sorted({*counted, *shared_names(ledger), *shares.naming(namespace)})
    with shares.store.held(names, until=time.monotonic() + _WAIT_SECONDS) as is_held:
        if not is_held:
            yield None
            return
        found = look_up(shares.store, names, is_fresh=False)
        seen = {name: one.version for name, one in found.items()}
        yield Turn(shares, namespace, tracked, ledger, term, seen)


@dataclass(eq=False)
class Turn:
    """One settlement of one namespace; without shared quotas it changes nothing.

    Attributes:
        shares: The shared quotas of all.
        namespace: The namespace.
        tracked: The same.
        before: What its ledger says.
        term: The leadership to write under.
        seen: Its shared quotas, each at the version that is to be written over.
    """

    shares: Shares
    namespace: str
    tracked: Tracked
    before: Ledger | None
    term: int
    seen: dict[str, SharedVersion | None]
    _lower: dict[str, ResourceList | None] = field(default_factory=dict)
    """What is to be lowered when the ledger is written; None is dropped altogether."""

    def prepared(self, following: Following) -> Following | None:
        """Return what follows with what others hold; None when it counts quotas not looked up.

        Pods whose quota is not complete have to wait for that.
        """
        names = shared_names(following.ledger)
        if not names:
            return following
        if not self.seen.keys() >= set(names):
            return None
        found = look_up(self.shares.store, names, is_fresh=False)
        found = {name: replace(one, version=self.seen[name]) for name, one in found.items()}
        ledger = with_others(following.ledger, self.namespace, found)
        shut = {name: one.message for name, one in closed(self.namespace, ledger, found).items()}
        for name in names:
            if not self._is_joined(ledger, name):
                shut.setdefault(name, f"usage is being counted for quota: {name}")
        line = following.line if not shut else tuple(_shut(one, shut) for one in following.line)
        return Following(ledger, line)

    def granted(self, ledger: Ledger, *, gives_room: bool = False) -> Ledger | None:
        """Let the namespace hold what the ledger needs; None when it may not be written now.

        Args:
            ledger: What is about to be written.
            gives_room: Pods of the line have been reserved for. What others hold has to be
                compared for that, even if the namespace holds enough.

        Returns:
            The ledger to write, in which it holds no more than it needs.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not do it.
        """
        if not (self._may_begin(ledger) and self._may_leave(ledger)):
            self._look_again(AGAIN_SECONDS)
            return None
        for name in shared_names(ledger):
            version = self.seen[name]
            if version is None or not isinstance(version.quota, ClusterQuota):
                self._look_again(EXCESS_SECONDS)
            elif not self._is_joined(ledger, name):
                self._look_again(0.0)  # this write only counts; what is counted is granted next
            else:
                wanted = need(ledger.accounts[name])
                held = self._raised(name, version, wanted, gives_room=gives_room)
                if held is None:
                    return None
                self._plan_lowering(name, held, wanted)
                ledger = holding_only(ledger, name, wanted)
        self._plan_leaving(ledger)
        self._refresh_lowered(ledger)
        return rewritten(ledger) if self._lower else ledger  # which makes it a change

    def lower(self) -> None:
        """Say of the quotas, now that the ledger says so, that the namespace holds no more.

        Raises:
            NotLeadingError: Another process may be writing.
        """
        for name, wanted in self._lower.items():
            version = self.seen[name]
            if version is None:
                continue
            following = (
                dropped(version.grants, self.namespace)
                if wanted is None
                else lowered(version.grants, self.namespace, wanted)
            )
            try:
                self.seen[name] = self.shares.write(version, following, self.term)
            except ApiError as err:
                self._note_failure(name, err)
                if not isinstance(err, NotFoundError):
                    self.tracked.excess[name] = (-math.inf, {})
                    self._look_again(AGAIN_SECONDS)
                    continue
            self.tracked.excess.pop(name, None)

    def finish(self, ledger: Ledger) -> None:
        """Note what is counted, once the ledger says so.

        Raises:
            NotLeadingError: Another process may be writing.
        """
        for name in shared_names(ledger):
            version, account = self.seen[name], ledger.accounts[name]
            shared = None if version is None else version.shared
            if version is None or shared is None or not self._is_joined(ledger, name):
                continue
            held = shared.grants.namespaces.get(self.namespace)
            is_granted = held is not None and is_within(need(account), held)
            if not (is_granted and is_counted_as(account, shared)):
                continue
            try:
                self.seen[name] = self.shares.completeness.note(
                    self.namespace, account.observed, version, self.term
                )
            except ApiError as err:
                self._note_failure(name, err)
                self._look_again(AGAIN_SECONDS)

    # -- joining and leaving -------------------------------------------------------------------

    def _former(self, name: str) -> Account | None:
        """Return what the ledger said of a quota before this settlement."""
        return None if self.before is None else self.before.accounts.get(name)

    def _is_joined(self, ledger: Ledger, name: str) -> bool:
        """Whether the ledger counted this very quota before this settlement."""
        former = self._former(name)
        return former is not None and former.observed == ledger.accounts[name].observed

    def _may_begin(self, ledger: Ledger) -> bool:
        """Make sure that nobody admits by a quota as complete that the ledger begins to count.

        False where the quota is another by now, or somebody else wrote first.
        """
        for name in shared_names(ledger):
            if self._is_joined(ledger, name):
                continue
            account, version = ledger.accounts[name], self._fetch(name)
            shared = None if version is None else version.shared
            if version is None or shared is None:
                continue
            if not is_counted_as(account, shared):
                return False
            said = shared.grants.observed
            is_new_here = self.namespace not in shared.grants.namespaces
            if said is None or (said == account.observed and is_new_here):
                continue
            if not self._take_back(version):
                return False
        return True

    def _may_leave(self, ledger: Ledger) -> bool:
        """Make sure that what the ledger stops to count concerns the namespace no more."""
        for name in shared_names(self.before):
            if name in ledger.accounts or (version := self._fetch(name)) is None:
                continue
            quota = self.shares.membership.counted(version.quota)
            if quota is not None:
                if not self.shares.membership.has_left(self.namespace, quota):
                    return False
            elif version.grants.observed is not None and not self._take_back(version):
                return False
        return True

    def _take_back(self, version: SharedVersion) -> bool:
        """Say of a quota that not all are counted; False when somebody else wrote first."""
        try:
            taken_back = self.shares.completeness.take_back(version, self.term)
        except (ConflictError, NotFoundError) as err:
            self._note_failure(version.name, err)
            return False
        self.seen[version.name] = taken_back
        return True

    # -- raising and lowering ------------------------------------------------------------------

    def _raised(
        self, name: str, version: SharedVersion, wanted: ResourceList, *, gives_room: bool
    ) -> SharedVersion | None:
        """Write what the namespace needs, if it is not held yet; None when another was first.

        What its ledger says now has to be covered as well: a door may be admitting by that.
        """
        former = self._former(name)
        floor = wanted if former is None else max_of(wanted, former.granted)
        held = version.grants.namespaces.get(self.namespace)
        is_granted = former is not None and is_within(wanted, former.granted)
        if is_granted and not gives_room and held is not None and is_within(floor, held):
            return version
        following = raised(version.grants, self.namespace, floor)
        try:
            written = self.seen[name] = self.shares.write(version, following, self.term)
        except (ConflictError, NotFoundError) as err:
            self._note_failure(name, err)
            return None
        return written

    def _plan_lowering(self, name: str, version: SharedVersion, wanted: ResourceList) -> None:
        """Lower what was given back, and what nobody has used for a while."""
        held = version.grants.namespaces.get(self.namespace, {})
        if is_within(held, wanted):
            self.tracked.excess.pop(name, None)
            return
        former = self._former(name)
        has_fallen = former is not None and not is_within(former.granted, wanted)
        now = self.shares.clock()
        since, former_held = self.tracked.excess.get(name, (now, held))
        if former_held != held and since > -math.inf:
            since = now  # a door has just raised it, and is about to write the ledger
        self.tracked.excess[name] = (since, held)
        if has_fallen or now - since >= EXCESS_SECONDS:
            self._lower[name] = wanted
        else:
            self._look_again(EXCESS_SECONDS)

    def _plan_leaving(self, ledger: Ledger) -> None:
        for name, version in self.seen.items():
            if name in ledger.accounts or version is None:
                continue
            is_named = self.namespace in version.grants.namespaces
            if is_named and isinstance(version.quota, ClusterQuota):
                self._lower[name] = None

    def _refresh_lowered(self, ledger: Ledger) -> None:
        """Have the newest version of what is lowered: the ledger is written only after this."""
        for name in list(self._lower):
            version = self._fetch(name)
            if version is None or version.shared is None:
                del self._lower[name]
            elif not self._may_lower(name, version, version.shared, ledger):
                del self._lower[name]
                self._look_again(AGAIN_SECONDS)

    def _may_lower(self, name: str, version: SharedVersion, shared: Shared, ledger: Ledger) -> bool:
        account = ledger.accounts.get(name)
        if account is not None:
            return is_counted_as(account, shared)
        quota = self.shares.membership.counted(version.quota)
        return quota is None or self.shares.membership.has_left(self.namespace, quota)

    # -- inside --------------------------------------------------------------------------------

    def _fetch(self, name: str) -> SharedVersion | None:
        version = self.seen[name] = self.shares.store.fetch(name)
        return version

    def _note_failure(self, name: str, err: ApiError) -> None:
        """Have the newest version at hand for the next attempt."""
        extra = {"namespace": self.namespace, "quota": name, "error": str(err)}
        _log.info("shared quota not written", extra=extra)
        try:
            self._fetch(name)
        except (ApiError, ValueError) as again:
            _log.warning("shared quota not read", extra={"quota": name, "error": str(again)})

    def _look_again(self, seconds: float) -> None:
        self.shares.counts.look_again(self.namespace, seconds)


def _shut(waiter: Waiter, shut: Mapping[str, str]) -> Waiter:
    claim = waiter.claim
    if waiter.hindrance is not None or claim is None:
        return waiter
    found = next((shut[name] for name in claim.quotas if name in shut), None)
    if found is None:
        return waiter
    return replace(waiter, hindrance=Hindrance(Waits.NOT_COUNTED, found))
