"""The ledger's written form: readable, complete, and never half understood."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.quota.ledger_world.driver import STEPS, random_steps
from tests.quota.ledger_world.world import World
from webhook.jsonfields.encoding import decode_json, encode_json
from webhook.jsonfields.fields import InvalidFieldError, NewerFormatError
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.ledger.ledger import (
    Account,
    Ledger,
    QuotaRevision,
    Reservation,
    ReservationSource,
)
from webhook.quota.ledger.ledger_codec import FORMAT, ledger_from_status, ledger_status
from webhook.quota.ledger.reservation_codec import line_of, reservation_of

CPU = {"requests.cpu": Quantity.parse("500m")}
LEDGER = Ledger(
    accounts={
        "p1": Account(
            QuotaRevision("p1", "uid-p1", "hash"),
            hard={"requests.cpu": Quantity.parse("2")},
            used={"requests.cpu": Quantity.parse("1500m")},
            reserved=CPU,
            pending={"pods": Quantity.parse("12")},
        )
    },
    reservations={
        "u1": Reservation(
            "u1", "web-1", ReservationSource.BIND, CPU, {"p1": CPU}, ("p1",), serial=7
        )
    },
    pods_resource_version=41234,
    serial=7,
    pods_barrier=40017,
)
WRITTEN: dict[str, object] = {
    "format": 1,
    "quotas": [
        {
            "name": "p1",
            "observed": {"uid": "uid-p1", "specHash": "hash"},
            "hard": {"requests.cpu": "2"},
            "used": {"requests.cpu": "1500m"},
            "reserved": {"requests.cpu": "500m"},
            "pending": {"pods": "12"},
        }
    ],
    "reservations": "u1 web-1 Bind 7 p1 requests.cpu=500m",
    "podsResourceVersion": "41234",
    "podsBarrier": "40017",
    "serial": 7,
    "summary": "p1 requests.cpu 1500m+500m/2",
}


def written(ledger: Ledger) -> object:
    return decode_json(encode_json(ledger_status(ledger)))


def test_a_ledger_is_written_for_people_to_read() -> None:
    assert written(LEDGER) == WRITTEN


def test_what_was_written_is_read_back() -> None:
    assert ledger_from_status(WRITTEN) == LEDGER


def test_a_ledger_of_the_release_before_the_format_had_a_number_is_read() -> None:
    former = {name: value for name, value in WRITTEN.items() if name != "format"}
    assert ledger_from_status(former) == LEDGER


@pytest.mark.parametrize("seed", range(30))
def test_every_ledger_that_comes_about_survives_writing(seed: int) -> None:
    world = World()
    for step in random_steps(seed, 80):
        STEPS[step.name](world, step)
        known = world.storage.read_ledger()[1]
        if known is not None:  # else nothing is counted yet
            assert ledger_from_status(written(known)) == known


@pytest.mark.parametrize("status", [None, {}, {"quotas": []}], ids=["none", "empty", "uncounted"])
def test_a_ledger_that_was_never_counted_is_none(status: object) -> None:
    assert ledger_from_status(status) is None


def holding(granted: str) -> Ledger:
    """A ledger with 2 cpus used and reserved of a quota of which this much is granted."""
    account = LEDGER.accounts["p1"]
    granted_to = {"requests.cpu": Quantity.parse(granted), "requests.memory": Quantity.parse("1")}
    return replace(LEDGER, accounts={"p1": replace(account, granted=granted_to)})


@pytest.mark.parametrize(("granted", "number"), [("1", 1), ("2", 1), ("2001m", 2)])
def test_the_format_says_whether_more_is_held_than_is_used(granted: str, number: int) -> None:
    """A program that knows the first alone would admit by it without a look at the quota."""
    ledger = holding(granted)
    status = written(ledger)
    assert isinstance(status, dict)
    assert status["format"] == number
    assert ledger_from_status(status) == ledger


def test_one_of_a_newer_release_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(NewerFormatError):
        ledger_from_status({"format": FORMAT + 1})


def test_what_is_reserved_is_summed_from_the_reservations_not_believed() -> None:
    forged = [
        {"name": "p1", "observed": {}, "hard": {}, "used": {}, "reserved": {"requests.cpu": "0"}}
    ]
    read = ledger_from_status({**WRITTEN, "quotas": forged})
    assert read is not None
    assert read.accounts["p1"].reserved == CPU


BROKEN: dict[str, tuple[dict[str, object], str]] = {
    "a newer format": ({"format": FORMAT + 1}, "status.format"),
    "amount": (
        {"quotas": [{"name": "q", "hard": {}, "used": {"cpu": "1x"}}]},
        "status.quotas[0].used.cpu",
    ),
    "no usage": ({"quotas": [{"name": "q", "hard": {}}]}, "status.quotas[0].used"),
    "no limits": ({"quotas": [{"name": "q", "used": {}}]}, "status.quotas[0].hard"),
    "two of a name": (
        {"quotas": [{"name": "q", "hard": {}, "used": {}}] * 2},
        "status.quotas[1].name",
    ),
    "two of a pod": (
        {"reservations": "u p Bind 1 q cpu=5\nu p Bind 2 q cpu=1"},
        "status.reservations[1]",
    ),
    "a resource twice": (
        {"reservations": "u p Bind 1 q cpu=5,cpu=1"},
        "status.reservations[0].usage",
    ),
    "a quota twice": ({"reservations": "u p Bind 1 q,q cpu=5"}, "status.reservations[0].quotas"),
    "negative": ({"reservations": "u p Bind 1 q cpu=-5"}, "status.reservations[0].usage.cpu"),
    "no name": ({"reservations": "u p Bind 1  cpu=5"}, "status.reservations[0]"),
    "no uid": ({"reservations": " p Bind 1 q cpu=5"}, "status.reservations[0]"),
    "no charges": (
        {"reservations": '{"uid":"u","door":"Bind","quotas":["q"],"charges":{}}'},
        "status.reservations[0].charges.q",
    ),
    "door": ({"reservations": "u p Window 1 - -"}, "status.reservations[0].door"),
    "words": ({"reservations": "u p Bind 1 q cpu=1\nu p Bind"}, "status.reservations[1]"),
    "further": ({"reservations": "u p Bind 1 q cpu=1 before=2"}, "status.reservations[0]"),
    "after": ({"reservations": "u p Bind 1 q cpu=1 after=x"}, "status.reservations[0].after"),
    "usage": ({"reservations": "u p Bind 1 q cpu=1x"}, "status.reservations[0].usage.cpu"),
    "uid": ({"reservations": '{"door":"Bind"}'}, "status.reservations[0].uid"),
    "object": ({"reservations": '{"door":'}, "status.reservations[0]"),
    "version": ({"podsResourceVersion": "1e3"}, "status.podsResourceVersion"),
    "serial": ({"serial": -1}, "status.serial"),
    "a serial that cannot grow": ({"serial": 2**63 - 1}, "status.serial"),
    "lines": ({"reservations": {"u": 1}}, "status.reservations"),
}


@pytest.mark.parametrize(("change", "field"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_ledger_is_refused_by_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidFieldError) as refused:
        ledger_from_status({**WRITTEN, **change})
    assert refused.value.field == field


def test_a_ledger_without_its_reservations_is_refused() -> None:
    cut = {name: value for name, value in WRITTEN.items() if name != "reservations"}
    with pytest.raises(InvalidFieldError) as refused:
        ledger_from_status(cut)
    assert refused.value.field == "status.reservations"


HUGE = {
    "beyond the last SI letter": ["1000E", "1"],
    "beyond the last binary letter": ["7Ei", "7Ei", "7Ei"],
    "hundreds of digits and a billionth": ["1e299", "1n"],
    "a fraction of a byte": ["0.1Ki", "1n"],
}


@pytest.mark.parametrize("texts", HUGE.values(), ids=HUGE.keys())
def test_any_sum_of_amounts_survives_writing(texts: list[str]) -> None:
    total = Quantity.parse(texts[0])
    for text in texts[1:]:
        total = total + Quantity.parse(text)
    account = Account(QuotaRevision("q", "u", "h"), {"memory": total}, {"memory": total})
    read = ledger_from_status(written(Ledger({"q": account}, {}, pods_resource_version=1)))
    assert read is not None
    assert read.accounts["q"].used == {"memory": total}
    assert read.accounts["q"].hard == {"memory": total}


LINES = {
    "plain": Reservation("u", "web-1", ReservationSource.BIND, CPU, {"p1": CPU}, ("p1",), serial=7),
    "nothing charged": Reservation("u", "web-1", ReservationSource.CREATE, {}, {}, (), serial=1),
    "two quotas": Reservation(
        "u",
        "web-1",
        ReservationSource.RESIZE,
        CPU,
        {"a": CPU, "b": CPU},
        ("a", "b"),
        serial=2,
        base_version=41,
    ),
    "an intent": Reservation(
        "u",
        "web-1",
        ReservationSource.RESIZE,
        CPU,
        {},
        ("a",),
        serial=2,
        base_version=9,
        is_intent=True,
    ),
    "a part of it": Reservation(
        "u", "w", ReservationSource.RESIZE, CPU, {"a": {}}, ("a",), serial=3
    ),
    "all that was left of it": Reservation(
        "u", "w", ReservationSource.CREATE, CPU, {"a": {}}, ("a",), serial=3, is_capped=True
    ),
    "no name": Reservation("u", "", ReservationSource.BIND, CPU, {"a": CPU}, ("a",), serial=3),
    "odd names": Reservation(
        "u v", "a\nb", ReservationSource.BIND, {"x,y=z": CPU["requests.cpu"]}, {}, (), serial=3
    ),
    "a dash": Reservation("-", "-", ReservationSource.BIND, {}, {"-": {}}, ("-",), serial=3),
}


@pytest.mark.parametrize("one", LINES.values(), ids=LINES.keys())
def test_a_reservation_is_a_line(one: Reservation) -> None:
    line = line_of(one)
    assert "\n" not in line
    assert reservation_of(line, "x") == one


def test_most_reservations_are_lines_that_people_can_read() -> None:
    assert line_of(LINES["two quotas"]) == "u web-1 Resize 2 a,b requests.cpu=500m after=41"
