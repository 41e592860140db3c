"""Keep the deferred resources out of the status of quotas, and bring them back when they are not.

The API server's own quota check reads `status.hard`. Where a namespace defers, a mutating policy or
webhook hides the deferred resources from it. When that is missing or comes too late, this puts it
right; until then the platform is as strict as it always was.

Nothing is hidden that nobody guards: before it hides, this asks the API server itself whether the
namespace still defers and the guard at the bind stands. Where it does not, everything is brought
back, also what was hidden before.

When a namespace opts out or becomes exempt, or a quota is excluded, nothing hides them any more but
the quota controller writes a status only when a pod ends, `spec.hard` changes, or every five
minutes. So the status is completed here, at once: `hard` together with a count of the pods, because
the API server refuses every pod while a limited resource has no `used`. Pods that were created
between the list and that write are found by counting a second time; after that the quota controller
has it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Set
from typing import Final

from webhook.cluster.api import (
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    ApiError,
    ClusterApi,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    Revision,
)
from webhook.cluster.following import Scope
from webhook.cluster.informer import Change
from webhook.cluster.kinds import NAMESPACE_NAME_LABEL
from webhook.cluster.listing import whole_list
from webhook.cluster.shapes import decode_pod
from webhook.controllers.agenda import Agenda
from webhook.controllers.events import About, EventRecorder
from webhook.controllers.guards import Guard, GuardWatch, standing
from webhook.controllers.masking import HiddenAgainError, MaskTiming
from webhook.controllers.opted import Opted
from webhook.controllers.rounds import Rounds
from webhook.controllers.terms import Terms, always
from webhook.quota.deferral import is_excluded
from webhook.quota.fields import InvalidFieldError
from webhook.quota.keeping import kept_pod
from webhook.quota.names import DEFERRED_KEYS
from webhook.quota.native_status import (
    Patch,
    hidden_keys,
    masking_patch,
    native_count,
    restoring_patch,
    visible_keys,
)
from webhook.quota.objects import Pod, ResourceQuota
from webhook.quota.scopes import ScopeError
from webhook.state.ledgers import LEDGER_NAME
from webhook.state.names import DEFERRED_MODE, MODE_LABEL
from webhook.state.namespace_labels import labels_of
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 5.0


class MaskRepair:
    """Masks and completes the status of quotas, on a thread of its own, while it leads.

    Args:
        api: The API server.
        opted: The opted-in namespaces and their quotas; the caches are not started yet.
        guard: Tells whether the guard at the bind stands; the API server is asked.
        is_leader: As for the tracker.
        events: Where it is told that a quota is the platform's again.
        metrics: Where writes are counted.
        timing: When to look.
    """

    def __init__(
        self,
        api: ClusterApi,
        opted: Opted,
        *,
        guard: Callable[[], Guard] = standing,
        is_leader: Callable[[], int] = always,
        events: EventRecorder | None = None,
        metrics: Metrics | None = None,
        timing: MaskTiming | None = None,
    ) -> None:
        self._api = api
        self._opted = opted
        self._quotas = opted.quotas.informer
        self._namespaces = opted.namespaces.informer
        self._terms = Terms(is_leader, self.recheck)
        self._events = events
        self._metrics = metrics
        self._timing = timing or MaskTiming()
        self._guard = GuardWatch(guard, self._timing.guard_seconds)
        self._agenda: Agenda[str] = Agenda()
        self._were_in: set[str] = set()
        """Namespaces that this process has seen opted in."""
        self._ever: Set[str] = frozenset()
        """Resources that were deferred at some time of this process."""
        self._half_done: dict[str, Set[str]] = {}
        """Quotas whose pods are to be counted a second time, and for which resources."""
        self._waited_for: set[str] = set()
        """Quotas that the quota controller had time to complete."""
        self._failures: dict[str, int] = {}
        self._rounds = Rounds("mask-repair", self._work, rest_seconds=_IDLE_SECONDS)
        self._quotas.add_handler(self._on_quota)
        self._namespaces.add_handler(self._on_namespace)

    def start(self) -> None:
        """Begin to look; the caches are started by their owner."""
        self._rounds.start()

    def stop(self) -> None:
        """Stop writing."""
        self._rounds.end()
        self._agenda.close()
        self._rounds.stop(_STOP_SECONDS)

    def recheck(self) -> None:
        """Look at every quota anew, because other resources are deferred now."""
        for key in self._quotas.items():
            self._plan(key, 0.0)

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_quota(self, change: Change[ResourceQuota]) -> None:
        if change.new is None:
            return
        is_incomplete = bool(hidden_keys(change.new))
        if self._opted.has(change.new.namespace):
            was_excluded = change.old is not None and is_excluded(change.old)
            is_odd = is_excluded(change.new) or was_excluded
            # what is hidden is looked at as well: whether it may be
            if is_odd or is_incomplete or visible_keys(change.new, self._opted.keys()):
                self._plan(change.key, 0.0)
        elif is_incomplete:
            self._plan(change.key, self._timing.patience)

    def _on_namespace(self, change: Change[bool]) -> None:
        if change.new is True and change.key not in self._opted.exempt():
            self._were_in.add(change.key)
        if change.type == "DELETED":
            self._were_in.discard(change.key)
        elif change.new is True or change.old is True:
            for quota in self._quotas.in_namespace(change.key):
                self._plan(quota.key, 0.0)

    def _plan(self, key: str, seconds: float) -> None:
        self._agenda.put(key, self._agenda.now() + seconds)

    # -- one quota, on the thread --------------------------------------------------------------

    def _work(self) -> float:
        """Look at the quota whose turn it is; the agenda is what rests."""
        if self._terms.notice() and self._guard.has_changed():
            self.recheck()
        key = self._agenda.take(_IDLE_SECONDS / 4)
        if key is not None:
            self._look(key)
        return 0.0

    def _look(self, key: str) -> None:
        """Look at a quota that was taken from the agenda, and plan it again if need be."""
        pause: float | None = None
        try:
            if not self._are_synced():
                pause = 0.05
            elif self._terms.notice():
                pause = self._reconcile(key)
            self._failures.pop(key, None)
        except (NotFoundError, ScopeError) as err:
            # it is gone, or the quota controller cannot count it either
            _log.info("quota status left alone", extra={"quota": key, "error": str(err)})
        except HiddenAgainError as err:
            self._count("undone")
            _log.error("quota status taken back", extra={"quota": key, "error": str(err)})
            if self._events is not None:
                self._events.warning(err.about, "NotEnforced", str(err))
            pause = self._retry(key)
        except ConflictError:
            self._count("conflict")
            pause = self._retry(key)
        except (ApiError, InvalidFieldError) as err:
            self._count("failed")
            _log.warning("quota status not written", extra={"quota": key, "error": str(err)})
            pause = self._retry(key)
        except Exception:  # noqa: BLE001 - outermost frame: logged, and tried again
            self._count("failed")
            _log.exception("quota status not written", extra={"quota": key})
            pause = self._retry(key)
        finally:
            again = None if pause is None else self._agenda.now() + pause
            self._agenda.done(key, again=again)

    def _are_synced(self) -> bool:
        return self._quotas.has_synced and self._namespaces.has_synced

    def _retry(self, key: str) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return min(
            self._timing.longest_retry, math.ldexp(self._timing.first_retry, min(failures - 1, 16))
        )

    def _reconcile(self, key: str) -> float | None:
        """Write what the status of a quota should be; return when to look again."""
        quota = self._quotas.get(key)
        if quota is None:
            self._half_done.pop(key, None)
            self._waited_for.discard(key)
            return None
        keys = self._opted.keys()
        self._ever = self._ever | keys
        is_masked = quota.namespace not in self._opted.unmasked() and not is_excluded(quota)
        if self._opted.has(quota.namespace) and is_masked:
            gap = self._gap(quota, keys)
            return self._mask(quota, keys) if not gap else self._unmask(quota, gap)
        if key in self._half_done or (hidden_keys(quota) and self._was_deferred(quota)):
            return self._restore(quota)
        return None

    def _gap(self, quota: ResourceQuota, keys: Set[str]) -> str:
        """Say why nothing may be hidden in a quota; before a write, by what is so just now."""
        namespace = quota.namespace
        known = {NAMESPACE_NAME_LABEL: namespace, MODE_LABEL: DEFERRED_MODE}
        if not visible_keys(quota, keys) and not self._guard.now().gap(known):
            return ""
        labels = labels_of(self._api.get(NAMESPACES, namespace), namespace)
        if labels.get(MODE_LABEL) != DEFERRED_MODE:
            return f"namespace {namespace} has not opted in"
        return self._guard.now().gap(labels)

    def _mask(self, quota: ResourceQuota, keys: Set[str]) -> float | None:
        patch = masking_patch(quota, keys)
        if patch is not None:
            self._hide(quota, patch, keys)
        # what is no longer deferred is the platform's again
        lacking = set(hidden_keys(quota)) - keys
        if lacking and not lacking & self._ever and quota.key not in self._waited_for:
            self._waited_for.add(quota.key)  # or a new quota
            return self._timing.patience
        self._waited_for.discard(quota.key)
        if lacking or quota.key in self._half_done:
            return self._restore(quota, keys)
        return None

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

    def _unmask(self, quota: ResourceQuota, gap: str) -> float | None:
        """Bring back what nobody guards."""
        if not hidden_keys(quota) and quota.key not in self._half_done:
            return None
        if quota.key not in self._half_done and quota.key not in self._failures:
            self._count("unguarded")
            _log.warning("quota not guarded", extra={"quota": quota.key, "why": gap})
            if self._events is not None:
                self._events.warning(
                    About(RESOURCE_QUOTAS, quota.name, quota.namespace, quota.uid),
                    "NotGuarded",
                    f"nothing of this quota is deferred: {gap}",
                )
        return self._restore(quota)

    def _was_deferred(self, quota: ResourceQuota) -> bool:
        """Tell whether it was this product that hid something, and not a status yet to be made."""
        namespace = quota.namespace
        if namespace in self._were_in:
            return True
        try:
            self._api.get(QUOTA_LEDGERS, LEDGER_NAME, namespace=namespace)
        except NotFoundError:
            return False
        self._were_in.add(namespace)
        return True

    def _restore(self, quota: ResourceQuota, but: Set[str] = frozenset()) -> float | None:
        """Complete a status by the pods there are, except for some resources.

        What was never hidden is left alone: it was the API server's all the time.
        """
        found = self._api.get(RESOURCE_QUOTAS, quota.name, namespace=quota.namespace)
        present = ResourceQuota.from_stored(found)
        hidden = {*hidden_keys(present), *self._half_done.get(quota.key, ())} - but
        counted = native_count(present, self._pods(quota.namespace))
        counted = {name: amount for name, amount in counted.items() if name in hidden}
        patch = restoring_patch(present, counted)
        if patch is not None:
            written = self._write(present, patch, "restored")
            if written is None:
                return None  # whoever leads now does it
            left = hidden_keys(ResourceQuota.from_stored(written.object))
            if counted.keys() & left:
                raise HiddenAgainError(present, counted.keys() & left)
        if quota.key in self._half_done:
            del self._half_done[quota.key]
            return None
        self._half_done[quota.key] = hidden
        if self._events is not None:
            self._events.normal(
                About(RESOURCE_QUOTAS, quota.name, quota.namespace, quota.uid),
                "EnforcedAtCreation",
                "this quota is not deferred any more; the API server checks all of it again",
            )
        return self._timing.second_look

    def _pods(self, namespace: str) -> Iterable[Pod]:
        for page in whole_list(self._api, PODS, Scope(namespace), newest=0):
            for revision in page.items:
                yield kept_pod(decode_pod(revision.data))

    def _write(self, quota: ResourceQuota, patch: Patch, what: str) -> Revision | None:
        if not self._terms.leads():
            return None
        written = self._api.patch(
            RESOURCE_QUOTAS, quota.name, patch, namespace=quota.namespace, subresource="status"
        )
        self._count(what)
        _log.info("quota status written", extra={"quota": quota.key, "what": what})
        return written

    def _count(self, result: str) -> None:
        if self._metrics is not None:
            self._metrics.control.masks.labels(result).inc()
