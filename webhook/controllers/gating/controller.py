"""Keep the PodGating of each namespace whose gating is `auto`.

The object is the parameter of an admission policy (`operations.creation`), so the webhook is not
called when a pod is created: pods within its amounts go ungated, all others are gated. It is
written when a level is passed, not with each pod. It is deleted when its namespace opts out, or
gets another gating.

While no process leads, the last state stays in force: some pods are gated without need and released
later, others go ungated and are denied at their bind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.controller import (
    DONE,
    RATE_LIMITED,
    Controller,
    RequeueAfter,
    Result,
)
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.rate_limit import ExponentialBackoff, rest_seconds
from webhook.controllers.runtime.workqueue import WorkQueue
from webhook.kube.api import (
    POD_GATINGS,
    AlreadyExistsError,
    ApiError,
    NotFoundError,
    Object,
    Preconditions,
)
from webhook.kube.informer import Change, Informer
from webhook.kube.kinds import split_key
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.queue.ungated_limits import UngatedLimits, from_spec, to_spec, ungated_limits
from webhook.quota.shared.escrow import beside, open_to, shared_names, without_headroom
from webhook.state.lazy_ledger import LazyLedger
from webhook.state.ledger_store import LedgerStore
from webhook.state.shared_quotas import SharedQuotaStore, SharedQuotaVersion
from webhook.state.well_known import ALWAYS_GATING, NEVER_GATING, POD_GATING

_log = logging.getLogger(__name__)

_BACKOFF: Final = ExponentialBackoff(0.2, 30.0)
_POD_SECONDS: Final = 0.02
"""From a change of a pod to the look: those that follow are part of it."""
_LEDGER_SECONDS: Final = 0.1
"""The same for ledgers, which each bind writes."""
_LOOSEN_SECONDS: Final = 1.0
"""From one write of an object to the next one that gates less."""
_POLL_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 5.0
_SHARED_SECONDS: Final = 1.0
"""The same for shared quotas, each of which may concern every namespace."""
_SHARED: Final = "/"
"""Key of all shared quotas that have changed: no namespace has this name."""
_OTHERWISE: Final = {
    ALWAYS_GATING: UngatedLimits(gates_all=True, reason="all pods are gated here"),
    NEVER_GATING: UngatedLimits(),
}
"""Limits of a namespace whose former label says another gating than `auto`: policies read the new
one only."""


class PodGatingController:
    """Writes PodGatings while this process leads.

    Args:
        usage_cache: What pods take, and will take.
        gating: Returns the gating of a namespace that is gated by need; None of any other.
        max_reservations: Returns how many reservations a namespace may have.
        are_ledgers_seen: Returns whether the ledgers have been listed.
    """

    def __init__(
        self,
        context: ControllerContext,
        usage_cache: UsageCache,
        ledgers: LedgerStore,
        shared: SharedQuotaStore,
        *,
        gating: Callable[[str], str | None],
        max_reservations: Callable[[], int],
        are_ledgers_seen: Callable[[], bool] = lambda: True,
    ) -> None:
        self._api = context.api
        self._clock = context.timings.clock
        self._thread_time = context.timings.thread_time
        self._usage_cache = usage_cache
        self._ledgers = ledgers
        self._shared = shared
        self._gating = gating
        self._max_reservations = max_reservations
        self._are_ledgers_seen = are_ledgers_seen
        self._leadership = Leadership(context.leader_epoch, self.requeue_all)
        self._queue: WorkQueue[str] = WorkQueue(
            _BACKOFF, rests_after_failure=True, clock=self._clock
        )
        self._written_at: dict[str, float] = {}
        self._changed_shared: dict[str, None] = {}
        """Names of shared quotas whose namespaces are to be looked at."""
        self._is_following = False
        self.gatings: Final[Informer[_Stored]] = Informer(
            context.api, POD_GATINGS, transform=_stored, timings=context.timings.informer
        )
        self.gatings.add_handler(self._on_gating)
        usage_cache.pods.add_handler(self._on_pod)
        usage_cache.managed.quotas.informer.add_handler(self._on_quota)
        usage_cache.managed.namespaces.informer.add_handler(self._on_namespace)
        usage_cache.managed.quotas.shared.informer.add_handler(self._on_shared)
        self.workers: Final = Controller(
            "pod-gating", self._queue, self.reconcile, poll=self.poll, poll_seconds=_POLL_SECONDS
        )

    def start(self) -> None:
        """Start the worker."""
        self.workers.start()

    def stop(self) -> None:
        """Stop writing."""
        self._leadership.stop()
        self.workers.stop(_STOP_SECONDS)
        if self._is_following:
            self.gatings.stop()

    def requeue_all(self) -> None:
        """Requeue every namespace: this process leads now, or the configuration has changed."""
        with self._usage_cache.lock:
            counted = list(self._usage_cache.namespaces)
        for namespace in {*counted, *(split_key(key)[0] for key in self.gatings.items())}:
            self._queue.add(namespace)

    def on_ledger(self, change: Change[LazyLedger]) -> None:
        """Requeue a namespace whose ledger has changed."""
        self._add(split_key(change.key)[0], _LEDGER_SECONDS)

    def poll(self) -> bool:
        """Return whether this process leads and sees what is stored."""
        if not (self._is_following or (self._usage_cache.are_synced and self._are_ledgers_seen())):
            return False
        if not self._leadership.current_epoch():
            # the next leadership begins with all namespaces, whatever came and went before it
            self._changed_shared.clear()
            self._queue.clear()
            return False
        if not self._is_following:
            self._is_following = True
            self.gatings.start()
        return self.gatings.has_synced

    def reconcile(self, namespace: str) -> Result:
        """Write the PodGating of a namespace, if it differs.

        Args:
            namespace: Its name; or `_SHARED`, for all that share a quota that has changed.
        """
        if namespace == _SHARED:
            self._add_sharing()
            return DONE
        began = self._thread_time()
        try:
            return self._reconcile(namespace)
        finally:  # others had to wait
            self._queue.rest(namespace, rest_seconds(self._thread_time() - began))

    def _reconcile(self, namespace: str) -> Result:
        stored = self.gatings.get(f"{namespace}/{POD_GATING}")
        former = None if stored is None else stored.limits
        wanted = self._wanted(namespace, former)
        if wanted is None:
            self._written_at.pop(namespace, None)
            return DONE if stored is None else self._delete(namespace, stored)
        if stored is not None and wanted == former:
            return DONE
        since = self._clock() - self._written_at.get(namespace, -_LOOSEN_SECONDS)
        if former is not None and since < _LOOSEN_SECONDS and not wanted.gates_more_than(former):
            return RequeueAfter(_LOOSEN_SECONDS - since)
        return self._write(namespace, wanted, is_new=stored is None)

    def _wanted(self, namespace: str, former: UngatedLimits | None) -> UngatedLimits | None:
        """Return the PodGating to be stored; None where there is to be none."""
        gating = self._gating(namespace)
        if gating is None:
            return None
        version = self._ledgers.known(namespace)
        ledger = None if version is None else version.ledger
        demand = self._usage_cache.demand(namespace, () if ledger is None else ledger.reserved_uids)
        if demand is None:
            return None
        if gating in _OTHERWISE:
            return _OTHERWISE[gating]
        if demand.errors:
            return UngatedLimits(gates_all=True, reason="a quota cannot be read")
        if not demand.observed:  # no quota limits anything that is deferred
            return UngatedLimits()
        if not demand.is_counted:  # when it is, the ledger need not change
            self._queue.add_after(namespace, _LOOSEN_SECONDS)
        is_current = ledger is not None and ledger.observed == demand.observed
        is_counted = demand.is_counted and is_current
        if ledger is not None and is_counted:
            ledger, is_counted = self._beside(namespace, ledger)
        return ungated_limits(
            ledger,
            is_counted=is_counted,
            in_flight=demand.in_flight,
            queued=demand.queued,
            max_reservations=self._max_reservations(),
            former=former,
        )

    def _beside(self, namespace: str, ledger: Ledger) -> tuple[Ledger, bool]:
        """Return the ledger beside what is used elsewhere, and whether all of that is known."""
        names = shared_names(ledger)
        known = {name: self._shared.known(name) for name in names}
        found = {name: None if one is None else one.shared for name, one in known.items()}
        are_open = all(
            open_to(namespace, ledger.accounts[name], shared) for name, shared in found.items()
        )
        held = beside(ledger, namespace, found)
        return without_headroom(held, namespace, found) or held, are_open

    # -- writes --------------------------------------------------------------------------------

    def _write(self, namespace: str, wanted: UngatedLimits, *, is_new: bool) -> Result:
        spec = to_spec(wanted)
        try:
            if is_new:
                metadata = {"name": POD_GATING, "namespace": namespace}
                self._api.create(POD_GATINGS, POD_GATINGS.make(metadata, spec=spec))
            else:
                patch: list[Mapping[str, object]] = [{"op": "add", "path": "/spec", "value": spec}]
                self._api.patch(POD_GATINGS, POD_GATING, patch, namespace=namespace)
        except (AlreadyExistsError, NotFoundError):
            return RATE_LIMITED  # the watch is behind, or the namespace is gone
        except ApiError as err:
            _log.info("gating not written", extra={"namespace": namespace, "error": err.message})
            return RATE_LIMITED
        self._written_at[namespace] = self._clock()
        _log.info("gating written", extra={"namespace": namespace, "why": wanted.reason})
        return DONE

    def _delete(self, namespace: str, stored: _Stored) -> Result:
        try:
            self._api.delete(
                POD_GATINGS,
                POD_GATING,
                namespace=namespace,
                preconditions=Preconditions(stored.uid),
            )
        except NotFoundError:
            pass
        except ApiError as err:
            _log.info("gating not deleted", extra={"namespace": namespace, "error": err.message})
            return RATE_LIMITED
        return DONE

    # -- events, on the informers' threads -----------------------------------------------------

    def _add(self, namespace: str, seconds: float) -> None:
        if self._gating(namespace) is not None:
            self._queue.add_after(namespace, seconds)

    def _add_sharing(self) -> None:
        """Requeue the namespaces of changed shared quotas, found in one walk through all."""
        changed = [self._changed_shared.popitem()[0] for _ in range(len(self._changed_shared))]
        sharing = self._usage_cache.all_sharing()
        for namespace in {one for name in changed for one in sharing.get(name, ())}:
            self._add(namespace, 0.0)

    def _on_pod(self, change: Change[Pod]) -> None:
        self._add(split_key(change.key)[0], _POD_SECONDS)

    def _on_quota(self, change: Change[ResourceQuota]) -> None:
        self._add(split_key(change.key)[0], _LEDGER_SECONDS)

    def _on_namespace(self, change: Change[bool]) -> None:
        if change.old is not change.new:  # what was refused is not refused to one that is new
            self._queue.rest(change.key, 0.0)
        self._queue.add_after(change.key, _LEDGER_SECONDS)

    def _on_gating(self, change: Change[_Stored]) -> None:
        self._queue.add_after(split_key(change.key)[0], _LEDGER_SECONDS)

    def _on_shared(self, change: Change[SharedQuotaVersion]) -> None:
        version = change.new or change.old
        if version is not None:
            self._changed_shared[version.name] = None
            self._queue.add_after(_SHARED, _SHARED_SECONDS)


class _Stored:
    """A PodGating as it is stored."""

    __slots__ = ("limits", "uid")

    def __init__(self, uid: str, limits: UngatedLimits | None) -> None:
        self.uid = uid
        self.limits = limits
        """The limits in it; None where they are not as this version writes them."""


def _stored(obj: Object) -> _Stored:
    metadata, spec = obj.get("metadata"), obj.get("spec")
    uid = metadata.get("uid", "") if isinstance(metadata, Mapping) else ""
    return _Stored(str(uid), from_spec(spec) if isinstance(spec, Mapping) else None)
