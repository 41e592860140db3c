"""Record namespaces in shadow mode: what is really assigned there, and what would be denied.

Pods are counted as for a namespace that defers, from the same cache. Only the record is written, in
the ledger object. The webhook is not called about binds: the stored pods show exactly which pod got
a node, and what was assigned before.

Every process counts, and the one that leads writes. What happens between two leaderships is not
recorded, and does not count as time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Set
from functools import partial
from typing import Final

from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.periodic import PeriodicThread
from webhook.controllers.runtime.rate_limit import (
    MAX_REST_SECONDS,
    ExponentialBackoff,
    ListPauses,
)
from webhook.controllers.shadow.shadow_namespace import ShadowNamespace
from webhook.kube.api import NAMESPACES, ApiError, ListOptions
from webhook.kube.informer import Change, Informer
from webhook.kube.metadata import object_name, utc_now
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.shadow.record import Findings
from webhook.state.object_decoders import decode_namespace
from webhook.state.quota_cache import QuotaCache
from webhook.state.shadow_store import ShadowRecordStore, ShadowWriter
from webhook.state.well_known import MODE_LABEL, SHADOW_MODE

_log = logging.getLogger(__name__)

_WATCHED: Final = ListOptions(label_selector=f"{MODE_LABEL}={SHADOW_MODE}")
_STOP_SECONDS: Final = 5.0


class ShadowController:
    """Counts the namespaces in shadow mode, and writes their records while it leads.

    Args:
        pods: All pods; not started yet.
        quotas: The cached quotas; not started yet.
        name: The name of this process, unlike that of any other.
        exempt: Returns which namespaces are never touched.
    """

    def __init__(
        self,
        context: ControllerContext,
        pods: Informer[Pod],
        quotas: QuotaCache,
        *,
        name: str,
        exempt: Callable[[], Set[str]] = frozenset,
    ) -> None:
        self._pods = pods
        self._quotas = quotas
        self._exempt = exempt
        self._leader_epoch = context.leader_epoch
        self._metrics = context.metrics
        self._timings = context.timings
        self._store = ShadowRecordStore(context.api)
        self._writer = ShadowWriter(self._store, name, begins=True)
        self._lock = threading.Lock()
        self._namespaces: dict[str, ShadowNamespace] = {}
        self._rests = ListPauses(
            self._timings.clock, at_least_seconds=0.0, at_most_seconds=MAX_REST_SECONDS
        )
        """Of namespaces that were counted anew, also if one leaves meanwhile and comes again."""
        self._due: dict[str, float] = {}
        """When a namespace may be written next."""
        self._idle_backoff = ExponentialBackoff(
            self._timings.shadow_first_idle_seconds, self._timings.shadow_max_idle_seconds
        )
        self._idle_writes: dict[str, int] = {}
        """How often in a row a namespace was written although nothing had changed there."""
        self._is_leading = False
        self.informer: Final = Informer(
            context.api,
            NAMESPACES,
            transform=object_name,
            options=_WATCHED,
            timings=self._timings.informer,
            decode=decode_namespace,
        )
        pods.add_handler(self._on_pod)
        quotas.informer.add_handler(self._on_quota)
        self._thread = PeriodicThread(
            "shadow",
            self.reconcile,
            retry_seconds=self._timings.shadow_poll_seconds,
            pauses_first=True,
            on_stop=partial(self.reconcile, is_last=True),
        )

    def start(self) -> None:
        """Start to follow and count; the other caches are started by their owners."""
        self.informer.start()
        self._thread.start()

    def stop(self) -> None:
        """Write what was found, and stop."""
        self._thread.stop(_STOP_SECONDS)
        self.informer.stop()

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_pod(self, change: Change[Pod]) -> None:
        namespace = change.key.partition("/")[0]
        if namespace not in self._namespaces:
            return
        with self._lock:
            shadowed = self._namespaces.get(namespace)
            if shadowed is None:
                return
            happened: tuple[str, ...] = ()
            if change.type == "DELETED":
                shadowed.remove(change.uid)
            elif change.new is not None:
                happened = shadowed.put(change.new, counts_events=self._is_leading)
            shadowed.advance_changed(*self._moment())
        for event in happened:
            self._metrics.shadow.pods.labels(event).inc()

    def _on_quota(self, change: Change[ResourceQuota]) -> None:
        namespace = change.key.partition("/")[0]
        if namespace not in self._namespaces:
            return
        with self._lock:
            shadowed = self._namespaces.get(namespace)
            if shadowed is None:
                return
            shadowed.is_changed = True
            if change.new is not None and self._is_counted_alike(shadowed, change):
                shadowed.charge(change.new, *self._moment())
            elif shadowed.usage.counts_for(self._quotas.in_namespace(namespace).deferred):
                self._refresh_quotas(namespace, shadowed)
                self._advance(shadowed)
            else:  # counted on the thread: other namespaces wait for the informer
                shadowed.has_other_quotas = True

    def _is_counted_alike(self, shadowed: ShadowNamespace, change: Change[ResourceQuota]) -> bool:
        """Return whether pods are counted for a quota as before, whatever its status."""
        if change.old is None or change.new is None:
            return False
        before, after = [
            self._quotas.deferred_of((quota,)).observed for quota in (change.old, change.new)
        ]
        return before == after and after <= shadowed.usage.quotas.observed

    def _refresh_quotas(self, namespace: str, shadowed: ShadowNamespace) -> None:
        seen = self._quotas.in_namespace(namespace)
        shadowed.set_quotas(seen.deferred, seen.all_quotas)

    def _advance(self, shadowed: ShadowNamespace) -> None:
        shadowed.advance(*self._moment())

    def _moment(self) -> tuple[int, str]:
        return int(self._timings.clock() * 1000), utc_now()

    # -- on the thread -------------------------------------------------------------------------

    def reconcile(self, *, is_last: bool = False) -> float:
        """Keep up with which namespaces are watched, and write what is due.

        Returns:
            After how many seconds to look again.
        """
        caches = (self.informer, self._pods, self._quotas.informer)
        if all(one.has_synced for one in caches):
            self._check_leadership()
            self._sync_namespaces()
            self._count_for_other_quotas()
            self._write_due(is_last=is_last)
        return self._timings.shadow_poll_seconds

    def _check_leadership(self) -> None:
        leads = bool(self._leader_epoch())
        if leads and not self._is_leading:
            with self._lock:
                # what happened before is in the record of the leader before, or lost
                for shadowed in self._namespaces.values():
                    self._advance(shadowed)
                    shadowed.clear()
                    shadowed.is_changed = True
        self._is_leading = leads

    def _sync_namespaces(self) -> None:
        wanted = self.informer.items().keys() - self._exempt()
        for namespace in wanted - self._namespaces.keys():
            if not self._rests.seconds_left(namespace):
                self._begin(namespace)
        for namespace in self._namespaces.keys() - wanted:
            self._end(namespace)

    def _count_for_other_quotas(self) -> None:
        for namespace, shadowed in list(self._namespaces.items()):
            if shadowed.has_other_quotas and not self._rests.seconds_left(namespace):
                with self._lock, self._rests.measured(namespace):
                    shadowed.has_other_quotas = False
                    self._refresh_quotas(namespace, shadowed)
                    self._advance(shadowed)

    def _begin(self, namespace: str) -> None:
        with self._lock, self._rests.measured(namespace):
            # known before the caches are read: what changes from then on is handed on
            shadowed = self._namespaces[namespace] = ShadowNamespace()
            self._refresh_quotas(namespace, shadowed)
            for pod in self._pods.in_namespace(namespace):
                shadowed.put(pod, counts_events=False)
            self._advance(shadowed)
        self._due[namespace] = self._timings.clock()
        _log.info("shadow mode begins", extra={"namespace": namespace})

    def _end(self, namespace: str) -> None:
        if self._is_leading:
            try:
                self._write(namespace)
                self._store.end(namespace)
            except ApiError as err:
                _log.warning(
                    "shadow record not ended", extra={"namespace": namespace, "error": str(err)}
                )
        with self._lock:
            self._namespaces.pop(namespace, None)
        self._due.pop(namespace, None)
        self._idle_writes.pop(namespace, None)
        self._writer.forget(namespace)
        _log.info("shadow mode ends", extra={"namespace": namespace})

    def _write_due(self, *, is_last: bool) -> None:
        if not self._is_leading:
            return  # a leadership begins anew
        now = self._timings.clock()
        for namespace, shadowed in list(self._namespaces.items()):
            if shadowed.is_changed:
                self._idle_writes[namespace] = 0
            idle_writes = self._idle_writes.get(namespace, 0)
            due = self._due.get(namespace, 0.0) + self._idle_backoff.seconds(idle_writes)
            if now < due and not is_last:
                continue
            self._idle_writes[namespace] = idle_writes + 1
            pause = self._timings.shadow_write_interval_seconds
            try:
                self._write(namespace)
            except ApiError as err:
                pause = self._timings.shadow_retry_seconds
                self._idle_writes[namespace] = 0
                _log.warning(
                    "shadow record not written", extra={"namespace": namespace, "error": str(err)}
                )
            self._due[namespace] = self._timings.clock() + pause

    def _write(self, namespace: str) -> None:
        self._writer.send(namespace, lambda: self._take_findings(namespace))

    def _take_findings(self, namespace: str) -> Findings | None:
        with self._lock:
            shadowed = self._namespaces.get(namespace)
            if shadowed is None:
                return None
            if not self._rests.seconds_left(namespace):
                with self._rests.measured(namespace):  # other resources may be deferred by now
                    self._refresh_quotas(namespace, shadowed)
            self._advance(shadowed)
            return shadowed.take_findings()
