"""Desks for the tests of the doors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.admission.doors.desk import Desk, a_desk
from tests.builders import a_quota


class OpenDesk(Protocol):
    """Opens a desk that is closed at the end of the test; see `a_desk`."""

    def __call__(
        self,
        *objects: Mapping[str, object],
        settings: Mapping[str, object] | None = None,
        mode: str = "deferred",
        with_tracker: bool = True,
    ) -> Desk: ...


@pytest.fixture
def open_desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    with ExitStack() as stack:

        def opened(
            *objects: Mapping[str, object],
            settings: Mapping[str, object] | None = None,
            mode: str = "deferred",
            with_tracker: bool = True,
        ) -> Desk:
            desk = a_desk(
                *objects,
                directory=tmp_path,
                settings=settings,
                mode=mode,
                with_tracker=with_tracker,
            )
            return stack.enter_context(desk)

        yield opened


@pytest.fixture
def desk(open_desk: OpenDesk) -> Desk:
    """A namespace of 2 cpu: quota `p1`."""
    return open_desk(a_quota("p1"))
