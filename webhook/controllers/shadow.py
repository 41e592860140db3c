"""Watch the namespaces in shadow mode: what is really assigned there, and what would be refused.

Pods are counted as for a namespace that defers, from the same cache. Nothing is written but the
record of what was found, beside the ledger. Binds are not asked about: which pod got a node, and
what was assigned before, the stored pods say themselves, and exactly.

Every process counts, and the one that leads adds up. What happens between two leaderships is not
watched, and does not count as time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from webhook.cluster.api import NAMESPACES, ApiError, ClusterApi, Object
from webhook.cluster.following import Scope, Timing
from webhook.cluster.informer import Change, Informer
from webhook.cluster.shapes import decode_namespace
from webhook.controllers.rounds import Rounds
from webhook.controllers.shadow_place import ShadowPlace
from webhook.controllers.terms import always
from webhook.quota.objects import Pod, ResourceQuota
from webhook.quota.reading import Node
from webhook.quota.shadow import Findings
from webhook.state.names import MODE_LABEL, SHADOW_MODE
from webhook.state.quota_cache import QuotaCache
from webhook.state.shadow_books import ShadowBooks, ShadowWriter
from webhook.state.times import utc_now
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

_WATCHED: Final = Scope(label_selector=f"{MODE_LABEL}={SHADOW_MODE}")
_STOP_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ShadowTiming:
    """When records are written; all times are seconds.

    Attributes:
        settle_seconds: Between two writes of one record, while something changes.
        rest_seconds: The same once nothing does any more; it doubles each time.
        longest_rest: The most that becomes of it.
        retry_seconds: After a write that failed.
        round_seconds: Between two looks.
        clock: The monotonic clock.
        informer: Clock and pauses of the informer of namespaces.
    """

    settle_seconds: float = 1.0
    rest_seconds: float = 5.0
    longest_rest: float = 60.0
    retry_seconds: float = 5.0
    round_seconds: float = 0.25
    clock: Callable[[], float] = time.monotonic
    informer: Timing = field(default_factory=Timing)


class ShadowWatch:
    """Counts the namespaces in shadow mode, and writes their records while it leads.

    Args:
        api: The API server.
        pods: All pods; not started yet.
        quotas: The cached quotas; not started yet.
        name: The name of this process, unlike that of any other.
        exempt: Tells which namespaces are never touched.
        is_leader: As for the tracker.
        metrics: Where it is counted.
        timing: When to write.
    """

    def __init__(  # noqa: PLR0913 - the parts of one process, wired in one place
        self,
        api: ClusterApi,
        pods: Informer[Pod],
        quotas: QuotaCache,
        *,
        name: str,
        exempt: Callable[[], Set[str]] = frozenset,
        is_leader: Callable[[], int] = always,
        metrics: Metrics | None = None,
        timing: ShadowTiming | None = None,
    ) -> None:
        self._pods = pods
        self._quotas = quotas
        self._exempt = exempt
        self._is_leader = is_leader
        self._metrics = metrics
        self._timing = timing or ShadowTiming()
        self._books = ShadowBooks(api)
        self._writer = ShadowWriter(self._books, name, begins=True)
        self._lock = threading.Lock()
        self._places: dict[str, ShadowPlace] = {}
        self._due: dict[str, float] = {}
        """When a namespace may be written next."""
        self._rest: dict[str, float] = {}
        """How much later that is while nothing changes there."""
        self._leads = False
        self.informer: Final = Informer(
            api,
            NAMESPACES,
            transform=_name_of,
            scope=_WATCHED,
            timing=self._timing.informer,
            decode=decode_namespace,
        )
        pods.add_handler(self._on_pod)
        quotas.informer.add_handler(self._on_quota)
        self._rounds = Rounds(
            "shadow",
            self.look,
            rest_seconds=self._timing.round_seconds,
            rests_first=True,
            last=partial(self.look, is_last=True),
        )

    def start(self) -> None:
        """Begin to follow and count; the other caches are started by their owners."""
        self.informer.start()
        self._rounds.start()

    def stop(self) -> None:
        """Write what was found, and stop."""
        self._rounds.stop(_STOP_SECONDS)
        self.informer.stop()

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_pod(self, change: Change[Pod]) -> None:
        namespace = change.key.partition("/")[0]
        if namespace not in self._places:
            return
        with self._lock:
            place = self._places.get(namespace)
            if place is None:
                return
            happened: tuple[str, ...] = ()
            if change.type == "DELETED":
                place.remove(change.uid)
            elif change.new is not None:
                happened = place.put(change.new, tallies=self._leads)
            self._last(place)
        if self._metrics is not None:
            for event in happened:
                self._metrics.shadow.pods.labels(event).inc()

    def _on_quota(self, change: Change[ResourceQuota]) -> None:
        namespace = change.key.partition("/")[0]
        with self._lock:
            place = self._places.get(namespace)
            if place is not None:
                self._take_quotas(namespace, place)
                self._last(place)
                place.is_changed = True

    def _take_quotas(self, namespace: str, place: ShadowPlace) -> None:
        seen = self._quotas.in_namespace(namespace)
        place.set_quotas(seen.deferred, seen.every)

    def _last(self, place: ShadowPlace) -> None:
        place.lasts(int(self._timing.clock() * 1000), utc_now())

    # -- on the thread -------------------------------------------------------------------------

    def look(self, *, is_last: bool = False) -> float:
        """Keep up with which namespaces are watched, and write what is due.

        Returns:
            After how many seconds to look again.
        """
        caches = (self.informer, self._pods, self._quotas.informer)
        if all(one.has_synced for one in caches):
            self._notice_leadership()
            self._keep_up()
            self._write_due(is_last=is_last)
        return self._timing.round_seconds

    def _notice_leadership(self) -> None:
        leads = bool(self._is_leader())
        if leads and not self._leads:
            with self._lock:
                for place in self._places.values():  # what happened before is not ours to tell
                    self._last(place)
                    place.clear()
                    place.is_changed = True
        self._leads = leads

    def _keep_up(self) -> None:
        wanted = self.informer.items().keys() - self._exempt()
        for namespace in wanted - self._places.keys():
            self._begin(namespace)
        for namespace in self._places.keys() - wanted:
            self._end(namespace)

    def _begin(self, namespace: str) -> None:
        with self._lock:
            # known before the caches are read: what changes from then on is handed on
            place = self._places[namespace] = ShadowPlace()
            self._take_quotas(namespace, place)
            for pod in self._pods.in_namespace(namespace):
                place.put(pod, tallies=False)
            self._last(place)
        self._due[namespace] = self._timing.clock()
        _log.info("shadow mode begins", extra={"namespace": namespace})

    def _end(self, namespace: str) -> None:
        if self._leads:
            try:
                self._write(namespace)
                self._books.end(namespace)
            except ApiError as err:
                _log.warning(
                    "shadow record not ended", extra={"namespace": namespace, "error": str(err)}
                )
        with self._lock:
            self._places.pop(namespace, None)
        self._due.pop(namespace, None)
        self._rest.pop(namespace, None)
        self._writer.forget(namespace)
        _log.info("shadow mode ends", extra={"namespace": namespace})

    def _write_due(self, *, is_last: bool) -> None:
        now = self._timing.clock()
        for namespace, place in list(self._places.items()):
            if not self._leads:
                with self._lock:
                    self._last(place)
                    place.clear()
                continue
            timing = self._timing
            if place.is_changed:
                self._rest[namespace] = 0.0
            rest = self._rest.get(namespace, 0.0)
            if now < self._due.get(namespace, 0.0) + rest and not is_last:
                continue
            self._rest[namespace] = min(max(2 * rest, timing.rest_seconds), timing.longest_rest)
            pause = timing.settle_seconds
            try:
                self._write(namespace)
            except ApiError as err:
                pause = timing.retry_seconds
                self._rest[namespace] = 0.0
                _log.warning(
                    "shadow record not written", extra={"namespace": namespace, "error": str(err)}
                )
            self._due[namespace] = self._timing.clock() + pause

    def _write(self, namespace: str) -> None:
        self._writer.send(namespace, lambda: self._take(namespace))

    def _take(self, namespace: str) -> Findings | None:
        with self._lock:
            place = self._places.get(namespace)
            if place is None:
                return None
            self._take_quotas(namespace, place)  # other resources may be deferred by now
            self._last(place)
            return place.take()


def _name_of(namespace: Object) -> str:
    return Node(namespace).child("metadata").text("name")
