"""Usage of quotas during the last hour, as this process has seen it; in memory only."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.ledger.ledger import Account

WINDOW_SECONDS: Final = 3600.0
SAMPLE_SECONDS: Final = 60.0
_MOST_SAMPLES: Final = int(WINDOW_SECONDS / SAMPLE_SECONDS) + 2

SeriesKey: TypeAlias = tuple[str, str]
"""Quota and resource."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Amounts that hold from a moment until the next sample."""

    at: float
    """On the monotonic clock."""
    used: Quantity
    """By other namespaces too, of a quota that namespaces share."""
    reserved: Quantity
    hard: Quantity

    @property
    def amounts(self) -> tuple[Quantity, Quantity, Quantity]:
        """The amounts without their time."""
        return self.used, self.reserved, self.hard


_Series: TypeAlias = dict[SeriesKey, deque[Sample]]


class UsageHistory:
    """Samples of the accounts of namespaces. Safe to use from several threads.

    Only changes are kept, so a quiet namespace costs one sample for each resource of its quotas.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._namespaces: dict[str, _Series] = {}

    def record(self, namespaces: Mapping[str, Mapping[str, Account]]) -> None:
        """Take one sample of all namespaces; what is known of any other one is forgotten."""
        now = self._clock()
        with self._lock:
            for gone in self._namespaces.keys() - namespaces.keys():
                del self._namespaces[gone]
            for name, accounts in namespaces.items():
                _record(self._namespaces.setdefault(name, {}), accounts, now)

    def series(self, namespace: str) -> dict[SeriesKey, tuple[Sample, ...]]:
        """Return the samples of a namespace, oldest first; the first may be of before the hour."""
        with self._lock:
            found = self._namespaces.get(namespace, {})
            return {key: tuple(samples) for key, samples in sorted(found.items())}

    @property
    def now(self) -> float:
        """The moment on the clock of the samples."""
        return self._clock()


def _record(series: _Series, accounts: Mapping[str, Account], now: float) -> None:
    current = {
        (name, resource): _sample(account, resource, hard, now)
        for name, account in accounts.items()
        for resource, hard in account.hard.items()
    }
    for gone in series.keys() - current.keys():
        del series[gone]
    for key, sample in current.items():
        samples = series.setdefault(key, deque(maxlen=_MOST_SAMPLES))
        if not samples or samples[-1].amounts != sample.amounts:
            samples.append(sample if not samples else _sharing(sample, samples[-1]))
        while len(samples) > 1 and samples[1].at <= now - WINDOW_SECONDS:
            samples.popleft()


def _sample(account: Account, resource: str, hard: Quantity, now: float) -> Sample:
    used = _of(account.used, resource) + _of(account.used_elsewhere, resource)
    return Sample(now, used, _of(account.reserved, resource), hard)


def _sharing(sample: Sample, former: Sample) -> Sample:
    """Return the sample with the amounts of the former one where they are equal, for memory."""
    amounts = zip(sample.amounts, former.amounts, strict=True)
    return Sample(sample.at, *[old if new == old else new for new, old in amounts])


def _of(amounts: ResourceList, resource: str) -> Quantity:
    return amounts.get(resource, ZERO)
