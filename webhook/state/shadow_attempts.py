"""Outcomes of pod creations in namespaces in shadow mode.

The API server's own quota check comes after every webhook, so no webhook sees its decision. It is
found out in two ways. First it is predicted, by the same rules and the status that the check reads.
Then the pod is looked for. A pod that exists was not refused, whatever the prediction. A pod that
does not appear was refused by the quota if that was predicted, or if the quota, read again, has no
room for it; otherwise the reason is not known.

What deferral would have done with a refused pod is judged by the quotas of that moment, and by the
assigned usage that the controller writes a second or two later.

No request waits for this: handlers only hand over what they saw. Everything is added to the record
of the namespace every few seconds, and when the process ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import PODS, ApiError, ClusterApi, NotFoundError
from webhook.kube.informer import Change, Informer
from webhook.kube.metadata import utc_now
from webhook.quota.charging.deferral import uncountable_fields
from webhook.quota.objects.model import Pod
from webhook.quota.shadow.record import (
    ATTEMPTS,
    NEWLY_REFUSED,
    REFUSED,
    STORED,
    UNEXPLAINED,
    Fate,
    Findings,
    QuotaUse,
    Workload,
    classify,
    native_refusal,
)
from webhook.state.object_decoders import decode_pod
from webhook.state.quota_cache import NamespaceQuotaView, QuotaCache
from webhook.state.shadow_store import ShadowRecordStore, ShadowWriter

_log = logging.getLogger(__name__)

_STOP_SECONDS: Final = 5.0
_MAX_TRIES: Final = 60
_MAX_LATE: Final = 10_000
_MAX_NAMESPACES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to create a pod."""

    pod: Pod
    """The pod, with the uid that it will be stored under."""
    workload: str
    """Who tried: `ReplicaSet/web-5d7`, `Pod/web`."""
    violates_policy: Callable[[], bool] = lambda: False
    """Finds out whether a rule of deferral refuses it; may ask the API server."""
    size: int = 0
    """How many bytes it takes, roughly."""


@dataclass(frozen=True, slots=True)
class CreationTimings:
    """Times at which creations are looked at; all are seconds."""

    wait_seconds: float = 2.0
    """How long a pod may take to be seen after it was asked about."""
    flush_seconds: float = 10.0
    """Between two additions to a record."""
    late_seconds: float = 60.0
    """For how long a pod that comes later than that is still recognised."""
    round_seconds: float = 0.5
    """Between two looks."""
    most: int = 10_000
    """Attempts that are remembered at a time; of more it is not known what became of them."""
    most_bytes: int = 32 * 2**20
    """What all of these take, roughly."""
    clock: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class _Open:
    attempt: Attempt
    seen: NamespaceQuotaView
    foretold: str
    at: float
    when: str
    tries: int = 0
    is_stored: bool = False


@dataclass(frozen=True, slots=True)
class _GivenUp:
    """A pod that did not come in time."""

    until: float
    """For how long it is still waited for."""
    namespace: str
    counts: tuple[str, ...]
    """What was counted of it, and is wrong if it comes."""
    workload: Workload | None
    """Whose attempt was refused; None if it was not explained."""


@dataclass(slots=True)
class _Tally:
    """Sums that are to be added to the record of a namespace."""

    counts: Counter[str] = field(default_factory=Counter)
    workloads: list[Workload] = field(default_factory=list)
    examples: dict[str, str] = field(default_factory=dict)
    since: float = 0.0

    def findings(self) -> Findings:
        return Findings(dict(self.counts), tuple(self.workloads), None, dict(self.examples))


