"""Traces of pods from CSV files: our own columns, and the tables that Alibaba and Google publish.

Our own: `name`, `arrival`, `duration`, perhaps `namespace` and `priority`, and resources as
`requests.NAME` and `limits.NAME`.

Alibaba, cluster-trace-gpu-v2023, `openb_pod_list_*.csv`: a pod runs from `scheduled_time` to
`deletion_time`; a share of a GPU counts as a whole one, and its model (gpu_spec) is not read.
Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2023/README.md.

Google, 2019, instance events: an instance of a job arrives with its first SUBMIT, and runs as long
as from its last SCHEDULE to what ended it; what was running at the end of the trace runs until
then. Amounts are parts of the largest machine, which the scenario names. Collection events say
which user owns an instance, and give the namespace.
Source: github.com/google/cluster-data, clusterdata_trace_format_v3.proto.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal, InvalidOperation, localcontext
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from webhook.config.field_readers import InvalidSettingError
from webhook.operations.simulate.fields import MOST_MILLISECONDS, amounts, duration
from webhook.operations.simulate.templates import object_name, pod_template
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.simulation.values import Arrival, PodTemplate

GPU: Final = "nvidia.com/gpu"
_SECOND: Final = Decimal(1000)
_MICROSECOND: Final = Decimal("0.001")
_DIGITS: Final = 60
"""More than any amount has: up to 10^18 times what a machine has, which is below 10^27 nano."""
_COLUMNS: Final = frozenset({"name", "namespace", "arrival", "duration", "priority"})
_SIDES: Final = ("requests.", "limits.")
_EVENT_TYPES: Final = (
    "SUBMIT",
    "QUEUE",
    "ENABLE",
    "SCHEDULE",
    "EVICT",
    "FAIL",
    "FINISH",
    "KILL",
    "LOST",
    "UPDATE_PENDING",
    "UPDATE_RUNNING",
)
_ENDS: Final = frozenset({"EVICT", "FAIL", "FINISH", "KILL", "LOST"})


class TraceError(ValueError):
    """A row of a trace cannot be read; the text has file, line and column."""


class TraceFormat(StrEnum):
    """The columns of a trace."""

    CSV = "csv"
    ALIBABA = "alibaba-gpu-2023"
    GOOGLE = "google-2019"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace that a scenario names."""

    file: str
    format: TraceFormat
    namespace: str
    """Of pods whose row names none."""
    controller: str = "Job"
    machine: Mapping[str, object] = field(default_factory=dict)
    """Google: what the amounts are parts of."""
    collections: str = ""
    """Google: file of the collection events."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a CSV file."""

    file: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        value = self.cells.get(column)
        if value is None:
            raise self.error(column, "there is no such column")
        return value.strip()

    def number(self, column: str, *, default: int | None = None) -> Decimal:
        text = self.text(column)
        if not text and default is not None:
            return Decimal(default)
        try:
            # underscores between digits are Python's
            number = Decimal(-1) if "_" in text else Decimal(text)
        except InvalidOperation:
            number = Decimal(-1)
        if not (number.is_finite() and 0 <= number < 10**18):
            raise self.error(column, f"must be a number from 0 to 10^18, not {text[:40]!r}")
        return number

    def milliseconds(self, column: str, unit: Decimal) -> int:
        time = int(self.number(column) * unit)
        if time > MOST_MILLISECONDS:
            raise self.error(column, "is more than 10 years")
        return time

    def error(self, column: str, detail: str) -> TraceError:
        return TraceError(f"{self.file}: line {self.line}, column {column}: {detail}")


_Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Pods:
    """Makes pods of rows; those that ask for the same share a template."""

    trace: Trace
    templates: dict[_Key, PodTemplate] = field(default_factory=dict)

    def arrival(
        self, row: _Row, identity: tuple[str, str], times: tuple[int, int], wants: Mapping[str, str]
    ) -> Arrival:
        """Return a pod.

        Args:
            row: Where it comes from.
            identity: Its namespace and name.
            times: When it arrives, and how long it runs.
            wants: `requests.NAME` or `limits.NAME` → amount; `priority`.
        """
        namespace, name = identity
        try:
            object_name(name, "name")
            key = (namespace, *sorted(wants.items()))
            template = self.templates.get(key)
            if template is None:
                template = self.templates[key] = self._template(namespace, wants)
        except InvalidSettingError as err:
            column = err.field.rpartition("resources.")[2].replace("[", ".").rstrip("]")
            raise row.error(column, err.detail) from err
        return Arrival(times[0], name, template, times[1], namespace)

    def _template(self, namespace: str, wants: Mapping[str, str]) -> PodTemplate:
        object_name(namespace, "namespace")
        resources: dict[str, dict[str, str]] = {}
        for key, amount in wants.items():
            side, _, name = key.partition(".")
            if name and amount:
                resources.setdefault(side, {})[name] = amount
        spec: dict[str, object] = {
            "containers": [{"name": "main", "image": "trace", "resources": resources}]
        }
        priority = wants.get("priority", "")
        classes = {}
        if priority:
            if not re.fullmatch(r"-?[0-9]{1,10}", priority):
                raise InvalidSettingError("priority", f"must be a whole number: {priority[:40]!r}")
            spec["priorityClassName"] = f"priority-{priority}"
            classes[f"priority-{priority}"] = int(priority)
        return pod_template(
            namespace, spec, self.trace.controller, classes=classes, field="resources"
        )


def read_trace(trace: Trace, folder: Path) -> Iterator[Arrival]:
    """Yield the pods of a trace, in the order of its rows.

    Raises:
        TraceError: A row cannot be read.
        OSError: A file cannot be read.
    """
    read = {
        TraceFormat.CSV: _own,
        TraceFormat.ALIBABA: _alibaba,
        TraceFormat.GOOGLE: _google,
    }[trace.format]
    return read(trace, folder, _Pods(trace))


def _rows(folder: Path, name: str) -> Iterator[_Row]:
    path = folder / name
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            columns = next(reader, [])
            for column in columns:
                if columns.count(column) > 1:
                    raise _Row(str(path), 1, {}).error(column, "appears twice")
            for cells in reader:
                row = _Row(str(path), reader.line_num, dict(zip(columns, cells, strict=False)))
                if cells and len(cells) != len(columns):
                    raise row.error(str(len(cells)), f"the first line has {len(columns)} columns")
                if cells:
                    yield row
        except (csv.Error, UnicodeDecodeError) as err:
            raise TraceError(f"{path}: line {reader.line_num}: {err}") from err


def _own(trace: Trace, folder: Path, pods: _Pods) -> Iterator[Arrival]:
    for row in _rows(folder, trace.file):
        _check_columns(row)
        times = _time(row, "arrival"), _time(row, "duration")
        namespace = row.cells.get("namespace", "").strip() or trace.namespace
        wants = {
            column: cell.strip()
            for column, cell in row.cells.items()
            if column == "priority" or column.startswith(_SIDES)
        }
        yield pods.arrival(row, (namespace, row.text("name")), times, wants)


def _check_columns(row: _Row) -> None:
    for column in row.cells:
        if column not in _COLUMNS and not column.startswith(_SIDES):
            raise row.error(column, "unknown column")


def _time(row: _Row, column: str) -> int:
    try:
        return duration(row.text(column), column)
    except InvalidSettingError as err:
        raise row.error(column, err.detail) from err


def _alibaba(trace: Trace, folder: Path, pods: _Pods) -> Iterator[Arrival]:
    rows = list(_rows(folder, trace.file))
    created = [row.milliseconds("creation_time", _SECOND) for row in rows]
    first = min(created, default=0)
    for row, at in zip(rows, created, strict=True):
        ends = row.milliseconds("deletion_time", _SECOND)
        has_run = row.cells.get("scheduled_time", "").strip() not in ("", "nan")
        starts = row.milliseconds("scheduled_time", _SECOND) if has_run else at
        if ends < starts:
            raise row.error("deletion_time", "is before the pod was scheduled")
        wants = {
            "requests.cpu": f"{int(row.number('cpu_milli'))}m",
            "requests.memory": f"{int(row.number('memory_mib'))}Mi",
        }
        gpus = int(row.number("num_gpu"))
        if gpus:
            wants |= {f"requests.{GPU}": str(gpus), f"limits.{GPU}": str(gpus)}
        name = row.text("name")
        yield pods.arrival(row, (trace.namespace, name), (at - first, ends - starts), wants)


