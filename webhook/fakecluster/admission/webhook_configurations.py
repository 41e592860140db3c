"""Registration of the webhook with the embedded API server.

One entry for each rule group, so that an outage of one does not stop the others. Those that charge
fail closed; those that advise or hide fail open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from webhook.config import Configuration
from webhook.fakecluster.admission.chain import Rule, Webhook
from webhook.fakecluster.storage.admission_hook import WriteRequest
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    Object,
)
from webhook.state.well_known import (
    ALWAYS_GATING,
    AUTO_GATING,
    CAPACITY_LABEL,
    DEFERRED_MODE,
    GATING_LABEL,
    MANAGED_PREFIX,
    MODE_LABEL,
    NEVER_GATING,
    SCHEDULING_GATE,
    SHADOW_MODE,
    UNEVALUATED,
    UNEVALUATED_LABEL,
)

OPTED_IN_SELECTOR: Final = f"{MODE_LABEL}={DEFERRED_MODE}"
SHADOW_SELECTOR: Final = f"{MODE_LABEL}={SHADOW_MODE}"
_UNLESS_NEVER_GATED: Final = "notin", f"({NEVER_GATING})"
_GATED: Final = {
    ALWAYS_GATING: _UNLESS_NEVER_GATED,
    AUTO_GATING: _UNLESS_NEVER_GATED,
    NEVER_GATING: ("in", f"({ALWAYS_GATING},{AUTO_GATING})"),
}
"""The configured gating → which namespaces have their pods gated."""
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
_ELASTIC_QUOTAS: Final = Rule(
    _CREATE | _UPDATE,
    frozenset({ELASTIC_QUOTAS.plural, COMPOSITE_ELASTIC_QUOTAS.plural}),
    frozenset({ELASTIC_QUOTAS.group}),
    frozenset({ELASTIC_QUOTAS.version}),
)
_JOB_SETS: Final = Rule(
    _CREATE | _UPDATE,
    frozenset({"jobsets"}),
    frozenset({"jobset.x-k8s.io"}),
    frozenset({"v1alpha2"}),
)


def webhooks(url: str, *, gating: str = Configuration().gating) -> tuple[Webhook, ...]:
    """Return all registrations of a webhook.

    Args:
        url: Where it serves.
        gating: `always`, `auto` or `never`, for namespaces that do not say it by a label.
    """
    mutate, validate = f"{url}/mutate", f"{url}/validate"
    operator, values = _GATED[gating]
    gated = f"{OPTED_IN_SELECTOR},{GATING_LABEL} {operator} {values}"
    ungated = f"{OPTED_IN_SELECTOR},{GATING_LABEL} {_OPPOSITE[operator]} {values}"
    quick = 2
    return (
        _webhook("stamp", mutate, _BINDINGS, condition=_has_no_uid),
        replace(
            _webhook("gate", mutate, _NEW_PODS, fails=False, selector=gated),
            timeout_seconds=quick,
            side_effects="None",
            reinvocation="IfNeeded",
        ),
        replace(
            _webhook("mask", mutate, _QUOTA_STATUS, fails=False),
            timeout_seconds=quick,
            side_effects="None",
        ),
        _webhook("jobs", mutate, _JOBS, fails=False, condition=_changes_spec),  # the last of them
        _webhook("bind", validate, _BINDINGS),
        _webhook("assigned", validate, _NEW_PODS, condition=_has_node),
        replace(
            _webhook("shape", validate, _NEW_PODS, fails=False, condition=_has_no_node),
            side_effects="None",
            object_selector=f"{UNEVALUATED_LABEL} in ({UNEVALUATED})",
        ),
        replace(
            _webhook(
                "ungated",
                validate,
                _NEW_PODS,
                fails=False,
                selector=ungated,
                condition=_has_no_node,
            ),
            side_effects="None",
        ),
        _webhook("resize", validate, _PODS),
        _webhook(
            "marks", validate, _CHANGED_PODS, fails=False, condition=_changes_managed_metadata
        ),
        _webhook(
            "jobs", validate, _JOBS_AND_CRON_JOBS, _JOB_SETS, fails=False, condition=_changes_spec
        ),
        _webhook("quotas", validate, _QUOTAS, _CLUSTER_QUOTAS, _ELASTIC_QUOTAS, fails=False),
        replace(
            _webhook("shadow", f"{url}/shadow", _NEW_PODS, fails=False, selector=SHADOW_SELECTOR),
            timeout_seconds=1,
        ),
    )


def _webhook(
    name: str,
    url: str,
    *rules: Rule,
    fails: bool = True,
    selector: str = OPTED_IN_SELECTOR,
    condition: Callable[[WriteRequest], bool] | None = None,
) -> Webhook:
    return Webhook(
        name=f"{name}.deferredquota.io",
        url=url,
        phase="mutating" if url.endswith("/mutate") else "validating",
        rules=rules,
        failure_policy="Fail" if fails else "Ignore",
        timeout_seconds=5,
        side_effects="NoneOnDryRun",
        namespace_selector=selector,
        condition=condition,
    )


def _has_no_uid(request: WriteRequest) -> bool:
    """Return whether a Binding leaves open which pod of the name it means."""
    return not _mapping((request.new or {}).get("metadata")).get("uid")


def _has_node(request: WriteRequest) -> bool:
    return bool(_spec(request.new).get("nodeName"))


def _has_no_node(request: WriteRequest) -> bool:
    return not _has_node(request)


def _changes_spec(request: WriteRequest) -> bool:
    """Return whether an object is new, or its spec another."""
    if request.operation == "CREATE":
        return True
    return (request.new or {}).get("spec") != (request.old or {}).get("spec")


def _changes_managed_metadata(request: WriteRequest) -> bool:
    """Return whether our gate is gone, or a label or an annotation of ours is another."""
    was_gated, is_gated = _is_gated(request.old), _is_gated(request.new)
    return was_gated > is_gated or _managed_metadata(request.old) != _managed_metadata(request.new)


def _is_gated(pod: Object | None) -> bool:
    gates = _spec(pod).get("schedulingGates")
    return isinstance(gates, list) and {"name": SCHEDULING_GATE} in gates


def _managed_metadata(pod: Object | None) -> dict[tuple[str, str], object]:
    maps = _mapping((pod or {}).get("metadata"))
    return {
        (field, key): value
        for field in ("labels", "annotations")
        for key, value in _mapping(maps.get(field)).items()
        if key.startswith(MANAGED_PREFIX) or key == CAPACITY_LABEL
    }


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _spec(obj: Object | None) -> Mapping[str, object]:
    return _mapping((obj or {}).get("spec"))
