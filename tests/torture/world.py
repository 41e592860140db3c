"""What a fault may touch, and the log of what it did."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import Rest, RestError
from tests.torture.links import Links
from tests.torture.load.shapes import Space
from tests.torture.stack import SYSTEM, Member, Stack

LEDGERS: Final = "/apis/deferredquota.io/v1alpha1/namespaces/{}/quotaledgers"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/deferred-quota-controller"


class BusyError(Exception):
    """Something else is being done to it already, or there is nothing to do it to."""


@dataclass(slots=True, kw_only=True)
class Incident:
    """One fault, from its beginning to the moment when it was mended.

    Attributes:
        namespaces: Where it can have hurt; empty for everywhere.
        heal_seconds: From its end to the next bind that succeeded, the longest of its namespaces;
            None if there was none anywhere.
        unhealed: Namespaces where no bind succeeded any more until the load ended.
    """

    kind: str
    detail: str = ""
    began: float = 0.0
    ended: float = 0.0
    error: str = ""
    namespaces: tuple[str, ...] = ()
    heal_seconds: float | None = None
    unhealed: tuple[str, ...] = ()


@dataclass
class World:
    """The control plane, the product and what is between them."""

    plane: ControlPlane
    stack: Stack
    links: Links
    spaces: Sequence[Space]
    nodes: Sequence[str]
    stopping: threading.Event = field(default_factory=threading.Event)
    _claimed: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rest(self) -> Rest:
        """The API server, as one who may do everything."""
        return self.plane.rest

    @contextmanager
    def claim(self, *names: str) -> Iterator[None]:
        """Have something for oneself.

        Raises:
            BusyError: Another fault has it.
        """
        with self._lock:
            if self._claimed.intersection(names):
                raise BusyError(", ".join(names))
            self._claimed.update(names)
        try:
            yield
        finally:
            with self._lock:
                self._claimed.difference_update(names)

    def wait(self, seconds: float) -> None:
        """Let time pass, less if the end has come."""
        self.stopping.wait(seconds)

    def leader(self) -> Member:
        """Find the controller that leads.

        Raises:
            BusyError: None does, or it cannot be told.
        """
        try:
            holder = str(self.rest.get(LEASE)["spec"].get("holderIdentity") or "")
        except (RestError, OSError, KeyError) as err:
            raise BusyError(f"the lease cannot be read: {err}") from err
        for member in self.stack.controllers:
            if holder.startswith(member.name):
                return member
        raise BusyError(f"the leader is {holder!r}")

    def insist(self, *call: Any, seconds: float = 60.0) -> dict[str, Any]:
        """Call `rest` until it answers: an API server that is being restarted is waited for.

        Args:
            call: The method's name and its arguments.
            seconds: How long.

        Raises:
            RestError: It answers with an error that waiting does not cure.
            OSError: It does not answer in that time.
        """
        method, *arguments = call
        give_up = time.monotonic() + seconds
        while True:
            try:
                answer: dict[str, Any] = getattr(self.rest, method)(*arguments)
            except RestError as err:
                if err.status < 500 and err.status != 429:
                    raise
                problem: Exception = err
            except OSError as err:
                problem = err
            else:
                return answer
            if time.monotonic() > give_up:
                raise problem
            time.sleep(0.3)


def pick_moved(world: World, rng: random.Random) -> Space:
    """Choose a namespace that may be opted out and in.

    Raises:
        BusyError: There is none.
    """
    fit = [space for space in world.spaces if space.is_moved]
    if not fit:
        raise BusyError("no namespace for it")
    return rng.choice(fit)


def pick_space(world: World, rng: random.Random, *, wild: bool = False) -> Space:
    """Choose a namespace that may be edited, or tampered with.

    Raises:
        BusyError: There is none.
    """
    fit = [space for space in world.spaces if (space.is_wild if wild else space.is_edited)]
    if not fit:
        raise BusyError("no namespace for it")
    return rng.choice(fit)
