"""Which namespaces of a pool use more than their min."""

from __future__ import annotations

import pytest

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, to_text
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.shared.cluster_quotas import cluster_quota
from webhook.quota.shared.escrow import Shared, borrowers
from webhook.quota.shared.grants import Grants, with_headroom

CPU = "requests.cpu"
MEMORY = "requests.memory"


def amounts(cpu: str) -> ResourceList:
    return {CPU: Quantity.parse(cpu), MEMORY: Quantity.parse("1Gi")}


def pool(*least: tuple[list[str], str], **held: str) -> Shared:
    """A pool in which namespaces have a min together, and hold something."""
    parts = [{"namespaces": names, "amounts": {CPU: cpu}} for names, cpu in least]
    spec = {"namespaceSelector": {}, "hard": {CPU: "10", MEMORY: "1Ti"}, "headroom": parts}
    quota = cluster_quota({"metadata": {"name": "epool.default", "uid": "u"}, "spec": spec})
    return Shared(quota, Grants({name: amounts(cpu) for name, cpu in held.items()}))


def found(shared: Shared) -> dict[str, dict[str, str]]:
    return {names: to_text(above) for names, above in borrowers(shared, {CPU})}


def test_a_quota_borrows_what_its_namespaces_use_above_its_min() -> None:
    shared = pool((["a"], "4"), (["b", "c"], "2"), a="4", b="1", c="2", d="500m")
    assert found(shared) == {"b, c": {CPU: "1"}, "d": {CPU: "500m"}}


def test_of_many_namespaces_of_one_quota_some_are_named() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    assert list(found(pool((names, "1"), a="4"))) == ["a, b, c, d, and 2 more"]


def test_what_is_not_used_is_not_borrowed() -> None:
    shared = pool((["a"], "2"), a="5")
    unused = Shared(shared.quota, with_headroom(shared.grants, "a", {CPU: Quantity.parse("3")}))
    assert (found(shared), found(unused)) == ({"a": {CPU: "3"}}, {})


def test_without_any_min_in_the_spec_none_is_named() -> None:
    assert found(pool(a="5")) == {}


@pytest.mark.parametrize("number", [1, 8, 11])
def test_a_denial_names_some_of_many(number: int) -> None:
    borrowed = tuple([(f"n{each}", {CPU: Quantity.parse("2")}) for each in range(number)])
    one = {CPU: Quantity.parse("1")}
    said = QuotaExceeded("cdq/epool.default", one, one, one, borrowed=borrowed).message
    named = ", ".join(f"n{each} cpu=2" for each in range(min(number, 8)))
    more = f", and {number - 8} more" if number > 8 else ""
    assert said == (
        "elastic pool default is used up, requested: cpu=1, used: cpu=1, size: cpu=1;"
        f" borrowed: {named}{more}"
    )
