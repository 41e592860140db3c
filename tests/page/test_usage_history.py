"""History of usage: changes of the last hour, and no more memory than that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhook.page.history import SAMPLE_SECONDS, WINDOW_SECONDS, UsageHistory
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.ledger.ledger import Account, QuotaRevision

CPU = "requests.cpu"


def account(used: int, *, reserved: int = 0, elsewhere: int = 0, hard: int = 9) -> Account:
    def cpu(amount: int) -> dict[str, Quantity]:
        return {CPU: Quantity.of_units(amount)} if amount else {}

    return Account(
        QuotaRevision("p1", "uid", "hash"),
        {CPU: Quantity.of_units(hard)},
        cpu(used),
        cpu(reserved),
        used_elsewhere=cpu(elsewhere),
    )


def used(history: UsageHistory, namespace: str = "team-a") -> list[int]:
    return [one.used.value for one in history.series(namespace).get(("p1", CPU), ())]


def test_equal_samples_are_one() -> None:
    clock = [0.0]
    history = UsageHistory(lambda: clock[0])
    for amount in (1, 1, 1, 2, 2, 1):
        history.record({"team-a": {"p1": account(amount)}})
        clock[0] += SAMPLE_SECONDS
    assert used(history) == [1, 2, 1]


def test_a_change_of_any_amount_is_a_sample() -> None:
    history = UsageHistory(lambda: 0.0)
    for one in (account(1), account(1, reserved=1), account(1, elsewhere=1), account(1, hard=8)):
        history.record({"team-a": {"p1": one}})
    assert used(history) == [1, 1, 2, 1]


def test_what_others_take_of_a_shared_quota_counts() -> None:
    history = UsageHistory(lambda: 0.0)
    history.record({"team-a": {"p1": account(1, elsewhere=3)}})
    assert used(history) == [4]


def test_namespaces_and_resources_that_are_gone_are_forgotten() -> None:
    history = UsageHistory(lambda: 0.0)
    history.record({"team-a": {"p1": account(1)}, "team-b": {"p1": account(2)}})
    history.record({"team-a": {}, "team-c": {"p1": account(3)}})
    assert used(history) == []
    assert used(history, "team-b") == []
    assert used(history, "team-c") == [3]


@given(amounts=st.lists(st.integers(0, 3), min_size=1, max_size=300))
def test_the_samples_say_what_held_at_every_moment_of_the_hour(amounts: list[int]) -> None:
    clock = [0.0]
    history = UsageHistory(lambda: clock[0])
    for amount in amounts:
        clock[0] += SAMPLE_SECONDS
        history.record({"team-a": {"p1": account(amount)}})
    samples = history.series("team-a")["p1", CPU]
    window = int(WINDOW_SECONDS / SAMPLE_SECONDS)
    assert len(samples) <= window + 1
    for position, amount in enumerate(amounts, 1):
        moment = position * SAMPLE_SECONDS
        if moment > clock[0] - WINDOW_SECONDS:
            held = [one for one in samples if one.at <= moment][-1]
            assert held.used.value == amount
