"""Tell of pods that got their nodes past the doors, whenever a ledger is written.

Nothing is asked or written for that: what tells is the ledger that is written over
(`quota.unguarded`), and which pods are new with a node in the count (`arrivals`). Only when there
is something to tell, the API server is asked whether the namespace is still opted in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from webhook.cluster.api import ApiError
from webhook.controllers.counts import Counts
from webhook.controllers.membership import Membership
from webhook.controllers.tracked import Tracked, TrackerTiming
from webhook.controllers.voice import Voice
from webhook.quota.fields import InvalidFieldError
from webhook.quota.ledger import Ledger
from webhook.quota.objects import Pod
from webhook.quota.unguarded import is_unguarded, is_watched
from webhook.state.ledgers import LedgerVersion

_log = logging.getLogger(__name__)

_MOST_NAMED: Final = 20
"""Pods whose names stand in one line of the log."""


class UnguardedBinds:
    """Looks at every ledger that is written. Safe to use for several namespaces at once.

    Args:
        counts: What was counted.
        membership: Asked about a namespace before anything is told of it.
        timing: How long a request lasts.
        voice: Where it is told what was found.
    """

    def __init__(
        self, counts: Counts, membership: Membership, timing: TrackerTiming, voice: Voice
    ) -> None:
        self._counts = counts
        self._membership = membership
        self._timing = timing
        self._voice = voice

    def written(
        self,
        namespace: str,
        tracked: Tracked,
        former: LedgerVersion,
        following: Ledger,
        write: Callable[[], LedgerVersion | None],
        *,
        is_edited: bool,
    ) -> LedgerVersion | None:
        """Have a ledger written, and tell of pods that the one before should have known.

        Args:
            namespace: The namespace.
            tracked: The same.
            former: The ledger that is written over.
            following: What is written. The pods were counted for it before.
            write: Writes it; None when somebody else was first. What it raises goes to the caller,
                and nothing is told of pods that were counted until then.
            is_edited: Somebody has changed what is counted in `former`.
        """
        arrivals = tracked.arrivals
        with self._counts.lock:
            if is_edited or not self._is_sure(namespace, tracked, former, following):
                arrivals.forget()
            taken = arrivals.take()
        began = self._timing.clock()
        written = write()
        with self._counts.lock:
            if written is None:
                arrivals.give_back(taken)
                return None
            arrivals.note_written(
                written,
                began=began,
                ended=self._timing.clock(),
                expire_seconds=self._timing.expire_seconds,
            )
            found = self._found(tracked, former.ledger, taken)
        if found and self._is_guarded(namespace, tracked):
            self._tell(namespace, found)
        return written

    def _is_sure(
        self, namespace: str, tracked: Tracked, former: LedgerVersion, following: Ledger
    ) -> bool:
        """Tell whether a door has claimed for all that this ledger counts, since it was written."""
        return (
            former.ledger is not None
            and tracked.arrivals.follows(former)
            and is_watched(former.ledger, following)
            and not self._counts.is_from_before(namespace, tracked, former.ledger)
        )

    def _is_guarded(self, namespace: str, tracked: Tracked) -> bool:
        """Tell whether the namespace is opted in now, and has been all the time.

        It may have opted out without this process having heard of it when it heard of the pods.
        """
        try:
            is_as_cached = self._membership.is_as_cached(namespace)
        except (ApiError, InvalidFieldError):
            return False
        with self._counts.lock:
            is_same = self._counts.tracked.get(namespace) is tracked
            return is_as_cached and is_same and self._counts.opted.has(namespace)

    @staticmethod
    def _found(tracked: Tracked, former: Ledger | None, taken: set[str]) -> list[Pod]:
        if former is None:
            return []
        # what a pod takes is worked out only for those that have no reservation: none, as a rule
        doubtful = [uid for uid in taken if uid not in former.reservations]
        unguarded = (
            tracked.count.pod(uid)
            for uid in doubtful
            if is_unguarded(uid, tracked.count.seen(uid), former)
        )
        return sorted((pod for pod in unguarded if pod is not None), key=lambda pod: pod.name)

    def _tell(self, namespace: str, pods: list[Pod]) -> None:
        names = [pod.name for pod in pods]
        _log.warning(
            "pods got their nodes without a reservation",
            extra={"namespace": namespace, "count": len(names), "pods": names[:_MOST_NAMED]},
        )
        self._voice.unguarded(namespace, [(pod.name, pod.uid) for pod in pods])
