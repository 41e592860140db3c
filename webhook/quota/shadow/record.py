"""Record of what would change if a namespace deferred its quotas: judged, never enforced.

A namespace in shadow mode is left to the API server. Two things are watched there:

- Creations of pods. The API server's own quota check refuses some; `classify` says what would have
  become of them. Each is judged by itself, beside what the pods that have a node use.
- The pods that are stored, as they come, get their node and grow: what deferral would have refused
  or let wait, and how much of each quota is charged and how much is really assigned (`UsageSpan`).

What was found is added up in a `ShadowRecord`. Sums are of integers, so that nothing is lost by
rounding, and records can be merged in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import uncountable_names
from webhook.quota.charging.deferral import (
    NamespaceQuotas,
    QuotaScopeError,
    claim_for_bind,
    deferred_part,
    is_excluded,
)
from webhook.quota.charging.evaluation import evaluate, over_hard
from webhook.quota.charging.pod_usage import charged_to
from webhook.quota.ledger.ledger import (
    NEWEST,
    Account,
    Denied,
    Ledger,
    QuotaRevision,
    ReservationSource,
    admit,
    check_observed,
)
from webhook.quota.objects.model import Pod, ResourceQuota

MOST_WORKLOADS: Final = 100
"""Workloads that a record names; attempts of others are only counted."""
MOST_WRITERS: Final = 16
"""Writers whose last addition is remembered, so that none is added twice."""
_NAME_CHARACTERS: Final = 200
_EXAMPLE_CHARACTERS: Final = 500


class Fate(StrEnum):
    """Fate under deferral of a creation that the API server's own quota check refuses."""

    RUNS = "wouldRun"
    """Admitted, and it fits beside what pods with a node use: a node could have been found."""
    WAITS = "wouldWait"
    """Admitted, and waits until others give something back."""
    NEVER_FITS = "neverFits"
    """Admitted, and waits for ever: it is larger than a quota."""
    STILL_REFUSED = "stillRefused"
    """Denied too: by what is not deferred, or by a rule."""
    UNJUDGED = "unjudged"
    """Not known: usage was not counted yet, or a quota cannot be evaluated."""


ATTEMPTS: Final = "attempts"
"""Creations that came to the quota check."""
STORED: Final = "stored"
"""Those of them whose pod was then there."""
REFUSED: Final = "refused"
"""Those that the quota check refused; each has one `Fate`."""
UNEXPLAINED: Final = "unexplained"
"""Those that came to nothing for a reason that is not to be seen."""
NEWLY_REFUSED: Final = "newlyRefused"
"""Stored pods whose creation a rule of deferral refuses."""
CREATION_COUNTS: Final = (ATTEMPTS, STORED, REFUSED, *Fate, UNEXPLAINED, NEWLY_REFUSED)

CREATED: Final = "created"
BOUND: Final = "bound"
GROWN: Final = "grown"
OVER: Final[Mapping[str, str]] = {
    CREATED: "createdOver",
    BOUND: "boundOver",
    GROWN: "grownOver",
}
"""What happened to a stored pod → the same beyond what was free of a quota."""
POD_COUNTS: Final = (CREATED, "createdOver", BOUND, "boundOver", GROWN, "grownOver")


