"""Scenarios from YAML: nodes, quotas, workloads and traces, as `docs/simulate.md` describes them.

A field that is not known, written twice or of the wrong type is an error that names file, line,
column and path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from webhook.config import API_VERSION, Configuration, ConfigurationError, load_configuration
from webhook.config.field_readers import (
    InvalidSettingError,
    Reader,
    choice,
    exactly,
    list_of,
    name,
    section,
    whole,
)
from webhook.jsonfields.encoding import encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.files.documents import SnapshotError, read_documents
from webhook.kube.files.positions import Positions
from webhook.operations.simulate import templates
from webhook.operations.simulate.fields import distribution, duration, plain_object
from webhook.operations.simulate.traces import Trace, TraceError, TraceFormat, read_trace
from webhook.policy import compile_policy, queue_policy
from webhook.quota.nodes.model import PlainObject
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.simulation.sampling import Distribution, Uniform, sample
from webhook.quota.simulation.values import Arrival, Scenario
from webhook.state.well_known import SCHEDULING_GATE

KIND: Final = "Scenario"
MOST_PODS: Final = 1_000_000
_MOST_NODES: Final = 5_000
_AT_ONCE: Final = Uniform(0, 0)


class ScenarioError(ValueError):
    """A scenario, or a trace that it names, cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrivals:
    """Arrivals of the pods of a workload."""

    count: int = 1
    start: int = 0
    every: Distribution = _AT_ONCE
    at: tuple[int, ...] = ()
    """Exact times instead."""

    def times(self, seed: int, series: str) -> Iterator[int]:
        if self.at:
            yield from self.at
            return
        time = self.start
        for number in range(self.count):
            if number:
                time += sample(self.every, seed, f"{series}/arrival", number)
            yield time


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workload:
    """Pods that are alike."""

    name: str
    namespace: str
    spec: Mapping[str, object]
    duration: Distribution
    arrivals: _Arrivals = field(default_factory=_Arrivals)
    controller: str = "Job"


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeGroup:
    """Nodes that are alike."""

    name: str
    count: int = 1
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quota:
    namespace: str
    name: str
    spec: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    """A scenario as it is written."""

    seed: int = 1
    until: int | None = None
    configuration: Mapping[str, object] = field(default_factory=dict)
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[_NodeGroup, ...] = ()
    quotas: tuple[_Quota, ...] = ()
    workloads: tuple[_Workload, ...] = ()
    traces: tuple[Trace, ...] = ()


def read_scenario(path: Path, *, seed: int | None = None) -> Scenario:
    """Read a scenario, and the traces that it names.

    Args:
        path: Of the file; traces are looked for from its directory on.
        seed: Instead of the one in the file.

    Raises:
        ScenarioError: It cannot be used; the text has the file and, where it is known, the place.
        OSError: A file cannot be read.
    """
    data = path.read_bytes()
    try:
        documents = read_documents(str(path), data)
    except SnapshotError as err:
        raise ScenarioError(
            _message(err.file, err.place.line, err.place.column, err.field, err.detail)
        ) from err
    filled = [document for document in documents if document.value is not None]
    if len(filled) != 1:
        raise ScenarioError(f"{path}: must be one document, not {len(filled)}")
    document = filled[0]
    try:
        written = _SCENARIO(document.value, "")
        return _Builder(written, path.parent, written.seed if seed is None else seed).scenario()
    except InvalidSettingError as err:
        position = Positions({str(path): data}).of(document, err.field)
        raise ScenarioError(
            _message(str(path), position.line, position.column, err.field, err.detail)
        ) from err
    except TraceError as err:
        raise ScenarioError(str(err)) from err


def _message(file: str, line: int | None, column: int | None, path: str, detail: str) -> str:
    place = "" if line is None else f"line {line}"
    if place and column is not None:
        place += f", column {column}"
    return ": ".join(filter(None, (file, place, path, detail)))


@dataclass(frozen=True, slots=True)
class _Builder:
    """Makes the objects that a scenario stands for."""

    written: _Fields
    folder: Path
    seed: int

    def scenario(self) -> Scenario:
        written = self.written
        configuration = _configuration(written.configuration)
        policy = compile_policy(configuration)
        nodes = tuple(self._nodes())
        # counted before they are kept: more of them than are allowed may be more than memory holds
        arrivals = sorted(islice(self._arrivals(), MOST_PODS + 1), key=lambda arrival: arrival.at)
        _require_own_names(arrivals)
        return Scenario(
            nodes=nodes,
            quotas=tuple(self._quotas()),
            arrivals=tuple(arrivals),
            gate=SCHEDULING_GATE,
            until=written.until,
            deferred_keys=policy.deferred_keys,
            limited=policy.limited_resources,
            policy=queue_policy(configuration, policy),
            max_reservations=configuration.limits.reservations_per_namespace,
            gate_release=1000 * configuration.timeouts.gate_release_seconds,
        )

    def _nodes(self) -> Iterator[PlainObject]:
        names: set[str] = set()
        for index, group in enumerate(self.written.nodes):
            path = f"nodes[{index}]"
            if group.name in names:
                raise InvalidSettingError(f"{path}.name", f"{group.name!r} is given twice")
            names.add(group.name)
            yield from templates.nodes(group.name, group.count, group.fields, field=path)

    def _quotas(self) -> Iterator[ResourceQuota]:
        keys: set[str] = set()
        for index, quota in enumerate(self.written.quotas):
            path = f"quotas[{index}]"
            found = templates.resource_quota(
                quota.namespace, quota.name, quota.spec, field=f"{path}.spec"
            )
            if found.key in keys:
                raise InvalidSettingError(f"{path}.name", f"{found.key!r} is given twice")
            keys.add(found.key)
            yield found

    def _arrivals(self) -> Iterator[Arrival]:
        for index, workload in enumerate(self.written.workloads):
            yield from self._workload(workload, f"workloads[{index}]")
        for trace in self.written.traces:
            yield from read_trace(trace, self.folder)

    def _workload(self, workload: _Workload, path: str) -> Iterator[Arrival]:
        template = templates.pod_template(
            workload.namespace,
            workload.spec,
            workload.controller,
            classes=self.written.priority_classes,
            field=f"{path}.spec",
        )
        series = f"{workload.namespace}/{workload.name}"
        for number, at in enumerate(workload.arrivals.times(self.seed, series)):
            lasts = sample(workload.duration, self.seed, f"{series}/duration", number)
            yield Arrival(at, f"{workload.name}-{number}", template, lasts, series)


