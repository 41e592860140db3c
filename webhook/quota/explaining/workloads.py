"""Causes for which a workload lacks pods: suspended, refused at creation, or its pods wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import render
from webhook.quota.charging.denials import (
    InsufficientQuota,
    MustSpecify,
    QuotaExceeded,
    Refusal,
    UncoveredScopes,
)
from webhook.quota.charging.evaluation import evaluate
from webhook.quota.explaining.facts import NamespaceFacts
from webhook.quota.explaining.quota_causes import unblocking
from webhook.quota.explaining.values import (
    Action,
    CauseKind,
    Explanation,
    PendingCause,
    Shortage,
    Unblock,
    sentence,
)
from webhook.quota.objects.model import Pod, ResourceQuota

_WORDS: Mapping[str, CauseKind] = {
    "failed calling webhook": CauseKind.WEBHOOK_DOWN,
    "must specify": CauseKind.MUST_SPECIFY,
    "insufficient quota to": CauseKind.PRIORITY_CLASS,
    "exceeded quota": CauseKind.QUOTA,
}
"""Words of a refused creation → its kind."""
_RULES: Final = frozenset({CauseKind.MUST_SPECIFY, CauseKind.PRIORITY_CLASS})


@dataclass(frozen=True, slots=True)
class RefusedCreation:
    """The last creation of a pod that the API server refused."""

    message: str
    at: str = ""
    by: str = ""
    """Kind and name of the object whose controller tried it."""


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """A workload and its pods."""

    kind: str
    namespace: str
    name: str
    wanted: int | None
    """How many pods it asks for; None where the kind does not say."""
    existing: int = 0
    """How many of its pods have not ended."""
    knows_pods: bool = True
    """Whether all its pods could be read."""
    suspended: str = ""
    """Kind and name of what is suspended: itself, or a Job of it."""
    is_done: bool = False
    refusal: RefusedCreation | None = None
    template: Pod | None = None
    """A pod as it would be created; None where the template cannot be read."""
    quotas: tuple[ResourceQuota, ...] = ()
    """The quotas as the API server's own check sees them."""


def explain_workload(
    subject: WorkloadFacts,
    there: NamespaceFacts,
    first: Explanation | None,
    *,
    waiting: int,
    starting: int,
) -> Explanation:
    """Return why a workload has not all its pods running.

    Args:
        subject: The workload.
        there: Its namespace.
        first: The explanation of the first of its pods that do not run; None if all do.
        waiting: How many do not run, and something keeps them from it.
        starting: How many have a node and do not run yet.
    """
    causes = [*_suspended(subject)]
    if first is not None:
        causes += first.causes
    has_fewer = subject.wanted is not None and subject.existing < subject.wanted
    lacking = has_fewer and subject.knows_pods
    refused = [*_refused(subject)] if lacking and not subject.suspended else []
    causes += refused
    if not causes and subject.existing and not lacking and first is None:
        text = f"all {subject.existing} pods of it run" if subject.existing > 1 else "its pod runs"
        causes.append(PendingCause(CauseKind.ALREADY_RUNNING, text))
    actions = [
        *_actions(causes, there, () if first is None else first.unblock),
        *(one for cause in refused for one in unblocking(cause, there, None)),
    ]
    key = f"{subject.kind} {subject.namespace}/{subject.name}"
    text = sentence(
        f"{key}{_count(subject, first, waiting, starting)}",
        causes,
        _otherwise(subject, first, lacking),
    )
    explained = Explanation("", "", "", "") if first is None else first
    return replace(
        explained,
        kind=subject.kind,
        namespace=subject.namespace,
        name=subject.name,
        pod="" if first is None else first.name,
        text=text,
        as_of=there.now,
        causes=tuple(causes),
        unblock=tuple(dict.fromkeys(actions)),
        unknown=tuple(dict.fromkeys((*there.unknown, *explained.unknown))),
        notes=(*explained.notes, *_notes(subject, refused)),
    )


def _suspended(subject: WorkloadFacts) -> Iterator[PendingCause]:
    if subject.suspended:
        text = f"{subject.suspended} is suspended, so no pod of it is created"
        yield PendingCause(CauseKind.JOB_SUSPENDED, text)


