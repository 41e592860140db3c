"""Objects of the core, read from the builders' API objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.builders import Object, a_pod, a_quota
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.objects.model import Pod, ResourceQuota, ScopeExpression


def amounts(**values: str) -> ResourceList:
    """A resource list; `requests_cpu` stands for `requests.cpu`."""
    return {name.replace("_", "."): Quantity.parse(value) for name, value in values.items()}


def pod_of(raw: Object | None = None, **fields: object) -> Pod:
    """A pod; without an object, of class `priorityClassName` and so on as the fields say."""
    return Pod.from_object(a_pod(**fields) if raw is None else raw)  # type: ignore[arg-type]


def quota_of(
    name: str = "team-a",
    *,
    hard: Mapping[str, object] | None = None,
    used: Mapping[str, object] | None = None,
    scopes: Sequence[str] = (),
    expressions: Sequence[Object] = (),
) -> ResourceQuota:
    """A ResourceQuota, as `a_quota` has it."""
    return ResourceQuota.from_object(
        a_quota(name, hard=hard, used=used, scopes=scopes, expressions=expressions)
    )


def expression_of(scope_name: str, operator: str = "Exists", *values: str) -> ScopeExpression:
    """A scope expression."""
    return ScopeExpression(scope_name, operator, values)
