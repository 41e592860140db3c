"""What handlers do not look at is in the ledger after they wrote as it was before."""

from __future__ import annotations

import pytest

from webhook.jsonfields.encoding import decode_json, encode_json
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.ledger.apply_usage import UsageCount, apply_usage
from webhook.quota.ledger.ledger import Claim, Condition, Ledger, ReservationSource, admit_all
from webhook.quota.ledger.ledger_codec import (
    conditions_in,
    conditions_out,
    ledger_from_status,
    ledger_status,
)

CONDITIONS = (
    Condition("Counted", "False", "PodsUnreadable", "web: why", "2026-05-04T12:00:00Z"),
    Condition("QuotasReadable", "True"),
)
OTHERS = {"borrowed": {"p1": ["1", 2]}, "observedGeneration": 7}


def through_text(ledger: Ledger) -> Ledger:
    read = ledger_from_status(decode_json(encode_json(ledger_status(ledger))))
    assert read is not None
    return read


def test_conditions_and_unknown_fields_read_back_as_themselves() -> None:
    ledger = Ledger({}, {}, conditions=CONDITIONS, unknown_fields=OTHERS)
    assert through_text(ledger) == ledger


def test_a_claim_carries_them_on() -> None:
    ledger = Ledger({}, {}, conditions=CONDITIONS, unknown_fields=OTHERS)
    claim = Claim("uid", "web", ReservationSource.BIND, {"cpu": Quantity.parse("1")}, ())
    following, _ = admit_all(ledger, [claim])
    assert "uid" in following.reservations
    assert (following.conditions, following.unknown_fields) == (CONDITIONS, OTHERS)


def test_settling_carries_them_on() -> None:
    following = apply_usage(
        Ledger({}, {}, conditions=CONDITIONS, unknown_fields=OTHERS), UsageCount(1, {}, {})
    )
    assert following is not None
    assert (following.conditions, following.unknown_fields) == (CONDITIONS, OTHERS)


def test_a_new_ledger_has_none() -> None:
    following = apply_usage(None, UsageCount(1, {}, {}))
    assert following is not None
    assert "conditions" not in ledger_status(following)


@pytest.mark.parametrize(
    "conditions",
    ["no list", [7], [{"type": "Counted"}], [{"type": 1, "status": "True"}], None],
    ids=str,
)
def test_conditions_that_cannot_be_read_stop_nothing(conditions: object) -> None:
    read = ledger_from_status(
        {"podsResourceVersion": "1", "reservations": "", "conditions": conditions}
    )
    assert read is not None
    assert read.conditions == ()


@pytest.mark.parametrize("field", ["type", "status", "reason", "message", "lastTransitionTime"])
def test_a_condition_longer_than_any_of_ours_is_dropped(field: str) -> None:
    """What a stolen token wrote would be written back for good."""
    long = {"type": "Evil", "status": "True", field: "x" * 10_000}
    assert conditions_in([*conditions_out(CONDITIONS)["conditions"], long]) == CONDITIONS  # type: ignore[misc]


def test_more_conditions_than_any_ledger_has_are_dropped() -> None:
    assert conditions_in([{"type": f"E{number}", "status": "True"} for number in range(17)]) == ()


def test_an_empty_time_is_not_written() -> None:
    status = ledger_status(Ledger({}, {}, conditions=(Condition("Counted", "True"),)))
    assert status["conditions"] == [{"type": "Counted", "status": "True"}]