def _actions(
    causes: Sequence[PendingCause], there: NamespaceFacts, of_pod: Sequence[Unblock]
) -> Iterator[Unblock]:
    if any(one.kind is CauseKind.JOB_SUSPENDED for one in causes):
        yield Unblock(Action.RESUME_JOB, "set spec.suspend to false")
    yield from of_pod
    if not causes and not of_pod and there.now is not None:
        yield Unblock(Action.WAIT, "wait: nothing is seen that has to change")


def _count(subject: WorkloadFacts, first: Explanation | None, waiting: int, starting: int) -> str:
    if first is None:
        return ""
    of_all = subject.wanted if subject.wanted is not None else subject.existing
    verb = "wait" if waiting else "start"
    count = waiting or starting
    pods = "pod" if of_all == 1 else "pods"
    return f": {count} of {of_all} {pods} {verb}{'s' * (count == 1)}, first {first.name}"


def _otherwise(subject: WorkloadFacts, first: Explanation | None, lacking: bool) -> str:
    if first is not None:
        return first.text.partition(": ")[2]
    if subject.is_done:
        return "it has ended"
    if not subject.knows_pods:
        return "its pods are not known"
    if subject.wanted == 0:
        return "no Job of it is active" if subject.kind == "CronJob" else "it asks for no pods"
    if lacking:
        return f"{subject.existing} of {subject.wanted} pods exist; no refusal of others is seen"
    return "it has no pods now" if not subject.existing else "nothing keeps it"


def _notes(subject: WorkloadFacts, refused: Sequence[PendingCause]) -> Iterator[str]:
    if subject.refusal is not None and not refused:
        when = f" at {subject.refusal.at}" if subject.refusal.at else ""
        yield f"the last creation of a pod was refused{when}: {subject.refusal.message}"


def _refused(subject: WorkloadFacts) -> Iterator[PendingCause]:
    """Yield why no further pod is created.

    What the API server's own check would say now is worked out; of other refusals, the words of
    the last one. What a rule refuses comes first: room for the pod does not change it.
    """
    causes = [_of_denial(denial) for denial in _denials(subject)]
    last = _last_refusal(subject)
    if last is not None and last.kind not in {one.kind for one in causes}:
        causes.append(last)
    yield from sorted(causes, key=lambda one: one.kind not in _RULES)


def _last_refusal(subject: WorkloadFacts) -> PendingCause | None:
    refusal = subject.refusal
    if refusal is None:
        return None
    kind = next((kind for words, kind in _WORDS.items() if words in refusal.message), None)
    if kind is CauseKind.QUOTA and subject.template is not None:
        return None  # the numbers are worked out, or there is room by now
    by = f"{refusal.by}: " if refusal.by else ""
    when = f" at {refusal.at}" if refusal.at else ""
    text = f"{by}the last creation of a pod was refused{when}: {refusal.message}"
    return PendingCause(kind or CauseKind.NOT_OURS, text)


def _denials(subject: WorkloadFacts) -> Iterator[Refusal]:
    if subject.template is None:
        return
    for quota in subject.quotas:
        denial = evaluate(subject.template, [quota]).denial
        if denial is not None:
            yield denial


def _of_denial(denial: Refusal) -> PendingCause:
    text = f"the API server refuses to create a pod: {denial.message}"
    match denial:
        case QuotaExceeded():
            shortages = tuple(
                Shortage(key, amount, denial.used[key], ZERO, denial.limited[key])
                for key, amount in sorted(denial.requested.items())
            )
            missing = render({one.resource: one.missing for one in shortages})
            return PendingCause(
                CauseKind.QUOTA, f"{text}, missing: {missing}", denial.quota, shortages
            )
        case MustSpecify():
            return PendingCause(CauseKind.MUST_SPECIFY, text, denial.quota)
        case InsufficientQuota() | UncoveredScopes():
            return PendingCause(CauseKind.PRIORITY_CLASS, text)
        case _:
            return PendingCause(CauseKind.LEDGER_NOT_READY, text)
