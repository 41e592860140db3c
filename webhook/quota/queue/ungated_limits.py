"""Ungated limits: up to which size new pods of a namespace are created without our gate.

The API server gates pods by a policy that knows no quota. What it goes by instead is one small
object per namespace, which says of each resource how much a pod may take and still go ungated. An
ungated pod goes to the scheduler at once and is charged at its bind like any other, so what is said
here protects no quota; it decides about order, and about binds that are tried in vain.

Where half of a limit is left beside what is taken, in flight and queued, a pod may take half of
that and go ungated; then it is a half of a fourth, then of an eighth. Where less is left the most
is zero: every pod that takes anything of that resource is gated. Pods that came while the API
server went by an older object are at worst refused at their bind. A level is left at once and
reached again only with a fourth more than it needs, so that pods which come and go do not have the
object written each time. Of a shared quota it is a fourth of what is left, because pods in flight
elsewhere are not seen. No pod goes ungated that takes of an elastic pool: others may borrow what is
left before it has a node, and owners get that back for pods behind our gate only. None does while
so much is reserved that its bind might find no room in the ledger (`ledger.ledger_room`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add
from webhook.quota.charging.constraints import KEYS_OF_LIMITS, KEYS_OF_REQUESTS
from webhook.quota.charging.denials import name_quota
from webhook.quota.ledger.ledger_room import is_crowded
from webhook.quota.ledger.ledger_values import Account, Ledger
from webhook.quota.objects.names import SHARED_PREFIX

LEVELS: Final = (2, 4, 8)
"""What has to be left of a limit: a half, a fourth, an eighth of it."""
_PART: Final = 2
"""Which part of that a pod may take and go ungated: a half,"""
_PART_OF_SHARED: Final = 4
"""and of a shared quota a fourth."""
_REACHED_AGAIN: Final = (5, 4)
"""How much more than needed has to be left for a level that is reached again."""
_CROWDED: Final = "many pods hold reservations"
_UNIT: Final = Quantity.of_units(1).nano
_EXTENDED: Final = "requests."
_REQUESTS: Final = "requests"
_LIMITS: Final = "limits"


@dataclass(frozen=True, slots=True)
class UngatedLimits:
    """Limits of new pods that are created without our gate; what is not named is not limited."""

    requests: ResourceList = field(default_factory=dict)
    """Resource of a container's requests → the most that a pod may request of it."""
    limits: ResourceList = field(default_factory=dict)
    """The same of its limits."""
    gates_extended: bool = False
    """Whether pods are gated that name a resource with a domain: what they take of some quota is
    worked out from it."""
    gates_all: bool = False
    """Whether every pod is gated."""
    reason: str = ""
    """Why pods are gated that are not large, for people; empty while there is plenty."""

    @property
    def is_open(self) -> bool:
        """Whether pods of a size that is not unusual go ungated."""
        return not self.reason

    def gates_more_than(self, former: UngatedLimits) -> bool:
        """Return whether some pod is gated by these limits that was not by former ones."""
        return (
            self.gates_all > former.gates_all
            or self.gates_extended > former.gates_extended
            or _is_tighter(self.requests, former.requests)
            or _is_tighter(self.limits, former.limits)
        )


def _is_tighter(amounts: ResourceList, former: ResourceList) -> bool:
    return any(name not in former or amount < former[name] for name, amount in amounts.items())


def ungated_limits(
    ledger: Ledger | None,
    *,
    is_counted: bool,
    in_flight: ResourceList,
    queued: ResourceList | None,
    max_reservations: int,
    former: UngatedLimits | None = None,
) -> UngatedLimits:
    """Return up to which size new pods go ungated.

    Args:
        ledger: The ledger; of shared quotas with what is held elsewhere (`escrow.beside`).
        is_counted: Whether it has counted the quotas as they are known now.
        in_flight: Usage of the pods without gate and node for which nothing is reserved.
        queued: Usage of the pods that are queued for room; None where there are too many to sum.
        max_reservations: How many reservations the ledger may have.
        former: The limits that are stored.
    """
    if ledger is None or not is_counted:
        return UngatedLimits(gates_all=True, reason="usage is being counted")
    if queued is None:
        return UngatedLimits(gates_all=True, reason="many pods are queued")
    was_crowded = former is not None and former.reason == _CROWDED
    if is_crowded(ledger, max_reservations, was_crowded=was_crowded):
        return UngatedLimits(gates_all=True, reason=_CROWDED)
    demand = add(in_flight, queued)
    rooms: dict[tuple[str, str], list[_Room]] = {}
    gates_extended = False
    for name, account in sorted(ledger.accounts.items()):
        for key, hard in sorted(account.hard.items()):
            place = _place(key)
            if place is None:
                gates_extended = True
            else:
                levels = _levels(hard, name, is_whole="/" in place[1])
                room = _Room(name, key, levels, _free(account, key, demand))
                rooms.setdefault(place, []).append(room)
    return _limits(rooms, former, gates_extended=gates_extended)