class CreationTracker:
    """Follows what becomes of creations. Safe to use from several threads.

    Args:
        pods: The waiting pods of all namespaces; not started yet.
        quotas: The cached quotas.
        name: The name of this process, unlike that of any other.
        timing: When to look.
        counted: Receives every result, for metrics.
    """

    def __init__(
        self,
        api: ClusterApi,
        pods: Informer[Pod],
        quotas: QuotaCache,
        *,
        name: str,
        timing: CreationTimings | None = None,
        counted: Callable[[str], None] = lambda _result: None,
    ) -> None:
        self._api = api
        self._pods = pods
        self._quotas = quotas
        self._store = ShadowRecordStore(api)
        self._writer = ShadowWriter(self._store, name, begins=False)
        self._timing = timing or CreationTimings()
        self._counted = counted
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._judging: dict[str, _Open] = {}
        """What is being judged just now: its pod may be seen meanwhile."""
        self._size = 0
        """Of all of these."""
        self._late: OrderedDict[str, _GivenUp] = OrderedDict()
        self._tallies: dict[str, _Tally] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shadow-creations", daemon=True)
        pods.add_handler(self._on_pod)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Add what is known by now, and stop."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def observe(self, attempt: Attempt) -> None:
        """Record that a pod is being created; returns at once."""
        now = self._timing.clock()
        # from memory only: nothing is waited for
        seen = self._quotas.in_namespace(attempt.pod.namespace)
        foretold = native_refusal(attempt.pod, seen.all_quotas)
        with self._lock:
            is_full = self._size + attempt.size > self._timing.most_bytes
            if is_full or len(self._open) >= self._timing.most:
                self._tally(attempt.pod.namespace).counts.update((ATTEMPTS, UNEXPLAINED))
                return
            if attempt.pod.uid not in self._open:
                one = _Open(attempt, seen, foretold, now, utc_now())
                self._open[attempt.pod.uid] = one
                self._size += attempt.size

    # -- what is seen, on the informer's thread ------------------------------------------------

    def _on_pod(self, change: Change[Pod]) -> None:
        uid = change.uid
        if not any(uid in known for known in (self._open, self._judging, self._late)):
            return
        with self._lock:
            found = self._open.get(uid) or self._judging.get(uid)
            if found is not None:
                found.is_stored = True
            late = self._late.pop(uid, None)
            if late is not None:
                self._count_anew(late)

    def _count_anew(self, late: _GivenUp) -> None:
        """Count a pod that came after it was given up; call with the lock held."""
        tally = self._tally(late.namespace)
        tally.counts.subtract(late.counts)
        tally.counts[STORED] += 1
        if late.workload is not None:
            tally.workloads.append(replace(late.workload, attempts=-1))

    # -- what became of it, on the thread ------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.wait(self._timing.round_seconds):
            self.step()
        self.step(is_last=True)

    def step(self, *, is_last: bool = False) -> None:
        """Judge what is due, and add what was found where it is time to; never fails."""
        try:
            self._classify_all(self._due(is_last=is_last))
            self._flush(is_last=is_last)
        except Exception:  # noqa: BLE001 - outermost frame: logged, and the next round comes
            _log.exception("creations in shadow mode not judged")

    def _due(self, *, is_last: bool) -> list[_Open]:
        now = self._timing.clock()
        with self._lock:
            due = [
                one
                for one in self._open.values()
                if one.is_stored or is_last or now - one.at >= self._timing.wait_seconds
            ]
            for one in due:
                # into one before it is out of the other: `_on_pod` looks without the lock first
                self._judging[one.attempt.pod.uid] = one
                del self._open[one.attempt.pod.uid]
            while self._late and next(iter(self._late.values())).until <= now:
                self._late.popitem(last=False)
        return due

    def _classify_all(self, due: Iterable[_Open]) -> None:
        uses: dict[str, Mapping[str, QuotaUse] | None] = {}
        for one in due:
            namespace = one.attempt.pod.namespace
            try:
                self._classify(one, uses)
            except ApiError as err:
                _log.info("creation not judged yet", extra={"error": str(err)})
                one.tries += 1
                if one.tries < _MAX_TRIES and not self._is_last:
                    with self._lock:
                        self._open.setdefault(one.attempt.pod.uid, one)
                else:
                    self._note(namespace, (ATTEMPTS, UNEXPLAINED), UNEXPLAINED)
            except Exception:  # noqa: BLE001 - the others are judged all the same
                _log.exception("creation not judged", extra={"namespace": namespace})
                self._note(namespace, (ATTEMPTS, UNEXPLAINED), UNEXPLAINED)
            finally:
                with self._lock:
                    self._judging.pop(one.attempt.pod.uid, None)
                    if self._open.get(one.attempt.pod.uid) is not one:
                        self._size -= one.attempt.size

    def _classify(self, one: _Open, uses: dict[str, Mapping[str, QuotaUse] | None]) -> None:
        attempt, namespace = one.attempt, one.attempt.pod.namespace
        if one.is_stored or self._exists(attempt):
            found = [ATTEMPTS, STORED]
            keys = one.seen.deferred.keys
            if self._is_against_rules(attempt) or uncountable_fields(attempt.pod, keys):
                found.append(NEWLY_REFUSED)
            self._note(namespace, found, STORED)
            return
        seen, words = one.seen, one.foretold
        if not words:  # what was charged just before may not have been seen yet
            seen = self._quotas.in_namespace(namespace)
            words = native_refusal(attempt.pod, seen.all_quotas)
        if not words:
            self._note(namespace, (ATTEMPTS, UNEXPLAINED), UNEXPLAINED)
            self._wait_for_late(one, (UNEXPLAINED,), None)
            return
        if namespace not in uses:
            uses[namespace] = self._store.uses(namespace)
        fate = classify(
            attempt.pod,
            seen.all_quotas,
            seen.deferred,
            uses[namespace],
            is_against_rules=self._is_against_rules(attempt),
        )
        if seen.errors and fate is not Fate.STILL_REFUSED:
            fate = Fate.UNJUDGED  # no bind would be decided either
        workload = Workload(attempt.workload, 1, fate, one.when, one.when)
        with self._lock:
            tally = self._tally(namespace)
            tally.workloads.append(workload)
            tally.examples[REFUSED] = words
        self._note(namespace, (ATTEMPTS, REFUSED, fate.value), fate.value)
        self._wait_for_late(one, (REFUSED, fate.value), workload)

    def _exists(self, attempt: Attempt) -> bool:
        """Return whether the pod is there; one that waits would have been seen.

        Raises:
            ApiError: The API server had to be asked and does not answer.
        """
        is_shown = self._pods.is_following and not attempt.pod.is_assigned and not self._is_last
        if is_shown or not attempt.pod.name:
            return False
        try:
            pod = attempt.pod
            found = self._api.get(PODS, pod.name, namespace=pod.namespace, decode=decode_pod)
            return FieldReader(found).child("metadata").text("uid") == pod.uid
        except (NotFoundError, InvalidFieldError):
            return False

    @property
    def _is_last(self) -> bool:
        return self._stopping.is_set()

    @staticmethod
    def _is_against_rules(attempt: Attempt) -> bool:
        try:
            return attempt.violates_policy()
        except (ApiError, InvalidFieldError):
            return False

    def _wait_for_late(
        self, one: _Open, counts: tuple[str, ...], workload: Workload | None
    ) -> None:
        until = self._timing.clock() + self._timing.late_seconds
        pod = one.attempt.pod
        given_up = _GivenUp(until, pod.namespace, counts, workload)
        with self._lock:
            if one.is_stored:  # it was seen while it was judged, and is not seen again
                self._count_anew(given_up)
                return
            self._late[pod.uid] = given_up
            if len(self._late) > _MAX_LATE:
                self._late.popitem(last=False)

    def _note(self, namespace: str, counts: Iterable[str], result: str) -> None:
        self._counted(result)
        with self._lock:
            self._tally(namespace).counts.update(map(str, counts))

    # -- the record ----------------------------------------------------------------------------

    def _tally(self, namespace: str) -> _Tally:
        """Return what is to be added for a namespace; call with the lock held.

        Reviews name as many namespaces as their clients like: beyond some nothing is added.
        """
        tally = self._tallies.get(namespace)
        if tally is None:
            tally = _Tally(since=self._timing.clock())
            if len(self._tallies) < _MAX_NAMESPACES:
                self._tallies[namespace] = tally
        return tally

    def _flush(self, *, is_last: bool) -> None:
        now = self._timing.clock()
        with self._lock:
            ready = [
                namespace
                for namespace, tally in self._tallies.items()
                if is_last or now - tally.since >= self._timing.flush_seconds
            ]
        for namespace in ready:
            try:
                self._writer.send(namespace, partial(self._take, namespace))
            except ApiError as err:
                _log.warning(
                    "shadow findings not written", extra={"namespace": namespace, "error": str(err)}
                )
                with self._lock:
                    if self._writer.has_unsent(namespace):
                        self._tally(namespace).since = now  # not again at once

    def _take(self, namespace: str) -> Findings | None:
        with self._lock:
            tally = self._tallies.pop(namespace, None)
        return None if tally is None or not tally.counts else tally.findings()
