"""What a namespace holds of shared quotas, kept true to its ledger while that is settled.

Who settles a namespace raises what it holds before the ledger is written, by force where pods run
already, and lowers it afterwards. The order of reads and writes, and why nothing can be given
twice, is in `webhook.quota.escrow`.

A quota is new to a ledger once: that write only counts. What is counted is granted with the next
one, which lets the namespace take part, and when all have done so the quota says that it is
complete; from then on doors admit by it.

Complete is said of one spec, by ledgers that have counted it. So it is taken back before a ledger
begins to count another spec, or one that it had stopped to count: what is granted from then on is
not what doors may rely on. And nobody is dropped, and nothing lowered, on the word of a cache: a
leader that has just begun may be behind the one before it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.cluster.api import ApiError, ConflictError, NotFoundError
from webhook.controllers.conditions import with_conditions
from webhook.controllers.counts import Counts, Following
from webhook.controllers.membership import Membership
from webhook.controllers.terms import NotLeadingError
from webhook.controllers.times import time_text
from webhook.controllers.tracked import Tracked, TrackerTiming
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
from webhook.quota.grants import (
    NO_GRANTS,
    Grants,
    completed,
    dropped,
    lowered,
    raised,
    uncompleted,
)
from webhook.quota.ledger import Condition, Ledger, Observed
from webhook.quota.line import Hindrance, Waiter, Waits
from webhook.quota.resources import ResourceList, max_of
from webhook.state.shared_quotas import SharedQuotaStore, SharedVersion
from webhook.state.sharing import closed, look_up, with_others

_log = logging.getLogger(__name__)

COUNTED: Final = "Counted"
EXCESS_SECONDS: Final = 1.0
"""For how long a quota may say more than a ledger: a door has raised it and writes the ledger."""
_AGAIN_SECONDS: Final = 0.2
_WAIT_SECONDS: Final = 5.0


class Shares:
    """The shared quotas of all namespaces. Safe to use from several threads.

    Args:
        store: Where they are read and written.
        counts: What is counted.
        timing: When to act.
        leads: Tells whether a leadership is still this process' own.
        membership: Asked who shares a quota now.
    """

    def __init__(
        self,
        store: SharedQuotaStore,
        counts: Counts,
        timing: TrackerTiming,
        *,
        leads: Callable[[int], bool],
        membership: Membership,
    ) -> None:
        self.membership: Final = membership
        self.store: Final = store
        self.counts: Final = counts
        self._timing = timing
        self._leads = leads
        self._counted: dict[str, tuple[Observed, set[str]]] = {}
        """Quota → which namespaces have counted and been granted what it is now."""

    def begin_term(self) -> None:
        """Forget what an earlier leadership has seen."""
        self._counted.clear()

    @contextmanager
    def turn(
        self, namespace: str, tracked: Tracked, ledger: Ledger | None, term: int
    ) -> Iterator[Turn | None]:
        """Let a namespace be settled; None while others are at its shared quotas.

        Args:
            namespace: The namespace.
            tracked: The same.
            ledger: What its ledger says; it was read already.
            term: The leadership to write under.
        """
        names = self._names(namespace, tracked, ledger)
        if not names:
            yield Turn(self, namespace, tracked, ledger, term)
            return
        with self.store.held(names, until=time.monotonic() + _WAIT_SECONDS) as is_held:
            if not is_held:
                yield None
                return
            turn = Turn(self, namespace, tracked, ledger, term)
            turn.look_up(names)
            yield turn

    def _names(self, namespace: str, tracked: Tracked, ledger: Ledger | None) -> set[str]:
        """Return the shared quotas that it counts, has counted, or is named by."""
        names = {one.name for one in tracked.count.quotas.quotas if one.name.startswith(PREFIX)}
        names.update(shared_names(ledger))
        for quota in self.counts.shared_specs():
            if isinstance(quota, ClusterQuota) and quota.quota.name not in names:
                known = self.store.known(quota.quota.name)
                shared = None if known is None else known.shared
                if shared is not None and namespace in shared.grants.namespaces:
                    names.add(quota.quota.name)
        return names

    def write(self, version: SharedVersion, grants: Grants, term: int) -> SharedVersion:
        """Write by compare-and-swap, under a leadership.

        Raises:
            NotLeadingError: It is over.
            ConflictError: Somebody else wrote first.
            ApiError: The API server does not do it.
        """
        self.check(term)
        return self.store.write(version, grants)

    def check(self, term: int) -> None:
        """Make sure that a leadership still lasts.

        Raises:
            NotLeadingError: It is over.
        """
        if not self._leads(term):
            raise NotLeadingError

    def now(self) -> float:
        """Return the time on the monotonic clock."""
        return self._timing.clock()

    # -- who has been counted --------------------------------------------------------------

    def note_counted(
        self, namespace: str, observed: Observed, version: SharedVersion, term: int
    ) -> SharedVersion:
        """Note that a namespace is counted and granted; say so of the quota once all are."""
        known = self._counted.get(observed.name)
        if known is None or known[0] != observed:
            known = self._counted[observed.name] = (observed, set())
        known[1].add(namespace)
        return self.complete(observed, version, term)

    def complete(self, observed: Observed, version: SharedVersion, term: int) -> SharedVersion:
        """Say of a quota that all are named that take part, if that is so and not said yet."""
        shared = version.shared
        if shared is None or shared.grants.observed == observed:
            return version
        missing = self._missing(observed, shared)
        if missing and any(
            one.type == COUNTED and one.status == "False" for one in shared.grants.conditions
        ):
            return version
        if missing:
            said = replace(shared.grants, serial=shared.grants.serial + 1)
            return self.write(version, self._with_condition(said, missing), term)
        said = self._with_condition(completed(shared.grants, observed), missing)
        _log.info("shared quota counted", extra={"quota": observed.name})
        return self.write(version, said, term)

    def _missing(self, observed: Observed, shared: Shared) -> list[str]:
        known = self._counted.get(observed.name)
        counted = known[1] if known is not None and known[0] == observed else set()
        named = shared.grants.namespaces
        return [
            one
            for one in sorted({*self.counts.sharing(observed.name), *named})
            if one not in counted or one not in named
        ]

    def take_back(self, name: str, version: SharedVersion, term: int) -> SharedVersion:
        """Say of a quota that not all are counted; they are looked at again.

        Raises:
            NotLeadingError: The leadership is over.
            ConflictError: Somebody else wrote first.
            ApiError: The API server does not do it.
        """
        self._counted.pop(name, None)
        written = self.write(version, uncompleted(_grants_of(version)), term)
        for namespace in self.counts.sharing(name):
            self.counts.look_again(namespace, _AGAIN_SECONDS)
        return written

    def _with_condition(self, grants: Grants, missing: list[str]) -> Grants:
        wanted = Condition(COUNTED, "True", "AllCounted")
        if missing:
            named = ", ".join(sorted(missing)[:8])
            wanted = Condition(
                COUNTED,
                "False",
                "NamespacesJoining",
                f"nothing is admitted until these namespaces are counted: {named}",
            )
        now = time_text(self._timing.now())
        return replace(grants, conditions=with_conditions(grants.conditions, [wanted], now))


@dataclass(eq=False)
class Turn:
    """One settlement of one namespace; without shared quotas it changes nothing.

    Attributes:
        shares: The shared quotas of all.
        namespace: The namespace.
        tracked: The same.
        before: What its ledger says.
        term: The leadership to write under.
    """

    shares: Shares
    namespace: str
    tracked: Tracked
    before: Ledger | None
    term: int
    _seen: dict[str, SharedVersion | None] = field(default_factory=dict)
    _lower: dict[str, ResourceList | None] = field(default_factory=dict)
    """What is to be lowered when the ledger is written; None is dropped altogether."""

    def look_up(self, names: set[str]) -> None:
        """Have the quotas at a version, before the ledger is written."""
        found = look_up(self.shares.store, sorted(names), is_fresh=False)
        self._seen = {name: one.version for name, one in found.items()}

    def prepared(self, following: Following) -> Following | None:
        """Return what follows with what others hold; None when it counts quotas not looked up.

        Pods whose quota is not complete have to wait for that.
        """
        names = shared_names(following.ledger)
        if not names:
            return following
        if not self._seen.keys() >= set(names):
            return None
        found = look_up(self.shares.store, names, is_fresh=False)
        found = {name: replace(one, version=self._seen[name]) for name, one in found.items()}
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
            self._look_again(_AGAIN_SECONDS)
            return None
        for name in shared_names(ledger):
            version = self._seen[name]
            if version is None or not isinstance(version.quota, ClusterQuota):
                self._look_again(EXCESS_SECONDS)
            elif not self._is_joined(ledger, name):
                self._look_again(0.0)  # this write only counts; what is counted is granted next
            else:
                wanted = need(ledger.accounts[name])
                raised_version = self._raised(name, version, wanted, gives_room=gives_room)
                if raised_version is None:
                    return None
                self._seen[name] = raised_version
                self._plan_lowering(name, raised_version, wanted)
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
            version = self._seen[name]
            grants = _grants_of(version)
            if version is None:
                continue
            following = (
                dropped(grants, self.namespace)
                if wanted is None
                else lowered(grants, self.namespace, wanted)
            )
            if self._try_write(name, version, following):
                self.tracked.excess.pop(name, None)
            else:
                self.tracked.excess[name] = (-math.inf, {})
                self._look_again(_AGAIN_SECONDS)

    def finish(self, ledger: Ledger) -> None:
        """Note what is counted, once the ledger says so.

        Raises:
            NotLeadingError: Another process may be writing.
        """
        for name in shared_names(ledger):
            version, account = self._seen[name], ledger.accounts[name]
            shared = None if version is None else version.shared
            if version is None or shared is None or not self._is_joined(ledger, name):
                continue
            held = shared.grants.namespaces.get(self.namespace)
            is_granted = held is not None and is_within(need(account), held)
            if not (is_granted and is_counted_as(account, shared)):
                continue
            try:
                self._seen[name] = self.shares.note_counted(
                    self.namespace, account.observed, version, self.term
                )
            except ApiError as err:
                self._note_failure(name, err)
                self._look_again(_AGAIN_SECONDS)

    # -- inside ----------------------------------------------------------------------------

    def _is_joined(self, ledger: Ledger, name: str) -> bool:
        """Whether the ledger counted this very quota before this settlement."""
        former = None if self.before is None else self.before.accounts.get(name)
        return former is not None and former.observed == ledger.accounts[name].observed

    def _may_begin(self, ledger: Ledger) -> bool:
        """Make sure that nobody admits by a quota as complete that the ledger begins to count.

        False where the quota is another by now, or somebody else wrote first.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not answer.
        """
        for name in shared_names(ledger):
            if self._is_joined(ledger, name):
                continue
            account = ledger.accounts[name]
            version = self._seen[name] = self.shares.store.fetch(name)
            shared = None if version is None else version.shared
            if version is None or shared is None:
                continue
            if not is_counted_as(account, shared):
                return False
            said = shared.grants.observed
            is_new_here = self.namespace not in shared.grants.namespaces
            if said is None or (said == account.observed and is_new_here):
                continue
            if not self._take_back(name, version):
                return False
        return True

    def _may_leave(self, ledger: Ledger) -> bool:
        """Make sure that what the ledger stops to count concerns the namespace no more.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not answer.
        """
        for name in shared_names(self.before):
            if name in ledger.accounts:
                continue
            version = self._seen[name] = self.shares.store.fetch(name)
            if version is None:
                continue
            quota = self._counted_quota(version)
            if quota is not None:
                if not self.shares.membership.has_left(self.namespace, quota):
                    return False
            elif _grants_of(version).observed is not None and not self._take_back(name, version):
                return False
        return True

    def _take_back(self, name: str, version: SharedVersion) -> bool:
        """Say of a quota that not all are counted; False when somebody else wrote first."""
        try:
            self._seen[name] = self.shares.take_back(name, version, self.term)
        except (ConflictError, NotFoundError) as err:
            self._note_failure(name, err)
            return False
        return True

    def _counted_quota(self, version: SharedVersion) -> ClusterQuota | None:
        """Return the quota, if it can be read and limits something that is deferred."""
        quota = version.quota
        if isinstance(quota, ClusterQuota) and self.shares.membership.counts(quota):
            return quota
        return None

    def _raised(
        self, name: str, version: SharedVersion, wanted: ResourceList, *, gives_room: bool
    ) -> SharedVersion | None:
        """Write what the namespace needs, if it is not held yet; None when another was first.

        What its ledger says now has to be covered as well: a door may be admitting by that.
        """
        grants, before = _grants_of(version), self.before
        former = None if before is None else before.accounts.get(name)
        floor = wanted if former is None else max_of(wanted, former.granted)
        held = grants.namespaces.get(self.namespace)
        is_granted = former is not None and is_within(wanted, former.granted)
        if is_granted and not gives_room and held is not None and is_within(floor, held):
            return version
        try:
            return self.shares.write(version, raised(grants, self.namespace, floor), self.term)
        except (ConflictError, NotFoundError) as err:
            self._note_failure(name, err)
            return None

    def _plan_lowering(self, name: str, version: SharedVersion, wanted: ResourceList) -> None:
        """Lower what was given back, and what nobody has used for a while."""
        held = _grants_of(version).namespaces.get(self.namespace, {})
        if is_within(held, wanted):
            self.tracked.excess.pop(name, None)
            return
        former = None if self.before is None else self.before.accounts.get(name)
        has_fallen = former is not None and not is_within(former.granted, wanted)
        now = self.shares.now()
        since, former_held = self.tracked.excess.get(name, (now, held))
        if former_held != held and since > -math.inf:
            since = now  # a door has just raised it, and is about to write the ledger
        self.tracked.excess[name] = (since, held)
        if has_fallen or now - since >= EXCESS_SECONDS:
            self._lower[name] = wanted
        else:
            self._look_again(EXCESS_SECONDS)

    def _refresh_lowered(self, ledger: Ledger) -> None:
        """Have the newest version of what is lowered: the ledger is written only after this.

        Raises:
            ApiError: The API server does not answer.
        """
        for name in list(self._lower):
            version = self.shares.store.fetch(name)
            self._seen[name] = version
            if version is None or version.shared is None:
                del self._lower[name]
            elif not self._may_lower(name, version, version.shared, ledger):
                del self._lower[name]
                self._look_again(_AGAIN_SECONDS)

    def _may_lower(self, name: str, version: SharedVersion, shared: Shared, ledger: Ledger) -> bool:
        account = ledger.accounts.get(name)
        if account is not None:
            return is_counted_as(account, shared)
        quota = self._counted_quota(version)
        return quota is None or self.shares.membership.has_left(self.namespace, quota)

    def _plan_leaving(self, ledger: Ledger) -> None:
        for name, version in self._seen.items():
            if name in ledger.accounts or version is None:
                continue
            is_named = self.namespace in _grants_of(version).namespaces
            if is_named and isinstance(version.quota, ClusterQuota):
                self._lower[name] = None

    def _try_write(self, name: str, version: SharedVersion, grants: Grants) -> bool:
        try:
            self._seen[name] = self.shares.write(version, grants, self.term)
        except ApiError as err:
            self._note_failure(name, err)
            return isinstance(err, NotFoundError)
        return True

    def _note_failure(self, name: str, err: ApiError) -> None:
        """Have the newest version at hand for the next attempt."""
        extra = {"namespace": self.namespace, "quota": name, "error": str(err)}
        _log.info("shared quota not written", extra=extra)
        try:
            self._seen[name] = self.shares.store.fetch(name)
        except (ApiError, ValueError) as again:
            _log.warning("shared quota not read", extra={"quota": name, "error": str(again)})

    def _look_again(self, seconds: float) -> None:
        self.shares.counts.look_again(self.namespace, seconds)


def _grants_of(version: SharedVersion | None) -> Grants:
    """Return what a version grants; one whose status cannot be read is begun anew."""
    shared = None if version is None else version.shared
    return NO_GRANTS if shared is None else shared.grants


def _shut(waiter: Waiter, shut: Mapping[str, str]) -> Waiter:
    claim = waiter.claim
    if waiter.hindrance is not None or claim is None:
        return waiter
    found = next((shut[name] for name in claim.quotas if name in shut), None)
    if found is None:
        return waiter
    return replace(waiter, hindrance=Hindrance(Waits.NOT_COUNTED, found))
