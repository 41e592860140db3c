"""What doors do not look at is in the ledger after they wrote as it was before."""

from __future__ import annotations

import pytest

from webhook.encoding import decode_json, encode_json
from webhook.quota.ledger import Claim, Condition, Door, Ledger, admit_all
from webhook.quota.ledger_codec import ledger_from_status, ledger_status
from webhook.quota.quantity import Quantity
from webhook.quota.settlement import Count, settle

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
    ledger = Ledger({}, {}, conditions=CONDITIONS, others=OTHERS)
    assert through_text(ledger) == ledger


def test_a_claim_carries_them_on() -> None:
    ledger = Ledger({}, {}, conditions=CONDITIONS, others=OTHERS)
    claim = Claim("uid", "web", Door.BIND, {"cpu": Quantity.parse("1")}, ())
    following, _ = admit_all(ledger, [claim])
    assert "uid" in following.reservations
    assert (following.conditions, following.others) == (CONDITIONS, OTHERS)


def test_settling_carries_them_on() -> None:
    following = settle(Ledger({}, {}, conditions=CONDITIONS, others=OTHERS), Count(1, {}, {}))
    assert following is not None
    assert (following.conditions, following.others) == (CONDITIONS, OTHERS)


def test_a_new_ledger_has_none() -> None:
    following = settle(None, Count(1, {}, {}))
    assert following is not None
    assert "conditions" not in ledger_status(following)


@pytest.mark.parametrize(
    "conditions",
    ["no list", [7], [{"type": "Counted"}], [{"type": 1, "status": "True"}], None],
    ids=str,
)
def test_conditions_that_cannot_be_read_stop_nobody(conditions: object) -> None:
    read = ledger_from_status(
        {"podsResourceVersion": "1", "reservations": "", "conditions": conditions}
    )
    assert read is not None
    assert read.conditions == ()


def test_an_empty_time_is_not_written() -> None:
    status = ledger_status(Ledger({}, {}, conditions=(Condition("Counted", "True"),)))
    assert status["conditions"] == [{"type": "Counted", "status": "True"}]
