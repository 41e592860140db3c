"""The fault driver: a seed gives one plan, and what is busy is tried again or left out."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.torture.faults import driver as driver_module
from tests.torture.faults.catalogue import CATALOGUE, Kind
from tests.torture.faults.driver import FaultDriver
from tests.torture.faults.quotas import scaled
from tests.torture.load.shapes import spaces
from tests.torture.observer.amounts import billionths
from tests.torture.world import BusyError, Incident, World, pick_moved, pick_space


def a_world() -> World:
    nothing = cast("Any", SimpleNamespace())
    return World(nothing, nothing, nothing, spaces(4), ["node"])


def plan(seed: int, count: int, seconds: float = 1200.0) -> list[str]:
    driver = FaultDriver(a_world(), seed, count, seconds)
    rng = random.Random(f"{seed}/faults")  # noqa: S311 - as the driver's own
    return [kind.name for kind in driver.plan(rng)]


def test_a_seed_gives_one_plan() -> None:
    assert plan(1, 100) == plan(1, 100)
    assert plan(1, 100) != plan(2, 100)


def test_every_kind_has_its_turn() -> None:
    long = plan(3, 100)
    assert len(long) == 100
    assert set(long) == {kind.name for kind in CATALOGUE}
    short = plan(3, 12, seconds=60.0)
    assert len(short) == len(set(short)) == 12


def test_every_run_has_what_hurts_the_churn() -> None:
    always = {kind.name for kind in CATALOGUE if kind.is_always}
    assert always == {"webhook paused, others and leader killed"}
    for seed in range(30):
        assert always <= set(plan(seed, 14, seconds=60.0))


def test_what_lasts_longer_than_half_of_the_run_is_left_out() -> None:
    assert "leader paused past its lease" not in plan(4, 50, seconds=50.0)
    assert "leader paused past its lease" in plan(4, 50, seconds=60.0)


def acting(monkeypatch: pytest.MonkeyPatch, act: Any, world: World, count: int = 1) -> FaultDriver:
    monkeypatch.setattr(driver_module, "CATALOGUE", (Kind("test", 1, act, 0.1),))
    driver = FaultDriver(world, 1, count, 0.2)
    driver.start()
    while not driver.is_over:
        driver.wait_for_all()
    driver.stop()
    return driver


def test_a_fault_that_fails_is_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(_world: World, _rng: random.Random, incident: Incident) -> None:
        incident.detail = "half done"
        raise OSError("no route")

    (incident,) = acting(monkeypatch, act, a_world()).incidents
    assert (incident.kind, incident.detail) == ("test", "half done")
    assert "no route" in incident.error
    assert incident.ended >= incident.began > 0


def test_what_is_busy_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def act(world: World, _rng: random.Random, _incident: Incident) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise BusyError("taken")
        with world.claim("thing"):
            pass

    world = a_world()
    monkeypatch.setattr(world, "wait", lambda _seconds: None)
    (incident,) = acting(monkeypatch, act, world).incidents
    assert incident.error == ""
    assert len(tries) == 2


def test_a_claim_keeps_others_away() -> None:
    world = a_world()
    with world.claim("a", "b"):
        with pytest.raises(BusyError), world.claim("b", "c"):
            pass
        with world.claim("c"):
            pass
    with world.claim("b"):
        pass


def test_waiting_ends_when_the_run_does() -> None:
    world = a_world()
    threading.Timer(0.05, world.stopping.set).start()
    world.wait(60)
    assert world.stopping.is_set()


def test_only_namespaces_that_may_be_touched_are() -> None:
    world = a_world()
    rng = random.Random(1)  # noqa: S311 - repeatable
    assert {pick_space(world, rng).name for _ in range(50)} == {"torture-1", "torture-3"}
    assert {pick_space(world, rng, wild=True).name for _ in range(50)} == {"torture-3"}
    world.spaces = spaces(1)
    with pytest.raises(BusyError):
        pick_space(world, rng)


def test_only_namespaces_that_may_be_moved_are() -> None:
    world = a_world()
    rng = random.Random(1)  # noqa: S311 - repeatable
    with pytest.raises(BusyError):
        pick_moved(world, rng)
    world.spaces = spaces(6)
    assert {pick_moved(world, rng).name for _ in range(50)} == {"torture-5"}


def test_scaled_limits_are_quantities_and_counts_stay() -> None:
    assert scaled({"cpu": "5.5", "memory": "1Ki", "pods": "3"}, 0.5) == {
        "cpu": "2750m",
        "memory": "512000m",
        "pods": "3",
    }
    assert billionths(scaled({"cpu": "16"}, 1.3)["cpu"]) == billionths("20.8")
