"""The last comparison finds lost, doubled and left-over charges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.torture.observer.amounts import NANO
from tests.torture.observer.facts import Account, LedgerFact, PodFact, QuotaFact
from tests.torture.observer.recount import differences, idle_promises
from tests.torture.observer.usage import Expression

QUOTA = QuotaFact(
    revision=1, at=1.0, namespace="n", name="q", uid="u", hard={"requests.cpu": 9 * NANO}
)
POD = PodFact(
    revision=2,
    at=2.0,
    namespace="n",
    name="p",
    uid="p",
    is_assigned=True,
    usage={"requests.cpu": NANO, "cpu": NANO},
)
ACCOUNT = Account(uid="u", used={"requests.cpu": NANO}, reserved={})
LEDGER = LedgerFact(revision=3, at=3.0, namespace="n", accounts={"q": ACCOUNT})


def words(
    ledger: LedgerFact | None, *pods: PodFact, quotas: tuple[QuotaFact, ...] = (QUOTA,)
) -> list[str]:
    return [str(each) for each in differences(ledger, quotas, pods, namespace="n", at=100.0)]


def test_a_true_ledger_has_no_difference() -> None:
    assert words(LEDGER, POD) == []


@pytest.mark.parametrize(
    "pod",
    [
        replace(POD, is_assigned=False),
        replace(POD, is_live=False),
        replace(POD, released_at=99.0),
    ],
)
def test_a_charge_that_should_be_gone_is_found(pod: PodFact) -> None:
    expected = "charged twice or too long: used requests.cpu=1, pods take requests.cpu=0"
    assert words(LEDGER, pod) == [f"n/q: {expected}"]


def test_a_lost_charge_is_found() -> None:
    second = replace(POD, uid="p2", name="p2", usage={"requests.cpu": 1})
    assert words(LEDGER, POD, second) == [
        "n/q: lost charge: used requests.cpu=1, pods take requests.cpu=1.000000001"
    ]


def test_a_pod_that_is_still_being_deleted_counts() -> None:
    assert words(LEDGER, replace(POD, released_at=101.0)) == []


def test_pods_that_the_quota_does_not_select_do_not_count() -> None:
    gold = replace(QUOTA, conditions=(Expression("PriorityClass"),))
    assert "used requests.cpu=1, pods take requests.cpu=0" in words(LEDGER, POD, quotas=(gold,))[0]


def test_what_is_left_reserved_is_found() -> None:
    account = replace(ACCOUNT, reserved={"requests.cpu": 5})
    ledger = replace(LEDGER, accounts={"q": account}, reservations=1)
    assert words(ledger, POD) == [
        "n/q: reserved is requests.cpu=0.000000005",
        "n/*: 1 reservations are left",
    ]


def test_a_quota_that_is_not_counted_is_found() -> None:
    assert words(None, POD) == ["n/q: there is no ledger"]
    assert words(replace(LEDGER, accounts={})) == ["n/q: the ledger does not count this quota"]
    other = replace(QUOTA, uid="another")
    assert words(LEDGER, POD, quotas=(other,)) == ["n/q: the ledger does not count this quota"]


def test_an_account_without_quota_is_found() -> None:
    assert words(LEDGER, quotas=()) == ["n/q: the ledger counts a quota that is not there"]


def test_quotas_without_deferred_keys_are_not_the_ledgers() -> None:
    assert words(None, POD, quotas=(replace(QUOTA, hard={}),)) == []


def test_what_is_promised_to_pods_without_a_node_may_be_left() -> None:
    waits = replace(POD, uid="w", name="w", is_assigned=False)
    account = replace(ACCOUNT, reserved={"requests.cpu": NANO})
    ledger = replace(LEDGER, accounts={"q": account}, reservations=1, promised=("w",))
    assert words(ledger, POD, waits) == []
    assert words(ledger, POD, replace(waits, usage={"requests.cpu": 2 * NANO})) == [
        "n/q: promised is requests.cpu=2, reserved requests.cpu=1"
    ]
    for gone in ((), (replace(waits, is_live=False),), (replace(waits, uid="other"),)):
        found = words(ledger, POD, *gone)
        assert found == ["n/q: reserved is requests.cpu=1", "n/*: 1 reservations are left"]


def test_accounts_of_cluster_quotas_are_not_of_the_namespace() -> None:
    accounts = {"q": ACCOUNT, "cdq/all": ACCOUNT}
    assert words(replace(LEDGER, accounts=accounts), POD) == []


def test_what_is_promised_to_a_pod_that_does_not_wait_is_found() -> None:
    promises = [
        {"uid": "w", "namespace": "n", "pod": "w", "amounts": {"requests.cpu": "1"}},
        {"uid": "gone", "namespace": "n", "pod": "g", "amounts": {"requests.cpu": "1"}},
    ]
    quotas: list[dict[str, Any]] = [
        {"metadata": {"name": "all"}},
        {"metadata": {"name": "epool.default"}, "status": {"promises": promises}},
    ]
    waits = replace(POD, uid="w", name="w", is_assigned=False)
    found = [str(each) for each in idle_promises(quotas, [waits])]
    assert found == ["n/epool.default: promised to g for ever"]
