"""The ledger as the status of a `QuotaLedger` object, and back.

```yaml
status:
  quotas:
  - name: p1
    observed: {uid: ..., specHash: ...}
    hard: {requests.cpu: "2"}
    used: {requests.cpu: 1500m}
    reserved: {requests.cpu: 500m}
    pending: {pods: "12", requests.cpu: "48"}
  reservations:
  - {uid: ..., pod: web-1, door: Bind, usage: {requests.cpu: 500m}, quotas: [p1], serial: 7}
  podsResourceVersion: "41234"
  podsBarrier: "40017"
  serial: 7
  summary: p1 requests.cpu 1500m+500m/2
  conditions:
  - {type: Counted, status: "True", reason: AllCounted, message: "", lastTransitionTime: ...}
```

A reservation that does not hold all of its usage in each of its quotas says so in `charges`. What
is derived (`reserved`, `summary`) is written for people and computed again when read.

Every write replaces the whole status, and doors write far more often than the tracker. What only
the tracker says (`conditions`), and fields that a newer version of the program has added, are
therefore read and written back by everybody. Conditions decide nothing: one that cannot be read
is dropped, and the tracker says it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

from webhook.encoding import encode_json, encode_part
from webhook.quota.fields import (
    InvalidFieldError,
    boolean,
    integer,
    key,
    mapping,
    sequence,
    text,
)
from webhook.quota.ledger import (
    NOTHING,
    Account,
    Condition,
    Door,
    Ledger,
    Observed,
    Reservation,
    reserved_by,
)
from webhook.quota.quantity import InvalidQuantityError, Quantity
from webhook.quota.resources import ResourceList, mask

_FIELDS: Final = frozenset(
    {
        "quotas", "reservations", "podsResourceVersion", "podsBarrier", "serial", "summary",
        "conditions",
    }
)  # fmt: skip


ReservationReader: TypeAlias = Callable[[object, str], Reservation]
"""Makes a reservation of an item of `reservations`; the text is the item's YAML path."""


def ledger_status(ledger: Ledger) -> dict[str, object]:
    """Write `ledger` as the status of a QuotaLedger, for `encoding.encode_json`."""
    written = [
        one._written or _write(one)  # noqa: SLF001 - the place is kept for this module
        for one in ledger.reservations.values()
    ]
    return _status_out(ledger, written)


def written_bytes(ledger: Ledger) -> int:
    """Return how long the status is as JSON, a comma more or less."""
    rest = len(encode_json(_status_out(ledger, ())))
    return rest + sum(map(written_bytes_of, ledger.reservations.values()))


def written_bytes_of(one: Reservation) -> int:
    """Return how long a reservation is as JSON, with its comma."""
    return len(encode_json(one._written or _write(one))) + 1  # noqa: SLF001 - as above


def _status_out(ledger: Ledger, reservations: Sequence[object]) -> dict[str, object]:
    return {
        **ledger.others,
        "quotas": [_account_out(account) for account in ledger.accounts.values()],
        "reservations": reservations,
        "podsResourceVersion": str(ledger.pods_resource_version),
        "podsBarrier": str(ledger.barrier),
        "serial": ledger.serial,
        "summary": summary(ledger),
        **_conditions_out(ledger.conditions),
    }


def ledger_from_status(
    raw: object, *, field: str = "status", reader: ReservationReader | None = None
) -> Ledger | None:
    """Read the status of a QuotaLedger; None when nothing has been counted yet.

    Args:
        raw: The decoded status.
        field: Its YAML path, for messages.
        reader: Reads one reservation at a path; by default `reservation_from`.

    Raises:
        InvalidFieldError: Something in it cannot be read; the error has the path.
    """
    status = mapping(raw, field)
    if "podsResourceVersion" not in status:
        return None
    read = reader or reservation_from
    reservations = {
        one.uid: one
        for index, item in enumerate(sequence(status.get("reservations"), f"{field}.reservations"))
        for one in [read(item, f"{field}.reservations[{index}]")]
    }
    reserved = reserved_by(reservations.values())
    accounts = {
        one.observed.name: one
        for index, item in enumerate(sequence(status.get("quotas"), f"{field}.quotas"))
        for one in [_account_in(item, reserved, f"{field}.quotas[{index}]")]
    }
    return Ledger(
        accounts,
        reservations,
        pods_resource_version=_version(status, "podsResourceVersion", field),
        serial=_counter(status, "serial", field),
        barrier=_version(status, "podsBarrier", field),
        conditions=_conditions_in(status.get("conditions")),
        others={name: value for name, value in status.items() if name not in _FIELDS},
    )


