"""Keep every namespace's ledger true to its pods.

The tracker counts pods from its cache and, whenever the count of a namespace changes, writes what
follows from it (`quota.settlement`). It also takes care of what no event announces: reservations
that expire, and pods that are stuck terminating.

One thread settles; the informers' threads only count and wake it. A namespace that changes all the
time is settled at most every `settle_seconds`, one that was quiet at once. One in which nothing
happens is looked at every `resync_seconds`: a reservation whose request came to nothing leaves no
other trace, and somebody may have edited the ledger.

A ledger that is gone took its reservations with it. Until no request that was admitted by it can
be on its way any more, none is made, so that nothing is admitted either. A namespace that opts
out leaves a ledger in which nothing is counted: what happens there from then on is not seen.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Final

from webhook.cluster.api import (
    PODS,
    ApiError,
    ClusterApi,
    ConflictError,
    NotFoundError,
    UnavailableError,
)
from webhook.cluster.informer import Change, Informer
from webhook.controllers.counting import NamespaceCount
from webhook.controllers.expiry import ReservationWatch
from webhook.controllers.tracked import Tracked, TrackerTiming
from webhook.quota.deferral import NamespaceQuotas
from webhook.quota.fields import InvalidFieldError
from webhook.quota.ledger import Ledger
from webhook.quota.objects import Pod, ResourceQuota
from webhook.quota.settlement import Expiry, settle
from webhook.state.ledgers import LedgerStore, LedgerVersion
from webhook.state.view import NamespaceCache, QuotaCache

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
_LONGEST_WAIT_SECONDS: Final = 5.0
_NO_QUOTAS: Final = NamespaceQuotas((), frozenset())


class Tracker:
    """Counts and settles all opted-in namespaces.

    Args:
        api: The API server.
        ledgers: Where ledgers are read and written; doors in the same process share it.
        quotas: The cached quotas.
        namespaces: The cached namespaces.
        deferred_keys: Tells which resources are deferred now.
        exempt: Tells which namespaces are never touched.
        timing: When to act.
    """

    def __init__(
        self,
        api: ClusterApi,
        ledgers: LedgerStore,
        quotas: QuotaCache,
        namespaces: NamespaceCache,
        deferred_keys: Callable[[], Set[str]],
        *,
        exempt: Callable[[], Set[str]] = frozenset,
        timing: TrackerTiming | None = None,
    ) -> None:
        self._api = api
        self._ledgers = ledgers
        self._quotas = quotas
        self._namespaces = namespaces
        self._keys = deferred_keys
        self._exempt = exempt
        self._has_been_ready = False
        self._timing = timing or TrackerTiming()
        self.pods: Final = Informer(
            api, PODS, transform=Pod.from_object, timing=self._timing.informer
        )
        self._tracked: dict[str, Tracked] = {}
        self._newest_change = 0
        self._stuck: list[tuple[float, str, str]] = []
        self._changed = threading.Condition()
        self._is_stopping = False
        self._has_news = False
        self._thread = threading.Thread(target=self._run, name="tracker", daemon=True)
        self.pods.add_handler(self._on_pod)
        quotas.informer.add_handler(self._on_quota)
        namespaces.informer.add_handler(self._on_namespace)

    def start(self) -> None:
        """Start to count; the caches of quotas and namespaces are started by their owner."""
        self.pods.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop writing, then stop following."""
        with self._changed:
            self._is_stopping = self._has_news = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        self.pods.stop()

    def recount(self) -> None:
        """Count everything again, because other resources are deferred now."""
        with self._changed:
            for namespace, tracked in list(self._tracked.items()):
                if not tracked.is_leaving:
                    self._track(namespace)

    def not_ready(self) -> list[str]:
        """Say what keeps the tracker from having settled every namespace; nothing when it has.

        A namespace that comes later holds up its own requests, not this process.
        """
        if not self._is_synced():
            return ["the tracker has not seen all pods yet"]
        if self._has_been_ready:
            return []
        with self._changed:
            waiting = sorted(name for name, one in self._tracked.items() if not one.is_settled)
        self._has_been_ready = not waiting
        return [f"the ledger of namespace {name} has not been counted yet" for name in waiting]

    # -- events, on the informers' threads ---------------------------------------------------

    def _on_pod(self, change: Change[Pod]) -> None:
        namespace = change.key.partition("/")[0]
        with self._changed:
            self._newest_change = max(self._newest_change, change.resource_version)
            tracked = self._tracked.get(namespace)
            if tracked is not None:
                try:
                    self._count_pod(namespace, tracked, change)
                except Exception as err:
                    tracked.unreadable_pods[change.uid] = f"{change.key}: {err}"
                    raise
                finally:
                    self._mark(tracked)

    def _on_quota(self, change: Change[ResourceQuota]) -> None:
        namespace = change.key.partition("/")[0]
        with self._changed:
            tracked = self._tracked.get(namespace)
            if tracked is not None and not tracked.is_leaving:
                tracked.count.set_quotas(self._quotas.in_namespace(namespace).deferred)
                self._mark(tracked)

    def _on_namespace(self, change: Change[bool]) -> None:
        with self._changed:
            tracked = self._tracked.get(change.key)
            if change.type == "DELETED":
                self._tracked.pop(change.key, None)
            elif change.new is True and (tracked is None or tracked.is_leaving):
                if change.key not in self._exempt():
                    self._track(change.key)
            elif change.new is not True and tracked is not None:
                tracked.is_leaving = True
                tracked.count.set_quotas(_NO_QUOTAS)
                self._mark(tracked)

    def _track(self, namespace: str) -> None:
        """Begin to count a namespace from what the caches hold; later changes follow."""
        watch = ReservationWatch(
            self._api, seconds=self._timing.expire_seconds, clock=self._timing.clock
        )
        former = self._tracked.get(namespace)
        tracked = Tracked(NamespaceCount(self._keys()), watch)
        if former is not None:
            tracked.has_ledger, tracked.lost_since = former.has_ledger, former.lost_since
        elif self._timing.waits_at_start and not self._namespaces.informer.has_synced:
            tracked.has_ledger = True  # if there is none, it was lost
        tracked.count.set_quotas(self._quotas.in_namespace(namespace).deferred)
        self._tracked[namespace] = tracked
        for pod in self.pods.in_namespace(namespace):
            self._put(namespace, tracked, pod)
        for key, error in self.pods.errors().items():
            entry = self.pods.entry(key)
            if entry is not None and key.partition("/")[0] == namespace:
                tracked.unreadable_pods[entry.uid] = f"{key}: {error}"
        self._mark(tracked)

    def _count_pod(self, namespace: str, tracked: Tracked, change: Change[Pod]) -> None:
        tracked.unreadable_pods.pop(change.uid, None)
        if change.type == "DELETED":
            tracked.count.remove(change.uid)
            tracked.release_at.pop(change.uid, None)
        elif change.new is None:
            tracked.unreadable_pods[change.uid] = f"{change.key}: {change.error}"
        else:
            self._put(namespace, tracked, change.new)

    def _put(self, namespace: str, tracked: Tracked, pod: Pod) -> None:
        # a cache can be ahead of its handlers, so what is counted may be newer than any change
        self._newest_change = max(self._newest_change, int(pod.resource_version or 0))
        tracked.count.put(pod)
        grace = pod.deletion_grace_period_seconds
        if pod.is_deleting and grace is not None:
            # The deletion was asked for no later than now, and the platform stops charging when
            # twice the grace period has passed since. Measured here, no clock has to agree.
            release = self._timing.clock() + 2 * max(grace, 0) + 1
            if release < tracked.release_at.get(pod.uid, math.inf):
                tracked.release_at[pod.uid] = release
                heapq.heappush(self._stuck, (release, namespace, pod.uid))

    def _mark(self, tracked: Tracked) -> None:
        tracked.is_dirty = True
        self._has_news = True
        self._changed.notify_all()

    # -- settling, on the tracker's thread ---------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                wait = self._step()
            except Exception:  # noqa: BLE001 - outermost frame: logged, and the next round comes
                _log.exception("settling failed")
                wait = _RETRY_SECONDS
            with self._changed:
                self._changed.wait_for(lambda: self._has_news, timeout=wait)
                self._has_news = False

    def _step(self) -> float:
        """Settle what is due and return how long nothing will be, if nothing changes."""
        if not self._is_synced():
            return 0.05
        now = self._timing.clock()
        with self._changed:
            self._release_stuck(now)
            resync = self._timing.resync_seconds
            due = [name for name, one in self._tracked.items() if one.is_due(now, resync)]
        for namespace in due:
            self._settle(namespace)
        with self._changed:
            return self._idle_seconds()

    def _is_synced(self) -> bool:
        return (
            self.pods.has_synced
            and self._quotas.informer.has_synced
            and self._namespaces.informer.has_synced
        )

    def _release_stuck(self, now: float) -> None:
        while self._stuck and self._stuck[0][0] <= now:
            release, namespace, uid = heapq.heappop(self._stuck)
            tracked = self._tracked.get(namespace)
            if tracked is not None and tracked.release_at.get(uid) == release:
                tracked.count.release(uid)
                self._mark(tracked)

    def _idle_seconds(self) -> float:
        now, resync = self._timing.clock(), self._timing.resync_seconds
        moments = [one.next_moment(resync) for one in self._tracked.values()]
        if self._stuck:
            moments.append(self._stuck[0][0])
        if not moments:
            return _LONGEST_WAIT_SECONDS
        return min(_LONGEST_WAIT_SECONDS, max(0.001, min(moments) - now))

    def _settle(self, namespace: str) -> None:
        with self._changed:
            tracked = self._tracked.get(namespace)
            if tracked is None:
                return
            tracked.is_dirty = False
            if not tracked.is_leaving:
                # what the cache showed when the namespace came may have been before its first list
                tracked.count.set_quotas(self._quotas.in_namespace(namespace).deferred)
        retry: float | None = _RETRY_SECONDS
        try:
            retry = self._write(namespace, tracked)
        except (ApiError, InvalidFieldError) as err:
            _log.warning("settling failed", extra={"namespace": namespace, "error": str(err)})
            # its doors say that they cannot decide; those of the other namespaces can
            tracked.is_settled = tracked.is_settled or not isinstance(err, UnavailableError)
        finally:
            with self._changed:
                pause = self._timing.settle_seconds if retry is None else retry
                tracked.note(self._timing.clock() + pause, is_done=retry is None)
                if tracked.has_left and self._tracked.get(namespace) is tracked:
                    del self._tracked[namespace]

    def _write(self, namespace: str, tracked: Tracked) -> float | None:
        """Write what follows from the count; return when to try again, None when all is said."""
        if tracked.unreadable_pods and not tracked.is_leaving:
            # what such a pod takes is not known, and usage is never counted too low
            for reason in tracked.unreadable_pods.values():
                _log.error("usage cannot be counted", extra={"pod": reason})
            raise InvalidFieldError("", next(iter(tracked.unreadable_pods.values())))
        version = self._fetch(namespace, tracked)
        if version is None or version.ledger is None:
            wait = self._seconds_until_new(namespace, tracked)
            if wait:
                return min(wait, _RETRY_SECONDS)  # it may come back by itself
            if version is None and not tracked.count.quotas.quotas:
                return None
            version = version or self._ledgers.create(namespace)
            if version is None:
                return self._timing.settle_seconds
        return self._replace(namespace, tracked, version)

    def _fetch(self, namespace: str, tracked: Tracked) -> LedgerVersion | None:
        """Read the ledger; one that somebody made unreadable is lost, and will be replaced."""
        try:
            return self._ledgers.fetch(namespace)
        except InvalidFieldError as err:
            _log.error(
                "the ledger cannot be read", extra={"namespace": namespace, "error": str(err)}
            )
            tracked.has_ledger = tracked.is_settled = True  # the doors say that they cannot decide
            return self._ledgers.fetch_blank(namespace)

    def _seconds_until_new(self, namespace: str, tracked: Tracked) -> float:
        """Return how long there may be no ledger, because the former one was lost; 0 for none."""
        if not tracked.has_ledger:
            return 0.0
        now = self._timing.clock()
        if tracked.lost_since is None:
            _log.error(
                "the ledger is gone; it stays away until its reservations are over",
                extra={"namespace": namespace},
            )
            tracked.lost_since = now
        return max(0.0, tracked.lost_since + self._timing.expire_seconds - now)

    def _replace(self, namespace: str, tracked: Tracked, version: LedgerVersion) -> float | None:
        """Write what follows from the count and this version; return as `_write`."""
        expired: Mapping[str, Expiry] = {}
        if version.ledger is None:
            tracked.watch.forget()
        else:
            tracked.watch.look(version.ledger, version.uid)
            expired = tracked.watch.expired(namespace, version.ledger, tracked.count.seen)
        following = self._following(namespace, tracked, version.ledger, expired)
        if following is None:
            _log.info("the count is too old to be written", extra={"namespace": namespace})
            return _RETRY_SECONDS
        if version.ledger is None or not _says_the_same(version.ledger, following):
            try:
                self._ledgers.write(namespace, version, following)
            except (ConflictError, NotFoundError):
                return self._timing.settle_seconds
        tracked.watch.look(following, version.uid)
        with self._changed:
            tracked.count.forget_gone(following.reservations)
            tracked.has_ledger, tracked.lost_since = True, None
        return None

    def _following(
        self,
        namespace: str,
        tracked: Tracked,
        ledger: Ledger | None,
        expired: Mapping[str, Expiry],
    ) -> Ledger | None:
        """Return the ledger that follows; None while the cache is older than what was counted.

        None too when the namespace is counted anew meanwhile: this count gets no more changes.
        While a change, or a whole list, is being taken in, what is counted can be newer than the
        version up to which the cache is complete. The older of the two is what may be written
        over, the newer what is said to have been counted.
        """
        with self._changed:
            if self._tracked.get(namespace) is not tracked:
                return None
            complete = self.pods.resource_version
            if ledger is not None and complete < ledger.pods_resource_version:
                return None
            count = tracked.count.count(max(complete, self._newest_change))
            return settle(ledger, count, expired=expired)


def _says_the_same(present: Ledger, following: Ledger) -> bool:
    version = present.pods_resource_version
    return replace(following, pods_resource_version=version) == present
