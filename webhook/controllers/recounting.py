"""Compare what is counted, now and then, with a fresh list of the pods.

Counting pod by pod is exact as long as no change is missed and none is counted wrongly. Whether
that is so is not taken for granted: each namespace is listed anew every `recount_seconds`, and what
differs is put right, counted and reported. A list and a cache are rarely of the same moment, so a
difference counts only once the cache claims to have seen everything up to the list.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.cluster.api import PODS, ApiError, ClusterApi, NotFoundError
from webhook.cluster.following import Scope
from webhook.cluster.listing import whole_list
from webhook.cluster.shapes import decode_pod
from webhook.controllers.agenda import Agenda
from webhook.controllers.counting import NamespaceCount
from webhook.controllers.counts import Counts
from webhook.controllers.tracked import Tracked, TrackerTiming
from webhook.quota.fields import InvalidFieldError, mapping, text
from webhook.quota.keeping import kept_pod
from webhook.quota.ledger import excess
from webhook.quota.objects import Pod
from webhook.quota.settlement import CountedQuota

_log = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 5.0
"""Between two looks whether the cache has come as far as a list."""
_IDLE_SECONDS: Final = 1.0
_MOST_ASKED: Final = 100
"""Pods put right in one go; the next recount finds the others."""
_MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Listed:
    """A namespace as a list of its pods shows it.

    Attributes:
        version: The moment of the list.
        pods: Pod uid → pod; those that cannot be read are absent.
        unreadable: Uids of the others.
    """

    version: int
    pods: dict[str, Pod]
    unreadable: frozenset[str]


@dataclass(frozen=True, slots=True)
class Drift:
    """How the count of a namespace differs from its pods.

    Attributes:
        missed: Pods whose present version is not counted.
        ghosts: Uids of pods that are counted and do not exist.
        is_sum_wrong: The same pods are counted, and the sums differ.
    """

    missed: tuple[Pod, ...] = ()
    ghosts: tuple[str, ...] = ()
    is_sum_wrong: bool = False

    def __bool__(self) -> bool:
        return bool(self.missed or self.ghosts or self.is_sum_wrong)

    def __str__(self) -> str:
        parts = [
            *_named("not counted as they are", [pod.name for pod in self.missed]),
            *_named("counted but gone", list(self.ghosts)),
            *(["the sum was wrong"] if self.is_sum_wrong else []),
        ]
        return "; ".join(parts)


class Recounter:
    """Recounts namespaces one after another, on one thread (`run`).

    Args:
        api: Where pods are listed.
        counts: What was counted.
        timing: When to recount.
        leads: Tells whether this process leads; a standby does not list.
        report: Told the namespace, the ledger's uid if it is known, and what was put right.
        recounted: Told `same`, `drift` or `failed` of each recount.
    """

    def __init__(
        self,
        api: ClusterApi,
        counts: Counts,
        timing: TrackerTiming,
        *,
        leads: Callable[[], bool],
        report: Callable[[str, str, Drift], None],
        recounted: Callable[[str], None],
    ) -> None:
        self._api = api
        self._counts = counts
        self._timing = timing
        self._leads = leads
        self._report = report
        self._recounted = recounted
        self._agenda: Agenda[str] = Agenda(timing.clock)
        self._planned: set[str] = set()
        self._listed: dict[str, tuple[Tracked, Listed]] = {}

    def plan(self, namespace: str) -> None:
        """Recount a namespace from now on; the first time at any moment of the period."""
        if namespace not in self._planned:
            self._planned.add(namespace)
            share = random.random()  # noqa: S311 - jitter
            self._agenda.put(namespace, self._timing.clock() + share * self._timing.recount_seconds)

    def close(self) -> None:
        """Wake who waits in `work`; nothing is recounted any more."""
        self._agenda.close()

    def work(self) -> float:
        """Recount the namespace whose turn it is; the agenda is what rests."""
        namespace = self._agenda.take(_IDLE_SECONDS)
        if namespace is not None:
            self.recount(namespace)
        return 0.0

    def recount(self, namespace: str) -> None:
        """Recount a namespace that was taken from the agenda, and plan it again."""
        period = self._timing.recount_seconds
        pause = period * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        try:
            if self._leads() and not self._is_compared(namespace):
                pause = min(_WAIT_SECONDS, pause)
        except (ApiError, InvalidFieldError) as err:
            self._recounted("failed")
            _log.warning("recount failed", extra={"namespace": namespace, "error": str(err)})
        except Exception:  # noqa: BLE001 - outermost frame: logged, and it is recounted later
            self._recounted("failed")
            _log.exception("recount failed", extra={"namespace": namespace})
        finally:
            is_tracked = namespace in self._counts.tracked
            if not is_tracked:
                self._planned.discard(namespace)
                self._listed.pop(namespace, None)
            again = self._timing.clock() + pause if is_tracked else None
            self._agenda.done(namespace, again=again)

    def confirms(self, namespace: str, tracked: Tracked) -> bool:
        """Tell whether the count lacks nothing that a list shows that is made now.

        For a ledger that is to be made from nothing but the count: no version in it says how far
        the pods have to have been seen.

        Raises:
            ApiError: The pods cannot be listed.
        """
        listed = self._list(namespace)
        drift = self._compare(namespace, tracked, listed)
        if drift:
            self._put_right(namespace, tracked, listed, drift)
        if drift is None or drift:
            return False
        # no more than has to be said: other replicas wait until their caches have come as far
        wanted = min(listed.version, self._counts.opted.wanted_version(namespace))
        tracked.confirmed = max(tracked.confirmed, wanted)
        return True

    def _is_compared(self, namespace: str) -> bool:
        """Compare with a list, a new one or one that had to wait; False while it has to."""
        tracked = self._counts.tracked.get(namespace)
        if tracked is None or tracked.is_leaving:
            return True
        waiting = self._listed.pop(namespace, None)
        listed = waiting[1] if waiting is not None and waiting[0] is tracked else None
        listed = listed or self._list(namespace)
        drift = self._compare(namespace, tracked, listed)
        if drift is None:
            self._listed[namespace] = (tracked, listed)
            return False
        if not self._put_right(namespace, tracked, listed, drift):
            self._recounted("same")
        return True

    def _put_right(self, namespace: str, tracked: Tracked, listed: Listed, drift: Drift) -> bool:
        """Repair and report what really differs; tell whether something does."""
        drift = self._repair(namespace, tracked, listed, drift) if drift else drift
        if drift:
            self._recounted("drift")
            uid = "" if tracked.written is None else tracked.written.uid
            _log.error("the count was wrong", extra={"namespace": namespace, "drift": str(drift)})
            self._report(namespace, uid, drift)
        return bool(drift)

    def _list(self, namespace: str) -> Listed:
        pods: dict[str, Pod] = {}
        unreadable: set[str] = set()
        version = 0
        for page in whole_list(self._api, PODS, Scope(namespace), newest=0):
            version = page.resource_version
            for revision in page.items:
                try:
                    pods[revision.uid] = kept_pod(decode_pod(revision.data))
                except InvalidFieldError:
                    unreadable.add(revision.uid)
        return Listed(version, pods, frozenset(unreadable))

    def _compare(self, namespace: str, tracked: Tracked, listed: Listed) -> Drift | None:
        """Return how count and list differ; None while the cache may still come to agree."""
        with self._counts.lock:
            if self._counts.tracked.get(namespace) is not tracked:
                return Drift()
            has_seen_all = self._counts.pods.resource_version >= listed.version
            counted = tracked.count.versions()
            quotas, sums = tracked.count.quotas, tracked.count.count(0).quotas
            released = tracked.count.released
        missed = [pod for uid, pod in listed.pods.items() if counted.get(uid, 0) < _version(pod)]
        ghosts = [
            uid
            for uid, version in counted.items()
            if version <= listed.version and uid not in listed.pods and uid not in listed.unreadable
        ]
        if missed or ghosts:
            return Drift(tuple(missed), tuple(ghosts)) if has_seen_all else None
        if any(counted[uid] != _version(pod) for uid, pod in listed.pods.items()):
            return Drift()  # the cache is ahead: the sums are of another moment
        if counted.keys() != listed.pods.keys():
            return Drift()
        fresh = NamespaceCount()
        fresh.set_quotas(quotas)
        for pod in listed.pods.values():
            fresh.put(pod)
        for uid in released:
            fresh.release(uid)
        return Drift(is_sum_wrong=not _same_sums(sums, fresh.count(0).quotas))

    def _repair(self, namespace: str, tracked: Tracked, listed: Listed, drift: Drift) -> Drift:
        """Put right what differs, and return what really did."""
        missed = [pod for pod in drift.missed[:_MOST_ASKED] if self._is_there(pod)]
        with self._counts.lock:
            if self._counts.tracked.get(namespace) is not tracked:
                return Drift()
            if drift.is_sum_wrong:
                self._counts.track(namespace)
                return drift
            counted = tracked.count.versions()
            missed = [pod for pod in missed if counted.get(pod.uid, 0) < _version(pod)]
            ghosts = [
                uid
                for uid in drift.ghosts
                if counted.get(uid, listed.version + 1) <= listed.version
            ]
            for pod in missed:
                self._counts.put(namespace, tracked, pod)
            for uid in ghosts:
                tracked.count.remove(uid)
            if missed or ghosts:
                self._counts.mark(namespace, tracked)
        return Drift(tuple(missed), tuple(ghosts))

    def _is_there(self, pod: Pod) -> bool:
        """Ask whether a pod that is not counted was not simply deleted after it was listed."""
        try:
            found = self._api.get(PODS, pod.name, namespace=pod.namespace)
        except NotFoundError:
            return False
        metadata = mapping(found.get("metadata"), "metadata")
        return text(metadata.get("uid"), "metadata.uid") == pod.uid


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
    more = f" and {len(every) - _MOST_NAMED} more" if len(every) > _MOST_NAMED else ""
    return [f"{what}: {', '.join(every[:_MOST_NAMED])}{more}"]
