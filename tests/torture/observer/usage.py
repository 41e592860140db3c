"""What a pod takes of a quota, and which quotas select it: the observer's own rules.

Exact for the pods that the load makes: containers, init containers and sidecars, in-place resize
as the node reports it, deadlines, QoS, priority classes. No pod-level resources, no overhead: a
pod that has either is refused loudly rather than counted wrongly.

Source of the rules: kubernetes v1.36, pkg/quota/v1/evaluator/core/pods.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.torture.observer.amounts import Amounts, largest, read_amounts, total

DEFERRED_KEYS: Final = (
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
)
ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Traits:
    """What quota scopes look at."""

    priority_class: str = ""
    has_deadline: bool = False
    is_best_effort: bool = False


@dataclass(frozen=True, slots=True)
class Expression:
    """One condition of a quota: a scope, or an expression of its scope selector."""

    scope: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def selects(self, traits: Traits) -> bool:
        """Say whether a pod with these traits fulfils the condition."""
        if self.scope == "PriorityClass":
            return self._selects_class(traits.priority_class)
        return {
            "Terminating": traits.has_deadline,
            "NotTerminating": not traits.has_deadline,
            "BestEffort": traits.is_best_effort,
            "NotBestEffort": not traits.is_best_effort,
        }[self.scope]

    def _selects_class(self, name: str) -> bool:
        return {
            "Exists": name != "",
            "DoesNotExist": name == "",
            "In": name != "" and name in self.values,
            "NotIn": name == "" or name not in self.values,
        }[self.operator]


def expressions(spec: Mapping[str, Any]) -> tuple[Expression, ...]:
    """Read the conditions of a quota's spec; all must hold."""
    selector = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return (
        *(Expression(scope) for scope in spec.get("scopes") or ()),
        *(
            Expression(each["scopeName"], each["operator"], tuple(each.get("values") or ()))
            for each in selector
        ),
    )


def traits_of(pod: Mapping[str, Any]) -> Traits:
    """Read what scopes look at."""
    spec = pod["spec"]
    deadline = spec.get("activeDeadlineSeconds")
    return Traits(
        priority_class=spec.get("priorityClassName") or "",
        has_deadline=deadline is not None and deadline >= 0,
        is_best_effort=_is_best_effort(pod),
    )


def pod_usage(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return what a pod takes of the deferred keys while it is live.

    Raises:
        ValueError: The pod has something that these rules do not know.
    """
    spec, status = pod["spec"], pod.get("status") or {}
    if spec.get("resources") or spec.get("overhead"):
        raise ValueError(f"pod {pod['metadata'].get('name')}: pod-level resources are not known")
    reported = _reported(status)
    infeasible = any(
        each.get("type") == "PodResizePending" and each.get("reason") == "Infeasible"
        for each in status.get("conditions") or ()
    )
    usage: dict[str, int] = {}
    for part in ("requests", "limits"):
        for name, amount in _peak(spec, reported, part, infeasible=infeasible).items():
            if name in {"cpu", "memory"}:
                usage[f"{part}.{name}"] = amount
                if part == "requests":
                    usage[name] = amount
    return usage


def _reported(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    lists = (status.get("containerStatuses") or (), status.get("initContainerStatuses") or ())
    return {each["name"]: each for several in lists for each in several if each.get("resources")}


def _peak(
    spec: Mapping[str, Any],
    reported: Mapping[str, Mapping[str, Any]],
    part: str,
    *,
    infeasible: bool,
) -> dict[str, int]:
    """Walk through the life of the pod: init containers one by one, then everything at once."""

    def running(container: Mapping[str, Any]) -> Amounts:
        wanted = _wanted(container, part)
        status = reported.get(container["name"])
        if status is None:
            return wanted
        seen = [read_amounts(status["resources"].get(part))]
        if part == "requests":
            seen.append(read_amounts(status.get("allocatedResources")))
        return largest(seen if infeasible else [wanted, *seen])

    sidecars: list[Amounts] = []
    moments: list[Amounts] = []
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars.append(running(container))
            moments.append(total(sidecars))
        else:
            moments.append(total([*sidecars, _wanted(container, part)]))
    moments.append(total([*sidecars, *map(running, spec.get("containers") or ())]))
    return largest(moments)


def _wanted(container: Mapping[str, Any], part: str) -> dict[str, int]:
    return read_amounts((container.get("resources") or {}).get(part))


def _is_best_effort(pod: Mapping[str, Any]) -> bool:
    recorded = (pod.get("status") or {}).get("qosClass")
    if recorded:
        return bool(recorded == "BestEffort")
    spec = pod["spec"]
    containers: Sequence[Mapping[str, Any]] = [
        *(spec.get("containers") or ()),
        *(spec.get("initContainers") or ()),
    ]
    return not any(
        amount > 0
        for container in containers
        for part in ("requests", "limits")
        for name, amount in _wanted(container, part).items()
        if name in {"cpu", "memory"}
    )
