"""Requests on their way from the API server through the webhook to storage.

A request takes up to `REQUEST_SECONDS` from the look at the pod to the write of the pod.
"""

from __future__ import annotations

from dataclasses import replace

from tests.quota.ledger_world import checks
from tests.quota.ledger_world.objects import PodState, Request, pick
from tests.quota.ledger_world.storage import Storage
from webhook.quota.ledger import ledger as ledger_module
from webhook.quota.ledger.ledger import Admitted, Denied, Verdict

REQUEST_SECONDS = 34


class Requests:
    """All requests that have not ended; every public method is one step.

    Attributes:
        open: The requests, in the order in which they were made.
        commits: How many storage has carried out.
    """

    def __init__(self, storage: Storage) -> None:
        self.open: list[Request] = []
        self.commits = 0
        self._storage = storage

    def decide(self, index: int, *, loses_answer: bool = False) -> None:
        """Let a handler decide together all requests that have read the same ledger, and write."""
        undecided = [one for one in self.open if not one.is_admitted]
        first = pick(undecided, index)
        if first is None:
            return
        version, known = first.ledger
        batch = [one for one in undecided if one.ledger[0] == version]
        for one in [one for one in batch if ledger_module.check_observed(known, one.observed)]:
            batch.remove(one)
            self.open.remove(one)
        if known is None or not batch:
            return
        following, verdicts = ledger_module.admit_all(known, [one.claim for one in batch])
        checks.check_refused_untouched(known, following, batch, verdicts)
        checks.check_within_hard(known, following)
        is_admitting = any(isinstance(verdict, Admitted) for verdict in verdicts)
        is_written = is_admitting and self._storage.write_ledger(version, following)
        is_known_written = is_written and not loses_answer
        final = ledger_module.final_verdicts(
            verdicts, is_written=is_known_written or not is_admitting
        )
        for request, verdict, stands in zip(batch, verdicts, final, strict=True):
            self.answer(request, verdict, stands)

    def crash_handler(self, index: int) -> None:
        """Lose a handler's answer for good: the API server fails the request."""
        request = pick(self.open, index)
        if request is not None:
            self.open.remove(request)

    def commit(self, index: int) -> None:
        """Let storage carry out an admitted request, if it still can."""
        admitted = [one for one in self.open if one.is_admitted and one.kind != "forged"]
        request = pick(admitted, index)
        if request is None:
            return
        self.open.remove(request)
        before = self._storage.pods.get(request.pod.uid)
        if not _can_commit(request, before):
            self._ask_again(request)
            return
        wanted = request.pod
        if request.kind == "bind":
            assert before is not None
            wanted = replace(before, is_assigned=True)
        self._storage.store(wanted)
        self.commits += 1
        checks.check_commit(self._storage, request, before, wanted)

    def end_late(self) -> None:
        """End those that have lasted too long, without a write."""
        now = self._storage.clock
        self.open = [one for one in self.open if now - one.started <= REQUEST_SECONDS]

    def answer(self, request: Request, verdict: Verdict, stands: Verdict | None) -> None:
        if isinstance(verdict, Denied) and not verdict.provisional:
            request.was_refused = True
        if isinstance(stands, Admitted):
            assert not request.was_refused, "a refused request was admitted later"
            request.is_admitted, request.admitted_at = True, self._storage.version
        elif stands is not None:
            self.open.remove(request)
            self._ask_again(request)
        else:
            request.ledger = self._storage.read_ledger()

    def _ask_again(self, request: Request) -> None:
        """Ask about a patch once more if it was applied to a pod that is older than the stored."""
        now = self._storage.pods.get(request.pod.uid)
        is_old = now is not None and now.is_live and now.version != request.read_version
        if request.again is not None and now is not None and is_old:
            request.again(now)


def _can_commit(request: Request, before: PodState | None) -> bool:
    if request.kind == "create":
        return True
    if before is None or not before.is_live:
        return False
    if request.kind == "bind":
        return not (before.is_assigned or before.is_gated)
    return before.version == request.read_version
