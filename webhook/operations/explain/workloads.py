"""Workloads as they are stored: the pods that they own, and the creations that were refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import EVENTS, JOBS, LIMIT_RANGES, PODS, Kind, Object, kind_of
from webhook.operations.explain.namespaces import Inside
from webhook.operations.explain.session import Session
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.charging.workload_pods import pods_of
from webhook.quota.explaining.facts import PodFacts
from webhook.quota.explaining.workloads import RefusedCreation, WorkloadFacts
from webhook.quota.objects.defaults import default_pod
from webhook.quota.objects.model import Pod

_REPLICA_SETS: Final = kind_of("apps/v1", "ReplicaSet", namespaced=True)
_FAILED: Final = "FailedCreate"
_BETWEEN: Final[Mapping[str, Kind]] = {"Deployment": _REPLICA_SETS, "CronJob": JOBS}
"""Kind → the kind of the objects by which it makes its pods."""


@dataclass(frozen=True, slots=True)
class OwnedPods:
    """A workload, and its pods in the order of their creation."""

    facts: WorkloadFacts
    pods: tuple[PodFacts, ...]


@dataclass(frozen=True, slots=True)
class _Owner:
    """An object whose controller creates pods."""

    kind: str
    raw: Object
    root: FieldReader

    @classmethod
    def read(cls, kind: str, raw: Object) -> _Owner:
        return cls(kind, raw, FieldReader(raw))

    @property
    def uid(self) -> str:
        return self.root.child("metadata").text("uid")

    @property
    def label(self) -> str:
        return f"{self.kind} {self.root.child('metadata').text('name')}"


def read_workload(session: Session, kind: Kind, raw: Object, inside: Inside) -> OwnedPods:
    """Read a workload.

    Args:
        session: Where what belongs to it is read.
        kind: Its kind.
        raw: The object.
        inside: Its namespace.

    Raises:
        ApiError: The cluster does not answer.
        InvalidFieldError: It cannot be read.
    """
    own = _Owner.read(kind.kind, raw)
    listed = _owners(session, own, inside.facts.name)
    owners = listed or ()
    lacks_pods = session.may_lack(PODS)
    if lacks_pods:
        session.unknown.append("pods: the snapshot has none")
    uids = {one.uid for one in owners}
    pods = _owned(inside, uids)
    living = [one for one in pods if not (is_terminal(one.pod) or one.pod.is_deleting)]
    namespace, name = inside.facts.name, own.root.child("metadata").text("name")
    facts = WorkloadFacts(
        kind.kind,
        namespace,
        name,
        _wanted(own, owners),
        existing=len(living),
        knows_pods=inside.knows_pods and listed is not None and not lacks_pods,
        suspended=_suspended(own, owners),
        is_done=kind == JOBS and _has_ended(own.root),
        refusal=_refusal(session, owners, namespace),
        template=_template(session, raw, living, namespace),
        quotas=inside.quotas,
    )
    if facts.wanted == 0 or facts.is_done:
        facts = replace(facts, refusal=None)
    return OwnedPods(facts, tuple(pods))


def _owners(session: Session, own: _Owner, namespace: str) -> tuple[_Owner, ...] | None:
    """Return the objects that create the pods: the workload, or what it makes for that.

    None where these are not known.
    """
    between = _BETWEEN.get(own.kind)
    if between is None:
        return (own,)
    if session.may_lack(between):
        session.unknown.append(f"{between.plural}: the snapshot has none")
        return None
    what = f"{between.plural} of namespace {namespace}"
    raws = session.readable(between, what, namespace=namespace)
    if raws is None:
        return None
    return tuple(_Owner.read(between.kind, raw) for raw in raws if own.uid in _owner_uids(raw))


def _owned(inside: Inside, uids: set[str]) -> list[PodFacts]:
    mine = {
        FieldReader(raw).child("metadata").text("uid")
        for raw in inside.pods
        if not uids.isdisjoint(_owner_uids(raw))
    }
    pods = [one for one in inside.facts.pods if one.pod.uid in mine]
    return sorted(pods, key=lambda one: (str(one.pod.created), one.pod.name))


def _owner_uids(raw: Object) -> set[str]:
    references = FieldReader(raw).child("metadata").children("ownerReferences")
    return {one.text("uid") for one in references}


def _wanted(own: _Owner, owners: Sequence[_Owner]) -> int | None:
    """Return how many pods a workload asks for now; None where it does not say."""
    spec, status = own.root.child("spec"), own.root.child("status")
    match own.kind:
        case "Deployment" if owners:  # a rollout asks for those of both its ReplicaSets
            return sum(_replicas(one.root.child("spec")) for one in owners)
        case "DaemonSet":
            return status.integer("desiredNumberScheduled")
        case "Job":
            return _running_at_once(own.root)
        case "CronJob":
            return sum(_running_at_once(one.root) for one in owners)
        case _:
            return _replicas(spec)


def _replicas(spec: FieldReader) -> int:
    replicas = spec.integer("replicas")
    return 1 if replicas is None else replicas


def _running_at_once(job: FieldReader) -> int:
    spec, status = job.child("spec"), job.child("status")
    if _has_ended(job):
        return 0
    parallelism = spec.integer("parallelism")
    running = 1 if parallelism is None else parallelism
    completions = spec.integer("completions")
    if completions is None:
        return running
    return max(0, min(running, completions - (status.integer("succeeded") or 0)))


def _has_ended(job: FieldReader) -> bool:
    return any(
        one.text("type") in {"Complete", "Failed"} and one.text("status") == "True"
        for one in job.child("status").children("conditions")
    )


def _suspended(own: _Owner, owners: Sequence[_Owner]) -> str:
    """Return what is suspended; a suspended CronJob lets the Jobs that it has made run on."""
    jobs = [one for one in owners if one.kind == "Job" and not _has_ended(one.root)]
    for one in jobs or [own]:
        if one.kind in {"Job", "CronJob"} and one.root.child("spec").boolean("suspend"):
            return one.label
    return ""


def _refusal(session: Session, owners: Sequence[_Owner], namespace: str) -> RefusedCreation | None:
    """Return the last refusal: of a condition, which stays, or else of an event."""
    for one in owners:
        for condition in one.root.child("status").children("conditions"):
            if condition.text("type") == "ReplicaFailure" and condition.text("status") == "True":
                return RefusedCreation(
                    condition.text("message"), condition.text("lastTransitionTime"), one.label
                )
    labels = {one.uid: one.label for one in owners}
    what = f"the events of namespace {namespace}"
    events = session.readable(EVENTS, what, namespace=namespace) or ()
    found = [*_refused_creations(events, labels)]
    return max(found, key=lambda one: one.at, default=None)


def _refused_creations(
    events: Iterable[Object], labels: Mapping[str, str]
) -> Iterator[RefusedCreation]:
    for raw in events:
        try:
            event = FieldReader(raw)
            uid = event.child("involvedObject").text("uid")
            if uid in labels and event.text("reason") == _FAILED:
                yield RefusedCreation(event.text("message"), event_time(event), labels[uid])
        except InvalidFieldError:
            continue  # another object's, or no event


def event_time(event: FieldReader) -> str:
    """Return the time of an event as it is written: those of schedulers have no `lastTimestamp`."""
    return (
        event.text("lastTimestamp")
        or event.child("series").text("lastObservedTime")
        or event.text("eventTime")
    )


def _template(
    session: Session, raw: Object, living: Sequence[PodFacts], namespace: str
) -> Pod | None:
    """Return a pod as the API server's check would see it.

    A LimitRange adds what a template does not say; a pod that exists has it already.
    """
    if living:
        return replace(living[-1].pod, node_name="", phase="Pending", scheduling_gates=())
    what = f"the LimitRanges of namespace {namespace}"
    ranges = session.readable(LIMIT_RANGES, what, namespace=namespace)
    found = pods_of(raw)
    if ranges or found is None:
        return None
    return Pod.from_object(default_pod(found.pod, field=found.field), field=found.field)
