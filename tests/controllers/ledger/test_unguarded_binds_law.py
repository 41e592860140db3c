"""Whatever happens, a pod that was claimed for is never told to have come past the handlers.

Random days of a namespace: requests that are answered and stored much later or never, watches that
lag, races for the ledger, edited quotas, leaders that change, lost ledgers and answers, labels that
go and come.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.admission.handlers.harness import opt_in, opt_out
from tests.builders import a_quota
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    NAMESPACE,
    ControllerHarness,
    new_harness,
    second_harness,
)
from tests.reactions import preceded_by
from webhook.kube.api import EVENTS, PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS, UnreachableError
from webhook.state.ledger_store import LedgerVersion
from webhook.state.reserver import Reserved

REQUEST_SECONDS = 34.0
"""A request ends within that time, see `controllers.expiry`."""
STEPS = 150
SEEDS = 12


class BindSimulation:
    """One namespace, two controllers of which one leads, and requests that are on their way."""

    def __init__(
        self, harnesses: list[ControllerHarness], seed: int, *, has_alarms: bool = False
    ) -> None:
        self.harnesses = harnesses
        self.chance = random.Random(seed)  # noqa: S311 - a test
        self.numbers = iter(range(10_000))
        self.answered: dict[str, float] = {}
        self.stored: list[str] = []
        self.past: set[str] = set()
        self.is_deferred = True
        self.epoch = 10
        every = (
            self.lag,
            self.race,
            self.lose_answer,
            self.edit_quota,
            self.hand_over,
            self.lose_ledger,
            self.change_label,
            self.change_pod,
        )
        self.usual = (
            self.claim,
            self.claim,
            self.store,
            self.store,
            self.settle,
            self.wait,
            self.end,
        )
        self.odd = (self.come_past,) if has_alarms else self.chance.sample(every, 2)

    @property
    def harness(self) -> ControllerHarness:
        return self.harnesses[0]

    def pass_by(self) -> None:
        """Let it be counted for long, then let a lot happen."""
        for _ in range(3):
            self.claim()
            self.store()
            self.harness.pass_time(EXPIRE_SECONDS)
            self.settle()
        for _ in range(STEPS):
            self.chance.choice(self.odd if self.chance.random() < 0.1 else self.usual)()
        self.settle()

    def claim(self) -> None:
        """A handler answers a bind; what becomes of it is another matter."""
        name = f"p{next(self.numbers)}"
        self.harness.pod(name, self.chance.choice(("100m", "1", "2")))
        self._claim(name)

    def _claim(self, name: str) -> None:
        if not self.is_deferred:
            self.answered[name] = self.harness.clock[0]  # nobody is asked
            return
        if not self.harness.quotas.in_namespace(NAMESPACE).deferred.quotas:
            return
        if isinstance(self.harness.reserve(name), Reserved):
            self.answered[name] = self.harness.clock[0]

    def store(self) -> None:
        """Storage does one of the binds that were answered."""
        late = [
            name
            for name, at in self.answered.items()
            if self.harness.clock[0] - at > REQUEST_SECONDS or self.chance.random() < 0.1
        ]
        for name in late:
            del self.answered[name]
            self._claim(name)  # it is repeated
        if self.answered:
            name = self.chance.choice(list(self.answered))
            del self.answered[name]
            self.harness.bind(name)
            self.stored.append(name)

    def come_past(self) -> None:
        name = f"past{next(self.numbers)}"
        self.harness.pod(name)
        self.harness.bind(name)
        self.stored.append(name)
        self.past.add(name)

    def settle(self) -> None:
        for harness in self.harnesses:
            harness.client.resume()
            harness.step()

    def wait(self) -> None:
        self.harness.pass_time(self.chance.choice((0.5, 1, 1, 5, 5, 20, EXPIRE_SECONDS + 1)))
        for harness in self.harnesses:
            harness.reconcile_once()

    def end(self) -> None:
        if self.stored:
            name = self.stored.pop(self.chance.randrange(len(self.stored)))
            self.chance.choice((self.harness.finish, self.harness.delete))(name)

    def lag(self) -> None:
        self.chance.choice(self.harnesses).client.pause(PODS)

    def race(self) -> None:
        queue = self.harness.client

        def be_faster() -> None:
            self.claim()
            self.store()

        queue.reset()
        queue.on("update", "*", preceded_by(lambda _: be_faster()), subresource="status", times=1)

    def lose_answer(self) -> None:
        harness = self.chance.choice(self.harnesses)
        write = harness.ledgers.write

        def lost(*given: Any) -> LedgerVersion:
            harness.ledgers.write = write  # type: ignore[method-assign]
            write(*given)
            raise UnreachableError("the answer did not come")

        harness.ledgers.write = lost  # type: ignore[assignment, method-assign]

    def edit_quota(self) -> None:
        hard = {self.chance.choice(("requests.cpu", "cpu")): f"{self.chance.randrange(80, 99)}"}
        if self.chance.random() < 0.2:
            self.harness.api.delete(RESOURCE_QUOTAS, "p1", namespace=NAMESPACE)
            self.harness.create(a_quota("p1", uid=f"uid-{next(self.numbers)}", hard=hard))
        else:
            patch = [{"op": "replace", "path": "/spec/hard", "value": hard}]
            self.harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)

    def hand_over(self) -> None:
        self.epoch += 1
        leader = self.chance.choice(self.harnesses)
        for harness in self.harnesses:
            harness.epoch[0] = self.epoch if harness is leader else 0

    def lose_ledger(self) -> None:
        if self.harness.has_ledger():
            self.harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)

    def change_label(self) -> None:
        (opt_out if self.is_deferred else opt_in)(self.harness.api, NAMESPACE)
        self.is_deferred = not self.is_deferred

    def change_pod(self) -> None:
        for name in self.stored[-3:]:
            patch = {"metadata": {"labels": {"a": f"{next(self.numbers)}"}}}
            self.harness.api.patch(PODS, name, patch, namespace=NAMESPACE)

    def told(self) -> set[str]:
        found: set[str] = set()
        for harness in self.harnesses:
            harness.events_recorded()
            for event in harness.api.list(EVENTS).items:
                if event["reason"] == "UnguardedBind":
                    found.add(str(event["involvedObject"]["name"]))  # type: ignore[index]
        return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_day_has_a_false_alarm(seed: int) -> None:
    with (
        new_harness(a_quota("p1", hard={"requests.cpu": "900"})) as one,
        second_harness(one, epoch=[0]) as other,
    ):
        day = BindSimulation([one, other], seed)
        day.settle()
        day.pass_by()
        assert day.told() == set()


@pytest.mark.parametrize("seed", range(3))
def test_a_day_with_unasked_pods_has_alarms_for_most_of_those_and_no_others(seed: int) -> None:
    with new_harness(a_quota("p1", hard={"requests.cpu": "900"})) as one:
        day = BindSimulation([one], seed, has_alarms=True)
        day.settle()
        day.pass_by()
        assert day.told() <= day.past
        assert len(day.told()) > len(day.past) / 2