@dataclass(frozen=True, slots=True)
class UsageSpan:
    """One resource of a quota over some time; `charged` is what the API server counts."""

    hard: Quantity
    charged: Quantity
    """What the API server charges last, waiting pods included."""
    assigned: Quantity
    """What the pods with a node take last."""
    charged_peak: Quantity
    """The most that was charged."""
    assigned_peak: Quantity
    """The most that was assigned."""
    charged_area: int = 0
    """Charged over time, in 10⁻⁹ units times milliseconds."""
    assigned_area: int = 0
    """Assigned over time, likewise."""
    full_milliseconds: int = 0
    """For how long all was charged."""
    full_area: int = 0
    """Assigned over that time."""

    @classmethod
    def of(cls, hard: Quantity, charged: Quantity, assigned: Quantity) -> UsageSpan:
        """Begin with what is so at one moment."""
        return cls(hard, charged, assigned, charged, assigned)

    def lasting(self, milliseconds: int) -> UsageSpan:
        """Return the span with the last amounts going on for some time more."""
        is_full = self.charged >= self.hard
        return replace(
            self,
            charged_area=self.charged_area + self.charged.nano * milliseconds,
            assigned_area=self.assigned_area + self.assigned.nano * milliseconds,
            full_milliseconds=self.full_milliseconds + milliseconds * is_full,
            full_area=self.full_area + self.assigned.nano * milliseconds * is_full,
        )

    def then(self, following: UsageSpan) -> UsageSpan:
        """Return the span that both make, `following` the later one."""
        return UsageSpan(
            following.hard,
            following.charged,
            following.assigned,
            max(self.charged_peak, following.charged_peak),
            max(self.assigned_peak, following.assigned_peak),
            self.charged_area + following.charged_area,
            self.assigned_area + following.assigned_area,
            self.full_milliseconds + following.full_milliseconds,
            self.full_area + following.full_area,
        )

    def average_charged(self, milliseconds: int) -> Quantity:
        """Return the time-weighted average of what was charged."""
        return self._average(self.charged_area, milliseconds, self.charged)

    def average_assigned(self, milliseconds: int) -> Quantity:
        """Return the time-weighted average of what was assigned."""
        return self._average(self.assigned_area, milliseconds, self.assigned)

    @property
    def assigned_while_full(self) -> Quantity:
        """The time-weighted average of what was assigned while all was charged."""
        return self._average(self.full_area, self.full_milliseconds, self.assigned)

    def _average(self, area: int, milliseconds: int, otherwise: Quantity) -> Quantity:
        if milliseconds <= 0:
            return otherwise
        return Quantity.of_nano(area // milliseconds, self.hard.format)


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """Usage of one quota."""

    observed: QuotaRevision
    """The quota object that was watched; another spec begins anew."""
    since: str
    """From when on, RFC 3339."""
    milliseconds: int
    """For how long in all; without a leader, nothing was watched."""
    resources: Mapping[str, UsageSpan]
    """Deferred resource → its use."""

    def then(self, following: QuotaUse) -> QuotaUse:
        """Return what both make; of another quota or spec only the later one is left."""
        is_same = self.observed == following.observed
        if not is_same or self.resources.keys() != following.resources.keys():
            return following
        return QuotaUse(
            following.observed,
            self.since,
            self.milliseconds + following.milliseconds,
            {name: self.resources[name].then(span) for name, span in following.resources.items()},
        )

    def now(self) -> QuotaUse:
        """Return the same with nothing but what is so now."""
        spans = {
            name: UsageSpan.of(span.hard, span.charged, span.assigned)
            for name, span in self.resources.items()
        }
        return replace(self, milliseconds=0, resources=spans)


@dataclass(frozen=True, slots=True)
class Workload:
    """The owners of pods that were refused: what owns them, or the pod's own name."""

    name: str
    """As `ReplicaSet/web-5d7`."""
    attempts: int
    """How often, with this fate."""
    fate: Fate
    """What would have become of the pods."""
    first: str
    """When the first of them was refused, RFC 3339."""
    last: str
    """When the last one was."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings since the last time, to be added to a record."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Counter → by how much it grows; a correction can be negative."""
    workloads: tuple[Workload, ...] = ()
    """Whose creations were refused."""
    quotas: Mapping[str, QuotaUse] | None = None
    """Quota name → its use; None where quotas were not watched."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Kind of event → the newest one, as a sentence."""


@dataclass(frozen=True, slots=True)
class ShadowRecord:
    """All that was found in a namespace."""

    since: str
    """From when on, RFC 3339."""
    until: str
    """When something was added last."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counter → number, see `CREATION_COUNTS` and `POD_COUNTS`."""
    workloads: tuple[Workload, ...] = ()
    """Whose creations were refused, those that tried last first."""
    unlisted: int = 0
    """Attempts of workloads that are not listed any more."""
    quotas: Mapping[str, QuotaUse] = field(default_factory=dict)
    """Quota name → its use."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Kind of event → the newest one, as a sentence."""
    writers: Mapping[str, int] = field(default_factory=dict)
    """Writer → number of what it added last."""

    def count(self, name: str) -> int:
        """Return a counter; 0 if nothing was counted."""
        return self.counts.get(name, 0)

    def has(self, writer: str, number: int) -> bool:
        """Return whether an addition of a writer is in it already."""
        return self.writers.get(writer, 0) >= number

    def with_findings(
        self, findings: Findings, *, writer: str, number: int, now: str
    ) -> ShadowRecord:
        """Return the record with findings added; the same if it has them already."""
        if self.has(writer, number):
            return self
        workloads, unlisted = _merged(self.workloads, findings.workloads)
        others = {name: last for name, last in self.writers.items() if name != writer}
        recent = list(others.items())[-(MOST_WRITERS - 1) :]
        return ShadowRecord(
            since=self.since,
            until=now,
            counts=_summed(self.counts, findings.counts),
            workloads=workloads,
            unlisted=self.unlisted + unlisted,
            quotas=self.quotas if findings.quotas is None else self._followed(findings.quotas),
            examples={
                **self.examples,
                **{kind: text[:_EXAMPLE_CHARACTERS] for kind, text in findings.examples.items()},
            },
            writers=dict([*recent, (writer, number)]),
        )

    def _followed(self, quotas: Mapping[str, QuotaUse]) -> dict[str, QuotaUse]:
        return {
            name: self.quotas[name].then(use) if name in self.quotas else use
            for name, use in sorted(quotas.items())
        }


def _summed(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    names = [name for name in (*CREATION_COUNTS, *POD_COUNTS) if name in left or name in right]
    return {str(name): max(0, left.get(name, 0) + right.get(name, 0)) for name in names}


def _merged(
    left: Iterable[Workload], right: Iterable[Workload]
) -> tuple[tuple[Workload, ...], int]:
    """Return the workloads of both, the latest first, and the attempts of those left out."""
    found: dict[tuple[str, Fate], Workload] = {}
    for one in (*left, *right):
        key = (one.name[:_NAME_CHARACTERS], one.fate)
        known = found.get(key)
        if known is None:
            found[key] = replace(one, name=key[0])
            continue
        found[key] = replace(
            known,
            attempts=known.attempts + one.attempts,
            first=min(known.first, one.first),
            last=max(known.last, one.last),
        )
    there = [one for one in found.values() if one.attempts > 0]  # a correction may take all back
    latest = sorted(there, key=lambda one: one.last, reverse=True)
    kept, dropped = latest[:MOST_WORKLOADS], latest[MOST_WORKLOADS:]
    return tuple(kept), sum(one.attempts for one in dropped)


def ledger_from_record(uses: Mapping[str, QuotaUse]) -> Ledger:
    """Return a ledger with what is assigned now, and nothing reserved; for judging only."""
    return Ledger(
        {
            name: Account(
                observed=use.observed,
                hard={key: span.hard for key, span in use.resources.items()},
                used={key: span.assigned for key, span in use.resources.items()},
            )
            for name, use in sorted(uses.items())
        },
        {},
    )


def native_refusal(pod: Pod, quotas: Iterable[ResourceQuota]) -> str:
    """Return the words with which the API server's own check refuses a new pod; else nothing.

    Args:
        pod: The pod as it would be stored.
        quotas: The quotas of its namespace, with the status that the check reads.
    """
    return evaluate(pod, tuple(quotas)).message


def classify(
    pod: Pod,
    quotas: Iterable[ResourceQuota],
    deferred: NamespaceQuotas,
    uses: Mapping[str, QuotaUse] | None,
    *,
    is_against_rules: bool = False,
) -> Fate:
    """Return what deferral would make of a creation that is refused now.

    Args:
        pod: The pod as it would be stored.
        quotas: The quotas of its namespace.
        deferred: What of them would be deferred.
        uses: What the pods with a node use; None if that is not known.
        is_against_rules: A rule that compares nothing with usage refuses it.
    """
    rest = [_left_to_native(quota, deferred.keys) for quota in quotas]
    if is_against_rules or native_refusal(pod, rest):
        return Fate.STILL_REFUSED
    try:
        applying = deferred.applying_to(pod)
        claim = claim_for_bind(
            pod, deferred, source=ReservationSource.BIND, observed_version=NEWEST, applying=applying
        )
    except QuotaScopeError:
        return Fate.UNJUDGED
    usage = deferred_part(charged_to(pod), deferred.keys)
    refused = Fate.STILL_REFUSED if pod.is_assigned else None
    is_too_large = any(over_hard(quota.name, usage, {}, quota.hard) for quota in applying)
    if is_too_large or uncountable_names(usage):
        return refused or Fate.NEVER_FITS
    if claim is None:
        return Fate.RUNS
    ledger = None if uses is None else ledger_from_record(uses)
    if ledger is None or check_observed(ledger, deferred.observed) is not None:
        return Fate.UNJUDGED
    _, verdict = admit(ledger, claim)
    return (refused or Fate.WAITS) if isinstance(verdict, Denied) else Fate.RUNS


def _left_to_native(quota: ResourceQuota, keys: Set[str]) -> ResourceQuota:
    """Return the quota as the API server's check would see it with the deferred keys hidden."""
    if is_excluded(quota):
        return quota
    return replace(
        quota,
        status_hard={key: amount for key, amount in quota.status_hard.items() if key not in keys},
        status_used={key: amount for key, amount in quota.status_used.items() if key not in keys},
    )
