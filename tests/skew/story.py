"""The story: which version each part has in each phase, and the moves from one phase to the next.

An upgrade and the way back have the order of docs/upgrading.md: definitions and rights,
controllers, webhooks one by one, registrations. Controllers end all before any starts, as with
`Recreate`, but in the phase whose controllers have different versions, as in a rolling update.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias


class Side(Enum):
    """One of the two versions."""

    OLD = "old"
    NEW = "new"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The versions of all parts while pods are bound for some time."""

    name: str
    cluster: Side
    controllers: tuple[Side, ...]
    webhooks: tuple[Side, ...]
    registrations: Side
    turns: int = 0
    """How often the controller that leads is ended and started again, so that another leads."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """Definitions and rights are applied."""

    side: Side


@dataclass(frozen=True, slots=True)
class Controllers:
    """Controllers end, and start with their versions when all of them have ended."""

    sides: tuple[tuple[int, Side], ...]
    """Number and version of those that change."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook is replaced, and ready before anything else moves."""

    number: int
    side: Side


@dataclass(frozen=True, slots=True)
class Registrations:
    """Registrations and mask are applied."""

    side: Side


Move: TypeAlias = Definitions | Controllers | Webhook | Registrations

_OLD, _NEW = Side.OLD, Side.NEW

STORY: Final = (
    Phase(
        name="all old",
        cluster=_OLD,
        controllers=(_OLD, _OLD),
        webhooks=(_OLD, _OLD, _OLD),
        registrations=_OLD,
    ),
    Phase(
        name="new controllers, old webhooks",
        cluster=_NEW,
        controllers=(_NEW, _NEW),
        webhooks=(_OLD, _OLD, _OLD),
        registrations=_OLD,
    ),
    Phase(
        name="one webhook of three is new",
        cluster=_NEW,
        controllers=(_NEW, _NEW),
        webhooks=(_NEW, _OLD, _OLD),
        registrations=_OLD,
    ),
    Phase(
        name="all new",
        cluster=_NEW,
        controllers=(_NEW, _NEW),
        webhooks=(_NEW, _NEW, _NEW),
        registrations=_NEW,
    ),
    Phase(
        name="old controllers, new webhooks",
        cluster=_OLD,
        controllers=(_OLD, _OLD),
        webhooks=(_NEW, _NEW, _NEW),
        registrations=_NEW,
    ),
    Phase(
        name="all old again",
        cluster=_OLD,
        controllers=(_OLD, _OLD),
        webhooks=(_OLD, _OLD, _OLD),
        registrations=_OLD,
    ),
    Phase(
        name="controllers of both lead by turns",
        cluster=_NEW,
        controllers=(_NEW, _OLD),
        webhooks=(_OLD, _OLD, _OLD),
        registrations=_OLD,
        turns=4,
    ),
    Phase(
        name="all new again",
        cluster=_NEW,
        controllers=(_NEW, _NEW),
        webhooks=(_NEW, _NEW, _NEW),
        registrations=_NEW,
    ),
)
"""From the old version to the new one, back, and over again."""


def moves(before: Phase, after: Phase) -> Iterator[Move]:
    """Yield what changes between two phases, in the order of an installation."""
    if before.cluster is not after.cluster:
        yield Definitions(after.cluster)
    changed = tuple(_changed(before.controllers, after.controllers))
    if changed:
        yield Controllers(changed)
    for number, side in _changed(before.webhooks, after.webhooks):
        yield Webhook(number, side)
    if before.registrations is not after.registrations:
        yield Registrations(after.registrations)


def _changed(before: tuple[Side, ...], after: tuple[Side, ...]) -> Iterator[tuple[int, Side]]:
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if old is not new:
            yield number, new
