"""Pods that need no gate: there is twice the room that they and those on their way take."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_container, a_pod, a_quota, an_expression
from tests.quota.queue.queue_criteria import GATE, ledger_of, terms_of
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, add, parse_resource_list
from webhook.quota.ledger.ledger import Ledger, admit, exceeded_quotas
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.queue.fast_path import can_skip_gate
from webhook.quota.queue.queued_pods import QueueCriteria, QueuedPod, QueuePolicy, to_queued_pod

Object = dict[str, object]

TEN = a_quota("q", hard={"requests.cpu": "10"})
TERMS = terms_of(TEN)


def judged(raw: Object, terms: QueueCriteria) -> QueuedPod:
    return to_queued_pod(Pod.from_object(raw), GATE, since=0, terms=terms)


def passes(
    cpu: str = "1",
    *,
    terms: QueueCriteria = TERMS,
    ledger: Ledger | None = None,
    underway: Mapping[str, str] | None = None,
    waiting: Mapping[str, str] | None = None,
    **fields: object,
) -> bool:
    """Ask about a pod that has no uid yet."""
    raw = a_pod(**{"uid": "", "requests": {"cpu": cpu}, **fields})  # type: ignore[arg-type]
    beside, before = (parse_resource_list(each or {}, field="") for each in (underway, waiting))
    return can_skip_gate(judged(raw, terms), terms, ledger or ledger_of(terms), beside, before)


@pytest.mark.parametrize(
    ("cpu", "used", "underway", "may"),
    [
        ("5", "0", "0", True),
        ("5001m", "0", "0", False),
        ("1", "8", "0", True),
        ("1", "8001m", "0", False),
        ("1", "0", "4", True),
        ("1", "0", "4001m", False),
        ("1", "4", "2", True),
        ("1", "4", "2001m", False),
        ("1", "12", "0", False),
    ],
)
def test_all_that_is_on_its_way_takes_at_most_half_of_what_is_free(
    cpu: str, used: str, underway: str, may: bool
) -> None:
    ledger = ledger_of(TERMS, q={"requests.cpu": used})
    assert passes(cpu, ledger=ledger, underway={"requests.cpu": underway}) is may


def test_what_is_reserved_is_not_free() -> None:
    ledger = ledger_of(TERMS)
    account = replace(ledger.accounts["q"], reserved={"requests.cpu": Quantity.parse("9")})
    assert not passes(ledger=replace(ledger, accounts={"q": account}))


def test_what_it_does_not_take_does_not_matter() -> None:
    quota = a_quota("q", hard={"requests.cpu": "10", "requests.memory": "1Gi"})
    terms = terms_of(quota, rules=QueuePolicy(must_specify=False))
    ledger = ledger_of(terms, q={"requests.memory": "9Gi"})
    assert passes(terms=terms, ledger=ledger, underway={"requests.memory": "9Gi"})
    zero = {"cpu": "1", "memory": "0"}
    assert passes(terms=terms, ledger=ledger, requests=zero, underway={"requests.memory": "9Gi"})


def test_every_quota_that_applies_has_to_have_room() -> None:
    small = a_quota("small", uid="small", hard={"requests.cpu": "1"})
    gold = a_quota(
        "small",
        uid="small",
        hard={"requests.cpu": "1"},
        expressions=[an_expression("PriorityClass", "In", "gold")],
    )
    assert not passes(terms=terms_of(TEN, small))
    assert passes(terms=terms_of(TEN, gold))
    assert not passes(terms=terms_of(TEN, gold), priorityClassName="gold")


GATED: dict[str, dict[str, object]] = {
    "it has gates of others": {"schedulingGates": [{"name": "example.com/hold"}]},
    "it does not say what it takes": {"requests": {"memory": "1Gi"}},
    "one of its containers does not": {
        "requests": None,
        "containers": [a_container("a", requests={"cpu": "1"}), a_container("b")],
    },
}


@pytest.mark.parametrize("fields", GATED.values(), ids=GATED)
def test_a_pod_that_could_not_be_released_is_gated(fields: dict[str, object]) -> None:
    containers = fields.get("containers")
    raw = a_pod(*(containers or ()), **{k: v for k, v in fields.items() if k != "containers"})  # type: ignore[misc, arg-type]
    assert not can_skip_gate(judged(raw, TERMS), TERMS, ledger_of(TERMS), {})


@pytest.mark.parametrize(
    ("underway", "waiting", "may"),
    [
        ({}, {"requests.cpu": "4"}, True),
        ({"requests.cpu": "1m"}, {"requests.cpu": "4"}, False),
        ({}, {"requests.cpu": "1", "requests.memory": "2Gi"}, True),
        ({}, {"requests.cpu": "1", "requests.memory": "2049Mi"}, False),
        ({"requests.memory": "1Gi"}, {"requests.cpu": "1", "requests.memory": "1Gi"}, True),
        ({"requests.memory": "1Gi"}, {"requests.cpu": "1", "requests.memory": "1025Mi"}, False),
        ({"requests.memory": "9Gi"}, {"requests.cpu": "1", "requests.memory": "0"}, True),
        ({}, {"requests.cpu": "1", "limits.memory": "99Gi", "pods": "99"}, True),
    ],
)
def test_there_is_room_for_all_that_waits_also_for_what_the_pod_asks_none_of(
    underway: Mapping[str, str], waiting: Mapping[str, str], may: bool
) -> None:
    terms = terms_of(a_quota("q", hard={"requests.cpu": "10", "requests.memory": "4Gi"}))
    asked = {"cpu": "1", "memory": "0"}
    assert passes(terms=terms, underway=underway, waiting=waiting, requests=asked) is may


def test_rules_of_the_line_are_those_of_the_passage() -> None:
    free = terms_of(TEN, rules=QueuePolicy(must_specify=False))
    limited = terms_of(a_quota("q", hard={"requests.cpu": "10", "limits.cpu": "10"}))
    assert not passes(terms=limited)
    assert passes(terms=replace(limited, rules=free.rules))


def test_the_uid_of_a_manifest_stands_for_no_pod() -> None:
    ledger = ledger_of(TERMS)
    claim = to_queued_pod(
        Pod.from_object(a_pod(uid="uid-big", requests={"cpu": "9"})), "", since=0, terms=TERMS
    ).claim
    assert claim is not None
    taken, _ = admit(ledger, claim)
    assert not passes("4", ledger=taken, uid="uid-big")


def test_a_quota_that_only_the_ledger_knows_is_one_too_many() -> None:
    both = ledger_of(terms_of(TEN, a_quota("new", uid="new", hard={"requests.cpu": "1"})))
    assert not passes(ledger=both)


def test_in_doubt_it_is_gated() -> None:
    other = terms_of(a_quota("q", hard={"requests.cpu": "11"}))
    unknown = replace(TERMS, unreadable=('quota "p2": cannot be read',))
    odd = terms_of(a_quota("q", expressions=[an_expression("PriorityClass", "In", "bad value!")]))
    pod = judged(a_pod(requests={"cpu": "1"}), TERMS)
    assert not can_skip_gate(pod, TERMS, None, {})  # nothing was counted
    assert not passes(terms=other, ledger=ledger_of(TERMS))  # not for this limit
    assert not passes(ledger=Ledger({}, {}, pods_resource_version=5))  # not this quota
    assert not passes(terms=unknown, ledger=ledger_of(TERMS))
    assert not passes(terms=odd, ledger=ledger_of(odd))


def test_a_pod_in_a_quota_that_namespaces_share_is_gated() -> None:
    shared = replace(
        TERMS.quotas.quotas[0],
        quota=replace(TERMS.quotas.quotas[0].quota, name=f"{SHARED_PREFIX}all"),
    )
    terms = replace(TERMS, quotas=replace(TERMS.quotas, quotas=(shared,)))
    assert not passes(terms=terms, ledger=ledger_of(terms))


CPUS = st.integers(1, 4000).map(lambda millis: f"{millis}m")


@given(
    cpus=st.lists(st.tuples(CPUS, st.booleans()), max_size=30),
    hard=st.integers(0, 20),
)
def test_pods_that_pass_one_after_the_other_always_fit(
    cpus: list[tuple[str, bool]], hard: int
) -> None:
    """Whichever of them are bound first, none of those that passed is refused at its bind."""
    terms = terms_of(a_quota("q", hard={"requests.cpu": str(hard)}))
    ledger = ledger_of(terms)
    underway: ResourceList = {}
    for number, (cpu, is_bound_at_once) in enumerate(cpus):
        raw = a_pod(uid=f"uid-{number}", requests={"cpu": cpu})
        pod = judged(raw, terms)
        if not can_skip_gate(pod, terms, ledger, underway):
            continue
        claim = pod.claim
        assert claim is not None
        assert not exceeded_quotas(ledger, replace(claim, usage=add(claim.usage, underway)))
        if is_bound_at_once:
            account = ledger.accounts["q"]
            used = replace(account, used=add(account.used, claim.usage))
            ledger = replace(ledger, accounts={"q": used})
        else:
            underway = add(underway, claim.usage)


def test_what_queued_pods_take_of_other_resources_takes_no_time() -> None:
    ledger, pod = ledger_of(TERMS), judged(a_pod(uid="", requests={"cpu": "1"}), TERMS)
    others = {f"requests.example.com/r{number}": Quantity.parse("1") for number in range(100_000)}
    started = time.process_time()
    for cpu, may in (("1", True), ("9", False)) * 5:
        waiting = {**others, "requests.cpu": Quantity.parse(cpu)}
        assert can_skip_gate(pod, TERMS, ledger, {}, waiting) is may
    assert time.process_time() - started < 0.5