def _require_own_names(arrivals: list[Arrival]) -> None:
    if len(arrivals) > MOST_PODS:
        raise InvalidSettingError("workloads", f"make more than {MOST_PODS} pods")
    keys: set[str] = set()
    for arrival in arrivals:
        if arrival.key in keys:
            raise InvalidSettingError("workloads", f"two pods have the name {arrival.key!r}")
        keys.add(arrival.key)


def _configuration(raw: Mapping[str, object]) -> Configuration:
    whole_file = {"apiVersion": API_VERSION, "kind": "Configuration", **raw}
    try:
        return load_configuration(
            encode_json(whole_file).decode(), "configuration", check=_check_policy
        )
    except ConfigurationError as err:
        field_path = f"configuration.{err.field}" if err.field else "configuration"
        raise InvalidSettingError(field_path, err.detail) from err


def _check_policy(configuration: Configuration) -> None:
    try:
        compile_policy(configuration)
    except InvalidFieldError as err:
        raise ValueError(str(err)) from err


def _node_group(value: object, path: str) -> _NodeGroup:
    def make(name: str, count: int = 1, **fields: object) -> _NodeGroup:
        return _NodeGroup(name=name, count=count, fields=fields)

    return section(make, _NODES, required=("name", "allocatable"))(value, path)


def _priority_classes(value: object, path: str) -> dict[str, int]:
    read = whole(-(2**31), 10**9)
    classes = plain_object(value, path)
    return {key: read(priority, f"{path}.{key}") for key, priority in classes.items()}


def _as_it_is(value: object, _path: str) -> object:
    return value


_NODES: Final[Mapping[str, Reader[object]]] = {
    "name": templates.object_name,
    "count": whole(1, _MOST_NODES),
    "allocatable": plain_object,
    "labels": plain_object,
    "taints": _as_it_is,
    "unschedulable": _as_it_is,
}
_QUOTA: Final[Mapping[str, Reader[object]]] = {
    "namespace": templates.object_name,
    "name": templates.object_name,
    "spec": plain_object,
}
_ARRIVALS: Final[Mapping[str, Reader[object]]] = {
    "count": whole(1, MOST_PODS),
    "start": duration,
    "every": distribution,
    "at": list_of(duration),
}
_WORKLOAD: Final[Mapping[str, Reader[object]]] = {
    "name": templates.object_name,
    "namespace": templates.object_name,
    "controller": templates.controller_kind,
    "arrivals": section(_Arrivals, _ARRIVALS),
    "duration": distribution,
    "spec": plain_object,
}
_TRACE: Final[Mapping[str, Reader[object]]] = {
    "file": name,
    "format": choice(TraceFormat),
    "namespace": templates.object_name,
    "controller": templates.controller_kind,
    "machine": plain_object,
    "collections": name,
}
_FIELDS: Final[Mapping[str, Reader[object]]] = {
    "apiVersion": exactly(API_VERSION),
    "kind": exactly(KIND),
    "seed": whole(0, 2**63 - 1),
    "until": duration,
    "configuration": plain_object,
    "priorityClasses": _priority_classes,
    "nodes": list_of(_node_group),
    "quotas": list_of(section(_Quota, _QUOTA, required=tuple(_QUOTA))),
    "workloads": list_of(
        section(_Workload, _WORKLOAD, required=("name", "namespace", "duration", "spec"))
    ),
    "traces": list_of(section(Trace, _TRACE, required=("file", "format", "namespace"))),
}


def _scenario(
    apiVersion: str,  # noqa: ARG001, N803 - as it is written
    kind: str,  # noqa: ARG001
    priorityClasses: Mapping[str, int] | None = None,  # noqa: N803
    **fields: Any,
) -> _Fields:
    return _Fields(priority_classes=priorityClasses or {}, **fields)


_SCENARIO: Final = section(_scenario, _FIELDS, required=("apiVersion", "kind", "nodes"))
