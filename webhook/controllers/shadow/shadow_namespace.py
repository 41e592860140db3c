"""One namespace in shadow mode as the controller keeps it: what its pods use, and what was found.

Changes of pods come in the order in which they were stored, so a bind is judged beside exactly what
was assigned before it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.deferral import (
    NamespaceQuotas,
    QuotaScopeError,
    claim_for_bind,
    claim_for_update,
)
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.ledger.ledger import (
    NEWEST,
    Claim,
    Denied,
    ReservationSource,
    admit,
)
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.shadow.record import (
    BOUND,
    CREATED,
    GROWN,
    OVER,
    Findings,
    QuotaUse,
    UsageSpan,
    ledger_from_record,
)

_Taken: TypeAlias = tuple[frozenset[str], ResourceList]
_NOTHING: Final[_Taken] = (frozenset(), {})


@dataclass(slots=True, eq=False)
class ShadowNamespace:
    """A namespace that is watched. Not safe to use from several threads."""

    usage: NamespaceUsage = field(default_factory=NamespaceUsage)
    """What its pods use."""
    native_used: dict[str, ResourceList] = field(default_factory=dict)
    """Quota name → what the API server charges in it."""
    counts: Counter[str] = field(default_factory=Counter)
    """What was found since it was handed over last."""
    examples: dict[str, str] = field(default_factory=dict)
    """Likewise."""
    uses: dict[str, QuotaUse] = field(default_factory=dict)
    """What the quotas were used since then."""
    advanced_to: dict[str, int] = field(default_factory=dict)
    """Quota name → up to when its use goes, in milliseconds of the monotonic clock."""
    changed: set[str] = field(default_factory=set)
    """Quotas of which pods take more or less than `uses` has last."""
    has_other_quotas: bool = False
    """Its quotas have changed since its pods were counted for them."""
    is_changed: bool = True
    """There is something new to write."""

    def set_quotas(self, quotas: NamespaceQuotas, all_quotas: tuple[ResourceQuota, ...]) -> None:
        """Take over the quotas, and what is charged in them."""
        self.usage.set_quotas(quotas)
        self.native_used = {quota.name: quota.status_used for quota in all_quotas}

    def advance(self, until: int, now: str) -> None:
        """Let what was so last go on until a moment, and begin with what is so now.

        Args:
            until: The moment, in milliseconds of the monotonic clock.
            now: The time of day.
        """
        names = [quota.name for quota in self.usage.quotas.quotas]
        for gone in self.uses.keys() - names:
            del self.uses[gone], self.advanced_to[gone]
        self.changed.update(names)
        self.advance_changed(until, now)

    def advance_changed(self, until: int, now: str) -> None:
        """Do the same for the quotas that pods have changed; all others go on as they are."""
        if not self.changed:
            return
        for name, quota in self.usage.totals(0).quotas.items():
            if name in self.changed:
                charged = self.native_used.get(name, {})
                spans = {
                    key: UsageSpan.of(hard, charged.get(key, ZERO), quota.used.get(key, ZERO))
                    for key, hard in quota.hard.items()
                }
                self._follow(name, QuotaUse(quota.observed, now, 0, spans), until)
        self.changed.clear()

    def charge(self, quota: ResourceQuota, until: int, now: str) -> None:
        """Take over what is charged in one quota, of which nothing else has changed."""
        self.native_used[quota.name] = charged = quota.status_used
        last = self.uses.get(quota.name)
        if last is not None:
            spans = {
                key: UsageSpan.of(span.hard, charged.get(key, ZERO), span.assigned)
                for key, span in last.resources.items()
            }
            self._follow(quota.name, QuotaUse(last.observed, now, 0, spans), until)

    def _follow(self, name: str, present: QuotaUse, until: int) -> None:
        former = self.uses.get(name)
        if former is not None:
            gone = max(0, until - self.advanced_to[name])
            present = _lasting(former, gone).then(present)
        self.uses[name], self.advanced_to[name] = present, until

    def put(self, pod: Pod, *, counts_events: bool) -> tuple[str, ...]:
        """Count a pod that is new or has changed; return what happened, for metrics."""
        before = self.usage.pod(pod.uid)
        happened = self._evaluate(before, pod) if counts_events and not is_terminal(pod) else ()
        taken = self._taken(pod.uid)
        self.usage.put(pod)
        self._note_taken(taken, self._taken(pod.uid))
        return happened

    def remove(self, uid: str) -> None:
        """Stop counting a pod that was deleted."""
        self._note_taken(self._taken(uid), _NOTHING)
        self.usage.remove(uid)
        self.usage.forget_deleted(())

    def _taken(self, uid: str) -> _Taken:
        """Return what a pod takes of which quotas."""
        pod = self.usage.pod(uid)
        seen = self.usage.observed(uid) if pod is not None and pod.is_assigned else None
        return _NOTHING if seen is None or not seen.is_live else (seen.quotas, seen.usage)

    def _note_taken(self, before: _Taken, after: _Taken) -> None:
        self.is_changed = True
        if before != after:
            self.changed |= before[0] | after[0]

    def take_findings(self) -> Findings:
        """Hand over what was found, and begin anew."""
        found = Findings(
            counts=dict(self.counts), quotas=dict(self.uses), examples=dict(self.examples)
        )
        self.clear()
        return found

    def clear(self) -> None:
        """Forget what was found, but not how things stand."""
        self.counts.clear()
        self.examples.clear()
        self.uses = {name: use.now() for name, use in self.uses.items()}
        self.is_changed = False

    # -- judging ---------------------------------------------------------------------------

    def _evaluate(self, before: Pod | None, pod: Pod) -> tuple[str, ...]:
        """Judge a change beside what was assigned before it."""
        quotas = self.usage.quotas
        found: list[str] = []
        try:
            if before is None and not pod.is_assigned:
                found = self._classify(
                    CREATED, pod, _assigning(pod, quotas, ReservationSource.CREATE)
                )
            elif before is None:
                found = [
                    CREATED,
                    *self._classify(BOUND, pod, _assigning(pod, quotas, ReservationSource.CREATE)),
                ]
            elif pod.is_assigned and not before.is_assigned:
                found = self._classify(BOUND, pod, _assigning(pod, quotas, ReservationSource.BIND))
            elif pod.is_assigned and not is_terminal(before):
                claim = claim_for_update(before, pod, quotas, source=ReservationSource.RESIZE)
                found = [] if claim is None else self._classify(GROWN, pod, claim)
        except QuotaScopeError:
            found = [CREATED] if before is None else []
        self.counts.update(found)
        return tuple(found)

    def _classify(self, event: str, pod: Pod, claim: Claim | None) -> list[str]:
        if claim is None:
            return [event]
        # `uses` is up to date: it is advanced after each change
        ledger = ledger_from_record({name: self.uses[name] for name in claim.quotas})
        _, verdict = admit(ledger, claim)
        if not isinstance(verdict, Denied):
            return [event]
        self.examples[OVER[event]] = f"{pod.name}: {verdict.denial.message}"
        return [event, OVER[event]]


def _assigning(pod: Pod, quotas: NamespaceQuotas, source: ReservationSource) -> Claim | None:
    return claim_for_bind(pod, quotas, source=source, observed_version=NEWEST)


def _lasting(use: QuotaUse, milliseconds: int) -> QuotaUse:
    return QuotaUse(
        use.observed,
        use.since,
        use.milliseconds + milliseconds,
        {key: span.lasting(milliseconds) for key, span in use.resources.items()},
    )