def summary(ledger: Ledger) -> str:
    """One line for people: each quota's deferred resources as used+reserved/hard."""
    return "; ".join(
        f"{account.observed.name} {_amounts(account)}"
        for account in ledger.accounts.values()
        if account.hard
    )


def _amounts(account: Account) -> str:
    parts: list[str] = []
    for name, hard in sorted(account.hard.items()):
        used = account.used.get(name, 0)
        reserved = account.reserved.get(name)
        held = f"+{reserved}" if reserved else ""
        parts.append(f"{name} {used}{held}/{hard}")
    return ", ".join(parts)


_NANO: Final = re.compile(r"-?[0-9]{1,100000}n", re.ASCII)
"""Amounts of pods have ten thousand digits at most; this leaves room for any sum of them."""

_INT64_NANO: Final = 2**63 * 10**9


def _amounts_out(resources: ResourceList) -> dict[str, str]:
    return {name: _exact_text(amount) for name, amount in resources.items()}


def _exact_text(amount: Quantity) -> str:
    """Write an amount so that it reads back as itself.

    The platform's own text does not always, above what an int64 holds: it leaves the suffix out
    where there is no letter for it, and is read capped where it is binary.
    """
    if abs(amount.nano) < _INT64_NANO:
        return str(amount)
    return f"{Decimal(amount.nano):f}n"


def _amounts_in(raw: object, *, field: str) -> dict[str, Quantity]:
    try:
        return {name: _exact_amount(value, "") for name, value in mapping(raw, field).items()}
    except InvalidQuantityError:
        pass  # read again with the paths, which are not worth building while all is well
    return {
        name: _exact_amount(value, key(field, name)) for name, value in mapping(raw, field).items()
    }


def _exact_amount(value: object, field: str) -> Quantity:
    if isinstance(value, str) and len(value) > 64 and _NANO.fullmatch(value):
        return Quantity.of_nano(int(Decimal(value[:-1])))
    return Quantity.from_json(value, field=field)


def _account_out(account: Account) -> dict[str, object]:
    rest = account._written or _write_account(account)  # noqa: SLF001 - kept for this module
    assert isinstance(rest, dict)  # noqa: S101 - only this module sets it
    return {**rest, "reserved": _amounts_out(mask(account.reserved, account.hard))}


def _write_account(account: Account) -> dict[str, object]:
    observed = account.observed
    written: dict[str, object] = {
        "name": observed.name,
        "observed": {"uid": observed.uid, "specHash": observed.spec_hash},
        "hard": _amounts_out(account.hard),
        "used": _amounts_out(account.used),
        "reserved": {},
        "pending": _amounts_out(account.pending),
    }
    object.__setattr__(account, "_written", written)
    return written


def _account_in(item: object, reserved: Mapping[str, ResourceList], field: str) -> Account:
    raw = mapping(item, field)
    observed = mapping(raw.get("observed"), f"{field}.observed")
    name = text(raw.get("name"), f"{field}.name")
    return Account(
        observed=Observed(
            name=name,
            uid=text(observed.get("uid"), f"{field}.observed.uid"),
            spec_hash=text(observed.get("specHash"), f"{field}.observed.specHash"),
        ),
        hard=_amounts_in(raw.get("hard"), field=f"{field}.hard"),
        used=_amounts_in(raw.get("used"), field=f"{field}.used"),
        reserved=reserved.get(name, NOTHING),
        pending=_amounts_in(raw.get("pending"), field=f"{field}.pending"),
    )


def _write(one: Reservation) -> object:
    written = encode_part(_reservation_out(one))
    object.__setattr__(one, "_written", written)
    return written


