"""PriorityClasses and RuntimeClasses: what they write into a new pod, and what they refuse.

Source: kubernetes v1.36, plugin/pkg/admission/priority/admission.go,
plugin/pkg/admission/runtimeclass/admission.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.go_format import quoted
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import ResourceList, equal, to_text

_Object = Mapping[str, object]

SYSTEM_CLASSES: Final[Mapping[str, int]] = MappingProxyType(
    {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
)
"""Source: kubernetes v1.36, pkg/apis/scheduling/v1/helpers.go SystemPriorityClasses."""
_OVERHEAD: Final = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_NO_OVERHEAD: Final = (
    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
)


class ClassError(Exception):
    """A pod is refused for its class; the text is the API server's.

    Attributes:
        field: YAML path of the field in the pod that is at fault.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class RuntimeClassError(ClassError):
    """A pod is refused for its RuntimeClass."""


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass."""

    name: str
    value: int
    is_default: bool = False

    @classmethod
    def from_object(cls, raw: _Object, *, field: str = "") -> PriorityClass:
        """Read a PriorityClass; raises InvalidFieldError."""
        root = FieldReader(raw, field)
        name = root.child("metadata").text("name")
        return cls(name, root.integer("value") or 0, root.boolean("globalDefault"))


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """A RuntimeClass."""

    name: str
    overhead: ResourceList | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[object, ...] = ()

    @classmethod
    def from_object(cls, raw: _Object, *, field: str = "") -> RuntimeClass:
        """Read a RuntimeClass; raises InvalidFieldError, InvalidQuantityError."""
        root = ResourceReader(raw, field)
        overhead, scheduling = root.child("overhead"), root.child("scheduling")
        scheduling.children("tolerations")  # have to be objects
        written = raw.get("scheduling")
        tolerations = written.get("tolerations") if isinstance(written, Mapping) else None
        return cls(
            root.child("metadata").text("name"),
            overhead.resource_list("podFixed") if root.has("overhead") else None,
            scheduling.string_map("nodeSelector"),
            tuple(tolerations) if isinstance(tolerations, list) else (),
        )


@dataclass(frozen=True, slots=True)
class ClassTable:
    """The classes of a cluster."""

    priorities: Mapping[str, PriorityClass] = field(default_factory=dict)
    runtimes: Mapping[str, RuntimeClass] = field(default_factory=dict)
    has_all_priorities: bool = False
    """Whether a class that is not there does not exist."""
    has_all_runtimes: bool = False

    def default(self) -> PriorityClass | None:
        """Return the default class, of several the one of the lowest priority."""
        defaults = [one for one in self.priorities.values() if one.is_default]
        return min(defaults, key=lambda one: one.value, default=None)


def with_classes(raw: _Object, table: ClassTable) -> _Object:
    """Return a new pod with what its classes write into it.

    Raises:
        ClassError: The pod is refused.
        InvalidFieldError: A field of it has the wrong type.
    """
    return _with_runtime(_with_priority(raw, table), table)


def _with_priority(raw: _Object, table: ClassTable) -> _Object:
    spec = ResourceReader(raw).child("spec")
    name, given = spec.text("priorityClassName"), spec.integer("priority")
    chosen = table.priorities.get(name) if name else table.default()
    if chosen is None and name in SYSTEM_CLASSES:
        chosen = PriorityClass(name, SYSTEM_CLASSES[name])
    if chosen is None and name:
        if table.has_all_priorities:
            text = f"no PriorityClass with name {name} was found"
            raise ClassError("spec.priorityClassName", text)
        return raw
    if chosen is None and not table.has_all_priorities:
        return raw
    value = 0 if chosen is None else chosen.value
    if given is not None and given != value:
        raise ClassError(
            "spec.priority",
            f"the integer value of priority ({given}) must not be provided in pod spec; priority"
            f" admission controller computed {value} from the given PriorityClass name",
        )
    named = name if chosen is None else chosen.name
    return _changed(raw, {"priority": value, **({"priorityClassName": named} if named else {})})


def _with_runtime(raw: _Object, table: ClassTable) -> _Object:
    spec = ResourceReader(raw).child("spec")
    name = spec.text("runtimeClassName")
    overhead = spec.resource_list("overhead")
    if not name:
        if overhead:
            raise RuntimeClassError("spec.overhead", _NO_OVERHEAD)
        return raw
    runtime = table.runtimes.get(name)
    if runtime is None:
        if table.has_all_runtimes:
            text = f"pod rejected: RuntimeClass {quoted(name)} not found"
            raise RuntimeClassError("spec.runtimeClassName", text)
        return raw
    if overhead and runtime.overhead is None:
        raise RuntimeClassError("spec.overhead", _NO_OVERHEAD)
    if overhead and not equal(overhead, runtime.overhead or {}):
        raise RuntimeClassError("spec.overhead", _OVERHEAD)
    selector = dict(spec.string_map("nodeSelector"))
    for label, value in runtime.node_selector.items():
        if selector.get(label, value) != value:
            raise RuntimeClassError(
                "spec.nodeSelector",
                f"conflict: runtimeClass.scheduling.nodeSelector[{label}] = {value};"
                f" pod.spec.nodeSelector[{label}] = {selector[label]}",
            )
        selector[label] = value
    return _changed(raw, _runtime_fields(raw, runtime, selector))


def _runtime_fields(
    raw: _Object, runtime: RuntimeClass, selector: Mapping[str, str]
) -> Mapping[str, object]:
    fields: dict[str, object] = {}
    if runtime.overhead is not None:
        fields["overhead"] = to_text(runtime.overhead)
    if selector:
        fields["nodeSelector"] = selector
    if runtime.tolerations:
        spec = raw.get("spec")
        own = spec.get("tolerations") if isinstance(spec, Mapping) else None
        fields["tolerations"] = [*(own if isinstance(own, list) else ()), *runtime.tolerations]
    return fields


def _changed(raw: _Object, fields: Mapping[str, object]) -> _Object:
    spec = raw.get("spec")
    return {**raw, "spec": {**(spec if isinstance(spec, Mapping) else {}), **fields}}
