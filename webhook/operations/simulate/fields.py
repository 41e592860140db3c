"""Readers of the fields of scenarios, beside those of the configuration."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from webhook.config.field_readers import InvalidSettingError
from webhook.jsonfields.fields import InvalidFieldError, key
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, parse_resource_list
from webhook.quota.simulation.sampling import Distribution, Exponential, Uniform

MOST_MILLISECONDS: Final = 10 * 366 * 86_400_000
_MOST_UNITS: Final = Quantity.of_units(10**18)
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")


def plain_object(value: object, field: str) -> dict[str, object]:
    """Read an object whose fields are read elsewhere."""
    if not isinstance(value, dict):
        raise InvalidSettingError(field, "must be an object")
    return value


def duration(value: object, field: str) -> int:
    """Read a time such as `90s` or `1h30m` as milliseconds; a number alone is seconds."""
    text = str(value)
    is_number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) is not None
    if isinstance(value, bool) or not (is_number or _DURATION.fullmatch(text)):
        raise InvalidSettingError(
            field, f"must be a time such as 90s, 10m or 1h30m, not {text[:40]!r}"
        )
    parts = [(text, "s")] if is_number else _PART.findall(text)
    total = int(sum(Decimal(number) * _UNITS[unit] for number, unit in parts))
    if total > MOST_MILLISECONDS:
        raise InvalidSettingError(field, f"must be at most 10 years, not {text[:40]!r}")
    return total


def distribution(value: object, field: str) -> Distribution:
    """Read a time, `{mean: 10m}` (exponential) or `{from: 5m, to: 15m}` (uniform)."""
    if not isinstance(value, dict):
        exact = duration(value, field)
        return Uniform(exact, exact)
    if value.keys() == {"mean"}:
        return Exponential(duration(value["mean"], f"{field}.mean"))
    if value.keys() != {"from", "to"}:
        raise InvalidSettingError(field, "must be a time, {mean: TIME} or {from: TIME, to: TIME}")
    least, most = (duration(value[key], f"{field}.{key}") for key in ("from", "to"))
    if least > most:
        raise InvalidSettingError(f"{field}.to", "must not be before `from`")
    return Uniform(least, most)


def amounts(value: object, field: str) -> ResourceList:
    """Read amounts that a cluster can have: not negative, below 10^18 units."""
    try:
        found = parse_resource_list(value, field=field)
    except InvalidFieldError as err:
        raise InvalidSettingError(err.field, err.detail) from err
    for name, amount in found.items():
        if amount.sign < 0:
            raise InvalidSettingError(key(field, name), f"must not be negative: {amount}")
        if amount >= _MOST_UNITS:
            raise InvalidSettingError(key(field, name), f"is more than any cluster has: {amount}")
    return found
