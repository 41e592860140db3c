"""Detect drift: compare counted usage with a fresh list of the pods from time to time.

Counting pod by pod is exact as long as no change is missed and none is counted wrongly. To find
out whether that is so, each namespace is listed anew every `drift_check_seconds`; a difference is
corrected, counted and reported. A list and a cache are rarely of the same moment, so a difference
counts only once the cache has seen everything up to the version of the list.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from webhook.controllers.ledger.namespace_state import NamespaceState, PodListing
from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.controllers.runtime.controller import DONE, RequeueAfter, Result
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.rate_limit import ListPauses
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.controllers.runtime.workqueue import WorkQueue
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import PODS, ApiError, ClusterApi, ListOptions, NotFoundError
from webhook.kube.pager import list_pages
from webhook.quota.amounts.resources import excess
from webhook.quota.ledger.apply_usage import CountedQuota
from webhook.quota.objects.compact import compact_pod
from webhook.quota.objects.model import Pod
from webhook.state.ledger_store import LedgerVersion
from webhook.state.object_decoders import decode_pod

_log = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 5.0
"""Between two looks whether the cache has come as far as a list."""
_MAX_LOOKUPS: Final = 100
"""Pods put right in one go; the next recount finds the others."""
_MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Drift:
    """Difference between the count of a namespace and its pods."""

    missed: tuple[Pod, ...] = ()
    """Pods whose present version is not counted."""
    ghosts: tuple[str, ...] = ()
    """Uids of pods that are counted and do not exist."""
    is_sum_wrong: bool = False
    """The same pods are counted, and the sums differ."""

    def __bool__(self) -> bool:
        return bool(self.missed or self.ghosts or self.is_sum_wrong)

    def __str__(self) -> str:
        parts = [
            *_named("not counted as they are", [pod.name for pod in self.missed]),
            *_named("counted but gone", list(self.ghosts)),
            *(["the sum was wrong"] if self.is_sum_wrong else []),
        ]
        return "; ".join(parts)


class DriftRecorder(Protocol):
    """Recorder of what comparisons found."""

    def drift_checked(self, result: str) -> None:
        """Count a comparison: `same`, `drift` or `failed`."""

    def drifted(self, namespace: str, uid: str, drift: Drift) -> None:
        """Report a count that was wrong, by the ledger's uid where that is known."""


