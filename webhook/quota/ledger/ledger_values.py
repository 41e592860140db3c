"""Values of a ledger: its accounts, its reservations, and claims on it.

The laws stand in `webhook.quota.ledger.ledger`, which is also where these names are imported from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList

NEWEST: Final = 2**64
"""`Claim.observed_version` of a pod that came with the request itself: storage writes it as it came
or not at all, so no view of it can be too old."""

EMPTY: ResourceList = MappingProxyType({})
NO_PROMISES: Final[Mapping[str, ResourceList]] = MappingProxyType({})


class ReservationSource(StrEnum):
    """The request by which a pod takes resources."""

    CREATE = "Create"
    BIND = "Bind"
    RESIZE = "Resize"
    UPDATE = "Update"
    RELEASE = "Release"
    """No request: our scheduling gate is removed, so that the pod may be bound."""


@dataclass(frozen=True, slots=True)
class QuotaRevision:
    """State of a quota object: its identity and the hash of its spec."""

    name: str
    uid: str
    spec_hash: str


@dataclass(frozen=True, slots=True)
class Account:
    """One quota in the ledger."""

    observed: QuotaRevision
    """The quota object that `used` was counted for."""
    hard: ResourceList
    """Ceilings of the deferred resources only."""
    used: ResourceList
    """Usage of assigned pods, as far as the controller has counted them."""
    reserved: ResourceList = field(default_factory=dict)
    """Sum of what the ledger's reservations hold in this quota."""
    pending: ResourceList = field(default_factory=dict)
    """What unassigned pods ask for; shown, never enforced."""
    granted: ResourceList = field(default_factory=dict)
    """Of a quota that namespaces share, what this one holds of it (`escrow`)."""
    used_elsewhere: ResourceList = field(default_factory=dict, repr=False, compare=False)
    """Of such a quota, what the other namespaces hold, and all that is promised and kept, as far as
    it was known when the ledger was decided by. It is not written."""
    promised: Mapping[str, ResourceList] = field(
        default_factory=lambda: NO_PROMISES, repr=False, compare=False
    )
    """The part of `used_elsewhere` that is held for single pods, by uid, in the order in which it
    was promised: an earlier one may take what is held for later ones."""
    kept_from: Mapping[str, ResourceList] = field(
        default_factory=lambda: NO_PROMISES, repr=False, compare=False
    )
    """What is kept of that for the namespaces of later ones, by the uid of the earlier one."""
    unheld: ResourceList = field(default_factory=dict, repr=False, compare=False)
    """The part of `used_elsewhere` that no namespace holds: all that is promised and kept."""
    _written: object = field(default=None, init=False, repr=False, compare=False)
    """The written form of all but `reserved`, kept by `ledger_codec`."""

    @property
    def has_headroom(self) -> bool:
        """Whether the namespace holds more of a shared quota than is used and reserved."""
        return any(
            held > self.used.get(name, ZERO) + self.reserved.get(name, ZERO)
            for name, held in self.granted.items()
            if name in self.hard
        )

    def promised_from(self, uid: str) -> Sequence[str]:
        """Return a pod to which something is promised, and those after it; their uids."""
        order = [*self.promised]
        return order[order.index(uid) :]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Amounts that one pod has been promised and `used` may not contain yet."""

    uid: str
    pod: str
    """The pod's name, for people."""
    source: ReservationSource
    """The last request that changed it."""
    usage: ResourceList
    """All that the pod takes once its requests are stored, deferred resources only."""
    charges: Mapping[str, ResourceList]
    """Quota name → what is held there beyond what its `used` contains of the pod."""
    quotas: tuple[str, ...]
    """Every quota that `usage` may concern; at least the keys of `charges`."""
    serial: int
    """The ledger's number of the claim that wrote it last; never used twice."""
    base_version: int = 0
    """The pod's version that an update is conditional on. Once the pod has a later one, the update
    has been stored or has to be decided again. 0: no update."""
    is_intent: bool = False
    """The pod is not being assigned; nothing is held."""
    is_capped: bool = False
    """Less is held than the pod takes, because `hard` has no more. The controller fills it up with
    whatever is given back, before anything else is admitted."""
    _written: object = field(default=None, init=False, repr=False, compare=False)
    """Its written form, kept by `reservation_codec`: a ledger is written far more often than it
    changes."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim of a handler on the ledger for one pod."""

    uid: str
    pod: str
    source: ReservationSource
    usage: ResourceList
    """All that the pod takes once the request is stored, deferred resources only."""
    quotas: tuple[str, ...]
    """Names of the quotas that then apply to the pod."""
    counted: Mapping[str, ResourceList] = field(default_factory=dict)
    """Quota name → what that quota has been charged for the stored pod already. A quota that did
    not apply before is absent."""
    base_version: int = 0
    """For an update of a pod, the pod's version that it is conditional on; else 0."""
    observed_version: int = 0
    """How far the handler had seen pods when it looked this one up; `NEWEST` when it did not have
    to. A handler that asked the API server may put the barrier of the ledger that it knew before it
    asked."""
    is_intent: bool = False
    """The pod is not assigned and this request does not assign it."""
    skip_limits: bool = False
    """The pod runs whatever is decided, so it is not refused: what its quotas have left is reserved
    for it, up to all that it takes."""


