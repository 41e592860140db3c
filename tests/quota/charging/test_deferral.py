"""Which quotas are deferred, and what a request claims of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_container, a_container_status, a_pod, a_quota, an_expression
from tests.quota.pod_strategies import pods
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import to_text
from webhook.quota.charging.deferral import (
    NamespaceQuotas,
    QuotaScopeError,
    claim_for_bind,
    claim_for_update,
    deferred_part,
    deferred_quotas,
    may_increase_usage,
    uncountable_fields,
)
from webhook.quota.charging.pod_usage import charged_to
from webhook.quota.ledger.ledger import (
    NEWEST,
    Account,
    Claim,
    Ledger,
    ReservationSource,
    admit,
)
from webhook.quota.ledger.ledger_codec import ledger_from_status, ledger_status
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS

Object = dict[str, object]
KEYS = DEFERRED_KEYS


def quotas(*made: Object, keys: frozenset[str] = KEYS) -> NamespaceQuotas:
    return deferred_quotas(map(ResourceQuota.from_object, made), keys)


def pod(**fields: object) -> Pod:
    made = a_pod(**fields)  # type: ignore[arg-type]
    metadata = made["metadata"]
    assert isinstance(metadata, dict)
    return Pod.from_object({**made, "metadata": {**metadata, "resourceVersion": "41"}})


def assigned(taken: Pod, found: NamespaceQuotas) -> Claim | None:
    return claim_for_bind(taken, found, source=ReservationSource.BIND, observed_version=3)


CHOSEN: dict[str, tuple[Object, dict[str, str] | None]] = {
    "compute": (
        a_quota(hard={"cpu": "1", "limits.memory": "2"}),
        {"cpu": "1", "limits.memory": "2"},
    ),
    "mixed": (a_quota(hard={"requests.cpu": "1", "pods": "2"}), {"requests.cpu": "1"}),
    "native": (a_quota(hard={"pods": "2", "requests.ephemeral-storage": "1"}), None),
    "empty": (a_quota(hard={}), None),
    "excluded": (a_quota(metadata={"annotations": {"deferredquota.io/exclude": "true"}}), None),
    "excluded by another word": (
        a_quota(metadata={"annotations": {"deferredquota.io/exclude": "True"}}),
        {"requests.cpu": "2"},
    ),
}


@pytest.mark.parametrize(("quota", "hard"), CHOSEN.values(), ids=CHOSEN.keys())
def test_the_deferred_part_of_a_quota(quota: Object, hard: dict[str, str] | None) -> None:
    found = quotas(quota).quotas
    assert [to_text(one.hard) for one in found] == ([] if hard is None else [hard])


def test_quotas_are_sorted_by_name() -> None:
    found = quotas(a_quota("b"), a_quota("a"), a_quota("c"))
    assert [one.name for one in found.quotas] == ["a", "b", "c"]


def test_what_was_counted_is_another_thing_when_terminating_pods_are_held() -> None:
    quota = ResourceQuota.from_object(a_quota())
    held = deferred_quotas([quota], KEYS, holds_terminating=True)
    assert held.holds_terminating
    assert held.quotas[0].holds_terminating
    assert held.observed != deferred_quotas([quota], KEYS).observed


def test_what_was_counted_is_another_thing_when_another_resource_is_deferred() -> None:
    quota = a_quota(hard={"requests.cpu": "1", "requests.nvidia.com/gpu": "1"})
    more = KEYS | {"requests.nvidia.com/gpu"}
    assert quotas(quota).observed != quotas(quota, keys=more).observed
    plain = a_quota(hard={"requests.cpu": "1"})
    assert quotas(plain).observed == quotas(plain, keys=more).observed


def test_an_assignment_claims_the_deferred_part_in_the_quotas_that_apply() -> None:
    found = quotas(
        a_quota("all"), a_quota("gold", expressions=[an_expression("PriorityClass", "In", "gold")])
    )
    claim = assigned(pod(requests={"cpu": "1", "ephemeral-storage": "1"}), found)
    assert claim is not None
    assert to_text(claim.usage) == {"cpu": "1", "requests.cpu": "1"}
    assert (claim.uid, claim.pod, claim.quotas, claim.observed_version) == (
        "pod-uid-1",
        "web-1",
        ("all",),
        3,
    )
    gold = assigned(pod(requests={"cpu": "1"}, priorityClassName="gold"), found)
    assert gold is not None
    assert gold.quotas == ("all", "gold")


NO_CLAIM = {
    "no deferred quota": (pod(requests={"cpu": "1"}), quotas(a_quota(hard={"pods": "1"}))),
    "no compute": (pod(), quotas(a_quota())),
    "an ended pod": (pod(requests={"cpu": "1"}, status={"phase": "Failed"}), quotas(a_quota())),
}


@pytest.mark.parametrize(("taken", "found"), NO_CLAIM.values(), ids=NO_CLAIM.keys())
def test_what_takes_nothing_that_is_limited_claims_nothing(
    taken: Pod, found: NamespaceQuotas
) -> None:
    assert assigned(taken, found) is None


def test_a_pod_that_no_quota_applies_to_claims_all_the_same() -> None:
    found = quotas(a_quota(scopes=["Terminating"]))
    claim = assigned(pod(requests={"cpu": "1"}), found)
    assert claim is not None
    assert claim.quotas == ()


def resized(old: str, new: str, *, node: str = "n", found: NamespaceQuotas) -> Claim | None:
    before = pod(node=node, requests={"cpu": old})
    after = pod(node=node, requests={"cpu": new})
    return claim_for_update(before, after, found, source=ReservationSource.RESIZE)


def test_what_a_node_reports_below_nothing_is_charged_as_nothing() -> None:
    reported = a_container_status(requests={"cpu": "-3"}, limits={"memory": "-1"})
    lying = pod(node="node-1", status={"containerStatuses": [reported]})
    claim = claim_for_update(lying, lying, quotas(a_quota()), source=ReservationSource.RESIZE)
    assert claim is None
    found = deferred_part(charged_to(lying), KEYS)
    assert to_text(found) == dict.fromkeys(found, "0")
    assert found.keys() == {"cpu", "requests.cpu", "limits.memory"}


def signed(value: object, chance: Random) -> object:
    """Return a pod with some amounts below zero."""
    if isinstance(value, dict):
        return {key: signed(one, chance) for key, one in value.items()}
    if isinstance(value, list):
        return [signed(one, chance) for one in value]
    is_amount = isinstance(value, str) and value[:1].isdecimal()
    return f"-{value}" if is_amount and chance.random() < 0.3 else value


@given(pods(), pods(), st.sampled_from(["", "n"]), st.randoms(use_true_random=False))
def test_what_is_claimed_for_any_pod_can_be_read_again(
    old: dict[str, Any], new: dict[str, Any], node: str, chance: Random
) -> None:
    found = quotas(a_quota("q", hard=dict.fromkeys(KEYS, "100E")))
    for one in (old, new):
        one["spec"] = {**signed(one["spec"], chance), "nodeName": node}  # type: ignore[dict-item]
        one["status"] = signed(one["status"], chance)
    before, after = Pod.from_stored(old), Pod.from_stored(new)
    claims = (
        claim_for_bind(after, found, source=ReservationSource.BIND, observed_version=NEWEST),
        claim_for_update(before, after, found, source=ReservationSource.RESIZE),
    )
    nothing = dict.fromkeys(KEYS, ZERO)
    accounts = {one.name: Account(one.observed, one.hard, nothing) for one in found.quotas}
    for claim in filter(None, claims):
        ledger, _ = admit(Ledger(accounts, {}), claim)
        assert ledger_from_status(ledger_status(ledger)) == ledger


def test_where_too_much_is_asked_is_said_once_and_in_order() -> None:
    asked = {"cpu": "1e40", "memory": "1e40"}
    pod = Pod.from_object(a_pod(a_container(requests=asked), a_container(requests=asked)))
    assert uncountable_fields(pod, KEYS) == (
        "spec.containers[0].resources.requests.cpu",
        "spec.containers[1].resources.requests.cpu",
        "spec.containers[0].resources.requests.memory",
        "spec.containers[1].resources.requests.memory",
    )


def test_growth_of_an_assigned_pod_claims_all_of_it_beside_what_is_counted() -> None:
    claim = resized("1", "3", found=quotas(a_quota("q")))
    assert claim is not None
    assert to_text(claim.usage)["requests.cpu"] == "3"
    assert to_text(claim.counted["q"])["requests.cpu"] == "1"
    assert (claim.base_version, claim.observed_version, claim.is_intent) == (41, NEWEST, False)


def test_growth_of_a_pod_that_waits_is_an_intent() -> None:
    claim = resized("1", "3", node="", found=quotas(a_quota("q")))
    assert claim is not None
    assert (claim.is_intent, claim.counted) == (True, {})


@pytest.mark.parametrize(("old", "new"), [("2", "1"), ("1", "1"), ("1", "1000m")])
def test_shrinking_and_standing_still_claim_nothing(old: str, new: str) -> None:
    assert resized(old, new, found=quotas(a_quota())) is None


def resized_init(old: str, new: str, in_force: str) -> Claim | None:
    """Resize an init container that runs to its end."""
    reported = a_container_status("init", requests={"cpu": in_force}, allocated={"cpu": in_force})
    before, after = (
        pod(
            node="n",
            init=[a_container("init", requests={"cpu": cpu})],
            status={"phase": "Pending", "initContainerStatuses": [reported]},
        )
        for cpu in (old, new)
    )
    return claim_for_update(before, after, quotas(a_quota("q")), source=ReservationSource.RESIZE)


@pytest.mark.parametrize(("old", "new"), [("4", "1"), ("1", "2"), ("1", "4")])
def test_an_init_container_that_stays_below_what_is_in_force_claims_nothing(
    old: str, new: str
) -> None:
    assert resized_init(old, new, "4") is None


@pytest.mark.parametrize("old", ["1", "4"])
def test_one_that_grows_beyond_claims_all_of_it_beside_what_is_in_force(old: str) -> None:
    claim = resized_init(old, "5", "4")
    assert claim is not None
    assert to_text(claim.usage)["requests.cpu"] == "5"
    assert to_text(claim.counted["q"])["requests.cpu"] == "4"


def test_without_deferred_quotas_growth_claims_nothing() -> None:
    assert resized("1", "9", found=quotas()) is None


def test_a_deadline_claims_everything_in_the_quota_that_the_pod_moves_into() -> None:
    found = quotas(
        a_quota("all"),
        a_quota("short", scopes=["Terminating"]),
        a_quota("long", scopes=["NotTerminating"]),
    )
    old = pod(node="n", requests={"cpu": "1"})
    new = pod(node="n", requests={"cpu": "1"}, activeDeadlineSeconds=5)
    claim = claim_for_update(old, new, found, source=ReservationSource.UPDATE)
    assert claim is not None
    assert claim.quotas == ("all", "short")
    assert set(claim.counted) == {"all"}


BAD = a_quota("odd", expressions=[an_expression("PriorityClass", "In", "bad value!")])


GPU = {"nvidia.com/gpu": "1"}
CHANGES: dict[str, tuple[Object, Object, bool]] = {
    "nothing": ({}, {}, False),
    "less": ({"requests": {"cpu": "2"}}, {"requests": {"cpu": "1"}}, False),
    "more": ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1001m"}}, True),
    "more of what is not deferred": ({}, {"requests": GPU, "limits": GPU}, True),
    "less of one and more of another": (
        {"requests": {"cpu": "2", "memory": "1"}},
        {"requests": {"cpu": "1", "memory": "2"}},
        True,
    ),
    "a deadline": ({}, {"activeDeadlineSeconds": 60}, True),
    "no deadline": ({"activeDeadlineSeconds": 60}, {}, True),
}


@pytest.mark.parametrize(("old", "new", "may"), CHANGES.values(), ids=CHANGES.keys())
def test_what_may_take_more_in_some_quota(old: Object, new: Object, may: bool) -> None:
    assert may_increase_usage(pod(node="n", **old), pod(node="n", **new)) is may


def test_a_quota_that_cannot_be_matched_is_named() -> None:
    with pytest.raises(QuotaScopeError) as caught:
        assigned(pod(requests={"cpu": "1"}), quotas(a_quota("fine"), BAD))
    assert caught.value.quota == "odd"


GPUS = "requests.nvidia.com/gpu"
MEMORY = "nos.nebuly.com/gpu-memory"


def a_gpu_pod(**requests: str) -> Pod:
    named: Object = {f"nvidia.com/{name}": amount for name, amount in requests.items()}
    return pod(requests={"cpu": "1", **named})


def test_a_shared_quota_defers_every_extended_resource() -> None:
    hard = {GPUS: "2", MEMORY: "40", "pods": "3"}
    found = quotas(a_quota("cdq/both", hard={**hard}), a_quota("own", hard={"cpu": "1", GPUS: "1"}))
    assert [to_text(one.hard) for one in found.quotas] == [{GPUS: "2", MEMORY: "40"}, {"cpu": "1"}]
    assert found.keys == KEYS | {GPUS, MEMORY}


def test_without_one_the_configuration_alone_says_what_pods_are_charged() -> None:
    assert quotas(a_quota("own", hard={"cpu": "1", GPUS: "1"})).keys is KEYS


@pytest.mark.parametrize(
    ("key", "amount"), [(MEMORY, "42"), (f"{MEMORY}.80gb", "90"), (f"{MEMORY}.x", None)]
)
def test_gpu_memory_is_charged_as_its_key_says(key: str, amount: str | None) -> None:
    taken = a_gpu_pod(gpu="1", **{"mig-1g.10gb": "1"})
    claim = assigned(taken, quotas(a_quota("cdq/gpus", hard={key: "80", "cpu": "9"})))
    assert claim is not None
    assert to_text(claim.usage).get(key) == amount


def test_a_pod_without_gpus_takes_no_gpu_memory() -> None:
    assert assigned(pod(requests={}), quotas(a_quota("cdq/gpus", hard={MEMORY: "80"}))) is None
