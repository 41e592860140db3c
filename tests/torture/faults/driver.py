"""Breaks things one after the other and side by side, by a seeded chance, and keeps a log."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.torture.faults.catalogue import CATALOGUE, Kind
from tests.torture.world import BusyError, Incident, World


@dataclass
class FaultDriver:
    """Starts a fault whenever one is due; several may last at the same time.

    Args:
        world: What is broken.
        seed: Of all chance.
        count: How many faults.
        seconds: In what time.
    """

    world: World
    seed: int
    count: int
    seconds: float
    incidents: list[Incident] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: list[threading.Thread] = field(default_factory=list)
    _main: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._main = threading.Thread(target=self._run, daemon=True)
        self._main.start()

    def stop(self) -> None:
        """Begin no more faults, and wait until all are mended."""
        self.world.stopping.set()
        self.wait_for_all()

    def wait_for_all(self) -> None:
        """Wait until all faults have begun and are mended.

        Raises:
            RuntimeError: One does not end.
        """
        if self._main is not None:
            self._main.join()
        for thread in self._running:
            thread.join(150)
            if thread.is_alive():
                raise RuntimeError("a fault does not end")

    @property
    def done(self) -> int:
        """How many faults have ended."""
        return len(self.incidents)

    @property
    def begun(self) -> int:
        """How many faults have begun; some last, and some are tried again and again."""
        return len(self._running)

    @property
    def is_enough(self) -> bool:
        """Whether as many have begun as were wanted."""
        return self.begun >= self.count

    @property
    def is_over(self) -> bool:
        """Whether no more will begin."""
        return self._main is not None and not self._main.is_alive()

    def _run(self) -> None:
        rng = random.Random(f"{self.seed}/faults")  # noqa: S311 - repeatable, not secret
        began = time.monotonic()
        plan = self.plan(rng)
        for number, kind in enumerate(plan):
            due = began + self.seconds * (number + rng.random()) / max(1, len(plan))
            self.world.wait(max(0.0, due - time.monotonic()))
            if self.world.stopping.is_set():
                return
            self._begin(kind, random.Random(f"{self.seed}/fault/{number}"))  # noqa: S311 - as above

    def plan(self, rng: random.Random) -> Sequence[Kind]:
        """Choose the faults: each kind once as far as they go, and the rest by weight.

        Those that every run has come first. What lasts longer than half of the run is left out.
        """
        fit = [kind for kind in CATALOGUE if kind.seconds <= self.seconds / 2]
        order = sorted(
            fit, key=lambda kind: (kind.is_always, rng.random() ** (1 / kind.weight)), reverse=True
        )
        weights = [kind.weight for kind in fit]
        more = rng.choices(fit, weights, k=max(0, self.count - len(order)))
        plan = [*order[: self.count], *more]
        rng.shuffle(plan)
        return plan

    def _begin(self, kind: Kind, rng: random.Random) -> None:
        thread = threading.Thread(target=self._act, args=(kind, rng), daemon=True)
        self._running.append(thread)
        thread.start()

    def _act(self, kind: Kind, rng: random.Random) -> None:
        for attempt in range(40):
            incident = Incident(kind=kind.name, began=time.monotonic())
            try:
                kind.act(self.world, rng, incident)
            except BusyError as err:
                if attempt == 39 or self.world.stopping.is_set():
                    incident.error = f"left out: {err}"
                    self._log(incident)
                    return
                self.world.wait(1)
                continue
            except Exception as err:  # noqa: BLE001 - outermost frame of a thread: the report tells
                incident.error = repr(err)
            self._log(incident)
            return

    def _log(self, incident: Incident) -> None:
        incident.ended = time.monotonic()
        with self._lock:
            self.incidents.append(incident)
