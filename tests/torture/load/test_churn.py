"""A thread of the churn asks for everything that there is to ask, under the names it shares."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from tests.torture.load import churn
from tests.torture.load.churn import NAMES, Churner
from tests.torture.load.shapes import churned_space, quota_specs
from tests.torture.load.tally import Tally
from tests.torture.load.wire import LostAnswerError, Reply, Wire
from tests.torture.observer.usage import expressions, pod_usage, traits_of


class Answers:
    """Answers every request with success, and writes it down; loses some answers if told to."""

    def __init__(self, *, loses: bool = False) -> None:
        self.calls: list[tuple[str, str, Mapping[str, Any]]] = []
        self._loses = loses

    def call(self, method: str, path: str, body: Mapping[str, Any]) -> Reply:
        self.calls.append((method, path, body))
        if self._loses:
            raise LostAnswerError("lost")
        made = {"metadata": {"uid": f"uid-{len(self.calls)}"}}
        return Reply(201 if method == "POST" else 200, msgspec.json.encode(made))

    def patch(self, path: str, patch: Mapping[str, Any], kind: str) -> Reply:
        assert kind == ("strategic" if path.endswith("/resize") else "merge")
        return self.call("PATCH", path, patch)


def steps(answers: Answers, count: int = 4000) -> Tally:
    tally, rng = Tally(), random.Random(3)  # noqa: S311 - repeatable
    wire = cast("Wire", answers)
    churner = Churner(wire, churned_space(), ["n1", "n2"], {}, tally, rng)
    for _ in range(count):
        churner.step()
    return tally


def test_everything_is_asked_for_under_every_name() -> None:
    answers = Answers()
    tally = steps(answers)
    assert set(tally.answers) == {
        "create",
        "bind",
        "resize",
        "deadline",
        *(f"delete with grace {grace}" for grace in (0, 1, 30)),
    }
    path = f"{churned_space().path}/pods/"
    named = Counter(one[1].removeprefix(path).split("/")[0] for one in answers.calls)
    assert set(NAMES) <= set(named)


def test_binds_name_a_uid_that_the_name_had_or_none() -> None:
    answers = Answers()
    steps(answers)
    bodies = [body for _, path, body in answers.calls if path.endswith("/binding")]
    assert {"uid" in body["metadata"] for body in bodies} == {True, False}


def test_its_pods_are_counted_by_its_quotas() -> None:
    answers = Answers()
    steps(answers)
    pods = [body for _, path, body in answers.calls if path.endswith("/pods")]
    assert all(pod_usage(pod)["requests.cpu"] > 0 for pod in pods)
    traits = {traits_of(pod) for pod in pods}
    for spec in quota_specs(churned_space()).values():
        assert any(all(one.selects(each) for one in expressions(spec)) for each in traits)


def test_a_lost_answer_is_counted_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(churn, "_DOWN_SECONDS", 0.0)
    tally = steps(Answers(loses=True), 50)
    assert sum(codes[0] for codes in tally.answers.values()) == 50
