"""The ledger as the status of a `QuotaLedger` object, and back.

```yaml
status:
  format: 1                     # 2 where the namespace holds more of a shared quota than it uses
  quotas:
  - name: p1
    observed: {uid: ..., specHash: ...}
    hard: {requests.cpu: "2"}
    used: {requests.cpu: 1500m}
    reserved: {requests.cpu: 500m}
    pending: {pods: "12", requests.cpu: "48"}
  - name: cdq/both              # of a quota that several namespaces share
    granted: {requests.cpu: "2"}
    ...
  reservations: |-
    6f8d5f0e-... web-1 Bind 7 p1 requests.cpu=500m
  podsResourceVersion: "41234"
  podsBarrier: "40017"
  serial: 7
  summary: p1 requests.cpu 1500m+500m/2
  conditions:
  - {type: Counted, status: "True", reason: AllCounted, message: "", lastTransitionTime: ...}
```

`reservation_codec` has the form of a reservation's line. An attribute has the name of its key, in
snake_case, but for these, whose keys other releases read:

| key | attribute |
| --- | --- |
| `quotas`, with the `name` of each | `Ledger.accounts`, `Account.observed.name` |
| `door` of a reservation | `Reservation.source` |
| `after` of a reservation | `Reservation.base_version` |
| `intent`, `capped` of a reservation | `Reservation.is_intent`, `Reservation.is_capped` |

What is derived (`reserved`, `summary`) is written for people and computed again when read; the
controller writes it again where another client has changed it (`is_derived_edited`).

Every write replaces the whole status, and handlers write far more often than the controller. What
only the controller says (`conditions`), and fields that a newer version of the program has added,
are therefore read and written back by every writer. Conditions let nothing pass: one that cannot be
read, or is longer than any of ours, is dropped, and the controller says it again: what a stolen
token wrote would fill the ledger for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from webhook.jsonfields.encoding import encode_json
from webhook.jsonfields.fields import (
    InvalidFieldError,
    NewerFormatError,
    check_format,
    integer,
    mapping,
    sequence,
    text,
)
from webhook.quota.amounts.resources import ResourceList, mask
from webhook.quota.ledger.ledger import (
    EMPTY,
    OPTED_OUT,
    Account,
    Condition,
    Ledger,
    QuotaRevision,
    Reservation,
    reserved_by,
)
from webhook.quota.ledger.reservation_codec import amounts_in, amounts_out, line_of, reservation_of

SHADOW_FIELD: Final = "shadow"
"""Field with the record of shadow mode, in which nothing is guarded (`shadow.record_codec`)."""
FORMAT: Final = 2
"""Newest version of the format. A ledger without one is of the first; one of a newer version is not
read, so that nothing is admitted by what an older program would misunderstand.

