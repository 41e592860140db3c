"""Causes for which one pod is pending, in the order in which they have to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from webhook.quota.amounts.resources import render
from webhook.quota.charging.deferral import QuotaScopeError, usage_by_quota
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.explaining.consumers import consumers
from webhook.quota.explaining.facts import Health, NamespaceFacts, PodFacts
from webhook.quota.explaining.node_causes import NodeAnswer, attempt_answer
from webhook.quota.explaining.queue_position import QueueState, queue_state
from webhook.quota.explaining.quota_causes import (
    ledger_causes,
    never_fits_causes,
    room_causes,
    rule_causes,
    unblocking,
    webhook_causes,
)
from webhook.quota.explaining.values import (
    Action,
    CauseKind,
    Consumer,
    ConsumerState,
    Explanation,
    PendingCause,
    Unblock,
    sentence,
)
from webhook.quota.queue.pod_conditions import UNTRIED_SECONDS
from webhook.quota.queue.queued_pods import other_gates_text


def explain_pod(
    subject: PodFacts,
    there: NamespaceFacts,
    nodes: NodeAnswer | None = None,
) -> Explanation:
    """Return why a pod is pending.

    Args:
        subject: The pod.
        there: Its namespace.
        nodes: The nodes as the scheduler would judge them; None where they are not known.
    """
    settled = _settled(subject, there)
    if settled is not None:
        return _explanation(subject, there, settled, _settled_actions(subject, there))
    state = None if there.criteria is None else queue_state(subject, there, there.criteria)
    ledger = [*ledger_causes(subject, there, state)]
    is_outage = there.controller.health is Health.DOWN
    causes = [*webhook_causes(there), *(ledger if is_outage else ()), *_other_gates(subject, there)]
    if state is not None:
        causes += [*rule_causes(state), *never_fits_causes(state), *room_causes(state)]
    causes += [*(() if is_outage else ledger), *_no_scheduler(subject, there)]
    actions = [*_actions(causes, there, state)]
    nodes = nodes or attempt_answer(subject.attempt)
    if nodes is not None:
        causes += nodes.causes
        actions += nodes.actions
    explained = _explanation(subject, there, causes, actions, nodes)
    return _with_evidence(explained, subject, there, state)


def _settled(subject: PodFacts, there: NamespaceFacts) -> tuple[PendingCause, ...] | None:
    """Return the only cause of a pod of which no quota decides any more."""
    pod = subject.pod
    if pod.is_deleting:
        return (PendingCause(CauseKind.TERMINATING, _terminating(subject)),)
    if is_terminal(pod):
        is_failed = pod.phase == "Failed"
        trouble = f": {subject.trouble}" if subject.trouble else ""
        again = "; a failed pod is not started again" if is_failed else ""
        kind = CauseKind.NOT_OURS if is_failed else CauseKind.ALREADY_RUNNING
        return (PendingCause(kind, f"the pod has ended ({pod.phase}){trouble}{again}"),)
    if not pod.is_assigned:
        return None
    where = f"the pod has node {pod.node_name}"
    if _is_node_gone(subject, there):
        return (PendingCause(CauseKind.NOT_OURS, f"{where}, which does not exist any more"),)
    if pod.phase == "Running" and (subject.is_ready or not subject.trouble):
        return (PendingCause(CauseKind.ALREADY_RUNNING, f"{where} and runs"),)
    trouble = f": {subject.trouble}" if subject.trouble else ""
    text = f"{where} and does not run there yet{trouble}{_charged(subject, there)}"
    return (PendingCause(CauseKind.NOT_OURS, text),)


def _charged(subject: PodFacts, there: NamespaceFacts) -> str:
    """Return whether a quota is charged for an assigned pod; nothing where that is not known."""
    if there.criteria is not None:
        try:
            if usage_by_quota(subject.pod, there.criteria.quotas):
                return "; its quota is charged"
        except QuotaScopeError:
            return ""
    return "" if there.unknown else "; no deferred quota is charged for it"


def is_starting(subject: PodFacts, there: NamespaceFacts) -> bool:
    """Return whether a pod has a node, and nothing is known that keeps it from running there."""
    return subject.pod.is_assigned and not subject.trouble and not _is_node_gone(subject, there)


def _is_node_gone(subject: PodFacts, there: NamespaceFacts) -> bool:
    names = there.node_names
    return names is not None and subject.pod.is_assigned and subject.pod.node_name not in names


def _terminating(subject: PodFacts) -> str:
    kept = f"; finalizers keep it: {', '.join(subject.finalizers)}" if subject.finalizers else ""
    return f"the pod is being deleted and gets no node{kept}"


def _settled_actions(subject: PodFacts, there: NamespaceFacts) -> Iterator[Unblock]:
    pod = subject.pod
    if pod.is_deleting and subject.finalizers:
        names = ", ".join(subject.finalizers)
        yield Unblock(Action.REMOVE_FINALIZER, f"let its controllers remove {names}")
    elif pod.is_deleting and pod.is_assigned:
        text = f"kubectl delete pod {pod.name} -n {pod.namespace} --grace-period=0 --force"
        yield Unblock(Action.DELETE_POD, f"if its node is gone: {text}")
    elif pod.is_deleting:
        yield Unblock(Action.WAIT, "wait until it is gone, and create it anew")
    elif pod.phase == "Failed" or _is_node_gone(subject, there):
        yield Unblock(Action.DELETE_POD, "delete it, and create it anew")
    elif pod.phase != "Running" and not is_terminal(pod):
        yield Unblock(Action.NOT_OURS, "look at its node and its images: kubectl describe pod")


def _other_gates(subject: PodFacts, there: NamespaceFacts) -> Iterator[PendingCause]:
    others = [name for name in subject.pod.scheduling_gates if name != there.gate]
    if others:
        yield PendingCause(CauseKind.OTHER_GATE, other_gates_text(others))


def _no_scheduler(subject: PodFacts, there: NamespaceFacts) -> Iterator[PendingCause]:
    since, now = subject.open_since, there.now
    if subject.pod.is_gated or subject.attempt or since is None or now is None:
        return
    seconds = (now - since).total_seconds()
    if seconds >= UNTRIED_SECONDS:
        yield PendingCause(
            CauseKind.SCHEDULER_ABSENT,
            f"no scheduler has tried it for {seconds:.0f} seconds; it waits for schedulerName"
            f" {subject.scheduler}",
        )


def _actions(
    causes: Iterable[PendingCause], there: NamespaceFacts, state: QueueState | None
) -> Iterator[Unblock]:
    for cause in causes:
        if cause.kind is CauseKind.OTHER_GATE:
            yield Unblock(Action.REMOVE_GATE, "let the controllers of these gates remove them")
        elif cause.kind is CauseKind.SCHEDULER_ABSENT:
            yield Unblock(Action.START_SCHEDULER, "start a scheduler of that name")
            yield Unblock(Action.CHANGE_SCHEDULER, "create the pod with another schedulerName")
        else:
            yield from unblocking(cause, there, state)


def _explanation(
    subject: PodFacts,
    there: NamespaceFacts,
    causes: Sequence[PendingCause],
    actions: Iterable[Unblock],
    nodes: NodeAnswer | None = None,
) -> Explanation:
    pod = subject.pod
    return Explanation(
        "Pod",
        pod.namespace,
        pod.name,
        sentence(f"Pod {pod.key}", causes),
        as_of=there.now,
        uid=pod.uid,
        causes=tuple(causes),
        nodes=None if nodes is None else nodes.summary,
        unblock=tuple(dict.fromkeys(actions)),
        unknown=(*there.unknown, *(() if nodes is None else nodes.unknown)),
    )


def _with_evidence(
    explained: Explanation, subject: PodFacts, there: NamespaceFacts, state: QueueState | None
) -> Explanation:
    """Add the pods that take of the quotas, and what there is to say without a cause."""
    actions, text = explained.unblock, explained.text
    if not explained.causes:
        actions = (Unblock(Action.WAIT, "nothing has to change"),)
        text = sentence(f"Pod {subject.pod.key}", (), _going_on(subject, there, state))
    takers = () if state is None else consumers(there, _wanted(explained.causes, state))
    return replace(
        explained,
        text=text,
        unblock=(*actions, *_lost(takers)),
        consumers=takers,
        notes=tuple(_notes(subject, there, state)),
    )


def _lost(takers: Iterable[Consumer]) -> Iterator[Unblock]:
    """Yield that pods may be deleted that hold quota on nodes that are gone."""
    for one in takers:
        if one.state is ConsumerState.NODE_GONE:
            text = f"delete pod {one.pod}, whose node is gone: {render(one.amounts)}"
            yield Unblock(Action.DELETE_POD, text)


def _going_on(subject: PodFacts, there: NamespaceFacts, state: QueueState | None) -> str:
    """Return what happens next to a pod that nothing keeps."""
    is_gated = there.gate in subject.pod.scheduling_gates
    seen = _as_far_as_seen(there)
    if is_gated and state is None:
        return "its namespace does not defer quotas; the controller removes the gate"
    if is_gated and state is not None and state.is_reserved:
        return "quota is reserved for it; its gate is removed in a moment"
    if is_gated:
        return f"it fits{seen}; the controller releases it at its next look"
    if subject.attempt:
        return f"nothing is seen that keeps it{seen}; {subject.scheduler} tries it again"
    return f"it waits for the first attempt of {subject.scheduler}{seen}"


def _as_far_as_seen(there: NamespaceFacts) -> str:
    """Return what may keep a pod all the same, as a snapshot does not hold it."""
    return f" (the snapshot holds no {' and no '.join(there.left_out)})" if there.left_out else ""


def _wanted(causes: Iterable[PendingCause], state: QueueState) -> Mapping[str, Set[str]]:
    """Return the resources of quotas for which the pod waits."""
    wanted: dict[str, set[str]] = {}
    for cause in causes:
        keys = {one.resource for one in cause.shortages}
        if cause.kind is CauseKind.BEHIND:
            keys = {key for one in state.holder_denials for key in one.requested}
        if cause.quota and keys:
            wanted.setdefault(cause.quota, set()).update(keys)
    return wanted


def _notes(subject: PodFacts, there: NamespaceFacts, state: QueueState | None) -> Iterator[str]:
    if subject.attempt:
        yield f"last attempt of {subject.scheduler}: {subject.attempt}"
    is_open = not subject.pod.is_gated and state is not None and bool(state.queued.quotas)
    if is_open and state is not None and not state.is_reserved and there.ledger is not None:
        yield "no quota is reserved for it: its next bind may find the quota used"
    if there.controller.health is Health.DOWN and there.ledger is not None:
        yield f"{there.controller.detail}; used is counted from the pods as they are now"