class DriftDetector:
    """Compares namespaces with fresh lists of their pods, one after another.

    Args:
        api: Where pods are listed.
        timings: The period.
        leadership: A standby lists nothing.
        recorder: Recorder of what was found.
    """

    def __init__(
        self,
        api: ClusterApi,
        usage_cache: UsageCache,
        timings: ControllerTimings,
        *,
        leadership: Leadership,
        recorder: DriftRecorder,
    ) -> None:
        self._api = api
        self._usage_cache = usage_cache
        self._timings = timings
        self._leadership = leadership
        self._recorder = recorder
        self.queue: Final[WorkQueue[str]] = WorkQueue(clock=timings.clock)
        self._scheduled: set[str] = set()
        self._waiting_listings: dict[str, tuple[NamespaceState, PodListing]] = {}
        # short lists cost no more than the changes of the Namespace that bring them
        self._list_pauses = ListPauses(timings.clock, at_least_seconds=0.0)

    def schedule(self, namespace: str) -> None:
        """Recount a namespace from now on; the first time at any moment of the period."""
        if namespace not in self._scheduled:
            self._scheduled.add(namespace)
            share = random.random()  # noqa: S311 - jitter
            self.queue.add_after(namespace, share * self._timings.drift_check_seconds)

    def reconcile(self, namespace: str) -> Result:
        """Compare a namespace, and repair its count."""
        period = self._timings.drift_check_seconds
        pause = period * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        try:
            if self._leadership.is_leader() and not self._has_compared(namespace):
                pause = min(_WAIT_SECONDS, pause)
        except (ApiError, InvalidFieldError) as err:
            self._recorder.drift_checked("failed")
            _log.warning("recount failed", extra={"namespace": namespace, "error": str(err)})
        except Exception:  # noqa: BLE001 - outermost frame: logged, and it is recounted later
            self._recorder.drift_checked("failed")
            _log.exception("recount failed", extra={"namespace": namespace})
        if namespace in self._usage_cache.namespaces:
            return RequeueAfter(pause)
        self._scheduled.discard(namespace)
        self._waiting_listings.pop(namespace, None)
        return DONE

    def verify(
        self,
        namespace: str,
        state: NamespaceState,
        version: LedgerVersion | None,
        *,
        required_version: int = 0,
        is_first: bool = True,
    ) -> bool:
        """Return whether the count lacks nothing that a list of the pods shows.

        Tenants decide how often that is asked, and all namespaces wait for the workers that list.
        So one list is compared until the cache has come as far, and while it answers the question;
        another one is made after a pause. False until then.

        A list shows nothing that came after it. Up to `required_version` that suffices if it is not
        older, since the count is said to be of that version. A ledger that is to be made from
        nothing but the count has no version that says how far the pods have to have been seen, so
        the list has to be of after `version` was read. What was admitted before `version` was
        written was stored, or is over; what is admitted later makes another version, so that this
        one cannot be written over.

        Args:
            version: The ledger as it was read, and is to be written over.
            required_version: Up to which version the list has to go.
            is_first: Whether the ledger is to be made from nothing but the count.

        Raises:
            ApiError: The pods cannot be listed.
        """
        ledger = ("", 0) if version is None else (version.uid, version.resource_version)
        listing = state.listing
        if (
            listing is None
            or listing.version < required_version
            or (is_first and listing.ledger != ledger)
        ):
            state.listing = None
            if self._list_pauses.seconds_left(namespace):
                return False
            with self._list_pauses.measured(namespace):
                listing = state.listing = replace(self._list(namespace), ledger=ledger)
        drift = self._compare(namespace, state, listing)
        if drift is None:
            return False
        # tenants delete pods while they are listed, as fast as they like: nothing lacks of those
        with self._usage_cache.lock:
            missed = [pod for pod in drift.missed if not state.usage.has_seen_deleted(pod.uid)]
        drift = replace(drift, missed=tuple(missed))
        if self._repair(namespace, state, listing, drift) or len(missed) > _MAX_LOOKUPS:
            return False
        # no more than is required: other replicas wait until their caches have come as far
        opted_in = self._usage_cache.managed.required_version(namespace)
        wanted = min(listing.version, max(opted_in, required_version))
        state.confirmed_version = max(state.confirmed_version, wanted)
        return True

    def _has_compared(self, namespace: str) -> bool:
        """Compare with a list, a new one or one that had to wait; False while it has to."""
        state = self._usage_cache.namespaces.get(namespace)
        if state is None or state.is_opted_out:
            return True
        waiting = self._waiting_listings.pop(namespace, None)
        listing = waiting[1] if waiting is not None and waiting[0] is state else None
        listing = listing or self._list(namespace)
        drift = self._compare(namespace, state, listing)
        if drift is None:
            self._waiting_listings[namespace] = (state, listing)
            return False
        if not self._repair(namespace, state, listing, drift):
            self._recorder.drift_checked("same")
        return True

    def _repair(
        self, namespace: str, state: NamespaceState, listing: PodListing, drift: Drift
    ) -> bool:
        """Repair and report what really differs; return whether something does."""
        drift = self._apply_repair(namespace, state, listing, drift) if drift else drift
        if drift:
            self._recorder.drift_checked("drift")
            uid = "" if state.last_write is None else state.last_write.uid
            _log.error("the count was wrong", extra={"namespace": namespace, "drift": str(drift)})
            self._recorder.drifted(namespace, uid, drift)
        return bool(drift)

    def _list(self, namespace: str) -> PodListing:
        pods: dict[str, Pod] = {}
        unreadable: set[str] = set()
        version = 0
        for page in list_pages(self._api, PODS, ListOptions(namespace), newest=0):
            version = page.resource_version
            for revision in page.items:
                try:
                    pods[revision.uid] = compact_pod(decode_pod(revision.data))
                except InvalidFieldError:
                    unreadable.add(revision.uid)
        return PodListing(version, pods, frozenset(unreadable))

    def _compare(self, namespace: str, state: NamespaceState, listing: PodListing) -> Drift | None:
        """Return how count and list differ; None while the cache may still come to agree."""
        with self._usage_cache.lock:
            if self._usage_cache.namespaces.get(namespace) is not state:
                return Drift()
            has_seen_all = self._usage_cache.pods.resource_version >= listing.version
            counted = state.usage.versions()
            quotas, sums = state.usage.quotas, state.usage.totals(0).quotas
            released, unreadable = state.usage.stuck, dict(state.unreadable_pods)
        missed = [pod for uid, pod in listing.pods.items() if counted.get(uid, 0) < _version(pod)]
        ghosts = [
            uid
            for uid, version in counted.items()
            if version <= listing.version
            and uid not in listing.pods
            and uid not in listing.unreadable
        ]
        # no version is known of what cannot be read: a lookup tells a new pod from one that is gone
        unlisted = unreadable.keys() - listing.pods.keys() - listing.unreadable - {*ghosts}
        for uid in sorted(unlisted)[:_MAX_LOOKUPS]:
            name = unreadable[uid].partition(":")[0].partition("/")[2]
            if not self._is_there(namespace, name, uid):
                ghosts.append(uid)
        if not has_seen_all and listing.unreadable - unreadable.keys():
            return None  # what they take is not known, and the cache does not say so yet
        if missed or ghosts:
            return Drift(tuple(missed), tuple(ghosts)) if has_seen_all else None
        if any(counted[uid] != _version(pod) for uid, pod in listing.pods.items()):
            return Drift()  # the cache is ahead: the sums are of another moment
        if counted.keys() != listing.pods.keys():
            return Drift()
        fresh = NamespaceUsage()
        fresh.set_quotas(quotas)
        for pod in listing.pods.values():
            fresh.put(pod)
        for uid in released:
            fresh.mark_stuck(uid)
        return Drift(is_sum_wrong=not _same_sums(sums, fresh.totals(0).quotas))

    def _apply_repair(
        self, namespace: str, state: NamespaceState, listing: PodListing, drift: Drift
    ) -> Drift:
        """Put right what differs, and return what really did."""
        missed = [
            pod
            for pod in drift.missed[:_MAX_LOOKUPS]
            if self._is_there(namespace, pod.name, pod.uid)
        ]
        with self._usage_cache.lock:
            if self._usage_cache.namespaces.get(namespace) is not state:
                return Drift()
            if drift.is_sum_wrong:
                self._usage_cache.track(namespace)
                return drift
            counted = state.usage.versions()
            missed = [pod for pod in missed if counted.get(pod.uid, 0) < _version(pod)]
            ghosts = [
                uid
                for uid in drift.ghosts
                if counted.get(uid, listing.version + 1) <= listing.version
                or uid in state.unreadable_pods
            ]
            for pod in missed:
                self._usage_cache.put_pod(namespace, state, pod)
            for uid in ghosts:
                state.remove_pod(uid)
            if missed or ghosts:
                self._usage_cache.mark_dirty(namespace, state)
        return Drift(tuple(missed), tuple(ghosts))

    def _is_there(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether a pod exists now: it may have come, or gone, after the list."""
        try:
            stored = self._api.get(PODS, name, namespace=namespace, decode=decode_pod)
        except NotFoundError:
            return False
        return FieldReader(stored).child("metadata").text("uid") == uid


def _version(pod: Pod) -> int:
    return int(pod.resource_version or 0)


def _same_sums(one: Mapping[str, CountedQuota], other: Mapping[str, CountedQuota]) -> bool:
    """Compare what was counted; a sum that is zero may be there or not."""
    return one.keys() == other.keys() and all(
        not excess(left, right) and not excess(right, left)
        for name in one
        for left, right in (
            (one[name].used, other[name].used),
            (one[name].pending, other[name].pending),
        )
    )


def _named(what: str, names: Iterable[str]) -> list[str]:
    every = sorted(names)
    if not every:
        return []
    more = f" and {len(every) - _MAX_NAMED} more" if len(every) > _MAX_NAMED else ""
    return [f"{what}: {', '.join(every[:_MAX_NAMED])}{more}"]