Both versions read alike. The second says that the namespace holds more of a shared quota than it
uses: a program that knows the first only would admit by that without a look at the quota. It cannot
write the ledger in the place of one that it cannot read, so it decides nothing, however old what it
knows is. Without headroom the first is written, which both read."""
_MOST_COUNTED: Final = 2**62
"""Of a number that only grows. Stored are 64 bits: at their end a ledger would admit no more."""
_MAX_CONDITIONS: Final = 16
_MAX_CONDITION_CHARACTERS: Final = 8192
"""Of all texts of one, more than this program or an older one writes."""

_FIELDS: Final = frozenset(
    {
        "format", "quotas", "reservations", "podsResourceVersion", "podsBarrier", "serial",
        "summary", "conditions",
    }
)  # fmt: skip


ReservationReader: TypeAlias = Callable[[str, str], Reservation]
"""Makes a reservation of a line of `reservations`, and the path of the line."""


def ledger_status(ledger: Ledger) -> dict[str, object]:
    """Write `ledger` as the status of a QuotaLedger, for `encoding.encode_json`.

    A ledger that guards something is written at every bind, so it drops what was found before.
    """
    others = dict(ledger.unknown_fields)
    if ledger.accounts:
        others.pop(SHADOW_FIELD, None)
    return {
        **others,
        "format": FORMAT if any(one.has_headroom for one in ledger.accounts.values()) else 1,
        "quotas": [_account_out(account) for account in ledger.accounts.values()],
        "reservations": "\n".join(map(line_of, ledger.reservations.values())),
        "podsResourceVersion": str(ledger.pods_resource_version),
        "podsBarrier": str(ledger.pods_barrier),
        "serial": ledger.serial,
        "summary": summary(ledger),
        **conditions_out(ledger.conditions),
    }


class EncodedStatus(bytes):
    """The status of a QuotaLedger as JSON."""

    __slots__ = ()


def encode_status(ledger: Ledger) -> EncodedStatus:
    """Encode `ledger` once, for its size and for the write."""
    return EncodedStatus(encode_json(ledger_status(ledger)))


def written_bytes_of(one: Reservation) -> int:
    """Return how long a reservation is as JSON, with the end of its line."""
    return len(encode_json(line_of(one)))


def ledger_from_status(raw: object, *, reader: ReservationReader | None = None) -> Ledger | None:
    """Read the status of a QuotaLedger; None when nothing has been counted yet.

    Args:
        raw: The decoded status.
        reader: Reads one reservation at a path; by default `reservation_of`.

    Raises:
        NewerFormatError: A newer release wrote it.
        InvalidFieldError: Something in it cannot be read; the error has the path.
    """
    status = mapping(raw, "status")
    check_format(status, "status", FORMAT)
    if "podsResourceVersion" not in status:
        return None
    read = reader or reservation_of
    reservations: dict[str, Reservation] = {}
    for index, line in enumerate(_lines(status, "status.reservations")):
        one = read(line, f"status.reservations[{index}]")
        if one.uid in reservations:
            raise InvalidFieldError(f"status.reservations[{index}]", "is the second of its pod")
        reservations[one.uid] = one
    reserved = reserved_by(reservations.values())
    accounts: dict[str, Account] = {}
    quotas = sequence(status.get("quotas"), "status.quotas")
    for index, item in enumerate(quotas):
        account = _account_in(item, reserved, f"status.quotas[{index}]")
        if accounts.setdefault(account.observed.name, account) is not account:
            raise InvalidFieldError(f"status.quotas[{index}].name", "is there twice")
    read_as = Ledger(
        accounts,
        reservations,
        pods_resource_version=_version(status, "podsResourceVersion", "status"),
        serial=counter(status, "serial", "status"),
        pods_barrier=_version(status, "podsBarrier", "status"),
        conditions=conditions_in(status.get("conditions")),
        unknown_fields={name: value for name, value in status.items() if name not in _FIELDS},
    )
    reserved_texts = [mapping(item, "").get("reserved") for item in quotas]
    object.__setattr__(read_as, "_derived", (status.get("summary"), reserved_texts))
    return read_as


def is_derived_edited(ledger: Ledger) -> bool:
    """Return whether another client has changed what is derived where `ledger` was read."""
    read = ledger._derived  # noqa: SLF001 - kept for this module
    return read is not None and read != _derived(ledger)


def _derived(ledger: Ledger) -> tuple[str, list[dict[str, str]]]:
    return summary(ledger), [_reserved_out(account) for account in ledger.accounts.values()]


def is_of_newer_release(raw: object) -> bool:
    """Return whether a newer release wrote the status of a QuotaLedger, damaged or not."""
    try:
        check_format(mapping(raw, "status"), "status", FORMAT)
    except NewerFormatError:
        return True
    except InvalidFieldError:
        pass
    return False


def _lines(status: Mapping[str, object], field: str) -> list[str]:
    if "reservations" not in status:
        raise InvalidFieldError(field, "must be given")
    return [line for line in text(status["reservations"], field).split("\n") if line]


def summary(ledger: Ledger) -> str:
    """Return the printed column: each quota's deferred resources as used+reserved/hard."""
    if not ledger.accounts:
        has_left = any(condition.reason == OPTED_OUT for condition in ledger.conditions)
        return "opted out" if has_left else "no deferred quota"
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


def _account_out(account: Account) -> dict[str, object]:
    rest = account._written or _write_account(account)  # noqa: SLF001 - kept for this module
    assert isinstance(rest, dict)  # noqa: S101 - only this module sets it
    return {**rest, "reserved": _reserved_out(account)}


def _reserved_out(account: Account) -> dict[str, str]:
    return amounts_out(mask(account.reserved, account.hard))


