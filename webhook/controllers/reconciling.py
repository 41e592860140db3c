"""One namespace after the other: taken from the agenda, settled, and planned again.

A namespace that changes all the time is settled at most every `settle_seconds`, one that was quiet
at once, and one that fails is tried again after growing pauses, so that none keeps the others
waiting. One in which nothing happens is looked at every `resync_seconds`: a reservation whose
request came to nothing leaves no other trace, and somebody may have edited the ledger.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from typing import Final

from webhook.cluster.api import ApiError, UnavailableError
from webhook.cluster.errors import is_namespace_terminating
from webhook.controllers.agenda import Agenda
from webhook.controllers.counts import Counts
from webhook.controllers.lines import Lines
from webhook.controllers.settling import RETRY_SECONDS, Settler
from webhook.controllers.terms import NotLeadingError
from webhook.controllers.tracked import Tracked, TrackerTiming
from webhook.controllers.voice import Voice
from webhook.quota.fields import InvalidFieldError
from webhook.state.ledgers import LedgerStore

_log = logging.getLogger(__name__)

_MOST_GONE: Final = 200
"""Deleted pods of a namespace that a standby remembers before it asks which of them matter."""


class Reconciler:
    """Has namespaces settled. Safe to use from several threads for different namespaces.

    Args:
        agenda: Where namespaces are taken from.
        counts: What was counted.
        ledgers: Where ledgers are read and written.
        lines: Who waits in each namespace.
        settler: Settles one namespace.
        timing: When to act.
        resync_seconds: Between two looks at a namespace in which nothing happens.
        notice: Returns the leadership to work under, see `Terms`.
        plan_recount: Told of a namespace that was settled.
        voice: Where it is told how that went.
    """

    def __init__(  # noqa: PLR0913 - the parts of one process, wired in one place
        self,
        agenda: Agenda[str],
        counts: Counts,
        ledgers: LedgerStore,
        lines: Lines,
        settler: Settler,
        timing: TrackerTiming,
        *,
        resync_seconds: float,
        notice: Callable[[], int],
        plan_recount: Callable[[str], None],
        voice: Voice,
    ) -> None:
        self._agenda = agenda
        self._counts = counts
        self._ledgers = ledgers
        self._lines = lines
        self._settler = settler
        self._timing = timing
        self._resync_seconds = resync_seconds
        self._notice = notice
        self._plan_recount = plan_recount
        self._voice = voice

    def reconcile(self, namespace: str) -> None:
        """Settle a namespace that was taken from the agenda, and give it back.

        What the API server does not do is tried again; what else goes wrong is raised after that.
        """
        retry: float | None = RETRY_SECONDS
        tracked: Tracked | None = None
        try:
            term = self._notice()
            if not term:
                self._stand_by(namespace)
                return
            tracked = self._begin(namespace)
            if tracked is not None:
                retry = self._settler.settle(namespace, tracked, term)
                tracked.failures = 0
                self._plan_recount(namespace)
        except NotLeadingError:
            _log.info("not leading any more", extra={"namespace": namespace})
        except (ApiError, InvalidFieldError) as err:
            retry = self._note_failure(namespace, tracked, err)
        finally:
            self._end(namespace, tracked, retry)

    def _begin(self, namespace: str) -> Tracked | None:
        with self._counts.lock:
            tracked = self._counts.tracked.get(namespace)
            if tracked is not None:
                tracked.begin()
                self._counts.refresh_quotas(namespace, tracked)
            return tracked

    def _stand_by(self, namespace: str) -> None:
        """Settle nothing, and let nothing pile up.

        Few of the deleted pods have a reservation. What has left leaves nothing to be done for who
        leads next, where no ledger counts anything and no pod is behind our gate.
        """
        with self._counts.lock:
            tracked = self._counts.tracked.get(namespace)
            if tracked is None:
                return
            may_go = tracked.is_leaving and not len(tracked.count.waiting)
            if not may_go and tracked.count.gone < _MOST_GONE:
                return
            known = self._ledgers.known(namespace)
            ledger = None if known is None else known.ledger
            if may_go and (ledger is None or not ledger.accounts):
                del self._counts.tracked[namespace]
            else:
                tracked.count.forget_gone(() if ledger is None else ledger.reservations)

    def _note_failure(
        self, namespace: str, tracked: Tracked | None, err: ApiError | InvalidFieldError
    ) -> float:
        # no ledger can be made any more, and none is needed
        is_end = isinstance(err, ApiError) and is_namespace_terminating(err)
        level = logging.INFO if is_end else logging.WARNING
        _log.log(level, "settling failed", extra={"namespace": namespace, "error": str(err)})
        self._voice.settled("failed")
        if tracked is None:
            return RETRY_SECONDS
        # its doors say that they cannot decide; those of the other namespaces can
        tracked.is_settled = tracked.is_settled or not isinstance(err, UnavailableError)
        tracked.failures += 1
        pause = min(self._timing.longest_retry, math.ldexp(RETRY_SECONDS, tracked.failures - 1))
        return pause if tracked.failures == 1 else pause * random.uniform(0.7, 1.0)  # noqa: S311

    def _end(self, namespace: str, tracked: Tracked | None, retry: float | None) -> None:
        """Give a namespace back to the agenda."""
        now = self._timing.clock()
        with self._counts.lock:
            present = self._counts.tracked.get(namespace)
            if tracked is not None:
                if retry is None and tracked.taken_since is not None:
                    self._voice.lagged(now - tracked.taken_since)
                pause = self._timing.settle_seconds if retry is None else retry
                tracked.note(now + pause, is_done=retry is None)
                if tracked.has_left and present is tracked:
                    del self._counts.tracked[namespace]
                    present = None
            if present is None:
                self._agenda.remove(namespace)
                self._agenda.done(namespace)
            elif tracked is None:  # a standby; it is planned again when a leadership begins
                self._agenda.done(namespace)
            else:
                again = present.next_moment(self._resync_seconds)
                self._agenda.done(namespace, again=again, not_before=present.due)
        if present is None or tracked is None:  # gone, or somebody else leads
            self._lines.forget(namespace)
