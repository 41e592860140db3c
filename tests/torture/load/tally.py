"""What the load has tried and what came of it."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts of the whole load. Safe to use from several threads.

    Attributes:
        answers: What was done → how it was answered → how often; 0 stands for no answer.
        messages: Unexpected answers: message → how often.
        bound: Namespace → when binds succeeded, on the monotonic clock.
        requests: Pod uid → when requests began that can charge it.
    """

    answers: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    messages: Counter[str] = field(default_factory=Counter)
    bound: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    requests: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    bind_seconds: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: str, status: int, message: str = "") -> None:
        """Count an answer."""
        with self._lock:
            self.answers[what][status] += 1
            if message:
                self.messages[f"{what} {status}: {message[:200]}"] += 1

    def begin(self, uid: str, at: float) -> None:
        """Note that a request begins that can charge a pod."""
        with self._lock:
            self.requests[uid].append(at)

    def note_bound(self, namespace: str, at: float, seconds: float) -> None:
        """Note a bind that succeeded."""
        with self._lock:
            self.bound[namespace].append(at)
            self.bind_seconds.append(seconds)

    @property
    def tried(self) -> int:
        """How many binds were tried, pods that were created with a node included."""
        with self._lock:
            return sum(self._binds().values())

    def outcomes(self) -> dict[str, int]:
        """Return how binds were answered: admitted, refused, undecided, other, unanswered."""
        with self._lock:
            binds = self._binds()
        known = {201: "admitted", 403: "refused", 429: "undecided", 0: "unanswered"}
        counts: Counter[str] = Counter()
        for status, count in binds.items():
            counts[known.get(status, "failed" if status >= 500 else "other")] += count
        return dict(counts)

    def by_code(self) -> Mapping[str, Mapping[str, int]]:
        """Return all answers, for the report."""
        with self._lock:
            return {
                what: {str(code): count for code, count in sorted(codes.items())}
                for what, codes in sorted(self.answers.items())
            }

    def _binds(self) -> Counter[int]:
        total: Counter[int] = Counter()
        for what, codes in self.answers.items():
            if what.startswith("bind"):
                total.update(codes)
        return total
