"""How the webhook is registered with the embedded API server.

One entry for each rule group, so that an outage of one does not stop the others. Those that charge
fail closed; those that advise or hide fail open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from webhook.cluster.api import Object
from webhook.cluster.memory.interception import WriteRequest
from webhook.embedded.admission import Hook, Rule

OPTED_IN: Final = "deferredquota.io/mode=deferred"

_CREATE: Final = frozenset({"CREATE"})
_UPDATE: Final = frozenset({"UPDATE"})
_CORE: Final = frozenset({""})
_BATCH: Final = frozenset({"batch"})
_BINDINGS: Final = Rule(_CREATE, frozenset({"pods/binding", "bindings"}), _CORE)
_JOBS: Final = Rule(_CREATE | _UPDATE, frozenset({"jobs"}), _BATCH)


def hooks(url: str) -> tuple[Hook, ...]:
    """Return all registrations of a webhook that serves at `url`."""
    mutate, validate = f"{url}/mutate", f"{url}/validate"
    created_pods = Rule(_CREATE, frozenset({"pods"}), _CORE)
    return (
        _hook("stamp", mutate, "mutating", _BINDINGS),
        _hook("jobs", mutate, "mutating", _JOBS, fails=False),
        Hook(
            name="mask.deferredquota.io",
            url=mutate,
            phase="mutating",
            rules=(Rule(_UPDATE, frozenset({"resourcequotas/status"}), _CORE),),
            failure_policy="Ignore",
            timeout_seconds=2,
            namespace_selector=OPTED_IN,
        ),
        _hook("bind", validate, "validating", _BINDINGS),
        Hook(
            name="assigned.deferredquota.io",
            url=validate,
            phase="validating",
            rules=(created_pods,),
            timeout_seconds=5,
            side_effects="NoneOnDryRun",
            namespace_selector=OPTED_IN,
            condition=_has_node,
        ),
        Hook(
            name="shape.deferredquota.io",
            url=validate,
            phase="validating",
            rules=(created_pods,),
            failure_policy="Ignore",
            timeout_seconds=5,
            namespace_selector=OPTED_IN,
            condition=lambda request: not _has_node(request),
        ),
        _hook(
            "resize",
            validate,
            "validating",
            Rule(_UPDATE, frozenset({"pods/resize", "pods"}), _CORE),
        ),
        _hook("jobs", validate, "validating", _JOBS, fails=False),
        _hook(
            "quotas",
            validate,
            "validating",
            Rule(_CREATE | _UPDATE, frozenset({"resourcequotas"}), _CORE),
            fails=False,
        ),
    )


def _hook(
    name: str, url: str, phase: Literal["mutating", "validating"], rule: Rule, *, fails: bool = True
) -> Hook:
    return Hook(
        name=f"{name}.deferredquota.io",
        url=url,
        phase=phase,
        rules=(rule,),
        failure_policy="Fail" if fails else "Ignore",
        timeout_seconds=5,
        side_effects="NoneOnDryRun",
        namespace_selector=OPTED_IN,
    )


def _has_node(request: WriteRequest) -> bool:
    return bool(_spec(request.new).get("nodeName"))


def _spec(obj: Object | None) -> Mapping[str, object]:
    spec = (obj or {}).get("spec")
    return spec if isinstance(spec, Mapping) else {}
