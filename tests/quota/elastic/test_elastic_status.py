"""Status of an elastic quota."""

from __future__ import annotations

import pytest

from tests.counting import calls_of
from tests.quota.elastic.pools import a_quota
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.elastic.derived_quotas import uncharged_resources
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.elastic_status import PoolUsage, charged_condition, elastic_status
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.ledger.ledger_codec import conditions_in, conditions_out


def usage(held: dict[str, str], *quotas: ElasticQuota) -> PoolUsage:
    pool = Pool("default", quotas)
    amounts = {one.key: {"memory": Quantity.parse(held[one.name])} for one in quotas}
    return PoolUsage(pool, amounts)


def test_it_says_what_is_used_borrowed_lent_and_guaranteed() -> None:
    a, b, c = (
        a_quota(name, {"memory": least})
        for name, least in zip("abc", ("40Gi", "10Gi", "30Gi"), strict=True)
    )
    pool = usage({"a": "40Gi", "b": "40Gi", "c": "0"}, a, b, c)
    assert elastic_status(b, pool) == {
        "used": {"memory": "40Gi"},
        "borrowed": {"memory": "30Gi"},
        "lent": {"memory": "0"},
        "guaranteed": {"memory": "3840Mi"},
        "summary": "memory 40Gi/10Gi",
    }
    assert elastic_status(c, pool)["lent"] == {"memory": "30Gi"}


def test_it_says_nothing_of_what_no_bind_is_charged_for() -> None:
    a, b = a_quota("a", {"memory": "2Gi", "pods": "1"}), a_quota("b", {"pods": "1"})
    found = elastic_status(a, usage({"a": "1Gi", "b": "0"}, a, b))
    assert [found[name] for name in ("borrowed", "lent")] == [{"memory": "0"}, {"memory": "0"}]
    assert found["guaranteed"] == {"memory": "1Gi"}


def test_the_figures_of_a_pool_are_worked_out_once_for_all_its_quotas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = calls_of(monkeypatch, Pool, "lent")
    quotas = [a_quota(name, {"memory": "1Gi"}) for name in "abcde"]
    pool = usage(dict.fromkeys("abcde", "1Gi"), *quotas)
    for one in quotas:
        elastic_status(one, pool)
    assert [resource for _, resource, _ in asked] == ["memory"]


def condition(
    quota: ElasticQuota, *, outside: tuple[str, ...] = (), taken: tuple[str, ...] = ()
) -> tuple[str, str]:
    found = charged_condition(
        quota, outside=outside, uncharged=uncharged_resources(quota), taken=taken
    )
    return found.status, found.reason


def test_the_condition_names_a_few_of_many_resources() -> None:
    """A longer one would not be read back from a status that is kept short."""
    uncharged = tuple(f"hugepages-{number}Mi" for number in range(64))
    found = charged_condition(a_quota("a", {"cpu": "4"}), outside=(), uncharged=uncharged, taken=())
    named = "hugepages-0Mi, hugepages-1Mi, hugepages-2Mi, hugepages-3Mi, hugepages-4Mi, ..."
    assert found.message == f"no bind is charged for {named}"


def test_the_condition_says_whether_binds_are_charged() -> None:
    plain = a_quota("a", {"cpu": "4"})
    assert condition(plain) == ("True", "AllCharged")
    assert condition(plain, outside=("a",)) == ("False", "NotOptedIn")
    assert condition(plain, taken=("eq.a.a",)) == ("False", "NameTaken")
    assert condition(a_quota("a", {"cpu": "4", "pods": "2"})) == ("True", "PartlyCharged")
    both = a_quota("a", {"cpu": "4"}, namespaces=["x", "y"])
    assert condition(both, outside=("y",)) == ("True", "PartlyCharged")
    assert condition(both) == ("True", "AllCharged")
    kept = a_quota("a", {"cpu": "4"}, lendable={"cpu": "1"})
    assert condition(kept) == ("True", "AllCharged")
    assert condition(a_quota("a", {"cpu": "4"}, lendable={"cpu": "4"})) == ("True", "AllCharged")


def test_what_the_api_server_refuses_charges_nothing() -> None:
    words = 'ClusterDeferredQuota "epool.default" is invalid: spec.hard: Too many: 128'
    found = charged_condition(
        a_quota("a", {"cpu": "4", "pods": "2"}),
        outside=(),
        uncharged=("pods",),
        taken=(),
        refused=(words, "another"),
        fault="min is above max",
    )
    assert (found.status, found.reason) == ("False", "Refused")
    assert found.message == f"no bind is charged by these amounts: {words}"


def test_a_long_refusal_is_read_back() -> None:
    found = charged_condition(
        a_quota("a", {"cpu": "4"}), outside=(), uncharged=(), taken=(), refused=("x" * 10_000,)
    )
    assert conditions_in(conditions_out([found])["conditions"]) == (found,)