def _write_account(account: Account) -> dict[str, object]:
    observed = account.observed
    written: dict[str, object] = {
        "name": observed.name,
        "observed": {"uid": observed.uid, "specHash": observed.spec_hash},
        "hard": amounts_out(account.hard),
        "used": amounts_out(account.used),
        "reserved": {},
        "pending": amounts_out(account.pending),
    }
    if account.granted:
        written["granted"] = amounts_out(account.granted)
    object.__setattr__(account, "_written", written)
    return written


def _account_in(item: object, reserved: Mapping[str, ResourceList], field: str) -> Account:
    raw = mapping(item, field)
    for needed in ("hard", "used"):
        if needed not in raw:
            raise InvalidFieldError(f"{field}.{needed}", "must be given")
    observed = mapping(raw.get("observed"), f"{field}.observed")
    name = text(raw.get("name"), f"{field}.name")
    return Account(
        observed=QuotaRevision(
            name=name,
            uid=text(observed.get("uid"), f"{field}.observed.uid"),
            spec_hash=text(observed.get("specHash"), f"{field}.observed.specHash"),
        ),
        hard=amounts_in(raw.get("hard"), field=f"{field}.hard"),
        used=amounts_in(raw.get("used"), field=f"{field}.used"),
        reserved=reserved.get(name, EMPTY),
        pending=amounts_in(raw.get("pending"), field=f"{field}.pending"),
        granted=amounts_in(raw.get("granted"), field=f"{field}.granted"),
    )


def conditions_out(conditions: Iterable[Condition]) -> dict[str, object]:
    """Write conditions as a field of a status; none are no field."""
    written = [{"type": one.type, "status": one.status, **_given(one)} for one in conditions]
    return {"conditions": written} if written else {}


def _given(one: Condition) -> dict[str, object]:
    """Return what is not empty: an empty time is none to the API server."""
    known = {
        "reason": one.reason,
        "message": one.message,
        "lastTransitionTime": one.last_transition_time,
    }
    return {name: value for name, value in known.items() if value}


def conditions_in(raw: object) -> tuple[Condition, ...]:
    """Read conditions; what cannot be read must not keep claims from being decided.

    One that is longer than any of ours is dropped, and all of them where they are more: they are
    written back with every write, and would fill the object for good.
    """
    if not isinstance(raw, list | tuple):
        return ()
    read = [found for item in raw if (found := _condition_in(item)) is not None]
    return tuple(read) if len(read) <= _MAX_CONDITIONS else ()


def _condition_in(item: object) -> Condition | None:
    try:
        raw = mapping(item, "")
        read = Condition(
            type=_required(raw, "type", ""),
            status=_required(raw, "status", ""),
            reason=text(raw.get("reason"), "reason"),
            message=text(raw.get("message"), "message"),
            last_transition_time=text(raw.get("lastTransitionTime"), "lastTransitionTime"),
        )
    except InvalidFieldError:
        return None
    texts = (read.type, read.status, read.reason, read.message, read.last_transition_time)
    return read if sum(map(len, texts)) <= _MAX_CONDITION_CHARACTERS else None


def counter(raw: Mapping[str, object], name: str, field: str) -> int:
    """Read a number that only grows; absent is 0.

    Raises:
        InvalidFieldError: It is no whole number, negative, or too large to grow.
    """
    value = integer(raw.get(name), f"{field}.{name}") or 0
    if value < 0:
        raise InvalidFieldError(f"{field}.{name}", "must not be negative")
    if value > _MOST_COUNTED:
        raise InvalidFieldError(f"{field}.{name}", f"must be at most {_MOST_COUNTED}")
    return value


def _version(raw: Mapping[str, object], name: str, field: str) -> int:
    value = text(raw.get(name), f"{field}.{name}") or "0"
    if not (value.isascii() and value.isdecimal() and len(value) <= 20):
        raise InvalidFieldError(f"{field}.{name}", "must be a resource version")
    return int(value)


def _required(raw: Mapping[str, object], name: str, field: str) -> str:
    value = text(raw.get(name), f"{field}.{name}")
    if not value:
        raise InvalidFieldError(f"{field}.{name}", "must be given")
    return value