OPTED_OUT: Final = "OptedOut"
"""Reason of the condition `Counted` of a ledger whose namespace has opted out."""
GUARDED: Final = "Guarded"
"""Type of the condition that names the registration under which a ledger was counted.

A condition, because a controller that does not know it drops it: what it counts then is judged as
if no registration were named.
"""
NO_GUARD: Final = "none"
"""Mark of a ledger that was first counted while there was no registration."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of the ledger, for people and monitoring; none decides anything but `GUARDED`."""

    type: str
    """What is said, such as `Counted`."""
    status: str
    reason: str = ""
    """Why, as one word."""
    message: str = ""
    """Why, as a sentence."""
    last_transition_time: str = ""
    """When `status` last changed, RFC 3339."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Every account and reservation of a namespace at one version."""

    accounts: Mapping[str, Account]
    """Quota name → account."""
    reservations: Mapping[str, Reservation]
    """Pod uid → reservation."""
    pods_resource_version: int = 0
    """How far the controller had seen pods when it last counted."""
    serial: int = 0
    """How many claims have been written so far."""
    pods_barrier: int = 0
    """The barrier: a handler whose view of the pods is older than this resource version may not
    have seen a change whose reservation is dropped by now; it has to ask the API server."""
    conditions: tuple[Condition, ...] = ()
    """What the controller says of it; handlers hand them on as they are."""
    unknown_fields: Mapping[str, object] = field(default_factory=dict)
    """Fields of the status that this version of the program does not know. A newer one wrote them,
    and runs beside this one."""
    _observed: frozenset[QuotaRevision] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _capped: tuple[Reservation, ...] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _derived: object = field(default=None, init=False, repr=False, compare=False)
    """What is derived, as it stood where the ledger was read; kept by `ledger_codec`."""

    @property
    def observed(self) -> frozenset[QuotaRevision]:
        """The quota objects that were counted."""
        if self._observed is None:
            observed = frozenset(account.observed for account in self.accounts.values())
            object.__setattr__(self, "_observed", observed)
            return observed
        return self._observed

    @property
    def guard_uid(self) -> str:
        """Uid of the guard's registration, up to which all was counted that was bound unasked.

        Empty where that is not known.
        """
        return next((one.message for one in self.conditions if one.type == GUARDED), "")

    @property
    def capped(self) -> tuple[Reservation, ...]:
        """The reservations that hold less than their pods may take."""
        if self._capped is None:
            capped = tuple([one for one in self.reservations.values() if one.is_capped])
            object.__setattr__(self, "_capped", capped)
            return capped
        return self._capped

    @property
    def reserved_uids(self) -> frozenset[str]:
        """Uids of the pods for which something is reserved; see `is_reserved`."""
        return frozenset([uid for uid, one in self.reservations.items() if not one.is_intent])

    def is_reserved(self, uid: str) -> bool:
        """Return whether something is reserved for a pod: an intent holds nothing."""
        reservation = self.reservations.get(uid)
        return reservation is not None and not reservation.is_intent


def reserved_by(reservations: Iterable[Reservation]) -> dict[str, ResourceList]:
    """Sum what reservations hold: quota name → amounts."""
    sums: dict[str, dict[str, Quantity]] = {}
    for reservation in reservations:
        for name, charge in reservation.charges.items():
            total = sums.get(name)
            if total is None:
                sums[name] = dict(charge)
                continue
            for resource, amount in charge.items():
                before = total.get(resource)
                total[resource] = amount if before is None else before + amount
    return {**sums}
