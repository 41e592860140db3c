"""Headroom in shared quotas: taken back before more is counted by force than there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.controllers.controller_harness import NAMESPACE, ControllerHarness, new_harness
from tests.controllers.shared.shared_quota_steps import (
    NAME,
    OTHER,
    granted,
    shared_quota,
    status_of,
    steps,
)
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.charging.denials import QuotaExceeded
from webhook.state.reserver import Reserved

PARTS = [{"namespaces": [one], "amounts": {"requests.cpu": "4"}} for one in (NAMESPACE, OTHER)]


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """Two namespaces that share 8 cpu, of which each holds 2 unused."""
    quota = shared_quota("8", headroom=PARTS)
    with new_harness(a_namespace(OTHER), quota, follows_ledgers=True) as made:
        steps(made)
        assert unused(made) == {NAMESPACE: "2", OTHER: "2"}
        yield made


def unused(harness: ControllerHarness) -> dict[str, str]:
    """What the quota says to be unused at most."""
    found = status_of(harness).get("headroom", [])
    listed = cast("list[Mapping[str, Mapping[str, str]]]", found)
    return {str(one["name"]): one["amounts"]["requests.cpu"] for one in listed}


def held(harness: ControllerHarness, namespace: str) -> str:
    return str(harness.ledger(namespace).accounts[NAME].granted["requests.cpu"])


def run_unasked(harness: ControllerHarness, name: str, cpu: str, namespace: str) -> None:
    harness.pod(name, cpu, namespace)
    harness.bind(name, namespace)


def test_what_fits_beside_headroom_is_counted_beside_it(harness: ControllerHarness) -> None:
    run_unasked(harness, "big", "5", OTHER)
    steps(harness)
    assert granted(harness) == {NAMESPACE: "2", OTHER: "5"}


def test_headroom_is_taken_back_before_more_is_counted_by_force(harness: ControllerHarness) -> None:
    harness.pod("one", "1")
    run_unasked(harness, "big", "8", OTHER)
    steps(harness)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "8"}
    assert unused(harness) == {}
    assert held(harness, NAMESPACE) == "0"
    assert status_of(harness)["isRecalled"] is True
    refusal = harness.reserve("one")
    assert isinstance(refusal, QuotaExceeded)
    assert refusal.used == {"requests.cpu": Quantity.parse("8")}


def test_it_is_taken_back_from_a_namespace_that_cannot_be_counted(
    harness: ControllerHarness,
) -> None:
    harness.pod("odd", "much", NAMESPACE)
    run_unasked(harness, "big", "8", OTHER)
    steps(harness)
    assert granted(harness)[OTHER] == "8"
    assert held(harness, NAMESPACE) == "0"


def test_what_is_used_of_it_stays(harness: ControllerHarness) -> None:
    harness.pod("one", "1")
    assert isinstance(harness.reserve("one"), Reserved)
    run_unasked(harness, "big", "8", OTHER)
    steps(harness)
    assert granted(harness) == {NAMESPACE: "1", OTHER: "8"}
    assert held(harness, NAMESPACE) == "1"
    harness.bind("one")
    steps(harness)
    assert harness.used(NAME) == {"requests.cpu": "1"}


def test_a_quota_that_is_to_have_none_takes_it_back(harness: ControllerHarness) -> None:
    patch = {"spec": {"headroom": None}}
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", patch)
    steps(harness, 1)
    assert unused(harness) == {}
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}


def test_of_what_was_granted_for_another_spec_nothing_is_unused(harness: ControllerHarness) -> None:
    patch = {"spec": {"hard": {"requests.cpu": "9"}}}
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", patch)
    harness.step()
    account = harness.ledger().accounts[NAME]
    assert account.hard == {"requests.cpu": Quantity.parse("9")}
    assert held(harness, NAMESPACE) == "0"
    steps(harness)
    assert unused(harness) == {NAMESPACE: "2", OTHER: "2"}
