"""Grants of a quota that namespaces share: the status of a ClusterDeferredQuota.

```yaml
status:
  format: 1
  observed: {uid: ..., specHash: ...}   # the spec that `namespaces` is complete for
  namespaces:
  - name: team-a
    granted: {requests.cpu: "7"}
    headroom: {requests.cpu: "2"}       # of it, what may be unused
  isRecalled: true                      # pods lack what others hold unused: none is given
  promises:                             # held for one pod each, the earliest first
  - {uid: ..., namespace: team-b, pod: web-1, amounts: {requests.cpu: "2"}}
  serial: 12                            # every write raises it
  hard: {requests.cpu: "20"}            # for people
  used: {requests.cpu: "5"}             # for people: the sum of what is granted, without headroom
  members: 1                            # for people
  summary: requests.cpu 5/20            # for people
  conditions: []
```

What may be written when, and why that is safe, is said in `escrow`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.jsonfields.fields import (
    InvalidFieldError,
    check_format,
    mapping,
    sequence,
    text,
)
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import (
    ResourceList,
    mask,
    max_of,
    subtract_non_negative,
    total_of,
)
from webhook.quota.ledger.ledger_codec import conditions_in, conditions_out, counter
from webhook.quota.ledger.ledger_values import Condition, QuotaRevision
from webhook.quota.ledger.reservation_codec import amounts_in, amounts_out, check_positive
from webhook.quota.shared.cluster_quotas import ledger_name

_FIELDS: Final = frozenset(
    {
        "format", "observed", "namespaces", "promises", "serial", "hard", "used", "members",
        "summary", "conditions", "isRecalled",
    }
)  # fmt: skip
FORMAT: Final = 1
"""Version of the format, as that of a ledger: without one it is of the first."""
MAX_PROMISES: Final = 256
"""Of one quota, so that its status has a bound."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Amounts that are held of a quota for one pod, while pods that make room for it are ending.

    It is made and withdrawn by the leader. Of other pods, of whichever namespace, only those that
    were promised something before may be admitted by it; so what is freed cannot be taken by
    another. It may be made before there is room.
    """

    uid: str
    """The pod."""
    namespace: str
    pod: str
    """The pod's name."""
    amounts: ResourceList
    """What it requests of what the quota limits."""


@dataclass(frozen=True, slots=True)
class Grants:
    """Amounts that each namespace holds of one quota."""

    namespaces: Mapping[str, ResourceList] = field(default_factory=dict)
    """Namespace → what it holds. A namespace that is not named takes no part yet, or no more."""
    observed: QuotaRevision | None = None
    """The object and spec for which all are named that take part; None before that."""
    serial: int = 0
    """How often it was written."""
    conditions: tuple[Condition, ...] = ()
    """What the leader says of it, for people."""
    unknown_fields: Mapping[str, object] = field(default_factory=dict)
    """Fields of the status that this version of the program does not know."""
    promises: Mapping[str, Promise] = field(default_factory=dict)
    """Pod uid → what is held for it, in the order in which it was promised."""
    headroom: Mapping[str, ResourceList] = field(default_factory=dict)
    """Namespace → about how much of what it holds it does not use. Binds use it up without a write
    of it here. Nothing is admitted or refused by it alone."""
    is_recalled: bool = False
    """Whether headroom was in the way of a pod, and none is given until the leader says so."""
    _total: ResourceList | None = field(default=None, init=False, repr=False, compare=False)
    _in_use: Mapping[str, ResourceList] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _derived: object = field(default=None, init=False, repr=False, compare=False)
    """What is there for people, as it stood where the grants were read."""

    @property
    def total(self) -> ResourceList:
        """Sum of what all of them hold."""
        if self._total is None:
            total = total_of(self.namespaces.values())
            object.__setattr__(self, "_total", total)
            return total
        return self._total

    def held_elsewhere(self, namespace: str) -> ResourceList:
        """Return what the other namespaces hold together."""
        own = self.namespaces.get(namespace, {})
        return {name: amount - own.get(name, ZERO) for name, amount in self.total.items()}

    def headroom_elsewhere(self, namespace: str) -> ResourceList:
        """Return the headroom of the other namespaces together."""
        others = (unused for name, unused in self.headroom.items() if name != namespace)
        return total_of(others)

    @property
    def in_use(self) -> Mapping[str, ResourceList]:
        """Namespace → what it holds without its headroom; worked out once, as many ask for it."""
        if not self.headroom:
            return self.namespaces
        if self._in_use is None:
            in_use = {
                name: subtract_non_negative(held, mask(self.headroom.get(name, {}), held))
                for name, held in self.namespaces.items()
            }
            object.__setattr__(self, "_in_use", in_use)
            return in_use
        return self._in_use

    @property
    def without_headroom(self) -> Grants:
        """The same, as if no namespace held more than it uses."""
        return replace(self, namespaces=self.in_use, headroom={})