@dataclass(slots=True)
class _Instance:
    """Instance of a job, by its events."""

    row: _Row
    """Of the event by which it was submitted."""
    submitted: int
    scheduled: int | None = None
    ended: int | None = None


def _google(trace: Trace, folder: Path, pods: _Pods) -> Iterator[Arrival]:
    machine = _machine(trace)
    owners = _owners(trace, folder)
    instances, last = _instances(trace, folder)
    ran = (one for one in instances.values() if one.scheduled is not None)
    first = min((one.submitted for one in ran), default=0)
    for (collection, index), one in instances.items():
        if one.scheduled is None:
            continue  # it never ran, so nothing says for how long it would have
        ended = last if one.ended is None else one.ended
        wants = {
            f"requests.{name}": _part(one.row, f"resource_request.{column}", machine[name])
            for column, name in (("cpus", "cpu"), ("memory", "memory"))
        }
        wants["priority"] = one.row.text("priority")
        identity = owners.get(collection, trace.namespace), f"i-{collection}-{index}"
        times = one.submitted - first, max(0, ended - one.scheduled)
        yield pods.arrival(one.row, identity, times, wants)


def _instances(trace: Trace, folder: Path) -> tuple[dict[tuple[str, str], _Instance], int]:
    """Return the instances of jobs by collection and index, and the time of the last event."""
    found: dict[tuple[str, str], _Instance] = {}
    last = 0
    for row in _rows(folder, trace.file):
        if row.cells.get("collection_type", "0").strip() not in ("0", "JOB", ""):
            continue
        at = row.milliseconds("time", _MICROSECOND)
        last = max(last, at)
        key = row.text("collection_id"), row.text("instance_index")
        kind = _kind(row)
        one = found.get(key)
        if one is None and kind == "SUBMIT":
            found[key] = _Instance(row, at)
        elif one is not None and kind == "SCHEDULE":
            one.scheduled, one.ended = at, None
        elif one is not None and kind in _ENDS and one.ended is None:
            one.ended = at
    return found, last


def _kind(row: _Row) -> str:
    """Return the name of the event's type, which is exported as a number or as its name."""
    text = row.text("type")
    if text in _EVENT_TYPES:
        return text
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 3 else -1
    if not 0 <= number < len(_EVENT_TYPES):
        raise row.error("type", f"is no type of event: {text[:40]!r}")
    return _EVENT_TYPES[number]


def _owners(trace: Trace, folder: Path) -> dict[str, str]:
    """Return the namespaces of collections: one for every user."""
    if not trace.collections:
        return {}
    owners: dict[str, str] = {}
    users: dict[str, str] = {}
    for row in _rows(folder, trace.collections):
        user = row.text("user")
        if user:
            namespace = users.setdefault(user, f"user-{len(users)}")
            owners.setdefault(row.text("collection_id"), namespace)
    return owners


def _machine(trace: Trace) -> ResourceList:
    machine = amounts(trace.machine, "machine")
    for name in ("cpu", "memory"):
        if name not in machine:
            raise TraceError(f"{trace.file}: machine.{name} must be given for this format")
    return machine


def _part(row: _Row, column: str, whole: Quantity) -> str:
    """Return a part of the largest machine, rounded up to 10^-3 of a core or to bytes."""
    unit = 10**6 if column.endswith("cpus") else 10**9
    with localcontext(prec=_DIGITS, rounding=ROUND_CEILING):
        units = row.number(column, default=0) * whole.nano / unit
        count = int(units.to_integral_value())
    return str(Quantity.of_nano(count * unit, whole.format))
