"""One namespace in shadow mode as the controller keeps it: what its pods use, and what was found.

Changes of pods come in the order in which they were stored, so a bind is judged beside exactly what
was assigned before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.controllers.counting import NamespaceCount
from webhook.quota.deferral import (
    NamespaceQuotas,
    QuotaScopeError,
    claim_of_assignment,
    claim_of_update,
)
from webhook.quota.ledger import NEWEST, Account, Claim, Door, Ledger, Refused, admit
from webhook.quota.objects import Pod, ResourceQuota
from webhook.quota.pods import is_terminal
from webhook.quota.quantity import ZERO
from webhook.quota.resources import ResourceList
from webhook.quota.shadow import BOUND, CREATED, GROWN, OVER, Findings, QuotaUse, UseSpan


@dataclass(slots=True, eq=False)
class ShadowPlace:
    """A namespace that is watched. Not safe to use from several threads.

    Attributes:
        count: What its pods use.
        charged: Quota name → what the API server charges in it.
        counts: What was found since it was handed over last.
        examples: Likewise.
        uses: What the quotas were used since then.
        at: Up to when `uses` goes, in milliseconds of the monotonic clock.
        is_changed: Something is to be told soon.
    """

    count: NamespaceCount = field(default_factory=NamespaceCount)
    charged: dict[str, ResourceList] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    uses: dict[str, QuotaUse] = field(default_factory=dict)
    at: int = 0
    is_changed: bool = True

    def set_quotas(self, quotas: NamespaceQuotas, every: tuple[ResourceQuota, ...]) -> None:
        """Take over the quotas, and what is charged in them."""
        self.count.set_quotas(quotas)
        self.charged = {quota.name: quota.status_used for quota in every}

    def lasts(self, until: int, now: str) -> None:
        """Let what was so last go on until a moment, and begin with what is so now.

        Args:
            until: The moment, in milliseconds of the monotonic clock.
            now: The time of day.
        """
        gone, self.at = max(0, until - self.at), until
        counted = self.count.count(0).quotas
        uses: dict[str, QuotaUse] = {}
        for name, quota in counted.items():
            charged = self.charged.get(name, {})
            present = QuotaUse(
                quota.observed,
                now,
                0,
                {
                    key: UseSpan.of(hard, charged.get(key, ZERO), quota.used.get(key, ZERO))
                    for key, hard in quota.hard.items()
                },
            )
            former = self.uses.get(name)
            uses[name] = present if former is None else _lasting(former, gone).then(present)
        self.uses = uses

    def put(self, pod: Pod, *, tallies: bool) -> tuple[str, ...]:
        """Count a pod that is new or has changed; return what happened, for metrics."""
        before = self.count.pod(pod.uid)
        happened = self._judged(before, pod) if tallies and not is_terminal(pod) else ()
        self.count.put(pod)
        self.is_changed = True
        return happened

    def remove(self, uid: str) -> None:
        """Stop counting a pod that was deleted."""
        self.count.remove(uid)
        self.count.forget_gone(())
        self.is_changed = True

    def take(self) -> Findings:
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

    def _judged(self, before: Pod | None, pod: Pod) -> tuple[str, ...]:
        """Judge a change beside what was assigned before it."""
        quotas = self.count.quotas
        found: list[str] = []
        try:
            if before is None and not pod.is_assigned:
                found = self._judge(CREATED, pod, _assigning(pod, quotas, Door.CREATE))
            elif before is None:
                found = [CREATED, *self._judge(BOUND, pod, _assigning(pod, quotas, Door.CREATE))]
            elif pod.is_assigned and not before.is_assigned:
                found = self._judge(BOUND, pod, _assigning(pod, quotas, Door.BIND))
            elif pod.is_assigned and not is_terminal(before):
                claim = claim_of_update(before, pod, quotas, door=Door.RESIZE)
                found = [] if claim is None else self._judge(GROWN, pod, claim)
        except QuotaScopeError:
            found = [CREATED] if before is None else []
        self.counts.update(found)
        return tuple(found)

    def _judge(self, event: str, pod: Pod, claim: Claim | None) -> list[str]:
        if claim is None:
            return [event]
        _, verdict = admit(self._ledger(), claim)
        if not isinstance(verdict, Refused):
            return [event]
        self.examples[OVER[event]] = f"{pod.name}: {verdict.refusal.message}"
        return [event, OVER[event]]

    def _ledger(self) -> Ledger:
        accounts: Mapping[str, Account] = {
            name: Account(observed=quota.observed, hard=quota.hard, used=quota.used)
            for name, quota in sorted(self.count.count(0).quotas.items())
        }
        return Ledger(accounts, {})


def _assigning(pod: Pod, quotas: NamespaceQuotas, door: Door) -> Claim | None:
    return claim_of_assignment(pod, quotas, door=door, seen=NEWEST)


def _lasting(use: QuotaUse, milliseconds: int) -> QuotaUse:
    return QuotaUse(
        use.observed,
        use.since,
        use.milliseconds + milliseconds,
        {key: span.lasting(milliseconds) for key, span in use.resources.items()},
    )
