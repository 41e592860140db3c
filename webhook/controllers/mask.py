"""Keep the deferred resources out of the status of quotas, and bring them back when they are not.

The API server's own quota check reads `status.hard`. Where a namespace defers, a mutating policy or
webhook hides the deferred resources from it. When that is missing or comes too late, this puts it
right; until then the platform is as strict as it always was.

When a namespace opts out, or a quota is excluded, nothing hides them any more, but the quota
controller writes a status only when a pod ends, `spec.hard` changes, or every five minutes. So the
status is completed here, at once: `hard` together with a count of the pods, because the API server
refuses every pod while a limited resource has no `used`. Pods that were created between the list
and that write are found by counting a second time; after that the quota controller has it.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Final

from webhook.cluster.api import (
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    ApiError,
    ClusterApi,
    ConflictError,
    NotFoundError,
)
from webhook.cluster.informer import Change
from webhook.cluster.shapes import decode_pod
from webhook.controllers.agenda import Agenda
from webhook.controllers.events import About, EventRecorder
from webhook.controllers.terms import Terms, always
from webhook.quota.deferral import is_excluded
from webhook.quota.fields import InvalidFieldError
from webhook.quota.native_status import (
    Patch,
    incomplete_keys,
    masking_patch,
    native_count,
    restoring_patch,
    visible_keys,
)
from webhook.quota.objects import Pod, ResourceQuota
from webhook.quota.scopes import ScopeError
from webhook.state.ledgers import LEDGER_NAME
from webhook.state.view import NamespaceCache, QuotaCache
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class MaskTiming:
    """When quotas are looked at; all times are seconds.

    Attributes:
        second_look: From completing a status to counting again.
        patience: How long the quota controller has to complete the status of a quota by itself
            before this does, where nobody has opted out just now.
        first_retry, longest_retry: After failures the pause doubles between them.
    """

    second_look: float = 2.0
    patience: float = 2.0
    first_retry: float = 0.2
    longest_retry: float = 30.0


class MaskRepair:
    """Masks and completes the status of quotas, on a thread of its own, while it leads.

    Args:
        api: The API server.
        quotas: The cached quotas; not started yet.
        namespaces: The cached namespaces; not started yet.
        deferred_keys: Tells which resources are deferred now.
        exempt: Tells which namespaces are never touched.
        is_leader: As for the tracker.
        events: Where it is told that a quota is the platform's again.
        metrics: Where writes are counted.
        timing: When to look.
    """

    def __init__(  # noqa: PLR0913 - the parts of one process, wired in one place
        self,
        api: ClusterApi,
        quotas: QuotaCache,
        namespaces: NamespaceCache,
        deferred_keys: Callable[[], Set[str]],
        *,
        exempt: Callable[[], Set[str]] = frozenset,
        is_leader: Callable[[], int] = always,
        events: EventRecorder | None = None,
        metrics: Metrics | None = None,
        timing: MaskTiming | None = None,
    ) -> None:
        self._api = api
        self._quotas = quotas.informer
        self._namespaces = namespaces.informer
        self._keys = deferred_keys
        self._exempt = exempt
        self._terms = Terms(is_leader, self.recheck)
        self._events = events
        self._metrics = metrics
        self._timing = timing or MaskTiming()
        self._agenda: Agenda[str] = Agenda()
        self._were_in: set[str] = set()
        """Namespaces that this process has seen opted in."""
        self._ever: Set[str] = frozenset()
        """Resources that were deferred at some time of this process."""
        self._half_done: set[str] = set()
        """Quotas whose pods are to be counted a second time."""
        self._failures: dict[str, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mask-repair", daemon=True)
        self._quotas.add_handler(self._on_quota)
        self._namespaces.add_handler(self._on_namespace)

    def start(self) -> None:
        """Begin to look; the caches are started by their owner."""
        self._thread.start()

    def stop(self) -> None:
        """Stop writing."""
        self._stopping.set()
        self._agenda.close()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def recheck(self) -> None:
        """Look at every quota anew, because other resources are deferred now."""
        for key in self._quotas.items():
            self._plan(key, 0.0)

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_quota(self, change: Change[ResourceQuota]) -> None:
        if change.new is None:
            return
        if self._is_opted_in(change.new.namespace):
            was_excluded = change.old is not None and is_excluded(change.old)
            if visible_keys(change.new, self._keys()) or is_excluded(change.new) or was_excluded:
                self._plan(change.key, 0.0)
        elif incomplete_keys(change.new):
            self._plan(change.key, self._timing.patience)

    def _on_namespace(self, change: Change[bool]) -> None:
        if change.new is True:
            self._were_in.add(change.key)
        if change.type == "DELETED":
            self._were_in.discard(change.key)
        elif change.new is True or change.old is True:
            for quota in self._quotas.in_namespace(change.key):
                self._plan(quota.key, 0.0)

    def _plan(self, key: str, seconds: float) -> None:
        self._agenda.put(key, self._agenda.now() + seconds)

    # -- one quota, on the thread --------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._terms.notice()
            key = self._agenda.take(_IDLE_SECONDS / 4)
            if key is not None:
                self._look(key)

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
        if quota is None or quota.namespace in self._exempt():
            self._half_done.discard(key)
            return None
        keys = self._keys()
        self._ever = self._ever | keys
        if self._is_opted_in(quota.namespace) and not is_excluded(quota):
            return self._mask(quota, keys)
        if key in self._half_done or (incomplete_keys(quota) and self._was_deferred(quota)):
            return self._restore(quota, None)
        return None

    def _mask(self, quota: ResourceQuota, keys: Set[str]) -> float | None:
        patch = masking_patch(quota, keys)
        if patch is not None:
            self._write(quota, patch, "masked")
        # what is no longer deferred is the platform's again
        dropped = (self._ever - keys) & set(incomplete_keys(quota))
        if dropped or quota.key in self._half_done:
            return self._restore(quota, self._ever - keys)
        return None

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

    def _restore(self, quota: ResourceQuota, only: Set[str] | None) -> float | None:
        """Complete a status by the pods there are; `only` some resources, or all."""
        found = self._api.get(RESOURCE_QUOTAS, quota.name, namespace=quota.namespace)
        present = ResourceQuota.from_object(found)
        counted = native_count(present, self._pods(quota.namespace))
        if only is not None:
            counted = {name: amount for name, amount in counted.items() if name in only}
        patch = restoring_patch(present, counted)
        if patch is not None:
            self._write(present, patch, "restored")
        if quota.key in self._half_done:
            self._half_done.discard(quota.key)
            return None
        self._half_done.add(quota.key)
        if self._events is not None:
            self._events.normal(
                About(RESOURCE_QUOTAS, quota.name, quota.namespace, quota.uid),
                "EnforcedAtCreation",
                "this quota is not deferred any more; the API server checks all of it again",
            )
        return self._timing.second_look

    def _pods(self, namespace: str) -> Iterable[Pod]:
        for page in self._api.pages(PODS, namespace=namespace):
            for revision in page.items:
                yield Pod.from_object(decode_pod(revision.data))

    def _write(self, quota: ResourceQuota, patch: Patch, what: str) -> None:
        if not self._terms.leads():
            return
        self._api.patch(
            RESOURCE_QUOTAS, quota.name, patch, namespace=quota.namespace, subresource="status"
        )
        self._count(what)
        _log.info("quota status written", extra={"quota": quota.key, "what": what})

    def _is_opted_in(self, namespace: str) -> bool:
        return self._namespaces.get(namespace) is True

    def _count(self, result: str) -> None:
        if self._metrics is not None:
            self._metrics.control.masks.labels(result).inc()
