"""As whom a process stands for election."""

from __future__ import annotations

import pytest

from webhook.cli.server_options import unique_identity
from webhook.operations.leader import Holding


def test_a_restarted_process_does_not_take_itself_for_its_predecessor() -> None:
    first, second = (unique_identity("here", "pod-1") for _ in range(2))
    assert first.namespace == second.namespace == "here"
    assert first.name != second.name


@pytest.mark.parametrize("host", ["pod-1", "a", "controller-5d8f9-x2x_4", "node.example"])
def test_where_it_runs_is_known_from_outside(host: str) -> None:
    assert Holding(unique_identity("here", host).name).host == host
