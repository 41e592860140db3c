"""Explain one object of a cluster or of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.config import ReclaimMode
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    EVENTS,
    JOBS,
    PODS,
    ClusterApi,
    Kind,
    NotFoundError,
    Object,
    kind_of,
)
from webhook.operations.emergency_state import emergency_notes
from webhook.operations.explain.namespaces import Inside, read_namespace
from webhook.operations.explain.nodes import judged_nodes
from webhook.operations.explain.owners import with_owners
from webhook.operations.explain.session import ExplainOptions, Session
from webhook.operations.explain.workloads import OwnedPods, event_time, read_workload
from webhook.operations.names import CRON_JOBS
from webhook.quota.charging.denials import name_quota
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.explaining.facts import PodFacts, pod_facts
from webhook.quota.explaining.pods import explain_pod, is_starting
from webhook.quota.explaining.values import CauseKind, Explanation
from webhook.quota.explaining.workloads import explain_workload

KINDS: Final[Mapping[str, Kind]] = {
    "pod": PODS,
    "job": JOBS,
    "cronjob": CRON_JOBS,
    **{
        kind.lower(): kind_of("apps/v1", kind, namespaced=True)
        for kind in ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")
    },
}
"""Word of the command line → kind."""


@dataclass(frozen=True, slots=True)
class Target:
    """The object to explain."""

    kind: Kind
    namespace: str
    name: str


class NotThereError(Exception):
    """There is no such object; the text has what is left of it."""


def explain(api: ClusterApi, target: Target, options: ExplainOptions) -> Explanation:
    """Return why an object is pending.

    Raises:
        NotThereError: It does not exist.
        ApiError: The cluster does not answer, or the object may not be read.
        InvalidFieldError: The object cannot be read.
    """
    session = Session(api, options)
    try:
        raw = api.get(target.kind, target.name, namespace=target.namespace)
    except NotFoundError as err:
        raise NotThereError(_gone(session, target)) from err
    inside = with_owners(session, read_namespace(session, target.namespace))
    explain_it = _explained_pod if target.kind == PODS else _explained_workload
    explained = explain_it(session, target, inside, raw)
    emergency = emergency_notes(api) if inside.facts.is_deferred else ()
    return replace(explained, notes=(*emergency, *explained.notes))


def _explained_pod(session: Session, target: Target, inside: Inside, raw: Object) -> Explanation:
    subject = _subject(inside, raw)
    anew = tuple(_anew(session, target, subject))  # first: it notes what may not be read
    explained = _explained(session, inside, subject, raw)
    return replace(explained, notes=(*explained.notes, *anew))


def _explained_workload(
    session: Session, target: Target, inside: Inside, raw: Object
) -> Explanation:
    owned = read_workload(session, target.kind, raw, inside)
    open_pods = _not_running(owned)
    waiting = [one for one in open_pods if not is_starting(one, inside.facts)]
    raws = {FieldReader(one).child("metadata").text("uid"): one for one in inside.pods}
    first = None
    if open_pods:
        subject = (waiting or open_pods)[0]
        first = _explained(session, inside, subject, raws[subject.pod.uid])
    facts = replace(inside.facts, unknown=tuple(session.unknown))
    starting = len(open_pods) - len(waiting)
    return explain_workload(owned.facts, facts, first, waiting=len(waiting), starting=starting)


def _subject(inside: Inside, raw: Object) -> PodFacts:
    """Return the pod as it was listed; as it was read where pods may not be listed."""
    subject = pod_facts(raw)
    listed = (one for one in inside.facts.pods if one.pod.uid == subject.pod.uid)
    return next(listed, subject)


def _explained(session: Session, inside: Inside, subject: PodFacts, raw: Object) -> Explanation:
    pod = subject.pod
    is_open = not (pod.is_assigned or pod.is_deleting or is_terminal(pod))
    nodes = judged_nodes(session, inside, raw) if is_open else None
    there = replace(inside.facts, unknown=tuple(session.unknown))
    explained = explain_pod(subject, there, nodes)
    return replace(explained, notes=(*explained.notes, *_reclaimed(session, explained)))


def _reclaimed(session: Session, explained: Explanation) -> Iterator[str]:
    """Yield how a plan that is not carried out is shown, of a pod that a pool has no room for."""
    elastic = session.options.configuration.elastic
    lacks_pool = any(
        one.kind is CauseKind.CLUSTER_QUOTA and name_quota(one.quota).is_pool
        for one in explained.causes
    )
    if lacks_pool and elastic.enabled and elastic.reclaim.mode is ReclaimMode.PLAN:
        yield (
            "nothing is evicted for it, as elastic.reclaim.mode is Plan; which pods would be, if"
            f" any: deferred-quota elastic plan {explained.name} -n {explained.namespace}"
        )


def _not_running(owned: OwnedPods) -> Sequence[PodFacts]:
    """Return the pods of a workload that do not run: those without a node first, as they queue."""
    open_pods = [
        one for one in owned.pods if not (is_terminal(one.pod) or one.pod.is_deleting or _runs(one))
    ]
    return sorted(open_pods, key=_queue_order)


def _runs(one: PodFacts) -> bool:
    return one.pod.phase == "Running" and (one.is_ready or not one.trouble)


def _queue_order(one: PodFacts) -> tuple[bool, int, str, int, str]:
    pod = one.pod
    return pod.is_assigned, -(pod.priority or 0), str(pod.created), one.arrival, pod.name


def _gone(session: Session, target: Target) -> str:
    """Return that there is no such object, and its last event."""
    where = f"{target.kind.kind} {target.namespace}/{target.name}"
    if session.may_lack(target.kind):
        return f"{where}: the snapshot has no {target.kind.plural}: take them into it"
    last = max(_events(session, target), key=event_time, default=None)
    if last is None:
        return f"{where} does not exist"
    words = ": ".join(filter(None, (last.text("reason"), last.text("message"))))
    return f"{where} does not exist any more; last event, of {event_time(last)}: {words}"


def _anew(session: Session, target: Target, subject: PodFacts) -> Iterator[str]:
    """Yield that a former pod of the name is gone."""
    uids = {event.child("involvedObject").text("uid") for event in _events(session, target)}
    if uids - {subject.pod.uid, ""}:
        created = subject.pod.created
        since = "" if created is None else f", created at {created:%Y-%m-%dT%H:%M:%SZ}"
        yield (
            f"another pod of this name is gone; this answer is about that of uid"
            f" {subject.pod.uid}{since}"
        )


def _events(session: Session, target: Target) -> Iterator[FieldReader]:
    what = f"the events of namespace {target.namespace}"
    for raw in session.readable(EVENTS, what, namespace=target.namespace) or ():
        try:
            event = FieldReader(raw)
            about = event.child("involvedObject")
            if (about.text("kind"), about.text("name")) == (target.kind.kind, target.name):
                yield event
        except InvalidFieldError:
            continue