def _reservation_out(one: Reservation) -> dict[str, object]:
    out: dict[str, object] = {
        "uid": one.uid,
        "pod": one.pod,
        "door": one.door.value,
        "usage": _amounts_out(one.usage),
        "quotas": list(one.quotas),
        "serial": one.serial,
    }
    if one.is_intent:
        out["intent"] = True
    elif any(one.charges.get(name) != one.usage for name in one.quotas):
        out["charges"] = {name: _amounts_out(charge) for name, charge in one.charges.items()}
    if one.after:
        out["after"] = str(one.after)
    return out


def reservation_from(item: object, field: str) -> Reservation:
    """Read one item of `reservations`.

    Raises:
        InvalidFieldError: Something in it cannot be read; the error has the path.
    """
    raw = mapping(item, field)
    usage = _amounts_in(raw.get("usage"), field=f"{field}.usage")
    quotas = tuple(
        text(name, f"{field}.quotas[{index}]")
        for index, name in enumerate(sequence(raw.get("quotas"), f"{field}.quotas"))
    )
    is_intent = boolean(raw.get("intent"), f"{field}.intent")
    return Reservation(
        uid=_required(raw, "uid", field),
        pod=text(raw.get("pod"), f"{field}.pod"),
        door=_door(raw, field),
        usage=usage,
        charges={} if is_intent else _charges_in(raw, usage, quotas, field),
        quotas=quotas,
        serial=_counter(raw, "serial", field),
        after=_version(raw, "after", field),
        is_intent=is_intent,
    )


def _charges_in(
    raw: Mapping[str, object], usage: ResourceList, quotas: tuple[str, ...], field: str
) -> dict[str, ResourceList]:
    if "charges" not in raw:
        return dict.fromkeys(quotas, usage)
    charges = mapping(raw["charges"], f"{field}.charges")
    return {
        name: _amounts_in(charges.get(name), field=f"{field}.charges.{name}") for name in quotas
    }


def _conditions_out(conditions: Iterable[Condition]) -> dict[str, object]:
    written = [{"type": one.type, "status": one.status, **_given(one)} for one in conditions]
    return {"conditions": written} if written else {}


def _given(one: Condition) -> dict[str, object]:
    """Return what is not empty: an empty time is none to the API server."""
    known = {"reason": one.reason, "message": one.message, "lastTransitionTime": one.since}
    return {name: value for name, value in known.items() if value}


def _conditions_in(raw: object) -> tuple[Condition, ...]:
    """Read conditions; what cannot be read must not keep anybody from deciding."""
    if not isinstance(raw, list | tuple):
        return ()
    return tuple([found for item in raw if (found := _condition_in(item)) is not None])


def _condition_in(item: object) -> Condition | None:
    try:
        raw = mapping(item, "")
        return Condition(
            type=_required(raw, "type", ""),
            status=_required(raw, "status", ""),
            reason=text(raw.get("reason"), "reason"),
            message=text(raw.get("message"), "message"),
            since=text(raw.get("lastTransitionTime"), "lastTransitionTime"),
        )
    except InvalidFieldError:
        return None


def _counter(raw: Mapping[str, object], name: str, field: str) -> int:
    value = integer(raw.get(name), f"{field}.{name}") or 0
    if value < 0:
        raise InvalidFieldError(f"{field}.{name}", "must not be negative")
    return value


def _version(raw: Mapping[str, object], name: str, field: str) -> int:
    value = text(raw.get(name), f"{field}.{name}") or "0"
    if not (value.isascii() and value.isdecimal() and len(value) <= 20):
        raise InvalidFieldError(f"{field}.{name}", "must be a resource version")
    return int(value)


def _door(raw: Mapping[str, object], field: str) -> Door:
    name = text(raw.get("door"), f"{field}.door")
    try:
        return Door(name)
    except ValueError:
        known = ", ".join(Door)
        raise InvalidFieldError(f"{field}.door", f"must be one of {known}") from None


def _required(raw: Mapping[str, object], name: str, field: str) -> str:
    value = text(raw.get(name), f"{field}.{name}")
    if not value:
        raise InvalidFieldError(f"{field}.{name}", "must be given")
    return value
