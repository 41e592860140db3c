"""How the webhook is registered with the embedded API server.

One entry for each rule group, so that an outage of one does not stop the others. Those that charge
fail closed; those that advise or hide fail open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from webhook.cluster.api import CLUSTER_DEFERRED_QUOTAS, Object
from webhook.cluster.memory.interception import WriteRequest
from webhook.embedded.admission import Hook, Rule
from webhook.state.names import (
    AUTO_PACING,
    CAPACITY_LABEL,
    DEFERRED_MODE,
    GATE,
    GATE_PACING,
    MARK_PREFIX,
    MODE_LABEL,
    NO_PACING,
    PACING_LABEL,
    SHADOW_MODE,
    UNJUDGED,
    UNJUDGED_LABEL,
)

OPTED_IN: Final = f"{MODE_LABEL}={DEFERRED_MODE}"
WATCHED: Final = f"{MODE_LABEL}={SHADOW_MODE}"
_UNLESS_SPARED: Final = "notin", f"({NO_PACING})"
_GATED: Final = {
    GATE_PACING: _UNLESS_SPARED,
    AUTO_PACING: _UNLESS_SPARED,
    NO_PACING: ("in", f"({GATE_PACING},{AUTO_PACING})"),
}
"""The configured pacing → which namespaces have their pods gated."""
_OPPOSITE: Final = {"in": "notin", "notin": "in"}

_CREATE: Final = frozenset({"CREATE"})
_UPDATE: Final = frozenset({"UPDATE"})
_CORE: Final = frozenset({""})
_BATCH: Final = frozenset({"batch"})
_BINDINGS: Final = Rule(_CREATE, frozenset({"pods/binding", "bindings"}), _CORE)
_NEW_PODS: Final = Rule(_CREATE, frozenset({"pods"}), _CORE)
_CHANGED_PODS: Final = Rule(_UPDATE, frozenset({"pods"}), _CORE)
_PODS: Final = Rule(_UPDATE, frozenset({"pods/resize", "pods"}), _CORE)
_QUOTAS: Final = Rule(_CREATE | _UPDATE, frozenset({"resourcequotas"}), _CORE)
_QUOTA_STATUS: Final = Rule(_UPDATE, frozenset({"resourcequotas/status"}), _CORE)
_JOBS: Final = Rule(_CREATE | _UPDATE, frozenset({"jobs"}), _BATCH)
_JOBS_AND_CRON_JOBS: Final = Rule(_CREATE | _UPDATE, frozenset({"jobs", "cronjobs"}), _BATCH)
_CLUSTER_QUOTAS: Final = Rule(
    _CREATE | _UPDATE,
    frozenset({CLUSTER_DEFERRED_QUOTAS.plural}),
    frozenset({CLUSTER_DEFERRED_QUOTAS.group}),
    frozenset({CLUSTER_DEFERRED_QUOTAS.version}),
    "Cluster",
)
_JOB_SETS: Final = Rule(
    _CREATE | _UPDATE,
    frozenset({"jobsets"}),
    frozenset({"jobset.x-k8s.io"}),
    frozenset({"v1alpha2"}),
)


def hooks(url: str, *, pacing: str = GATE_PACING) -> tuple[Hook, ...]:
    """Return all registrations of a webhook.

    Args:
        url: Where it serves.
        pacing: `always`, `auto` or `never`, for namespaces that do not say it by a label.
    """
    mutate, validate = f"{url}/mutate", f"{url}/validate"
    operator, values = _GATED[pacing]
    gated = f"{OPTED_IN},{PACING_LABEL} {operator} {values}"
    ungated = f"{OPTED_IN},{PACING_LABEL} {_OPPOSITE[operator]} {values}"
    quick = 2
    return (
        _hook("stamp", mutate, _BINDINGS, condition=_has_no_uid),
        _hook(
            "gate",
            mutate,
            _NEW_PODS,
            fails=False,
            seconds=quick,
            side_effects="None",
            selector=gated,
            reinvocation="IfNeeded",
        ),
        _hook("mask", mutate, _QUOTA_STATUS, fails=False, seconds=quick, side_effects="None"),
        _hook("jobs", mutate, _JOBS, fails=False, condition=_changes_spec),  # the last of them
        _hook("bind", validate, _BINDINGS),
        _hook("assigned", validate, _NEW_PODS, condition=_has_node),
        _hook(
            "shape",
            validate,
            _NEW_PODS,
            fails=False,
            side_effects="None",
            objects=f"{UNJUDGED_LABEL} in ({UNJUDGED})",
            condition=_has_no_node,
        ),
        _hook(
            "ungated",
            validate,
            _NEW_PODS,
            fails=False,
            side_effects="None",
            selector=ungated,
            condition=_has_no_node,
        ),
        _hook("resize", validate, _PODS),
        _hook("marks", validate, _CHANGED_PODS, fails=False, condition=_touches_marks),
        _hook(
            "jobs", validate, _JOBS_AND_CRON_JOBS, _JOB_SETS, fails=False, condition=_changes_spec
        ),
        _hook("quotas", validate, _QUOTAS, _CLUSTER_QUOTAS, fails=False),
        _hook("shadow", f"{url}/shadow", _NEW_PODS, fails=False, seconds=1, selector=WATCHED),
    )


def _hook(  # noqa: PLR0913 - what registrations differ in
    name: str,
    url: str,
    *rules: Rule,
    fails: bool = True,
    seconds: float = 5,
    side_effects: Literal["None", "NoneOnDryRun"] = "NoneOnDryRun",
    selector: str = OPTED_IN,
    objects: str = "",
    condition: Callable[[WriteRequest], bool] | None = None,
    reinvocation: Literal["Never", "IfNeeded"] = "Never",
) -> Hook:
    return Hook(
        name=f"{name}.deferredquota.io",
        url=url,
        phase="mutating" if url.endswith("/mutate") else "validating",
        rules=rules,
        failure_policy="Fail" if fails else "Ignore",
        timeout_seconds=seconds,
        side_effects=side_effects,
        namespace_selector=selector,
        object_selector=objects,
        condition=condition,
        reinvocation=reinvocation,
    )


def _has_no_uid(request: WriteRequest) -> bool:
    """Say whether a Binding leaves open which pod of the name it means."""
    return not _mapping((request.new or {}).get("metadata")).get("uid")


def _has_node(request: WriteRequest) -> bool:
    return bool(_spec(request.new).get("nodeName"))


def _has_no_node(request: WriteRequest) -> bool:
    return not _has_node(request)


def _changes_spec(request: WriteRequest) -> bool:
    """Say whether an object is new, or its spec another."""
    if request.operation == "CREATE":
        return True
    return (request.new or {}).get("spec") != (request.old or {}).get("spec")


def _touches_marks(request: WriteRequest) -> bool:
    """Say whether our gate is gone, or a label or an annotation of ours is another."""
    was_gated, is_gated = _is_gated(request.old), _is_gated(request.new)
    return was_gated > is_gated or _marks(request.old) != _marks(request.new)


def _is_gated(pod: Object | None) -> bool:
    gates = _spec(pod).get("schedulingGates")
    return isinstance(gates, list) and {"name": GATE} in gates


def _marks(pod: Object | None) -> dict[tuple[str, str], object]:
    maps = _mapping((pod or {}).get("metadata"))
    return {
        (field, key): value
        for field in ("labels", "annotations")
        for key, value in _mapping(maps.get(field)).items()
        if key.startswith(MARK_PREFIX) or key == CAPACITY_LABEL
    }


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _spec(obj: Object | None) -> Mapping[str, object]:
    return _mapping((obj or {}).get("spec"))
