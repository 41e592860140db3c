"""Report pods that got their nodes past the handlers, whenever a ledger is written.

That takes no request: such pods follow from the ledger that is replaced (`is_unguarded`), and from
the pods that are new with a node in the count (`arrivals`). Only if there are any, the API server
is asked whether the namespace is still opted in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from webhook.controllers.ledger.context import LedgerContext
from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.shared.participation import Participation
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError
from webhook.quota.ledger.apply_usage import is_unguarded, is_watched
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.objects.model import Pod
from webhook.state.ledger_store import LedgerVersion

_log = logging.getLogger(__name__)

_MAX_NAMED: Final = 20
"""Pods whose names stand in one line of the log."""


class UnguardedBinds:
    """Looks at every ledger that is written. Safe to use for several namespaces at once.

    Args:
        participation: Asked about a namespace before anything is reported of it.
    """

    def __init__(self, context: LedgerContext, participation: Participation) -> None:
        self._usage_cache = context.usage_cache
        self._participation = participation
        self._timings = context.timings
        self._recorder = context.recorder

    def write_and_report(
        self,
        namespace: str,
        state: NamespaceState,
        former: LedgerVersion,
        new_ledger: Ledger,
        write: Callable[[], LedgerVersion | None],
        *,
        is_edited: bool,
    ) -> LedgerVersion | None:
        """Have a ledger written, and report pods that should have a reservation in the former one.

        Args:
            former: The ledger that is written over.
            new_ledger: What is written. The pods were counted for it before.
            write: Writes it; None when another client was first. What it raises goes to the caller,
                and no pod is reported that was counted until then.
            is_edited: Another client has changed what is counted in `former`.
        """
        recent_binds = state.recent_binds
        with self._usage_cache.lock:
            if is_edited or not self._can_judge(namespace, state, former, new_ledger):
                recent_binds.reset()
            taken = recent_binds.take()
        began = self._timings.clock()
        written = write()
        with self._usage_cache.lock:
            if written is None:
                recent_binds.restore(taken)
                return None
            recent_binds.record_write(
                written,
                started_at=began,
                finished_at=self._timings.clock(),
                expire_seconds=self._timings.expire_seconds,
            )
            unguarded = self._unguarded_pods(state, former.ledger, taken)
        if unguarded and self._is_guarded(namespace, state):
            self._report(namespace, unguarded)
        return written

    def _can_judge(
        self, namespace: str, state: NamespaceState, former: LedgerVersion, new_ledger: Ledger
    ) -> bool:
        """Return whether everything this ledger counts was claimed since it was written."""
        return (
            former.ledger is not None
            and state.recent_binds.follows(former)
            and is_watched(former.ledger, new_ledger)
            and not self._usage_cache.may_predate_opt_in(namespace, state, former.ledger)
        )

    def _is_guarded(self, namespace: str, state: NamespaceState) -> bool:
        """Return whether the namespace is opted in now, and has been all the time.

        It may have opted out before the binds, where the watch of namespaces lags behind.
        """
        try:
            is_as_cached = self._participation.is_as_cached(namespace)
        except (ApiError, InvalidFieldError):
            return False
        with self._usage_cache.lock:
            is_same = self._usage_cache.namespaces.get(namespace) is state
            return is_as_cached and is_same and self._usage_cache.managed.is_managed(namespace)

    @staticmethod
    def _unguarded_pods(state: NamespaceState, former: Ledger | None, taken: set[str]) -> list[Pod]:
        if former is None:
            return []
        # what a pod takes is worked out only for those that have no reservation: none, as a rule
        doubtful = [uid for uid in taken if uid not in former.reservations]
        unguarded = (
            state.usage.pod(uid)
            for uid in doubtful
            if is_unguarded(uid, state.usage.observed(uid), former)
        )
        return sorted((pod for pod in unguarded if pod is not None), key=lambda pod: pod.name)

    def _report(self, namespace: str, pods: list[Pod]) -> None:
        names = [pod.name for pod in pods]
        _log.warning(
            "pods got their nodes without a reservation",
            extra={"namespace": namespace, "count": len(names), "pods": names[:_MAX_NAMED]},
        )
        self._recorder.unguarded(namespace, [(pod.name, pod.uid) for pod in pods])