NO_GRANTS: Final = Grants()


def with_raised(grants: Grants, namespace: str, wanted: ResourceList) -> Grants:
    """Let a namespace hold at least `wanted`; it takes part from now on."""
    held = max_of(grants.namespaces.get(namespace, {}), wanted)
    return _with(grants, {**grants.namespaces, namespace: held})


def with_lowered(grants: Grants, namespace: str, held: ResourceList) -> Grants:
    """Let a namespace that takes part hold `held` and no more."""
    return _with(grants, {**grants.namespaces, namespace: held})


def with_headroom(grants: Grants, namespace: str, unused: ResourceList) -> Grants:
    """Note what a namespace does not use of what it holds; a part of a write that changes more."""
    left = {name: one for name, one in grants.headroom.items() if name != namespace}
    given = {name: amount for name, amount in unused.items() if amount > ZERO}
    return replace(grants, headroom={**left, namespace: given} if given else left)


def with_recall(grants: Grants, *, is_recalled: bool) -> Grants:
    """Ask for all headroom, or let it be given again."""
    return replace(grants, is_recalled=is_recalled, serial=grants.serial + 1)


def without(grants: Grants, namespaces: Collection[str]) -> Grants:
    """Return grants in which some namespaces hold nothing and take no part any more."""
    left, headroom = (
        {name: held for name, held in amounts.items() if name not in namespaces}
        for amounts in (grants.namespaces, grants.headroom)
    )
    return replace(_with(grants, left), headroom=headroom)


def with_promise(grants: Grants, promise: Promise) -> Grants:
    """Hold something for one pod, in the place of what was held for it.

    Raises:
        ValueError: There are `MAX_PROMISES` already.
    """
    if promise.uid not in grants.promises and len(grants.promises) >= MAX_PROMISES:
        raise ValueError(f"{MAX_PROMISES} promises are made already")
    promises = {**grants.promises, promise.uid: promise}
    return replace(grants, promises=promises, serial=grants.serial + 1)


def may_promise(own: int, others: int) -> bool:
    """Return whether an elastic quota may get one more promise of a pool.

    It gets at most half of what others leave. A tenant chooses how many of its pods wait, and how
    slowly those end that make room for them: one quota would have all promises for as long.

    Args:
        own: How many it has.
        others: How many the other quotas of the pool have.
    """
    return own < (MAX_PROMISES - others + 1) // 2


def without_promises(grants: Grants, uids: Iterable[str]) -> Grants:
    """Hold nothing for some pods any more."""
    dropped = frozenset(uids)
    promises = {uid: one for uid, one in grants.promises.items() if uid not in dropped}
    return replace(grants, promises=promises, serial=grants.serial + 1)


def mark_complete(grants: Grants, observed: QuotaRevision) -> Grants:
    """Return the grants with all namespaces named that take part by this spec."""
    return replace(grants, observed=observed, serial=grants.serial + 1)


def mark_incomplete(grants: Grants) -> Grants:
    """Return the grants without the claim to be complete."""
    return replace(grants, observed=None, serial=grants.serial + 1)


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
    return {
        **grants.unknown_fields,
        "format": FORMAT,
        **named,
        "namespaces": [
            {"name": name, "granted": amounts_out(held), **_headroom_out(grants, name)}
            for name, held in sorted(grants.namespaces.items())
        ],
        **({"isRecalled": True} if grants.is_recalled else {}),
        **_promises_out(grants.promises),
        "serial": grants.serial,
        **_derived(grants, hard),
        **conditions_out(grants.conditions),
    }


