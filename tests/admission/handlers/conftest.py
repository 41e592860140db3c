"""Desks for the tests of the handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.admission.handlers.harness import AdmissionHarness, admission_harness
from tests.builders import a_quota


class OpenHarness(Protocol):
    """Opens a harness that is closed at the end of the test; see `admission_harness`."""

    def __call__(
        self,
        *objects: Mapping[str, object],
        settings: Mapping[str, object] | None = None,
        mode: str = "deferred",
        with_controller: bool = True,
    ) -> AdmissionHarness: ...


@pytest.fixture
def open_harness(tmp_path: Path) -> Iterator[Callable[..., AdmissionHarness]]:
    """Harnesses where every pod that a quota concerns is gated, unless a setting says otherwise."""
    with ExitStack() as stack:

        def opened(
            *objects: Mapping[str, object],
            settings: Mapping[str, object] | None = None,
            mode: str = "deferred",
            with_controller: bool = True,
        ) -> AdmissionHarness:
            harness = admission_harness(
                *objects,
                directory=tmp_path,
                settings={"gating": "always", **(settings or {})},
                mode=mode,
                with_controller=with_controller,
            )
            return stack.enter_context(harness)

        yield opened


@pytest.fixture
def harness(open_harness: OpenHarness) -> AdmissionHarness:
    """A namespace of 2 cpu: quota `p1`."""
    return open_harness(a_quota("p1"))
