"""Keep deferred resources out of the status of quotas, and restore them where nothing is deferred.

The API server's own quota check reads `status.hard`. In a namespace that defers, a mutating policy
or webhook hides the deferred resources from it. If that is missing or was too late, this controller
corrects the status; until then the API server's check is as strict as without deferral.

Nothing is hidden that is not guarded. Before it hides, the controller asks the API server whether
the namespace still defers and the guard of binds is registered. If not, it restores everything,
including what was hidden before.

When a namespace opts out or becomes exempt, or a quota is excluded, nothing hides the resources any
more, but the quota controller writes a status only when a pod ends, `spec.hard` changes, or every
five minutes. So this controller completes the status at once: `hard` together with a count of the
pods, and of the devices of ResourceClaims, because the API server refuses every pod while a limited
resource has no `used`. What was created between the list and that write is found by a second count;
from then on the quota controller keeps the status.

There is one thread, and how long a count takes is up to those who write pods and quotas. So a
namespace rests after each, and the quotas of others go first. One list serves all quotas of a
namespace, as `pod_lists` says.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Set
from typing import Final

from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.mask.pod_lists import KnownVersions, PodLists
from webhook.controllers.mask.webhook_registration import (
    ASSUMED_REGISTERED,
    RegistrationState,
    RegistrationWatch,
    assume_registered,
)
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.controller import (
    DONE,
    RATE_LIMITED,
    Controller,
    Postponed,
    RequeueAfter,
    Result,
)
from webhook.controllers.runtime.events import ObjectReference
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.rate_limit import (
    MAX_REST_SECONDS,
    ExponentialBackoff,
    ListPauses,
)
from webhook.controllers.runtime.workqueue import WorkQueue
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    ApiError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    Revision,
)
from webhook.kube.informer import Change
from webhook.kube.kinds import NAMESPACE_NAME_LABEL
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.deferral import is_excluded
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.charging.status_mask import (
    Patch,
    claimed_keys,
    hidden_keys,
    masking_patch,
    native_count,
    restoring_patch,
    visible_keys,
)
from webhook.quota.ledger.ledger_codec import SHADOW_FIELD
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.state.ledger_store import LEDGER_NAME
from webhook.state.namespace_labels import labels_of, read_namespace
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.25
"""Between two looks at the leadership."""
_STOP_SECONDS: Final = 5.0


class MaskRevertedError(Exception):
    """A status that was brought back was taken out in the same write.

    Args:
        is_charged: It is charged at the bind for as long as that is so.
    """

    def __init__(self, quota: ResourceQuota, keys: Iterable[str], *, is_charged: bool) -> None:
        self.is_charged = is_charged
        self.regarding = ObjectReference(RESOURCE_QUOTAS, quota.name, quota.namespace, quota.uid)
        super().__init__(
            f"nothing enforces {', '.join(sorted(keys))}: not deferred here, but a mask that is"
            " installed takes it out of the status; run scripts/install, which writes the mask as"
            " it has to be, or delete the mask"
        )


class StatusMaskController:
    """Masks and completes the status of quotas, on a thread of its own, while it leads.

    Args:
        managed: The opted-in namespaces and their quotas; the caches are not started yet.
        registration: Returns the state of the webhook's registration; may ask the API server.
    """

    def __init__(
        self,
        context: ControllerContext,
        managed: ManagedNamespaces,
        *,
        registration: Callable[[], RegistrationState] = assume_registered,
    ) -> None:
        self._api = context.api
        self._managed = managed
        self._quotas = managed.quotas.informer
        self._namespaces = managed.namespaces.informer
        self._leadership = Leadership(context.leader_epoch, self.requeue_all)
        self._events = context.events
        self._metrics = context.metrics
        self._timings = timings = context.timings
        self._registration = RegistrationWatch(
            registration, timings.registration_seconds, self._show_guard
        )
        self._queue: WorkQueue[str] = WorkQueue(
            ExponentialBackoff(timings.mask_first_retry_seconds, timings.mask_max_retry_seconds),
            clock=timings.clock,
        )
        self._ever_managed: set[str] = set()
        """Namespaces that this process has seen opted in."""
        self._ever_deferred: Set[str] = frozenset()
        """Resources that were deferred at some time of this process."""
        self._half_restored: dict[str, tuple[Set[str], float]] = {}
        """Quotas whose pods are to be counted a second time, for which resources, and when."""
        self._pod_lists = PodLists(context.api, timings.clock)
        # as long again: others wait for one count, and nothing enforces its quotas until then
        self._rests = ListPauses(
            timings.clock, factor=1.0, at_least_seconds=0.0, at_most_seconds=MAX_REST_SECONDS
        )
        self._left_to_platform: set[str] = set()
        """Quotas that the quota controller had time to complete."""
        self.workers: Final = Controller(
            "status-mask", self._queue, self.reconcile, poll=self.poll, poll_seconds=_POLL_SECONDS
        )
        self._quotas.add_handler(self._on_quota)
        self._namespaces.add_handler(self._on_namespace)

    def start(self) -> None:
        """Start the worker; the caches are started by their owner."""
        self.workers.start()

    def stop(self) -> None:
        """Stop writing."""
        self.workers.stop(_STOP_SECONDS)

    def requeue_all(self) -> None:
        """Requeue every quota, because other resources are deferred now."""
        for key in self._quotas.items():
            self._queue.add(key)

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_quota(self, change: Change[ResourceQuota]) -> None:
        if change.new is None:
            return
        is_incomplete = bool(hidden_keys(change.new))
        if self._managed.is_managed(change.new.namespace):
            was_excluded = change.old is not None and is_excluded(change.old)
            is_odd = is_excluded(change.new) or was_excluded
            # what is hidden is looked at as well: whether it may be
            if is_odd or is_incomplete or visible_keys(change.new, self._managed.masked_keys()):
                self._queue.add(change.key)
        elif is_incomplete:
            self._queue.add_after(change.key, self._timings.quota_controller_seconds)

    def _on_namespace(self, change: Change[bool]) -> None:
        if change.new is True and change.key not in self._managed.exempt():
            self._ever_managed.add(change.key)
        if change.type == "DELETED":
            self._ever_managed.discard(change.key)
        elif change.new is True or change.old is True:
            for quota in self._quotas.in_namespace(change.key):
                self._queue.add(quota.key)

    # -- one quota, on the thread --------------------------------------------------------------

    def poll(self) -> bool:
        """Check the leadership and the registration; return whether the caches have synced."""
        self._pod_lists.forget_old()
        if not self._leadership.current_epoch():
            self._show_guard(ASSUMED_REGISTERED)  # what a former leader saw may be over
        elif self._registration.has_changed():
            self.requeue_all()
        return self._quotas.has_synced and self._namespaces.has_synced

    def reconcile(self, key: str) -> Result:
        """Write what the status of a quota should be, while this process leads."""
        try:
            return self._reconcile(key) if self._leadership.current_epoch() else DONE
        except (NotFoundError, ScopeError) as err:
            # it is gone, or the quota controller completes it: it counts none where scopes fail
            _log.info("quota status left alone", extra={"quota": key, "error": str(err)})
            return DONE
        except MaskRevertedError as err:
            self._count("undone")
            self._report_reverted(key, err)
        except ConflictError:
            self._count("conflict")
        except (ApiError, InvalidFieldError) as err:
            self._count("failed")
            _log.warning("quota status not written", extra={"quota": key, "error": str(err)})
        return RATE_LIMITED

    def _report_reverted(self, key: str, err: MaskRevertedError) -> None:
        # The guard is applied a moment before the mask: an installation is not a fault. Nor is a
        # configuration that waits for one, or a label that the API server does not know yet.
        is_first = not self._queue.failures(key)
        if self._registration.is_settling or err.is_charged or is_first:
            _log.info("quota status taken back, and brought back again", extra={"quota": key})
            return
        _log.error("quota status taken back", extra={"quota": key, "error": str(err)})
        self._events.warning(err.regarding, "NotEnforced", str(err))

    def _reconcile(self, key: str) -> Result:
        quota = self._quotas.get(key)
        if quota is None:
            self._half_restored.pop(key, None)
            self._left_to_platform.discard(key)
            return DONE
        rest = self._rests.seconds_left(quota.namespace)
        if rest:  # also for what has only to be hidden: until then all of it is checked
            return Postponed(rest)
        keys = self._managed.masked_keys()
        self._ever_deferred = self._ever_deferred | self._managed.deferred_keys()
        is_masked = quota.namespace not in self._managed.unmasked() and not is_excluded(quota)
        if self._managed.is_managed(quota.namespace) and is_masked:
            gap = self._unguarded_reason(quota, keys)
            return self._mask(quota, keys) if not gap else self._unmask(quota, gap)
        if key in self._half_restored or (hidden_keys(quota) and self._was_deferred(quota)):
            return self._restore(quota)
        return DONE

    def _unguarded_reason(self, quota: ResourceQuota, keys: Set[str]) -> str:
        """Return why nothing may be hidden in a quota; before a write, by what is so just now."""
        namespace = quota.namespace
        known = {NAMESPACE_NAME_LABEL: namespace, MODE_LABEL: DEFERRED_MODE}
        if not visible_keys(quota, keys) and not self._registration.current().gap(known):
            return ""
        labels = labels_of(read_namespace(self._api, namespace), namespace)
        if labels.get(MODE_LABEL) != DEFERRED_MODE:
            return f"namespace {namespace} has not opted in"
        return self._registration.current().gap(labels)

    def _mask(self, quota: ResourceQuota, keys: Set[str]) -> Result:
        patch = masking_patch(quota, keys)
        if patch is not None:
            self._hide(quota, patch, keys)
        # what is no longer deferred is the platform's again
        lacking = set(hidden_keys(quota)) - keys
        if (
            lacking
            and not lacking & self._ever_deferred
            and quota.key not in self._left_to_platform
        ):
            self._left_to_platform.add(quota.key)  # or a new quota
            return RequeueAfter(self._timings.quota_controller_seconds)
        self._left_to_platform.discard(quota.key)
        if lacking or quota.key in self._half_restored:
            return self._restore(quota, keys)
        return DONE

    def _hide(self, quota: ResourceQuota, patch: Patch, keys: Set[str]) -> None:
        """Write a mask; where it is refused, that of what every installation defers.

        The policy about our service accounts knows the resources that were installed. Of one that
        was added to the file alone it refuses the whole patch, and the API server goes on to
        enforce that resource; the others have to stay hidden.
        """
        try:
            self._write(quota, patch, "masked")
        except ForbiddenError:
            usual = masking_patch(quota, keys & DEFERRED_KEYS)
            if usual is not None and usual != patch:
                self._write(quota, usual, "masked")
            raise

    def _unmask(self, quota: ResourceQuota, reason: str) -> Result:
        """Restore a status that is not guarded."""
        if not hidden_keys(quota) and quota.key not in self._half_restored:
            return DONE
        if quota.key not in self._half_restored and not self._queue.failures(quota.key):
            self._count("unguarded")
            _log.warning("quota not guarded", extra={"quota": quota.key, "why": reason})
            self._events.warning(
                ObjectReference(RESOURCE_QUOTAS, quota.name, quota.namespace, quota.uid),
                "NotGuarded",
                f"nothing of this quota is deferred: {reason}",
            )
        return self._restore(quota)

    def _was_deferred(self, quota: ResourceQuota) -> bool:
        """Return whether this product hid something, not a status that is yet to be made."""
        namespace = quota.namespace
        if namespace in self._ever_managed:
            return True
        try:
            ledger = self._api.get(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        except NotFoundError:
            return False
        status = FieldReader(ledger).child("status")
        if status.has(SHADOW_FIELD) and not status.has("podsResourceVersion"):
            return False  # it was only watched: nothing was counted, and nothing hidden
        self._ever_managed.add(namespace)
        return True

    def _restore(self, quota: ResourceQuota, except_keys: Set[str] = frozenset()) -> Result:
        """Complete a status by the pods and claims there are, except for some resources.

        What was never hidden is left alone: it was the API server's all the time.
        """
        stored = self._api.get(RESOURCE_QUOTAS, quota.name, namespace=quota.namespace)
        present = ResourceQuota.from_stored(stored)
        hidden = set(hidden_keys(present)) - except_keys
        is_first = bool(hidden)
        half = self._half_restored.get(quota.key)
        if half is not None:
            left_seconds = half[1] - self._timings.clock()
            if not is_first and left_seconds > 0:  # it is here for its own write
                return RequeueAfter(left_seconds)
            hidden |= half[0] - except_keys
        not_before = -math.inf if is_first or half is None else half[1]
        counted = self._native_count(present, claimed_keys(present, hidden), not_before)
        counted = {name: amount for name, amount in counted.items() if name in hidden}
        patch = restoring_patch(present, counted)
        if patch is not None:
            written = self._write(present, patch, "restored")
            if written is None:
                return DONE  # the new leader does it
            left = counted.keys() & hidden_keys(ResourceQuota.from_stored(written.object))
            if left:
                raise MaskRevertedError(present, left, is_charged=self._is_charged(present, left))
        if half is not None and not is_first:
            del self._half_restored[quota.key]
            return DONE
        pause = self._timings.mask_second_count_seconds
        self._half_restored[quota.key] = hidden, self._timings.clock() + pause
        self._events.normal(
            ObjectReference(RESOURCE_QUOTAS, quota.name, quota.namespace, quota.uid),
            "EnforcedAtCreation",
            "this quota is not deferred any more; the API server checks all of it again",
        )
        return RequeueAfter(pause)

    def _is_charged(self, quota: ResourceQuota, keys: Set[str]) -> bool:
        """Return whether resources of a quota are charged at the bind, as far as is known."""
        known = {NAMESPACE_NAME_LABEL: quota.namespace, MODE_LABEL: DEFERRED_MODE}
        is_deferred = self._managed.is_managed(quota.namespace) and not is_excluded(quota)
        is_guarded = is_deferred and not self._registration.current().gap(known)
        return is_guarded and keys <= self._managed.deferred_keys()

    def _native_count(
        self, quota: ResourceQuota, claimed: Set[str], not_before: float
    ) -> ResourceList:
        """Count what is charged in a quota that was read just now, by a list of after that.

        Args:
            claimed: What ResourceClaims are counted for.
            not_before: When the list may have been begun at the earliest.
        """
        namespace = quota.namespace
        entry = self._namespaces.entry(namespace)
        quotas = {one.key: one.resource_version for one in self._quotas.in_namespace(namespace)}
        present = KnownVersions(0 if entry is None else entry.resource_version, quotas)
        with self._rests.measured(namespace):
            listed = self._pod_lists.get(quota, present, not_before=not_before)
            claims = self._pod_lists.claims(namespace, listed) if claimed else ()
            return native_count(quota, listed.pods, claims=claims, claimed=claimed)

    def _write(self, quota: ResourceQuota, patch: Patch, result: str) -> Revision | None:
        if not self._leadership.is_leader():
            return None
        written = self._api.patch(
            RESOURCE_QUOTAS, quota.name, patch, namespace=quota.namespace, subresource="status"
        )
        self._count(result)
        _log.info("quota status written", extra={"quota": quota.key, "what": result})
        return written

    def _show_guard(self, state: RegistrationState) -> None:
        is_missing = bool(state.problem) and not state.is_settling
        self._metrics.controller.guard_missing.set(is_missing)
        self._metrics.controller.emergency_since.set(state.emergency_since)

    def _count(self, result: str) -> None:
        self._metrics.controller.masks.labels(result).inc()
