"""What namespaces hold of a shared quota: its written form, and how it changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.jsonfields.encoding import decode_json, encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, to_text
from webhook.quota.ledger.ledger import Condition, QuotaRevision
from webhook.quota.shared.grants import (
    MAX_PROMISES,
    Grants,
    Promise,
    grants_from_status,
    grants_status,
    mark_complete,
    may_promise,
    with_headroom,
    with_lowered,
    with_promise,
    with_raised,
    with_recall,
    without,
    without_promises,
)


def cpu(amount: str) -> ResourceList:
    return {"requests.cpu": Quantity.parse(amount)}


GRANTS = Grants({"a": cpu("3"), "b": cpu("1500m")}, QuotaRevision("cdq/both", "u", "h"), serial=7)


def a_promise(uid: str = "pod-1") -> Promise:
    return Promise(uid, "b", "web-1", cpu("2"))


def test_it_reads_back_as_itself() -> None:
    condition = Condition("Counted", "True", "AllCounted", "", "2026-05-04T12:00:00Z")
    grants = Grants(
        GRANTS.namespaces, GRANTS.observed, 7, (condition,), unknown_fields={"newer": [1]}
    )
    grants = with_promise(grants, a_promise())
    status: Any = decode_json(encode_json(grants_status(grants, cpu("20"))))
    assert grants_from_status(status, "both") == grants
    assert (status["hard"], status["used"]) == (
        {"requests.cpu": "20"},
        {"requests.cpu": "4500m"},
    )
    assert (status["members"], status["summary"]) == (2, "requests.cpu 4500m/20")


def test_headroom_reads_back_and_is_not_used() -> None:
    grants = with_recall(with_headroom(GRANTS, "a", cpu("2")), is_recalled=True)
    status: Any = decode_json(encode_json(grants_status(grants, cpu("20"))))
    assert grants_from_status(status, "both") == grants
    assert status["used"] == {"requests.cpu": "2500m"}
    assert grants.in_use == {"a": cpu("1"), "b": cpu("1500m")}
    assert grants.in_use is grants.in_use  # each queue asks for it once per owner that waits
    assert with_headroom(grants, "a", cpu("1")).in_use["a"] == cpu("2")
    assert grants.headroom_elsewhere("a") == {}
    assert without(grants, ["a"]).headroom == {}


def test_nothing_is_granted_by_an_absent_status() -> None:
    assert grants_from_status(None, "both") == Grants()


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        ({"namespaces": [{"name": ""}]}, "status.namespaces[0].name: must be given, and once"),
        (
            {"namespaces": [{"name": "a"}, {"name": "a"}]},
            "status.namespaces[1].name: must be given, and once",
        ),
        (
            {"namespaces": [{"name": "a", "granted": {"requests.cpu": "-1"}}]},
            "status.namespaces[0].granted[requests.cpu]: must not be negative",
        ),
        (
            {"promises": [{"uid": "u"}, {"uid": "u"}]},
            "status.promises[1].uid: must be given, and once",
        ),
        (
            {"promises": [{"uid": "u", "amounts": {"requests.cpu": "-1"}}]},
            "status.promises[0].amounts[requests.cpu]: must not be negative",
        ),
        ({"serial": -1}, "status.serial: must not be negative"),
        ({"serial": 2**63 - 1}, "status.serial: must be at most 4611686018427387904"),
        (
            {"format": 2},
            "status.format: is 2, of a newer release: this one reads up to 1",
        ),
        ({"format": -1}, "status.format: must not be negative"),
        ({"format": "1"}, "status.format: must be an integer, not a string"),
        ({"observed": 5}, "status.observed: must be an object, not a number"),
    ],
)
def test_what_cannot_be_read_says_where(status: object, fault: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        grants_from_status(status, "both")
    assert str(caught.value) == fault


def test_a_namespace_sees_what_the_others_hold() -> None:
    assert to_text(GRANTS.held_elsewhere("a")) == {"requests.cpu": "1500m"}
    assert to_text(GRANTS.held_elsewhere("c")) == {"requests.cpu": "4500m"}


def test_promises_are_made_and_withdrawn_one_by_one() -> None:
    made = with_promise(with_promise(GRANTS, a_promise("x")), a_promise("y"))
    assert made.promises.keys() == {"x", "y"}
    assert made.total == GRANTS.total  # nothing is granted by a promise
    assert without_promises(made, ["x", "z"]).promises == {"y": a_promise("y")}


def test_promises_have_a_bound() -> None:
    full = GRANTS
    for number in range(MAX_PROMISES):
        full = with_promise(full, a_promise(str(number)))
    assert with_promise(full, a_promise("0")).promises == full.promises
    with pytest.raises(ValueError, match="promises are made already"):
        with_promise(full, a_promise("one more"))


@given(st.lists(st.integers(0, 12), max_size=40))
def test_quotas_that_take_all_they_may_leave_one_for_a_quota_without_any(asking: list[int]) -> None:
    made: Counter[int] = Counter()
    for quota in asking:
        while may_promise(made[quota], made.total() - made[quota]):
            made[quota] += 1
    assert made.total() <= MAX_PROMISES
    assert may_promise(0, made.total()) == (made.total() < MAX_PROMISES)
    assert made.total() < MAX_PROMISES or len(+made) > 8  # one alone has half, two three quarters


def test_raising_never_takes_away_and_lets_take_part() -> None:
    assert with_raised(GRANTS, "a", cpu("2")).namespaces["a"] == cpu("3")
    assert with_raised(GRANTS, "a", cpu("4")).namespaces["a"] == cpu("4")
    assert with_raised(GRANTS, "c", cpu("0")).namespaces.keys() == {"a", "b", "c"}


def test_lowering_and_dropping_leave_the_others() -> None:
    assert with_lowered(GRANTS, "a", cpu("1")).namespaces == {"a": cpu("1"), "b": cpu("1500m")}
    assert without(GRANTS, ["a"]).namespaces == {"b": cpu("1500m")}


def test_every_change_is_one_to_the_api_server() -> None:
    observed = QuotaRevision("cdq/both", "u", "h")
    for changed in (
        with_promise(GRANTS, a_promise()),
        without_promises(GRANTS, ["pod-1"]),
        with_raised(GRANTS, "a", cpu("3")),
        with_lowered(GRANTS, "a", cpu("3")),
        without(GRANTS, ["c"]),
        mark_complete(GRANTS, observed),
    ):
        assert changed.serial == GRANTS.serial + 1
