"""Keep every namespace's ledger true to its pods.

The tracker counts pods from its cache (`counts`) and, whenever the count of a namespace changes,
writes what follows from it (`settling`, `quota.settlement`). It also takes care of what no event
announces: reservations that expire, and pods that are stuck terminating. In the same write it
reserves for pods that wait behind our scheduling gate and fit (`lines`); the gates are then
removed by threads of their own (`gates`).

Every process counts, and the one that leads writes. Some threads settle different namespaces at the
same time, never one namespace in two of them (`reconciling`); the informers' threads only count and
put what they changed on the agenda.

When a leadership begins, everything is looked at anew. Ledgers that are missing in namespaces that
were opted in by then count as lost, and reservations are watched from then on: what an earlier
leader saw is not known.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Set
from typing import Final

from webhook.cluster.api import ApiError, ClusterApi
from webhook.cluster.informer import Change, Informer
from webhook.cluster.kinds import split_key
from webhook.controllers.agenda import Agenda
from webhook.controllers.counts import Counts
from webhook.controllers.events import EventRecorder
from webhook.controllers.gates import GateRemover
from webhook.controllers.lines import Lines, Releasing
from webhook.controllers.membership import Membership
from webhook.controllers.opted import Opted
from webhook.controllers.reconciling import Reconciler
from webhook.controllers.recounting import Recounter
from webhook.controllers.rounds import Rounds
from webhook.controllers.settling import RETRY_SECONDS, Settler
from webhook.controllers.share_keeper import ShareKeeper
from webhook.controllers.shares import Shares
from webhook.controllers.terms import NotLeadingError, Terms, always
from webhook.controllers.tracked import TrackerTiming
from webhook.controllers.voice import Voice
from webhook.quota.objects import Pod
from webhook.state.ledger_text import LedgerText
from webhook.state.ledgers import LedgerStore
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

_ROUND_SECONDS: Final = 0.2
"""Between two looks at the leadership."""
_UNSEEN_SECONDS: Final = 0.05
"""Between two looks whether the caches have been filled."""
_IDLE_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 10.0


class Tracker:
    """Counts all opted-in namespaces, and settles them while it leads.

    Args:
        api: The API server.
        ledgers: Where ledgers are read and written; doors in the same process share it.
        opted: Which namespaces are to be counted, and by which quotas.
        timing: When to act.
        is_leader: Tells whether this process may write: 0 for no, else a number that is another
            one in every leadership (`Election.term`).
        events: Where people are told what happened to ledgers.
        metrics: Where it is counted.
        ledger_informer: What follows the ledgers, if something does; not started yet. Changes that
            others make are then noticed at once.
        shared: Where quotas that namespaces share are read and written.
        releasing: How pods are released that wait behind our gate.
    """

    def __init__(  # noqa: PLR0913 - the parts of one process, wired in one place
        self,
        api: ClusterApi,
        ledgers: LedgerStore,
        opted: Opted,
        *,
        timing: TrackerTiming | None = None,
        is_leader: Callable[[], int] = always,
        events: EventRecorder | None = None,
        metrics: Metrics | None = None,
        ledger_informer: Informer[LedgerText] | None = None,
        shared: SharedQuotaStore | None = None,
        releasing: Releasing | None = None,
    ) -> None:
        releasing = releasing or Releasing()
        self._timing = timing or TrackerTiming()
        self._is_leader = is_leader
        self._terms = Terms(is_leader, self._take_over, self._tell_term)
        self._metrics = metrics
        self._agenda: Agenda[str] = Agenda(self._timing.clock)
        self._counts = Counts(
            api,
            opted,
            self._timing,
            self._agenda.put,
            rules=releasing.rules,
            give_up_seconds=releasing.give_up_seconds,
            lets_through=releasing.lets_through,
        )
        self.pods: Final[Informer[Pod]] = self._counts.pods
        self._voice = Voice(events, metrics)
        self._recounter = Recounter(
            api,
            self._counts,
            self._timing,
            leads=self.leads,
            report=self._voice.drifted,
            recounted=self._voice.recounted,
        )
        self._gates = GateRemover(
            api,
            workers=releasing.workers,
            clock=self._timing.clock,
            look_again=self._counts.look_again,
            metrics=metrics,
        )
        self._lines = Lines(releasing, self._gates, clock=self._timing.clock, metrics=metrics)
        self._membership = Membership(api, opted)
        self._shares = Shares(
            shared or SharedQuotaStore(api),
            self._counts,
            self._timing,
            leads=self._still_leads,
            membership=self._membership,
        )
        self._keeper = ShareKeeper(
            self._shares, ledgers, opted.quotas, opted.namespaces, self._voice
        )
        settler = Settler(
            ledgers,
            self._counts,
            self._lines,
            self._shares,
            self._timing,
            leads=self._still_leads,
            confirms=self._recounter.confirms,
            are_followed=lambda: self._followed is not None and self._followed.is_following,
            voice=self._voice,
        )
        is_followed = ledger_informer is not None
        self._reconciler = Reconciler(
            self._agenda,
            self._counts,
            ledgers,
            self._lines,
            settler,
            self._timing,
            resync_seconds=(
                self._timing.followed_resync_seconds if is_followed else self._timing.resync_seconds
            ),
            notice=self._terms.notice,
            plan_recount=self._recounter.plan,
            voice=self._voice,
        )
        self._ledgers = ledgers
        self._namespaces = opted.namespaces.informer
        self._followed = ledger_informer
        if ledger_informer is not None:
            ledger_informer.add_handler(self._on_ledger)
        self._has_been_ready = False
        self._watch = Rounds("tracker", self._look, rest_seconds=RETRY_SECONDS)
        recounts = Rounds("tracker-recount", self._recounter.work, rest_seconds=RETRY_SECONDS)
        workers = [
            Rounds(f"tracker-{number}", self._work, rest_seconds=_ROUND_SECONDS)
            for number in range(self._timing.workers)
        ]
        self._rounds = [self._watch, recounts, *workers]

    def start(self) -> None:
        """Start to count; the caches of quotas and namespaces are started by their owner."""
        self.pods.start()
        self._gates.start()
        for one in self._rounds:
            one.start()

    def stop(self) -> None:
        """Stop writing, then stop following."""
        for one in self._rounds:
            one.end()
        self._agenda.close()
        self._recounter.close()
        give_up = time.monotonic() + _STOP_SECONDS
        for one in self._rounds:
            one.stop(max(0.0, give_up - time.monotonic()))
        self._gates.stop()
        self.pods.stop()

    def recount(self) -> None:
        """Count everything again: other resources are deferred, or other namespaces exempt."""
        self._counts.recount()

    def look_at_lines(self) -> None:
        """Look at every line of waiting pods again: other rules move them now."""
        self._counts.look_at_lines()

    def leads(self) -> bool:
        """Tell whether this process writes ledgers now."""
        return self._terms.leads() and not self._watch.are_over

    def not_ready(self) -> list[str]:
        """Say what keeps the tracker from having settled every namespace; nothing when it has.

        A standby has nothing to settle. A namespace that comes later holds up its own requests,
        not this process, and so does a leadership that begins later.
        """
        if not self._counts.are_synced:
            return ["the tracker has not seen all pods yet"]
        if self._has_been_ready:
            return []
        waiting: list[str] = []
        if self._is_leader():
            with self._counts.lock:
                tracked = self._counts.tracked.items()
                waiting = sorted(name for name, one in tracked if not one.is_settled)
        self._has_been_ready = not waiting
        return [f"the ledger of namespace {name} has not been counted yet" for name in waiting]

    def uncounted(self) -> list[str]:
        """Say which quotas that namespaces share are being counted still; nothing when none is.

        Binds that concern them are answered 429 until then. That keeps no process from doing its
        work, and one that lasts is said on the quota itself. What waiting does not cure is left
        out, see `ShareKeeper.uncounted`.
        """
        return [f"usage is being counted for quota: {name}" for name in self._keeper.uncounted()]

    # -- leadership ----------------------------------------------------------------------------

    def _still_leads(self, term: int) -> bool:
        return self._terms.lasts(term) and not self._watch.are_over

    def _tell_term(self, term: int) -> None:
        if term:
            _log.info("settling begins", extra={"term": term})
        if self._metrics is not None:
            self._metrics.control.leader.set(int(term != 0))

    def _take_over(self) -> None:
        """Look at everything anew.

        Raises:
            ApiError: The caches are behind, or the API server does not answer.
        """
        opted_in = self._membership.check_caches()
        there: Set[str] = frozenset()
        if self._timing.waits_at_start:
            # Not from the cache: it may be from before somebody opted in, got a ledger and lost it,
            # all under an earlier leader. That leader is over, so a list that was made since has
            # all who did, and one that the caches were checked with is as good as another.
            there = self._membership.opted_in() if opted_in is None else opted_in
        self._shares.completeness.begin_term()
        self._keeper.begin_term()
        with self._counts.lock:
            self._counts.had_ledger.update(there)
            for namespace in {*self._left_over(), *self._counts.left_behind_gates()}:
                self._counts.leave(namespace, self._counts.track(namespace))
            for namespace, tracked in self._counts.tracked.items():
                tracked.begin_term()
                self._counts.mark(namespace, tracked)

    def _left_over(self) -> list[str]:
        """Return namespaces that were left while nobody led, and have a ledger that counts still.

        Should they opt in again, nobody may decide by what was counted then.
        """
        if self._followed is None:
            return []
        return [
            namespace
            for namespace in map(_namespace_of, self._followed.items())
            if self._namespaces.get(namespace) is not None
            and not self._counts.opted.has(namespace)
            and namespace not in self._counts.tracked
            and (known := self._ledgers.known(namespace)) is not None
            and known.ledger is not None
            and known.ledger.accounts
        ]

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_ledger(self, change: Change[LedgerText]) -> None:
        """Look at a ledger that somebody else has written or deleted."""
        namespace = _namespace_of(change.key)
        with self._counts.lock:
            tracked = self._counts.tracked.get(namespace)
            if tracked is None:
                return
            written = tracked.written
            is_own = (
                change.type != "DELETED"
                and written is not None
                and written.resource_version >= change.resource_version
            )
            if not is_own:
                moment = self._timing.clock() + self._timing.look_seconds
                self._agenda.put(namespace, max(tracked.due, moment))

    # -- settling, on the tracker's threads ----------------------------------------------------

    def _look(self) -> float:
        """Notice leaderships, and pods that have been terminating for too long."""
        try:
            self._look_around()
        except NotLeadingError:
            pass
        except ApiError as err:
            _log.warning("taking over failed", extra={"error": str(err)})
            return RETRY_SECONDS
        return _ROUND_SECONDS

    def _look_around(self) -> None:
        if self._is_synced():
            term = self._terms.notice()
            if term:
                self._keeper.look(term)
        self._counts.release_stuck(self._timing.clock())

    def _is_synced(self) -> bool:
        are_ledgers_seen = self._followed is None or self._followed.has_synced
        return are_ledgers_seen and self._counts.are_synced

    def _work(self) -> float:
        """Settle the namespace whose turn it is; the agenda is what rests."""
        if not self._is_synced():
            return _UNSEEN_SECONDS
        namespace = self._agenda.take(_IDLE_SECONDS)
        if namespace is not None:
            try:
                self._reconciler.reconcile(namespace)
            except Exception:  # noqa: BLE001 - logged with its name, and it is tried again
                _log.exception("settling failed", extra={"namespace": namespace})
        return 0.0


def _namespace_of(key: str) -> str:
    return split_key(key)[0]
