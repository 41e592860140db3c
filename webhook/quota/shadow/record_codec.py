"""A `ShadowRecord` as part of the status of a `QuotaLedger`, and back.

```yaml
status:
  summary: "shadow: compute requests.cpu 2/4 (charged 4)"
  shadow:
    since: "2026-01-01T08:00:00Z"
    until: "2026-01-01T09:00:00Z"
    counts: {attempts: 9, stored: 4, refused: 5, wouldRun: 3, ...}
    workloads:
    - {name: ReplicaSet/web-5d7, attempts: 3, fate: wouldRun, first: ..., last: ...}
    unlisted: 0
    quotas:
    - name: compute
      observed: {uid: ..., specHash: ...}
      since: ...
      milliseconds: 3600000
      resources:
        requests.cpu: {hard: "4", charged: "4", assigned: "2", chargedPeak: "4", ...}
    examples: {refused: ...}
    writers: [webhook-7f2 12]
```

Nothing of it is ever read by what admits or refuses: that reads the fields beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, integer, mapping, sequence, text
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.ledger.ledger import QuotaRevision
from webhook.quota.ledger.ledger_codec import SHADOW_FIELD
from webhook.quota.ledger.reservation_codec import amounts_in, amounts_out
from webhook.quota.shadow.record import (
    CREATION_COUNTS,
    POD_COUNTS,
    Fate,
    QuotaUse,
    ShadowRecord,
    UsageSpan,
    Workload,
)

__all__ = ["SHADOW_FIELD", "shadow_from_status", "shadow_status", "shadow_summary"]

_AMOUNTS: Final = ("hard", "charged", "assigned", "chargedPeak", "assignedPeak")
_COUNTS: Final = frozenset((*CREATION_COUNTS, *POD_COUNTS))


def shadow_status(record: ShadowRecord) -> dict[str, object]:
    """Write a record as `status.shadow`."""
    return {
        "since": record.since,
        "until": record.until,
        "counts": dict(record.counts),
        "workloads": [
            {
                "name": one.name,
                "attempts": one.attempts,
                "fate": one.fate.value,
                "first": one.first,
                "last": one.last,
            }
            for one in record.workloads
        ],
        "unlisted": record.unlisted,
        "quotas": [_quota_out(name, use) for name, use in record.quotas.items()],
        "examples": dict(record.examples),
        "writers": [f"{writer} {number}" for writer, number in record.writers.items()],
    }


def shadow_from_status(raw: object, *, field: str = "status.shadow") -> ShadowRecord | None:
    """Read `status.shadow`; None when there is none.

    Raises:
        InvalidFieldError: Something in it cannot be read; the error has the path.
    """
    found = mapping(raw, field)
    if not found:
        return None
    counts = mapping(found.get("counts"), f"{field}.counts")
    return ShadowRecord(
        since=text(found.get("since"), f"{field}.since"),
        until=text(found.get("until"), f"{field}.until"),
        counts={
            name: _number(counts, name, f"{field}.counts") for name in counts if name in _COUNTS
        },
        workloads=tuple(
            _workload(item, f"{field}.workloads[{index}]")
            for index, item in enumerate(sequence(found.get("workloads"), f"{field}.workloads"))
        ),
        unlisted=_number(found, "unlisted", field),
        quotas=dict(
            _quota_in(item, f"{field}.quotas[{index}]")
            for index, item in enumerate(sequence(found.get("quotas"), f"{field}.quotas"))
        ),
        examples={
            kind: text(words, f"{field}.examples.{kind}")
            for kind, words in mapping(found.get("examples"), f"{field}.examples").items()
        },
        writers=dict(
            _writer(item, f"{field}.writers[{index}]")
            for index, item in enumerate(sequence(found.get("writers"), f"{field}.writers"))
        ),
    )


def shadow_summary(quotas: Mapping[str, QuotaUse]) -> str:
    """One line for people: what is assigned of each quota, and what is charged."""
    parts = [
        f"{name} "
        + ", ".join(
            f"{key} {span.assigned}/{span.hard} (charged {span.charged})"
            for key, span in sorted(use.resources.items())
        )
        for name, use in sorted(quotas.items())
        if use.resources
    ]
    return f"shadow: {'; '.join(parts)}" if parts else "shadow"


def _quota_out(name: str, use: QuotaUse) -> dict[str, object]:
    return {
        "name": name,
        "observed": {"uid": use.observed.uid, "specHash": use.observed.spec_hash},
        "since": use.since,
        "milliseconds": use.milliseconds,
        "resources": {
            key: {
                **amounts_out(dict(zip(_AMOUNTS, _amounts(span), strict=True))),
                "chargedArea": str(span.charged_area),
                "assignedArea": str(span.assigned_area),
                "fullMilliseconds": span.full_milliseconds,
                "fullArea": str(span.full_area),
            }
            for key, span in use.resources.items()
        },
    }


def _amounts(span: UsageSpan) -> tuple[Quantity, ...]:
    return span.hard, span.charged, span.assigned, span.charged_peak, span.assigned_peak


def _quota_in(item: object, field: str) -> tuple[str, QuotaUse]:
    raw = mapping(item, field)
    name = text(raw.get("name"), f"{field}.name")
    observed = mapping(raw.get("observed"), f"{field}.observed")
    resources = mapping(raw.get("resources"), f"{field}.resources")
    return name, QuotaUse(
        QuotaRevision(
            name,
            text(observed.get("uid"), f"{field}.observed.uid"),
            text(observed.get("specHash"), f"{field}.observed.specHash"),
        ),
        text(raw.get("since"), f"{field}.since"),
        _number(raw, "milliseconds", field),
        {key: _span(span, f"{field}.resources.{key}") for key, span in resources.items()},
    )


def _span(item: object, field: str) -> UsageSpan:
    raw = mapping(item, field)
    amounts = amounts_in({name: raw.get(name) for name in _AMOUNTS}, field=field)
    return UsageSpan(
        hard=amounts["hard"],
        charged=amounts["charged"],
        assigned=amounts["assigned"],
        charged_peak=amounts["chargedPeak"],
        assigned_peak=amounts["assignedPeak"],
        charged_area=_area(raw, "chargedArea", field),
        assigned_area=_area(raw, "assignedArea", field),
        full_milliseconds=_number(raw, "fullMilliseconds", field),
        full_area=_area(raw, "fullArea", field),
    )


def _workload(item: object, field: str) -> Workload:
    raw = mapping(item, field)
    fate = text(raw.get("fate"), f"{field}.fate")
    if fate not in Fate._value2member_map_:
        raise InvalidFieldError(f"{field}.fate", f"{fate!r} is not known")
    return Workload(
        text(raw.get("name"), f"{field}.name"),
        _number(raw, "attempts", field),
        Fate(fate),
        text(raw.get("first"), f"{field}.first"),
        text(raw.get("last"), f"{field}.last"),
    )


def _writer(item: object, field: str) -> tuple[str, int]:
    name, _, number = text(item, field).rpartition(" ")
    return name, _digits(number, field)


def _area(raw: Mapping[str, object], name: str, field: str) -> int:
    return _digits(text(raw.get(name), f"{field}.{name}") or "0", f"{field}.{name}")


def _digits(value: str, field: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= 60):
        raise InvalidFieldError(field, "must be a whole number")
    return int(value)


def _number(raw: Mapping[str, object], name: str, field: str) -> int:
    value = integer(raw.get(name), f"{field}.{name}") or 0
    if value < 0:
        raise InvalidFieldError(f"{field}.{name}", "must not be negative")
    return value
