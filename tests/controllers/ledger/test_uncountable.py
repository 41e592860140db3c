"""An amount that is too large to be counted is above every limit, of its resource alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.builders import a_pod, a_quota
from tests.controllers.controller_harness import ControllerHarness, new_harness
from webhook.kube.api import PODS
from webhook.quota.amounts.quantity import UNCOUNTABLE
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger_codec import ledger_from_status, ledger_status
from webhook.state.reserver import Reserved

HARD = {"requests.cpu": "4", "limits.memory": "8Gi"}
HUGE = "1e20000"
DIGITS = "1" + "23456789" * 1000
"""A quantity that can be read, and has as many digits as would fill a ledger."""
FIELD = "spec.containers[0].resources.limits.memory"


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    with new_harness(a_quota("p1", hard=HARD)) as harness:
        yield harness


def store(harness: ControllerHarness, name: str, amount: str = HUGE, **fields: object) -> None:
    """Store a pod as the API server does while nobody is asked."""
    made = a_pod(
        name=name,
        uid=f"uid-{name}",
        requests={"cpu": "1"},
        limits={"memory": amount},
        **fields,  # type: ignore[arg-type]
    )
    harness.cluster.load([(PODS, made)])


@pytest.mark.parametrize("amount", [HUGE, DIGITS, "1e9999"])
def test_a_running_pod_is_over_the_limit_of_its_resource_alone(
    harness: ControllerHarness, amount: str
) -> None:
    harness.pod("web", node="node-1")
    store(harness, "odd", amount, node="node-1")
    harness.step()
    assert harness.used() == {"requests.cpu": "2", "limits.memory": "1e39"}
    assert harness.conditions()["Counted"] == ("True", "AllCounted")
    assert harness.conditions()["AmountsCountable"] == ("False", "AmountsTooLarge")
    (said,) = [one.message for one in harness.ledger().conditions if one.type == "AmountsCountable"]
    assert f"team-a/odd: {FIELD}" in said
    harness.pod("other")
    harness.catch_up()
    assert isinstance(harness.reserve("other"), Reserved)
    harness.delete("odd")
    harness.step()
    assert harness.used() == {"requests.cpu": "1", "limits.memory": "0"}
    assert harness.conditions()["AmountsCountable"] == ("True", "AllCountable")


def test_nothing_more_of_that_resource_is_given_away(harness: ControllerHarness) -> None:
    store(harness, "odd", node="node-1")
    store(harness, "more", "1Mi")
    harness.step()
    assert isinstance(harness.reserve("more"), QuotaExceeded)
    harness.delete("odd")
    harness.step()
    assert isinstance(harness.reserve("more"), Reserved)


@pytest.mark.parametrize("amount", [HUGE, DIGITS])
def test_what_waiting_pods_ask_for_has_a_bound(harness: ControllerHarness, amount: str) -> None:
    for number in range(20):
        store(harness, f"odd-{number}", amount)
    harness.step()
    assert harness.pending()["limits.memory"] == "1e39"
    assert harness.pending()["requests.cpu"] == "20"
    status = ledger_status(harness.ledger())
    assert len(repr(status)) < 8000
    assert ledger_from_status(status) == harness.ledger()


def test_a_limit_that_is_too_large_is_below_what_cannot_be_counted(
    harness: ControllerHarness,
) -> None:
    harness.create(a_quota("large", hard={"limits.memory": HUGE}))
    store(harness, "web", "1Gi", node="node-1")
    harness.step()
    assert harness.used("large") == {"limits.memory": "1Gi"}
    assert harness.ledger().accounts["large"].hard["limits.memory"] < UNCOUNTABLE
    store(harness, "some", "1e30")
    store(harness, "odd")
    harness.catch_up()
    assert isinstance(harness.reserve("odd"), QuotaExceeded)
