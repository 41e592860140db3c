"""Up to which size new pods go ungated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.install.manifests import the_one
from tests.json_schema import schema_errors
from webhook.quota.amounts.quantity import COUNTABLE, ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, parse_resource_list
from webhook.quota.ledger.ledger import EMPTY, Account, Ledger, QuotaRevision
from webhook.quota.queue.ungated_limits import UngatedLimits, from_spec, to_spec, ungated_limits

CPU = "requests.cpu"


def amounts(raw: dict[str, str]) -> ResourceList:
    return parse_resource_list(raw, field="hard")


def a_ledger(used: dict[str, str] | None = None, *, name: str = "q", **hard: str) -> Ledger:
    limits = {key.replace("_", "."): amount for key, amount in hard.items()}
    account = Account(QuotaRevision(name, "uid", "hash"), amounts(limits), amounts(used or {}))
    return Ledger({name: account}, {})


def limits_of(
    ledger: Ledger | None, former: UngatedLimits | None = None, **more: str
) -> UngatedLimits:
    demand = {
        name: amounts({CPU: more[name]} if name in more else {}) for name in ("in_flight", "queued")
    }
    return ungated_limits(
        ledger,
        is_counted=True,
        in_flight=demand["in_flight"],
        queued=demand["queued"],
        max_reservations=4000,
        former=former,
    )


def cpu_of(limits: UngatedLimits) -> str:
    return str(limits.requests["cpu"])


LEFT = [
    ("0", "2"),
    ("4", "2"),
    ("4001m", "1"),
    ("6", "1"),
    ("6001m", "500m"),
    ("7", "500m"),
    ("7001m", "0"),
    ("9", "0"),
]


@pytest.mark.parametrize(("used", "most"), LEFT)
def test_the_most_is_half_of_what_has_to_be_left(used: str, most: str) -> None:
    found = limits_of(a_ledger({CPU: used}, requests_cpu="8"))
    assert cpu_of(found) == most
    assert found.is_open == (most != "0")


@pytest.mark.parametrize(
    ("used", "most"), [("4", "1"), ("6", "500m"), ("7", "250m"), ("7001m", "0")]
)
def test_of_a_shared_quota_it_is_a_fourth(used: str, most: str) -> None:
    assert cpu_of(limits_of(a_ledger({CPU: used}, name="cdq/both", requests_cpu="8"))) == most


def test_no_pod_of_an_elastic_pool_goes_ungated() -> None:
    """Reclaim gives owners back what is borrowed for pods behind our gate only."""
    found = limits_of(a_ledger(name="cdq/epool.default", requests_cpu="8"))
    assert (cpu_of(found), found.is_open) == ("0", False)
    assert found.reason == "elastic pool default: its owners come first"
    assert cpu_of(limits_of(a_ledger(name="cdq/eq.team-a.q", requests_cpu="8"))) == "1"


def test_what_is_held_elsewhere_is_taken() -> None:
    ledger = a_ledger({CPU: "1"}, name="cdq/both", requests_cpu="8")
    account = replace(ledger.accounts["cdq/both"], used_elsewhere=amounts({CPU: "5"}))
    assert cpu_of(limits_of(replace(ledger, accounts={"cdq/both": account}))) == "500m"


def test_what_is_reserved_in_flight_and_queued_is_taken() -> None:
    ledger = a_ledger({CPU: "1"}, requests_cpu="8")
    account = replace(ledger.accounts["q"], reserved=amounts({CPU: "1"}))
    reserved = replace(ledger, accounts={"q": account})
    assert cpu_of(limits_of(reserved)) == "2"
    assert cpu_of(limits_of(reserved, in_flight="2", queued="0")) == "2"
    assert cpu_of(limits_of(reserved, in_flight="2", queued="1")) == "1"
    assert cpu_of(limits_of(reserved, in_flight="2", queued="4")) == "0"


def test_a_level_is_left_at_once_and_reached_again_with_more() -> None:
    at_two = limits_of(a_ledger({CPU: "4"}, requests_cpu="8"))
    at_one = limits_of(a_ledger({CPU: "4001m"}, requests_cpu="8"), at_two)
    assert (cpu_of(at_two), cpu_of(at_one)) == ("2", "1")
    assert at_one.gates_more_than(at_two)
    assert limits_of(a_ledger({CPU: "3001m"}, requests_cpu="8"), at_one) == at_one
    assert limits_of(a_ledger({CPU: "3"}, requests_cpu="8"), at_one) == at_two
    assert not at_two.gates_more_than(at_one)


def test_of_several_quotas_the_smallest_counts() -> None:
    small, large = a_ledger(name="a", requests_cpu="8"), a_ledger(name="b", requests_cpu="80")
    both = Ledger({**small.accounts, **large.accounts}, {})
    assert cpu_of(limits_of(both)) == "2"


def test_what_another_quota_allows_closes_no_namespace_again() -> None:
    """The one with more room stays at its level, whatever the limits were that both made."""
    small = a_ledger({CPU: "1"}, name="a", requests_cpu="8")
    large = a_ledger({CPU: "69"}, name="b", requests_cpu="80")
    both = Ledger({**small.accounts, **large.accounts}, {})
    first = limits_of(both)
    assert (cpu_of(first), first.is_open) == ("2", True)
    assert limits_of(both, first) == first


def test_each_key_is_about_what_containers_state() -> None:
    hard = {
        "cpu": "8",
        "limits.cpu": "16",
        "memory": "8Gi",
        "requests.nvidia.com/gpu": "4",
    }
    account = Account(QuotaRevision("q", "uid", "hash"), amounts(hard), EMPTY)
    found = to_spec(limits_of(Ledger({"q": account}, {})))
    assert found["requests"] == {
        "cpu": "2",
        "memory": "2Gi",
        "nvidia.com/gpu": "1",
    }
    assert found["limits"] == {"cpu": "4"}


def test_what_is_worked_out_from_other_resources_gates_those_that_name_some() -> None:
    account = Account(
        QuotaRevision("q", "uid", "hash"), amounts({"nos.nebuly.com/gpu-memory": "80"}), EMPTY
    )
    found = limits_of(Ledger({"q": account}, {}))
    assert (found.gates_extended, found.gates_all, found.is_open) == (True, False, True)


GPU = "requests.example.com/gpu"


@pytest.mark.parametrize(
    ("hard", "used", "most", "is_open"),
    [("8", "0", "2", True), ("8", "5", "1", True), ("8", "7", "0", False), ("3", "0", "0", True)],
)
def test_devices_are_counted_whole(hard: str, used: str, most: str, is_open: bool) -> None:
    account = Account(QuotaRevision("q", "uid", "hash"), amounts({GPU: hard}), amounts({GPU: used}))
    found = limits_of(Ledger({"q": account}, {}))
    assert (str(found.requests["example.com/gpu"]), found.is_open) == (most, is_open)


def test_a_quota_of_nothing_closes_no_namespace() -> None:
    found = limits_of(a_ledger(requests_cpu="0"))
    assert (cpu_of(found), found.is_open) == ("0", True)


def test_where_usage_is_not_known_all_are_gated() -> None:
    for ledger, is_counted, queued in (
        (None, True, EMPTY),
        (a_ledger(requests_cpu="8"), False, EMPTY),
        (a_ledger(requests_cpu="8"), True, None),
    ):
        found = ungated_limits(
            ledger, is_counted=is_counted, in_flight=EMPTY, queued=queued, max_reservations=9
        )
        assert found.gates_all
        assert found.reason


MILLI = st.integers(min_value=0, max_value=20_000)


QUOTAS = st.lists(st.tuples(MILLI, MILLI, st.sampled_from(["q", "cdq/q"])), min_size=1, max_size=3)


@given(quotas=QUOTAS, in_flight=MILLI, queued=MILLI, before=QUOTAS)
def test_there_is_always_room_for_what_goes_ungated(
    quotas: list[tuple[int, int, str]],
    in_flight: int,
    queued: int,
    before: list[tuple[int, int, str]],
) -> None:
    """Twice: one more of the same size may come before what is stored is known everywhere."""
    former = limits_of(several(before))
    ledger = several(quotas)
    asked: Any = {"in_flight": f"{in_flight}m", "queued": f"{queued}m"}
    found = limits_of(ledger, former, **asked)
    most = found.requests["cpu"]
    for hard, used, _ in quotas:
        taken = Quantity.parse(f"{used + in_flight + queued}m")
        assert most == ZERO or taken + most + most <= Quantity.parse(f"{hard}m")
    # nothing is written twice, and nothing is gated that would not be without a history
    assert limits_of(ledger, found, **asked) == found
    fresh = limits_of(ledger, **asked)
    assert most <= fresh.requests["cpu"]
    assert most == fresh.requests["cpu"] or not found.gates_more_than(former)


def several(quotas: list[tuple[int, int, str]]) -> Ledger:
    accounts: dict[str, Account] = {}
    for number, (hard, used, name) in enumerate(quotas):
        made = a_ledger({CPU: f"{used}m"}, name=f"{name}-{number}", requests_cpu=f"{hard}m")
        accounts |= made.accounts
    return Ledger(accounts, {})


def test_what_is_stored_reads_back() -> None:
    found = limits_of(a_ledger({CPU: "7900m"}, requests_cpu="8", limits_memory="3"))
    assert from_spec(to_spec(found)) == found
    assert to_spec(found)["state"] == "Closed"
    assert to_spec(found)["reason"] == "quota q: little requests.cpu is left"


@pytest.mark.parametrize(
    "hard", ["32617500Ki", "32Gi", "1500000Ki", "8e9", "1k", "8Ei", "999E", "1e30", "3", "100m"]
)
@pytest.mark.parametrize("part", [0, 6, 8])
def test_amounts_of_every_format_read_back(hard: str, part: int) -> None:
    used = Quantity.of_nano(Quantity.parse(hard).nano * part // 10)
    found = limits_of(a_ledger({"requests.memory": str(used)}, requests_memory=hard))
    assert from_spec(to_spec(found)) == found


CRD: Any = the_one("CustomResourceDefinition", "podgatings.deferredquota.io")
SCHEMA: Final = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


@pytest.mark.parametrize(
    "hard",
    [f"{COUNTABLE}", "9" * 36, f"{'9' * 35}.987654321", "1e0", "7e-9", "1n", "1", "3Ei", "9999E"],
)
def test_every_amount_is_as_its_definition_has_it(hard: str) -> None:
    for used in ("0", hard):
        spec = to_spec(limits_of(a_ledger({"requests.memory": used}, requests_memory=hard)))
        assert spec["requests"]
        assert list(schema_errors(spec, SCHEMA)) == []


@pytest.mark.parametrize("amount", ["1e999", "1e9999999", "1E+100", "1e-100", "9" * 65, "-1", ""])
def test_its_definition_has_no_amount_that_takes_a_policy_long(amount: str) -> None:
    assert list(schema_errors({"requests": {"memory": amount}}, SCHEMA))
    assert list(schema_errors({"limits": {"memory": amount}}, SCHEMA))


@pytest.mark.parametrize(
    "change",
    [
        {"requests": {"cpu": "x"}},
        {"requests": {"cpu": "2000m"}},
        {"requests": None},
        {"state": "Closed"},
        {"more": 1},
    ],
    ids=str,
)
def test_what_another_wrote_is_read_as_nothing(change: dict[str, object]) -> None:
    spec = to_spec(limits_of(a_ledger(requests_cpu="8")))
    assert from_spec({**spec, **change}) is None
