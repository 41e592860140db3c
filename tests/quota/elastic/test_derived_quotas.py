"""What elastic quotas are charged by: pools and maximums as quotas that namespaces share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_pod
from tests.quota.elastic.pools import a_quota
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import to_text
from webhook.quota.charging.gpu_memory import DEFAULT_GB, GPU_MEMORY
from webhook.quota.charging.pod_usage import charged_to
from webhook.quota.elastic.derived_quotas import (
    derived_quotas,
    held_by,
    max_name,
    uncharged_resources,
)
from webhook.quota.elastic.elastic_quotas import ElasticQuota, charge, read_elastic_quota
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import DEFERRED_KEYS, DERIVED_PREFIXES, object_name_errors
from webhook.quota.shared.cluster_quota_validation import cluster_quota_errors
from webhook.quota.shared.cluster_quotas import cluster_quota


def every(_namespace: str) -> bool:
    return True


def derived(
    *quotas: ElasticQuota, opted_in: Callable[[str], bool] = every, gb: int = DEFAULT_GB
) -> dict[str, tuple[tuple[str, ...], dict[str, str]]]:
    found = derived_quotas(quotas, opted_in, gb)
    return {name: (one.namespaces, to_text(one.hard)) for name, one in found.items()}


def pooled(pool: str, name: str, least: dict[str, object]) -> ElasticQuota:
    return read_elastic_quota(
        {
            "kind": "ElasticQuota",
            "metadata": {"namespace": name, "name": "q", "labels": {"deferredquota.io/pool": pool}},
            "spec": {"min": least},
        }
    )


def test_a_pool_is_the_sum_of_all_min_and_max_is_a_limit_of_its_own() -> None:
    both = {"cpu": "4", "memory": "1Gi"}
    assert derived(
        a_quota("a", both, {"cpu": "6"}), a_quota("b", {"cpu": "2", "memory": "1Gi"})
    ) == {
        "epool.default": (("a", "b"), {"requests.cpu": "6", "requests.memory": "2Gi"}),
        "eq.a.a": (("a",), {"requests.cpu": "6"}),
    }


def test_a_composite_counts_once() -> None:
    """X20; nos: once for each namespace, which makes 30."""
    quotas = (a_quota("c", 10, 20, namespaces=["x", "y"]), a_quota("z", 10))
    assert derived(*quotas) == {
        "ceq.c.c": (("x", "y"), {GPU_MEMORY: "20"}),
        "epool.default": (("x", "y", "z"), {GPU_MEMORY: "20"}),
    }


def test_quotas_lend_within_one_pool_only() -> None:
    found = derived(pooled("one", "a", {"cpu": "1"}), pooled("two", "b", {"cpu": "2"}))
    assert found == {
        "epool.one": (("a",), {"requests.cpu": "1"}),
        "epool.two": (("b",), {"requests.cpu": "2"}),
    }


def test_pods_of_a_quota_that_does_not_name_a_resource_are_not_compared() -> None:
    found = derived(a_quota("a", {"cpu": "4"}), a_quota("b", {GPU_MEMORY: "40"}))
    assert sorted(found.values()) == [
        (("a",), {"requests.cpu": "4"}),
        (("b",), {GPU_MEMORY: "40"}),
    ]


def test_a_quota_that_names_a_resource_in_max_only_borrows_all_of_it() -> None:
    found = derived(a_quota("a", {"cpu": "40"}), a_quota("b", None, {"cpu": "20"}))
    assert found["epool.default"] == (("a", "b"), {"requests.cpu": "40"})


def test_a_resource_that_no_min_names_has_no_pool() -> None:
    assert derived(a_quota("a", None, {"cpu": "4"})) == {"eq.a.a": (("a",), {"requests.cpu": "4"})}


def test_what_is_not_charged_lends_nothing_and_borrows_nothing() -> None:
    found = derived(
        a_quota("a", {"cpu": "4"}), a_quota("b", {"cpu": "2"}), opted_in=lambda name: name == "a"
    )
    assert found == {"epool.default": (("a", "b"), {"requests.cpu": "4"})}


def test_the_memory_of_a_gpu_is_part_of_the_key() -> None:
    name, number = f"{GPU_MEMORY}.80gb", "requests.nvidia.com/gpu"
    found = derived(a_quota("a", {GPU_MEMORY: "160", "nvidia.com/gpu": "2"}), gb=80)
    assert found == {"epool.default": (("a",), {name: "160", number: "2"})}


def test_what_no_bind_is_charged_for_is_named() -> None:
    quota = a_quota("a", {"cpu": "1", "pods": "3", "ephemeral-storage": "1Gi"})
    assert uncharged_resources(quota) == ("ephemeral-storage", "pods")
    assert derived(quota) == {"epool.default": (("a",), {"requests.cpu": "1"})}


UNCHARGED = ("pods", "ephemeral-storage", "hugepages-2Mi", "requests.cpu", "limits.cpu")


def test_what_no_bind_is_charged_for_is_neither_guaranteed_nor_counted() -> None:
    quota = a_quota("a", {"cpu": "1", **dict.fromkeys(UNCHARGED, "3")})
    assert [*Pool("default", [quota]).resources] == ["cpu"]
    request = {"cpu": "1", "ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi"}
    limits = {"cpu": "1", "hugepages-2Mi": "2Mi"}
    usage = charged_to(Pod.from_object(a_pod(requests=request, limits=limits)))
    assert usage.keys() > set(UNCHARGED)
    assert to_text(charge(usage, quota.names)) == {"cpu": "1"}


def test_a_long_name_is_still_the_name_of_one_object() -> None:
    names = {max_name(a_quota("n" * 63 + end)) for end in ("", "-1", "-2")}
    long = [
        read_elastic_quota(
            {"kind": "ElasticQuota", "metadata": {"namespace": "n" * 63, "name": "q" * length}}
        )
        for length in (252, 253)
    ]
    names |= {max_name(one) for one in long}
    assert len(names) == 5
    assert not any(map(object_name_errors, names))


@pytest.mark.parametrize("pool", ["Default", "a.b", "-", "a_b"])
def test_a_pool_has_the_name_of_an_object(pool: str) -> None:
    with pytest.raises(ValueError, match=r"metadata\.labels\[deferredquota\.io/pool\]"):
        pooled(pool, "a", {"cpu": "1"})


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", GPU_MEMORY, "pods"]), st.integers(0, 9)
)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS, st.booleans()), max_size=5), st.integers(1, 99))
def test_every_one_is_a_sound_quota_whose_limits_are_the_sums(
    drawn: list[tuple[dict[str, int], dict[str, int], bool]], gb: int
) -> None:
    quotas, opted_in = [], {}
    for number, (least, more, is_in) in enumerate(drawn):
        most = {name: least.get(name, 0) + amount for name, amount in more.items()}
        quotas.append(a_quota(f"n{number}", {**least}, {**most}))
        opted_in[f"n{number}"] = is_in
    found = derived_quotas(quotas, opted_in.__getitem__, gb)
    for name, one in found.items():
        raw = {"metadata": {"name": name, "uid": "u"}, "spec": one.spec}
        assert cluster_quota_errors(raw, DEFERRED_KEYS) == []
        read = cluster_quota(raw)
        assert name.startswith(DERIVED_PREFIXES)
        assert read.quota.hard == one.hard
        for namespace in opted_in:
            labels = {"kubernetes.io/metadata.name": namespace}
            assert read.selects(labels) == (namespace in one.namespaces)
    pools = [one for name, one in found.items() if name.startswith("epool.")]
    for resource in ("cpu", "memory", "nvidia.com/gpu"):
        sizes = [one.hard.get(f"requests.{resource}") for one in pools]
        sums = [one.min[resource] for one in quotas if resource in one.min and opted_in[one.name]]
        named = any(resource in one.min for one in quotas)
        assert [size for size in sizes if size is not None] == ([sum(sums, ZERO)] if named else [])


def test_what_is_held_is_summed_over_the_namespaces_of_a_quota() -> None:
    """nos: of a resource that only max names the status says nothing."""
    quota = a_quota("c", {"cpu": "4"}, {"cpu": "8", "memory": "2"}, namespaces=["x", "y"])
    cpu, memory = Quantity.parse("1500m"), Quantity.parse("1")
    held = {
        "epool.default": {
            "x": {"requests.cpu": cpu},
            "y": {"requests.cpu": cpu},
            "z": {"requests.cpu": cpu},
        },
        "ceq.c.c": {"x": {"requests.cpu": cpu, "requests.memory": memory}},
    }
    assert to_text(held_by(quota, held, DEFAULT_GB)) == {"cpu": "3", "memory": "1"}


def test_what_is_not_lent_is_kept_for_the_namespaces_of_its_quota() -> None:
    quotas = (
        a_quota("a", {"cpu": "4", "memory": "1Gi"}, lendable={"cpu": "1", "memory": "1Gi"}),
        a_quota("c", {"cpu": "2"}, namespaces=["x", "y"], lendable={"cpu": "0"}),
        a_quota("out", {"cpu": "2"}, lendable={"cpu": "0"}),
        a_quota("b", {"cpu": "1"}),
    )
    found = derived_quotas(
        quotas, lambda namespace: namespace != "out", DEFAULT_GB, has_headroom=True
    )
    pool = next(one for one in found.values() if "requests.cpu" in one.hard)
    assert pool.spec["kept"] == [
        {"namespaces": ["x", "y"], "amounts": {"requests.cpu": "2"}},
        {"namespaces": ["a"], "amounts": {"requests.cpu": "3"}},
    ]
    assert pool.spec["headroom"] == [
        {"namespaces": ["x", "y"], "amounts": {"requests.cpu": "2"}},
        {"namespaces": ["a"], "amounts": {"requests.cpu": "4"}},
        {"namespaces": ["b"], "amounts": {"requests.cpu": "1"}},
    ]
    memory = next(one for one in found.values() if "requests.memory" in one.hard)
    assert "kept" not in memory.spec
    raw = {"metadata": {"name": pool.name, "uid": "u"}, "spec": pool.spec}
    assert {one.namespaces for one in cluster_quota(raw).kept} == {
        frozenset({"a"}),
        frozenset({"x", "y"}),
    }
    assert cluster_quota_errors(raw, DEFERRED_KEYS) == []
