"""Reservations as lines of text, and back.

```
6f8d5f0e-... web-1 Bind 17 p1,p2 limits.cpu=1,requests.cpu=500m
77aa10c2-... web-2 Resize 18 p1 requests.cpu=2 after=41234
```

A line has the pod's uid and name, the source, the serial, the quotas and the usage, then `after=`
and `intent` where they apply; `-` stands for none. What does not fit into that is a JSON object on
its line, with keys of these names; that of the source is `door`. A ledger holds thousands of
reservations and is written with every one of them: as a list of objects they cost the API server
0.2 ms of processor each and write, as text a fiftieth of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from webhook.jsonfields.encoding import InvalidJsonError, decode_json, encode_json
from webhook.jsonfields.fields import (
    InvalidFieldError,
    boolean,
    integer,
    key,
    mapping,
    sequence,
    text,
)
from webhook.quota.amounts.quantity import Format, InvalidQuantityError, Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.ledger.ledger import Reservation, ReservationSource

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*", re.ASCII)
_NONE: Final = "-"
_INTENT: Final = "intent"
_AFTER: Final = "after="
_FIELDS: Final = 6

_NANO: Final = re.compile(r"-?[0-9]{1,100000}n", re.ASCII)
"""Amounts of pods have ten thousand digits at most; this leaves room for any sum of them."""

_LONGEST_READABLE: Final = 64
_INT64_NANO: Final = 2**63 * 10**9


def line_of(one: Reservation) -> str:
    """Write a reservation as one line; asked again, it costs nothing."""
    written = one._written  # noqa: SLF001 - the place is kept for this module
    if isinstance(written, str):
        return written
    line = _plain_line(one) if _is_plain(one) else encode_json(_object_of(one)).decode()
    object.__setattr__(one, "_written", line)
    return line


def reservation_of(line: str, field: str) -> Reservation:
    """Read one line.

    Raises:
        InvalidFieldError: It cannot be read; the error has the path.
    """
    if line.startswith("{"):
        try:
            return _from_object(decode_json(line), field)
        except InvalidJsonError as err:
            raise InvalidFieldError(field, f"is no JSON object: {err}") from err
    words = line.split(" ")
    if len(words) < _FIELDS:
        raise InvalidFieldError(field, "must have uid, pod, source, serial, quotas and usage")
    uid, pod, source, serial, quotas, usage = words[:_FIELDS]
    further = _further(words[_FIELDS:], field)
    amounts = _usage(usage, field)
    names = () if quotas == _NONE else tuple(quotas.split(","))
    _check_plain((uid, pod, *names, *amounts), field)
    _check_once(names, f"{field}.quotas")
    is_intent = _INTENT in further
    return Reservation(
        uid=uid,
        pod=pod,
        source=_source(source, field),
        usage=amounts,
        charges={} if is_intent else dict.fromkeys(names, amounts),
        quotas=names,
        serial=_digits(serial, f"{field}.serial"),
        base_version=_digits(further.get(_AFTER, "0"), f"{field}.after"),
        is_intent=is_intent,
    )


def amounts_out(resources: ResourceList) -> dict[str, str]:
    """Write amounts so that each reads back as itself."""
    return {name: _exact_text(amount) for name, amount in resources.items()}


def amounts_in(raw: object, *, field: str) -> dict[str, Quantity]:
    """Read what `amounts_out` wrote.

    Raises:
        InvalidFieldError: One of them is no quantity; the error has the path.
    """
    try:
        return {name: _exact_amount(value, "") for name, value in mapping(raw, field).items()}
    except InvalidQuantityError:
        pass  # read again with the paths, which are not worth building while all is well
    return {
        name: _exact_amount(value, key(field, name)) for name, value in mapping(raw, field).items()
    }


def _exact_text(amount: Quantity) -> str:
    """Write an amount so that it reads back as itself.

    The platform's own text does not always, above what an int64 holds: it leaves the suffix out
    where there is no letter for it, and is read capped where it is binary.
    """
    if abs(amount.nano) < _INT64_NANO:
        return str(amount)
    if amount.format is Format.EXP and len(text := str(amount)) <= _LONGEST_READABLE:
        return text  # which has its exponent, as that of amounts that are too large to be counted
    return f"{Decimal(amount.nano):f}n"


def _exact_amount(value: object, field: str) -> Quantity:
    if isinstance(value, str) and len(value) > _LONGEST_READABLE and _NANO.fullmatch(value):
        return Quantity.of_nano(int(Decimal(value[:-1])))
    return Quantity.from_json(value, field=field)


# -- plain lines -----------------------------------------------------------------------------


def _is_plain(one: Reservation) -> bool:
    """Return whether nothing in it needs quoting, and each quota holds all of its usage."""
    words = (one.uid, one.pod, *one.quotas, *one.usage)
    is_simple = not (_has_charges(one) or one.is_capped)
    return is_simple and all(_PLAIN.fullmatch(word) for word in words)


def _has_charges(one: Reservation) -> bool:
    return not one.is_intent and any(one.charges.get(name) != one.usage for name in one.quotas)


def _plain_line(one: Reservation) -> str:
    usage = ",".join(f"{name}={_exact_text(amount)}" for name, amount in one.usage.items())
    quotas = ",".join(one.quotas)
    words = [one.uid, one.pod, one.source.value, str(one.serial), quotas or _NONE, usage or _NONE]
    if one.base_version:
        words.append(f"{_AFTER}{one.base_version}")
    if one.is_intent:
        words.append(_INTENT)
    return " ".join(words)


def _further(words: list[str], field: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        if word == _INTENT:
            found[_INTENT] = ""
        elif word.startswith(_AFTER):
            found[_AFTER] = word[len(_AFTER) :]
        else:
            raise InvalidFieldError(field, f"has a word that is not known: {word}")
    return found


def _usage(usage: str, field: str) -> dict[str, Quantity]:
    if usage == _NONE:
        return {}
    pairs = [pair.partition("=") for pair in usage.split(",")]
    _check_once([name for name, _, _ in pairs], f"{field}.usage")
    read = amounts_in({name: amount for name, _, amount in pairs}, field=f"{field}.usage")
    check_positive(read, f"{field}.usage")
    return read


# -- JSON lines ------------------------------------------------------------------------------


def _object_of(one: Reservation) -> dict[str, object]:
    out: dict[str, object] = {
        "uid": one.uid,
        "pod": one.pod,
        "door": one.source.value,
        "usage": amounts_out(one.usage),
        "quotas": list(one.quotas),
        "serial": one.serial,
    }
    if one.is_intent:
        out["intent"] = True
    elif _has_charges(one):
        out["charges"] = {name: amounts_out(charge) for name, charge in one.charges.items()}
    if one.is_capped:
        out["capped"] = True
    if one.base_version:
        out["after"] = str(one.base_version)
    return out


def _from_object(item: object, field: str) -> Reservation:
    raw = mapping(item, field)
    usage = amounts_in(raw.get("usage"), field=f"{field}.usage")
    check_positive(usage, f"{field}.usage")
    quotas = tuple(
        text(name, f"{field}.quotas[{index}]")
        for index, name in enumerate(sequence(raw.get("quotas"), f"{field}.quotas"))
    )
    _check_once(quotas, f"{field}.quotas")
    is_intent = boolean(raw.get("intent"), f"{field}.intent")
    uid = text(raw.get("uid"), f"{field}.uid")
    if not uid:
        raise InvalidFieldError(f"{field}.uid", "must be given")
    serial = integer(raw.get("serial"), f"{field}.serial") or 0
    return Reservation(
        uid=uid,
        pod=text(raw.get("pod"), f"{field}.pod"),
        source=_source(text(raw.get("door"), f"{field}.door"), field),
        usage=usage,
        charges={} if is_intent else _charges_in(raw, usage, quotas, field),
        quotas=quotas,
        serial=_digits(str(serial), f"{field}.serial"),
        base_version=_digits(text(raw.get("after"), f"{field}.after") or "0", f"{field}.after"),
        is_intent=is_intent,
        is_capped=boolean(raw.get("capped"), f"{field}.capped") and not is_intent,
    )


def _charges_in(
    raw: Mapping[str, object], usage: ResourceList, quotas: tuple[str, ...], field: str
) -> dict[str, ResourceList]:
    if "charges" not in raw:
        return dict.fromkeys(quotas, usage)
    charges = mapping(raw["charges"], f"{field}.charges")
    missing = [name for name in quotas if name not in charges]
    if missing:
        raise InvalidFieldError(f"{field}.charges.{missing[0]}", "must be given")
    return {name: amounts_in(charges.get(name), field=f"{field}.charges.{name}") for name in quotas}


# -- checks: what was written by hand must not read as less than it was ------------------


def _check_plain(words: Iterable[str], field: str) -> None:
    for word in words:
        if not _PLAIN.fullmatch(word):
            raise InvalidFieldError(field, f"has a word that is no name: {word!r}")


def _check_once(names: Sequence[str], field: str) -> None:
    if len(set(names)) != len(names):
        raise InvalidFieldError(field, "must not name anything twice")


def check_positive(amounts: ResourceList, field: str) -> None:
    """Refuse an amount that is less than nothing.

    Raises:
        InvalidFieldError: One is; the error has the path.
    """
    for name, amount in amounts.items():
        if amount.nano < 0:
            raise InvalidFieldError(key(field, name), "must not be negative")


# -- words -----------------------------------------------------------------------------------


def _digits(word: str, field: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) <= 20):
        raise InvalidFieldError(field, "must be a whole number that is not negative")
    return int(word)


def _source(name: str, field: str) -> ReservationSource:
    try:
        return ReservationSource(name)
    except ValueError:
        known = ", ".join(ReservationSource)
        raise InvalidFieldError(f"{field}.door", f"must be one of {known}") from None
