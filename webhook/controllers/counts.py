"""What the pods of all opted-in namespaces use, counted as the caches change.

Everything here is memory: the informers' threads count, whoever settles asks. A namespace is
counted whether this process leads or not, so that a standby can take over at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Final

from webhook.cluster.api import PODS, ClusterApi
from webhook.cluster.informer import Change, Informer
from webhook.cluster.shapes import decode_pod
from webhook.controllers.counting import NamespaceCount
from webhook.controllers.expiry import ReservationWatch
from webhook.controllers.opted import Opted
from webhook.controllers.promises import kept_until, may_go
from webhook.controllers.terminating import TerminatingPods
from webhook.controllers.tracked import Tracked, TrackerTiming
from webhook.quota.deferral import deferred_quotas
from webhook.quota.keeping import kept_pod
from webhook.quota.ledger import Ledger
from webhook.quota.line import LineRules, Waiter
from webhook.quota.objects import Pod, ResourceQuota
from webhook.quota.settlement import Expiry, settle
from webhook.state.names import GATE

LATE_SECONDS: Final = 5.0
"""By how much what is shown of namespaces is expected to lag behind what is shown of pods."""


@dataclass(frozen=True, slots=True)
class Following:
    """What follows from a count.

    Attributes:
        ledger: The ledger that follows.
        line: The pods that wait, in their order, judged by the quotas of the ledger; among them,
            where pods may do without a gate, those that are underway and stand before others, for
            as long as one is waited for that no node takes.
    """

    ledger: Ledger
    line: tuple[Waiter, ...]


class Counts:
    """All namespaces that are tracked. `lock` guards everything but the informer.

    Args:
        api: The API server.
        opted: Which namespaces are to be counted, and by which quotas.
        timing: When to act.
        on_change: Told, with the lock held, of a namespace that is to be settled, and when.
        rules: How lines of waiting pods move.
        give_up_seconds: For how long no node takes a released pod until it loses its reservation.
        lets_through: Tells whether pods of a namespace may do without a gate while there is room.
    """

    def __init__(
        self,
        api: ClusterApi,
        opted: Opted,
        timing: TrackerTiming,
        on_change: Callable[[str, float], None],
        *,
        rules: Callable[[], LineRules] = LineRules,
        give_up_seconds: Callable[[], float] = lambda: 60.0,
        lets_through: Callable[[str], bool] = lambda _namespace: False,
    ) -> None:
        self._rules = rules
        self._give_up_seconds = give_up_seconds
        self._lets_through = lets_through
        self.lock: Final = threading.Lock()
        self.opted: Final = opted
        self.tracked: Final[dict[str, Tracked]] = {}
        self.had_ledger: Final[set[str]] = set()
        """Namespaces in which a ledger was seen or may have been: without one, it was lost."""
        self.pods: Final = Informer(
            api, PODS, transform=kept_pod, timing=timing.informer, decode=decode_pod
        )
        self._api = api
        self._timing = timing
        self._on_change = on_change
        self._newest_change = 0
        self._terminating = TerminatingPods()
        self.pods.add_handler(self._on_pod)
        opted.quotas.informer.add_handler(self._on_quota)
        opted.namespaces.informer.add_handler(self._on_namespace)
        if opted.quotas.shared is not None:
            opted.quotas.shared.on_specs(self._on_shared_specs)

    @property
    def are_synced(self) -> bool:
        """Whether all pods, quotas and namespaces have been listed."""
        return self.pods.has_synced and self.opted.are_synced

    def recount(self) -> None:
        """Count everything again, because other resources are deferred, or others are exempt.

        A namespace that is exempt now is left as if it had opted out. What happened in one that is
        not any more was not seen.
        """
        with self.lock:
            exempt = self.opted.exempt()
            for namespace, is_deferred in self.opted.namespaces.informer.items().items():
                tracked = self.tracked.get(namespace)
                if not is_deferred or namespace in exempt:
                    if tracked is not None and not tracked.is_leaving:
                        self.leave(namespace, tracked)
                elif tracked is None or tracked.is_leaving:
                    self.track(namespace).is_back = True
                else:
                    self.refresh_quotas(namespace, tracked)
                    self.mark(namespace, tracked)

    def sharing(self, name: str) -> list[str]:
        """Return the namespaces that take part in a shared quota, as far as is known."""
        with self.lock:
            return [
                namespace
                for namespace, tracked in self.tracked.items()
                if not tracked.is_leaving and self.opted.shares(namespace, name)
            ]

    def is_one_failing(self, namespaces: Set[str]) -> bool:
        """Tell whether one of these namespaces could not be settled when it was tried last."""
        with self.lock:
            return any(
                tracked.failures and namespace in namespaces
                for namespace, tracked in self.tracked.items()
            )

    def leave_again(self, namespace: str) -> None:
        """Leave a namespace that is not tracked, and has a ledger that counts still."""
        with self.lock:
            if namespace not in self.tracked:
                self.leave(namespace, self.track(namespace))

    def look_at_waiting(self, name: str) -> None:
        """Look again at the namespaces in which pods may wait for a shared quota."""
        with self.lock:
            for namespace, tracked in self.tracked.items():
                is_about = any(one.name == name for one in tracked.count.quotas.quotas)
                if is_about and len(tracked.count.waiting):
                    self.mark(namespace, tracked)

    def complete_version(self, tracked: Tracked) -> int:
        """Return up to which version all pods of a namespace are counted."""
        return max(self.pods.resource_version, tracked.confirmed)

    def is_from_before(self, namespace: str, tracked: Tracked, ledger: Ledger) -> bool:
        """Tell whether a ledger may be from before the namespace opted in.

        It has whatever was reserved. What ran there since, and how waiting pods changed, nobody
        asked about.
        """
        return tracked.is_back or ledger.barrier < self.opted.opted_in_at(namespace)

    def refresh_quotas(self, namespace: str, tracked: Tracked) -> None:
        """Count for the quotas as they are cached; call with the lock held.

        What the cache showed when the namespace came may have been before its first list.
        """
        if not tracked.is_leaving:
            tracked.count.set_quotas(self.opted.quotas_of(namespace).deferred)

    def following(
        self,
        namespace: str,
        tracked: Tracked,
        ledger: Ledger | None,
        expired: Mapping[str, Expiry],
    ) -> Following | None:
        """Return the ledger that follows; None while the cache is older than what was counted.

        None too when the namespace is counted anew meanwhile: this count gets no more changes.
        While a change, or a whole list, is being taken in, what is counted can be newer than the
        version up to which the cache is complete. The older of the two is what may be written
        over, the newer what is said to have been counted.
        """
        with self.lock:
            if self.tracked.get(namespace) is not tracked:
                return None
            complete = self.complete_version(tracked)
            if ledger is not None and complete < ledger.pods_resource_version:
                return None
            count = tracked.count.count(max(complete, self._newest_change))
            is_before = ledger is not None and self.is_from_before(namespace, tracked, ledger)
            following = settle(ledger, count, expired=expired, is_from_before=is_before)
            if following is None:
                return None
            return Following(following, self._line(namespace, tracked))

    def line(self, namespace: str, tracked: Tracked) -> tuple[Waiter, ...]:
        """Return the pods that wait, in their order."""
        with self.lock:
            return self._line(namespace, tracked)

    def left_behind_gates(self) -> set[str]:
        """Return namespaces that are not tracked and have pods behind our gate; lock held.

        They opted out while nobody led, or before all of their gates were off.
        """
        return {
            pod.namespace
            for pod in self.pods.items().values()
            if GATE in pod.scheduling_gates and not self.opted.has(pod.namespace)
        } - self.tracked.keys()

    def release_stuck(self, now: float) -> None:
        """Stop charging pods that have been terminating for too long."""
        with self.lock:
            for namespace, uid in self._terminating.take_due(self.tracked, now):
                tracked = self.tracked[namespace]
                tracked.count.release(uid)
                self.mark(namespace, tracked)

    def look_at_lines(self) -> None:
        """Look again at every namespace in which pods wait: lines move by other rules."""
        with self.lock:
            for namespace, tracked in self.tracked.items():
                if len(tracked.count.waiting):
                    self.mark(namespace, tracked)

    def look_again(self, namespace: str, seconds: float) -> None:
        """Look at a namespace after some seconds: something in it came to nothing."""
        with self.lock:
            tracked = self.tracked.get(namespace)
            if tracked is not None:
                self.mark(namespace, tracked, within=seconds)

    # -- with the lock held --------------------------------------------------------------------

    def _line(self, namespace: str, tracked: Tracked) -> tuple[Waiter, ...]:
        if not len(tracked.count.waiting):
            return ()
        earliest = None
        if self._lets_through(namespace):
            earliest = self._timing.clock() - self._give_up_seconds()
        return tracked.line(self.opted.quotas_of(namespace), self._rules(), earliest=earliest)

    def mark(self, namespace: str, tracked: Tracked, *, within: float = 0.0) -> None:
        """Note that there is something to settle, and that it can wait for some seconds."""
        now = self._timing.clock()
        if tracked.dirty_since is None:
            tracked.dirty_since = now
        tracked.is_dirty = True
        tracked.wanted = min(tracked.wanted, now + within)
        self._on_change(namespace, max(tracked.due, tracked.wanted))

    def track(self, namespace: str, *, due: float = 0.0) -> Tracked:
        """Begin to count a namespace from what the caches hold; later changes follow.

        It is not settled before `due`.
        """
        watch = ReservationWatch(
            self._api,
            seconds=self._timing.expire_seconds,
            clock=self._timing.clock,
            kept_until=lambda one: kept_until(
                self.tracked.get(namespace), one, self._give_up_seconds()
            ),
        )
        former = self.tracked.get(namespace)
        tracked = Tracked(NamespaceCount(), watch, due=due)
        if former is not None:
            tracked.lost_since = former.lost_since
            tracked.is_back = former.is_leaving or former.is_back
        tracked.count.set_quotas(self.opted.quotas_of(namespace).deferred)
        self.tracked[namespace] = tracked
        for pod in self.pods.in_namespace(namespace):
            self.put(namespace, tracked, pod)
        for key, error in self.pods.errors().items():
            entry = self.pods.entry(key)
            if entry is not None and key.partition("/")[0] == namespace:
                tracked.unreadable_pods[entry.uid] = f"{key}: {error}"
        self.mark(namespace, tracked)
        return tracked

    def leave(self, namespace: str, tracked: Tracked) -> None:
        """Leave a namespace with a ledger in which nothing is counted."""
        tracked.is_leaving = True
        tracked.count.set_quotas(deferred_quotas((), self.opted.keys()))
        self.mark(namespace, tracked)

    def put(self, namespace: str, tracked: Tracked, pod: Pod) -> None:
        """Count a pod that is new or has changed."""
        # a cache can be ahead of its handlers, so what is counted may be newer than any change
        self._newest_change = max(self._newest_change, int(pod.resource_version or 0))
        tracked.count.put(pod)
        now = self._timing.clock()
        tracked.note_unplaced(pod, now)
        self._terminating.note(namespace, tracked, pod, now)

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_pod(self, change: Change[Pod]) -> None:
        namespace = change.key.partition("/")[0]
        with self.lock:
            self._newest_change = max(self._newest_change, change.resource_version)
            tracked = self.tracked.get(namespace)
            if tracked is None:
                if change.new is not None and GATE in change.new.scheduling_gates:
                    self._leave_later(namespace)
                return
            try:
                self._count_pod(namespace, tracked, change)
            except Exception as err:
                tracked.unreadable_pods[change.uid] = f"{change.key}: {err}"
                raise
            finally:
                can_wait = _frees_nothing(change) and not may_go(tracked, change.uid)
                self.mark(namespace, tracked, within=self._timing.fold_seconds * can_wait)

    def _leave_later(self, namespace: str) -> None:
        """Leave a namespace that is not tracked, and in which a pod has come with our gate.

        The pod was on its way when the namespace opted out, or it brings the gate with it. Perhaps
        the namespace has opted in a moment ago, which another watch shows: there is time for that.
        """
        is_known = self.opted.namespaces.informer.has_synced
        if is_known and not self.opted.has(namespace):
            due = self._timing.clock() + LATE_SECONDS
            self.leave(namespace, self.track(namespace, due=due))

    def _count_pod(self, namespace: str, tracked: Tracked, change: Change[Pod]) -> None:
        tracked.unreadable_pods.pop(change.uid, None)
        if change.type == "DELETED":
            tracked.remove(change.uid)
        elif change.new is None:
            tracked.unreadable_pods[change.uid] = f"{change.key}: {change.error}"
        else:
            before = tracked.count.pod(change.uid)
            tracked.arrivals.note(before, change.new, self.pods.resource_version)
            self.put(namespace, tracked, change.new)

    def _on_quota(self, change: Change[ResourceQuota]) -> None:
        namespace = change.key.partition("/")[0]
        with self.lock:
            tracked = self.tracked.get(namespace)
            if tracked is not None and not tracked.is_leaving:
                self.refresh_quotas(namespace, tracked)
                self.mark(namespace, tracked)

    def _on_shared_specs(self) -> None:
        with self.lock:
            for namespace, tracked in self.tracked.items():
                if tracked.is_leaving:
                    continue
                former = tracked.count.quotas
                self.refresh_quotas(namespace, tracked)
                is_unreadable = bool(self.opted.quotas_of(namespace).unreadable)
                if is_unreadable or tracked.count.quotas is not former:
                    self.mark(namespace, tracked)

    def _on_namespace(self, change: Change[bool]) -> None:
        with self.lock:
            tracked = self.tracked.get(change.key)
            if change.type == "DELETED":
                self.tracked.pop(change.key, None)
                self.had_ledger.discard(change.key)
            elif change.new is not True:
                if tracked is not None:
                    self.leave(change.key, tracked)
            elif tracked is not None and not tracked.is_leaving:
                self.mark(change.key, tracked)  # doors wait for a ledger that is not older
            elif change.key not in self.opted.exempt():
                self.track(change.key)


def _frees_nothing(change: Change[Pod]) -> bool:
    """Tell whether a pod is new, waits or got its node: no room that others wait for."""
    new = change.new
    took_nothing = change.old is None or not change.old.is_assigned
    return change.type != "DELETED" and new is not None and took_nothing and not new.is_deleting
