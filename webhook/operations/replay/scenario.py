"""The pods of a history as arrivals of a simulation, on the nodes and quotas of a snapshot.

A pod runs as long as it did. One of which the log does not show that runs as long as the median of
its workload; without one until the end, as does what still ran when the log ended. A pod that was
deleted while it waited is deleted then, unless it has a node by that time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import Final

from webhook.config import Configuration
from webhook.jsonfields.encoding import encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NODES, RESOURCE_QUOTAS, Object
from webhook.kube.metadata import object_namespace
from webhook.operations.elastic.reading import priority_of
from webhook.operations.explain.session import Session
from webhook.operations.reading import parted, read_quota
from webhook.operations.replay.history import History, RecordedPod
from webhook.operations.snapshots.redaction import redacted
from webhook.policy import compile_policy, queue_policy
from webhook.quota.objects.defaults import default_pod
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.simulation.values import (
    JOB_BACK_OFF,
    REPLICA_SET_BACK_OFF,
    Arrival,
    BackOff,
    PodTemplate,
    Scenario,
)
from webhook.state.well_known import SCHEDULING_GATE

_SET_BY_CLUSTER: Final = frozenset({"nodeName", "schedulingGates", "volumes"})
"""Nodes and gates are what is simulated; of volumes nothing is known."""


class ReplayError(ValueError):
    """A history that cannot be replayed."""


@dataclass(slots=True)
class _Templates:
    """Pods that agree in all that matters share a template."""

    session: Session
    known: dict[bytes, PodTemplate] = field(default_factory=dict)

    def of(self, record: RecordedPod) -> PodTemplate:
        raw = self._plain(record.pod)
        back_off = _back_off(record.pod)
        key = encode_json([raw, None if back_off is None else back_off.first])
        template = self.known.get(key)
        if template is None:
            template = self.known[key] = PodTemplate(raw, Pod.from_object(raw), back_off)
        return template

    def _plain(self, pod: Object) -> Object:
        kept = redacted({**pod, "kind": "Pod"})
        spec = kept.get("spec")
        fields = spec if isinstance(spec, Mapping) else {}
        spec = {name: value for name, value in fields.items() if name not in _SET_BY_CLUSTER}
        if spec.get("priority") is None and spec.get("priorityClassName"):
            spec["priority"] = priority_of(self.session, pod).value
        meta = FieldReader(pod).child("metadata")
        metadata = {
            "name": "pod",
            "namespace": meta.text("namespace"),
            "labels": dict(meta.string_map("labels")),
        }
        return default_pod({"metadata": metadata, "spec": spec})


def replay_scenario(session: Session, history: History, configuration: Configuration) -> Scenario:
    """Return what is to be simulated; times begin with the log.

    Raises:
        ApiError: The snapshot does not hold the nodes or the quotas.
        InvalidFieldError: A pod or a quota cannot be read.
        ReplayError: There are no nodes.
    """
    nodes = session.api.list(NODES).items
    if not nodes:
        raise ReplayError("the snapshot has no nodes")
    policy = compile_policy(configuration)
    arrivals = sorted(_arrivals(session, history), key=lambda one: (one.at, bool(one.group)))
    return Scenario(
        nodes=nodes,
        quotas=_quotas(session, {one.template.pod.namespace for one in arrivals}),
        arrivals=tuple(arrivals),
        gate=SCHEDULING_GATE,
        until=history.last - history.first,
        deferred_keys=policy.deferred_keys,
        limited=policy.limited_resources,
        policy=queue_policy(configuration, policy),
        max_reservations=configuration.limits.reservations_per_namespace,
        gate_release=1000 * configuration.timeouts.gate_release_seconds,
    )


def _quotas(session: Session, namespaces: set[str]) -> tuple[ResourceQuota, ...]:
    raws = session.api.list(RESOURCE_QUOTAS).items
    quotas, odd = parted(map(read_quota, raws), ResourceQuota)
    session.unknown.extend(odd)
    # what they have used is counted from the pods
    return tuple([replace(one, status_used={}) for one in quotas if one.namespace in namespaces])


def _arrivals(session: Session, history: History) -> Iterator[Arrival]:
    templates = _Templates(session)
    usual = _usual_durations(history)
    names: dict[tuple[str, str], int] = defaultdict(int)
    for record in history.pods:
        try:
            template = templates.of(record)
        except InvalidFieldError as err:
            raise InvalidFieldError(err.field, f"{err.detail} (pod {record.name})") from err
        namespace = template.pod.namespace
        number = names[namespace, record.name]
        names[namespace, record.name] += 1
        yield Arrival(
            record.arrived - history.first,
            f"{record.name}.{number}" if number else record.name,
            template,
            _duration(record, history, usual),
            "" if record.was_there else f"{namespace}/{record.workload}",
            _patience(record),
        )


def _usual_durations(history: History) -> Mapping[tuple[str, str], int]:
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for one in history.pods:
        if one.bound is not None and one.ended is not None and not one.was_there:
            found[_series(one)].append(max(0, one.ended - one.bound))
    return {series: median_low(durations) for series, durations in found.items()}


def _series(record: RecordedPod) -> tuple[str, str]:
    return object_namespace(record.pod), record.workload


def _duration(record: RecordedPod, history: History, usual: Mapping[tuple[str, str], int]) -> int:
    beyond = history.last - history.first + 1
    if record.bound is None:
        return usual.get(_series(record), beyond)
    return beyond if record.ended is None else max(0, record.ended - record.bound)


def _patience(record: RecordedPod) -> int | None:
    """Return after how long a pod was deleted that had no node by then."""
    if record.bound is not None or record.ended is None:
        return None
    return record.ended - record.arrived


def _back_off(pod: Object) -> BackOff | None:
    """Return after how long the controller of a pod creates it again."""
    for one in FieldReader(pod).child("metadata").children("ownerReferences"):
        if one.boolean("controller"):
            return JOB_BACK_OFF if one.text("kind") == "Job" else REPLICA_SET_BACK_OFF
    return None
