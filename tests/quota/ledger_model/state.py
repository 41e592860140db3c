"""States of the model: frozen tuples, so that equal ones are found again.

Versions are numbers of changes of pods. Ledgers are numbers too: equal numbers are equal ledgers
(`decisions` keeps them). No ledger comes back to what it said before, as a claim raises its
serial and a count its version of the pods, so that comparing ledgers is comparing versions.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import NamedTuple, TypeAlias


class Phase(IntEnum):
    """Phase of a pod in storage."""

    GATED = 0
    FREE = 1
    """Without a gate and without a node."""
    BOUND = 2
    GONE = 3


class Stage(IntEnum):
    """How far a request has come."""

    ASKED = 0
    SENT = 1
    """The write of its ledger is on its way."""
    ADMITTED = 2
    """Storage may carry it out."""


NO_LEDGER = 0
"""The number of a ledger that is not there."""
Name: TypeAlias = tuple[int, int]
"""A request: the pod that it binds, and which request for that pod it is."""
History: TypeAlias = tuple[tuple[int, Phase], ...]
"""Every change of pods so far; its length is the version of storage."""


class Request(NamedTuple):
    """A request that has not ended."""

    name: Name
    stage: Stage


class Batch(NamedTuple):
    """A write of a handler that is on its way to storage."""

    base: int
    following: int
    names: tuple[Name, ...]


class Handler(NamedTuple):
    """A replica of the webhook."""

    cached: int
    """The ledger that its watch has brought; another one may have been written since."""
    sent: Batch | None
    requests: tuple[Request, ...]


class Watch(NamedTuple):
    """What a leader knows of a reservation.

    Time is which requests have ended: those that were open when the reservation was seen first end
    before it is due, as no request lasts as long as that takes. Those that begin later may go on.
    """

    serial: int
    open: frozenset[Name]
    proof: int = -1
    """The pod's version by which no request can use the reservation; -1: not proved."""


class Leader(NamedTuple):
    """A controller that takes itself for the leader."""

    seen: int
    """How many changes of pods its watch has brought."""
    gone: frozenset[int]
    """The pods whose deletion its watch has brought."""
    read: tuple[int, frozenset[int]]
    """Of the ledger that it read last, or wrote, which object that is, and for which pods it has
    reservations."""
    watches: tuple[Watch | None, ...]
    """One for each pod."""
    lost: frozenset[Name] | None
    """Of the requests that were open when it saw that there is no ledger, those that still are."""
    sent: tuple[int, int] | None
    """The ledgers before and after a write that is on its way to storage."""


class State(NamedTuple):
    """All that there is."""

    history: History
    ledger: int
    handlers: tuple[Handler, ...]
    leaders: tuple[Leader, ...]
    requests_left: tuple[int, ...]
    """How many requests may still be made for each pod."""
    faults_left: tuple[int, ...]
    """How often each `steps.Fault` may still happen."""


@cache
def phases(history: History) -> dict[int, tuple[Phase, int]]:
    """Return the phase of each pod after some changes, and the version that brought it."""
    return {pod: (phase, number) for number, (pod, phase) in enumerate(history, start=1)}
