"""What the namespaces hold of a quota that they share: the status of a ClusterDeferredQuota.

```yaml
status:
  observed: {uid: ..., specHash: ...}   # the spec that `namespaces` is complete for
  namespaces:
  - name: team-a
    granted: {requests.cpu: "7"}
  serial: 12                            # every write raises it
  hard: {requests.cpu: "20"}            # for people
  used: {requests.cpu: "7"}             # for people: the sum of what is granted
  members: 1                            # for people
  summary: requests.cpu 7/20            # for people
  conditions: []
```

What may be written when, and why that is safe, is said in `escrow`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, mapping, sequence, text
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, add, max_of
from webhook.quota.ledger.ledger_codec import conditions_in, conditions_out, counter
from webhook.quota.ledger.ledger_values import Condition, QuotaRevision
from webhook.quota.ledger.reservation_codec import amounts_in, amounts_out, check_positive
from webhook.quota.shared.cluster_quotas import ledger_name

_FIELDS: Final = frozenset(
    {
        "observed", "namespaces", "serial", "hard", "used", "members", "summary", "conditions",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grants:
    """What each namespace holds of one quota."""

    namespaces: Mapping[str, ResourceList] = field(default_factory=dict)
    """Namespace → what it holds. A namespace that is not named takes no part yet, or no more."""
    observed: QuotaRevision | None = None
    """The object and spec for which all are named that take part; None before that."""
    sequence: int = 0
    """How often it was written."""
    conditions: tuple[Condition, ...] = ()
    """What the leader says of it, for people."""
    unknown_fields: Mapping[str, object] = field(default_factory=dict)
    """Fields of the status that this version of the program does not know."""
    _total: ResourceList | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def total(self) -> ResourceList:
        """What all of them hold together."""
        if self._total is None:
            total: ResourceList = {}
            for granted in self.namespaces.values():
                total = add(total, granted)
            object.__setattr__(self, "_total", total)
            return total
        return self._total

    def held_elsewhere(self, namespace: str) -> ResourceList:
        """Return what the other namespaces hold together."""
        own = self.namespaces.get(namespace, {})
        return {name: amount - own.get(name, ZERO) for name, amount in self.total.items()}


NO_GRANTS: Final = Grants()


def with_raised(grants: Grants, namespace: str, need: ResourceList) -> Grants:
    """Let a namespace hold at least `need`; it takes part from now on."""
    held = max_of(grants.namespaces.get(namespace, {}), need)
    return _with(grants, {**grants.namespaces, namespace: held})


def with_lowered(grants: Grants, namespace: str, need: ResourceList) -> Grants:
    """Let a namespace that takes part hold `need` and no more."""
    return _with(grants, {**grants.namespaces, namespace: need})


def without(grants: Grants, namespace: str) -> Grants:
    """Let a namespace hold nothing and take no part any more."""
    left = {name: held for name, held in grants.namespaces.items() if name != namespace}
    return _with(grants, left)


def mark_complete(grants: Grants, observed: QuotaRevision) -> Grants:
    """Return the grants with all namespaces named that take part by this spec."""
    return replace(grants, observed=observed, sequence=grants.sequence + 1)


def mark_incomplete(grants: Grants) -> Grants:
    """Return the grants without the claim to be complete."""
    return replace(grants, observed=None, sequence=grants.sequence + 1)


def grants_status(grants: Grants, hard: ResourceList) -> dict[str, object]:
    """Write `grants` as the status of a ClusterDeferredQuota, for `encoding.encode_json`.

    Args:
        grants: What the namespaces hold.
        hard: The quota's ceilings, for people.
    """
    observed = grants.observed
    named = (
        {}
        if observed is None
        else {"observed": {"uid": observed.uid, "specHash": observed.spec_hash}}
    )
    used = {name: grants.total.get(name, ZERO) for name in hard}
    return {
        **grants.unknown_fields,
        **named,
        "namespaces": [
            {"name": name, "granted": amounts_out(held)}
            for name, held in sorted(grants.namespaces.items())
        ],
        "serial": grants.sequence,
        "hard": amounts_out(hard),
        "used": amounts_out(used),
        "members": len(grants.namespaces),
        "summary": ", ".join(f"{name} {used[name]}/{hard[name]}" for name in sorted(hard)),
        **conditions_out(grants.conditions),
    }


def grants_from_status(raw: object, name: str, *, field: str = "status") -> Grants:
    """Read the status of the ClusterDeferredQuota `name`; an absent one grants nothing.

    Raises:
        InvalidFieldError: Something in it cannot be read; the error has the path.
    """
    status = mapping(raw, field)
    namespaces: dict[str, ResourceList] = {}
    for index, item in enumerate(sequence(status.get("namespaces"), f"{field}.namespaces")):
        path = f"{field}.namespaces[{index}]"
        one = mapping(item, path)
        namespace = text(one.get("name"), f"{path}.name")
        if not namespace or namespace in namespaces:
            raise InvalidFieldError(f"{path}.name", "must be given, and once")
        granted = amounts_in(one.get("granted"), field=f"{path}.granted")
        check_positive(granted, f"{path}.granted")
        namespaces[namespace] = granted
    return Grants(
        namespaces,
        _observed_in(status.get("observed"), name, f"{field}.observed"),
        sequence=counter(status, "serial", field),
        conditions=conditions_in(status.get("conditions")),
        unknown_fields={key: value for key, value in status.items() if key not in _FIELDS},
    )


def _observed_in(raw: object, name: str, field: str) -> QuotaRevision | None:
    if raw is None:
        return None
    observed = mapping(raw, field)
    return QuotaRevision(
        ledger_name(name),
        text(observed.get("uid"), f"{field}.uid"),
        text(observed.get("specHash"), f"{field}.specHash"),
    )


def _with(grants: Grants, namespaces: Mapping[str, ResourceList]) -> Grants:
    return replace(grants, namespaces=namespaces, sequence=grants.sequence + 1)
