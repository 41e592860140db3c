"""An amount that is too large to be counted is above every limit, of its resource alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.builders import a_pod, a_quota
from tests.controllers.rig import Rig, a_rig
from webhook.cluster.api import PODS
from webhook.quota.ledger_codec import ledger_from_status, ledger_status
from webhook.quota.quantity import UNCOUNTABLE
from webhook.quota.refusals import QuotaExceeded
from webhook.state.reserver import Reserved

HARD = {"requests.cpu": "4", "limits.memory": "8Gi"}
HUGE = "1e20000"
DIGITS = "1" + "23456789" * 1000
"""A quantity that can be read, and has as many digits as would fill a ledger."""
FIELD = "spec.containers[0].resources.limits.memory"


@pytest.fixture
def rig() -> Iterator[Rig]:
    with a_rig(a_quota("p1", hard=HARD)) as rig:
        yield rig


def store(rig: Rig, name: str, amount: str = HUGE, **fields: object) -> None:
    """Store a pod as the API server does while nobody is asked."""
    made = a_pod(
        name=name,
        uid=f"uid-{name}",
        requests={"cpu": "1"},
        limits={"memory": amount},
        **fields,  # type: ignore[arg-type]
    )
    rig.cluster.load([(PODS, made)])


@pytest.mark.parametrize("amount", [HUGE, DIGITS, "1e9999"])
def test_a_running_pod_is_over_the_limit_of_its_resource_alone(rig: Rig, amount: str) -> None:
    rig.pod("web", node="node-1")
    store(rig, "odd", amount, node="node-1")
    rig.step()
    assert rig.used() == {"requests.cpu": "2", "limits.memory": "1e39"}
    assert rig.conditions()["Counted"] == ("True", "AllCounted")
    assert rig.conditions()["AmountsCountable"] == ("False", "AmountsTooLarge")
    (said,) = [one.message for one in rig.ledger().conditions if one.type == "AmountsCountable"]
    assert f"team-a/odd: {FIELD}" in said
    rig.pod("other")
    rig.catch_up()
    assert isinstance(rig.reserve("other"), Reserved)
    rig.delete("odd")
    rig.step()
    assert rig.used() == {"requests.cpu": "1", "limits.memory": "0"}
    assert rig.conditions()["AmountsCountable"] == ("True", "AllCountable")


def test_nothing_more_of_that_resource_is_given_away(rig: Rig) -> None:
    store(rig, "odd", node="node-1")
    store(rig, "more", "1Mi")
    rig.step()
    assert isinstance(rig.reserve("more"), QuotaExceeded)
    rig.delete("odd")
    rig.step()
    assert isinstance(rig.reserve("more"), Reserved)


@pytest.mark.parametrize("amount", [HUGE, DIGITS])
def test_what_waiting_pods_ask_for_has_a_bound(rig: Rig, amount: str) -> None:
    for number in range(20):
        store(rig, f"odd-{number}", amount)
    rig.step()
    assert rig.pending()["limits.memory"] == "1e39"
    assert rig.pending()["requests.cpu"] == "20"
    status = ledger_status(rig.ledger())
    assert len(repr(status)) < 8000
    assert ledger_from_status(status) == rig.ledger()


def test_a_limit_that_is_too_large_is_below_what_cannot_be_counted(rig: Rig) -> None:
    rig.create(a_quota("large", hard={"limits.memory": HUGE}))
    store(rig, "web", "1Gi", node="node-1")
    rig.step()
    assert rig.used("large") == {"limits.memory": "1Gi"}
    assert rig.ledger().accounts["large"].hard["limits.memory"] < UNCOUNTABLE
    store(rig, "some", "1e30")
    store(rig, "odd")
    rig.catch_up()
    assert isinstance(rig.reserve("odd"), QuotaExceeded)
