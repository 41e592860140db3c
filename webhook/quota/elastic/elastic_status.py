"""Status of an elastic quota: what its namespaces hold, what is borrowed and lent.

```yaml
status:
  used: {cpu: "5"}          # held by its namespaces, reservations of requests included
  borrowed: {cpu: "1"}      # above min
  lent: {cpu: "0"}          # of min, what others hold
  guaranteed: {cpu: "2"}    # beyond min, whatever others want
  summary: cpu 5/4          # used/min, for people
  conditions:
  - {type: Charged, status: "True", reason: AllCharged}
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, to_text
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.fair_share import Pool, Usage, nanos
from webhook.quota.ledger.ledger_values import Condition

CHARGED = "Charged"
"""Type of the condition."""

DISABLED = Condition(CHARGED, "False", "Disabled", "elastic.enabled is false")
"""Condition of a quota that was charged before elastic quotas were switched off."""

_MAX_REFUSAL = 500
"""Characters of a refusal; a condition that is longer would not be read back."""
_NAMED = 5
"""How many namespaces a condition names."""


@dataclass(frozen=True)
class PoolUsage:
    """A pool, and what each of its quotas holds."""

    pool: Pool
    held: Mapping[str, ResourceList]
    """Key of a quota → what its namespaces hold."""

    @cached_property
    def figures(self) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
        """Resource → figure of a status → key of a quota → amount, 10⁻⁹ units.

        Each of them is worked out of all quotas.
        """
        usage: Usage = {key: nanos(amounts) for key, amounts in self.held.items()}
        return {
            resource: {
                "borrowed": self.pool.borrowed(resource, usage),
                "lent": self.pool.lent(resource, usage),
                "guaranteed": self.pool.guaranteed(resource, usage),
            }
            for resource in self.pool.resources
        }


def charged_condition(
    quota: ElasticQuota,
    *,
    outside: tuple[str, ...],
    uncharged: tuple[str, ...],
    taken: tuple[str, ...],
    refused: tuple[str, ...] = (),
    fault: str = "",
) -> Condition:
    """Return whether binds are charged by a quota that counts.

    Args:
        outside: Those of its namespaces that have not opted in, or do not exist.
        uncharged: Resources that it names and no bind is charged for.
        taken: Names of objects it would be charged by, which are of others.
        refused: Why the API server does not take objects that it has to be charged by.
        fault: What makes no sense in it, see `read_stored_quota`.
    """
    if taken:
        return Condition(
            CHARGED,
            "False",
            "NameTaken",
            f"ClusterDeferredQuota {taken[0]} is of others: delete it",
        )
    if len(outside) == len(quota.namespaces):
        message = f"no namespace has opted in: deferred-quota enable {quota.namespaces[0]}"
        return Condition(CHARGED, "False", "NotOptedIn", message)
    if refused:
        message = f"no bind is charged by these amounts: {refused[0][:_MAX_REFUSAL]}"
        return Condition(CHARGED, "False", "Refused", message)
    if fault:
        return Condition(CHARGED, "True", "Invalid", f"{fault}; what limits more counts")
    faults = []
    if uncharged:
        faults.append(f"no bind is charged for {_named(uncharged)}")
    if outside:
        number = f"{len(outside)} of {len(quota.namespaces)}"
        faults.append(f"{number} namespaces have not opted in or do not exist: {_named(outside)}")
    if faults:
        return Condition(CHARGED, "True", "PartlyCharged", "; ".join(faults))
    return Condition(CHARGED, "True", "AllCharged")


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def elastic_status(quota: ElasticQuota, pool: PoolUsage) -> dict[str, object]:
    """Return the status of a quota but its conditions."""
    held = pool.held.get(quota.key, {})
    figures: dict[str, dict[str, Quantity]] = {"borrowed": {}, "lent": {}, "guaranteed": {}}
    for resource, of_resource in pool.figures.items():
        if resource not in quota.names:
            continue
        style = quota.min.get(resource, held.get(resource, ZERO)).format
        for name, found in of_resource.items():
            figures[name][resource] = Quantity.of_nano(found[quota.key], style)
    summary = [f"{name} {amount}/{quota.min.get(name, ZERO)}" for name, amount in held.items()]
    return {
        "used": to_text(held),
        **{name: to_text(amounts) for name, amounts in figures.items()},
        "summary": "; ".join(summary),
    }