def _derived(grants: Grants, hard: ResourceList) -> dict[str, object]:
    total = grants.total if not grants.headroom else total_of(grants.in_use.values())
    used = {name: total.get(name, ZERO) for name in hard}
    return {
        "hard": amounts_out(hard),
        "used": amounts_out(used),
        "members": len(grants.namespaces),
        "summary": ", ".join(f"{name} {used[name]}/{hard[name]}" for name in sorted(hard)),
    }


def is_derived_edited(grants: Grants, hard: ResourceList) -> bool:
    """Return whether another client has changed what is there for people, or `hard` was edited."""
    read = grants._derived  # noqa: SLF001 - kept for this module
    return read is not None and read != _derived(grants, hard)


def grants_from_status(raw: object, name: str) -> Grants:
    """Read the status of the ClusterDeferredQuota `name`; an absent one grants nothing.

    Raises:
        NewerFormatError: A newer release wrote it.
        InvalidFieldError: Something in it cannot be read; the error has the path.
    """
    status = mapping(raw, "status")
    check_format(status, "status", FORMAT)
    namespaces: dict[str, ResourceList] = {}
    headroom: dict[str, ResourceList] = {}
    for index, item in enumerate(sequence(status.get("namespaces"), "status.namespaces")):
        path = f"status.namespaces[{index}]"
        one = mapping(item, path)
        namespace = text(one.get("name"), f"{path}.name")
        if not namespace or namespace in namespaces:
            raise InvalidFieldError(f"{path}.name", "must be given, and once")
        granted = amounts_in(one.get("granted"), field=f"{path}.granted")
        check_positive(granted, f"{path}.granted")
        namespaces[namespace] = granted
        if "headroom" in one:
            unused = headroom[namespace] = amounts_in(one["headroom"], field=f"{path}.headroom")
            check_positive(unused, f"{path}.headroom")
    grants = Grants(
        namespaces,
        _observed_in(status.get("observed"), name, "status.observed"),
        serial=counter(status, "serial", "status"),
        conditions=conditions_in(status.get("conditions")),
        unknown_fields={key: value for key, value in status.items() if key not in _FIELDS},
        promises=_promises_in(status.get("promises"), "status.promises"),
        headroom=headroom,
        is_recalled=status.get("isRecalled") is True,
    )
    derived = {key: status.get(key) for key in ("hard", "used", "members", "summary")}
    object.__setattr__(grants, "_derived", derived)
    return grants


def _headroom_out(grants: Grants, namespace: str) -> dict[str, object]:
    # a version that does not know it writes the entries without it, and holds none itself
    unused = grants.headroom.get(namespace)
    return {"headroom": amounts_out(unused)} if unused else {}


def _promises_out(promises: Mapping[str, Promise]) -> dict[str, object]:
    if not promises:
        return {}
    written = [
        {
            "uid": one.uid,
            "namespace": one.namespace,
            "pod": one.pod,
            "amounts": amounts_out(one.amounts),
        }
        for one in promises.values()  # in the order in which they were made
    ]
    return {"promises": written}


def _promises_in(raw: object, field: str) -> dict[str, Promise]:
    promises: dict[str, Promise] = {}
    for index, item in enumerate(sequence(raw, field)):
        path = f"{field}[{index}]"
        one = mapping(item, path)
        uid = text(one.get("uid"), f"{path}.uid")
        if not uid or uid in promises:
            raise InvalidFieldError(f"{path}.uid", "must be given, and once")
        amounts = amounts_in(one.get("amounts"), field=f"{path}.amounts")
        check_positive(amounts, f"{path}.amounts")
        promises[uid] = Promise(
            uid,
            text(one.get("namespace"), f"{path}.namespace"),
            text(one.get("pod"), f"{path}.pod"),
            amounts,
        )
    return promises


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
    return replace(grants, namespaces=namespaces, serial=grants.serial + 1)