@dataclass(frozen=True, slots=True)
class _Room:
    """Room that a quota has for a resource."""

    quota: str
    key: str
    levels: Mapping[Quantity, int]
    """The most that a pod may take → what has to be left for it, in 10^-9."""
    free: Quantity

    @property
    def reason(self) -> str:
        """Why pods are gated that are not large; empty where the limit itself is too small."""
        name = name_quota(self.quota)
        if name.is_pool:
            return f"{name.text}: its owners come first"
        if self.levels and self.most(is_risen=True) == ZERO:
            return f"{name.text}: little {name.resource(self.key)} is left"
        return ""

    def most(self, *, is_risen: bool) -> Quantity:
        """Return the most that a pod may take, zero where it is to take none.

        Args:
            is_risen: Whether that is to be more than before, for which more has to be left.
        """
        more, than = _REACHED_AGAIN if is_risen else (1, 1)
        for most, left in self.levels.items():
            if self.free.nano >= left * more // than:
                return most
        return ZERO


def _limits(
    rooms: Mapping[tuple[str, str], Sequence[_Room]],
    former: UngatedLimits | None,
    *,
    gates_extended: bool,
) -> UngatedLimits:
    """Return the limits by room in all quotas, of which the smallest counts."""
    made: dict[str, dict[str, Quantity]] = {_REQUESTS: {}, _LIMITS: {}}
    reasons: list[str] = []
    for (stated, resource), found in rooms.items():
        most = min(room.most(is_risen=False) for room in found)
        if former is not None:
            said = former.requests if stated == _REQUESTS else former.limits
            risen = min(room.most(is_risen=True) for room in found)
            most = max(risen, min(most, said.get(resource, most)))
        made[stated][resource] = most
        if most == ZERO:
            # without the amounts, by which the object would have to be written all the time
            reasons += [room.reason for room in found if room.reason not in ("", *reasons)]
    return UngatedLimits(made[_REQUESTS], made[_LIMITS], gates_extended, reason="; ".join(reasons))


def _place(key: str) -> tuple[str, str] | None:
    """Return where containers state what a key of a quota limits, and as which resource."""
    if key in KEYS_OF_REQUESTS:
        return _REQUESTS, KEYS_OF_REQUESTS[key]
    if key in KEYS_OF_LIMITS:
        return _LIMITS, KEYS_OF_LIMITS[key]
    return (_REQUESTS, key.removeprefix(_EXTENDED)) if key.startswith(_EXTENDED) else None


def _free(account: Account, key: str, demand: ResourceList) -> Quantity:
    return (
        account.hard[key]
        - account.used.get(key, ZERO)
        - account.reserved.get(key, ZERO)
        - account.used_elsewhere.get(key, ZERO)
        - demand.get(key, ZERO)
    )


def _levels(hard: Quantity, quota: str, *, is_whole: bool) -> dict[Quantity, int]:
    """Return the most that a pod may take → what has to be left for it, in 10^-9; no zeros.

    Args:
        is_whole: Whether containers name whole units of the resource only.
    """
    if name_quota(quota).is_pool:
        return {}
    part = _PART_OF_SHARED if quota.startswith(SHARED_PREFIX) else _PART
    unit = _UNIT if is_whole else 1
    nanos = (hard.nano // (level * part) // unit * unit for level in LEVELS)
    return {Quantity.of_nano(nano, hard.format): nano * part for nano in nanos if nano}


def to_spec(limits: UngatedLimits) -> dict[str, object]:
    """Return the form in which the limits are stored."""
    return {
        "state": "Open" if limits.is_open else "Closed",
        "requests": _text(limits.requests),
        "limits": _text(limits.limits),
        "gatesExtended": limits.gates_extended,
        "gatesAll": limits.gates_all,
        "reason": limits.reason,
    }


def _text(amounts: ResourceList) -> dict[str, str]:
    # a part of a binary amount may have no suffix: it is read as decimal, and prints another text
    return {name: str(Quantity.parse(str(amount))) for name, amount in sorted(amounts.items())}


def from_spec(spec: Mapping[str, object]) -> UngatedLimits | None:
    """Return stored limits; None where they are not as `to_spec` writes them."""
    requests, limits = _amounts(spec.get("requests")), _amounts(spec.get("limits"))
    if requests is None or limits is None:
        return None
    found = UngatedLimits(
        requests,
        limits,
        spec.get("gatesExtended") is True,
        spec.get("gatesAll") is True,
        str(spec.get("reason", "")),
    )
    return found if to_spec(found) == spec else None


def _amounts(raw: object) -> ResourceList | None:
    if not isinstance(raw, Mapping):
        return None
    try:
        return {str(name): Quantity.parse(str(amount)) for name, amount in raw.items()}
    except ValueError:
        return None
