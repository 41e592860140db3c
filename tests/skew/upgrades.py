"""Carries the story out on a product that is loaded, and notes when each phase was."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from tests.controlplane.rest import RestError
from tests.skew.story import (
    Controllers,
    Definitions,
    Move,
    Phase,
    Registrations,
    Side,
    Webhook,
    moves,
)
from tests.skew.table import Span
from tests.torture.stack import Member
from tests.torture.version import Version
from tests.torture.world import LEASE, Incident, World

_LEASE_SECONDS: Final = 60.0
"""In this time somebody leads, on a machine that is slow."""
_POLL_SECONDS: Final = 0.05


@dataclass
class Upgrades:
    """The driver of a run: phase after phase on a thread of its own.

    Args:
        world: What is changed.
        versions: Which version each side is.
        story: The phases; the first is as the product was started.
        seconds: How long pods are bound in each phase after its last move.
        say: Called with each phase as it begins.
    """

    world: World
    versions: Mapping[Side, Version]
    story: Sequence[Phase]
    seconds: float
    say: Callable[[str], None]
    spans: list[Span] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    error: BaseException | None = None
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End with the move that is under way.

        Raises:
            RuntimeError: The story was not carried out.
        """
        self.world.stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self.error is not None:
            raise RuntimeError(f"the story ended in {self.spans[-1].name!r}") from self.error
        if len(self.spans) < len(self.story):
            raise RuntimeError(f"the time was over in {self.spans[-1].name!r}")

    @property
    def done(self) -> int:
        """How many phases are over."""
        return sum(bool(span.ended) for span in self.spans)

    @property
    def is_enough(self) -> bool:
        """Whether all phases are over, or one failed."""
        return self._thread is not None and not self._thread.is_alive()

    def _run(self) -> None:
        try:
            before = self.story[0]
            for phase in self.story:
                if self.world.stopping.is_set():
                    return
                self.say(phase.name)
                span = Span(phase.name, began=time.monotonic())
                self.spans.append(span)
                for move in moves(before, phase):
                    self._move(move, span)
                self._bind_on(phase, span)
                span.ended, before = time.monotonic(), phase
        except BaseException as err:  # noqa: BLE001 - outermost frame of a thread: `stop` raises it
            self.error = err

    def _bind_on(self, phase: Phase, span: Span) -> None:
        for _ in range(phase.turns):
            self.world.wait(self.seconds / phase.turns)
            leader = self.world.leader()
            self._replace([leader], span)
        self.world.wait(self.seconds)

    def _move(self, move: Move, span: Span) -> None:
        match move:
            case Definitions(side):
                self.world.stack.apply_cluster(self.versions[side])
            case Controllers(sides):
                members = [self.world.stack.controllers[number] for number, _ in sides]
                for member, (_, side) in zip(members, sides, strict=True):
                    member.become(self.versions[side])
                self._replace(members, span)
            case Webhook(number, side):
                member = self.world.stack.webhooks[number]
                member.become(self.versions[side])
                member.process.terminate()
                member.process.start()
            case Registrations(side):
                self.world.stack.apply_registrations(self.versions[side])
            case _:
                assert_never(move)

    def _replace(self, members: Sequence[Member], span: Span) -> None:
        """End controllers, start them when all have ended, and note for how long none led."""
        former = self._holder()
        began = time.monotonic()
        ends_leader = any(former.startswith(member.name) for member in members)
        for member in members:
            member.process.terminate()
        for member in members:
            member.process.start(waits=False)
        if ends_leader:
            self._wait_for_leader(former)
            span.leaderless.append(time.monotonic() - began)
        for member in members:
            member.process.wait_until_ready()

    def _wait_for_leader(self, former: str) -> None:
        give_up = time.monotonic() + _LEASE_SECONDS
        while (holder := self._holder()) in ("", former):
            if time.monotonic() > give_up:
                raise TimeoutError(f"nothing leads after {former}; the lease has {holder!r}")
            time.sleep(_POLL_SECONDS)

    def _holder(self) -> str:
        with contextlib.suppress(RestError, OSError):
            return str(self.world.rest.get(LEASE)["spec"].get("holderIdentity") or "")
        return ""
